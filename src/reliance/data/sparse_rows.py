"""Rows of scipy's CSR, held as they are: blocks of them with other values in some columns, never dense as a whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import HostArray, Namespace, Operand
from reliance.data.disk_libraries import SparseRows
from reliance.data.indexed import Indexed
from reliance.data.stored_arrays import ArraySource
from reliance.data.streamed import Some, Source, Streamed


@dataclass(frozen=True)
class Sparse(ArraySource):
    """Rows of scipy's CSR, which the model gets as what they were."""

    array: SparseRows

    def rows(self, start: int, stop: int) -> HostArray:
        return np.asarray(self.array[start:stop].toarray())

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        return np.asarray(self.array[:, list(columns)].toarray())

    def again(self, block: HostArray | SparseBlock) -> object:
        """Rows of the kind that they came as, of a block or of numbers (m, P)."""
        made: Callable[[HostArray], object] = type(self.array)
        return block.made() if isinstance(block, SparseBlock) else made(block)


def _is_sparse(x: object, library: Any) -> TypeGuard[SparseRows]:
    return bool(library.issparse(x))


def sparse_rows(x: object) -> Sparse | None:
    sparse = sys.modules.get("scipy.sparse")
    if sparse is None or not _is_sparse(x, sparse):
        return None
    if x.format != "csr" or x.ndim != 2:
        raise TypeError(f"X is a sparse {type(x).__name__}: pass rows that can be sliced, X.tocsr()")
    return Sparse("sparse matrix", "X.toarray()", tuple(map(int, x.shape)), np.dtype(x.dtype), x)


def held(rows: Streamed) -> SparseRows | None:
    """The rows as CSR, if that is what they are to the model, too."""
    return _unwrapped(rows.source) if arrays.backend(rows.xp) == "numpy" else None


def _unwrapped(source: Source) -> SparseRows | None:
    if isinstance(source, Some):
        found = _unwrapped(source.source)
        return None if found is None else found[source.ids]
    return source.array if isinstance(source, Sparse) else None


@dataclass(frozen=True, eq=False)
class SparseBlock(Indexed):
    """Rows for a model ``(m, P)``, some columns of which have other values: ``values (m, g)``.

    They are made when the model takes them, so that it has rows of its own, which it may write to.
    """

    own: SparseRows
    columns: tuple[int, ...] = ()
    values: HostArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.own.shape

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.own.dtype

    @property
    def device(self) -> str:
        return "cpu"

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return arrays.namespace(np.empty(0))

    def __getitem__(self, key: Operand, /) -> SparseBlock:
        """Some of the rows, by a slice."""
        rows = key[0] if isinstance(key, tuple) else key
        return SparseBlock(self.own[rows], self.columns, None if self.values is None else self.values[rows])

    def refuse(self, asks: str) -> NoReturn:
        raise TypeError(f"{asks} needs numbers, and X is a sparse matrix: pass X.toarray()")

    def made(self) -> SparseRows:
        """Rows of the kind that they came as."""
        return self.own.copy() if self.values is None else replaced(self.own, self.columns, self.values)


def replaced(own: SparseRows, columns: Sequence[int], values: HostArray) -> SparseRows:
    """CSR ``(m, P)`` with other values ``(m, g)`` in some columns; what is 0 is left out."""
    made: Callable[..., SparseRows] = type(own)
    kept = own.indices != columns[0] if len(columns) == 1 else ~_one_of(own, columns)
    before = np.concatenate([[0], np.cumsum(kept)])
    rest = made((own.data[kept], own.indices[kept], before[own.indptr]), shape=own.shape)
    order = np.argsort(columns)
    lent = values[:, order]
    there = lent != 0
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(there, axis=1))])
    other = made((lent[there], np.asarray(columns)[order][np.nonzero(there)[1]], starts), shape=own.shape)
    return rest + other  # no entry is in both


def _one_of(own: SparseRows, columns: Sequence[int]) -> HostArray:
    found = np.zeros(own.shape[1], dtype=bool)
    found[list(columns)] = True
    return np.asarray(found[own.indices])
