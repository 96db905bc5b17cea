"""Which values of a column a tree ensemble can tell apart.

A split asks one question of one column, so a column falls into cells between the splits' thresholds (and one for
missing values; one for each value of a categorical column). Rows of one cell are one donor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices, as_indices
from reliance.models.ensembles import Ensemble
from reliance.plans import Classes
from reliance.plans.orderings import by_values

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells that hold rows, of a column or of several columns together.

    Attributes
    ----------
    columns : tuple of int
    label : integer array (n,)
        The cell of each row, 0..m-1. Cells of one column are in increasing order, missing values last.
    value : array (m, columns)
        Values in each cell.
    plan : Classes
        All pairs, with the cells as classes of donors.
    """

    columns: tuple[int, ...]
    label: Indices
    value: Floats
    plan: Classes

    @property
    def number(self) -> int:
        return len(self.value)

    @cached_property
    def counts(self) -> Floats:
        """How many rows each cell has."""
        return self.plan.size


def column_cells(ensemble: Ensemble, column: int, values: Floats) -> Cells:
    """The cells of a column that the ensemble splits on."""
    nodes = np.flatnonzero(ensemble.feature == column)
    if (ensemble.category[nodes] >= 0).any():
        code = _told_apart(ensemble, nodes, values)
    else:
        thresholds = np.unique(ensemble.threshold[nodes])
        with np.errstate(over="ignore"):  # beyond float32 is infinite there, too
            rounded = values.astype(ensemble.compared_in).astype(np.float64)
        code = np.searchsorted(thresholds, rounded, side="left")
        code[np.isnan(values)] = len(thresholds) + 1
    label, speaker = _occupied(as_indices(code))
    return Cells((column,), label, values[speaker, None], Classes(label, speaker))


def _told_apart(ensemble: Ensemble, nodes: Indices, values: Floats) -> Indices:
    """Codes of a column's values: the same for values that go the same way at every split on it."""
    distinct, place = np.unique(values, return_inverse=True)  # one NaN is like another
    ways = np.packbits(ensemble.decide(nodes, distinct), axis=0).T
    first, code = np.unique(ways, axis=0, return_index=True, return_inverse=True)[1:]
    # In the order of their least values, which is that of neighbours where the values are in order.
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return as_indices(rank[code.reshape(-1)][place])


def joint_cells(parts: list[Cells]) -> Cells:
    """The cells of several columns together, in the order of one, then of the next; those with the fewest cells first.

    So what a split on the last column tells apart are long runs.
    """
    parts = sorted(parts, key=lambda cells: cells.number)
    code = parts[0].label
    for cells in parts[1:]:
        _, code = np.unique(code * cells.number + cells.label, return_inverse=True)
    label, speaker = _occupied(as_indices(code))
    value = np.concatenate([cells.value[cells.label[speaker]] for cells in parts], axis=1)
    columns = tuple(column for cells in parts for column in cells.columns)
    return Cells(columns, label, value, Classes(label, speaker))


def neighbouring(cells: Cells) -> Cells:
    """The same cells in an order in which neighbours are alike in all columns: what splits tell apart are few runs."""
    order = by_values(cells.value, np.arange(cells.number))
    place = np.empty_like(order)
    place[order] = np.arange(cells.number)
    label = as_indices(place[cells.label])
    return Cells(cells.columns, label, cells.value[order], Classes(label, cells.plan.speaker[order]))


def _occupied(code: Indices) -> tuple[Indices, Indices]:
    """Codes without gaps, and a row of each."""
    number = np.cumsum(np.bincount(code) > 0) - 1
    label = as_indices(number[code])
    speaker = np.empty(int(number[-1]) + 1, dtype=np.int64)
    speaker[label] = np.arange(len(label))
    return label, speaker
