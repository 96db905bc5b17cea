"""Jobs that call the model under a plan, and answers that are read from moments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reliance._core.streams import Indices
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact.protocol import ChosenRows, Exchange, Summarizer
from reliance.inference import Floats, Summary
from reliance.plans import Plan
from reliance.plans.partial import some_rows


@dataclass(frozen=True, eq=False)
class FromMoments:
    """The answer that moments give, of each feature by its name; ``plans``: whose columns their tables have.

    ``blur``: by how much rounding may have moved the entries of tables of scores.
    """

    problem: Problem
    features: tuple[Feature, ...]
    known: Mapping[str, tuple[Moments, ...]]
    plans: Mapping[str, Plan]
    block: tuple[int, int] = (0, 0)
    blur: float = 0.0

    def moments(self, feature: Feature) -> tuple[Moments, ...]:
        return self.known[feature.name]

    def summaries(self, summarizer: Summarizer) -> dict[str, Summary]:
        return {f.name: summarizer(f, self.known[f.name][summarizer.index]) for f in self.features}

    def curve(self, feature: Feature, index: int, speakers: Indices, whole: bool) -> tuple[Floats, Floats | None]:
        one, weights = self.known[feature.name][index], self.problem.host_weights
        change = one.donor_sum[speakers] / (self.problem.n if weights is None else float(np.sum(weights)))
        if not whole:
            return change, None
        if one.table is None:
            raise ValueError(
                f"keep='ice': the route of feature {shown(feature.name)} keeps no table; pass keep='curves'"
            )
        return change, self.plans[feature.name].by_donor(one.table, speakers)


@dataclass(frozen=True, eq=False)
class Known:
    """The job of features whose moments a route knows already: nothing is left to do."""

    route: str
    problem: Problem
    plan: Plan
    features: tuple[Feature, ...]
    known: Mapping[str, tuple[Moments, ...]]

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> FromMoments:
        return FromMoments(self.problem, self.features, self.known, {f.name: self.plan for f in self.features})


@dataclass(frozen=True, eq=False)
class Called:
    """The job of features for which a model, that of ``problem``, is called."""

    route: str
    problem: Problem
    base: Base
    plan: Plan
    features: tuple[Feature, ...]

    def evaluations(self, feature: Feature) -> int:
        return self.plan.n * self.plan.columns

    def run(self, evaluation: Evaluation) -> FromMoments:
        found = evaluation.on(self.problem, self.base).measure(self.plan, self.features)
        return self.answer(found.moments, found.block)

    def answer(self, moments: Mapping[str, tuple[Moments, ...]], block: tuple[int, int]) -> FromMoments:
        return FromMoments(self.problem, self.features, moments, {f.name: self.plan for f in self.features}, block)


def called(question: Exchange, route: str, plan: Plan, features: tuple[Feature, ...]) -> Called:
    """The model of a question itself, under the question's plan or one that stands for it."""
    if not isinstance(question, ChosenRows):
        return Called(route, question.problem, question.base, plan, features)
    lent = dataclasses.replace(question.some, store=question.problem.store.lending(question.rows))
    return Called(route, lent, question.base, some_rows(plan, question.rows), features)
