"""The route through the trees of an ensemble: which features they measure alone, and for which the model is called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact.called import FromMoments, called
from reliance.exact.cells import Cells
from reliance.exact.held import HeldAt, HeldByModel, Impacts, KnownImpacts, impact
from reliance.exact.protocol import Exchange, Job, Measured, Opening, Route
from reliance.exact.trees import TreeReading, read
from reliance.exact.unused import Unused
from reliance.losses.functions import Loss
from reliance.losses.outputs import is_score
from reliance.models.ensembles import Ensemble

Floats = NDArray[np.float64]
# Sums over trees are taken in another order for each cell, and shares rounded to a grid (see `Context`): relative to
# the scores, by how much equal ones may differ.
_BLUR = 2.0**-44
NEEDS = (
    "needs an ensemble of trees that can be read (scikit-learn's trees, forests, boosting, bagging and votes; "
    "LightGBM, XGBoost, CatBoost), on rows of one dimension"
)


class Trees(Route):
    """A table of rows and cells for each feature, from passes over the trees."""

    name, says, tables = "trees", "the trees that were read from it predict", True

    def pairs(self, question: Exchange) -> Opening[Measured]:
        ensemble = _ensemble(question.problem)
        if ensemble is not None and _too_many_codes(question.problem, ensemble):
            return "holds 8 bytes of each row and used column, and X is read in blocks because memory holds less"
        return _needs(question.problem) if ensemble is None else partial(_pairs, question, ensemble)

    def held(self, question: HeldAt) -> Opening[Impacts]:
        ensemble = _ensemble(question.problem)
        return _needs(question.problem) if ensemble is None else partial(_held, question, ensemble)


def _too_many_codes(problem: Problem, ensemble: Ensemble) -> bool:
    """Whether rows that are read in blocks would be held after all, as cells of their columns."""
    used = len(np.unique(ensemble.feature[ensemble.feature >= 0]))
    return problem.store.streams and 8 * problem.n * used > problem.memory // 2


def _needs(problem: Problem) -> str:
    reason = problem.model.trees_read
    return f"cannot read the trees: {reason}" if isinstance(reason, str) and reason else NEEDS


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
        if not columns or not self.reading.ties:
            return 0.0
        if self.question.forced:
            return (
                f"for feature {shown(feature.name)} the model has to be called, because labels or ranks of a forest "
                "with mixed leaves are compared, whose ties its library breaks by rounding"
            )
        # The model is called, but once for each cell only.
        return self.question.problem.n * self.reading.cells_of(columns).number

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        question, reading = self.question, self.reading
        used = {feature.name: reading.used(feature) for feature in features}
        unused = tuple(f for f in features if not used[f.name])
        taken = () if reading.ties else tuple(f for f in features if used[f.name])
        found: list[Job[Measured]] = [Unused(question.problem, unused)] if unused else []
        cells = {f.name: reading.cells_of(used[f.name]) for f in taken}
        together = _together(question, taken, cells)
        found += [TreeJob(reading, some, {f.name: cells[f.name] for f in some}) for some in together]
        rest = (f for f in features if used[f.name] and reading.ties)
        return [*found, *(called(question, "distinct", reading.cells_of(used[f.name]).plan, (f,)) for f in rest)]


def _together(question: Exchange, features: tuple[Feature, ...], cells: dict[str, Cells]) -> list[tuple[Feature, ...]]:
    """All features in one job, or as many as the memory holds tables of."""
    if question.tables is None:
        return [features] if features else []
    most = question.tables.most_cells
    found: list[tuple[Feature, ...]] = []
    held = most
    for feature in features:
        size = question.problem.n * cells[feature.name].number
        fits = held + size <= most
        held = held + size if fits else size
        found = [*found[:-1], (*found[-1], feature)] if fits else [*found, (feature,)]
    return found


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
        plans, problem = {name: cells.plan for name, cells in self.cells.items()}, self.reading.setting.problem
        if not any(map(is_score, problem.losses)):
            return FromMoments(problem, self.features, run.moments, plans, run.block)
        own = _own_scores(self.reading)
        # Features with the same cells share their moments.
        once = {id(moments): tuple(map(_absolute, moments, own)) for moments in _different(run.moments)}
        known = {name: once[id(moments)] for name, moments in run.moments.items()}
        blur = _BLUR * max(float(np.max(np.abs(one))) for one in own if one is not None)
        return FromMoments(problem, self.features, known, plans, run.block, blur)


def _own_scores(reading: TreeReading) -> list[Floats | None]:
    """For each loss the scores of the rows as they are, if it is one."""
    problem, predictions = reading.setting.problem, reading.setting.base.predictions
    found = [f.rows(predictions, predictions) if isinstance(f, Loss) and is_score(f) else None for f in problem.losses]
    return [None if one is None else np.asarray(arrays.to_host(one), dtype=np.float64) for one in found]


def _different(found: dict[str, tuple[Moments, ...]]) -> list[tuple[Moments, ...]]:
    return list({id(moments): moments for moments in found.values()}.values())


def _absolute(moments: Moments, own: Floats | None) -> Moments:
    """With the scores themselves in the table, where the trees know changes."""
    if own is None or moments.table is None:
        return moments
    return replace(moments, table=np.add(moments.table, own[:, None], out=moments.table))


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

    @property
    def _takes(self) -> bool:
        return not self.reading.deep and not self.reading.ties

    def cost(self, feature: Feature) -> float | str:
        return 0.0 if not self.reading.used(feature) or self._takes else self.by_model.cost(feature)

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Impacts]]:
        unused = tuple(f for f in features if not self.reading.used(f))
        taken = tuple(f for f in features if self.reading.used(f) and self._takes)
        rest = tuple(f for f in features if self.reading.used(f) and not self._takes)
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
