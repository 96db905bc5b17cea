"""What interaction importance returns: for pairs of features, how far their joint importance is from the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
_BY_PAIR = ("values", "joint", "first", "second", "std_error", "skewness", "degrees_of_freedom")


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Result):
    """For m pairs of features the importance of both together, less that of each.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Names of the features.
    values : array (m,)
        I(jk) - I(j) - I(k).
    joint, first, second : arrays (m,)
        I(jk), I(j) and I(k): increases of the risk.
    std_error, skewness : arrays (m,)
        Of the values, over new data; the three importances are paired row by row.
    degrees_of_freedom : array (m,)
        Of the t quantile: on how many rows the error rests, less one.
    base_risk : float
    n, draws_per_row : int
    loss : str
    evaluations : int
        Of the whole run.
    key : int
        Of the random numbers.
    """

    pairs: tuple[tuple[str, str], ...]
    values: Floats
    joint: Floats
    first: Floats
    second: Floats
    std_error: Floats
    skewness: Floats
    degrees_of_freedom: Floats
    base_risk: float
    n: int
    draws_per_row: int
    loss: str
    evaluations: int
    key: int

    _kept: ClassVar[files.Fields] = {
        "pairs": files.Kept("pairs", ("p",)),
        **{name: files.floats("p") for name in _BY_PAIR},
        "base_risk": files.Kept("number"),
        "n": files.Kept("count"),
        "draws_per_row": files.Kept("count"),
        "loss": files.text(),
        "evaluations": files.Kept("count"),
        "key": files.Kept("key"),
    }

    def _sizes(self) -> Floats:
        return np.abs(self.values)

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(m, 2)`` over new data."""
        self._check()
        return inference.interval(self.values, self.std_error, self.degrees_of_freedom, level, gamma=self.skewness)

    def test(self, alternative: str = "two-sided", adjust: str = "holm") -> TestResult:
        """The t tests of no interaction."""
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        self._check()
        statistic, p = inference.t_test(self.values, self.std_error, self.degrees_of_freedom, alternative, False)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def _check(self) -> None:
        if np.isnan(self.std_error).all():
            raise ValueError(
                f"loss={shown(self.loss)} says nothing about single rows, or too few of them tell it: interactions "
                "have no error; measure more rows, or give the metric its influence, rl.Metric(value, influence)"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each pair."""
        return tuple(f"{one} × {other}" for one, other in self.pairs)

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per pair."""
        bounds = inference.known_interval(self, level)
        columns: dict[str, object] = {"value": self.values, "lower": bounds[:, 0], "upper": bounds[:, 1]}
        columns |= {name: getattr(self, name) for name in ("std_error", "joint", "first", "second")}
        return export.frame(self.names, columns, "pair")

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar", the largest of either sign with intervals (``level=``, ``most=``); returns the Axes."""
        return plots.draw(plots.INTERACTIONS, kind, self, ax, options)

    def _table(self) -> export.Table:
        bounds = inference.known_interval(self, 0.95)
        columns = {"interaction": self.values, "lower 95%": bounds[:, 0], "upper 95%": bounds[:, 1]}
        columns |= {"joint": self.joint, "first": self.first, "second": self.second}
        title = (
            f"interaction_importance: {export.short(self.loss)}, n = {self.n}, {self.draws_per_row} draws per row, "
            f"base risk {self.base_risk:.4g}"
        )
        return export.by_feature(title, self.names, columns, np.abs(self.values), "pair")
