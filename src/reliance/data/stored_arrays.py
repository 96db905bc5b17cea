"""Arrays outside of memory: memory maps, zarr, HDF5, dask, datasets of torch."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance.data.disk_libraries import DaskArray, RowsDataset, Sliced

# Memory maps that are not larger are arrays as any other: the system holds them.
SMALL_MAP = 2**26
# Bytes of chunks that are read together, and of a map that stay in memory behind the reader.
PIECE = 2**25


class _Last(threading.local):
    """The last piece that a thread has read; in another process there is none."""

    number: int = -1
    piece: HostArray | None = None

    def __reduce__(self) -> tuple[type[_Last], tuple[()]]:
        return _Last, ()


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows that come in pieces, such as the row groups of a file: the last piece is kept, because blocks are smaller.

    ``edges (k + 1,)``: where pieces begin and end; ``made(k)`` reads one. Each thread keeps the last piece of its own.
    """

    edges: NDArray[np.int64]
    made: Callable[[int], HostArray]
    _last: _Last = field(default_factory=lambda: _Last(), repr=False)

    @classmethod
    def of_lengths(cls, lengths: Iterable[int], made: Callable[[int], HostArray]) -> Pieces:
        return cls(np.cumsum([0, *lengths], dtype=np.int64), made)

    @property
    def n(self) -> int:
        return int(self.edges[-1])

    @property
    def longest(self) -> int:
        return int(np.diff(self.edges).max(initial=0))

    def piece(self, k: int) -> HostArray:
        if self._last.number != k:
            self._last.piece = None  # makes room first
            self._last.number, self._last.piece = -1, self.made(k)
            self._last.number = k
        found = self._last.piece
        assert found is not None
        return found

    def rows(self, start: int, stop: int) -> HostArray:
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = max(int(np.searchsorted(self.edges, stop, side="left")), first + 1)
        parts = []
        for k in range(first, last):
            top = int(self.edges[k])
            parts.append(self.piece(k)[max(start - top, 0) : stop - top])
        # A copy: a piece is let go before its rows are.
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class ArraySource:
    """What sources of arrays have in common."""

    kind: str
    remedy: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def names(self) -> tuple[str, ...] | None:
        return None

    @property
    def held_bytes(self) -> int:
        return 0

    @property
    def concurrent(self) -> bool:
        return True

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        return None

    def whole(self) -> HostArray | None:
        return None


@dataclass(frozen=True)
class Mapped(ArraySource):
    """A memory map, or a view of one; its pages are given back as it is read, so that they do not pile up."""

    array: HostArray
    _read: list[int] = field(default_factory=lambda: [0], repr=False)

    def rows(self, start: int, stop: int) -> HostArray:
        found = np.array(self.array[start:stop])
        self._read[0] += found.nbytes
        if self._read[0] > PIECE:
            self._read[0] = 0
            memory = _map_of(self.array)
            # Of a private map (mode "c") pages that were written to are nowhere else.
            if memory is not None and hasattr(mmap, "MADV_DONTNEED") and getattr(self.array, "mode", "c") != "c":
                memory.madvise(mmap.MADV_DONTNEED)
        return found

    def whole(self) -> HostArray | None:
        return self.array


def _map_of(x: HostArray) -> mmap.mmap | None:
    base: object = x
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def mapped(x: object) -> Mapped | None:
    if not isinstance(x, np.ndarray) or x.nbytes <= SMALL_MAP or x.ndim < 2 or _map_of(x) is None:
        return None
    return Mapped("memory map", "np.array(X)", x.shape, x.dtype, x)


@dataclass(frozen=True)
class Held(ArraySource):
    """An array or tensor of the host, for a model on a device to which it goes in blocks."""

    array: Array

    def rows(self, start: int, stop: int) -> HostArray:
        return arrays.to_host(self.array[start:stop, ...])

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        return np.stack([arrays.to_host(self.array[:, j]) for j in columns], axis=1)


def held(array: Array) -> Held:
    """Rows (n, P) on the host."""
    shape, dtype = tuple(map(int, array.shape)), arrays.to_host(array[:0, ...]).dtype
    return Held("host array for a device", "X on the device", shape, dtype, array)


@dataclass(frozen=True)
class Stored(ArraySource):
    """An array of zarr or HDF5: rows by slicing, chunk by chunk where it has chunks."""

    pieces: Pieces

    @property
    def held_bytes(self) -> int:
        return self.pieces.longest * int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def rows(self, start: int, stop: int) -> HostArray:
        return self.pieces.rows(start, stop)


