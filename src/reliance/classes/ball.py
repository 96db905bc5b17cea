"""Linear models with coefficients in a ball: two quadratic constraints, an outer bound and the best that is found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from reliance import rng
from reliance.classes import trust_region
from reliance.classes.ellipsoid import Ellipsoid, End, Point, ellipsoid_end, end_of, reliance_of
from reliance.classes.trust_region import TwoBalls
from reliance.features import Feature

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# Starts of the search: the answer without the ball, and random directions; and which random numbers those are (see
# `rng.stream`).
_RANDOM_STARTS, _STARTS = 6, 101
# A search ends where no more than this is left between what is achieved and what is certified.
_CLOSED = 1e-8


@dataclass(frozen=True, eq=False)
class Ball:
    """Models with |b| <= radius: the best of them, and the multiplier of the ball there."""

    shape: Ellipsoid
    radius: float

    @cached_property
    def solution(self) -> tuple[Point, float]:
        """Least squares in the ball, a quadratic in a ball again, in the coordinates of b's singular vectors."""
        _, spread, turn = np.linalg.svd(self.shape.factor)
        cross = turn @ (self.shape.factor.T @ self.shape.raw[:-1, -1])
        # Least squares itself of least norm, where directions without spread have no effect.
        floor = max(self.shape.moments.slack, len(spread) * _EPS) * spread[0]
        plain = np.divide(cross, spread**2, out=np.zeros_like(cross), where=spread > floor)
        if float(plain @ plain) <= self.radius**2:
            return Point(turn.T @ plain, 0.0), 0.0
        t, _ = trust_region.in_ball(-(spread**2), cross, self.radius)
        heavy = int(np.argmax(np.abs(t)))
        multiplier = float(cross[heavy] / t[heavy] - spread[heavy] ** 2)
        return Point(turn.T @ t, 0.0), max(multiplier, 0.0)

    def two_balls(self, bound: float) -> TwoBalls:
        """The Rashomon set in coordinates (1, m, b)."""
        p = len(self.shape.factor)
        upper = self.shape.raw
        risk = np.zeros((p + 2, p + 2))
        moments = upper.T @ upper
        risk[2:, 2:], risk[0, 2:], risk[2:, 0] = moments[:-1, :-1], -moments[:-1, -1], -moments[:-1, -1]
        risk[0, 0], risk[1, 1] = moments[-1, -1], 1.0
        norm = np.diag(np.append([0.0, 0.0], np.ones(p)))
        point, multiplier = self.solution
        return TwoBalls(risk, norm, bound, self.radius**2, self.shape.risk(point), multiplier)

    def end(self, bound: float, feature: Feature, compare: str, conditional: bool, sign: float, key: int) -> End:
        """Exact if the ellipsoid's answer lies in the ball; otherwise a relaxation's bound and a search's best."""
        starts, (best, multiplier) = [], self.solution
        alone = multiplier > 0.0 or not self.shape.moments.dependent
        if alone and bound <= self.shape.risk(best) * (1.0 + 4.0 * _EPS):  # the set is one model
            risk = self.shape.risk(best)
            value = reliance_of(self.shape, best, risk, feature, compare, conditional)
            return End(value, value, best, risk)
        if not self.shape.moments.dependent and self.shape.least > 0.0:
            exact = ellipsoid_end(self.shape, bound, feature, compare, conditional, sign)
            if float(np.linalg.norm(exact.point.coef)) <= self.radius:
                return exact
            starts.append(exact.point)
        q = sign * self.shape.homogeneous(feature.columns, conditional)
        balls, free = self.two_balls(bound), q
        if not self.shape.intercept:  # then m is no variable
            kept = np.delete(np.arange(len(q)), 1)
            balls, free = balls.restricted(kept), q[np.ix_(kept, kept)]
        outer = balls.largest_ratio(free) if compare == "ratio" else balls.largest_difference(free)
        found: list[End] = []
        for point in search(self, q, bound, compare, starts, key, feature):
            found.append(end_of(self.shape, point, feature, compare, conditional, sign, outer))
            if abs(found[-1].certified - found[-1].achieved) <= _CLOSED * max(1.0, abs(found[-1].achieved)):
                break  # nothing is left to be found
        top = max(found, key=lambda end: sign * end.achieved)
        return End(top.certified, top.achieved, top.point, top.risk, float(np.ptp([end.achieved for end in found])))

    def retract(self, point: Point, bound: float) -> Point:
        """The point of the set on the way from the best model to a given one: both balls are convex."""
        best, _ = self.solution
        step = Point(point.coef - best.coef, point.bias - best.bias)
        moved = self.shape.factor @ step.coef
        left = self.shape.factor @ best.coef - self.shape.raw[:-1, -1]
        share = min(
            _crossing(float(moved @ moved) + step.bias**2, float(moved @ left), self.shape.risk(best) - bound),
            _crossing(
                float(step.coef @ step.coef),
                float(step.coef @ best.coef),
                float(best.coef @ best.coef) - self.radius**2,
            ),
        )
        return Point(best.coef + share * step.coef, best.bias + share * step.bias)


