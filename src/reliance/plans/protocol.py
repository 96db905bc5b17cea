"""What the engine and the inference ask of a plan, and how its table of losses is cut into tiles.

A plan is an immutable recipe. It makes indices on the host for any range of rows and draws and never holds them whole,
so it needs O(n) memory for any number of draws. Rows keep their natural order in every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import Array
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.features import Feature

Floats = NDArray[np.float64]


class Tile(NamedTuple):
    """A rectangle of the table of losses: rows x columns (draws, or donors of a rectangular plan)."""

    rows: range
    columns: range


class Users(NamedTuple):
    """Where the uses of each donor stand in a whole-rows tile ``(n, d)``, flattened.

    ``flat`` lists the positions donor by donor; ``bounds (n + 1,)`` delimits the donors, or is None where every
    donor is used exactly once in each draw, so that ``flat`` has d entries a donor.
    """

    flat: Indices
    bounds: Indices | None


class Terms(NamedTuple):
    """What the variance of an estimate is made of: sums of the kernel h (see `reliance.inference.variance`).

    ``rows (n,)``: r, its means over the draws of each row. ``donors (n,)``: c, its sums over the uses of each donor,
    over K. ``total ()``: its sum of squares. ``draws (K,)``: the values of the draws, None if there are none.
    ``contrasts (n,)``: for a plan that has contrasts, the row sums of w D times them, in the units of h, and
    ``changes (n,)``: the row means of w D in the same units.
    """

    rows: Floats
    donors: Floats
    total: Floats
    draws: Floats | None = None
    contrasts: Floats | None = None
    changes: Floats | None = None


class Variance(NamedTuple):
    """The variance of an estimate, and the part of it that more draws would remove (nan where it is not known)."""

    population: Array
    monte_carlo: Array


class Plan(Protocol):
    """What the engine and the inference need to know of a plan. `Drawn` has most of it for plans that draw donors."""

    @property
    def n(self) -> int: ...
    @property
    def draws(self) -> int:
        """How many donors each row borrows from."""
        ...

    @property
    def label(self) -> str:
        """In tables: "shifts, 20 per row"."""
        ...

    @property
    def units(self) -> int:
        """How many independent units the estimate rests on: the rows, or pairs of them."""
        ...

    @property
    def exhaustive(self) -> bool:
        """Whether each row borrows from every other row once, so that nothing is drawn."""
        ...

    @property
    def exhausted_at(self) -> float:
        """How many draws are all pairs; infinite if draws are independent."""
        ...

    @property
    def columns(self) -> int:
        """How many columns the table of losses has: the draws, or all n donors of a rectangular plan."""
        ...

    @property
    def rectangular(self) -> bool:
        """Whether the columns of a tile are donors (the same ones for each row) rather than draws."""
        ...

    @property
    def lends(self) -> bool:
        """Whether the uses of each donor are summed: not of new values, nor where only single rows are wanted."""
        ...

    @property
    def lenders(self) -> int:
        """How many rows lend: n, unless donors are other rows than those that are measured."""
        ...

    @property
    def among_rows(self) -> bool:
        """Whether what is borrowed comes from the rows that are measured."""
        ...

    @property
    def lending(self) -> str:
        """Who may lend to whom, as ``rl.Clusters`` and ``rl.Blocks`` say it: "anywhere" if clusters do not matter."""
        ...

    def crosses(self, clusters: Indices) -> bool:
        """Whether some rows borrow from rows of other clusters than their own; ``clusters (n,)`` are numbers."""
        ...

    @property
    def scale(self) -> float:
        """What changes D are multiplied by, so that their mean estimates the mean over pairs of different rows."""
        ...

    @property
    def ordering(self) -> Indices | None:
        """``(n,)``: the row at each place, where the donors of the plan that this is a part of are places."""
        ...

    def part(self, feature: Feature) -> Plan:
        """The plan of one feature, whose donors are row numbers; the plan itself, if all features share their donors.

        The donors and `users` of a plan with parts are places of an order that each feature has for itself.
        """
        ...

    @property
    def exchangeable(self) -> bool:
        """Whether the draws and the data as they are could change places, if the feature did not matter."""
        ...

    def sorted_by(self, values: Callable[[Feature], HostArray]) -> Plan:
        """The same plan for other things than the feature's own values, if it goes by values: ``(n, g)`` each."""
        ...

    def held_bytes(self, features: int) -> int:
        """What the plan keeps on the host beyond one ordering of the rows, if so many features are measured."""
        ...

    def cuts(self) -> tuple[int, ...]:
        """Columns at which a tile must end."""
        ...

    def donors(self, rows: range, columns: range) -> range | Indices | Floats:
        """The donors of a tile: ``(b, d)``; if the plan is rectangular ``(d,)``, or a range where they are contiguous.

        Or other numbers which the store makes replacements of, such as ``(b, d, count)`` in [0, 1).
        """
        ...

    def donors_of(self, rows: Indices, columns: range) -> Indices:
        """The same of any rows, ``(b, d)``, of a plan of draws."""
        ...

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        """False where a row of a rectangle would be its own donor; None where there is no such cell."""
        ...

    def counts(self, columns: range) -> Floats | None:
        """How many donors each column of a rectangle stands for; None: one each."""
        ...

    def contrasts(self, tile: Tile) -> NDArray[np.int8] | None:
        """``(b, d)``: what the changes of a row are multiplied by in one more sum of them; None: there is none."""
        ...

    def users(self, columns: range) -> Users:
        """The uses of each donor within some draws of all rows, if the plan is not rectangular."""
        ...

    def donor_sums(self, column_sums: Floats) -> Floats | None:
        """``(n,)``, where they come from the sums of the columns; None where `users` says what to sum."""
        ...

    def draw_sums(self, column_sums: Floats) -> Floats | None:
        """``(K,)``: the sums of the draws; None where columns are no draws."""
        ...

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        """``(n, m)``: of the table of an exhaustive plan, each row with each of some donors, 0 with itself."""
        ...

    def spread(self, v: Floats) -> Floats:
        """For each of the lenders, the sum of ``v[i]`` over its uses by rows i."""
        ...

    def unit_values(self, row_values: Floats) -> Floats:
        """``(..., units)``: the means of the rows of each unit, from ``(..., n)``."""
        ...

    def influence(self, terms: Terms) -> Floats:
        """``(units,)``: how far each unit moves the estimate."""
        ...

    def variance(self, terms: Terms) -> Variance:
        """Of the estimate over new data and new draws."""
        ...

    def fixed_data_error(self, terms: Terms) -> float:
        """Standard error over the draws alone (nan where one draw says nothing about its spread)."""
        ...

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        """The same of each row's own mean, from its sum and sum of squares over the draws."""
        ...


