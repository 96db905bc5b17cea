"""Splits in terms of cells, and which cells of a feature come to a node: the same for every row.

With a feature free a row takes both ways at splits on it, and its own way elsewhere. Which donors send it down a way
depends on the splits on the feature above, not on the row. So each node has one set of cells, of the feature that its
parent asks about. Cells are numbered, and a set is a list of runs of numbers: one for a number's cells (two if missing
values come along), several for categories and for cells of several columns together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.exact.cells import Cells
from reliance.models.ensembles import Ensemble

Small = NDArray[np.int32]
Flags = NDArray[np.bool_]
# Entries of a table of trees' nodes by columns or by cells that is held at a time.
_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Splits:
    """What nodes ask about cells: a code on a line, whether it is below a number or what a table answers to it.

    A numeric column has a line of its cells' numbers, and if some values are missing a second one in which their cell
    is the first instead of the last: nodes that send them left ask about that one.

    Attributes
    ----------
    line, cut : integers (N,)
        The line of a node, -1 at a leaf; codes below ``cut`` go left.
    base, answers : integers (N,), booleans, or None
        Of nodes about categories where the answers begin, -1 at others.
    codes : integers (lines, n)
    child, parent : integers (2 N,), (N,)
        Right and left child of each node, side by side; the node above, itself at a root.
    """

    line: Small
    cut: Small
    base: Indices | None
    answers: Flags | None
    codes: Small
    child: Small
    parent: Small

    def left(self, node: Small, code: Small) -> Flags:
        """Which of the nodes send the codes left that stand on their lines."""
        found = code < np.take(self.cut, node)
        if self.base is not None and self.answers is not None:
            base = np.take(self.base, node)
            listed = np.flatnonzero(base >= 0)
            found[listed] = np.take(self.answers, base[listed] + code[listed])
        return np.asarray(found)

    def cells_left(self, nodes: Indices, cells: Cells) -> Flags:
        """(nodes, cells): which of the cells each node sends left."""
        codes = self.codes[:, cells.plan.speaker]
        found = codes[self.line[nodes]] < self.cut[nodes, None]
        if self.base is not None and self.answers is not None:
            listed = np.flatnonzero(self.base[nodes] >= 0)
            asked = self.base[nodes[listed], None] + codes[self.line[nodes[listed]]]
            found[listed] = np.take(self.answers, asked)
        return np.asarray(found)


def splits_of(ensemble: Ensemble, columns: Sequence[Cells]) -> Splits:
    """The splits of an ensemble whose columns have these cells."""
    size = len(ensemble.feature)
    line, cut = np.full(size, -1, dtype=np.int32), np.zeros(size, dtype=np.int32)
    base = np.full(size, -1, dtype=np.int64)
    codes: list[Indices] = []
    answers: list[Flags] = []
    start = 0
    for found in columns:
        nodes = np.flatnonzero(ensemble.feature == found.columns[0])
        line[nodes] = len(codes)
        codes.append(found.label)
        if np.any(ensemble.category[nodes] >= 0):
            told = ensemble.decide(nodes, found.value[:, 0])
            base[nodes] = start + np.arange(len(nodes)) * found.number
            answers.append(told.reshape(-1))
            start += told.size
            continue
        with np.errstate(over="ignore"):  # beyond float32 is infinite there, too
            value = found.value[:, 0].astype(ensemble.compared_in).astype(np.float64)
        present = value[~np.isnan(value)]
        cut[nodes] = np.searchsorted(present, ensemble.threshold[nodes], side="right")
        if len(present) < found.number:
            along = nodes[ensemble.missing_left[nodes]]
            line[along], cut[along] = len(codes), cut[along] + 1
            codes.append(np.where(found.label == len(present), 0, found.label + 1))
    parent = np.arange(size, dtype=np.int32)
    inner = np.flatnonzero(ensemble.feature >= 0)
    parent[ensemble.left[inner]] = parent[ensemble.right[inner]] = inner
    child = np.stack([ensemble.right, ensemble.left], axis=1).reshape(-1).astype(np.int32)
    listed, told_apart = (base, np.concatenate(answers)) if answers else (None, None)
    return Splits(line, cut, listed, told_apart, np.stack(codes).astype(np.int32), child, parent)


class Runs(NamedTuple):
    """Runs of cells, node after node: ``start[k]`` to ``stop[k]`` for k from ``begin[node]`` to ``begin[node + 1]``."""

    begin: Indices
    start: Small
    stop: Small

    @property
    def nbytes(self) -> int:
        return self.begin.nbytes + self.start.nbytes + self.stop.nbytes


def gathered(size: int, parts: Sequence[tuple[Indices, Indices, Indices]]) -> Runs:
    """The runs of ``size`` nodes, from parts of (node, start, stop)."""
    none = np.zeros(0, dtype=np.int64)
    node, start, stop = (np.concatenate(arrays) for arrays in zip((none, none, none), *parts, strict=True))
    order = np.argsort(node, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=size))])
    return Runs(begin, start[order].astype(np.int32), stop[order].astype(np.int32))


# ---------------------------------------------------------------------------------------------------------------------
# Sets


def owners(ensemble: Ensemble, measured: Sequence[Cells]) -> Small:
    """(N,): which of the measured columns or groups a node asks about; -1 for others, and at a leaf."""
    found = np.full(ensemble.n_features + 1, -1, dtype=np.int32)  # the last: of leaves, whose column is -1
    for place, cells in enumerate(measured):
        found[list(cells.columns)] = place
    return np.asarray(found[ensemble.feature])


def before(ensemble: Ensemble, owner: Small, measured: int) -> Small:
    """(N,): of each node the last one above, itself not, that is below a split on the feature its parent asks about.

    -1 where there is none, at roots and below splits on what is not measured.
    """
    found = np.full(len(owner), -1, dtype=np.int32)
    for trees in tree_chunks(ensemble, measured + 1):
        nodes = roots = ensemble.roots[trees.start : trees.stop]
        # One more for what is not measured, whose number -1 is the last place.
        latest = np.full((len(roots), measured + 1), -1, dtype=np.int32)
        while len(nodes):
            inner = np.flatnonzero(ensemble.feature[nodes] >= 0)
            here, above = nodes[inner], latest[inner]
            own = owner[here]
            last = np.where(own < 0, -1, above[np.arange(len(here)), own])
            below = []
            for child in (ensemble.left[here], ensemble.right[here]):
                found[child] = last
                after = above.copy()
                after[np.arange(len(here)), own] = child
                below.append((child, after))
            nodes, latest = (np.concatenate(parts) for parts in zip(*below, strict=True))
    return found


def tree_chunks(ensemble: Ensemble, width: int) -> list[range]:
    """As many trees at a time as have nodes for a table of this width, at least one."""
    sizes = np.diff(np.append(ensemble.roots, len(ensemble.feature)))
    chunk = (np.cumsum(sizes) - sizes) * max(width, 1) // _ENTRIES
    edges = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(sizes)]
    return [range(start, stop) for start, stop in pairwise(edges)]


def by_trees(ensemble: Ensemble, nodes: Indices, width: int) -> list[Indices]:
    """Nodes, which are sorted, of some trees at a time."""
    starts = [ensemble.roots[trees.start] for trees in tree_chunks(ensemble, width)[1:]]
    return [some for some in np.split(nodes, np.searchsorted(nodes, starts)) if len(some)]


def intervals(
    ensemble: Ensemble, splits: Splits, nodes: Indices, last: Small, cells: Cells
) -> tuple[Indices, Indices, Indices]:
    """Runs (node, start, stop) of a numeric column's cells; ``nodes``, below splits on it, those of a tree from above.

    ``last``: as `before` says.
    """
    missing = int(np.count_nonzero(np.isnan(cells.value[:, 0])))
    number = cells.number - missing
    size = len(ensemble.feature)
    first, stop, also = np.zeros(size + 1, dtype=np.int64), np.full(size + 1, number), np.full(size + 1, missing > 0)
    for some in _generations(nodes, last):
        above, parent = last[some], splits.parent[some]  # -1: the last place, which has all cells
        moved = ensemble.missing_left[parent] & (missing > 0)
        cut, left = splits.cut[parent] - moved, ensemble.left[parent] == some
        first[some] = np.where(left, first[above], np.maximum(first[above], cut))
        stop[some] = np.where(left, np.minimum(stop[above], cut), stop[above])
        also[some] = also[above] & (left == ensemble.missing_left[parent])
    there, along = nodes[first[nodes] < stop[nodes]], nodes[also[nodes]]
    # Missing values stand behind the largest: one run with it.
    joined = also[there] & (stop[there] == number)
    alone = along[(first[along] >= stop[along]) | (stop[along] < number)]
    return (
        np.concatenate([there, alone]),
        np.concatenate([first[there], np.full(len(alone), number)]),
        np.concatenate([stop[there] + joined, np.full(len(alone), number + 1)]),
    )


def sets(
    ensemble: Ensemble, splits: Splits, nodes: Indices, last: Small, cells: Cells
) -> tuple[Indices, Indices, Indices]:
    """The same of any cells, by what each split answers to each of them."""
    place = np.full(len(ensemble.feature) + 1, -1)
    place[nodes] = np.arange(len(nodes))
    found = np.empty((len(nodes) + 1, cells.number), dtype=bool)
    found[-1] = True  # nothing above: all cells
    step = max(_ENTRIES // cells.number, 1)
    for generation in _generations(nodes, last):
        for some in (generation[k : k + step] for k in range(0, len(generation), step)):
            parent = splits.parent[some].astype(np.int64)
            here = splits.cells_left(parent, cells) == (ensemble.left[parent] == some)[:, None]
            found[place[some]] = here & found[place[last[some]]]
    found = found[:-1]
    edge = np.zeros((len(nodes), 1), dtype=bool)
    begins = np.flatnonzero(found & ~np.concatenate([edge, found[:, :-1]], axis=1))
    ends = np.flatnonzero(found & ~np.concatenate([found[:, 1:], edge], axis=1))
    return nodes[begins // cells.number], begins % cells.number, ends % cells.number + 1


def _generations(nodes: Indices, last: Small) -> Iterator[Indices]:
    """The nodes whose last one above is none, then those whose last one is one of these, and so on."""
    ready, rest = np.zeros(len(last) + 1, dtype=bool), nodes
    ready[-1] = True
    while len(rest):
        now = ready[last[rest]]
        yield rest[now]
        ready[rest[now]] = True
        rest = rest[~now]
