"""Models that are linear in functions of the rows: the ends of a range whose switched risk is any quadratic of them.

For columns that are exchanged as they are `ellipsoid` knows that quadratic; for a kernel, or functions of several
columns, it is summed over all pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance.rashomon import trust_region
from reliance.rashomon.ball import Ball, GoodModels
from reliance.rashomon.ellipsoid import Ellipsoid, End, Point, end_at, within
from reliance.rashomon.trust_region import Quadratic

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Functions:
    """``f = mu + v'z`` of functions z.

    Attributes
    ----------
    shape : Ellipsoid
        The risk of all of them.
    ball : Ball or None
        Of the v.
    fixed : float
        mu, unless it is free.
    """

    shape: Ellipsoid
    ball: Ball | None
    fixed: float

    def full(self, point: Point) -> Floats:
        """(mu, v)."""
        if not self.shape.intercept:
            return np.append(self.fixed, point.coef)
        mean = self.shape.moments.mean
        return np.append(mean[-1] - point.bias - mean[:-1] @ point.coef, point.coef)

    def ends(self, switched: Quadratic, bound: float, compare: str) -> tuple[End, End]:
        """The least and the largest reliance of the good models; ``switched`` is the switched risk of (mu, v)."""
        if self.ball is None:
            return self._in_ellipsoid(switched, bound, compare, -1.0), self._in_ellipsoid(switched, bound, compare, 1.0)
        good = self.ball.good(bound)
        excess = self._seen(switched, good.best, good.biases, good.axes).plus(-good.risk)
        low, high = (self._in_ball(self.ball, good, switched, excess, bound, compare, sign) for sign in (-1.0, 1.0))
        return low, high

    def _in_ball(
        self,
        ball: Ball,
        good: GoodModels,
        switched: Quadratic,
        excess: Quadratic,
        bound: float,
        compare: str,
        sign: float,
    ) -> End:
        point, limit = good.best, sign * excess.constant / (good.risk.constant if compare == "ratio" else 1.0)
        if not ball.alone(bound):
            found = good.largest(excess if sign > 0 else -excess, compare)
            point, limit = ball.within(good.point(found.point), bound), found.bound
        return self._end(switched, point, limit, compare, sign)

    def _in_ellipsoid(self, switched: Quadratic, bound: float, compare: str, sign: float) -> End:
        """Risk and distance are the same, so one ball is left, in which both ends are exact."""
        shape, width = self.shape, len(self.shape.factor)
        free = int(shape.intercept)
        axes, biases = np.zeros((width, width + free)), np.zeros(width + free)
        axes[:, free:], biases[:free] = shape.inverse, 1.0
        best = Point(shape.centre, 0.0)
        risk = Quadratic(shape.least, np.zeros(width + free), np.eye(width + free))
        excess = self._seen(switched, best, biases, axes).plus(-risk)
        q, radius = excess if sign > 0 else -excess, math.sqrt(max(bound - shape.least, 0.0))
        if compare == "ratio":
            found = trust_region.largest_ratio(q, shape.least, radius)
        else:
            found = trust_region.largest(q, radius)
        point = Point(best.coef + axes @ found.point, float(biases @ found.point))
        return self._end(switched, within(shape, point, bound), found.bound, compare, sign)

    def _seen(self, switched: Quadratic, best: Point, biases: Floats, axes: Floats) -> Quadratic:
        """The switched risk as a function of t, where v = best + axes t and the mean residual is biases t."""
        drift = -biases
        if self.shape.intercept:
            drift = drift - self.shape.moments.mean[:-1] @ axes
        return switched.seen_from(self.full(best), np.vstack([drift, axes]))

    def _end(self, switched: Quadratic, point: Point, limit: float, compare: str, sign: float) -> End:
        risk, value = self.shape.risk(point), switched(self.full(point))
        return end_at(point, risk, value / risk if compare == "ratio" else value - risk, limit, compare, sign)
