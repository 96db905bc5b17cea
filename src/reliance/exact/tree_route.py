"""The route through the trees of an ensemble: which features they measure alone, and for which the model is called."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.exact.called import FromMoments, called
from reliance.exact.cells import Cells
from reliance.exact.held import HeldAt, HeldByModel, Impacts, KnownImpacts, impact
from reliance.exact.protocol import Exchange, Job, Measured, Opening, Route
from reliance.exact.trees import TreeReading, read
from reliance.exact.unused import Unused
from reliance.models.ensembles import Ensemble

NEEDS = (
    "needs an ensemble of trees that can be read (scikit-learn's trees, forests and gradient boosting, LightGBM, "
    "XGBoost), on rows of one dimension"
)


class Trees(Route):
    """A table of rows and cells for each feature, from passes over the trees."""

    name, says = "trees", "the trees that were read from it predict"

    def pairs(self, question: Exchange) -> Opening[Measured]:
        ensemble = _ensemble(question.problem)
        return NEEDS if ensemble is None else partial(_pairs, question, ensemble)

    def held(self, question: HeldAt) -> Opening[Impacts]:
        ensemble = _ensemble(question.problem)
        return NEEDS if ensemble is None else partial(_held, question, ensemble)


def _ensemble(problem: Problem) -> Ensemble | None:
    return known_models.ensemble(problem) if len(problem.store.shape) == 1 else None


# ---------------------------------------------------------------------------------------------------------------------
# All pairs


def _pairs(question: Exchange, ensemble: Ensemble) -> _Pairs:
    return _Pairs(question, read(question.problem, question.base, ensemble))


@dataclass(frozen=True, eq=False)
class _Pairs:
    question: Exchange
    reading: TreeReading

    def cost(self, feature: Feature) -> float | str:
        columns = self.reading.used(feature)
        if not columns or self.reading.takes(columns):
            return 0.0
        if self.question.forced:
            return (
                f"for feature {shown(feature.name)} the model has to be called, because it is a group of columns or "
                "splits are categorical in trees of more than 64 leaves, or because labels of a forest with mixed "
                "leaves are compared, whose ties its library breaks by rounding"
            )
        # The model is called, but once for each cell only.
        return self.question.problem.n * self.reading.cells_of(columns).number

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        question, reading = self.question, self.reading
        used = {feature.name: reading.used(feature) for feature in features}
        takes = {name: bool(columns) and reading.takes(columns) for name, columns in used.items()}
        unused = tuple(f for f in features if not used[f.name])
        taken = tuple(f for f in features if takes[f.name])
        found: list[Job[Measured]] = [Unused(question.problem, unused)] if unused else []
        if taken:
            found.append(TreeJob(reading, taken, {f.name: reading.cells_of(used[f.name]) for f in taken}))
        rest = (f for f in features if used[f.name] and not takes[f.name])
        return [*found, *(called(question, "distinct", reading.cells_of(used[f.name]).plan, (f,)) for f in rest)]


@dataclass(frozen=True, eq=False)
class TreeJob:
    """Features that the trees measure together, in as few passes as the memory allows."""

    reading: TreeReading
    features: tuple[Feature, ...]
    cells: dict[str, Cells]
    route: str = "trees"

    def evaluations(self, feature: Feature) -> int:
        return self.reading.setting.problem.n * self.cells[feature.name].number

    def run(self, evaluation: Evaluation) -> FromMoments:
        run = self.reading.moments(self.cells, evaluation.advance)
        plans = {name: cells.plan for name, cells in self.cells.items()}
        return FromMoments(self.reading.setting.problem, self.features, run.moments, plans, run.block)


# ---------------------------------------------------------------------------------------------------------------------
# Held values


def _held(question: HeldAt, ensemble: Ensemble) -> _Held:
    return _Held(question, read(question.problem, question.base, ensemble))


@dataclass(frozen=True, eq=False)
class _Held:
    question: HeldAt
    reading: TreeReading

    @property
    def by_model(self) -> HeldByModel:
        """Values of one cell are not told apart."""
        return HeldByModel(self.question, {column: cells.label for column, cells in self.reading.cells.items()})

    def _takes(self, feature: Feature) -> bool:
        return not self.reading.deep and self.reading.takes(feature.columns)

    def cost(self, feature: Feature) -> float | str:
        return 0.0 if not self.reading.used(feature) or self._takes(feature) else self.by_model.cost(feature)

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Impacts]]:
        unused = tuple(f for f in features if not self.reading.used(f))
        taken = tuple(f for f in features if self.reading.used(f) and self._takes(f))
        rest = tuple(f for f in features if self.reading.used(f) and not self._takes(f))
        nothing = {f.name: np.zeros(len(self.question.held[f.name].rows)) for f in unused}
        found: list[Job[Impacts]] = [KnownImpacts("unused", unused, nothing)] if unused else []
        if taken:
            cells = {f.name: self.reading.cells_of(f.columns) for f in taken}
            found.append(_HeldJob(self.question, TreeJob(self.reading, taken, cells)))
        return [*found, *self.by_model.jobs(rest)]


@dataclass(frozen=True, eq=False)
class _HeldJob:
    """Donor sums at the held values, from the tables of all values."""

    question: HeldAt
    job: TreeJob
    route: str = "trees"

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.job.features

    def evaluations(self, feature: Feature) -> int:
        return self.job.evaluations(feature)

    def run(self, evaluation: Evaluation) -> Impacts:
        answer, found = self.job.run(evaluation), {}
        for feature in self.features:
            one = self.question.held[feature.name]
            changes, squares = (moments.donor_sum[one.rows] for moments in answer.moments(feature))
            found[feature.name] = impact(one, self.question.problem.n, changes, squares)
        return Impacts(found, answer.block)
