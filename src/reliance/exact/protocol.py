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
from reliance.data.clusters import Membership
from reliance.data.features import Feature
from reliance.engine import outlook
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
        """The answer of all its features; raises `Disagreement` if the model turns out to be another."""
        ...


class Offer(Protocol[A_co]):
    """A route that has read the model of a question."""

    def cost(self, feature: Feature) -> float | str:
        """With how many rows the model is called, or why the route does not take the feature."""
        ...

    def jobs(self, features: tuple[Feature, ...]) -> Sequence[Job[A_co]]:
        """The work for features that have a cost."""
        ...


class Almost(str):
    """Why a route does not apply to a model of the kind that it is for: a result says it where the model is called."""


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
    tables : bool
        Whether it can keep every prediction, not sums alone: ``FromMoments`` with tables.
    draws : bool
        Whether it serves draws, not all pairs alone.
    """

    name: str
    says: str = ""
    calls: bool = False
    tables: bool = False
    draws: bool = False

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


class TablesTooLarge(Exception):
    """The table of some feature, rows by donors that the model tells apart, has more entries than may be held."""


class Tables(Protocol):
    """What is made of whole tables of predictions as soon as a job is done, so that few of them are held at a time."""

    @property
    def most_cells(self) -> int:
        """How many entries the table of a feature may have."""
        ...

    def settled(self, answer: Measured) -> Measured:
        """The same answer with sums in the place of tables."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange:
    """Features exchanged between rows under a plan.

    ``forced``: the user asks for one route, whatever it costs. ``classes``: what ``distinct.classes_of`` has found so
    far, by the feature's name. ``tables``: what becomes of tables of predictions, if some are wanted. ``reasons``: of
    features for which the model is called, by name, which route was the nearest and why it does not apply.
    """

    problem: Problem
    base: Base
    plan: Plan
    forced: bool = False
    classes: dict[str, Classes | None] = field(default_factory=dict)
    tables: Tables | None = None
    reasons: dict[str, str] = field(default_factory=dict)

    def ask(self, route: Route) -> Opening[Measured]:
        if self.tables is not None and not route.tables:
            return "keeps no table of predictions, which ranks over all pairs need"
        return route.pairs(self)

    def cheaper(self, rows: int) -> str:
        return outlook.cheaper(rows, self.plan, next(iter(self.reasons.values()), ""))

    def check_size(self, cells: int) -> None:
        """Raises ``TablesTooLarge`` if so many entries of a feature's table are too many."""
        if self.tables is not None and cells > self.tables.most_cells:
            raise TablesTooLarge

    def settled(self, answer: Measured) -> Measured:
        return answer if self.tables is None else self.tables.settled(answer)

    @property
    def barred(self) -> str:
        """Why no route applies but those that serve draws, if so."""
        if self.plan.rectangular:
            return ""
        return "is for all pairs, of losses and built-in metrics: pass pairs='all' and no Metric of your own"


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
    """What summaries of features under one loss, the ``index``-th of the problem, have in common.

    ``change``: what makes moments under a metric of those under the loss that was measured in its place. ``clusters``:
    the units, if they are not rows. ``keep_influence``: whether summaries tell how far each unit moves the estimate.
    """

    index: int
    base_losses: Floats
    weights: Floats | None
    plan: Plan
    compare: str
    per_row: bool
    keep_rows: bool
    supports: Mapping[str, Support]
    change: Callable[[Moments], Moments] | None = None
    clusters: Membership | None = None
    keep_influence: bool = False

    @cached_property
    def lent(self) -> Floats:
        return inference.lent_units(self.base_losses, self.weights, self.plan, self.compare)

    @property
    def by_row(self) -> bool:
        """Whether something of every row is asked for, which sums over all rows do not tell."""
        return self.keep_rows or self.keep_influence or self.clusters is not None or self.change is not None

    def __call__(self, feature: Feature, moments: Moments) -> Summary:
        plan = self.plan.part(feature)
        return inference.summarize(
            moments if self.change is None else self.change(moments),
            self.base_losses,
            self.weights,
            plan,
            self.compare,
            per_row=self.per_row,
            lent=self.lent if plan is self.plan else None,
            keep_rows=self.keep_rows,
            support=self.supports[feature.name],
            clusters=self.clusters,
            keep_influence=self.keep_influence,
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
