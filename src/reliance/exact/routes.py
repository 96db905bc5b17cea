"""Which way the pairs of a feature are measured: by closed form, by the trees, by classes of donors, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import blocks
from reliance.engine.blocks import Run
from reliance.engine.executors import Base, Caller
from reliance.engine.inputs import Problem
from reliance.engine.reductions import Moments
from reliance.exact import trust
from reliance.exact.cells import Cells
from reliance.exact.distinct import distinct_values
from reliance.exact.first_layer import FEWEST_COLUMNS, first_layer_problem
from reliance.exact.linear import LinearRoute, linear_route
from reliance.exact.trees import TreeRoute, tree_route
from reliance.losses.outputs import is_output
from reliance.plans import Pairs, Plan

R = TypeVar("R")
ROUTES = ("auto", "plain", "distinct", "trees", "linear", "first_layer")


@dataclass(frozen=True)
class Job:
    """Features that are measured together: with known moments, by the trees, or by the engine under a plan."""

    route: str
    features: tuple[Feature, ...]
    plan: Plan
    problem: Problem
    moments: tuple[Moments, ...] | None = None
    trees: tuple[TreeRoute, Cells] | None = None
    linear: LinearRoute | None = None

    @property
    def evaluations(self) -> int:
        """Of each feature."""
        return 0 if self.moments is not None or self.linear is not None else self.plan.n * self.plan.columns


def jobs(problem: Problem, base: Base, plan: Plan, route: str) -> list[Job]:
    """How each feature of a problem is measured; a forced route that does not apply is an error.

    Only all pairs of per-row losses have other routes than the plain one.
    """
    if route in ("auto", "plain") and (route == "plain" or not plan.rectangular):
        return [Job("plain", problem.features, plan, problem)]
    if not plan.rectangular:
        raise ValueError(
            f"route={shown(route)} is for all pairs under per-row losses: pass pairs='all' and no whole-set metric"
        )
    linear = _trusted("linear", problem, route, linear_route, base)
    if linear is not None:
        return _linear_jobs(linear, plan, problem)
    trees = _trusted("trees", problem, route, tree_route, base)
    if trees is not None:
        return [_tree_job(trees, feature, plan, problem, route) for feature in problem.features]
    return _engine_jobs(problem, base, problem.features, plan, route)


def _trusted(name: str, problem: Problem, route: str, find: Callable[..., R | None], *given: Any) -> R | None:
    """A route by its name, if it is wanted, applies and predicts what the model predicts."""
    if route not in ("auto", name):
        return None
    try:
        return find(problem, *given)
    except trust.Disagreement:
        if route == name:
            raise ValueError(f"{trust.words(problem, name)}; pass route='auto'") from None
        trust.warn(problem, name)
        return None


def _engine_jobs(problem: Problem, base: Base, features: tuple[Feature, ...], plan: Plan, route: str) -> list[Job]:
    """The jobs of a model that has to be called."""
    fewest = FEWEST_COLUMNS if route == "auto" else 1
    behind = _trusted("first_layer", problem, route, first_layer_problem, base, fewest)
    _check_applies(route, behind)
    found: list[Job] = []
    rest: list[Feature] = []
    for feature in features:
        classes = distinct_values(problem, feature)
        if classes is not None and route != "first_layer":
            found.append(Job("distinct", (feature,), classes, problem if behind is None else behind))
        elif route == "distinct":
            raise ValueError(
                f"route='distinct': all {problem.n} values of feature {shown(feature.name)} differ; pass 'auto'"
            )
        else:
            rest.append(feature)
    if rest and behind is not None:
        # One at a time: each feature has its own two terms of the pre-activations.
        found += [Job("first_layer", (feature,), plan, behind) for feature in rest]
    elif rest:
        found.append(Job("plain", tuple(rest), plan, problem))
    return found


def run(problem: Problem, jobs: list[Job], base: Base, call: Caller, route: str) -> tuple[Run, list[Job]]:
    """All jobs, under one progress report; and the jobs that were done, should the trees have to be given up."""
    total = sum(len(job.features) * job.evaluations for job in jobs)
    with blocks.progress(problem, total) as advance:
        try:
            found = _run_trees([job for job in jobs if job.trees is not None], advance)
        except trust.Disagreement:
            if route == "trees":
                raise ValueError(f"{trust.words(problem, 'trees')}; pass route='auto'") from None
            trust.warn(problem, "trees")
            jobs = _engine_jobs(problem, base, problem.features, Pairs(problem.n), "auto")
            found = Run({}, (0, 0))
        moments, block = dict(found.moments), found.block
        for job in jobs:
            if job.trees is not None or job.linear is not None:
                continue
            if job.moments is not None:
                moments.update({feature.name: job.moments for feature in job.features})
                continue
            caller = call if job.problem is problem else _caller(job.problem, call)
            found = blocks.evaluate(job.problem, job.plan, base, caller, job.features, advance)
            moments.update(found.moments)
            block = max(block, found.block)
    return Run(moments, block), jobs


def all_moments(run: Run, jobs: list[Job]) -> dict[str, tuple[Moments, ...]]:
    """Of every feature, also of those that a closed form has summed up."""
    closed = [(job.linear, feature) for job in jobs if job.linear is not None for feature in job.features]
    return run.moments | {
        feature.name: tuple(
            linear.output_moments(feature) if is_output(function) else linear.moments(feature)
            for function in linear.problem.losses
        )
        for linear, feature in closed
    }


def _run_trees(jobs: list[Job], advance: Callable[[int], None]) -> Run:
    wanted = {job.features[0].name: job.trees[1] for job in jobs if job.trees is not None}
    return jobs[0].trees[0].moments(wanted, advance) if jobs and jobs[0].trees is not None else Run({}, (0, 0))


def _caller(problem: Problem, call: Caller) -> Caller:
    """A caller of the problem's own model, with the limit of rows that was found so far."""
    return Caller(problem.model, call.limit)


