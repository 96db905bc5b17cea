"""Conditional importances against analytic values: where what is drawn, and from whom, decides about the number."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance import samplers


def grid(repeats: int = 20) -> np.ndarray:
    """x = z + e, z in {0, 1, 2} and e in {-1, 0, 1}, every pair as often as any other: Var(x | z) = 2/3."""
    z, e = (part.reshape(-1) for part in np.meshgrid(np.arange(3.0), np.arange(-1.0, 2.0)))
    rows = np.tile(np.column_stack([z + e, z]), (repeats, 1))
    return rows[np.random.default_rng(0).permutation(len(rows))]


def first(X):
    return X[:, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Cross-fitting where rows are equal


@pytest.mark.once_per_device
@pytest.mark.parametrize("folds", [2, 5])
def test_relative_importance_of_tied_values_is_twice_the_conditional_variance(backend, folds):
    """E (x~ - x)^2 = 2 Var(x | z) = 4/3, whichever the regressor: all of them find a line through three points."""
    X = grid()
    for regressor in (None, samplers.OLS()):
        sampler = samplers.Residual(regressor, folds=folds)
        options = {"given": [1], "features": [0], "sampler": sampler, "draws": 4, "rng": 0}
        result = rl.relative_importance(first, backend.asarray(X), backend.asarray(X[:, 0]), **options)
        assert abs(result.values[0] - 4 / 3) < 0.05 * 4 / 3
        low, high = result.interval()[0]
        assert low < 4 / 3 < high


@pytest.mark.parametrize("crossfit", [2, 5])
@pytest.mark.parametrize("regressor", [None, "kernel_ridge"], ids=str)
def test_conditional_reliance_of_tied_values(crossfit, regressor):
    X = grid(12)
    options = {"features": [0], "compare": "difference", "regressor": regressor, "rng": 0}
    result = rl.conditional_model_reliance(first, X, X[:, 0], crossfit=crossfit, **options)
    assert abs(result.values[0] - 4 / 3) < 0.03 * 4 / 3


@pytest.mark.parametrize("crossfit", [2, 5])
def test_conditional_reliance_of_a_column_of_two_values(crossfit):
    """A classifier that is cross-fitted on equal rows: E (x~ - x)^2 = 2 mean p (1 - p), p = 1/4, 1/2, 3/4."""
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    X = np.asarray([[float(k < 1 + z), float(z)] for z in range(3) for k in range(4)] * 30)
    options = {"features": [0], "compare": "difference", "classifier": LogisticRegression(C=1e4), "rng": 0}
    result = rl.conditional_model_reliance(first, X, X[:, 0], crossfit=crossfit, **options)
    truth = 2 * (2 * 3 / 16 + 1 / 4) / 3
    assert abs(result.values[0] - truth) < 0.05 * truth


def test_a_fold_without_the_other_value_is_refused():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 0] = np.arange(40) == 7
    with pytest.raises(ValueError, match=r"crossfit=2.*only one value of column 0") as caught:
        rl.conditional_model_reliance(first, X, X[:, 0] + X[:, 1], crossfit=2, classifier=LogisticRegression(), rng=0)
    assert len(str(caught.value)) <= 300


@pytest.mark.once_per_device
def test_equal_rows_are_dealt_out(backend):
    """Their numbers in the folds differ by at most one, in every order of the rows and for every group left out."""
    rows = backend.rounded(grid(13))
    rng = np.random.default_rng(1)
    for some in (np.arange(len(rows)), rng.permutation(len(rows)), rng.permutation(len(rows))[:80]):
        part = rows[some]
        fold = samplers.row_folds(backend.asarray(part), (0, 1), 5)
        counts = [np.bincount(fold[(part == row).all(axis=1)], minlength=5) for row in np.unique(part, axis=0)]
        assert max(np.ptp(count) for count in counts) <= 1


def test_without_one_of_equal_rows_one_fold_has_one_row_less():
    """What a jackknife needs: the rows that every fold's fit sees change by the row that is gone."""
    rows = grid(4)
    whole = samplers.row_folds(rows, (0, 1), 3)
    for gone in range(len(rows)):
        kept = np.delete(rows, gone, axis=0)
        fold = samplers.row_folds(kept, (0, 1), 3)
        same = (rows == rows[gone]).all(axis=1)
        np.testing.assert_array_equal(fold[~np.delete(same, gone)], whole[~same])
        change = np.bincount(whole[same], minlength=3) - np.bincount(fold[np.delete(same, gone)], minlength=3)
        assert sorted(change.tolist()) == [0, 0, 1]


# ---------------------------------------------------------------------------------------------------------------------
# Estimators that have no truth value


@pytest.mark.parametrize("crossfit", [None, 3], ids=str)
def test_an_ensemble_is_a_regressor(crossfit):
    """A forest has a length, and none before it is fitted."""
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestRegressor

    X = grid(10)
    forest = RandomForestRegressor(10, random_state=0)
    options = {"features": [0], "compare": "difference", "pairs": 4, "rng": 0, "crossfit": crossfit}
    result = rl.conditional_model_reliance(first, X, X[:, 0], regressor=forest, **options)
    assert abs(result.values[0] - 4 / 3) < 0.1 * 4 / 3
