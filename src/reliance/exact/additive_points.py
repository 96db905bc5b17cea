"""Few points that stand for many rows and donors of an additive score: see `additive_sums`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.exact.panels import Interpolation, Panels, Themselves

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# F: labels (m, ...) and scores (m,) to losses (m,).
LossAt: TypeAlias = Callable[[HostArray, Floats], Floats]


@runtime_checkable
class Tabled(Protocol):
    """F that has a quicker way to the losses of some rows with all of some points."""

    def __call__(self, labels: HostArray, scores: Floats) -> Floats: ...

    def table(self, labels: HostArray, kept: Floats, lent: Floats) -> Floats:
        """``(R, M)``: losses at scores ``kept (R,) + lent (M,)``."""
        ...


def table_of(loss: LossAt | Tabled, labels: HostArray, kept: Floats, lent: Floats) -> Floats:
    """``(R, M)``: the losses of rows, with each of some points."""
    if isinstance(loss, Tabled):
        return loss.table(labels, kept, lent)
    flat = loss(np.repeat(labels, len(lent), axis=0), (kept[:, None] + lent).reshape(-1))
    return flat.reshape(len(kept), len(lent))


# Chebyshev points in an interval. The work of rows and donors grows with it, the number of intervals only the tables;
# but where every row has a table of its own, the fewest points in all are the best.
ORDER, HIGH_ORDER = 10, 28
# Rounding of losses, in units in the last place of the largest.
UNITS, EPS = 8.0, float(np.finfo(np.float64).eps)
# Rows that are looked at before all of them are.
_SAMPLE = 1024


@dataclass(frozen=True, eq=False)
class Sides:
    """The two sides of all pairs.

    Attributes
    ----------
    kept : array (n,)
        The score of each row with the mean of what is lent.
    lent : array (n,)
        What each donor lends, less its mean: small numbers, so that changes keep their digits.
    labels : array (n, ...)
    weights : array (n,) or None
        Of the rows.
    """

    kept: Floats
    lent: Floats
    labels: HostArray
    weights: Floats | None

    @classmethod
    def of(cls, scores: Floats, lent: Floats, labels: HostArray, weights: Floats | None) -> Sides:
        centred = lent - float(np.mean(lent))
        return cls(scores - centred, centred, labels, weights)

    @property
    def n(self) -> int:
        return len(self.kept)

    @property
    def reach(self) -> float:
        """The longest interval that is of use."""
        return max(float(np.ptp(self.kept)), float(np.ptp(self.lent)))

    def sample(self) -> Sides:
        """Rows that span both sides, and the labels."""
        if self.n <= _SAMPLE:
            return self
        keys = [self.kept, self.lent, *([self.labels] if _are_numbers(self.labels) else [])]
        ends = [end(key) for key in keys for end in (np.argmin, np.argmax)]
        ids = np.unique(np.concatenate([np.linspace(0, self.n - 1, _SAMPLE), ends]).astype(np.int64))
        return Sides(self.kept[ids], self.lent[ids], self.labels[ids], None)


def _are_numbers(labels: HostArray) -> bool:
    return labels.ndim == 1 and labels.dtype.kind in "biuf"


@dataclass(frozen=True, eq=False)
class Levels:
    """Numbers of which few are different: each level is a point."""

    points: Floats
    place: NDArray[np.int64]

    def spread(self, weights: Floats) -> Floats:
        size = len(self.points)
        return np.stack([np.bincount(self.place, column, minlength=size) for column in weights.T], axis=1)

    def interpolate(self, values: Floats) -> Floats:
        return values[self.place]


@dataclass(frozen=True, eq=False)
class Points:
    """Points that stand for numbers.

    Attributes
    ----------
    side : Interpolation
        With M points.
    shares : array (M,)
        The part of the numbers that is near each point.
    order : int
        How many of them make an interval; 0 if the points are the numbers.
    """

    side: Interpolation
    shares: Floats
    order: int

    @property
    def at(self) -> Floats:
        found: Floats = self.side.points
        return found

    def spread(self, weights: Floats, group: Integers | None = None) -> Floats:
        """``(M, K)``: weights of the points, from ``(n, K)``; or (M, 2), from (n,) in two groups of numbers."""
        if group is None:
            return self.side.spread(weights)
        if isinstance(self.side, Panels):
            return self.side.spread(weights[:, None], group, 2).reshape(2, -1).T
        return self.side.spread(np.stack([np.where(group == own, weights, 0.0) for own in (0, 1)], axis=1))

    def interpolate(self, values: Floats, group: Integers | None = None) -> Floats:
        """``(n, K)``, from values (M, K) at the points; or from (2, M, K), each number from those of its group."""
        if group is None:
            return self.side.interpolate(values)
        if isinstance(self.side, Panels):
            return self.side.interpolate(values.reshape(-1, values.shape[2]), group)
        first, second = (self.side.interpolate(own) for own in values)
        return np.where(group[:, None] == 0, first, second)

    def panel_shares(self) -> Floats:
        """Of the intervals."""
        return np.asarray(self.shares.reshape(-1, self.order).sum(axis=1))

    @classmethod
    def on_panels(cls, numbers: Floats, width: float, order: int = ORDER) -> Points:
        """Intervals of a length, or one that holds all numbers if that is shorter."""
        span = float(np.ptp(numbers)) * (1.0 + 8.0 * EPS)
        panels = Panels.of(numbers, min(width, span) or 1.0, order)
        counts = np.bincount(panels.place, minlength=len(panels.centres))
        return cls(panels, np.repeat(counts / (len(numbers) * order), order), order)

    @classmethod
    def themselves(cls, numbers: Floats) -> Points:
        return cls(Themselves(numbers), np.full(len(numbers), 1.0 / len(numbers)), 0)

    @classmethod
    def fewest(cls, numbers: Floats, width: float, order: int = ORDER) -> Points:
        """Intervals, levels, or the numbers themselves, whichever has the fewest points."""
        panels = cls.on_panels(numbers, width, order)
        n, most = len(numbers), min(len(panels.at), len(numbers))
        if len(np.unique(numbers[:: max(n // (8 * most), 1)])) <= most:  # a glance: sorting all of them takes longer
            levels, place = np.unique(numbers, return_inverse=True)
            if len(levels) <= most:
                return cls(Levels(levels, place), np.bincount(place) / n, 0)
        return panels if most < n else cls.themselves(numbers)


@dataclass(frozen=True, eq=False)
class RowPoints:
    """Points of the rows, under some labels each, of which the rows are mixtures.

    Attributes
    ----------
    points : Points
        R of them.
    labels : tuple of K arrays (R, ...)
        The labels of the points, in each of the K tables.
    mix : array (n, K)
        How a row's changes are made of those in the tables.
    group : integers (n,) or None
        If every row has one of two labels: which table is its own.
    """

    points: Points
    labels: tuple[HostArray, ...]
    mix: Floats
    group: Integers | None = None

    @property
    def donor_order(self) -> int:
        """Points of donors in an interval that suit these rows."""
        return HIGH_ORDER if len(self.points.at) == len(self.mix) else ORDER


def row_points(loss: LossAt, sides: Sides, make: Callable[[Floats], Points]) -> RowPoints:
    """Points of the rows, by ``make`` where the label of a row is no obstacle, otherwise the rows themselves."""
    ends = affine_ends(loss, sides)
    if ends is None:
        return RowPoints(Points.themselves(sides.kept), (sides.labels,), np.ones((sides.n, 1)))
    points = make(sides.kept)
    labels = tuple(np.full(len(points.at), end) for end in dict.fromkeys(ends))
    mix = _mixture(sides.labels, *ends)[:, : len(labels)]
    apart = len(labels) == 2 and bool(np.all((mix[:, 1] == 0.0) | (mix[:, 1] == 1.0)))
    return RowPoints(points, labels, mix, mix[:, 1].astype(np.int64) if apart else None)


def affine_ends(loss: LossAt, sides: Sides) -> tuple[float, float] | None:
    """The least and the largest label, if the changes of a loss are affine in the label; None otherwise."""
    if not _are_numbers(sides.labels):
        return None
    low, high = sides.labels.min(), sides.labels.max()
    some = sides.sample()
    start, end = some.kept, some.kept + some.lent[::-1]

    def change(labels: HostArray) -> Floats:
        return loss(labels, end) - loss(labels, start)

    own, first, last = (change(labels) for labels in (some.labels, *(np.full(some.n, one) for one in (low, high))))
    mix = _mixture(some.labels, low, high)
    size = max(float(np.max(np.abs(losses))) for losses in (loss(some.labels, end), own, first, last))
    apart = np.max(np.abs(own - mix[:, 0] * first - mix[:, 1] * last))
    return (low, high) if apart <= 8.0 * UNITS * EPS * size else None


def _mixture(labels: HostArray, low: float, high: float) -> Floats:
    """``(n, 2)``: labels as weighted means of two."""
    numbers = labels.astype(np.float64)
    share = (numbers - float(low)) / (float(high) - float(low)) if high > low else np.zeros(len(numbers))
    return np.stack([1.0 - share, share], axis=1)
