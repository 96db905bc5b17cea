"""Trees of any size: the leaves that a row can reach when one feature is free, found by walking.

A row's own path serves all features at once. Where it splits on feature j, a donor of the other side leaves it: a walk
with feature j free starts there, follows the row elsewhere and takes both ways at further splits on j. A walk remembers
the last node at which its feature sent it, because the cells that come with it are those of that node (see `reached`).
So a tree gives a row a few runs of cells with a change of the prediction each; sorted, those of all trees are the
pieces between which the prediction changes.

The walks are integers and branches, and run on the host; what is computed from the pieces runs where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reliance._core.streams import Indices
from reliance.exact import reached
from reliance.exact.cells import Cells
from reliance.exact.reached import Flags, Runs, Small, Splits
from reliance.models.ensembles import Ensemble

Floats = NDArray[np.float64]
# Pairs of a row and a tree that walk at a time: what they need stays in a core's cache.
_LANES = 1 << 12


class Pieces(NamedTuple):
    """Runs of cells with one prediction, sorted by row and cell; those with the row's own prediction are left out.

    Attributes
    ----------
    row, first, stop : integers (e,)
        From which cell to which, for a row of the block; cells of all measured columns are numbered one after the
        other, with one number more behind each column's.
    change : array (e, K)
        What donors of these cells add to the row's raw outputs.
    """

    row: Indices
    first: Indices
    stop: Indices
    change: Floats


class Arrivals(NamedTuple):
    """Ends of walks: the row, the node whose cells come with it, and what they add to its raw outputs (e, K)."""

    row: Small
    node: Small
    change: Floats


@dataclass(frozen=True, eq=False)
class Walks:
    """Walks through an ensemble, and with which cells.

    Attributes
    ----------
    owner : integers (N,)
        Which of the measured columns or groups a node asks about, or -1.
    alive : booleans (N,)
        Whether some cells of what its parent asks about come to a node.
    """

    ensemble: Ensemble
    splits: Splits
    owner: Small
    alive: Flags

    @cached_property
    def free(self) -> Small:
        """What is free on walks that come with a node's cells: what its parent asks about."""
        return np.take(self.owner, self.splits.parent)

    def own(self, codes: Small, trees: range) -> tuple[Small, Small, Small]:
        """Of rows with these codes (lines, b) the leaf in each tree, lane by lane; and the walks that leave their way.

        A lane is a tree and a row, tree after tree. Walks are lanes and the nodes where they begin.
        """
        splits, b = self.splits, codes.shape[1]
        here = np.repeat(self.ensemble.roots[trees.start : trees.stop], b).astype(np.int32)
        lane = np.arange(len(here), dtype=np.int32)
        leaf, row, flat = here.copy(), lane % b, codes.reshape(-1)
        lanes, starts = [lane[:0]], [lane[:0]]
        while True:
            line = np.take(splits.line, here)
            if line.min(initial=0) < 0:
                on = np.flatnonzero(line >= 0)
                lane, row, here, line = (np.take(array, on) for array in (lane, row, here, line))
            if not len(lane):
                return leaf, np.concatenate(lanes), np.concatenate(starts)
            place = 2 * here + splits.left(here, np.take(flat, line * np.int64(b) + row))
            other = np.take(splits.child, place ^ 1)
            leaving = np.flatnonzero(np.take(self.alive, other))
            lanes.append(np.take(lane, leaving))
            starts.append(np.take(other, leaving))
            here = np.take(splits.child, place)
            leaf[lane] = here

    def ends(self, codes: Small, trees: range) -> tuple[Floats, Arrivals]:
        """Of rows with these codes what the trees add, (b, K); and where walks end with another prediction."""
        b, value = codes.shape[1], self.ensemble.value
        own, lane, source = self.own(codes, trees)
        lane, source, leaf = self._walk(codes, own, lane, source)
        change = np.take(value, leaf, axis=0) - np.take(value, np.take(own, lane), axis=0)
        kept = np.flatnonzero(change[:, 0] if change.shape[1] == 1 else np.any(change != 0.0, axis=1))
        total = value[own].reshape(-1, b, change.shape[1]).sum(axis=0)
        found = Arrivals(np.take(lane, kept) % b, np.take(source, kept), np.take(change, kept, axis=0))
        return total, found

    def _walk(self, codes: Small, own: Small, lane: Small, source: Small) -> tuple[Small, Small, Small]:
        """Every walk to its leaves: lanes, the nodes whose cells come along, leaves."""
        splits, b, flat = self.splits, codes.shape[1], codes.reshape(-1)
        begin = splits.line * np.int32(b)  # of each node's line among the codes
        here, row, free = source, lane % b, np.take(self.free, source)
        done = [(lane[:0], source[:0], here[:0])]
        while len(here):
            start = np.take(begin, here)
            ends = np.flatnonzero(start < 0)
            if len(ends):
                done.append((np.take(lane, ends), np.take(source, ends), np.take(here, ends)))
                on = np.flatnonzero(start >= 0)
                lane, source, here, row, free, start = (
                    np.take(array, on) for array in (lane, source, here, row, free, start)
                )
            place = 2 * here + splits.left(here, np.take(flat, start + row))
            ahead = np.take(splits.child, place)
            split = np.flatnonzero(np.take(self.owner, here) == free)
            here = ahead
            if len(split):
                mine, other = np.take(ahead, split), np.take(splits.child, np.take(place, split) ^ 1)
                # A way that no cell takes ends at the row's own leaf, where nothing changes.
                here[split] = np.where(np.take(self.alive, mine), mine, np.take(own, np.take(lane, split)))
                source[split] = mine
                new = np.flatnonzero(np.take(self.alive, other))
                which, other = np.take(split, new), np.take(other, new)
                lane, row, free = (np.concatenate([array, np.take(array, which)]) for array in (lane, row, free))
                source, here = np.concatenate([source, other]), np.concatenate([here, other])
        lanes, sources, leaves = (np.concatenate(parts) for parts in zip(*done, strict=True))
        return lanes, sources, leaves

    def tree_ranges(self, b: int, trees: range | None = None) -> list[range]:
        """All trees or these, as many at a time as are worth their calls for b rows."""
        every = range(len(self.ensemble.roots)) if trees is None else trees
        step = max(_LANES // b, 1)
        return [every[start : start + step] for start in range(0, len(every), step)]


@dataclass(frozen=True, eq=False)
class WalkTables:
    """Walks of single columns, and their runs of cells, in the numbers of all columns' cells one after the other.

    ``edge (columns + 1,)``: where the numbers of each measured column begin.
    """

    walks: Walks
    runs: Runs
    edge: Indices

    @property
    def nbytes(self) -> int:
        """What is held of each node, and their runs."""
        return self.runs.nbytes + 64 * len(self.walks.owner)

    def pieces(self, codes: Small) -> tuple[Floats, Pieces]:
        """Of the rows with these codes (lines, b): the trees' own values (b, K), and the pieces."""
        b = codes.shape[1]
        parts = [self.walks.ends(codes, trees) for trees in self.walks.tree_ranges(b)]
        row, node, change = (np.concatenate(arrays) for arrays in zip(*(found for _, found in parts), strict=True))
        place, source = expanded(self.runs, node)
        if source is not None:
            row, change = np.take(row, source), np.take(change, source, axis=0)
        total = np.sum([values for values, _ in parts], axis=0)
        return total, self._merged(row, np.take(self.runs.start, place), np.take(self.runs.stop, place), change, b)

    def most_runs(self, codes: Small) -> int:
        """How many runs of cells the row with the most has, of rows with these codes (lines, b)."""
        _, found = self.walks.ends(codes, range(len(self.walks.ensemble.roots)))
        counts = np.diff(self.runs.begin)[found.node]
        return int(np.bincount(found.row, counts, minlength=1).max())

    def _merged(self, row: Small, first: Small, stop: Small, change: Floats, b: int) -> Pieces:
        """The runs of all trees, which overlap, as pieces, which do not."""
        size = int(self.edge[-1])
        place, row = np.concatenate([first, stop]), np.concatenate([row, row])
        order = _sorted(place, row, size, b)
        place, row = np.take(place, order), np.take(row, order)
        # Each run is closed again, so the running sum comes back to 0 at the end of a column, and of a row.
        running = np.cumsum(np.take(np.concatenate([change, -change]), order, axis=0), axis=0)
        last = np.flatnonzero((place[1:] != place[:-1]) | (row[1:] != row[:-1]))
        place, after = np.take(place, last), np.take(place, last + 1)
        inside = np.flatnonzero((np.take(row, last) == np.take(row, last + 1)) & ~self._parted(place, after))
        last = np.take(last, inside)
        return Pieces(
            np.take(row, last), np.take(place, inside), np.take(after, inside), np.take(running, last, axis=0)
        )

    def _parted(self, place: Small, after: Small) -> Flags:
        """Whether the two places are in different columns."""
        return np.asarray(np.take(self._column, place) != np.take(self._column, after))

    @cached_property
    def _column(self) -> Small:
        return np.repeat(np.arange(len(self.edge) - 1, dtype=np.int32), np.diff(self.edge))


def _sorted(place: Small, row: Small, places: int, rows: int) -> Indices:
    """The order by rows, then by places: two counting sorts, which a sparse matrix makes of its entries."""
    entries = np.arange(len(place), dtype=np.int32 if len(place) < 2**31 else np.int64)
    found = sparse.coo_array((entries, (place, row)), shape=(places, rows))
    found.has_canonical_format = True  # entries of one place are kept apart
    return np.asarray(found.tocsr().tocsc().data)


def expanded(runs: Runs, node: Small) -> tuple[Indices, Indices | None]:
    """The runs of nodes, one after the other: their places among all, and which node each is of; None: one of each."""
    begin = np.take(runs.begin, node)
    counts = np.take(runs.begin, node + 1) - begin
    if counts.min(initial=1) == 1 == counts.max(initial=1):
        return begin, None
    source = np.repeat(np.arange(len(node)), counts)
    within = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.take(begin, source) + within, source


def walk_tables(ensemble: Ensemble, columns: list[Cells], measured: list[Cells]) -> WalkTables:
    """Of an ensemble whose columns have these cells, some of them measured."""
    splits, owner = reached.splits_of(ensemble, columns), reached.owners(ensemble, measured)
    last, edge = reached.before(ensemble, owner, len(measured)), np.cumsum([0, *(c.number + 1 for c in measured)])
    free = np.where(splits.parent == np.arange(len(owner)), -1, owner[splits.parent])
    parts = []
    for place, cells in enumerate(measured):
        nodes = np.flatnonzero(free == place)
        asked = ensemble.category[ensemble.feature == cells.columns[0]]
        for some in reached.by_trees(ensemble, nodes, 1 if np.all(asked < 0) else cells.number):
            found = reached.intervals if np.all(asked < 0) else reached.sets
            node, start, stop = found(ensemble, splits, some, last, cells)
            parts.append((node, start + edge[place], stop + edge[place]))
    runs = reached.gathered(len(owner), parts)
    return WalkTables(Walks(ensemble, splits, owner, np.diff(runs.begin) > 0), runs, edge)
