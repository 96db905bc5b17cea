"""The list of routes, and the one place where each feature gets the cheapest of them that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol

from reliance._core.progress import Reporter
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.exact import trust
from reliance.exact.additive import Additive
from reliance.exact.distinct import Distinct
from reliance.exact.first_layer import FirstLayer
from reliance.exact.kernel_machines import Kernels
from reliance.exact.linear import Linear
from reliance.exact.nodes import Nodes
from reliance.exact.pipelines import BehindJob, Pipelines
from reliance.exact.plain import Plain
from reliance.exact.protocol import A, Almost, Exchange, Job, Measured, Offer, Opening, Route, Tables
from reliance.exact.scores import Scores
from reliance.exact.tree_route import Trees
from reliance.plans import Plan

# In the order in which they are asked: of two that cost the same, the first is taken. The last applies always.
ROUTES: list[Route] = [
    Linear(),
    Trees(),
    Additive(),
    Pipelines(lambda question, features: _best(question, "auto", features, ROUTES)),
    Kernels(),
    FirstLayer(),
    Nodes(),
    Scores(),
    Distinct(),
    Plain(),
]


def names() -> tuple[str, ...]:
    """What a user may ask for."""
    return "auto", *(route.name for route in reversed(ROUTES))


class Question(Protocol[A]):
    """What is asked of the routes."""

    @property
    def problem(self) -> Problem: ...

    @property
    def barred(self) -> str:
        """Why no route applies but those that serve draws, in words that go on after its name; "" if others may."""
        ...

    @property
    def reasons(self) -> dict[str, str]:
        """Of features for which the model is called, by name, why a route nearly but not quite applies."""
        ...

    def ask(self, route: Route) -> Opening[A]: ...

    def cheaper(self, rows: int) -> str:
        """What would call the model with fewer rows than these."""
        ...

    def check_size(self, cells: int) -> None:
        """Raise what says that a feature's table of so many entries is too large for the question."""
        ...

    def settled(self, answer: A) -> A:
        """What is kept of a job's answer."""
        ...


