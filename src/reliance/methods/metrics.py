"""All pairs of metrics: measured as losses of single rows wherever a metric is a function of these.

A call may ask for several losses and metrics at once. Those that are measured under one plan are a part of it, so that
a metric which needs whole draws does not take the others' routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plans
from reliance._core import arrays
from reliance._core.checks import warn
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import routes
from reliance.exact.pooled import CELL_BYTES, PooledRanks, Ranked
from reliance.exact.protocol import Exchange, Measured, Tables, TablesTooLarge
from reliance.exact.routes import Done
from reliance.losses import of_means, outputs
from reliance.losses.functions import Loss, Metric, is_auc
from reliance.losses.of_means import PseudoLosses
from reliance.losses.places import Place
from reliance.methods import curves
from reliance.methods.drawing import drawn
from reliance.plans import Plan
from reliance.results.curves import Curve

Floats = NDArray[np.float64]
# Draws that stand for all pairs: they leave next to nothing of an estimate's variance to chance (see `drawing`).
_DRAWS = 64
Change: TypeAlias = Callable[[Moments], Moments]


class Reading(NamedTuple):
    """Which of the measured losses speaks for one that was asked for, and what makes its moments of those."""

    measured: int
    change: Change | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the losses of a call, measured under one plan.

    ``readings``: by the places of the losses in the call.
    """

    plan: Plan
    done: Done[Measured]
    readings: dict[int, Reading]
    drawn: dict[str, Curve] | None = None


def each_itself(losses: int) -> dict[int, Reading]:
    """Every loss speaks for itself."""
    return {place: Reading(place) for place in range(losses)}


def measured(evaluation: Evaluation, plan: Plan, route: str) -> list[Part]:
    """The losses of a call, in as few parts as leave each of them its route."""
    losses = evaluation.problem.losses
    if not plan.rectangular:
        return [_measured(evaluation, plan, route, each_itself(len(losses)))]
    by_rows = [k for k, one in enumerate(losses) if not isinstance(one, Metric) or of_means.row_loss(one) is not None]
    ranks = [k for k, one in enumerate(losses) if is_auc(one)]
    # Any other metric needs all rows of a draw at once: the same pairs, a whole shift at a time.
    rest = [k for k in range(len(losses)) if k not in by_rows and k not in ranks]
    parts: list[Part] = []
    # Ranks need tables, which not every route has: where no such route applies, one evaluation serves both.
    apart = bool(by_rows) and _has_sums(_in_rows(evaluation, by_rows, plan)[0], plan)
    for places in [by_rows, ranks] if apart else [by_rows + ranks]:
        if places:
            parts += _by_rows(_curves_once(evaluation, parts), places, plan, route)
    if rest:
        readings = {place: Reading(index) for index, place in enumerate(rest)}
        inner = _curves_once(evaluation, parts).of_losses(rest)
        parts.append(_measured(inner, plans.every_shift(plan.n), route, readings))
    return parts


def _has_sums(evaluation: Evaluation, plan: Plan) -> bool:
    """Whether some route that knows sums alone, and no tables, takes the losses of an evaluation."""
    question = Exchange(problem=evaluation.problem, base=evaluation.base, plan=plan)
    return any(not isinstance(question.ask(one), str) for one in routes.ROUTES if not one.tables)


def _curves_once(evaluation: Evaluation, parts: Sequence[Part]) -> Evaluation:
    """Curves are drawn by the first part."""
    if not parts:
        return evaluation
    kept = evaluation.problem.keep - {"curves", "ice"}
    return replace(evaluation, problem=replace(evaluation.problem, keep=kept))


def _by_rows(evaluation: Evaluation, places: Sequence[int], plan: Plan, route: str) -> list[Part]:
    """Losses, and metrics that are functions of a mean loss or of ranks, by the routes."""
    ranks = [place for place in places if is_auc(evaluation.problem.losses[place])]
    others = [place for place in places if place not in ranks]
    inner, readings = _in_rows(evaluation, others, plan)
    if not ranks:
        return [_measured(inner, plan, route, readings)]
    first = len(inner.problem.losses)
    inner, asked = _with_scores(evaluation, inner, ranks)
    tables = PooledRanks(
        dict(zip(range(first, first + 2 * len(ranks), 2), asked, strict=True)), _most_cells(evaluation.problem)
    )
    scored = {place: Reading(first + 2 * index) for index, place in enumerate(ranks)}
    try:
        return [_measured(inner, plan, route, {**readings, **scored}, tables)]
    except TablesTooLarge:
        parts = [_measured(_in_rows(evaluation, others, plan)[0], plan, route, readings)] if others else []
        return [*parts, _drawn(_curves_once(evaluation, parts), ranks)]


def _measured(
    evaluation: Evaluation, plan: Plan, route: str, readings: dict[int, Reading], tables: Tables | None = None
) -> Part:
    if not curves.wants_curves(evaluation.problem):
        return Part(plan, routes.measure(evaluation, plan, route, tables), readings)
    # The outputs are measured with the losses, and stand behind them.
    wide = curves.with_outputs(evaluation, route)
    done = routes.measure(wide, plan, route, tables)
    return Part(plan, done, readings, curves.curves_of(evaluation.problem, wide.base, done))


# ---------------------------------------------------------------------------------------------------------------------
# Metrics that are functions of a mean loss


