"""Accumulators: the sums of a feature over its tiles, kept on the host in float64.

A tile's sums are tree reductions in the working dtype; adding them in float64 keeps 1e10 losses as exact as one tile.
Sums of disjoint parts of a table are merged. Rounding makes the order of merging count, so `units` fixes it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

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
    """Running sums of one feature under one loss (arrays that `merge` adds to).

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
        return Layout.of(plan, whole).zeros(Tile(range(plan.n), range(plan.columns)) if part is None else part)

    @staticmethod
    def nbytes(plan: Plan) -> int:
        """Without the table, which is accounted for by who wants it."""
        lenders = 0 if plan.rectangular else plan.lenders
        return 8 * (2 * plan.n + plan.columns + lenders + has_contrasts(plan) * plan.n)

    @property
    def layout(self) -> Layout:
        lenders = 0 if self.donors is None else self.donors.size
        return Layout(self.donors is not None, lenders, self.contrasts is not None, self.table is not None)

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

    def within(self, larger: Tile) -> Accumulator:
        """The sums of a larger part of the table, to which only these have been added so far.

        In the same arrays, where they are as long: what is made and added to without need shows beside cheap models.
        """
        if (self.top, len(self.rows)) != (larger.rows.start, len(larger.rows)):
            total = self.layout.zeros(larger)
            total.merge(self)
            return total
        if (self.left, len(self.columns)) == (larger.columns.start, len(larger.columns)):
            return self
        across = slice(self.left - larger.columns.start, self.left - larger.columns.start + len(self.columns))
        columns = np.zeros(len(larger.columns))
        columns[across] = self.columns
        table = None
        if self.table is not None:
            table = np.zeros((len(self.rows), len(larger.columns)))
            table[:, across] = self.table
        return dataclasses.replace(self, columns=columns, table=table, left=larger.columns.start)

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


class Layout(NamedTuple):
    """Which sums of a feature there are, and how those of a tile are packed (see `kernels.tile_sums`)."""

    lends: bool
    lenders: int
    contrasted: bool
    whole: bool

    @classmethod
    def of(cls, plan: Plan, whole: bool) -> Layout:
        lends = plan.lends and not plan.rectangular
        return cls(lends, plan.lenders if lends else 0, has_contrasts(plan), whole)

    def zeros(self, part: Tile) -> Accumulator:
        b, d = len(part.rows), len(part.columns)
        donors = np.zeros(self.lenders) if self.lends else None
        table = np.zeros((b, d)) if self.whole else None
        contrasts = np.zeros(b) if self.contrasted else None
        sums = (np.zeros(b), np.zeros(d), donors, np.zeros(b), np.zeros(()), table, contrasts)
        return Accumulator(*sums, part.rows.start, part.columns.start)

    def size(self, shape: tuple[int, int]) -> int:
        """How many numbers a tile's packed sums are."""
        b, d = shape
        return (3 if self.contrasted else 2) * b + d + 2 + self.lenders + (b * d if self.whole else 0)

    def unpacked(self, tile: Tile, packed: Floats, shape: tuple[int, int]) -> tuple[Accumulator, bool]:
        """The sums of a tile, in the memory that they came in, and whether its predictions were finite and valid.

        ``shape`` is the shape the tile was computed in, which padding may have made larger than the tile.
        """
        b, d = shape
        cuts = np.cumsum([b, d, self.lenders, b, b if self.contrasted else 0, 2])
        rows, columns, donors, squares, contrasts, (moved, valid), cells = np.split(packed, cuts)
        down, across = len(tile.rows), len(tile.columns)
        found = Accumulator(
            rows[:down],
            columns[:across],
            donors if self.lends else None,
            squares[:down],
            np.asarray(max(moved, 0.0)),
            cells.reshape(b, d)[:down, :across] if self.whole else None,
            contrasts[:down] if self.contrasted else None,
            tile.rows.start,
            tile.columns.start,
        )
        return found, bool(np.isfinite(found.squares).all() and np.isfinite(moved) and valid == 1)


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
