"""Permutations by ranks: every row borrows once from each stretch of the donors' sorted order.

Donors are sorted by the feature itself, so what a row sees in K draws is spread evenly over the feature's values, and
most of the noise of random permutations is gone. Each draw is still a uniform random permutation of the donors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reliance._core import streams
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.plans import variances
from reliance.plans.bases import Drawn
from reliance.plans.orderings import Orders
from reliance.plans.protocol import Floats, Terms, Tile, Users, Variance
from reliance.plans.variances import RankedEffects
from reliance.plans.windows import Windows

# Windows of a plan whose number of draws is not known beforehand.
CYCLE = 8
_OF_A_FEATURE = "the donors of ranks are those of a feature: ask the plan's part(feature)"


class DonorOrders(Protocol):
    """The rows, sorted by a feature: see `orderings.Orders`."""

    def __call__(self, feature: Feature) -> Indices: ...
    def nbytes(self, features: int) -> int:
        """What is kept of the orders of so many features, at most."""
        ...


@dataclass(frozen=True, eq=False)
class Ranked(Drawn):
    """Permutations by ranks. Its donors are *places* in a feature's order; ``part(feature)`` has those of the feature.

    K draws cut the order into K windows, and a row borrows once from each of them; if n is no multiple of K, some rows
    meet one window twice and miss another. ``cycles=True`` is for a plan that may grow, in which the first K of 2K
    draws are the K draws: 8 windows, and draws in cycles of 8, each of which takes the other half of a stretch that a
    row has had a donor from. There, multiples of 8 are best.

    One draw is one random permutation; one and two draws have the rough bound of few draws for a variance. More windows
    than rows are windows of one donor or none. Equal values stand in random order, so a constant column is permuted at
    random, and a column of few values nearly evenly.

    Attributes
    ----------
    n, draws : int
    key : int
        Of the random numbers.
    orders : DonorOrders
        Gives the order of the donors of a feature.
    cycles : bool
    """

    n: int
    draws: int
    key: int
    orders: DonorOrders
    cycles: bool = False

    @property
    def label(self) -> str:
        return f"ranks, {self.draws} per row"

    @property
    def scale(self) -> float:
        """A row is its own donor in one of n pairs, with a change of 0, which the mean over other rows has not."""
        return self.n / (self.n - 1)

    @property
    def exhausted_at(self) -> float:
        return math.inf if self.cycles else self.n

    @cached_property
    def windows(self) -> Windows:
        return Windows(self.n, CYCLE if self.cycles else self.draws, self.key)

    @property
    def exchangeable(self) -> bool:
        """Spread evenly over the feature's values, draws vary less than the data would."""
        return self.draws == 1

    def sorted_by(self, values: Callable[[Feature], HostArray]) -> Ranked:
        return replace(self, orders=Orders(self.n, self.key, values))

    def held_bytes(self, features: int) -> int:
        return self.windows.nbytes + self.windows.kept_bytes(self.draws) + self.orders.nbytes(features)

    def donors(self, rows: range, columns: range) -> Indices:
        tables = self.windows.tables(self.draws)
        if tables is not None:
            return _of_tile(tables.places, rows, columns)
        return streams.as_indices(self._columns(columns, rows, self.windows.places, np.int64))

    def contrasts(self, tile: Tile) -> NDArray[np.int8] | None:
        if self.draws == 1 and not self.cycles:
            return None
        tables = self.windows.tables(self.draws)
        if tables is not None:
            return _of_tile(tables.signs, tile.rows, tile.columns)
        return np.asarray(self._columns(tile.columns, tile.rows, self.windows.row_signs, np.int8))

    def _columns(self, columns: range, rows: range, made: Callable[[int], HostArray], dtype: DTypeLike) -> HostArray:
        """Some rows of what is made draw by draw; the last draw is kept, because its blocks come one after another."""
        found = np.empty((len(rows), len(columns)), dtype=dtype)
        for place, k in enumerate(columns):
            last: tuple[int, HostArray] | None = self.__dict__.get(made.__name__)
            if last is None or last[0] != k:
                last = (k, made(k))
                self.__dict__[made.__name__] = last
            found[:, place] = last[1][rows.start : rows.stop]
        return found

    def users(self, columns: range) -> Users:
        tables, d = self.windows.tables(self.draws), len(columns)
        if tables is not None:
            user = _of_tile(tables.users, range(self.n), columns)
        else:
            user = np.stack([self.windows.users(k) for k in columns], axis=1)
        return Users((user * d + np.arange(d)).reshape(-1), None)

    def part(self, feature: Feature) -> OfFeature:
        return OfFeature(self, self.orders(feature))

    def spread(self, v: Floats) -> Floats:
        raise TypeError(_OF_A_FEATURE)

    def influence(self, terms: Terms) -> Floats:
        raise TypeError(_OF_A_FEATURE)

    def variance(self, terms: Terms) -> Variance:
        raise TypeError(_OF_A_FEATURE)

    def fixed_data_error(self, terms: Terms) -> float:
        raise TypeError(_OF_A_FEATURE)