def _in_rows(evaluation: Evaluation, places: Sequence[int], plan: Plan) -> tuple[Evaluation, dict[int, Reading]]:
    """The losses of single rows that some losses and metrics need, each once."""
    problem, base = evaluation.problem, evaluation.base
    own = [place for place in places if not isinstance(problem.losses[place], Metric)]
    found: list[Loss | Metric] = [problem.losses[place] for place in own]
    readings = {place: Reading(index) for index, place in enumerate(own)}
    added, targets = [], []
    for place in places:
        loss = of_means.row_loss(problem.losses[place])
        if loss is None:
            continue
        loss = replace(loss, columns=problem.losses[place].columns)
        index = next((k for k, one in enumerate(found) if _same(one, loss)), len(found))
        if index == len(found):
            found.append(loss)
            added.append(loss)
            targets.append(base.targets[place])
        readings[place] = Reading(index)
    inner = evaluation.of_losses(own).with_losses(added, targets, behind=True)
    weights = problem.host_weights
    for place in set(places) - set(own):
        pseudo = of_means.pseudo_losses(problem.losses[place], arrays.to_host(base.targets[place]), weights)
        change = _OfMean(pseudo, inner.base.host_losses[readings[place].measured], weights, plan)
        readings[place] = readings[place]._replace(change=change)
    return inner, readings


def _same(one: Loss | Metric, loss: Loss) -> bool:
    return isinstance(one, Loss) and (one.rows, one.target, one.columns) == (loss.rows, loss.target, loss.columns)


@dataclass(frozen=True, eq=False)
class _OfMean:
    """Moments under a metric g(m), from those under the loss whose mean over all pairs is m.

    A pseudo-loss is affine in the loss, so its change is D' = a D + b_i, with a = g'(m) and b_i the pseudo-loss of the
    row's own loss at m less that at the mean of the rows as they are.
    """

    pseudo: PseudoLosses
    losses: Floats
    weights: Floats | None
    plan: Plan

    def __call__(self, moments: Moments) -> Moments:
        k, mean = self.plan.draws, inference.risk(self.losses, self.weights)
        replaced = mean + inference.risk(moments.row_sum, self.weights) / k
        a = self.pseudo.slope(replaced)
        b = self.pseudo.of(self.losses, replaced) - self.pseudo.of(self.losses, mean)
        return Moments(
            a * moments.row_sum + k * b,
            a * moments.donor_sum + self.plan.spread(b if self.weights is None else self.weights * b),
            a * a * moments.row_squares + 2.0 * a * b * moments.row_sum + k * b * b,
            None,
        )


# ---------------------------------------------------------------------------------------------------------------------
# The AUC


def _with_scores(evaluation: Evaluation, inner: Evaluation, places: Sequence[int]) -> tuple[Evaluation, list[Ranked]]:
    """Behind other losses, the scores of some metrics, each with its change."""
    problem, base = evaluation.problem, evaluation.base
    functions, asked = [], []
    for place in places:
        index = _score_column(problem.losses[place], base.predictions)
        functions += [outputs.score(index), outputs.output(index)]
    own = [function.rows(base.predictions, base.predictions) for function in functions]
    memory = problem.memory - 8 * _most_cells(problem)  # the rest is for blocks: one table is held beside them
    wide = inner.with_losses(functions, own, memory, behind=True)
    count, losses, host = len(functions), list(wide.base.losses), list(wide.base.host_losses)
    for k, place in enumerate(places):
        at = len(losses) - count + 2 * k
        positive = np.asarray(arrays.to_host(base.targets[place])) == 1
        asked.append(Ranked(host[at].copy(), positive, base.host_losses[place], problem.host_weights))
        losses[at], host[at] = problem.xp.zeros_like(losses[at]), np.zeros(problem.n)
    return replace(wide, base=replace(wide.base, losses=tuple(losses), host_losses=tuple(host))), asked


def _score_column(metric: Loss | Metric, predictions: Array) -> int:
    """Of the outputs of a row, flattened, the one that `functions.conform` takes for the score."""
    width = 1 if predictions.ndim == 1 else int(predictions.shape[1])
    columns = (0, width) if metric.columns is None else metric.columns
    start, stop = (columns.start, columns.stop) if isinstance(columns, Place) else columns
    return stop - 1 if stop - start == 2 else start


def _most_cells(problem: Problem) -> int:
    """How many entries a table may have that the memory has to hold while it is ranked."""
    return problem.memory // CELL_BYTES


def _drawn(evaluation: Evaluation, places: Sequence[int]) -> Part:
    """Draws in the place of all pairs, whose tables the memory does not hold."""
    problem = evaluation.problem
    cells = f"{problem.n} x {problem.n}"
    warn(
        f"loss={shown(problem.losses[places[0]].name)} over all pairs ranks {cells} scores of a feature, more than "
        f"memory={problem.memory} bytes hold: {_DRAWS} draws by ranks are taken instead, whose error is in "
        "interval(formulation='fixed-data'); pass a larger memory to rl.Run"
    )
    plan = drawn(problem.rows, problem.key, min(_DRAWS, problem.n - 1))
    return _measured(evaluation.of_losses(places), plan, "plain", {place: Reading(k) for k, place in enumerate(places)})
