"""What every result can do: print, tabulate, draw, be ranked, be saved; and reading any of them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from reliance.results import export, files
from reliance.results.records import KINDS, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Result(Record, ABC):
    """Base of the results. A class says how its fields are kept, and gives a table, a frame and figures.

    The rest follows. A new class is known to `reliance.load` by being one: its module, and the line that exports it,
    are all there is to add.
    """

    _order: ClassVar[str] = "values"  # what features are ranked by

    @abstractmethod
    def _table(self) -> export.Table:
        """What is printed."""

    @abstractmethod
    def to_frame(self) -> DataFrame:
        """A pandas DataFrame."""

    @abstractmethod
    def plot(self, kind: str, ax: Axes | Sequence[Axes] | None = None, **options: object) -> Axes | NDArray[np.object_]:
        """Draw with matplotlib and return the Axes."""

    def ranked(self) -> Self:
        """The same result, largest first; what is not known comes last."""
        return self._taken(np.argsort(-self._sizes(), kind="stable"))

    def _sizes(self) -> NDArray[np.float64]:
        """What features are ranked by."""
        return np.asarray(getattr(self, self._order))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a ``.json`` or ``.npz`` file, exactly; `reliance.load` reads it."""
        files.write(path, self._kind(), self._saved())

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def load(path: str | os.PathLike[str]) -> Any:
    """Read a result that its ``save`` wrote, of whatever class.

    Parameters
    ----------
    path : str or path
        A ``.json`` or ``.npz`` file.

    Returns
    -------
    The result, equal to the one that was saved.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> result = rl.feature_impact(lambda X: X[:, 0], X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(pathlib.Path(folder) / "impact.json")
    ...     again = rl.load(pathlib.Path(folder) / "impact.json")
    >>> bool((again.values == result.values).all())
    True
    """
    kind, found = files.read(path)
    known = KINDS.get(kind)
    if known is None or not issubclass(known, Result):
        raise ValueError(
            f"path={files.named(path)} holds no saved Importance or other result: give a file that save wrote"
        )
    return known._read(path, found)
