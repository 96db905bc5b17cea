r"""The mean loss of linear scores over all n(n-1) pairs of rows, without visiting the pairs.

The score of row i with what row k lends is a sum of two numbers, a_i + t_k. So for each row the losses of all its pairs
are a function of one number, ``F(a) = sum_k loss(a + t_k)``:

* hinge: F is piecewise linear (piecewise quadratic with rounded corners), and one sort and running sums give it;
* logistic: ``log(1 + exp(u))`` is analytic for \|Im u\| < pi. On an interval of length 1 the polynomial through 16
  Chebyshev points misses it by 1e-15, so both the t_k and the a_i are replaced by weights on the points of the
  intervals that hold them.

Both are O(n log n), with gradient and Hessian. All arrays are float64 on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance.exact.panels import interpolation
from reliance.exact.sorted_sums import running_sums
from reliance.rashomon.convex_rows import Rows, rounded_hinge
from reliance.rashomon.convex_solver import STAGES, Convex, Stage, Values, remembered
from reliance.samplers.draws import Host

_EPS = float(np.finfo(np.float64).eps)
_FEW = 2**17  # cells of which each is visited
# The loss less a line is at most 7, and its derivatives at most 45, in the ellipse of parameter r = 12 about an
# interval of length 1, whose half axis is 2.98 < pi: 16 points miss them by 1e-15 (see `panels`).
_NODES, _WIDTH = 16, 1.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Scores of all pairs, ``kept_i'b + lent_k'b_feature``.

    Attributes
    ----------
    rows : Rows
    kept : (n, d)
        The rows, with 0 or, if only residuals are exchanged, the prediction in the feature's columns.
    lent : (m, g)
        Distinct values of what is exchanged.
    weights : (m, 1 + g + g^2)
        How often each occurs, times 1, lent and the products of lent.
    places : (g,)
        The feature's coefficients in b.
    block : int
        Cells at a time.
    """

    rows: Rows
    kept: Host
    lent: Host
    weights: Host
    places: np.ndarray[tuple[int], np.dtype[np.int64]]
    block: int

    @staticmethod
    def of(rows: Rows, columns: tuple[int, ...], conditional: bool, memory: int) -> Pairs:
        places = np.array(columns, dtype=np.int64) + 1
        kept, own = rows.Z.copy(), rows.Z[:, places]
        kept[:, places] = 0.0
        if conditional:
            others = np.delete(rows.Z, places, axis=1)  # the intercept stays
            kept[:, places] = others @ np.linalg.lstsq(others, own, rcond=None)[0]
        lent, counts = np.unique(own - kept[:, places], axis=0, return_counts=True)
        products = (lent[:, :, None] * lent[:, None, :]).reshape(len(lent), -1)
        weights = counts[:, None].astype(np.float64) * np.column_stack([np.ones(len(lent)), lent, products])
        return Pairs(rows, kept, lent, weights, places, max(memory // 64, 1))

    @property
    def few(self) -> bool:
        """Whether the hinge is rounded in each pair. The parabola of running sums is flat away from the corner."""
        return self.rows.hinge and len(self.kept) * len(self.lent) <= min(_FEW, self.block)

    @cached_property
    def risk(self) -> Convex:
        """Mean loss over the pairs, gradient and Hessian in b; a rounded hinge."""

        def risk(b: Host, stage: Stage) -> Values:
            if self.few:
                return self._mean(_few_sums(self, b, stage), self.rows.risk(b, stage))
            return self.at_width(b, stage.width)

        return remembered(risk, self.rows.hinge)

    def at_width(self, b: Host, width: float) -> Values:
        """The same, with the hinge rounded over a width w by ``max_a a u + w a (1 - a)``: a parabola near the corner.

        The logistic loss has no corner.
        """
        if not self.rows.hinge:
            return self._mean(_logistic_sums(self, b), self.rows.risk(b, STAGES[-1]))
        Z, s, n = self.rows.Z, self.rows.signs, len(self.kept)
        u, share = 1 - s * (Z @ b), self._shares(b, width)
        bent = (np.abs(u) < width) / (2 * width) if width > 0 else 0 * u
        own = float(np.mean(share * u + width * share * (1 - share)))
        return self._mean(_hinge_sums(self, b, width), (own, -Z.T @ (s * share) / n, (Z.T * (bent / n)) @ Z))

    def _shares(self, b: Host, width: float) -> Host:
        """(n,), between 0 and 1: minus the slope of the hinge in the margins of the rows."""
        u = 1 - self.rows.signs * (self.rows.Z @ b)
        return np.clip((u + width) / (2 * width), 0.0, 1.0) if width > 0 else (u > 0).astype(np.float64)

    def _mean(self, sums: Host, own: Values) -> Values:
        """From the sums of each row, less the pair of the row with itself."""
        n, g = len(self.kept), len(self.places)
        first, second = sums[:, 1 : 2 + g], sums[:, 2 + g :]
        slope = self.kept.T @ first[:, 0] - n * own[1]
        slope[self.places] += first[:, 1:].sum(axis=0)
        bend = (self.kept.T * second[:, 0]) @ self.kept - n * own[2]
        cross = self.kept.T @ second[:, 1 : 1 + g]
        bend[:, self.places] += cross
        bend[self.places] += cross.T
        bend[np.ix_(self.places, self.places)] += second[:, 1 + g :].sum(axis=0).reshape(g, g)
        pairs = n * (n - 1)
        return (float(sums[:, 0].sum()) - n * own[0]) / pairs, slope / pairs, bend / pairs

    def exact(self, b: Host) -> float:
        """Mean loss over the pairs."""
        return self.at_width(b, 0.0)[0]

    def plane(self, b: Host, stage: Stage) -> tuple[float, Host, float]:
        """``c + slope'b`` below the mean loss over the pairs everywhere, and near it at b; see `Rows.plane`.

        The third number is to how much the mean slopes of the loss are known.
        """
        n, s = len(self.kept), self.rows.signs
        value, slope, _ = self.risk(b, stage)
        reach = 2.0 + float(np.abs(self.kept @ b).max() + np.abs(self.lent @ b[self.places]).max())
        if not self.rows.hinge:
            return value - float(slope @ b), slope, 1e-13 * reach
        if self.few:
            own = rounded_hinge(1 - s * (self.rows.Z @ b), stage)[1]
            shares, unit = -s * _few_sums(self, b, stage)[:, 1] - own, 64 * _EPS * reach
        else:
            shares = -s * _hinge_sums(self, b, stage.width)[:, 1] - self._shares(b, stage.width)
            unit = (2 * np.sqrt(n) + 8) * _EPS * reach / (2 * stage.width)
        return float(shares.sum()) / (n * (n - 1)), slope, float(unit)

    def size(self) -> Host:
        """(d,): the mean absolute entries of the exchanged rows, at most."""
        found = np.abs(self.kept).mean(axis=0)
        found[self.places] += np.abs(self.weights[:, 1 : 1 + len(self.places)]).sum(axis=0) / len(self.kept)
        return np.asarray(found)

    def falls(self) -> Host:
        """(g, 2): how much the margins fall when rows lend, on average over pairs, at a coefficient of 1 and of -1.

        The means of max(0, s_i (r_i - r_k)) and of max(0, -s_i (r_i - r_k)), with r what is exchanged.
        """
        n, s, found = len(self.kept), self.rows.signs, []
        exchanged = self.rows.Z[:, self.places] - self.kept[:, self.places]
        for r in exchanged.T:
            order = np.argsort(r, kind="stable")
            rank, before = np.arange(n), np.cumsum(r[order])
            over = r[order] * (rank + 1) - before  # sum of max(0, r_i - r_k)
            under = before[-1] - before - r[order] * (n - 1 - rank)
            up = s[order] > 0
            pairs = n * (n - 1)
            found.append([np.where(up, over, under).sum() / pairs, np.where(up, under, over).sum() / pairs])
        return np.array(found)


# ---------------------------------------------------------------------------------------------------------------------
# Sums over the donors of each row: the loss, its first derivative in the score times 1 and lent, its second derivative
# times 1, lent and the products of lent; (n, 1 + (1 + g) + (1 + g + g^2))


def _logistic_sums(pairs: Pairs, b: Host) -> Host:
    """log(1 + exp(u)) for the rows of sign -1, that less u for the others."""
    g = len(pairs.places)
    a, t = pairs.kept @ b, pairs.lent @ b[pairs.places]
    rows, lenders = (interpolation(numbers, _WIDTH, _NODES) for numbers in (a, t))
    points, donors, weights = rows.points, lenders.points, lenders.spread(pairs.weights)
    found = np.empty((len(points), 3 + 2 * g + g * g))
    block = max(pairs.block // len(donors), 1)
    for start in range(0, len(points), block):
        part = slice(start, start + block)
        u = points[part, None] + donors
        away = np.exp(-np.abs(u))
        share = np.where(u > 0, 1.0, away) / (1 + away)
        found[part, 0] = (np.maximum(u, 0.0) + np.log1p(away)) @ weights[:, 0]
        found[part, 1 : 2 + g] = share @ weights[:, : 1 + g]
        found[part, 2 + g :] = (away / (1 + away) ** 2) @ weights
    sums = rows.interpolate(found)
    positive = pairs.rows.signs > 0
    total = pairs.weights[:, : 1 + g].sum(axis=0)
    sums[positive, 0] -= total[0] * a[positive] + float(total[1:] @ b[pairs.places])
    sums[positive, 1 : 2 + g] -= total
    return np.asarray(sums)


def _hinge_sums(pairs: Pairs, b: Host, width: float) -> Host:
    """From running sums of the donors in the order of t: a row's loss is linear below one t, zero above another."""
    g, s = len(pairs.places), pairs.rows.signs
    lend = b[pairs.places]
    a, t = pairs.kept @ b, pairs.lent @ lend
    order = np.argsort(t, kind="stable")
    t, running = t[order], running_sums(pairs.weights[order])
    inner = running[np.searchsorted(t, s * (1 - width) - a)]
    linear = np.where(s[:, None] > 0, inner, running[-1] - inner)
    sums = np.zeros((len(a), 3 + 2 * g + g * g))
    sums[:, 0] = (1 - s * a) * linear[:, 0] - s * (linear[:, 1 : 1 + g] @ lend)
    shares = linear[:, : 1 + g]
    if width > 0:
        bent = s[:, None] * (running[np.searchsorted(t, s * (1 + width) - a)] - inner)
        corner = 1 + width - s * a
        products = bent[:, 1 + g :].reshape(-1, g, g) @ lend
        sum_t = bent[:, 1 : 1 + g] @ lend
        sums[:, 0] += (corner**2 * bent[:, 0] - 2 * corner * s * sum_t + products @ lend) / (4 * width)
        moved = corner[:, None] * bent[:, : 1 + g] - s[:, None] * np.column_stack([sum_t, products])
        shares = shares + moved / (2 * width)
        sums[:, 2 + g :] = bent / (2 * width)
    sums[:, 1 : 2 + g] = -s[:, None] * shares
    return sums


def _few_sums(pairs: Pairs, b: Host, stage: Stage) -> Host:
    """Pair by pair."""
    g, s = len(pairs.places), pairs.rows.signs[:, None]
    a, t = pairs.kept @ b, pairs.lent @ b[pairs.places]
    value, share, bend = rounded_hinge(1 - s * (a[:, None] + t), stage)
    return np.column_stack(
        [value @ pairs.weights[:, 0], -s * (share @ pairs.weights[:, : 1 + g]), bend @ pairs.weights]
    )
