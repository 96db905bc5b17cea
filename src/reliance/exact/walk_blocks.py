"""The sums of a block of rows from walks through trees of many leaves: of single columns, or of columns together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance.exact import reached
from reliance.exact.cells import Cells
from reliance.exact.reached import Runs
from reliance.exact.tree_blocks import Setting, piece_changes, table_sums
from reliance.exact.walks import Pieces, Walks, walk_tables
from reliance.losses.outputs import is_whole

Floats = NDArray[np.float64]
# Rows of a block of walks.
WALK_ROWS = 256
# Bytes of a walk with its copies, and for each output of it; on how many rows walks are counted, and by how much more
# others may have.
_WALK_BYTES, _OUTPUT_BYTES, _COUNTED, _MORE = 120, 80, 8, 1.25
# Entries of a table of rows and joint cells, and the fewest rows.
_TABLE, _FEWEST_ROWS = 1 << 22, 16


class WalkEngine:
    """Single columns: pieces of the table, from walks on the host."""

    def __init__(self, setting: Setting, singles: list[Cells], measured: list[Cells]) -> None:
        self.setting, self.measured = setting, measured
        self.tables = walk_tables(setting.ensemble, singles, measured)
        self.codes = self.tables.walks.splits.codes
        # Donors in the cells below each edge, column after column.
        self.below = np.concatenate([np.concatenate([[0.0], np.cumsum(cells.counts)]) for cells in measured])
        self.edge = edge = self.tables.edge
        self.column = np.repeat(np.arange(len(measured)), np.diff(edge))
        self.changes = setting.compiled(piece_changes)
        self.rows = WALK_ROWS
        problem, outputs = setting.problem, setting.ensemble.value.shape[1]
        counted = np.unique(np.linspace(0, problem.n - 1, _COUNTED).astype(np.int64))
        runs = self.tables.most_runs(np.ascontiguousarray(self.codes[:, counted]))
        each = _WALK_BYTES + _OUTPUT_BYTES * outputs + 24 * len(problem.losses)
        # Walks; leaves of rows; the sums of rows; whole tables, if they are kept.
        self.row_bytes = int(_MORE * runs * each) + 16 * outputs * len(setting.ensemble.roots) + 48 * len(measured)
        self.row_bytes += 40 * int(edge[-1]) * sum(is_whole(function) for function in problem.losses)
        self.held_bytes = self.codes.nbytes + self.tables.nbytes + 64 * int(edge[-1])

    def block(self, rows: range) -> tuple[HostArray, list[Floats]]:
        setting = self.setting
        own, pieces = self.tables.pieces(np.ascontiguousarray(self.codes[:, rows.start : rows.stop]))
        raw = setting.floats(own + setting.ensemble.offset)
        data = setting.rows(raw, rows)
        e = len(pieces.row)
        padding = max(setting.padded(e), 1) - e
        moves = setting.floats(np.pad(pieces.change, ((0, padding), (0, 0))))
        row = setting.integers(np.pad(pieces.row, (0, padding)))
        changes, flags = (arrays.to_host(part) for part in self.changes(moves, data, row))
        changes = changes[:, :e].astype(np.float64, copy=False)
        weights = setting.problem.host_weights
        weights = None if weights is None else weights[rows.start : rows.stop]
        lines = [
            self._packed(pieces, change, weights, len(rows), flags, is_whole(function))
            for change, function in zip(changes, setting.context.losses, strict=True)
        ]
        return setting.own_predictions(raw), [np.concatenate(parts) for parts in zip(*lines, strict=True)]

    def width(self, cells: Cells) -> int:
        return cells.number

    def _packed(
        self, pieces: Pieces, change: Floats, weights: Floats | None, b: int, flags: HostArray, whole: bool
    ) -> list[Floats]:
        """For each column what `kernels.tile_sums` packs, from the change of the loss in each piece."""
        columns, edge, (row, start, stop, _) = len(self.measured), self.edge, pieces
        column = np.take(self.column, start)
        place = row * np.int64(columns) + column
        total = np.take(self.below, stop)
        total -= np.take(self.below, start)
        total *= change
        by_row = np.bincount(place, total, columns * b).reshape(b, columns)
        total *= change
        squares = np.bincount(place, total, columns * b).reshape(b, columns)
        weighted = change if weights is None else change * weights[row]
        # Sums of cells: each piece is added from its first cell on and taken away behind its last.
        steps = np.bincount(start, weighted, edge[-1]) - np.bincount(stop, weighted, edge[-1])
        by_cell = [np.cumsum(part[:-1]) for part in np.split(steps, edge[1:-1])]
        cells = self._cells(pieces, column, change, b) if whole else [np.zeros(0)] * columns
        moved = np.bincount(column, minlength=columns) > 0
        return [
            np.concatenate(
                [by_row[:, k], by_cell[k], squares[:, k], flags[:1] if moved[k] else [0.0], flags[1:], cells[k]]
            )
            for k in range(columns)
        ]

    def _cells(self, pieces: Pieces, column: NDArray[np.int64], change: Floats, b: int) -> list[Floats]:
        """For each column the whole table of changes, (b, cells) flattened."""
        found = []
        for k, size in enumerate(np.diff(self.edge)):
            mine = column == k
            row, value = pieces.row[mine] * size - self.edge[k], change[mine]
            start, stop = (np.bincount(row + at[mine], value, b * size) for at in (pieces.first, pieces.stop))
            found.append(np.cumsum((start - stop).reshape(b, size), axis=1)[:, :-1].reshape(-1))
        return found


class JointWalkEngine:
    """Columns together, whose joint cells are in no order: the whole table of rows and cells, from the same walks.

    A walk adds its change where each of its runs of cells begins and takes it away behind: a product of sparse
    matrices. One running sum over the cells gives the ensemble. Which cells come to a node is found for some trees at
    a time, and kept if a quarter of the memory holds it.
    """

    def __init__(self, setting: Setting, singles: list[Cells], measured: list[Cells]) -> None:
        (self.cells,) = measured
        self.setting, ensemble, problem = setting, setting.ensemble, setting.problem
        splits, owner = reached.splits_of(ensemble, singles), reached.owners(ensemble, measured)
        self.codes = splits.codes
        self.last = reached.before(ensemble, owner, 1)
        nodes = np.flatnonzero(owner >= 0)
        self.nodes = np.sort(np.concatenate([ensemble.left[nodes], ensemble.right[nodes]]))
        self.walks = Walks(ensemble, splits, owner, np.ones(len(owner), dtype=bool))
        self.trees = reached.tree_chunks(ensemble, self.cells.number)
        alive = np.zeros(len(owner), dtype=bool)
        self.kept: dict[range, Runs] = {}
        held, largest = 0, 0
        for trees in self.trees:
            runs = self._runs(trees)
            alive |= np.diff(runs.begin) > 0
            largest = max(largest, runs.nbytes)
            if held + runs.nbytes <= problem.memory // 4:
                self.kept[trees] = runs
                held += runs.nbytes
        self.walks = Walks(ensemble, splits, owner, alive)
        self.sums = setting.compiled(table_sums)
        m, outputs = setting.padded(self.cells.number), ensemble.value.shape[1]
        self.counts = setting.floats(np.pad(self.cells.counts, (0, m - self.cells.number)))
        self.rows = max(_FEWEST_ROWS, min(4 * WALK_ROWS, _TABLE // m))
        # The table, its copies and a product; losses; walks of some trees.
        self.row_bytes = 8 * m * (6 * outputs + 3 + 4 * len(problem.losses)) + 64 * len(ensemble.roots) * (1 + outputs)
        self.held_bytes = held + 4 * largest + self.codes.nbytes + 64 * len(owner)

    def _runs(self, trees: range) -> Runs:
        """Of all nodes, without any outside of these trees."""
        ensemble = self.setting.ensemble
        ends = np.append(ensemble.roots, len(ensemble.feature))[[trees.start, trees.stop]]
        first, stop = np.searchsorted(self.nodes, ends)
        found = reached.sets(ensemble, self.walks.splits, self.nodes[first:stop], self.last, self.cells)
        return reached.gathered(len(ensemble.feature), [found])

    def block(self, rows: range) -> tuple[HostArray, list[Floats]]:
        setting, b, m = self.setting, len(rows), self.cells.number
        codes = np.ascontiguousarray(self.codes[:, rows.start : rows.stop])
        own = np.zeros((b, setting.ensemble.value.shape[1]))
        table = np.zeros((own.shape[1], b, m + 1))
        for trees in self.trees:
            steps = _steps(self.kept[trees] if trees in self.kept else self._runs(trees), m)
            for some in self.walks.tree_ranges(b, trees):
                values, found = self.walks.ends(codes, some)
                own += values
                for k, changes in enumerate(table):
                    ends = sparse.csr_array((found.change[:, k], (found.row, found.node)), shape=(b, steps.shape[0]))
                    changes += (ends @ steps).toarray()
        raw = setting.floats(own + setting.ensemble.offset)
        changes = np.pad(table[:, :, :m], ((0, 0), (0, 0), (0, setting.padded(m) - m))).transpose(0, 2, 1)
        sums = self.sums(setting.floats(np.ascontiguousarray(changes)), setting.rows(raw, rows), self.counts)
        return setting.own_predictions(raw), arrays.fetch([sums])

    def width(self, cells: Cells) -> int:
        return self.setting.padded(cells.number)


def _steps(runs: Runs, cells: int) -> sparse.csr_array:
    """(nodes, cells + 1): 1 where runs of a node begin, -1 behind their ends."""
    index = np.stack([runs.start, runs.stop], axis=1).reshape(-1)
    signs = np.tile([1.0, -1.0], len(runs.start))
    return sparse.csr_array((signs, index, 2 * runs.begin), shape=(len(runs.begin) - 1, cells + 1))
