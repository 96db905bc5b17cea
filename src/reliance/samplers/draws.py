"""What a conditional sampler is, and the three forms in which it hands over its draws.

A draw is a function of the row and of uniform numbers, nothing else. So the same numbers give the same draws on every
backend and at every block size, and runs on slightly different rows (a jackknife) differ by those rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import (
    device,
    from_host,
    index_dtype,
    is_floating,
    namespace,
    real_dtypes,
    sum_dtype,
    to_host,
)
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown

Host: TypeAlias = NDArray[np.float64]
Values: TypeAlias = Callable[[slice | range, Array], Array]
Donors: TypeAlias = Callable[[range, HostArray], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Residuals:
    """``x~_ik = mean_i + residual_k``: the row's conditional mean, and the residual of a donor row that a plan chooses.

    Attributes
    ----------
    mean, residual : array (n, g)
        Of the evaluated rows, on their device.
    design : array (n, q) or None
        z_i, the intercept first, if mean = z'B with B by least squares. The other columns are centred and scaled by
        the rows of the fit; what is computed from z and ``bread`` together does not depend on that.
    bread : float64 array (q, q) on the host, or None
        Szz^-1, the inverse of the mean of z z' over the rows of the fit.
    training : (Z (m, q), residuals (m, g)) or None
        Of the rows of the fit if these are other rows than the evaluated ones.
    """

    mean: Array
    residual: Array
    design: Array | None = None
    bread: Host | None = None
    training: tuple[Array, Array] | None = None


@dataclass(frozen=True, eq=False)
class Normal:
    """``x~ = mean + scale @ eps`` with standard normal eps: parametric draws; the attributes are those of `Residuals`.

    ``scale (g, g)`` is the lower Cholesky factor of the residual covariance, on the device.
    """

    mean: Array
    scale: Array
    design: Array
    bread: Host
    training: tuple[Array, Array] | None = None


@dataclass(frozen=True, eq=False)
class ValueDraws:
    """``x~_ik`` computed from the row and ``uniforms`` independent numbers, uniform on (0, 1).

    Attributes
    ----------
    uniforms : int
    values : callable (rows, u (b, d, uniforms)) -> array (b, d, g)
        On the device of the evaluated rows; for a slice of rows it can be traced by ``jax.jit``.
    normal : Normal or None
        Of parametric Gaussian draws.
    """

    uniforms: int
    values: Values
    normal: Normal | None = None


@dataclass(frozen=True, eq=False)
class DonorDraws:
    """``x~_ik`` is the value of a donor among the evaluated rows.

    Attributes
    ----------
    donors : callable (rows, u (b, d)) -> int64 array (b, d)
        On the host. Never the row itself, but for the rows ``alone``. A row's candidates are ordered by their target
        values and the one at floor(u * length) is taken: the draw is a quantile of the candidates' values, which
        moves little when some rows are left out.
    strata : integer array (n,) or None
        If donors are uniform over the other rows of the row's stratum.
    alone : integer array
        Rows without any candidate. They keep their own value.
    """

    donors: Donors
    strata: NDArray[np.int64] | None
    alone: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """A column of two values: row i takes the high one from donor k if ``latent_k > cut_i``; (n, 1) each."""

    cut: Array
    latent: Array
    low: float
    high: float


Draws: TypeAlias = Residuals | ValueDraws | DonorDraws | Thresholds


class FittedSampler(Protocol):
    """Draws for any rows with the same columns as the rows of the fit."""

    def on(self, X: Array) -> Draws:
        """The draws for the evaluated rows X (n, P): the very array of the fit, or other rows."""
        ...


class Sampler(Protocol):
    """Draws the target columns given others."""

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedSampler:
        """Learn the conditional distribution of the columns ``target`` given the columns ``given`` of X (m, P)."""
        ...


# ---------------------------------------------------------------------------------------------------------------------
# What the samplers share


def check_columns(X: Array, target: Sequence[int], given: Sequence[int]) -> None:
    """Columns exist, ``target`` is not empty, and none is in both."""
    if len(X.shape) != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}: a sampler takes rows of one dimension, (n, P)")
    for name, columns in (("target", target), ("given", given)):
        bad = [column for column in columns if not 0 <= column < X.shape[1]]
        if bad:
            raise ValueError(f"{name}={shown(tuple(columns))} names column {bad[0]}, but X has {X.shape[1]} columns")
    if len(target) == 0:
        raise ValueError("target=() names no column: there is nothing to draw")
    both = sorted(set(target) & set(given))
    if both:
        raise ValueError(
            f"given={shown(tuple(given))} holds column {both[0]} of the target: given itself it keeps its value"
        )
    check_finite(X, (*target, *given))


def check_finite(X: Array, columns: Sequence[int]) -> None:
    xp = namespace(X)
    bad = np.flatnonzero(~to_host(xp.all(xp.isfinite(take_columns(X, columns)), axis=0)))
    if bad.size:
        raise ValueError(
            f"column {columns[bad[0]]} of X (context variables come last) holds NaN or infinite values, which a "
            "sampler cannot take: drop those rows, or leave the column out of features and given"
        )


def take_columns(X: Array, columns: Sequence[int]) -> Array:
    """``(n, len(columns))`` on the device of X."""
    xp = namespace(X)
    places = from_host(np.asarray(columns, dtype=np.int64), xp, device(X), index_dtype(xp))
    return xp.take(X, places, axis=1)


def wide(X: Array, columns: Sequence[int] | None = None) -> Array:
    """Columns in float64, on the device if it has float64 and else on the host: what fits are computed in."""
    xp = namespace(X)
    part = X if columns is None else take_columns(X, columns)
    if "float64" in real_dtypes(xp, device(X)):
        return xp.astype(part, xp.float64, copy=False)
    return to_host(part).astype(np.float64)


def upload(values: Array, like: Array) -> Array:
    """An array in the namespace, on the device and in the dtype of ``like``, through the host if it is not there."""
    xp = namespace(like)
    if namespace(values) is xp and device(values) == device(like):
        return xp.astype(values, like.dtype, copy=False)
    return from_host(to_host(values), xp, device(like), like.dtype)


def narrow(values: Array, X: Array) -> Array:
    """What was computed in float64, in the floating dtype of X, or the widest if it has none, on its device."""
    xp, dev = namespace(X), device(X)
    dtype = X.dtype if is_floating(xp, X.dtype) else sum_dtype(xp, dev)
    if namespace(values) is xp and device(values) == dev:
        return xp.astype(values, dtype, copy=False)
    return from_host(to_host(values), xp, dev, dtype)


def lower_factor(covariance: Host) -> Host:
    """Lower triangular L with L L' = covariance; directions without variance are columns of 0."""
    size = covariance.shape[0]
    factor = np.zeros_like(covariance)
    for k in range(size):
        left = covariance[k:, k] - factor[k:, :k] @ factor[k, :k]
        if left[0] > 1e-12 * covariance[k, k]:
            factor[k:, k] = left / np.sqrt(left[0])
    return factor


