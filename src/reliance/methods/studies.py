"""One feature given other variables: fit a sampler, replace, evaluate, and know what the fit adds to the error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plans
from reliance._core import arrays
from reliance._core.checks import warn
from reliance._core.kinds import Array
from reliance._core.streams import Indices
from reliance._core.words import listed, shown
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.engine.stores import ArrayStore, Scrambled, Store, Thresholded, Values
from reliance.inference import corrections, identified
from reliance.inference.corrections import DERIVATIVE_DRAWS, Effect
from reliance.inference.freedom import FEWEST, JACKKNIFE_GROUPS, Support, label_of, supports, units_of
from reliance.inference.origins import origin
from reliance.inference.summary import Summary
from reliance.losses.checks import check_takes_weights
from reliance.losses.functions import has_rows
from reliance.plans import Plan
from reliance.results import gathered as results
from reliance.results.comparisons import Influence, jackknife_spread
from reliance.results.importance import Importance
from reliance.results.influence import stacked
from reliance.samplers import sampled_plans, verdicts
from reliance.samplers.by_kind import ByKind
from reliance.samplers.draws import DonorDraws, Draws, FittedSampler, Residuals, Sampler, ValueDraws
from reliance.samplers.misfit import Check
from reliance.samplers.neighbours import KNN
from reliance.samplers.scrambling import Thresholds
from reliance.samplers.variables import Variables
from reliance.samplers.verdicts import Tried, Verdict, sampler_name

Floats = NDArray[np.float64]


class Measured(NamedTuple):
    """One feature given one set: its moments for each loss, and what is known of the sampler's own error."""

    plan: Plan
    moments: tuple[Moments, ...]
    effect: Effect | None
    replicates: Floats | None  # (J, L): estimates without each group of rows
    training_replicates: Floats | None
    evaluations: int
    route: str
    verdict: Verdict | None = None


class Study(NamedTuple):
    """What all features and sets of a call share."""

    evaluation: Evaluation
    variables: Variables
    training: Array | None
    sampler: Sampler
    plan: Plan
    compare: str
    check: Check | None = None
    advises: bool = False  # whether a better sampler is looked for where one is wrong

    @property
    def fitted_on(self) -> Array:
        return self.variables.matrix if self.training is None else self.training

    def chosen(self, feature: Feature, given: tuple[int, ...]) -> tuple[Tried, Verdict]:
        """The sampler of a feature's columns: the user's, or the first of those for their kind that fits."""
        target, rows = feature.columns, self.fitted_on

        def draw(sampler: Sampler) -> Tried:
            fitted, parts = self.drawn(sampler, target, given)
            return Tried(sampler, parts, None if self.check is None else self.check(fitted, parts, target, given))

        several = self.sampler.candidates(rows, target) if isinstance(self.sampler, ByKind) else (self.sampler,)
        one, tried = verdicts.chosen(several, draw)
        verdict = Verdict(feature.name, one.name, one.misfit, tried)
        if not self.advises or not verdicts.is_wrong(one.misfit):
            return one, verdict
        others = (*ByKind(coded=self.variables.coded).candidates(rows, target), KNN(categorical=self.variables.coded))
        return one, verdict._replace(better=verdicts.better(others, tried, draw))

    def drawn(self, sampler: Sampler, target: tuple[int, ...], given: tuple[int, ...]) -> tuple[FittedSampler, Draws]:
        """A fitted sampler and its draws for all rows; what is wrong with a column is said with its name."""
        try:
            fitted = sampler.fit(self.fitted_on, target, given)
            parts = fitted.on(self.variables.matrix)
        except ValueError as error:
            raise ValueError(self.variables.named(str(error))) from error
        coded = [column for column in target if column in self.variables.coded]
        if coded and not isinstance(parts, DonorDraws):
            raise TypeError(
                f"column {shown(self.variables.name_of(coded[0]))} of X holds text, categories or dates, of which "
                f"{type(sampler).__name__} would make numbers: leave sampler out, or pass 'leaves' or 'knn'"
            )
        return fitted, parts


