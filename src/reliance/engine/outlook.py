"""Before a large run: how long it takes, by the speed of its first unit, and what would take less."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from reliance._core.checks import warn
from reliance._core.words import short
from reliance.engine.runners import Runner
from reliance.engine.sending import Advance, Job
from reliance.engine.units import Work
from reliance.plans import Plan

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# Rows that a model is called with before anything is said about it.
LARGE = 10**9
# A speed is that of at least so many seconds; a unit of one worker that takes longer than the second is not waited for.
_LEAST, _MOST = 1.0, 10.0
# Of draws that take less than what is asked for.
_FEW = 16
_WORDS = 300


class Outlook:
    """The rows that a model is still to be called with, if they are many and nothing was said about them yet."""

    def __init__(self) -> None:
        self.rows = 0
        self.cheaper = ""

    def expect(self, rows: int, cheaper: str) -> None:
        if rows > LARGE:
            self.rows, self.cheaper = rows, cheaper

    def timed(self, runner: Runner, work: Work, whole: bool) -> Runner:
        """Who does the work, or some of it, and says how long it takes, if that is worth a word."""
        return Timed(runner, work.rows, self, whole) if self.rows else runner

    def say(self, rows: float, seconds: float) -> None:
        self.rows = 0
        start = (
            f"the model is to be called with {rows:.1e} rows, about {spoken(seconds)} at the speed of the first unit"
        )
        end = "; progress=True shows how far it is"
        warn(f"{start}: {short(self.cheaper, _WORDS - len(start) - len(end) - 2)}{end}")


class Timed:
    """A runner that says, when every worker has done a unit, how long all units take."""

    def __init__(self, runner: Runner, rows: int, outlook: Outlook, whole: bool) -> None:
        self.runner, self.rows, self.outlook, self.whole = runner, rows, outlook, whole

    @property
    def count(self) -> int:
        return self.runner.count

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        first = next(job.items(), None)
        if first is None:
            return
        # Of a part, or of what a folder lacks, this measurement has a share, and so will the others.
        share = 1.0 if self.whole else sum(map(job.size, job.items())) / self.rows
        rows = self.outlook.rows * share
        wanted, alone = self.count * job.size(first), self.count == 1
        started, done = time.perf_counter(), 0

        def timed(size: int) -> None:
            nonlocal done
            advance(size)
            done += size
            passed = time.perf_counter() - started
            if self.outlook.rows and passed >= _LEAST and (done >= wanted or (alone and passed >= _MOST)):
                self.outlook.say(rows, rows * passed / done)

        yield from self.runner.each(job, timed if rows > LARGE else advance)


def cheaper(rows: int, plan: Plan, reason: str = "") -> str:
    """What takes fewer rows than a plan; ``reason``: why a route, which would take none, does not apply."""
    words = "fewer features or fewer rows of X take less"
    if plan.draws > _FEW:
        words = f"{_FEW} draws of each row (draws= or pairs=) take {rows * _FEW / plan.draws:.1e}, hardly less exact"
    return f"{words}; no shortcut: {reason}" if reason else words


def spoken(seconds: float) -> str:
    """A duration in words."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
