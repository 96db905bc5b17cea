"""Both ends of the linear class on many samples of the rows at once, from sums of products that are taken once.

A sample is how often each row was drawn, so its means and covariances are one product of these numbers with products of
columns; no rows are copied. What follows is `ellipsoid` and `trust_region` for all samples side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance.data.features import Feature
from reliance.rashomon import moments
from reliance.rashomon.protocol import ClassData

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_EPS = float(np.finfo(np.float64).eps)
_STEPS = 100  # of Newton and of Dinkelbach, as in `trust_region`; a dozen are usual
# What other columns leave of one, as a share of its variance, in any sample: below it products have lost digits.
_LOST = 1e-3


@dataclass(frozen=True, eq=False)
class SampleShapes:
    """The risks of linear models with intercept on B samples, R(u, m) = least + |u|^2 + m^2, u = factor (b - centre).

    Attributes
    ----------
    least : array (B,)
    factor, inverse : arrays (B, P, P)
        Upper triangular.
    centre : array (B, P)
    n : int
        Rows of a sample.
    """

    least: Floats
    factor: Floats
    inverse: Floats
    centre: Floats
    n: int

    @staticmethod
    def of(data: ClassData, counts: Floats) -> SampleShapes | None:
        """From how often each row was drawn, (B, n); None if some sample needs more digits than products have."""
        X, y = (np.asarray(arrays.to_host(a), dtype=np.float64) for a in (data.X, data.y))
        mean = moments.row_moments(data).mean
        rows = np.concatenate([X, y[:, None]], axis=1) - mean
        n, width = rows.shape
        upper = np.triu_indices(width)
        away = counts @ rows / n
        sums = counts @ (rows[:, upper[0]] * rows[:, upper[1]]) / n
        products = np.zeros((len(counts), width, width))
        products[:, upper[0], upper[1]] = sums - away[:, upper[0]] * away[:, upper[1]]
        spread = np.sqrt(np.maximum(np.diagonal(products, axis1=1, axis2=2), 0.0))
        if n <= width or np.any(spread <= _LOST * np.abs(away)):
            return None
        products = products + np.triu(products, 1).transpose(0, 2, 1)
        try:
            lower = np.linalg.cholesky(products / (spread[:, :, None] * spread[:, None, :]))
        except np.linalg.LinAlgError:
            return None
        if float(np.min(np.diagonal(lower, axis1=1, axis2=2))) ** 2 <= _LOST:
            return None
        triangle = (lower * spread[:, :, None]).transpose(0, 2, 1)
        factor, target = triangle[:, :-1, :-1], triangle[:, :-1, -1:]
        inverse = np.linalg.inv(factor)
        return SampleShapes(triangle[:, -1, -1] ** 2, factor, inverse, (inverse @ target)[:, :, 0], n)

    def ends(self, features: tuple[Feature, ...], bounds: Floats, compare: str) -> Floats:
        """(B, p, 2): the least and the largest reliance of the models with at most those risks (B,)."""
        radius = np.sqrt(np.maximum(bounds - self.least, 0.0))
        found = np.zeros((len(bounds), len(features), 2))
        for j, feature in enumerate(features):
            constant, linear, matrix = self._quadratic(list(feature.columns))
            for end, sign in enumerate((-1.0, 1.0)):
                solve = _largest_ratios if compare == "ratio" else _largest
                value = solve(sign * constant, sign * linear, sign * matrix, self.least, radius)
                found[:, j, end] = sign * value
        return found + 1.0 if compare == "ratio" else found

    def _quadratic(self, own: list[int]) -> tuple[Floats, Floats, Floats]:
        """e_switch - e_orig as a function of a few t, with one more on which it does not depend: the bias."""
        columns, rows = self.factor[:, :, own], self.inverse[:, own, :]
        directions = np.concatenate([rows.transpose(0, 2, 1), columns], axis=2)
        basis = np.linalg.qr(directions)[0] if directions.shape[2] < directions.shape[1] else None
        turn = rows if basis is None else rows @ basis
        base = (columns @ self.centre[:, own, None])[:, :, 0]
        moved = columns @ turn
        lost = np.broadcast_to(np.eye(moved.shape[1]), (len(base), moved.shape[1], moved.shape[1]))
        lost = lost if basis is None else basis
        linear = np.einsum("bpr,bp->br", moved, base) - np.einsum("bpr,bp->br", lost, base) / 2.0
        cross = moved.transpose(0, 2, 1) @ lost
        matrix = moved.transpose(0, 2, 1) @ moved - (cross + cross.transpose(0, 2, 1)) / 2.0
        scale = 2.0 * self.n / (self.n - 1)
        pad = np.pad(matrix, ((0, 0), (0, 1), (0, 1)))
        return scale * np.sum(base * base, axis=1), scale * np.pad(linear, ((0, 0), (0, 1))), scale * pad


def _largest(constant: Floats, linear: Floats, matrix: Floats, least: Floats, radius: Floats) -> Floats:
    """(B,): the largest values of quadratics in balls."""
    values, basis = np.linalg.eigh(matrix)
    turned = np.einsum("bij,bi->bj", basis, linear)
    t = _in_balls(values, turned, radius)
    return np.asarray(constant + np.sum((2.0 * turned + values * t) * t, axis=1))


def _largest_ratios(constant: Floats, linear: Floats, matrix: Floats, least: Floats, radius: Floats) -> Floats:
    """(B,): the largest ratios of quadratics to ``least + |t|^2`` in balls, by Dinkelbach's method."""
    values, basis = np.linalg.eigh(matrix)
    turned = np.einsum("bij,bi->bj", basis, linear)
    ratio, open_ = constant / least, np.arange(len(constant))
    for _ in range(_STEPS):
        step = _in_balls(values[open_] - ratio[open_, None], turned[open_], radius[open_])
        top = constant[open_] + np.sum((2.0 * turned[open_] + values[open_] * step) * step, axis=1)
        reached = top / (least[open_] + np.sum(step * step, axis=1))
        better = reached > ratio[open_] + 2.0 * _EPS * np.abs(ratio[open_])
        open_, reached = open_[better], reached[better]
        if len(open_) == 0:
            break
        ratio[open_] = reached
    return ratio


