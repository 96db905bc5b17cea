"""Results for several sets of variables, and the paired differences between them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from reliance import plots
from reliance._core.words import shown
from reliance.results import files, jointly
from reliance.results.delta import Delta as Delta
from reliance.results.importance import Importance
from reliance.results.influence import Influence as Influence
from reliance.results.mapping import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class RelativeImportance(Results[Importance]):
    """Relative importances given several sets of variables: ``result["X2"]`` is an `Importance`.

    Attributes
    ----------
    entries : dict from names of sets to Importance
    by : "given"
    influences : dict from names of sets to Influence
        How rows move the estimates, for `delta`.
    """

    by: str = "given"
    influences: dict[str, Influence] = dataclasses.field(default_factory=dict)

    _kept: ClassVar[files.Fields] = {**Results._kept, "influences": files.records("Influence")}
    _not_plain = ("influences",)

    def _fault(self) -> str:
        whole = not super()._fault() and all(isinstance(one, Importance) for one in self.entries.values())
        whole = whole and len({one.names for one in self.entries.values()}) == 1
        sizes = [size for one in self.influences.values() for size in one.sizes()]
        whole = whole and set(self.influences) <= set(self.entries)
        return "" if whole and set(sizes) <= {len(next(iter(self.entries.values())).names)} else "its sets do not fit"

    def ranked(self) -> Self:
        """The features in the order of their largest value in any set, the same in all of them."""
        return self._taken(np.argsort(-self._sizes(), kind="stable"))

    def delta(self, first: str, second: str) -> Delta:
        """The importance given the first set minus that given the second, paired row by row.

        Parameters
        ----------
        first, second : str
            Names of two sets, usually a smaller and a larger one.
        """
        a, b = self[first], self[second]
        one, other = self.influences[first], self.influences[second]
        least = np.full(len(a.names), min(a.degrees_of_freedom.min(), b.degrees_of_freedom.min()))
        found = jointly.paired(one, other, least)
        if found is None:
            raise ValueError(
                f"the errors of {shown(first)} and {shown(second)} are of different kinds and cannot be paired"
            )
        return Delta(a.names, a.values - b.values, found.std_error, found.degrees_of_freedom)

    def plot(self, kind: str | None = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar"}
            A bar for each feature and set, with intervals (``level=``, ``most=``): grouped ``by="feature"`` or
            ``by="set"``, with other values of the same as diamonds (``marks={"analytic": array (sets, features)}``).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.SETS, kind, self, ax, options)


def jackknife_spread(replicates: Floats) -> Floats:
    """The standard errors (p,) of estimates without each of J groups, (p, J): sqrt((J - 1) / J sum of squares)."""
    groups = replicates.shape[1]
    centred = replicates - replicates.mean(axis=1, keepdims=True)
    return np.asarray(np.sqrt((groups - 1) / groups * np.sum(centred**2, axis=1)))
