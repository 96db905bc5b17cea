"""Plans of a part of the pairs: some of the rows, or some of the donors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.plans.protocol import Floats, Plan, Tile, Users


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Some rows of a plan, with the donors that they have in the whole of it; donors are not summed over.

    Attributes
    ----------
    plan : Pairs, Classes or Shifts
        Of all rows.
    chosen : integer array (m,)
        The rows; the store holds these alone (see `stores.Lent`).
    """

    plan: Any
    chosen: Indices
    lends: bool = False

    @property
    def kind(self) -> str:
        return str(self.plan.kind)

    @property
    def n(self) -> int:
        return len(self.chosen)

    @property
    def draws(self) -> int:
        return int(self.plan.draws)

    @property
    def columns(self) -> int:
        return int(self.plan.columns)

    @property
    def rectangular(self) -> bool:
        return bool(self.plan.rectangular)

    def cuts(self) -> tuple[int, ...]:
        whole: Plan = self.plan
        return whole.cuts()

    def donors(self, rows: range, columns: range) -> Indices:
        if self.rectangular:
            return np.asarray(self.plan.donors(rows, columns))
        return np.asarray(self.plan.donors_of(self.chosen[rows.start : rows.stop], columns))

    def users(self, columns: range) -> Users:
        raise TypeError("the donors of some rows are not summed over")

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        own: Indices = self.plan.column_of(self.chosen[tile.rows.start : tile.rows.stop])
        return np.not_equal(own[:, None], np.arange(tile.columns.start, tile.columns.stop))

    def counts(self, columns: range) -> Floats | None:
        found: Floats | None = self.plan.counts(columns)
        return found

    def column_of(self, donors: Indices) -> Indices:
        return np.asarray(self.plan.column_of(donors))

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums

    def spread(self, v: Floats) -> Floats:
        return np.zeros(self.n)


@dataclass(frozen=True, eq=False)
class SomeDonors:
    """All rows with some of the donors: the donor sums are those of the ``chosen (m,)``."""

    n: int
    chosen: Indices
    kind: str = "pairs"
    rectangular: bool = True
    lends: bool = True

    @property
    def draws(self) -> int:
        return len(self.chosen)

    @property
    def columns(self) -> int:
        return len(self.chosen)

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        return self.chosen[columns.start : columns.stop]

    def users(self, columns: range) -> Users:
        raise TypeError("a rectangular plan sums donors along an axis")

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        rows = np.arange(tile.rows.start, tile.rows.stop)
        return np.not_equal(rows[:, None], self.chosen[tile.columns.start : tile.columns.stop])

    def counts(self, columns: range) -> Floats | None:
        return None

    def column_of(self, donors: Indices) -> Indices:
        return np.searchsorted(self.chosen, donors)

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums

    def spread(self, v: Floats) -> Floats:
        return np.zeros(self.n)
