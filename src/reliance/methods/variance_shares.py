"""Shares of variance from the effects of rows and donors: g_ik = f_ik less the mean of all pairs, i != k."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.reductions import Moments
from reliance.exact.distinct import distinct_values
from reliance.inference.summary import Summary
from reliance.plans import Pairs
from reliance.plans.partial import SomeDonors, some_rows

Floats = NDArray[np.float64]
# Rows whose influence is evaluated for an interval: their spread is known to 3%.
INFLUENCE_ROWS = 500


@dataclass(frozen=True)
class Effects:
    """Sums of the pairs of a feature, g centred: row means r and donor means c, and means of squares (n,) each."""

    own: Floats
    rows: Floats
    donors: Floats
    row_squares: Floats
    donor_squares: Floats

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def square(self) -> float:
        """E g^2."""
        return float(np.mean(self.row_squares))

    def product(self, means: Floats) -> float:
        """E of g times another g of the same row (or donor), from the row (or donor) means; the squares taken out."""
        k = self.n - 1
        return float((k * np.sum(means**2) / self.n - self.square) / (k - 1))

    @property
    def interaction(self) -> float:
        """The variance of what is neither the row's effect nor the donor's."""
        alone = self.product(self.rows) + self.product(self.donors) - self.level
        return max(self.square - alone, 0.0)

    @property
    def level(self) -> float:
        """(E f)^2 about the mean that was found, which is off by the spread of r + c: without bias a little below 0."""
        k, n = self.n - 1, self.n
        shared = k**2 * np.sum((self.rows + self.donors) ** 2) - n * k * self.square
        return float(-shared / (n * k * (n - 2) * (n - 3)))


def effects_of(own: Floats, moments: tuple[Moments, ...]) -> Effects:
    """From the moments of the output's squared distance to the mean prediction, and of the output itself."""
    n, (second, first) = len(own), moments
    k, g = n - 1, own - own.mean()
    rows, donors = first.row_sum / k + g, first.donor_sum / k + (g.sum() - g) / k
    row_squares, donor_squares = second.row_sum / k + g**2, second.donor_sum / k + (np.sum(g**2) - g**2) / k
    middle = float(np.mean(rows))
    return Effects(
        g - middle,
        rows - middle,
        donors - middle,
        row_squares - 2.0 * middle * rows + middle**2,
        donor_squares - 2.0 * middle * donors + middle**2,
    )


def share(
    evaluation: Evaluation,
    feature: Feature,
    e: Effects,
    chosen: Indices,
    form: str,
    method: str,
    variance: float,
    spread: Floats,
) -> tuple[Summary, int]:
    """One feature's share and its error, and the evaluations that the error took.

    Rows move means of products by their influence: as a row and as a donor, of either factor. Of a feature that does
    nothing by itself that influence vanishes, and what is left of the error of E g_ik g_lk is of pairs of rows: at most
    2 Var(e)^2 / n^2, e the interaction of row and donor, which the variance is never below.
    """
    if not np.any(e.rows - e.own):  # no pair moved a prediction: not used
        return _summary(0.0, 0.0, np.zeros(len(chosen)), e.n), 0
    beyond = 0.0
    square = e.row_squares[chosen] + e.donor_squares[chosen] - 2.0 * e.square
    if form == "product":
        variance, spread = e.square - e.level, square
    if method == "sobol_first":
        product, own = e.product(e.donors), e.donors[chosen]
        cross, count = _row_products(evaluation, feature, e, chosen)
        part, influence = product - e.level, own**2 - product + 2.0 * (cross - product)
        beyond = 2.0 * e.interaction**2 / (e.n * (e.n - 1))
    else:
        product, own = e.product(e.rows), e.rows[chosen]
        cross, count = _donor_products(evaluation, feature, e, chosen)
        part, influence = e.square - product, square - (own**2 - product + 2.0 * (cross - product))
    value = part / variance
    return _summary(value, part, (influence - value * spread) / variance, e.n, beyond / variance**2), count


def _row_products(evaluation: Evaluation, feature: Feature, e: Effects, chosen: Indices) -> tuple[Floats, int]:
    """For chosen rows i the mean over k of g_ik c_k: donors count with their effects."""
    problem, k = evaluation.problem, e.n - 1
    classes = distinct_values(problem, feature)
    whole = Pairs(e.n) if classes is None else classes
    plan = some_rows(dataclasses.replace(whole, factor=e.donors), chosen)
    part = evaluation.some_rows(chosen)
    sums = part.moments(problem.store.lending(chosen), plan, feature)[0].row_sum
    return (sums - e.own[chosen] * e.donors[chosen]) / k, plan.n * plan.columns


def _donor_products(evaluation: Evaluation, feature: Feature, e: Effects, chosen: Indices) -> tuple[Floats, int]:
    """For chosen donors k the mean over i of g_ik r_i: rows count with their effects."""
    problem, base, k = evaluation.problem, evaluation.base, e.n - 1
    weights = arrays.from_host(e.rows, problem.xp, problem.device, base.losses[0].dtype)
    weighted = dataclasses.replace(evaluation, base=dataclasses.replace(base, weights=weights))
    plan = SomeDonors(e.n, chosen)
    sums = weighted.moments(problem.store, plan, feature)[0].donor_sum
    return (sums + np.sum(e.rows * e.own) - (e.rows * e.own)[chosen]) / k, plan.n * plan.columns


def influential(n: int) -> Indices:
    """The rows whose influence is evaluated."""
    if n <= INFLUENCE_ROWS:
        return np.arange(n)
    return np.sort(streams.ordering(0, n, 0)[:INFLUENCE_ROWS])  # of no seed: all pairs depend on none


def _summary(share: float, part: float, influence: Floats, n: int, beyond: float = 0.0) -> Summary:
    """``beyond``: the variance that influence values do not see."""
    spread = float(np.var(influence, ddof=1))
    skew = float(np.mean((influence - influence.mean()) ** 3)) / spread**1.5 / math.sqrt(n) if spread > 0.0 else 0.0
    return Summary(
        value=share,
        replaced_risk=part,
        std_error=math.sqrt(spread / n + beyond),
        skewness=skew,
        monte_carlo_share=0.0,
        fixed_data_error=0.0,
        random_variable_error=math.nan,
        row_error=math.nan,
        draws=None,
        row_values=None,
    )
