"""How much a given model relies on a feature: thin compositions of plan, loss, reduction and inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from reliance import plans
from reliance._core.checks import check_choice, check_draws
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import shown
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, LossesLike, LossLike, ModelLike
from reliance.engine.problems import CURVES, prepare
from reliance.exact import routes
from reliance.methods import by_model
from reliance.methods.adaptive import Until, measure_in_time, measure_until
from reliance.methods.drawing import DEFAULT, Draws, drawn, growing
from reliance.methods.growth import check_no_end
from reliance.methods.lending import check_anywhere, lending
from reliance.methods.measuring import KEEPS, reliance_plan
from reliance.methods.replacing import ReplaceLike, measure_replaced, replacement
from reliance.methods.signatures import Measuring, Replacing
from reliance.plans import Plan
from reliance.plans.protocol import checked, is_plan
from reliance.results.importance import Importance
from reliance.results.mapping import Results


@overload
def ablation_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Until = 10,
    loss: LossLike | None = None,
    **options: Unpack[Replacing],
) -> Importance: ...
@overload
def ablation_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Until = 10,
    loss: LossesLike,
    **options: Unpack[Replacing],
) -> Results[Importance]: ...
@public
def ablation_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Until = 10,
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
    replace: ReplaceLike = None,
) -> Importance | Results[Importance]:
    r"""Increase in loss when a feature's values are drawn at random from its column, with confidence intervals.

    .. math:: \Delta\hat R_j = \frac{1}{nK} \sum_{k=1}^{K} \sum_{i=1}^{n}
              \ell(f(x_i \text{ with feature } j \text{ of } x_{d(i,k)}), y_i) - \ell(f(x_i), y_i)

    with donors d(i, k) independent and uniform over all n rows, the row itself included (equation 10 of the paper,
    whose first line prints the two losses the wrong way round).

    Parameters
    ----------
    draws : int or Until
        K, how many times each row is replaced. ``rl.Until(precision=0.01)``, ``rl.Until(top=3)``: as many as that
        takes; ``result.draws_per_row`` and ``result.stopped`` say how many these were, and why no more.

    Returns
    -------
    Importance
        Or `Results`, one by each loss's name, if ``loss`` is a list.

    Notes
    -----
    ``result.interval(formulation="fixed-data")`` and ``"random-variable"`` are the paper's two intervals. The second
    takes all nK changes for independent, so it is too short for K > 1: at n = 200 and a nominal 95% it covered 91%, 65%
    and 38% for K = 1, 5 and 20. The default, ``"population"``, keeps its level.

    References
    ----------
    Merrick, L. (2019). Randomized ablation feature importance. arXiv:1910.00174.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> result = rl.ablation_importance(lambda X: 2 * X[:, 0], X, 2 * X[:, 0], draws=5, rng=0)
    >>> bool(result.values[0] > 4), result.values[1:].tolist()
    (True, [0.0, 0.0])
    """
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, keep, KEEPS, clusters)
    if replace is not None:
        check_anywhere(problem.rows, "replace=")
        found = replacement(problem, model, X, replace, run)
        return measure_replaced(found, draws, 10, compare, "ablation_importance", progress, independent=True)

    lent = lending(problem.rows, problem.key)

    def plan(count: int) -> Plan:
        return plans.Resample(problem.n, count, problem.key) if lent is None else lent(count, True)

    if isinstance(draws, Until):
        if draws.design is not None:
            raise ValueError(
                f"design={shown(draws.design)} is for permutations, and ablation draws donors independently: leave "
                "design out, or use permutation_importance"
            )
        return measure_until(problem, plan, draws, compare, "ablation_importance", progress)
    return measure_in_time(problem, plan(check_draws(draws)), compare, "ablation_importance", progress)


@overload
def permutation_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Draws | Until | Plan = DEFAULT,
    loss: LossLike | None = None,
    **options: Unpack[Replacing],
) -> Importance: ...
@overload
def permutation_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Draws | Until | Plan = DEFAULT,
    loss: LossesLike,
    **options: Unpack[Replacing],
) -> Results[Importance]: ...
@overload
def permutation_importance(
    model: Mapping[str, ModelLike],
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Draws | Until | Plan = DEFAULT,
    loss: LossLike | LossesLike | None = None,
    **options: Unpack[Replacing],
) -> Results[Importance | Results[Importance]]: ...
@public
def permutation_importance(
    model: ModelLike | Mapping[str, ModelLike],
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int | Draws | Until | Plan = DEFAULT,
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
    replace: ReplaceLike = None,
) -> Importance | Results[Importance] | Results[Importance | Results[Importance]]:
    r"""Increase in loss when a feature is permuted across rows, with confidence intervals.

    .. math:: \frac{1}{nK} \sum_{k=1}^{K} \sum_{i=1}^{n}
              \ell(f(x_i \text{ with feature } j \text{ of } x_{d(i,k)}), y_i)

    minus, or divided by, the mean loss as it is, where every draw d(., k) is a permutation of the rows. By default the
    draws are *by ranks*: donors, the rows that values are borrowed from, are sorted by the feature, and every row
    borrows once from each of K stretches of that order. That leaves 4 to 40 times less noise than K random
    permutations, without bias: values change little from seed to seed. A row may meet itself; changes are scaled by
    n/(n-1), so that the mean over the n(n-1) pairs of different rows is what is estimated, as in `model_reliance`.

    Parameters
    ----------
    model : callable, scikit-learn estimator, torch.nn.Module, or a mapping from names to models
        The fitted model. A function takes rows ``(m, *features)`` and returns predictions ``(m, ...)``, as arrays of
        the kind and on the device of ``X``. Of several models by name each has a result of its own, with the same
        donors for all; `compare_models` has the differences between them.
    draws : int, Draws, Until or Plan
        K, the number of permutations. ``rl.Draws(K, design="shifts")`` and ``"permutations"`` are other designs than
        ranks. ``rl.Until(...)``: as many as it takes. A plan of your own, `reliance.plans.Plan`, says which row lends
        to which in each of its draws.

    Returns
    -------
    Importance
        Or `Results`, one by each loss's name, if ``loss`` is a list; or one by each model's name.

    References
    ----------
    Breiman, L. (2001). Random forests. Machine Learning 45, 5-32.
    Molnar, C. Interpretable machine learning, section 7.5.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X[:, 0] > 0
    >>> result = rl.permutation_importance(lambda X: X[:, 0], X, y, loss="auc", rng=0)
    >>> bool(abs(result.values[0] - 0.5) < 0.05), result.values[1:].tolist()
    (True, [0.0, 0.0])
    """
    if by_model.is_several(model):
        options: dict[str, Any] = {
            "draws": draws,
            "loss": loss,
            "compare": compare,
            "features": features,
            "weights": weights,
            "clusters": clusters,
        }
        options |= {"run": run, "progress": progress, "names": names, "keep": keep, "replace": replace}
        check_no_end(run, "a mapping of models")
        return by_model.of_each(model, rng, lambda one, key: permutation_importance(one, X, y, rng=key, **options))
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, keep, KEEPS, clusters)
    if replace is not None:
        check_anywhere(problem.rows, "replace=")
        found = replacement(problem, model, X, replace, run)
        return measure_replaced(found, draws, DEFAULT, compare, "permutation_importance", progress)

    if is_plan(draws):
        check_anywhere(problem.rows, f"draws={type(draws).__name__}")
        return measure_in_time(problem, checked(draws, problem.n, "draws"), compare, "permutation_importance", progress)

    if isinstance(draws, Until):
        plan_of = growing(problem.rows, problem.key, draws.design)
        return measure_until(problem, plan_of, draws, compare, "permutation_importance", progress)
    plan = drawn(problem.rows, problem.key, draws)
    return measure_in_time(problem, plan, compare, "permutation_importance", progress, "auto")


@overload
def model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    pairs: str | int | Draws = "all",
    route: str = "auto",
    loss: LossLike | None = None,
    **options: Unpack[Measuring],
) -> Importance: ...
@overload
def model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    pairs: str | int | Draws = "all",
    route: str = "auto",
    loss: LossesLike,
    **options: Unpack[Measuring],
) -> Results[Importance]: ...
@public
def model_reliance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    pairs: str | int | Draws = "all",
    loss: LossLike | LossesLike | None = None,
    compare: str = "ratio",
    route: str = "auto",
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> Importance | Results[Importance]:
    r"""How many times larger the loss is when a feature's values come from other rows, over all pairs of rows.

    .. math:: \hat e_{switch} = \frac{1}{n(n-1)} \sum_{i} \sum_{k \ne i}
              \ell(f(x_i \text{ with feature } j \text{ of } x_k), y_i),
              \qquad MR_j = \hat e_{switch} / \hat e_{orig}

    Parameters
    ----------
    compare : {"ratio", "difference"}
        Replaced risk over, or minus, the base risk.
    keep : str or sequence of str
        ``"rows"`` keeps ``row_values`` (p, n), what each row contributes. ``"influence"`` keeps ``influence``, how far
        each row (or cluster) moves each estimate, for ``interval(simultaneous=True)``, ``ranks()`` and differences.
        ``"curves"`` keeps ``curves``: for each feature its partial dependence at the values that occur, which all pairs
        know without one more evaluation. ``"ice"`` keeps the curve of every row, too: n m numbers for m values, which
        the ``memory`` of ``run`` must hold.

    Returns
    -------
    Importance
        Or `Results`, one by each loss's name, if ``loss`` is a list.

    Notes
    -----
    All pairs are evaluated as rectangles of rows and donors; the n cells in which a row would be its own donor are
    evaluated with the rest and masked, so ``evaluations`` is n^2 per feature.

    The metrics ``"r2"``, ``"rmse"``, ``"accuracy"`` and ``"auc"`` are those of the n(n-1) pairs taken as one data set,
    so they do not depend on the order of the rows. The first three are functions of a mean loss and take its route. The
    AUC is the chance that a positive row with any donor scores above a negative row with any other donor, ties counting
    1/2; it ranks a table of scores for each feature, and where ``memory`` does not hold that table, a warning says so
    and 64 draws are taken. Any other `Metric` is averaged over the n - 1 shifts of the rows in their given order.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
    >>> y = np.array([0.0, 1.0, 3.0])
    >>> result = rl.model_reliance(lambda X: X[:, 0], X, y)
    >>> result.values.tolist()  # (1 + 4 + 1 + 1 + 9 + 4) / 6 over 1 / 3
    [10.0, 1.0]
    """
    check_choice(route, routes.names(), "route")
    keeps = (*KEEPS, *CURVES)
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, keep, keeps, clusters)
    problem, plan = reliance_plan(problem, pairs)
    return measure_in_time(problem, plan, compare, "model_reliance", progress, route)
