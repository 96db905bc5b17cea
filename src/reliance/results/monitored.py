"""What a monitor has seen: importances over batches of rows, with intervals that hold at all times together."""

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
class Monitored(Result):
    """Importances of a model on rows that arrive in T batches, as `Monitor` returns them.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        The importances over all rows so far: what the last interval is about.
    running, lower, upper : arrays (T, p)
        The same after each batch, and the ends of its interval.
    by_batch : array (T, p)
        The importance in each batch alone.
    rows : array (T,)
        How many rows each batch had.
    level : float
        Of the intervals, for each feature at all times together.
    method : {"bounded", "asymptotic"}
    loss : str
    key : int
        Of the random numbers.
    """

    names: tuple[str, ...]
    values: Floats
    running: Floats
    lower: Floats
    upper: Floats
    by_batch: Floats
    rows: NDArray[np.int64]
    level: float
    method: str
    loss: str
    key: int

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        "values": files.floats("p"),
        **{name: files.floats("t", "p") for name in ("running", "lower", "upper", "by_batch")},
        "rows": files.counts("t"),
        "level": files.Kept("number"),
        "method": files.text("bounded", "asymptotic"),
        "loss": files.text(),
        "key": files.Kept("key"),
    }

    def interval(self) -> Floats:
        """The intervals ``(p, 2)`` after the last batch, of the level that the monitor was made with."""
        return np.stack([self.lower[-1], self.upper[-1]], axis=1)

    @property
    def drifted(self) -> NDArray[np.bool_]:
        """``(p,)``: whether two intervals of the feature exclude each other, so that its importance has changed.

        All intervals of an importance that does not change hold it together with the probability ``level``: a false
        alarm, ever, has at most the probability 1 - ``level``.
        """
        return np.asarray(self.lower.max(axis=0) > self.upper.min(axis=0))

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature."""
        lower, upper = self.interval().T
        columns = {"value": self.values, "lower": lower, "upper": upper, "last_batch": self.by_batch[-1]}
        return export.frame(self.names, {**columns, "drifted": self.drifted})

    def history(self) -> DataFrame:
        """A pandas DataFrame, one row per batch and feature."""
        batches, p = self.running.shape
        columns = {
            "batch": np.repeat(np.arange(batches), p),
            "rows": np.repeat(np.cumsum(self.rows), p),
            "value": self.running.reshape(-1),
            "lower": self.lower.reshape(-1),
            "upper": self.upper.reshape(-1),
            "of_batch": self.by_batch.reshape(-1),
        }
        return export.frame(list(self.names) * batches, columns)

    def plot(self, kind: str = "line", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"line"}
            For each feature the importance so far over the number of rows, with its interval as a band, and a point for
            each batch (``most=``: features, 4 by default).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.MONITORED, kind, self, ax, options)

    def _table(self) -> export.Table:
        percent = f"{100.0 * self.level:.4g}%"
        rows = f"n = {int(self.rows.sum())} in {len(self.rows)} batches"
        title = (
            f"Monitor: difference of {export.short(self.loss)}, {rows}, {self.method} intervals, at all times together"
        )
        lower, upper = self.interval().T
        columns = {"value": self.values, f"lower {percent}": lower, f"upper {percent}": upper}
        found = export.by_feature(title, self.names, {**columns, "last batch": self.by_batch[-1]}, self.values)
        changed = [name for name, drifted in zip(self.names, self.drifted, strict=True) if drifted]
        if not changed:
            return found
        words = f"importance has changed: {export.listed(changed, 5)}"
        return found._replace(closing="; ".join(filter(None, [words, found.closing])))
