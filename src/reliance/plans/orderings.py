"""The order that the donors of a feature stand in: near each other if their values are alike.

One column is sorted by its values, ties in random order, missing values last. Two or three columns are ordered by a k-d
tree, more by a Morton curve. Only ranks count, so a monotone change of a column changes nothing. Orders are made on the
host from the values as they are, so that every backend has the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.arrays import Array, namespace, to_host
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.features import Feature

# Cells of a k-d tree: finer ones would matter only to windows smaller than n / 4096.
_LEVELS = 12
# A Morton curve of more columns than these has too few bits for each; neighbouring columns are averaged first.
_WIDEST = 16
_BITS = 62


@dataclass(frozen=True, eq=False)
class Orders:
    """The donors' order of any feature, made when it is asked for.

    The last ones are kept, up to ``limit`` bytes, because the engine and the inference ask for the same ones; in half
    of an index's bytes, because a sort takes far longer than to widen them.

    Attributes
    ----------
    n : int
    key : int
        Of the random numbers that break ties.
    values : callable
        ``values(feature) -> (n, g)`` array on the host.
    """

    n: int
    key: int
    values: Callable[[Feature], HostArray]
    limit: int = 2**27
    _kept: OrderedDict[Feature, NDArray[np.uint32]] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def of(cls, flat: Array, key: int) -> Orders:
        """Of the columns of ``flat (n, P)``, on any device."""
        xp = namespace(flat)

        def values(feature: Feature) -> HostArray:
            return to_host(xp.concat([flat[:, run] for run in feature.runs], axis=1))

        return cls(int(flat.shape[0]), key, values)

    @cached_property
    def ties(self) -> Indices:
        return streams.tie_order(self.key, self.n)

    def __call__(self, feature: Feature) -> Indices:
        """``(n,)``: the rows, sorted by the feature."""
        narrow = self._kept.pop(feature, None)
        order = by_values(self.values(feature), self.ties) if narrow is None else narrow.astype(np.int64)
        narrow = order.astype(np.uint32) if narrow is None else narrow
        self._kept[feature] = narrow
        with suppress(KeyError):  # threads that share a plan may have taken the last ones
            while len(self._kept) > 1 and len(self._kept) * narrow.nbytes > self.limit:
                self._kept.popitem(last=False)
        return order

    def nbytes(self, features: int) -> int:
        """At most, if so many features are asked for."""
        each = 4 * self.n  # and twice that for ties, and for an order in hand
        return each * (4 + min(features, max(1, self.limit // each)))


def by_values(values: HostArray, ties: Indices) -> Indices:
    """``(n,)``: the rows of ``values (n, g)`` in an order in which neighbours are alike.

    ``ties (n,)``: all rows in the order in which equal ones are put.
    """
    width = values.shape[1]
    if width == 1:
        # Without ties there is one order, which an unstable sort finds several times faster.
        order = np.argsort(values[:, 0])
        if _all_differ(values[order, 0]):
            return order
    shuffled = values[ties]
    if width == 1:
        return ties[np.argsort(shuffled[:, 0], kind="stable")]
    ranks = np.stack([dense_ranks(shuffled[:, j]) for j in range(width)], axis=1)
    return ties[_tree_order(ranks) if width <= 3 else _curve_order(ranks)]


def _all_differ(ordered: HostArray) -> bool:
    """Whether no two of the sorted values are equal; missing values, which come last, are."""
    several_missing = len(ordered) > 1 and ordered[-2] != ordered[-2]
    return not several_missing and not bool(np.any(ordered[1:] == ordered[:-1]))


def dense_ranks(column: HostArray) -> NDArray[np.float64]:
    """``(n,)`` in [0, 1): the share of smaller values and half of the equal ones; missing values are the largest."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    changes = (ordered[1:] != ordered[:-1]) & ~((ordered[1:] != ordered[1:]) & (ordered[:-1] != ordered[:-1]))
    group = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(changes)])
    size = np.bincount(group)
    middle = np.cumsum(size) - 0.5 * size
    ranks = np.empty(len(column))
    ranks[order] = middle[group] / len(column)
    return ranks


def _tree_order(ranks: NDArray[np.float64]) -> Indices:
    """Halved at the median of one column after the other, each half again, down to cells of a few rows."""
    n, width = ranks.shape
    order = np.arange(n, dtype=np.int64)
    for level in range(min(_LEVELS, max(n - 1, 1).bit_length())):
        # A cell is a stretch of the order: sorting by cell, then by the column, keeps every cell where it is.
        cell = order_cells(n, level)
        order = order[np.lexsort((ranks[order, level % width], cell))]
    return order


def order_cells(n: int, level: int) -> Indices:
    """``(n,)``: the number of the cell at each place, 2^level cells of nearly equal size."""
    return np.arange(n, dtype=np.int64) * (1 << level) // n


def _curve_order(ranks: NDArray[np.float64]) -> Indices:
    """Along a Morton curve: by the first bits of all columns, then by the second ones, and so on."""
    if ranks.shape[1] > _WIDEST:
        ranks = np.stack([part.mean(axis=1) for part in np.array_split(ranks, _WIDEST, axis=1)], axis=1)
        ranks = np.stack([dense_ranks(ranks[:, j]) for j in range(_WIDEST)], axis=1)
    n, width = ranks.shape
    bits = _BITS // width
    cells = (ranks * 2**bits).astype(np.int64)
    code = np.zeros(n, dtype=np.int64)
    for bit in range(bits - 1, -1, -1):
        for j in range(width):
            code = code << 1 | cells[:, j] >> bit & 1
    return np.argsort(code, kind="stable")
