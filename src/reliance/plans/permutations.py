"""Permutations that the caller gives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import variances
from reliance.plans.bases import Drawn
from reliance.plans.protocol import Floats, Terms, Users, Variance

Narrow: TypeAlias = NDArray[np.uint32]
# Bytes of permutations that are kept.
_KEPT = 2**27


@dataclass(frozen=True)
class Permutations(Drawn):
    """Explicit permutations: ``permutation(k)`` is the ``(n,)`` array of the donors of draw k."""

    n: int
    draws: int
    permutation: Callable[[int], Indices]
    # The last ones, up to _KEPT bytes: each is asked for block by block, and by the inference of each feature.
    _kept: OrderedDict[int, Narrow] = field(default_factory=OrderedDict, repr=False, compare=False)

    def _checked(self, k: int) -> Narrow:
        found = self._kept.pop(k, None)
        if found is None:
            found = self._asked(k)
        self._kept[k] = found
        with suppress(KeyError):  # threads that share a plan may have taken the last ones
            while len(self._kept) > 1 and len(self._kept) * found.nbytes > _KEPT:
                self._kept.popitem(last=False)
        return found

    def _asked(self, k: int) -> Narrow:
        donors = streams.as_indices(self.permutation(k))
        seen = np.zeros(self.n, dtype=bool)
        if donors.shape == (self.n,) and donors.min() >= 0 and donors.max() < self.n:
            seen[donors] = True
        if not seen.all():
            raise ValueError(f"permutation {k} is not a permutation of range({self.n}): give each index exactly once")
        return donors.astype(np.uint32)

    def held_bytes(self, features: int) -> int:
        each = 4 * self.n
        return each * min(self.draws, max(1, _KEPT // each))

    def donors(self, rows: range, columns: range) -> Indices:
        return np.stack([self._checked(k)[rows.start : rows.stop] for k in columns], axis=1, dtype=np.int64)

    def users(self, columns: range) -> Users:
        d = len(columns)
        user = np.empty((self.n, d), dtype=np.int64)
        for place, k in enumerate(columns):
            user[self._checked(k), place] = np.arange(place, self.n * d, d)
        return Users(user.reshape(-1), None)

    def spread(self, v: Floats) -> Floats:
        total, one = np.zeros(self.n), np.empty(self.n)
        for k in range(self.draws):
            one[self._checked(k)] = v
            total += one
        return total

    def variance(self, terms: Terms) -> Variance:
        r, c, total = terms.rows, terms.donors, terms.total
        if self.draws < 3:
            return variances.few_draws_variance(r, c, total, self.draws)
        return variances.permutations_variance(r, c, total, self.spread(r), self.draws)
