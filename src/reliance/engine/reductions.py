"""Accumulators: the sums of a feature over its tiles, kept on the host in float64.

A tile's sums are tree reductions in the working dtype; adding them in float64 keeps 1e10 losses as exact as one tile.
Sums of disjoint parts of a table are merged. Rounding makes the order of merging count, so `units` fixes it.
"""

from __future__ import annotations

import dataclasses
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
    donor_sum : array (n,), or one number for each of the plan's lenders
        Sum of w D over the uses of each donor.
    row_squares : array (n,)
        Sum of D^2 over the draws of each row.
    draw_sum : array (K,) or None
        Sum of w D over the rows of each draw; None if the plan has no draws (all pairs).
    table : array (n, columns) or None
        D itself, where all of it is wanted.
    row_contrast : array (n,) or None
        Sum of D times the plan's contrasts over the draws of each row, if the plan has some.

    Sums of D are multiplied by ``plan.scale``, that of squares by its square; the table is not.
    """

    row_sum: Floats
    donor_sum: Floats
    row_squares: Floats
    draw_sum: Floats | None
    table: Floats | None = None
    row_contrast: Floats | None = None


def joined(first: Moments, later: Moments) -> Moments:
    """The moments of some draws and of further ones."""
    assert first.draw_sum is not None
    assert later.draw_sum is not None
    a, b = first.row_contrast, later.row_contrast
    return Moments(
        first.row_sum + later.row_sum,
        first.donor_sum + later.donor_sum,
        first.row_squares + later.row_squares,
        np.concatenate([first.draw_sum, later.draw_sum]),
        row_contrast=None if a is None or b is None else a + b,
    )


@dataclass(frozen=True)
class Accumulator:
    """Running sums of one feature under one loss (arrays that `update` adds to).

    They are those of a part of the table of losses, which begins at row ``top`` and column ``left``; any donor may lend
    to it.
    """

    rows: Floats
    columns: Floats
    donors: Floats | None
    squares: Floats
    moved: Floats
    table: Floats | None = None
    contrasts: Floats | None = None
    top: int = 0
    left: int = 0

    @classmethod
    def init(cls, plan: Plan, whole: bool = False, part: Tile | None = None) -> Accumulator:
        """Zeros: for all of the plan's table, or a part of it."""
        rows, columns = Tile(range(plan.n), range(plan.columns)) if part is None else part
        b, d = len(rows), len(columns)
        donors = None if plan.rectangular or not plan.lends else np.zeros(plan.lenders)
        table = np.zeros((b, d)) if whole else None
        contrasts = np.zeros(b) if has_contrasts(plan) else None
        sums = (np.zeros(b), np.zeros(d), donors, np.zeros(b), np.zeros(()), table, contrasts)
        return cls(*sums, rows.start, columns.start)

    @staticmethod
    def nbytes(plan: Plan) -> int:
        """Without the table, which is accounted for by who wants it."""
        lenders = 0 if plan.rectangular else plan.lenders
        return 8 * (2 * plan.n + plan.columns + lenders + has_contrasts(plan) * plan.n)

    def update(self, tile: Tile, sums: NDArray[np.floating], shape: tuple[int, int]) -> bool:
        """Add a tile's packed sums (see `kernels.tile_sums`); False if its predictions were not finite or not valid.

        ``shape`` is the shape the tile was computed in, which padding may have made larger than the tile.
        """
        b, d = shape
        lenders = 0 if self.donors is None else self.donors.size
        contrasted = 0 if self.contrasts is None else b
        cuts = np.cumsum([b, d, lenders, b, contrasted, 2])
        rows, columns, donors, squares, contrasts, flags, cells = np.split(sums, cuts)
        squares, (moved, valid) = squares[: len(tile.rows)], flags
        down = slice(tile.rows.start - self.top, tile.rows.stop - self.top)
        across = slice(tile.columns.start - self.left, tile.columns.stop - self.left)
        self.rows[down] += rows[: len(tile.rows)]
        self.columns[across] += columns[: len(tile.columns)]
        if self.donors is not None:
            self.donors[...] += donors
        self.squares[down] += squares
        if self.contrasts is not None:
            self.contrasts[down] += contrasts[: len(tile.rows)]
        self.moved[...] = max(self.moved, moved)
        if self.table is not None:
            self.table[down, across] = cells.reshape(b, d)[: len(tile.rows), : len(tile.columns)]
        return bool(np.isfinite(squares).all() and np.isfinite(moved) and valid == 1)

    def merge(self, part: Accumulator) -> None:
        """Add the sums of a part of this table."""
        down = slice(part.top - self.top, part.top - self.top + len(part.rows))
        across = slice(part.left - self.left, part.left - self.left + len(part.columns))
        self.rows[down] += part.rows
        self.columns[across] += part.columns
        self.squares[down] += part.squares
        self.moved[...] = max(self.moved, part.moved)
        if self.donors is not None and part.donors is not None:
            self.donors[...] += part.donors
        if self.contrasts is not None and part.contrasts is not None:
            self.contrasts[down] += part.contrasts
        if self.table is not None and part.table is not None:
            self.table[down, across] = part.table

    def size(self, shape: tuple[int, int]) -> int:
        """How many numbers a tile's packed sums are."""
        b, d = shape
        lenders = 0 if self.donors is None else self.donors.size
        return (2 if self.contrasts is None else 3) * b + d + 2 + lenders + (0 if self.table is None else b * d)

    def finalize(self, plan: Plan) -> Moments:
        """The moments; exactly zero if no prediction moved by more than rounding, for then the feature is not used.

        ``plan`` is that of the feature, which knows the rows at the places that donors were summed by.
        """
        found = self if self.moved > 0.0 else Accumulator.init(plan, self.table is not None)
        donors = plan.donor_sums(found.columns)
        if donors is None:  # summed use by use, if at all
            donors = np.zeros(plan.lenders) if found.donors is None else found.donors
        if plan.ordering is not None and plan.lends:
            by_place, donors = donors, np.empty(plan.n)
            donors[plan.ordering] = by_place
        sums = Moments(found.rows, donors, found.squares, plan.draw_sums(found.columns), found.table, found.contrasts)
        return sums if plan.scale == 1.0 else _scaled(sums, plan.scale)


def has_contrasts(plan: Plan) -> bool:
    """Whether a plan wants one more sum for each row."""
    return plan.contrasts(Tile(range(0), range(0))) is not None


def _scaled(sums: Moments, scale: float) -> Moments:
    """The moments of ``scale`` times D."""
    return dataclasses.replace(
        sums,
        row_sum=scale * sums.row_sum,
        donor_sum=scale * sums.donor_sum,
        row_squares=scale**2 * sums.row_squares,
        draw_sum=None if sums.draw_sum is None else scale * sums.draw_sum,
        row_contrast=None if sums.row_contrast is None else scale * sums.row_contrast,
    )
