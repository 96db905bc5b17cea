"""The three methods against literal double loops, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
import reliance as rl
from methods import KEY, METHODS, SHIFTS, assert_result, donor_table, tables
from oracles import CASES
from reliance import plans
from reliance._core.arrays import to_host

SINGLE = [(0,), (1,), (2,), (3,)]
WEIGHTS = {
    "none": None,
    "uneven": [0.5, 2.0, 1.0, 0.0, 3.0, 1.0, 0.25, 1.5, 1.0, 0.75],
    "counts": [1, 2, 0, 1, 3, 1, 1, 2, 1, 1],
}


def measure(backend, method, case, X, y, compare="difference", weights=None, **options):
    """The result on the backend, and the oracle's tables of single columns for the numbers that the device holds."""
    given = None if weights is None else np.asarray(weights)
    result = METHODS[method](
        case.formula,
        backend.asarray(X),
        backend.asarray(y),
        loss=case.loss,
        compare=compare,
        weights=backend.asarray(given),
        keep="rows",
        **options,
    )
    exact = None if given is None else backend.rounded(given)
    return result, tables(
        METHODS[method], case.formula, case.oracle, backend.rounded(X), backend.rounded(y), SINGLE, exact
    )


@pytest.mark.paired("case", "method", one_in=3)
@pytest.mark.parametrize("method", ["ablation", "permutation", "all"])
@pytest.mark.parametrize("case", CASES)
def test_every_loss(backend, case, method):
    X, y = CASES[case].data(n=10)
    result, expected = measure(backend, method, CASES[case], X, y)
    assert_result(backend, result, expected, "difference")


@pytest.mark.paired("method", "weights", "compare", one_in=2)
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:pairs=:UserWarning")
def test_weights_and_comparisons(backend, method, weights, compare):
    X, y = CASES["squared_error"].data(n=10, seed=1)
    result, expected = measure(backend, method, CASES["squared_error"], X, y, compare, WEIGHTS[weights])
    assert_result(backend, result, expected, compare)


def test_jackknife_of_all_pairs_is_leave_one_out(backend):
    X, y = CASES["huber"].data(n=8, seed=2)
    result, expected = measure(backend, "all", CASES["huber"], X, y)
    backend.assert_close(result.std_error, [oracles.leave_one_out_error(table) for table in expected])


GROUPS = {
    "list": ([0, (1, 2), "x3"], [(0,), (1, 2), (3,)], ("x0", "x1+x2", "x3")),
    "group-of-names": ([("x3", "x0")], [(0, 3)], ("x0+x3",)),
    "negative": ([-1, -4], [(3,), (0,)], ("x3", "x0")),
    "dict": ({"a": [0, 2], "b": 1, "c": "x3"}, [(0, 2), (1,), (3,)], ("a", "b", "c")),
    "all-columns": ({"all": range(4)}, [(0, 1, 2, 3)], ("all",)),
    "alone-and-in-a-group": ([1, (0, 1)], [(1,), (0, 1)], ("x1", "x0+x1")),
}


@pytest.mark.once_per_device
@pytest.mark.parametrize("method", ["ablation", "all"])
@pytest.mark.parametrize("groups", GROUPS)
def test_groups(backend, groups, method):
    features, columns, names = GROUPS[groups]
    case = CASES["squared_error"]
    X, y = case.data(n=7, seed=3)
    result = METHODS[method](
        case.formula, backend.asarray(X), backend.asarray(y), features=features, compare="difference", keep="rows"
    )
    assert result.names == names
    expected = tables(METHODS[method], case.formula, case.oracle, backend.rounded(X), backend.rounded(y), columns)
    assert_result(backend, result, expected, "difference")


def image_formula(x):
    """Of (..., 3, 2): an interaction within and between lines."""
    return x[..., 0, 0] * x[..., 1, 1] - 2.0 * x[..., 2, 0] + x[..., 0, 1]


MASKS = {
    "every-pixel": (None, [(j,) for j in range(6)], ["x[0,0]", "x[0,1]", "x[1,0]", "x[1,1]", "x[2,0]", "x[2,1]"]),
    "patches": ([[0, 0], [1, 1], [2, 2]], [(0, 1), (2, 3), (4, 5)], ["0", "1", "2"]),
    "scattered": ([[7, 3], [3, 7], [-1, 3]], [(1, 2, 5), (0, 3)], ["3", "7"]),
}


