"""Accumulators: the sums of a feature over its tiles, kept on the host in float64.

A tile's sums are tree reductions in the working dtype; adding them in float64 keeps 1e10 losses as exact as one tile.
Adding is associative, so blocks, devices and machines may finish in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance.plans import Plan, Tile

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """What inference needs of one feature under one loss, D = L - l.

    Attributes
    ----------
    row_sum : array (n,)
        Sum of D over the draws of each row.
    donor_sum : array (n,)
        Sum of w D over the uses of each donor.
    row_squares : array (n,)
        Sum of D^2 over the draws of each row.
    draw_sum : array (K,) or None
        Sum of w D over the rows of each draw; None if the plan has no draws (all pairs).
    table : array (n, columns) or None
        D itself, where all of it is wanted.
    """

    row_sum: Floats
    donor_sum: Floats
    row_squares: Floats
    draw_sum: Floats | None
    table: Floats | None = None


def joined(first: Moments, later: Moments) -> Moments:
    """The moments of some draws and of further ones."""
    assert first.draw_sum is not None
    assert later.draw_sum is not None
    return Moments(
        first.row_sum + later.row_sum,
        first.donor_sum + later.donor_sum,
        first.row_squares + later.row_squares,
        np.concatenate([first.draw_sum, later.draw_sum]),
    )


@dataclass(frozen=True)
class Accumulator:
    """Running sums of one feature under one loss (arrays that `update` adds to)."""

    rows: Floats
    columns: Floats
    donors: Floats | None
    squares: Floats
    moved: Floats
    table: Floats | None = None

    @classmethod
    def init(cls, plan: Plan, whole: bool = False) -> Accumulator:
        donors = None if plan.rectangular or not plan.lends else np.zeros(plan.n)
        table = np.zeros((plan.n, plan.columns)) if whole else None
        return cls(np.zeros(plan.n), np.zeros(plan.columns), donors, np.zeros(plan.n), np.zeros(()), table)

    @staticmethod
    def nbytes(plan: Plan) -> int:
        """Without the table, which is accounted for by who wants it."""
        return 8 * (2 * plan.n + plan.columns + (0 if plan.rectangular else plan.n))

    def update(self, tile: Tile, sums: NDArray[np.floating], shape: tuple[int, int]) -> bool:
        """Add a tile's packed sums (see `kernels.tile_sums`); False if its predictions were not finite or not valid.

        ``shape`` is the shape the tile was computed in, which padding may have made larger than the tile.
        """
        b, d = shape
        lenders = 0 if self.donors is None else self.donors.size
        rows, columns, donors, squares, flags, cells = np.split(sums, np.cumsum([b, d, lenders, b, 2]))
        squares, (moved, valid) = squares[: len(tile.rows)], flags
        self.rows[tile.rows.start : tile.rows.stop] += rows[: len(tile.rows)]
        self.columns[tile.columns.start : tile.columns.stop] += columns[: len(tile.columns)]
        if self.donors is not None:
            self.donors[...] += donors
        self.squares[tile.rows.start : tile.rows.stop] += squares
        self.moved[...] = max(self.moved, moved)
        if self.table is not None:
            inside = cells.reshape(b, d)[: len(tile.rows), : len(tile.columns)]
            self.table[tile.rows.start : tile.rows.stop, tile.columns.start : tile.columns.stop] = inside
        return bool(np.isfinite(squares).all() and np.isfinite(moved) and valid == 1)

    def size(self, shape: tuple[int, int]) -> int:
        """How many numbers a tile's packed sums are."""
        b, d = shape
        return 2 * b + d + 2 + (0 if self.donors is None else self.donors.size) + (0 if self.table is None else b * d)

    def finalize(self, plan: Plan) -> Moments:
        """The moments; exactly zero if no prediction moved by more than rounding, for then the feature is not used."""
        found = self if self.moved > 0.0 else Accumulator.init(plan, self.table is not None)
        donors = plan.donor_sums(found.columns)
        if donors is None:  # summed use by use, if at all
            donors = np.zeros(plan.n) if found.donors is None else found.donors
        return Moments(found.rows, donors, found.squares, plan.draw_sums(found.columns), found.table)
