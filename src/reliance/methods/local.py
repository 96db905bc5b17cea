"""How much a feature matters for single rows: the change of their loss or prediction when it is replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import Indices, RandomState
from reliance._core.words import shown
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.engine import known_models
from reliance.engine.evaluation import Evaluation, evaluating
from reliance.engine.executors import Base
from reliance.engine.problems import Problem, prepare
from reliance.engine.reductions import Moments
from reliance.exact import routes, trust
from reliance.exact.linear import Linear
from reliance.exact.protocol import ChosenRows, Exchange
from reliance.inference import identified
from reliance.losses import outputs
from reliance.losses.functions import Metric
from reliance.methods.drawing import Draws, drawn
from reliance.methods.replacing import ReplaceLike, number_of_draws, replacement
from reliance.plans import Pairs, Plan
from reliance.results.local import LocalImportance

Floats = NDArray[np.float64]


@public
def local_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    rows: Sequence[int] | None = None,
    draws: str | int | Draws = "all",
    loss: LossLike | None = None,
    center: bool = True,
    features: FeaturesLike = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    replace: ReplaceLike = None,
) -> LocalImportance:
    r"""How much each feature matters for single rows: the mean change when it is replaced.

    With labels, the change of the row's loss, whose mean over all rows is the difference that `permutation_importance`
    (``draws=K``, the same ``rng``) or `model_reliance` (``draws="all"``) measures:

    .. math:: v_{ij} = \frac{1}{K} \sum_k \ell(f(x_i \text{ with feature } j \text{ of } x_{d(i,k)}), y_i)
              - \ell(f(x_i), y_i)

    Without labels, the contribution of the feature's value to the prediction: with all draws the prediction less its
    mean over all n values that the feature takes in X,

    .. math:: v_{ij} = f(x_i) - \frac{1}{n} \sum_{k=1}^{n} f(x_i \text{ with feature } j \text{ of } x_k),

    which for a linear model is b_j (x_ij - mean x_j), in closed form.

    Parameters
    ----------
    rows : sequence of int, optional
        Which rows to explain; by default all. Only these are evaluated, with the donors that they have among all rows.
    draws : "all", int or Draws
        All other rows as donors, or so many of them, those that `permutation_importance` draws for the same ``rng``.
    loss : optional
        One loss per row. By default the one that fits the model if there are labels (log loss for a classifier with
        probabilities, squared error for a regressor), and otherwise the prediction itself.
    center : bool
        False, for linear models without labels: the contribution b_j x_ij, which says how far a value moves the
        prediction from that at 0 instead of from the mean.

    Returns
    -------
    LocalImportance

    Notes
    -----
    Contributions add up to the prediction less the mean prediction if the model is a sum of functions of single
    features; what features do together is counted for each of them.

    The interval is over the draws, the row and the model fixed: with all draws nothing is left to chance. It is a t
    interval; where the changes are very skewed, take more draws.

    References
    ----------
    Rudin, C. Variable importance, Duke course notes, question 3.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
    >>> model = rl.models.Linear(np.array([2.0, -1.0]))
    >>> rl.local_importance(model, X).values.tolist()
    [[-2.0, 1.0], [0.0, 2.0], [2.0, -3.0]]
    >>> rl.local_importance(model, X, rows=[2], center=False).values.tolist()
    [[4.0, -5.0]]
    """
    contributes = y is None and loss is None
    chosen_loss = "prediction_shift" if contributes else loss
    fewest = 2 if replace is None else 1  # one row may borrow from others, or take what is given
    problem = prepare(model, X, y, features, chosen_loss, None, rng, run, names, (), (), fewest=fewest)
    _check_loss(problem)
    if not isinstance(center, bool | np.bool_):
        raise TypeError(f"center={shown(center)}: pass True or False")
    if not center and not contributes:
        raise ValueError("center=False is for contributions to predictions: leave out y and loss")
    chosen = None if rows is None else _checked_rows(rows, problem.n)
    if replace is None:
        plan = _plan(problem, draws)
    elif not center:
        raise ValueError("center=False replaces nothing: leave out replace")
    else:
        found = replacement(problem, model, X, replace, run)
        problem, plan = found.problem, found.plan(number_of_draws(found, draws, "all"), False)
    some = problem if chosen is None else problem.some_rows(chosen)
    with evaluating(some, progress) as evaluation:
        evaluation = _with_output(evaluation) if contributes else evaluation
        some, base = evaluation.problem, evaluation.base
        if not center:
            values = _uncentred(problem, some, base)
            nothing = [0] * values.shape[1]
            return _result(problem, base, chosen, plan, values, np.zeros_like(values), nothing, True)
        question = (
            Exchange(problem=some, base=base, plan=plan)
            if chosen is None
            else ChosenRows(problem=problem, base=base, plan=plan, some=some, rows=chosen)
        )
        done = routes.answered(question, evaluation)
    moments = [done.answer(f).moments(f)[0] for f in problem.features]
    values = np.stack([_mean_change(m, plan, contributes) for m in moments], axis=1)
    parts = [plan.part(feature) for feature in problem.features]
    errors = np.stack([p.row_errors(m.row_sum, m.row_squares) for p, m in zip(parts, moments, strict=True)], axis=1)
    return _result(problem, base, chosen, plan, values, errors, done.evaluations(problem.features), contributes)


# ---------------------------------------------------------------------------------------------------------------------
# Values


def _mean_change(moments: Moments, plan: Plan, contributes: bool) -> Floats:
    """Of the loss over the draws; of the prediction, all of them, over all n values, the row's own included."""
    if not contributes:
        return moments.row_sum / plan.draws
    own = 1 if plan.exhaustive else 0
    return np.asarray(0.0 - moments.row_sum / (plan.draws + own))


