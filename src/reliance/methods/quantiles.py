"""Feature impact: how far predictions spread when a feature is held at its quantiles. No labels are needed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from reliance._core.checks import check_choice
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.words import shown
from reliance.data.passed import DataLike, FeaturesLike, ModelLike
from reliance.engine.evaluation import evaluating
from reliance.engine.executors import Base
from reliance.engine.problems import Problem, prepare
from reliance.losses.functions import prediction_shift
from reliance.methods.held_values import SIGNED_SHIFT, answers, held_values
from reliance.models import adapting
from reliance.models.calling import Model, name_of
from reliance.results.impact import Impact

Floats = NDArray[np.float64]
ROUTES = ("auto", "plain")


@public
def feature_impact(
    model: ModelLike,
    X: DataLike,
    *,
    quantiles: int | Sequence[float] = 9,
    normalize: bool = False,
    method: str = "predict",
    route: str = "auto",
    features: FeaturesLike = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> Impact:
    r"""Feature impact: the spread of the change in predictions when a feature is held constant, a unit of the feature.

    .. math:: I_{k,q} = \sigma(f(X) - f(X_{\{k,q\}})) / \sigma(x_k), \qquad I_k = \frac{1}{Q} \sum_q I_{k,q}

    with column k of X held at its quantile q and unbiased standard deviations (equations 3 and 4 of the paper). For a
    linear model I_k is the size of the coefficient, exactly. A feature is held at values that occur in it, those
    nearest to the quantiles, so that categories stay categories.

    Parameters
    ----------
    model : callable, scikit-learn estimator or torch.nn.Module
        ``batch (m, *features) -> predictions (m,)`` or ``(m, 1)`` on the namespace and device of ``X``.
    X : array (n, ...)
        NumPy, CuPy, JAX or torch; the work happens where it is. NaN is passed on to the model, and left out of a
        column's quantiles and standard deviation.
    quantiles : int or sequence of float
        Q, for the probabilities 1/(Q+1), ..., Q/(Q+1); or the probabilities themselves, increasing, between 0 and 1.
    normalize : bool
        Divide the averaged impacts by their sum.
    method : str
        Which method of an estimator predicts: ``"predict"``, ``"decision_function"``, ... One number a row.
    route : {"auto", "plain"}
        ``"auto"``: from the coefficients of a linear model; from the trees of an ensemble, where those are of up to 64
        leaves; otherwise, and with ``"plain"``, by calling the model, once for each value a feature is held at.
    features : optional
        What to measure: None for each column, or a list of indices or names. No groups: they have no one standard
        deviation.

    Returns
    -------
    Impact
        ``impact`` (Q, p), their averages ``values`` (p,), and ``points`` (Q, p), the values that features were held at.

    Notes
    -----
    Quantiles are those of the paper's package (Cunnane's plotting positions). A value that is nearest to several
    quantiles is evaluated once. A constant feature has an impact of 0.

    References
    ----------
    Blume, C. (2020). Estimating the impact of features via the mean variation of perturbed and original predictions.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> rl.feature_impact(lambda X: 2 * X[:, 0] - X[:, 1], X).values.round(12).tolist()
    [2.0, 1.0, 0.0]
    >>> squares = rl.feature_impact(lambda X: X[:, 0] ** 2, X, quantiles=[0.1, 0.5, 0.9], features=[0])
    >>> squares.impact.shape, squares.evaluations.tolist()
    ((3, 1), [600])
    """
    probabilities = checked_quantiles(quantiles)
    check_choice(route, ROUTES, "route")
    problem = prepare(
        _with_method(model, method),
        X,
        None,
        features,
        [SIGNED_SHIFT, prediction_shift],
        run=run,
        names=names,
    )
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize={shown(normalize)}: pass True or False")
    held = {feature.name: held_values(problem, feature, probabilities) for feature in problem.features}
    with evaluating(problem, progress) as evaluation:
        _check_single(evaluation.base, problem)
        found, used_block = answers(evaluation, held, route)
    order = tuple(feature.name for feature in problem.features)
    impact = np.stack([found[name].impact[held[name].place] for name in order], axis=1)
    values = np.mean(impact, axis=0)
    if normalize:
        if not np.any(values):
            raise ValueError("normalize=True needs an impact above 0, but no feature has any: pass normalize=False")
        values = values / np.sum(values)
    return Impact(
        names=order,
        quantiles=probabilities,
        impact=impact,
        values=values,
        points=np.stack([held[name].points for name in order], axis=1),
        normalized=bool(normalize),
        n=problem.n,
        evaluations=np.asarray([found[name].evaluations for name in order], dtype=np.int64),
        routes=tuple(found[name].route for name in order),
        block=used_block,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def checked_quantiles(quantiles: int | Sequence[float]) -> Floats:
    """Probabilities (Q,), from their number or as they are."""
    if isinstance(quantiles, int | np.integer) and not isinstance(quantiles, bool):
        if quantiles < 1:
            raise ValueError(f"quantiles={quantiles} is too few: pass 1 or more, or probabilities such as [0.1, 0.9]")
        return np.linspace(0.0, 1.0, int(quantiles) + 2)[1:-1]
    if isinstance(quantiles, bool | str | bytes) or not isinstance(quantiles, Iterable):
        raise TypeError(f"quantiles={shown(quantiles)}: pass a number of quantiles or a list of probabilities")
    given = list(quantiles)
    if not given:
        raise ValueError("quantiles is empty: pass a number of quantiles or at least one probability")
    if not all(isinstance(q, float | int | np.floating | np.integer) and not isinstance(q, bool) for q in given):
        raise TypeError(f"quantiles={shown(given)}: probabilities must be numbers between 0 and 1")
    outside = [q for q in given if not 0.0 < q < 1.0]
    if outside:
        raise ValueError(f"quantiles holds {shown(outside[0])}: probabilities must lie strictly between 0 and 1")
    found = np.asarray(given, dtype=np.float64)
    if np.any(np.diff(found) <= 0.0):
        raise ValueError(f"quantiles={shown(given)} do not increase: sort them and name each once")
    return found


def _with_method(model: ModelLike, method: str) -> ModelLike | Model:
    """The model, asked for another method than the usual one if the user says so."""
    if not isinstance(method, str):
        raise TypeError(f"method={shown(method)}: pass the name of a method, such as 'predict' or 'decision_function'")
    if method == "predict":
        return model
    if callable(model):
        raise TypeError(f"method={shown(method)}: model {name_of(model)} is a function: pass one for that method")
    function = getattr(model, method, None)
    if not callable(function):
        raise TypeError(f"method={shown(method)}: model {name_of(model)} has no such method")
    return dataclasses.replace(adapting.adapt(model, [prediction_shift]), predict=function, method=method)


def _check_single(base: Base, problem: Problem) -> None:
    shape = tuple(base.predictions.shape)
    if math.prod(shape[1:]) != 1:
        raise ValueError(
            f"model {name_of(problem.model.source)} returned predictions of shape {shape}: an impact is about one "
            "number a row, so pass a function for one of them, for instance lambda X: model.predict_proba(X)[:, 1]"
        )
