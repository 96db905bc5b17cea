"""Parts of a row by what NumPy would index them with: slices along its axes, and masks of booleans."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reliance._core.arrays import is_array, to_host
from reliance._core.streams import Indices
from reliance._core.words import shown


def is_slicing(spec: object) -> bool:
    """Whether it cuts a row along its axes: a slice, or a tuple with one. A tuple of numbers alone is a group."""
    entries = spec if isinstance(spec, tuple) else (spec,)
    return any(isinstance(entry, slice) or entry is Ellipsis for entry in entries)


def is_mask(spec: object) -> bool:
    """Whether it is an array of booleans."""
    return is_array(spec) and str(spec.dtype).rsplit(".", 1)[-1] == "bool"


def grid(shape: tuple[int, ...]) -> Indices:
    """The position of each entry of a row among all of them: ``(0, 1, 2, ...)`` in the shape of the row."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def positions(where: object, entries: Indices, what: str) -> Indices:
    """The positions that a slicing, an index of the first axis, or a mask of booleans chooses, in increasing order.

    ``entries`` is the `grid` of a row; ``what`` names the group in messages.
    """
    if is_array(where):
        chosen = to_host(where)
        if chosen.dtype != np.bool_ or chosen.shape != entries.shape:
            raise ValueError(
                f"{what} is a mask of dtype {chosen.dtype} and shape {chosen.shape}: pass booleans of the shape "
                f"{entries.shape} of a row"
            )
        found = np.flatnonzero(chosen)
    else:
        try:
            found = np.unique(entries[where])  # type: ignore[call-overload]  # NumPy says what does not fit
        except (IndexError, TypeError, ValueError):
            raise ValueError(
                f"{what}: {shown(where)} does not fit a row of the shape {entries.shape}: slice its axes, as in "
                "np.s_[0, 2:5]"
            ) from None
    if found.size == 0:
        raise ValueError(f"{what}: {shown(where)} chooses nothing of a row of the shape {entries.shape}")
    return np.asarray(found, dtype=np.int64)


def written(where: object) -> str:
    """A slicing as one would write it: ``0,2:5``."""
    entries: Sequence[object] = where if isinstance(where, tuple) else (where,)
    return ",".join(_written_entry(entry) for entry in entries)


def _written_entry(entry: object) -> str:
    if entry is Ellipsis:
        return "..."
    if not isinstance(entry, slice):
        return shown(entry)
    ends = [entry.start, entry.stop] if entry.step is None else [entry.start, entry.stop, entry.step]
    return ":".join("" if end is None else str(end) for end in ends)
