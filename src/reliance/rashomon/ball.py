"""Linear models with coefficients in a ball: two quadratic constraints, an outer bound and the best that is found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance.data.features import Feature
from reliance.rashomon import quadratic_ranges, trust_region
from reliance.rashomon.ellipsoid import Ellipsoid, End, Point, ellipsoid_end, end_of, reliance_of
from reliance.rashomon.quadratic_ranges import Region
from reliance.rashomon.trust_region import Largest, Quadratic

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# A set of one model is given this width, relative to the risk: that only makes the bounds wider.
_THINNEST = 1e-13


@dataclass(frozen=True, eq=False)
class GoodModels:
    """The models of a ball with at most some risk, in coordinates u in which the set is about as wide as the unit ball.

    Attributes
    ----------
    best : Point
        u = 0.
    axes : array (P, d)
        b = best.coef + axes u.
    biases : array (d,)
        m = biases u: the mean residual, of the first coordinate alone; 0 without intercept.
    risk : Quadratic
    where : Region
    weights : (float, float)
        The least and the largest risk in the set.
    """

    best: Point
    axes: Floats
    biases: Floats
    risk: Quadratic
    where: Region
    weights: tuple[float, float]

    def point(self, u: Floats) -> Point:
        return Point(self.best.coef + self.axes @ u, float(self.biases @ u))

    def largest(self, excess: Quadratic, compare: str) -> Largest:
        """Of e_switch - e_orig, or of its ratio to the risk."""
        if compare == "ratio":
            return quadratic_ranges.largest_ratio(excess, self.risk, self.where, self.weights)
        return quadratic_ranges.largest_quadratic(excess, self.where)


@dataclass(frozen=True, eq=False)
class Ball:
    """Models with |b| <= radius: the best of them, and the good ones."""

    shape: Ellipsoid
    radius: float

    @cached_property
    def _svd(self) -> tuple[Floats, Floats, Floats]:
        left, spread, turn = np.linalg.svd(self.shape.factor)
        return left, spread, turn

    @cached_property
    def solution(self) -> tuple[Point, float]:
        """The best model and the multiplier of the ball there: a quadratic in a ball, in b's singular vectors."""
        left, spread, turn = self._svd
        cross = spread * (left.T @ self.shape.raw[:-1, -1])
        # Least squares itself of least norm, where directions without spread have no effect.
        floor = max(self.shape.moments.slack, len(spread) * _EPS) * spread[0]
        plain = np.divide(cross, spread**2, out=np.zeros_like(cross), where=spread > floor)
        if float(plain @ plain) <= self.radius**2:
            return Point(turn.T @ plain, 0.0), 0.0
        t, _ = trust_region.in_ball(-(spread**2), cross, self.radius)
        heavy = int(np.argmax(np.abs(t)))
        multiplier = float(cross[heavy] / t[heavy] - spread[heavy] ** 2)
        return Point(turn.T @ t, 0.0), max(multiplier, 0.0)

    @cached_property
    def least(self) -> float:
        """The risk of the best model; 0 if that is nothing but rounding."""
        risk = self.shape.risk(self.solution[0])
        rounding = self.shape.moments.slack * float(np.linalg.norm(self.shape.raw[:, -1]))
        return risk if math.sqrt(risk) > rounding else 0.0

    def alone(self, bound: float) -> bool:
        """Whether the best model is the only one with at most that risk."""
        single = self.solution[1] > 0.0 or not self.shape.moments.dependent
        return single and bound <= self.least * (1.0 + 4.0 * _EPS)

    def good(self, bound: float) -> GoodModels:
        """Both balls around the best model, along the singular vectors, in which both are diagonal."""
        (best, _), (left, spread, turn) = self.solution, self._svd
        least = self.least
        slack = max(bound - least, _THINNEST * least)
        widths = 1.0 / np.sqrt(spread**2 / slack + 1.0 / self.radius**2)
        missed = self.shape.factor @ best.coef - self.shape.raw[:-1, -1]
        risk = Quadratic(least, widths * spread * (left.T @ missed), np.diag((widths * spread) ** 2))
        size = Quadratic(
            min(float(best.coef @ best.coef) - self.radius**2, 0.0), widths * (turn @ best.coef), np.diag(widths**2)
        )
        axes, biases = turn.T * widths, np.zeros(len(widths))
        if self.shape.intercept:
            axes = np.pad(axes, ((0, 0), (1, 0)))
            biases = np.append(math.sqrt(slack), biases)
            risk, size = _led(risk, slack), _led(size, 0.0)
        where = Region((risk.raised(-least - slack), size))
        return GoodModels(best, axes, biases, risk, where, (least, least + slack))

    def end(self, bound: float, feature: Feature, compare: str, conditional: bool, sign: float) -> End:
        """Exact if the ellipsoid's answer lies in the ball; otherwise the multipliers' bound and the best found."""
        if self.alone(bound):
            best, _ = self.solution
            value = reliance_of(self.shape, best, self.least, feature, compare, conditional)
            return End(value, value, best, self.least)
        if not self.shape.moments.dependent and self.shape.least > 0.0:
            exact = ellipsoid_end(self.shape, bound, feature, compare, conditional, sign)
            if float(np.linalg.norm(exact.point.coef)) <= self.radius:
                return exact
        good = self.good(bound)
        excess = self.shape.quadratic_along(feature.columns, conditional, good.best.coef, good.axes)
        found = good.largest(excess if sign > 0 else -excess, compare)
        point = self.within(good.point(found.point), bound)
        return end_of(self.shape, point, feature, compare, conditional, sign, found.bound)

    def within(self, point: Point, bound: float) -> Point:
        """The point, moved towards the best by as much as rounding has moved it out of the set."""
        best, _ = self.solution
        back = _EPS
        while back < 1.0 and (
            math.sqrt(self.shape.risk(point)) + self.shape.rounding(point) > math.sqrt(bound)
            or float(np.linalg.norm(point.coef)) > self.radius
        ):
            point = Point(point.coef + back * (best.coef - point.coef), (1.0 - back) * point.bias)
            back *= 4.0
        return point if back < 1.0 else best


def _led(q: Quadratic, first: float) -> Quadratic:
    """The same with one more coordinate before the others, with a square of its own."""
    matrix = np.pad(q.matrix, (1, 0))
    matrix[0, 0] = first
    return Quadratic(q.constant, np.append(0.0, q.linear), matrix)
