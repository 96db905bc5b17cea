"""A model on its rows, opened once in a call: what methods ask to measure a plan."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, calls
from reliance._core.calls import Call
from reliance._core.kinds import Array
from reliance._core.progress import Progress, Reporter, reporting
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import passes, runners, units
from reliance.engine.base_pass import base_pass
from reliance.engine.blocks import Evaluated
from reliance.engine.checkpoint import Keeper
from reliance.engine.executors import Base, Caller
from reliance.engine.outlook import Outlook
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.engine.runners import Runner, Serial
from reliance.engine.shapes import call_rows, planned_bytes
from reliance.engine.stores import Store
from reliance.engine.units import Work, session
from reliance.losses.functions import Loss, row_losses
from reliance.plans import Plan

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A problem whose model is in its evaluation mode and has predicted the rows as they are.

    Attributes
    ----------
    problem : Problem
    base : Base
        The base pass.
    call : Caller
        Calls the model, and knows with how many rows that works.
    advance : Reporter
        Of the rows that are done.
    seconds : float
        What the base pass took: nothing depends on it but an estimate.
    runner : Runner
        Who does the work.
    keeper : Keeper or None
        Knows what was done before, and keeps what is done now.
    outlook : Outlook
        What is to be said about a large run once its speed is known.
    """

    problem: Problem
    base: Base
    call: Caller
    advance: Reporter
    seconds: float = 0.0
    runner: Runner = field(default_factory=Serial)
    keeper: Keeper | None = None
    outlook: Outlook = field(default_factory=Outlook)

    @property
    def key(self) -> int:
        """Of the random numbers."""
        return self.problem.key

    def expect(self, cells: int, called: int | None = None, cheaper: str = "") -> None:
        """So many cells are to come, and so many rows for the model (all of them): said before it takes days.

        ``cheaper``: what would take fewer rows.
        """
        self.advance.expect(cells)
        self.outlook.expect(cells if called is None else called, cheaper)

    def measure(self, plan: Plan, features: tuple[Feature, ...] | None = None) -> Evaluated:
        """The moments of some features, by default all, under a plan."""
        chosen = self.problem.features if features is None else features
        work, call = Work.of(self.problem, plan, self.base, self.call, chosen), calls.at_work()
        if call is not None and call.dry:
            self._count(call, work)
            return units.evaluate(work, ())
        passes.announce(work)
        runner = self.outlook.timed(self.runner, work, self.keeper is None)
        if self.keeper is None:
            return units.evaluate(work, runner.each(work, self.advance))
        return units.evaluate(work, self.keeper.each(work, runner, self.advance))

    def _count(self, call: Call, work: Work) -> None:
        """What a measurement would take."""
        call.units, call.rows = call.units + sum(1 for _ in work.items()), call.rows + work.rows
        call.memory = max(
            call.memory,
            *(planned_bytes(self.problem, work.plan, self.base.output_bytes, *batch) for batch in work.batches),
        )
        call.seconds += work.rows * self.seconds / self.problem.n
        read = passes.rows_read(work) / work.plan.n
        call.passes, call.read = call.passes + read, call.read + read * self.problem.store.pass_bytes

    def moments(self, store: Store, plan: Plan, feature: Feature) -> tuple[Moments, ...]:
        """Of a feature, replaced as a store and a plan say; for each loss."""
        replaced = dataclasses.replace(self, problem=dataclasses.replace(self.problem, store=store))
        return replaced.measure(plan, (feature,)).moments[feature.name]

    # -----------------------------------------------------------------------------------------------------------------
    # Other questions about the same predictions

    def on(self, problem: Problem, base: Base | None = None) -> Evaluation:
        """Another problem of the same rows within this evaluation, perhaps of another model with the same predictions.

        A model of a route's own is called with the limit of rows that was found so far.
        """
        own = self.call if problem.model is self.problem.model else Caller(problem.model, self.call.limit)
        return dataclasses.replace(self, problem=problem, base=self.base if base is None else base, call=own)

    def of_losses(self, places: Sequence[int]) -> Evaluation:
        """Some of the losses alone."""
        problem, base = self.problem, self.base
        return dataclasses.replace(
            self,
            problem=dataclasses.replace(
                problem,
                losses=tuple(problem.losses[k] for k in places),
                targets=tuple(problem.targets[k] for k in places),
            ),
            base=dataclasses.replace(
                base,
                targets=tuple(base.targets[k] for k in places),
                losses=tuple(base.losses[k] for k in places),
                host_losses=tuple(base.host_losses[k] for k in places),
            ),
        )

    def with_losses(
        self, functions: Sequence[Loss], targets: Sequence[Array], memory: int | None = None, behind: bool = False
    ) -> Evaluation:
        """Other losses in the place of the problem's, or ``behind`` them; perhaps with less memory."""
        problem, base = self.problem, self.base
        values = [row_losses(one, target, base.predictions) for one, target in zip(functions, targets, strict=True)]
        host = tuple(np.asarray(a, dtype=np.float64) for a in arrays.fetch(values))
        first = slice(None) if behind else slice(0)
        return dataclasses.replace(
            self,
            problem=dataclasses.replace(
                problem,
                losses=(*problem.losses[first], *functions),
                targets=(*problem.targets[first], *targets),
                memory=problem.memory if memory is None else memory,
            ),
            base=dataclasses.replace(
                base,
                targets=(*base.targets[first], *targets),
                losses=(*base.losses[first], *values),
                host_losses=(*base.host_losses[first], *host),
            ),
        )

    def weighing(self, weights: Floats) -> Evaluation:
        """The same with other weights of the rows."""
        problem = self.problem.weighing(weights)
        return self.on(problem, dataclasses.replace(self.base, weights=problem.weights))

    def without(self, gone: Indices) -> Evaluation:
        """The same rows, some of which do not count: they have no weight, but may lend."""
        known = self.problem.host_weights
        weights = np.ones(self.problem.n) if known is None else known.copy()
        weights[gone] = 0.0
        return self.weighing(weights)

    def some_rows(self, ids: Indices) -> Evaluation:
        """The same on some of the rows."""
        xp, dev, base = self.problem.xp, self.problem.device, self.base
        index = arrays.from_host(ids, xp, dev, arrays.index_dtype(xp))

        def take(array: Array) -> Array:
            return xp.take(array, index, axis=0)

        return self.on(
            self.problem.some_rows(ids),
            dataclasses.replace(
                base,
                predictions=take(base.predictions),
                slack=take(base.slack),
                targets=tuple(take(t) for t in base.targets),
                losses=tuple(take(v) for v in base.losses),
                host_losses=tuple(v[ids] for v in base.host_losses),
                weights=None if base.weights is None else take(base.weights),
            ),
        )

    @contextmanager
    def again(self, progress: Progress = False) -> Iterator[Evaluation]:
        """Opened once more, with the base pass that is known."""
        with (
            session(self.problem),
            reporting(progress) as advance,
            runners.opened(self.problem.run, self.problem) as runner,
        ):
            yield dataclasses.replace(self, advance=advance, runner=runner, keeper=_keeper())


@contextmanager
def evaluating(problem: Problem, progress: Progress = False, probed: bool = True) -> Iterator[Evaluation]:
    """The evaluation of a problem, for as long as the model has to be in its evaluation mode.

    ``probed``: some rows are predicted a second time, in another batch, to see what rounding does to them.
    """
    if problem.run.ends_early:
        raise ValueError(
            f"run has deadline={problem.run.deadline} and on_interrupt={problem.run.on_interrupt}, but this method "
            "cannot end early with what is there: permutation_importance, ablation_importance and model_reliance can"
        )
    with session(problem), reporting(progress) as advance, runners.opened(problem.run, problem) as runner:
        call, started = Caller(problem.model, call_rows(problem)), time.perf_counter()
        base = base_pass(problem, call, probed)
        yield Evaluation(problem, base, call, advance, time.perf_counter() - started, runner, _keeper())


def _keeper() -> Keeper | None:
    """Of one more evaluation of the call that is at work, if that keeps its units."""
    call = calls.at_work()
    if call is None:
        return None
    call.evaluations += 1
    if call.folder is None:
        return None
    return Keeper(call, call.folder / f"evaluation-{call.evaluations}", call.part)
