r"""Quadratics, and the extremes of one, and of its ratio to a squared distance, in a ball.

.. math:: q(t) = c + 2 g't + t'At, \qquad \max_{|t| \le \rho} q(t), \qquad \max_{|t| \le \rho} q(t) / (R_0 + |t|^2)

Both are found globally although q is not concave: a quadratic in a ball has no duality gap. Everything is small,
float64 and on the host. Two balls at once are for `quadratic_ranges`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# Newton's method on the secular equation is monotone and Dinkelbach's superlinear: a dozen steps are usual.
_STEPS = 100


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``q(t) = constant + 2 linear't + t'matrix t`` of t (r,).

    Examples
    --------
    >>> q = Quadratic(1.0, np.array([1.0, 0.0]), np.diag([1.0, -1.0]))
    >>> q(np.array([2.0, 1.0]))  # 1 + 4 + 4 - 1
    8.0
    """

    constant: float
    linear: Floats
    matrix: Floats

    @staticmethod
    def of_products(total: Floats) -> Quadratic:
        """The mean of (y - mu - v'z)^2 as a function of (mu, v), from the means of products of (y, 1, z)."""
        return Quadratic(float(total[0, 0]), -total[1:, 0], (total[1:, 1:] + total[1:, 1:].T) / 2)

    def __call__(self, t: Floats) -> float:
        return float(self.constant + 2.0 * (self.linear @ t) + t @ self.matrix @ t)

    def __neg__(self) -> Quadratic:
        return self.times(-1.0)

    def times(self, factor: float) -> Quadratic:
        return Quadratic(factor * self.constant, factor * self.linear, factor * self.matrix)

    def plus(self, other: Quadratic) -> Quadratic:
        return Quadratic(self.constant + other.constant, self.linear + other.linear, self.matrix + other.matrix)

    def raised(self, constant: float) -> Quadratic:
        return Quadratic(self.constant + constant, self.linear, self.matrix)

    def gradient(self, t: Floats) -> Floats:
        return np.asarray(2.0 * (self.matrix @ t + self.linear))

    def seen_from(self, origin: Floats, axes: Floats) -> Quadratic:
        """The same function of u, where t = origin + axes u."""
        matrix = axes.T @ self.matrix @ axes
        return Quadratic(self(origin), axes.T @ (self.matrix @ origin + self.linear), (matrix + matrix.T) / 2.0)

    def padded(self) -> Quadratic:
        """The same with one more coordinate, on which it does not depend."""
        return Quadratic(self.constant, np.append(self.linear, 0.0), np.pad(self.matrix, (0, 1)))


@dataclass(frozen=True, eq=False)
class Largest:
    """The largest value in a ball: where it is attained, what it is there, and what it certainly does not exceed."""

    point: Floats
    value: float
    bound: float


def largest(q: Quadratic, radius: float) -> Largest:
    """The maximum of q(t) over ``|t| <= radius``.

    Examples
    --------
    >>> found = largest(Quadratic(0.0, np.array([0.0, 0.5]), np.diag([2.0, 1.0])), 2.0)  # the hard case
    >>> found.point.round(12).tolist(), round(found.value, 12), round(found.bound, 12)
    ([1.936491673104, 0.5], 8.25, 8.25)
    """
    values, basis = np.linalg.eigh(q.matrix)
    point, excess = in_ball(values, basis.T @ q.linear, radius)
    t = basis @ point
    return Largest(t, q(t), q.constant + excess)


