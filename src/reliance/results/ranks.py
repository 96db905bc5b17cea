"""Which ranks each feature may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance.results import export, files
from reliance.results.base import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Ranks(Result):
    """Confidence sets for the ranks of p features, 1 being the most important; all hold together.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        Their importance.
    first, last : integer arrays (p,)
        The best and the worst rank that each may have: one behind the features that are surely more important, one
        before those that surely are less.
    above : array (p, p) of bool
        Whether one feature is surely more important than another.
    level : float
        With which probability all of it is true.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    first: Counts
    last: Counts
    above: NDArray[np.bool_]
    level: float

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        "values": files.floats("p"),
        "first": files.counts("p"),
        "last": files.counts("p"),
        "above": files.Kept("flags", ("q", "q")),
        "level": files.Kept("number"),
    }

    def _fault(self) -> str:
        return "" if self.above.shape[0] == len(self.names) else "its pairs do not fit its features"

    def _taken(self, order: NDArray[np.intp]) -> Ranks:
        names = tuple(self.names[k] for k in order)
        first, last, above = self.first[order], self.last[order], self.above[np.ix_(order, order)]
        return Ranks(names, self.values[order], first, last, above, self.level)

    def interval(self, level: float | None = None) -> NDArray[np.float64]:
        """``(p, 2)``: the best and the worst rank. They were found at one level, and have no other."""
        if level is not None:
            inference.check_level(level)
            if level != self.level:
                raise ValueError(f"level={level}: these ranks hold at {self.level}. Ask the result for ranks({level})")
        return np.stack([self.first, self.last], axis=1).astype(np.float64)

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature."""
        return export.frame(self.names, {"value": self.values, "first": self.first, "last": self.last})

    def plot(self, kind: str = "range", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "range", the ranks that each feature may have (``most=``), with matplotlib; returns the Axes."""
        return plots.draw(plots.RANKS, kind, self, ax, options)

    def _table(self) -> export.Table:
        ordered = self.ranked()
        title = f"Ranks of {len(self.names)} features, all right with probability {self.level:g}"
        columns = {"value": ordered.values, "first": ordered.first, "last": ordered.last}
        return export.by_feature(title, ordered.names, columns, ordered.values, forms=("#.4g", ".0f", ".0f"))
