"""What a comparison of models returns: the importances of each, and the paired differences between any two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import told_apart
from reliance.results import export, files
from reliance.results.delta import Delta
from reliance.results.importance import Importance
from reliance.results.mapping import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison(Results[Importance]):
    """Importances of several models on the same rows, with the same donors: ``result["a"]`` is an `Importance`.

    Attributes
    ----------
    entries : dict from names of models to Importance
    by : "model"
    differences : array (m, m, p)
        The importances in one of the m models less those in another; 0 where only rounding is left.
    std_errors : array (m, m, p)
        Of the difference between any two of the m models, paired row by row.
    skewness : array (m, m, p)
        The skewness of that difference.
    """

    by: str = "model"
    differences: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))
    std_errors: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))
    skewness: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))

    _kept: ClassVar[files.Fields] = {
        **Results._kept,
        "differences": files.floats("m", "m", "p"),
        "std_errors": files.floats("m", "m", "p"),
        "skewness": files.floats("m", "m", "p"),
    }

    def _fault(self) -> str:
        whole = not super()._fault() and all(isinstance(one, Importance) for one in self.entries.values())
        whole = whole and len({one.names for one in self.entries.values()}) == 1
        whole = whole and self.differences.shape == self.std_errors.shape == self._shape()
        return "" if whole else "its models do not fit"

    def _shape(self) -> tuple[int, int, int]:
        return len(self.entries), len(self.entries), len(self._first.names)

    @property
    def _first(self) -> Importance:
        return next(iter(self.entries.values()))

    def ranked(self) -> Self:
        """The features in the order of their largest value in any model, the same in all of them."""
        return self._taken(np.argsort(-self._sizes(), kind="stable"))

    def delta(self, first: str, second: str) -> Delta:
        """The importances in the first model minus those in the second, with paired intervals and tests.

        What rows and donors do to both models alike cancels in the difference.

        Parameters
        ----------
        first, second : str
            Names of two models.
        """
        a, b = self[first], self[second]
        names = list(self.entries)
        place = names.index(first), names.index(second)
        df = np.fmin(a.degrees_of_freedom, b.degrees_of_freedom)
        what = f"{a._words} of the model {export.short(first)}, less that of {export.short(second)}"
        return Delta(a.names, self.differences[place], self.std_errors[place], df, self.skewness[place], what)

    def to_frame(self, level: float = 0.95) -> DataFrame:  # type: ignore[override]  # entries are of one kind, with one option
        """A pandas DataFrame, one row per feature: each model's value, and each model's less the first one's.

        Differences have intervals and Holm-adjusted p-values.
        """
        return export.frame(self._first.names, self._columns(level))

    def plot(self, kind: str | None = "bar", ax: Axes | None = None, **options: object) -> Axes | NDArray[np.object_]:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar"}
            A bar for each feature and model, with intervals (``level=``, ``most=``). Other kinds of `Importance` are
            drawn side by side, one Axes for each model. ``delta(...).plot()`` draws differences.
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.together(self.entries, self.by, kind, ax, options)

    def _columns(self, level: float) -> dict[str, Floats]:
        """The values of each model, and the differences from the first, with intervals and p-values."""
        labels = dict(zip(self.entries, told_apart(list(self.entries)), strict=True))
        found = {labels[name]: one.values for name, one in self.entries.items()}
        first, *others = self.entries
        for name in others:
            delta, what = self.delta(name, first), f"{labels[name]} - {labels[first]}"
            low, high = inference.known_interval(delta, level).T
            found |= {what: delta.values, f"{what}, lower": low, f"{what}, upper": high}
            found |= {f"{what}, p": delta.test().p_adjusted}
        return found

    def _table(self) -> export.Table:
        one = self._first
        risks = ", ".join(f"{other.base_risk:.4g}" for other in list(self.entries.values())[:6])
        what = f"compare_models: {one.compare} of {export.short(one.loss)}, n = {one.n}, {one.plan}"
        columns = self._columns(0.95)
        if len(self.entries) == 2:
            *values, (_, low), (_, high), (_, p) = columns.items()
            columns = {**dict(values), "lower 95%": low, "upper 95%": high, "p (Holm)": p}
        else:  # there is no room for all of them
            columns = {name: one for name, one in columns.items() if not name.endswith((", lower", ", upper"))}
        forms = [".2g" if name == "p (Holm)" or name.endswith(", p") else "#.4g" for name in columns]
        table = export.by_feature(f"{what}, base risks {risks}", one.names, columns, self._sizes(), forms=forms)
        words = "differences are paired row by row; delta(first, second) has those of any two models"
        return table._replace(closing=f"{table.closing}\n{words}" if table.closing else words)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()
