"""Rows that are read block by block, of which only the columns that lend are held."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.data.streamed import Streamed
from reliance.engine import kernels
from reliance.engine.stores import AtPlaces, Lender, Store, same_rows


class Read:
    """Rows as they were read, for all slots of a block."""

    def __init__(self, own: Array) -> None:
        self.rows: range | None = None
        self.own = own


class Block:
    """Repeated rows, and what they are before anything is replaced in them: read once, and compared again."""

    def __init__(self, values: Array, read: Read | None = None) -> None:
        self.values = values
        self.read = Read(values[:0, :]) if read is None else read

    @property
    def own(self) -> Array:
        return self.read.own


@dataclass(frozen=True, eq=False)
class StreamedStore:
    """Rows of a source, read as blocks are filled; a donor's value comes from the feature's own columns, held whole.

    Attributes
    ----------
    rows : Streamed
        As arrays of the model's namespace and device.
    shape : tuple of int
        Of one row as the model takes it.
    own, lenders : Streamed
        What blocks are made of: the rows and those that lend. Where arrays are written in place, that is where the
        model is; on JAX it is the host.
    """

    rows: Streamed
    shape: tuple[int, ...]
    own: Streamed
    lenders: Streamed

    @classmethod
    def of(cls, rows: Streamed, shape: tuple[int, ...]) -> StreamedStore:
        own = rows if arrays.is_mutable(rows.xp) else rows.back_on_host()
        return cls(rows, shape, own, own)

    @property
    def xp(self) -> Namespace:
        return self.rows.xp

    @property
    def device(self) -> Device:
        return self.rows.device

    @property
    def flat(self) -> Array:
        """The rows, to be indexed; a memory map itself, which is an array to whoever needs all of it."""
        whole = self.rows.known()
        return self.rows if whole is None else whole

    @property
    def n(self) -> int:
        return self.own.n

    @property
    def width(self) -> int:
        return self.own.shape[1]

    @property
    def streams(self) -> bool:
        return self.rows.known() is None

    @property
    def concurrent(self) -> bool:
        return self.lenders.source.concurrent

    @property
    def pass_bytes(self) -> int:
        return self.n * self.own.row_bytes

    @property
    def in_place(self) -> bool:
        return True

    @property
    def shares(self) -> bool:
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
        return self.own.xp.empty((rows, self.width), dtype=self.own.dtype, device=self.own.device)

    # -----------------------------------------------------------------------------------------------------------------
    # Other rows

    def column(self, j: int) -> Array:
        return self.rows[:, j]

    def head(self, n: int) -> Store:
        return StreamedStore.of(self.rows.some(np.arange(n)), self.shape)

    def lending(self, ids: Indices) -> Store:
        return dataclasses.replace(self, rows=self.rows.some(ids), own=self.own.some(ids))

    def borrowing(self, lenders: kernels.Block) -> Store:
        self.own.refuse("rl.Donors of other rows")

    def lend(self, features: tuple[Feature, ...]) -> None:
        self.lenders.hold([column for feature in features for column in feature.columns])

    # -----------------------------------------------------------------------------------------------------------------
    # Blocks

    def allocate(self, rows: int) -> Block:
        return Block(self._empty(rows))

    def slots(self, block: Block, count: int, rows: int) -> list[Block]:
        read = Read(block.values[:0, :])
        return [Block(block.values[start : start + rows, :], read) for start in range(0, count * rows, rows)]

    def gathered(self, index: Array) -> Block:
        return Block(self.own[arrays.to_host(index), :])

    @property
    def whole(self) -> kernels.Block:
        self.own.refuse("what replaces features by values, or traces the model,")

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Block, rows: range, d: int) -> None:
        if block.read.rows != rows:
            block.read.rows, block.read.own = rows, self.own.block(rows)
        self._cube(block, len(rows), d)[...] = block.own[:, None, :]

    def restore(self, block: Block, rows: range, d: int, feature: Feature) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            cube[:, :, run] = block.own[:, None, run]

    def holds(self, block: Block, rows: range, d: int, feature: Feature | None) -> Array | None:
        runs = (slice(0, self.width),) if feature is None else feature.runs
        same = same_rows(self._cube(block, len(rows), d), block.own, runs)
        return same if same is None or self.own is self.rows else self.xp.asarray(same)

    def swap(self, block: Block, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        cube, xp = self._cube(block, len(rows), d), self.own.xp
        if not isinstance(donors, range):
            donors = xp.reshape(donors if xp is self.xp else arrays.to_host(donors), (-1,))
        for column in feature.columns:
            lent = self.lenders.column(column)
            if isinstance(donors, range):
                cube[:, :, column] = lent[None, donors.start : donors.stop]
            else:
                cube[:, :, column] = xp.reshape(xp.take(lent, donors), (-1, d))

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def model_input(self, block: Block, rows: int) -> Array:
        values = block.values[:rows, :]
        if self.own.xp is not self.xp:
            # A copy: the buffer is written to again, perhaps before a device has read it.
            values = arrays.from_host(values.copy(), self.xp, self.device)
        return self.xp.reshape(values, (rows, *self.shape))

    def _cube(self, block: Block, b: int, d: int) -> Array:
        return self.own.xp.reshape(block.values[: b * d, :], (b, d, self.width))

    def operands(self, feature: Feature) -> kernels.Operands:
        self.own.refuse("what replaces features by values, or traces the model,")

    @property
    def switched(self) -> kernels.Switched:
        self.own.refuse("what replaces features by values, or traces the model,")
