"""What rounding does to a prediction: measured on rows that the model predicts a second time, in another batch.

A model computes the same row a little differently in another batch: another matrix kernel, another fusion. A feature
whose replacement moves no prediction by more than that is not used. How much "that" is depends on the model, so a few
rows are predicted twice. A second prediction that differs by more than rounding is no rounding: the model is random, or
looks at the other rows of its batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array
from reliance._core.checks import warn

# Units in the last place of an output, or of its typical size, that a prediction may move by: where a batch changes
# something or it is not known, and how many times the measured change. Where it changes nothing fewer do for float32,
# of which 16 units may well be a feature's effect (1e6 + x), and none for 16-bit outputs. docs/design.md has what was
# measured, and where it is not enough.
ROUNDING = 16
_FLOOR = {8: 32.0, 4: 16.0, 2: 1.0, 1: 1.0}
_UNMOVED = {8: 32.0, 4: 4.0, 2: 0.0, 1: 0.0}
_TIMES = 8
_MOST_BY_TIMES = 1024  # rounding is no larger: a larger change is that of 16-bit numbers inside the model
# 16-bit outputs are so coarse that most features move them by a few units: there is room for what was measured, only.
_HALF_TIMES = 2
# A change beyond both is not rounding: of the output's size, and of how much it varies from row to row.
_LARGEST_UNITS, _LARGEST_SHARE = 1024, 1 / 32
_LARGEST_SPREAD = 1e-3
_TYPICAL_ROWS = 1024
# Rows that are predicted a second time.
PROBED_ROWS = 64


class Slack(NamedTuple):
    """By how much predictions may move, ``(n, ...)``, and what was measured: how far apart two predictions of a row
    were at most (0-d), and whether that is more than rounding (0-d bool).
    """

    slack: Array
    apart: Array
    random: Array


def probe(n: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to predict again, spread over all, and the batch to do it in, of which they are the end.

    Matrix kernels treat the last rows of a batch in their own way, up to 15 of them, so the batch has a length of -1
    modulo 16. It begins with copies of a single row, as tiles do, which shows a model that uses its batch's mean.
    """
    chosen = min(n, PROBED_ROWS, (most + 1) // 2)
    rows = np.linspace(n - 1, 0, chosen).astype(np.int64)
    length = min(most, 16 * -(-2 * chosen // 16) - 1)
    return rows, np.concatenate([np.full(length - chosen, rows[0]), rows])


def measured(predictions: Array, rows: Array | None = None, again: Array | None = None) -> Slack:
    """The slack of predictions ``(n, ...)``, of which those of ``rows (K,)`` were computed ``again``; None: were not.

    Where a prediction is NaN or infinite, its slack is not finite.
    """
    xp, dev = arrays.namespace(predictions), arrays.device(predictions)
    nothing = xp.zeros((), dtype=xp.float32, device=dev)
    never = xp.zeros((), dtype=xp.bool, device=dev)
    own = None if rows is None else xp.take(predictions, rows, axis=0)
    if not arrays.is_floating(xp, predictions.dtype):
        none = xp.zeros((predictions.shape[0], *(1 for _ in predictions.shape[1:])), dtype=xp.float32, device=dev)
        changed = never if own is None else xp.any(own != again)
        return Slack(none, xp.astype(changed, xp.float32), changed)
    with arrays.quiet():
        sizes = xp.abs(predictions)
        typical = _typical(sizes)
        scale = xp.where(sizes < typical, typical, sizes)
        if own is None:
            units, apart, random = max(_FLOOR[arrays.itemsize(predictions)], _HALF_TIMES), nothing, never
            return Slack(units * arrays.epsilon(predictions) * scale, apart, random)
        units, apart, random = _units(own, again, xp.take(scale, rows, axis=0))
        return Slack(units * scale, apart, random)


def _typical(sizes: Array) -> Array:
    """``(...)``: the median size of each output, for one huge prediction must not speak for all."""
    xp = arrays.namespace(sizes)
    some = sizes[:: max(1, sizes.shape[0] // _TYPICAL_ROWS), ...]
    middle = some.shape[0] // 2
    ordered = np.partition(some, middle, axis=0) if isinstance(some, np.ndarray) else xp.sort(some, axis=0)
    median = ordered[middle, ...]
    return xp.where(median > 0, median, xp.mean(some, axis=0))


def _units(own: Array, again: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Slack as a part of an output's scale ``(...)``, how far apart predictions are (0-d), is that beyond rounding.

    All given are ``(K, ...)``. In the widest dtype: a unit of a small 16-bit number is no 16-bit number.
    """
    xp, eps, size = arrays.namespace(own), arrays.epsilon(own), arrays.itemsize(own)
    half = size <= 2
    dtype, kind = arrays.sum_dtype(xp, arrays.device(own)), own.dtype
    own, again, scale = (xp.astype(a, dtype) for a in (own, again, scale))
    apart = xp.abs(again - own)
    units = xp.max(apart / (eps * scale + float(xp.finfo(dtype).smallest_normal)), axis=0)
    units = xp.where(units > 1.0 / eps, xp.full_like(units, 1.0 / eps), units)
    spread = xp.mean(xp.abs(own - xp.mean(own, axis=0)), axis=0)
    sized = min(_LARGEST_UNITS * eps, _LARGEST_SHARE) * scale
    beyond = xp.any((apart > sized) & (apart > _LARGEST_SPREAD * spread), axis=0)
    least = xp.full_like(units, _FLOOR[size])
    if half:
        allowed = _HALF_TIMES * _largest(units, least)
    else:
        several = xp.where(_TIMES * units < _MOST_BY_TIMES, _TIMES * units, xp.full_like(units, _MOST_BY_TIMES))
        allowed = _largest(_largest(several, 2.0 * units), least)
    # Noise is no rounding: with it no feature can be said to be unused.
    allowed = xp.where(beyond, least, allowed)
    allowed = xp.where(xp.any(apart > 0), allowed, xp.full_like(allowed, _UNMOVED[size]))
    return xp.astype(eps * allowed, kind), xp.max(apart), xp.any(beyond)


def _largest(a: Array, b: Array) -> Array:
    return arrays.namespace(a).where(a > b, a, b)


def warn_random(name: str, apart: float) -> None:
    """What is said of a model whose second predictions differ by more than rounding."""
    warn(
        f"model {name:.60} predicts the same rows differently in another batch, by up to {apart:.3g}: it is random "
        "(dropout?) or depends on the other rows of its batch (batch statistics?). Importances contain this noise; for "
        "a network call eval() first"
    )
