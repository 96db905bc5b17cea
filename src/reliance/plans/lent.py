"""Donors of the same group, or other rows than those that are measured; and values that nobody lends.

Rows and lenders fall into groups, of which there may be one only, and a row borrows from lenders of its group: these
stand in a random order, the group's rows are spread over it, and draw k moves all of them on by the k-th of a random
list of steps. So a row meets every lender once before it meets one of them twice, and in each draw all lenders are used
equally often, or nearly so. Raising the number of draws keeps the earlier ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.data.clusters import ANYWHERE
from reliance.plans import variances
from reliance.plans.bases import Drawn, drawn
from reliance.plans.protocol import Floats, Terms, Users, Variance


@dataclass(frozen=True, eq=False)
class Groups:
    """Who may lend to whom: ``of_row (n,)`` and ``of_lender (m,)`` are numbers of groups, from 0."""

    of_row: Indices
    of_lender: Indices

    @property
    def count(self) -> int:
        return int(self.of_lender.max()) + 1

    @cached_property
    def sizes(self) -> Indices:
        """How many lenders each group has."""
        return np.bincount(self.of_lender, minlength=self.count)

    @cached_property
    def starts(self) -> Indices:
        """Where each group begins, if lenders stand group by group."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.sizes)[:-1]])

    def ordered(self, key: int) -> Indices:
        """``(m,)``: the lenders group by group, in random order within each."""
        shuffled = streams.lent_order(key, len(self.of_lender), 0)
        return shuffled[np.argsort(self.of_lender[shuffled], kind="stable")]

    def means(self, r: Floats) -> Floats:
        """``(n,)``: the mean of each row's group."""
        return np.asarray((np.bincount(self.of_row, r) / np.maximum(np.bincount(self.of_row), 1))[self.of_row])


def _steps(key: int, groups: Groups, draws: int, least: int) -> Indices:
    """``(groups, K)``: by how many places each draw moves on, all numbers from ``least`` on before any comes again."""
    found = np.zeros((groups.count, draws), dtype=np.int64)
    for group, size in enumerate(groups.sizes):
        if size > least:
            order = streams.lent_order(key, int(size) - least, 1 + group) + least
            found[group] = np.resize(order, draws)
    return found


@dataclass(frozen=True, eq=False)
class _ByGroup(Drawn):
    """Lenders of the row's own group. ``independent``: each row of each draw borrows from any of them, by chance."""

    n: int
    draws: int
    key: int
    groups: Groups
    independent: bool = False

    @cached_property
    def _order(self) -> Indices:
        return self.groups.ordered(self.key)

    @cached_property
    def _places(self) -> Indices:
        """``(n,)``: where each row stands among the lenders of its group."""
        raise NotImplementedError

    @cached_property
    def _moves(self) -> Indices:
        """``(groups, K)``: by how many places each draw moves on."""
        raise NotImplementedError

    def donors(self, rows: range, columns: range) -> Indices:
        group = self.groups.of_row[rows.start : rows.stop]
        sizes, starts = self.groups.sizes[group][:, None], self.groups.starts[group][:, None]
        if self.independent:
            u = [streams.uniforms(self.key, rows.start, rows.stop, k, 1)[:, 0] for k in columns]
            places = (np.stack(u, axis=1) * sizes).astype(np.int64)
        else:
            moved = self._places[rows.start : rows.stop, None] + self._moves[group][:, columns.start : columns.stop]
            places = moved % sizes
        found: Indices = self._order[starts + places]
        return found


@dataclass(frozen=True, eq=False)
class Within(_ByGroup):
    """Rows of the same group lend each other their feature; independent draws may be the row itself.

    ``lend``: in the words of who asked for clusters as groups.
    """

    lend: str = ANYWHERE

    @property
    def label(self) -> str:
        donors = "within groups" if self.lend == ANYWHERE else f"donors of the {self.lend}"
        return f"{donors}, {self.draws} per row"

    @property
    def lending(self) -> str:
        return self.lend

    @property
    def exhausted_at(self) -> float:
        """Where groups differ in size, some rows have met all donors before others."""
        sizes = np.unique(self.groups.sizes)
        return math.inf if self.independent or len(sizes) > 1 or sizes[0] < 2 else float(sizes[0] - 1)

    def crosses(self, clusters: Indices) -> bool:
        of_group = np.empty(self.groups.count, dtype=np.int64)
        of_group[self.groups.of_row] = clusters
        return bool(np.any(of_group[self.groups.of_row] != clusters))

    @cached_property
    def _places(self) -> Indices:
        found = np.empty(self.n, dtype=np.int64)
        found[self._order] = np.arange(self.n) - self.groups.starts[self.groups.of_row[self._order]]
        return found

    @cached_property
    def _moves(self) -> Indices:
        return _steps(self.key, self.groups, self.draws, least=1)

    def influence(self, terms: Terms) -> Floats:
        return terms.rows + terms.donors - self.groups.means(terms.rows)

    def variance(self, terms: Terms) -> Variance:
        between = self.groups.means(terms.rows)
        return variances.strata_variance(self.influence(terms), terms.rows, between, terms.total, self.draws)