def _uncentred(problem: Problem, some: Problem, base: Base) -> Floats:
    """``(m, p)``: what a linear model adds up, b_j x_ij."""
    form = known_models.linear_form(problem)
    if form is None:
        raise ValueError(
            f"center=False {Linear.needs}, because only its predictions are sums of b_j x_ij: pass center=True"
        )
    try:
        trust.check_linear(some, base, form, lenders=problem.flat)
    except trust.Disagreement:
        raise ValueError(f"center=False: {trust.words(problem, Linear())}") from None
    coef, x = form[0], _host(some.flat)
    return np.stack([x[:, list(f.columns)] @ coef[list(f.columns)] for f in problem.features], axis=1)


# ---------------------------------------------------------------------------------------------------------------------
# Parts


def _plan(problem: Problem, draws: str | int | Draws) -> Plan:
    if isinstance(draws, str):
        if draws != "all":
            raise ValueError(f"draws={shown(draws)} is unknown: pass 'all' or a number of draws")
        return Pairs(problem.n)
    return drawn(problem.rows, problem.key, draws)


def _check_loss(problem: Problem) -> None:
    if problem.several:
        raise ValueError("loss is a list: local_importance measures one loss at a time, pass one")
    if isinstance(problem.losses[0], Metric):
        raise ValueError(
            f"loss={shown(problem.losses[0].name)} is a metric of all rows together: a single row needs a per-row "
            "loss, such as 'squared_error' or 'log_loss'"
        )


def _checked_rows(rows: object, n: int) -> Indices:
    host = arrays.to_host(rows) if arrays.is_array(rows) else np.asarray(rows)
    if host.ndim != 1 or host.size == 0 or host.dtype.kind not in "iu":
        raise ValueError(f"rows={shown(rows)}: pass a list of row numbers, such as rows=[0, 5]")
    outside = host[(host < 0) | (host >= n)]
    if outside.size:
        raise ValueError(f"rows holds {int(outside[0])}, but X has {n} rows: give numbers from 0 to {n - 1}")
    if len(np.unique(host)) < host.size:
        raise ValueError("rows holds a row twice: give each once")
    return host.astype(np.int64)


def _with_output(evaluation: Evaluation) -> Evaluation:
    """The prediction in the place of the loss."""
    base = evaluation.base
    if math.prod(base.predictions.shape[1:]) != 1:
        raise ValueError(
            f"the model returns predictions of shape {tuple(base.predictions.shape)}: contributions are to one output, "
            "so pass a model that returns one, such as lambda X: model.predict_proba(X)[:, 1], or "
            "loss='prediction_shift'"
        )
    function = outputs.output(0)
    return evaluation.with_losses([function], [function.rows(base.predictions, base.predictions)])


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)


def _result(
    problem: Problem,
    base: Base,
    chosen: Indices | None,
    plan: Plan,
    values: Floats,
    errors: Floats,
    evaluations: list[int],
    contributes: bool,
) -> LocalImportance:
    unknown = identified.constant_unless_unused(problem) if plan.among_rows else frozenset()
    identified.warn(unknown, problem.features)
    lost = np.asarray([feature.name in unknown for feature in problem.features])
    return LocalImportance(
        names=tuple(feature.name for feature in problem.features),
        rows=np.arange(problem.n) if chosen is None else chosen,
        values=values,
        std_error=np.where(lost, np.nan, errors),
        base=base.host_losses[0],
        quantity="prediction" if contributes else problem.losses[0].name,
        n=problem.n,
        draws_per_row=plan.draws,
        key=problem.key,
        evaluations=np.asarray(evaluations, dtype=np.int64),
    )
