"""Whether a sampler is wrong: what its draws leave of a feature must not depend on the columns that are given.

If a sampler is right, x_i and its draws have the same mean and the same spread, whatever is given in row i. Where they
do not, features that a model uses for nothing look important. So x_i minus the mean of its draws, and the same for
squares, are tested against bounded functions of the given columns: ranks, their squares and products, bins, and slopes
within the strata of a sampler that has some. The test is cheap and made to be silent unless it is sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import special

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance.samplers.draws import DonorDraws, Draws, FittedSampler, Host, Thresholds
from reliance.samplers.leftover import Left, left_by

_COLUMNS = 12  # given columns whose products and bins are looked at, those that stand out most
_BINS = 8
_ROWS_EACH = 25  # of a bin
_STRATA = 64  # in which slopes are looked at
# A row's square in a function, over the mean: with more, one large residual can decide (that of u_j u_k is 9).
_LEVERAGE = 12.0
_LEAST_FREEDOM = 10


class Misfit(NamedTuple):
    """p-values that what is left of a feature has the same mean, and the same spread, whatever is given.

    The shares are of the variance of what is left, and of its squares, that the given columns explain.
    """

    mean: float
    spread: float
    mean_share: float = 0.0
    spread_share: float = 0.0

    def passes(self, level: float) -> bool:
        return 2.0 * min(self.mean, self.spread) >= level


class Found(NamedTuple):
    """Of one response: the p-value, and the share of its variance that is explained."""

    p_value: float
    share: float


_NOTHING = Found(1.0, 0.0)


@dataclass(frozen=True, eq=False)
class Check:
    """The evaluated rows, those that samplers are fitted on, and the ranks of their columns, which features share."""

    matrix: Array
    training: Array | None = None
    coded: tuple[int, ...] = ()
    ranks: dict[tuple[int, bool, int], Host] = field(default_factory=dict)

    def __call__(
        self, fitted: FittedSampler, parts: Draws, target: tuple[int, ...], given: tuple[int, ...]
    ) -> Misfit | None:
        """Of a fitted sampler and its draws for the evaluated rows; None where there is nothing to be seen.

        Whatever a sampler has learnt is judged by the rows that it was fitted on: few rows make an error there that is
        counted, and no misfit. Donors are evaluated rows.
        """
        rows = self.matrix
        if self.training is not None and not isinstance(parts, DonorDraws | Thresholds):
            rows, parts = self.training, fitted.on(self.training)
        left = left_by(parts, rows, target, self.coded)
        if not left or len(left[0].rows) - len(given) - 2 < _LEAST_FREEDOM:
            return None
        known = [one for one in (self._response(part, rows, given) for part in left) if one is not None]
        if not known:
            return None
        means, spreads = (min(pairs, key=lambda found: found.p_value) for pairs in zip(*known, strict=True))
        p = [min(1.0, len(known) * found.p_value) for found in (means, spreads)]
        return Misfit(p[0], p[1], means.share, spreads.share)

    def _response(self, left: Left, source: Array, given: tuple[int, ...]) -> tuple[Found, Found] | None:
        # A rounding error depends on what was rounded.
        if not left.own.std() > 100.0 * arrays.epsilon(self.matrix) * left.scale:
            return None
        u = np.stack([self._scores(source, column, left) for column in given], axis=1)
        responses = [left.own] if left.size is None else [left.own, left.size]
        chosen = _outstanding(u, responses)
        mean = _found(left, left.own, u[:, chosen], len(given))
        if left.size is None:
            return mean, _NOTHING
        # Unlike |e|, squares are hardly moved by the error of the mean: the derivative has the mean 0. But products of
        # a row's and its donors' errors are in them, whose weights are not those of the mean.
        alone = replace(left, design=None, weights=None, noise=1.0, strata=None)
        return mean, _found(alone, left.size, u[:, chosen], len(given))

    def _scores(self, source: Array, column: int, left: Left) -> Host:
        key = (column, source is self.matrix, len(left.rows))
        if key not in self.ranks:
            values = np.asarray(arrays.to_host(source[:, column])[left.rows], dtype=np.float64)
            self.ranks[key] = _ranks(values)
        return self.ranks[key]


def _ranks(values: Host) -> Host:
    """Ranks in (-1, 1), equal values sharing the middle one."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * counts
    return np.asarray(2.0 * middle[which] / len(values) - 1.0)


