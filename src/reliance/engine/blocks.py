"""The one loop: budget -> tile shape; fill a block, call the model, sum the tile. A unit of work is one such loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reliance import plans
from reliance._core import arrays
from reliance._core.arrays import Array
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.engine.executors import Base, Caller, InPlace, Opened
from reliance.engine.kernels import Part
from reliance.engine.problems import Problem
from reliance.engine.reductions import Accumulator, Layout, Moments
from reliance.engine.shapes import block_rows, even, fixed_bytes, tile_shape
from reliance.engine.traced import Traced
from reliance.losses.functions import Loss, Metric
from reliance.losses.outputs import is_whole
from reliance.models.calling import changes_input, name_of
from reliance.plans import Plan, Tile

Shape: TypeAlias = tuple[int, int]
# Features, their tile, and its sums on the device.
Waiting: TypeAlias = tuple[tuple[Feature, ...], Opened, Array]
# Sums that wait on the device before they are fetched.
_MOST_PENDING = 4096


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation gives: moments per feature and loss, and how it was done."""

    moments: dict[str, tuple[Moments, ...]]
    block: tuple[int, int]


def planned(problem: Problem, plan: Plan, base: Base, call: Caller, features: tuple[Feature, ...]) -> tuple[Shape, int]:
    """Rows and columns of a feature's block, and how many of some features share one: by sizes, memory and ``block``.

    Where one feature's table needs but a part of a block, the model is called with several of them at once.
    """
    fixed = fixed_bytes(problem, plan, len(features), base.output_bytes)
    rows = block_rows(problem, base.output_bytes, fixed)
    if problem.block == "tune":
        rows = _tuned_rows(problem, plan, base, call, features[0], rows)
    shape = tile_shape(problem, plan, rows)
    alone = isinstance(problem.block, tuple) or not problem.store.shares
    return shape, 1 if alone else even(len(features), max(1, rows // (shape[0] * shape[1])))


def make_executor(
    problem: Problem, plan: Plan, base: Base, call: Caller, shape: Shape, together: int = 1
) -> InPlace | Traced:
    """The executor of the backend, with the planned block, halved until it can be allocated."""
    if not problem.store.in_place:
        return Traced(problem, plan, base, shape, call)
    while True:
        try:
            return InPlace(problem, plan, base, shape, call, together)
        except Exception as error:
            if not arrays.is_out_of_memory(error) or (shape, together) == ((1, 1), 1):
                raise
            if together > 1:
                together = (together + 1) // 2
                continue
            b, d = shape
            shape = ((b + 1) // 2, d) if b >= d else (b, (d + 1) // 2)


def accumulate(
    executor: InPlace | Traced, features: tuple[Feature, ...], part: Tile, advance: Callable[[int], None]
) -> dict[str, tuple[Accumulator, ...]]:
    """Sums over a part of a plan's table: those of disjoint parts can be merged."""
    plan, height = executor.plan, executor.capacity[0]
    sums: dict[str, tuple[Accumulator, ...]] = {}
    groups = [features[k : k + executor.together] for k in range(0, len(features), executor.together)]
    pending: list[Waiting] = []
    strip: range | None = None
    for tile in plans.tiles(plan, executor.capacity, part):
        if pending and (tile.rows != strip or not plan.rectangular or len(pending) > _MOST_PENDING):
            _collect(executor, part, sums, pending)
        strip = tile.rows
        opened = executor.open(tile)
        tops = range(tile.rows.start, tile.rows.stop, height)
        parts: dict[str, list[Part]] = {}
        for top in tops:
            rows = range(top, min(top + height, tile.rows.stop))
            executor.fill(rows, tile)
            for some in groups:
                if len(tops) == 1:
                    pending.append((some, opened, executor.step(rows, opened, some)))
                else:
                    own = parts.setdefault(some[0].name, [])
                    own.append(executor.keep(executor.part(rows, opened, some)))
                    if top == tops[-1]:
                        pending.append((some, opened, executor.join(parts.pop(some[0].name), opened)))
                advance(len(some) * len(rows) * len(tile.columns))
    _collect(executor, part, sums, pending, done=True)
    return sums


def block_used(shape: Shape, limit: int | None) -> Shape:
    """The block shape that the model was called with, after memory ran out or not."""
    if limit is None or limit >= shape[0] * shape[1]:
        return shape
    d = min(shape[1], limit)
    return max(limit // d, 1), d


def _collect(
    executor: InPlace | Traced,
    part: Tile,
    sums: dict[str, tuple[Accumulator, ...]],
    pending: list[Waiting],
    done: bool = False,
) -> None:
    """Fetch the waiting sums, once, and with them whether the model left its rows as they were; add them."""
    intact = executor.intact(done)
    waiting = [lines for _, _, lines in pending]
    flag = [] if intact is None else [executor.problem.xp.astype(intact, waiting[0].dtype)]
    fetched = arrays.fetch([*waiting, *flag])
    if flag and not fetched.pop():
        raise changes_input(executor.problem.model)
    layouts = tuple(Layout.of(executor.plan, is_whole(function)) for function in executor.problem.losses)
    for (features, opened, _), packed in zip(pending, fetched, strict=True):
        for feature, line in zip(features, packed.reshape(len(features), -1), strict=True):
            found = unpacked(executor.problem, feature.name, layouts, opened.tile, line, opened.shape)
            include(sums, feature.name, found, part)
    pending.clear()


def unpacked(
    problem: Problem, feature: str, layouts: tuple[Layout, ...], tile: Tile, packed: HostArray, shape: Shape
) -> tuple[Accumulator, ...]:
    """The sums of a tile, for each loss, in memory of their own."""
    own = np.asarray(packed, dtype=np.float64)
    # Others' memory may be larger than what is wanted of it, which would keep all of it, and that of JAX is read-only.
    shared = own.base is not None and getattr(own.base, "size", 0) != own.size
    if shared or not own.flags.writeable:
        own = own.copy()
    found = []
    lines = np.split(own, np.cumsum([layout.size(shape) for layout in layouts])[:-1])
    for layout, function, line in zip(layouts, problem.losses, lines, strict=True):
        one, valid = layout.unpacked(tile, line, shape)
        if not valid:
            raise invalid(problem, feature, function)
        found.append(one)
    return tuple(found)


def include(sums: dict[str, tuple[Accumulator, ...]], name: str, found: tuple[Accumulator, ...], part: Tile) -> None:
    """Add the sums of a feature over a part of ``part`` of the table to those that are there, if any are."""
    if name not in sums:
        sums[name] = tuple(one.within(part) for one in found)
        return
    for total, one in zip(sums[name], found, strict=True):
        total.merge(one)


def invalid(problem: Problem, feature: str, function: Loss | Metric) -> ValueError:
    """What is said of predictions that a loss cannot take."""
    requirement = function.requirement or "finite predictions, and losses that do not overflow"
    return ValueError(
        f"with feature {feature!r} replaced, model {name_of(problem.model.source)} returned predictions that "
        f"loss={function.name!r} cannot take: it needs {requirement}"
    )


def _tuned_rows(problem: Problem, plan: Plan, base: Base, call: Caller, feature: Feature, most: int) -> int:
    """The block size with the most rows a second, measured on tiles of the plan: ``block="tune"``.

    The one place that looks at a clock. On JAX what is timed is compiled, once for each size.
    """
    best, fastest = 1, 0.0
    size = min(256, most)
    while size <= most:
        executor = make_executor(problem, plan, base, call, tile_shape(problem, plan, size))
        b, d = executor.capacity
        tile = next(iter(plans.tiles(plan, executor.capacity)))
        rows, opened = tile.rows[:b], executor.open(tile)
        executor.fill(rows, tile)
        whole = len(rows) == len(tile.rows)
        speed = b * d / min(_seconds(executor, rows, opened, feature, whole) for _ in range(3))
        if speed > fastest:
            best, fastest = size, speed
        if b >= plan.n and d >= plan.columns:  # the whole table: larger blocks are the same
            break
        size *= 2
    return best


def _seconds(executor: InPlace | Traced, rows: range, opened: Opened, feature: Feature, whole: bool) -> float:
    """Of one block, until its result is on the host."""
    start = time.perf_counter()
    done = executor.step(rows, opened, (feature,)) if whole else executor.part(rows, opened, (feature,)).moved
    arrays.to_host(done)
    return time.perf_counter() - start
