"""Whole-set metrics per draw against scikit-learn, and several losses in one pass."""

from __future__ import annotations

import array_api_compat
import numpy as np
import pytest

import oracles
import reliance as rl
from methods import METHODS, donor_table
from oracles import CASES

metrics = pytest.importorskip("sklearn.metrics")
pytestmark = pytest.mark.filterwarnings("ignore:the losses of:UserWarning")

WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 3.0, 1.0, 0.25, 1.5, 1.0, 0.75, 1.0, 2.0])


def tied(x):
    """A score with many ties."""
    return array_api_compat.array_namespace(x).floor(2.0 * x[..., 0] + x[..., 1])


SCORES = {
    "auc": (CASES["log_loss"].formula, "binary", lambda y, p, w: 1.0 - metrics.roc_auc_score(y, p, sample_weight=w)),
    "auc-ties": (tied, "binary", lambda y, p, w: 1.0 - metrics.roc_auc_score(y, p, sample_weight=w)),
    "r2": (CASES["squared_error"].formula, "real", lambda y, p, w: 1.0 - metrics.r2_score(y, p, sample_weight=w)),
    "r2-outputs": (
        CASES["squared_error-outputs"].formula,
        "outputs",
        lambda y, p, w: 1.0 - metrics.r2_score(y, p, sample_weight=w, multioutput="variance_weighted"),
    ),
    "rmse": (
        CASES["squared_error"].formula,
        "real",
        lambda y, p, w: metrics.mean_squared_error(y, p, sample_weight=w) ** 0.5,
    ),
    "accuracy": (
        CASES["zero_one"].formula,
        "binary",
        lambda y, p, w: 1.0 - metrics.accuracy_score(y, p, sample_weight=w),
    ),
    "accuracy-classes": (
        CASES["zero_one-classes"].formula,
        "three",
        lambda y, p, w: 1.0 - metrics.accuracy_score(y, np.argmax(p, axis=1), sample_weight=w),
    ),
}


def expected_draws(predict, score, X, y, weights, donors, compare):
    """The metric of each draw (p, K) beside that of the base, one column of X at a time."""
    base = score(y, oracles.base_predictions(predict, X), weights)
    rows = []
    for column in range(X.shape[1]):
        drawn = oracles.replaced_predictions(predict, X, donors, [column])
        rows.append([score(y, drawn[:, k], weights) for k in range(donors.shape[1])])
    values = np.array(rows)
    return base, values / base if compare == "ratio" else values - base


def expected_pool(predict, score, X, y, weights):
    """The metric of all n(n-1) pairs as one data set, one column of X at a time, beside that of the rows."""
    n = len(X)
    row, donor = np.nonzero(~np.eye(n, dtype=bool))
    pooled = None if weights is None else weights[row]
    values = []
    for column in range(X.shape[1]):
        moved = X[row]
        moved[:, column] = X[donor, column]
        values.append(score(y[row], oracles.base_predictions(predict, moved), pooled))
    return score(y, oracles.base_predictions(predict, X), weights), np.array(values)


def data(labels, n=12, seed=1):
    return oracles.Case("squared_error", CASES["squared_error"].formula, labels).data(n, seed)


@pytest.mark.paired("name", "method", one_in=3)
@pytest.mark.parametrize(
    ("method", "weights"),
    [("ablation", None), ("permutation", WEIGHTS)],
    ids=["ablation", "permutation-weighted"],
)
@pytest.mark.parametrize("name", SCORES)
def test_metrics_are_scikit_learns_in_every_draw(backend, name, method, weights):
    predict, labels, score = SCORES[name]
    X, y = data(labels)
    compare = "ratio" if method == "ablation" else "difference"
    result = METHODS[method](
        predict,
        backend.asarray(X),
        backend.asarray(y),
        loss=name.split("-")[0],
        compare=compare,
        weights=backend.asarray(weights),
        keep="rows",
    )
    exact, w = (backend.rounded(X), backend.rounded(y)), backend.rounded(weights)
    donors, _ = donor_table(METHODS[method].plan(len(X)))
    base, draws = expected_draws(predict, score, *exact, w, donors, compare)
    scale = float(np.max(np.abs(draws)))
    backend.assert_close(result.base_risk, base)
    backend.assert_close(result.values, draws.mean(axis=1), scale)
    backend.assert_close(result.draws, draws, scale)
    backend.assert_close(result.row_values.mean(axis=1), draws.mean(axis=1), scale)
    assert np.isfinite(result.interval()).all()


