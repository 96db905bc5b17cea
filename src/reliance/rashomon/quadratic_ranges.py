"""The largest value of a quadratic, or of a ratio of quadratics, where two convex quadratics are at most zero.

The bound is that of Lagrange's multipliers, so it is certified whatever the multipliers are: where one constraint binds
it is exact, where two do there can be a gap, which the best point found shows. Everything is float64 on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from reliance.rashomon.trust_region import Largest, Quadratic

Floats = NDArray[np.float64]
_STEPS = 100  # of Newton for one weight of the barrier; about six are usual
_SHRINK = 0.05  # of the weight of the barrier
_COARSE, _FINEST = 1e-6, 1e-13
_ROUNDS = 20  # of Newton for the ratio
_TIGHT = 1e-9  # a gap, relative to the spread of the objective, below which nothing is searched
_SEARCHES = 12  # updates of the multipliers of a local search


@dataclass(frozen=True, eq=False)
class Region:
    """Where all constraints are at most zero: a convex set around 0.

    Attributes
    ----------
    constraints : tuple of Quadratic
        Convex, with diagonal matrices whose sum is positive, and at most zero at 0. Coordinates in which the set is
        about as wide as the unit ball keep most digits.

    Examples
    --------
    >>> ball = Quadratic(-4.0, np.zeros(2), np.eye(2))
    >>> strip = Quadratic(-1.0, np.zeros(2), np.diag([1.0, 0.0]))
    >>> Region((ball, strip)).pulled(np.array([3.0, 3.0])).round(12).tolist()
    [1.0, 1.0]
    """

    constraints: tuple[Quadratic, ...]

    def pulled(self, u: Floats, origin: Floats | None = None) -> Floats:
        """The last point of the set on the way from the origin, a point of it (0 if None), to u."""
        start = np.zeros(len(u)) if origin is None else origin
        share = min([1.0, *(_reach(q, start, u - start) for q in self.constraints)])
        return start + share * (u - start)


def _reach(q: Quadratic, origin: Floats, step: Floats) -> float:
    """The largest s with q(origin + s step) <= 0, for a convex q."""
    a, b, c = float(step @ q.matrix @ step), float(step @ (q.matrix @ origin + q.linear)), min(q(origin), 0.0)
    if a <= 0 and b <= 0:
        return math.inf
    root = math.sqrt(max(b * b - a * c, 0.0))
    return float(-c / (b + root) if b > 0 else (root - b) / a)


# ---------------------------------------------------------------------------------------------------------------------
# The largest value


def largest_quadratic(q: Quadratic, where: Region) -> Largest:
    """The largest value of a quadratic, concave or not, in a region.

    Examples
    --------
    >>> ball, strip = Quadratic(-4.0, np.zeros(2), np.eye(2)), Quadratic(-1.0, np.zeros(2), np.diag([1.0, 0.0]))
    >>> found = largest_quadratic(Quadratic(0.0, np.array([1.0, 0.5]), np.zeros((2, 2))), Region((ball, strip)))
    >>> round(found.value, 6), round(found.bound, 6)  # 2 x + y at (1, sqrt 3)
    (3.732051, 3.732051)
    """
    ones = Quadratic(1.0, np.zeros_like(q.linear), np.zeros_like(q.matrix))
    return largest_ratio(q, ones, where, (1.0, 1.0))


def largest_ratio(top: Quadratic, bottom: Quadratic, where: Region, weights: tuple[float, float]) -> Largest:
    """The largest ``top / bottom`` in a region.

    Parameters
    ----------
    top, bottom : Quadratic
    where : Region
    weights : (float, float)
        Positive bounds of ``bottom`` in the region, from below and from above.

    Notes
    -----
    Dinkelbach: the root of F(rho) = max (top - rho bottom), by Newton's method on the multipliers' bound of F, which is
    convex. At each iterate ``top - rho bottom <= t`` certifies the ratio rho + t / bottom, whatever the point.
    """
    # Each constraint divided by its size: multipliers of one size.
    limits = [_divided(q, max(_size(q), abs(q.constant))) for q in where.constraints]
    local = Region(tuple(limits))
    point = np.zeros(len(top.linear))
    rho = value = top.constant / bottom.constant
    certified, finest = math.inf, _COARSE if bottom.matrix.any() else _FINEST
    for _ in range(_ROUNDS):
        objective = top.plus(bottom.times(-rho))
        scale = max(_size(objective), 1e-300)
        dual = _dual(_divided(objective.raised(-objective.constant), -scale), limits, finest)
        t = objective.constant - dual.value * scale
        certified = min(certified, rho + t / (weights[0] if t > 0 else weights[1]))
        for u in _candidates(dual, local):
            reached = top(u) / bottom(u)
            point, value = (u, reached) if reached > value else (point, value)
        settled = abs(t) <= 10 * len(point) * finest * scale
        if settled and finest <= _FINEST:
            break
        finest = _FINEST if settled else finest
        weight = dual.mean(bottom)
        rho += t / weight if math.isfinite(t) and weight > 0 else 0.0
    spread = scale / weights[0]
    if certified - value > _TIGHT * spread:
        point, value = _searched(top, bottom, local, point, dual)
    # Rounding of the forms themselves, which the multipliers take as given.
    return Largest(point, value, max(certified, value) + 1e-12 * (abs(value) + spread))


def _size(q: Quadratic) -> float:
    """About how much q varies on the unit ball."""
    return max(float(np.linalg.norm(q.matrix, 2)), 2 * float(np.linalg.norm(q.linear)))


def _divided(q: Quadratic, size: float) -> Quadratic:
    return q.times(1 / size)


# ---------------------------------------------------------------------------------------------------------------------
# The bound of the multipliers


@dataclass(frozen=True, eq=False)
class _Dual:
    """``objective + sum x_k constraint_k >= value`` everywhere.

    The minimiser of the left side, and the spread (d, d) in which the barrier leaves it: of size 0, but for the hard
    case, in which it is free along a direction.
    """

    value: float
    multipliers: Floats
    centre: Floats
    spread: Floats

    def mean(self, q: Quadratic) -> float:
        """What q is at the minimiser, if that is a mixture."""
        return q(self.centre) + float(np.sum(q.matrix * self.spread))


def _dual(objective: Quadratic, constraints: Sequence[Quadratic], finest: float) -> _Dual:
    r"""Maximise over x >= 0 the bound :math:`\varphi(x) = \min_u\, objective(u) + \sum_k x_k\, constraint_k(u)`.

    Newton's method on phi / tau + log det M + sum log x_k, tau to 0, where M is the matrix of the minimised function.
    All iterates have M positive definite, so each certifies its phi, and no case is hard. In coordinates in which the
    objective and the set are of size one and the constraints diagonal, a step costs one Cholesky factorisation with
    its inverse.

    References
    ----------
    Boyd, S., Vandenberghe, L. (2004). Convex optimization, appendix B (S-procedure) and chapter 11 (barriers).
    """
    size = len(objective.linear)
    diagonals = np.array([np.diagonal(q.matrix) for q in constraints])
    edges, heights = np.array([q.linear for q in constraints]), np.array([q.constant for q in constraints])
    # First equal ones, so large that objective and constraints together are convex.
    least = float(np.min(np.sum(diagonals, axis=0)))
    x = np.full(len(constraints), 2 * float(np.linalg.norm(objective.matrix, 2)) / least + 1.0)
    here = _bound(objective, diagonals, edges, heights, x)
    if here is None:  # the set is so thin that its own matrix is singular: only the trivial bound
        return _Dual(-math.inf, x, np.zeros(size), np.zeros((size, size)))
    weight, settled = 1.0 / size, True  # the determinant grows with the size and would push the centre far out
    while weight > finest and settled:
        weight, settled = weight * _SHRINK, False
        for _ in range(_STEPS):
            G = _inverse(here.lower)
            slopes = diagonals * here.point + edges
            # The constraints at the minimiser are the derivatives of phi.
            slope = (slopes + edges) @ here.point + heights
            slope = slope / weight + diagonals @ np.diagonal(G) + 1 / x
            bend = 2 / weight * (slopes @ G @ slopes.T) + diagonals @ (G * G) @ diagonals.T + np.diag(1 / x**2)
            units = 1 / np.sqrt(np.diagonal(bend))  # the multipliers may differ by many orders
            step = units * np.linalg.lstsq(units[:, None] * bend * units, units * slope)[0]
            decrement = float(slope @ step)
            # Not near where a multiplier is 0.
            start, share, moved = here.merit(weight), min(1.0, 0.7 / max(float(np.max(-step / x)), 1e-300)), None
            while moved is None and share > 1e-12:
                tried = _bound(objective, diagonals, edges, heights, x + share * step)
                # Close to the centre the full step is right, and the merit is rounding.
                if tried is not None and (decrement < 0.01 or tried.merit(weight) >= start + 0.1 * share * decrement):
                    moved = tried
                share /= 2
            if moved is None:
                break  # rounding: what was reached counts
            here, x, settled = moved, moved.x, decrement < 0.1
            if settled:
                break
    return _Dual(here.value, x, here.point, weight * _inverse(here.lower))


@dataclass(frozen=True, eq=False)
class _Bound:
    """The value phi at x, its minimiser, and the Cholesky factor of M."""

    x: Floats
    value: float
    point: Floats
    lower: Floats

    def merit(self, weight: float) -> float:
        return float(self.value / weight + 2 * np.sum(np.log(np.diagonal(self.lower))) + np.sum(np.log(self.x)))


def _bound(objective: Quadratic, diagonals: Floats, edges: Floats, heights: Floats, x: Floats) -> _Bound | None:
    """The value phi at x; None where it is minus infinity."""
    if (x <= 0).any():
        return None
    matrix = objective.matrix.copy()
    np.fill_diagonal(matrix, np.diagonal(matrix) + x @ diagonals)
    lower, failed = linalg.lapack.dpotrf(matrix, lower=1)
    if failed:
        return None
    edge = objective.linear + x @ edges
    point = -linalg.lapack.dpotrs(lower, edge, lower=1)[0]
    return _Bound(x, float(objective.constant + x @ heights + edge @ point), point, lower)


def _inverse(lower: Floats) -> Floats:
    half, _ = linalg.lapack.dpotri(lower, lower=1)  # 0 above the diagonal, as lower is
    full = half + half.T
    np.fill_diagonal(full, np.diagonal(half))
    return np.asarray(full)


# ---------------------------------------------------------------------------------------------------------------------
# Points


def _candidates(dual: _Dual, local: Region) -> Iterator[Floats]:
    """The minimiser, and where the main direction of its spread leaves the region on both sides."""
    if not math.isfinite(dual.value):
        return
    first = local.pulled(dual.centre)
    yield first
    values, vectors = np.linalg.eigh(dual.spread)
    main = vectors[:, -1] * math.sqrt(max(float(values[-1]), 0.0))
    for sign in (-1, 1):
        if np.any(main):
            yield local.pulled(first + sign * 10 * main, first)


def _searched(top: Quadratic, bottom: Quadratic, local: Region, best: Floats, dual: _Dual) -> tuple[Floats, float]:
    """Local searches, by an augmented Lagrangian, from the best point and from both ends of the spread."""
    value = top(best) / bottom(best)
    limits = local.constraints
    for start in [best, *_candidates(dual, local)]:
        u, multipliers, weight = start, dual.multipliers.copy(), 10.0 * float(np.max(dual.multipliers) + 1e-3)
        for _ in range(_SEARCHES):

            def merit(u: Floats, multipliers: Floats = multipliers, weight: float = weight) -> tuple[float, Floats]:
                over = [max(0.0, m + weight * q(u)) for m, q in zip(multipliers, limits, strict=True)]
                below = bottom(u)
                ratio = top(u) / below
                slope = (ratio * bottom.gradient(u) - top.gradient(u)) / below
                for o, q in zip(over, limits, strict=True):
                    slope = slope + o * q.gradient(u)
                return sum(o * o for o in over) / (2 * weight) - ratio, slope

            u = optimize.minimize(merit, u, jac=True, method="L-BFGS-B", options={"maxiter": 200, "gtol": 1e-12}).x
            excess = np.array([q(u) for q in limits])
            multipliers, weight = np.maximum(multipliers + weight * excess, 0.0), weight * 1.5
            inside = local.pulled(u)
            reached = top(inside) / bottom(inside)
            best, value = (inside, reached) if reached > value else (best, value)
    return best, value