@pytest.mark.once_per_device
@pytest.mark.parametrize("method", ["permutation", "all"])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_inputs_of_several_dimensions(backend, mask, method):
    numbers, columns, names = MASKS[mask]
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(8, 3, 2)), rng.normal(size=8)
    loss = oracles.LOSSES["squared_error"]
    features = None if numbers is None else np.asarray(numbers)
    result = METHODS[method](
        image_formula, backend.asarray(X), backend.asarray(y), features=features, compare="difference", keep="rows"
    )
    assert result.names == tuple(names)
    expected = tables(METHODS[method], image_formula, loss, backend.rounded(X), backend.rounded(y), columns)
    assert_result(backend, result, expected, "difference")


@pytest.mark.once_per_device
def test_a_mask_may_live_on_the_device(backend):
    X, y = np.ones((4, 2, 2)), np.ones(4)
    mask = backend.asarray(np.asarray([[0, 1], [1, 0]]))
    result = rl.permutation_importance(
        lambda x: x[:, 0, 0], backend.asarray(X), backend.asarray(y), features=mask, draws=3, rng=0
    )
    assert result.names == ("0", "1")


@pytest.mark.once_per_device
@pytest.mark.parametrize("draws", [8, 9, 17, 20])
def test_draws_beyond_one_ordering(backend, draws):
    case, n = CASES["absolute_error"], 9
    X, y = case.data(n=n, seed=5)
    arrays = backend.asarray(X), backend.asarray(y)
    if draws > n - 1:
        with pytest.warns(UserWarning, match=f"draws={draws} is more than the 8 shifts"):
            result = METHODS["permutation"](case.formula, *arrays, draws=SHIFTS(draws), loss=case.loss, keep="rows")
    else:
        result = METHODS["permutation"](case.formula, *arrays, draws=SHIFTS(draws), loss=case.loss, keep="rows")
    donors, mask = donor_table(plans.Shifts(n, draws, KEY))
    exact = backend.rounded(X), backend.rounded(y)
    expected = [oracles.loss_table(case.formula, case.oracle, *exact, c, donors, mask) for c in SINGLE]
    assert_result(backend, result, expected, "difference")
    if draws == n - 1:
        pairs = rl.model_reliance(case.formula, *arrays, loss=case.loss, compare="difference")
        backend.assert_close(result.values, pairs.values)
        backend.assert_close(result.std_error, pairs.std_error)


def test_prediction_shift_needs_no_labels(backend):
    case = CASES["squared_error-outputs"]
    X, _ = case.data(n=7, seed=6)
    result = METHODS["all"](
        case.formula, backend.asarray(X), loss="prediction_shift", compare="difference", keep="rows"
    )
    own = np.array([case.formula(row) for row in backend.rounded(X)])
    expected = tables(METHODS["all"], case.formula, case.oracle, backend.rounded(X), own, SINGLE)
    assert result.base_risk == 0.0
    assert_result(backend, result, expected, "difference")


def test_a_loss_of_ones_own(backend):
    def cubed(y, prediction):
        return backend.xp.abs(y - prediction) ** 3

    case = CASES["squared_error"]
    X, y = case.data(n=7, seed=7)
    result = METHODS["permutation"](case.formula, backend.asarray(X), backend.asarray(y), loss=cubed, keep="rows")
    assert result.loss == "cubed"
    exact = backend.rounded(X), backend.rounded(y)
    expected = tables(METHODS["permutation"], case.formula, lambda a, b: abs(a - b) ** 3, *exact, SINGLE)
    assert_result(backend, result, expected, "difference")


@pytest.mark.once_per_device
def test_predictions_of_shape_n_by_1_are_taken_as_n(backend):
    X, y = CASES["squared_error"].data(n=7, seed=8)
    arrays = backend.asarray(X), backend.asarray(y)
    flat = METHODS["all"](lambda x: x[:, 0] * x[:, 1], *arrays)
    column = METHODS["all"](lambda x: x[:, :1] * x[:, 1:2], *arrays)
    np.testing.assert_array_equal(flat.values, column.values)


