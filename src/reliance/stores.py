"""Where rows come from: a store makes blocks of repeated rows and replaces columns in them.

The engine asks three things of a store: repeat some rows, take columns from donor rows, write given values. Arrays are
one store; tables and several inputs are other stores, not other engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from reliance._array import Array, Device, Namespace, device, itemsize, namespace
from reliance.features import Feature


class Store(Protocol):
    """Rows whose columns can be replaced, in place, in a block that the caller owns."""

    @property
    def n(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    def allocate(self, rows: int) -> Any:
        """A block for that many rows."""
        ...

    def repeat(self, block: Any, rows: range, d: int) -> None:
        """Write each of the rows d times."""
        ...

    def restore(self, block: Any, rows: range, d: int, feature: Feature) -> None:
        """Write the rows' own values back into a feature's columns."""
        ...

    def swap(self, block: Any, rows: range, d: int, feature: Feature, donors: Any) -> None:
        """Take a feature's columns from donor rows: a range of them for all rows, or an index array (b * d,)."""
        ...

    def put(self, block: Any, feature: Feature, values: Any) -> None:
        """Write given values (b, d, g) into a feature's columns."""
        ...

    def model_input(self, block: Any, rows: int) -> Any:
        """The first rows of a block, as the model takes them."""
        ...

    def head(self, n: int) -> Store:
        """The first n rows."""
        ...


@dataclass(frozen=True)
class ArrayStore:
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

    def head(self, n: int) -> ArrayStore:
        return ArrayStore(self.flat[:n, :], self.shape)

    def allocate(self, rows: int) -> Array:
        return self.xp.empty((rows, self.width), dtype=self.flat.dtype, device=self.device)

    def repeat(self, block: Array, rows: range, d: int) -> None:
        self._cube(block, len(rows), d)[...] = self.flat[rows.start : rows.stop, None, :]

    def restore(self, block: Array, rows: range, d: int, feature: Feature) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            cube[:, :, run] = self.flat[rows.start : rows.stop, None, run]

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            if isinstance(donors, range):
                cube[:, :, run] = self.flat[None, donors.start : donors.stop, run]
            else:
                lent = self.xp.take(self.flat[:, run], donors, axis=0)
                cube[:, :, run] = self.xp.reshape(lent, (len(rows), d, run.stop - run.start))

    def put(self, block: Array, feature: Feature, values: Array) -> None:
        cube = self._cube(block, values.shape[0], values.shape[1])
        place = 0
        for run in feature.runs:
            width = run.stop - run.start
            cube[:, :, run] = values[:, :, place : place + width]
            place += width

    def model_input(self, block: Array, rows: int) -> Array:
        return self.xp.reshape(block[:rows, :], (rows, *self.shape))

    def _cube(self, block: Array, b: int, d: int) -> Array:
        return self.xp.reshape(block[: b * d, :], (b, d, self.width))
