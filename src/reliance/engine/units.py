"""Units of work: features x rows x draws, cut by sizes alone, whose sums are merged in the order of the units.

How a call is cut depends on the problem, the plan, ``memory`` and ``block``, never on workers or clocks. Rounding
makes the order of additions count, and that order is fixed: so the result is the same to the last bit, whoever does a
unit and whoever is done first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from reliance._core import allocation, arrays
from reliance._core.run import Run
from reliance.data.features import Feature
from reliance.engine import blocks
from reliance.engine.blocks import Evaluated, Shape
from reliance.engine.executors import Base, Caller, InPlace
from reliance.engine.problems import Problem
from reliance.engine.reductions import Accumulator, Moments
from reliance.engine.sending import Desk
from reliance.engine.shapes import batches, even
from reliance.engine.traced import Traced
from reliance.losses.outputs import is_whole
from reliance.plans import Plan, Tile
from reliance.plans.protocol import stretches

# Rows that the model is called with in a unit. They cost a linear model a few milliseconds, and a forest some seconds:
# few enough to share out, enough that a unit's own costs (a buffer, sums to merge) do not show.
_UNIT_ROWS = 2**17
# Where tiles are long, features are divided, too. But those of a unit share filled blocks, which cost as much as a
# cheap model: at least so many stay together, and units may be this much larger before they are divided at all.
_LEAST_FEATURES, _LARGER = 8, 8

Sums: TypeAlias = dict[str, tuple[Accumulator, ...]]


class Batch(NamedTuple):
    """Features whose sums are held at the same time, the shape of their blocks, and how many share one."""

    features: tuple[Feature, ...]
    shape: Shape
    together: int


class Unit(NamedTuple):
    """Some features of a batch, ``first`` to before ``last``, on a part of the plan's table."""

    batch: int
    first: int
    last: int
    part: Tile


class Found(NamedTuple):
    """The sums of a unit, and the block that the model was called with."""

    sums: Sums
    block: Shape


@dataclass(frozen=True, eq=False)
class Work:
    """All units of an evaluation: what a worker has to know to do any of them."""

    problem: Problem
    plan: Plan
    base: Base
    call: Caller
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, problem: Problem, plan: Plan, base: Base, call: Caller, features: tuple[Feature, ...]) -> Work:
        cut = [
            Batch(some, *blocks.planned(problem, plan, base, call, some))
            for some in batches(problem, plan, features, base.output_bytes)
        ]
        # Who does the work is none of the workers' business, and a pool cannot be sent.
        return cls(dataclasses.replace(problem, run=Run()), plan, base, call, tuple(cut))

    def items(self) -> Iterator[Unit]:
        for number in range(len(self.batches)):
            yield from self.cut(number)

    def cut(self, number: int) -> Iterator[Unit]:
        """The units of a batch."""
        return _cut(self.plan, number, self.batches[number])

    @property
    def rows(self) -> int:
        """That the model is called with in all units."""
        return sum(len(batch.features) for batch in self.batches) * self.plan.n * self.plan.columns

    def do(self, unit: Unit, desk: Desk, advance: Callable[[int], None]) -> Found:
        """The sums of a unit, in a buffer that a worker may have from the unit before."""
        batch = self.batches[unit.batch]

        def made() -> InPlace | Traced:
            self.problem.store.lend(batch.features)
            return blocks.make_executor(self.problem, self.plan, self.base, self.call, batch.shape, batch.together)

        executor = desk.kept((self, unit.batch), made)
        sums = blocks.accumulate(executor, batch.features[unit.first : unit.last], unit.part, advance)
        return Found(sums, blocks.block_used(executor.capacity, self.call.limit))

    def size(self, unit: Unit) -> int:
        """Rows that the model is called with."""
        return (unit.last - unit.first) * len(unit.part.rows) * len(unit.part.columns)

    @property
    def on_threads(self) -> bool:
        """What JAX compiles belongs to one caller, and spreads over the cores by itself; some files have one reader."""
        return arrays.is_mutable(self.problem.xp) and self.problem.store.concurrent

    @contextmanager
    def here(self) -> Iterator[None]:
        with arrays.inference_only(self.problem.xp), arrays.quiet():
            yield

    def away(self) -> AbstractContextManager[None]:
        return session(self.problem)

    def sent(self) -> Mapping[str, object]:
        functions = {f"loss {function.name!r}": function for function in self.problem.losses}
        return {"model": self.problem.model.source, **functions}


@contextmanager
def session(problem: Problem) -> Iterator[None]:
    """The context in which the model is called: its own (evaluation mode, say), no gradients, no floating errors."""
    allocation.keep_freed_memory()
    with ExitStack() as stack:
        stack.enter_context(problem.model.session())
        stack.enter_context(arrays.inference_only(problem.xp))
        stack.enter_context(arrays.quiet())
        yield


def evaluate(work: Work, answers: Iterable[tuple[Unit, Found]]) -> Evaluated:
    """The moments of all features, from the sums of the units in their order; 0 where units are left out."""
    moments: dict[str, tuple[Moments, ...]] = {}
    sums: Sums = {}
    table = Tile(range(work.plan.n), range(work.plan.columns))
    block, current = (0, 0), 0
    for unit, found in answers:
        while unit.batch != current:
            moments |= _finished(work, work.batches[current], sums)
            sums, current = {}, current + 1
        for name, own in found.sums.items():
            blocks.include(sums, name, own, table)
        block = found.block
    for batch in work.batches[current:]:
        work.problem.store.lend(batch.features)  # others may have done all units, and a plan sorts what lends
        moments |= _finished(work, batch, sums)
    return Evaluated(moments, block)


def _zeros(work: Work) -> tuple[Accumulator, ...]:
    return tuple(Accumulator.init(work.plan, is_whole(function)) for function in work.problem.losses)


def _finished(work: Work, batch: Batch, sums: Sums) -> dict[str, tuple[Moments, ...]]:
    found = {}
    for feature in batch.features:
        own, totals = work.plan.part(feature), sums.get(feature.name) or _zeros(work)
        found[feature.name] = tuple(total.finalize(own) for total in totals)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The cut


def _cut(plan: Plan, number: int, batch: Batch) -> Iterator[Unit]:
    """The units of a batch, along the edges of its tiles."""
    b, d = batch.shape if plan.rectangular else (plan.n, batch.shape[1])
    count = len(batch.features)
    together = _together(b * d, count)
    groups = [(first, min(first + together, count)) for first in range(0, count, together)]
    for part in _parts(plan, (b, d), max(1, _UNIT_ROWS // (b * d * together))):
        for first, last in groups:
            yield Unit(number, first, last, part)


def _together(cells: int, count: int) -> int:
    """How many features a unit has, if each has so many cells in a tile."""
    if cells * count <= _LARGER * _UNIT_ROWS:
        return count
    return even(count, max(_LEAST_FEATURES, _LARGER * _UNIT_ROWS // cells))


def _parts(plan: Plan, shape: Shape, wanted: int) -> Iterator[Tile]:
    """Parts of the table of about so many tiles each: several strips of tiles, or stretches of one strip."""
    b, d = shape
    edges = [left for start, stop in stretches(plan) for left in range(start, stop, d)]
    strips = max(1, wanted // len(edges))
    step = even(len(edges), min(wanted, len(edges)))
    starts = [edges[place] for place in range(0, len(edges), step)]
    for top in range(0, plan.n, strips * b):
        rows = range(top, min(top + strips * b, plan.n))
        for start, stop in zip(starts, [*starts[1:], plan.columns], strict=True):
            yield Tile(rows, range(start, stop))
