"""All pairs of rows through many trees: each path from a root to a leaf is counted once, however many trees have it.

A leaf of value v is reached by row i with the feature of row k if i passes those tests of its path that are not on the
feature, and k those that are. So its switched loss is a product of a sum over rows and a number of donors, less the
rows that would borrow from themselves. Rows that pass a test are bit sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reliance.data.features import Feature

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
# Tests by number from 1: passed (to the left) if positive, failed if negative; sorted, each once.
Path: TypeAlias = tuple[int, ...]
_AT_ONCE = 1 << 22  # numbers of a table of losses that is held at a time


@dataclass(frozen=True, eq=False)
class TreePaths:
    """M trees as sets of leaves, of which there are L different ones.

    Attributes
    ----------
    columns : array (T,)
        The column that a test is on.
    left : boolean array (T, n)
        Which rows a test sends to the left.
    paths : tuple of L paths
    values : array (L,)
        Which value each leaf has, as a number from 0 to V - 1.
    trees : sparse array (M, L)
        1 where a tree has a leaf.
    """

    columns: Ints
    left: NDArray[np.bool_]
    paths: tuple[Path, ...]
    values: Ints
    trees: sparse.csr_array

    @property
    def n(self) -> int:
        return int(self.left.shape[1])

    @cached_property
    def passed(self) -> Words:
        """(2 T + 1, W): the rows of test t at t, those that fail it at -t; all rows at 0."""
        every = np.ones((1, self.n), dtype=bool)
        return packed(np.concatenate([every, self.left, ~self.left[::-1]]))

    def rows_of(self, paths: Sequence[Path]) -> Words:
        """(Q, W): the rows that pass all tests of each path."""
        longest = max((len(path) for path in paths), default=0)
        tests = np.zeros((len(paths), longest), dtype=np.int64)
        for k, path in enumerate(paths):
            tests[k, : len(path)] = path
        found = np.broadcast_to(self.passed[0], (len(paths), self.passed.shape[1])).copy()
        for place in range(longest):
            found &= self.passed[tests[:, place]]
        return found

    def leaf_losses(self, losses: Callable[[Ints], Floats]) -> Floats:
        """(L,): the sum of the losses of the rows in each leaf."""
        return summed(self.rows_of(self.paths), self.values, self.n, losses)

    def risks(self, losses: Callable[[Ints], Floats]) -> Floats:
        """(M,): the mean loss of each tree. ``losses``: (V',) values -> (V', n)."""
        return np.asarray(self.trees @ self.leaf_losses(losses)) / self.n

    def excesses(self, features: Sequence[Feature], losses: Callable[[Ints], Floats]) -> Floats:
        """(M, p): the mean switched loss over all n(n-1) pairs, less the mean loss."""
        own = self.leaf_losses(losses)
        changes = np.stack([self._changes(feature, own, losses) for feature in features], axis=1)
        return np.asarray(self.trees @ changes) / (self.n * (self.n - 1.0))

    def _changes(self, feature: Feature, own: Floats, losses: Callable[[Ints], Floats]) -> Floats:
        """(L,): by how much the sum over the pairs of each leaf's losses changes when a feature is switched."""
        on = np.isin(self.columns, feature.columns)
        found = np.zeros(len(self.paths))
        touched = [k for k, path in enumerate(self.paths) if any(on[abs(test) - 1] for test in path)]
        if not touched:
            return found
        kept = [tuple(test for test in self.paths[k] if not on[abs(test) - 1]) for k in touched]
        lent = [tuple(test for test in self.paths[k] if on[abs(test) - 1]) for k in touched]
        keeps, which = _numbered([(*path, 0, int(self.values[k])) for path, k in zip(kept, touched, strict=True)])
        stay = summed(self.rows_of([key[:-2] for key in keeps]), np.array([k[-1] for k in keeps]), self.n, losses)
        lends, whose = _numbered(lent)
        donors = np.bitwise_count(self.rows_of(lends)).sum(axis=1, dtype=np.int64)
        # Rows that reach the leaf by themselves: with themselves as donors no pair, and n - 1 times as they are.
        found[touched] = stay[which] * donors[whose] - own[touched] - (self.n - 1.0) * own[touched]
        return found


def _numbered(keys: Sequence[Path]) -> tuple[list[Path], Ints]:
    """The different ones, and which of them each is."""
    known: dict[Path, int] = {}
    which = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
    return list(known), which


def packed(flags: NDArray[np.bool_]) -> Words:
    """(Q, n) as bits of (Q, W) words; bits beyond n are 0."""
    missing = -flags.shape[1] % 64
    full = np.pad(flags, ((0, 0), (0, missing)))
    return np.packbits(full, axis=1).view(np.uint64)


def summed(rows: Words, values: Ints, n: int, losses: Callable[[Ints], Floats]) -> Floats:
    """(Q,): for each set of rows and each value the sum of the rows' losses at that value."""
    found = np.zeros(len(rows))
    order = np.argsort(values, kind="stable")
    used, starts = np.unique(values[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    many = max(_AT_ONCE // n, 1)
    for first in range(0, len(used), many):
        table = losses(used[first : first + many])
        binary = bool(np.all((table == 0.0) | (table == 1.0)))
        for k, own in enumerate(table, first):
            for start in range(starts[k], ends[k], many):
                some = order[start : min(start + many, ends[k])]
                found[some] = _counted(rows[some], own) if binary else _weighted(rows[some], own)
    return found


def _counted(rows: Words, own: Floats) -> Floats:
    """Losses of 0 and 1 are sets of rows, too."""
    return np.asarray(np.bitwise_count(rows & packed(own[None, :] != 0.0)).sum(axis=1), dtype=np.float64)


def _weighted(rows: Words, own: Floats) -> Floats:
    flags = np.unpackbits(rows.view(np.uint8), axis=1, count=len(own))
    return np.asarray(flags.astype(np.float64) @ own)
