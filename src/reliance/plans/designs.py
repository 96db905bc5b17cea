"""Replacement plans: which row lends its feature to which row, in which draw.

A plan is an immutable recipe. It makes indices on the host for any range of rows and draws and never holds them whole,
so it needs O(n) memory for any number of draws. Rows keep their natural order in every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.streams import Indices

Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class Pairs:
    """All n(n-1) pairs, as rows x donors rectangles with the diagonal masked: donor sums are axis sums.

    ``factor (n,)``: how much each donor counts in the sums of a row, if not once.
    """

    n: int
    kind: str = "pairs"
    rectangular: bool = True
    lends: bool = True
    factor: Floats | None = field(default=None, compare=False)

    @property
    def draws(self) -> int:
        return self.n - 1

    @property
    def columns(self) -> int:
        return self.n

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        return np.arange(columns.start, columns.stop, dtype=np.int64)

    def users(self, columns: range) -> Users:
        raise TypeError("a rectangular plan sums donors along an axis")

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        if tile.rows.stop <= tile.columns.start or tile.columns.stop <= tile.rows.start:
            return None
        rows, donors = np.arange(tile.rows.start, tile.rows.stop), np.arange(tile.columns.start, tile.columns.stop)
        return np.not_equal(rows[:, None], donors)

    def counts(self, columns: range) -> Floats | None:
        return None if self.factor is None else self.factor[columns.start : columns.stop]

    def column_of(self, donors: Indices) -> Indices:
        return donors

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums

    def spread(self, v: Floats) -> Floats:
        return np.asarray(v.sum() - v)


@dataclass(frozen=True, eq=False)
class Classes:
    """All n(n-1) pairs again, for donors that fall into m classes which the model cannot tell apart.

    One donor speaks for its class, so a feature costs n m evaluations. A row with the value of its own class is the row
    itself, D = 0: those cells are masked, and with them every pair of a row with itself.

    Attributes
    ----------
    label : integer array (n,)
        The class of each row, 0..m-1.
    speaker : integer array (m,)
        A row of each class.
    factor : array (n,) or None
        How much each donor counts in the sums of a row, if not once.
    """

    label: Indices
    speaker: Indices
    kind: str = "pairs"
    rectangular: bool = True
    lends: bool = True
    factor: Floats | None = None

    @property
    def n(self) -> int:
        return len(self.label)

    @property
    def draws(self) -> int:
        return self.n - 1

    @property
    def columns(self) -> int:
        return len(self.speaker)

    @cached_property
    def size(self) -> Floats:
        """How many rows each class has, or how much they count together."""
        return np.bincount(self.label, self.factor, minlength=self.columns).astype(np.float64)

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        return self.speaker[columns.start : columns.stop]

    def users(self, columns: range) -> Users:
        raise TypeError("a rectangular plan sums donors along an axis")

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        own = self.label[tile.rows.start : tile.rows.stop, None]
        return np.not_equal(own, np.arange(tile.columns.start, tile.columns.stop))

    def counts(self, columns: range) -> Floats | None:
        return self.size[columns.start : columns.stop]

    def column_of(self, donors: Indices) -> Indices:
        return self.label[donors]

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums[self.label]

    def spread(self, v: Floats) -> Floats:
        return np.asarray(v.sum() - v)


class _Cycle(NamedTuple):
    """One ordering of the rows: ``order[position]`` is a row, ``position[row]`` its place, ``shifts`` its draws."""

    order: Indices
    position: Indices
    shifts: Indices


@dataclass(frozen=True)
class Shifts:
    """The circulant design: in draw k the row at position q of one random ordering borrows from (q + s_k) mod n.

    Each draw is a derangement and uses every donor once. The n-1 shifts of an ordering are all the pairs; draws beyond
    them start a new ordering. Without a key the ordering is the natural one; without a key, or with ``first``, the
    shifts are first, first + 1, ...
    """

    n: int
    draws: int
    key: int | None = None
    first: int | None = None
    kind: str = "shifts"
    rectangular: bool = False
    lends: bool = True

    @property
    def columns(self) -> int:
        return self.draws

    def cuts(self) -> tuple[int, ...]:
        return tuple(range(self.n - 1, self.draws, self.n - 1))

    @property
    def order(self) -> Indices:
        """The row at each circulant position (of the first ordering)."""
        return self._cycle(0).order

    @property
    def shifts(self) -> Indices:
        """The shifts of the draws of the first ordering."""
        return self._cycle(0).shifts[: self.draws]

    def _cycle(self, number: int) -> _Cycle:
        """One ordering; the last one asked for is kept, because tiles come ordering by ordering."""
        last: tuple[int, _Cycle] | None = self.__dict__.get("_last")
        if last is None or last[0] != number:
            last = (number, self._made_cycle(number))
            self.__dict__["_last"] = last
        return last[1]

    def _made_cycle(self, number: int) -> _Cycle:
        rows = np.arange(self.n, dtype=np.int64)
        order = rows if self.key is None else streams.ordering(self.key, self.n, number)
        if self.key is None or self.first is not None:
            return _Cycle(order, np.argsort(order), rows[self.first or 1 :])
        return _Cycle(order, np.argsort(order), streams.shifts(self.key, self.n, number))

    def _locate(self, columns: range) -> tuple[_Cycle, Indices]:
        """The ordering and the shifts of some draws, which lie in one cycle (see `cuts`)."""
        number, start = divmod(columns.start, self.n - 1)
        cycle = self._cycle(number)
        return cycle, cycle.shifts[start : start + len(columns)]

    def donors(self, rows: range, columns: range) -> Indices:
        return self.donors_of(np.arange(rows.start, rows.stop), columns)

    def donors_of(self, rows: Indices, columns: range) -> Indices:
        """The donors (b, d) of any rows."""
        cycle, shifts = self._locate(columns)
        return streams.as_indices(cycle.order[(cycle.position[rows, None] + shifts) % self.n])

    def users(self, columns: range) -> Users:
        cycle, shifts = self._locate(columns)
        d = len(columns)
        user = cycle.order[(cycle.position[:, None] - shifts) % self.n]
        return Users((user * d + np.arange(d)).reshape(-1), None)

    def spread(self, v: Floats) -> Floats:
        total = np.zeros(self.n)
        for number, start in enumerate(range(0, self.draws, self.n - 1)):
            cycle = self._cycle(number)
            shifts = cycle.shifts[: self.draws - start]
            if len(shifts) == self.n - 1:  # a whole cycle: everybody else borrows from each donor once
                total += v.sum() - v
                continue
            placed = v[cycle.order]
            lent = sum((np.roll(placed, int(s)) for s in shifts), start=np.zeros(self.n))
            total[cycle.order] += lent
        return total


def every_shift(n: int) -> Shifts:
    """All pairs again, one whole shift of the data at a time: for metrics, which need all rows of a draw."""
    return Shifts(n, n - 1, kind="pairs")


def halves(n: int, key: int | None) -> Shifts:
    """Fisher's split: the rows at places q and q + n/2 of one random ordering lend each other their feature (n even).

    Without the ordering, rows that were sorted by time or by class would borrow from unlike rows only.
    """
    return Shifts(n, 1, key, first=n // 2, kind="halves")


def halves_order(n: int, key: int) -> Indices:
    """The ordering whose places q and q + n/2 are partners."""
    return halves(n, key).order


class Drawn:
    """What plans share whose donors are any rows, used unequally: subclasses say `donors`."""

    n: int
    draws: int

    @property
    def columns(self) -> int:
        return self.draws

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        raise NotImplementedError

    def users(self, columns: range) -> Users:
        flat = self.donors(range(self.n), columns).reshape(-1)
        uses = np.bincount(flat, minlength=self.n)
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(uses, dtype=np.int64)])
        return Users(np.argsort(flat, kind="stable"), bounds)

    def spread(self, v: Floats) -> Floats:
        total = np.zeros(self.n)
        for k in range(self.draws):
            donors = self.donors(range(self.n), range(k, k + 1))[:, 0]
            total += np.bincount(donors, weights=v, minlength=self.n)
        return total


@dataclass(frozen=True)
class Resample(Drawn):
    """Merrick's draws: every row of every draw borrows from an independent, uniform row, itself included."""

    n: int
    draws: int
    key: int
    kind: str = "resample"
    rectangular: bool = False
    lends: bool = True

    def donors(self, rows: range, columns: range) -> Indices:
        drawn = [streams.iid_donors(self.key, self.n, rows.start, rows.stop, k) for k in columns]
        return np.stack(drawn, axis=1)


