"""Rows that are read when they are asked for: an array that can be indexed, and never is in memory as a whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, Device, DType, HostArray, Namespace, Operand
from reliance.data.indexed import Indexed

# Bytes that are read at a time by those who look at all rows once.
_STRIP = 2**24
# Rows that lie closer than this are read together, up to so many.
_GAP, _TOGETHER = 64, 4096
# One reader at a time, of sources that several threads may not read.
_reading = threading.RLock()


class Source(Protocol):
    """Rows outside of memory: what a library's own class has to say about them.

    Attributes
    ----------
    kind : str
        What it is, in words: "zarr array".
    remedy : str
        How a user reads it into memory: "X[:]".
    shape : tuple of int
        ``(n, *row)``.
    dtype : NumPy dtype
    names : tuple of str or None
        Of the columns.
    held_bytes : int
        Of what it keeps between two readings, in each thread.
    concurrent : bool
        Whether several threads may read at the same time.
    """

    @property
    def kind(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def concurrent(self) -> bool: ...

    def rows(self, start: int, stop: int) -> HostArray:
        """``(stop - start, *row)``."""
        ...

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        """``(n, g)``: some columns of the flattened rows; None if they are not to be had for less than all rows."""
        ...

    def whole(self) -> HostArray | None:
        """All rows, if the host holds them anyway."""
        ...


@dataclass(frozen=True)
class Some:
    """Some rows of a source."""

    source: Source
    ids: NDArray[np.int64]

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def remedy(self) -> str:
        return self.source.remedy

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.ids), *self.source.shape[1:])

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.source.dtype

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.source.names

    @property
    def held_bytes(self) -> int:
        return self.source.held_bytes + self.ids.nbytes

    @property
    def concurrent(self) -> bool:
        return self.source.concurrent

    def rows(self, start: int, stop: int) -> HostArray:
        return _gathered(self.source, self.ids[start:stop])

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        found = self.source.columns(columns)
        return None if found is None else found[self.ids]

    def whole(self) -> HostArray | None:
        return None


class Marks:
    """By what rows are recognised when they are read again: the sum of a row's bits, 8 bytes a row."""

    def __init__(self) -> None:
        self.sums: NDArray[np.uint64] | None = None

    def agree(self, n: int, at: slice | NDArray[np.int64], rows: HostArray) -> bool:
        """Whether some of n rows, (b, P), are what they were; those that are read for the first time are."""
        if self.sums is None:
            self.sums = np.zeros(n, dtype=np.uint64)
        bits = rows.view(f"u{rows.dtype.itemsize}")
        # Odd: a sum of 0 is that of a row that was not read yet.
        found = np.sum(bits, axis=1, dtype=np.uint64) | np.uint64(1)
        same = bool(np.all((self.sums[at] == 0) | (self.sums[at] == found)))
        self.sums[at] = found
        return same