Entry = TypeVar("Entry", bound=np.generic)


def _of_tile(table: NDArray[Entry], rows: range, columns: range) -> NDArray[Entry]:
    """``(b, d)``, from a table of all draws and rows, (K, n)."""
    return np.ascontiguousarray(table[columns.start : columns.stop, rows.start : rows.stop].T)


@dataclass(frozen=True, eq=False)
class OfFeature(Drawn):
    """`Ranked` for one feature: its donors are row numbers. ``order[place]`` is the row at a place."""

    plan: Ranked
    order: Indices

    @property
    def n(self) -> int:
        return self.plan.n

    @property
    def draws(self) -> int:
        return self.plan.draws

    @property
    def label(self) -> str:
        return self.plan.label

    @property
    def scale(self) -> float:
        return self.plan.scale

    @property
    def exhausted_at(self) -> float:
        return self.plan.exhausted_at

    @property
    def ordering(self) -> Indices:
        return self.order

    @property
    def exchangeable(self) -> bool:
        return self.plan.exchangeable

    def contrasts(self, tile: Tile) -> NDArray[np.int8] | None:
        return self.plan.contrasts(tile)

    def held_bytes(self, features: int) -> int:
        return self.plan.held_bytes(features)

    def donors(self, rows: range, columns: range) -> Indices:
        return self.order[self.plan.donors(rows, columns)]

    def users(self, columns: range) -> Users:
        by_place = self.plan.users(columns)
        return Users(by_place.flat.reshape(self.n, -1)[np.argsort(self.order)].reshape(-1), None)

    def spread(self, v: Floats) -> Floats:
        if np.all(v == v[0]):  # each draw uses each donor once
            return np.full(self.n, self.draws * v[0])
        return self._by_row(self.plan.windows.spread(v, self.draws))

    def _by_row(self, by_place: Floats) -> Floats:
        found = np.empty(self.n)
        found[self.order] = by_place
        return found

    @property
    def _is_plain(self) -> bool:
        """Whether the draws are too few to tell donors from noise, or all pairs."""
        return self.draws < 3 or (self.draws >= self.n and not self.plan.cycles)

    def influence(self, terms: Terms) -> Floats:
        return terms.rows + (terms.donors if self._is_plain else self._effects(terms).donors)

    def variance(self, terms: Terms) -> Variance:
        if self.draws < 3:
            return variances.few_draws_variance(terms.rows, terms.donors, terms.total, self.draws)
        monte_carlo = np.asarray(self._monte_carlo(terms))
        if self._is_plain:
            return variances.pairs_variance(terms.rows, terms.donors)._replace(monte_carlo=monte_carlo / self.n)
        return variances.ranked_variance(terms.rows, self._effects(terms), monte_carlo, self.draws)

    def fixed_data_error(self, terms: Terms) -> float:
        return math.sqrt(self._monte_carlo(terms) / self.n) if self.draws > 1 else math.nan

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        """As if a row's draws were independent, which is more than the truth: they are spread over the windows."""
        return variances.row_errors(row_sum, row_squares, self.draws, float(self.draws))

    def _effects(self, terms: Terms) -> RankedEffects:
        """Kept for the terms of the last question, as is the Monte-Carlo part: several questions need them."""
        last: tuple[Terms, RankedEffects] | None = self.__dict__.get("_last")
        if last is None or last[0] is not terms:
            windows = self.plan.windows
            freed = terms.donors[self.order] - windows.spread(terms.rows, self.draws) / self.draws
            between = windows.means(freed)
            found = variances.ranked_effects(
                terms.rows,
                self._by_row(between),
                self._by_row(freed - between),
                terms.total,
                self.draws,
                int(np.count_nonzero(windows.sizes)),
            )
            last = (terms, found)
            self.__dict__["_last"] = last
        return last[1]

    def _monte_carlo(self, terms: Terms) -> float:
        """The variance over the draws alone, times n."""
        last: tuple[Terms, float] | None = self.__dict__.get("_last_noise")
        if last is None or last[0] is not terms:
            last = (terms, self._made_monte_carlo(terms))
            self.__dict__["_last_noise"] = last
        return last[1]

    def _made_monte_carlo(self, terms: Terms) -> float:
        if self.draws % self.n == 0 and not self.plan.cycles:
            return 0.0
        if terms.contrasts is None or terms.changes is None:
            return math.nan
        windows, effects = self.plan.windows, self._effects(terms)
        sums = windows.sign_sums(self.draws)
        signs = sums / self.draws
        # The mean of a row is not in its contrast, nor are the effects of its donors.
        left = terms.contrasts - sums * terms.changes - windows.contrasted(effects.kept[self.order], self.draws)
        # A row all of whose signs are the same, one of few rows in small tables, says nothing.
        size = 1.0 - signs**2
        told = size > 0.0
        contrasts = np.where(told, left / np.sqrt(np.where(told, size, 1.0)), 0.0)
        broken, uneven = self.draws % windows.count, windows.uneven(self.draws)
        return float(variances.ranked_monte_carlo(contrasts, effects, self.draws, broken, uneven))