def _check_applies(route: str, behind: Problem | None) -> None:
    if route == "linear":
        raise ValueError(
            "route='linear' needs a linear model (a linear regressor of scikit-learn, also behind StandardScaler, or "
            "rl.models.Linear), loss='squared_error' and one output: pass route='auto'"
        )
    if route == "trees":
        raise ValueError(
            "route='trees' needs an ensemble of trees that can be read (scikit-learn's trees, forests and gradient "
            "boosting, LightGBM, XGBoost), on rows of one dimension: pass route='auto'"
        )
    if route == "first_layer" and behind is None:
        raise ValueError(
            "route='first_layer' needs a torch.nn.Sequential that begins with Linear, or rl.models.FirstLayer, on rows "
            "of one dimension: pass route='auto'"
        )


def _linear_jobs(linear: LinearRoute, plan: Plan, problem: Problem) -> list[Job]:
    """Used features have their summaries from the route itself, without moments of (n,) each."""
    unused = tuple(f for f, used in zip(problem.features, linear.used, strict=True) if not used)
    used = tuple(f for f in problem.features if f not in unused)
    found = [Job("linear", used, plan, problem, linear=linear)] if used else []
    nothing = tuple(_nothing(problem.n) for _ in problem.losses)
    return [*found, Job("unused", unused, plan, problem, nothing)] if unused else found


def _nothing(n: int) -> Moments:
    return Moments(np.zeros(n), np.zeros(n), np.zeros(n), None)


def _tree_job(trees: TreeRoute, feature: Feature, plan: Plan, problem: Problem, route: str) -> Job:
    columns = trees.used(feature)
    if not columns:
        return Job("unused", (feature,), plan, problem, tuple(_nothing(problem.n) for _ in problem.losses))
    cells = trees.cells_of(columns)
    if trees.takes(columns):
        return Job("trees", (feature,), cells.plan, problem, trees=(trees, cells))
    if route == "trees":
        raise ValueError(
            f"route='trees': for feature {shown(feature.name)} the model has to be called, because it is a group of "
            "columns or splits are categorical in trees of more than 64 leaves, or because labels of a forest with "
            "mixed leaves are compared, whose ties its library breaks by rounding: pass route='auto'"
        )
    # The model is called, but once for each cell only.
    return Job("distinct", (feature,), cells.plan, problem)