# ---------------------------------------------------------------------------------------------------------------------
# One feature, one set


def measured(study: Study, feature: Feature, given: tuple[int, ...], refits: bool) -> Measured:
    """A feature relative to some columns; ``refits``: by the jackknife also where nothing is fitted."""
    evaluation, n = study.evaluation, study.evaluation.problem.n
    target = tuple(column for column in feature.columns if column not in given)
    if not target:  # what is given is kept: nothing is replaced
        zeros, draws = np.zeros(n), None if study.plan.rectangular else np.zeros(study.plan.draws)
        nothing = Moments(zeros, zeros, zeros, draws, row_contrast=zeros)
        losses = len(evaluation.problem.losses)
        evaluation.advance(_count(study.plan))
        return Measured(study.plan.part(feature), (nothing,) * losses, _no_effect(study), None, None, 0, "given")
    piece = Feature(feature.name, target)
    if not given:
        if refits:
            _check_weighted(study)
        moments = evaluation.moments(evaluation.problem.store, study.plan, piece)
        replicates, extra = _replicates(study, piece, given, None, study.plan, study.sampler) if refits else (None, 0)
        count = _count(study.plan) + extra
        return Measured(study.plan.part(piece), moments, _no_effect(study), replicates, None, count, "marginal")
    (sampler, parts, _), wrong = study.chosen(piece, given)
    store, plan = _replacement(evaluation.problem, parts, study.plan, piece, None)
    known = isinstance(parts, Residuals) and parts.design is not None
    if isinstance(parts, Residuals | Thresholds) and not known and any(map(has_rows, evaluation.problem.losses)):
        _check_weighted(study)
    _report_alone(parts, feature)
    moments, route, own = evaluation.moments(store, plan, piece), sampler_name(sampler), plan.part(piece)
    if not any(map(has_rows, evaluation.problem.losses)):  # nothing can be said of the error but that of the draws
        return Measured(own, moments, _no_effect(study), None, None, _count(plan), route, wrong)
    effect, extra = _effect(study, parts, piece)
    if effect is not None:
        return Measured(own, moments, effect, None, None, _count(plan) + extra, route, wrong)
    replicates, extra = _replicates(study, piece, given, parts, plan, sampler)
    trained, more = (None, 0) if study.training is None else _training_replicates(study, piece, given, sampler)
    return Measured(own, moments, None, replicates, trained, _count(plan) + extra + more, route, wrong)


def _check_weighted(study: Study) -> None:
    for function in study.evaluation.problem.losses:
        check_takes_weights(function, "this sampler's error is measured with rows of weight 0")


def _no_effect(study: Study) -> Effect:
    return Effect(tuple(np.zeros(study.evaluation.problem.n) for _ in study.evaluation.problem.losses), None)


def _count(plan: Plan) -> int:
    return plan.n * plan.columns


def _replacement(
    problem: Problem, parts: Draws, plan: Plan, feature: Feature, ids: Indices | None
) -> tuple[Store, Plan]:
    """The store and the plan of a fitted sampler; ``ids`` are the rows' numbers where they are a part of more."""
    flat, shape = problem.flat, problem.rows.shape
    floating = arrays.as_floating(flat)  # a mean plus a residual is no integer
    # Who lends a residual is sorted by residuals, where a plan sorts at all.
    if isinstance(parts, Residuals):
        store = Scrambled(floating, shape, feature, parts.mean, parts.residual)
        return store, plan.sorted_by(lambda feature: arrays.to_host(parts.residual))
    if isinstance(parts, Thresholds):
        latent = Thresholded(flat, shape, feature, parts.cut, parts.latent, parts.low, parts.high)
        return latent, plan.sorted_by(lambda feature: arrays.to_host(parts.latent))
    if isinstance(parts, ValueDraws):
        drawn = sampled_plans.Values(problem.n, plan.draws, problem.key, parts.uniforms, ids)
        return Values(floating, shape, feature, parts.values), drawn
    if isinstance(parts, DonorDraws):
        named = sampled_plans.Named(problem.n, plan.draws, problem.key, parts.donors, ids, parts.strata)
        return ArrayStore(flat, shape), named
    raise TypeError(
        f"the sampler's on(X) returned {type(parts).__name__}: return samplers.Residuals, ValueDraws or DonorDraws"
    )


