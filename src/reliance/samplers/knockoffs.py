"""Second-order Gaussian knockoffs, as in the paper on relative importance, and the knockoff filter.

**Knockoffs are not conditional samples.** A knockoff X~_j of X_j beside the columns X_G has the covariances of X_j with
X_G, but it also depends on X_j itself: Cov(X_j, X~_j | X_G) = sigma2_{j|G} - s_j, where a conditional sample has 0. So
the importance measured with them is not the relative importance as defined. For a linear model, squared loss and
Gaussian columns it is ``s_j / sigma2_{j|G}`` times that, a factor between 0 and 2 that depends on how s was
chosen. What they are made for is the selection of features with a bound on the false discovery rate: see
`knockoff_filter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reliance._core.arrays import describe, device, epsilon, from_host, is_array, namespace, sum_dtype, to_host
from reliance._core.kinds import Array
from reliance._core.streams import RandomState, resolve_key, stream
from reliance._core.words import shown
from reliance.samplers.draws import Host, ValueDraws, check_columns, lower_factor, narrow, normal_values, upload, wide

Method: TypeAlias = Literal["equicorrelated", "sdp", "mvr"]
Terms: TypeAlias = tuple[float, Host, Host]  # value, gradient, Hessian

_COPIES = 64  # what the numbers of the stream are for: see `reliance._core.streams`


@dataclass(frozen=True)
class Knockoffs:
    """Gaussian knockoffs of the target columns beside the given ones (König et al. 2020, section V).

    With mean mu and covariance S of the columns W = (target, given) and D = diag(s),

        W~ | W  ~  N(W - (W - mu) S^-1 D,  2 D - D S^-1 D),

    so that Cov(W~) = S and Cov(W, W~) = S - D (Candès et al. 2018); the draws are the target's part of W~. Not the
    conditional distribution of the target: see the module's first lines for what that does to importances.

    Parameters
    ----------
    method : {"equicorrelated", "sdp", "mvr"}
        How s is chosen: see `knockoff_scales`.
    """

    method: Method = "equicorrelated"

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method={shown(self.method)} is unknown: pass one of {', '.join(map(repr, _METHODS))}")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedKnockoffs:
        """Mean and covariance from the rows of X."""
        check_columns(X, target, given)
        W = wide(X, (*target, *given))
        xp = namespace(W)
        m, p = W.shape
        if m <= p:
            raise ValueError(f"X has {m} rows for a covariance of {p} columns: drop columns of given")
        mean = xp.mean(W, axis=0)
        left = W - mean
        covariance = to_host(xp.matrix_transpose(left) @ left) / (m - 1)
        deviation = np.sqrt(np.diagonal(covariance))
        # A column that is constant to rounding has no correlations.
        floor = 16 * max(epsilon(X), np.finfo(np.float64).eps) * np.abs(to_host(mean))
        if (deviation <= floor).any():
            column = (*target, *given)[int(np.argmax(deviation <= floor))]
            raise ValueError(f"column {column} of X is constant on the rows of the fit: drop it from target or given")
        correlation = covariance / np.outer(deviation, deviation)
        if np.linalg.eigvalsh(correlation)[0] <= 1e-10:
            raise ValueError("target and given are collinear on the rows of the fit: drop columns of given")
        s = knockoff_scales(correlation, self.method) * deviation**2
        slopes = np.linalg.solve(np.asarray(covariance, dtype=np.float64), np.diag(s))  # S^-1 D
        noise = 2 * np.diag(s) - s[:, None] * slopes
        g = len(target)
        return FittedKnockoffs(target, given, to_host(mean), slopes[:, :g], lower_factor(noise[:g, :g]), s[:g])


@dataclass(frozen=True, eq=False)
class FittedKnockoffs:
    """Fitted `Knockoffs`; ``s (g,)`` are the target's entries of D."""

    target: tuple[int, ...]
    given: tuple[int, ...]
    mean: Host
    slopes: Host
    factor: Host
    s: Host

    def on(self, X: Array) -> ValueDraws:
        W = wide(X, (*self.target, *self.given))
        moved = (W - upload(self.mean, W)) @ upload(self.slopes, W)
        means = narrow(W[:, : len(self.target)] - moved, X)
        factor = from_host(self.factor, namespace(means), device(means), means.dtype)
        return ValueDraws(len(self.target), normal_values(means, factor))


def knockoff_copies(X: Array, *, method: Method = "mvr", rng: RandomState = None) -> Array:
    """``(n, p)``: knockoffs of all columns of X (n, p) at once, on its device."""
    if not is_array(X) or X.ndim != 2:
        raise TypeError(f"X is {describe(X) if is_array(X) else type(X).__name__}: pass an array of numbers (n, p)")
    n, p = X.shape
    draws = Knockoffs(method).fit(X, tuple(range(p)), ()).on(X)
    u = stream(resolve_key(rng), _COPIES, 0).random((n, 1, p))
    xp, dev = namespace(X), device(X)
    return draws.values(slice(0, n), from_host(u, xp, dev, sum_dtype(xp, dev)))[:, 0, :]


