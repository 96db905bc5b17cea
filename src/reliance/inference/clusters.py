"""Errors of estimates whose rows come in clusters: influence values are summed within them before they are squared.

Row i moves an estimate by psi_i / n, with psi = r + c (+ what a fitted sampler adds): the row as borrower and as
lender. Rows of one cluster may move it together in any way, so only clusters count as independent, and the sums
of psi within them take the place of the rows' psi: in the variance, its skewness, and in everything that compares two
estimates. How unequal clusters are is in `freedom.clustered_support`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance.data.clusters import Membership
from reliance.inference.variance import skewness

Floats = NDArray[np.float64]
# A plan takes off at most half of what it sees: with one draw per row that is what draws add to influence values.
_LEAST = 0.5


class Clustered(NamedTuple):
    """``influence (G,)``: how far each cluster moves the estimate. ``variance`` and ``skewness``: of the estimate."""

    influence: Floats
    variance: float
    skewness: float


def _skewness(sums: Floats, variance: float) -> float:
    """As that of rows, with the third cumulant in the place of the third moment.

    The moment of G sums is (G - 1)(G - 2)/G^2 of it on average, 0.85 at 20 clusters: intervals of a strong feature were
    too short at the end where values are spread.
    """
    count = len(sums)
    return float(skewness(sums, np.asarray(variance))) * count**2 / ((count - 1.0) * (count - 2.0))


def clustered(psi: Floats, variance: float, clusters: Membership, crossing: bool = True) -> Clustered:
    """The variance of an estimate by clusters, from the influence of its rows and its variance by independent rows.

    The factor is that of the jackknife over pairs, as for all pairs of rows: leaving a cluster out takes it away as
    borrower and as lender.

    Influence values of few draws hold noise, once as borrower and once as lender. A plan knows how much, and takes it
    off: the difference of the rows' own spread and its variance. That noise comes from whom a row met, which is drawn
    row by row, so in a cluster's sum it adds up as between independent rows, and the same amount is taken off here.
    Where rows of a cluster met the same clusters, there is more noise than that, and it stays in.

    ``crossing=False``: rows borrow within their clusters alone, so that each cluster has a value of its own, noise
    included, and these are an ordinary sample.
    """
    centred = psi - np.mean(psi)
    count, n = clusters.count, len(psi)
    if not crossing:
        sums = clusters.sums(centred)
        found = float(np.var(sums, ddof=1)) / count
        return Clustered(sums, found, _skewness(sums, found))
    sums = clusters.sums(centred) * ((count - 1.0) / (count - 2.0))
    found = float(np.var(sums, ddof=1)) / count
    noise = max(float(np.var(centred, ddof=1)) / n - variance, 0.0)
    found = max(found - noise, _LEAST * found)
    return Clustered(sums, found, _skewness(sums, found))
