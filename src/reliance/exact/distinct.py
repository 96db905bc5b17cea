"""Donors with equal values are one donor: n m evaluations for a feature with m distinct values."""

from __future__ import annotations

import numpy as np

from reliance._core import arrays
from reliance._core.streams import as_indices
from reliance.data.features import Feature
from reliance.engine.inputs import Problem
from reliance.plans import Classes


def distinct_values(problem: Problem, feature: Feature) -> Classes | None:
    """The classes of rows whose feature is equal, bit for bit; None if no two rows are.

    Bits, not values: 0.0 and -0.0 differ to a model that divides, and one NaN is like another.
    """
    columns = [arrays.to_host(problem.flat[:, column]) for column in feature.columns]
    values = np.ascontiguousarray(np.stack(columns, axis=1))
    rows = values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).reshape(-1)
    if len(feature.columns) == 1 and values.dtype.itemsize in (1, 2, 4, 8):
        rows = rows.view(f"u{values.dtype.itemsize}")  # integers sort several times faster than bytes
    _, speaker, label = np.unique(rows, return_index=True, return_inverse=True)
    if len(speaker) == problem.n:
        return None
    return Classes(as_indices(label).reshape(-1), as_indices(speaker))
