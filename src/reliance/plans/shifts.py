"""The circulant design: every draw shifts one random ordering of the rows. Halves are one such shift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import variances
from reliance.plans.bases import Drawn, EveryPair, drawn
from reliance.plans.protocol import Floats, Terms, Users, Variance


class _Cycle(NamedTuple):
    """One ordering of the rows: ``order[position]`` is a row, ``position[row]`` its place, ``shifts`` its draws."""

    order: Indices
    position: Indices
    shifts: Indices


@dataclass(frozen=True)
class Shifts(Drawn):
    """The circulant design: in draw k the row at position q of one random ordering borrows from (q + s_k) mod n.

    Each draw is a derangement and uses every donor once. The n-1 shifts of an ordering are all the pairs; draws beyond
    them start a new ordering. Without a key the ordering is the natural one; without a key, or with ``first``, the
    shifts are first, first + 1, ...
    """

    n: int
    draws: int
    key: int | None = None
    first: int | None = None

    @property
    def exhausted_at(self) -> float:
        return self.n - 1

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

    def variance(self, terms: Terms) -> Variance:
        r, c, total = terms.rows, terms.donors, terms.total
        if self.draws >= self.n - 1:
            found = variances.pairs_variance(r, c)
            # Beyond one whole ordering the draws' own spread says what they add.
            if terms.draws is None:
                return found
            return found._replace(monte_carlo=np.asarray(self.fixed_data_error(terms) ** 2))
        if self.draws < 3:
            return variances.few_draws_variance(r, c, total, self.draws)
        indicator, order = np.zeros(self.n), self.order
        indicator[self.shifts] = 1.0
        return variances.shifts_variance(r[order], c[order], total, indicator, self.draws)

    def fixed_data_error(self, terms: Terms) -> float:
        k, share = self.draws, variances.shifts_share(self.draws, self.n)
        if share == 0.0:
            return 0.0
        return float(np.sqrt(share * np.var(drawn(terms), ddof=1)) / k) if k > 1 else math.nan

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        return variances.row_errors(row_sum, row_squares, self.draws, variances.shifts_share(self.draws, self.n))


@dataclass(frozen=True)
class EveryShift(EveryPair, Shifts):
    """All pairs again, one whole shift of the data at a time: for metrics, which need all rows of a draw."""

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        """A row's donor stands at its distance from it."""
        rows = np.arange(self.n)[:, None]
        with_own = np.concatenate([np.zeros((self.n, 1)), table], axis=1)
        return np.asarray(with_own[rows, (donors - rows) % self.n])


def every_shift(n: int) -> EveryShift:
    """All pairs, a whole shift at a time, the rows in their natural order."""
    return EveryShift(n, n - 1)


@dataclass(frozen=True)
class Halves(Shifts):
    """Fisher's split: the rows at places q and q + n/2 of one random ordering lend each other their feature (n even).

    Without the ordering, rows that were sorted by time or by class would borrow from unlike rows only.
    """

    @property
    def units(self) -> int:
        return self.n // 2

    def unit_values(self, row_values: Floats) -> Floats:
        return np.asarray(variances.pair_means(row_values[..., self.order]))

    def influence(self, terms: Terms) -> Floats:
        return self.unit_values(terms.rows)

    def variance(self, terms: Terms) -> Variance:
        return variances.halves_variance(terms.rows[self.order])

    def fixed_data_error(self, terms: Terms) -> float:
        return math.nan


def halves(n: int, key: int | None) -> Halves:
    """`Halves` of one random ordering; of the natural one without a key."""
    return Halves(n, 1, key, first=n // 2)
