"""The formulas of the known losses and metrics, as array functions.

Pure, static in shape, never waiting for the device. The dtype of a loss is that of the prediction, at least float32,
promoted with that of ``y`` where ``y`` is floating; metrics are in the widest dtype of the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reliance._core.arrays import device, index_dtype, is_floating, namespace, sum_dtype, to_host
from reliance._core.kinds import Array, DType, HostArray, Namespace

Host: TypeAlias = HostArray


def float_dtype(xp: Namespace, x: Array) -> DType:
    """The floating dtype, at least float32, that holds ``x``; integers go to the widest one."""
    if x.dtype in (xp.float32, xp.float64):  # asked for in each call: rules of promotion take longer than small losses
        return x.dtype
    return xp.result_type(x.dtype, xp.float32) if is_floating(xp, x.dtype) else sum_dtype(xp, device(x))


def _loss_dtype(xp: Namespace, y: Array, prediction: Array) -> DType:
    dtype = float_dtype(xp, prediction)
    if y.dtype == dtype:
        return dtype
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
class Pointwise:
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


def squared(xp: Namespace, y: Array, prediction: Array) -> Array:
    return (y - prediction) ** 2


def absolute(xp: Namespace, y: Array, prediction: Array) -> Array:
    return xp.abs(y - prediction)


def huber(xp: Namespace, y: Array, prediction: Array, delta: float) -> Array:
    size = xp.abs(y - prediction)
    inner = xp.where(size > delta, delta, size)
    return inner * (size - 0.5 * inner)


def pinball(xp: Namespace, y: Array, prediction: Array, q: float) -> Array:
    gap = y - prediction
    return xp.where(gap < 0.0, (q - 1.0) * gap, q * gap)


def hinge(xp: Namespace, y: Array, prediction: Array) -> Array:
    margin = 1.0 - y * prediction
    return xp.where(margin < 0.0, 0.0, margin)


def poisson(xp: Namespace, y: Array, prediction: Array) -> Array:
    log_ratio = xp.log(xp.where(y > 0.0, y, 1.0) / prediction)  # 0 log 0 = 0: it meets the factor y = 0 below
    return 2.0 * (y * log_ratio - (y - prediction))


_SQUARED_ERROR = Pointwise(squared)


# Losses of labels: predictions (m,) speak of class 1, predictions (m, C) of each class.


def _of_label(xp: Namespace, y: Array, prediction: Array) -> Array:
    """The entry of each row of ``prediction (m, C)`` that belongs to its label."""
    return xp.take_along_axis(prediction, xp.astype(y, index_dtype(xp), copy=False)[:, None], axis=1)[:, 0]


def log_loss(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    dtype = _loss_dtype(xp, y, prediction)
    # Clipped in the precision the probabilities came with: whether the labels are floats must not change the loss.
    p = xp.astype(prediction, float_dtype(xp, prediction), copy=False)
    eps = float(xp.finfo(p.dtype).eps)
    p = _of_label(xp, y, p) if p.ndim == 2 else xp.where(xp.astype(y, dtype) == 1.0, p, 1.0 - p)
    p = xp.where(p < eps, eps, p)
    p = xp.where(p > 1.0 - eps, 1.0 - eps, p)
    return -xp.log(xp.astype(p, dtype, copy=False))


def cross_entropy(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    z = xp.astype(prediction, _loss_dtype(xp, y, prediction), copy=False)
    if z.ndim == 2:
        top = xp.max(z, axis=1, keepdims=True)
        return (top[:, 0] - _of_label(xp, y, z)) + xp.log(xp.sum(xp.exp(z - top), axis=1))
    z = xp.where(xp.astype(y, z.dtype, copy=False) == 1.0, -z, z)
    size = xp.abs(z)
    return 0.5 * (z + size) + xp.log1p(xp.exp(-size))


def zero_one(y: Array, prediction: Array) -> Array:
    xp = namespace(y, prediction)
    dtype = _loss_dtype(xp, y, prediction)
    if prediction.ndim == 2:
        prediction = xp.argmax(prediction, axis=1)
    if is_numeric(y) and is_numeric(prediction):  # NumPy's strings are compared as they are
        common = dtype if is_floating(xp, y.dtype) or is_floating(xp, prediction.dtype) else index_dtype(xp)
        y, prediction = xp.astype(y, common, copy=False), xp.astype(prediction, common, copy=False)
    return xp.astype(y != prediction, dtype)


# Both let NaN pass: non-finite predictions have their own, clearer error.


def is_probability(p: Array) -> Array:
    xp = namespace(p)
    slack = 4.0 * float(xp.finfo(p.dtype).eps) if is_floating(xp, p.dtype) else 0  # softmax may round above 1
    return ~xp.any((p < 0) | (p > 1 + slack))


def is_positive(prediction: Array) -> Array:
    return ~namespace(prediction).any(prediction <= 0)


# Metrics: their sums, and so their values, are in the widest dtype of the device.


def wide(x: Array) -> Array:
    xp = namespace(x)
    return xp.astype(x, sum_dtype(xp, device(x)), copy=False)


def _mean(x: Array, weights: Array | None) -> Array:
    """Mean over the rows."""
    xp, x = namespace(x), wide(x)
    if weights is None:
        return xp.mean(x, axis=0)
    w = xp.reshape(wide(weights), (-1,) + (1,) * (x.ndim - 1))
    return xp.sum(w * x, axis=0) / xp.sum(w)


@dataclass(frozen=True)
class MeanOf:
    """The value of a metric from its pseudo-losses."""

    influence: Callable[..., Array]

    def __call__(self, y: Array, prediction: Array, weights: Array | None = None) -> Array:
        return _mean(self.influence(y, prediction, weights), weights)


def auc(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """A + 1{y=1} (W/W1) (1 - F0 - A) + 1{y=0} (W/W0) (F1 - A), A = 1 - AUC.

    F0 and F1 are the (weighted) shares of negatives and positives below the score, ties counting 1/2.
    """
    xp = namespace(y, prediction)
    order = xp.argsort(prediction)
    # Everything in the order of the scores: searching sorted values among themselves is several times faster.
    s, positive = xp.take(prediction, order, axis=0), xp.take(wide(y), order, axis=0)
    w = xp.ones_like(positive) if weights is None else xp.take(wide(weights), order, axis=0)
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


def r2(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """1 - R2 = R: R + (L - R (y - ybar)^2) / Var(y); outputs are pooled (scikit-learn: ``variance_weighted``)."""
    losses, labels = wide(_SQUARED_ERROR(y, prediction)), wide(y)
    spread = _per_row(namespace(y), (labels - _mean(labels, weights)) ** 2)
    variance = _mean(spread, weights)
    rho = _mean(losses, weights) / variance
    return rho + (losses - rho * spread) / variance


def rmse(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """sqrt(m) + (L - m) / (2 sqrt(m)), m the mean over rows and outputs; 0 for a perfect fit."""
    xp, losses = namespace(y, prediction), wide(_SQUARED_ERROR(y, prediction))
    mean = _mean(losses, weights)
    root = xp.sqrt(xp.where(mean > 0.0, mean, 1.0))
    return xp.where(mean > 0.0, root + (losses - mean) / (2.0 * root), 0.0)


def inaccuracy(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    return wide(zero_one(y, prediction))


# Why a metric or loss is not defined for these labels (on the host) and base predictions; "" if it is.


def one_class(labels: Host, prediction: Array) -> str:
    if np.all(labels == labels[0]):
        return f"y holds only the class {labels[0]}; it needs rows of both classes, 0 and 1"
    return ""


def constant_labels(labels: Host, prediction: Array) -> str:
    if np.all(labels == labels[:1]):
        return "y is constant, so its variance is 0; pass loss='squared_error' or 'rmse'"
    return ""


def wrong_sums(labels: Host, prediction: Array) -> str:
    """Probabilities of all classes must sum to 1 in each row."""
    if prediction.ndim != 2:
        return ""
    xp = namespace(prediction)
    sums = to_host(xp.sum(xp.astype(prediction, float_dtype(xp, prediction)), axis=1))
    precision = float(xp.finfo(prediction.dtype).eps) if is_floating(xp, prediction.dtype) else 0.0
    row = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[row] - 1.0) <= max(1e-3, 8.0 * precision):
        return ""
    given = f"the probabilities of a row must sum to 1, but row {row} sums to {sums[row]:.6g}"
    return f"{given}; normalise them, or for logits pass loss='cross_entropy'"
