"""What a route is: whether it applies to a question, what a feature costs by it, and jobs that find the answer.

A question is asked of all routes in the order of one list (see `routes`). A route that applies is opened, which reads
the model and compares it with its predictions; what is opened offers features at a cost, and makes the jobs of those
that are left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from reliance import inference
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.inference import Floats, Summary
from reliance.inference.freedom import Support
from reliance.plans import Classes, Plan

if TYPE_CHECKING:
    from reliance.exact.held import HeldAt, Impacts


class Found(Protocol):
    """An answer: at least the shape of the largest block."""

    @property
    def block(self) -> tuple[int, int]: ...


A = TypeVar("A", bound=Found)
A_co = TypeVar("A_co", bound=Found, covariant=True)


# ---------------------------------------------------------------------------------------------------------------------
# Routes


class Job(Protocol[A_co]):
    """Features that are measured together.

    ``route`` is what the result calls it: a name of a route, or "unused".
    """

    @property
    def route(self) -> str: ...

    @property
    def features(self) -> tuple[Feature, ...]: ...

    def evaluations(self, feature: Feature) -> int:
        """How many entries of the feature's table are computed."""
        ...

    def run(self, evaluation: Evaluation) -> A_co:
        """The answer of all its features; raises `trust.Disagreement` if the model turns out to be another."""
        ...


class Offer(Protocol[A_co]):
    """A route that has read the model of a question."""

    def cost(self, feature: Feature) -> float | str:
        """With how many rows the model is called, or why the route does not take the feature."""
        ...

    def jobs(self, features: tuple[Feature, ...]) -> Sequence[Job[A_co]]:
        """The work for features that have a cost."""
        ...


# A route applies: reading the model, to be called once. Or it does not: why, in words that go on after its name.
Opening: TypeAlias = Callable[[], Offer[A]] | str


class Route(Protocol):
    """A way to the answer, always exact.

    A route of your own inherits from this class and says what it does with all pairs; about other questions it may
    keep silent.

    Attributes
    ----------
    name : str
    says : str
        What a model that is called instead "does not predict": ``"its coefficients say"``.
    calls : bool
        Whether the model is called on rows of its own kind.
    """

    name: str
    says: str = ""
    calls: bool = False

    def pairs(self, question: Exchange) -> Opening[Measured]:
        """All pairs of rows that lend each other a feature."""
        ...

    def held(self, question: HeldAt) -> Opening[Impacts]:
        """Features held at some of their values."""
        return "does not hold features at single values"

    def chosen(self, question: ChosenRows) -> Opening[Measured]:
        """Chosen rows, to which all rows lend."""
        return "measures all rows together"


# ---------------------------------------------------------------------------------------------------------------------
# Questions


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange:
    """Features exchanged between rows under a plan.

    ``forced``: the user asks for one route, whatever it costs. ``classes``: what `distinct.classes_of` has found so
    far, by the feature's name.
    """

    problem: Problem
    base: Base
    plan: Plan
    forced: bool = False
    classes: dict[str, Classes | None] = field(default_factory=dict)

    def ask(self, route: Route) -> Opening[Measured]:
        return route.pairs(self)

    @property
    def barred(self) -> str:
        """Why no route but the last applies, if so."""
        rectangular = self.plan.rectangular
        return "" if rectangular else "is for all pairs under per-row losses: pass pairs='all' and no whole-set metric"


@dataclass(frozen=True, eq=False, kw_only=True)
class ChosenRows(Exchange):
    """The same for some of the rows: ``base`` and ``some`` are of ``rows`` alone, and all of ``problem`` lend."""

    some: Problem
    rows: Indices

    def ask(self, route: Route) -> Opening[Measured]:
        return route.chosen(self)


# ---------------------------------------------------------------------------------------------------------------------
# Answers


@dataclass(frozen=True, eq=False)
class Summarizer:
    """What summaries of features under one loss, the ``index``-th of the problem, have in common."""

    index: int
    base_losses: Floats
    weights: Floats | None
    plan: Plan
    compare: str
    per_row: bool
    keep_rows: bool
    supports: Mapping[str, Support]

    @cached_property
    def lent(self) -> Floats:
        return inference.lent_units(self.base_losses, self.weights, self.plan, self.compare)

    def __call__(self, feature: Feature, moments: Moments) -> Summary:
        plan = self.plan.part(feature)
        return inference.summarize(
            moments,
            self.base_losses,
            self.weights,
            plan,
            self.compare,
            per_row=self.per_row,
            lent=self.lent if plan is self.plan else None,
            keep_rows=self.keep_rows,
            support=self.supports[feature.name],
        )


class Measured(Protocol):
    """What is known about the features of a job, under each loss of the problem."""

    @property
    def block(self) -> tuple[int, int]: ...

    def moments(self, feature: Feature) -> tuple[Moments, ...]:
        """Under each loss."""
        ...

    def summaries(self, summarizer: Summarizer) -> dict[str, Summary]:
        """Of each feature by its name, under one loss."""
        ...

    def curve(self, feature: Feature, index: int, speakers: Indices, whole: bool) -> tuple[Floats, Floats | None]:
        """How donors (m,) change the mean of a loss, and if ``whole`` the loss of each row, (n, m)."""
        ...
