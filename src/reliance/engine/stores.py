"""Where rows come from: a store makes blocks of repeated rows and replaces columns in them.

The engine asks two things of a store: repeat some rows, and take a feature from donor rows. Arrays are one store;
tables and several inputs are other stores, not other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance._core.arrays import (
    Array,
    Device,
    Namespace,
    cells,
    device,
    from_host,
    index_dtype,
    is_floating,
    itemsize,
    namespace,
)
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.store_protocol import Lender as Lender
from reliance.engine.store_protocol import Resident as Resident
from reliance.engine.store_protocol import Store as Store
from reliance.engine.store_protocol import StoreBlock as StoreBlock

# Numbers that are compared at a time: the answers need room, too.
_COMPARED = 2**20


def equal(a: Array, b: Array) -> Array:
    """0-d bool on the device: the arrays, of shapes that fit, are the same; NaN is NaN."""
    xp = namespace(a)
    same = a == b
    if isinstance(a, np.ndarray) and same.all():
        return np.True_
    if is_floating(xp, a.dtype):
        same = xp.logical_or(same, xp.logical_and(a != a, b != b))
    return xp.all(same)


def same_rows(cube: Array, own: Array, runs: Sequence[slice]) -> Array | None:
    """0-d bool on the device: some columns of repeated rows (b, d, P) are those of the rows (b, P); None of none."""
    xp, same = namespace(own), None
    for run in runs:
        step = max(1, _COMPARED // (cube.shape[1] * (run.stop - run.start)))
        for top in range(0, cube.shape[0], step):
            stop = min(top + step, cube.shape[0])
            found = equal(cube[top:stop, :, run], own[top:stop, None, run])
            same = found if same is None else xp.logical_and(same, found)
    return same


@dataclass(frozen=True)
class ArrayStore(Resident):
    """Rows of one array, features flattened: ``flat (n, P)``; ``shape`` is the shape of a row as the model takes it."""

    flat: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, X: Array) -> ArrayStore:
        xp = namespace(X)
        return cls(xp.reshape(X, (X.shape[0], -1)), tuple(X.shape[1:]))

    @cached_property
    def xp(self) -> Namespace:
        return namespace(self.flat)

    @cached_property
    def device(self) -> Device:
        return device(self.flat)

    @property
    def n(self) -> int:
        return int(self.flat.shape[0])

    @property
    def width(self) -> int:
        return int(self.flat.shape[1])

    @property
    def row_bytes(self) -> int:
        return self.width * itemsize(self.flat)

    @property
    def held_bytes(self) -> int:
        return 0

    def head(self, n: int) -> ArrayStore:
        return ArrayStore(self.flat[:n, :], self.shape)

    def lending(self, ids: Indices) -> ArrayStore:
        index = from_host(ids, self.xp, self.device, index_dtype(self.xp))
        return Lent(self.gathered(index), self.shape, self.flat)

    def borrowing(self, lenders: Array) -> ArrayStore:
        return Lent(self.flat, self.shape, lenders)

    def gathered(self, index: Array) -> Array:
        return self.xp.take(self.flat, index, axis=0)

    @property
    def whole(self) -> Array:
        return self.flat

    def allocate(self, rows: int) -> Array:
        return self.xp.empty((rows, self.width), dtype=self.flat.dtype, device=self.device)

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Array, rows: range, d: int) -> None:
        self._cube(block, len(rows), d)[...] = self.flat[rows.start : rows.stop, None, :]

    def restore(self, block: Array, rows: range, d: int, feature: Feature) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            cube[:, :, run] = self.flat[rows.start : rows.stop, None, run]

    def holds(self, block: Array, rows: range, d: int, feature: Feature | None) -> Array | None:
        runs = (slice(0, self.width),) if feature is None else feature.runs
        return same_rows(self._cube(block, len(rows), d), self.flat[rows.start : rows.stop, :], runs)

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            if isinstance(donors, range):
                cube[:, :, run] = self.flat[None, donors.start : donors.stop, run]
            else:
                lent = cells(self.flat, self.xp.reshape(donors, (-1,)), run)
                cube[:, :, run] = self.xp.reshape(lent, (-1, d, run.stop - run.start))

    def in_order(self, feature: Feature, order: Array) -> Lender:
        # A store of one's own that swaps in its own way is asked for rows. One column is sorted once, which
        # saves a look-up of each donor's row; groups are not, as their copies would be as large as X.
        if len(feature.columns) > 1 or type(self).swap is not ArrayStore.swap:
            return AtPlaces(self, order)
        return _Sorted(self, cells(self.flat, order, feature.runs[0]))

    def model_input(self, block: Array, rows: int) -> Array:
        return self.xp.reshape(block[:rows, :], (rows, *self.shape))

    def _cube(self, block: Array, b: int, d: int) -> Array:
        return self.xp.reshape(block[: b * d, :], (b, d, self.width))

    def operands(self, feature: Feature) -> tuple[Array, ...]:
        """The rows, and which columns are the donor's: an operand, so features and groups share one compilation."""
        chosen = np.zeros(self.width, dtype=bool)
        chosen[list(feature.columns)] = True
        return self.flat, from_host(chosen, self.xp, self.device)

    @property
    def switched(self) -> kernels.Switched:
        return kernels.switched_operands


