"""What the methods share: which rows lend to which, the base pass, one evaluation of a plan, a result for each loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reliance import inference, plans
from reliance._core.checks import check_choice, warn
from reliance._core.progress import Progress
from reliance._core.words import shown
from reliance.engine.evaluation import Evaluation, evaluating
from reliance.engine.problems import CURVES, NEED_PAIRS, Problem
from reliance.exact.protocol import Summarizer
from reliance.inference import Summary, freedom, identified, origins
from reliance.inference.freedom import Support
from reliance.losses.functions import Metric, has_rows
from reliance.methods import curves, metrics
from reliance.methods.drawing import Draws, drawn
from reliance.methods.lending import all_lent
from reliance.methods.metrics import Part
from reliance.plans import Plan
from reliance.results import gathered as results
from reliance.results.importance import Importance
from reliance.results.influence import Influence
from reliance.results.mapping import Results, one_or_all

COMPARE = ("difference", "ratio")
KEEPS = ("rows", "influence")


def reliance_plan(problem: Problem, pairs: str | int | Draws) -> tuple[Problem, Plan]:
    """Which pairs of rows lend each other a feature, and the problem, less its odd last row if there are halves."""
    if isinstance(pairs, str) and pairs == "all":
        return problem, all_lent(problem.rows, problem.key, "pairs") or plans.Pairs(problem.n)
    if isinstance(pairs, str) and pairs == "halves":
        if problem.n % 2:
            warn(f"pairs='halves' leaves out the last of {problem.n} rows")
            problem = problem.head(problem.n - 1)
        return problem, plans.halves(problem.n, problem.key)
    if isinstance(pairs, str):
        raise ValueError(f"pairs={shown(pairs)} is unknown: choose 'all', 'halves' or a number of draws")
    return problem, drawn(problem.rows, problem.key, pairs, "pairs")


def whole_draws(problem: Problem, plan: Plan) -> Plan:
    """The plan, or the same pairs a whole shift at a time where some metric needs all rows of a draw at once."""
    whole = any(isinstance(function, Metric) for function in problem.losses)
    return plans.every_shift(plan.n) if whole and plan.rectangular else plan


def measure(
    problem: Problem,
    plan: Plan,
    compare: str,
    method: str,
    progress: Progress = False,
    route: str = "plain",
    quiet: bool = False,
) -> Importance | Results[Importance]:
    """The common composition: base pass, one evaluation of the plan, one result for each loss.

    ``quiet``: nothing is said about intervals and tests, which nobody may ask for.
    """
    check_choice(compare, COMPARE, "compare")
    if curves.wants_curves(problem) and not plan.exhaustive:
        raise ValueError(f"keep={shown(min(problem.keep & set(CURVES)))}: {NEED_PAIRS}")
    freedom.units_of(problem, plan)  # units that clusters do not have are an error before the work
    with evaluating(problem, progress) as evaluation:
        base_risks(evaluation, compare)  # a ratio over 0 is an error before the work
        parts = metrics.measured(evaluation, plan, route)
    return collect(evaluation, parts, compare, method, quiet=quiet)


def collect(
    evaluation: Evaluation, parts: Sequence[Part], compare: str, method: str, stopped: str = "", quiet: bool = False
) -> Importance | Results[Importance]:
    """One result for each loss, from what was found."""
    problem = evaluation.problem
    lent = not parts[0].plan.among_rows  # other rows may have other values of what is constant in these
    unknown = frozenset() if lent else identified.constant_unless_unused(problem)
    if not quiet:
        identified.warn(unknown, problem.features)
    drawn = next((part.drawn for part in parts if part.drawn is not None), None)
    risks = base_risks(evaluation, compare)
    supports = [freedom.supports(problem, part.plan) for part in parts]
    found = {}
    for place, (function, risk) in enumerate(zip(problem.losses, risks, strict=True)):
        part, support = next((p, s) for p, s in zip(parts, supports, strict=True) if place in p.readings)
        plan, done = part.plan, part.done
        own = _summaries(evaluation, part, place, compare, support[place])
        found[function.name] = results.from_summaries(
            [feature.name for feature in problem.features],
            identified.without_errors(unknown, problem.features, own),
            base_risk=risk,
            compare=compare,
            method=method,
            loss=function.name,
            why_loss=function.why,
            exchangeable=plan.exchangeable and problem.rows.clusters is None,
            plan=freedom.label_of(problem, plan.label),
            units=freedom.units_of(problem, plan),
            n=plan.n,
            draws_per_row=plan.draws,
            evaluations=done.evaluations(problem.features),
            routes=done.routes(problem.features),
            why_routes=done.why(problem.features),
            block=done.block,
            key=problem.key,
            keep_rows="rows" in problem.keep,
            curves=drawn,
            stopped=stopped,
            influence=_influence(problem, plan, own),
        )
    return one_or_all(found, problem.several)


def _summaries(
    evaluation: Evaluation, part: Part, place: int, compare: str, supports: Mapping[str, Support]
) -> list[Summary]:
    """Of each feature under one loss of the call."""
    problem, reading = evaluation.problem, part.readings[place]
    summarizer = Summarizer(
        reading.measured,
        evaluation.base.host_losses[place],
        problem.host_weights,
        part.plan,
        compare,
        per_row=has_rows(problem.losses[place]),
        keep_rows="rows" in problem.keep,
        supports=supports,
        change=reading.change,
        clusters=problem.rows.clusters,
        keep_influence="influence" in problem.keep,
    )
    known = {name: one for answer in part.done.answers for name, one in answer.summaries(summarizer).items()}
    return [known[feature.name] for feature in problem.features]


def _influence(problem: Problem, plan: Plan, known: Sequence[Summary]) -> Influence | None:
    """How far units move the estimates, if that is to be kept."""
    if "influence" not in problem.keep:
        return None
    rows = results.stacked([one.influence for one in known])
    return Influence(rows, None, None, origin=origins.origin(problem, plan))


def base_risks(evaluation: Evaluation, compare: str) -> list[float]:
    """The base risk of each loss, which a ratio divides by."""
    problem = evaluation.problem
    risks = [inference.risk(values, problem.host_weights) for values in evaluation.base.host_losses]
    for function, risk in zip(problem.losses, risks, strict=True):
        if compare == "ratio" and risk <= 0:
            raise ValueError(
                f"compare='ratio' divides by the base risk, which is {risk:g} under loss={shown(function.name)}, not "
                "above 0: use compare='difference'"
            )
    return risks
