"""Blocks of replaced rows as pure functions: of arrays or several inputs, with columns that may be traced.

Nothing here is written in place or made on the host if columns are known as numbers, so that ``jax.vmap`` over features
and ``torch.compile(fullgraph=True)`` go through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import device, namespace
from reliance._core.kinds import Array
from reliance._core.words import listed, shown

# Of an array: a position, several, or an array (a mask of booleans, or integers), which may be traced. Of several
# inputs a mapping from their names or places to these.
ColumnsOf: TypeAlias = int | Sequence[int] | Array
Columns: TypeAlias = ColumnsOf | Mapping[Any, ColumnsOf]
Inputs: TypeAlias = Array | Mapping[Any, Array] | tuple[Array, ...]
# More stretches of columns than these are put in by a mask.
_RUNS = 4


def first(X: Inputs) -> Array:
    """One array of several, which knows rows, namespace and device."""
    parts = list(X.values()) if isinstance(X, Mapping) else list(X) if isinstance(X, tuple) else [X]
    found: Array = parts[0]
    return found


def called(model: Callable[..., Array], X: Inputs) -> Array:
    """The model on an array, on several inputs in their order, or by their names."""
    if isinstance(X, Mapping):
        return model(**X)
    return model(*X) if isinstance(X, tuple) else model(X)


def lent_rows(X: Inputs, columns: Columns, donors: Array) -> Inputs:
    """``(n * d, ...)``: every row with some columns of each of its donors (n, d)."""
    if not isinstance(X, Mapping | tuple):
        return _lent(X, _one(columns), donors)
    keys = list(X) if isinstance(X, Mapping) else list(range(len(X)))
    if not isinstance(columns, Mapping) or not columns:
        raise ValueError(f"columns={shown(columns)}: X has several inputs, so pass a mapping, {{name: columns}}")
    strange = [key for key in columns if key not in keys]
    if strange:
        raise ValueError(f"columns names the input {shown(strange[0])}, but X has {listed(keys)}")
    parts: dict[Any, Array] = {}
    for key in keys:
        own: Array = X[key]
        parts[key] = _lent(own, columns[key], donors) if key in columns else _repeated(own, donors.shape[1])
    return parts if isinstance(X, Mapping) else tuple(parts.values())


def _one(columns: Columns) -> ColumnsOf:
    if isinstance(columns, Mapping):
        raise ValueError(f"columns={shown(columns)} is a mapping, and X is one array: pass positions of its columns")
    return columns


def _repeated(x: Array, d: int) -> Array:
    xp, n = namespace(x), x.shape[0]
    if d == 1:
        return x
    return xp.reshape(xp.broadcast_to(x[:, None, ...], (n, d, *x.shape[1:])), (n * d, *x.shape[1:]))


def _lent(x: Array, columns: ColumnsOf, donors: Array) -> Array:
    xp, n, d = namespace(x), x.shape[0], donors.shape[1]
    flat = x if x.ndim == 2 else xp.reshape(x, (n, -1))
    width = flat.shape[1]
    runs = None if is_operand(columns, flat) else _runs(positions(columns, width))
    index, block = xp.reshape(donors, (-1,)), _repeated(flat, d)
    if runs is None:
        block = xp.where(mask_of(columns, flat), arrays.cells(flat, index, slice(0, width)), block)
    else:
        for run in runs:
            block = arrays.with_columns(block, run, arrays.cells(flat, index, run))
    return block if x.ndim == 2 else xp.reshape(block, (n * d, *x.shape[1:]))


def _runs(chosen: list[int]) -> list[slice] | None:
    """Columns as stretches of them; None if there are too many."""
    found: list[slice] = []
    for column in sorted(chosen):
        if found and column == found[-1].stop:
            found[-1] = slice(found[-1].start, column + 1)
        else:
            found.append(slice(column, column + 1))
    return found if len(found) <= _RUNS else None


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def is_operand(columns: object, like: Array) -> bool:
    """Whether columns are an array of the namespace of X, whose values need not be known."""
    return arrays.is_array(columns) and namespace(columns) is namespace(like) and not isinstance(columns, np.ndarray)


def positions(columns: ColumnsOf, width: int) -> list[int]:
    """Distinct positions, as the caller gives them."""
    if isinstance(columns, np.ndarray) and columns.dtype == np.bool_:
        columns = np.flatnonzero(columns.reshape(-1)).tolist() if columns.size == width else ()
    chosen: list[Any] = [columns] if isinstance(columns, int | np.integer) else list(columns)
    whole = all(isinstance(c, int | np.integer) and not isinstance(c, bool) for c in chosen)
    if not whole or not chosen or len(set(chosen)) < len(chosen) or not all(0 <= c < width for c in chosen):
        raise ValueError(f"columns={shown(columns)}: give distinct positions in range({width})")
    return [int(c) for c in chosen]


def mask_of(columns: ColumnsOf, flat: Array) -> Array:
    """``(P,)``: which columns are borrowed."""
    xp, width = namespace(flat), flat.shape[1]
    if not is_operand(columns, flat):
        mask = np.zeros(width, dtype=bool)
        mask[positions(columns, width)] = True
        return arrays.from_host(mask, xp, device(flat))
    given: Any = columns
    if given.dtype == xp.bool:
        if given.size != width and tuple(given.shape) != (width,):
            raise ValueError(f"columns is a mask of shape {tuple(given.shape)}: a row has {width} entries")
        return xp.reshape(given, (-1,))
    if not xp.isdtype(given.dtype, "integral") or given.ndim > 1:
        raise ValueError(f"columns has dtype {given.dtype} and shape {tuple(given.shape)}: pass integers or a mask")
    every = xp.arange(width, dtype=given.dtype, device=device(flat))
    return xp.any(every[:, None] == xp.reshape(given, (1, -1)), axis=1)
