"""All pairs of a tree ensemble: an n x m table of rows and cells for each feature, from passes over the trees alone.

The trees cannot tell apart donors of one cell (see `cells`), and the changes of the prediction along a column's cells
come from the trees themselves (see `tree_blocks`); losses and sums are those of the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from reliance._core import arrays, threads
from reliance.data.features import Feature
from reliance.engine import blocks
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Accumulator, Moments
from reliance.exact import trust
from reliance.exact.cells import Cells, column_cells, joint_cells, neighbouring
from reliance.exact.leaf_masks import skeleton
from reliance.exact.tree_blocks import MaskEngine, Setting, TreeEngine
from reliance.exact.trust import Disagreement
from reliance.exact.walk_blocks import JointWalkEngine, WalkEngine
from reliance.losses.outputs import is_score, is_whole
from reliance.models import ensembles
from reliance.models.ensembles import Ensemble
from reliance.plans import Tile

# The coarsest precision in which sums over trees rank scores.
_FINE = 1e-10
Advance = Callable[[int], None]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, eq=False)
class TreeReading:
    """A tree ensemble, with the cells of each column that some tree splits on."""

    setting: Setting
    cells: dict[int, Cells]
    joint: dict[tuple[int, ...], Cells] = field(default_factory=dict)

    @cached_property
    def deep(self) -> bool:
        """Whether some tree has more leaves than an integer has bits."""
        leaves = int(self.setting.bones.leaves.max())
        return arrays.mask_size(self.setting.problem.xp, leaves) is None

    def used(self, feature: Feature) -> tuple[int, ...]:
        """The columns of a feature that some tree splits on."""
        return tuple(column for column in feature.columns if column in self.cells)

    def cells_of(self, columns: tuple[int, ...]) -> Cells:
        """The cells of some columns together."""
        if len(columns) == 1:
            return self.cells[columns[0]]
        if columns not in self.joint:
            found = joint_cells([self.cells[column] for column in columns])
            self.joint[columns] = neighbouring(found) if self.deep else found
        return self.joint[columns]

    @cached_property
    def ties(self) -> bool:
        """Whether classes or scores that tie are told apart by the order in which the library adds the trees' shares.

        Sums of numbers of few digits, such as the votes of pure leaves, are exact in any order.
        """
        setting, ensemble = self.setting, self.setting.ensemble
        ranks = any(map(is_score, setting.problem.losses))
        if ranks and float(setting.problem.xp.finfo(setting.dtype).eps) > _FINE:
            return True  # single precision: too many scores are as near to each other as rounding brings equal ones
        labels = ensemble.finish.output == "argmax" or any(f.labels for f in setting.problem.losses)
        if not (labels or ranks) or not setting.adds_shares or len(ensemble.roots) == 1:
            return False
        return not np.array_equal(ensemble.value, np.round(ensemble.value * 2.0**20) / 2.0**20)

    def moments(self, wanted: dict[str, Cells], advance: Advance) -> blocks.Evaluated:
        """The moments of features with these cells: single columns together, each group of columns alone."""
        problem = self.setting.problem
        found: dict[str, tuple[Moments, ...]] = {}
        block = (0, 0)
        singles = {name: cells for name, cells in wanted.items() if len(cells.columns) == 1}
        groups = [{name: cells} for name, cells in wanted.items() if len(cells.columns) > 1]
        # As many features at a time as half of the memory holds the sums of.
        each = max((Accumulator.nbytes(cells.plan) for cells in wanted.values()), default=1) * len(problem.losses)
        size, names = max(1, problem.memory // (2 * each)), list(singles)
        batches = [{name: singles[name] for name in names[k : k + size]} for k in range(0, len(names), size)]
        for together in (*batches, *groups):
            run = self._pass(together, advance, _workers(problem))
            found.update(run.moments)
            block = max(block, run.block)
        return blocks.Evaluated(found, block)

    def _engine(self, measured: list[Cells]) -> TreeEngine:
        singles = list(self.cells.values())
        if not self.deep:
            return MaskEngine(self.setting, singles, measured)
        joint = len(measured) == 1 and len(measured[0].columns) > 1
        return (JointWalkEngine if joint else WalkEngine)(self.setting, singles, measured)

    def _pass(self, wanted: dict[str, Cells], advance: Advance, workers: int) -> blocks.Evaluated:
        """One pass over the trees for all wanted features, block of rows by block of rows."""
        problem, base = self.setting.problem, self.setting.base
        # Features with the same used columns have the same cells and are measured once.
        measured = list({id(cells): cells for cells in wanted.values()}.values())
        sums = [tuple(Accumulator.init(cells.plan, is_whole(f)) for f in problem.losses) for cells in measured]
        engine = self._engine(measured)
        held = engine.held_bytes + sum(len(problem.losses) * Accumulator.nbytes(cells.plan) for cells in measured)
        height = _block_rows(problem, engine, held, workers)
        parts = [range(start, min(start + height, problem.n)) for start in range(0, problem.n, height)]
        for rows, (own, lines) in zip(parts, in_order(engine.block, parts, workers), strict=True):
            library = arrays.to_host(base.predictions[rows.start : rows.stop, ...])
            if own.size == library.size:  # one output as a column or not
                library = library.reshape(own.shape)
            if not ensembles.agrees(self.setting.ensemble, own, library):
                raise Disagreement
            for cells, accumulators, packed in zip(measured, sums, lines, strict=True):
                tile = Tile(rows, range(cells.number))
                name = next(name for name, found in wanted.items() if found is cells)
                shape, layouts = (len(rows), engine.width(cells)), tuple(total.layout for total in accumulators)
                found = blocks.unpacked(problem, name, layouts, tile, packed, shape)
                for total, one in zip(accumulators, found, strict=True):
                    total.merge(one)
                advance(len(rows) * cells.number)
        moments = {
            id(cells): tuple(accumulator.finalize(cells.plan) for accumulator in accumulators)
            for cells, accumulators in zip(measured, sums, strict=True)
        }
        width = max(cells.number for cells in measured)
        return blocks.Evaluated({name: moments[id(cells)] for name, cells in wanted.items()}, (height, width))


def read(problem: Problem, base: Base, ensemble: Ensemble) -> TreeReading:
    """Raises `trust.Disagreement` if the trees do not predict what their library predicts."""
    trust.check_trees(problem, base, ensemble)
    used = np.unique(ensemble.feature[ensemble.feature >= 0]).tolist()

    def host(column: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(arrays.to_host(problem.store.column(column)), dtype=np.float64)

    found = list(in_order(lambda column: column_cells(ensemble, column, host(column)), used, _workers(problem)))
    setting = Setting(problem, base, ensemble, skeleton(ensemble))
    return TreeReading(setting, dict(zip(used, found, strict=True)))


def _block_rows(problem: Problem, engine: TreeEngine, held: int, workers: int) -> int:
    """How many rows a block has: the engine's choice, or what the user says or the memory allows."""
    if isinstance(problem.block, int):
        return problem.block
    if isinstance(problem.block, tuple):
        return problem.block[0]
    affordable = (problem.memory - held) // (engine.row_bytes * workers)
    if affordable < 1:
        raise ValueError(
            f"memory={problem.memory} bytes is too small: the route through the trees needs at least "
            f"{held + engine.row_bytes * workers}; pass a larger one to rl.Run, or route='plain'"
        )
    return int(min(engine.rows, affordable))


def _workers(problem: Problem) -> int:
    """NumPy leaves the other cores idle, and lets go of the interpreter while it works; other backends use them."""
    if arrays.backend(problem.xp) != "numpy":
        return 1
    return threads.available()


def in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """``map(function, items)`` by some threads, answers in the order of the items, few of them waiting."""
    if workers == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