@pytest.mark.paired("name", "weights", one_in=3)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", SCORES)
def test_metrics_of_all_pairs_are_scikit_learns_of_the_pool(backend, name, weights):
    predict, labels, score = SCORES[name]
    X, y = data(labels)
    given = (backend.asarray(a) for a in (X, y))
    options = {"compare": "difference", "weights": backend.asarray(weights), "keep": "rows"}
    result = rl.model_reliance(predict, *given, loss=name.split("-")[0], **options)
    w = backend.rounded(weights)
    base, pooled = expected_pool(predict, score, backend.rounded(X), backend.rounded(y), w)
    backend.assert_close(result.base_risk, base)
    backend.assert_close(result.values, pooled - base, float(np.max(np.abs(pooled))))
    backend.assert_close(result.row_values.mean(axis=1), pooled - base, float(np.max(pooled)))
    assert result.draws is None
    assert np.isfinite(result.interval()).all()


def squared_bias(xp):
    """A user's metric with its influence function: (mean error)^2, linearised."""

    def influence(y, prediction, weights=None):
        error = y - prediction
        mean = xp.mean(error) if weights is None else xp.sum(weights * error) / xp.sum(weights)
        return mean**2 + 2.0 * mean * (error - mean)

    def value(y, prediction, weights=None):
        error = y - prediction
        return (xp.mean(error) if weights is None else xp.sum(weights * error) / xp.sum(weights)) ** 2

    return rl.Metric(value, influence, name="squared_bias")


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("influence", [True, False], ids=["influence", "value-only"])
def test_a_metric_of_ones_own(backend, influence, weights):
    own = squared_bias(backend.xp)
    metric = own if influence else rl.Metric(own.value, name="squared_bias")
    predict = CASES["squared_error"].formula
    X, y = data("real")
    result = METHODS["permutation"](
        predict, backend.asarray(X), backend.asarray(y), loss=metric, weights=backend.asarray(weights), keep="rows"
    )
    assert result.loss == "squared_bias"
    exact, w = (backend.rounded(X), backend.rounded(y)), backend.rounded(weights)
    donors, _ = donor_table(METHODS["permutation"].plan(len(X)))
    base, draws = expected_draws(
        predict, lambda y, p, w: np.average(y - p, weights=w) ** 2, *exact, w, donors, "difference"
    )
    backend.assert_close(result.base_risk, base)
    backend.assert_close(result.draws, draws)
    backend.assert_close(result.values, draws.mean(axis=1))
    assert np.isfinite(result.interval(formulation="fixed-data")).all()
    if influence:
        assert np.isfinite(result.interval()).all()
    else:
        assert np.isnan(result.row_values).all()
        with pytest.raises(ValueError, match=r"squared_bias.*fixed-data"):
            result.interval()


def test_a_value_may_be_a_python_number():
    X, y = data("real")
    metric = rl.Metric(lambda y, p: float(np.max(np.abs(y - p))), name="worst")
    predict = CASES["squared_error"].formula
    result = METHODS["permutation"](predict, X, y, loss=metric)
    donors, _ = donor_table(METHODS["permutation"].plan(len(X)))
    _, draws = expected_draws(predict, lambda y, p, w: np.max(np.abs(y - p)), X, y, None, donors, "difference")
    np.testing.assert_allclose(result.draws, draws, rtol=1e-12, atol=1e-13)


SEVERAL = {
    "per-row": ["squared_error", "absolute_error"],
    "metric-and-per-row": ("rmse", "absolute_error"),
    "one-in-a-list": ["squared_error"],
}


@pytest.mark.paired("names", "method", one_in=3)
@pytest.mark.once_per_device
@pytest.mark.parametrize("method", ["ablation", "permutation", "all"])
@pytest.mark.parametrize("names", SEVERAL)
def test_several_losses_equal_the_single_runs(backend, names, method):
    X, y = data("real", n=8)
    arrays = backend.asarray(X), backend.asarray(y)
    predict = CASES["squared_error"].formula
    options = {"compare": "difference", "keep": "rows", "features": [0, 2]}
    together = METHODS[method](predict, *arrays, loss=SEVERAL[names], **options)
    assert list(together) == list(SEVERAL[names])
    for name, result in together.items():
        alone = METHODS[method](predict, *arrays, loss=name, **options)
        assert result.loss == name
        scale = float(np.max(alone.replaced_risk))
        for field in ("values", "base_risk", "replaced_risk", "row_values", "std_error"):
            backend.assert_close(getattr(result, field), getattr(alone, field), scale)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:pairs=:UserWarning")
def test_several_losses_evaluate_the_model_once(method):
    X, y = data("real", n=10)
    rows = []

    def counted(x):
        rows.append(len(x))
        return CASES["squared_error"].formula(x)

    METHODS[method](counted, X, y, loss="squared_error")
    alone = list(rows)
    rows.clear()
    METHODS[method](counted, X, y, loss=["squared_error", "absolute_error", "huber", rl.losses.pinball(0.9)])
    assert rows == alone
