r"""All pairs of a loss that depends on one score: what a row keeps plus what a donor lends.

With a_i what row i keeps of its score and b_k what donor k lends, the loss of the pair is F(a_i + b_k; y_i). Where F is
smooth, its values at Chebyshev points of both numbers say everything (see `panels`): the donors are spread onto their
points, the sums are taken there, and rows and donors read theirs off by interpolation, O(n) in all.

Labels enter the same way. The *changes* of squared error, of log loss and of deviances are affine in the label, so they
are mixtures of the changes at two labels, the least and the largest; that is looked at, not assumed. Where it is not
so, every row is its own point, and only the donors are replaced by theirs. All arrays are float64 on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reliance.engine.reductions import Moments
from reliance.exact.additive_points import EPS, ORDER, UNITS, LossAt, Points, RowPoints, Sides, row_points, table_of
from reliance.exact.panels import tail

Floats = NDArray[np.float64]
# The part of the changes that polynomials may miss, relative to their size.
TOLERANCE = 1e-11
# Entries of tables that are held together, and of those of a sample of rows at most.
_TOGETHER, _MOST_CELLS = 2**18, 2**22
# How often the intervals are halved at most, and by which part of their length points are tried beside what is lent.
_HALVINGS, _ASIDE = 20, 0.25


def chosen_width(loss: LossAt, sides: Sides) -> float | None:
    """The length of intervals on which polynomials give the changes of some of the rows.

    None: no length serves, so the loss is not smooth in the score.
    """
    some, width = sides.sample(), sides.reach
    span, turns = float(np.ptp(some.lent)), np.where(np.arange(some.n) % 2, 1.0, -1.0)
    for _ in range(_HALVINGS + 1):
        rows = row_points(loss, some, partial(Points.on_panels, width=width))
        # A little aside of the donors: intervals reach beyond them, and what happens just at a level shows.
        donors = Points.on_panels(some.lent + _ASIDE * min(width, span) * turns, width, rows.donor_order)
        if len(rows.labels) * len(rows.points.at) * len(donors.at) > _MOST_CELLS:
            return None
        if _tables(loss, some, rows, donors).missed <= TOLERANCE:
            return width
        width *= 0.5
    return None


def moments(loss: LossAt, sides: Sides, width: float | None) -> tuple[Moments, float]:
    """The moments of D = F(a_i + b_k; y_i) - F(a_i + b_i; y_i) over all pairs, and which part of them is missed.

    ``width``: of the intervals; None: every pair is computed.
    """
    if width is None:
        themselves = Points.themselves(sides.kept)
        rows = RowPoints(themselves, (sides.labels,), np.ones((sides.n, 1)))
        donors = Points.themselves(sides.lent)
    else:
        rows = row_points(loss, sides, partial(Points.fewest, width=width))
        donors = Points.fewest(sides.lent, width, rows.donor_order)
    found, n = _tables(loss, sides, rows, donors), sides.n
    # The tables hold changes from the score with the mean of what is lent: a row's own change is taken off.
    own = loss(sides.labels, sides.kept + sides.lent) - loss(sides.labels, sides.kept)
    first, second = _mixed(rows, found.sums)
    donor_sum = donors.interpolate(found.columns[:, None])[:, 0]
    weighted = own if sides.weights is None else sides.weights * own
    squares = np.maximum(second - own * (2.0 * first - n * own), 0.0)
    return Moments(first - n * own, donor_sum - np.sum(weighted), squares, None), found.missed


def _mixed(rows: RowPoints, sums: Floats) -> tuple[Floats, Floats]:
    """Sums of changes, and of their squares, of each row: (n,) each."""
    if rows.group is not None:
        each = rows.points.interpolate(np.stack([sums[:, [0, 2]], sums[:, [1, 4]]]), rows.group)
        return each[:, 0], each[:, 1]
    each = rows.points.interpolate(sums)
    if len(rows.labels) == 1:
        return each[:, 0], each[:, 1]
    p, q = rows.mix.T
    first = p * each[:, 0] + q * each[:, 1]
    return first, p * p * each[:, 2] + 2.0 * p * q * each[:, 3] + q * q * each[:, 4]


# ---------------------------------------------------------------------------------------------------------------------
# Tables of points


@dataclass(frozen=True, eq=False)
class _Tables:
    """What is summed over the K tables (R, M) of changes at the points.

    Attributes
    ----------
    sums : array (R, K + K (K + 1) / 2)
        Over the donors: of each table, and of the products of each two.
    columns : array (M,)
        Over the rows, weighted.
    missed : float
        The part of changes and squares that interpolation does not show, relative to their size.
    """

    sums: Floats
    columns: Floats
    missed: float


def _tables(loss: LossAt, sides: Sides, rows: RowPoints, donors: Points) -> _Tables:
    count, size, width = len(rows.labels), len(rows.points.at), len(donors.at)
    weights = np.ones(sides.n) if sides.weights is None else sides.weights
    of_rows = rows.points.spread(weights if rows.group is not None else rows.mix * weights[:, None], rows.group)
    of_donors = donors.spread(np.ones((sides.n, 1)))[:, 0]
    sums, columns = np.empty((size, count * (count + 3) // 2)), np.zeros(width)
    checks = [_Missed.of(size, width) for _ in range(2 * count)]
    largest = np.zeros(2)  # of losses, and of changes
    step = max(_TOGETHER // (width * ORDER), 1) * ORDER
    for start in range(0, size, step):
        part = slice(start, min(start + step, size))
        at = rows.points.at[part]
        tables = []
        for labels in rows.labels:
            before = loss(labels[part], at)
            after = table_of(loss, labels[part], at, donors.at)
            tables.append(after - before[:, None])
            largest = np.maximum(largest, [np.max(np.abs(after)), np.max(np.abs(tables[-1]))])
        products = [tables[k] * tables[m] for k in range(count) for m in range(k, count)]
        for place, table in enumerate([*tables, *products]):
            sums[part, place] = table @ of_donors
        for k, table in enumerate(tables):
            columns += of_rows[part, k] @ table
            checks[2 * k].add(table, part, rows.points, donors)
            checks[2 * k + 1].add(table * table, part, rows.points, donors)
    floors = UNITS * EPS * largest[0] * np.array([1.0, largest[1]])
    missed = max(check.worst(floors[k % 2], rows.points, donors) for k, check in enumerate(checks))
    return _Tables(sums, columns, missed if np.isfinite(sums).all() else np.inf)


@dataclass(frozen=True, eq=False)
class _Missed:
    """How much of a table the polynomials between its points do not show: of each row and of each column.

    The errors of a row are averaged over the donors, those of a donor over the rows, as the sums of both are.
    """

    row_errors: Floats
    row_squares: Floats
    column_errors: Floats
    column_squares: Floats

    @classmethod
    def of(cls, rows: int, columns: int) -> _Missed:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(columns), np.zeros(columns))

    def add(self, table: Floats, part: slice, rows: Points, donors: Points) -> None:
        square = table * table
        self.row_squares[part] = square @ donors.shares
        self.column_squares[...] += rows.shares[part] @ square
        if donors.order:
            self.row_errors[part] = donors.panel_shares() @ tail(table.T, donors.order)
        if rows.order:
            shares = rows.shares[part].reshape(-1, rows.order).sum(axis=1)
            self.column_errors[...] += shares @ tail(table, rows.order)

    def worst(self, floor: float, rows: Points, donors: Points) -> float:
        """Relative to the size of the row or the column, or of the whole table if that is larger."""
        whole = float(np.sqrt(rows.shares @ self.row_squares))
        found = 0.0
        for errors, squares in ((self.row_errors, self.row_squares), (self.column_errors, self.column_squares)):
            size = np.maximum(np.sqrt(squares), whole) + floor / TOLERANCE
            found = max(found, float(np.max(errors / np.where(size > 0.0, size, 1.0))))
        return found