def _report_alone(parts: Draws, feature: Feature) -> None:
    if isinstance(parts, DonorDraws) and len(parts.alone):
        warn(
            f"feature {shown(feature.name)}: {len(parts.alone)} rows are alone in their stratum and keep their own "
            f"value, which makes the importance smaller: rows {listed(parts.alone.tolist())}. Use larger strata"
        )


def _effect(study: Study, parts: Draws, feature: Feature) -> tuple[Effect | None, int]:
    """The sampler's own error where it is known without refitting, and the evaluations that it took."""
    evaluation, plan = study.evaluation, study.plan
    n = evaluation.problem.n
    # All pairs are drawn by nobody: neither should their error depend on a seed.
    key = 0 if plan.exhaustive else evaluation.problem.key
    # Rows that lend each other alone stay the units that they are.
    few: Plan = plan if plan.units < n else plans.Shifts(n, min(DERIVATIVE_DRAWS, n - 1), key)
    if isinstance(parts, Residuals) and parts.design is not None:
        count = 2 * len(feature.columns) * _count(few)
        evaluation.advance.expect(count)
        return corrections.residual_effect(evaluation, parts, few, feature), count
    if isinstance(parts, ValueDraws) and parts.normal is not None:
        drawn = sampled_plans.Values(n, min(DERIVATIVE_DRAWS, plan.draws), evaluation.problem.key, parts.uniforms)
        g = len(feature.columns)
        count = (2 * g + g * (g + 1)) * _count(drawn)
        evaluation.advance.expect(count)
        return corrections.normal_effect(evaluation, parts, drawn, feature), count
    if isinstance(parts, DonorDraws) and parts.strata is not None:
        return _no_effect(study), 0
    return None, 0


def _replicates(
    study: Study, feature: Feature, given: tuple[int, ...], parts: Draws | None, plan: Plan, chosen: Sampler
) -> tuple[Floats, int]:
    """``(J, L)``: the estimates without each group of rows, the sampler fitted without it; and the evaluations.

    Draws stay what they are. Where a plan names the donors, the deleted rows are taken away from the sums, as rows and
    as donors; otherwise the sampler draws for the rows that are left, by the same uniform numbers.
    """
    problem, found, count = study.evaluation.problem, [], 0
    by_plan = parts is None or isinstance(parts, Residuals | Thresholds)
    groups = corrections.jackknife_groups(problem.key, problem.n, problem.rows.clusters)
    rows = sum(problem.n if by_plan else len(kept) for kept, _ in groups)
    study.evaluation.advance.expect(rows * study.plan.columns)
    for kept, gone in groups:
        matrix = problem.xp.take(study.variables.matrix, _index(problem, kept), axis=0)
        refit: Draws | None = None
        if given:
            fitted_on = matrix if study.training is None else study.training
            # A sampler may hold something of each evaluated row, such as given strata.
            sampler = chosen.for_rows(kept) if hasattr(chosen, "for_rows") else chosen
            refit = sampler.fit(fitted_on, feature.columns, given).on(matrix)
        if by_plan:
            evaluation = study.evaluation.without(gone)
            whole = parts if refit is None else _merged(parts, refit, kept, gone)
            # The donors stay what they were, also where they were sorted by what is fitted again.
            store = problem.store if whole is None else _replacement(problem, whole, plan, feature, None)[0]
            moments = evaluation.moments(store, plan, feature)
            found.append(_estimates(evaluation, moments, plan.part(feature), study.compare, gone))
            count += _count(plan)
        else:
            assert refit is not None  # what draws by itself draws given something
            evaluation = study.evaluation.some_rows(kept)
            store, own = _replacement(evaluation.problem, refit, study.plan, feature, kept)
            moments = evaluation.moments(store, own, feature)
            found.append(_estimates(evaluation, moments, own, study.compare))
            count += _count(own)
    return np.asarray(found), count