@dataclass(frozen=True)
class Permutations:
    """Explicit permutations: ``permutation(k)`` is the ``(n,)`` array of the donors of draw k."""

    n: int
    draws: int
    permutation: Callable[[int], Indices]
    kind: str = "permutations"
    rectangular: bool = False
    lends: bool = True

    @property
    def columns(self) -> int:
        return self.draws

    def cuts(self) -> tuple[int, ...]:
        return ()

    def _checked(self, k: int) -> Indices:
        donors = streams.as_indices(self.permutation(k))
        if donors.shape != (self.n,) or not np.array_equal(np.sort(donors), np.arange(self.n)):
            raise ValueError(f"permutation {k} is not a permutation of range({self.n}): give each index exactly once")
        return donors

    def donors(self, rows: range, columns: range) -> Indices:
        return np.stack([self._checked(k)[rows.start : rows.stop] for k in columns], axis=1)

    def users(self, columns: range) -> Users:
        user = np.stack([np.argsort(self._checked(k)) for k in columns], axis=1)
        d = len(columns)
        return Users((user * d + np.arange(d)).reshape(-1), None)

    def spread(self, v: Floats) -> Floats:
        total = np.zeros(self.n)
        for k in range(self.draws):
            total[self._checked(k)] += v
        return total


class Tile(NamedTuple):
    """A rectangle of the table of losses: rows x columns (draws, or donors of a rectangular plan)."""

    rows: range
    columns: range


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
