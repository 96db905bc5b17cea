"""Pipelines whose steps treat columns apart: rows are transformed once, and groups of transformed columns exchanged.

A column of the rows is then a group of columns of the transformed rows, and the last estimator a model of these. So the
question is asked once more, of the last estimator alone: its own route may know the answer (a closed form, trees), and
where it has none, blocks are made of transformed rows, which spares their transformation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from reliance._core.kinds import Array, HostArray, Operand
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.input_stores import store_of
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import trust
from reliance.exact.called import FromMoments
from reliance.exact.protocol import Almost, Exchange, Job, Measured, Offer, Opening, Route, Summarizer
from reliance.exact.unused import Unused
from reliance.inference import Floats, Summary
from reliance.models import calling, pipelines
from reliance.models.calling import Model
from reliance.models.pipelines import Unfolded
from reliance.models.responses import SideBySide

# The cheapest offer for each feature, by name: what it costs, whose it is.
Best: TypeAlias = dict[str, tuple[float, Route, Offer[Measured]]]
# What a row costs without its transformation, of what it costs with it: less than one, however much.
_BEHIND = 0.5


class Pipelines(Route):
    """``best``: the choice among all routes, for the last estimator."""

    name, says, tables = "pipeline", "its steps say, column by column", True
    needs = "needs a Pipeline of scikit-learn, or a search over some, whose steps treat columns apart"

    def __init__(self, best: Callable[[Exchange, Sequence[Feature]], Best]) -> None:
        self.best = best

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        streams = problem.store.streams
        one = len(problem.store.shape) == 1 and problem.rows.inputs is None
        if not one or not (streams or isinstance(problem.flat, np.ndarray)):
            return self.needs
        found = pipelines.unfold(problem.model.source, int(problem.flat.shape[1]))
        if isinstance(found, str):
            return Almost(f"does not apply: {found}") if found else self.needs
        if streams:
            return Almost("needs all rows in memory, and X is read in blocks")
        return partial(_opened, question, found, self.best)


def _opened(question: Exchange, unfolded: Unfolded, best: Callable[[Exchange, Sequence[Feature]], Best]) -> _Behind:
    """Raises `trust.Disagreement` if columns are not made as the steps say."""
    problem = question.problem
    groups = {f.name: unfolded.columns_from(f.columns) for f in problem.features}
    unused = tuple(f for f in problem.features if not groups[f.name])
    inner = {f.name: Feature(f.name, groups[f.name]) for f in problem.features if groups[f.name]}
    rows, predict = _transformed(problem, unfolded)
    if isinstance(rows, str):
        return _Behind(question, unused, {}, {}, rows)
    behind = _behind(problem, unfolded, rows, predict, tuple(inner.values()) or problem.features[:1])
    trust.check_pipeline(problem, question.base, unfolded, behind)
    asked = dataclasses.replace(question, problem=behind, forced=False, classes={})
    return _Behind(question, unused, inner, best(asked, tuple(inner.values())) if inner else {})


def _transformed(problem: Problem, unfolded: Unfolded) -> tuple[HostArray | str, Callable[[Operand], Operand]]:
    """The transformed rows as numbers, and what makes of them what the last estimator takes."""
    found = unfolded.transform(trust.as_given(problem, problem.flat))
    numbers = pipelines.as_numbers(found, problem.memory)
    if not isinstance(numbers, str) and numbers.shape[1] != len(unfolded.sources):
        raise trust.Disagreement
    return numbers, pipelines.as_given(found)


def _behind(
    problem: Problem,
    unfolded: Unfolded,
    rows: HostArray,
    given: Callable[[Operand], Operand],
    features: tuple[Feature, ...],
) -> Problem:
    """The same question about the last estimator and transformed rows."""
    own, last = problem.model, unfolded.last
    names = tuple(f"column {q}" for q in range(rows.shape[1]))
    inner = dataclasses.replace(
        problem.rows, flat=rows, shape=rows.shape[1:], features=features, names=names, table=None, inputs=None
    )
    predict: Callable[[Operand], Array]
    if own.parts is None:
        predict = getattr(last, str(own.method))
    else:
        assert own.classes is not None
        predict = SideBySide.of(last, set(own.parts), own.classes, calling.name_of(last))
    model = Model(lambda block: predict(given(block)), last, own.classes, own.block_rows, own.session, own.method)
    model = dataclasses.replace(model, parts=own.parts)
    return dataclasses.replace(problem, rows=inner, store=store_of(inner), model=model)


@dataclass(frozen=True, eq=False)
class _Behind:
    """What the routes of the last estimator offer.

    ``inner``: features as columns of transformed rows, by name; ``unused``: those that no transformed column comes
    from; ``missing``: why there are no transformed rows.
    """

    question: Exchange
    unused: tuple[Feature, ...]
    inner: Mapping[str, Feature]
    best: Best
    missing: str = ""

    def cost(self, feature: Feature) -> float | str:
        if feature in self.unused:
            return 0.0
        if feature.name not in self.best:
            return self.missing
        cost, route, _ = self.best[feature.name]
        return _BEHIND * cost if route.calls else cost

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        rest = tuple(f for f in features if f in self.unused)
        found: list[Job[Measured]] = [Unused(self.question.problem, rest)] if rest else []
        offers = {id(offer): (route, offer) for _, route, offer in self.best.values()}
        for key, (route, offer) in offers.items():
            mine = {f.name: f for f in features if f.name in self.inner and id(self.best[f.name][2]) == key}
            for job in offer.jobs(tuple(self.inner[name] for name in mine)) if mine else ():
                own = tuple(mine[f.name] for f in job.features)
                found.append(BehindJob(self.question.problem, own, self.inner, job, route.calls))
        return found


@dataclass(frozen=True, eq=False)
class BehindJob:
    """A job of the last estimator, about columns of the rows as they were given; ``calls``: that is called for it."""

    problem: Problem
    features: tuple[Feature, ...]
    inner: Mapping[str, Feature]
    job: Job[Measured]
    calls: bool

    @property
    def route(self) -> str:
        return {"unused": "unused", "plain": "pipeline"}.get(self.job.route, f"pipeline+{self.job.route}")

    def evaluations(self, feature: Feature) -> int:
        return self.job.evaluations(self.inner[feature.name])

    def run(self, evaluation: Evaluation) -> Measured:
        found = self.job.run(evaluation)
        if isinstance(found, FromMoments):  # by name already
            return dataclasses.replace(found, problem=self.problem, features=self.features)
        return _Translated(found, self.inner)


@dataclass(frozen=True, eq=False)
class _Translated:
    """An answer about groups of transformed columns, asked by the names of features."""

    found: Measured
    inner: Mapping[str, Feature]

    @property
    def block(self) -> tuple[int, int]:
        return self.found.block

    def moments(self, feature: Feature) -> tuple[Moments, ...]:
        return self.found.moments(self.inner[feature.name])

    def summaries(self, summarizer: Summarizer) -> dict[str, Summary]:
        return self.found.summaries(summarizer)

    def curve(self, feature: Feature, index: int, speakers: Indices, whole: bool) -> tuple[Floats, Floats | None]:
        return self.found.curve(self.inner[feature.name], index, speakers, whole)
