"""Rows of CSR: blocks of CSR in which a feature's values are the donors', from the feature's own columns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array, Device, Namespace
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance.data.disk_libraries import SparseRows
from reliance.data.features import Feature
from reliance.data.sparse_rows import SparseBlock
from reliance.data.streamed import Streamed
from reliance.engine import kernels
from reliance.engine.stores import AtPlaces, Lender, Store

# A block's rows, its entries that are kept, those that are lent and both together, on the way to the model.
_COPIES = 4


class Buffer:
    """Repeated rows, and what is replaced in them: made into rows when the model takes them."""

    def __init__(self, own: SparseRows) -> None:
        self.own = own
        self.columns: tuple[int, ...] = ()
        self.values: HostArray | None = None


@dataclass(frozen=True, eq=False)
class SparseStore:
    """Rows of CSR in memory. Of those that lend, the columns that are replaced in a pass are held as numbers.

    Attributes
    ----------
    rows : SparseRows
    flat : Streamed
        The same, to those who index an array.
    lenders : Streamed
        The rows that lend.
    """

    rows: SparseRows
    flat: Streamed
    lenders: Streamed

    @property
    def xp(self) -> Namespace:
        return self.flat.xp

    @property
    def device(self) -> Device:
        return self.flat.device

    @property
    def n(self) -> int:
        return self.flat.n

    @property
    def shape(self) -> tuple[int, ...]:
        return self.flat.shape[1:]

    @property
    def streams(self) -> bool:
        return True

    @property
    def concurrent(self) -> bool:
        return True

    @property
    def pass_bytes(self) -> int:
        return 0

    @property
    def in_place(self) -> bool:
        return True

    @property
    def shares(self) -> bool:
        return False  # a block of CSR has one set of replaced columns

    @cached_property
    def row_bytes(self) -> int:
        # Of the longest row: any row may be the one that a block repeats.
        longest = int(np.diff(self.rows.indptr).max(initial=0)) + 1
        return _COPIES * (longest * (self.rows.dtype.itemsize + self.rows.indices.itemsize + 1) + 8)

    @property
    def own_bytes(self) -> int:
        return 0

    @property
    def held_bytes(self) -> int:
        return 0

    def lent_bytes(self, feature: Feature) -> int:
        return 2 * self.lenders.n * len(feature.columns) * self.rows.dtype.itemsize

    # -----------------------------------------------------------------------------------------------------------------
    # Other rows

    def column(self, j: int) -> Array:
        return self.flat[:, j]

    def head(self, n: int) -> Store:
        some = self.flat.some(np.arange(n))
        return SparseStore(self.rows[:n], some, some)

    def lending(self, ids: Indices) -> Store:
        return dataclasses.replace(self, rows=self.rows[ids], flat=self.flat.some(ids))

    def borrowing(self, lenders: kernels.Block) -> Store:
        self.flat.refuse("rl.Donors of other rows")

    def lend(self, features: tuple[Feature, ...]) -> None:
        self.lenders.hold([column for feature in features for column in feature.columns])

    # -----------------------------------------------------------------------------------------------------------------
    # Blocks

    def allocate(self, rows: int) -> Buffer:
        return Buffer(self.rows[:0])

    def slots(self, block: Buffer, count: int, rows: int) -> list[Buffer]:
        return [block]

    def gathered(self, index: Array) -> Buffer:
        return Buffer(self.rows[arrays.to_host(index)])

    @property
    def whole(self) -> kernels.Block:
        self.flat.refuse("what replaces features by values, or traces the model,")

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Buffer, rows: range, d: int) -> None:
        block.own = self.rows[np.repeat(np.arange(rows.start, rows.stop), d)]
        block.columns, block.values = (), None

    def restore(self, block: Buffer, rows: range, d: int, feature: Feature) -> None:
        block.columns, block.values = (), None

    def holds(self, block: Buffer, rows: range, d: int, feature: Feature | None) -> Array | None:
        return None  # the model has rows of its own

    def swap(self, block: Buffer, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        at = np.reshape(np.broadcast_to(np.asarray(donors), (len(rows), d)), (-1,))  # (d,), or (b, d)
        lent = [arrays.to_host(self.lenders.column(column))[at] for column in feature.columns]
        block.columns, block.values = feature.columns, np.stack(lent, axis=1)

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def model_input(self, block: Buffer, rows: int) -> SparseBlock:
        found = SparseBlock(block.own, block.columns, block.values)
        return found if len(found) == rows else found[:rows]

    def operands(self, feature: Feature) -> kernels.Operands:
        self.flat.refuse("what replaces features by values, or traces the model,")

    @property
    def switched(self) -> kernels.Switched:
        self.flat.refuse("what replaces features by values, or traces the model,")
