r"""Extremes of a quadratic, and of its ratio to a squared distance, in a ball; outer bounds where there are two balls.

.. math:: q(t) = c + 2 g't + t'At, \qquad \max_{|t| \le \rho} q(t), \qquad \max_{|t| \le \rho} q(t) / (R_0 + |t|^2)

Both are found globally although q is not concave: a quadratic in a ball has no duality gap. Everything is small,
float64 and on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# Newton's method on the secular equation is monotone and Dinkelbach's superlinear: a dozen steps are usual.
_STEPS = 100
# Where the barrier of the semidefinite program stops: its value is then this close to the best, relatively.
_BARRIER_GAP = 1e-10


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

    def __call__(self, t: Floats) -> float:
        return float(self.constant + 2.0 * (self.linear @ t) + t @ self.matrix @ t)

    def __neg__(self) -> Quadratic:
        return Quadratic(-self.constant, -self.linear, -self.matrix)

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


# ---------------------------------------------------------------------------------------------------------------------
# Two balls: Shor's relaxation


@dataclass(frozen=True, eq=False)
class TwoBalls:
    """The set ``risk(t) <= bound, |At|^2 <= size``, its quadratics as matrices of the vector (1, t).

    Attributes
    ----------
    risk, norm : arrays (r + 1, r + 1)
        (1, t)'risk(1, t) and (1, t)'norm(1, t), the norm without the constant.
    bound, size : float
    best : float
        The least risk in the second ball.
    multiplier : float
        kappa >= 0 of that least risk: risk(t) + kappa (norm(t) - size) >= best for every t.
    """

    risk: Floats
    norm: Floats
    bound: float
    size: float
    best: float
    multiplier: float

    @property
    def constant(self) -> Floats:
        one = np.zeros_like(self.risk)
        one[0, 0] = 1.0
        return one

    def restricted(self, kept: NDArray[np.int64]) -> TwoBalls:
        """The same set in some of its coordinates, the others 0; the first, the constant, is kept."""
        place = np.ix_(kept, kept)
        return TwoBalls(self.risk[place], self.norm[place], self.bound, self.size, self.best, self.multiplier)

    def largest_difference(self, q: Floats) -> float:
        """A number that (1, t)'q(1, t) does not exceed in the set: the Lagrangian dual, a semidefinite program.

        min v  such that  v - q + mu1 (risk - bound) + mu2 (norm - size) is nowhere negative, mu >= 0.
        """
        parts = [self.constant, self.risk - self.bound * self.constant, self.norm - self.size * self.constant]
        # Enough of both balls to make the quadratic part convex, then a constant that lifts it above 0.
        convex = (self.risk + self.norm)[1:, 1:]
        weight = 1.0 + 2.0 * max(0.0, float(linalg.eigh(q[1:, 1:], convex, eigvals_only=True)[-1]))
        raised = weight * (parts[1] + parts[2]) - q
        low = raised[0, 0] - raised[0, 1:] @ np.linalg.solve(raised[1:, 1:], raised[1:, 0])
        start = np.array([1.0 + abs(low) - low, weight, weight])
        return smallest(-q, parts, start)

    def largest_ratio(self, q: Floats) -> float:
        """A number that (1, t)'q(1, t) / risk(t) does not exceed in the set.

        min v  such that  v risk - q + mu1 (risk - bound) + mu2 (norm - size) is nowhere negative, mu >= 0.
        """
        parts = [self.risk, self.risk - self.bound * self.constant, self.norm - self.size * self.constant]
        shares = np.array([1.0, 0.1 * self.best / self.bound, self.multiplier + 0.4 * self.best / self.size])
        positive = sum(share * part for share, part in zip(shares, parts, strict=True))
        weight = 1.0 + 2.0 * max(0.0, float(linalg.eigh(q, positive, eigvals_only=True)[-1]))
        return smallest(-q, parts, weight * shares)


def smallest(fixed: Floats, parts: list[Floats], start: Floats) -> float:
    """The least ``x[0]`` such that ``fixed + sum x[k] parts[k]`` is positive definite and x[1:] positive.

    A barrier method, Newton's on x[0] / t - log det, for a few variables: each x on the way is feasible, so the result
    is an upper bound wherever it stops. ``start`` must be feasible.
    """
    root: Floats = np.asarray(np.linalg.cholesky(_sum(fixed, parts, start)), dtype=np.float64)
    # In coordinates in which the first matrix is the identity nothing is badly scaled.
    fixed, *parts = (_congruent(root, matrix) for matrix in (fixed, *parts))
    size = len(fixed) + len(parts) - 1
    x, t, goal = start.copy(), max(abs(float(start[0])), 1e-3), np.eye(len(parts))[0]
    while t * size > _BARRIER_GAP * max(abs(float(x[0])), 1e-3):
        for _ in range(_STEPS):
            step, decrement = _newton(fixed, parts, x, goal / t)
            moved = _feasible(fixed, parts, x, step / (1.0 + max(decrement - 0.25, 0.0)))
            if moved is None:
                return float(x[0])
            x = moved
            if decrement < 0.1:
                break
        t *= 0.1
    return float(x[0])


def _sum(fixed: Floats, parts: list[Floats], x: Floats) -> Floats:
    return np.asarray(fixed + sum(weight * part for weight, part in zip(x, parts, strict=True)))


def _congruent(root: Floats, matrix: Floats) -> Floats:
    """``root^-1 matrix root^-T``."""
    # Small matrices: a product with the inverse is several times faster than two triangular solutions.
    inverse = np.linalg.inv(root)
    return np.asarray(inverse @ matrix @ inverse.T)


def _newton(fixed: Floats, parts: list[Floats], x: Floats, goal: Floats) -> tuple[Floats, float]:
    root: Floats = np.asarray(np.linalg.cholesky(_sum(fixed, parts, x)), dtype=np.float64)
    inverse = np.linalg.inv(root)
    scaled = [inverse @ part @ inverse.T for part in parts]
    sides = np.append(0.0, 1.0 / x[1:])
    gradient = goal - np.array([np.trace(part) for part in scaled]) - sides
    hessian = np.array([[np.sum(one * other) for other in scaled] for one in scaled]) + np.diag(sides**2)
    step = -np.linalg.lstsq(hessian, gradient)[0]
    return step, math.sqrt(max(float(-gradient @ step), 0.0))


def _feasible(fixed: Floats, parts: list[Floats], x: Floats, step: Floats) -> Floats | None:
    """The next x: as much of the step as stays inside; None if nothing does."""
    for _ in range(40):
        moved = x + step
        if np.all(moved[1:] > 0.0):
            try:
                np.linalg.cholesky(_sum(fixed, parts, moved))
            except np.linalg.LinAlgError:
                pass
            else:
                return moved
        step = 0.5 * step
    return None
