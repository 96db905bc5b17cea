"""Rows that are read block by block, of which only the columns that lend are held."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.data.streamed import Streamed
from reliance.engine.stores import AtPlaces, Lender, Store, same_rows


class Block:
    """Repeated rows, and what they are before anything is replaced in them: read once, and compared again."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.own: Array = values[:0, :]


@dataclass(frozen=True, eq=False)
class StreamedStore:
    """Rows of a source, read as blocks are filled; a donor's value comes from the feature's own columns, held whole.

    Attributes
    ----------
    flat : Streamed
    shape : tuple of int
        Of one row as the model takes it.
    lenders : Streamed
        Who lends: the rows themselves, or more.
    """

    flat: Any
    shape: tuple[int, ...]
    lenders: Streamed

    @classmethod
    def of(cls, rows: Streamed, shape: tuple[int, ...]) -> StreamedStore:
        return cls(rows, shape, rows)

    @property
    def xp(self) -> Namespace:
        return self._rows.xp

    @property
    def device(self) -> Device:
        return self._rows.device

    @property
    def _rows(self) -> Streamed:
        rows: Streamed = self.flat
        return rows

    @property
    def n(self) -> int:
        return self._rows.n

    @property
    def width(self) -> int:
        return self._rows.shape[1]

    @property
    def streams(self) -> bool:
        return True

    @property
    def row_bytes(self) -> int:
        return self.width * arrays.itemsize(self._empty(0))

    @property
    def own_bytes(self) -> int:
        return self.row_bytes

    @property
    def held_bytes(self) -> int:
        return self.lenders.source.held_bytes

    def lent_bytes(self, feature: Feature) -> int:
        return self.lenders.n * len(feature.columns) * arrays.itemsize(self._empty(0))

    def _empty(self, rows: int) -> Array:
        return self.xp.empty((rows, self.width), dtype=self._rows.dtype, device=self.device)

    # -----------------------------------------------------------------------------------------------------------------
    # Other rows

    def head(self, n: int) -> Store:
        return StreamedStore.of(self._rows.some(np.arange(n)), self.shape)

    def lending(self, ids: Indices) -> Store:
        return dataclasses.replace(self, flat=self._rows.some(ids))

    def borrowing(self, lenders: Any) -> Store:
        self._rows.refuse("rl.Donors of other rows")

    def lend(self, features: tuple[Feature, ...]) -> None:
        self.lenders.hold([column for feature in features for column in feature.columns])

    # -----------------------------------------------------------------------------------------------------------------
    # Blocks

    def allocate(self, rows: int) -> Block:
        return Block(self._empty(rows))

    def gathered(self, index: Array) -> Block:
        return Block(self.flat[index, :])

    @property
    def whole(self) -> Any:
        self._rows.refuse("a function that is traced")

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Block, rows: range, d: int) -> None:
        block.own = self._rows.block(rows)
        self._cube(block, len(rows), d)[...] = block.own[:, None, :]

    def restore(self, block: Block, rows: range, d: int, feature: Feature) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            cube[:, :, run] = block.own[:, None, run]

    def holds(self, block: Block, rows: range, d: int, feature: Feature | None) -> Array | None:
        runs = (slice(0, self.width),) if feature is None else feature.runs
        return same_rows(self._cube(block, len(rows), d), block.own, runs)

    def swap(self, block: Block, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        cube = self._cube(block, len(rows), d)
        for column in feature.columns:
            lent = self.lenders.column(column)
            if isinstance(donors, range):
                cube[:, :, column] = lent[None, donors.start : donors.stop]
            else:
                taken = self.xp.take(lent, self.xp.reshape(donors, (-1,)))
                cube[:, :, column] = self.xp.reshape(taken, (-1, d))

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def model_input(self, block: Block, rows: int) -> Array:
        return self.xp.reshape(block.values[:rows, :], (rows, *self.shape))

    def _cube(self, block: Block, b: int, d: int) -> Array:
        return self.xp.reshape(block.values[: b * d, :], (b, d, self.width))

    def operands(self, feature: Feature) -> Any:
        self._rows.refuse("a function that is traced")

    @property
    def switched(self) -> Callable[[Any, Array, Array], Array]:
        self._rows.refuse("a function that is traced")
