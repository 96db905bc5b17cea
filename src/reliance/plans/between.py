"""Donors of other clusters alone, and whole stretches of a series.

Rows of one cluster resemble each other, so a row of the same cluster is hardly another donor. Here a row borrows from
rows of other clusters, each of which is as likely as any other. With whole stretches all rows of a block borrow from
the same other block, each from its own place in it, so that what is borrowed keeps its local structure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import variances
from reliance.plans.bases import Drawn, drawn
from reliance.plans.lent import Groups
from reliance.plans.protocol import Floats, Terms, Variance

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class _Between(Drawn):
    """Draws between clusters. ``independent``: donors of each draw are chosen by chance, not spread over all."""

    n: int
    draws: int
    key: int
    lend: str
    independent: bool

    @property
    def lending(self) -> str:
        return self.lend

    @property
    def most(self) -> int | None:
        """How many draws are all donors of every row; None if rows have different numbers of them."""
        raise NotImplementedError

    @property
    def exhausted_at(self) -> float:
        return math.inf if self.independent or self.most is None else float(self.most)

    @cached_property
    def _left(self) -> float:
        """What is left of the noise of draws, which are made without replacement; on average over the rows."""
        raise NotImplementedError

    def variance(self, terms: Terms) -> Variance:
        return variances.resample_variance(terms.rows, terms.donors, terms.total, self.draws, self._left)

    def fixed_data_error(self, terms: Terms) -> float:
        return 0.0 if self._left == 0.0 else math.sqrt(self._left) * variances.independent_error(drawn(terms))

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        return variances.row_errors(row_sum, row_squares, self.draws, self.draws * self._left)


@dataclass(frozen=True, eq=False)
class OtherClusters(_Between):
    """Donors of other clusters: ``groups`` are the clusters of the rows, which are the lenders, too.

    The rows stand cluster by cluster, as on a circle, in random order within clusters. Those of a cluster of s rows are
    spread over the n - s places of the others and move on from draw to draw in steps of about the golden section of
    these, which leads to every place once before it leads to one again, and soon to all clusters. Where a cluster
    begins is drawn, so that every row of another cluster is as likely as any other in each draw.
    """

    groups: Groups

    @property
    def label(self) -> str:
        return f"donors of {self.lend}, {self.draws} per row"

    @property
    def most(self) -> int | None:
        others = np.unique(self._others)
        return int(others[0]) if len(others) == 1 else None

    @cached_property
    def _others(self) -> Indices:
        """``(G,)``: how many rows are of other clusters."""
        return self.n - self.groups.sizes

    @cached_property
    def _left(self) -> float:
        if self.independent:
            return 1.0
        left = [_left_of(self.draws, int(others)) for others in self._others]
        return float(np.sum(left * self.groups.sizes) / self.n)

    @cached_property
    def _order(self) -> Indices:
        return self.groups.ordered(self.key)

    @cached_property
    def _first(self) -> Indices:
        """``(n,)``: where each row begins among the rows of other clusters."""
        of_row, starts, sizes = self.groups.of_row, self.groups.starts, self.groups.sizes
        rank = np.empty(self.n, dtype=np.int64)
        rank[self._order] = np.arange(self.n) - starts[of_row[self._order]]
        turns = streams.turns(self.key, self.groups.count, 0)
        return rank * self._others[of_row] // sizes[of_row] + (turns * self._others).astype(np.int64)[of_row]

    @cached_property
    def _step(self) -> Indices:
        """``(G,)``: near the golden section, and without a divisor in common with the number of other rows."""
        return np.asarray([_coprime_step(int(others)) for others in self._others], dtype=np.int64)

    def donors(self, rows: range, columns: range) -> Indices:
        group = self.groups.of_row[rows.start : rows.stop]
        others = self._others[group][:, None]
        if self.independent:
            u = [streams.uniforms(self.key, rows.start, rows.stop, k, 1)[:, 0] for k in columns]
            moved = (np.stack(u, axis=1) * others).astype(np.int64)
        else:
            draws = np.arange(columns.start, columns.stop) % others  # the product stays below 2^63
            moved = (self._first[rows.start : rows.stop, None] + draws * self._step[group][:, None]) % others
        behind = (self.groups.starts + self.groups.sizes)[group][:, None]
        found: Indices = self._order[(behind + moved) % self.n]
        return found


def _coprime_step(count: int) -> int:
    """A step by which a circle of so many places is walked round once, whatever the place where it begins."""
    step = max(1, round(_GOLDEN * count))
    while math.gcd(step, count) != 1:
        step += 1
    return step


def _left_of(draws: int, most: int) -> float:
    """What is left of the noise of so many draws without replacement, of ``most``: all of them are no draws at all."""
    beyond = draws % most
    return beyond * (1.0 - beyond / most) / draws


@dataclass(frozen=True, eq=False)
class Stretches(_Between):
    """Whole stretches: in each draw a block borrows from another block, every row from the row at its own place.

    Attributes
    ----------
    block : integer array (n,)
        The block of each row; all have as many rows, but for the last one, which may be shorter and then lends nothing.
    offset : integer array (n,)
        The place of each row within its block.
    """

    block: Indices
    offset: Indices

    @property
    def label(self) -> str:
        return f"whole stretches of other blocks, {self.draws} per row"

    @cached_property
    def _table(self) -> Indices:
        """``(blocks, length)``: the row at each place of each whole block."""
        sizes = np.bincount(self.block)
        length = int(sizes.max())
        whole = np.flatnonzero(sizes == length)
        found = np.empty((len(sizes), length), dtype=np.int64)
        found[self.block, self.offset] = np.arange(self.n)
        return found[whole]

    @property
    def most(self) -> int | None:
        return len(self._table) - 1

    @cached_property
    def _left(self) -> float:
        return 1.0 if self.independent else _left_of(self.draws, len(self._table) - 1)

    @cached_property
    def _moves(self) -> tuple[Indices, Indices]:
        """Shifts between whole blocks, and which of them the shorter one at the end borrows from, draw by draw."""
        whole = len(self._table)
        own, last = streams.shifts(self.key, whole, 0), streams.lent_order(self.key, whole, 0)
        return np.resize(own, self.draws), np.resize(last, self.draws)

    def _lenders(self, k: int) -> Indices:
        """``(blocks,)``: the block that each one borrows from in one draw."""
        whole, blocks = len(self._table), int(self.block.max()) + 1
        order = streams.ordering(self.key, whole, 0)
        if self.independent:
            u = streams.uniforms(self.key, 0, blocks, k, 1)[:, 0]
            steps = (u[:whole] * (whole - 1)).astype(np.int64) + 1
            last = (u[whole:] * whole).astype(np.int64)
        else:
            steps, last = np.full(whole, self._moves[0][k]), np.full(blocks - whole, self._moves[1][k])
        found = np.empty(whole, dtype=np.int64)
        found[order] = order[(np.arange(whole) + steps) % whole]
        return np.concatenate([found, last])

    def donors(self, rows: range, columns: range) -> Indices:
        block, offset = self.block[rows.start : rows.stop], self.offset[rows.start : rows.stop]
        found = [self._table[self._lenders(k)[block], offset] for k in columns]
        return np.stack(found, axis=1)
