"""What linear importance returns: coefficients, as given and on two scales."""

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
_BY_FEATURE = ("coefficients", "by_range", "by_deviation")


@dataclass(frozen=True, eq=False, repr=False)
class LinearImportance(Result):
    """Coefficients of a linear model, as given and on two scales.

    Attributes
    ----------
    names : tuple of str
        The features.
    coefficients : array (p,)
        On the features as they are.
    by_range : array (p,)
        On features scaled to [0, 1]: times maximum minus minimum.
    by_deviation : array (p,)
        On standardised features: times the standard deviation (n in its denominator, as scikit-learn scales).
    scale : {"range", "deviation"}
        Which of the two ``values`` are the sizes of.
    n : int
        Rows that the scales are from.
    """

    names: tuple[str, ...]
    coefficients: Floats
    by_range: Floats
    by_deviation: Floats
    scale: str
    n: int

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        **{name: files.floats("p") for name in _BY_FEATURE},
        "scale": files.text("range", "deviation"),
        "n": files.Kept("count"),
    }

    @property
    def values(self) -> Floats:
        """(p,): the sizes of the scaled coefficients."""
        return np.abs(self.by_range if self.scale == "range" else self.by_deviation)

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature."""
        return export.frame(self.names, {"value": self.values, **{name: getattr(self, name) for name in _BY_FEATURE}})

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar", the coefficients on their scale, signed (``most=``), with matplotlib; returns the Axes."""
        return plots.draw(plots.LINEAR, kind, self, ax, options)

    def _table(self) -> export.Table:
        columns = {"value": self.values, "coefficient": self.coefficients}
        columns |= {"on [0, 1]": self.by_range, "standardised": self.by_deviation}
        title = f"linear_importance: coefficients scaled by the {self.scale} of {self.n} rows"
        return export.by_feature(title, self.names, columns, self.values)
