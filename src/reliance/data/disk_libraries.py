"""The parts of libraries of stored data that are used here, as types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Protocol

import numpy as np

from reliance._core.kinds import HostArray, Operand


class Sliced(Protocol):
    """An array of zarr or h5py."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...
    @property
    def chunks(self) -> tuple[int, ...] | None: ...
    def __getitem__(self, key: slice, /) -> Operand: ...


class DaskArray(Protocol):
    """An array of dask."""

    def __getitem__(self, key: Operand, /) -> DaskArray: ...
    def compute(self, **settings: object) -> HostArray: ...


class SparseRows(Protocol):
    """Rows of scipy.sparse, in CSR."""

    format: str

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...
    def __getitem__(self, key: Operand, /) -> SparseRows: ...
    def toarray(self) -> HostArray: ...


class Frames(Protocol):
    """A table in pieces."""

    @property
    def lengths(self) -> Sequence[int]: ...
    def piece(self, k: int, names: Sequence[str]) -> object: ...


class _Schema(Protocol):
    @property
    def names(self) -> list[str]: ...


class _RowGroup(Protocol):
    @property
    def num_rows(self) -> int: ...


class Fragment(Protocol):
    """A file of a dataset of pyarrow, or a part of one; the row groups are of parquet alone."""

    @property
    def row_groups(self) -> Sequence[_RowGroup]: ...
    def split_by_row_group(self) -> Sequence[Fragment]: ...
    def count_rows(self) -> int: ...
    def to_table(self, *, schema: _Schema, columns: list[str]) -> Sized: ...


class ArrowDataset(Protocol):
    """A dataset of pyarrow."""

    @property
    def schema(self) -> _Schema: ...
    def get_fragments(self) -> Iterable[Fragment]: ...


class LazyFrame(Protocol):
    """A lazy table of polars."""

    def slice(self, offset: int, length: int) -> LazyFrame: ...
    def select(self, columns: list[str]) -> LazyFrame: ...
    def collect(self) -> Sized: ...


class RowsDataset(Protocol):
    """A map-style dataset of torch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...
