"""Sobol's indices: literal loops, analytic values, intervals that cover them."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import oracles
import reliance as rl

# Ishigami's function, a = 7, b = 0.1, on the cube (-pi, pi)^3.
_B = 0.1 * math.pi**4
V1, V2, V13 = 0.5 * (1.0 + _B / 5.0) ** 2, 49.0 / 8.0, _B**2 * 8.0 / 225.0
VARIANCE = V1 + V2 + V13
FIRST = np.array([V1, V2, 0.0]) / VARIANCE
TOTAL = np.array([V1 + V13, V2, V13]) / VARIANCE


def ishigami(X):
    return np.sin(X[:, 0]) + 7.0 * np.sin(X[:, 1]) ** 2 + 0.1 * X[:, 2] ** 4 * np.sin(X[:, 0])


def cube(n, seed):
    return np.random.default_rng(seed).uniform(-math.pi, math.pi, size=(n, 3))


def formula(x):
    return x[..., 0] * x[..., 1] + 2.0 * x[..., 2] + x[..., 0]


def data(n=11, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n), rng.normal(size=n)], axis=1)


def table(X, columns):
    """f_ik for all pairs."""
    return oracles.replaced_predictions(formula, X, oracles.all_pairs(len(X))[0], columns)


def pairs_and_triples(f):
    """Means of f_ik^2 over pairs, of f_ik f_il and of f_ik f_lk over triples of different rows, one by one."""
    n = len(f)
    squares = [f[i, k] ** 2 for i in range(n) for k in range(n) if i != k]
    triples = [(i, k, m) for i in range(n) for k in range(n) for m in range(n) if len({i, k, m}) == 3]
    rows = np.mean([f[i, k] * f[i, m] for i, k, m in triples])
    return np.mean(squares), rows, np.mean([f[i, k] * f[m, k] for i, k, m in triples])


def different_pairs(f):
    """The mean of f_ik f_lm over four different rows: the square of the mean, without bias."""
    n, found = len(f), []
    for i in range(n):
        for k in range(n):
            for m in range(n):
                found += [f[i, k] * f[m, h] for h in range(n) if len({i, k, m, h}) == 4]
    return np.mean(found)


GROUPS = {"a": [0], "b": [1], "ab": [0, 1], "nothing": [3]}


@pytest.mark.once_per_device
def test_total_is_the_literal_formula(backend):
    X = data()
    result = rl.sobol_total(formula, backend.asarray(X), features=GROUPS)
    X = backend.rounded(X)
    own = formula(X)
    for name, value in zip(result.names, result.values, strict=True):
        f = table(X, GROUPS[name])
        changes = [(own[i] - f[i, k]) ** 2 for i in range(len(X)) for k in range(len(X)) if i != k]
        backend.assert_close(value, np.mean(changes) / (2.0 * np.var(own, ddof=1)), 10.0)
    backend.assert_close(result.base_risk, np.var(own, ddof=1), 10.0)
    assert result.values[3] == 0.0
    assert result.interval()[3].tolist() == [0.0, 0.0]


@pytest.mark.once_per_device
def test_shares_of_the_product_distribution_are_the_literal_means(backend):
    X = data(9)
    total = rl.sobol_total(formula, backend.asarray(X), features=GROUPS, form="product")
    first = rl.sobol_first(formula, backend.asarray(X), features=GROUPS, form="product")
    plain = rl.sobol_first(formula, backend.asarray(X), features=GROUPS)
    X = backend.rounded(X)
    n = len(X)
    for j, columns in enumerate(GROUPS.values()):
        f = table(X, columns)
        if j == 3:
            assert total.values[3] == first.values[3] == plain.values[3] == 0.0
            continue
        mean = f[~np.eye(n, dtype=bool)].mean()
        squares, within, between = pairs_and_triples(f - mean)
        backend.assert_close(total.replaced_risk[j], squares - within, 10.0)
        # The two pairs (i, k) and (k, i) have no sum of their own: the rest of the square of the mean is exact.
        cross = sum((f[i, k] - mean) * (f[k, i] - mean) for i in range(n) for k in range(n) if i != k)
        level = different_pairs(f - mean) - cross / (n * (n - 1) * (n - 2) * (n - 3))
        backend.assert_close(first.replaced_risk[j], between - level, 10.0)
        backend.assert_close(total.values[j], (squares - within) / (squares - level), 10.0)
        backend.assert_close(first.values[j], (between - level) / (squares - level), 10.0)
        backend.assert_close(plain.values[j], (between - level) / np.var(formula(X), ddof=1), 10.0)


CALLS = {
    "total": lambda model, X: rl.sobol_total(model, X),
    "total, product": lambda model, X: rl.sobol_total(model, X, form="product"),
    "first": lambda model, X: rl.sobol_first(model, X),
    "first, product": lambda model, X: rl.sobol_first(model, X, form="product"),
}


# Those of the product form take triples of rows.
QUICK_FIRST = [pytest.param(name, marks=pytest.mark.slow if "product" in name else ()) for name in CALLS]


@pytest.mark.parametrize("name", QUICK_FIRST)
def test_errors_are_those_of_the_jackknife(name):
    """Leave out each row, as a row and as a donor, and measure again."""
    X = cube(80, 0)
    error = CALLS[name](ishigami, X).std_error
    left = np.array([CALLS[name](ishigami, np.delete(X, i, axis=0)).values for i in range(len(X))])
    jackknife = np.sqrt((len(X) - 1) / len(X) * np.sum((left - left.mean(axis=0)) ** 2, axis=0))
    strong = [0, 1] if "first" in name else [0, 1, 2]
    np.testing.assert_allclose(error[strong], jackknife[strong], rtol=0.1)


@pytest.mark.parametrize("name", QUICK_FIRST)
def test_influence_of_some_rows(monkeypatch, name):
    """With many rows the spread of the influence is that of some of them."""
    X = cube(400, 1)
    whole = CALLS[name](ishigami, X)
    monkeypatch.setattr("reliance.methods.variance_shares.INFLUENCE_ROWS", 200)
    some = CALLS[name](ishigami, X)
    np.testing.assert_array_equal(some.values, whole.values)
    np.testing.assert_allclose(some.std_error[:2], whole.std_error[:2], rtol=0.25)
    if name != "total":
        assert (some.evaluations < whole.evaluations).all()


@pytest.mark.parametrize("model", [LinearRegression(), GradientBoostingRegressor(n_estimators=10, random_state=0)])
def test_routes_give_the_same_shares(model):
    X = data(60)
    model.fit(X, formula(X))
    for call in CALLS.values():
        found, plain = call(model, X), call(lambda Z: model.predict(Z), X)
        for field in ("values", "std_error", "skewness", "replaced_risk"):
            np.testing.assert_allclose(getattr(found, field), getattr(plain, field), rtol=1e-8, atol=1e-10)
    assert set(rl.sobol_total(model, X).routes) <= {"linear", "trees", "unused"}


@pytest.mark.slow
def test_ishigami_lies_within_the_intervals():
    X = cube(1000, 3)
    for name, truth in (("total", TOTAL), ("total, product", TOTAL), ("first", FIRST), ("first, product", FIRST)):
        lower, upper = CALLS[name](ishigami, X).interval(0.99).T
        assert np.all((lower <= truth) & (truth <= upper)), name
    lower, upper = rl.sobol_total(ishigami, X, pairs=20, rng=0).interval(0.99).T
    assert np.all((lower <= TOTAL) & (truth <= upper))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*very skewed:UserWarning")
def test_coverage_and_bias():
    repeats, n = 200, 100
    targets = {"total": TOTAL, "total, product": TOTAL, "first": FIRST, "first, product": FIRST}
    values, covered = {name: [] for name in targets}, {name: [] for name in targets}
    for seed in range(repeats):
        X = cube(n, 1000 + seed)
        for name, truth in targets.items():
            result = CALLS[name](ishigami, X)
            lower, upper = result.interval().T
            values[name].append(result.values)
            covered[name].append((lower <= truth) & (truth <= upper))
    for name, truth in targets.items():
        found, rate = np.array(values[name]), np.mean(covered[name], axis=0)
        error = found.std(axis=0) / math.sqrt(repeats)
        # A ratio of two means is biased by 1/n of itself at most.
        assert np.all(np.abs(found.mean(axis=0) - truth) < 4.0 * error + truth / n), (name, found.mean(axis=0), truth)
        # 3 binomial errors below 95%, and a point for the skewness of 100 rows.
        assert np.all(rate > 0.95 - 3.0 * math.sqrt(0.95 * 0.05 / repeats) - 0.01), (name, rate)


def test_dependent_features():
    """Two copies of one feature: each is needed by the rule for independent features, half of it by the other."""
    x = np.random.default_rng(0).normal(size=400)
    X = np.stack([x, x], axis=1)
    independent = rl.sobol_total(lambda X: X[:, 0] + X[:, 1], X).values
    product = rl.sobol_total(lambda X: X[:, 0] + X[:, 1], X, form="product").values
    np.testing.assert_allclose(independent, 0.25, atol=0.01)  # Var x over Var 2x
    np.testing.assert_allclose(product, 0.5, atol=0.01)


def test_result_is_an_importance(tmp_path):
    result = rl.sobol_total(ishigami, cube(50, 0))
    assert result.compare == "share"
    assert result.test().p_value.max() < 0.01
    assert "share of variance" in repr(result)
    assert list(result.to_frame().columns[:3]) == ["value", "lower", "upper"]
    result.save(tmp_path / "result.json")
    np.testing.assert_array_equal(rl.load(tmp_path / "result.json").interval(), result.interval())
    pytest.importorskip("matplotlib").use("Agg")
    assert result.plot().get_xlabel() == "share of variance of the predictions"


def test_errors():
    X = data()
    for call in (rl.sobol_total, rl.sobol_first):
        with pytest.raises(ValueError, match=r"predicts 2 for every row of X.*no variance to share"):
            call(lambda X: np.full(len(X), 2.0), X)
        with pytest.raises(ValueError, match=r"shape \(11, 2\).*predict_proba\(X\)\[:, 1\]"):
            call(lambda X: X[:, :2], X)
        with pytest.raises(ValueError, match="form='both' is unknown"):
            call(formula, X, form="both")
        with pytest.raises(TypeError, match="weights"):
            call(formula, X, weights=np.ones(11))
    with pytest.raises(ValueError, match=r"form='product' needs.*pairs='all', got pairs=3"):
        rl.sobol_total(formula, X, pairs=3, form="product")
    with pytest.raises(ValueError, match=r"X has 3 rows.*at least 4"):
        rl.sobol_first(formula, X[:3])
    with pytest.raises(ValueError, match="pairs='some' is unknown"):
        rl.sobol_total(formula, X, pairs="some")


def test_nothing_is_drawn_for_first_order_indices():
    """All pairs are evaluated: equal calls are equal, and there is no random state to give."""
    assert "rng" not in inspect.signature(rl.sobol_first).parameters
    X = np.random.default_rng(0).normal(size=(30, 3))
    one, other = (rl.sobol_first(lambda X: X[:, 0] * X[:, 1], X) for _ in range(2))
    assert one.key == other.key
    np.testing.assert_array_equal(one.std_error, other.std_error)
