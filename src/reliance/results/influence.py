"""How far units move estimates, and what follows from it for several estimates together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance.inference import together
from reliance.results import files
from reliance.results.records import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Record):
    """How units move p estimates: the measured rows (p, n), those of a sampler's fit (p, m), groups of rows (p, J).

    ``rows`` are rows, pairs of them for halves, or clusters (p, G) where there are some. What two estimates have in
    common cancels in the difference of their influences. ``replicates`` are the estimates without each group of rows,
    where only refitting knows, and then the first two are None; ``training_replicates`` those without each group of the
    rows of the fit, if they are others. ``training_freedom`` (p,) is how many rows a fit leaves of these. ``origin``
    says which rows and which units these are: only results of the same can be compared.
    """

    rows: Floats | None
    training: Floats | None
    replicates: Floats | None
    training_replicates: Floats | None = None
    training_freedom: Floats | None = None
    origin: tuple[str, ...] = ()

    _kept: ClassVar[files.Fields] = {
        "rows": files.floats("p", "n", optional=True),
        "training": files.floats("p", "m", optional=True),
        "replicates": files.floats("p", "J", optional=True),
        "training_replicates": files.floats("p", "T", optional=True),
        "training_freedom": files.floats("p", optional=True),
        "origin": files.names(),
    }

    def columns(self) -> Floats:
        """``(p, M)``: see ``inference.together``. Estimates without a group become influences as pseudo-values."""
        direct = [part for part in (self.rows, self.training) if part is not None]
        refitted = [part for part in (self.replicates, self.training_replicates) if part is not None]
        return together.columns([*direct, *((1.0 - part.shape[1]) * part for part in refitted)])

    def sizes(self) -> list[int]:
        """Of how many features each part is."""
        return [len(part) for part in self._fields().values() if isinstance(part, np.ndarray)]

    @property
    def units(self) -> int:
        """Of the measured rows."""
        known = self.rows if self.replicates is None else self.replicates
        return 0 if known is None else known.shape[1]


def stacked(parts: Sequence[Influence]) -> Influence:
    """Of all features; a part that some features do not have is 0 there, or unknown."""

    def rows(name: str) -> Floats | None:
        found = [getattr(part, name) for part in parts]
        known = [one for one in found if one is not None]
        return np.stack([np.zeros_like(known[0]) if one is None else one for one in found]) if known else None

    replicates, trained = rows("replicates"), rows("training_replicates")
    freedoms = [np.nan if part.training_freedom is None else float(part.training_freedom) for part in parts]
    left = None if np.isnan(freedoms).all() else np.asarray(freedoms)
    return Influence(rows("rows") if replicates is None else None, rows("training"), replicates, trained, left)
