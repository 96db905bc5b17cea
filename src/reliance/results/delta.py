"""Differences of two estimates that were measured on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Delta(Result):
    """The differences of two importances of each of p features, measured on the same rows.

    ``a - b`` of two results with ``keep="influence"``, `Importance.delta` of two features, or
    `RelativeImportance.delta` of two given sets. There, a non-zero difference between the set G and the larger set G
    with N says that the feature depends on N given G (Theorem 2 of König et al.). What moves both estimates cancels, so
    the interval is much shorter than two separate ones suggest.

    Attributes
    ----------
    names : tuple of str
        The features.
    values, std_error : arrays (p,)
    degrees_of_freedom : array (p,)
        If samplers were fitted on other rows, their number counts, too.
    skewness : array (p,)
        Of the estimate; 0 if it is not known.
    what : str
        What is subtracted from what.
    """

    names: tuple[str, ...]
    values: Floats
    std_error: Floats
    degrees_of_freedom: Floats
    skewness: Floats | None = None
    what: str = "importance given the first set, less that given the second"

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        **{name: files.floats("p") for name in ("values", "std_error", "degrees_of_freedom", "skewness")},
        "what": files.text(),
    }

    def __post_init__(self) -> None:
        gamma = 0.0 if self.skewness is None else self.skewness
        object.__setattr__(self, "skewness", np.broadcast_to(np.asarray(gamma), len(self.names)))
        super().__post_init__()

    def _sizes(self) -> Floats:
        return np.abs(self.values)

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(p, 2)``."""
        df, gamma = self.degrees_of_freedom, self.skewness
        return inference.interval(self.values, self.std_error, df, level, gamma=gamma)

    def test(self, alternative: str = "two-sided", adjust: str = "holm") -> TestResult:
        """The t tests of no difference."""
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        statistic, p = inference.t_test(self.values, self.std_error, self.degrees_of_freedom, alternative, False)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar", the differences with intervals (``level=``, ``most=``), with matplotlib; returns the Axes."""
        return plots.draw(plots.DELTA, kind, self, ax, options)

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per feature; ``p`` is Holm-adjusted."""
        low, high = inference.known_interval(self, level).T
        columns = {"value": self.values, "lower": low, "upper": high, "std_error": self.std_error}
        return export.frame(self.names, {**columns, "p": self.test().p_adjusted})

    def _table(self) -> export.Table:
        low, high = inference.known_interval(self, 0.95).T
        columns = {"difference": self.values, "lower 95%": low, "upper 95%": high, "p (Holm)": self.test().p_adjusted}
        title, forms = f"Delta: {self.what}", ("#.4g", "#.4g", "#.4g", ".2g")
        return export.by_feature(title, self.names, columns, np.abs(self.values), forms=forms)
