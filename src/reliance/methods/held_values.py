"""Features held at values that occur in them: which values, and how far predictions spread around their change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.arrays import namespace
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.exact import routes
from reliance.exact.held import Held, HeldAt
from reliance.losses.formulas import float_dtype
from reliance.losses.functions import Loss

Floats = NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------------------------
# Quantiles


def held_values(problem: Problem, feature: Feature, probabilities: Floats) -> Held:
    if len(feature.columns) > 1:
        raise ValueError(
            f"features: {shown(feature.name)} is a group of {len(feature.columns)} columns, which have no one standard "
            "deviation to divide by: measure the columns one by one"
        )
    numbers = problem.rows.numbers("a standard deviation", feature.columns)
    column = arrays.to_host(numbers[:, feature.columns[0]])
    known = column[~np.isnan(column)] if column.dtype.kind == "f" else column
    finite = known.astype(np.float64)
    if len(finite) == 0:
        raise ValueError(f"feature {shown(feature.name)} is NaN in every row: leave it out of features=")
    if not np.isfinite(finite).all():
        raise ValueError(
            f"feature {shown(feature.name)} holds infinite values, so it has no standard deviation: drop them"
        )
    constant = bool(np.min(finite) == np.max(finite))
    values, place = np.unique(nearest_values(finite, probabilities), return_inverse=True)
    rows = np.asarray([np.argmax(column == value) for value in values], dtype=np.int64)
    return Held(rows, column[rows], place, 0.0 if constant else float(np.std(finite, ddof=1)))


def nearest_values(x: Floats, probabilities: Floats) -> Floats:
    """``(Q,)``: the entries of x that are nearest to its quantiles, the first ones if two are equally near."""
    n = len(x)
    # Cunnane's plotting positions: the quantile lies between the sorted entries below and above n p + 0.4 + 0.2 p.
    position = n * probabilities + 0.4 + 0.2 * probabilities
    above = np.floor(np.clip(position, 1, max(n - 1, 1))).astype(np.int64)
    share = np.clip(position - above, 0.0, 1.0)
    above = np.minimum(above, n - 1)
    below = np.maximum(above - 1, 0)
    ordered = np.partition(x, np.unique(np.concatenate([below, above])))
    low, high = ordered[below], ordered[above]
    quantile = (1.0 - share) * low + share * high
    down, up = np.abs(low - quantile), np.abs(high - quantile)
    for k in np.flatnonzero((down == up) & (low != high)):
        if np.argmax(x == high[k]) < np.argmax(x == low[k]):
            low[k] = high[k]
    return np.where(down <= up, low, high)


# ---------------------------------------------------------------------------------------------------------------------
# Spreads


def _signed_rows(own: Array, prediction: Array) -> Array:
    xp = namespace(own, prediction)
    dtype = float_dtype(xp, prediction)
    change = xp.astype(prediction, dtype, copy=False) - xp.astype(own, dtype, copy=False)
    return xp.mean(change, axis=tuple(range(1, change.ndim))) if change.ndim > 1 else change


SIGNED_SHIFT = Loss("signed_shift", _signed_rows, "prediction")


class Answer(NamedTuple):
    """I_{k,q} of one feature at its m values, (m,), the entries of its table of predictions, and how it was found."""

    impact: Floats
    evaluations: int
    route: str


def answers(evaluation: Evaluation, held: dict[str, Held], route: str) -> tuple[dict[str, Answer], tuple[int, int]]:
    """Every feature's impact, by the cheapest way that is exact; and the shape of a block."""
    found = {name: Answer(np.zeros(len(one.rows)), 0, "constant") for name, one in held.items() if one.spread == 0.0}
    rest = tuple(feature for feature in evaluation.problem.features if feature.name not in found)
    done = routes.answered(HeldAt(evaluation.problem, evaluation.base, held), evaluation, route, rest)
    ways = zip(rest, done.evaluations(rest), done.routes(rest), strict=True)
    return found | {f.name: Answer(done.answer(f).found[f.name], count, way) for f, count, way in ways}, done.block
