"""Losses of many labels in a row: tokens of a sequence, pixels of a mask, labels that do not exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from reliance._core.arrays import index_dtype, is_floating, namespace
from reliance._core.kinds import Array, Namespace
from reliance._core.words import shown
from reliance.losses.formulas import Host, Pointwise, float_dtype
from reliance.losses.functions import Loss


def _log_softmax(xp: Namespace, z: Array) -> Array:
    """Along the last axis."""
    shifted = z - xp.max(z, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


@dataclass(frozen=True)
class _TokenCrossEntropy:
    """Means over the positions of each row whose label is not ``ignore_index``."""

    axis: int
    ignore_index: int
    smoothing: float

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        z = xp.astype(prediction, float_dtype(xp, prediction), copy=False)
        z = xp.moveaxis(z, self.axis, -1) if -z.ndim <= self.axis < z.ndim else z
        if tuple(z.shape[:-1]) != tuple(y.shape):
            raise ValueError(
                f"token_cross_entropy: y has shape {tuple(y.shape)} and the predictions {tuple(prediction.shape)} "
                f"with classes along axis {self.axis}: the other axes must be those of y; axis=1: (n, classes, ...)"
            )
        labels = xp.astype(y, index_dtype(xp), copy=False)
        counts = labels != self.ignore_index
        logs = _log_softmax(xp, z)
        safe = xp.where(counts, labels, xp.zeros_like(labels))
        losses = -xp.take_along_axis(logs, safe[..., None], axis=-1)[..., 0]
        if self.smoothing:
            losses = (1.0 - self.smoothing) * losses - self.smoothing * xp.mean(logs, axis=-1)
        losses = xp.where(counts, losses, xp.zeros_like(losses))
        if losses.ndim == 1:
            return losses
        across = tuple(range(1, losses.ndim))
        return xp.sum(losses, axis=across) / xp.sum(xp.astype(counts, losses.dtype), axis=across)


@dataclass(frozen=True)
class _NothingCounts:
    """Why labels are not such as `token_cross_entropy` takes."""

    axis: int
    ignore_index: int

    def __call__(self, labels: Host, prediction: Array) -> str:
        if labels.dtype.kind == "f" and np.any(labels != np.floor(labels)):
            return "y must be integer labels; for probabilities of classes pass losses.soft_cross_entropy()"
        counts = labels != self.ignore_index
        empty = np.flatnonzero(~counts.reshape(len(labels), -1).any(axis=1))
        if empty.size:
            return f"row {empty[0]} has no label but ignore_index={self.ignore_index}: drop such rows"
        classes = prediction.shape[self.axis]
        outside = labels[counts & ((labels < 0) | (labels >= classes))]
        if outside.size:
            return f"y has the label {outside[0]}, and the predictions have the classes 0 to {classes - 1}"
        return ""


def token_cross_entropy(*, axis: int = -1, ignore_index: int = -100, smoothing: float = 0.0) -> Loss:
    """Cross entropy of logits at every position of a row, averaged over the positions that count.

    Parameters
    ----------
    axis : int
        Where the classes are: -1 for predictions ``(n, positions, classes)``, 1 for ``(n, classes, ...)`` as torch has
        them. ``y`` has the other axes.
    ignore_index : int
        The label of positions that do not count: padding, tokens that are not predicted.
    smoothing : float
        Label smoothing: so much of a label's weight is spread evenly over all classes.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> logits = np.log(np.array([[[0.5, 0.5], [0.1, 0.9]]]))
    >>> loss = rl.losses.token_cross_entropy()
    >>> loss.rows(np.array([[0, -100]]), logits).round(4).tolist()  # -log 0.5, the second position does not count
    [0.6931]
    """
    if isinstance(axis, bool) or not isinstance(axis, int) or axis == 0:
        raise ValueError(f"token_cross_entropy: axis={shown(axis)} is no axis of classes: pass -1 or 1")
    if isinstance(smoothing, bool) or not isinstance(smoothing, Real) or not 0.0 <= float(smoothing) < 1.0:
        raise ValueError(f"token_cross_entropy: smoothing={shown(smoothing)} must be at least 0 and below 1")
    rows = _TokenCrossEntropy(axis, int(ignore_index), float(smoothing))
    return Loss("token_cross_entropy", rows, undefined=_NothingCounts(axis, int(ignore_index)))


@dataclass(frozen=True)
class _SoftCrossEntropy:
    axis: int

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        if tuple(y.shape) != tuple(prediction.shape):
            raise ValueError(
                f"soft_cross_entropy: y has shape {tuple(y.shape)} and the predictions {tuple(prediction.shape)}: y "
                "must hold a probability for each class"
            )
        z = xp.moveaxis(xp.astype(prediction, float_dtype(xp, prediction), copy=False), self.axis, -1)
        shares = xp.moveaxis(xp.astype(y, z.dtype, copy=False), self.axis, -1)
        losses = -xp.sum(shares * _log_softmax(xp, z), axis=-1)
        return losses if losses.ndim == 1 else xp.mean(losses, axis=tuple(range(1, losses.ndim)))


def soft_cross_entropy(*, axis: int = -1) -> Loss:
    """Cross entropy of logits for labels that are probabilities of classes, averaged over the positions of a row.

    Parameters
    ----------
    axis : int
        Where the classes are, in ``y`` and in the predictions, which have the same shape.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> logits = np.log(np.array([[0.5, 0.5]]))
    >>> rl.losses.soft_cross_entropy().rows(np.array([[0.3, 0.7]]), logits).round(4).tolist()
    [0.6931]
    """
    if isinstance(axis, bool) or not isinstance(axis, int) or axis == 0:
        raise ValueError(f"soft_cross_entropy: axis={shown(axis)} is no axis of classes: pass -1 or 1")
    return Loss("soft_cross_entropy", _SoftCrossEntropy(axis), undefined=_no_shares)


def _no_shares(labels: Host, prediction: Array) -> str:
    return "y must hold probabilities from 0 to 1" if np.any((labels < 0) | (labels > 1)) else ""


# ---------------------------------------------------------------------------------------------------------------------
# Labels that do not exclude each other, and masks


def _binary(xp: Namespace, y: Array, z: Array) -> Array:
    """-y log sigmoid(z) - (1 - y) log sigmoid(-z), without overflow."""
    size = xp.abs(z)
    return 0.5 * (z + size) - y * z + xp.log1p(xp.exp(-size))


binary_cross_entropy = Loss("binary_cross_entropy", Pointwise(_binary), "real", "score", undefined=_no_shares)


def _flat(y: Array, prediction: Array) -> tuple[Namespace, Array, Array]:
    """Masks of each row, as (m, pixels) of one floating dtype."""
    xp = namespace(y, prediction)
    dtype = float_dtype(xp, prediction)
    mask, p = (xp.reshape(xp.astype(a, dtype, copy=False), (a.shape[0], -1)) for a in (y, prediction))
    return xp, mask, p


@dataclass(frozen=True)
class _Dice:
    smooth: float

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp, mask, p = _flat(y, prediction)
        both, each = xp.sum(mask * p, axis=1), xp.sum(mask, axis=1) + xp.sum(p, axis=1)
        return 1.0 - (2.0 * both + self.smooth) / (each + self.smooth)


@dataclass(frozen=True)
class _IoU:
    threshold: float

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp, mask, p = _flat(y, prediction)
        true, found = mask > 0.5, p > self.threshold
        both = xp.sum(xp.astype(true & found, p.dtype), axis=1)
        either = xp.sum(xp.astype(true | found, p.dtype), axis=1)
        empty = either == 0.0
        return xp.where(empty, xp.zeros_like(both), 1.0 - both / xp.where(empty, xp.ones_like(either), either))


def _no_mask(labels: Host, prediction: Array) -> str:
    if np.any((labels != 0) & (labels != 1)):
        return "y must be masks of 0 and 1"
    return "" if is_floating(namespace(prediction), prediction.dtype) else "the predictions must be floating-point"


def dice(*, smooth: float = 1.0) -> Loss:
    """1 - Dice of each row's mask: 1 - (2 sum(y p) + s) / (sum(y) + sum(p) + s), p probabilities of pixels.

    Parameters
    ----------
    smooth : float
        s, which keeps empty masks defined.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rl.losses.dice(smooth=0.0).rows(np.array([[1, 1, 0]]), np.array([[1.0, 0.0, 0.0]])).round(4).tolist()
    [0.3333]
    """
    if isinstance(smooth, bool) or not isinstance(smooth, Real) or not 0.0 <= float(smooth) < float("inf"):
        raise ValueError(f"dice: smooth={shown(smooth)} must be a number of at least 0")
    return Loss("dice", _Dice(float(smooth)), "real", undefined=_no_mask)


def iou(*, threshold: float = 0.5) -> Loss:
    """1 - intersection over union of each row's mask, with pixels whose prediction is above the threshold.

    Parameters
    ----------
    threshold : float
        0.5 for probabilities, 0 for logits. Two empty masks agree: their loss is 0.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rl.losses.iou().rows(np.array([[1, 1, 0]]), np.array([[0.9, 0.2, 0.1]])).tolist()
    [0.5]
    """
    if isinstance(threshold, bool) or not isinstance(threshold, Real):
        raise ValueError(f"iou: threshold={shown(threshold)} must be a number: 0.5 for probabilities, 0 for logits")
    return Loss("iou", _IoU(float(threshold)), "real", undefined=_no_mask)