@dataclass(frozen=True, eq=False)
class Streamed(Indexed):
    """Rows ``(n, P)`` of a source, as arrays of a namespace on a device: indexed as an array, and read when it is.

    Rows and columns can be taken, ``[start:stop, run]``, ``[ids, run]``, ``[:, column]``. Whatever else is done to an
    array needs all of it at once, and is refused in words.

    Attributes
    ----------
    source : Source
    xp, device, dtype
        Where its rows go, and as what.
    """

    source: Source
    xp: Namespace
    device: Device
    dtype: DType
    _marks: Marks = field(default_factory=lambda: Marks(), repr=False)
    _held: dict[int, tuple[HostArray, Array]] = field(default_factory=dict, repr=False)  # on the host, on the device

    @classmethod
    def on_host(cls, source: Source) -> Streamed:
        """As NumPy arrays, in the byte order of the machine."""
        empty = np.empty(0, dtype=source.dtype.newbyteorder("="))
        return cls(source, arrays.namespace(empty), arrays.device(empty), empty.dtype)

    def placed(self, xp: Namespace, device: Device, dtype: DType | None) -> Streamed:
        """The same rows as arrays of another namespace; floating numbers in the dtype, if there is one."""
        like = arrays.from_host(np.empty(0, dtype=self.source.dtype.newbyteorder("=")), xp, device)
        wanted = dtype if dtype is not None and arrays.is_floating(xp, like.dtype) else like.dtype
        return Streamed(self.source, xp, device, wanted, self._marks)

    def back_on_host(self) -> Streamed:
        """The same rows as NumPy arrays, of the dtype that they have elsewhere."""
        host, dtype = Streamed.on_host(self.source), np.dtype(self.dtype)  # type: ignore[call-overload]  # that of JAX
        return Streamed(self.source, host.xp, host.device, dtype, self._marks)

    # -----------------------------------------------------------------------------------------------------------------
    # What an array says of itself

    @property
    def n(self) -> int:
        return int(self.source.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.n, int(np.prod(self.source.shape[1:], dtype=np.int64))

    @property
    def ndim(self) -> int:
        return 2

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.source.dtype.itemsize

    def __len__(self) -> int:
        return self.n

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return self.xp

    # -----------------------------------------------------------------------------------------------------------------
    # Reading

    def read(self, start: int, stop: int) -> HostArray:
        """``(stop - start, P)`` on the host."""
        with self._reader():
            found = np.asarray(self.source.rows(start, stop))
        expected = (stop - start, *self.source.shape[1:])
        if found.shape != expected:
            raise self._changed(f"{found.shape[0]} rows in the place of rows {start} to {stop}")
        # In the byte order of the machine, whatever that of the file.
        flat = np.ascontiguousarray(found.reshape(stop - start, self.shape[1]), dtype=found.dtype.newbyteorder("="))
        if not self._marks.agree(self.n, slice(start, stop), flat):
            raise self._changed(f"other values in rows {start} to {stop}")
        return flat

    def _reader(self) -> AbstractContextManager[object]:
        return nullcontext() if self.source.concurrent else _reading

    def _changed(self, what: str) -> ValueError:
        return ValueError(
            f"X, a {self.source.kind}, gives {what} than when it was read before: it was changed, or its rows are "
            "random; measure a copy that stays as it is"
        )

    def strips(self) -> Iterator[tuple[range, HostArray]]:
        """All rows on the host, some at a time."""
        step = max(1, _STRIP // max(self.row_bytes, 1))
        for start in range(0, self.n, step):
            stop = min(start + step, self.n)
            yield range(start, stop), self.read(start, stop)

    def block(self, rows: range) -> Array:
        """``(b, P)``: a range of rows where they go, which must be what the columns held say they are."""
        found = self.read(rows.start, rows.stop)
        for j, (column, _) in list(self._held.items()):
            before, now = column[rows.start : rows.stop], found[:, j]
            if not np.array_equal(before, now) and not np.all((before == now) | ((before != before) & (now != now))):
                raise self._changed(f"other values in rows {rows.start} to {rows.stop}")
        return self._uploaded(found)

    def column(self, j: int) -> Array:
        """``(n,)``: one column, which is kept."""
        known = self._held.get(j)
        return self._keep((j,))[1] if known is None else known[1]

    def hold(self, columns: Sequence[int]) -> None:
        """Keep these columns and no others, read in one pass."""
        for j in set(self._held).difference(columns):
            self._held.pop(j, None)
        missing = [j for j in dict.fromkeys(columns) if j not in self._held]
        if missing:
            self._keep(missing)

    def _keep(self, columns: Sequence[int]) -> tuple[HostArray, Array]:
        """Read some columns; returned is the last, because another thread may let it go at once."""
        found = self._columns(columns)
        for place, j in enumerate(columns):
            own = np.ascontiguousarray(found[:, place])
            last = self._held[j] = own, self._uploaded(own)
        return last

    def _columns(self, columns: Sequence[int]) -> HostArray:
        """``(n, g)`` on the host, a column's numbers side by side."""
        with self._reader():
            known = self.source.columns(columns)
        if known is not None:
            return np.asfortranarray(known)
        found = np.empty((self.n, len(columns)), dtype=self.source.dtype.newbyteorder("="), order="F")
        for rows, strip in self.strips():
            found[rows.start : rows.stop] = strip[:, list(columns)]
        return found

    def at(self, ids: NDArray[np.int64]) -> HostArray:
        """``(m, P)`` on the host: some rows, in any order."""
        with self._reader():
            found = _gathered(self.source, ids).reshape(len(ids), self.shape[1])
        if not self._marks.agree(self.n, ids, found):
            raise self._changed("other values in some rows")
        return found

    def some(self, ids: NDArray[np.int64]) -> Streamed:
        """Some of the rows."""
        return replace(self, source=Some(self.source, ids), _marks=Marks(), _held={})

    def _uploaded(self, values: HostArray) -> Array:
        return arrays.from_host(np.ascontiguousarray(values), self.xp, self.device, self.dtype)

    def __getitem__(self, key: Operand) -> Array:
        given = key if isinstance(key, tuple) else (key,)
        rows, columns = ([one for one in given if one is not None] + [slice(None)])[:2]
        columns = slice(None) if columns is Ellipsis else columns
        every = isinstance(rows, slice) and range(self.n)[rows] == range(self.n)
        chosen = range(self.shape[1])[columns]
        # A few columns of all rows are not worth all columns of them; all of both are a block, if they are counted out.
        if every and (rows == slice(None) or isinstance(chosen, int) or len(chosen) < self.shape[1]):
            found = self._all_rows(chosen)
        else:
            found = self._uploaded(self._some_rows(rows)[:, columns])
        new_axes = tuple(one if one is None else slice(None) for one in given if not isinstance(one, int))
        return found[new_axes] if any(one is None for one in given) else found

    def _all_rows(self, chosen: range | int) -> Array:
        if isinstance(chosen, int):
            known = self._held.get(chosen)
            return self._uploaded(self._columns((chosen,))[:, 0]) if known is None else known[1]
        if len(chosen) == self.shape[1] > 1:
            self.refuse("what was asked for")
        if all(j in self._held for j in chosen):
            return self.xp.stack([self._held[j][1] for j in chosen], axis=1)
        return self._uploaded(self._columns(tuple(chosen)))

    def _some_rows(self, rows: Operand) -> HostArray:
        if not isinstance(rows, slice):
            return self.at(np.asarray(arrays.to_host(rows), dtype=np.int64).reshape(-1))
        start, stop, step = rows.indices(self.n)
        if step != 1:
            return self.at(np.arange(start, stop, step))
        return self.read(start, max(stop, start))

    # -----------------------------------------------------------------------------------------------------------------
    # What it is not

    def refuse(self, asks: str) -> NoReturn:
        """Say that all rows would be needed at once."""
        raise TypeError(
            f"{asks} needs all of X at once, and X is a {self.source.kind} of {self.n} rows, which is read in blocks: "
            f"pass {self.source.remedy} if memory holds it, or some of its rows"
        )

    def known(self) -> HostArray | None:
        """All rows, if they are where the host has them anyway, as it has memory maps."""
        found = self.source.whole() if arrays.backend(self.xp) == "numpy" else None
        return None if found is None else found.reshape(self.shape)

    def whole(self, asks: str) -> HostArray:
        """The same, or an error in words."""
        found = self.known()
        if found is None:
            self.refuse(asks)
        return found

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> HostArray:
        return np.asarray(self.whole("this method, or a part of it,"), dtype=dtype)


def _gathered(source: Source, ids: NDArray[np.int64]) -> HostArray:
    """Rows of a source in any order: neighbours are read together, and what lies between them is left out."""
    found = np.empty((len(ids), *source.shape[1:]), dtype=source.dtype.newbyteorder("="))
    together = max(1, min(_TOGETHER, _STRIP // max(found[:1].nbytes, 1)))
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    for near in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(ordered) > _GAP) + 1):
        while len(near):
            first = int(ordered[near[0]])
            part = near[: int(np.searchsorted(ordered[near], first + together))]
            last = int(ordered[part[-1]])
            found[order[part]] = source.rows(first, last + 1)[ordered[part] - first]
            near = near[len(part) :]
    return found
