"""What the check of extrapolation returns: how far replaced rows lie from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import plots
from reliance.results import export, files
from reliance.results.base import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Extrapolation(Result):
    """How far rows lie from the data once one of p features is another row's.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        "neighbours": mean distance of replaced rows to the nearest row, over that of the rows themselves. "classifier":
        area under the ROC curve of a classifier that tells replaced rows from real ones, cross-validated.
    outside : array (p,) or None
        "neighbours": the share of replaced rows that are farther off than 95% of the rows.
    method : {"neighbours", "classifier"}
    limit : float
        Features with a larger value are warned about.
    n, rows : int
        Rows of the data, and how many of them were replaced.
    key : int
        Of the random numbers.
    """

    names: tuple[str, ...]
    values: Floats
    outside: Floats | None
    method: str
    limit: float
    n: int
    rows: int
    key: int

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        "values": files.floats("p"),
        "outside": files.floats("p", optional=True),
        "method": files.text("neighbours", "classifier"),
        "limit": files.Kept("number"),
        "n": files.Kept("count"),
        "rows": files.Kept("count"),
        "key": files.Kept("key"),
    }

    @property
    def beyond(self) -> tuple[str, ...]:
        """The features above the limit."""
        return tuple(name for name, value in zip(self.names, self.values, strict=True) if value > self.limit)

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature."""
        return export.frame(self.names, {**self._columns(), "beyond": self.values > self.limit})

    def _columns(self) -> dict[str, Floats]:
        if self.outside is None:
            return {"auc": self.values}
        return {"distance_ratio": self.values, "outside": self.outside}

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar" with matplotlib, a line at the limit (``most=`` features at most); returns the Axes."""
        return plots.draw(plots.EXTRAPOLATION, kind, self, ax, options)

    def _table(self) -> export.Table:
        title = f"extrapolation_check: {self.method}, {self.rows} of {self.n} rows, limit {self.limit:g}"
        return export.by_feature(title, self.names, self._columns(), self.values)
