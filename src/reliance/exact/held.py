"""Features held at values that occur in them: how far predictions spread around their change."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.constant_plans import Constants, ConstantStore
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.exact.protocol import Opening, Route
from reliance.inference import Floats


class Held(NamedTuple):
    """The m distinct values that a feature is held at.

    Attributes
    ----------
    rows : integers (m,)
        A row of X that has each value.
    values : array (m,)
        In the dtype of the column.
    place : integers (Q,)
        Which of them each quantile is.
    spread : float
        The standard deviation of the feature; 0 if it is constant.
    """

    rows: Indices
    values: HostArray
    place: Indices
    spread: float

    @property
    def points(self) -> Floats:
        return self.values[self.place].astype(np.float64)


@dataclass(frozen=True, eq=False)
class HeldAt:
    """A question: the impact of features at their values; the losses are the prediction's change and its square."""

    problem: Problem
    base: Base
    held: dict[str, Held]
    barred: str = ""
    reasons: dict[str, str] = field(default_factory=dict)

    def ask(self, route: Route) -> Opening[Impacts]:
        return route.held(self)

    def cheaper(self, rows: int) -> str:
        return "fewer quantiles= or features take less"

    def check_size(self, cells: int) -> None:
        """No tables are held."""

    def settled(self, answer: Impacts) -> Impacts:
        return answer


@dataclass(frozen=True, eq=False)
class Impacts:
    """The answer: I_{k,q} of features by their names, at their m values each."""

    found: dict[str, Floats]
    block: tuple[int, int] = (0, 0)


def impact(one: Held, n: int, changes: Floats, squares: Floats) -> Floats:
    """sigma(y - y_kq) / sigma(x_k), from the sums over the rows of the change of the prediction and of its square.

    The row that has the value itself does not change, so the variance is at least 1/n of the mean square: the
    difference of the two sums keeps its digits.
    """
    variance = np.maximum(squares - changes**2 / n, 0.0) / (n - 1)
    return np.asarray(np.sqrt(variance) / one.spread)


@dataclass(frozen=True, eq=False)
class KnownImpacts:
    """A job with nothing left to do."""

    route: str
    features: tuple[Feature, ...]
    found: dict[str, Floats]

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> Impacts:
        return Impacts(self.found)


class Lines(NamedTuple):
    """Which of the m values are evaluated, (e,), and which of these speaks for each value, (m,)."""

    evaluated: Indices
    speaker: Indices


@dataclass(frozen=True, eq=False)
class HeldByModel:
    """By calling the model at each value; of values with one label, which it does not tell apart, at one.

    ``labels (n,)``: of some columns, by number.
    """

    question: HeldAt
    labels: dict[int, Indices] = field(default_factory=dict)

    def lines(self, feature: Feature) -> Lines:
        one, column = self.question.held[feature.name], feature.columns[0]
        if column not in self.labels:
            every = np.arange(len(one.rows))
            return Lines(every, every)
        _, first, speaker = np.unique(self.labels[column][one.rows], return_index=True, return_inverse=True)
        return Lines(first, speaker)

    def cost(self, feature: Feature) -> float | str:
        return self.question.problem.n * len(self.lines(feature).evaluated)

    def jobs(self, features: tuple[Feature, ...]) -> list[HeldTogether]:
        """Features that are held at equally many values share filled blocks."""
        lines = {feature.name: self.lines(feature) for feature in features}
        counts = sorted({len(one.evaluated) for one in lines.values()})
        together = [tuple(f for f in features if len(lines[f.name].evaluated) == count) for count in counts]
        return [HeldTogether(self.question, some, {f.name: lines[f.name] for f in some}) for some in together]


@dataclass(frozen=True, eq=False)
class HeldTogether:
    """The job of features that are held at equally many values."""

    question: HeldAt
    features: tuple[Feature, ...]
    lines: dict[str, Lines]
    route: str = "plain"

    @property
    def count(self) -> int:
        return len(self.lines[self.features[0].name].evaluated)

    def evaluations(self, feature: Feature) -> int:
        return self.question.problem.n * self.count

    def run(self, evaluation: Evaluation) -> Impacts:
        problem, held, n = self.question.problem, self.question.held, self.question.problem.n
        table = np.zeros((self.count, problem.flat.shape[1]), dtype=held[self.features[0].name].values.dtype)
        for feature in self.features:
            table[:, feature.columns[0]] = held[feature.name].values[self.lines[feature.name].evaluated]
        replaced = dataclasses.replace(problem, store=ConstantStore.over(problem.rows, table))
        run = evaluation.on(replaced).measure(Constants(n, self.count), self.features)
        found = {}
        for feature in self.features:
            changes, squares = (moments.draw_sum for moments in run.moments[feature.name])
            assert changes is not None
            assert squares is not None
            found[feature.name] = impact(held[feature.name], n, changes, squares)[self.lines[feature.name].speaker]
        return Impacts(found, run.block)
