"""Tables outside of memory: files and folders of parquet, datasets of pyarrow, lazy tables of polars."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.words import listed, shown
from reliance.data import tables
from reliance.data.disk_libraries import ArrowDataset, Fragment, Frames, LazyFrame
from reliance.data.stored_arrays import PIECE, Pieces


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of numbers of a table on disk: a file or folder of parquet, a dataset of pyarrow, a LazyFrame of polars.

    ``frames.piece(k, names)`` reads some columns of a piece.
    """

    kind: str
    remedy: str
    names: tuple[str, ...]
    dtype: np.dtype[np.generic]
    frames: Frames
    pieces: Pieces

    @classmethod
    def of(cls, kind: str, remedy: str, names: Sequence[str], frames: Frames) -> Columns:
        chosen, lengths = tuple(names), list(frames.lengths)
        if not chosen or not sum(lengths):
            raise ValueError(f"X is a {kind} of {sum(lengths)} rows and {len(chosen)} columns: there is no row to read")
        first = next(k for k, length in enumerate(lengths) if length)

        def made(k: int) -> HostArray:
            # Some columns at a time: to decode all of a large row group takes several times its size.
            step = max(1, PIECE // (16 * max(lengths[k], 1)))
            parts = [_numbers(frames.piece(k, chosen[j : j + step])) for j in range(0, len(chosen), step)]
            return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

        pieces = Pieces.of_lengths(lengths, made)
        return cls(kind, remedy, chosen, pieces.piece(first).dtype, frames, pieces)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pieces.n, len(self.names)

    @property
    def held_bytes(self) -> int:
        # The piece, and its columns before they stand side by side.
        return 2 * self.pieces.longest * len(self.names) * self.dtype.itemsize

    @property
    def concurrent(self) -> bool:
        return True

    def rows(self, start: int, stop: int) -> HostArray:
        return self.pieces.rows(start, stop)

    def columns(self, columns: Sequence[int]) -> HostArray | None:
        chosen = [self.names[j] for j in columns]
        found = np.empty((self.shape[0], len(chosen)), dtype=self.dtype, order="F")
        for k, (start, stop) in enumerate(zip(self.pieces.edges[:-1], self.pieces.edges[1:], strict=True)):
            found[start:stop] = _numbers(self.frames.piece(k, chosen))
        return found

    def whole(self) -> HostArray | None:
        return None

    def without(self, names: Sequence[str]) -> Columns:
        left = [name for name in self.names if name not in names]
        return Columns.of(self.kind, self.remedy, left, self.frames)

    def column(self, name: str, argument: str) -> HostArray:
        """Labels or weights that stand in the same file."""
        if name not in self.names:
            raise ValueError(f"{argument}={shown(name)} is no column of X, which has {listed(self.names, 8)}")
        pieces = range(len(self.pieces.edges) - 1)
        return np.concatenate([tables.as_column(self.frames.piece(k, [name]), argument) for k in pieces])


def _numbers(frame: object) -> HostArray:
    table = tables.read(frame, "X")
    tables.check_numbers(table, range(len(table.names)), "X")
    return table.array


@dataclass(frozen=True, eq=False)
class _Fragments:
    """Row groups of parquet files, or whole files of other formats."""

    dataset: ArrowDataset
    fragments: Sequence[Fragment]
    lengths: Sequence[int]

    @classmethod
    def of(cls, dataset: ArrowDataset) -> _Fragments:
        found: list[tuple[Fragment, int]] = []
        for one in dataset.get_fragments():
            if hasattr(one, "split_by_row_group"):
                found += [(part, sum(group.num_rows for group in part.row_groups)) for part in one.split_by_row_group()]
            else:
                found.append((one, int(one.count_rows())))
        return cls(dataset, [part for part, _ in found], [rows for _, rows in found])

    def piece(self, k: int, names: Sequence[str]) -> object:
        import pyarrow

        pyarrow.default_memory_pool().release_unused()  # what was read before is numbers by now
        found = self.fragments[k].to_table(schema=self.dataset.schema, columns=list(names))
        if len(found) != self.lengths[k]:
            raise ValueError(f"X: a file had {self.lengths[k]} rows and now has {len(found)}: it was changed")
        return found


def arrow_dataset(x: object) -> Columns | None:
    """A dataset of pyarrow, or the path of a file or folder of parquet."""
    if isinstance(x, str | Path):
        x = _opened_path(Path(x))
    module = sys.modules.get("pyarrow.dataset")
    if module is None or not isinstance(x, module.Dataset):
        return None
    return Columns.of("dataset of files", "X.to_table()", x.schema.names, _Fragments.of(x))


def _opened_path(path: Path) -> object:
    if not path.exists():
        raise ValueError(f"X={shown(str(path))}: there is no such file or folder; pass rows, or where they are")
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError("X is a path: install reliance[disk], which reads parquet, or pass an array") from error
    try:
        return pyarrow.dataset.dataset(path, format="parquet")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"X={shown(str(path))} cannot be read as parquet: open it with its own library (np.load with "
            "mmap_mode='r', zarr, h5py, pyarrow.dataset) and pass what that gives"
        ) from error


@dataclass(frozen=True, eq=False)
class _Lazy:
    """A lazy table of polars, made some rows at a time."""

    frame: LazyFrame
    step: int
    lengths: Sequence[int]

    def piece(self, k: int, names: Sequence[str]) -> object:
        found = self.frame.slice(k * self.step, self.lengths[k]).select(list(names)).collect()
        if len(found) != self.lengths[k]:
            raise ValueError("X, a LazyFrame, has fewer rows than at first: what it reads was changed")
        return found

    def __reduce__(self) -> NoReturn:
        # The threads of polars do not survive a fork: a worker would wait for them for ever.
        raise TypeError("a LazyFrame stays in its process: write it to parquet, and pass the path")


def lazy_frame(x: object) -> Columns | None:
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(x, polars.LazyFrame):
        return None
    names, n = x.collect_schema().names(), int(x.select(polars.len()).collect().item())
    step = max(1, PIECE // (8 * max(len(names), 1)))
    lengths = [min(step, n - start) for start in range(0, n, step)]
    return Columns.of("LazyFrame", "X.collect()", names, _Lazy(x, step, lengths))
