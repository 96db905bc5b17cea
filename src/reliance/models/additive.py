"""Models whose score is a sum of functions of single columns: your own, and generalised linear models of scikit-learn.

The prediction is a monotone function of the score, the inverse of its link: the logistic function, say, or exp.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.models.untouched import inherits

Floats = NDArray[np.float64]
# The effect of a column: a function of its values (m,) to (m,), or thresholds (t,) and the values (t + 1,) between.
Shape: TypeAlias = Callable[[Array], Array] | tuple[Array, Array]
Link: TypeAlias = str | Callable[[Array], Array]
Transformed: TypeAlias = Any  # a fitted TransformedTargetRegressor of scikit-learn

_METHODS = ("predict", "predict_proba", "decision_function", "_predict_proba_lr", "_linear_predictor")


@dataclass(frozen=True, eq=False)
class Additive:
    r"""An additive model, a GAM or a scorecard: ``prediction = g(intercept + the sum of all s_j(x_j))``.

    With `reliance.model_reliance`, all pairs of rows under a smooth loss cost about as much as a few predictions.

    Parameters
    ----------
    shapes : sequence, or mapping from columns
        Of each column its effect on the score: a function of the column's values, an array (m,), that returns an array
        (m,); or a step function as a pair ``(edges, values)``, with one value more than there are edges, which is
        ``values[i]`` from ``edges[i - 1]`` up to but without ``edges[i]``. None, or left out of a mapping: the column
        has no effect.
    intercept : float
    link : {"identity", "log", "logit"} or callable
        How score and prediction hang together: the prediction is the score, its exp, or its logistic function (the
        probability of class 1). A callable is applied to the scores, and must be increasing or decreasing.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> step = (np.array([0.0]), np.array([-1.0, 1.0]))
    >>> model = rl.models.Additive([np.sin, step], link="logit")
    >>> model(np.array([[0.0, 3.0], [0.0, -3.0]])).round(3).tolist()
    [0.731, 0.269]
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = rl.model_reliance(model, X, X[:, 0] > 0, loss="log_loss")
    >>> result.routes
    ('additive', 'additive')
    """

    shapes: Sequence[Shape | None] | Mapping[int, Shape]
    intercept: float = 0.0
    link: Link = "identity"

    def __post_init__(self) -> None:
        if not callable(self.link) and self.link not in _LINKS:
            raise ValueError(f"link={shown(self.link)} is unknown: choose {', '.join(map(repr, _LINKS))} or a function")
        if not isinstance(self.shapes, Mapping | Sequence) or isinstance(self.shapes, str):
            raise TypeError(f"shapes={shown(self.shapes)}: pass a list with an effect for each column, or a mapping")
        for column, shape in self.by_column.items():
            _check_shape(column, shape)

    @property
    def by_column(self) -> dict[int, Shape]:
        """The effects of the columns that have one."""
        given = self.shapes.items() if isinstance(self.shapes, Mapping) else enumerate(self.shapes)
        return {column: shape for column, shape in given if shape is not None}

    def effect(self, X: Array, columns: Sequence[int]) -> Array:
        """``(m,)``: the sum of the effects of some columns of rows (m, P)."""
        xp = arrays.namespace(X)
        found = xp.zeros((X.shape[0],), dtype=arrays.as_floating(X[:, :1]).dtype, device=arrays.device(X))
        for column, shape in self.by_column.items():
            if column in columns:
                found = found + _effect(shape, X[:, column])
        return found

    def __call__(self, X: Array) -> Array:
        last = max(self.by_column, default=0)
        if X.ndim != 2 or X.shape[1] <= last:
            raise ValueError(f"shapes has an effect of column {last}, but X has shape {tuple(X.shape)}: (m, P), P > it")
        return self.answer(self.effect(X, range(X.shape[1])) + self.intercept)

    def answer(self, scores: Array) -> Array:
        """The prediction at each score."""
        if callable(self.link):
            return self.link(scores)
        return _LINKS[self.link](scores)


def _check_shape(column: object, shape: object) -> None:
    where = f"shapes: the effect of column {shown(column)}"
    if not isinstance(column, int | np.integer) or column < 0:
        raise TypeError(f"shapes: column {shown(column)} is not a number from 0 on: say columns by their places")
    if callable(shape):
        return
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(arrays.is_array(part) for part in shape):
        raise TypeError(f"{where} is {shown(shape)}: pass a function, or a pair of arrays (edges, values)")
    edges, values = shape
    if edges.ndim != 1 or tuple(values.shape) != (edges.shape[0] + 1,):
        raise ValueError(
            f"{where} has edges of shape {tuple(edges.shape)} and values of shape {tuple(values.shape)}: one value "
            "more than edges"
        )
    if not np.all(np.diff(arrays.to_host(edges)) > 0):
        raise ValueError(f"{where} has edges that do not increase: sort them, and say each once")


def _effect(shape: Shape, values: Array) -> Array:
    if callable(shape):
        return shape(values)
    xp = arrays.namespace(values)
    edges, heights = shape
    # A copy, because torch searches in contiguous arrays.
    values = xp.astype(values, xp.result_type(values.dtype, edges.dtype), copy=True)
    edges = xp.astype(edges, values.dtype, copy=False)
    return xp.take(heights, xp.searchsorted(edges, values, side="right"), axis=0)


def _same(scores: Array) -> Array:
    return scores


def _exp(scores: Array) -> Array:
    return arrays.namespace(scores).exp(scores)


def _logistic(scores: Array) -> Array:
    if isinstance(scores, np.ndarray):
        probabilities: Array = special.expit(scores)
        return probabilities
    xp = arrays.namespace(scores)
    small = xp.exp(-xp.abs(scores))
    return xp.where(scores < 0.0, small, 1.0) / (1.0 + small)


_LINKS: dict[str, Callable[[Array], Array]] = {"identity": _same, "log": _exp, "logit": _logistic}


# ---------------------------------------------------------------------------------------------------------------------
# What routes read


@dataclass(frozen=True, eq=False)
class AdditiveForm:
    """A model that is known to be additive, in numbers on the host.

    Attributes
    ----------
    effect : callable
        ``(rows (m, P) where they are, columns) -> (m,)``: the sum of the effects of some columns.
    intercept : float
    answer : callable
        What the model returns, ``(m, ...)``, at scores ``(m,)``.
    logistic : bool
        Whether probabilities are the logistic function of the score.
    labels : {"none", "beside", "alone"}
        Whether predicted values are labels, which jump where the score is 0; perhaps beside probabilities or scores.
    identity : bool
        Whether the answer is the score.
    continuous : bool
        Whether answers other than labels are known to have no jumps.
    """

    effect: Callable[[Array, Sequence[int]], Floats]
    intercept: float
    answer: Callable[[Floats], HostArray]
    logistic: bool = False
    labels: str = "none"
    identity: bool = False
    continuous: bool = True

    def score(self, flat: Array) -> Floats:
        """``(m,)`` of rows ``(m, P)``."""
        return self.effect(flat, range(int(flat.shape[1]))) + self.intercept


def of_coefficients(
    coef: Floats,
    intercept: float,
    answer: Callable[[Floats], HostArray] | None = None,
    logistic: bool = False,
    labels: str = "none",
) -> AdditiveForm:
    """The form of a linear score; without ``answer`` it is the prediction."""

    def effect(flat: Array, columns: Sequence[int]) -> Floats:
        found = np.zeros(int(flat.shape[0]))
        for column in columns:
            if coef[column] != 0.0:
                found += coef[column] * np.asarray(arrays.to_host(flat[:, column]), dtype=np.float64)
        return found

    identity = answer is None
    return AdditiveForm(effect, intercept, np.asarray if answer is None else answer, logistic, labels, identity)


def additive_form(
    model: object, method: str | None, parts: Mapping[str, tuple[int, int]] | None, columns: int
) -> AdditiveForm | None:
    """What is known of a model whose ``method`` is called, or several of them side by side in ``parts``.

    None: it is not known to be additive in rows of so many columns.
    """
    if isinstance(model, Additive):
        return _of_shapes(model, columns)
    if "sklearn" not in sys.modules or not inherits(model, _METHODS, "sklearn"):
        return None
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
    from sklearn.linear_model._base import LinearClassifierMixin

    if isinstance(model, PoissonRegressor | GammaRegressor | TweedieRegressor):
        identity = isinstance(model, TweedieRegressor) and _has_identity(model.link, model.power)
        linear = _linear_score(model, columns) if method == "predict" else None
        return None if linear is None else of_coefficients(*linear, None if identity else np.exp)
    if isinstance(model, TransformedTargetRegressor):
        return _of_transformed_labels(model, method, columns)
    if not isinstance(model, LinearClassifierMixin) or len(getattr(model, "classes_", ())) != 2:
        return None
    linear, wanted = _linear_score(model, columns), _forms(method, parts)
    if linear is None or ("probability" in wanted and not _is_logistic(model)):
        return None
    if wanted == ("score",) and parts is None:
        return of_coefficients(*linear)
    answer = _Answers(np.asarray(model.classes_), wanted, parts is not None)
    labels = "none" if not {"place", "label"} & set(wanted) else "alone" if len(wanted) == 1 else "beside"
    return of_coefficients(*linear, answer, "probability" in wanted, labels)


def _of_shapes(model: Additive, columns: int) -> AdditiveForm | None:
    if not inherits(model, ("__call__", "effect", "answer"), "reliance") or max(model.by_column, default=0) >= columns:
        return None

    def effect(flat: Array, some: Sequence[int]) -> Floats:
        return np.asarray(arrays.to_host(model.effect(flat, some)), dtype=np.float64)

    def answer(scores: Floats) -> HostArray:
        return np.asarray(arrays.to_host(model.answer(scores)))

    return AdditiveForm(
        effect,
        float(model.intercept),
        answer,
        logistic=model.link == "logit",
        identity=model.link == "identity",
        continuous=not callable(model.link),
    )


def _of_transformed_labels(model: Transformed, method: str | None, columns: int) -> AdditiveForm | None:
    """A linear model of transformed labels: the way back is the link."""
    from sklearn.linear_model._base import LinearModel

    inner = getattr(model, "regressor_", None)
    linear = _linear_score(inner, columns) if isinstance(inner, LinearModel) and method == "predict" else None
    if linear is None or not inherits(inner, ("predict", "_decision_function"), "sklearn"):
        return None

    def answer(scores: Floats) -> HostArray:
        return np.asarray(model.transformer_.inverse_transform(scores[:, None])).reshape(-1)

    return dataclasses.replace(of_coefficients(*linear, answer), continuous=False)


def _has_identity(link: object, power: float) -> bool:
    """Of a Tweedie regression; any other link is log."""
    return bool(link == "identity" or (link == "auto" and power <= 0))


def _linear_score(model: object, columns: int) -> tuple[Floats, float] | None:
    coef = np.asarray(getattr(model, "coef_", ()), dtype=np.float64).reshape(-1)
    intercept = np.asarray(getattr(model, "intercept_", ()), dtype=np.float64).reshape(-1)
    return (coef, float(intercept[0])) if coef.shape == (columns,) and intercept.shape == (1,) else None


def _is_logistic(model: object) -> bool:
    """Whether the probability of the second of two classes is the logistic function of the decision value."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    if isinstance(model, SGDClassifier):
        return bool(model.loss == "log_loss")
    if isinstance(model, LogisticRegression):
        return getattr(model, "multi_class", "auto") != "multinomial"  # which doubles the score of two classes
    return isinstance(model, LinearDiscriminantAnalysis)


def _forms(method: str | None, parts: Mapping[str, tuple[int, int]] | None) -> tuple[str, ...]:
    if parts is not None:
        return tuple(parts)
    return ({"predict": "label", "predict_proba": "probability"}.get(str(method), "score"),)


@dataclass(frozen=True, eq=False)
class _Answers:
    """What a classifier of two classes answers to its decision values: one form, or several ``beside`` each other."""

    classes: HostArray
    forms: tuple[str, ...]
    beside: bool

    def __call__(self, scores: Floats) -> HostArray:
        found = [self._one(form, scores) for form in self.forms]
        if not self.beside:
            return found[0]
        return np.concatenate([one.reshape(len(scores), -1) for one in found], axis=1)

    def _one(self, form: str, scores: Floats) -> HostArray:
        if form == "score":
            return scores
        if form == "probability":
            second = special.expit(scores)
            return np.stack([1.0 - second, second], axis=1)
        places = (scores > 0.0).astype(np.int64)
        return places if form == "place" else self.classes[places]
