"""Linear models under squared error: those of at most some risk are an ellipsoid, and their reliance is a quadratic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from reliance.data.features import Feature
from reliance.rashomon import trust_region
from reliance.rashomon.moments import RowMoments
from reliance.rashomon.protocol import Member, Range
from reliance.rashomon.trust_region import Quadratic

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Point:
    """A linear model on the host: coefficients (P,), and the mean of its residuals, which its intercept makes."""

    coef: Floats
    bias: float


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    r"""The risk of all linear models, :math:`R(b, m) = R_0 + |U (b - b_0)|^2 + m^2`, and their reliance on a feature.

    With U of the QR decomposition of the centred columns (of the raw ones without intercept, and then m = 0), b_0 the
    least squares coefficients and m the mean residual. The reliance on columns J, over all pairs of rows and exactly,

    .. math:: e_{switch} - e_{orig} = 2 b_J'(s_{Jy} - S_{JR} b_R), \qquad
              e_{cond} - e_{orig} = 2 b_J' s_{ry}

    with covariances of denominator n - 1, R the other columns and r what these leave of J by least squares with
    intercept (r is uncorrelated with everything they predict, so only its covariance with y remains).

    Attributes
    ----------
    moments : RowMoments
    intercept : bool
    """

    moments: RowMoments
    intercept: bool

    @cached_property
    def raw(self) -> Floats:
        """The factor of the moments that risks are made of: centred, or about 0."""
        if self.intercept:
            return self.moments.triangle
        upper = np.linalg.qr(np.vstack([self.moments.mean, self.moments.triangle]), mode="r")
        return np.asarray(upper)

    @property
    def factor(self) -> Floats:
        """U (P, P)."""
        return self.raw[:-1, :-1]

    @cached_property
    def least(self) -> float:
        """R_0, the least risk without a ball."""
        if self.intercept:
            return self.moments.residual**2
        return self.moments.unless_rounding(self.raw[:, -1], len(self.factor)) ** 2

    @cached_property
    def inverse(self) -> Floats:
        """U^-1."""
        return np.asarray(linalg.solve_triangular(self.factor, np.eye(len(self.factor))))

    @cached_property
    def centre(self) -> Floats:
        """b_0."""
        return np.asarray(linalg.solve_triangular(self.factor, self.raw[:-1, -1]))

    @cached_property
    def spun(self) -> Floats:
        """V (P, P): the centred columns' factor in coordinates u = U (b - b_0); the identity with an intercept."""
        return np.eye(len(self.factor)) if self.intercept else self.moments.columns @ self.inverse

    @property
    def per_pair(self) -> float:
        """2 n / (n - 1): from moments with denominator n to twice those with n - 1."""
        return 2.0 * self.moments.n / (self.moments.n - 1)

    def risk(self, point: Point) -> float:
        return self.least + self.distance(point)

    def distance(self, point: Point) -> float:
        """|U (b - b_0)|^2 + m^2, how much above the least its risk is."""
        away = self.factor @ point.coef - self.raw[:-1, -1]
        return float(away @ away + point.bias**2)

    def rounding(self, point: Point) -> float:
        """By how much predictions of a model change, root mean square, when its coefficients are rounded."""
        sizes = np.hypot(self.moments.mean[:-1], np.linalg.norm(self.moments.columns, axis=0))
        return float(2.0 * _EPS * (np.abs(point.coef) @ sizes))

    def excess(self, point: Point, columns: tuple[int, ...], conditional: bool) -> float:
        """e_switch - e_orig of one model."""
        own = list(columns)
        if conditional:
            return float(self.per_pair * point.coef[own] @ self.unique(columns))
        T, effect = self.moments.columns, self.moments.columns[:, own] @ point.coef[own]
        return float(self.per_pair * effect @ (self.moments.target - T @ point.coef + effect))

    def unique(self, columns: tuple[int, ...]) -> Floats:
        """s_ry (g,), denominator n: the covariance with y of what the other columns leave of some."""
        T, own = self.moments.columns, list(columns)
        rest = np.delete(T, own, axis=1)
        size = np.linalg.norm(rest, axis=0)
        rest = rest / np.where(size > 0.0, size, 1.0)
        left = T[:, own]
        if rest.shape[1]:
            left = left - rest @ np.linalg.lstsq(rest, left, rcond=self.moments.slack)[0]
        return np.asarray(left.T @ self.moments.target)

    def quadratic(self, columns: tuple[int, ...], conditional: bool) -> tuple[Quadratic, Floats]:
        """e_switch - e_orig as a function of t, and an orthonormal basis Q (P, r), t = Q'U (b - b_0).

        It depends on u through the few directions of Q only, two for a single column: so a feature costs O(P), not an
        eigendecomposition of its own.
        """
        own = list(columns)
        rows, T = self.inverse[own, :], self.moments.columns
        if conditional:
            basis = _orthonormal(rows.T)
            return self._conditional(self._unique(columns), self.centre[own], rows @ basis), basis
        basis = _orthonormal(np.concatenate([rows.T, self.spun.T @ T[:, own]], axis=1))
        missed = np.zeros(len(T)) if self.intercept else self.moments.target - T @ self.centre
        return self._switched(T[:, own], self.centre[own], rows @ basis, missed, self.spun @ basis), basis

    def quadratic_along(self, columns: tuple[int, ...], conditional: bool, start: Floats, axes: Floats) -> Quadratic:
        """e_switch - e_orig as a function of t, where b = start + axes t; needs no inverse."""
        own, T = list(columns), self.moments.columns
        if conditional:
            return self._conditional(self.unique(columns), start[own], axes[own])
        return self._switched(T[:, own], start[own], axes[own], self.moments.target - T @ start, T @ axes)

    def _conditional(self, unique: Floats, start: Floats, turn: Floats) -> Quadratic:
        """2 b_J's_ry where b_J = start + turn t."""
        matrix = np.zeros((turn.shape[1], turn.shape[1]))
        return Quadratic(float(start @ unique), turn.T @ unique / 2.0, matrix).times(self.per_pair)

    def _switched(self, own: Floats, start: Floats, turn: Floats, missed: Floats, lost: Floats) -> Quadratic:
        """2 effect'(target - T b + effect), effect = T_J b_J; b_J = start + turn t, target - T b = missed - lost t.

        Coefficients of columns that are almost the same are large and cancel in the effect: products of such sums keep
        digits that sums of products lose.
        """
        base, moved = own @ start, own @ turn
        linear = (moved.T @ (2.0 * base + missed) - lost.T @ base) / 2.0
        cross = moved.T @ lost
        matrix = moved.T @ moved - (cross + cross.T) / 2.0
        return Quadratic(float(base @ (base + missed)), linear, matrix).times(self.per_pair)

    def _unique(self, columns: tuple[int, ...]) -> Floats:
        """`unique`; of a single column without a fit: s_ry = b_0 / |row of U^-1|^2, as its inverse covariance says."""
        if len(columns) > 1 or not self.intercept:
            return self.unique(columns)
        row = self.inverse[columns[0]]
        return self.centre[list(columns)] / float(row @ row)


