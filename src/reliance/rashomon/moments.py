"""Second moments of the rows, as a triangular factor: all that least squares over linear models needs of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.rashomon.protocol import ClassData

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# Numbers of a chunk: on the host it stays in the cache, on a device few large products are faster.
_HOST_CHUNK, _DEVICE_CHUNK = 2**16, 2**22
# Rows that say well enough where the columns lie; products are taken about that point and moved to the mean at the end.
_SAMPLE_ROWS = 1024
# How far from the mean, in standard deviations, products may be taken: at most a quarter of them cancels.
_NEAR = 0.5
# What others leave of a column, as a share of its variance, below which products of columns have lost too many digits.
_LOST = 1e-3


@dataclass(frozen=True, eq=False)
class RowMoments:
    """Means and covariances of the P columns and, last, of y.

    Attributes
    ----------
    mean : array (P + 1,)
    triangle : array (P + 1, P + 1)
        Upper triangular, triangle'triangle = the covariances with denominator n.
    n : int
    slack : float
        To how much of a column's spread the entries are known: less than that is collinear.
    """

    mean: Floats
    triangle: Floats
    n: int
    slack: float

    @property
    def columns(self) -> Floats:
        """(P, P): R of the columns' QR decomposition."""
        return self.triangle[:-1, :-1]

    @property
    def target(self) -> Floats:
        """(P,): Q'y."""
        return self.triangle[:-1, -1]

    @property
    def residual(self) -> float:
        """Root mean square of y less its least squares fit; 0 if that is nothing but rounding.

        With dependent columns only a part of it: the rest is what `target` has where `columns` has nothing.
        """
        return self.unless_rounding(self.triangle[:, -1], len(self.mean))

    def unless_rounding(self, target: Floats, parameters: int) -> float:
        """The size of the last entry of Q'y; 0 if it is rounding, as where there are as many parameters as rows."""
        left, size = abs(float(target[-1])), float(np.linalg.norm(target))
        free = self.n > parameters or bool(self.dependent)
        return left if free and left > self.slack * size else 0.0

    @cached_property
    def dependent(self) -> tuple[int, ...]:
        """Columns that are constant or, to rounding, linear combinations of each other."""
        size = np.linalg.norm(self.columns, axis=0)
        constant = size <= 16.0 * _EPS * np.abs(self.mean[:-1])
        if np.any(constant):
            return tuple(np.flatnonzero(constant).tolist())
        _, spread, directions = np.linalg.svd(self.columns / size)
        if spread[-1] > self.slack and self.n > len(size):
            return ()
        weight = np.abs(directions[-1])
        return tuple(np.flatnonzero(weight > 0.05 * weight.max()).tolist())

    def about(self, intercept: bool | float) -> RowMoments:
        """Those of y less an intercept that all models have."""
        fixed = fixed_intercept(intercept)
        return self if fixed == 0.0 else replace(self, mean=self.mean - fixed * np.eye(len(self.mean))[-1])


def fixed_intercept(intercept: bool | float) -> float:
    """The intercept that all models of a class have; 0 where it is free."""
    return 0.0 if isinstance(intercept, bool) else float(intercept)


def check_intercept(intercept: object) -> None:
    if isinstance(intercept, bool):
        return
    if not isinstance(intercept, int | float | np.number) or not np.isfinite(intercept):
        raise TypeError(
            f"intercept={shown(intercept)}: pass True (free), False (none), or the number that all models have"
        )


_known: weakref.WeakKeyDictionary[ClassData, RowMoments] = weakref.WeakKeyDictionary()


def row_moments(data: ClassData) -> RowMoments:
    """The moments of X and y, from one pass over the rows; computed once for each `ClassData`.

    Products are summed in float64: on the device where it has float64, otherwise chunk by chunk on the host. If columns
    are so correlated that products of them lose digits, a second pass makes the factor by orthogonal transformations.
    """
    if data not in _known:
        _known[data] = _row_moments(data)
    return _known[data]


