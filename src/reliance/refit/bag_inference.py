"""Estimate and errors of an out-of-bag importance: rows are the sample, and each is seen by many members.

The pair q = (t, i) of a member and a row out of its bag has the weight w_q, with which members count equally; D_qk is
its change of loss in draw k of K. With the members given, a member's rows left out are new to it, and the estimate is
the mean of unbiased estimates theta_t:

    psi_i = sum over the pairs of row i of w_q (mean_k D_qk - theta_t)
          + sum over the uses of row i as a donor of w_q (D_qk - theta_t) / K

    Var = m (m-1) / (m-2)^2 sum psi_i^2

m the mean number of rows left out. Through the borrowed values' own effects psi holds noise of the draws that the
estimate does not have, N = sum over all uses of (w_q / K)^2 (D_qk - theta_t)^2 in expectation, as for the independent
donors of `variances.resample_variance`. It is left in because simulations needed it, not by a derivation: rows stand in
the bags of each other's trees, which psi does not see, and without N the error of a feature that does not matter was
20% too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance.inference.summary import Summary
from reliance.inference.variance import skewness
from reliance.refit.bag_pairs import Pairs, Uses

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """Running sums of p features under one loss (arrays that `add` adds to), over the members.

    Attributes
    ----------
    theta : array (p, B)
        The importance in each member.
    rows, psi : arrays (p, n)
        What each row adds to the estimate, around its members' means: as a row, and as a row and donor.
    plain : array (p, n) or None
        What each row adds, not centred.
    squares, draws : arrays (p,)
        N, and the variance over the draws alone.
    risk : array ()
        The mean base loss.
    """

    theta: Floats
    rows: Floats
    psi: Floats
    plain: Floats | None
    squares: Floats
    draws: Floats
    risk: Floats

    @classmethod
    def empty(cls, features: int, n: int, members: int, keep_rows: bool) -> Sums:
        plain = np.zeros((features, n)) if keep_rows else None
        rows, psi = np.zeros((features, n)), np.zeros((features, n))
        theta, squares, draws = np.zeros((features, members)), np.zeros(features), np.zeros(features)
        return cls(theta, rows, psi, plain, squares, draws, np.zeros(()))

    def add(self, pairs: Pairs, first: int, base: Floats, uses: Uses, changes: Floats) -> None:
        """Add some members, the first of which has the place ``first``; D is 0 where there is no use."""
        (p, members), n, k, b = self.theta.shape, pairs.n, pairs.draws, len(pairs.members)
        weight = pairs.weight[uses.pair] / k
        share = weight * changes
        tree = uses.feature * b + pairs.tree[uses.pair]

        def by_tree(values: Floats) -> Floats:
            return np.asarray(np.bincount(tree, values, p * b), dtype=np.float64).reshape(p, b)

        def by_row(rows: NDArray[np.int64]) -> Floats:
            return np.asarray(np.bincount(uses.feature * n + rows, share, p * n), dtype=np.float64).reshape(p, n)

        theta = by_tree(share) * members
        own = by_row(pairs.row[uses.pair])
        rows = own - (pairs.by_row @ theta.T).T
        self.theta[:, first : first + b] = theta
        self.rows[...] += rows
        self.psi[...] += rows + by_row(pairs.donor[uses.pair, uses.draw]) - (pairs.by_donor @ theta.T).T
        if self.plain is not None:
            self.plain[...] += own
        of_weights = np.bincount(pairs.tree, pairs.weight**2) / k
        self.squares[...] += np.bincount(uses.feature, share**2, p)
        self.squares[...] += np.sum(theta**2 * of_weights - 2.0 * theta * by_tree(weight * share), axis=1)
        self.risk[...] += np.sum(pairs.weight * base)
        if k > 1:
            by_draw = np.bincount(tree * k + uses.draw, share, p * b * k).reshape(p, b, k) * k
            left = np.maximum(1.0 - k / (np.diff(pairs.bounds) - 1.0), 0.0)  # all shifts are all pairs
            self.draws[...] += np.sum(left * np.var(by_draw, axis=2, ddof=1), axis=1) / k

    def summaries(self, rows_left_out: float, draws: int) -> list[Summary]:
        """Estimate and errors of each feature; ``rows_left_out``: m."""
        m, n, risk = max(rows_left_out, 3.0), self.psi.shape[1], float(self.risk)
        found = []
        for j, theta in enumerate(self.theta):
            value, noise = float(np.mean(theta)), max(float(self.squares[j]), 0.0)
            variance = m * (m - 1.0) / (m - 2.0) ** 2 * float(np.sum(self.psi[j] ** 2))
            fixed = math.nan if draws == 1 else math.sqrt(self.draws[j])
            found.append(
                Summary(
                    value=value,
                    replaced_risk=risk + value,
                    std_error=math.sqrt(variance),
                    skewness=float(skewness(n * self.psi[j], np.asarray(variance))),
                    monte_carlo_share=fixed**2 / variance if variance > 0.0 else 0.0,
                    fixed_data_error=fixed,
                    random_variable_error=math.sqrt(noise),
                    row_error=math.sqrt(m / (m - 1.0) * float(np.sum(self.rows[j] ** 2))),
                    draws=None,
                    row_values=None if self.plain is None else n * self.plain[j],
                )
            )
        return found
