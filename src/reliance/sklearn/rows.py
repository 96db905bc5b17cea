"""Rows as scikit-learn's function takes them, as numbers for the engine: tables, arrays of numbers, text or objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.data import tables


@dataclass(frozen=True, eq=False)
class Rows:
    """``array (n, P)`` of numbers or codes, and the function that makes of such rows what the estimator takes."""

    given: object
    array: HostArray
    names: tuple[str, ...]
    decode: Callable[[HostArray], object]

    def take(self, rows: NDArray[np.int64] | None) -> Rows:
        """Some of the rows."""
        if rows is None:
            return self
        part = self.array[rows]
        return Rows(self.decode(part), part, self.names, self.decode)


def read_rows(X: object) -> Rows:
    """Checked as scikit-learn does: a table stays a table, anything else must be an array without infinities."""
    from sklearn.utils import check_array

    if tables.is_table(X):
        table = tables.read(X, "X")
        return Rows(X, table.array, table.names, table.decode)
    array = check_array(X, ensure_all_finite="allow-nan", dtype=None)
    names = tuple(f"x{j}" for j in range(array.shape[1]))
    if array.dtype.kind in "biuf":
        return Rows(array, array, names, lambda block: block)
    return _coded(array, names)


def _coded(array: HostArray, names: tuple[str, ...]) -> Rows:
    """Text and objects: codes for the engine, in the order in which the values appear."""
    levels, codes = [], np.empty(array.shape)
    for j in range(array.shape[1]):
        codes[:, j], first = tables.codes_of(array[:, j].tolist(), f"X[:, {j}]")
        levels.append(array[first, j])

    def decode(block: HostArray) -> HostArray:
        answer = np.empty(block.shape, dtype=array.dtype)
        for j, values in enumerate(levels):
            answer[:, j] = values[block[:, j].astype(np.int64)]
        return answer

    return Rows(array, codes, names, decode)
