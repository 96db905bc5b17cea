"""A feature held at a few values, the same ones for every row: columns of a rectangle, with a store that knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import Array, from_host, itemsize, namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.stores import ArrayStore
from reliance.plans import Tile, Users
from reliance.plans.protocol import Floats


@dataclass(frozen=True)
class Constants:
    """Every row takes each of ``columns`` values: column k of the table of losses is the k-th value of a feature."""

    n: int
    columns: int
    kind: str = "constants"
    rectangular: bool = True
    lends: bool = True

    @property
    def draws(self) -> int:
        return self.columns

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        """Which of the values, not which row: the store has the values."""
        return np.arange(columns.start, columns.stop, dtype=np.int64)

    def users(self, columns: range) -> Users:
        raise TypeError("a rectangular plan sums donors along an axis")

    def mask(self, tile: Tile) -> NDArray[np.bool_] | None:
        return None

    def counts(self, columns: range) -> Floats | None:
        return None

    def donor_sums(self, column_sums: Floats) -> Floats:
        return column_sums

    def spread(self, v: Floats) -> Floats:
        return np.full(self.columns, np.sum(v))


@dataclass(frozen=True)
class ConstantStore(ArrayStore):
    """Rows of an array, of which a feature is held at a line of ``held (m, P)``."""

    held: Array

    @classmethod
    def over(cls, rows: ArrayStore, held: NDArray[Any]) -> ConstantStore:
        """The same rows, with values that are on the host."""
        return cls(rows.flat, rows.shape, from_host(held, rows.xp, rows.device, rows.flat.dtype))

    @property
    def held_bytes(self) -> int:
        return int(self.held.shape[0]) * self.width * itemsize(self.held)

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: Array) -> None:
        cube = self._cube(block, len(rows), d)
        for run in feature.runs:
            cube[:, :, run] = self.xp.take(self.held[:, run], donors, axis=0)[None, :, :]

    def operands(self, feature: Feature) -> Any:
        flat, columns = super().operands(feature)
        return flat, self.held, columns

    @property
    def switched(self) -> Callable[[Any, Array, Array], Array]:
        return held_rows


def held_rows(operands: tuple[Array, Array, Array], rows: Array, lines: Array) -> Array:
    """``(b * d, P)``: the rows with some columns from each of some lines (d,); operands X, held and columns (P,)."""
    X, held, columns = operands
    xp = namespace(X)
    values, own = xp.take(held, lines, axis=0)[None, :, :], xp.take(X, rows, axis=0)[:, None, :]
    return xp.reshape(xp.where(columns, values, own), (rows.shape[0] * lines.shape[0], X.shape[1]))
