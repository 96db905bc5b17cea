"""Plans of a part of the pairs: some of the rows, some of the donors, or the later draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.plans.bases import Drawn, Rectangular
from reliance.plans.classes import Classes
from reliance.plans.pairs import Pairs
from reliance.plans.protocol import Floats, Plan, Tile, Users


def some_rows(plan: Plan, chosen: Indices) -> SomeRows | SomeRowsOfPairs:
    """Some rows of a plan, with the donors that they have in the whole of it; donors are not summed over.

    The store holds the ``chosen (m,)`` rows alone (see `stores.Lent`).
    """
    if isinstance(plan, Pairs | Classes):
        return SomeRowsOfPairs(plan, chosen)
    if plan.rectangular:
        raise TypeError(f"some rows are taken of all pairs, classes of them, or draws, not of {plan.label[:80]}")
    return SomeRows(plan, chosen)


class _NotLending:
    @property
    def lends(self) -> bool:
        return False

    def spread(self, v: Floats) -> Floats:
        raise TypeError("the donors of some rows are not summed over")


@dataclass(frozen=True, eq=False)
class _OfDraws(Drawn):
    """A part of a plan of draws, whose donors stand where they stand in the whole."""

    plan: Plan

    @property
    def scale(self) -> float:
        return self.plan.scale

    @property
    def among_rows(self) -> bool:
        return self.plan.among_rows

    @property
    def ordering(self) -> Indices | None:
        return self.plan.ordering

    def held_bytes(self, features: int) -> int:
        return self.plan.held_bytes(features)


@dataclass(frozen=True, eq=False)
class SomeRows(_NotLending, _OfDraws):
    """Some rows of a plan of draws."""

    chosen: Indices

    @property
    def n(self) -> int:
        return len(self.chosen)

    @property
    def draws(self) -> int:
        return self.plan.draws

    def part(self, feature: Feature) -> Plan:
        own = self.plan.part(feature)
        return self if own is self.plan else SomeRows(own, self.chosen)

    def cuts(self) -> tuple[int, ...]:
        return self.plan.cuts()

    def donors(self, rows: range, columns: range) -> Indices:
        return self.plan.donors_of(self.chosen[rows.start : rows.stop], columns)

    def users(self, columns: range) -> Users:
        raise TypeError("the donors of some rows are not summed over")


@dataclass(frozen=True, eq=False)
class SomeRowsOfPairs(_NotLending, Rectangular):
    """Some rows of all pairs."""

    plan: Pairs | Classes
    chosen: Indices

    @property
    def n(self) -> int:
        return len(self.chosen)

    @property
    def draws(self) -> int:
        return self.plan.draws

    @property
    def columns(self) -> int:
        return self.plan.columns

    def donors(self, rows: range, columns: range) -> range | Indices:
        return self.plan.donors(rows, columns)

    def mask(self, tile: Tile) -> NDArray[np.bool_]:
        own = self.plan.column_of(self.chosen[tile.rows.start : tile.rows.stop])
        return np.not_equal(own[:, None], np.arange(tile.columns.start, tile.columns.stop))

    def counts(self, columns: range) -> Floats | None:
        return self.plan.counts(columns)


@dataclass(frozen=True, eq=False)
class SomeDonors(Rectangular):
    """All rows with some of the donors: the donor sums are those of the ``chosen (m,)``."""

    n: int
    chosen: Indices

    @property
    def draws(self) -> int:
        return len(self.chosen)

    def donors(self, rows: range, columns: range) -> Indices:
        return self.chosen[columns.start : columns.stop]

    def mask(self, tile: Tile) -> NDArray[np.bool_]:
        rows = np.arange(tile.rows.start, tile.rows.stop)
        return np.not_equal(rows[:, None], self.chosen[tile.columns.start : tile.columns.stop])


@dataclass(frozen=True, eq=False)
class Later(_OfDraws):
    """The draws of a plan from some draw on. Its sums are joined with those of the earlier ones, never used alone."""

    start: int

    @property
    def n(self) -> int:
        return self.plan.n

    @property
    def lends(self) -> bool:
        return self.plan.lends

    @property
    def lenders(self) -> int:
        return self.plan.lenders

    @property
    def draws(self) -> int:
        return self.plan.draws - self.start

    def part(self, feature: Feature) -> Plan:
        own = self.plan.part(feature)
        return self if own is self.plan else Later(own, self.start)

    def _moved(self, columns: range) -> range:
        return range(columns.start + self.start, columns.stop + self.start)

    def cuts(self) -> tuple[int, ...]:
        return tuple(cut - self.start for cut in self.plan.cuts() if cut > self.start)

    def donors(self, rows: range, columns: range) -> range | Indices | Floats:
        return self.plan.donors(rows, self._moved(columns))

    def contrasts(self, tile: Tile) -> NDArray[np.int8] | None:
        return self.plan.contrasts(Tile(tile.rows, self._moved(tile.columns)))

    def users(self, columns: range) -> Users:
        return self.plan.users(self._moved(columns))

    def spread(self, v: Floats) -> Floats:
        raise TypeError("the later draws of a plan are never summarised alone")
