"""All pairs of rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.plans.bases import EveryPair, Rectangular
from reliance.plans.protocol import Floats, Tile


@dataclass(frozen=True)
class Pairs(EveryPair, Rectangular):
    """All n(n-1) pairs, as rows x donors rectangles with the diagonal masked: donor sums are axis sums.

    ``factor (n,)``: how much each donor counts in the sums of a row, if not once.
    """

    n: int
    factor: Floats | None = field(default=None, compare=False)

    @property
    def draws(self) -> int:
        return self.n - 1

    @property
    def columns(self) -> int:
        return self.n

    def donors(self, rows: range, columns: range) -> range:
        return columns

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        if tile.rows.stop <= tile.columns.start or tile.columns.stop <= tile.rows.start:
            return None
        rows, donors = np.arange(tile.rows.start, tile.rows.stop), np.arange(tile.columns.start, tile.columns.stop)
        return np.not_equal(rows[:, None], donors)

    def counts(self, columns: range) -> Floats | None:
        return None if self.factor is None else self.factor[columns.start : columns.stop]

    def column_of(self, donors: Indices) -> Indices:
        return donors

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        return np.asarray(table[:, donors])
