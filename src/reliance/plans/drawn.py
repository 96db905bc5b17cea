"""What plans share whose donors are any rows."""

from __future__ import annotations

import numpy as np

from reliance._core.streams import Indices
from reliance.plans.protocol import Floats, Users


class Drawn:
    """What plans share whose donors are any rows, used unequally: subclasses say `donors`."""

    n: int
    draws: int

    @property
    def columns(self) -> int:
        return self.draws

    def cuts(self) -> tuple[int, ...]:
        return ()

    def donors(self, rows: range, columns: range) -> Indices:
        raise NotImplementedError

    def users(self, columns: range) -> Users:
        flat = self.donors(range(self.n), columns).reshape(-1)
        uses = np.bincount(flat, minlength=self.n)
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(uses, dtype=np.int64)])
        return Users(np.argsort(flat, kind="stable"), bounds)

    def spread(self, v: Floats) -> Floats:
        total = np.zeros(self.n)
        for k in range(self.draws):
            donors = self.donors(range(self.n), range(k, k + 1))[:, 0]
            total += np.bincount(donors, weights=v, minlength=self.n)
        return total
