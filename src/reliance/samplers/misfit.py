"""Whether a linear sampler is wrong: what is left of a feature must not depend on the columns it was predicted from.

A line is the default and often believed. Where the mean is a curve, or the spread changes, donors' residuals are no
draws given the other columns, and features that a model uses for nothing look important. The test is cheap and made to
be silent unless it is sure: ranks of the residuals, and of their sizes, against bounded functions of the given columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import special

from reliance._core import arrays
from reliance._core.checks import warn
from reliance._core.kinds import Array, HostArray
from reliance._core.words import listed
from reliance.samplers.draws import FittedSampler, Host

LEVEL = 1e-3  # of a call: how often one with a right sampler is warned about
_ROWS = 2048  # that are looked at
_COLUMNS = 12  # given columns whose products and bins are looked at, those that stand out most
_BINS = 8
_ROWS_EACH = 25  # of a bin
# A row's square in a function, over the mean: with more, one large residual can decide (that of u_j u_k is 9).
_LEVERAGE = 12.0
_LEAST_FREEDOM = 10


class Misfit(NamedTuple):
    """p-values that what is left of a feature has the same mean, and the same spread, whatever is given."""

    mean: float
    spread: float


@dataclass(frozen=True, eq=False)
class Check:
    """The rows that samplers are fitted on, and the ranks of their columns, which all features share."""

    matrix: Array
    scores: dict[int, Host] = field(default_factory=dict)

    @property
    def rows(self) -> HostArray:
        m = int(self.matrix.shape[0])
        return np.linspace(0, m - 1, min(m, _ROWS)).astype(np.int64)

    def __call__(self, fitted: FittedSampler, target: tuple[int, ...], given: tuple[int, ...]) -> Misfit | None:
        """Of a fitted sampler with a linear mean; None for others, and where there is nothing to be seen."""
        left = getattr(fitted, "linear_residual", lambda rows: None)(self.rows)
        if left is None or len(self.rows) - len(given) - 2 < _LEAST_FREEDOM:
            return None
        found = [self._column(e, self._host(column), given) for e, column in zip(left.T, target, strict=True)]
        known = [one for one in found if one is not None]
        if not known:
            return None
        return Misfit(*(min(1.0, len(known) * min(part)) for part in zip(*known, strict=True)))

    def _column(self, left: Host, values: Host, given: tuple[int, ...]) -> Misfit | None:
        # A rounding error depends on what was rounded.
        if not left.std() > 100.0 * arrays.epsilon(self.matrix) * np.abs(values).max():
            return None
        own = (left - left.mean()) / left.std()
        size = own**2 - 1.0  # unlike |e|, hardly moved by the error of the line: the derivative has the mean 0
        u = np.stack([self._scores(column) for column in given], axis=1)
        chosen = _outstanding(u, (own, size))
        z = np.stack([self._host(given[j]) for j in chosen], axis=1)
        # A line was fitted and says nothing about the mean; of the spread it does.
        mean = _p_value(own, u[:, chosen], np.linalg.qr(_with_one(z))[0], len(given), linear=False)
        spread = _p_value(size, u[:, chosen], np.linalg.qr(_with_one(z[:, :0]))[0], len(given), linear=True)
        return Misfit(mean, spread)

    def _host(self, column: int) -> Host:
        return np.asarray(arrays.to_host(self.matrix[:, column])[self.rows], dtype=np.float64)

    def _scores(self, column: int) -> Host:
        if column not in self.scores:
            self.scores[column] = _ranks(self._host(column))
        return self.scores[column]


def _ranks(values: Host) -> Host:
    """Ranks in (-1, 1), equal values sharing the middle one."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * counts
    return np.asarray(2.0 * middle[which] / len(values) - 1.0)


def _with_one(z: Host) -> Host:
    spread = z.std(axis=0)
    return np.column_stack([np.ones(len(z)), (z - z.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)])


def _outstanding(u: Host, responses: Sequence[Host]) -> HostArray:
    """The columns that stand out most, if there are many; p-values count all of them."""
    if u.shape[1] <= _COLUMNS:
        return np.arange(u.shape[1])
    squares = u * u - np.mean(u * u, axis=0)
    scale = np.sqrt(np.sum(squares**2, axis=0))
    found = [np.abs(one @ squares) / np.where(scale > 0.0, scale, np.inf) for one in responses]
    return np.argsort(-np.max(found, axis=0), kind="stable")[:_COLUMNS]


def _p_value(response: Host, u: Host, basis: Host, count: int, linear: bool) -> float:
    """The least p-value of all functions of u beyond the basis, times their number, of ``count`` columns."""
    left = response - basis @ (basis.T @ response)
    total, width = float(left @ left), u.shape[1]
    singles = [u[:, j] * u[:, k] for j, k in combinations(range(width), 2)] + [u[:, j] ** 2 for j in range(width)]
    singles += [u[:, j] for j in range(width)] if linear else []
    made = np.stack(singles, axis=1)
    made = made - basis @ (basis.T @ made)
    norms = np.sum(made**2, axis=0)
    # The square of a column of two values is a line, and a function that few rows decide about proves nothing.
    seen = (norms > 1e-8 * len(u)) & (len(u) * np.max(made**2, axis=0) < _LEVERAGE * norms)
    explained = np.where(seen, (left @ made) ** 2 / np.where(seen, norms, 1.0), 0.0)
    freedom = len(u) - count - 1
    found = [_tail(float(explained.max()), total, 1, freedom - 1)]
    bins = min(_BINS, len(u) // _ROWS_EACH)
    for j in range(width):
        cells = np.floor((u[:, j] + 1.0) / 2.0 * bins)
        leaves = (cells[:, None] == np.arange(bins)[None, :]).astype(np.float64)
        leaves = leaves[:, _LEVERAGE * leaves.sum(axis=0) >= len(u)]
        rest = leaves - basis @ (basis.T @ leaves)
        coefficients, _, rank, _ = np.linalg.lstsq(rest, left, rcond=1e-8)
        found.append(_tail(float(left @ (rest @ coefficients)), total, int(rank), freedom - int(rank)))
    tests = count * (count - 1) // 2 + (3 if linear else 2) * count
    return min(1.0, tests * min(found))


def _tail(explained: float, total: float, rank: int, freedom: int) -> float:
    """Of the F test."""
    if rank < 1 or freedom < _LEAST_FREEDOM or not explained > 0.0:
        return 1.0
    return float(special.fdtrc(rank, freedom, explained / rank / max((total - explained) / freedom, 1e-300)))


def report(names: Sequence[str], found: Sequence[Misfit | None], remedies: tuple[str, str]) -> None:
    """Warn about features with a misfit; the remedies are of a wrong mean and of a wrong spread."""
    known = [(name, one) for name, one in zip(names, found, strict=True) if one is not None]
    wrong = [[name for name, one in known if 2 * len(known) * one[k] < LEVEL] for k in range(2)]
    wrong[1] = [name for name in wrong[1] if name not in wrong[0]]  # around a wrong mean every spread is one
    for what, bad, remedy in zip(Misfit._fields, wrong, remedies, strict=True):
        if bad:
            warn(
                f"a straight line does not fit {listed(dict.fromkeys(bad), 2)}: the {what} of the residuals depends on "
                f"the given columns, so draws are wrong and useless features may look important. {remedy}"
            )
