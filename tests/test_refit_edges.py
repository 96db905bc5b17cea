"""Refits at their edges: what travels, what is left as it was, which splits and which rows."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import pickle
import pkgutil
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import reliance as rl
from relative_cases import packed, relative_importance
from reliance.refit.running import RefitError
from reliance.results.null import NullImportance

sklearn = pytest.importorskip("sklearn")
from sklearn import ensemble, linear_model, model_selection, pipeline, preprocessing, tree  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + 0.5 * X[:, 1] + 0.3 * RNG.normal(size=60)
GROUPS = np.repeat(np.arange(6), 10)


def fit_linear(X, y):
    coef = np.linalg.lstsq(X, y, rcond=None)[0]
    return lambda X: X @ coef


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions travel


class OddError(Exception):
    """Cannot be unpickled: it needs two arguments, and is made again of one."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


def refit_error(kind="plain"):
    failures = {"without 'a'": ValueError("singular"), "without 'b'": KeyError("b")}
    if kind == "odd":
        failures["without 'c'"] = OddError("it", "there")
    return RefitError("the refit failed", failures, NullImportance(("a",), np.ones(1), np.ones((1, 2)), 5, 1, "m"))


def raise_refit_error(kind):
    raise refit_error(kind)


def check_refit_error(error, kind):
    assert type(error) is RefitError
    assert str(error) == "the refit failed"
    assert str(error.failures["without 'a'"]) == "singular"
    assert type(error.failures["without 'b'"]) is KeyError
    assert error.result.values.tolist() == [1.0]
    if kind == "odd":
        assert "OddError: it at there" in str(error.failures["without 'c'"])


@pytest.mark.parametrize("kind", ["plain", "odd"])
@pytest.mark.parametrize("trip", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))], ids=["copy", "pickle"])
def test_a_refit_error_is_the_same_after_a_trip(kind, trip):
    check_refit_error(trip(refit_error(kind)), kind)


def test_a_refit_error_comes_out_of_a_process():
    with ProcessPoolExecutor(1) as pool:
        for kind in ("plain", "odd"):
            check_refit_error(pool.submit(raise_refit_error, kind).exception(), kind)


def test_every_exception_of_ours_can_be_pickled():
    found = set()
    for module in pkgutil.walk_packages(rl.__path__, "reliance."):
        if module.name.rpartition(".")[2] in ("torch_framework", "jax_framework", "__main__"):
            continue
        for _, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(value, BaseException) and value.__module__.startswith("reliance"):
                found.add(value)
    assert RefitError in found
    for kind in found - {RefitError}:
        again = pickle.loads(pickle.dumps(kind("some words")))
        assert type(again) is kind
        assert again.args == ("some words",)


def test_long_errors_of_a_fit_are_cut():
    def fit(X, y):
        if X.shape[1] < 3:
            raise ValueError("a long story " * 1000)
        return fit_linear(X, y)

    with pytest.raises(RefitError) as error:
        rl.algorithm_reliance(fit, X, Y, cv=2, rng=0, features={"a name " * 100: [0], "all others": [1]})
    assert len(str(error.value)) <= 300
    assert len(next(iter(error.value.failures.values())).args[0]) > 10_000


# ---------------------------------------------------------------------------------------------------------------------
# The user's own things stay as they were


@pytest.mark.parametrize(
    "call",
    [
        lambda fit: rl.algorithm_reliance(fit, X, Y, cv=2, rng=0),
        lambda fit: rl.cross_validated_importance(fit, X, Y, cv=2, rng=0, draws=3),
        lambda fit: rl.null_importance(fit, X, Y, rounds=2, rng=0, draws=3),
    ],
    ids=["algorithm", "cross-validated", "null"],
)
def test_the_estimator_is_the_same_after_the_call(call):
    state = np.random.RandomState(3)
    mine = ensemble.RandomForestRegressor(3, max_depth=2, random_state=state).fit(X, Y)
    before, drawn = mine.predict(X), state.get_state()[1].copy()
    call(mine)
    np.testing.assert_array_equal(mine.predict(X), before)
    assert mine.random_state is state
    np.testing.assert_array_equal(state.get_state()[1], drawn)
    with pytest.raises(TypeError, match="pass the estimator itself"):
        call(mine.fit)
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator(mine)
    with pytest.raises(TypeError, match="cannot be fitted again"):
        call(frozen)


