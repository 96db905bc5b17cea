"""What a comparison of splits returns: importances on training and on test data, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.importance import Importance
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SplitComparison(Result):
    """Importances of one model on its training data and on test data.

    Attributes
    ----------
    on_train, on_test : Importance
        Both, with their own intervals and tests.
    names : tuple of str
        The features.
    values : array (p,)
        Training minus test importance.
    std_error, degrees_of_freedom : arrays (p,)
        Of the difference: the rows of the two sets are independent (Welch).
    """

    on_train: Importance
    on_test: Importance
    names: tuple[str, ...]
    values: Floats
    std_error: Floats
    degrees_of_freedom: Floats

    _kept: ClassVar[files.Fields] = {
        "on_train": files.record("Importance"),
        "on_test": files.record("Importance"),
        "names": files.names("p"),
        **{name: files.floats("p") for name in ("values", "std_error", "degrees_of_freedom")},
    }

    def _fault(self) -> str:
        return "" if self.on_train.names == self.on_test.names == self.names else "its parts have different features"

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(p, 2)`` of the differences."""
        inference.t_quantile(level, 1)  # a wrong level is an error, also where nothing is known
        self._check()
        quantile = np.asarray([inference.t_quantile(level, df) for df in self.degrees_of_freedom])
        return np.stack([self.values - quantile * self.std_error, self.values + quantile * self.std_error], axis=1)

    def test(self, alternative: str = "greater", adjust: str = "holm") -> TestResult:
        """The t tests of no difference; "greater": more important on the training data."""
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        self._check()
        found = [
            inference.t_test(self.values[k : k + 1], self.std_error[k : k + 1], float(df), alternative, False)
            for k, df in enumerate(self.degrees_of_freedom)
        ]
        statistic, p = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def _check(self) -> None:
        if np.isnan(self.std_error).all():
            raise ValueError(
                f"loss={shown(self.on_train.loss)} says nothing about single rows, so the difference has no error: "
                "give the metric its influence function, rl.Metric(value, influence)"
            )

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per feature: both importances and the difference, with intervals where known."""
        columns: dict[str, object] = {}
        for name, result in (("train", self.on_train), ("test", self.on_test), ("difference", self)):
            lower, upper = inference.known_interval(result, level).T
            columns |= {name: result.values, f"{name}_lower": lower, f"{name}_upper": upper}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "box", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"box", "violin", "bar"}
            The two distributions of importances over the features, side by side; or for each feature two bars with
            intervals (``level=``, ``most=``).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.SPLITS, kind, self, ax, options)

    def _table(self) -> export.Table:
        risks = f"base risk {self.on_train.base_risk:.4g} and {self.on_test.base_risk:.4g}"
        what = f"compare_splits: {self.on_train.compare} of {export.short(self.on_train.loss)}"
        title = f"{what}, n = {self.on_train.n} and {self.on_test.n}, {risks}"
        bounds = inference.known_interval(self, 0.95)
        columns = {"train": self.on_train.values, "test": self.on_test.values, "difference": self.values}
        columns |= {"lower 95%": bounds[:, 0], "upper 95%": bounds[:, 1]}
        return export.by_feature(title, self.names, columns, self.values)
