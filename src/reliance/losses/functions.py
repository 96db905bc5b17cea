"""Per-row losses, and whole-set metrics with their influence functions.

Smaller is better everywhere: metrics are losses too (1 - AUC, 1 - R2, 1 - accuracy, RMSE). What the engine calls is
pure, static in shape and never waits for the device; only ``check``, called once on the base predictions, reads values.
Losses reach the engine as floating numbers, whatever a function of the user's own returned: unsigned integers must not
wrap when they are subtracted, nor half precision lose what they differ by.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import TypeAlias

import numpy as np

from reliance._core import loops
from reliance._core.arrays import device, namespace, sum_dtype
from reliance._core.kinds import Array, Operand, Several
from reliance._core.words import listed, shown
from reliance.losses import formulas, passed_losses
from reliance.losses.formulas import Host, float_dtype, is_numeric
from reliance.losses.places import Place

TARGETS = ("any", "real", "class", "sign", "count", "prediction")
OUTPUTS = ("value", "probability", "score")


@dataclass(frozen=True)
class Loss:
    """A loss of each row.

    Parameters
    ----------
    name : str
        The key of its result when several losses are measured at once.
    rows : callable
        ``(y (m, ...), prediction (m, ...)) -> (m,)``, in the namespace and on the device of its arguments.
    target : {"any", "real", "class", "sign", "count", "prediction"}
        What ``y`` holds: labels 0..C-1 ("class"), -1 or 1, counts >= 0, or the model's own base prediction.
    output : {"value", "probability", "score"}
        What a classifier is asked for.
    valid : callable, optional
        ``prediction -> 0-d bool`` on the device: whether the loss is defined. Finiteness is checked elsewhere.
    requirement : str
        What the error says when ``valid`` answers no.
    undefined : callable, optional
        ``(y on the host, base predictions) -> str``: why the loss is not defined for them; "" if it is.
    labels : bool
        Whether predictions may be the labels themselves, whatever these are.
    positive : bool
        Whether there is one score per row: of the predicted probabilities of two classes, that of the second.
    columns : (start, stop) or Place, optional
        Which columns of the predictions are its own, where several answers stand side by side.
    why : str
        Why it was taken, if nobody asked for it.
    """

    name: str
    rows: Callable[[Operand, Operand], Array]
    target: str = "any"
    output: str = "value"
    valid: Callable[[Array], Array] | None = None
    requirement: str = ""
    _: KW_ONLY
    undefined: Callable[[Host, Array], str] | None = None
    labels: bool = False
    positive: bool = False
    columns: tuple[int, int] | Place | None = None
    why: str = ""

    def __post_init__(self) -> None:
        _check_fields(self, self.rows)


@dataclass(frozen=True)
class Metric:
    """A metric of all rows together, as a loss: smaller is better.

    Parameters
    ----------
    value : callable
        ``(y (n, ...), prediction (n, ...)) -> 0-d``; with weights it is called as ``(y, prediction, weights)``.
    influence : callable, optional
        Of the same arguments: (n,) pseudo-losses whose (weighted) mean is the value. Population intervals need it.
    name : str, optional
        By default the name of ``value``.
    target, output, valid, requirement, undefined, labels, positive, columns, why
        As in ``Loss``.
    by_class : bool
        Whether the influence is centred within each class of y, as AUC's is: the error of such a metric rests on the
        rows of the rarer class.
    """

    value: Callable[..., Array]
    influence: Callable[..., Array] | None = None
    _: KW_ONLY
    name: str = ""
    output: str = "value"
    target: str = "any"
    valid: Callable[[Array], Array] | None = None
    requirement: str = ""
    undefined: Callable[[Host, Array], str] | None = None
    labels: bool = False
    positive: bool = False
    columns: tuple[int, int] | Place | None = None
    why: str = ""
    by_class: bool = False

    def __post_init__(self) -> None:
        _check_fields(self, self.value, self.influence or self.value)
        object.__setattr__(self, "name", self.name or _name(self.value))


def _check_fields(loss: Loss | Metric, *functions: object) -> None:
    kind = type(loss).__name__
    for function in functions:
        if not callable(function):
            raise TypeError(f"{kind} needs a function of (y, prediction), got {shown(function)}.")
    if not isinstance(loss.name, str):
        raise TypeError(f"{kind}: name={shown(loss.name)} is no text.")
    for field, given, known in (("target", loss.target, TARGETS), ("output", loss.output, OUTPUTS)):
        if given not in known:
            raise ValueError(f"{kind}: {field}={shown(given)} is unknown; use one of {', '.join(known)}.")


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def huber(delta: float = 1.0) -> Loss:
    """Half the squared error up to ``delta``, linear beyond."""
    if not isinstance(delta, Real) or not 0.0 < delta < float("inf"):
        raise ValueError(f"huber: delta={shown(delta)} must be a positive number.")
    name = "huber" if delta == 1 else f"huber(delta={float(delta)!r})"
    return Loss(name, formulas.Pointwise(formulas.huber, (float(delta),)), "real")


def pinball(q: float = 0.5) -> Loss:
    """The loss whose minimiser is the ``q`` quantile."""
    if not isinstance(q, Real) or not 0.0 < q < 1.0:
        raise ValueError(f"pinball: q={shown(q)} must lie strictly between 0 and 1.")
    name = "pinball" if q == 0.5 else f"pinball(q={float(q)!r})"
    return Loss(name, formulas.Pointwise(formulas.pinball, (float(q),)), "real")


_PROBABILITIES = "log_loss needs probabilities in [0, 1]; for logits (raw scores) pass loss='cross_entropy'"
_RATES = "poisson_deviance needs predictions > 0; if the model predicts log rates, return their exp"

squared_error = Loss("squared_error", formulas.Pointwise(formulas.squared), "real")
absolute_error = Loss("absolute_error", formulas.Pointwise(formulas.absolute), "real")
log_loss = Loss(
    "log_loss",
    formulas.log_loss,
    "class",
    "probability",
    formulas.is_probability,
    _PROBABILITIES,
    undefined=formulas.wrong_sums,
)
cross_entropy = Loss("cross_entropy", formulas.cross_entropy, "class", "score")
# Target "any": plain predictions are compared for equality, whatever they are.
zero_one = Loss("zero_one", formulas.zero_one, labels=True)
hinge = Loss("hinge", formulas.Pointwise(formulas.hinge), "sign", "score")
poisson_deviance = Loss(
    "poisson_deviance", formulas.Pointwise(formulas.poisson), "count", "value", formulas.is_positive, _RATES
)
prediction_shift = Loss("prediction_shift", formulas.Pointwise(formulas.squared), "prediction")
auc = Metric(
    formulas.MeanOf(formulas.auc),
    formulas.auc,
    name="auc",
    target="class",
    output="probability",
    undefined=formulas.one_class,
    positive=True,
    by_class=True,
)
r2 = Metric(formulas.MeanOf(formulas.r2), formulas.r2, name="r2", target="real", undefined=formulas.constant_labels)
rmse = Metric(formulas.MeanOf(formulas.rmse), formulas.rmse, name="rmse", target="real")
accuracy = Metric(formulas.MeanOf(formulas.inaccuracy), formulas.inaccuracy, name="accuracy", labels=True)

_NUMBERS = (squared_error, absolute_error, huber(), pinball(), poisson_deviance, prediction_shift)
_LABELS = (log_loss, cross_entropy, zero_one, hinge)
# A name, a function (y, prediction) -> one loss per row, or one of the two above.
LossLike: TypeAlias = str | Loss | Metric | Callable[..., Operand]
LossesLike: TypeAlias = Several[LossLike] | Mapping[str, object]  # a mapping: of tasks, see `losses.tasks`

_KNOWN: dict[str, Loss | Metric] = {loss.name: loss for loss in (*_NUMBERS, *_LABELS, auc, r2, rmse, accuracy)}


def resolve(loss: LossLike) -> Loss | Metric:
    """The loss that a name, a function ``(y, prediction) -> per-row losses``, a `Loss` or a `Metric` stands for."""
    if isinstance(loss, Loss | Metric):
        return loss
    if loss is huber or loss is pinball:
        return _KNOWN[_name(loss)]
    if callable(loss):
        passed = passed_losses.of_others(loss)
        return Loss(_name(loss), loss) if passed is None else Loss(passed.name, passed)
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name, a function (y, prediction) -> (m,), or a Metric; got {shown(loss)}.")
    if loss not in _KNOWN:
        raise ValueError(f"loss={shown(loss)} is unknown; the known names are {', '.join(_KNOWN)}.")
    return _KNOWN[loss]


def resolve_all(loss: LossLike | LossesLike) -> tuple[Loss | Metric, ...]:
    """`resolve` of one loss, or of each in a list or tuple."""
    if isinstance(loss, Mapping):
        raise TypeError(f"loss={shown(loss)}: tasks are for methods that measure a given network, not for this one")
    found = tuple(resolve(one) for one in (loss if isinstance(loss, list | tuple) else (loss,)))
    if not found:
        raise ValueError(f"loss={shown(loss)} is empty; give at least one loss.")
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        remedy = "results are kept by name, so name each: Loss(name, function) or Metric(value, name=...)"
        raise ValueError(f"loss names {listed(twice)} more than once; {remedy}.")
    return found


def has_rows(loss: Loss | Metric) -> bool:
    """Whether there are values of rows, a loss's own or through a metric's influence function."""
    return not isinstance(loss, Metric) or loss.influence is not None


def compares_labels(loss: Loss | Metric) -> bool:
    """Whether ``y`` holds labels, so that a classifier's own classes say what they are."""
    return loss.target == "class" or loss.labels


