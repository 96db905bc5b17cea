"""What plans share: those whose columns are draws, and those whose columns are donors, the same ones for each row."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.clusters import ANYWHERE
from reliance.data.features import Feature
from reliance.plans import variances
from reliance.plans.protocol import Floats, Plan, Terms, Tile, Users, Variance


def drawn(terms: Terms) -> Floats:
    """The values of the draws, of a plan that has some."""
    return np.zeros(0) if terms.draws is None else terms.draws


class Drawn:
    """A plan of independent draws whose donors are any rows. A class of your own says n, draws, donors and variance.

    Everything else of `Plan` follows from these: with donors used unequally, rows that are the units, and draws that
    are independent of each other given the data.
    """

    @property
    def label(self: Plan) -> str:
        return f"{type(self).__name__.lower()}, {self.draws} per row"

    @property
    def units(self: Plan) -> int:
        return self.n

    @property
    def exhaustive(self) -> bool:
        return False

    @property
    def exhausted_at(self) -> float:
        return math.inf

    @property
    def columns(self: Plan) -> int:
        return self.draws

    @property
    def rectangular(self) -> bool:
        return False

    @property
    def lends(self) -> bool:
        return True

    @property
    def lenders(self: Plan) -> int:
        return self.n

    @property
    def among_rows(self) -> bool:
        return True

    @property
    def lending(self) -> str:
        return ANYWHERE

    def crosses(self, clusters: Indices) -> bool:
        return True

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def ordering(self) -> Indices | None:
        return None

    def part(self: Plan, feature: Feature) -> Plan:
        return self

    @property
    def exchangeable(self) -> bool:
        return True

    def sorted_by(self: Plan, values: Callable[[Feature], HostArray]) -> Plan:
        return self

    def held_bytes(self, features: int) -> int:
        return 0

    def cuts(self) -> tuple[int, ...]:
        return ()

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        return None

    def counts(self, columns: range) -> Floats | None:
        return None

    def contrasts(self, tile: Tile) -> NDArray[np.int8] | None:
        return None

    def users(self: Plan, columns: range) -> Users:
        flat = np.asarray(self.donors(range(self.n), columns)).reshape(-1)
        uses = np.bincount(flat, minlength=self.lenders)
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(uses, dtype=np.int64)])
        return Users(np.argsort(flat, kind="stable"), bounds)

    def donors_of(self: Plan, rows: Indices, columns: range) -> Indices:
        parts = [np.asarray(self.donors(range(self.n), range(k, k + 1)))[rows, 0] for k in columns]
        return np.stack(parts, axis=1)

    def donor_sums(self, column_sums: Floats) -> Floats | None:
        return None

    def draw_sums(self, column_sums: Floats) -> Floats | None:
        return column_sums

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        raise TypeError(f"{type(self).__name__}: not every row borrows from every other one")

    def spread(self: Plan, v: Floats) -> Floats:
        total = np.zeros(self.lenders)
        for k in range(self.draws):
            donors = np.asarray(self.donors(range(self.n), range(k, k + 1)))[:, 0]
            total += np.bincount(donors, weights=v, minlength=self.lenders)
        return total

    def unit_values(self, row_values: Floats) -> Floats:
        return row_values

    def influence(self, terms: Terms) -> Floats:
        return terms.rows + terms.donors

    def variance(self, terms: Terms) -> Variance:
        """Not known."""
        return variances.unknown(terms.rows)

    def fixed_data_error(self, terms: Terms) -> float:
        return variances.independent_error(drawn(terms))

    def row_errors(self: Plan, row_sum: Floats, row_squares: Floats) -> Floats:
        return variances.row_errors(row_sum, row_squares, self.draws, float(self.draws))


class Rectangular(Drawn):
    """A plan whose columns are donors: their sums are those of the columns, and nothing is drawn."""

    @property
    def rectangular(self) -> bool:
        return True

    def users(self, columns: range) -> Users:
        raise TypeError("a rectangular plan sums donors along an axis")

    def donor_sums(self, column_sums: Floats) -> Floats | None:
        return column_sums

    def draw_sums(self, column_sums: Floats) -> Floats | None:
        return None


class EveryPair:
    """What plans of all pairs say, whichever way they are measured."""

    @property
    def label(self) -> str:
        return "all pairs"

    @property
    def exhaustive(self) -> bool:
        return True

    @property
    def exhausted_at(self: Plan) -> float:
        return self.n - 1

    def draw_sums(self, column_sums: Floats) -> Floats | None:
        return None

    def spread(self, v: Floats) -> Floats:
        return np.asarray(v.sum() - v)

    def variance(self, terms: Terms) -> Variance:
        return variances.pairs_variance(terms.rows, terms.donors)

    def fixed_data_error(self, terms: Terms) -> float:
        return 0.0

    def row_errors(self, row_sum: Floats, row_squares: Floats) -> Floats:
        return np.zeros(len(row_sum))
