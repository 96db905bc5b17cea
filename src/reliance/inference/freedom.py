"""On how many rows an error rests.

Usually on all n. But if nearly all of the weight is on a few rows, if few rows are of the rarer class of an AUC, or if
few rows have another value of the feature than the rest, a standard error knows no more than those few rows tell it.
They are its *units*: its t quantile has one degree of freedom less than there are units, and where it was divided by n
instead of them it is that much too short.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.arrays import Array
from reliance._core.words import shown
from reliance.data.clusters import Membership
from reliance.data.features import Feature
from reliance.engine.problems import Problem
from reliance.losses.functions import Metric
from reliance.plans import Plan

Floats = NDArray[np.float64]
JACKKNIFE_GROUPS = 20
# Fewer units say nothing about their own spread.
FEWEST = 1.5
TOO_FEW = "rests on too few rows: one class of y, or nearly all of the weight, is on one row. Measure more rows"
# A value that most rows have is the median of some of them, and common among these.
_SAMPLE, _COMMON = 101, 0.3
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Columns of a feature: rows agree in all of more than these only if they agree altogether.
_WIDEST = 64


def units_of(problem: Problem, plan: Plan) -> int:
    """How many independent units the estimates of a plan rest on: its own, or the clusters of the rows."""
    clusters = problem.rows.clusters
    if clusters is None:
        return plan.units
    if clusters.lend != plan.lending:
        raise ValueError(
            f"clusters has lend={shown(clusters.lend)}, but here donors are those of the plan {shown(plan.label)}: "
            "leave lend out, or use permutation_importance, ablation_importance, model_reliance or compare_models"
        )
    if plan.lends and not plan.among_rows:
        raise ValueError(
            f"clusters= and the plan {shown(plan.label)}: which of the other rows belong together is not known, and "
            "they have an error, too. Leave clusters or rl.Donors(X) out"
        )
    if plan.units < plan.n:
        raise ValueError(
            f"clusters= and the plan {shown(plan.label)}: its units are pairs of rows, which tie clusters together. "
            "Use pairs='all' or a number of draws"
        )
    return clusters.count


def label_of(problem: Problem, plan: str) -> str:
    """A plan in words, with what its units are if these are not rows."""
    clusters = problem.rows.clusters
    return plan if clusters is None else f"{plan}, {clusters.label}"


class Support(NamedTuple):
    """The units of a standard error, and what its variance is multiplied by because there are only so many."""

    units: float
    inflation: float


def supports(problem: Problem, plan: Plan) -> list[dict[str, Support]]:
    """For each loss, the support of each feature's error, by name."""
    clusters, weights = problem.rows.clusters, problem.host_weights
    # What other rows lend, or is given, need not vary in these.
    most, varied = units_of(problem, plan), _varied_rows(problem) if plan.among_rows else {}
    found = []
    for index in range(len(problem.losses)):
        own = _metric_units(problem, index)
        units = {feature.name: min(own, varied.get(feature.name, most) + 1.0) for feature in problem.features}
        if clusters is None:
            found.append({name: support(most, few, weights) for name, few in units.items()})
        else:
            found.append({name: clustered_support(clusters, few, weights) for name, few in units.items()})
    return found


def support(most: int, units: float, weights: Floats | None) -> Support:
    """Of an error that would rest on ``most`` units, by how many there are and by the weights.

    Units: u of them have a variance that is u/(u - 1) times too small. Weights p that sum to 1: (sum p)^2 / sum p^2
    units, and the squared distances from their own weighted mean are too small by 1 - 2 sum p^3 / sum p^2 + sum p^2,
    which is 1 - 1/n if all are equal.
    """
    units = min(float(units), float(most))
    if most < 2 or units < FEWEST:
        return Support(0.0, 1.0)
    usual = most / (most - 1.0)
    inflation = units / (units - 1.0) / usual
    if weights is not None:
        p = weights / weights.sum()
        square = float(np.sum(p**2))
        effective = most / (len(p) * square)
        if effective < FEWEST:
            return Support(0.0, 1.0)
        left = 1.0 - 2.0 * float(np.sum(p**3)) / square + square
        usual = len(p) / (len(p) - 1.0)
        units, inflation = min(units, effective), max(inflation, 1.0 / (left * usual))
    return Support(units, max(inflation, 1.0))


