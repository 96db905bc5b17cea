"""Shares of the variance of the predictions: Sobol's indices, from the same replaced rows as every other importance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance._core.checks import check_choice
from reliance._core.progress import Progress, Reporter
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import shown
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, ModelLike
from reliance.engine.evaluation import evaluating
from reliance.engine.executors import Base
from reliance.engine.problems import Problem, prepare
from reliance.exact import routes
from reliance.exact.protocol import Measured
from reliance.exact.routes import Done
from reliance.inference import freedom, identified
from reliance.inference.summary import Summary
from reliance.losses import functions as losses
from reliance.losses import outputs
from reliance.methods.measuring import reliance_plan
from reliance.methods.variance_shares import effects_of, influential, share
from reliance.plans import Pairs, Plan
from reliance.results import gathered as results
from reliance.results.importance import Importance

Floats = NDArray[np.float64]
FORMS = ("independent", "product")


@public
def sobol_total(
    model: ModelLike,
    X: DataLike,
    *,
    pairs: str | int = "all",
    form: str = "independent",
    features: FeaturesLike = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> Importance:
    r"""Share of the predictions' variance that is lost if a feature is fixed: Sobol's total index.

    .. math:: T_j = \frac{\frac{1}{n(n-1)} \sum_i \sum_{k \ne i} (f_i - f_{ik})^2}{2\, \mathrm{Var} f}, \qquad
              f_{ik} = f(x_i \text{ with feature } j \text{ of } x_k)

    It counts the feature alone and all its interactions, so the indices of all features may add up to more than 1.

    Parameters
    ----------
    model : callable, scikit-learn estimator or torch.nn.Module
        ``batch (m, *features) -> predictions (m,)``, one number per row, on the namespace and device of ``X``.
    form : {"independent", "product"}
        ``"independent"``: the formula above. ``"product"``, all pairs only: the mean over rows of the variance of f_ik
        within a row, over the variance of all f_ik.

    Returns
    -------
    Importance
        ``values`` are the indices (``compare="share"``), ``base_risk`` is the variance of the predictions,
        ``replaced_risk`` the variance that each feature is needed for.

    Notes
    -----
    Sobol's decomposition is one of independent features. If features depend on each other, f_ik is a prediction for a
    row that does not occur like this in the data, and the two forms differ. ``"independent"`` then mixes two
    distributions and is an index of neither; it can be above 1. ``"product"`` is the index of a world in which the
    feature has the same distribution but is independent of the others: between 0 and 1, but not about the data as they
    are. Their difference tells how much the dependence matters.

    The interval is the population interval: over new rows of the same kind, the model fixed. ``"product"`` takes
    min(n, 500) n more evaluations for it.

    References
    ----------
    Homma, T., Saltelli, A. (1996). Importance measures in global sensitivity analysis of nonlinear models.
    Reliability Engineering and System Safety 52, 1-17.
    Jansen, M. (1999). Analysis of variance designs for model output. Computer Physics Communications 117, 35-43.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> result = rl.sobol_total(lambda X: 2 * X[:, 0] + X[:, 1], X)
    >>> lower, upper = result.interval().T
    >>> bool(lower[0] < 0.8 < upper[0]), bool(lower[1] < 0.2 < upper[1]), float(result.values[2])
    (True, True, 0.0)
    """
    check_choice(form, FORMS, "form")
    problem = prepare(model, X, None, features, "prediction_shift", None, rng, run, names, (), (), clusters)
    if form == "product":
        _check_all_pairs(pairs, "form='product'")
        if clusters is not None:
            raise ValueError(
                "form='product' and clusters=: the influence of single rows is known of a sample of them, which tells "
                "nothing about whole clusters. Use form='independent', or leave clusters out"
            )
        return _by_effects(problem, "product", "sobol_total", progress)
    problem, plan = reliance_plan(problem, pairs)
    freedom.units_of(problem, plan)  # units that clusters do not have are an error before the work
    with evaluating(problem, progress) as evaluation:
        own = _own_predictions(evaluation.base)
        done = routes.measure(evaluation, plan)
    variance = float(np.var(own, ddof=1))
    unit = 2.0 * (own - own.mean()) ** 2 * problem.n / (problem.n - 1)  # its mean is 2 Var f
    summaries, known = [], problem.rows.clusters
    support = None if known is None else freedom.clustered_support(known, math.inf, None)
    for feature in problem.features:
        one = done.answer(feature).moments(feature)[0]
        found = inference.summarize(
            one, unit, None, plan.part(feature), "ratio", keep_rows=False, support=support, clusters=known
        )
        summaries.append(_as_share(found, variance))
    return _result(problem, summaries, plan, done, variance, "sobol_total")


@public
def sobol_first(
    model: ModelLike,
    X: DataLike,
    *,
    form: str = "independent",
    features: FeaturesLike = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> Importance:
    r"""Share of the predictions' variance that a feature explains alone: Sobol's first-order index.

    .. math:: S_j = \frac{\mathrm{Var}_k (m_k)}{\mathrm{Var} f}, \qquad
              m_k = \frac{1}{n-1} \sum_{i \ne k} f(x_i \text{ with feature } j \text{ of } x_k)

    The m_k are the partial dependence at the values of the rows. They are means over n - 1 rows, and the noise that
    this leaves in their variance is taken away without bias, so that a small index may come out below 0. The total
    index less this one is what the feature does together with others.

    Parameters
    ----------
    model : callable, scikit-learn estimator or torch.nn.Module
        ``batch (m, *features) -> predictions (m,)``, one number per row, on the namespace and device of ``X``. All
        pairs are evaluated, by the cheapest route that is exact: nothing is drawn at random.
    form : {"independent", "product"}
        Divide by the variance of the predictions, or by that of all f_ik. See the notes of `sobol_total`: for
        independent features both are the same index, for others only the second is one.

    Returns
    -------
    Importance
        As of `sobol_total`; ``replaced_risk`` is the variance that the feature explains.

    Notes
    -----
    The interval needs the products of single rows with the effects that were found: min(n, 500) n more evaluations.

    References
    ----------
    Sobol, I. M. (1993). Sensitivity estimates for nonlinear mathematical models. Mathematical Modelling and
    Computational Experiments 1, 407-414.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    >>> first = rl.sobol_first(lambda X: X[:, 0] * X[:, 1] + X[:, 0], X)  # 3/4 by itself, the rest with the second
    >>> total = rl.sobol_total(lambda X: X[:, 0] * X[:, 1] + X[:, 0], X)
    >>> bool(np.all(np.abs(first.values - [0.75, 0.0]) < 0.1)), bool(np.all(np.abs(total.values - [1.0, 0.25]) < 0.1))
    (True, True)
    """
    check_choice(form, FORMS, "form")
    problem = prepare(model, X, None, features, "prediction_shift", None, 0, run, names, (), ())
    return _by_effects(problem, form, "sobol_first", progress)


def _by_effects(problem: Problem, form: str, method: str, progress: Progress) -> Importance:
    if problem.n < 4:
        raise ValueError(f"X has {problem.n} rows: {method} compares effects of different pairs, give at least 4")
    plan: Plan = Pairs(problem.n)
    chosen = influential(problem.n)
    with evaluating(problem, progress) as evaluation:
        own = _own_predictions(evaluation.base)
        function = outputs.output(0)
        values = function.rows(evaluation.base.predictions, evaluation.base.predictions)
        # The squared distance to the mean prediction, and behind it the output itself.
        centre = problem.xp.full((problem.n,), float(own.mean()), dtype=values.dtype, device=problem.device)
        done = routes.measure(evaluation.with_losses([losses.squared_error, function], [centre, values]), plan)
        # The second pass is of the outputs alone, and nobody is told of it.
        second = dataclasses.replace(evaluation.with_losses([function], [values]), advance=Reporter())
        variance = float(np.var(own, ddof=1))
        found, more = [], {}
        for feature in problem.features:
            effects = effects_of(own, done.answer(feature).moments(feature))
            spread = (own - own.mean())[chosen] ** 2 - variance
            summary, count = share(second, feature, effects, chosen, form, method, variance, spread)
            found.append(summary)
            more[feature.name] = count
    return _result(problem, found, plan, done, variance, method, more)


# ---------------------------------------------------------------------------------------------------------------------
# Parts


def _own_predictions(base: Base) -> Floats:
    """``(n,)`` on the host; an error if there are several outputs or if they do not vary."""
    if math.prod(base.predictions.shape[1:]) != 1:
        raise ValueError(
            f"the model returns predictions of shape {tuple(base.predictions.shape)}: an index is of one output, so "
            "pass a model that returns one, such as lambda X: model.predict_proba(X)[:, 1]"
        )
    own = np.asarray(arrays.to_host(base.predictions), dtype=np.float64).reshape(-1)
    slack = np.asarray(arrays.to_host(base.slack), dtype=np.float64).reshape(-1)
    if np.all(np.abs(own - own.mean()) <= slack):
        raise ValueError(
            f"the model predicts {own[0]:g} for every row of X: predictions that do not vary have no variance to share"
        )
    return own


def _check_all_pairs(pairs: str | int, what: str) -> None:
    if pairs != "all":
        raise ValueError(f"{what} needs the variance within every row: pass pairs='all', got pairs={shown(pairs)}")


def _as_share(found: Summary, variance: float) -> Summary:
    """A ratio's summary, whose null value is 1, as that of a share, whose null value is 0."""
    draws = None if found.draws is None else found.draws - 1.0
    share = found.value - 1.0
    return dataclasses.replace(found, value=share, replaced_risk=share * variance, draws=draws)


def _result(
    problem: Problem,
    summaries: list[Summary],
    plan: Plan,
    done: Done[Measured],
    variance: float,
    method: str,
    more: dict[str, int] | None = None,
) -> Importance:
    names = [feature.name for feature in problem.features]
    unknown = identified.constant_unless_unused(problem)
    identified.warn(unknown, problem.features)
    return results.from_summaries(
        names,
        identified.without_errors(unknown, problem.features, summaries),
        base_risk=variance,
        compare="share",
        method=method,
        loss="variance of the predictions",
        plan=freedom.label_of(problem, plan.label),
        units=freedom.units_of(problem, plan),
        n=plan.n,
        draws_per_row=plan.draws,
        evaluations=[
            count + (more or {}).get(name, 0)
            for name, count in zip(names, done.evaluations(problem.features), strict=True)
        ],
        routes=done.routes(problem.features),
        block=done.block,
        key=problem.key,
        keep_rows=False,
    )
