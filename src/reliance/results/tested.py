"""What a test returns: statistics and p-values of features."""

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
class TestResult(Result):
    """Tests of p features against no importance (a difference of 0, a ratio of 1)."""

    names: tuple[str, ...]
    statistic: Floats
    p_value: Floats
    p_adjusted: Floats
    method: str
    alternative: str
    adjust: str

    __test__ = False  # no test of pytest's
    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        **{name: files.floats("p") for name in ("statistic", "p_value", "p_adjusted")},
        **{name: files.text() for name in ("method", "alternative", "adjust")},
    }

    def _sizes(self) -> Floats:
        return -self.p_value

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature."""
        columns = {"statistic": self.statistic, "p": self.p_value, "p_adjusted": self.p_adjusted}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar", the adjusted p-values, smallest on top (``alpha=`` a line, ``most=``); returns the Axes."""
        return plots.draw(plots.TESTS, kind, self, ax, options)

    def _table(self) -> export.Table:
        title = f"{self.method} test, alternative {self.alternative}, adjusted: {self.adjust}"
        columns = {"statistic": self.statistic, "p": self.p_value, "p adjusted": self.p_adjusted}
        return export.by_feature(title, self.names, columns, self.statistic, forms=("#.4g", ".2g", ".2g"))