@dataclass(frozen=True, eq=False)
class Done(Generic[A]):
    """Jobs that were done, and what each has found."""

    jobs: tuple[Job[A], ...]
    answers: tuple[A, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def block(self) -> tuple[int, int]:
        """The largest."""
        return max((answer.block for answer in self.answers), default=(0, 0))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {feature.name: place for place, job in enumerate(self.jobs) for feature in job.features}

    def answer(self, feature: Feature) -> A:
        return self.answers[self._places[feature.name]]

    def routes(self, features: Sequence[Feature]) -> list[str]:
        return [self.jobs[self._places[feature.name]].route for feature in features]

    def why(self, features: Sequence[Feature]) -> list[str]:
        """Why the model was called for each of them though a route is nearly for it; "" if there is nothing to say."""
        return [self.reasons.get(feature.name, "") for feature in features]

    def evaluations(self, features: Sequence[Feature]) -> list[int]:
        return [self.jobs[self._places[feature.name]].evaluations(feature) for feature in features]


# ---------------------------------------------------------------------------------------------------------------------
# Choice


def measure(evaluation: Evaluation, plan: Plan, route: str = "auto", tables: Tables | None = None) -> Done[Measured]:
    """Features exchanged between rows; a forced route that does not apply is an error."""
    question = Exchange(
        problem=evaluation.problem, base=evaluation.base, plan=plan, forced=route != "auto", tables=tables
    )
    return answered(question, evaluation, route)


def has_shortcut(question: Exchange) -> bool:
    """Whether some route, by the look of the model, need not call it on inputs of its own."""
    return any(not isinstance(question.ask(route), str) for route in ROUTES if not route.calls)


def answered(
    question: Question[A], evaluation: Evaluation, route: str = "auto", features: tuple[Feature, ...] | None = None
) -> Done[A]:
    """Everything about some features of a question, by default all.

    A route that is given up in the middle leaves all of its features to those behind it in the list.
    """
    asked = question.problem.features if features is None else features
    waiting = _chosen(question, route, asked, ROUTES)
    # Tables that a route fills without the model are quick: only rows that it is called with are worth a word.
    called = _total([job for one, job in waiting if one.calls or (isinstance(job, BehindJob) and job.calls)])
    for _, job in waiting:
        question.check_size(max(map(job.evaluations, job.features), default=0))
    evaluation.expect(_total([job for _, job in waiting]), called, question.cheaper(called))
    jobs: list[tuple[Route, Job[A], A]] = []
    while waiting:
        one, job = waiting[0]
        try:
            jobs.append((one, job, question.settled(job.run(evaluation))))
            waiting = waiting[1:]
        except trust.Disagreement:
            _disagrees(question.problem, one, route)
            left = tuple(f for o, j in [*((o, j) for o, j, _ in jobs), *waiting] if o is one for f in j.features)
            jobs = [done for done in jobs if done[0] is not one]
            later = ROUTES[ROUTES.index(one) + 1 :]
            waiting = [*(rest for rest in waiting if rest[0] is not one), *_chosen(question, route, left, later)]
            _expect(evaluation.advance, [job for _, job in waiting])
    return Done(tuple(job for _, job, _ in jobs), tuple(answer for _, _, answer in jobs), dict(question.reasons))


def _chosen(
    question: Question[A], wanted: str, features: tuple[Feature, ...], routes: Sequence[Route]
) -> list[tuple[Route, Job[A]]]:
    """The jobs of all features, each by the route that calls the model with the fewest rows."""
    best = _best(question, wanted, features, routes)
    found: list[tuple[Route, Job[A]]] = []
    for route in routes:
        mine = tuple(f for f in features if best[f.name][1] is route)
        if mine:
            found += [(route, job) for job in best[mine[0].name][2].jobs(mine)]
    return found


def _best(
    question: Question[A], wanted: str, features: Sequence[Feature], routes: Sequence[Route]
) -> dict[str, tuple[float, Route, Offer[A]]]:
    """Of each feature, by name, the cheapest offer: what it costs and whose it is."""
    best: dict[str, tuple[float, Route, Offer[A]]] = {}
    for route in _wanted(question, wanted, routes):
        # What costs nothing cannot be had for less: further routes are not even opened.
        left = [f for f in features if f.name not in best or best[f.name][0] > 0.0]
        offer = _opened(question, route, wanted) if left else ""
        if isinstance(offer, str):
            if isinstance(offer, Almost):
                question.reasons.update((f.name, f"route={route.name!r} {offer}") for f in left)
            continue
        for feature in left:
            cost = offer.cost(feature)
            if isinstance(cost, str) and not route.calls:
                question.reasons[feature.name] = f"route={route.name!r}: {cost}"
            if isinstance(cost, str) and wanted == route.name:
                raise ValueError(f"route={shown(wanted)}: {cost}: pass route='auto'")
            if not isinstance(cost, str) and (feature.name not in best or cost < best[feature.name][0]):
                best[feature.name] = cost, route, offer
    for name, (cost, *_) in best.items():
        if cost == 0.0:  # nothing is called
            question.reasons.pop(name, None)
    return best


def _wanted(question: Question[A], wanted: str, routes: Sequence[Route]) -> list[Route]:
    allowed = [route for route in routes if route.draws] if question.barred else routes
    chosen = [route for route in allowed if wanted in ("auto", route.name)]
    if question.barred and not chosen:
        raise ValueError(f"route={shown(wanted)} {question.barred}")
    return chosen


def _opened(question: Question[A], route: Route, wanted: str) -> Offer[A] | str:
    """What a route offers, or why it does not apply."""
    opening = question.ask(route)
    if isinstance(opening, str):
        if wanted == route.name:
            raise ValueError(f"route={shown(wanted)} {opening}: pass route='auto'")
        return opening
    try:
        return opening()
    except trust.Disagreement:
        _disagrees(question.problem, route, wanted)
        return Almost(f"was given up: the model does not predict what {route.says}")


def _disagrees(problem: Problem, route: Route, wanted: str) -> None:
    if wanted == route.name:
        raise ValueError(f"{trust.words(problem, route)}; pass route='auto'") from None
    trust.warn_of_call(problem, route)


def _total(jobs: Sequence[Job[A]]) -> int:
    return sum(job.evaluations(feature) for job in jobs for feature in job.features)


def _expect(advance: Reporter, jobs: Sequence[Job[A]]) -> None:
    """What is left, after what was done in vain."""
    advance.expect(advance.done + _total(jobs) - advance.total)
