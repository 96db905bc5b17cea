"""Permutations that somebody gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import variances
from reliance.plans.bases import Drawn
from reliance.plans.protocol import Floats, Terms, Users, Variance


@dataclass(frozen=True)
class Permutations(Drawn):
    """Explicit permutations: ``permutation(k)`` is the ``(n,)`` array of the donors of draw k."""

    n: int
    draws: int
    permutation: Callable[[int], Indices]

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

    def variance(self, terms: Terms) -> Variance:
        r, c, total = terms.rows, terms.donors, terms.total
        if self.draws < 3:
            return variances.few_draws_variance(r, c, total, self.draws)
        return variances.permutations_variance(r, c, total, self.spread(r), self.draws)
