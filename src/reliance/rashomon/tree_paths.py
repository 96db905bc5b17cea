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

    @cached_property
    def tests(self) -> Ints:
        """(L, D): the tests of each path, 0 where it has fewer than the longest."""
        longest = max((len(path) for path in self.paths), default=0)
        return np.array([path + (0,) * (longest - len(path)) for path in self.paths], dtype=np.int64)

    def rows_of(self, tests: Ints) -> Words:
        """(Q, W): the rows that pass all tests of each path (Q, D)."""
        found = self.passed[tests[:, 0]] if tests.shape[1] else self.passed[np.zeros(len(tests), dtype=np.int64)]
        for place in range(1, tests.shape[1]):
            some = np.flatnonzero(tests[:, place])
            found[some] &= self.passed[tests[some, place]]
        return found

    def leaf_losses(self, losses: Callable[[Ints], Floats]) -> Floats:
        """(L,): the sum of the losses of the rows in each leaf. ``losses``: (V',) values -> (V', n)."""
        return summed(self.rows_of(self.tests), self.values, self.n, losses)

    def risks(self, own: Floats) -> Floats:
        """(M,): the mean loss of each tree, from the sums of its leaves."""
        return np.asarray(self.trees @ own) / self.n

    def excesses(self, features: Sequence[Feature], own: Floats, losses: Callable[[Ints], Floats]) -> Floats:
        """(M, p): the mean switched loss over all n(n-1) pairs, less the mean loss."""
        at = self._switches(features)
        stay = summed(self.rows_of(at.kept), at.values, self.n, losses)
        donors = np.bitwise_count(self.rows_of(at.lent)).sum(axis=1, dtype=np.int64)
        changes = np.zeros((len(self.paths), len(features)))
        # Rows that reach the leaf by themselves: with themselves as donors no pair, and n - 1 times as they are.
        changes[at.leaves, at.features] = stay[at.which] * donors[at.whose] - self.n * own[at.leaves]
        return np.asarray(self.trees @ changes) / (self.n * (self.n - 1.0))

    def _switches(self, features: Sequence[Feature]) -> Switches:
        """The paths of all leaves that test a feature, without and with its tests alone; each different one once."""
        number = np.abs(self.tests)
        on = [np.append(False, np.isin(self.columns, feature.columns))[number] for feature in features]
        leaves = [np.flatnonzero(tested.any(axis=1)) for tested in on]
        kept = [np.where(tested[own], 0, self.tests[own]) for tested, own in zip(on, leaves, strict=True)]
        lent = [np.where(tested[own], self.tests[own], 0) for tested, own in zip(on, leaves, strict=True)]
        which = np.repeat(np.arange(len(features)), [len(own) for own in leaves])
        place = np.concatenate(leaves)
        stay, of_stay = self._different(np.concatenate(kept), self.values[place])
        give, of_give = self._different(np.concatenate(lent), np.zeros(len(place), dtype=np.int64))
        return Switches(place, which, stay[:, :-1], stay[:, -1], of_stay, give[:, :-1], of_give)

    def _different(self, tests: Ints, values: Ints) -> tuple[Ints, Ints]:
        """The different rows of (tests in order, value), and which of them each is."""
        rows = np.column_stack([-np.sort(-np.abs(tests) * 2 - (tests > 0), axis=1), values])
        base = 2 * len(self.columns) + 2
        if base ** tests.shape[1] * (int(values.max(initial=0)) + 1) < 2**62:  # as one number
            key = values.copy()
            for column in rows[:, :-1].T:
                key = key * base + column
            _, first, which = np.unique(key, return_index=True, return_inverse=True)
        else:
            _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        found = rows[first]
        coded = found[:, :-1]
        tested = np.where(coded % 2 == 1, coded // 2, -(coded // 2))
        return np.column_stack([tested, found[:, -1]]), which.reshape(-1)


@dataclass(frozen=True, eq=False)
class Switches:
    """Leaves whose paths test a feature: what rows keep of them, and what donors lend.

    Attributes
    ----------
    leaves, features : arrays (Q,)
        Which leaf, and which feature.
    kept, values, which : arrays (K, D), (K,), (Q,)
        The different tests on other columns with the leaf's value, and which of them each leaf has.
    lent, whose : arrays (G, D), (Q,)
        The different tests on the feature, and which of them each leaf has.
    """

    leaves: Ints
    features: Ints
    kept: Ints
    values: Ints
    which: Ints
    lent: Ints
    whose: Ints


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
