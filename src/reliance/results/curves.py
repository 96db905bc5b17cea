"""Partial dependence at the values that occur, and the curves of single rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance.results import files
from reliance.results.records import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve(Record):
    """The mean prediction for each value of a feature, at the m distinct values that occur in the data.

    Attributes
    ----------
    values : array (m,), or (m, g) for a group of g columns
        Sorted, groups by their first column, then by the second, and so on.
    mean : array (m, ...)
        Partial dependence: the (weighted) mean over all rows of the prediction with the feature at the value.
    ice : array (n, m, ...) or None
        Individual conditional expectation: the same for each row, with ``keep="ice"``.
    labels : tuple of m str, or None
        Where the values are codes of text, categories or dates of a table: what they stand for.
    """

    values: Floats
    mean: Floats
    ice: Floats | None = None
    labels: tuple[str, ...] | None = None

    # Values have one or two axes, outputs any number: `_fault` compares them.
    _kept: ClassVar[files.Fields] = {
        "values": files.floats(),
        "mean": files.floats(),
        "ice": files.floats(optional=True),
        "labels": files.Kept("names", optional=True),
    }

    def _fault(self) -> str:
        fits = self.values.ndim in (1, 2) and self.mean.shape[:1] == self.values.shape[:1]
        fits = fits and (self.labels is None or len(self.labels) == len(self.values))
        return "" if fits else "the parts of its curves do not fit each other"