def normal_values(mean: Array, scale: Array) -> Values:
    """``mean_i + scale @ Phi^-1(u)``, the values of `ValueDraws`, from mean (n, g) and scale (g, g)."""
    xp = namespace(mean)
    across = xp.matrix_transpose(scale)

    def values(rows: slice | range, u: Array) -> Array:
        part = mean[rows.start : rows.stop, :]
        return part[:, None, :] + xp.astype(normal_quantile(u), mean.dtype, copy=False) @ across

    return values


# Wichura (1988), Algorithm AS 241 (PPND16): numerators and denominators by rising powers.
_CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_SIDES = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_TAILS = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    values = []
    for coefficients in polynomials:
        value = x * coefficients[-1] + coefficients[-2]
        for coefficient in coefficients[-3::-1]:
            value = value * x + coefficient
        values.append(value)
    return values[0] / values[1]


def normal_quantile(u: Array) -> Array:
    """Phi^-1(u), elementwise, with operations of the standard only; u is kept off 0 and 1 by a unit of its dtype."""
    xp = namespace(u)
    unit = float(xp.finfo(u.dtype).eps) / 2
    u = xp.minimum(xp.maximum(u, xp.full_like(u, unit / 2)), xp.full_like(u, 1 - unit))
    q = u - 0.5
    centre = q * _ratio(_CENTRE, 0.180625 - q * q)
    # The smaller tail, of which 1 - u loses no digit that u had.
    r = xp.sqrt(-xp.log(xp.where(q < 0, u, 1 - u)))
    tail = xp.where(r <= 5.0, _ratio(_SIDES, r - 1.6), _ratio(_TAILS, r - 5.0))
    return xp.where(xp.abs(q) <= 0.425, centre, xp.where(q < 0, -tail, tail))
