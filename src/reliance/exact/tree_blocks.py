"""The sums of a block of rows from the trees of an ensemble: what its engines share, and the one by leaf masks.

An engine answers `block(rows)` with the rows' own predictions and, for each measured column, the packed sums of
`kernels.tile_sums`, whose columns are the cells. Trees of many leaves have their own: see `walk_blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, tracing
from reliance._core.kinds import Array, DType, HostArray
from reliance.engine import kernels
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.rounding import ROUNDING
from reliance.exact.cells import Cells
from reliance.exact.leaf_masks import Skeleton, Tree, fold_trees, mask_tables, running_sum
from reliance.losses import functions as _losses
from reliance.losses.functions import Loss
from reliance.losses.outputs import is_whole
from reliance.models.ensembles import Ensemble, Finish

Floats = NDArray[np.float64]
Given = TypeVarTuple("Given")
Answer = TypeVar("Answer")
# Rows of a block: an operation should be worth its call; and bytes, so that a tree's part stays in a core's cache.
MASK_ROWS, ACCELERATOR_ROWS = 2048, 2**15
_FEWEST_ROWS, _CACHED = 256, 3 * 2**18


class Context(NamedTuple):
    """What the sums depend on besides their arrays: the key of a compilation.

    ``slack``: by how much rounding may move raw outputs. ``grid``: to multiples of what they are rounded, if at all.
    """

    losses: tuple[Loss, ...]
    finish: Finish
    slack: float
    grid: float | None


class Rows(NamedTuple):
    """A block of rows on the device: own raw outputs (b, K), targets, weights."""

    raw: Array
    targets: tuple[Array, ...]
    weights: Array | None


# ---------------------------------------------------------------------------------------------------------------------
# Pure functions


def table_sums(context: Context, changes: Array, rows: Rows, counts: Array) -> Array:
    """The packed sums of a column, one loss after the other, from the changes (K, m, b) where its m cells begin.

    A row's own cell needs no mask: its prediction is the row's own.
    """
    xp = arrays.namespace(changes)
    outputs, m, b = changes.shape
    moves = running_sum(changes)
    raw = xp.permute_dims(rows.raw, (1, 0))[:, None, :] + moves
    raw = xp.reshape(xp.permute_dims(raw, (1, 2, 0)), (m * b, outputs))
    targets = tuple(_repeated(target, m) for target in rows.targets)
    found, flags = _answers(context, raw, targets, moves)
    lines = []
    for function, losses, base in zip(context.losses, found, own_losses(context, rows), strict=True):
        by_row = xp.permute_dims(xp.reshape(losses, (m, b)), (1, 0))
        lines.append(kernels.tile_sums(by_row, base, rows.weights, None, counts, None, flags, is_whole(function)))
    return xp.concat(lines)


def piece_changes(context: Context, moves: Array, rows: Rows, row: Array) -> tuple[Array, Array]:
    """Changes D of the losses (L, e) for pieces that move a row's raw outputs by ``moves (e, K)``; and the flags."""
    xp = arrays.namespace(moves)
    raw = xp.take(rows.raw, row, axis=0) + moves
    targets = tuple(xp.take(target, row, axis=0) for target in rows.targets)
    found, flags = _answers(context, raw, targets, moves)
    base = own_losses(context, rows)
    wide = arrays.sum_dtype(xp, arrays.device(moves))
    pairs = [[xp.astype(a, wide, copy=False) for a in pair] for pair in zip(found, base, strict=True)]
    return xp.stack([losses - xp.take(own, row) for losses, own in pairs]), flags


def predicted(context: Context, raw: Array) -> Array:
    """The predictions of raw outputs (m, K).

    Shares of classes are sums of changes, and rounding must neither make 0 negative nor break a tie: so they are
    rounded to a power of two far below what matters and above what rounding does.
    """
    if context.grid is not None:
        raw = arrays.namespace(raw).round(raw / context.grid) * context.grid
    return context.finish(raw)


def own_losses(context: Context, rows: Rows) -> list[Array]:
    """l(i), from the trees themselves: where nothing moves, nothing changes."""
    own = predicted(context, rows.raw)
    return [_losses.row_losses(f, t, own) for f, t in zip(context.losses, rows.targets, strict=True)]


