"""What feature impact returns: impacts for each quantile and averaged, tables, files and a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance import plots
from reliance.results import export, files
from reliance.results.base import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
_KEPT = {
    "names": files.names("p"),
    "quantiles": files.floats("Q"),
    "impact": files.floats("Q", "p"),
    "values": files.floats("p"),
    "points": files.floats("Q", "p"),
    "normalized": files.Kept("flag"),
    "n": files.Kept("count"),
    "evaluations": files.counts("p"),
    "routes": files.names("p"),
    "block": files.Kept("sizes"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Impact(Result):
    """How far predictions spread, in units of the feature, when each of p features is held at Q quantiles.

    Attributes
    ----------
    names : tuple of str
        The features.
    quantiles : array (Q,)
        Probabilities.
    impact : array (Q, p)
        I_{k,q} for each quantile and feature.
    values : array (p,)
        I_k: averaged over the quantiles, divided by their sum if ``normalized``.
    points : array (Q, p)
        The values that features were held at: those in the data that are nearest to the quantiles.
    normalized : bool
    n : int
        Rows.
    evaluations, routes : array (p,), tuple of str
        Entries of the table of predictions that each feature took, and how it was measured.
    block : tuple of int
        Shape of a block.
    """

    names: tuple[str, ...]
    quantiles: Floats
    impact: Floats
    values: Floats
    points: Floats
    normalized: bool
    n: int
    evaluations: NDArray[np.int64]
    routes: tuple[str, ...]
    block: tuple[int, ...]

    _kept = _KEPT

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature: its value, and its impact at each quantile."""
        columns: dict[str, object] = {"value": self.values}
        columns |= {f"q{q:g}": line for q, line in zip(self.quantiles, self.impact, strict=True)}
        columns |= {"evaluations": self.evaluations, "route": list(self.routes)}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw the result with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar", "quantiles"}
            Bars of the averaged impacts with a point for each quantile (unless normalized), or a line for each feature
            over the quantiles. Both take ``most=``: so many features, the largest.
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.IMPACT, kind, self, ax, options)

    def _table(self) -> export.Table:
        what = "normalized impact" if self.normalized else "impact"
        title = f"feature_impact: {what} over {len(self.quantiles)} quantiles, n = {self.n}"
        low, high = (end(self.impact, axis=0) for end in (np.min, np.max))
        return export.by_feature(
            title, self.names, {"value": self.values, "least quantile": low, "most": high}, self.values
        )
