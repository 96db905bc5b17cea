"""A feature held at a few values, the same ones for every row: columns of a rectangle, with a store that knows them."""

from __future__ import annotations

from dataclasses import dataclass

from reliance._core.arrays import Array, from_host, itemsize, namespace
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.data.rows import Rows
from reliance.engine import kernels
from reliance.engine.stores import ArrayStore
from reliance.plans import Rectangular
from reliance.plans.protocol import Floats


@dataclass(frozen=True)
class Constants(Rectangular):
    """Every row takes each of some values: column k of the table of losses is the k-th value of a feature."""

    n: int
    values: int

    @property
    def draws(self) -> int:
        return self.values

    def donors(self, rows: range, columns: range) -> range:
        """Which of the values, not which row: the store has the values."""
        return columns

    def draw_sums(self, column_sums: Floats) -> Floats:
        return column_sums


@dataclass(frozen=True)
class ConstantStore(ArrayStore):
    """Rows of an array, of which a feature is held at a line of ``held (m, P)``."""

    held: Array

    @classmethod
    def over(cls, rows: Rows, held: HostArray) -> ConstantStore:
        """The same rows, with values that are on the host."""
        return cls(rows.flat, rows.shape, from_host(held, rows.xp, rows.device, rows.flat.dtype))

    @property
    def held_bytes(self) -> int:
        return int(self.held.shape[0]) * self.width * itemsize(self.held)

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        ArrayStore(self.held, self.shape).swap(block, rows, d, feature, donors)

    def operands(self, feature: Feature) -> kernels.Operands:
        flat, columns = super().operands(feature)
        return flat, self.held, columns

    @property
    def switched(self) -> kernels.Switched:
        return held_rows


def held_rows(operands: tuple[Array, Array, Array], rows: Array, lines: Array) -> Array:
    """``(b * d, P)``: the rows with some columns from each of some lines (d,); operands X, held and columns (P,)."""
    X, held, columns = operands
    xp = namespace(X)
    values, own = xp.take(held, lines, axis=0)[None, :, :], xp.take(X, rows, axis=0)[:, None, :]
    return xp.reshape(xp.where(columns, values, own), (rows.shape[0] * lines.shape[0], X.shape[1]))
