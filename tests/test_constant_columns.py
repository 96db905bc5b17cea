"""A column that is constant in X: its importance is not identified, unless the model is known not to use it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import reliance as rl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
X[:, 1] = 5.0
Y = X[:, 0] + RNG.normal(size=20)
KERNEL = rl.samplers.Scrambler(regressor="kernel_ridge")
CALLS = {
    "ablation": lambda f: rl.ablation_importance(f, X, Y, draws=3, rng=0),
    "permutation": lambda f: rl.permutation_importance(f, X, Y, draws=5, rng=0),
    "auto": lambda f: rl.permutation_importance(f, X, Y, draws=rl.Until(budget=10**4), rng=0),
    "pairs": lambda f: rl.model_reliance(f, X, Y),
    "halves": lambda f: rl.model_reliance(f, X, Y, pairs="halves"),
    "conditional": lambda f: rl.conditional_model_reliance(f, X, Y, sampler=KERNEL),
    "relative": lambda f: rl.relative_importance(f, X, Y, given=[0], rng=0, draws=5, features=[1, 2]),
    "sobol": lambda f: rl.sobol_total(f, X),
}


def uses(x):
    return x[:, 0] + x[:, 1] ** 2 * x[:, 2]


def place(result):
    return result.names.index("x1")


@pytest.mark.parametrize("call", CALLS)
def test_constant_columns_have_no_interval_and_no_test(call):
    with pytest.warns(UserWarning, match="constant in X: 'x1'. Importance is not identified") as said:
        result = CALLS[call](uses)
    assert max(len(str(one.message)) for one in said) <= 300
    j = place(result)
    assert result.values[j] == (1.0 if result.compare == "ratio" else 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interval, test = result.interval(), result.test()
    assert np.isnan([*interval[j], test.p_value[j], test.p_adjusted[j], result.std_error[j]]).all()
    others = np.arange(len(result.names)) != j
    assert np.isfinite(interval[others]).all()
    assert np.isfinite(test.p_adjusted[others]).all()
    repr(result), result.to_frame(), result.to_dict()


def test_row_tests_say_nothing_about_constant_columns():
    with pytest.warns(UserWarning, match="constant in X"):
        result = rl.permutation_importance(uses, X, Y, draws=1, rng=0, keep="rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ("paired", "sign-flip", "wilcoxon"):
            p = result.test(method=method).p_value
            assert np.isnan(p).tolist() == [False, True, False]


def test_groups_are_constant_only_as_a_whole():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = rl.model_reliance(uses, X, Y, features=[(1, 2)])
        assert np.isfinite(result._interval(0.95)).all()
    with pytest.warns(UserWarning, match="constant in X"):
        alone = rl.model_reliance(uses, X, Y, features=[1])
    assert np.isnan(alone.interval()).all()
    assert np.isnan(alone.test().p_value).all()


@pytest.mark.parametrize("kind", ["linear", "forest"])
@pytest.mark.parametrize("call", ["pairs", "permutation"])
def test_what_is_known_to_be_unused_is_certain(kind, call):
    model = {"linear": rl.models.Linear(np.array([1.0, 0.0, 1.0])), "forest": RandomForestRegressor(5).fit(X, Y)}[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "constant in X")
        result = CALLS[call](model)
        null = 1.0 if result.compare == "ratio" else 0.0
        assert result._interval(0.95)[1].tolist() == [null, null]


@pytest.mark.parametrize("call", ["pairs", "permutation"])
def test_a_coefficient_of_a_constant_column_is_not_unused(call):
    with pytest.warns(UserWarning, match="constant in X: 'x1'"):
        result = CALLS[call](rl.models.Linear(np.array([1.0, 2.0, 1.0])))
    assert np.isnan(result.std_error[1])


def test_other_methods_say_it(backend):
    with pytest.warns(UserWarning, match="constant in X: 'x1'"):
        found = rl.interaction_importance(uses, backend.asarray(X), backend.asarray(Y), draws=5, rng=0)
    assert np.isnan(found.std_error).tolist() == [True, False, True]


def test_local_and_listed_and_many_names():
    with pytest.warns(UserWarning, match="constant in X: 'x1'"):
        assert np.isnan(rl.local_importance(uses, X, Y).std_error[:, 1]).all()
    with pytest.warns(UserWarning, match="constant in X: 'x1'"):
        rl.model_class_reliance(rl.FiniteClass([uses]), X, Y, epsilon=0.1)
    wide = np.ones((9, 300))
    wide[:, 0] = np.arange(9)
    with pytest.warns(UserWarning, match="constant in X") as said:
        rl.model_reliance(lambda x: x[:, 0], wide, wide[:, 0] + 1.0, names=["n" * 90 + str(k) for k in range(300)])
    assert max(len(str(one.message)) for one in said) <= 300


def test_missing_values_alone_are_constant_and_late_changes_are_not():
    late = np.zeros((200, 2))
    late[:, 0] = np.nan
    late[-1, 1] = 1.0
    with pytest.warns(UserWarning, match=r"constant in X: 'x0'\. Imp"):
        rl.permutation_importance(lambda x: np.nan_to_num(x).sum(axis=1), late, np.arange(200.0), rng=0)


def test_the_drop_in_function_says_nothing():
    from reliance.sklearn import permutation_importance

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        permutation_importance(LinearRegression().fit(X, Y), X, Y, n_repeats=3, random_state=0)
