"""Kernels at landmarks, for rows of which one keeps its values and another lends it a feature.

Kernels that are sums of products of a function of the feature and one of the other columns say so: see `kernel_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb
from typing import Protocol, TypeAlias

from reliance._core.arrays import device, namespace
from reliance._core.kinds import Array
from reliance.samplers.draws import Host, take_columns, upload
from reliance.samplers.regressors import least_squares

Factors: TypeAlias = list[tuple[Array, Array]]


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
    >>> import numpy as np
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
    >>> import numpy as np
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
    >>> import numpy as np
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
