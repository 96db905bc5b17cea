"""The least value of a quadratic, or of a ratio of quadratics, where several convex quadratics are at most zero.

The bound is that of Lagrange's multipliers, so it is certified whatever the multipliers are: with one constraint it is
exact, with two there can be a gap, which the best point found shows. Everything is float64 on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize

from reliance.draws import Host

_STEPS = 100  # of Newton for one weight of the barrier; about six are usual
_SHRINK = 0.05  # of the weight of the barrier
_COARSE, _FINEST = 1e-6, 1e-13
_ROUNDS = 20  # of Newton for the ratio
_TIGHT = 1e-9  # a gap, relative to the spread of the objective, below which nothing is searched


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``q(z) = z'Az + 2 b'z + c`` with A (d, d) symmetric and b (d,)."""

    A: Host
    b: Host
    c: float

    def __call__(self, z: Host) -> float:
        return float(z @ (self.A @ z + 2 * self.b) + self.c)

    def gradient(self, z: Host) -> Host:
        return np.asarray(2 * (self.A @ z + self.b))

    def seen_from(self, origin: Host, axes: Host) -> Quadratic:
        """The same function of u, where z = origin + axes u."""
        A = axes.T @ self.A @ axes
        return Quadratic((A + A.T) / 2, axes.T @ (self.A @ origin + self.b), self(origin))

    def plus(self, factor: float, other: Quadratic) -> Quadratic:
        return Quadratic(self.A + factor * other.A, self.b + factor * other.b, self.c + factor * other.c)


@dataclass(frozen=True, eq=False)
class Region:
    """Where all constraints are at most zero: a convex set around a point of it.

    Attributes
    ----------
    constraints : tuple of Quadratic
        Convex.
    inside : (d,)
        A point at which none is positive.
    axes : (d, d)
        Coordinates u, z = inside + axes u, in which the set is about as wide as the unit ball and the matrices of the
        constraints are diagonal.
    """

    constraints: tuple[Quadratic, ...]
    inside: Host
    axes: Host

    def pulled(self, z: Host) -> Host:
        """The last point of the set on the way from the inner point to z."""
        step = z - self.inside
        share = min([1.0, *(_reach(q, self.inside, step) for q in self.constraints)])
        return self.inside + share * step


def region(constraints: Sequence[Quadratic], sizes: Sequence[float], inside: Host) -> Region:
    """The set with its coordinates.

    Parameters
    ----------
    constraints : sequence of Quadratic
        One or two: their matrices are made diagonal at once.
    sizes : sequence of float
        How far each constraint rises from its minimum to its boundary, about; the sum of ``A / size`` is definite.
    inside : (d,)
    """
    scaled = [q.A / size for q, size in zip(constraints, sizes, strict=True)]
    metric = sum(scaled[1:], start=scaled[0])
    axes = linalg.eigh(scaled[0], metric)[1]
    return Region(tuple(constraints), inside, axes)


def _reach(q: Quadratic, origin: Host, step: Host) -> float:
    """The largest t with q(origin + t step) <= 0, for a convex q."""
    a, b, c = float(step @ q.A @ step), float(step @ (q.A @ origin + q.b)), min(q(origin), 0.0)
    if a <= 0 and b <= 0:
        return np.inf
    root = np.sqrt(max(b * b - a * c, 0.0))
    return float(-c / (b + root) if b > 0 else (root - b) / a)


# ---------------------------------------------------------------------------------------------------------------------
# The bound of the multipliers


@dataclass(frozen=True, eq=False)
class _Dual:
    """``objective + sum x_k constraint_k >= value`` everywhere.

    The minimiser of the left side, and the spread (d, d) in which the barrier leaves it: of size 0, but for the hard
    case, in which it is free along a direction.
    """

    value: float
    multipliers: Host
    centre: Host
    spread: Host

    def mean(self, q: Quadratic) -> float:
        """What q is at the minimiser, if that is a mixture."""
        return q(self.centre) + float(np.sum(q.A * self.spread))


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
    size = len(objective.b)
    diagonals, edges = np.array([np.diagonal(q.A) for q in constraints]), np.array([q.b for q in constraints])
    heights = np.array([q.c for q in constraints])
    x = _first_multipliers(objective, constraints)
    here = _bound(objective, diagonals, edges, heights, x)
    if here is None:  # the set is so thin that its own matrix is singular: only the trivial bound
        return _Dual(-np.inf, x, np.zeros(size), np.zeros((size, size)))
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
            start, share, moved = here.merit(weight), 1.0, None
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

    x: Host
    value: float
    point: Host
    lower: Host

    def merit(self, weight: float) -> float:
        return float(self.value / weight + 2 * np.sum(np.log(np.diagonal(self.lower))) + np.sum(np.log(self.x)))


def _bound(objective: Quadratic, diagonals: Host, edges: Host, heights: Host, x: Host) -> _Bound | None:
    """The value phi at x; None where it is minus infinity."""
    if (x <= 0).any():
        return None
    lower, failed = linalg.lapack.dpotrf(objective.A + np.diag(x @ diagonals), lower=1)
    if failed:
        return None
    edge = objective.b + x @ edges
    point = -linalg.cho_solve((lower, True), edge)
    return _Bound(x, float(objective.c + x @ heights + edge @ point), point, lower)


def _inverse(lower: Host) -> Host:
    half, _ = linalg.lapack.dpotri(lower, lower=1)
    return np.asarray(np.tril(half) + np.tril(half, -1).T)


