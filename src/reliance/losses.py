"""Per-row losses, and whole-set metrics with their influence functions.

Smaller is better everywhere: metrics are losses too (1 - AUC, 1 - R2, 1 - accuracy, RMSE). What the engine calls is
pure, static in shape and never waits for the device; only ``check``, called once on the base predictions, reads values.
The dtype of a loss is that of the prediction, at least float32, promoted with that of ``y`` where ``y`` is floating.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from reliance._array import Array, DType, Namespace, device, index_dtype, is_floating, map_draws, namespace, sum_dtype

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
    """

    name: str
    rows: Callable[[Array, Array], Array]
    target: str = "any"
    output: str = "value"
    valid: Callable[[Array], Array] | None = None
    requirement: str = ""

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
    target, output, valid, requirement
        As in `Loss`.
    """

    value: Callable[..., Array]
    influence: Callable[..., Array] | None = None
    _: KW_ONLY
    name: str = ""
    output: str = "value"
    target: str = "any"
    valid: Callable[[Array], Array] | None = None
    requirement: str = ""

    def __post_init__(self) -> None:
        _check_fields(self, self.value, self.influence or self.value)
        object.__setattr__(self, "name", self.name or _name(self.value))


def _check_fields(loss: Loss | Metric, *functions: object) -> None:
    kind = type(loss).__name__
    for function in functions:
        if not callable(function):
            raise TypeError(f"{kind} needs a function of (y, prediction), got {function!r}.")
    for field, given, known in (("target", loss.target, TARGETS), ("output", loss.output, OUTPUTS)):
        if given not in known:
            raise ValueError(f"{kind}: {field}={given!r} is unknown; use one of {', '.join(known)}.")


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def float_dtype(xp: Namespace, x: Array) -> DType:
    """The floating dtype, at least float32, that holds ``x``; integers go to the widest one."""
    return xp.result_type(x.dtype, xp.float32) if is_floating(xp, x.dtype) else sum_dtype(xp, device(x))


def _loss_dtype(xp: Namespace, y: Array, prediction: Array) -> DType:
    dtype = float_dtype(xp, prediction)
    return xp.result_type(dtype, y.dtype) if is_floating(xp, y.dtype) else dtype


def is_numeric(x: Array) -> bool:
    xp = namespace(x)
    return is_floating(xp, x.dtype) or bool(xp.isdtype(x.dtype, ("bool", "integral")))


def _per_row(xp: Namespace, losses: Array) -> Array:
    """Several outputs: the mean over everything but the rows."""
    return xp.mean(losses, axis=tuple(range(1, losses.ndim))) if losses.ndim > 1 else losses


# Losses of numbers. Bounds are written with ``where``: NaN stays NaN, and torch's ``maximum`` with a Python scalar
# would build it on the CPU first.


@dataclass(frozen=True)
class _Pointwise:
    """``formula(xp, y, prediction, *parameters)`` in the dtype of the loss, averaged over the outputs.

    Not a closure: equal formulas and parameters are equal objects, so that compiled functions are shared.
    """

    formula: Callable[..., Array]
    parameters: tuple[float, ...] = ()

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        dtype = _loss_dtype(xp, y, prediction)
        y, prediction = xp.astype(y, dtype, copy=False), xp.astype(prediction, dtype, copy=False)
        return _per_row(xp, self.formula(xp, y, prediction, *self.parameters))


def _squared(xp: Namespace, y: Array, prediction: Array) -> Array:
    return (y - prediction) ** 2


def _absolute(xp: Namespace, y: Array, prediction: Array) -> Array:
    return xp.abs(y - prediction)


def _huber(xp: Namespace, y: Array, prediction: Array, delta: float) -> Array:
    size = xp.abs(y - prediction)
    inner = xp.where(size > delta, delta, size)
    return inner * (size - 0.5 * inner)


def _pinball(xp: Namespace, y: Array, prediction: Array, q: float) -> Array:
    gap = y - prediction
    return xp.where(gap < 0.0, (q - 1.0) * gap, q * gap)


def _hinge(xp: Namespace, y: Array, prediction: Array) -> Array:
    margin = 1.0 - y * prediction
    return xp.where(margin < 0.0, 0.0, margin)


def _poisson(xp: Namespace, y: Array, prediction: Array) -> Array:
    log_ratio = xp.log(xp.where(y > 0.0, y, 1.0) / prediction)  # 0 log 0 = 0: it meets the factor y = 0 below
    return 2.0 * (y * log_ratio - (y - prediction))


# Losses of labels: predictions (m,) speak of class 1, predictions (m, C) of each class.


def _of_label(xp: Namespace, y: Array, prediction: Array) -> Array:
    """The entry of each row of ``prediction (m, C)`` that belongs to its label."""
    return xp.take_along_axis(prediction, xp.astype(y, index_dtype(xp), copy=False)[:, None], axis=1)[:, 0]


def _log_loss(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    dtype = _loss_dtype(xp, y, prediction)
    # Clipped in the precision the probabilities came with: whether the labels are floats must not change the loss.
    p = xp.astype(prediction, float_dtype(xp, prediction), copy=False)
    eps = float(xp.finfo(p.dtype).eps)
    p = _of_label(xp, y, p) if p.ndim == 2 else xp.where(xp.astype(y, dtype) == 1.0, p, 1.0 - p)
    p = xp.where(p < eps, eps, p)
    p = xp.where(p > 1.0 - eps, 1.0 - eps, p)
    return -xp.log(xp.astype(p, dtype, copy=False))


def _cross_entropy(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    z = xp.astype(prediction, _loss_dtype(xp, y, prediction), copy=False)
    if z.ndim == 2:
        top = xp.max(z, axis=1, keepdims=True)
        return (top[:, 0] - _of_label(xp, y, z)) + xp.log(xp.sum(xp.exp(z - top), axis=1))
    z = xp.where(xp.astype(y, z.dtype, copy=False) == 1.0, -z, z)
    size = xp.abs(z)
    return 0.5 * (z + size) + xp.log1p(xp.exp(-size))


def _zero_one(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    dtype = _loss_dtype(xp, y, prediction)
    if prediction.ndim == 2:
        prediction = xp.argmax(prediction, axis=1)
    if is_numeric(y) and is_numeric(prediction):  # NumPy's strings are compared as they are
        common = dtype if is_floating(xp, y.dtype) or is_floating(xp, prediction.dtype) else index_dtype(xp)
        y, prediction = xp.astype(y, common, copy=False), xp.astype(prediction, common, copy=False)
    return xp.astype(y != prediction, dtype)


# Both let NaN pass: non-finite predictions have their own, clearer error.


def _is_probability(p: Array) -> Array:
    xp = namespace(p)
    slack = 4.0 * float(xp.finfo(p.dtype).eps) if is_floating(xp, p.dtype) else 0  # softmax may round above 1
    return ~xp.any((p < 0) | (p > 1 + slack))


def _is_positive(prediction: Array) -> Array:
    return ~namespace(prediction).any(prediction <= 0)


# Metrics: their sums, and so their values, are in the widest dtype of the device.


def _wide(x: Array) -> Array:
    xp = namespace(x)
    return xp.astype(x, sum_dtype(xp, device(x)), copy=False)


def _mean(x: Array, weights: Array | None) -> Array:
    """Mean over the rows."""
    xp, x = namespace(x), _wide(x)
    if weights is None:
        return xp.mean(x, axis=0)
    w = xp.reshape(_wide(weights), (-1,) + (1,) * (x.ndim - 1))
    return xp.sum(w * x, axis=0) / xp.sum(w)


@dataclass(frozen=True)
class _MeanOf:
    """The value of a metric from its pseudo-losses."""

    influence: Callable[..., Array]

    def __call__(self, y: Array, prediction: Array, weights: Array | None = None) -> Array:
        return _mean(self.influence(y, prediction, weights), weights)


def _auc(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """A + 1{y=1} (W/W1) (1 - F0 - A) + 1{y=0} (W/W0) (F1 - A), A = 1 - AUC.

    F0 and F1 are the (weighted) shares of negatives and positives below the score, ties counting 1/2.
    """
    xp = namespace(y, prediction)
    order = xp.argsort(prediction)
    # Everything in the order of the scores: searching sorted values among themselves is several times faster.
    s, positive = xp.take(prediction, order, axis=0), xp.take(_wide(y), order, axis=0)
    w = xp.ones_like(positive) if weights is None else xp.take(_wide(weights), order, axis=0)
    w1, w0 = w * positive, w * (1.0 - positive)
    total1, total0 = xp.sum(w1), xp.sum(w0)
    left, right = xp.searchsorted(s, s, side="left"), xp.searchsorted(s, s, side="right")

    def share_below(v: Array, total: Array) -> Array:
        below = xp.cumulative_sum(v, include_initial=True)
        return (xp.take(below, left, axis=0) + xp.take(below, right, axis=0)) / (2.0 * total)

    f0, f1 = share_below(w0, total0), share_below(w1, total1)
    value, total = xp.sum(w1 * (1.0 - f0)) / total1, total0 + total1
    of_positive, of_negative = (1.0 - f0 - value) * (total / total1), (f1 - value) * (total / total0)
    losses = value + positive * of_positive + (1.0 - positive) * of_negative
    return xp.take(losses, xp.argsort(order), axis=0)


def _r2(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """1 - R2 = R: R + (L - R (y - ybar)^2) / Var(y); outputs are pooled (scikit-learn: ``variance_weighted``)."""
    losses, wide = _wide(squared_error.rows(y, prediction)), _wide(y)
    spread = _per_row(namespace(y), (wide - _mean(wide, weights)) ** 2)
    variance = _mean(spread, weights)
    rho = _mean(losses, weights) / variance
    return rho + (losses - rho * spread) / variance


def _rmse(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """sqrt(m) + (L - m) / (2 sqrt(m)), m the mean over rows and outputs; 0 for a perfect fit."""
    xp, losses = namespace(y, prediction), _wide(squared_error.rows(y, prediction))
    mean = _mean(losses, weights)
    root = xp.sqrt(xp.where(mean > 0.0, mean, 1.0))
    return xp.where(mean > 0.0, root + (losses - mean) / (2.0 * root), 0.0)


def _inaccuracy(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    return _wide(_zero_one(y, prediction))


def huber(delta: float = 1.0) -> Loss:
    """Half the squared error up to ``delta``, linear beyond."""
    if not 0.0 < delta < float("inf"):
        raise ValueError(f"huber: delta={delta!r} must be a positive number.")
    name = "huber" if delta == 1 else f"huber(delta={float(delta)!r})"
    return Loss(name, _Pointwise(_huber, (float(delta),)), "real")


def pinball(q: float = 0.5) -> Loss:
    """The loss whose minimiser is the ``q`` quantile."""
    if not 0.0 < q < 1.0:
        raise ValueError(f"pinball: q={q!r} must lie strictly between 0 and 1.")
    name = "pinball" if q == 0.5 else f"pinball(q={float(q)!r})"
    return Loss(name, _Pointwise(_pinball, (float(q),)), "real")


_PROBABILITIES = "log_loss needs probabilities in [0, 1]; for logits (raw scores) pass loss='cross_entropy'"
_RATES = "poisson_deviance needs predictions > 0; if the model predicts log rates, return their exp"

squared_error = Loss("squared_error", _Pointwise(_squared), "real")
absolute_error = Loss("absolute_error", _Pointwise(_absolute), "real")
log_loss = Loss("log_loss", _log_loss, "class", "probability", _is_probability, _PROBABILITIES)
cross_entropy = Loss("cross_entropy", _cross_entropy, "class", "score")
zero_one = Loss("zero_one", _zero_one)  # target "any": plain predictions are compared for equality, whatever they are
hinge = Loss("hinge", _Pointwise(_hinge), "sign", "score")
poisson_deviance = Loss("poisson_deviance", _Pointwise(_poisson), "count", "value", _is_positive, _RATES)
prediction_shift = Loss("prediction_shift", _Pointwise(_squared), "prediction")
auc = Metric(_MeanOf(_auc), _auc, name="auc", target="class", output="probability")
r2 = Metric(_MeanOf(_r2), _r2, name="r2", target="real")
rmse = Metric(_MeanOf(_rmse), _rmse, name="rmse", target="real")
accuracy = Metric(_MeanOf(_inaccuracy), _inaccuracy, name="accuracy")

_NUMBERS = (squared_error, absolute_error, huber(), pinball(), poisson_deviance, prediction_shift)
_LABELS = (log_loss, cross_entropy, zero_one, hinge)
_KNOWN: dict[str, Loss | Metric] = {loss.name: loss for loss in (*_NUMBERS, *_LABELS, auc, r2, rmse, accuracy)}


def resolve(loss: Any) -> Loss | Metric:
    """The loss that a name, a function ``(y, prediction) -> per-row losses``, a `Loss` or a `Metric` stands for."""
    if isinstance(loss, Loss | Metric):
        return loss
    if loss is huber or loss is pinball:
        return _KNOWN[_name(loss)]
    if callable(loss):
        return Loss(_name(loss), loss)
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name, a function (y, prediction) -> (m,), or a Metric; got {loss!r}.")
    if loss not in _KNOWN:
        raise ValueError(f"loss={loss!r} is unknown; the known names are {', '.join(_KNOWN)}.")
    return _KNOWN[loss]


def resolve_all(loss: Any) -> tuple[Loss | Metric, ...]:
    """`resolve` of one loss, or of each in a list or tuple."""
    found = tuple(resolve(one) for one in (loss if isinstance(loss, list | tuple) else (loss,)))
    if not found:
        raise ValueError(f"loss={loss!r} is empty; give at least one loss.")
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        remedy = "results are kept by name, so name each: Loss(name, function) or Metric(value, name=...)"
        raise ValueError(f"loss names {', '.join(twice)} more than once; {remedy}.")
    return found


def predicts_labels(loss: Loss | Metric) -> bool:
    """Whether predictions may be the labels themselves, whatever these are."""
    return loss in (zero_one, accuracy)


def has_rows(loss: Loss | Metric) -> bool:
    """Whether there are values of rows, a loss's own or through a metric's influence function."""
    return not isinstance(loss, Metric) or loss.influence is not None


def compares_labels(loss: Loss | Metric) -> bool:
    """Whether ``y`` holds labels, so that a classifier's own classes say what they are."""
    return loss.target == "class" or predicts_labels(loss)


