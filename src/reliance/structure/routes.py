"""Which way the pairs of each feature are measured: by closed form, by classes of donors, or one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reliance import blocks
from reliance.blocks import Run
from reliance.executors import Base, Caller
from reliance.features import Feature
from reliance.inputs import Problem
from reliance.plans import Plan
from reliance.reductions import Moments
from reliance.structure.distinct import distinct_values
from reliance.structure.first_layer import FEWEST_COLUMNS, first_layer_problem
from reliance.structure.linear import LinearRoute, linear_route

ROUTES = ("auto", "plain", "distinct", "linear", "first_layer")


@dataclass(frozen=True)
class Job:
    """Features that are measured together: with known moments, or by the engine under a plan."""

    route: str
    features: tuple[Feature, ...]
    plan: Plan
    problem: Problem
    moments: tuple[Moments, ...] | None = None

    @property
    def evaluations(self) -> int:
        """Of each feature."""
        return 0 if self.moments is not None else self.plan.n * self.plan.columns


def jobs(problem: Problem, base: Base, plan: Plan, route: str) -> list[Job]:
    """How each feature of a problem is measured; a forced route that does not apply is an error.

    Only all pairs of per-row losses have other routes than the plain one.
    """
    if route in ("auto", "plain") and (route == "plain" or not plan.rectangular):
        return [Job("plain", problem.features, plan, problem)]
    if not plan.rectangular:
        raise ValueError(
            f"route={route!r} is for all pairs under per-row losses: pass pairs='all' and no whole-set metric"
        )
    linear = linear_route(problem, base) if route in ("auto", "linear") else None
    if linear is not None:
        return [_linear_job(linear, feature, plan, problem) for feature in problem.features]
    behind = first_layer_problem(problem, FEWEST_COLUMNS if route == "auto" else 1) if route != "distinct" else None
    _check_applies(route, behind)
    found: list[Job] = []
    rest: list[Feature] = []
    for feature in problem.features:
        classes = distinct_values(problem, feature)
        if classes is not None and route != "first_layer":
            found.append(Job("distinct", (feature,), classes, problem if behind is None else behind))
        elif route == "distinct":
            raise ValueError(
                f"route='distinct': all {problem.n} values of feature {feature.name!r} differ; pass 'auto'"
            )
        else:
            rest.append(feature)
    if rest and behind is not None:
        # One at a time: each feature has its own two terms of the pre-activations.
        found += [Job("first_layer", (feature,), plan, behind) for feature in rest]
    elif rest:
        found.append(Job("plain", tuple(rest), plan, problem))
    return found


def run(problem: Problem, jobs: list[Job], base: Base, call: Caller) -> Run:
    """All jobs, under one progress report."""
    moments: dict[str, tuple[Moments, ...]] = {}
    block = (0, 0)
    total = sum(len(job.features) * job.evaluations for job in jobs)
    with blocks.progress(problem, total) as advance:
        for job in jobs:
            if job.moments is not None:
                moments.update({feature.name: job.moments for feature in job.features})
                continue
            caller = call if job.problem is problem else _caller(job.problem, call)
            found = blocks.evaluate(job.problem, job.plan, base, caller, job.features, advance)
            moments.update(found.moments)
            block = max(block, found.block)
    return Run(moments, block)


def _caller(problem: Problem, call: Caller) -> Caller:
    """A caller of the problem's own model, with the limit of rows that was found so far."""
    return Caller(problem.model, call.dtype, call.limit)


def _check_applies(route: str, behind: Problem | None) -> None:
    if route == "linear":
        raise ValueError(
            "route='linear' needs a linear model (a linear regressor of scikit-learn, also behind StandardScaler, or "
            "rl.models.Linear), loss='squared_error' and one output: pass route='auto'"
        )
    if route == "first_layer" and behind is None:
        raise ValueError(
            "route='first_layer' needs a torch.nn.Sequential that begins with Linear, or rl.models.FirstLayer, on rows "
            "of one dimension: pass route='auto'"
        )


def _linear_job(linear: LinearRoute, feature: Feature, plan: Plan, problem: Problem) -> Job:
    used = linear.is_used(feature)
    moments = linear.moments(feature) if used else Moments(np.zeros(problem.n), np.zeros(problem.n), 0.0, None)
    return Job("linear" if used else "unused", (feature,), plan, problem, (moments,))
