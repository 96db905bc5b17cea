"""What feature impact returns: impacts for each quantile and averaged, tables, files and a figure."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance import export, plots

Floats = NDArray[np.float64]
_BY_FEATURE = ("impact", "values", "points", "evaluations")
_SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class Impact:
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

    def __post_init__(self) -> None:
        for name in (*_BY_FEATURE, "quantiles"):
            own = np.array(getattr(self, name), dtype=np.int64 if name == "evaluations" else np.float64)
            own.flags.writeable = False
            object.__setattr__(self, name, own)

    def ranked(self) -> Impact:
        """The same result, largest impact first."""
        order = np.argsort(-self.values, kind="stable")
        moved: dict[str, Any] = {name: getattr(self, name)[..., order] for name in _BY_FEATURE}
        names, routes = (tuple(listed[i] for i in order) for listed in (self.names, self.routes))
        return dataclasses.replace(self, names=names, routes=routes, **moved)

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row per feature: its value, and its impact at each quantile."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
        columns: dict[str, Any] = {"value": self.values}
        columns |= {f"q{q:g}": line for q, line in zip(self.quantiles, self.impact, strict=True)}
        columns |= {"evaluations": self.evaluations, "route": list(self.routes)}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="feature"))

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain Python numbers, strings and lists."""
        return {name: export.plain(value) for name, value in self._fields().items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a ``.json`` or ``.npz`` file, exactly; `Impact.load` reads it."""
        export.write(path, "Impact", self._fields())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Impact:
        """Read a result that `save` wrote."""
        found = export.read(path, "Impact")
        return cls(**{**found, **{name: tuple(found[name]) for name in ("names", "routes", "block")}})

    def plot(self, kind: str = "bar", ax: Any = None, **options: Any) -> Any:
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
        shown, closing = self, ""
        if len(self.names) > _SHOWN:
            shown = self.ranked()
            closing = f"the {_SHOWN} largest of {len(self.names)} features; to_frame() has all"
        cells = [
            [export.short(name), *map(export.number, (value, float(np.min(line)), float(np.max(line))))]
            for name, value, line in zip(shown.names[:_SHOWN], shown.values, shown.impact.T, strict=False)
        ]
        return export.Table(title, ["feature", "value", "least quantile", "most"], cells, closing)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
