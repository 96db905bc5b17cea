"""What local importance returns: values of rows and features, intervals over draws, tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class LocalImportance(Result):
    """How much each of p features matters for each of m rows.

    Attributes
    ----------
    names : tuple of str
        The features.
    rows : integer array (m,)
        The rows of X that were explained.
    values : array (m, p)
        Mean change of the row's loss when the feature is replaced, or the contribution of its value to the prediction.
    std_error : array (m, p)
        Over the draws: 0 with all of them, nan with one.
    base : array (m,)
        The row's own loss or prediction.
    quantity : str
        The loss, or "prediction".
    n, draws_per_row : int
        Rows of X, and K.
    key : int
        Of the random numbers.
    evaluations : array (p,)
        Model evaluations that each feature took.
    """

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    values: Floats
    std_error: Floats
    base: Floats
    quantity: str
    n: int
    draws_per_row: int
    key: int
    evaluations: NDArray[np.int64]

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        "rows": files.counts("m"),
        "values": files.floats("m", "p"),
        "std_error": files.floats("m", "p"),
        "base": files.floats("m"),
        "quantity": files.text(),
        "n": files.Kept("count"),
        "draws_per_row": files.Kept("count"),
        "key": files.Kept("key"),
        "evaluations": files.counts("p"),
    }

    @property
    def contributes(self) -> bool:
        """Whether the values are contributions to predictions, and not changes of a loss."""
        return self.quantity == "prediction"

    def _sizes(self) -> Floats:
        return np.asarray(np.mean(np.abs(self.values), axis=0))

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(m, p, 2)`` for the mean over all draws, the row fixed."""
        if np.isnan(self.std_error).all():
            raise ValueError("one draw says nothing about the spread over draws: measure with draws=2 or more")
        quantile = inference.t_quantile(level, max(self.draws_per_row - 1, 1))
        return np.stack([self.values - quantile * self.std_error, self.values + quantile * self.std_error], axis=2)

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per row of X and feature."""
        pd = export.pandas()
        unknown = np.full((*self.values.shape, 2), np.nan)
        bounds = unknown if np.isnan(self.std_error).all() else self.interval(level)
        index = pd.MultiIndex.from_product([self.rows.tolist(), self.names], names=["row", "feature"])
        columns = {"value": self.values, "lower": bounds[:, :, 0], "upper": bounds[:, :, 1]}
        columns["std_error"] = self.std_error
        return pd.DataFrame({name: column.reshape(-1) for name, column in columns.items()}, index=index)

    def plot(self, kind: str = "heat", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"heat", "waterfall", "bar", "beeswarm", "image"}
            "heat": a map of all rows (at most ``rows=``) and features (at most ``most=``). "waterfall": from the mean
            prediction to that of one ``row=``, with the values of features if ``X=`` is given (``most=``, ``names=``,
            ``start=``). "bar": the values of one ``row=`` with intervals over draws (``level=``, ``most=``).
            "beeswarm": a point for each row, coloured by the feature's value if ``X=`` is given (``most=``,
            ``names=``). "image": one ``row=`` as a picture (``shape=`` or ``mask=``, ``names=``).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.

        Notes
        -----
        ``X`` is what was measured, an array or a table; ``names`` are those of its columns, if they were given to the
        method.
        """
        return plots.draw(plots.LOCAL, kind, self, ax, options)

    def position(self, row: int | None) -> int:
        """Where a row of X stands in the result; None if there is one row only."""
        if row is None:
            if len(self.rows) > 1:
                raise ValueError(f"this is a figure of one row and the result has {len(self.rows)}: pass row=")
            return 0
        found = np.flatnonzero(self.rows == row)
        if not found.size:
            raise ValueError(
                f"row={shown(row)} was not measured: it must be one of {export.listed(self.rows.tolist())}"
            )
        return int(found[0])

    def _table(self) -> export.Table:
        what = "contributions to the prediction" if self.contributes else f"change of {export.short(self.quantity)}"
        shown = np.argsort(-self._sizes(), kind="stable")[:_SHOWN]
        cells = [
            [str(row), *map(export.number, (self.base[i], *self.values[i, shown]))]
            for i, row in enumerate(self.rows[:_SHOWN].tolist())
        ]
        labels = export.told_apart(self.names, 20)
        header = ["row", export.short(self.quantity, 20), *(labels[j] for j in shown)]
        m, p = self.values.shape
        closing = "" if max(m, p) <= _SHOWN else f"a part of {m} rows and {p} features; to_frame() has all"
        return export.Table(f"local_importance: {what}, {self.draws_per_row} draws", header, cells, closing)
