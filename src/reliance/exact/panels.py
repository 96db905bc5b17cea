r"""Smooth functions of many numbers, by their values at few: Chebyshev points on intervals of equal length.

A function that is analytic near an interval is given there, to 16 digits, by its values at a handful of Chebyshev
points. So a sum over n numbers of a smooth function is a sum over the points, with the weights of the numbers *spread*
onto them, and a smooth function that is wanted at n numbers is *interpolated* from the points. Both are O(n).

The interpolant of degree q - 1 misses a function that is at most M in the ellipse of parameter r about the interval by
at most ``4 M r^(1-q) / (r - 1)`` (Trefethen, Approximation theory and approximation practice, theorem 8.2). How far the
coefficients have fallen at the end of the expansion says the same of a function whose ellipse is not known: see `tail`.
All arrays are float64 on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Numbers whose polynomials are held together: they stay in the cache.
_CHUNK = 2**13


class Interpolation(Protocol):
    """Numbers (n,), and points (m,) that stand for them."""

    @property
    def points(self) -> Floats: ...

    def spread(self, weights: Floats) -> Floats:
        """``(m, K)``: weights of the points, from those of the numbers, ``(n, K)``."""
        ...

    def interpolate(self, values: Floats) -> Floats:
        """``(n, K)``: functions at the numbers, from their values ``(m, K)`` at the points."""
        ...


@dataclass(frozen=True, eq=False)
class Themselves:
    """Numbers that are their own points."""

    points: Floats

    def spread(self, weights: Floats) -> Floats:
        return weights

    def interpolate(self, values: Floats) -> Floats:
        return values


@dataclass(frozen=True, eq=False)
class Panels:
    """Intervals that hold numbers, with q Chebyshev points each.

    Attributes
    ----------
    centres : array (P,)
        Of the intervals.
    half : float
        Half their length.
    order : int
        q.
    place : integers (n,)
        The interval of each number.
    local : array (n,)
        Where it lies there, between -1 and 1.
    """

    centres: Floats
    half: float
    order: int
    place: Integers
    local: Floats

    @classmethod
    def of(cls, numbers: Floats, width: float, order: int) -> Panels:
        """Intervals of a length, as many of them as hold numbers."""
        low = float(numbers.min())
        place = np.floor((numbers - low) / width)
        if place.max() < 4 * len(numbers) + 64:
            place = place.astype(np.int64)
            held = np.bincount(place) > 0
            cells = np.flatnonzero(held)
            if len(cells) < len(held):
                place = (np.cumsum(held) - 1)[place]
        else:
            cells, place = np.unique(place, return_inverse=True)
        half = 0.5 * width
        centres = np.asarray(low + (cells + 0.5) * width, dtype=np.float64)
        return cls(centres, half, order, place, (numbers - centres[place]) / half)

    @cached_property
    def points(self) -> Floats:
        """``(P q,)``, one interval after the other."""
        return np.asarray((self.centres[:, None] + self.half * nodes(self.order)).ravel())

    def spread(self, weights: Floats, group: Integers | None = None, groups: int = 1) -> Floats:
        """``(groups P q, K)``: the weights ``(n, K)``, those of each group of numbers (n,) apart."""
        size, width = groups * len(self.centres), weights.shape[1]
        sums = np.zeros((self.order, width, size))
        for part in _parts(len(self.local)):
            at = self._at(part, group)
            for polynomial, own in zip(_polynomials(self.local[part], self.order), sums, strict=True):
                for k in range(width):
                    own[k] += np.bincount(at, polynomial * weights[part, k], minlength=size)
        # A number's weight goes to the points by the polynomials that are 1 at one of them and 0 at the others.
        found = np.einsum("qks,qj->sjk", sums, to_coefficients(self.order))
        return np.ascontiguousarray(found.reshape(size * self.order, width))

    def interpolate(self, values: Floats, group: Integers | None = None) -> Floats:
        """``(n, K)``, from ``(groups P q, K)``: of each number the functions of its group."""
        q, width = self.order, values.shape[1]
        table = np.einsum("qj,sjk->kqs", to_coefficients(q), values.reshape(-1, q, width))
        table = np.ascontiguousarray(table)
        found = np.empty((width, len(self.local)))
        room = np.empty(_CHUNK)
        for part in _parts(len(self.local)):
            at = self._at(part, group)
            term, polynomials = room[: len(at)], _polynomials(self.local[part], q)
            for own, coefficients in zip(found, table, strict=True):
                np.take(coefficients[0], at, out=own[part], mode="clip")
                for k in range(1, q):
                    np.take(coefficients[k], at, out=term, mode="clip")
                    np.multiply(term, polynomials[k], out=term)
                    own[part] += term
        return found.T

    def _at(self, part: slice, group: Integers | None) -> Integers:
        return self.place[part] if group is None else self.place[part] + len(self.centres) * group[part]


def interpolation(numbers: Floats, width: float, order: int) -> Interpolation:
    """Panels, or the numbers themselves where there would be as many points."""
    found = Panels.of(numbers, width, order)
    return Themselves(numbers) if order * len(found.centres) >= len(numbers) else found


@cache
def nodes(order: int) -> Floats:
    """The Chebyshev points between -1 and 1."""
    return np.cos(np.pi * (np.arange(order) + 0.5) / order)


@cache
def to_coefficients(order: int) -> Floats:
    """``(q, q)``: from values at the points, where the polynomials are orthogonal, to their coefficients."""
    turns = np.outer(np.arange(order), 2 * np.arange(order) + 1) % (4 * order)  # whole ones change nothing but digits
    found = np.cos(np.pi / (2 * order) * turns) * (2.0 / order)
    found[0] *= 0.5
    return np.asarray(found)


def tail(values: Floats, order: int) -> Floats:
    """``(P, K)``: how large the last two of the coefficients are, from values ``(P q, K)`` at the points.

    The part of a function that polynomials of this order do not show is about as large.
    """
    shaped = values.reshape(-1, order, values.shape[1])
    return np.asarray(np.abs(np.einsum("qj,sjk->sqk", to_coefficients(order)[-2:], shaped)).max(axis=1))


def _polynomials(local: Floats, order: int) -> Floats:
    """``(q, m)``: the Chebyshev polynomials at numbers between -1 and 1."""
    found = np.empty((order, len(local)))
    found[0] = 1.0
    if order > 1:
        found[1] = local
    double = 2.0 * local
    for k in range(2, order):
        np.multiply(double, found[k - 1], out=found[k])
        found[k] -= found[k - 2]
    return found


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]
