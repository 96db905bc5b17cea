"""Trees of any size: the leaves that a row can reach when one feature is free, found by walking.

A row's own path serves all features at once. Where it splits on feature j, a donor of the other side leaves it: a walk
with feature j free starts there, follows the row elsewhere and takes both ways at further splits on j. Each leaf that
it reaches is reached by an interval of the cells of j. So a tree gives a row a few intervals with a change of the
prediction each; sorted, those of all trees are the pieces between which the prediction changes.

The walks are integers and branches, and run on the host; what is computed from the pieces runs where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.exact.cells import Cells
from reliance.models.ensembles import Ensemble

Floats = NDArray[np.float64]
Small = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Pieces(NamedTuple):
    """Runs of cells with one prediction, sorted by column and row; those with the row's own prediction are left out.

    Attributes
    ----------
    column, row, first, stop : integers (e,)
        Cells ``first`` to ``stop`` of a column (a position among the used ones), for a row of the block.
    change : array (e, K)
        What donors of these cells add to the row's raw outputs.
    """

    column: Indices
    row: Indices
    first: Indices
    stop: Indices
    change: Floats


class Walks(NamedTuple):
    """Walks with a column free: their lane (tree and row), the column, and the cells of it that come this far."""

    lane: Small
    column: Small
    first: Small
    stop: Small
    missing: Flags

    def at(self, index: Indices) -> Walks:
        lane, column, first, stop = (np.take(array, index) for array in self[:4])
        return Walks(lane, column, first, stop, np.take(self.missing, index))

    @property
    def alive(self) -> Indices:
        return np.flatnonzero((self.first < self.stop) | self.missing)


@dataclass(frozen=True, eq=False)
class WalkTables:
    """An ensemble of numeric splits in terms of cells: at a node the first ``cut`` cells of its column go left.

    Attributes
    ----------
    column, cut : integers (N,)
        Of inner nodes; the column, -1 at a leaf, is a position among the used ones.
    child : integers (2 N,)
        Right and left child of each node, side by side.
    number, missing : integers (columns,)
        How many cells a column has without the one of missing values; the number of that one, or -1.
    """

    ensemble: Ensemble
    column: Small
    cut: Small
    child: Small
    number: Small
    missing: Small

    def pieces(self, codes: Small) -> tuple[Floats, Pieces]:
        """Of the rows with these cells (columns, b): the trees' own values (b, K), and the pieces."""
        b = codes.shape[1]
        own, walks, nodes = self._own_paths(codes)
        walks, leaf = self._walk(codes, walks, nodes)
        change = self.ensemble.value[leaf] - self.ensemble.value[np.take(own, walks.lane)]
        kept = np.flatnonzero(np.any(change != 0.0, axis=1))
        walks, change = walks.at(kept), change[kept]
        there, also = np.flatnonzero(walks.first < walks.stop), np.flatnonzero(walks.missing)
        both = np.concatenate([there, also])
        at = self.missing[walks.column[also]]
        total = self.ensemble.value[own].reshape(-1, b, change.shape[1]).sum(axis=0)
        return total, self._merged(
            walks.column[both].astype(np.int64) * b + walks.lane[both] % b,
            np.concatenate([walks.first[there], at]),
            np.concatenate([walks.stop[there], at + 1]),
            change[both],
            b,
        )

    def most_walks(self, codes: Small) -> int:
        """How many walks the row with the most has, of rows with these cells (columns, b)."""
        b = codes.shape[1]
        _, walks, nodes = self._own_paths(codes)
        arrived, _ = self._walk(codes, walks, nodes)
        return int(np.bincount(arrived.lane % b, minlength=1).max())

    def _own_paths(self, codes: Small) -> tuple[Small, Walks, Small]:
        """The leaf of each lane (tree after tree, row by row), and the walks that leave its way, with their nodes."""
        columns, b = codes.shape
        node = np.repeat(self.ensemble.roots, b).astype(np.int32)
        # The cells of each column that still go the row's way, lane by lane.
        first = np.zeros(len(node) * columns, dtype=np.int32)
        stop = np.tile(self.number, len(node))
        missing = np.tile(self.missing >= 0, len(node))
        found, starts = [], []
        lane = np.flatnonzero(self.column[node] >= 0).astype(np.int32)
        while len(lane):
            here = np.take(node, lane)
            column = np.take(self.column, here)
            place = lane.astype(np.int64) * columns + column
            left = self._goes_left(codes, lane % b, column, here)
            walks = Walks(lane, column, np.take(first, place), np.take(stop, place), np.take(missing, place))
            ways = self._both_ways(walks, here)
            own, other = _chosen(ways, left), _chosen(ways, ~left)
            first[place], stop[place], missing[place] = own.first, own.stop, own.missing
            alive = other.alive
            found.append(other.at(alive))
            starts.append(np.take(self.child, 2 * here + ~left)[alive])
            ahead = np.take(self.child, 2 * here + left)
            node[lane] = ahead
            lane = lane[np.flatnonzero(np.take(self.column, ahead) >= 0)]
        return node, _together(found), np.concatenate(starts)

    def _walk(self, codes: Small, walks: Walks, node: Small) -> tuple[Walks, Small]:
        """Every walk to its leaves. A walk that goes on is a number and a node; one that splits becomes two new."""
        b = codes.shape[1]
        numbers = np.arange(len(node), dtype=np.int32)
        every, total = [walks], len(node)
        row, free = walks.lane % b, walks.column
        done: list[tuple[Small, Small]] = []
        while len(node):
            column = np.take(self.column, node)
            ends, on = np.flatnonzero(column < 0), np.flatnonzero(column >= 0)
            done.append((np.take(numbers, ends), np.take(node, ends)))
            numbers, node, column = np.take(numbers, on), np.take(node, on), np.take(column, on)
            left = self._goes_left(codes, np.take(row, numbers), column, node)
            same = np.take(free, numbers) == column
            split, bound = np.flatnonzero(same), np.flatnonzero(~same)
            ahead = np.take(self.child, 2 * np.take(node, bound) + np.take(left, bound))
            if not len(split):
                numbers, node = np.take(numbers, bound), ahead
                continue
            here = np.take(node, split)
            ways = self._both_ways(_together(every).at(np.take(numbers, split)), here)
            alive = [way.alive for way in ways]
            new = _together([way.at(index) for way, index in zip(ways, alive, strict=True)])
            sides = [np.take(self.child, 2 * here + side)[index] for side, index in zip((1, 0), alive, strict=True)]
            numbers = np.concatenate([np.take(numbers, bound), np.arange(total, total + len(new.lane), dtype=np.int32)])
            node = np.concatenate([ahead, *sides])
            every, total = [_together([*every, new])], total + len(new.lane)
            row, free = np.concatenate([row, new.lane % b]), every[0].column
        if not done:  # rows of one cell: no donor leaves a row's way
            return every[0], node
        arrived, leaf = (np.concatenate(parts) for parts in zip(*done, strict=True))
        return every[0].at(arrived), leaf

    def _goes_left(self, codes: Small, row: Small, column: Small, node: Small) -> Flags:
        code = np.take(codes, column.astype(np.int64) * codes.shape[1] + row)
        left = code < np.take(self.cut, node)
        if (self.missing >= 0).any():
            left = np.where(code == np.take(self.missing, column), np.take(self.ensemble.missing_left, node), left)
        return np.asarray(left)

    def _both_ways(self, walks: Walks, node: Small) -> tuple[Walks, Walks]:
        """Left and right, with the cells that go there."""
        cut, missing_left = np.take(self.cut, node), np.take(self.ensemble.missing_left, node)
        return (
            walks._replace(stop=np.minimum(walks.stop, cut), missing=walks.missing & missing_left),
            walks._replace(first=np.maximum(walks.first, cut), missing=walks.missing & ~missing_left),
        )

    def _merged(self, group: Indices, first: Small, stop: Small, change: Floats, b: int) -> Pieces:
        """The intervals of all trees, which overlap, as pieces, which do not; a group is a column and a row."""
        width = int((self.number + (self.missing >= 0)).max()) + 1
        key = np.concatenate([group * width + first, group * width + stop])
        order = np.argsort(key)
        key = np.take(key, order)
        # Each interval is closed again, so the running sum comes back to 0 at the end of a row's pieces.
        running = np.cumsum(np.take(np.concatenate([change, -change]), order, axis=0), axis=0)
        last = np.flatnonzero(np.diff(key, append=-1))
        key, running = np.take(key, last), np.take(running, last, axis=0)
        group, place = np.divmod(key, width)
        inside = np.flatnonzero(group[1:] == group[:-1])
        column, row = np.divmod(np.take(group, inside), b)
        return Pieces(column, row, np.take(place, inside), np.take(place, inside + 1), np.take(running, inside, axis=0))