def is_squared(loss: Loss | Metric) -> bool:
    """Whether it is squared error, under any name, of labels or of the model's own predictions."""
    return isinstance(loss, Loss) and loss.rows == squared_error.rows and loss.columns is None


def is_auc(loss: Loss | Metric) -> bool:
    """Whether it is 1 - AUC, under any name."""
    return isinstance(loss, Metric) and loss.influence is formulas.auc


def takes_weights(metric: Metric) -> bool:
    """Whether its functions can be called as ``(y, prediction, weights)``, as far as their signatures tell."""
    for function in (metric.value, metric.influence):
        if function is None:
            continue
        try:
            inspect.signature(function).bind(None, None, None)
        except TypeError:
            return False
        except ValueError:  # a function that does not tell
            continue
    return True


def own_columns(loss: Loss | Metric, prediction: Array) -> Array:
    """The columns of the predictions that are the loss's own."""
    if loss.columns is None:
        return prediction
    if isinstance(loss.columns, Place):
        return loss.columns.of(prediction)
    return prediction[:, loss.columns[0] : loss.columns[1]]


def conform(loss: Loss | Metric, y: Array, prediction: Array) -> Array:
    """Its own columns; (m, 1) as (m,) where ``y`` is (m,); and the second of two where one score per row is taken."""
    prediction = own_columns(loss, prediction)
    if y.ndim == 1 and prediction.ndim == 2:
        if prediction.shape[1] == 1:
            return prediction[:, 0]
        if prediction.shape[1] == 2 and loss.positive:
            return prediction[:, 1]
    return prediction


