"""What a kernel machine predicts with values of other rows: products, or polynomials of the value of one column."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.stores import AtPlaces, Lender, Resident, Store
from reliance.exact import panels
from reliance.models import kernel_machines
from reliance.models.kernel_machines import KernelMachine

Floats = NDArray[np.float64]
# The largest order of polynomials; on how many points their coefficients are looked at, and of how many centres.
MOST_ORDER, _POINTS, _CENTRES = 192, 256, 512
# Coefficients up to this are rounding, where a kernel is at most 1; behind the last larger one they fall ever faster,
# and so many more are taken.
_ROUNDED, _MORE = 4e-16, 3
# Rows and donors of a block, together.
_BLOCK = 512


# ---------------------------------------------------------------------------------------------------------------------
# Values of one column as polynomials


class Interval(NamedTuple):
    """Where the values of a column lie, and how many Chebyshev polynomials give predictions there."""

    middle: float
    half: float
    order: int

    def points(self, order: int) -> Floats:
        return np.asarray(self.middle + self.half * panels.nodes(order))

    def polynomials(self, values: Floats, order: int) -> Floats:
        """``(m, order)`` at values of the interval."""
        local = np.clip((values - self.middle) / self.half, -1.0, 1.0)
        return np.asarray(chebyshev.chebvander(local, order - 1))


def interval(machine: KernelMachine, column: int, values: Floats) -> Interval | None:
    """Of the values of a column; None if they are all the same, or no order is high enough."""
    low, high = float(values.min()), float(values.max())
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    if not half > 0.0:
        return None
    orders = [_order(term.kernel, machine.centres, column, middle, half) for term in machine.terms]
    return None if max(orders) > MOST_ORDER else Interval(middle, half, max(orders))


def _order(kernel: kernel_machines.Kernel, centres: Floats, column: int, middle: float, half: float) -> int:
    """How many polynomials show the kernel with each centre; beyond MOST_ORDER if too few do."""
    degree = kernel.degree()
    if degree is not None:
        return degree + 1
    ordered = np.sort(centres[:, column])
    some = ordered[np.unique(np.linspace(0, len(ordered) - 1, _CENTRES).astype(np.int64))]
    rows, others = np.zeros((_POINTS, centres.shape[1])), np.zeros((len(some), centres.shape[1]))
    rows[:, column], others[:, column] = middle + half * panels.nodes(_POINTS), some
    own = kernel.inner(rows, others, [column])
    (values,) = kernel.lent(own)
    sizes = np.max(np.abs(panels.to_coefficients(_POINTS) @ values), axis=1)
    return int(np.flatnonzero(sizes > _ROUNDED).max(initial=0)) + _MORE


def coefficients(machine: KernelMachine, X: Floats, column: int, span: Interval) -> Iterator[tuple[slice, Floats]]:
    """Strips of rows, and for each row the coefficients (b, order) of its raw output less the offset."""
    given = np.zeros((span.order, machine.n_features))
    given[:, column] = span.points(span.order)
    lent = machine.lent(given, [column]).T @ panels.to_coefficients(span.order).T
    for rows in machine.strips(len(X)):
        yield rows, machine.kept(X[rows], [column]) @ lent


# ---------------------------------------------------------------------------------------------------------------------
# Tables, in blocks of the engine


@dataclass(frozen=True)
class KernelStore(Resident):
    """Rows as raw outputs: with the feature of a donor, that is a product of what the row keeps and the donor gives.

    ``memory``: bytes, of which half may be held. Where that is too little for what all rows keep and give, it is made
    for the rows of each block. ``held_bytes``: see `table_bytes`.
    """

    X: Floats
    machine: KernelMachine
    intervals: dict[int, Interval | None]
    memory: int
    held_bytes: int = 0

    @cached_property
    def xp(self) -> Namespace:
        return arrays.namespace(self.X)

    @cached_property
    def device(self) -> Device:
        return arrays.device(self.X)

    @property
    def n(self) -> int:
        return len(self.X)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    @property
    def row_bytes(self) -> int:
        return 8

    def table_bytes(self, feature: Feature) -> int:
        """Of what rows keep and donors give of a feature, with the copies that are made on the way."""
        return 3 * 8 * (self.n if self._fits(feature) else min(_BLOCK, self.n)) * self._width(feature)

    def _fits(self, feature: Feature) -> bool:
        return 2 * 3 * 8 * self.n * self._width(feature) <= self.memory

    def _width(self, feature: Feature) -> int:
        found = self._interval(feature)
        return self.machine.width if found is None else found.order

    def _interval(self, feature: Feature) -> Interval | None:
        """Of a single column, if polynomials are fewer than the products of the machine."""
        if len(feature.columns) > 1:
            return None
        found = self.intervals[feature.columns[0]]
        return found if found is not None and found.order < self.machine.width else None

    def allocate(self, rows: int) -> Array:
        return np.empty((rows, 1))

    @property
    def flat(self) -> Array:
        return self.X

    def head(self, n: int) -> KernelStore:
        return dataclasses.replace(self, X=self.X[:n])

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Array, rows: range, d: int) -> None:
        """Nothing to prepare: `swap` writes the whole block."""

    def restore(self, block: Array, rows: range, d: int, feature: Feature) -> None:
        """Nothing to restore."""

    def holds(self, block: Array, rows: range, d: int, feature: Feature | None) -> None:
        """Nothing is read again."""

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        lenders = slice(donors.start, donors.stop) if isinstance(donors, range) else donors
        if self._fits(feature):
            kept, lent = self.operands(feature)
            kept, lent = kept[rows.start : rows.stop], lent[lenders]
        else:
            kept, lent = self._kept_once(feature, rows), self._lent(feature, self.X[lenders])
        block[: len(rows) * d, 0] = (kept @ lent.T).reshape(-1)
        block[: len(rows) * d, 0] += self.machine.offset

    def _kept_once(self, feature: Feature, rows: range) -> Floats:
        """Of some rows: a strip of blocks has the same ones."""
        last: tuple[Feature, range, Floats] | None = self.__dict__.get("_strip")
        if last is None or last[0] is not feature or last[1] != rows:
            last = feature, rows, self._kept(feature, self.X[rows.start : rows.stop])
            self.__dict__["_strip"] = last
        return last[2]

    def _kept(self, feature: Feature, X: Floats) -> Floats:
        found = self._interval(feature)
        if found is None:
            return self.machine.kept(X, feature.columns)
        return np.concatenate([part for _, part in coefficients(self.machine, X, feature.columns[0], found)])

    def _lent(self, feature: Feature, X: Floats) -> Floats:
        found = self._interval(feature)
        if found is None:
            return self.machine.lent(X, feature.columns)
        return found.polynomials(X[:, feature.columns[0]], found.order)

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def model_input(self, block: Array, rows: int) -> Array:
        return block[:rows]

    def lending(self, ids: Indices) -> Store:
        raise TypeError("raw outputs are exchanged between all rows")

    def borrowing(self, lenders: kernels.Block) -> Store:
        raise TypeError("raw outputs are exchanged between all rows")

    def gathered(self, index: Array) -> Array:
        return self.whole[index]

    @property
    def whole(self) -> Array:
        return self.machine.sums(self.X).raw[:, None]

    def operands(self, feature: Feature) -> tuple[Floats, Floats]:
        """What a row keeps and what a donor gives, (n, width) each; those of the last feature are remembered."""
        last: tuple[Feature, tuple[Floats, Floats]] | None = self.__dict__.get("_last")
        if last is None or last[0] is not feature:
            last = feature, (self._kept(feature, self.X), self._lent(feature, self.X))
            self.__dict__["_last"] = last
        return last[1]

    @property
    def switched(self) -> kernels.Switched:
        return products


def products(operands: tuple[Array, Array], rows: Array, donors: Array) -> Array:
    """``(b d, 1)``: each row's part times each donor's."""
    kept, lent = operands
    xp = arrays.namespace(kept)
    return xp.reshape(xp.take(kept, rows, axis=0) @ xp.matrix_transpose(xp.take(lent, donors, axis=0)), (-1, 1))
