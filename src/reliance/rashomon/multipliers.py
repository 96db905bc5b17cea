"""The bound of Lagrange's multipliers: the least value of a sum of quadratics, as large as multipliers make it.

Newton's method on two multipliers, in which a step costs one Cholesky factorisation and a few solutions with it; no
matrix is inverted or diagonalised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from reliance.rashomon.trust_region import Quadratic

Floats = NDArray[np.float64]
_STEPS = 100  # of Newton for one weight of the barrier; two or three are usual
_SHRINK = 0.001  # of the weight of the barrier
_WARM = 1e-6  # the weight from which known multipliers begin
FIRST = _WARM * _SHRINK  # and the first with which they are looked for
_POWERS = 8  # products with a matrix that say how large it is
_REACH = 0.99  # how much of the way to 0 a multiplier may go in one step


@dataclass(frozen=True, eq=False)
class Dual:
    """``objective + sum x_k constraint_k >= value`` everywhere.

    The minimiser of the left side, and a direction (d,) along which the barrier leaves it free: of size 0, but for the
    hard case, in which both ends of it are minimisers.
    """

    value: float
    multipliers: Floats
    centre: Floats
    free: Floats

    def mean(self, q: Quadratic) -> float:
        """What q is at the minimiser, if that is a mixture of the two ends."""
        return q(self.centre) + float(self.free @ q.matrix @ self.free)


def norm_of(matrix: Floats) -> float:
    """About the largest absolute eigenvalue of a symmetric matrix, by powers of it."""
    vector = _probe(len(matrix))
    found = float(np.max(np.abs(np.diagonal(matrix)), initial=0.0))
    for _ in range(_POWERS):
        vector = matrix @ vector
        size = float(np.linalg.norm(vector))
        if size == 0.0:
            break
        found, vector = max(found, size), vector / size
    return found


def _probe(size: int) -> Floats:
    """A unit vector that has something of every direction."""
    wave = np.cos(1.0 + np.arange(size, dtype=np.float64) ** 2)
    return np.asarray(wave / max(float(np.linalg.norm(wave)), 1e-300))


def largest_bound(
    objective: Quadratic, diagonal: Floats, constraints: Sequence[Quadratic], finest: float, start: Floats | None = None
) -> Dual:
    r"""Maximise over x >= 0 the bound :math:`\varphi(x) = \min_u\, objective(u) + \sum_k x_k\, constraint_k(u)`.

    Newton's method on phi + tau sum log x_k - tau^2 r'M^-1 r, tau to 0, where M is the matrix of the minimised function
    and r has something of every direction. All iterates have M positive definite, so each certifies its phi. The last
    term keeps them from the edge, and no case is hard: where M becomes singular the minimiser u is a mixture of
    u +- tau M^-1 r, of which both ends are found.

    Parameters
    ----------
    objective, constraints : Quadratic
        In coordinates in which the objective and the set are of size one; the constraints have diagonal matrices.
    diagonal : array (d,)
        Added to the diagonal of the objective's matrix.
    finest : float
        The last tau.
    start : array, optional
        Multipliers at which the sum is convex.

    References
    ----------
    Boyd, S., Vandenberghe, L. (2004). Convex optimization, appendix B (S-procedure) and chapter 11 (barriers).
    """
    forms = _Forms.of(objective, diagonal, constraints)
    here = None if start is None else forms.at(start)
    near = here is not None
    weight = min(_WARM, 1.0 / forms.size) if near else 1.0 / forms.size
    here = forms.convex() if here is None else here
    if here is None:  # the set is so thin that its own matrix is singular: only the trivial bound
        return Dual(-math.inf, np.ones(len(constraints)), np.zeros(forms.size), np.zeros(forms.size))
    steps = 2
    while True:  # at least once: known multipliers are those of another objective
        # Where one step was enough the path is straight, and a weight can be left out.
        weight = max(weight * (_SHRINK if steps > 1 else _SHRINK**2), 0.99 * finest)
        here, steps = _centred(forms, here, weight, near)
        if weight <= finest or not steps:
            break
        near = True
    return Dual(here.value, here.x, here.point, weight * here.edge)


def _centred(forms: _Forms, here: _Bound, weight: float, near: bool) -> tuple[_Bound, int]:
    """Newton's steps to the maximum for one weight of the barrier, and how many there were; 0 if it was not reached."""
    for steps in range(1, _STEPS + 1):
        slope, step = _newton(forms, here, weight, near)
        decrement = float(slope @ step)
        moved = _moved(forms, here, weight, step, decrement)
        if moved is None:
            return here, 0  # rounding: what was reached counts
        here = moved
        if decrement < 0.1:
            return here, steps
    return here, 0