def _answers(context: Context, raw: Array, targets: tuple[Array, ...], moves: Array) -> tuple[tuple[Array, ...], Array]:
    """Losses of raw outputs (m, K), and the flags of `kernels.tile_sums`."""
    xp = arrays.namespace(raw)
    predictions = predicted(context, raw)
    found = kernels.answers(context.losses, targets, predictions, (raw.shape[0],))
    up, down = xp.max(moves), xp.min(moves)
    moved = xp.where(up > -down, up, -down) - context.slack
    valid = kernels.is_valid(context.losses, predictions)
    return found, xp.stack([moved, xp.ones_like(moved) if valid is None else xp.astype(valid, moved.dtype)])


def _repeated(x: Array, m: int) -> Array:
    """``(b, ...) -> (m b, ...)``: all rows, m times."""
    xp = arrays.namespace(x)
    return xp.reshape(xp.broadcast_to(x[None, ...], (m, *x.shape)), (m * x.shape[0], *x.shape[1:]))


def _folded(context: Context, table: Array, codes: Array, trees: list[Tree[Array]]) -> Array:
    return fold_trees(table, codes, trees)


# ---------------------------------------------------------------------------------------------------------------------
# Engines


@dataclass(frozen=True, eq=False)
class Setting:
    """What all engines work on: the problem, its base pass, the ensemble, and the cells of its columns."""

    problem: Problem
    base: Base
    ensemble: Ensemble
    bones: Skeleton

    @cached_property
    def dtype(self) -> DType:
        """Of raw outputs: the widest."""
        return arrays.sum_dtype(self.problem.xp, self.problem.device)

    @cached_property
    def context(self) -> Context:
        largest = np.maximum.reduceat(np.max(np.abs(self.ensemble.value), axis=1), self.ensemble.roots)
        eps = float(self.problem.xp.finfo(self.dtype).eps)
        scale = 2.0 ** math.ceil(math.log2(max(float(largest.sum()), 1e-300)))
        grid = 64.0 * eps * scale if self.adds_shares else None
        return Context(self.problem.losses, self.ensemble.finish, ROUNDING * eps * scale, grid)  # type: ignore[arg-type]

    @property
    def adds_shares(self) -> bool:
        """Whether raw outputs are sums of the leaves' shares of several classes."""
        finish, leaves = self.ensemble.finish, self.ensemble.value[self.ensemble.feature < 0]
        shares = bool(np.all(leaves >= 0.0)) and np.allclose(leaves.sum(axis=1), 1.0)
        return shares and finish.link == "identity" and finish.output in ("columns", "argmax")

    @cached_property
    def constant(self) -> Floats:
        """(K,): the offset, and the trees that are one leaf."""
        stumps = self.ensemble.roots[self.ensemble.feature[self.ensemble.roots] < 0]
        return np.asarray(self.ensemble.offset + self.ensemble.value[stumps].sum(axis=0))

    def rows(self, raw: Array, rows: range) -> Rows:
        cut, weights = slice(rows.start, rows.stop), self.base.weights
        return Rows(raw, tuple(t[cut, ...] for t in self.base.targets), None if weights is None else weights[cut])

    def own_predictions(self, raw: Array) -> HostArray:
        """On the host, to be compared with the library's."""
        finish = self.ensemble.finish
        return arrays.to_host(predicted(self.context, raw) if finish.exact else finish(raw))

    def floats(self, values: HostArray) -> Array:
        return arrays.from_host(values, self.problem.xp, self.problem.device, self.dtype)

    def integers(self, values: HostArray) -> Array:
        xp = self.problem.xp
        return arrays.from_host(values, xp, self.problem.device, arrays.index_dtype(xp))

    def compiled(self, function: Callable[[Context, *Given], Answer]) -> Callable[[*Given], Answer]:
        """``function`` with the context, on JAX compiled."""
        context = self.context

        def bound(*data: *Given) -> Answer:
            return function(context, *data)

        name = getattr(function, "__name__", "sums")
        return bound if arrays.is_mutable(self.problem.xp) else tracing.traced(bound, name)

    def padded(self, size: int) -> int:
        """On JAX, where a shape is a compilation, sizes are powers of two."""
        return size if arrays.is_mutable(self.problem.xp) else 1 << max(size - 1, 0).bit_length()