def _merged(parts: Draws | None, refit: Draws, kept: Indices, gone: Indices) -> Draws:
    """What a refitted sampler says of the rows that are left, and the first fit of the others, which do not count."""
    order = np.argsort(np.concatenate([kept, gone]))

    def merge(new: Array, old: Array) -> Array:
        xp, dev = arrays.namespace(old), arrays.device(old)
        index, back = (arrays.from_host(i, xp, dev, arrays.index_dtype(xp)) for i in (gone, order))
        return xp.take(xp.concat([new, xp.take(old, index, axis=0)]), back, axis=0)

    if isinstance(parts, Residuals) and isinstance(refit, Residuals):
        return Residuals(merge(refit.mean, parts.mean), merge(refit.residual, parts.residual))
    if isinstance(parts, Thresholds) and isinstance(refit, Thresholds):
        cut, latent = merge(refit.cut, parts.cut), merge(refit.latent, parts.latent)
        return Thresholds(cut, latent, parts.low, parts.high)
    raise ValueError(
        "without a group of rows the sampler draws in another way, so its error is not known: a column that a "
        "classifier predicts needs more rows of each of its two values"
    )


def _training_replicates(study: Study, feature: Feature, given: tuple[int, ...], chosen: Sampler) -> tuple[Floats, int]:
    """``(J, L)``: the estimates with the sampler fitted without each group of its own rows; and the evaluations."""
    problem, found, count = study.evaluation.problem, [], 0
    assert study.training is not None
    groups = corrections.jackknife_groups(problem.key, int(study.training.shape[0]))
    study.evaluation.advance.expect(len(groups) * _count(study.plan))
    for ids, _ in groups:
        training = problem.xp.take(study.training, _index(problem, ids), axis=0)
        parts = chosen.fit(training, feature.columns, given).on(study.variables.matrix)
        store, plan = _replacement(problem, parts, study.plan, feature, None)
        moments = study.evaluation.moments(store, plan, feature)
        found.append(_estimates(study.evaluation, moments, plan.part(feature), study.compare))
        count += _count(plan)
    return np.asarray(found), count


def _index(problem: Problem, ids: Indices) -> Array:
    return arrays.from_host(ids, problem.xp, problem.device, arrays.index_dtype(problem.xp))


def _estimates(
    evaluation: Evaluation, moments: tuple[Moments, ...], plan: Plan, compare: str, gone: Indices | None = None
) -> list[float]:
    """The value of each loss; without the donors that are gone."""
    weights = evaluation.problem.host_weights
    w = np.ones(plan.n) if weights is None else weights
    cells, lost = plan.draws * w.sum(), np.zeros(plan.n) if gone is None else plan.spread(w)
    found = []
    for one, base in zip(moments, evaluation.base.host_losses, strict=True):
        total = np.sum(w * one.row_sum)
        if gone is not None:
            total -= np.sum(one.donor_sum[gone])
        excess = float(total / (cells - (0.0 if gone is None else np.sum(lost[gone]))))
        found.append(1.0 + excess / inference.risk(base, weights) if compare == "ratio" else excess)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Summaries and results


