"""Importance of what a feature says beyond other variables: relative importance and conditional model reliance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack, overload

import numpy as np

from reliance._core import arrays
from reliance._core.checks import check_choice
from reliance._core.kinds import Array
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import shown
from reliance.data import tables
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, LossesLike, LossLike, ModelLike
from reliance.engine.evaluation import evaluating
from reliance.engine.outlook import cheaper
from reliance.engine.problems import Problem, prepare
from reliance.inference.freedom import units_of
from reliance.methods.drawing import DEFAULT, Draws, drawn
from reliance.methods.lending import check_anywhere
from reliance.methods.measuring import COMPARE, KEEPS, base_risks, reliance_plan, whole_draws
from reliance.methods.signatures import Measuring
from reliance.methods.studies import Measured, Study, measured, result_of
from reliance.models import networks
from reliance.plans import Plan
from reliance.results.comparisons import RelativeImportance
from reliance.results.importance import Importance
from reliance.results.mapping import Results, one_or_all
from reliance.samplers import residual as samplers
from reliance.samplers import variables, verdicts
from reliance.samplers.by_kind import ByKind
from reliance.samplers.draws import Sampler
from reliance.samplers.given import Given, as_given
from reliance.samplers.given import Variables as GivenVariables
from reliance.samplers.misfit import Check
from reliance.samplers.scrambling import Scrambler
from reliance.samplers.variables import Variables

# If the mean, or the spread, of what conditional model reliance leaves depends on the other columns.
_REMEDIES = (
    "Pass rl.samplers.Scrambler(regressor='kernel_ridge'), or use relative_importance with given='rest'",
    "Use relative_importance with given='rest', or a Scrambler's classifier= for two values",
)

_LEAST_SQUARES = Scrambler()


@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: GivenVariables,
    draws: int | Draws = DEFAULT,
    loss: LossLike | None = None,
    **options: Unpack[Measuring],
) -> Importance: ...
@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: GivenVariables,
    draws: int | Draws = DEFAULT,
    loss: LossesLike,
    **options: Unpack[Measuring],
) -> Results[Importance]: ...
@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: Mapping[str, GivenVariables],
    draws: int | Draws = DEFAULT,
    loss: LossLike | None = None,
    **options: Unpack[Measuring],
) -> RelativeImportance: ...
@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: Mapping[str, GivenVariables],
    draws: int | Draws = DEFAULT,
    loss: LossesLike,
    **options: Unpack[Measuring],
) -> Results[RelativeImportance]: ...
@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: Given,
    draws: int | Draws = DEFAULT,
    loss: LossLike | None = None,
    **options: Unpack[Measuring],
) -> Importance | RelativeImportance: ...
@overload
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: Given,
    draws: int | Draws = DEFAULT,
    loss: LossesLike,
    **options: Unpack[Measuring],
) -> Results[Importance] | Results[RelativeImportance]: ...
@public
def relative_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    given: GivenVariables | Mapping[str, GivenVariables] | Given,
    draws: int | Draws = DEFAULT,
    loss: LossLike | LossesLike | None = None,
    compare: str = "difference",
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> Importance | RelativeImportance | Results[Importance] | Results[RelativeImportance]:
    r"""Increase in loss when a feature is scrambled among rows that are alike in other variables, G.

    .. math:: RFI_j^G = E\, \ell(f(\tilde X_j^G, X_R), Y) - E\, \ell(f(X), Y), \qquad
              \tilde X_j^G \sim P(X_j | X_G), \quad \tilde X_j^G \perp (X_R, Y) \mid X_G

    or the ratio of the two. G = {} is permutation importance, G = all other features conditional importance.

    Parameters
    ----------
    given : list, "rest", mapping or Given
        G: names or indices of features; ``[]`` for none; ``"rest"`` for all other features. A mapping of names to such
        sets measures all of them with the same rows and random numbers. ``rl.Given(G, context=..., sampler=...,
        fit_on=...)`` adds variables that the model never saw, says how X_j is drawn given G, and on which rows that is
        learnt: see `Given`.
    draws : int
        K, how many times each row is replaced.

    Returns
    -------
    Importance
        Or a `RelativeImportance`, a mapping of results with ``delta``, if ``given`` is a mapping; or `Results` of
        these, one by each loss's name, if ``loss`` is a list.

    Notes
    -----
    What you may conclude (König et al.):

    * Not zero: X_j depends on Y or on features outside G, given G, *and* the model uses X_j (Theorem 1).
    * RFI given G differs from RFI given G and N: X_j depends on N given G (Theorem 2).
    * X_j independent of Y and the features outside G, given G: RFI is zero (Lemma 1). The model ignores X_j: RFI is
      zero for every G (Lemma 2).
    * Zero says less: the loss may not see the dependence, or the model may not use it.

    A feature in its own ``given`` is kept as it is: its importance is 0 by definition. Intervals and tests count that
    the sampler was estimated. For ``gaussian`` and ``splines`` the influence of each row on the coefficients is known
    (two runs of 4 draws give the derivative); for ``leaves`` the strata are taken as they are; for the others the
    sampler is fitted again without each of 20 groups of rows, so a feature costs 21 times as many evaluations.

    Every sampler is checked: where what its draws leave of a feature clearly depends on the given columns, the default
    takes the next sampler, and a warning says so of one that was chosen, or if none is left.

    References
    ----------
    König, G., Molnar, C., Bischl, B., Grosse-Wentrup, M. (2020). Relative feature importance. arXiv:2007.08283.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> X = np.stack([cause + 0.5 * rng.normal(size=500), rng.normal(size=500)], axis=1)
    >>> y = X[:, 0] + X[:, 1]
    >>> sets = {"none": [], "cause": ["cause"]}
    >>> given = rl.Given(sets, context={"cause": cause})
    >>> result = rl.relative_importance(lambda X: X.sum(axis=1), X, y, given=given, rng=0)
    >>> bool(abs(result["none"].values[0] - 2.5) < 0.5), bool(abs(result["cause"].values[0] - 0.5) < 0.1)
    (True, True)
    >>> result.delta("none", "cause").test().p_value.round(3).tolist()[0]
    0.0
    """
    check_choice(compare, COMPARE, "compare")
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, keep, KEEPS, clusters)
    check_anywhere(problem.rows, "the sampler of relative_importance")
    on_host = tables.is_table(X) or isinstance(X, np.ndarray | list | tuple)
    moved = on_host and not isinstance(problem.flat, np.ndarray)
    asked = as_given(given)
    variables.check_order(X, asked.context, asked.fit_on)
    known = variables.gather(problem.rows, asked.context, y, moved)
    sets = variables.resolve_given(asked.variables, known)
    fit_on = asked.fit_on
    if fit_on is not None and problem.rows.clusters is not None:
        raise ValueError(
            "clusters= says which rows of X belong together, not which of fit_on do, and those have an error, too: "
            "leave fit_on out of rl.Given, so that the sampler is fitted on X, or leave clusters out"
        )
    training = None if fit_on is None else variables.gather_training(fit_on, known, problem.flat, moved)
    plan = drawn(problem.rows, problem.key, draws)
    method = "relative_importance"
    sampler = samplers.resolve(asked.sampler)
    if isinstance(sampler, ByKind):
        sampler = replace(sampler, coded=_codes(problem, known))
    found = _measure(problem, known, training, sampler, plan, compare, sets, method, progress, None)
    if isinstance(asked.variables, Mapping):
        return one_or_all(found, problem.several)
    alone = {name: result[""] for name, result in found.items()}
    return one_or_all(alone, problem.several)


@overload
def conditional_model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    sampler: Scrambler = _LEAST_SQUARES,
    pairs: str | int | Draws = "all",
    loss: LossLike | None = None,
    **options: Unpack[Measuring],
) -> Importance: ...
@overload
def conditional_model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    sampler: Scrambler = _LEAST_SQUARES,
    pairs: str | int | Draws = "all",
    loss: LossesLike,
    **options: Unpack[Measuring],
) -> Results[Importance]: ...
@public
def conditional_model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    sampler: Scrambler = _LEAST_SQUARES,
    pairs: str | int | Draws = "all",
    loss: LossLike | LossesLike | None = None,
    compare: str = "ratio",
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> Importance | Results[Importance]:
    r"""How many times larger the loss is when rows exchange what the other columns do not predict of a feature.

    .. math:: x_{ik} = \hat x_i + (x_k - \hat x_k), \qquad
              CMR_j = \frac{1}{n(n-1)} \sum_i \sum_{k \ne i} \ell(f(x_i \text{ with feature } j = x_{ik}), y_i)
              \Big/ \frac{1}{n} \sum_i \ell(f(x_i), y_i)

    where the predictions of feature j from all other columns are least squares by default.

    Parameters
    ----------
    sampler : samplers.Scrambler
        By what the other columns predict a feature, ``rl.samplers.Scrambler(regressor="kernel_ridge")`` for instance.
        The default is least squares on the same rows, the course notes' definition.
    pairs : {"all", "halves"} or int
    compare : {"ratio", "difference"}

    Returns
    -------
    Importance
        Or `Results`, one by each loss's name, if ``loss`` is a list.

    Notes
    -----
    1.1 means that the error grows by 10% when what only this feature says is scrambled; 1 means that there is nothing
    of that, or that the model does not use it. Residuals are exchanged between rows as if they were homogeneous: if
    their spread or shape depends on the other columns, rows get values that do not occur there. Where they clearly do,
    a warning names the feature.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]])
    >>> y = X[:, 0] + rng.normal(size=200)
    >>> plain = rl.model_reliance(lambda X: X[:, 0], X, y).values[0]
    >>> bool(1 < rl.conditional_model_reliance(lambda X: X[:, 0], X, y).values[0] < plain)
    True
    """
    check_choice(compare, COMPARE, "compare")
    if not isinstance(sampler, Scrambler):
        raise TypeError(f"sampler={shown(sampler)}: pass rl.samplers.Scrambler(...), or leave it out")
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, keep, KEEPS, clusters)
    check_anywhere(problem.rows, "the sampler of conditional_model_reliance")
    problem, plan = reliance_plan(problem, pairs)
    plan = whole_draws(problem, plan)
    known = variables.gather(problem.rows, None, None)
    if sampler.classifier is not None:
        known, sampler = known.with_uniforms(problem.key), replace(sampler, latent=int(known.matrix.shape[1]))
    method = "conditional_model_reliance"
    by_kind = ByKind(sampler, coded=_codes(problem, known), two_values=False, or_numbers=())
    found = _measure(problem, known, None, by_kind, plan, compare, {"": variables.REST}, method, progress, _REMEDIES)
    return one_or_all({name: result[""] for name, result in found.items()}, problem.several)


def _codes(problem: Problem, known: Variables) -> tuple[int, ...]:
    """Columns whose values are no quantities: codes of a table, and integers that a network takes as they are."""
    takes_integers = networks.module_of(problem.model.source) is not None
    floating = arrays.is_floating(problem.xp, problem.flat.dtype)
    return tuple(range(known.width)) if takes_integers and not floating else known.coded


def _measure(
    problem: Problem,
    known: Variables,
    training: Array | None,
    sampler: Sampler,
    plan: Plan,
    compare: str,
    sets: dict[str, variables.Given],
    method: str,
    progress: Progress,
    remedies: tuple[str, str] | None,
) -> dict[str, RelativeImportance]:
    """All features given all sets, for each loss by name."""
    units_of(problem, plan)  # units that clusters do not have are an error before the work
    with evaluating(problem, progress) as evaluation:
        rows = len(sets) * len(problem.features) * plan.n * plan.columns
        evaluation.expect(rows, cheaper=cheaper(rows, plan))
        base_risks(evaluation, compare)
        check = Check(known.matrix, training, _codes(problem, known))
        study = Study(evaluation, known, training, sampler, plan, compare, check, remedies is None)
        found_at: dict[tuple[str, int], Measured] = {}
        jobs = [(name, k, known.given(sets[name], f.columns)) for name in sets for k, f in enumerate(problem.features)]
        refits = False
        # Where nothing is given comes last: if the others are refitted, it has to be comparable.
        for name, k, given in sorted(jobs, key=lambda job: not job[2]):
            case = measured(study, problem.features[k], given, refits)
            found_at[name, k], refits = case, refits or case.replicates is not None
    cases = {name: [found_at[name, k] for k in range(len(problem.features))] for name in sets}
    verdicts.report((case.verdict for part in cases.values() for case in part if case.verdict), remedies)
    found = {}
    for loss, function in enumerate(problem.losses):
        parts = {
            name: result_of(study, problem.features, cases[name], loss, method, known.words(given))
            for name, given in sets.items()
        }
        found[function.name] = RelativeImportance(
            {name: result for name, (result, _) in parts.items()},
            influences={name: influence for name, (_, influence) in parts.items()},
        )
    return found
