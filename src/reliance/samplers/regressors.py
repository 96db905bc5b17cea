"""Conditional means: least squares and kernel ridge regression, on the backend of the data.

Both follow one small protocol, ``fit(Z, T)`` returns an object with ``predict(Z)``, which scikit-learn's estimators
follow, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reliance._core.arrays import device, epsilon, from_host, namespace, to_host
from reliance._core.kinds import Array, HostArray, Operand
from reliance._core.words import listed
from reliance.samplers.draws import Host, narrow, upload, wide

_CHUNK = 4096  # rows of kernel values held at a time


class Predictor(Protocol):
    """What a fit returns."""

    def predict(self, Z: Operand, /) -> Array:
        """Predictions for the rows of Z (n, q)."""
        ...


class Regressor(Protocol):
    """What predicts a target from other columns: scikit-learn's estimators, `OLS`, `KernelRidge`."""

    def fit(self, Z: Operand, T: Operand, /) -> Predictor:
        """Fit on Z (m, q) and T (m,) or (m, g); returns a `Predictor`."""
        ...


# ---------------------------------------------------------------------------------------------------------------------
# Least squares


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Least squares of g targets on an intercept and p columns, q = p + 1; all arrays float64 on the host.

    Attributes
    ----------
    centre, scale : (p,)
        z = [1, (x - centre) / scale].
    coefficients : (q, g)
        B of the fit z'B.
    bread : (q, q)
        Szz^-1; with a ridge, (Szz + ridge)^-1 with the intercept not penalised.
    freedom : float
        m - trace of the hat matrix: m - q without a ridge.
    """

    centre: Host
    scale: Host
    coefficients: Host
    bread: Host
    freedom: float

    def design(self, Z: Array) -> Array:
        """The z (n, q) of the rows Z (n, p), in float64."""
        Z = wide(Z)
        xp = namespace(Z)
        ones = xp.ones((Z.shape[0], 1), dtype=Z.dtype, device=device(Z))
        return xp.concat([ones, (Z - upload(self.centre, Z)) / upload(self.scale, Z)], axis=1)

    def means(self, design: Array) -> Array:
        """The fit (n, g), from the design."""
        return design @ upload(self.coefficients, design)

    def predict(self, Z: Array) -> Array:
        return narrow(self.means(self.design(Z)), Z)


def least_squares(
    Z: Array, T: Array, *, ridge: float | None = None, labels: Sequence[int] | None = None, eps: float | None = None
) -> LinearFit:
    """Minimise ``mean (t - z'b)^2 + ridge |slopes|^2`` by QR of centred and scaled columns, in float64.

    Parameters
    ----------
    Z : array (m, p)
    T : array (m, g)
    ridge : float or None
        Penalty of the slopes of standardised columns.
    labels : sequence of int
        What an error calls the columns of Z.
    eps : float
        To how much the entries of Z are known, relative to their size; that of its dtype unless given.
    """
    eps = max(epsilon(Z) if eps is None else eps, np.finfo(np.float64).eps)
    Z, T = wide(Z), wide(T)
    xp = namespace(Z)
    m, p = Z.shape
    labels = tuple(range(p)) if labels is None else tuple(labels)
    middle = xp.mean(T, axis=0)
    if p == 0:
        none, one = np.zeros(0), np.ones((1, 1))
        return LinearFit(none, none, to_host(middle)[None, :], one, m - 1.0)
    if ridge is None and m <= p + 1:
        raise ValueError(
            f"given has {p} columns but there are only {m} rows to fit on: drop columns of given, or pass "
            "Gaussian(ridge=1e-3)"
        )
    centre, spread = to_host(xp.mean(Z, axis=0)), to_host(xp.std(Z, axis=0))
    constant = spread <= 16 * np.finfo(np.float64).eps * np.abs(centre)
    scale = np.where(constant, 1.0, spread)
    standard = (Z - upload(centre, Z)) / upload(scale, Z)
    if ridge is not None:  # the penalty as p more rows
        rows = from_host(np.sqrt(m * ridge) * np.eye(p), xp, device(Z), Z.dtype)
        standard = xp.concat([standard, rows], axis=0)
    Q, R = xp.linalg.qr(standard)
    head = Q[:m, :]
    upper, cross = to_host(R), to_host(xp.matrix_transpose(head) @ (T - middle))
    if ridge is None:
        # What is left of a column without those before it, in its own standard deviations. Rounded entries leave
        # sqrt(p) eps, more if the column's mean is large against its spread.
        left = np.abs(np.diagonal(upper)) / np.sqrt(m)
        slack = 4 * np.sqrt(p) * eps * np.max(1 + np.abs(centre) / scale)
        _refuse_singular(constant | (left <= slack), labels)
    slopes = np.linalg.solve(upper, cross)
    inverse = np.linalg.inv(upper)
    bread = np.eye(p + 1)
    bread[1:, 1:] = m * (inverse @ inverse.T)
    used = 1.0 + float(to_host(xp.sum(head * head)))
    return LinearFit(centre, scale, np.vstack([to_host(middle), slopes]), bread, m - used)


def _refuse_singular(dependent: HostArray, labels: tuple[int, ...]) -> None:
    if dependent.any():
        bad = listed(label for label, is_bad in zip(labels, dependent, strict=True) if is_bad)
        raise ValueError(
            f"given is singular: on the rows of the fit, column {bad} of X is constant or a linear combination of the "
            "other columns of given. Drop such columns from given, or pass Gaussian(ridge=1e-3)"
        )


@dataclass(frozen=True)
class OLS:
    """Ordinary least squares with an intercept, on the backend.

    >>> import numpy as np
    >>> Z = np.asarray([[0.0], [1.0], [2.0], [3.0]])
    >>> OLS().fit(Z, 1 + 2 * Z).predict(np.asarray([[10.0]]))
    array([[21.]])
    """

    def fit(self, Z: Array, T: Array) -> LinearFit:
        """Fit on Z (m, q) and T (m, g)."""
        return least_squares(Z, T)


# ---------------------------------------------------------------------------------------------------------------------
# Kernel ridge


@dataclass(frozen=True)
class KernelRidge:
    """Kernel ridge regression with a Gaussian kernel on standardised columns and an unpenalised intercept.

    The bandwidth is the median distance between landmarks. The penalty, one for each target column, has the least
    leave-one-out error, in closed form e_i / (1 - h_ii), among ``penalties`` times the number of rows. Rows beyond
    ``landmarks`` enter through a Nystroem approximation on evenly spaced rows: O(m landmarks^2) time, O(landmarks^2)
    memory.

    Parameters
    ----------
    landmarks : int
    penalties : tuple of float
    """

    landmarks: int = 500
    penalties: tuple[float, ...] = tuple(10.0 ** np.arange(-7.0, 1.0, 0.5))

    def __post_init__(self) -> None:
        if self.landmarks < 2:
            raise ValueError(f"landmarks={self.landmarks} is too few: give at least 2")

    def fit(self, Z: Array, T: Array) -> KernelFit:
        """Fit on Z (m, q) and T (m, g)."""
        Z, T = wide(Z), wide(T)
        xp = namespace(Z)
        m = Z.shape[0]
        origin, spread = xp.mean(Z, axis=0), xp.std(Z, axis=0)
        # A constant column has a spread of rounding only.
        spread = xp.where(spread > 1e-13 * xp.abs(origin), spread, xp.ones_like(spread))
        count = min(self.landmarks, m)
        places = np.linspace(0, m - 1, count).round().astype(np.int64)
        marks = (xp.take(Z, from_host(places, xp, device(Z)), axis=0) - origin) / spread
        squares = _squared_distances(marks, marks)
        width = _median_distance(to_host(squares))
        features = _Features(origin, spread, marks, _inverse_root(xp.exp(squares / (-2 * width**2))), width)
        return _ridge_path(features, Z, T, self.penalties)


@dataclass(frozen=True, eq=False)
class _Features:
    """Nystroem features ``k(z, landmarks) K^-1/2``, whose inner products approximate the kernel."""

    origin: Array
    spread: Array
    marks: Array
    root: Array
    width: float

    def __call__(self, Z: Array) -> Array:
        xp = namespace(Z)
        origin, spread, marks, root = (upload(a, Z) for a in (self.origin, self.spread, self.marks, self.root))
        return xp.exp(_squared_distances((Z - origin) / spread, marks) / (-2 * self.width**2)) @ root

    def parts(self, Z: Array) -> Iterator[tuple[slice, Array]]:
        for start in range(0, Z.shape[0], _CHUNK):
            rows = slice(start, min(start + _CHUNK, Z.shape[0]))
            yield rows, self(Z[rows, :])


@dataclass(frozen=True, eq=False)
class KernelFit:
    """A fitted `KernelRidge`."""

    features: _Features
    centre: Host  # (L,) mean of the features
    coefficients: Host  # (L, g)
    intercept: Host  # (g,)

    def predict(self, Z: Array) -> Array:
        rows = wide(Z)
        xp = namespace(rows)
        centre, coefficients, intercept = (upload(a, rows) for a in (self.centre, self.coefficients, self.intercept))
        parts = [(part - centre) @ coefficients + intercept for _, part in self.features.parts(rows)]
        return narrow(xp.concat(parts, axis=0), Z)


def _squared_distances(A: Array, B: Array) -> Array:
    xp = namespace(A)
    squares = xp.sum(A * A, axis=1)[:, None] + xp.sum(B * B, axis=1)[None, :] - 2 * (A @ xp.matrix_transpose(B))
    return xp.maximum(squares, xp.zeros_like(squares))


def _median_distance(squares: Host) -> float:
    distances = np.sqrt(squares[np.triu_indices(squares.shape[0], 1)])
    # The median is 0 if most rows are equal; then that of the others says how far «far» is.
    positive = distances[distances > 1e-6]
    if positive.size == 0:
        return 1.0
    middle = float(np.median(distances))
    return middle if middle > 1e-6 else float(np.median(positive))


def _inverse_root(K: Array) -> Array:
    """``K^-1/2`` of a kernel matrix, directions without weight left out."""
    xp = namespace(K)
    values, vectors = xp.linalg.eigh(K)
    least = xp.max(values) * 1e-12
    inverse = xp.where(values > least, 1 / xp.sqrt(xp.maximum(values, least)), xp.zeros_like(values))
    return (vectors * inverse) @ xp.matrix_transpose(vectors)


def _ridge_path(features: _Features, Z: Array, T: Array, penalties: Sequence[float]) -> KernelFit:
    """Ridge regression on centred features, the penalty of each target chosen by its leave-one-out error."""
    xp = namespace(Z)
    m, g = T.shape
    intercept = xp.mean(T, axis=0)
    size = features.marks.shape[0]
    zero = xp.zeros((size,), dtype=Z.dtype, device=device(Z))
    centre = sum((xp.sum(part, axis=0) for _, part in features.parts(Z)), start=zero) / m
    gram = xp.zeros((size, size), dtype=Z.dtype, device=device(Z))
    cross = xp.zeros((size, g), dtype=Z.dtype, device=device(Z))
    for rows, part in features.parts(Z):
        part = part - centre
        gram = gram + xp.matrix_transpose(part) @ part
        cross = cross + xp.matrix_transpose(part) @ (T[rows, :] - intercept)
    values, vectors = xp.linalg.eigh(gram)
    values = xp.maximum(values, xp.zeros_like(values))
    rotated = xp.matrix_transpose(vectors) @ cross  # (L, g)
    grid = from_host(m * np.asarray(penalties), xp, device(Z), Z.dtype)
    shrink = 1 / (values[:, None] + grid)  # (L, penalties)
    errors = np.zeros((len(penalties), g))
    for rows, part in features.parts(Z):
        turned = (part - centre) @ vectors
        kept = 1 - 1 / m - (turned * turned) @ shrink  # 1 - h_ii, (b, penalties)
        kept = xp.maximum(kept, xp.full_like(kept, 1e-10))
        for k in range(g):
            left = (T[rows, k] - intercept[k])[:, None] - turned @ (shrink * rotated[:, k][:, None])
            errors[:, k] += to_host(xp.sum((left / kept) ** 2, axis=0))
    best = m * np.asarray(penalties)[np.argmin(errors, axis=0)]
    coefficients = vectors @ (rotated / (values[:, None] + from_host(best, xp, device(Z), Z.dtype)))
    return KernelFit(features, to_host(centre), to_host(coefficients), to_host(intercept))
