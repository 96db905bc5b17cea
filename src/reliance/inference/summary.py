"""Standard errors, intervals, tests and multiplicity, from the sums of a run.

The mathematics of the errors is in `variance`; here it meets the host: one feature's summary, t quantiles, p-values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from reliance._core.checks import warn
from reliance._core.words import shown
from reliance.data.clusters import Membership
from reliance.engine.reductions import Moments
from reliance.inference.clusters import clustered
from reliance.inference.freedom import FEWEST, Support
from reliance.inference.row_tests import rank_test, row_test, sign_flip_test
from reliance.inference.variance import hull, kernel, skewness, with_row_effect
from reliance.plans import Plan, Terms

Floats = NDArray[np.float64]
ALTERNATIVES = ("greater", "less", "two-sided")
METHODS = ("t", "paired", "sign-flip", "rank", "wilcoxon", "sign")
ADJUSTMENTS = ("holm", "bh", "none")


@dataclass(frozen=True)
class Summary:
    """One feature's estimate and its errors; see `Importance` for what the fields mean."""

    value: float
    replaced_risk: float
    std_error: float
    skewness: float
    monte_carlo_share: float
    fixed_data_error: float
    random_variable_error: float
    row_error: float
    draws: Floats | None
    row_values: Floats | None
    influence: Floats | None = None
    unit_values: Floats | None = None  # None: the rows are the units
    degrees_of_freedom: float = math.nan  # nan: as many as the plan has units, less one

    def with_error(
        self, std_error: float, skewness: float | None = None, degrees_of_freedom: float | None = None
    ) -> Summary:
        """With another standard error, and perhaps another skewness or other degrees of freedom of it.

        What more draws would remove stays what it is.
        """
        gamma = self.skewness if skewness is None else skewness
        df = self.degrees_of_freedom if degrees_of_freedom is None else degrees_of_freedom
        known = self.std_error > 0.0 and std_error > 0.0
        share = self.monte_carlo_share * (self.std_error / std_error) ** 2 if known else math.nan
        return dataclasses.replace(
            self, std_error=std_error, skewness=gamma, monte_carlo_share=share, degrees_of_freedom=df
        )

    def of_draws_alone(self, rows: int | None) -> Summary:
        """Without what rows say, of a metric that says nothing about them; ``rows``: of how many they are kept."""
        unknown = None if rows is None else np.full(rows, math.nan)
        return dataclasses.replace(self.without_errors(), row_values=unknown, unit_values=None)

    def without_errors(self) -> Summary:
        """The estimate, of which nothing is known over new data."""
        nan = math.nan
        return dataclasses.replace(
            self, std_error=nan, skewness=nan, monte_carlo_share=nan, random_variable_error=nan, row_error=nan
        )

    def resting_on(self, support: Support, usual: int) -> Summary:
        """With the error of so few units, where there usually are so many; none if there are too few for one."""
        if support.units < FEWEST:
            nan = math.nan
            return dataclasses.replace(
                self, std_error=nan, skewness=nan, monte_carlo_share=nan, degrees_of_freedom=0.0, influence=None
            )
        if support == (usual, 1.0) or self.std_error == 0.0:
            return self
        wider = math.sqrt(support.inflation)
        found = self.with_error(wider * self.std_error, self.skewness / wider**3, support.units - 1.0)
        return dataclasses.replace(found, influence=None if found.influence is None else wider * found.influence)


def check_known(value: object, choices: tuple[str, ...], name: str) -> None:
    """One of a few names, or an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={shown(value)} is not known: use one of {', '.join(map(repr, choices))}")


def null_value(compare: str) -> float:
    """What a feature that does not matter gives: 0 as a difference or a share of the variance, 1 as a ratio."""
    if compare not in ("difference", "ratio", "share"):
        raise ValueError(f"compare={shown(compare)} is not known: use 'difference' or 'ratio'")
    return 1.0 if compare == "ratio" else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# One feature, on the host


def risk(losses: Floats, weights: Floats | None) -> float:
    """The (weighted) mean loss."""
    if weights is None:
        return float(np.mean(losses))
    return float(np.mean(weights * losses) / np.mean(weights))


def lent_units(base_losses: Floats, weights: Floats | None, plan: Plan, compare: str) -> Floats:
    """For each donor the sum over its uses of u, the kernel's unit: the same for all features."""
    w = np.ones(plan.n) if weights is None else weights
    return np.asarray(plan.spread(w * base_losses if compare == "ratio" else w))


