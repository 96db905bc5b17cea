"""All pairs of rows, where many donors are the same to the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.plans.bases import EveryPair, Rectangular
from reliance.plans.protocol import Floats, Tile


@dataclass(frozen=True, eq=False)
class Classes(EveryPair, Rectangular):
    """All n(n-1) pairs again, for donors that fall into m classes which the model cannot tell apart.

    One donor speaks for its class, so a feature costs n m evaluations. A row with the value of its own class is the row
    itself, D = 0: those cells are masked, and with them every pair of a row with itself.

    Attributes
    ----------
    class_of : integer array (n,)
        The class of each row, 0..m-1.
    speaker : integer array (m,)
        A row of each class.
    factor : array (n,) or None
        How much each donor counts in the sums of a row, if not once.
    """

    class_of: Indices
    speaker: Indices
    factor: Floats | None = None

    @property
    def n(self) -> int:
        return len(self.class_of)

    @property
    def draws(self) -> int:
        return self.n - 1

    @property
    def columns(self) -> int:
        return len(self.speaker)

    @cached_property
    def size(self) -> Floats:
        """How many rows each class has, or how much they count together."""
        return np.bincount(self.class_of, self.factor, minlength=self.columns).astype(np.float64)

    def donors(self, rows: range, columns: range) -> Indices:
        return self.speaker[columns.start : columns.stop]

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        own = self.class_of[tile.rows.start : tile.rows.stop, None]
        return np.not_equal(own, np.arange(tile.columns.start, tile.columns.stop))

    def counts(self, columns: range) -> Floats | None:
        return self.size[columns.start : columns.stop]

    def column_of(self, donors: Indices) -> Indices:
        return self.class_of[donors]

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums[self.class_of]

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        return np.asarray(table[:, self.column_of(donors)])
