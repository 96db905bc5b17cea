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


class Support(NamedTuple):
    """The units of a standard error, and what its variance is multiplied by because there are only so many."""

    units: float
    inflation: float


def supports(problem: Problem, plan: Plan) -> list[dict[str, Support]]:
    """For each loss, the support of each feature's error, by name."""
    # What other rows lend, or is given, need not vary in these.
    most, varied = plan.units, _varied_rows(problem) if plan.among_rows else {}
    found = []
    for index in range(len(problem.losses)):
        own = _metric_units(problem, index)
        found.append(
            {
                feature.name: support(most, min(own, varied.get(feature.name, most) + 1.0), problem.host_weights)
                for feature in problem.features
            }
        )
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
    return min(effective_rows(w[y == label]) for label in np.unique(y))


def _varied_rows(problem: Problem) -> dict[str, float]:
    """How many rows have another value than the most common one, for each feature in which one is that common."""
    n = problem.n
    # Spread evenly, and in step with no period that the rows might have.
    rows = np.arange(n) if n <= _SAMPLE else (n * np.modf(_GOLDEN * np.arange(_SAMPLE))[0]).astype(np.int64)
    index = arrays.from_host(rows, problem.xp, problem.device, arrays.index_dtype(problem.xp))
    some = arrays.to_host(arrays.cells(problem.flat, index, slice(None)))
    middle = np.argsort(some, axis=0)[len(rows) // 2]
    median = np.take_along_axis(some, middle[None, :], axis=0)
    common = np.mean((some == median) | ((some != some) & (median != median)), axis=0) > _COMMON
    asked = [f for f in problem.features if len(f.columns) <= _WIDEST and common[list(f.columns)].all()]
    counts = [_unlike(problem, feature, rows[middle]) for feature in asked]
    found = arrays.fetch(counts)
    # No row at all: what is not seen to vary has no error that might be too short.
    return {feature.name: float(count) for feature, count in zip(asked, found, strict=True) if 0 < count <= n / 2}


def _unlike(problem: Problem, feature: Feature, examples: NDArray[np.int64]) -> Array:
    """Rows that differ from an example in one of the columns; one NaN is like another."""
    xp = problem.xp
    unlike = xp.zeros((problem.n,), dtype=xp.bool, device=problem.device)
    for column in feature.columns:
        values = problem.flat[:, column]
        example = values[int(examples[column])]
        unlike = unlike | ((values != example) & ~((values != values) & (example != example)))
    return xp.sum(xp.astype(unlike, arrays.index_dtype(xp)))