def _outstanding(u: Host, responses: Sequence[Host]) -> HostArray:
    """The columns that stand out most, if there are many; p-values count all of them."""
    if u.shape[1] <= _COLUMNS:
        return np.arange(u.shape[1])
    squares = u * u - np.mean(u * u, axis=0)
    scale = np.sqrt(np.sum(squares**2, axis=0))
    found = [np.abs(one @ squares) / np.where(scale > 0.0, scale, np.inf) for one in responses]
    return np.argsort(-np.max(found, axis=0), kind="stable")[:_COLUMNS]


def _found(left: Left, response: Host, u: Host, count: int) -> Found:
    """The least p-value of all functions of u, times their number, of ``count`` columns, and what that one explains.

    A function psi sees psi'e, and e = (I - W) x is what a sampler with weights W leaves of x: under a right sampler the
    variance is that of one value times |(I - W)'psi|^2. Of least squares, W is the hat matrix.
    """
    width, design = u.shape[1], left.design
    basis = np.linalg.qr(np.ones((len(u), 1)) if design is None else design)[0]
    response = response - basis @ (basis.T @ response)
    # The variance of one value, from e: a row of I - W has the squared length noise.
    total = float(response @ response) / left.noise
    freedom = len(u) - (count if design is None else basis.shape[1]) - 1
    singles = [u[:, j] * u[:, k] for j, k in combinations(range(width), 2)]
    singles += [u[:, j] ** 2 for j in range(width)] + [u[:, j] for j in range(width)]
    made = np.stack(singles, axis=1)
    made = made - basis @ (basis.T @ made)
    noise = left.adjoint(made)
    norms, sizes = np.sum(noise**2, axis=0), np.sum(made**2, axis=0)
    # The square of a column of two values is a line, and a function that few rows decide about proves nothing.
    seen = np.minimum(sizes, norms) > 1e-8 * len(u)
    seen &= len(noise) * np.max(noise**2, axis=0) < _LEVERAGE * norms
    explained = np.where(seen, (response @ made) ** 2 / np.where(seen, norms, 1.0), 0.0)
    best = float(explained.max())
    found = [Found(_tail(best, total, 1, freedom - 1), best / max(total, 1e-300))]
    for functions in [_in_bins(u[:, j]) for j in range(width)] + _in_strata(left, u):
        explained_by, rank = _explained(left, response, functions - basis @ (basis.T @ functions))
        found.append(Found(_tail(explained_by, total, rank, freedom - rank), explained_by / max(total, 1e-300)))
    tests = count * (count - 1) // 2 + (3 if left.strata is None else 4) * count
    least = min(found, key=lambda one: one.p_value)
    return Found(min(1.0, tests * least.p_value), min(1.0, least.share))


def _in_bins(u: Host) -> Host:
    """``(r, bins)``: which of some bins a row is in."""
    bins = min(_BINS, len(u) // _ROWS_EACH)
    cells = np.floor((u + 1.0) / 2.0 * bins)
    leaves = (cells[:, None] == np.arange(bins)[None, :]).astype(np.float64)
    return np.asarray(leaves[:, _LEVERAGE * leaves.sum(axis=0) >= len(u)])


def _in_strata(left: Left, u: Host) -> list[Host]:
    """For each column its ranks within each stratum, (r, strata): there the feature is taken to be independent."""
    if left.strata is None:
        return []
    cells = np.unique(left.strata, return_inverse=True)[1]
    if cells.max() + 1 > _STRATA:
        return []
    member = (cells[:, None] == np.arange(cells.max() + 1)[None, :]).astype(np.float64)
    middle = (u.T @ member) / member.sum(axis=0)  # (q, strata)
    return [member * (u[:, j, None] - middle[j][None, :]) for j in range(u.shape[1])]


def _explained(left: Left, response: Host, functions: Host) -> tuple[float, int]:
    """N'(A'A)^-1 N of the sums N = psi'e with the variances A'A, A = (I - W)'psi; and its rank."""
    noise = left.adjoint(functions)
    values, vectors = np.linalg.eigh(noise.T @ noise)
    kept = values > 1e-8 * max(float(values.max(initial=0.0)), 1e-8 * len(functions))
    sums = vectors[:, kept].T @ (functions.T @ response)
    return float(np.sum(sums**2 / values[kept])), int(kept.sum())


def _tail(explained: float, total: float, rank: int, freedom: int) -> float:
    """Of the F test."""
    if rank < 1 or freedom < _LEAST_FREEDOM or not explained > 0.0:
        return 1.0
    return float(special.fdtrc(rank, freedom, explained / rank / max((total - explained) / freedom, 1e-300)))