def conform(loss: Loss | Metric, y: Array, prediction: Array) -> Array:
    """View predictions (m, 1) as (m,) where ``y`` is (m,), and take the second of two columns for AUC."""
    if y.ndim == 1 and prediction.ndim == 2:
        if prediction.shape[1] == 1:
            return prediction[:, 0]
        if prediction.shape[1] == 2 and loss == auc:
            return prediction[:, 1]
    return prediction


def row_losses(loss: Loss, y: Array, prediction: Array) -> Array:
    """The losses (m,) of the rows."""
    prediction = conform(loss, y, prediction)
    check_shapes(loss, y, prediction)
    remedy = "one loss per row is needed; wrap a metric of all rows in Metric(value)"
    return _shaped(loss, loss.rows(y, prediction), (y.shape[0],), remedy)


def draw_losses(metric: Metric, y: Array, predictions: Array, weights: Array | None = None) -> Array:
    """Pseudo-losses (n, d) of the predictions (n, d, ...) of d draws: the (weighted) mean of a column is its value.

    Without an influence function every row carries the value itself.
    """
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
        return xp.broadcast_to(_wide(_shaped(metric, value, (), "value must return one number")), (n,))

    return map_draws(one, predictions)


def _shaped(loss: Loss | Metric, answer: Any, shape: tuple[int, ...], remedy: str) -> Array:
    given = getattr(answer, "shape", None)
    if given is None or tuple(given) != shape:
        what = type(answer).__name__ if given is None else f"shape {tuple(given)}"
        raise ValueError(f"loss {loss.name!r} returned {what} instead of shape {shape}: {remedy}.")
    return answer


# Checks: shapes everywhere, for they are static; values once.


def check_shapes(loss: Loss | Metric, y: Array, prediction: Array) -> None:
    ys, ps = tuple(y.shape), tuple(prediction.shape)
    same_rows, column = len(ys) > 0 and ps[:1] == ys[:1], len(ys) == 2 and ys[1] == 1
    if loss.target == "class" or predicts_labels(loss):
        fits = same_rows and len(ys) == 1 and (len(ps) == 1 or (len(ps) == 2 and loss != auc))
        remedy = f"y must hold one label per row, of shape {ys[:1]}; for one-hot y pass its argmax over axis 1"
        if len(ys) == 1:
            remedy = "the predictions must be of shape (n,) or (n, classes)"
            if loss == auc:
                remedy = "auc takes one score per row; measure one class c against the rest, with y == c"
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