def _chosen(ways: tuple[Walks, Walks], left: Flags) -> Walks:
    return Walks(*(np.where(left, a, b) for a, b in zip(*ways, strict=True)))


def _together(parts: list[Walks]) -> Walks:
    return parts[0] if len(parts) == 1 else Walks(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def walk_tables(ensemble: Ensemble, cells: list[Cells]) -> WalkTables:
    """The tables of an ensemble of numeric splits, whose columns have these cells."""
    column = np.full(len(ensemble.feature), -1, dtype=np.int32)
    cut = np.zeros(len(ensemble.feature), dtype=np.int32)
    number, missing = [], []
    for position, found in enumerate(cells):
        value = found.value[:, 0].astype(ensemble.compared_in).astype(np.float64)
        present = value[~np.isnan(value)]
        nodes = np.flatnonzero(ensemble.feature == found.columns[0])
        column[nodes] = position
        cut[nodes] = np.searchsorted(present, ensemble.threshold[nodes], side="right")
        number.append(len(present))
        missing.append(len(present) if len(present) < found.number else -1)
    child = np.stack([ensemble.right, ensemble.left], axis=1).reshape(-1).astype(np.int32)
    return WalkTables(
        ensemble, column, cut, child, np.asarray(number, dtype=np.int32), np.asarray(missing, dtype=np.int32)
    )