def _in_balls(values: Floats, linear: Floats, radius: Floats) -> Floats:
    """(B, r): `trust_region.in_ball` of each row."""
    least = np.maximum(values.max(axis=1), 0.0)
    gaps = least[:, None] - values
    used, flat = linear != 0.0, gaps <= 0.0
    t = np.divide(linear, gaps, out=np.zeros_like(linear), where=used & ~flat)
    left = radius**2 - np.sum(t * t, axis=1)
    done = ~np.any(used & flat, axis=1) & (left >= 0.0)
    hard = np.flatnonzero(done & flat.any(axis=1))
    t[hard, np.argmin(gaps[hard], axis=1)] = np.sqrt(left[hard])
    done |= radius == 0.0
    t[radius == 0.0] = 0.0
    rest = np.flatnonzero(~done)
    if len(rest):
        t[rest] = _on_spheres(gaps[rest], linear[rest], radius[rest])
    return np.asarray(t)


def _on_spheres(gaps: Floats, linear: Floats, radius: Floats) -> Floats:
    """Solutions of the secular equations |t| = radius, t = linear / (gaps + away), by Newton's method on 1/|t|."""
    away = np.maximum(np.max(np.abs(linear) / radius[:, None] - gaps, axis=1), 0.0)
    open_ = np.arange(len(away))
    for _ in range(_STEPS):
        t, size, below = _at(gaps[open_], linear[open_], away[open_])
        slope = np.sum(np.divide(t * t, below, out=np.zeros_like(t), where=t != 0.0), axis=1)
        further = away[open_] + (size / radius[open_] - 1.0) * size**2 / slope
        more = further > away[open_] * (1.0 + _EPS)
        open_, further = open_[more], further[more]
        if len(open_) == 0:
            break
        away[open_] = further
    t, size, _ = _at(gaps, linear, away)
    return np.asarray(t * np.minimum(1.0, radius / size)[:, None])


def _at(gaps: Floats, linear: Floats, away: Floats) -> tuple[Floats, Floats, Floats]:
    below = gaps + away[:, None]
    t = np.divide(linear, below, out=np.zeros_like(linear), where=linear != 0.0)
    return t, np.sqrt(np.sum(t * t, axis=1)), below
