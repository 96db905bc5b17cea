"""Rows that are read in blocks: the list of what they may come as, and their labels and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.data import sparse_rows, stored_arrays, stored_tables
from reliance.data.checked_arrays import as_array
from reliance.data.sparse_rows import Sparse, SparseBlock
from reliance.data.stored_arrays import Items
from reliance.data.stored_tables import Columns
from reliance.data.streamed import Some, Source, Streamed

# Asked in this order; each returns None for what is not its own.
SOURCES: list[Callable[[object], Source | None]] = [
    stored_arrays.mapped,
    stored_arrays.zarr_array,
    stored_arrays.hdf5_dataset,
    stored_arrays.dask_array,
    sparse_rows.sparse_rows,
    stored_arrays.torch_dataset,
    stored_tables.arrow_dataset,
    stored_tables.lazy_frame,
]


def opened(x: object) -> Source | None:
    """Rows that are read in blocks; None of arrays and tables, which are in memory."""
    return next((found for found in (one(x) for one in SOURCES) if found is not None), None)


def check_inputs(X: object) -> None:
    """Several inputs are in memory: refuse those that are read in blocks, by their names."""
    parts = X.items() if isinstance(X, Mapping) else enumerate(X) if isinstance(X, tuple) else ()
    stored: list[tuple[object, Source]] = []
    for name, part in parts:
        source = None if isinstance(part, str | np.ndarray) else opened(part)
        if source is None and not arrays.is_array(part):
            return  # no inputs of a model: others say what is wrong
        stored += [] if source is None else [(name, source)]
    if stored:
        name, source = stored[0]
        own = f"X[{shown(name)}]"
        raise TypeError(
            f"{own} is a {source.kind}, which is read in blocks, and several inputs must be in memory: pass "
            f"{source.remedy.replace('X', own)} in its place, or one stored array as X"
        )


def as_they_came(rows: Streamed) -> Callable[[HostArray | SparseBlock], object] | None:
    """What makes blocks, or numbers (m, P), into what a model takes in the place of NumPy arrays, if it is another."""
    source = rows.source
    while isinstance(source, Some):
        source = source.source
    return source.again if isinstance(source, Sparse) and arrays.backend(rows.xp) == "numpy" else None


def numbers(rows: Streamed) -> Iterator[HostArray]:
    """All numbers, some at a time; of sparse rows those that are not 0."""
    sparse = sparse_rows.held(rows)
    yield from (strip for _, strip in rows.strips()) if sparse is None else (sparse.data,)


def streamed(source: Source) -> Streamed:
    """The rows of a source as NumPy arrays, or as the tensors that they are."""
    found = Streamed.on_host(source)
    if not isinstance(source, Items) or source.example is None:
        return found
    example = source.example
    return found.placed(arrays.namespace(example), arrays.device(example), example.dtype)


def companions(source: Source, y: object, weights: object) -> tuple[Source, object, object]:
    """The source without the columns that are labels or weights, and these, wherever they stand."""
    if isinstance(source, Items) and y is None:
        return source, source.labels(), weights
    named = {name: given for name, given in (("y", y), ("weights", weights)) if isinstance(given, str)}
    if not named:
        return source, y, weights
    if not isinstance(source, Columns):
        argument, given = next(iter(named.items()))
        raise TypeError(f"{argument}={shown(given)}, but a {source.kind} has no named columns: pass an array")
    found = {argument: source.column(name, argument) for argument, name in named.items()}
    rest = source.without(list(named.values()))
    return rest, found.get("y", y), found.get("weights", weights)


def beside(given: object, name: str, rows: Streamed) -> Array | None:
    """Labels or weights where the rows go, wherever they are: they are small, and stored ones are read at once."""
    if given is None:
        return None
    source = None if isinstance(given, str | np.ndarray) else opened(given)
    values = as_array(given if source is None else source.rows(0, source.shape[0]), name)
    if arrays.namespace(values) is rows.xp and arrays.device(values) == rows.device:
        return values
    return arrays.from_host(arrays.to_host(values), rows.xp, rows.device)