def covariances(X, y):
    """Covariances with n - 1 denominators: of the columns, and of the columns with y."""
    centred = X - X.mean(axis=0)
    return centred.T @ centred / (len(X) - 1), centred.T @ (y - y.mean()) / (len(X) - 1)


@pytest.mark.parametrize("group", [(0,), (3,), (0, 2), (0, 1, 2, 3)], ids=str)
def test_linear_model_has_its_closed_form(backend, group):
    """e_switch - e_orig = 2 b1'(s_1y - S_12 b2), exactly, over all pairs."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(12, 4)) @ rng.normal(size=(4, 4))
    y, b = rng.normal(size=12) + X[:, 0], np.array([1.0, -0.5, 2.0, 0.25])

    def linear(x):
        return 1.0 * x[..., 0] - 0.5 * x[..., 1] + 2.0 * x[..., 2] + 0.25 * x[..., 3] + 3.0

    result = rl.model_reliance(linear, backend.asarray(X), backend.asarray(y), features=[group], compare="difference")
    exact = backend.rounded(X), backend.rounded(y)
    S, s = covariances(*exact)
    own, rest = list(group), [j for j in range(4) if j not in group]
    expected = 2.0 * b[own] @ (s[own] - S[np.ix_(own, rest)] @ b[rest])
    backend.assert_close(result.values, [expected], scale=result.replaced_risk[0])


def test_perfect_linear_model_relies_by_twice_the_variance(backend):
    X = np.random.default_rng(10).normal(size=(15, 3))
    x = backend.asarray(X)
    result = rl.model_reliance(lambda x: 3.0 * x[:, 0], x, 3.0 * x[:, 0], compare="difference")
    variance = np.var(backend.rounded(X)[:, 0], ddof=1)
    backend.assert_close(result.values, [18.0 * variance, 0.0, 0.0], 18.0 * variance)


COEFFICIENTS = np.array([1.5, -0.3, 0.0, 0.7, 2.0])  # the third feature is not used


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ["columns", "product"])
@pytest.mark.filterwarnings("ignore:pairs=:UserWarning")
def test_a_feature_that_the_model_ignores(backend, model, method):
    """Exactly nothing, also where a matrix product or a compiler rounds a row differently in blocks of other sizes."""
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(202, 5)), rng.normal(size=202)
    b = backend.asarray(COEFFICIENTS)

    def columns(x):
        return 3.0 * x[:, 0] + x[:, 1]

    def product(x):
        return x @ b

    predict = {"columns": columns, "product": product}[model]
    result = METHODS[method](
        predict, backend.asarray(X), backend.asarray(y), features=[2], compare="difference", keep="rows"
    )
    np.testing.assert_array_equal(result.values, 0.0)
    np.testing.assert_array_equal(result.interval(), [[0.0, 0.0]])
    np.testing.assert_array_equal(result.test().p_value, 1.0)


def test_one_huge_prediction_does_not_hide_a_feature(backend):
    """What counts as rounding for one row is a real change for the others."""
    rng = np.random.default_rng(12)
    X, noise = rng.normal(size=(30, 2)), 0.1 * rng.normal(size=30)
    X[0, 0] = 1e7
    y = backend.rounded(X).sum(axis=1) + noise

    def total(x):
        return x[..., 0] + x[..., 1]

    def measured(X, y):
        return rl.model_reliance(total, X, y, features=[1], loss="absolute_error", compare="difference")

    found, exact = measured(backend.asarray(X), backend.asarray(y)), measured(backend.rounded(X), backend.rounded(y))
    assert exact.values[0] > 0.5
    np.testing.assert_allclose(found.values, exact.values, rtol=0.1)


@pytest.mark.once_per_device
def test_the_users_arrays_are_left_alone(backend):
    case = CASES["squared_error"]
    X, y = case.data()
    x, labels = backend.asarray(X), backend.asarray(y)
    METHODS["ablation"](case.formula, x, labels, run=rl.Run(block=5))
    np.testing.assert_array_equal(to_host(x), backend.rounded(X))
    np.testing.assert_array_equal(to_host(labels), backend.rounded(y))
