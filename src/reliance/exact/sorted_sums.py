"""Sums over the values below a point, from one sort: what thresholds, ranks and piecewise linear losses need.

A loss of pairs that jumps or bends at a threshold of ``a_i + t_k`` needs, for each row i, the donors k with ``t_k``
below ``threshold - a_i``. Sorting the t once and keeping running sums of what is summed over them answers that for all
rows by a binary search each: O(n log n) for n^2 pairs, and exact. All arrays are float64 on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SortedSums:
    """Values in their order, with running sums of their weights.

    Attributes
    ----------
    values : array (m,)
        Sorted.
    running : array (m + 1, ...)
        ``running[r]``: the sum of the weights of the first r values.
    """

    values: Floats
    running: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> SortedSums:
        """``weights (m,)`` or ``(m, K)``: what is summed, several things side by side; None: values are counted."""
        order = np.argsort(values, kind="stable")
        return cls.in_order(values[order], None if weights is None else weights[order])

    @classmethod
    def in_order(cls, values: Floats, weights: Floats | None = None) -> SortedSums:
        """The same of values that are sorted."""
        if weights is None:
            return cls(values, np.arange(len(values) + 1, dtype=np.float64))
        return cls(values, running_sums(weights))

    @property
    def total(self) -> Floats:
        return np.asarray(self.running[-1])

    def below(self, at: Floats) -> Floats:
        """``(len(at), ...)``: the sums over the values < each point."""
        return np.asarray(self.running[np.searchsorted(self.values, at, side="left")])

    def up_to(self, at: Floats) -> Floats:
        """The sums over the values <= each point."""
        return np.asarray(self.running[np.searchsorted(self.values, at, side="right")])

    def midway(self, at: Floats) -> Floats:
        """The sums over the values < each point, and half of those that are equal to it: ties in a comparison."""
        return np.asarray(0.5 * (self.below(at) + self.up_to(at)))


def running_sums(values: Floats) -> Floats:
    """``(m + 1, ...)``: sums of the first entries of ``(m, ...)``.

    In two levels, so that rounding grows with sqrt(m) at most.
    """
    m, rest = len(values), values.shape[1:]
    length = max(int(np.ceil(np.sqrt(m))), 1)
    padded = np.zeros((length * length, *rest))
    padded[:m] = values
    inner = np.cumsum(padded.reshape(length, length, *rest), axis=1)
    before = np.concatenate([np.zeros((1, *rest)), np.cumsum(inner[:-1, -1], axis=0)])
    found = (inner + before[:, None]).reshape(-1, *rest)[:m]
    return np.concatenate([np.zeros((1, *rest)), found])
