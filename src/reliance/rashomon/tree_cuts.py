"""Where trees may cut the columns: given points, quantiles, or the splits of a fitted ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import shown
from reliance.models import tree_readers

Floats: TypeAlias = NDArray[np.float64]
# How many a column, the points of each column, or a fitted ensemble.
Cuts: TypeAlias = int | Mapping[int | str, Sequence[float]] | object
_METHODS = ("predict", "predict_proba")


class Tests(NamedTuple):
    """``x[columns] <= points`` goes left: (T,) each."""

    columns: NDArray[np.int64]
    points: Floats

    def left(self, X: Floats) -> NDArray[np.bool_]:
        """(T, n)."""
        return np.asarray((X[:, self.columns] <= self.points).T)


def tests_of(cuts: Cuts, X: Floats, names: Sequence[str]) -> Tests:
    """All tests that divide the rows, by column and point."""
    if isinstance(cuts, bool):
        raise TypeError(f"cuts={cuts}: pass how many points a column, a mapping from columns to points, or an ensemble")
    if isinstance(cuts, int | np.integer):
        points = {j: _quantiles(X[:, j], int(cuts)) for j in range(X.shape[1])}
    elif isinstance(cuts, Mapping):
        points = {_column(key, names): _given(key, values) for key, values in cuts.items()}
    else:
        points = _of_ensemble(cuts, X.shape[1])
    columns, found = [], []
    for j in sorted(points):
        x = X[:, j]
        for point in sorted({float(p) for p in points[j] if x.min() <= p < x.max()}):
            columns.append(j)
            found.append(point)
    if not columns:
        raise ValueError(
            "cuts leaves no test that divides the rows of X: pass more points, inside of the columns' range"
        )
    return Tests(np.asarray(columns, dtype=np.int64), np.asarray(found))


def _quantiles(x: Floats, many: int) -> Floats:
    """Between the values of a column, at most so many points, equally many rows apart."""
    if many < 1:
        raise ValueError(f"cuts={many} is too few: pass at least 1 point a column")
    values = np.unique(x)
    between = values[:-1] + (values[1:] - values[:-1]) / 2.0
    if len(between) <= many:
        return between
    wanted = np.quantile(x, np.arange(1, many + 1) / (many + 1.0))
    return between[np.unique(np.clip(np.searchsorted(values, wanted, side="right") - 1, 0, len(between) - 1))]


def _column(key: int | str, names: Sequence[str]) -> int:
    if isinstance(key, str) and key in names:
        return list(names).index(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < len(names):
        return int(key)
    raise ValueError(f"cuts names the column {shown(key)}, which X has not: pass names or numbers of columns")


def _given(key: object, values: object) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not np.isfinite(found).all():
        raise ValueError(f"cuts={{{shown(key)}: {shown(values)}}}: pass finite numbers, x <= point goes left")
    return found


def _of_ensemble(model: object, columns: int) -> dict[int, Floats]:
    read = next((found for method in _METHODS if (found := tree_readers.read(model, method)) is not None), None)
    if read is None:
        raise TypeError(
            f"cuts={shown(model)}: pass how many points a column, a mapping from columns to points, or a fitted "
            "ensemble of trees of scikit-learn, LightGBM, XGBoost or CatBoost"
        )
    if read.n_features != columns:
        raise ValueError(f"cuts is an ensemble of {read.n_features} columns, but X has {columns}")
    numeric = (read.feature >= 0) & (read.category < 0)
    return {j: np.unique(read.threshold[numeric & (read.feature == j)]) for j in np.unique(read.feature[numeric])}