def _first_multipliers(objective: Quadratic, constraints: Sequence[Quadratic]) -> Host:
    """Equal ones, so large that objective and constraints together are convex."""
    total = sum((np.diagonal(q.A) for q in constraints), start=np.zeros(len(objective.b)))
    least = float(np.min(total))
    size = float(np.linalg.norm(objective.A, 2))
    return np.full(len(constraints), 2 * size / least + 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# The least value


@dataclass(frozen=True, eq=False)
class Least:
    """A certified lower bound, and the best point found with its value."""

    bound: float
    value: float
    point: Host


def least_quadratic(objective: Quadratic, where: Region) -> Least:
    """The least value of a quadratic, convex or not, on a region."""
    ones = Quadratic(np.zeros_like(objective.A), np.zeros_like(objective.b), 1.0)
    return least_ratio(objective, ones, where, (1.0, 1.0))


def least_ratio(top: Quadratic, bottom: Quadratic, where: Region, weights: tuple[float, float]) -> Least:
    """The least ``top / bottom`` on a region.

    Parameters
    ----------
    top, bottom : Quadratic
    where : Region
    weights : (float, float)
        Positive bounds of ``bottom`` on the region, from below and from above.

    Notes
    -----
    Dinkelbach: the root of F(rho) = min (top - rho bottom), by Newton's method on the multipliers' bound of F, which is
    concave. At each iterate ``top - rho bottom >= t`` certifies the ratio rho + t / bottom, whatever the point.
    """
    inner, outer = (q.seen_from(where.inside, where.axes) for q in (top, bottom))
    limits = [q.seen_from(where.inside, where.axes) for q in where.constraints]
    # Each constraint divided by its size in these coordinates: multipliers of one size.
    limits = [_divided(q, max(_size(q), abs(q.c), 1e-300)) for q in limits]
    local = Region(tuple(limits), np.zeros(len(where.inside)), np.eye(len(where.inside)))
    origin = np.zeros(len(where.inside))
    found, best = -np.inf, Least(-np.inf, top(where.inside) / bottom(where.inside), origin)
    rho, finest = best.value, _COARSE if outer.A.any() else _FINEST
    for _ in range(_ROUNDS):
        objective = inner.plus(-rho, outer)
        scale = max(_size(objective), 1e-300)
        dual = _dual(_divided(objective.plus(-objective.c, _one(objective)), scale), limits, finest)
        t = dual.value * scale + objective.c
        found = max(found, rho + t / (weights[0] if t < 0 else weights[1]))
        for u in _candidates(dual, local):
            value = inner(u) / outer(u)
            best = Least(found, value, u) if value < best.value else best
        weight = dual.mean(outer)
        move = t / weight if np.isfinite(t) and weight > 0 else 0.0
        settled = abs(t) <= 10 * len(origin) * finest * scale
        if settled and finest <= _FINEST:
            break
        finest = _FINEST if settled else finest
        rho += move
    spread = scale / max(outer.c, 1e-300)
    if best.value - found > _TIGHT * spread:
        best = _searched(inner, outer, local, best, dual)
    # Rounding of the forms themselves, which the multipliers take as given.
    bound = min(found, best.value) - 1e-12 * (abs(best.value) + spread)
    point = where.inside + where.axes @ best.point
    return Least(bound, top(point) / bottom(point), point)


def _one(like: Quadratic) -> Quadratic:
    return Quadratic(np.zeros_like(like.A), np.zeros_like(like.b), 1.0)


def _size(q: Quadratic) -> float:
    """About how much q varies on the unit ball."""
    return max(float(np.linalg.norm(q.A, 2)), 2 * float(np.linalg.norm(q.b)))


def _divided(q: Quadratic, size: float) -> Quadratic:
    return Quadratic(q.A / size, q.b / size, q.c / size)


def _candidates(dual: _Dual, local: Region) -> list[Host]:
    """The minimiser, and where the main direction of its spread leaves the region on both sides."""
    if not np.isfinite(dual.value):
        return []
    values, vectors = np.linalg.eigh(dual.spread)
    main = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    first = local.pulled(dual.centre)
    around = Region(local.constraints, first, local.axes)
    return [first, *(around.pulled(first + sign * 10 * main) for sign in (-1, 1) if np.any(main))]


def _searched(inner: Quadratic, outer: Quadratic, local: Region, best: Least, dual: _Dual) -> Least:
    """Local searches, by an augmented Lagrangian, from the best point and from both ends of the spread."""
    for start in [best.point, *_candidates(dual, local)]:
        u, multipliers, weight = start, dual.multipliers.copy(), 10.0 * float(np.max(dual.multipliers) + 1e-3)
        for _ in range(12):

            def merit(u: Host, multipliers: Host = multipliers, weight: float = weight) -> tuple[float, Host]:
                over = [max(0.0, m + weight * q(u)) for m, q in zip(multipliers, local.constraints, strict=True)]
                bottom = outer(u)
                ratio = inner(u) / bottom
                slope = (inner.gradient(u) - ratio * outer.gradient(u)) / bottom
                for o, q in zip(over, local.constraints, strict=True):
                    slope = slope + o * q.gradient(u)
                return ratio + sum(o * o for o in over) / (2 * weight), slope

            u = optimize.minimize(merit, u, jac=True, method="L-BFGS-B", options={"maxiter": 200, "gtol": 1e-12}).x
            excess = np.array([q(u) for q in local.constraints])
            multipliers, weight = np.maximum(multipliers + weight * excess, 0.0), weight * 1.5
            inside = local.pulled(u)
            value = inner(inside) / outer(inside)
            if value < best.value:
                best = Least(best.bound, value, inside)
    return best