def _orthonormal(directions: Floats) -> Floats:
    """An orthonormal basis (P, r) of the columns' span."""
    size = np.linalg.norm(directions, axis=0)
    scaled = directions[:, size > 0.0] / size[size > 0.0]
    if scaled.shape[1] == 0:
        return np.zeros((len(directions), 0))
    left, spread, _ = np.linalg.svd(scaled, full_matrices=False)
    # What is left out here is below the rounding of the directions themselves.
    return np.asarray(left[:, spread > 4.0 * _EPS])


# ---------------------------------------------------------------------------------------------------------------------
# The ends


@dataclass(frozen=True, eq=False)
class End:
    """One end of a range: what is certified, and what a member achieves."""

    certified: float
    achieved: float
    point: Point
    risk: float


def ellipsoid_end(
    shape: Ellipsoid, bound: float, feature: Feature, compare: str, conditional: bool, sign: float
) -> End:
    """The largest (sign 1) or least (sign -1) reliance of the models with at most that risk: exact."""
    q, basis = shape.quadratic(feature.columns, conditional)
    radius = math.sqrt(max(bound - shape.least, 0.0))
    spare = shape.intercept or basis.shape[1] < len(basis)
    q = q if sign > 0 else -q
    # A direction that the reliance does not see still raises the risk that a ratio divides by.
    q = q.padded() if spare else q
    found = trust_region.largest(q, radius)
    if compare == "ratio":
        found = trust_region.largest_ratio(q, shape.least, radius)
    t, rest = (found.point[:-1], float(found.point[-1])) if spare else (found.point, 0.0)
    u, bias = basis @ t, rest
    if spare and not shape.intercept:
        u, bias = u + rest * _outside(basis), 0.0
    point = within(shape, Point(shape.centre + shape.inverse @ u, bias), bound)
    return end_of(shape, point, feature, compare, conditional, sign, found.bound)


def end_at(point: Point, risk: float, achieved: float, bound: float, compare: str, sign: float) -> End:
    """The end from a bound of sign times the excess, or of its ratio to the risk.

    What is certified includes what is achieved, also in the last digit.
    """
    certified = sign * bound + (1.0 if compare == "ratio" else 0.0)
    return End(max(certified, achieved) if sign > 0 else min(certified, achieved), achieved, point, risk)


def end_of(
    shape: Ellipsoid, point: Point, feature: Feature, compare: str, conditional: bool, sign: float, bound: float
) -> End:
    """The end at a linear model."""
    risk = shape.risk(point)
    achieved = reliance_of(shape, point, risk, feature, compare, conditional)
    return end_at(point, risk, achieved, bound, compare, sign)


def range_of(low: End, high: End, member: Callable[[Point, float], Member]) -> Range:
    if low.achieved > high.achieved:  # two models that differ by rounding only
        low, high = high, low
    known = (low.certified, high.certified, low.achieved, high.achieved)
    least, most = (member(end.point, end.risk) for end in (low, high))
    return Range(min(known), max(known), least, most, low.achieved, high.achieved)


def reliance_of(
    shape: Ellipsoid, point: Point, risk: float, feature: Feature, compare: str, conditional: bool
) -> float:
    excess = shape.excess(point, feature.columns, conditional)
    return 1.0 + excess / risk if compare == "ratio" else excess


def within(shape: Ellipsoid, point: Point, bound: float) -> Point:
    """The point, moved towards least squares by as much as rounded coefficients may move its predictions."""
    over = math.sqrt(shape.distance(point))
    room = max(math.sqrt(max(bound - shape.least, 0.0)) - shape.rounding(point), 0.0)
    if over <= room:
        return point
    share = room / over
    return Point(shape.centre + share * (point.coef - shape.centre), share * point.bias)


def _outside(basis: Floats) -> Floats:
    """A unit vector orthogonal to a basis that does not span everything."""
    start = np.zeros(len(basis))
    start[int(np.argmin(np.sum(basis**2, axis=1)))] = 1.0
    for _ in range(2):
        start = start - basis @ (basis.T @ start)
        start /= np.linalg.norm(start)
    return start
