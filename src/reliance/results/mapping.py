"""Several results under names: one for each loss, set of given variables, or model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import listed, shown, told_apart
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from pandas import DataFrame

R = TypeVar("R", bound=Result, covariant=True)
One = TypeVar("One", bound=Result)
_SHOWN = 10  # results, each with its table
_WORDS = {"loss": "losses", "given": "sets", "model": "models"}


@dataclass(frozen=True, eq=False, repr=False)
class Results(Result, Mapping[str, R]):
    """Results by name: ``results["log_loss"]`` is the one under that loss.

    A mapping that cannot be changed, with the table, frame, figure and file of its entries together.

    Attributes
    ----------
    entries : dict
        The results.
    by : {"loss", "given", "model"}
        What the names are of.
    """

    entries: dict[str, R]
    by: str = "loss"

    # Results are equal to themselves alone, as every other one; a Mapping's equality would leave them without a hash.
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    _kept: ClassVar[files.Fields] = {"entries": files.records(), "by": files.text(*_WORDS)}

    def _fault(self) -> str:
        whole = bool(self.entries) and all(isinstance(one, Result) for one in self.entries.values())
        return "" if whole else "its entries are no results"

    def __getitem__(self, name: str) -> R:
        if not isinstance(name, str) or name not in self.entries:
            raise KeyError(f"{shown(name)} is not one of the {_WORDS[self.by]} {listed(self.entries)}")
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def ranked(self) -> Self:
        """Each entry with its largest feature first."""
        return dataclasses.replace(self, entries={name: one.ranked() for name, one in self.entries.items()})

    def _sizes(self) -> NDArray[np.float64]:
        """The largest value in any entry: of entries that have the same features."""
        table = np.stack([one._sizes() for one in self.entries.values()])
        return np.asarray(np.where(np.isnan(table), -np.inf, table).max(axis=0))

    def to_frame(self, **options: object) -> DataFrame:
        """A pandas DataFrame: those of the entries one below the other, their names the first level of the index.

        ``options`` are those of the entries, such as ``level=``.
        """
        pd = export.pandas()
        frames = {name: one.to_frame(**options) for name, one in self.entries.items()}
        within = next(iter(frames.values())).index.names
        return pd.concat(frames, names=[self.by, *within])

    def test(self, alternative: str = "greater", adjust: str = "holm") -> TestResult:
        """The t tests of every feature of every entry, adjusted together: under two losses a feature has two chances.

        Parameters
        ----------
        alternative, adjust : str
            As in the entries. A test is called by its entry and feature: "log_loss: age".
        """
        found: dict[str, TestResult] = {}
        for name, one in self.entries.items():
            test = getattr(one, "test", None)
            if test is None or "alternative" not in inspect.signature(test).parameters:
                raise TypeError(
                    f"test() is for importances, and {shown(name)} is a {type(one).__name__}: test it alone"
                )
            found[name] = test(alternative, adjust="none")
        names = tuple(f"{name}: {feature}" for name, one in found.items() for feature in one.names)
        parts = found.values()
        statistic, p = (np.concatenate([getattr(one, field) for one in parts]) for field in ("statistic", "p_value"))
        return TestResult(names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def plot(
        self, kind: str | None = None, ax: Axes | Sequence[Axes] | None = None, **options: object
    ) -> Axes | NDArray[np.object_]:
        """Draw the entries in one figure with matplotlib.

        Importances of the same features are comparable. Of several losses, each has a scale of its own: Axes side by
        side with the features in the same places. Of several models or given sets under one loss: one Axes with a group
        of bars for each feature. Other entries and kinds are drawn side by side.

        Parameters
        ----------
        kind : str, optional
            As in the entries; by default what they draw by default.
        ax : matplotlib Axes or a sequence of them, optional
            One for each entry where they are side by side; a new figure if not given.
        options
            As in the entries: ``level=``, ``most=`` for bars.

        Returns
        -------
        matplotlib Axes, or an array with one for each entry
        """
        return plots.together(self.entries, self.by, kind, ax, options)

    def _blocks(self) -> list[tuple[str, Result]]:
        """What stands above each entry that is printed."""
        labels = zip(told_apart(list(self.entries)), self.entries.values(), strict=True)
        return [(f"{self.by} {name or '(nothing)'}:", one) for name, one in list(labels)[:_SHOWN]]

    def _more(self) -> str:
        more = len(self.entries) - _SHOWN
        return f"and {more} more {_WORDS[self.by]}, by name" if more > 0 else ""

    def _table(self) -> export.Table:
        """Of what there is; the entries have tables of their own."""
        labels = zip(told_apart(list(self.entries)), self.entries.values(), strict=True)
        cells = [[name or "(nothing)", type(one).__name__] for name, one in labels]
        return export.Table(f"{len(self)} results", [self.by, "result"], cells)

    def __repr__(self) -> str:
        parts = [f"{above}\n{one!r}" for above, one in self._blocks()]
        return "\n".join([*parts, *([self._more()] if self._more() else [])])

    def _repr_html_(self) -> str:
        parts = [f"<p>{export.escape(above)}</p>{one._repr_html_()}" for above, one in self._blocks()]
        return "".join([*parts, *([f"<p>{self._more()}</p>"] if self._more() else [])])


def one_or_all(found: dict[str, One], several: bool) -> One | Results[One]:
    """The results under several losses; the only one if no list of losses was asked for."""
    return Results(found) if several else next(iter(found.values()))
