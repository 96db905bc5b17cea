"""Rows of several inputs: a store for each, between which a feature is divided."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reliance._core.arrays import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data import sparse_rows
from reliance.data.features import Feature
from reliance.data.rows import Rows
from reliance.data.several_inputs import Inputs
from reliance.engine import kernels
from reliance.engine.kernels import RowShape
from reliance.engine.sparse_stores import SparseStore
from reliance.engine.stores import ArrayStore, AtPlaces, Lender, Resident, Store
from reliance.engine.streamed_stores import StreamedStore


def store_of(rows: Rows) -> Store:
    """The store of rows that lend each other their values."""
    if rows.streamed is not None:
        sparse = sparse_rows.held(rows.streamed)
        if sparse is None:
            return StreamedStore.of(rows.streamed, rows.shape)
        return SparseStore(sparse, rows.streamed, rows.streamed)
    if rows.inputs is None:
        return ArrayStore(rows.flat, rows.shape)
    return InputStore(rows.flat, rows.inputs, tuple(ArrayStore.of(part) for part in rows.inputs.parts.values()))


@dataclass(frozen=True, eq=False)
class InputStore(Resident):
    """Several inputs. A block is a tuple of their blocks, so that each is exchanged as it is, in its shape and dtype.

    Attributes
    ----------
    flat : array (n, pieces)
        The numbers of the rows, for those who look for codes of features.
    inputs : Inputs
        Which parts of which inputs are a feature.
    stores : tuple of ArrayStore
    """

    flat: Array
    inputs: Inputs
    stores: tuple[ArrayStore, ...]
    _known: dict[tuple[int, ...], tuple[Feature, ...]] = field(default_factory=dict, repr=False)

    @property
    def xp(self) -> Namespace:
        return self.stores[0].xp

    @property
    def device(self) -> Device:
        return self.stores[0].device

    @property
    def n(self) -> int:
        return self.stores[0].n

    @property
    def shape(self) -> RowShape:
        return tuple(store.shape for store in self.stores)

    @property
    def row_bytes(self) -> int:
        return sum(store.row_bytes for store in self.stores)

    @property
    def held_bytes(self) -> int:
        return sum(store.held_bytes for store in self.stores)

    @property
    def whole(self) -> tuple[Array, ...]:
        return tuple(store.whole for store in self.stores)

    def head(self, n: int) -> InputStore:
        return self._with(self.flat[:n, :], lambda store: store.head(n))

    def lending(self, ids: Indices) -> InputStore:
        numbers = ArrayStore(self.flat, ()).lending(ids)
        return self._with(numbers.flat, lambda store: store.lending(ids))

    def borrowing(self, lenders: tuple[Array, ...]) -> InputStore:
        stores = tuple(store.borrowing(part) for store, part in zip(self.stores, lenders, strict=True))
        return dataclasses.replace(self, stores=stores)

    def gathered(self, index: Array) -> tuple[Array, ...]:
        return tuple(store.gathered(index) for store in self.stores)

    def allocate(self, rows: int) -> tuple[Array, ...]:
        return tuple(store.allocate(rows) for store in self.stores)

    def slots(self, block: tuple[Array, ...], count: int, rows: int) -> list[tuple[Array, ...]]:
        own = [store.slots(part, count, rows) for store, part in zip(self.stores, block, strict=True)]
        return list(zip(*own, strict=True))

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: tuple[Array, ...], rows: range, d: int) -> None:
        for store, part in zip(self.stores, block, strict=True):
            store.repeat(part, rows, d)

    def restore(self, block: tuple[Array, ...], rows: range, d: int, feature: Feature) -> None:
        for store, part, own in self._parts(block, feature):
            store.restore(part, rows, d, own)

    def swap(self, block: tuple[Array, ...], rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        for store, part, own in self._parts(block, feature):
            store.swap(part, rows, d, own, donors)

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def holds(self, block: tuple[Array, ...], rows: range, d: int, feature: Feature | None) -> Array | None:
        if feature is None:
            found = [store.holds(part, rows, d, None) for store, part in zip(self.stores, block, strict=True)]
        else:
            found = [store.holds(part, rows, d, own) for store, part, own in self._parts(block, feature)]
        same = None
        for one in found:
            same = one if same is None or one is None else self.xp.logical_and(same, one)
        return same

    def model_input(self, block: tuple[Array, ...], rows: int) -> tuple[Array, ...]:
        return tuple(store.model_input(part, rows) for store, part in zip(self.stores, block, strict=True))

    def operands(self, feature: Feature) -> tuple[tuple[Array, ...], ...]:
        return tuple(store.operands(own) for store, own in zip(self.stores, self._features(feature), strict=True))

    @property
    def switched(self) -> kernels.Switched:
        return kernels.switched_inputs

    def _with(self, flat: Array, change: Callable[[ArrayStore], ArrayStore]) -> InputStore:
        return dataclasses.replace(self, flat=flat, stores=tuple(change(store) for store in self.stores))

    def _features(self, feature: Feature) -> tuple[Feature, ...]:
        """What a feature is in each input; it may be nothing. Asked for in each block, so remembered."""
        if feature.columns not in self._known:
            parts = self.inputs.columns(feature)
            self._known[feature.columns] = tuple(Feature(feature.name, columns) for columns in parts)
        return self._known[feature.columns]

    def _parts(self, block: tuple[Array, ...], feature: Feature) -> Iterator[tuple[ArrayStore, Array, Feature]]:
        """The inputs that a feature touches, with their blocks and their parts of it."""
        for store, part, own in zip(self.stores, block, self._features(feature), strict=True):
            if own.columns:
                yield store, part, own
