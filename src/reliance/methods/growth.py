"""Draws in rounds, each of which is added to those before it, until time is up or somebody interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from reliance._core.run import Run, resolved
from reliance._core.words import shown
from reliance.engine.evaluation import Evaluation
from reliance.engine.outlook import cheaper
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments, joined
from reliance.exact.called import Called
from reliance.exact.routes import Done
from reliance.methods.metrics import Part, each_itself
from reliance.plans import Plan
from reliance.plans.partial import Later

T = TypeVar("T")
FIRST = 8  # draws of the first round
_SHARE = 4  # what may be lost or last too long: rounds add a quarter of the draws that are there


class _Sums(NamedTuple):
    """Of so many draws."""

    done: int
    block: tuple[int, int]
    moments: dict[str, tuple[Moments, ...]]


@dataclass
class Growing:
    """The sums of the draws so far; ``plan_of(K)`` has K draws, the first of which are those of a smaller plan."""

    evaluation: Evaluation
    plan_of: Callable[[int], Plan]
    # One value: who interrupts finds it as it was before a round, or after it.
    sums: _Sums = field(default_factory=lambda: _Sums(0, (0, 0), {}))

    @property
    def done(self) -> int:
        return self.sums.done

    @property
    def moments(self) -> dict[str, tuple[Moments, ...]]:
        return self.sums.moments

    @property
    def plan(self) -> Plan:
        return self.plan_of(self.done)

    def grow(self, count: int) -> None:
        """Up to so many draws. If this is interrupted, all is as before."""
        problem = self.evaluation.problem
        rows, plan = len(problem.features) * problem.n * (count - self.done), self.plan_of(count)
        self.evaluation.expect(rows, cheaper=cheaper(rows, plan))
        run = self.evaluation.measure(Later(plan, self.done))
        moments = {
            name: tuple(map(joined, self.moments[name], later)) if name in self.moments else later
            for name, later in run.moments.items()
        }
        self.sums = _Sums(count, run.block, moments)

    def part(self) -> Part:
        """What the draws so far say."""
        problem, plan = self.evaluation.problem, self.plan
        job = Called("plain", problem, self.evaluation.base, plan, problem.features)
        answer = job.answer(self.moments, self.sums.block)
        return Part(plan, Done((job,), (answer,)), each_itself(len(problem.losses)))


class Ending:
    """When a call ends early: at a deadline, or where it is interrupted, if what is there then is wanted.

    The sizes of the rounds do not depend on the clock, so that a checkpoint fits them.
    """

    def __init__(self, run: Run) -> None:
        self.partial = run.on_interrupt == "partial"
        self.end = None if run.seconds is None else clock() + run.seconds
        self.pace = 0.0  # seconds a draw, in the last round

    @property
    def wanted(self) -> bool:
        return self.partial or self.end is not None

    def rounds(self, sums: Growing, most: int, why: Callable[[], str] = lambda: "") -> str:
        """Rounds up to so many draws; "", or why there are fewer: "deadline", "interrupted", or what ``why`` says."""
        stopped = ""
        try:
            while not stopped and sums.done < most:
                stopped = self._grow(sums, self._next(sums.done, most)) or why()
        except KeyboardInterrupt:  # in a round, or between two of them
            if not self.partial or not sums.done:
                raise
            return "interrupted"
        return stopped

    def kept(self, result: Callable[[], T]) -> T:
        """What all rounds come to, which one Ctrl-C does not take away."""
        try:
            return result()
        except KeyboardInterrupt:
            if not self.partial:
                raise
        return result()

    def _next(self, done: int, most: int) -> int:
        """Up to how many draws the next round goes."""
        step = done if not self.wanted else max(FIRST, done // _SHARE // FIRST * FIRST)
        return min(done + max(step, FIRST), most)

    def _grow(self, sums: Growing, count: int) -> str:
        """One round: "deadline" if it was not begun, "" if it was finished."""
        started, draws = clock(), count - sums.done
        if self.end is not None and sums.done and started + draws * self.pace > self.end:
            return "deadline"
        sums.grow(count)
        self.pace = (clock() - started) / draws
        return ""


def clock() -> float:
    return time.monotonic()


def without_end(problem: Problem) -> Problem:
    """The problem for an evaluation whose rounds somebody ends."""
    return replace(problem, run=replace(problem.run, deadline=None, on_interrupt=None))


def check_no_end(run: Run | None, what: str) -> None:
    """Refuse to end early what measures several times: each measurement would begin a time of its own."""
    settings = resolved(run)
    if settings.ends_early:
        raise cannot_end(settings, what)


def cannot_end(run: Run, what: str) -> ValueError:
    """What is said of work that has no earlier end."""
    name = "deadline" if run.deadline is not None else "on_interrupt"
    return ValueError(
        f"run has {name}={shown(getattr(run, name))}, but {what} cannot end early with what is there: leave it out"
    )
