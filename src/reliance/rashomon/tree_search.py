"""Every sparse tree with at most some loss: dynamic programming over sets of rows, with bounds.

A subtree depends on the rows that reach it and on how deep it may be, not on how they got there: so the best one, and
all good ones, are found once for each set of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance.rashomon.tree_leaves import LeafRule

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
_ROUNDING = 1e-12  # sums of losses are taken in another order for each tree


class Leaf(NamedTuple):
    """What a leaf outputs, K numbers."""

    value: tuple[float, ...]


class Split(NamedTuple):
    """Rows that pass the test go left."""

    test: int
    left: Node
    right: Node


Node: TypeAlias = Leaf | Split


class _Rows(NamedTuple):
    """A set of rows, and a key of it."""

    flags: Flags
    key: bytes

    @staticmethod
    def of(flags: Flags) -> _Rows:
        return _Rows(flags, np.packbits(flags).tobytes())


class _Found(NamedTuple):
    """Trees below a node up to a budget, by objective."""

    budget: float
    objectives: list[float]
    trees: list[Node]

    def within(self, budget: float) -> tuple[list[float], list[Node]]:
        stop = bisect_right(self.objectives, budget)
        return self.objectives[:stop], self.trees[:stop]


@dataclass(frozen=True, eq=False)
class TreeSearch:
    """Trees of at most some depth over given tests; the objective is the mean loss plus a penalty for each leaf.

    Attributes
    ----------
    left : boolean array (T, n)
        Which rows a test sends to the left. A split sends at least one row to either side.
    rule : LeafRule
        What a leaf outputs, and the loss of its rows then.
    depth : int
    penalty : float
    most : int
        Trees; more are an error.
    """

    left: Flags
    rule: LeafRule
    depth: int
    penalty: float
    most: int
    _best: dict[tuple[bytes, int], float] = field(default_factory=dict, init=False, repr=False)
    _found: dict[tuple[bytes, int], _Found] = field(default_factory=dict, init=False, repr=False)

    def least(self) -> float:
        """The objective of the best tree."""
        return self._least(self._all(), self.depth)

    def within(self, bound: float) -> tuple[list[float], list[Node]]:
        """All trees with at most that objective, up to rounding, the best first."""
        return self._trees(self._all(), self.depth, bound + _ROUNDING * max(abs(bound), 1.0))

    def _all(self) -> _Rows:
        return _Rows.of(np.ones(self.left.shape[1], dtype=bool))

    # ----------------------------------------------------------------------------------------------------------------

    def _leaf(self, rows: _Rows) -> tuple[float, Leaf]:
        sums = rows.flags @ self.rule.statistics
        return float(self._losses(sums[None, :])[0]), Leaf(self.rule.output(sums))

    def _losses(self, sums: Floats) -> Floats:
        """Objectives of leaves."""
        return np.asarray(self.rule.losses(sums) / self.left.shape[1] + self.penalty)

    def _splits(self, rows: _Rows) -> tuple[NDArray[np.int64], Floats]:
        """The tests that divide the rows, and the objectives (T', 2) of the two sides as leaves."""
        inside = self.rule.statistics * rows.flags[:, None]
        total, lefts = inside.sum(axis=0), self.left @ inside
        count, on_left = int(rows.flags.sum()), self.left @ rows.flags.astype(np.int64)
        divides = np.flatnonzero((on_left > 0) & (on_left < count))
        sides = np.stack([self._losses(lefts[divides]), self._losses(total - lefts[divides])], axis=1)
        return divides, sides

    def _least(self, rows: _Rows, depth: int) -> float:
        key = (rows.key, depth)
        if key not in self._best:
            self._best[key] = self._least_of(rows, depth)
        return self._best[key]

    def _least_of(self, rows: _Rows, depth: int) -> float:
        best, _ = self._leaf(rows)
        # A split has two leaves, of which no loss is below 0.
        if depth == 0 or best <= 2 * self.penalty:
            return best
        tests, sides = self._splits(rows)
        if len(tests) == 0:
            return best
        order = np.argsort(sides.sum(axis=1))
        best = min(best, float(sides.sum(axis=1)[order[0]]))
        if depth == 1:
            return best
        for test in tests[order]:
            one = self._least(self._side(rows, test, True), depth - 1)
            if one + self.penalty < best:
                best = min(best, one + self._least(self._side(rows, test, False), depth - 1))
        return best

    def _side(self, rows: _Rows, test: int, left: bool) -> _Rows:
        return _Rows.of(rows.flags & (self.left[test] if left else ~self.left[test]))

    def _trees(self, rows: _Rows, depth: int, budget: float) -> tuple[list[float], list[Node]]:
        key = (rows.key, depth)
        known = self._found.get(key)
        if known is None or known.budget < budget:
            known = self._found[key] = self._search(rows, depth, budget)
        return known.within(budget)

    def _search(self, rows: _Rows, depth: int, budget: float) -> _Found:
        objective, leaf = self._leaf(rows)
        found: list[tuple[float, Node]] = [(objective, leaf)] if objective <= budget else []
        tests = self._splits(rows)[0] if depth > 0 and 2 * self.penalty <= budget else np.zeros(0, dtype=np.int64)
        for test in tests:
            sides = self._side(rows, test, True), self._side(rows, test, False)
            least = [self._least(side, depth - 1) for side in sides]
            if sum(least) > budget:
                continue
            lefts, rights = (self._trees(sides[k], depth - 1, budget - least[1 - k]) for k in (0, 1))
            for one, left in zip(*lefts, strict=True):
                stop = bisect_right(rights[0], budget - one)
                found += [(one + rights[0][k], Split(int(test), left, rights[1][k])) for k in range(stop)]
            if len(found) > self.most:
                raise ValueError(
                    f"more than most={self.most} trees are good: pass a smaller epsilon or depth, a larger penalty, "
                    "fewer cuts, or a larger most"
                )
        found.sort(key=lambda pair: pair[0])
        return _Found(budget, [one for one, _ in found], [tree for _, tree in found])