def test_an_importance_of_ones_own_may_destroy_its_data():
    rows, labels = X.copy(), Y.copy()

    def importance(model, X, y):
        found = np.abs(X[:5].sum(axis=0))
        X[:], y[:] = 0.0, 0.0
        return found

    found = rl.null_importance(fit_linear, rows, labels, rounds=3, importance=importance, rng=0)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(labels, Y)
    expected = np.abs(X[:5].sum(axis=0))
    np.testing.assert_allclose(found.values, expected)
    np.testing.assert_allclose(found.null, np.repeat(expected[:, None], 3, axis=1))


@pytest.mark.parametrize("executor", [False, True], ids=["threads", "executor"])
def test_one_model_on_two_threads_is_refused(executor):
    """A model that is fitted again while another thread measures it gives that thread wrong numbers."""
    shared, barrier, lock = linear_model.LinearRegression(), threading.Barrier(2, timeout=5), threading.Lock()

    def fit(X, y):
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait()
        with lock:
            shared.fit(X, y)
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait()  # whichever was fitted first has rows that the model does not fit
        return shared

    def run(fit, **options):
        return rl.algorithm_reliance(fit, X, Y, cv=(X, Y), **options)

    pool = ThreadPoolExecutor(2) if executor else None
    options = {"run": rl.Run(workers=pool or 2)}
    with pytest.raises(TypeError, match="same LinearRegression on two threads"):
        run(fit, **options)
    barrier.abort()  # one thread may wait for a fit that was given up
    # One after the other it is as good as any. (Threads of the run that failed may still fit the first one.)
    another = linear_model.LinearRegression()
    again = run(lambda X, y: another.fit(X, y))
    expected = run(linear_model.LinearRegression(), **options)
    np.testing.assert_allclose(again.values, expected.values)
    if pool:
        pool.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Splits


def reliance(cv, **options):
    return rl.algorithm_reliance(fit_linear, X, Y, cv=cv, **options)


def crossed(cv, **options):
    return rl.cross_validated_importance(fit_linear, X, Y, cv=cv, rng=0, draws=3, **options)


@pytest.mark.parametrize("call", [reliance, crossed])
def test_splitters_that_need_groups(call):
    splitter = model_selection.GroupKFold(3)
    for cv in (splitter, model_selection.LeaveOneGroupOut(), model_selection.StratifiedKFold(3)):
        with pytest.raises(ValueError, match=r"cv=\w+ cannot split.*list\(splitter\.split\(X, y, groups\)\)"):
            call(cv)
    with pytest.raises(TypeError, match="cv=GroupKFold is a class"):
        call(model_selection.GroupKFold)
    pairs = list(splitter.split(X, Y, GROUPS))
    np.testing.assert_array_equal(call(pairs).values, call(iter(pairs)).values)


class ByFirstColumn:
    """A splitter that looks at the rows themselves."""

    def split(self, X, y):
        low = np.asarray(X)[:, 0] < 0
        yield np.flatnonzero(low), np.flatnonzero(~low)
        yield np.flatnonzero(~low), np.flatnonzero(low)


@pytest.mark.parametrize("call", [reliance, crossed])
def test_a_splitter_sees_the_rows(call):
    low = X[:, 0] < 0
    pairs = [(np.flatnonzero(low), np.flatnonzero(~low)), (np.flatnonzero(~low), np.flatnonzero(low))]
    np.testing.assert_array_equal(call(ByFirstColumn()).values, call(pairs).values)


