"""The AUC over all pairs: row i with donor k is one of n(n-1) scored cases, and all of them are ranked together.

A = 1 - AUC is the chance that a positive row with any donor scores below a negative row with any other, ties counting
1/2: the donors of the two are independent, so that nothing depends on the order of the rows. Its pseudo-losses are
those of `losses.formulas.auc` with the shares F0 and F1 taken over all cases, so the moments of all pairs follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reliance._core.streams import Indices
from reliance.engine.reductions import Moments
from reliance.exact.called import FromMoments
from reliance.exact.protocol import Measured
from reliance.plans import Plan

Floats = NDArray[np.float64]
# Bytes for each entry of a table while it is ranked: scores, their order, and of both classes running sums, where ties
# begin and end, and what stands between.
CELL_BYTES = 76
# Entries that are looked at together.
_CHUNK = 2**20


@dataclass(frozen=True, eq=False)
class Ranked:
    """A metric of ranks on the rows as they are.

    Attributes
    ----------
    scores : array (n,)
        Of the rows as they are.
    positive : boolean array (n,)
    losses : array (n,)
        The pseudo-losses of the rows as they are.
    weights : array (n,) or None
    """

    scores: Floats
    positive: NDArray[np.bool_]
    losses: Floats
    weights: Floats | None


@dataclass(frozen=True, eq=False)
class PooledRanks:
    """What becomes of tables of scores: moments of pseudo-losses, under metrics by the place of their scores.

    The change of the same output, which says whether a feature moves anything at all, stands behind the scores.
    """

    asked: Mapping[int, Ranked]
    most_cells: int

    def settled(self, answer: Measured) -> Measured:
        if not isinstance(answer, FromMoments):  # features that the model does not use
            return answer
        once: dict[int, tuple[Moments, ...]] = {}  # features may share their moments
        for feature in answer.features:
            found = answer.moments(feature)
            if id(found) not in once:
                once[id(found)] = self._ranked(found, answer.plans[feature.name], answer.blur)
        return replace(answer, known={f.name: once[id(answer.moments(f))] for f in answer.features})

    def _ranked(self, found: tuple[Moments, ...], plan: Plan, blur: float) -> tuple[Moments, ...]:
        ranked = list(found)
        for place, metric in self.asked.items():
            table, nothing = found[place].table, np.zeros(len(metric.scores))
            ranked[place] = Moments(nothing, nothing, nothing, None)
            if table is not None and np.any(found[place + 1].row_squares > 0.0):
                ranked[place] = pooled_moments(metric, table, plan, blur)
        return tuple(ranked)


def pooled_moments(metric: Ranked, table: Floats, plan: Plan, blur: float = 0.0) -> Moments:
    """The moments of D = L' - l' over all pairs.

    Parameters
    ----------
    metric : Ranked
    table : array (n, columns)
        Scores of the rows with the donors of each column; what it holds at a row's own column does not matter. It is
        overwritten.
    plan : Plan
        All pairs, which donors stand in which column.
    blur : float
        Scores that differ by no more are equal: what rounding does to them.
    """
    n, columns = table.shape
    rows, own = np.arange(n), plan.donor_sums(np.arange(columns, dtype=np.float64))
    assert own is not None  # a rectangular plan: the column of each donor
    place = own.astype(np.int64)
    table[rows, place] = metric.scores
    counts = plan.counts(range(columns))
    size = np.ones(columns) if counts is None else counts
    changes = _pseudo_losses(metric, table, place, size, blur)
    changes -= metric.losses[:, None]
    # Another row of the donor's class lends a row its own score, which stands elsewhere among the cases than among the
    # rows: it counts, and only the row itself does not.
    alone = changes[rows, place]
    weights = np.ones(n) if metric.weights is None else metric.weights
    row_sum, donor_sum = changes @ size - alone, (weights @ changes)[place] - weights * alone
    np.multiply(changes, changes, out=changes)
    return Moments(row_sum, donor_sum, changes @ size - alone**2, None)


def _pseudo_losses(metric: Ranked, table: Floats, place: Indices, size: Floats, blur: float) -> Floats:
    """L' of each case, in the place of its score."""
    n, columns = table.shape
    flat, positive = table.reshape(-1), metric.positive
    weights = np.ones(n) if metric.weights is None else metric.weights
    order = np.argsort(flat)
    below = np.zeros((2, len(flat) + 1))  # how much weight of negatives and of positives stands before each entry
    ends = np.zeros(len(flat), dtype=bool)
    for start in range(0, len(flat), _CHUNK):
        part = order[start : start + _CHUNK]
        row, column = np.divmod(part, columns)
        weight = weights[row] * (size[column] - (place[row] == column))
        for label in (0, 1):
            sums = below[label, start + 1 : start + 1 + len(part)]
            np.cumsum(np.where(positive[row] == label, weight, 0.0), out=sums)
            sums += below[label, start]
        after = flat[order[start + 1 : start + 1 + len(part)]]
        ends[start : start + len(after)] = after - flat[part[: len(after)]] > blur
    ends[-1] = True
    last = np.flatnonzero(ends) + 1  # where groups of equal scores end, and the next begin
    first = np.concatenate([np.zeros(1, dtype=np.int64), last[:-1]])
    (total0, total1), whole = below[:, -1], float(np.sum(below[:, -1]))
    between = np.empty((2, len(last)))  # half of the group is below
    for label in (0, 1):
        np.add(below[label, first], below[label, last], out=between[label])
        between[label] *= 0.5
    mass = np.diff(below[1, np.append(first, len(flat))])
    del below, first, last
    value = float(mass @ (1.0 - between[0] / total0) / total1)
    of_positive = value + (1.0 - between[0] / total0 - value) * (whole / total1)
    of_negative = value + (between[1] / total1 - value) * (whole / total0)
    group = np.cumsum(ends) - ends
    for start in range(0, len(flat), _CHUNK):
        part, which = order[start : start + _CHUNK], group[start : start + _CHUNK]
        flat[part] = np.where(positive[part // columns], of_positive[which], of_negative[which])
    return table
