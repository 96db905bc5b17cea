"""Plans of conditional samplers: donors that a sampler names, or new values that it makes.

Both are functions of numbers in [0, 1) that belong to a row and a draw, so that they can be made for any range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import Drawn, Users
from reliance.plans.protocol import Floats


@dataclass(frozen=True, eq=False)
class Named(Drawn):
    """Donors that a sampler names: neighbours, rows of the same stratum.

    Attributes
    ----------
    named : callable
        ``(rows, u (b, d)) -> donors (b, d)``, a function of numbers in [0, 1).
    ids : integer array (n,) or None
        The numbers of the rows in a larger table, of which these are a part: a row has the same u there and here.
    strata : integer array (n,) or None
        If donors are uniform over the other rows of a stratum: the stratum of each row.
    """

    n: int
    draws: int
    key: int
    named: Callable[[range, Floats], Indices]
    ids: Indices | None = None
    strata: Indices | None = None
    rectangular: bool = False
    lends: bool = True

    @property
    def kind(self) -> str:
        return "named" if self.strata is None else "strata"

    def donors(self, rows: range, columns: range) -> Indices:
        u = np.stack([_uniforms(self.key, self.ids, rows, k, 1)[:, 0] for k in columns], axis=1)
        return self.named(rows, u)


@dataclass(frozen=True, eq=False)
class Values:
    """New values instead of donors: a sampler makes them of independent numbers in [0, 1), ``count`` a draw."""

    n: int
    draws: int
    key: int
    count: int
    ids: Indices | None = None
    kind: str = "values"
    rectangular: bool = False
    lends: bool = False

    @property
    def columns(self) -> int:
        return self.draws

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Floats:
        return np.stack([_uniforms(self.key, self.ids, rows, k, self.count) for k in columns], axis=1)

    def users(self, columns: range) -> Users:
        raise TypeError("a plan of values has no donors")

    def spread(self, v: Floats) -> Floats:
        return np.zeros(self.n)


def _uniforms(key: int, ids: Indices | None, rows: range, draw: int, count: int) -> Floats:
    if ids is None:
        return streams.uniforms(key, rows.start, rows.stop, draw, count)
    return streams.uniforms(key, 0, int(ids.max()) + 1, draw, count)[ids[rows.start : rows.stop]]
