"""As many draws as it takes: rounds of twice as many, until what was asked for is settled or cannot be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliance import inference
from reliance._core.checks import check_choice
from reliance._core.progress import Progress
from reliance._core.words import shown
from reliance.engine.evaluation import evaluating
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import routes
from reliance.exact.protocol import Exchange
from reliance.inference import freedom
from reliance.inference.freedom import Support
from reliance.inference.summary import Summary
from reliance.losses.functions import has_rows
from reliance.methods import curves, metrics
from reliance.methods.drawing import check_design
from reliance.methods.growth import FIRST, Ending, Growing, cannot_end, without_end
from reliance.methods.measuring import COMPARE, base_risks, collect, measure
from reliance.plans import Plan
from reliance.plans.growth import growing
from reliance.results.importance import Importance
from reliance.results.mapping import Results

_LEVEL = 0.95
_PRECISION = 0.01
# Independent draws have no end of their own: where all else fails to settle it, so many times n draws are one.
_LIMIT = 100
# Where draws cannot settle a feature they go on all the same until they are no more than this share of its variance.
_NEGLIGIBLE = 0.1


@dataclass(frozen=True)
class Until:
    """As many draws as it takes: ``draws=rl.Until(...)`` doubles their number until one of these is reached.

    Parameters
    ----------
    precision : float, optional
        Until the half-width of every 95% population interval is at most so large, as a share of the base risk. The
        default is 0.01. Where the rows' own variation alone is wider, more draws cannot help, and it stops with "rows".
    relative : bool, optional
        False: ``precision`` is in the units of the risk, no share of it. Ratios are relative to the base risk already.
    top : int, optional
        Until the ranking of so many features is settled, instead of a precision.
    budget : int, optional
        Rows that the model is called with, at most, in all.
    design : {"ranks", "shifts", "permutations"}, optional
        Which draws, as in `Draws`; by default ranks. `ablation_importance` draws independently and refuses it.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = lambda X: X @ np.asarray([2.0, 1.0, 0.0])
    >>> result = rl.permutation_importance(model, X, model(X), draws=rl.Until(top=2), rng=0)
    >>> result.stopped, result.draws_per_row
    ('ranking', 8)
    """

    precision: float | None = None
    relative: bool | None = None
    top: int | None = None
    budget: int | None = None
    design: str | None = None

    def __post_init__(self) -> None:
        if self.design is not None:
            check_design(self.design)
        precision, relative = self.precision, self.relative
        number = isinstance(precision, float | int | np.number) and not isinstance(precision, bool)
        if precision is not None and (not number or not 0.0 < precision < math.inf):
            raise ValueError(f"precision={shown(precision)}: pass a positive half-width, such as 0.01")
        for name in ("top", "budget"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={shown(value)}: pass a positive integer or None")
            object.__setattr__(self, name, int(value))  # integers of NumPy are integers, too
        if relative is not None and not isinstance(relative, bool):
            raise TypeError(f"relative={shown(relative)}: pass True (a share of the base risk) or False (in its units)")
        for name in ("precision", "relative"):
            if self.top is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={shown(getattr(self, name))} and top={shown(self.top)}: top stops at a settled ranking, "
                    "whatever the widths; leave one of the two out"
                )

    def half_width(self, risk: float, compare: str) -> float:
        """How wide half an interval may be."""
        share = _PRECISION if self.precision is None else float(self.precision)
        return share * (1.0 if self.relative is False or compare == "ratio" else abs(risk))


def measure_until(
    problem: Problem,
    plan_of: Callable[[int], Plan],
    goal: Until,
    compare: str,
    method: str,
    progress: Progress = False,
) -> Importance | Results[Importance]:
    """One result for each loss; ``plan_of(K)`` has K draws, the first of which are those of a smaller plan."""
    check_choice(compare, COMPARE, "compare")
    if not any(has_rows(function) for function in problem.losses):
        raise ValueError(
            f"draws=rl.Until(...) watches population intervals, which loss={shown(problem.losses[0].name)} does not "
            "have: pass a number of draws, or a metric with an influence function"
        )
    if goal.top is not None and goal.top >= len(problem.features):
        raise ValueError(f"top={goal.top}: {len(problem.features)} features are ranked; pass a smaller number")
    if problem.run.part is not None:
        raise ValueError(
            f"run has part={problem.run.part}, but draws=rl.Until(...) looks at earlier draws before it makes others: "
            "pass a number of draws"
        )
    exhausted = plan_of(1).exhausted_at
    most, supports = _most_draws(problem, goal, exhausted), _checked_supports(problem, plan_of(1))
    ending = Ending(problem.run)
    with evaluating(without_end(problem), progress) as evaluation:
        base_risks(evaluation, compare)
        sums = Growing(evaluation, plan_of)

        def why() -> str:
            return _why_stop(problem, evaluation.base, sums.plan, compare, sums.moments, supports, goal)

        stopped = ending.rounds(sums, most, why)
    if stopped in ("", "rows") and sums.done == exhausted:
        stopped = "all pairs"
    stopped = stopped or ("budget" if goal.budget is not None else "limit")
    return ending.kept(lambda: collect(evaluation, [sums.part()], compare, method, stopped=stopped))


def measure_in_time(
    problem: Problem, plan: Plan, compare: str, method: str, progress: Progress = False, route: str = "plain"
) -> Importance | Results[Importance]:
    """One result for each loss, of all draws of a plan, or of as many as were made when the call had to end."""
    run, ending = problem.run, Ending(problem.run)
    if not ending.wanted:
        return measure(problem, plan, compare, method, progress, route)
    check_choice(compare, COMPARE, "compare")
    if run.part is not None:
        raise ValueError(
            f"run has part={run.part} and an early end, deadline= or on_interrupt=: what a part left out nobody could "
            "tell from what others do; leave one of the two out"
        )
    plan_of = growing(plan, problem.key)
    if plan_of is None or curves.wants_curves(problem):
        raise cannot_end(run, "curves" if plan_of is not None else plan.label)
    with evaluating(without_end(problem), progress) as evaluation:
        base_risks(evaluation, compare)
        question = Exchange(problem=evaluation.problem, base=evaluation.base, plan=plan)
        if plan.exhaustive and (route not in ("auto", "plain") or (route == "auto" and routes.has_shortcut(question))):
            # A route that need not call the model for every pair: there is nothing to wait for.
            return collect(evaluation, metrics.measured(evaluation, plan, route), compare, method)
        sums = Growing(evaluation, plan_of)
        stopped = ending.rounds(sums, plan.draws)
    if plan.exhaustive and sums.done == plan.draws:
        stopped = "all pairs"
    return ending.kept(lambda: collect(evaluation, [sums.part()], compare, method, stopped=stopped))


def _most_draws(problem: Problem, goal: Until, exhausted: float) -> int:
    """All n - 1 shifts, or what the budget pays for."""
    most = int(min(exhausted, _LIMIT * problem.n))
    if goal.budget is None:
        return most
    each = problem.n * len(problem.features)
    affordable = (goal.budget - problem.n) // each
    if affordable < min(FIRST, most):
        need = problem.n + min(FIRST, most) * each
        raise ValueError(f"budget={goal.budget} is too small: the base pass and the first draws take {need} rows")
    return int(min(affordable, most))


def _checked_supports(problem: Problem, plan: Plan) -> list[dict[str, Support]]:
    """On how many rows each error rests, which must be known of every one that it watches."""
    found = freedom.supports(problem, plan)
    for function, supports in zip(problem.losses, found, strict=True):
        if has_rows(function) and any(support.units < freedom.FEWEST for support in supports.values()):
            raise ValueError(
                f"draws=rl.Until(...) watches population intervals, and that of loss={shown(function.name)} "
                f"{freedom.TOO_FEW}, or pass a number of draws"
            )
    return found


def _why_stop(
    problem: Problem,
    base: Base,
    plan: Plan,
    compare: str,
    moments: dict[str, tuple[Moments, ...]],
    supports: list[dict[str, Support]],
    goal: Until,
) -> str:
    """Precision, ranking or rows if every loss is settled one way or the other; "" to go on."""
    reasons = []
    for index, function in enumerate(problem.losses):
        if not has_rows(function):
            continue
        losses, weights = base.host_losses[index], problem.host_weights
        known = [
            inference.summarize(
                moments[feature.name][index],
                losses,
                weights,
                plan.part(feature),
                compare,
                support=supports[index][feature.name],
                clusters=problem.rows.clusters,
                keep_influence=True,
            )
            for feature in problem.features
        ]
        risk = inference.risk(losses, weights)
        units = freedom.units_of(problem, plan)
        reason = _precise(known, units, compare, risk, goal) if goal.top is None else _ranked(known, units, goal.top)
        if not reason:
            return ""
        reasons.append(reason)
    return "rows" if "rows" in reasons else reasons[0]


def _precise(known: list[Summary], units: int, compare: str, risk: float, goal: Until) -> str:
    values, errors, gamma, share = (
        np.asarray([getattr(s, name) for s in known])
        for name in ("value", "std_error", "skewness", "monte_carlo_share")
    )
    df = np.asarray([s.degrees_of_freedom for s in known])
    df = np.where(np.isnan(df), units - 1, df)
    ends = inference.interval(values, errors, df, _LEVEL, gamma=gamma, ratio=compare == "ratio")
    wanted = goal.half_width(risk, compare)
    half = (ends[:, 1] - ends[:, 0]) / 2.0
    wide = half > wanted
    if not wide.any():
        return "precision"
    # More draws take away the Monte-Carlo share of the variance, and nothing else.
    share = np.nan_to_num(share)
    least = half * np.sqrt(np.maximum(1.0 - share, 0.0))
    return "rows" if np.all((least[wide] > wanted) & (share[wide] <= _NEGLIGIBLE)) else ""


def _ranked(known: list[Summary], units: int, top: int) -> str:
    """Whether each of the largest values is above the next one, beyond the error of their difference."""
    order = np.argsort([-s.value for s in known], kind="stable")
    least = [units - 1.0 if math.isnan(s.degrees_of_freedom) else s.degrees_of_freedom for s in known]
    quantile = inference.t_quantile(_LEVEL, min(least))
    out_of_reach = False
    for one, other in itertools.pairwise(order[: top + 1]):
        a, b = known[one], known[other]
        assert a.influence is not None
        assert b.influence is not None
        error = float(np.std(a.influence - b.influence, ddof=1)) / math.sqrt(a.influence.size)
        gap = a.value - b.value
        if gap > quantile * error:
            continue
        share = max(np.nan_to_num(a.monte_carlo_share), np.nan_to_num(b.monte_carlo_share))
        if share > _NEGLIGIBLE or gap > quantile * error * math.sqrt(max(1.0 - share, 0.0)):
            return ""  # more draws can still tell them apart
        out_of_reach = True
    return "rows" if out_of_reach else "ranking"
