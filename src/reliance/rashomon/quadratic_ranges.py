"""The largest value of a quadratic, or of a ratio of quadratics, where two convex quadratics are at most zero.

The bound is that of Lagrange's multipliers, so it is certified whatever the multipliers are: where one constraint binds
it is exact, where two do there can be a gap, which the best point found shows. Everything is float64 on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from reliance.rashomon.multipliers import FIRST, Dual, largest_bound, norm_of
from reliance.rashomon.trust_region import Largest, Quadratic

Floats = NDArray[np.float64]
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
    """The largest s with q(origin + s step) <= 0, for a convex q with a diagonal matrix."""
    bent = np.diagonal(q.matrix)
    a, b = float(bent @ step**2), float(step @ (bent * origin + q.linear))
    c = min(q.constant + float(2.0 * (q.linear @ origin) + bent @ origin**2), 0.0)
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
        The matrix of ``bottom`` is diagonal.
    where : Region
        Its first constraint is that ``bottom`` is at most ``weights[1]``.
    weights : (float, float)
        Positive bounds of ``bottom`` in the region, from below and from above.

    Notes
    -----
    Dinkelbach: the root of F(rho) = max (top - rho bottom), by Newton's method on the multipliers' bound of F, which is
    convex. At each iterate ``top - rho bottom <= t`` certifies the ratio rho + t / bottom, whatever the point.
    """
    # Each constraint divided by its size: multipliers of one size.
    limits = [q.times(1 / max(_diagonal_size(q), abs(q.constant))) for q in where.constraints]
    local = Region(tuple(limits))
    point = np.zeros(len(top.linear))
    rho = value = top.constant / bottom.constant
    varies = bool(bottom.matrix.any() or bottom.linear.any())  # otherwise one round is all
    certified, finest = math.inf, _COARSE if varies else _FINEST
    scale = max(_size(top) + abs(rho) * _diagonal_size(bottom), 1e-300)
    form = top.raised(-top.constant).times(-1 / scale)
    multipliers: Floats | None = None
    for _ in range(_ROUNDS):
        # top - rho bottom, whose matrix differs from round to round on the diagonal only.
        slope = rho / scale
        objective = Quadratic(0.0, form.linear + slope * bottom.linear, form.matrix)
        dual = largest_bound(objective, slope * np.diagonal(bottom.matrix), limits, finest, multipliers)
        t = top.constant - rho * bottom.constant - dual.value * scale
        certified = min(certified, rho + t / (weights[0] if t > 0 else weights[1]))
        for u in _candidates(dual, local):
            reached = top(u) / bottom(u)
            point, value = (u, reached) if reached > value else (point, value)
        settled = abs(t) <= 10 * len(point) * finest * scale
        if finest <= _FINEST and (settled or not varies):
            break
        finest = _FINEST if settled else finest
        weight = dual.mean(bottom)
        step = t / weight if math.isfinite(t) and weight > 0 else 0.0
        multipliers = _carried(dual, bottom.times(step / scale), limits[0], max(FIRST, finest))
        rho += step
    spread = scale / weights[0]
    if certified - value > _TIGHT * spread:
        point, value = _searched(top, bottom, local, point, dual)
    # Rounding of the forms themselves, which the multipliers take as given.
    return Largest(point, value, max(certified, value) + 1e-12 * (abs(value) + spread))


def _carried(dual: Dual, moved: Quadratic, limit: Quadratic, weight: float) -> Floats:
    """Multipliers with which the next round begins where this one has ended.

    The objective rises by ``moved``. The first constraint says that ``bottom`` is at most something, so it has the same
    matrix but for a factor: its multiplier falls by as much. Where that would be below 0 the sum only rises, and the
    multiplier begins at what the next round's first barrier, of the given weight, makes of it.
    """
    heavy = int(np.argmax(np.abs(np.diagonal(limit.matrix))))
    below = float(limit.matrix[heavy, heavy])
    fall = float(moved.matrix[heavy, heavy]) / below if below > 0 else 0.0
    found = dual.multipliers.copy()
    found[0] = max(found[0] - fall, min(found[0], weight / max(-limit(dual.centre), weight)))
    return found


def _size(q: Quadratic) -> float:
    """About how much q varies on the unit ball."""
    return max(norm_of(q.matrix), 2 * float(np.linalg.norm(q.linear)))


def _diagonal_size(q: Quadratic) -> float:
    """The same for a diagonal matrix."""
    return max(float(np.max(np.abs(np.diagonal(q.matrix)))), 2 * float(np.linalg.norm(q.linear)))


# ---------------------------------------------------------------------------------------------------------------------
# Points


def _candidates(dual: Dual, local: Region) -> Iterator[Floats]:
    """The minimiser, and where the direction in which it is free leaves the region on both sides."""
    if not math.isfinite(dual.value):
        return
    first = local.pulled(dual.centre)
    yield first
    for sign in (-1, 1):
        if np.any(dual.free):
            yield local.pulled(first + sign * 10 * dual.free, first)


def _searched(top: Quadratic, bottom: Quadratic, local: Region, best: Floats, dual: Dual) -> tuple[Floats, float]:
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