def largest_ratio(q: Quadratic, base: float, radius: float) -> Largest:
    """The maximum of ``q(t) / (base + |t|^2)`` over ``|t| <= radius``, base > 0, by Dinkelbach's method.

    Is there a t with q(t) - v (base + |t|^2) > 0? Then its ratio is a larger v; if there is none, v is the maximum. The
    question is again a quadratic in a ball, with all eigenvalues moved by v, so one diagonalisation serves all steps.

    References
    ----------
    Dinkelbach, W. (1967). On nonlinear fractional programming. Management Science 13, 492-498.

    Examples
    --------
    >>> found = largest_ratio(Quadratic(1.0, np.array([1.0]), np.zeros((1, 1))), 1.0, 10.0)  # (1 + 2t) / (1 + t^2)
    >>> found.point.round(6).tolist(), round(found.value, 6)
    ([0.618034], 1.618034)
    """
    values, basis = np.linalg.eigh(q.matrix)
    linear = basis.T @ q.linear
    point: Floats = np.zeros(len(values))
    ratio, bound = q.constant / base, math.inf
    for _ in range(_STEPS):
        step, excess = in_ball(values - ratio, linear, radius)
        # q - ratio (base + |t|^2) <= margin everywhere, so no ratio is above ratio + margin / base.
        margin = q.constant - ratio * base + excess
        bound = min(bound, ratio + max(margin, 0.0) / base)
        reached = float(q.constant + 2.0 * linear @ step + values @ (step * step)) / float(base + step @ step)
        if not reached > ratio + 2.0 * _EPS * abs(ratio):
            break
        point, ratio = step, reached
    return Largest(basis @ point, float(ratio), float(max(bound, ratio)))


def in_ball(values: Floats, linear: Floats, radius: float) -> tuple[Floats, float]:
    r"""The t of largest :math:`\sum_i 2 \gamma_i t_i + \lambda_i t_i^2` in ``|t| <= radius``, and an upper bound of it.

    The point is :math:`t_i = \gamma_i / (\mu - \lambda_i)` with the multiplier :math:`\mu \ge \max(0, \lambda_{max})`
    that solves the secular equation :math:`|t(\mu)| = \rho`, or 0 if t(0) is a maximum inside. In the hard case no
    :math:`\mu > \lambda_{max}` does: :math:`\gamma` is 0 on the top eigenspace, and t is completed along it. The bound
    is the Lagrangian's, :math:`\mu \rho^2 + \sum \gamma_i^2 / (\mu - \lambda_i)`, which holds for every such
    :math:`\mu`.

    References
    ----------
    Moré, J., Sorensen, D. (1983). Computing a trust region step. SIAM J. Sci. Stat. Comput. 4, 553-572.
    """
    if radius == 0.0:
        return np.zeros(len(values)), 0.0
    least = max(float(np.max(values)), 0.0)
    # Distances from the smallest possible multiplier, so that a root just above it keeps its digits.
    gaps = least - values
    free, used = gaps > 0.0, linear != 0.0
    if not np.any(used & ~free):
        t = _solution(linear, gaps, used)
        left = radius**2 - float(t @ t)
        if left >= 0.0:
            if not np.all(free):
                t[int(np.argmin(gaps))] = math.sqrt(left)
            return t, least * radius**2 + _energy(linear, gaps, used)
    # Each term alone must fit into the ball: a point left of the root, from which Newton on 1/|t| is monotone.
    away = max(0.0, float(np.max(np.abs(linear) / radius - gaps)))
    for _ in range(_STEPS):
        t = _solution(linear, gaps + away, used)
        size = float(np.linalg.norm(t))
        slope = float(np.sum(t[used] ** 2 / (gaps[used] + away)))
        further = away + (size - radius) / radius * size**2 / slope
        if not further > away * (1.0 + _EPS):
            break
        away = further
    t = _solution(linear, gaps + away, used)
    t *= min(1.0, radius / float(np.linalg.norm(t)))
    return t, (least + away) * radius**2 + _energy(linear, gaps + away, used)


def _solution(linear: Floats, gaps: Floats, used: NDArray[np.bool_]) -> Floats:
    return np.divide(linear, gaps, out=np.zeros(len(linear)), where=used)


def _energy(linear: Floats, gaps: Floats, used: NDArray[np.bool_]) -> float:
    return float(np.sum(linear[used] ** 2 / gaps[used]))
