"""What the functions should return, by literal loops over rows and donors in plain NumPy; nothing of the library.

``predict`` takes float64 rows (m, p) and returns (m,). A column group is a list of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats.mstats import mquantiles

Floats = np.ndarray
RowLoss = Callable[[Any, Any], float]


def squared(y: Any, prediction: Any) -> float:
    return float((y - prediction) ** 2)


@dataclass(frozen=True)
class Data:
    """Rows in float64, what predicts them, labels, weights, the groups of columns to replace and the loss of a row."""

    predict: Callable[[Floats], Floats]
    X: Floats
    y: Any = None
    weights: Floats | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    loss: RowLoss = squared

    @property
    def n(self) -> int:
        return len(self.X)

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        return self.groups or tuple((j,) for j in range(self.X.shape[1]))

    @property
    def w(self) -> Floats:
        return np.ones(self.n) if self.weights is None else np.asarray(self.weights, dtype=np.float64)

    def one(self, row: Floats) -> Any:
        return np.asarray(self.predict(row[None, :]))[0]

    def rows(self, chosen: Any) -> Data:
        weights = None if self.weights is None else self.weights[chosen]
        return replace(self, X=self.X[chosen], y=None if self.y is None else self.y[chosen], weights=weights)


def own_values(data: Data, columns: Sequence[int]) -> Floats:
    """(n, n, g): row i borrows the columns of row k as they are."""
    return np.stack([data.X[:, list(columns)]] * data.n)


def scrambled_values(data: Data, columns: Sequence[int]) -> Floats:
    """(n, n, g): what the other columns say of row i's columns by least squares, plus what they do not of row k's."""
    others = [j for j in range(data.X.shape[1]) if j not in columns]
    design = np.column_stack([np.ones(data.n), data.X[:, others]])
    target = data.X[:, list(columns)]
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return fitted[:, None, :] + (target - fitted)[None, :, :]


def replaced_predictions(data: Data, columns: Sequence[int], values: Floats) -> Floats:
    """f (n, n): the prediction of row i with values[i, k] in its columns."""
    f = np.zeros((data.n, data.n))
    for i in range(data.n):
        for k in range(data.n):
            row = data.X[i].copy()
            row[list(columns)] = values[i, k]
            f[i, k] = data.one(row)
    return f


def base_risk(data: Data) -> float:
    losses = [data.loss(data.y[i], data.one(data.X[i])) for i in range(data.n)]
    w = data.w / data.w.max()
    return float(sum(w * losses) / sum(w))


def switched_risk(data: Data, columns: Sequence[int], values: Floats | None = None) -> float:
    f = replaced_predictions(data, columns, own_values(data, columns) if values is None else values)
    w = data.w / data.w.max()
    total = cells = 0.0
    for i in range(data.n):
        for k in range(data.n):
            if i != k:
                total += w[i] * data.loss(data.y[i], f[i, k])
                cells += w[i]
    return total / cells


def differences(data: Data) -> Floats:
    return np.array([switched_risk(data, c) - base_risk(data) for c in data.columns])


def ratios(data: Data) -> Floats:
    return np.array([switched_risk(data, c) / base_risk(data) for c in data.columns])


def conditional_ratios(data: Data) -> Floats:
    risks = [switched_risk(data, c, scrambled_values(data, c)) for c in data.columns]
    return np.array(risks) / base_risk(data)


def conditional_differences(data: Data) -> Floats:
    return (conditional_ratios(data) - 1.0) * base_risk(data)


def drawn_differences(data: Data, donors: Floats) -> Floats:
    """Donors (n, K) that are given."""
    w, base, found = data.w / data.w.max(), base_risk(data), []
    for columns in data.columns:
        total = 0.0
        for i in range(data.n):
            for k in donors[i]:
                row = data.X[i].copy()
                row[list(columns)] = data.X[k, list(columns)]
                total += w[i] * data.loss(data.y[i], data.one(row)) / donors.shape[1]
        found.append(total / sum(w) - base)
    return np.array(found)


def interactions(data: Data) -> Floats:
    columns = data.columns
    single = differences(data)
    found = []
    for a in range(len(columns)):
        for b in range(a + 1, len(columns)):
            joint = switched_risk(data, (*columns[a], *columns[b])) - base_risk(data)
            found.append(joint - single[a] - single[b])
    return np.array(found)


def impacts(data: Data, quantiles: int = 9) -> Floats:
    """Blume's equations 3 and 4, with Cunnane's plotting positions and the nearest value that occurs."""
    found = []
    f = np.array([data.one(row) for row in data.X])
    for (j,) in data.columns:
        x = data.X[:, j]
        if np.all(x == x[0]):
            found.append(0.0)
            continue
        total = 0.0
        for q in mquantiles(x, np.arange(1, quantiles + 1) / (quantiles + 1), alphap=0.4, betap=0.4):
            held = data.X.copy()
            held[:, j] = x[np.argmin(np.abs(x - q))]
            total += np.std(f - np.array([data.one(row) for row in held]), ddof=1) / np.std(x, ddof=1)
        found.append(total / quantiles)
    return np.array(found)


def sobol_totals(data: Data) -> Floats:
    f = np.array([data.one(row) for row in data.X])
    found = []
    for columns in data.columns:
        moved = replaced_predictions(data, columns, own_values(data, columns))
        squares = [(f[i] - moved[i, k]) ** 2 for i in range(data.n) for k in range(data.n) if i != k]
        found.append(np.mean(squares) / (2.0 * np.var(f, ddof=1)))
    return np.array(found)


def sobol_firsts(data: Data) -> Floats:
    """E f_ik f_lk less E f_ik f_lm over different rows, each tuple of rows by itself, over the variance of f.

    f is taken about its mean. The products f_ik f_ki are not known to the library's sums: their share of the second
    mean, of order 1/n^2, stays in it.
    """
    f = np.array([data.one(row) for row in data.X])
    everyone, found = range(data.n), []
    for columns in data.columns:
        g = replaced_predictions(data, columns, own_values(data, columns))
        g = g - g[~np.eye(data.n, dtype=bool)].mean()
        shared, apart = [], []
        for i in everyone:
            for k in everyone:
                for m in everyone:
                    if len({i, k, m}) == 3:
                        shared.append(g[i, k] * g[m, k])
                        apart += [g[i, k] * g[m, h] for h in everyone if h not in (i, k, m)]
        back = sum(g[i, k] * g[k, i] for i in everyone for k in everyone if i != k) / len(apart)
        found.append((np.mean(shared) - np.mean(apart) + back) / np.var(f, ddof=1))
    return np.array(found)


def contributions(data: Data) -> Floats:
    """(n, p): predictions less their means over the values of a feature."""
    f = np.array([data.one(row) for row in data.X])
    found = [f - replaced_predictions(data, c, own_values(data, c)).mean(axis=1) for c in data.columns]
    return np.array(found).T


def local_changes(data: Data) -> Floats:
    """(n, p): mean change of a row's loss over all other donors."""
    found = np.zeros((data.n, len(data.columns)))
    for j, columns in enumerate(data.columns):
        f = replaced_predictions(data, columns, own_values(data, columns))
        for i in range(data.n):
            base = data.loss(data.y[i], data.one(data.X[i]))
            found[i, j] = np.mean([data.loss(data.y[i], f[i, k]) - base for k in range(data.n) if k != i])
    return found


