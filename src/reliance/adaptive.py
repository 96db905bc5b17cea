"""As many draws as it takes: rounds of twice as many, until what was asked for is settled or cannot be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reliance import blocks, inference
from reliance.executors import Base, Caller
from reliance.inference import Floats, Summary
from reliance.inputs import Problem, check_choice
from reliance.losses import has_rows
from reliance.measuring import COMPARE, base_risks, collect
from reliance.plans import Plan, Users
from reliance.reductions import Moments, joined
from reliance.results import Importance
from reliance.rng import Indices
from reliance.structure.routes import Job

_FIRST = 8  # draws of the first round
_LEVEL = 0.95
# Where draws cannot settle a feature they go on all the same until they are no more than this share of its variance.
_NEGLIGIBLE = 0.1


@dataclass(frozen=True)
class Goal:
    """When to stop.

    Attributes
    ----------
    precision : float
        Half-width of every 95% population interval, as a share of the base risk (``relative``) or in its units. A
        ratio is relative to the base risk already.
    top : int or None
        Stop when the ranking of so many features is settled instead.
    budget : int or None
        Rows that the model may be called with, at most, in all.
    """

    precision: float = 0.01
    relative: bool = True
    top: int | None = None
    budget: int | None = None


def checked_goal(precision: Any, top: Any, budget: Any, relative: Any = True) -> Goal:
    number = isinstance(precision, float | int | np.number) and not isinstance(precision, bool)
    if not number or not precision > 0.0 or not math.isfinite(precision):
        raise ValueError(f"precision={precision!r}: pass a positive half-width, such as 0.01")
    for name, value in (("top", top), ("budget", budget)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise ValueError(f"{name}={value!r}: pass a positive integer or None")
    if not isinstance(relative, bool):
        raise TypeError(f"relative={relative!r}: pass True (a share of the base risk) or False (in its units)")
    return Goal(float(precision), relative, None if top is None else int(top), None if budget is None else int(budget))


@dataclass(frozen=True)
class _Later:
    """The draws of a plan from some draw on."""

    plan: Plan
    start: int
    rectangular: bool = False

    @property
    def kind(self) -> str:
        return self.plan.kind

    @property
    def n(self) -> int:
        return self.plan.n

    @property
    def lends(self) -> bool:
        return self.plan.lends

    @property
    def draws(self) -> int:
        return self.plan.draws - self.start

    @property
    def columns(self) -> int:
        return self.draws

    def _moved(self, columns: range) -> range:
        return range(columns.start + self.start, columns.stop + self.start)

    def cuts(self) -> tuple[int, ...]:
        return tuple(cut - self.start for cut in self.plan.cuts() if cut > self.start)

    def donors(self, rows: range, columns: range) -> Indices | Floats:
        return self.plan.donors(rows, self._moved(columns))

    def users(self, columns: range) -> Users:
        return self.plan.users(self._moved(columns))

    def spread(self, v: Floats) -> Floats:
        raise TypeError("the later draws of a plan are never summarised alone")


def measure_until(
    problem: Problem, plan_of: Callable[[int], Plan], goal: Goal, compare: str, method: str
) -> Importance | dict[str, Importance]:
    """One result for each loss; ``plan_of(K)`` has K draws, the first of which are those of a smaller plan."""
    check_choice(compare, COMPARE, "compare")
    if not any(has_rows(function) for function in problem.losses):
        raise ValueError(
            f"draws='auto' watches population intervals, which loss={problem.losses[0].name!r} does not have: pass a "
            "number of draws, or a metric with an influence function"
        )
    if goal.top is not None and goal.top >= len(problem.features):
        raise ValueError(f"top={goal.top}: {len(problem.features)} features are ranked; pass a smaller number")
    call = Caller(problem.model, problem.flat.dtype, blocks.call_rows(problem))
    most = _most_draws(problem, goal)
    moments: dict[str, tuple[Moments, ...]] = {}
    done, stopped, count = 0, "", min(_FIRST, most)
    with blocks.session(problem), blocks.progress(problem, len(problem.features) * problem.n * count) as advance:
        base = blocks.base_pass(problem, call)
        base_risks(problem, base, compare)
        while True:
            plan = plan_of(count)
            run = blocks.evaluate(problem, _Later(plan, done), base, call, problem.features, advance)
            moments = {
                name: tuple(map(joined, moments[name], later)) if name in moments else later
                for name, later in run.moments.items()
            }
            done = count
            stopped = _why_stop(problem, base, plan, compare, moments, goal)
            if stopped or done == most:
                break
            count = min(2 * done, most)
            advance.expect(len(problem.features) * problem.n * (count - done))
    if stopped in ("", "rows") and done == problem.n - 1:
        stopped = "all pairs"
    stopped = stopped or "budget"
    job = Job("plain", problem.features, plan, problem)
    return collect(problem, base, plan, compare, method, [job], replace(run, moments=moments), stopped=stopped)


def _most_draws(problem: Problem, goal: Goal) -> int:
    """All n - 1 shifts, or what the budget pays for."""
    if goal.budget is None:
        return problem.n - 1
    each = problem.n * len(problem.features)
    affordable = (goal.budget - problem.n) // each
    if affordable < min(_FIRST, problem.n - 1):
        need = problem.n + min(_FIRST, problem.n - 1) * each
        raise ValueError(f"budget={goal.budget} is too small: the base pass and the first draws take {need} rows")
    return int(min(affordable, problem.n - 1))


def _why_stop(
    problem: Problem, base: Base, plan: Plan, compare: str, moments: dict[str, tuple[Moments, ...]], goal: Goal
) -> str:
    """Precision, ranking or rows if every loss is settled one way or the other; "" to go on."""
    reasons = []
    for index, function in enumerate(problem.losses):
        if not has_rows(function):
            continue
        losses, weights = base.host_losses[index], problem.host_weights
        lent = inference.lent_units(losses, weights, plan, compare)
        known = [
            inference.summarize(
                moments[feature.name][index], losses, weights, plan, compare, lent=lent, effect=np.zeros(plan.n)
            )
            for feature in problem.features
        ]
        risk = inference.risk(losses, weights)
        reason = _precise(known, plan, compare, risk, goal) if goal.top is None else _ranked(known, plan.n, goal.top)
        if not reason:
            return ""
        reasons.append(reason)
    return "rows" if "rows" in reasons else reasons[0]


def _precise(known: list[Summary], plan: Plan, compare: str, risk: float, goal: Goal) -> str:
    values, errors, gamma, share = (
        np.asarray([getattr(s, name) for s in known])
        for name in ("value", "std_error", "skewness", "monte_carlo_share")
    )
    df = inference.degrees_of_freedom(plan.kind, plan.n)
    ends = inference.interval(values, errors, df, _LEVEL, gamma=gamma, ratio=compare == "ratio")
    wanted = goal.precision * (abs(risk) if goal.relative and compare == "difference" else 1.0)
    half = (ends[:, 1] - ends[:, 0]) / 2.0
    wide = half > wanted
    if not wide.any():
        return "precision"
    # More draws take away the Monte-Carlo share of the variance, and nothing else.
    share = np.nan_to_num(share)
    least = half * np.sqrt(np.maximum(1.0 - share, 0.0))
    return "rows" if np.all((least[wide] > wanted) & (share[wide] <= _NEGLIGIBLE)) else ""


def _ranked(known: list[Summary], n: int, top: int) -> str:
    """Whether each of the largest values is above the next one, beyond the error of their difference."""
    order = np.argsort([-s.value for s in known], kind="stable")
    quantile = inference.t_quantile(_LEVEL, n - 1)
    out_of_reach = False
    for one, other in itertools.pairwise(order[: top + 1]):
        a, b = known[one], known[other]
        assert a.influence is not None
        assert b.influence is not None
        error = float(np.std(a.influence - b.influence, ddof=1)) / math.sqrt(n)
        gap = a.value - b.value
        if gap > quantile * error:
            continue
        share = max(np.nan_to_num(a.monte_carlo_share), np.nan_to_num(b.monte_carlo_share))
        if share > _NEGLIGIBLE or gap > quantile * error * math.sqrt(max(1.0 - share, 0.0)):
            return ""  # more draws can still tell them apart
        out_of_reach = True
    return "rows" if out_of_reach else "ranking"
