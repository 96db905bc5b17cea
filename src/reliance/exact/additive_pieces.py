"""All pairs of losses that bend or jump: of each row a polynomial of the score between few breaks.

Absolute error, pinball and Huber losses of an additive score, the hinge, and whether a label is wrong. Row i meets a
break at the donors that lend ``t_i - c``, so one sort of what is lent, with running sums of its powers, gives the sums
of all rows, and one sort of the t those of all donors: O(n log n), and exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.engine.reductions import Moments
from reliance.exact.additive_points import LossAt, Sides
from reliance.exact.sorted_sums import SortedSums
from reliance.losses import formulas

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Losses as polynomials c_0 + c_1 e + c_2 e^2 of ``e = level - score``.

    Attributes
    ----------
    levels : array (n,)
        Of the rows.
    breaks : array (m,)
        Values of e, increasing.
    coefficients : array (n, m + 1, 3) or (1, m + 1, 3)
        Below, between and above the breaks.
    """

    levels: Floats
    breaks: Floats
    coefficients: Floats

    def take(self, ids: NDArray[np.int64]) -> Pieces:
        same = len(self.coefficients) == 1
        return Pieces(self.levels[ids], self.breaks, self.coefficients if same else self.coefficients[ids])

    @property
    def degree(self) -> int:
        """The largest of the polynomials."""
        return max((k for k in (1, 2) if np.any(self.coefficients[:, :, k])), default=0)

    def at(self, scores: Floats) -> Floats:
        e = self.levels - scores
        piece = np.searchsorted(self.breaks, e, side="left")
        rows = np.zeros(len(e), dtype=np.int64) if len(self.coefficients) == 1 else np.arange(len(e))
        c0, c1, c2 = self.coefficients[rows, piece].T
        return np.asarray(c0 + e * (c1 + e * c2))


def of_formula(pointwise: formulas.Pointwise, labels: HostArray) -> Pieces | None:
    """A loss of numbers as pieces; None if it is not made of polynomials."""
    y = labels.astype(np.float64)
    if pointwise.formula is formulas.absolute:
        return _same(y, (0.0,), [(0, -1, 0), (0, 1, 0)])
    if pointwise.formula is formulas.pinball:
        (q,) = pointwise.parameters
        return _same(y, (0.0,), [(0, q - 1.0, 0), (0, q, 0)])
    if pointwise.formula is formulas.huber:
        (d,) = pointwise.parameters
        return _same(y, (-d, d), [(-0.5 * d * d, -d, 0), (0, 0, 0.5), (-0.5 * d * d, d, 0)])
    if pointwise.formula is formulas.hinge:  # 1 - y u = y (y - u), as labels are -1 or 1
        coefficients = np.zeros((len(y), 2, 3))
        coefficients[:, 0, 1], coefficients[:, 1, 1] = np.minimum(y, 0.0), np.maximum(y, 0.0)
        return Pieces(y, np.zeros(1), coefficients)
    return None


def _same(levels: Floats, breaks: Sequence[float], coefficients: Sequence[tuple[float, float, float]]) -> Pieces:
    return Pieces(levels, np.array(breaks), np.array(coefficients, dtype=np.float64)[None])


def of_labels(loss: LossAt, labels: HostArray) -> Pieces:
    """A loss that depends on the sign of the score alone."""
    n = len(labels)
    coefficients = np.zeros((n, 2, 3))
    for piece, sign in ((0, 1.0), (1, -1.0)):  # e = -score
        coefficients[:, piece, 0] = loss(labels, np.full(n, sign))
    return Pieces(np.zeros(n), np.zeros(1), coefficients)


def near_a_break(pieces: Pieces, sides: Sides, distance: float) -> bool:
    """Whether the score of some pair is so near to a break."""
    lent = SortedSums.of(sides.lent)
    meets = np.sort(pieces.levels - sides.kept)[:, None] - pieces.breaks
    return bool(np.any(lent.up_to(meets + distance) > lent.below(meets - distance)))


def moments(pieces: Pieces, sides: Sides) -> Moments:
    """The moments of D = F(a_i + b_k; y_i) - F(a_i + b_i; y_i) over all pairs."""
    t, b = pieces.levels - sides.kept, sides.lent
    by_row, by_donor = np.argsort(t), np.argsort(b)  # searches in order are quick
    own = pieces.at(sides.kept + b)
    changes = _changes(pieces.take(by_row), t[by_row], own[by_row])
    rows, squares = _row_sums(changes, t[by_row], b[by_donor], pieces.breaks)
    weights = None if sides.weights is None else sides.weights[by_row]
    donors = _donor_sums(changes, t[by_row], b[by_donor], pieces.breaks, weights)
    return Moments(_back(rows, by_row), _back(donors, by_donor), np.maximum(_back(squares, by_row), 0.0), None)


def _changes(pieces: Pieces, t: Floats, own: Floats) -> Floats:
    """``(n, m + 1, degree + 1)``: D of each row as polynomials of what is lent, e = t - b."""
    c0, c1, c2 = (pieces.coefficients[:, :, k] for k in range(3))
    at = t[:, None]
    constant = c0 + at * (c1 + at * c2) - own[:, None]
    terms = [constant, -c1 - 2.0 * c2 * at, c2][: pieces.degree + 1]
    return np.stack([np.broadcast_to(term, constant.shape) for term in terms], axis=2)


def _row_sums(changes: Floats, t: Floats, b: Floats, breaks: Floats) -> tuple[Floats, Floats]:
    """Over the donors, of D and of its square, with the power sums of what is lent on each piece; t and b sorted."""
    terms = changes.shape[2]
    power = np.ones((len(b), 2 * terms - 1))
    np.cumprod(np.broadcast_to(b[:, None], power[:, 1:].shape), axis=1, out=power[:, 1:])
    powers = SortedSums.in_order(b, power)
    upper = powers.total[None, :]  # e grows where b falls: the first piece has the largest b
    rows, squares = np.zeros(len(t)), np.zeros(len(t))
    for piece in range(len(breaks) + 1):
        lower = powers.below(t - breaks[piece]) if piece < len(breaks) else np.zeros((1, 2 * terms - 1))
        sums = upper - lower
        d = changes[:, piece]
        for k in range(terms):
            rows += d[:, k] * sums[:, k]
            for m in range(k, terms):
                squares += (1.0 if m == k else 2.0) * (d[:, k] * d[:, m]) * sums[:, k + m]
        upper = lower
    return rows, squares


def _donor_sums(changes: Floats, t: Floats, b: Floats, breaks: Floats, weights: Floats | None) -> Floats:
    """Over the rows, weighted; t and b sorted."""
    found = np.zeros(len(b))
    for piece in range(len(breaks) + 1):
        d = changes[:, piece] if weights is None else weights[:, None] * changes[:, piece]
        rows = SortedSums.in_order(t, d)  # e grows with t
        lower = rows.up_to(b + breaks[piece - 1]) if piece else np.zeros((1, d.shape[1]))
        upper = rows.up_to(b + breaks[piece]) if piece < len(breaks) else rows.total[None, :]
        sums = upper - lower
        terms = sums[:, -1]
        for k in range(d.shape[1] - 2, -1, -1):
            terms = terms * b + sums[:, k]
        found += terms
    return found


def _back(values: Floats, order: NDArray[np.int64]) -> Floats:
    found = np.empty_like(values)
    found[order] = values
    return found