@dataclass(frozen=True)
class AtPlaces:
    """A store whose donors are places of an order: row ``order[place]`` lends."""

    store: Store
    order: Array

    def swap(self, block: StoreBlock, rows: range, d: int, feature: Feature, donors: Array) -> None:
        self.store.swap(block, rows, d, feature, kernels.at_places(self.order, donors))


@dataclass(frozen=True)
class _Sorted:
    """A column of an array, sorted: ``column (n, 1)``, place by place."""

    store: ArrayStore
    column: Array

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: Array) -> None:
        xp, cube = self.store.xp, self.store._cube(block, len(rows), d)
        lent = xp.take(self.column, xp.reshape(donors, (-1,)), axis=0)
        cube[:, :, feature.runs[0]] = xp.reshape(lent, (-1, d, 1))


@dataclass(frozen=True)
class Lent(ArrayStore):
    """Rows to which others lend, ``lenders (N, P)``: those of a larger array, or rows that are not measured."""

    lenders: Array

    def head(self, n: int) -> Lent:
        return Lent(self.flat[:n, :], self.shape, self.lenders)

    def lending(self, ids: Indices) -> Lent:
        index = from_host(ids, self.xp, self.device, index_dtype(self.xp))
        return Lent(self.gathered(index), self.shape, self.lenders)

    @property
    def held_bytes(self) -> int:
        return self.n * self.row_bytes

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        ArrayStore(self.lenders, self.shape).swap(block, rows, d, feature, donors)

    def operands(self, feature: Feature) -> tuple[Array, ...]:
        return (*super().operands(feature), self.lenders)


@dataclass(frozen=True)
class _Replaced(ArrayStore):
    """Rows of an array, of which one feature is replaced by something else than donors' values."""

    feature: Feature

    def _chosen(self) -> tuple[Array, Array]:
        """Which columns are written, and for each column which of the g values it takes."""
        columns, places = np.zeros(self.width, dtype=bool), np.zeros(self.width, dtype=np.int64)
        columns[list(self.feature.columns)] = True
        places[list(self.feature.columns)] = np.arange(len(self.feature.columns))
        return from_host(columns, self.xp, self.device), from_host(places, self.xp, self.device, index_dtype(self.xp))

    def _write(self, block: Array, values: Array) -> None:
        """Into the feature's columns: values (b, d, g)."""
        b, d, _ = values.shape
        cube, start = self._cube(block, b, d), 0
        for run in self.feature.runs:
            stop = start + run.stop - run.start
            cube[:, :, run] = values[:, :, start:stop]
            start = stop


@dataclass(frozen=True)
class Scrambled(_Replaced):
    """A row keeps a part of a feature, its conditional mean say, and a donor gives the rest: kept and given, (n, g)."""

    kept: Array
    given: Array

    @property
    def held_bytes(self) -> int:
        return 2 * self.n * len(self.feature.columns) * itemsize(self.kept)

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        kept = self.kept[rows.start : rows.stop, None, :]
        if isinstance(donors, range):
            self._write(block, kept + self.given[None, donors.start : donors.stop, :])
            return
        lent = self.xp.take(self.given, self.xp.reshape(donors, (-1,)), axis=0)
        self._write(block, kept + self.xp.reshape(lent, (-1, d, lent.shape[1])))

    def operands(self, feature: Feature) -> kernels.Operands:
        return (self.flat, self.kept, self.given, *self._chosen())

    @property
    def switched(self) -> kernels.Switched:
        return kernels.scrambled_rows


@dataclass(frozen=True)
class Thresholded(Scrambled):
    """A column of two values: the high one where what the donor gives is above what the row keeps."""

    low: float
    high: float

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        kept = self.kept[rows.start : rows.stop, None, :]
        if isinstance(donors, range):
            lent = self.given[None, donors.start : donors.stop, :]
        else:
            lent = self.xp.reshape(self.xp.take(self.given, self.xp.reshape(donors, (-1,)), axis=0), (-1, d, 1))
        low, high = self._levels()
        self._write(block, self.xp.where(lent > kept, high, low))

    def _levels(self) -> tuple[Array, Array]:
        low, high = (self.xp.full((), v, dtype=self.flat.dtype, device=self.device) for v in (self.low, self.high))
        return low, high

    def operands(self, feature: Feature) -> kernels.Operands:
        return (*super().operands(feature), *self._levels())

    @property
    def switched(self) -> kernels.Switched:
        return kernels.thresholded_rows


@dataclass(frozen=True)
class Values(_Replaced):
    """A feature takes new values, which a sampler makes of numbers in [0, 1): ``drawn(rows, u (b, d, count))``."""

    drawn: Callable[[range, Array], Array]

    def replacements(self, rows: range, numbers: Array) -> Array:
        """``(b, d, g)``, in the dtype of the rows."""
        made = self.xp.astype(self.drawn(rows, numbers[: len(rows), ...]), self.flat.dtype, copy=False)
        if numbers.shape[0] == len(rows):
            return made
        repeated = np.minimum(np.arange(numbers.shape[0]), len(rows) - 1)
        return self.xp.take(made, from_host(repeated, self.xp, self.device, index_dtype(self.xp)), axis=0)

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: Array) -> None:
        self._write(block, donors)

    def operands(self, feature: Feature) -> kernels.Operands:
        return (self.flat, *self._chosen())

    @property
    def switched(self) -> kernels.Switched:
        return kernels.written_operands