@pytest.mark.parametrize("call", [reliance, crossed])
def test_a_split_without_weight_is_refused_before_the_first_fit(call):
    half = np.arange(60) < 30
    pairs = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    with pytest.raises(ValueError, match="weights are all 0 for the test rows of split 0"):
        call(pairs, weights=half.astype(float))


def test_a_context_is_that_of_the_rows():
    """Each fold by hand: its model, its test rows, and their context."""
    cause = np.random.default_rng(1).normal(size=60)
    pairs = [(np.flatnonzero(k == GROUPS % 2), np.flatnonzero(k != GROUPS % 2)) for k in (0, 1)]
    options = {"given": ["cause"], "rng": 7, "draws": 3}
    found = rl.cross_validated_importance(
        fit_linear, X, Y, cv=pairs, method="relative_importance", **packed({**options, "context": {"cause": cause}})
    )
    key = {**options, "rng": 7}
    for k, (train, test) in enumerate(pairs):
        one = relative_importance(
            fit_linear(X[train], Y[train]), X[test], Y[test], context={"cause": cause[test]}, **key
        )
        np.testing.assert_allclose(found.folds[:, k], one.values)
    with pytest.raises(ValueError, match=r"context\['cause'\] has shape \(9,\)"):
        rl.cross_validated_importance(
            fit_linear,
            X,
            Y,
            cv=pairs,
            method="relative_importance",
            **packed({**options, "context": {"cause": cause[:9]}}),
        )


# ---------------------------------------------------------------------------------------------------------------------
# What is not known


def test_unknown_null_importances_have_no_p():
    """Nothing reaches NaN, so counting alone would call it the most significant of all."""
    null = np.array([[0.1, 0.2, 0.3], [0.1, np.nan, 0.3], [0.1, 0.2, 0.3]])
    found = NullImportance(("a", "b", "c"), np.array([np.nan, 9.0, 9.0]), null, 10, 1, "m")
    assert np.isnan(found.test().p_value[:2]).all()
    assert found.test(adjust="none").p_value[2] == 0.25
    assert found.test(adjust="holm").p_adjusted[2] == 0.25
    for method in ("normal", "lognormal", "gamma"):
        p = found.test(method=method).p_value
        assert np.isnan(p[:2]).all()
        assert p[2] < 0.02  # three rounds leave two degrees of freedom
        assert np.isnan(found.goodness_of_fit(method)).tolist() == [False, True, False]
    assert "-" in repr(found).splitlines()[2]
    assert found.to_frame()["p"].isna().tolist() == [True, True, False]
    assert found.ranked().names[-1] == "a"


def test_the_ratio_of_a_split_whose_risk_is_not_positive_is_unknown():
    """Its mean may be above 0 all the same, and then the value stands."""
    pairs = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]

    def loss(y, f):
        return np.where(y > 100, -1.0, 3.0) + 0.0 * f

    labels = Y + 1000.0 * (np.arange(60) < 30)
    found = rl.algorithm_reliance(fit_linear, X, labels, cv=pairs, loss=loss)
    assert np.isnan(found.folds[:, 1]).all()
    assert found.folds[:, 0].tolist() == [1.0, 1.0, 1.0]


# ---------------------------------------------------------------------------------------------------------------------
# Forests that are none


