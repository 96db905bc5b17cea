"""Losses of predicted distributions: the last axis of a prediction holds a mean and a standard deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reliance._core.arrays import namespace
from reliance._core.kinds import Array, Namespace
from reliance.losses.formulas import Host, float_dtype
from reliance.losses.functions import Loss

# Up to here the series of erf, beyond it the continued fraction of erfc, both to the last digit of float64.
_NEAR, _TERMS, _DEPTH = 3.0, 60, 60


def erf(x: Array) -> Array:
    """The error function by operations of the array standard, which has none: sums of positive terms."""
    xp = namespace(x)
    size = xp.abs(x)
    near = xp.where(size > _NEAR, xp.full_like(x, _NEAR), size)
    term = near
    total = near
    for k in range(1, _TERMS):  # 2 / sqrt(pi) exp(-x^2) sum of x (2 x^2)^k / (1 3 5 ... (2k + 1))
        term = term * (2.0 * near * near) / (2 * k + 1)
        total = total + term
    inner = 2.0 / math.sqrt(math.pi) * xp.exp(-near * near) * total
    far = xp.where(size > _NEAR, size, xp.full_like(x, _NEAR))
    fraction = far
    for k in range(_DEPTH, 0, -1):
        fraction = far + 0.5 * k / fraction
    outer = 1.0 - xp.exp(-far * far) / (math.sqrt(math.pi) * fraction)
    found = xp.where(size > _NEAR, outer, inner)
    return xp.where(x < 0.0, -found, found)


def _parts(xp: Namespace, y: Array, prediction: Array, name: str) -> tuple[Array, Array, Array]:
    """Labels, means and standard deviations of the same shape."""
    if tuple(prediction.shape) != (*y.shape, 2):
        raise ValueError(
            f"{name}: y has shape {tuple(y.shape)} and the predictions {tuple(prediction.shape)}: return mean and "
            "standard deviation along a last axis of length 2, such as torch.stack([mean, scale], dim=-1)"
        )
    p = xp.astype(prediction, float_dtype(xp, prediction), copy=False)
    return xp.astype(y, p.dtype, copy=False), p[..., 0], p[..., 1]


def _per_row(xp: Namespace, losses: Array) -> Array:
    return losses if losses.ndim == 1 else xp.mean(losses, axis=tuple(range(1, losses.ndim)))


@dataclass(frozen=True)
class _GaussianNLL:
    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        labels, mean, scale = _parts(xp, y, prediction, "gaussian_nll")
        z = (labels - mean) / scale
        return _per_row(xp, 0.5 * z * z + xp.log(scale) + 0.5 * math.log(2.0 * math.pi))


@dataclass(frozen=True)
class _GaussianCRPS:
    """sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)), z = (y - mu) / sigma."""

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        labels, mean, scale = _parts(xp, y, prediction, "gaussian_crps")
        z = (labels - mean) / scale
        density = xp.exp(-0.5 * z * z) * (2.0 / math.sqrt(2.0 * math.pi))
        return _per_row(xp, scale * (z * erf(z / math.sqrt(2.0)) + density - 1.0 / math.sqrt(math.pi)))


def _has_scale(prediction: Array) -> Array:
    return ~namespace(prediction).any(prediction[..., -1] <= 0)


def _not_finite(labels: Host, prediction: Array) -> str:
    return "" if np.isfinite(labels).all() else "y must be finite numbers"


_SCALES = "standard deviations, second along the last axis, must be above 0; if they are logarithms, return their exp"
gaussian_nll = Loss("gaussian_nll", _GaussianNLL(), valid=_has_scale, requirement=_SCALES, undefined=_not_finite)
gaussian_crps = Loss("gaussian_crps", _GaussianCRPS(), valid=_has_scale, requirement=_SCALES, undefined=_not_finite)