def _summary(study: Study, case: Measured, loss: int, keep_rows: bool, support: Support) -> tuple[Summary, Influence]:
    """The summary of one feature under one loss, and how rows move it (p = 1)."""
    problem, base = study.evaluation.problem, study.evaluation.base.host_losses[loss]
    effect = None if case.effect is None else case.effect.rows[loss]
    per_row, weights = has_rows(problem.losses[loss]), problem.host_weights
    found = inference.summarize(
        case.moments[loss],
        base,
        weights,
        case.plan,
        study.compare,
        per_row=per_row,
        keep_rows=keep_rows,
        effect=effect,
        support=support,
        clusters=problem.rows.clusters,
    )
    training, left = None, None
    # A metric that says nothing about rows has no error but that of its draws; or it rests on too few rows, whatever
    # the sampler adds.
    if not per_row or support.units < FEWEST:
        return found, Influence(np.full((units_of(problem, case.plan),), np.nan), None, None)
    if case.replicates is not None:
        variances = [jackknife_spread(case.replicates[:, loss][None, :])[0] ** 2]
        freedoms = [case.replicates.shape[0] - 1.0]
        if case.training_replicates is not None:
            variances.append(jackknife_spread(case.training_replicates[:, loss][None, :])[0] ** 2)
            freedoms.append(case.training_replicates.shape[0] - 1.0)
        df = float(np.fmin(inference.satterthwaite(variances, freedoms), found.degrees_of_freedom))  # nan: no fewer
        found = found.with_error(math.sqrt(sum(variances)), 0.0, df)
    elif case.effect is not None and case.effect.training is not None:
        scale = 1.0 / inference.risk(base, problem.host_weights) if study.compare == "ratio" else 1.0
        training, left = scale * case.effect.training[loss], case.effect.freedom
        variances = [found.std_error**2, float(np.var(training, ddof=1) / len(training))]
        units = found.degrees_of_freedom
        own = case.plan.units - 1.0 if math.isnan(units) else units
        df = float(inference.satterthwaite(variances, [own, left]))
        found = found.with_error(math.sqrt(sum(variances)), degrees_of_freedom=df)
    replicates, trained = (
        None if part is None else part[:, loss] for part in (case.replicates, case.training_replicates)
    )
    rows = found.influence if replicates is None else None
    return found, Influence(rows, training, replicates, trained, None if left is None else np.asarray(left))


def result_of(
    study: Study, features: Sequence[Feature], cases: list[Measured], loss: int, method: str, given: str
) -> tuple[Importance, Influence]:
    problem, base = study.evaluation.problem, study.evaluation.base
    function = problem.losses[loss]
    keep_rows = "rows" in problem.keep
    resting = supports(problem, study.plan)[loss]
    pairs = [
        _summary(study, case, loss, keep_rows, resting[feature.name])
        for feature, case in zip(features, cases, strict=True)
    ]
    unknown = identified.constant_unless_unused(problem)
    unknown -= {feature.name for feature, case in zip(features, cases, strict=True) if case.route == "given"}
    identified.warn(unknown, features)
    drawn = next((case.plan for case in cases if case.route not in ("given", "marginal")), study.plan)
    refitted = any(case.replicates is not None for case in cases)
    result = results.from_summaries(
        [feature.name for feature in features],
        identified.without_errors(unknown, features, [summary for summary, _ in pairs]),
        base_risk=inference.risk(base.host_losses[loss], problem.host_weights),
        compare=study.compare,
        method=method,
        loss=function.name,
        why_loss=function.why,
        exchangeable=drawn.exchangeable and problem.rows.clusters is None,
        plan=label_of(problem, f"jackknife, {study.plan.draws} per row" if refitted else drawn.label),
        units=min(units_of(problem, drawn), JACKKNIFE_GROUPS) if refitted else units_of(problem, drawn),
        n=problem.n,
        draws_per_row=study.plan.draws,
        evaluations=[case.evaluations for case in cases],
        routes=[case.route for case in cases],
        block=None,
        key=problem.key,
        keep_rows=keep_rows,
        replaced_by=given,
    )
    influence = stacked([influence for _, influence in pairs])
    if "influence" not in problem.keep:
        return result, influence
    return replace(result, influence=replace(influence, origin=origin(problem, drawn, refitted))), influence