def _crossing(a: float, b: float, c: float) -> float:
    """The largest s in [0, 1] with a s^2 + 2 b s + c <= 0, where c <= 0."""
    if a + 2.0 * b + c <= 0.0 or a <= 0.0:
        return 1.0
    root = math.sqrt(max(b * b - a * min(c, 0.0), 0.0))
    share = -min(c, 0.0) / (b + root) if b > 0.0 else (root - b) / a
    return max(0.0, min(1.0, share * (1.0 - 2.0 * _EPS)))


def search(
    ball: Ball, q: Floats, bound: float, compare: str, starts: list[Point], key: int, feature: Feature
) -> Iterator[Point]:
    """Members of both balls of locally largest reliance, by sequential quadratic programming from several starts."""
    shape, best = ball.shape, ball.solution[0]
    balls, p = ball.two_balls(bound), len(ball.shape.factor)
    # Steps in units in which both balls are about round.
    scale = np.linalg.cholesky(balls.risk[2:, 2:] / bound + np.eye(p) / ball.radius**2)

    def point(v: Floats) -> Point:
        bias = float(v[0]) * math.sqrt(bound) if shape.intercept else 0.0
        return Point(best.coef + linalg.solve_triangular(scale, v[1:], lower=True, trans=1), bias)

    def gradient(matrix: Floats, at: Floats) -> tuple[float, Floats]:
        slope = 2.0 * (matrix @ at)[1:]
        bias = slope[:1] * (math.sqrt(bound) if shape.intercept else 0.0)
        return float(at @ matrix @ at), np.append(bias, linalg.solve_triangular(scale, slope[1:], lower=True))

    def vector(v: Floats) -> Floats:
        here = point(v)
        return np.concatenate([[1.0, here.bias], here.coef])

    def objective(v: Floats) -> tuple[float, Floats]:
        value, slope = gradient(q, vector(v))
        if compare == "difference":
            return -value, -slope
        risk, tilt = gradient(balls.risk, vector(v))
        return -value / risk, -(slope - value / risk * tilt) / risk

    limits = [(balls.risk, bound), (balls.norm, balls.size)]
    constraints = [
        {
            "type": "ineq",
            "fun": lambda v, m=m, most=most: 1.0 - gradient(m, vector(v))[0] / most,
            "jac": lambda v, m=m, most=most: -gradient(m, vector(v))[1] / most,
        }
        for m, most in limits
    ]
    generator = rng.stream(key, _STARTS, feature.columns[0])
    tries = [np.append(s.bias / math.sqrt(bound), scale.T @ (s.coef - best.coef)) for s in starts]
    tries += list(generator.normal(size=(_RANDOM_STARTS, p + 1)))
    for first in tries:
        inside = ball.retract(point(first), bound)
        start = np.append(inside.bias / math.sqrt(bound), scale.T @ (inside.coef - best.coef))
        options = {"maxiter": 200, "ftol": 1e-14}
        done = optimize.minimize(objective, start, jac=True, method="SLSQP", constraints=constraints, options=options)
        yield ball.retract(point(done.x), bound) if np.all(np.isfinite(done.x)) else inside
