"""What the engine and the inference ask of a plan, and how its table of losses is cut into tiles.

A plan is an immutable recipe. It makes indices on the host for any range of rows and draws and never holds them whole,
so it needs O(n) memory for any number of draws. Rows keep their natural order in every plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices

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


class Plan(Protocol):
    """What the engine and the inference need to know of a plan."""

    @property
    def kind(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def draws(self) -> int:
        """How many donors each row borrows from."""
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

    def cuts(self) -> tuple[int, ...]:
        """Columns at which a tile must end."""
        ...

    def donors(self, rows: range, columns: range) -> Indices | Floats:
        """The donors of a tile: ``(b, d)``, or ``(d,)`` if the plan is rectangular.

        Of a plan that does not lend: numbers in [0, 1), ``(b, d, count)``, which the store makes values of.
        """
        ...

    def users(self, columns: range) -> Users:
        """The uses of each donor within some draws of all rows."""
        ...

    def spread(self, v: Floats) -> Floats:
        """For each donor, the sum of ``v[i]`` over its uses by rows i."""
        ...


class Rectangle(Plan, Protocol):
    """A plan whose tiles are rows x donors: the columns of a tile are the same donors for each of its rows."""

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        """False where a row would be its own donor; None where there is no such cell."""
        ...

    def counts(self, columns: range) -> Floats | None:
        """How many donors each column stands for; None: one each."""
        ...

    def column_of(self, donors: Indices) -> Indices:
        """The column that each donor is in."""
        ...

    def donor_sums(self, column_sums: Floats) -> Floats:
        """``(n,)``, from the sums of the columns."""
        ...


def stretches(plan: Plan) -> list[tuple[int, int]]:
    """The ranges of columns that a tile does not leave: those of one ordering."""
    return list(pairwise(sorted({0, plan.columns, *plan.cuts()})))


def tiles(plan: Plan, shape: tuple[int, int]) -> Iterator[Tile]:
    """The tiles of a plan, strip by strip.

    Rectangular plans are cut in both directions. Other plans are cut between draws only: the uses of a donor are
    spread over all rows, and metrics read whole columns.
    """
    b, d = shape if plan.rectangular else (plan.n, shape[1])
    for top in range(0, plan.n, b):
        rows = range(top, min(top + b, plan.n))
        for start, stop in stretches(plan):
            for left in range(start, stop, d):
                yield Tile(rows, range(left, min(left + d, stop)))