def least_squares(X: Floats, y: Any) -> Callable[[Floats], Floats]:
    coef = _slopes(X, y)
    return lambda rows: np.asarray(rows) @ coef[1:] + coef[0]


def _slopes(X: Floats, y: Any) -> Floats:
    design = np.column_stack([np.ones(len(X)), np.asarray(X, dtype=np.float64)])
    return np.linalg.lstsq(design, np.asarray(y, dtype=np.float64), rcond=None)[0]


def scaled_coefficients(data: Data) -> Floats:
    return np.abs(_slopes(data.X, data.y)[1:]) * (data.X.max(axis=0) - data.X.min(axis=0))


def left_out_ratios(data: Data, splits: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Refits without each column: losses of all test rows, weighed, over those of the fit with all columns."""

    def risk(kept: list[int]) -> float:
        total = weight = 0.0
        for train, test in splits:
            model = least_squares(data.X[train][:, kept], data.y[train])
            for i in test:
                total += data.w[i] / data.w.max() * data.loss(data.y[i], model(data.X[i : i + 1, kept])[0])
                weight += data.w[i] / data.w.max()
        return total / weight

    p = data.X.shape[1]
    return np.array([risk([j for j in range(p) if j not in c]) for c in data.columns]) / risk(list(range(p)))


def cross_fitted(data: Data, splits: Sequence[tuple[Floats, Floats]], measure: Callable[[Data], Floats]) -> Floats:
    """The mean over folds of the importances of their models."""
    total, weight = 0.0, 0.0
    for train, test in splits:
        part = replace(data.rows(test), predict=least_squares(data.X[train], data.y[train]))
        share = float(np.sum(part.w / data.w.max()))
        total, weight = total + share * measure(part), weight + share
    return np.asarray(total / weight)


def nearest_ratios(data: Data, donors: Floats) -> Floats:
    """Mean distance of replaced rows to the nearest other row (not the donor either), over that of rows as they are."""
    spread = np.std(data.X, axis=0)
    Z = np.where(spread > 0, (data.X - data.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0), 0.0)

    def nearest(row: Floats, left_out: set[int]) -> float:
        return min(float(np.linalg.norm(row - Z[k])) for k in range(data.n) if k not in left_out)

    real = np.mean([nearest(Z[i], {i}) for i in range(data.n)])
    found = []
    for columns in data.columns:
        moved = []
        for i in range(data.n):
            row = Z[i].copy()
            row[list(columns)] = Z[donors[i], list(columns)]
            moved.append(nearest(row, {i, int(donors[i])}))
        found.append(np.mean(moved) / real)
    return np.array(found)


def bagged_differences(data: Data, left_out: Sequence[Sequence[int]], trees: Sequence[Callable]) -> Floats:
    """The mean over trees of the all-pairs difference among the rows that each left out."""
    parts = [
        differences(replace(data.rows(list(rows)), predict=tree)) for rows, tree in zip(left_out, trees, strict=True)
    ]
    return np.mean(parts, axis=0)


def class_range(members: Sequence[Data], epsilon: float, measure: Callable[[Data], Floats]) -> Floats:
    """(2, p): least and largest reliance over the models whose risk is within the share of the best one's."""
    risks = [base_risk(member) for member in members]
    good = [measure(m) for m, risk in zip(members, risks, strict=True) if risk <= (1.0 + epsilon) * min(risks)]
    return np.array([np.min(good, axis=0), np.max(good, axis=0)])