def _newton(forms: _Forms, here: _Bound, weight: float, near: bool) -> tuple[Floats, Floats]:
    """The slope of the merit, and Newton's step; ``near`` the path, where the maximum for another weight is."""
    slopes = forms.diagonals * here.point + forms.edges
    bent = forms.diagonals * here.edge
    solved = here.solved(np.concatenate([slopes, bent]).T)
    k = len(here.x)
    # The constraints at the minimiser are the derivatives of phi.
    slope = ((slopes + forms.edges) @ here.point + forms.heights) / weight
    slope = slope + weight * (bent @ here.edge) + 1 / here.x
    # On the path x times its constraint is the weight. Bent by that, a multiplier that falls to 0 with the weight gets
    # there at once; bent by the logarithm it would be divided by some number in every step. Far from the path that step
    # points elsewhere, to the edge, where it would stay.
    logarithm = 1 / here.x**2
    steep = np.maximum((1 / here.x - slope) / here.x, 1e-3 * logarithm) if near else logarithm
    bend = 2 / weight * (slopes @ solved[:, :k]) + 2 * weight * (bent @ solved[:, k:]) + np.diag(steep)
    units = 1 / np.sqrt(np.diagonal(bend))  # the multipliers may differ by many orders
    step = units * np.linalg.lstsq(units[:, None] * bend * units, units * slope)[0]
    return slope, step


def _moved(forms: _Forms, here: _Bound, weight: float, step: Floats, decrement: float) -> _Bound | None:
    """The next point along a step; None if rounding leaves no better one."""
    # Not near where a multiplier is 0, nor where the sum stops to be convex along what is nearly flat in it.
    share = min(1.0, _REACH / max(float(np.max(-step / here.x)), 1e-300))
    falls = -float(here.edge**2 @ (step @ forms.diagonals))
    if falls > 0:
        share = min(share, 0.95 * float(here.edge @ forms.probe) / falls)
    start = here.merit(weight)
    while share > 1e-12:
        tried = forms.at(here.x + share * step)
        # Close to the centre the full step is right, and the merit is rounding.
        if tried is not None and (decrement < 0.01 or tried.merit(weight) >= start + 0.1 * share * decrement):
            return tried
        share /= 2
    return None


@dataclass(frozen=True, eq=False)
class _Bound:
    """The value phi at x, its minimiser, the Cholesky factor of M, and M^-1 r with r'M^-1 r."""

    x: Floats
    value: float
    point: Floats
    lower: Floats
    edge: Floats
    steep: float

    def merit(self, weight: float) -> float:
        return float(self.value / weight + np.sum(np.log(self.x)) - weight * self.steep)

    def solved(self, right: Floats) -> Floats:
        return np.asarray(linalg.lapack.dpotrs(self.lower, right, lower=1)[0])


@dataclass(frozen=True, eq=False)
class _Forms:
    """The objective with a diagonal of its own (d,), and the constraints as arrays (k, d), (k, d), (k,)."""

    objective: Quadratic
    own: Floats
    diagonals: Floats
    edges: Floats
    heights: Floats
    probe: Floats

    @classmethod
    def of(cls, objective: Quadratic, diagonal: Floats, constraints: Sequence[Quadratic]) -> _Forms:
        diagonals = np.array([np.diagonal(q.matrix) for q in constraints])
        edges, heights = np.array([q.linear for q in constraints]), np.array([q.constant for q in constraints])
        own = np.diagonal(objective.matrix) + diagonal
        return cls(objective, own, diagonals, edges, heights, _probe(len(own)))

    @property
    def size(self) -> int:
        return len(self.probe)

    def convex(self) -> _Bound | None:
        """Equal multipliers, so large that objective and constraints together are convex."""
        least = float(np.min(np.sum(self.diagonals, axis=0)))
        added = float(np.max(np.abs(self.own - np.diagonal(self.objective.matrix))))
        first = 2 * (norm_of(self.objective.matrix) + added) / least + 1.0
        tries = (self.at(np.full(len(self.heights), first * 4.0**k)) for k in range(20))
        return next((found for found in tries if found is not None), None)

    def at(self, x: Floats) -> _Bound | None:
        """The value phi at x; None where it is minus infinity."""
        if (x <= 0).any():
            return None
        matrix = np.array(self.objective.matrix.T, order="F")  # symmetric, and as LAPACK wants it: not copied again
        np.fill_diagonal(matrix, self.own + x @ self.diagonals)
        lower, failed = linalg.lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        edge = self.objective.linear + x @ self.edges
        solved = linalg.lapack.dpotrs(lower, np.stack([edge, self.probe], axis=1), lower=1)[0]
        point, sharp = -solved[:, 0], solved[:, 1]
        value = float(self.objective.constant + x @ self.heights + edge @ point)
        return _Bound(x, value, point, lower, sharp, float(self.probe @ sharp))
