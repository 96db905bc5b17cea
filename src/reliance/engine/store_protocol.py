"""What the engine asks of a store: to repeat some rows in a block, and to take a feature from donor rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from reliance._core.arrays import Array, Device, Namespace, is_mutable
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.kernels import RowShape

# What a store allocates, and nobody else looks into: an array, a tuple of them, or a class of the store's own.
StoreBlock: TypeAlias = Any


class Lender(Protocol):
    """Takes a feature from donors."""

    def swap(self, block: StoreBlock, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        """Take a feature from donor rows: a range or (d,) of them for all rows, or an index array (b, d)."""
        ...


class Store(Lender, Protocol):
    """Rows whose features can be replaced: in place, in a block that the caller owns, or by a pure function."""

    @property
    def xp(self) -> Namespace: ...
    @property
    def device(self) -> Device: ...
    @property
    def n(self) -> int: ...
    @property
    def shape(self) -> RowShape:
        """Of one row as the model takes it; of each of several inputs."""
        ...

    @property
    def flat(self) -> Array:
        """``(n, P)``: the rows as they were given."""
        ...

    def column(self, j: int) -> Array:
        """``(n,)``: of the rows as they were given, without a look at other columns where that can be had."""
        ...

    def head(self, n: int) -> Store:
        """The first n rows."""
        ...

    def lending(self, ids: Indices) -> Store:
        """Some of the rows, to which all of them lend."""
        ...

    def borrowing(self, lenders: kernels.Block) -> Store:
        """The same rows, to which other rows lend: ``(m, P)``, or a tuple for several inputs, as `whole` has them."""
        ...

    @property
    def row_bytes(self) -> int: ...
    @property
    def held_bytes(self) -> int:
        """What the store itself allocates besides the user's array."""
        ...

    @property
    def streams(self) -> bool:
        """Whether rows are read as blocks are filled, so that what needs all of them at once has to do without."""
        ...

    @property
    def concurrent(self) -> bool:
        """Whether several threads may fill blocks at the same time."""
        ...

    @property
    def pass_bytes(self) -> int:
        """What is read when all rows are read once; 0 if they are there."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether blocks are written in place; where they are not, `switched` makes them."""
        ...

    @property
    def shares(self) -> bool:
        """Whether a block may have several slots, in each of which another feature is replaced."""
        ...

    @property
    def own_bytes(self) -> int:
        """What the store holds beside each row of a block."""
        ...

    def lent_bytes(self, feature: Feature) -> int:
        """What it holds for each feature that is replaced in a pass over the rows."""
        ...

    def lend(self, features: tuple[Feature, ...]) -> None:
        """These features are replaced in the pass that comes; what is held for others may go."""
        ...

    def allocate(self, rows: int) -> StoreBlock:
        """A block for that many rows."""
        ...

    def slots(self, block: StoreBlock, count: int, rows: int) -> Sequence[StoreBlock]:
        """The block as so many smaller ones of that many rows, which lie one after the other in it."""
        ...

    def repeat(self, block: StoreBlock, rows: range, d: int) -> None:
        """Write each of the rows d times."""
        ...

    def gathered(self, index: Array) -> StoreBlock:
        """A new block of some rows, which may be named more than once."""
        ...

    @property
    def whole(self) -> kernels.Block:
        """All rows, as ``kernels.taken`` takes some of them: ``(n, P)``, or a tuple for several inputs."""
        ...

    def restore(self, block: StoreBlock, rows: range, d: int, feature: Feature) -> None:
        """Write the rows' own values back into a feature's columns."""
        ...

    def in_order(self, feature: Feature, order: Array) -> Lender:
        """What swaps a feature whose donors are places: row ``order[place]`` lends. See ``AtPlaces``."""
        ...

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        """What `swap` and ``switched`` take, made of a plan's numbers: usually these, for they are donors.

        Numbers ``(b, d, ...)`` may be of more rows than asked for, the last one repeated.
        """
        ...

    def holds(self, block: StoreBlock, rows: range, d: int, feature: Feature | None) -> Array | None:
        """0-d bool: a feature's columns, or all, are the rows' own; None if each `swap` writes all that is read."""
        ...

    def model_input(self, block: StoreBlock, rows: int) -> kernels.Block:
        """The first rows of a block, as the model takes them."""
        ...

    def operands(self, feature: Feature) -> kernels.Operands:
        """What ``switched`` needs of a feature, as arrays of the same shapes for every feature."""
        ...

    @property
    def switched(self) -> kernels.Switched:
        """The pure function ``(operands, rows, donors) -> (b * d, ...)`` that makes a block."""
        ...


class Resident(Protocol):
    """Of a store all of whose rows are where it works: nothing is read, and nothing held for a feature."""

    flat: Array

    def column(self, j: int) -> Array:
        return self.flat[:, j]

    @property
    def xp(self) -> Namespace: ...

    @property
    def streams(self) -> bool:
        return False

    @property
    def concurrent(self) -> bool:
        return True

    @property
    def pass_bytes(self) -> int:
        return 0

    @property
    def in_place(self) -> bool:
        return is_mutable(self.xp)

    @property
    def shares(self) -> bool:
        return True

    @property
    def own_bytes(self) -> int:
        return 0

    def lent_bytes(self, feature: Feature) -> int:
        return 0

    def slots(self, block: StoreBlock, count: int, rows: int) -> Sequence[StoreBlock]:
        return [block[start : start + rows, ...] for start in range(0, count * rows, rows)]

    def lend(self, features: tuple[Feature, ...]) -> None:
        """All of them are there."""
        return
