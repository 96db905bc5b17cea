"""What the draws of a sampler leave of a feature: each row's own value, minus the mean of the values drawn for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy import sparse

from reliance._core import arrays, streams
from reliance._core.kinds import Array, HostArray
from reliance.samplers.draws import DonorDraws, Draws, Host, Residuals, Thresholds, ValueDraws, take_columns

_ROWS = 2048  # that are looked at
_BLOCKS = 32  # in which they lie next to each other
_DONORS = 16  # of a row
_VALUES = 64  # drawn for a row
_LEVELS = 8  # of a category, the most frequent ones
Sparse: TypeAlias = sparse.csr_array
_KEY = 0  # the numbers that values are drawn by for the check: those of the measurement do not change it


@dataclass(frozen=True, eq=False)
class Left:
    """Of one column, in some rows.

    Attributes
    ----------
    rows : integer array (r,)
        Which of all rows.
    own : (r,)
        x_i minus the mean of its draws.
    size : (r,) or None
        (x_i - mean)^2 minus the mean of (x~ - mean)^2; None where the mean says it all: two values, or an indicator.
    scale : float
        The largest value of the column.
    design : (r, q) or None
        z with an intercept, if the mean is a least squares fit on it.
    weights : sparse matrix (r, n) or None
        W, if the mean of the draws is W x.
    noise : float
        The mean squared length of a row of I - W.
    strata : integer array (r,) or None
    """

    rows: HostArray
    own: Host
    size: Host | None
    scale: float
    design: Host | None = None
    weights: Sparse | None = None
    noise: float = 1.0
    strata: HostArray | None = None

    def adjoint(self, psi: Host) -> Host:
        """(I - W)'psi of functions psi (r, F): how each value moves the sums psi'e."""
        if self.weights is None:
            return psi
        found = np.asarray(-(self.weights.T @ psi))
        found[self.rows] += psi
        return found


def left_by(parts: Draws, matrix: Array, target: tuple[int, ...], coded: tuple[int, ...]) -> list[Left]:
    """Of each column of the target, or of each frequent level of a category; the draws are those of all rows."""
    if isinstance(parts, DonorDraws):
        return _of_donors(parts, matrix, target, coded)
    if isinstance(parts, Thresholds):
        return _of_thresholds(parts, matrix, target)
    if isinstance(parts, Residuals):
        return _of_residuals(parts.residual, parts.design, matrix, target)
    if isinstance(parts, ValueDraws) and parts.normal is not None:
        normal = parts.normal
        return _of_residuals(take_columns(matrix, target) - normal.mean, normal.design, matrix, target)
    return _of_values(parts, matrix, target) if isinstance(parts, ValueDraws) else []


def _of_residuals(residual: Array, design: Array | None, matrix: Array, target: tuple[int, ...]) -> list[Left]:
    """Donors' residuals have one distribution: what is left is the row's own residual."""
    rows = np.linspace(0, residual.shape[0] - 1, min(int(residual.shape[0]), _ROWS)).astype(np.int64)
    left = _host(residual)[rows]
    Z = None if design is None else _host(design)[rows]
    found = []
    for e, column in zip(left.T, target, strict=True):
        own = e - e.mean()
        scale = float(np.abs(_host(matrix[:, column])).max())
        found.append(Left(rows, own, own**2 - np.mean(own**2), scale, Z))
    return found


def _of_donors(parts: DonorDraws, matrix: Array, target: tuple[int, ...], coded: tuple[int, ...]) -> list[Left]:
    """Values of other rows, at even steps of the uniform numbers."""
    n = int(matrix.shape[0])
    blocks = _blocks(n)
    u = (np.arange(_DONORS) + 0.5) / _DONORS
    donors = np.concatenate([parts.donors(b, np.broadcast_to(u, (len(b), _DONORS)).copy()) for b in blocks])
    rows = np.concatenate([np.arange(b.start, b.stop) for b in blocks])
    alone = np.isin(rows, parts.alone)
    rows, donors = rows[~alone], donors[~alone]
    if not len(rows):
        return []
    places = np.repeat(np.arange(len(rows)), _DONORS)  # a donor may be drawn more than once: its entries add up
    weights = sparse.csr_array((np.full(donors.size, 1.0 / _DONORS), (places, donors.reshape(-1))), (len(rows), n))
    strata = None if parts.strata is None else np.asarray(parts.strata)[rows]
    shared = Left(rows, np.zeros(0), None, 1.0, None, weights, 1.0 + float(weights.power(2).sum()) / len(rows), strata)
    found = []
    for column in target:
        values = _host(matrix[:, column])
        scale = float(np.abs(values).max())
        levels, counts = np.unique(values, return_counts=True)
        if column in coded:
            for level in levels[np.argsort(-counts, kind="stable")][:_LEVELS]:
                is_level = (values == level).astype(np.float64)
                found.append(replace(shared, own=is_level[rows] - is_level[donors].mean(axis=1)))
            continue
        mean = values[donors].mean(axis=1)
        size = (values[rows] - mean) ** 2 - np.mean((values[donors] - mean[:, None]) ** 2, axis=1)
        found.append(replace(shared, own=values[rows] - mean, size=None if len(levels) < 3 else size, scale=scale))
    return found


def _of_values(parts: ValueDraws, matrix: Array, target: tuple[int, ...]) -> list[Left]:
    blocks = _blocks(int(matrix.shape[0]))
    xp, dev = arrays.namespace(matrix), arrays.device(matrix)
    made = []
    for b in blocks:
        draws = [streams.uniforms(_KEY, b.start, b.stop, k, parts.uniforms) for k in range(_VALUES)]
        u = arrays.from_host(np.stack(draws, axis=1), xp, dev, arrays.sum_dtype(xp, dev))
        made.append(_host(parts.values(b, u)))
    drawn = np.concatenate(made)  # (r, d, g)
    rows = np.concatenate([np.arange(b.start, b.stop) for b in blocks])
    found = []
    for k, column in enumerate(target):
        values, mean = _host(matrix[:, column]), drawn[:, :, k].mean(axis=1)
        size = (values[rows] - mean) ** 2 - np.mean((drawn[:, :, k] - mean[:, None]) ** 2, axis=1)
        own = values[rows] - mean
        two = len(np.unique(values)) < 3
        found.append(Left(rows, own, None if two else size, float(np.abs(values).max())))
    return found


def _of_thresholds(parts: Thresholds, matrix: Array, target: tuple[int, ...]) -> list[Left]:
    cut, latent = (_host(a)[:, 0] for a in (parts.cut, parts.latent))
    share = 1.0 - np.searchsorted(np.sort(latent), cut, side="right") / len(latent)
    rows = np.linspace(0, len(cut) - 1, min(len(cut), _ROWS)).astype(np.int64)
    own = _host(matrix[:, target[0]]) - (parts.low + (parts.high - parts.low) * share)
    return [Left(rows, own[rows], None, max(abs(parts.low), abs(parts.high)))]


def _blocks(n: int) -> list[range]:
    """At most 2048 rows, in blocks that are spread over all of them."""
    if n <= _ROWS:
        return [range(n)]
    size = _ROWS // _BLOCKS
    return [range(start, start + size) for start in np.linspace(0, n - size, _BLOCKS).astype(int).tolist()]


def _host(x: Array) -> Host:
    return np.asarray(arrays.to_host(x), dtype=np.float64)
