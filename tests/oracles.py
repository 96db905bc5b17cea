"""What the engine should answer, by literal double loops over rows and draws in plain NumPy.

Nothing of the library is used here. A case's ``formula`` is written for the last axis of its input, so that the same
line predicts a batch on any backend and one row in the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

Floats = np.ndarray


# ---------------------------------------------------------------------------------------------------------------------
# The table of losses


def all_pairs(n: int) -> tuple[Floats, Floats]:
    """Donors (n, n) and a mask that leaves out the diagonal."""
    return np.tile(np.arange(n), (n, 1)), ~np.eye(n, dtype=bool)


def replaced_row(X: Floats, i: int, donor: int, columns: Sequence[int]) -> Floats:
    row = X[i].copy()
    for column in columns:
        row.reshape(-1)[column] = X[donor].reshape(-1)[column]
    return row


def replaced_predictions(predict: Callable, X: Floats, donors: Floats, columns: Sequence[int]) -> Floats:
    """Predictions (n, K, ...): row i with the columns of row donors[i, k]."""
    n, draws = donors.shape
    return np.array([[predict(replaced_row(X, i, int(donors[i, k]), columns)) for k in range(draws)] for i in range(n)])


def base_predictions(predict: Callable, X: Floats) -> Floats:
    return np.array([predict(row) for row in X])


@dataclass(frozen=True)
class Table:
    """Losses ``L (n, K)`` with the donors that made them, base losses ``l (n,)``, weights, and which cells count."""

    L: Floats
    l: Floats  # noqa: E741  (the papers' letter)
    donors: Floats
    mask: Floats
    weights: Floats

    @property
    def D(self) -> Floats:
        return np.where(self.mask, self.L - self.l[:, None], 0.0)


def loss_table(
    predict: Callable,
    loss: Callable,
    X: Floats,
    y: Floats,
    columns: Sequence[int],
    donors: Floats,
    mask: Floats | None = None,
    weights: Floats | None = None,
) -> Table:
    n, draws = donors.shape
    L, base = np.zeros((n, draws)), np.zeros(n)
    for i in range(n):
        base[i] = loss(y[i], predict(X[i]))
        for k in range(draws):
            L[i, k] = loss(y[i], predict(replaced_row(X, i, int(donors[i, k]), columns)))
    mask = np.ones((n, draws), dtype=bool) if mask is None else mask
    return Table(L, base, donors, mask, np.ones(n) if weights is None else weights)


# ---------------------------------------------------------------------------------------------------------------------
# From the table to the result


@dataclass(frozen=True)
class Answer:
    value: float
    base_risk: float
    replaced_risk: float
    draws: Floats
    row_values: Floats
    donor_sums: Floats


def answer(table: Table, compare: str) -> Answer:
    L, base, w, mask = table.L, table.l, table.weights, table.mask
    n, columns = L.shape
    base_sum = switched_sum = weight_sum = cells = 0.0
    rows, donor_sums = np.zeros(n), np.zeros(n)
    for i in range(n):
        base_sum += w[i] * base[i]
        weight_sum += w[i]
        for k in range(columns):
            if mask[i, k]:
                switched_sum += w[i] * L[i, k]
                cells += w[i]
                rows[i] += (L[i, k] - base[i]) / mask[i].sum()
                donor_sums[table.donors[i, k]] += w[i] * (L[i, k] - base[i])
    base_risk, replaced_risk = base_sum / weight_sum, switched_sum / cells
    draws = np.array([sum(w[i] * L[i, k] for i in range(n)) / weight_sum for k in range(columns)])
    share = w / (weight_sum / n)
    if compare == "ratio":
        draw_values, row_values = draws / base_risk, 1.0 + share * rows / base_risk
        return Answer(replaced_risk / base_risk, base_risk, replaced_risk, draw_values, row_values, donor_sums)
    return Answer(replaced_risk - base_risk, base_risk, replaced_risk, draws - base_risk, share * rows, donor_sums)


def kernel_matrix(table: Table, compare: str) -> Floats:
    """h (n, K) of the design, zero in cells that do not count."""
    w, base = table.weights, table.l
    found = answer(table, compare)
    if compare == "ratio":
        h = w[:, None] * (table.D - (found.value - 1.0) * base[:, None]) / np.mean(w * base)
    else:
        h = w[:, None] * (table.D - found.value) / np.mean(w)
    return np.where(table.mask, h, 0.0)


def pairs_error(table: Table, compare: str) -> float:
    """All pairs: (n-1)^2 / (n (n-2)^2) s2(r + c) from the whole (n, n) matrix of h."""
    h = kernel_matrix(table, compare)
    n = h.shape[0]
    psi = [sum(h[i, k] for k in range(n)) / (n - 1) + sum(h[k, i] for k in range(n)) / (n - 1) for i in range(n)]
    return math.sqrt(weights_factor(table) * (n - 1) ** 2 / (n * (n - 2) ** 2) * np.var(psi, ddof=1))


def weights_factor(table: Table) -> float:
    """By how much squared distances from their own weighted mean are too small, beyond what equal weights make them.

    Row i's distance is the sum over j of (1{i=j} - p_j) x_j, so that independent x_j of variance 1 give its square the
    mean sum_j (1{i=j} - p_j)^2, and p_i^2 of it enters the variance of the weighted mean.
    """
    p, n = table.weights / sum(table.weights), len(table.weights)
    found = sum(p[i] ** 2 * sum(((i == j) - p[j]) ** 2 for j in range(n)) for i in range(n))
    return (1 - 1 / n) * sum(p[i] ** 2 for i in range(n)) / found


def leave_one_out_error(table: Table) -> float:
    """The jackknife itself, for differences without weights: drop a row, and every pair that it is in."""
    D, n = table.D, table.D.shape[0]
    left = []
    for j in range(n):
        others = [(i, k) for i in range(n) for k in range(n) if i != k and j not in (i, k)]
        left.append(np.mean([D[cell] for cell in others]))
    return math.sqrt((n - 1) / n * sum((value - np.mean(left)) ** 2 for value in left))


def halves_error(table: Table, compare: str) -> float:
    """Halves: the standard error of the mean over independent pairs of rows."""
    h = kernel_matrix(table, compare)[:, 0]
    partner = table.donors[:, 0]
    assert all(partner[partner[i]] == i for i in range(len(h)))
    pairs = [(h[i] + h[partner[i]]) / 2 for i in range(len(h)) if i < partner[i]]
    return math.sqrt(weights_factor(table) * np.var(pairs, ddof=1) / len(pairs))


# ---------------------------------------------------------------------------------------------------------------------
# Losses of one row


def _mean(function: Callable[[float, float], float]) -> Callable[[Any, Any], float]:
    def loss(y: Any, p: Any) -> float:
        pairs = zip(np.ravel(y).tolist(), np.ravel(p).tolist(), strict=True)
        return float(np.mean([function(a, b) for a, b in pairs]))

    return loss


def _probability_loss(y: int, p: Any) -> float:
    return -math.log(p[int(y)] if np.ndim(p) else (p if y == 1 else 1.0 - p))


def _logit_loss(y: int, z: Any) -> float:
    scores = [float(s) for s in z] if np.ndim(z) else [0.0, float(z)]
    return math.log(sum(math.exp(s) for s in scores)) - scores[int(y)]


LOSSES: dict[str, Callable[[Any, Any], float]] = {
    "squared_error": _mean(lambda a, b: (a - b) ** 2),
    "absolute_error": _mean(lambda a, b: abs(a - b)),
    "huber": _mean(lambda a, b: 0.5 * (a - b) ** 2 if abs(a - b) <= 1 else abs(a - b) - 0.5),
    "pinball": _mean(lambda a, b: 0.5 * abs(a - b)),
    "poisson_deviance": _mean(lambda a, b: 2.0 * ((a * math.log(a / b) if a > 0 else 0.0) - (a - b))),
    "hinge": _mean(lambda a, b: max(0.0, 1.0 - a * b)),
    "zero_one": lambda a, b: float(a != (np.argmax(b) if np.ndim(b) else b)),
    "log_loss": _probability_loss,
    "cross_entropy": _logit_loss,
}


# ---------------------------------------------------------------------------------------------------------------------
# Cases: a formula, its labels, its loss


def _score(x: Any) -> Any:
    return 1.5 * x[..., 0] - x[..., 1] * x[..., 2] + 0.25


def _three(x: Any) -> Any:
    xp = array_api_compat.array_namespace(x)
    return xp.stack([_score(x), x[..., 1] - x[..., 3], 0.5 * x[..., 2] * x[..., 0]], axis=-1)


def _softmax(x: Any) -> Any:
    xp = array_api_compat.array_namespace(x)
    z = xp.exp(_three(x))
    return z / xp.sum(z, axis=-1, keepdims=True)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + array_api_compat.array_namespace(x).exp(-_score(x)))


def _rate(x: Any) -> Any:
    return array_api_compat.array_namespace(x).exp(0.3 * _score(x))


def _label(x: Any) -> Any:
    return array_api_compat.array_namespace(x).astype(_score(x) > 0.3, x.dtype)


@dataclass(frozen=True)
class Case:
    """A loss, and a model and labels that go with it."""

    loss: str
    formula: Callable[[Any], Any]
    labels: str = "real"

    def data(self, n: int = 9, seed: int = 0) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 4))
        noisy = _score(X) + 0.5 * rng.normal(size=n)
        y = {
            "real": lambda: noisy,
            "outputs": lambda: np.stack([noisy, rng.normal(size=n), X[:, 0]], axis=1),
            "binary": lambda: (noisy > 0).astype(np.int64),
            "sign": lambda: np.where(noisy > 0, 1, -1),
            "count": lambda: rng.poisson(1.5, size=n),
            "three": lambda: rng.integers(0, 3, size=n),
        }[self.labels]()
        return X, y

    def oracle(self, y: Any, prediction: Any) -> float:
        return LOSSES[self.loss](y, prediction)


CASES = {
    "squared_error": Case("squared_error", _score),
    "squared_error-outputs": Case("squared_error", _three, "outputs"),
    "absolute_error": Case("absolute_error", _score),
    "huber": Case("huber", _score),
    "pinball": Case("pinball", _score),
    "poisson_deviance": Case("poisson_deviance", _rate, "count"),
    "hinge": Case("hinge", _score, "sign"),
    "zero_one": Case("zero_one", _label, "binary"),
    "zero_one-classes": Case("zero_one", _three, "three"),
    "log_loss": Case("log_loss", _sigmoid, "binary"),
    "log_loss-classes": Case("log_loss", _softmax, "three"),
    "cross_entropy": Case("cross_entropy", _score, "binary"),
    "cross_entropy-classes": Case("cross_entropy", _three, "three"),
}