class TreeEngine(Protocol):
    """How a block of rows is measured, and what it needs."""

    rows: int
    row_bytes: int
    held_bytes: int

    def block(self, rows: range) -> tuple[HostArray, list[Floats]]:
        """Own predictions of the rows; for each measured column its packed sums, one loss after the other."""
        ...

    def width(self, cells: Cells) -> int:
        """How many columns the packed sums are computed in: the cells, perhaps padded."""
        ...


class MaskEngine:
    """Trees of few leaves: the whole table of rows and cells, from the changes that the trees add to it."""

    def __init__(self, setting: Setting, singles: list[Cells], measured: list[Cells]) -> None:
        """``singles``: the cells of every column, of which ``measured`` holds some, or a group of columns."""
        self.setting = setting
        groups = [cells for cells in measured if len(cells.columns) > 1]
        grouped = {column for cells in groups for column in cells.columns}
        columns = [*groups, *(cells for cells in singles if cells.columns[0] not in grouped)]
        problem, xp = setting.problem, setting.problem.xp
        places = [columns.index(cells) for cells in measured]
        self.tables = tables = mask_tables(
            setting.ensemble, setting.bones, columns, places, xp, problem.device, setting.dtype
        )
        self.codes = setting.integers(np.stack([cells.label for cells in columns]))
        self.constant = setting.floats(setting.constant)
        self.sizes = [cells.number for cells in measured]
        self.counts = [setting.floats(np.pad(c.counts, (0, setting.padded(c.number) - c.number))) for c in measured]
        self.lines = [self._lines(place) for place in range(len(measured))]
        self.fold, self.sums = setting.compiled(_folded), setting.compiled(table_sums)
        fitting = 1 << (_CACHED // (8 * tables.widest)).bit_length() - 1
        self.rows = max(_FEWEST_ROWS, min(MASK_ROWS, fitting))
        if arrays.is_accelerator(xp, problem.device):
            self.rows = ACCELERATOR_ROWS
        # The table; a tree's masks, indices and values; a column's moves, raw outputs, predictions, targets, losses.
        width = max(self.sizes)
        self.row_bytes = 8 * (tables.lines + 5 * tables.widest + (4 * tables.outputs + 4 * len(problem.losses)) * width)
        self.held_bytes = 8 * len(columns) * problem.n + tables.nbytes

    def _lines(self, place: int) -> list[slice] | Array:
        """Where the cells of a measured column stand in the table: slices, or indices where shapes are padded."""
        tables, size = self.tables, self.sizes[place]
        first = [k * tables.cells + tables.start[place] for k in range(tables.outputs)]
        if arrays.is_mutable(self.setting.problem.xp):
            return [slice(start, start + size) for start in first]
        index = np.full((tables.outputs, self.setting.padded(size)), tables.lines - 1)
        index[:, :size] = np.asarray(first)[:, None] + np.arange(size)
        return self.setting.integers(index.reshape(-1))

    def width(self, cells: Cells) -> int:
        return self.setting.padded(cells.number)

    def _changes(self, table: Array, lines: list[slice] | Array) -> Array:
        xp = self.setting.problem.xp
        if not isinstance(lines, list):
            taken = xp.take(table, lines, axis=0)
            return xp.reshape(taken, (self.tables.outputs, -1, table.shape[1]))
        return table[None, lines[0], :] if len(lines) == 1 else xp.stack([table[cut, :] for cut in lines])

    def block(self, rows: range) -> tuple[HostArray, list[Floats]]:
        setting, tables = self.setting, self.tables
        xp = setting.problem.xp
        codes = self.codes[:, rows.start : rows.stop]
        zeros = xp.zeros((tables.lines, len(rows)), dtype=setting.dtype, device=setting.problem.device)
        table = self.fold(zeros, codes, tables.trees)
        own = table[tables.outputs * tables.cells : tables.outputs * (tables.cells + 1), :]
        data = setting.rows(xp.permute_dims(own, (1, 0)) + self.constant, rows)
        sums = [
            self.sums(self._changes(table, lines), data, counts)
            for lines, counts in zip(self.lines, self.counts, strict=True)
        ]
        return setting.own_predictions(data.raw), arrays.fetch(sums)
