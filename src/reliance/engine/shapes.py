"""How many rows a block has, and which shape a tile: by sizes, backend, device and memory, never by a clock."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reliance import plans
from reliance._core import arrays
from reliance.data.features import Feature
from reliance.engine.problems import Problem
from reliance.engine.reductions import Accumulator
from reliance.losses.functions import Metric
from reliance.plans import Plan

# Rows of a block. On a CPU a block, whose losses are summed at once, may be several calls of the model, so that the
# model's activations stay in the cache; an accelerator wants work.
_CPU_ROWS = 16384
_CPU_BLOCK_BYTES = 2**25
_ACCELERATOR_ROWS = 2**17
# Temporaries of a block's losses: losses, changes, weighted changes, squares, repeated targets, donor indices.
_CELL_BYTES = 6 * 8


def call_rows(problem: Problem) -> int | None:
    """With how many rows the model is called at most; None: with whole blocks, as the user's ``block`` asks for."""
    if problem.block is not None or arrays.is_accelerator(problem.xp, problem.device):
        return None
    return problem.model.block_rows or arrays.cpu_call_rows(problem.xp, problem.store.row_bytes)


def block_rows(problem: Problem, output_bytes: int, fixed: int = 0) -> int:
    """How many rows a block has: a function of sizes, backend and device, never of a clock."""
    if isinstance(problem.block, int):
        return problem.block
    row_bytes, per_row = problem.store.row_bytes, _row_cost(problem, output_bytes)
    affordable = (problem.memory - fixed) // per_row
    if affordable < 1:
        held = f": sums, losses and predictions of {problem.n} rows take {fixed} bytes"
        raise ValueError(
            f"memory={problem.memory} bytes is too small{held if fixed else ' for one row'}; pass a larger one to "
            f"rl.Run, {fixed + per_row} or more"
        )
    if arrays.is_accelerator(problem.xp, problem.device):
        rows = _ACCELERATOR_ROWS
    else:
        rows = min(_CPU_ROWS, max(_CPU_BLOCK_BYTES // row_bytes, 64))
    return min(rows, affordable)


def _row_cost(problem: Problem, output_bytes: int) -> int:
    """Bytes that a row of a block takes, with its predictions and losses."""
    store = problem.store
    return store.row_bytes + store.own_bytes + 3 * output_bytes + _CELL_BYTES * len(problem.losses)


def planned_bytes(
    problem: Problem,
    plan: Plan,
    output_bytes: int,
    features: tuple[Feature, ...],
    shape: tuple[int, int],
    together: int,
) -> int:
    """What is allocated for some features, and a block that so many of them share, each with a shape in it."""
    held = fixed_bytes(problem, plan, len(features), output_bytes)
    return held + together * shape[0] * shape[1] * _row_cost(problem, output_bytes)


def tile_shape(problem: Problem, plan: Plan, rows: int) -> tuple[int, int]:
    """Rows and columns of a block of at most that many rows, as even as can be."""
    if isinstance(problem.block, tuple):
        b, d = problem.block
        return min(b, plan.n), min(d, plan.columns)
    if plan.rectangular:
        # Square, unless there are fewer columns (or rows) than that.
        d = min(plan.columns, max(math.isqrt(rows), 1))
        b = min(plan.n, max(rows // d, 1))
        return even(plan.n, b), even(plan.columns, max(rows // b, 1))
    if plan.n > rows:
        return even(plan.n, rows), 1
    longest = max(stop - start for start, stop in plans.protocol.stretches(plan))
    return plan.n, even(longest, max(rows // plan.n, 1))


def even(total: int, size: int) -> int:
    """The size, at most ``size``, that cuts ``total`` into equally many pieces of nearly equal length."""
    return math.ceil(total / math.ceil(total / min(size, total)))


def fixed_bytes(problem: Problem, plan: Plan, features: int, output_bytes: int) -> int:
    """Bytes held throughout a pass over some features: accumulators, base losses, what waits in a whole-rows tile."""
    losses = len(problem.losses)
    # Sums twice: those of the unit in hand, and those of all units before it.
    held = 2 * features * losses * Accumulator.nbytes(plan) + plan.n * (2 * output_bytes + 24 * losses)
    held += problem.store.held_bytes
    held += features * max((problem.store.lent_bytes(feature) for feature in problem.features), default=0)
    if not plan.rectangular:
        metrics = sum(isinstance(function, Metric) for function in problem.losses)
        kept = 8 * (losses - metrics) + output_bytes * metrics
        # ... and the plan's ordering, the donors and their users, and one tile's losses on the way to its sums.
        held += plan.n * (features * kept + 8 * (3 + 2 + 2 * losses))
        # What a plan of several orders keeps, and for each feature of the pass its order on the device.
        own = plan.held_bytes(len(problem.features))
        held += own + (8 * features * plan.n if own else 0)
    return held


def batches(
    problem: Problem, plan: Plan, features: tuple[Feature, ...], output_bytes: int
) -> Iterator[tuple[Feature, ...]]:
    """As many features at a time as half of the memory holds the sums of: they share filled blocks."""
    one = fixed_bytes(problem, plan, 1, output_bytes)
    each = fixed_bytes(problem, plan, 2, output_bytes) - one
    size = max(1, 1 + (problem.memory // 2 - one) // each)
    for start in range(0, len(features), size):
        yield features[start : start + size]