def _row_moments(data: ClassData) -> RowMoments:
    n, width = int(data.X.shape[0]), int(data.X.shape[1]) + 1
    centre = _sample_centre(data)
    mean, products = _products(data, centre)
    spread = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    if np.any(np.abs(mean - centre) > spread):  # the sample has not seen what moves the mean
        centre = mean
        mean, products = _products(data, centre)
        spread = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    if not np.all(np.isfinite(products)):
        raise ValueError("X holds NaN, infinite or overflowing values: drop those rows or scale the columns")
    triangle = _cholesky(products, spread)
    if triangle is None:
        triangle = _triangle(data, mean)
    relative = np.abs(mean[:-1]) / np.where(spread[:-1] > 0.0, spread[:-1], np.inf)
    eps = max(arrays.epsilon(data.X), _EPS)
    return RowMoments(mean, triangle, n, 4.0 * np.sqrt(width) * eps * (1.0 + float(np.max(relative))))


def _cholesky(products: Floats, spread: Floats) -> Floats | None:
    """The upper factor of the products, unless digits are lost in it."""
    if np.any(spread == 0.0):
        return None
    try:
        upper = np.asarray(linalg.cholesky(products / np.outer(spread, spread), lower=False))
    except np.linalg.LinAlgError:
        return None
    return upper * spread if float(np.min(np.diagonal(upper))) ** 2 > _LOST else None


def _products(data: ClassData, centre: Floats) -> tuple[Floats, Floats]:
    """Means, and covariances with denominator n, from sums about a point that is near the means."""
    inner: Array | None = None
    beside: Array | None = None
    label: Array | None = None
    for x, y in _chunks(data, centre):
        xp = arrays.namespace(x)
        pair = xp.stack([y, xp.ones_like(y)], axis=1)
        inner = _plus(inner, xp.matrix_transpose(x) @ x)
        beside = _plus(beside, xp.matrix_transpose(x) @ pair)
        label = _plus(label, xp.matrix_transpose(pair) @ pair)
    assert inner is not None
    assert beside is not None
    assert label is not None
    n, (cross, sums), own = int(data.X.shape[0]), arrays.to_host(beside).T, arrays.to_host(label)
    away = np.append(sums, own[0, 1]) / n
    products = np.block([[arrays.to_host(inner), cross[:, None]], [cross, own[0, 0]]]) / n
    return centre + away, products - np.outer(away, away)


def _plus(total: Array | None, more: Array) -> Array:
    return more if total is None else total + more


def _triangle(data: ClassData, mean: Floats) -> Floats:
    """R of the QR decomposition of the centred rows, one chunk below the other."""
    upper: Array | None = None
    for x, y in _chunks(data, mean):
        xp = arrays.namespace(x)
        part = xp.concat([x, y[:, None]], axis=1)
        upper = xp.linalg.qr(part if upper is None else xp.concat([upper, part]))[1]
    assert upper is not None
    found = arrays.to_host(upper) / np.sqrt(int(data.X.shape[0]))
    return np.asarray(np.pad(found, ((0, len(mean) - len(found)), (0, 0))))


def _chunks(data: ClassData, centre: Floats) -> Iterator[tuple[Array, Array]]:
    """Rows of X and y less a point, in float64: where X is, or on the host if there is no float64 there."""
    X, y = data.X, data.y
    xp, dev = arrays.namespace(X), arrays.device(X)
    n, width = int(X.shape[0]), int(X.shape[1]) + 1
    wide = arrays.real_dtypes(xp, dev).get("float64")
    numbers = _HOST_CHUNK if isinstance(X, np.ndarray) or wide is None else _DEVICE_CHUNK
    # Three copies of a chunk are alive at a time. QR wants more rows than columns.
    rows = max(min(numbers, data.memory // 24) // width, 2 * width, 8)
    moved = bool(np.any(centre[:-1]))
    point = centre[:-1] if wide is None else arrays.from_host(centre[:-1], xp, dev, wide)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        x, label = X[start:stop, :], y[start:stop]
        if wide is None:
            x, label = (np.asarray(arrays.to_host(a), dtype=np.float64) for a in (x, label))
        else:
            x, label = (xp.astype(a, wide, copy=False) for a in (x, label))
        yield (x - point if moved else x), label - float(centre[-1])


def _sample_centre(data: ClassData) -> Floats:
    """Where the columns lie, by some of the rows; 0 if that is near enough, because then nothing has to be moved."""
    every = max(1, int(data.X.shape[0]) // _SAMPLE_ROWS)
    parts = [np.asarray(arrays.to_host(a[::every, ...]), dtype=np.float64) for a in (data.X, data.y)]
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.concatenate([parts[0], parts[1][:, None]], axis=1)
        centre, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
        if np.all(np.abs(centre[:-1]) <= _NEAR * spread[:-1]):
            centre[:-1] = 0.0
    return np.asarray(centre)
