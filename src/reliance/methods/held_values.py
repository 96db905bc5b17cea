"""Features held at values that occur in them: which values, and how far predictions spread around their change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.arrays import Array, namespace
from reliance._core.streams import Indices
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import blocks, known_models
from reliance.engine.constant_plans import Constants, ConstantStore
from reliance.engine.executors import Base, Caller
from reliance.engine.inputs import Problem
from reliance.exact import trust
from reliance.exact.cells import Cells
from reliance.exact.trees import TreeRoute, tree_route
from reliance.exact.trust import Disagreement
from reliance.losses.formulas import float_dtype
from reliance.losses.functions import Loss

Floats = NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------------------------
# Quantiles


class Held(NamedTuple):
    """The m distinct values that a feature is held at.

    Attributes
    ----------
    rows : integers (m,)
        A row of X that has each value.
    values : array (m,)
        In the dtype of the column.
    place : integers (Q,)
        Which of them each quantile is.
    spread : float
        The standard deviation of the feature; 0 if it is constant.
    """

    rows: Indices
    values: NDArray[Any]
    place: Indices
    spread: float

    @property
    def points(self) -> Floats:
        return self.values[self.place].astype(np.float64)


def held_values(problem: Problem, feature: Feature, probabilities: Floats) -> Held:
    if len(feature.columns) > 1:
        raise ValueError(
            f"features: {shown(feature.name)} is a group of {len(feature.columns)} columns, which have no one standard "
            "deviation to divide by: measure the columns one by one"
        )
    numbers = problem.numbers("a standard deviation", feature.columns)
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


def answers(
    problem: Problem, base: Base, call: Caller, held: dict[str, Held], route: str
) -> tuple[dict[str, Answer], tuple[int, int]]:
    """Every feature's impact, by the cheapest way that is exact; and the shape of a block."""
    found = {name: Answer(np.zeros(len(one.rows)), 0, "constant") for name, one in held.items() if one.spread == 0.0}
    block, coef = (0, 0), _coefficients(problem, base) if route == "auto" else None
    if coef is not None:
        for feature in _without(problem.features, found):
            size = float(abs(coef[feature.columns[0]]))
            found[feature.name] = Answer(np.full(len(held[feature.name].rows), size), 0, "linear")
        return found, block
    trees = _trees(problem, base) if route == "auto" else None
    with blocks.progress(problem, 0) as advance:
        if trees is not None:
            try:
                known, block = _by_trees(trees, _without(problem.features, found), held, advance)
                found |= known
            except Disagreement:
                trust.warn(problem, "trees")
                trees = None
        left = _without(problem.features, found)
        if left:
            lines = {f.name: _lines(held[f.name], None if trees is None else trees.cells[f.columns[0]]) for f in left}
            known, block = _by_model(problem, base, call, left, held, lines, advance)
            found |= known
    return found, block


def _without(features: Iterable[Feature], found: dict[str, Answer]) -> tuple[Feature, ...]:
    return tuple(feature for feature in features if feature.name not in found)


def _coefficients(problem: Problem, base: Base) -> Floats | None:
    """The coefficients of a linear model, if they are what predicts."""
    form = known_models.linear_form(problem)
    if form is None:
        return None
    if trust.reproduces(problem, base, form):
        return form[0]
    trust.warn(problem, "linear")
    return None


def _trees(problem: Problem, base: Base) -> TreeRoute | None:
    try:
        return tree_route(problem, base)
    except Disagreement:
        trust.warn(problem, "trees")
        return None


def _impact(one: Held, n: int, changes: Floats, squares: Floats) -> Floats:
    """sigma(y - y_kq) / sigma(x_k), from the sums over the rows of the change of the prediction and of its square.

    The row that has the value itself does not change, so the variance is at least 1/n of the mean square: the
    difference of the two sums keeps its digits.
    """
    variance = np.maximum(squares - changes**2 / n, 0.0) / (n - 1)
    return np.asarray(np.sqrt(variance) / one.spread)


def _by_trees(
    trees: TreeRoute, features: tuple[Feature, ...], held: dict[str, Held], advance: blocks.Reporter
) -> tuple[dict[str, Answer], tuple[int, int]]:
    """Features that no tree splits on, and those whose tables come from the trees: donor sums at the held values."""
    n = trees.setting.problem.n
    unused = [feature for feature in features if not trees.used(feature)]
    taken = [feature for feature in features if trees.used(feature) and not trees.deep and trees.takes(feature.columns)]
    found = {feature.name: Answer(np.zeros(len(held[feature.name].rows)), 0, "unused") for feature in unused}
    wanted = {feature.name: trees.cells[feature.columns[0]] for feature in taken}
    if not wanted:
        return found, (0, 0)
    advance.expect(n * sum(cells.number for cells in wanted.values()))
    run = trees.moments(wanted, advance)
    for name, cells in wanted.items():
        changes, squares = (moments.donor_sum[held[name].rows] for moments in run.moments[name])
        found[name] = Answer(_impact(held[name], n, changes, squares), n * cells.number, "trees")
    return found, run.block


def _lines(one: Held, cells: Cells | None) -> tuple[Indices, Indices]:
    """Which of the m values are evaluated, (e,), and which of these speaks for each value, (m,).

    All of them; but of values in one cell of a tree ensemble, which it does not tell apart, one.
    """
    if cells is None:
        every = np.arange(len(one.rows))
        return every, every
    _, first, speaker = np.unique(cells.label[one.rows], return_index=True, return_inverse=True)
    return first, speaker


def _by_model(
    problem: Problem,
    base: Base,
    call: Caller,
    features: tuple[Feature, ...],
    held: dict[str, Held],
    lines: dict[str, tuple[Indices, Indices]],
    advance: blocks.Reporter,
) -> tuple[dict[str, Answer], tuple[int, int]]:
    """By calling the model. Features that are held at equally many values share filled blocks."""
    counts = {feature.name: len(lines[feature.name][0]) for feature in features}
    advance.expect(problem.n * sum(counts.values()))
    found, block = {}, (0, 0)
    for count in sorted(set(counts.values())):
        together = tuple(feature for feature in features if counts[feature.name] == count)
        table = np.zeros((count, problem.flat.shape[1]), dtype=held[together[0].name].values.dtype)
        for feature in together:
            table[:, feature.columns[0]] = held[feature.name].values[lines[feature.name][0]]
        replaced = dataclasses.replace(problem, store=ConstantStore.over(problem.store, table))
        run = blocks.evaluate(replaced, Constants(problem.n, count), base, call, together, advance)
        block = max(block, run.block)
        for feature in together:
            changes, squares = (moments.draw_sum for moments in run.moments[feature.name])
            assert changes is not None
            assert squares is not None
            impact = _impact(held[feature.name], problem.n, changes, squares)[lines[feature.name][1]]
            found[feature.name] = Answer(impact, problem.n * count, "plain")
    return found, block
