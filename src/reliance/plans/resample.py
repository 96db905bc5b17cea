"""Independent donors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reliance._core import streams
from reliance._core.streams import Indices
from reliance.plans import variances
from reliance.plans.bases import Drawn, drawn
from reliance.plans.protocol import Terms, Variance


@dataclass(frozen=True)
class Resample(Drawn):
    """Merrick's draws: every row of every draw borrows from an independent, uniform row, itself included."""

    n: int
    draws: int
    key: int

    def donors(self, rows: range, columns: range) -> Indices:
        drawn = [streams.iid_donors(self.key, self.n, rows.start, rows.stop, k) for k in columns]
        return np.stack(drawn, axis=1)

    def variance(self, terms: Terms) -> Variance:
        return variances.resample_variance(terms.rows, terms.donors, terms.total, self.draws)

    def fixed_data_error(self, terms: Terms) -> float:
        return variances.merrick_error(drawn(terms))