def summarize(
    moments: Moments,
    base_losses: Floats,
    weights: Floats | None,
    plan: Plan,
    compare: str,
    *,
    per_row: bool = True,
    lent: Floats | None = None,
    keep_rows: bool = True,
    effect: Floats | None = None,
    support: Support | None = None,
    clusters: Membership | None = None,
    keep_influence: bool = False,
) -> Summary:
    """Estimate and errors of one feature.

    ``per_row=False``: a metric without influence function, draws only. ``lent``: `lent_units`, where already known.
    ``keep_rows=False``: without the values of the rows, which many features of many rows have no room for. ``effect``
    (n,): what each row adds to the mean loss through a sampler that was fitted on these rows. ``support``: on how many
    units the error rests, if not on all. ``clusters``: what the units are, if not rows. ``keep_influence``: with how
    far each unit moves the estimate, which there is with an effect in any case.
    """
    null, n, k, w = null_value(compare), plan.n, plan.draws, weights
    w = np.ones(n) if w is None else np.asarray(w, dtype=np.float64)
    base = np.asarray(base_losses, dtype=np.float64)
    unit = w * base if compare == "ratio" else w
    if compare == "ratio" and not np.mean(unit) != 0.0:
        raise ValueError("compare='ratio' divides by the base risk, which is 0: use compare='difference'")
    lent = lent_units(base, weights, plan, compare) if lent is None else lent
    squares = np.sum(w * w * moments.row_squares)
    h = kernel(moments.row_sum, moments.donor_sum, np.asarray(squares), w, unit, lent, k)
    value = null + float(h.excess)
    changes = w * moments.row_sum / (k * h.scale)
    row_values = null + changes
    draws = None if moments.draw_sum is None else null + moments.draw_sum / (n * h.scale)
    contrasts = None if moments.row_contrast is None else w * moments.row_contrast / h.scale
    terms = Terms(h.rows, h.donors, h.total, draws, contrasts, changes)
    fixed = 0.0 if draws is None else plan.fixed_data_error(terms)
    if effect is not None:
        added = (effect - np.mean(effect)) * float(np.mean(w) / h.scale)  # the scale of a ratio is the base risk
        error = with_row_effect(h, added, plan.spread(added), k)
        terms = Terms(error.rows, error.donors, error.total, draws, contrasts, changes)
    influence, (population, drawn) = plan.influence(terms), plan.variance(terms)
    variance, monte_carlo = float(population), float(drawn)
    units, gamma = plan.unit_values(row_values), math.nan
    if clusters is not None:
        influence, variance, gamma = clustered(influence, variance, clusters, plan.crosses(clusters.codes))
        units = null + clusters.sums(changes)
    share = math.nan if not variance >= 0.0 else (monte_carlo / variance if variance > 0.0 else 0.0)
    summary = Summary(
        value=value,
        replaced_risk=risk(base, w) + risk(moments.row_sum, w) / k,
        std_error=math.sqrt(variance),
        skewness=float(skewness(influence, np.asarray(variance))) if clusters is None else gamma,
        monte_carlo_share=share,
        fixed_data_error=fixed,
        random_variable_error=math.sqrt(float(h.total)) / (n * k),  # sqrt(mean(h^2) / (n K)), the mean of h being 0
        row_error=float(np.std(units, ddof=1)) / math.sqrt(units.size) if units.size > 1 else math.nan,
        draws=draws,
        row_values=row_values if keep_rows else None,
        unit_values=units if keep_rows and units is not row_values else None,
        influence=influence if keep_influence or effect is not None else None,
    )
    if not per_row:
        return summary.of_draws_alone(n if keep_rows else None)
    return (
        summary if support is None else summary.resting_on(support, plan.units if clusters is None else clusters.count)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


def check_level(level: object) -> None:
    """A confidence level: a number between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, float | int | np.floating | np.integer):
        raise TypeError(f"level={shown(level)} is not a number: give a confidence level between 0 and 1, such as 0.95")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={shown(level)} is not a confidence level: give a number between 0 and 1, such as 0.95")


def t_quantile(level: float, df: Any) -> Any:
    """The two-sided t quantile of a confidence level: a number, or an array like ``df``."""
    check_level(level)
    quantile = special.stdtrit(df, 0.5 + 0.5 * float(level))
    return quantile if np.ndim(df) else float(quantile)


def satterthwaite(variances: Sequence[ArrayLike], freedoms: Sequence[ArrayLike | None]) -> Floats:
    """The degrees of freedom of a sum of independent variances, each estimated with its own; elementwise."""
    parts = np.stack(np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in variances)))
    df = np.stack(np.broadcast_arrays(parts[0], *(np.asarray(f, dtype=np.float64) for f in freedoms))[1:])
    # Shares first: squares of small variances are 0. Nothing that moves has any number of degrees: the least.
    total = parts.sum(axis=0)
    found = np.sum((parts / np.where(total > 0.0, total, 1.0)) ** 2 / df, axis=0)
    return np.asarray(np.where(total > 0.0, 1.0 / np.where(total > 0.0, found, 1.0), df.min(axis=0)))


def interval(
    values: Floats,
    errors: Floats,
    df: float | Floats,
    level: float = 0.95,
    *,
    gamma: Floats | None = None,
    ratio: bool = False,
) -> Floats:
    """Confidence intervals ``(p, 2)``: plain t, or with ``gamma`` the hull of t and Hall's (log scale for ratios)."""
    quantile = t_quantile(level, df)
    if gamma is None:
        return np.stack([values - quantile * errors, values + quantile * errors], axis=1)
    with np.errstate(over="ignore"):  # an error many times the ratio: the end is infinite
        return np.stack(hull(values, errors, gamma, quantile, ratio), axis=1)


def known_interval(result: Any, level: float) -> Floats:
    """The intervals ``(p, 2)`` of a result for its table or figure: nan where it has none, and no warnings.

    What interval() would say to someone who asks is left out by not saying it: filters of warnings belong to all
    threads, and must not be touched.
    """
    check_level(level)  # also where there is no interval
    with np.errstate(all="ignore"):
        try:
            return np.asarray(getattr(result, "_interval", result.interval)(level))
        except ValueError:
            return np.full((len(result.names), 2), math.nan)


# ---------------------------------------------------------------------------------------------------------------------
# Tests: statistics and p-values of p features


def test(
    method: str,
    alternative: str,
    *,
    compare: str,
    units: int,
    draws_per_row: int,
    values: Floats,
    std_error: Floats,
    row_error: Floats,
    rows: Floats | None,
    draws: Floats | None,
    key: int,
    family: int,
    df: Floats | None = None,  # noqa: PT028
) -> tuple[Floats, Floats]:
    """Statistics and p-values of one method, ``rows`` being the values of the units.

    ``family`` is the number of tests that will be adjusted together.
    """
    check_known(method, METHODS, "method")
    check_known(alternative, ALTERNATIVES, "alternative")
    null, units_less_one = null_value(compare), units - 1
    if method == "t":
        return t_test(values, std_error, units_less_one if df is None else df, alternative, compare == "ratio")
    if method == "paired":
        return t_test(values - null, row_error, units_less_one, alternative, False)
    if method == "rank":
        return rank_test(_needed_draws(draws, family), null, alternative)
    if draws_per_row > 1 and method != "sign-flip":
        raise ValueError(
            f"method={shown(method)} is valid only for one draw per row, this result has {draws_per_row}: means of "
            "several draws are not symmetric about 0 under the null, and at 20 draws the size of a 0.05 test was "
            "measured at 0.19-0.97. Use method='t', or measure with draws=1"
        )
    if rows is None or np.isnan(rows).any():
        raise ValueError(
            f"method={shown(method)} needs the values of the rows: measure with keep=('rows',) and a per-row loss"
        )
    if method != "sign-flip":
        return row_test(rows - null, method, alternative)
    if draws_per_row > 1:
        warn(
            f"method='sign-flip' takes the rows' values for symmetric under the null, which means of {draws_per_row} "
            "draws are not: use method='t', or measure with draws=1"
        )
    return sign_flip_test(rows - null, alternative, key)


def _needed_draws(draws: Floats | None, family: int) -> Floats:
    if draws is None:
        raise ValueError(
            "method='rank' compares whole draws and all pairs have none: use method='t', or measure with "
            "permutation_importance or model_reliance(pairs=K)"
        )
    needed = math.ceil(family / 0.05) - 1
    if draws.shape[1] < needed:
        warn(
            f"the smallest p-value of the rank test is 1/(K+1) = 1/{draws.shape[1] + 1}: for {family} tests together "
            f"at level 0.05 take at least {needed} draws"
        )
    return draws


def t_test(values: Floats, errors: Floats, df: float | Floats, alternative: str, ratio: bool) -> tuple[Floats, Floats]:
    """Estimate over standard error; ratios on the logarithmic scale. No effect and no error is p = 1."""
    positive = ratio & (values > 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        effect = np.where(positive, np.log(values), values - (1.0 if ratio else 0.0))
        statistic = effect / np.where(positive, errors / values, errors)
    nothing = (effect == 0.0) & (errors == 0.0)
    statistic = np.where(nothing, 0.0, statistic)
    p = {
        "greater": special.stdtr(df, -statistic),
        "less": special.stdtr(df, statistic),
        "two-sided": 2.0 * special.stdtr(df, -np.abs(statistic)),
    }[alternative]
    return statistic, np.where(nothing, 1.0, p)


def adjust(p: Floats, method: str) -> Floats:
    """Adjusted p-values: "holm" (family-wise error), "bh" (false discovery rate) or "none"; nan stays nan."""
    check_known(method, ADJUSTMENTS, "adjust")
    adjusted = np.array(p, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(adjusted))
    if method == "none" or known.size == 0:
        return adjusted
    order = known[np.argsort(adjusted[known], kind="stable")]
    m, rank = order.size, np.arange(1, order.size + 1)
    if method == "holm":
        steps = np.maximum.accumulate((m + 1 - rank) * adjusted[order])
    else:
        steps = np.minimum.accumulate((m / rank * adjusted[order])[::-1])[::-1]
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
