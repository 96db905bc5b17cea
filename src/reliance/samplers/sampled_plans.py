"""Plans of conditional samplers: donors that a sampler names, or new values that it makes.

Both are functions of numbers in [0, 1) that belong to a row and a draw, so that they can be made for any range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import Drawn, Terms, Users, Variance, variances
from reliance.plans.protocol import Floats


@dataclass(frozen=True, eq=False)
class Named(Drawn):
    """Donors that a sampler names: neighbours, rows of the same stratum.

    Attributes
    ----------
    named : callable
        ``(rows, u (b, d)) -> donors (b, d)``, a function of numbers in [0, 1).
    ids : integer array (n,) or None
        The numbers of the rows in a larger table, of which these are a part: a row has the same u there and here.
    strata : integer array (n,) or None
        If donors are uniform over the other rows of a stratum: the stratum of each row.
    """

    n: int
    draws: int
    key: int
    named: Callable[[range, Floats], Indices]
    ids: Indices | None = None
    strata: Indices | None = None

    @property
    def label(self) -> str:
        return f"{'named' if self.strata is None else 'strata'}, {self.draws} per row"

    def donors(self, rows: range, columns: range) -> Indices:
        u = np.stack([_uniforms(self.key, self.ids, rows, k, 1)[:, 0] for k in columns], axis=1)
        return self.named(rows, u)

    def influence(self, terms: Terms) -> Floats:
        return terms.rows + terms.donors - (0.0 if self.strata is None else self._between(self.strata, terms.rows))

    def variance(self, terms: Terms) -> Variance:
        if self.strata is None:  # donors chosen by the data: only refitting knows
            return variances.unknown(terms.rows)
        between = self._between(self.strata, terms.rows)
        return variances.strata_variance(self.influence(terms), terms.rows, between, terms.total, self.draws)

    @staticmethod
    def _between(strata: Indices, r: Floats) -> Floats:
        """``(n,)``: the mean of each row's stratum."""
        return np.asarray((np.bincount(strata, r) / np.maximum(np.bincount(strata), 1))[strata])


@dataclass(frozen=True, eq=False)
class Values(Drawn):
    """New values instead of donors: a sampler makes them of independent numbers in [0, 1), ``count`` a draw."""

    n: int
    draws: int
    key: int
    count: int
    ids: Indices | None = None

    @property
    def lends(self) -> bool:
        return False

    def donors(self, rows: range, columns: range) -> Floats:
        return np.stack([_uniforms(self.key, self.ids, rows, k, self.count) for k in columns], axis=1)

    def users(self, columns: range) -> Users:
        raise TypeError("a plan of values has no donors")

    def spread(self, v: Floats) -> Floats:
        return np.zeros(self.n)

    def variance(self, terms: Terms) -> Variance:
        return variances.rows_variance(terms.rows, terms.total, self.draws)


def _uniforms(key: int, ids: Indices | None, rows: range, draw: int, count: int) -> Floats:
    if ids is None:
        return streams.uniforms(key, rows.start, rows.stop, draw, count)
    return streams.uniforms(key, 0, int(ids.max()) + 1, draw, count)[ids[rows.start : rows.stop]]
