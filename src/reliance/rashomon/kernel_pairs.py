"""Kernels at landmarks, and their products summed over all pairs of rows: one keeps its row, the other lends a feature.

For kernels that are sums of products of a function of the feature and one of the other columns, the sum over all
n(n-1) pairs factors into products of two small matrices, so nothing is ever evaluated pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb
from typing import Protocol, TypeAlias

import numpy as np

from reliance._core.arrays import device, namespace, to_host
from reliance._core.kinds import Array
from reliance.samplers.draws import Host, take_columns, upload
from reliance.samplers.regressors import least_squares

Factors: TypeAlias = list[tuple[Array, Array]]

# Directions of a factor with less of its largest singular value are rounding.
_LEAST_SINGULAR = 1e-15
# Combinations of columns that are tried as all there is of them, and what may be missing then: rounding.
_PROBES, _MISSED = 48, 4e-15
# The share of a factor that plain products of columns may have, times the root of how much more the rotation enlarges
# some functions than others: with 1 their rounding would be as large as that of the careful form.
_SMALL = 1.0
# Rows of products of two factors that are made at a time: large products are fast.
_PAIRED = 512
# Numbers held at a time beside a block of kernel values: the rows, the values, their rotation.
_COPIES = 4


@dataclass(frozen=True, eq=False)
class Switch:
    """Rows whose feature comes from other rows: row i with donor k is ``kept_i + lent_k`` in the feature's columns.

    Attributes
    ----------
    kept : array (n, P)
        The rows; in the feature's columns 0, or what the other columns predict if only residuals are exchanged.
    lent : array (n, g)
        The rows' own feature, or its residuals.
    columns : tuple of int
        The g columns of the feature.
    conditional : bool
    """

    kept: Array
    lent: Array
    columns: tuple[int, ...]
    conditional: bool

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(j for j in range(self.kept.shape[1]) if j not in self.columns)

    @staticmethod
    def of(X: Array, columns: tuple[int, ...], conditional: bool) -> Switch:
        """What the rows keep and what they lend; the others' prediction is in-sample least squares with intercept."""
        own = take_columns(X, columns)
        kept, lent = namespace(X).zeros_like(own), own
        if conditional:
            others = tuple(j for j in range(X.shape[1]) if j not in columns)
            rest = take_columns(X, others) if others else X[:, :0]
            kept = least_squares(rest, own).predict(rest)
            lent = own - kept
        return Switch(_placed(kept, columns, X), lent, columns, conditional)

    def block(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 with every donor: ((stop - start) n, P)."""
        xp = namespace(self.kept)
        lent = _placed(self.lent, self.columns, xp.zeros_like(self.kept))
        return xp.reshape(self.kept[start:stop, None, :] + lent[None, :, :], (-1, self.kept.shape[1]))


def _placed(values: Array, columns: tuple[int, ...], X: Array) -> Array:
    """X with some of its columns replaced."""
    places = {column: g for g, column in enumerate(columns)}
    return namespace(X).stack([values[:, places[j]] if j in places else X[:, j] for j in range(X.shape[1])], axis=1)


# ---------------------------------------------------------------------------------------------------------------------
# Kernels


class Kernel(Protocol):
    """A positive semidefinite function of pairs of rows; any callable is one."""

    def __call__(self, X: Array, C: Array, /) -> Array:
        """Values (n, m) for the rows X (n, P) and the landmarks C (m, P)."""
        ...


@dataclass(frozen=True, eq=False)
class RBF:
    """``exp(-sum_j (x_j - c_j)^2 / (2 w_j^2))``: a product over columns.

    Parameters
    ----------
    widths : (P,) on the host

    Examples
    --------
    >>> kernel = RBF(np.array([1.0, 2.0]))
    >>> kernel(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 2.0]])).round(6).tolist()  # 1 and exp(-1)
    [[1.0, 0.367879]]
    """

    widths: Host

    def __call__(self, X: Array, C: Array) -> Array:
        return self._of(X, C, range(X.shape[1]))

    def factors(self, switch: Switch, C: Array) -> Factors | None:
        if switch.conditional:  # the square of a sum does not split
            return None
        own = take_columns(C, switch.columns)
        widths = upload(self.widths[list(switch.columns)], own)
        return [(self._of(switch.kept, C, switch.others), _decay(switch.lent / widths, own / widths))]

    def _of(self, X: Array, C: Array, columns: Sequence[int]) -> Array:
        xp = namespace(X)
        if len(columns) == 0:
            return xp.ones((X.shape[0], C.shape[0]), dtype=X.dtype, device=device(X))
        widths = upload(self.widths[list(columns)], X)
        return _decay(take_columns(X, columns) / widths, take_columns(C, columns) / widths)


def _decay(A: Array, B: Array) -> Array:
    """exp(-|a - b|^2 / 2) for all rows a and b: the exponent by one product of matrices."""
    xp = namespace(A)
    origin = xp.mean(B, axis=0)  # squares of large numbers would cancel
    A, B = A - origin, B - origin
    a, b = (-0.5 * xp.sum(x * x, axis=1)[:, None] for x in (A, B))
    left = xp.concat([A, a, xp.ones_like(a)], axis=1)
    exponents = left @ xp.matrix_transpose(xp.concat([B, xp.ones_like(b), b], axis=1))
    return xp.exp(xp.minimum(exponents, xp.zeros_like(exponents)))


@dataclass(frozen=True, eq=False)
class Polynomial:
    """``(1 + sum_j x_j c_j / w_j^2)^degree``: by the binomial theorem a sum of ``degree + 1`` products.

    Examples
    --------
    >>> kernel = Polynomial(np.ones(2), degree=2)
    >>> kernel(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]])).tolist()  # (1 + 3)^2
    [[16.0]]
    """

    widths: Host
    degree: int

    def __call__(self, X: Array, C: Array) -> Array:
        return (1 + self._inner(X, C)) ** self.degree

    def factors(self, switch: Switch, C: Array) -> Factors:
        rest = 1 + self._inner(switch.kept, C)
        widths = upload(self.widths[list(switch.columns)], C)
        own = namespace(C).matrix_transpose(take_columns(C, switch.columns) / widths**2)
        part = switch.lent @ own
        return [(comb(self.degree, t) * rest ** (self.degree - t), part**t) for t in range(self.degree + 1)]

    def _inner(self, X: Array, C: Array) -> Array:
        widths = upload(self.widths, X)
        return (X / widths) @ namespace(X).matrix_transpose(C / widths)


@dataclass(frozen=True)
class ProductKernel:
    """A product of kernels of disjoint groups of columns.

    Parameters
    ----------
    parts : sequence of (columns, callable)
        Each callable takes (n, g) and (m, g), the group's columns of rows and landmarks, and returns (n, m).

    Notes
    -----
    A feature that is one group, or several, is exchanged without looking at pairs; one that cuts a group is not.

    Examples
    --------
    >>> kernel = ProductKernel([((0,), RBF(np.ones(1))), ((1, 2), RBF(np.ones(2)))])
    >>> bool(np.isclose(kernel(np.zeros((1, 3)), np.ones((1, 3)))[0, 0], np.exp(-1.5)))
    True
    """

    parts: tuple[tuple[tuple[int, ...], Callable[[Array, Array], Array]], ...]

    def __init__(self, parts: Sequence[tuple[Sequence[int], Callable[[Array, Array], Array]]]) -> None:
        object.__setattr__(self, "parts", tuple((tuple(columns), kernel) for columns, kernel in parts))
        used = [column for columns, _ in self.parts for column in columns]
        if not used or len(set(used)) < len(used):
            raise ValueError(f"parts={[columns for columns, _ in self.parts]}: name each column once, in one group")

    def __call__(self, X: Array, C: Array) -> Array:
        return self._of(X, C, self.parts)

    def factors(self, switch: Switch, C: Array) -> Factors | None:
        chosen = set(switch.columns)
        own = [part for part in self.parts if chosen.intersection(part[0])]
        if switch.conditional or any(not chosen.issuperset(columns) for columns, _ in own):
            return None
        lent = dict(zip(switch.columns, range(len(switch.columns)), strict=True))
        moved = [(tuple(lent[c] for c in columns), kernel) for columns, kernel in own]
        rest = [part for part in self.parts if part not in own]
        mine = take_columns(C, switch.columns)
        return [(self._of(switch.kept, C, rest), self._of(switch.lent, mine, moved))]

    def _of(self, X: Array, C: Array, parts: Sequence[tuple[tuple[int, ...], Kernel]]) -> Array:
        ones = namespace(X).ones((X.shape[0], C.shape[0]), dtype=X.dtype, device=device(X))
        values = (kernel(take_columns(X, columns), take_columns(C, columns)) for columns, kernel in parts)
        return reduce(lambda a, b: a * b, values, ones)


# ---------------------------------------------------------------------------------------------------------------------
# Sums over all pairs


def pair_products(
    kernel: Kernel, switch: Switch, landmarks: Array, axes: Host, y: Array, *, memory: int, own: Host
) -> Host:
    """Means over all n(n-1) pairs of the products of the columns (y, 1, kernel values at switched rows @ axes).

    Parameters
    ----------
    kernel : Kernel
        With a method ``factors(switch, landmarks)`` that returns factors: O(n m^2). Otherwise O(n^2 m^2), in blocks.
    switch : Switch
    landmarks : array (m, P)
    axes : (m, r), on the host
    y : array (n,)
    memory : int
        Bytes that a block may take.
    own : array (2 + r, 2 + r), on the host
        The sums of these products over the rows as they are.

    Returns
    -------
    array (2 + r, 2 + r), on the host
    """
    n, factors = int(y.shape[0]), getattr(kernel, "factors", lambda *_: None)(switch, landmarks)
    if factors is None:
        total = _by_blocks(kernel, switch, landmarks, axes, y, memory)
    else:
        total = _by_one_factor(factors[0], axes, y) if len(factors) == 1 else _by_factors(factors, axes, y)
    return np.asarray((total - own) / (n * (n - 1)))  # a row with itself as donor is the row


def own_products(values: Array, y: Array) -> Host:
    """Sums over the rows of the products of the columns (y, 1, functions)."""
    columns = _with_label(values, y)
    return to_host(namespace(y).matrix_transpose(columns) @ columns)


def _by_one_factor(factor: tuple[Array, Array], axes: Host, y: Array) -> Host:
    r"""`_by_factors` of a single product B A, for less than a QR decomposition of B costs.

    Both are split into a part S of low rank and a small rest E: B'B = S'S + E'E. Only the products of the two parts of
    low rank need the careful form. For the others, which are smaller by the square of what is small in E, products of
    columns keep enough digits, though the rotation enlarges their rounding by the square of what it does otherwise.
    """
    xp = namespace(y)
    ones, label = xp.ones_like(y)[:, None], xp.reshape(y, (-1, 1))
    size = float(np.sqrt(to_host(xp.mean(y * y)))) or 1.0  # y as large as 1, so that nothing is small beside it
    sizes = np.linalg.norm(axes, axis=0)
    small = _SMALL * float(np.sqrt(np.min(sizes) / np.max(sizes)))
    rest, rest_left = _split(xp.concat([label / size, ones, factor[0]], axis=1), small, _PROBES)
    lent, lent_left = _split(xp.concat([ones, ones, factor[1]], axis=1), small, _PROBES // 2)
    rotation = np.zeros((2 + axes.shape[0], 2 + axes.shape[1]))
    rotation[0, 0], rotation[1, 1], rotation[2:, 2:] = size, 1.0, axes
    plain = (rest.T @ rest) * lent_left + rest_left * (lent.T @ lent + lent_left)
    total = rotation.T @ (plain @ rotation)
    many = max(_PAIRED // max(len(lent), 1), 1)
    for start in range(0, len(rest), many):
        part = np.reshape(rest[start : start + many, None, :] * lent, (-1, len(rotation))) @ rotation
        total += part.T @ part
    return np.asarray((total + total.T) / 2)


def _split(columns: Array, small: float, many: int) -> tuple[Host, Host]:
    """S (k, columns) and E'E (columns, columns) with columns'columns = S'S + E'E, E being a small share of the columns.

    E is what is left of the columns when their projections on some random combinations of them are taken away, and
    those of these projections that are small.
    """
    xp, (n, width) = namespace(columns), columns.shape
    whole, turned = _norm(columns), xp.matrix_transpose
    while 4 * many <= min(n, width):
        probes = upload(np.random.default_rng(0).normal(size=(width, many)), columns)
        basis = xp.linalg.qr(columns @ probes)[0]
        short = turned(basis) @ columns
        left = columns - basis @ short
        missed = _norm(left)
        if missed <= small * whole:
            _, spread, right = np.linalg.svd(to_host(short), full_matrices=False)
            directions, kept = spread[:, None] * right, spread > small * spread[0]
            more = directions[~kept].T @ directions[~kept]
            if missed > _MISSED * whole:
                more = more + to_host(turned(left) @ left)
            return directions[kept], more
        many *= 2
    return _triangular(columns, False), np.zeros((width, width))


def _norm(columns: Array) -> float:
    return float(np.sqrt(to_host(namespace(columns).sum(columns * columns))))


def _by_factors(factors: Factors, axes: Host, y: Array) -> Host:
    r"""Sums of products over all n^2 pairs of the columns (y, 1, functions), each a sum of products of factors.

    For one factor (B, A): :math:`\sum_{ik} B_{il} A_{kl} B_{im} A_{km} = (B'B) \circ (A'A)`. That is the Gram matrix of
    the columns' Kronecker products of triangular factors of B and A, and it is taken in this form: the rotation into
    orthonormal functions would enlarge the rounding of the other by the inverse of the least eigenvalue.
    """
    xp = namespace(y)
    ones, none = xp.ones_like(y)[:, None], xp.zeros_like(y)[:, None]
    # y and 1 are products, too: (y, 1) of the row and (1, 1) of the donor, in the first of the factors.
    rest, lent = [y[:, None], ones], [ones, ones]
    for t, (B, A) in enumerate(factors):
        rest += [B] if t == 0 else [none, none, B]
        lent += [A] if t == 0 else [none, none, A]
    width = 2 + axes.shape[0]
    kept, given = (np.split(_triangular(xp.concat(x, axis=1), True), len(factors), axis=1) for x in (rest, lent))
    rotation = np.zeros((width, 2 + axes.shape[1]))
    rotation[:2, :2], rotation[2:, 2:] = np.eye(2), axes
    total = np.zeros((rotation.shape[1],) * 2)
    many = max(_PAIRED // max(given[0].shape[0], 1), 1)
    for start in range(0, kept[0].shape[0], many):  # some rows of the rest's factor at a time
        used = int(np.argmax(np.any([a[start : start + many].any(axis=0) for a in kept], axis=0)))
        products = sum(a[start : start + many, None, used:] * b[:, used:] for a, b in zip(kept, given, strict=True))
        part = np.reshape(products, (-1, width - used)) @ rotation[used:]
        total += part.T @ part
    return total


def _by_blocks(kernel: Kernel, switch: Switch, landmarks: Array, axes: Host, y: Array, memory: int) -> Host:
    """The same sums by evaluating the kernel for every pair."""
    xp, n = namespace(y), int(y.shape[0])
    turn = upload(axes, y)
    size = 8 * n * _COPIES * (sum(axes.shape) + switch.kept.shape[1])
    rows = max(memory // size, 1)
    total = np.zeros((2 + axes.shape[1],) * 2)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        values = kernel(switch.block(start, stop), landmarks) @ turn
        labels = xp.reshape(xp.broadcast_to(y[start:stop, None], (stop - start, n)), (-1,))
        columns = _with_label(values, labels)
        total += to_host(xp.matrix_transpose(columns) @ columns)
    return total


def _with_label(values: Array, y: Array) -> Array:
    """The columns (y, 1, functions)."""
    xp = namespace(y)
    return xp.concat([y[:, None], xp.ones_like(y)[:, None], values], axis=1)


def _triangular(columns: Array, dependent: bool) -> Host:
    """R (rank, columns) with R'R = columns'columns: of low rank if it has one, otherwise triangular."""
    host = columns if isinstance(columns, np.ndarray) else None
    short = None if host is None else _low_rank(host)
    if short is not None:
        return short
    factor: Array = columns
    if columns.shape[0] > columns.shape[1]:
        factor = namespace(columns).linalg.qr(columns)[1] if host is None else np.asarray(np.linalg.qr(host, mode="r"))
    return _truncated(to_host(factor)) if dependent else to_host(factor)


def _truncated(factor: Host) -> Host:
    """The same products without directions that are rounding."""
    _, sizes, right = np.linalg.svd(factor, full_matrices=False)
    kept = sizes > _LEAST_SINGULAR * sizes[0]
    return np.asarray(sizes[kept, None] * right[kept])


def _low_rank(columns: Host) -> Host | None:
    """R (rank, columns) if some combinations of the columns span all of them to rounding; None otherwise.

    One column's part of a kernel is smooth and has a rank of about 20, whatever the landmarks: that is found for less
    than a QR decomposition costs.
    """
    n, width = columns.shape
    if min(n, width) <= 2 * _PROBES:
        return None
    some = columns[:: max(n // (4 * _PROBES), 1)]  # what a few rows do not have, all rows do not have
    return None if _spanned(some) is None else _spanned(columns)


def _spanned(columns: Host) -> Host | None:
    probes = np.random.default_rng(0).normal(size=(columns.shape[1], _PROBES))
    basis = np.linalg.qr(columns @ probes)[0]
    short = basis.T @ columns
    missed = np.linalg.norm(columns - basis @ short)
    return _truncated(short) if missed <= _MISSED * np.linalg.norm(columns) else None
