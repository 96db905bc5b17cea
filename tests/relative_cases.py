"""Literal loops for replaced values that are not simply another row's, and correlated rows to try them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import oracles
import reliance as rl
from oracles import Floats, Table


def packed(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `rl.relative_importance`, of which context, sampler and fit_on belong to what is given."""
    how = {name: options[name] for name in ("context", "sampler", "fit_on") if name in options}
    rest = {name: value for name, value in options.items() if name not in how}
    return {**rest, "given": rl.Given(options["given"], **how)} if how else rest


def relative_importance(*arguments: Any, **options: Any) -> Any:
    return rl.relative_importance(*arguments, **packed(options))


def correlated(n: int = 12, p: int = 4, seed: int = 0) -> tuple[Floats, Floats]:
    """Rows whose columns predict each other in part, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.5 * rng.normal(size=(p, p))) + np.arange(p)
    return X, 1.5 * X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n)


def regression(Z: Floats, T: Floats, at: Floats) -> Floats:
    """The least squares predictions of T, with intercept, for the rows ``at``."""
    design = np.column_stack([np.ones(len(Z)), Z])
    return np.column_stack([np.ones(len(at)), at]) @ np.linalg.lstsq(design, T)[0]


def value_table(
    predict: Callable,
    loss: Callable,
    X: Floats,
    y: Floats,
    columns: Sequence[int],
    value: Callable[[int, int], Floats],
    donors: Floats,
    mask: Floats | None = None,
    weights: Floats | None = None,
) -> Table:
    """The losses of row i with ``value(i, donors[i, k])`` in the columns."""
    n, draws = donors.shape
    L, base = np.zeros((n, draws)), np.zeros(n)
    for i in range(n):
        base[i] = loss(y[i], predict(X[i]))
        for k in range(draws):
            row = X[i].copy()
            row.reshape(-1)[list(columns)] = value(i, int(donors[i, k]))
            L[i, k] = loss(y[i], predict(row))
    mask = np.ones((n, draws), dtype=bool) if mask is None else mask
    return Table(L, base, donors, mask, np.ones(n) if weights is None else weights)


def scrambled_table(
    predict: Callable,
    X: Floats,
    y: Floats,
    columns: Sequence[int],
    mean: Floats,
    donors: Floats,
    mask: Floats | None = None,
    weights: Floats | None = None,
    loss: str = "squared_error",
) -> Table:
    """x_ik = mean_i + (x_k - mean_k)."""
    columns = list(columns)
    residual = X.reshape(len(X), -1)[:, columns] - mean

    def value(i: int, k: int) -> Floats:
        return mean[i] + residual[k]

    return value_table(predict, oracles.LOSSES[loss], X, y, columns, value, donors, mask, weights)


class Counted:
    """A model that counts the rows it sees."""

    def __init__(self, predict: Callable) -> None:
        self.predict, self.rows = predict, 0

    def __call__(self, batch: Floats) -> Floats:
        self.rows += len(batch)
        return self.predict(batch)


def base_rows(n):
    """Rows of a base pass, and of the one batch in which up to 64 of them are predicted once more."""
    return n + 16 * -(-2 * min(n, 64) // 16) - 1