def clustered_support(clusters: Membership, units: float, weights: Floats | None) -> Support:
    """Of an error that rests on clusters, of which ``units`` say something, by how much they differ in size.

    The worst case is that rows of a cluster are copies of each other: then cluster g with a share p_g of all rows has a
    sum S_g = p_g (m_g - sum p m), with m_g independent. The sum of S^2 is too small by the factor 1 - 2 sum p^3 / sum
    p^2 + sum p^2, and has as many degrees of freedom as its expectation squared over half its variance (Satterthwaite;
    Bell and McCaffrey 2002). Losses are weighed and donors are not, so both shares are asked.
    """
    most = clusters.count
    shares = [clusters.shares(None), *([] if weights is None else [clusters.shares(weights)])]
    effective = min(_freedom_of_sums(p) + 1.0 for p in shares)
    found = [support(most, units, p) for p in shares]
    if effective < FEWEST or any(one.units < FEWEST for one in found):
        return Support(0.0, 1.0)
    # Equal clusters have G - 1 degrees of freedom; rounding must not make it less.
    fewest = min(*(min(units, most) for _ in shares), effective if effective < most - 1e-6 else most)
    return Support(fewest, max(one.inflation for one in found))


def _freedom_of_sums(p: Floats) -> float:
    """Degrees of freedom of the sum of p_g^2 (m_g - sum p m)^2, m_g independent and normal: tr(A)^2 / tr(A^2)."""
    d, square = p**2, float(np.sum(p**2))
    own = 1.0 - 2.0 * p + square
    zeroth, first, second = (float(np.sum(d * p**power)) for power in range(3))
    across = square**2 * zeroth**2 + 2.0 * zeroth * second - 4.0 * square * zeroth * first + 2.0 * first**2
    trace = float(np.sum(d * own))
    both = float(np.sum(d**2 * (own**2 - (own - 1.0) ** 2))) + across
    return trace**2 / both if both > 0.0 else 0.0


def effective_rows(weights: Floats) -> float:
    """How many equal weights would say as much: (sum w)^2 / sum w^2."""
    top = float(np.max(weights, initial=0.0))
    scaled = weights / top if top > 0.0 else weights
    square = float(np.sum(scaled**2))
    return float(np.sum(scaled)) ** 2 / square if square > 0.0 else 0.0


def _metric_units(problem: Problem, loss: int) -> float:
    """The rows of the rarer class, where a metric is centred by class."""
    function, target, weights = problem.losses[loss], problem.targets[loss], problem.host_weights
    if not isinstance(function, Metric) or not function.by_class or target is None:
        return math.inf
    y = arrays.to_host(target)
    w = np.ones(len(y)) if weights is None else weights
    if (clusters := problem.rows.clusters) is not None:
        return min(clusters.touched((y == label) & (w > 0.0)) for label in np.unique(y))
    return min(effective_rows(w[y == label]) for label in np.unique(y))


def _varied_rows(problem: Problem) -> dict[str, float]:
    """How many rows, or clusters of them, have another value than the common one, for each feature that has one."""
    n = problem.n
    # Spread evenly, and in step with no period that the rows might have.
    rows = np.arange(n) if n <= _SAMPLE else (n * np.modf(_GOLDEN * np.arange(_SAMPLE))[0]).astype(np.int64)
    index = arrays.from_host(rows, problem.xp, problem.device, arrays.index_dtype(problem.xp))
    some = arrays.to_host(arrays.cells(problem.flat, index, slice(None)))
    middle = np.argsort(some, axis=0)[len(rows) // 2]
    median = np.take_along_axis(some, middle[None, :], axis=0)
    common = np.mean((some == median) | ((some != some) & (median != median)), axis=0) > _COMMON
    asked = [f for f in problem.features if len(f.columns) <= _WIDEST and common[list(f.columns)].all()]
    unlike = [_unlike(problem, feature, rows[middle]) for feature in asked]
    xp, clusters = problem.xp, problem.rows.clusters
    found = arrays.fetch([xp.sum(xp.astype(one, arrays.index_dtype(xp))) for one in unlike])
    # No row at all: what is not seen to vary has no error that might be too short.
    few = {f.name: k for k, (f, count) in enumerate(zip(asked, found, strict=True)) if 0 < count <= n / 2}
    if clusters is None:
        return {name: float(found[k]) for name, k in few.items()}
    # What most rows have is varied by the clusters of the others.
    return {name: float(clusters.touched(arrays.to_host(unlike[k]))) for name, k in few.items()}


def _unlike(problem: Problem, feature: Feature, examples: NDArray[np.int64]) -> Array:
    """``(n,)``: whether rows differ from an example in one of the columns; one NaN is like another."""
    xp = problem.xp
    unlike = xp.zeros((problem.n,), dtype=xp.bool, device=problem.device)
    for column in feature.columns:
        values = problem.store.column(column)
        example = values[int(examples[column])]
        unlike = unlike | ((values != example) & ~((values != values) & (example != example)))
    return unlike