def knockoff_filter(W: ArrayLike, *, fdr: float = 0.1, offset: int = 1) -> tuple[NDArray[np.int64], float]:
    """The features that the knockoff filter selects, and its threshold.

    ``T = min {t > 0 : (offset + #{W_j <= -t}) / #{W_j >= t} <= fdr}``; selected are the W_j >= T. With offset=1
    (knockoff+) the false discovery rate is at most ``fdr``, provided that the statistics are antisymmetric: exchanging
    X_j and X~_j changes the sign of W_j and nothing else. That needs a model fitted on [X, X~] without knowing which is
    which, for instance W_j = ``|b_j| - |b~_j|``. The importances of a model that was fitted on X alone are not such
    statistics.

    Parameters
    ----------
    W : array_like (p,)
    fdr : float
    offset : {0, 1}
        0 bounds a modified rate, with more selections when few features matter.

    Returns
    -------
    selected : integer array
    threshold : float
        inf if nothing is selected.

    Examples
    --------
    >>> knockoff_filter([5.0, 4.0, -0.5, 3.0, 0.2], fdr=0.4)
    (array([0, 1, 3]), 3.0)
    """
    values = np.asarray(W)
    if values.ndim != 1 or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ValueError(f"W has shape {values.shape}, {shown(W)}: give one finite statistic for each feature")
    values = values.astype(np.float64)
    if not 0 < fdr < 1:
        raise ValueError(f"fdr={fdr} is not a rate: give a number between 0 and 1")
    if offset not in (0, 1):
        raise ValueError(f"offset={offset} is neither 0 nor 1")
    for t in np.unique(np.abs(values[values != 0])):
        if offset + np.sum(values <= -t) <= fdr * max(np.sum(values >= t), 1):
            return np.flatnonzero(values >= t).astype(np.int64), float(t)
    return np.zeros(0, dtype=np.int64), float("inf")


# ---------------------------------------------------------------------------------------------------------------------
# The choice of s


def knockoff_scales(correlation: Host, method: Method) -> Host:
    """The s (p,) of a correlation matrix C, with 2 C - diag(s) positive definite; on the host.

    equicorrelated
        s_j = min(1, 2 lambda_min(C)).
    sdp
        Maximises sum s_j over 0 <= s <= 1 (Candès et al. 2018), by an interior-point method: Newton steps on a
        logarithmic barrier.
    mvr
        Minimises the trace of the inverse of the joint covariance, ``tr (2 C - D)^-1 + sum 1/s_j`` (Spector and Janson
        2022), by Newton steps. It tells the columns from their knockoffs best, if that is what they are for.
    """
    return _METHODS[method](np.asarray(correlation, dtype=np.float64))


def _equicorrelated(C: Host) -> Host:
    least = float(np.linalg.eigvalsh(C)[0])
    # Just inside the boundary, where the noise has full rank.
    return np.full(C.shape[0], min(1.0, 2 * least * (1 - 1e-9)))


def _sdp(C: Host) -> Host:
    """By a barrier: ``max sum s_j / mu + log det(2 C - D) + sum log s_j (1 - s_j)``, 3 p mu below the best at most."""
    s = _equicorrelated(C) / 2
    for mu in 10.0 ** -np.arange(1.0, 8.0):
        s = _newton(C, s, partial(_barrier, float(mu)))
    return s


def _barrier(mu: float, s: Host, M: Host) -> Terms:
    upper = 1 - s
    if (upper <= 0).any():
        return np.inf, s, M
    value = -s.sum() / mu + np.linalg.slogdet(M)[1] - np.log(s).sum() - np.log(upper).sum()
    return value, -1 / mu + np.diagonal(M) - 1 / s + 1 / upper, M * M + np.diag(1 / s**2 + 1 / upper**2)


def _mvr(C: Host) -> Host:
    return _newton(C, _equicorrelated(C) / 2, _inverse_trace)


def _inverse_trace(s: Host, M: Host) -> Terms:
    square = M @ M
    return np.trace(M) + np.sum(1 / s), np.diagonal(square) - 1 / s**2, 2 * square * M + np.diag(2 / s**3)


def _newton(C: Host, s: Host, terms: Callable[[Host, Host], Terms]) -> Host:
    """Damped Newton steps to the least of a convex function inside s > 0, 2 C - D positive definite.

    ``terms(s, M)`` are in closed form, M the inverse of 2 C - D, because dM/ds_j is M_j M_j', M_j its column.
    """

    def at(s: Host) -> Terms:
        A = 2 * C - np.diag(s)
        if (s <= 0).any() or np.linalg.eigvalsh(A)[0] <= 0:
            return np.inf, s, A
        return terms(s, np.linalg.inv(A).astype(np.float64, copy=False))

    value, gradient, hessian = at(s)
    for _ in range(100):
        step = np.linalg.solve(hessian, gradient)
        decrement = gradient @ step
        size = 1.0
        while size > 1e-10 and (found := at(s - size * step))[0] > value - 0.25 * size * decrement:
            size /= 2
        if size <= 1e-10 or not np.isfinite(found[0]):  # nothing that rounding lets be seen
            break
        s = s - size * step
        value, gradient, hessian = found
        if decrement < 1e-12 * max(abs(value), 1.0):
            break
    return s


_METHODS: dict[str, Callable[[Host], Host]] = {"equicorrelated": _equicorrelated, "sdp": _sdp, "mvr": _mvr}