@pytest.mark.parametrize(
    "forest, error, message",
    [
        (tree.DecisionTreeRegressor().fit(X, Y), TypeError, "DecisionTreeRegressor is one model"),
        (ensemble.HistGradientBoostingRegressor(max_iter=2).fit(X, Y), TypeError, "is one model"),
        (linear_model.LinearRegression().fit(X, Y), TypeError, "is one model"),
        (
            pipeline.make_pipeline(preprocessing.StandardScaler(), ensemble.RandomForestRegressor(2)).fit(X, Y),
            TypeError,
            "of a pipeline the forest in it",
        ),
        (tree.DecisionTreeRegressor(), ValueError, "DecisionTreeRegressor is not fitted"),
        (ensemble.RandomForestRegressor(2), ValueError, "RandomForestRegressor is not fitted"),
        (ensemble.BaggingRegressor(), ValueError, "BaggingRegressor is not fitted"),
        (pipeline.make_pipeline(ensemble.RandomForestRegressor(2)), ValueError, "Pipeline is not fitted"),
        (ensemble.RandomForestRegressor(2, bootstrap=False).fit(X, Y), ValueError, "bootstrap=True"),
        (ensemble.ExtraTreesRegressor(2).fit(X, Y), ValueError, "bootstrap=True"),
        (ensemble.GradientBoostingRegressor(n_estimators=2).fit(X, Y), TypeError, "does not say which rows"),
    ],
)
def test_forests_that_are_none(forest, error, message):
    with pytest.raises(error, match=message) as caught:
        rl.out_of_bag_importance(forest, X, Y)
    assert len(str(caught.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# Columns of two sets


def test_two_sets_must_have_the_same_columns():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    swapped, wide = table[["b", "a", "c"]], pd.DataFrame(np.zeros((60, 400))).rename(columns="a long name {}".format)

    def compare(train, test, **options):
        return rl.compare_splits(lambda x: np.asarray(x)[:, 0], train=(train, Y), test=(test, Y), rng=0, **options)

    # A chosen feature, or names of one's own, hide that the model reads another column.
    for options in ({}, {"features": ["a"]}, {"names": ["p", "q", "r"]}):
        with pytest.raises(ValueError, match="same columns in different orders"):
            compare(table, swapped, **options)
    with pytest.raises(ValueError, match="train alone has 'c'; test alone has 'z'"):
        compare(table, table.rename(columns={"c": "z"}))
    with pytest.raises(ValueError, match=r"test alone has .* and 397 more") as error:
        compare(table, wide)
    assert len(str(error.value)) <= 300
    with pytest.raises(TypeError, match="a table and an array"):
        compare(table, X)
    with pytest.raises(ValueError, match=r"shape \(3,\), those of test \(2,\)"):
        compare(X, X[:, :2])
    with pytest.raises(TypeError, match=r"train must be a tuple .* got 1 entries"):
        rl.compare_splits(lambda x: x[:, 0], train=(X,), test=(X, Y))
    with pytest.raises(TypeError, match=r"equal columns in one order.*X_test has 'b', 'a', 'c'"):
        rl.algorithm_reliance(linear_model.LinearRegression(), table, Y, cv=(swapped, Y))


@pytest.mark.parametrize(
    "call",
    [
        lambda fit, X, y, **o: rl.algorithm_reliance(fit, X, y, cv=2, rng=0, **o),
        lambda fit, X, y, **o: rl.cross_validated_importance(fit, X, y, cv=2, rng=0, draws=3, **o),
        lambda fit, X, y, **o: rl.null_importance(fit, X, y, rounds=2, rng=0, draws=3, **o),
        lambda fit, X, y, **o: rl.algorithm_reliance(fit, X, Y, cv=(X, y), **o),
    ],
    ids=["algorithm", "cross-validated", "null", "test set"],
)
def test_rows_in_another_order_are_refused(call):
    pd = pytest.importorskip("pandas")
    table, labels = pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(Y)
    shuffled, weights = labels.sample(frac=1, random_state=0), pd.Series(np.ones(60)).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="in another order"):
        call(linear_model.LinearRegression(), table, shuffled)
    with pytest.raises(ValueError, match="in another order"):
        call(linear_model.LinearRegression(), table, labels, weights=weights)
    call(linear_model.LinearRegression(), table, labels)


def test_a_context_in_another_order_is_refused():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    cause = pd.Series(Y).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="in another order"):
        rl.cross_validated_importance(
            linear_model.LinearRegression(),
            table,
            Y,
            method="relative_importance",
            given=rl.Given(["cause"], context={"cause": cause}),
        )