class Lent(_ByGroup):
    """Other rows lend to those that are measured."""

    @property
    def label(self) -> str:
        return f"{self.lenders} other rows, {self.draws} per row"

    @property
    def units(self) -> int:
        """The estimate rests on two samples: its error is known as well as the smaller one tells it."""
        return min(self.n, self.lenders)

    @property
    def lenders(self) -> int:
        return len(self.groups.of_lender)

    @property
    def among_rows(self) -> bool:
        return False

    @property
    def exchangeable(self) -> bool:
        return False

    @property
    def exhausted_at(self) -> float:
        return math.inf if self.independent else float(self.groups.sizes.max())

    @cached_property
    def _places(self) -> Indices:
        """Of each row among the lenders of its group, over which the group's rows are spread."""
        rows = streams.ordering(self.key, self.n, 0)
        found, of_row = np.empty(self.n, dtype=np.int64), self.groups.of_row
        by_group = rows[np.argsort(of_row[rows], kind="stable")]
        counts = np.bincount(of_row, minlength=self.groups.count)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)[:-1]])
        own = of_row[by_group]
        rank = np.arange(self.n) - starts[own]
        size = self.groups.sizes[own]
        # Fewer rows than lenders: at equal distances; more: round and round.
        found[by_group] = np.where(counts[own] < size, rank * size // np.maximum(counts[own], 1), rank % size)
        return found

    @cached_property
    def _moves(self) -> Indices:
        return _steps(self.key, self.groups, self.draws, least=0)

    def influence(self, terms: Terms) -> Floats:
        """``(n + m,)``: of rows and of lenders, in the units of a mean over all of them."""
        return (self.n + self.lenders) / self.n * np.concatenate([terms.rows, self._lent(terms)])

    def variance(self, terms: Terms) -> Variance:
        return variances.lent_variance(
            terms.rows,
            self._lent(terms),
            self.groups.means(terms.rows),
            terms.total,
            self.draws,
            lenders=self.lenders,
            groups=int(np.count_nonzero(self.groups.sizes)),
            left=self._left,
        )

    def _lent(self, terms: Terms) -> Floats:
        """c, less the means of the groups: what lenders of one group do differently."""
        means = np.zeros(self.groups.count)
        means[self.groups.of_row] = self.groups.means(terms.rows)
        return np.asarray(terms.donors - means[self.groups.of_lender] * self._uses / self.draws)

    @cached_property
    def _uses(self) -> Floats:
        return np.asarray(self.spread(np.ones(self.n)))

    @property
    def _left(self) -> float:
        """What is left of the noise of draws that are taken without replacement from one group of lenders."""
        if self.independent or len(self.groups.sizes) > 1:
            return 1.0
        beyond = self.draws % self.lenders
        return beyond * (1.0 - beyond / self.lenders) / self.draws

    def fixed_data_error(self, terms: Terms) -> float:
        return 0.0 if self._left == 0.0 else math.sqrt(self._left) * variances.independent_error(drawn(terms))

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        return variances.row_errors(row_sum, row_squares, self.draws, self.draws * self._left)


@dataclass(frozen=True, eq=False)
class Written(Drawn):
    """Every row takes values that are given: its own line of them, or the only one. Nothing is drawn."""

    n: int
    lines: int

    @property
    def draws(self) -> int:
        return 1

    @property
    def label(self) -> str:
        return "given values"

    @property
    def lends(self) -> bool:
        return False

    @property
    def among_rows(self) -> bool:
        return False

    @property
    def exchangeable(self) -> bool:
        return False

    @property
    def exhausted_at(self) -> float:
        return 1.0

    def donors(self, rows: range, columns: range) -> Indices:
        lines = np.arange(rows.start, rows.stop) if self.lines > 1 else np.zeros(len(rows), dtype=np.int64)
        return np.repeat(lines[:, None], len(columns), axis=1)

    def donors_of(self, rows: Indices, columns: range) -> Indices:
        return np.repeat((rows if self.lines > 1 else 0 * rows)[:, None], len(columns), axis=1)

    def users(self, columns: range) -> Users:
        raise TypeError("given values are lent by nobody")

    def spread(self, v: Floats) -> Floats:
        return np.zeros(self.n)

    def variance(self, terms: Terms) -> Variance:
        return variances.rows_variance(terms.rows, terms.total, 1)._replace(monte_carlo=np.zeros(()))

    def fixed_data_error(self, terms: Terms) -> float:
        return 0.0

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> NDArray[np.float64]:
        return np.zeros(len(row_sum))