def row_losses(loss: Loss, y: Array, prediction: Array) -> Array:
    """The losses (m,) of the rows, floating."""
    y = own_columns(loss, y) if loss.target == "prediction" else y
    prediction = conform(loss, y, prediction)
    check_shapes(loss, y, prediction)
    remedy = "one loss per row is needed; wrap a metric of all rows in Metric(value)"
    with _underflowing(prediction):
        return _shaped(loss, loss.rows(y, prediction), (y.shape[0],), remedy)


def _underflowing(prediction: Array) -> AbstractContextManager[object]:
    """exp(-1000) is 0. Other arrays than NumPy's do not warn, and compilers cannot trace NumPy's settings."""
    return np.errstate(under="ignore") if isinstance(prediction, np.ndarray) else nullcontext()


def draw_losses(metric: Metric, y: Array, predictions: Array, weights: Array | None = None) -> Array:
    """Pseudo-losses (n, d) of the predictions (n, d, ...) of d draws: the (weighted) mean of a column is its value.

    Without an influence function every row carries the value itself.
    """
    y = own_columns(metric, y) if metric.target == "prediction" else y
    xp, dev, n = namespace(y, predictions), device(predictions), y.shape[0]
    extra = () if weights is None else (weights,)

    def one(prediction: Array) -> Array:
        prediction = conform(metric, y, prediction)
        check_shapes(metric, y, prediction)
        if metric.influence is not None:
            losses = metric.influence(y, prediction, *extra)
            return _shaped(metric, losses, (n,), "influence must return one number per row")
        value = metric.value(y, prediction, *extra)
        if isinstance(value, bool | int | float):
            return xp.full((n,), float(value), dtype=sum_dtype(xp, dev), device=dev)
        return xp.broadcast_to(formulas.wide(_shaped(metric, value, (), "value must return one number")), (n,))

    with _underflowing(predictions):
        return loops.map_draws(one, predictions)


def _shaped(loss: Loss | Metric, answer: Array, shape: tuple[int, ...], remedy: str) -> Array:
    if isinstance(answer, np.ma.MaskedArray):
        raise TypeError(f"loss {shown(loss.name)} returned a masked array: return a loss for every row.")
    given = getattr(answer, "shape", None)
    if given is None or tuple(given) != shape:
        what = type(answer).__name__ if given is None else f"shape {tuple(given)}"
        raise ValueError(f"loss {shown(loss.name)} returned {what} instead of shape {shape}: {remedy}.")
    if not is_numeric(answer):
        raise TypeError(f"loss {shown(loss.name)} returned dtype {answer.dtype}: return real numbers.")
    xp = namespace(answer)
    return xp.astype(answer, float_dtype(xp, answer), copy=False)


# Checks: shapes everywhere, for they are static; values once.


def check_shapes(loss: Loss | Metric, y: Array, prediction: Array) -> None:
    ys, ps = tuple(y.shape), tuple(prediction.shape)
    same_rows, column = len(ys) > 0 and ps[:1] == ys[:1], len(ys) == 2 and ys[1] == 1
    if compares_labels(loss):
        fits = same_rows and len(ys) == 1 and (len(ps) == 1 or (len(ps) == 2 and not loss.positive))
        remedy = f"y must hold one label per row, of shape {ys[:1]}; for one-hot y pass its argmax over axis 1"
        if len(ys) == 1:
            remedy = "the predictions must be of shape (n,) or (n, classes)"
            if loss.positive:
                remedy = f"{loss.name} takes one score per row; measure one class c against the rest, with y == c"
    elif loss.target == "any":
        fits, remedy = same_rows and not (column and len(ps) == 1), ""
    else:
        fits, remedy = same_rows and ps == ys, "the two must be equal: return from the model only what y holds"
    if not same_rows:
        remedy = "the model must return one prediction per row"
    elif column:
        remedy = f"pass y[:, 0], of shape ({ys[0]},)"
    if not fits:
        raise ValueError(f"{loss.name}: y has shape {ys} but the predictions have shape {ps}; {remedy}.")