def _stored(x: Sliced, kind: str) -> Stored:
    shape, dtype = tuple(map(int, x.shape)), np.dtype(x.dtype)
    n, row = (shape or (0,))[0], int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    chunk = int(x.chunks[0]) if x.chunks else 1
    # Whole chunks, which are decompressed as a whole, and several small ones together.
    step = chunk * max(1, PIECE // max(row * chunk, 1))
    edges = np.append(np.arange(0, n, step), n).astype(np.int64)

    def made(k: int) -> HostArray:
        return np.asarray(x[int(edges[k]) : int(edges[k + 1])])

    return Stored(kind, "X[:]", shape, dtype, Pieces(edges, made))


def zarr_array(x: object) -> Stored | None:
    zarr = sys.modules.get("zarr")
    return _stored(x, "zarr array") if zarr is not None and isinstance(x, zarr.Array) else None


def hdf5_dataset(x: object) -> Stored | None:
    h5py = sys.modules.get("h5py")
    if h5py is None or not isinstance(x, h5py.Dataset):
        return None
    if not x:
        raise ValueError("X is an h5py Dataset of a file that is closed: keep the file open while it is measured")
    return _stored(x, "h5py Dataset")


@dataclass(frozen=True)
class Computed(ArraySource):
    """An array of dask: rows chunk by chunk, columns by themselves."""

    array: DaskArray
    pieces: Pieces
    process: int

    @property
    def held_bytes(self) -> int:
        return self.pieces.longest * int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def rows(self, start: int, stop: int) -> HostArray:
        return self.pieces.rows(start, stop)

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        return _computed(self.array[:, list(columns)], self.process) if len(self.shape) == 2 else None


def _computed(array: DaskArray, process: int) -> HostArray:
    """By dask's own scheduler; in another process alone, because threads do not survive a fork."""
    alone = {} if os.getpid() == process else {"scheduler": "synchronous"}
    return np.asarray(array.compute(**alone))


def dask_array(x: object) -> Computed | None:
    dask = sys.modules.get("dask.array")
    if dask is None or not isinstance(x, dask.Array):
        return None
    if x.ndim == 0 or any(size != size for size in x.shape):
        raise ValueError("X is a dask array of unknown shape: call X.compute_chunk_sizes() first")
    edges, process = np.cumsum([0, *x.chunks[0]], dtype=np.int64), os.getpid()

    def made(k: int) -> HostArray:
        return _computed(x[int(edges[k]) : int(edges[k + 1])], process)

    shape = tuple(map(int, x.shape))
    return Computed("dask array", "X.compute()", shape, np.dtype(x.dtype), x, Pieces(edges, made), process)


@dataclass(frozen=True)
class Items(ArraySource):
    """A map-style dataset of torch, whose items are rows, or tuples of which the first entry is.

    ``example``: the first row, if rows are tensors: so they are for the model.
    """

    dataset: RowsDataset
    example: Array | None

    @property
    def concurrent(self) -> bool:
        return False  # what a class of the user's does in several threads nobody knows

    def rows(self, start: int, stop: int) -> HostArray:
        found = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        for place, i in enumerate(range(start, stop)):
            row = _entry(self.dataset[i], 0)
            if row.shape != self.shape[1:] or row.dtype != self.dtype:
                raise ValueError(
                    f"X: item {i} of the {type(self.dataset).__name__} has shape {row.shape} and dtype {row.dtype}, "
                    f"item 0 has {self.shape[1:]} and {self.dtype}: all rows must be alike"
                )
            found[place] = row
        return found

    def labels(self) -> HostArray | None:
        """The second entries of its items, if they have two."""
        if not _has_labels(self.dataset[0]):
            return None
        return np.stack([_entry(self.dataset[i], 1) for i in range(self.shape[0])])


def _has_labels(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2


def _entry(item: object, place: int) -> HostArray:
    found = item[place] if isinstance(item, tuple | list) else item
    return arrays.to_host(found) if arrays.is_array(found) else np.asarray(found)


def torch_dataset(x: object) -> Items | None:
    torch = sys.modules.get("torch")
    data = None if torch is None else torch.utils.data
    if data is None:
        return None
    if isinstance(x, data.DataLoader):
        raise TypeError("X is a DataLoader, which gives batches in an order of its own: pass its dataset, X.dataset")
    if not isinstance(x, data.Dataset):
        return None
    if isinstance(x, data.IterableDataset) or not hasattr(x, "__len__") or not len(x):
        raise TypeError(
            f"X is a {type(x).__name__} that cannot be indexed by rows: pass a map-style dataset, with a length"
        )
    first, item = _entry(x[0], 0), x[0]
    row = item[0] if isinstance(item, tuple | list) else item
    example = row if arrays.is_torch_array(row) else None
    remedy = "torch.stack([row[0] for row in X])"
    return Items("Dataset", remedy, (len(x), *first.shape), first.dtype, x, example)