def stretches(plan: Plan) -> list[tuple[int, int]]:
    """The ranges of columns that a tile does not leave: those of one ordering."""
    return list(pairwise(sorted({0, plan.columns, *plan.cuts()})))


def tiles(plan: Plan, shape: tuple[int, int], part: Tile | None = None) -> Iterator[Tile]:
    """The tiles of a plan's table, or of a part of it, strip by strip.

    Rectangular plans are cut in both directions. Other plans are cut between draws only: the uses of a donor are
    spread over all rows, and metrics read whole columns.
    """
    b, d = shape if plan.rectangular else (plan.n, shape[1])
    rows, columns = Tile(range(plan.n), range(plan.columns)) if part is None else part
    for top in range(rows.start, rows.stop, b):
        strip = range(top, min(top + b, rows.stop))
        for start, stop in stretches(plan):
            last = min(stop, columns.stop)
            for left in range(max(start, columns.start), last, d):
                yield Tile(strip, range(left, min(left + d, last)))


def is_plan(x: object) -> TypeGuard[Plan]:
    """Whether it says which row lends to which."""
    return callable(getattr(x, "donors", None)) and callable(getattr(x, "variance", None))


def checked(plan: Plan, n: int, name: str) -> Plan:
    """A plan of a user's own: of n rows, with donors that are rows. Looks at one draw after the other."""
    what = f"{name}={type(plan).__name__}"
    if plan.n != n or plan.draws < 1:
        raise ValueError(f"{what} has n={plan.n} and draws={plan.draws}, X has {n} rows: they need at least one draw")
    if plan.rectangular or not plan.lends:
        raise ValueError(f"{what} has no draws of donors: use model_reliance(pairs='all'), or derive from plans.Drawn")
    for k in range(plan.draws):
        donors = np.asarray(plan.donors(range(n), range(k, k + 1)))
        if donors.shape != (n, 1) or donors.dtype.kind not in "iu":
            raise ValueError(
                f"{what} gives donors {donors.shape} of {donors.dtype} for {n} rows, draw {k}: give row numbers (n, 1)"
            )
        if donors.min() < 0 or donors.max() >= n:
            raise ValueError(f"{what} names donors {donors.min()} to {donors.max()} in draw {k}: rows are 0 to {n - 1}")
    return plan
