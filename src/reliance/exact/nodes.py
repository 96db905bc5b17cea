r"""Smooth models: the loss of a row as a function of the value that it borrows, from few values instead of n donors.

If a row's loss is a smooth function of the borrowed value, polynomials of some degree m - 1 show it, and sums over the
n donors are sums over the m nodes of Gauss quadrature for the donors' own values, with weights: exact for polynomials
of degree 2 m - 1, so for the squares of the losses' changes, too. What is summed by donor is interpolated from the
nodes with the polynomials that are orthonormal over the donors. The model is called with n m rows instead of n^2, and
with those of a sample.

With too few nodes the answer is wrong by whole standard errors, and nothing in it says so. So the number of nodes is
chosen on a sample of rows with true donors, for each loss, and what is still not shown to TOLERANCE at the largest
number is refused: a network with ReLU, trees, a loss with kinks. The route is never taken by itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.progress import Reporter
from reliance._core.streams import Indices
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.constant_plans import Constants, ConstantStore
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.exact.called import FromMoments, called
from reliance.exact.distinct import classes_of
from reliance.exact.protocol import Exchange, Job, Measured, Offer, Opening, Route
from reliance.losses.functions import Loss
from reliance.losses.outputs import whole
from reliance.models.probes import COARSE
from reliance.plans.bases import EveryPair, Rectangular

Floats = NDArray[np.float64]
# The error of interpolated changes of the loss, relative to their size, both root mean squares over the sample.
TOLERANCE = 1e-6
# Where predictions are of single precision: units in the last place, of the size of what is compared.
_UNITS = 100.0
# How many nodes are tried, one after the other; rows and true donors of the sample.
ORDERS, _ROWS, _DONORS = (8, 16, 24, 32, 48, 64, 96, 128), 48, 64
# Of these, as many as are measured together: one number for all of them, because JAX compiles for each.
_TOGETHER = 8
# What the last three coefficients may have of all that vary, in the changes that donors make.
_LAST, _SHARE = 3, 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# Quadrature


class Rule(NamedTuple):
    """Gauss quadrature for n numbers: nodes (m,) and weights (m,), which add up to n.

    ``polynomials (n, m)``: the orthonormal ones at the numbers; ``project (m, m)``: from values at the nodes to their
    coefficients.
    """

    nodes: Floats
    weights: Floats
    polynomials: Floats
    project: Floats

    def interpolate(self, values: Floats) -> Floats:
        """``(..., n)`` at the numbers, from ``(..., m)`` at the nodes."""
        return np.asarray(values @ self.project.T @ self.polynomials.T)


def gauss_rule(numbers: Floats, order: int) -> Rule:
    """The rule of some order for numbers (n,), more of them different than the order.

    The three-term recurrence of the polynomials that are orthonormal over the numbers (Stieltjes; each is made
    orthogonal to all before it, because rounding would not leave it so) gives a tridiagonal matrix, whose eigenvalues
    and eigenvectors are nodes and weights (Golub and Welsch 1969).

    Examples
    --------
    >>> numbers = np.array([0.0, 1.0, 2.0, 5.0, 6.0])
    >>> rule = gauss_rule(numbers, 2)
    >>> [bool(np.isclose(rule.weights @ rule.nodes**k, np.sum(numbers**k))) for k in range(4)]
    [True, True, True, True]
    """
    middle, half = 0.5 * (numbers.max() + numbers.min()), 0.5 * (numbers.max() - numbers.min())
    x, n = (numbers - middle) / half, len(numbers)
    basis = np.empty((n, order))
    basis[:, 0] = 1.0 / np.sqrt(n)
    diagonal, beside = np.zeros(order), np.zeros(order)
    for k in range(order):
        step = x * basis[:, k]
        diagonal[k] = basis[:, k] @ step
        if k + 1 < order:
            for _ in range(2):
                step -= basis[:, : k + 1] @ (basis[:, : k + 1].T @ step)
            beside[k] = np.linalg.norm(step)
            basis[:, k + 1] = step / beside[k]
    local, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1))
    # At a node the polynomials are its eigenvector over the first entry, whose square is the share of its weight.
    return Rule(middle + half * local, n * vectors[0] ** 2, basis * np.sqrt(n), vectors * vectors[0])


@dataclass(frozen=True, eq=False)
class AtNodes(EveryPair, Rectangular):
    """All n(n-1) pairs again, summed at nodes. A row with its own value is the row: it adds nothing."""

    rule: Rule

    @property
    def n(self) -> int:
        return len(self.rule.polynomials)

    @property
    def draws(self) -> int:
        return self.n - 1

    @property
    def columns(self) -> int:
        return len(self.rule.nodes)

    def donors(self, rows: range, columns: range) -> range:
        """Which of the nodes: the store has their values."""
        return columns

    def counts(self, columns: range) -> Floats | None:
        return self.rule.weights[columns.start : columns.stop]

    def donor_sums(self, column_sums: Floats) -> Floats:
        return self.rule.interpolate(column_sums)

    def by_donor(self, table: Floats, donors: Indices) -> Floats:
        return np.asarray(table @ self.rule.project.T @ self.rule.polynomials[donors].T)


# ---------------------------------------------------------------------------------------------------------------------
# A sample of rows with true donors


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of an evaluation under losses that keep every change; donors by the places of their sorted values."""

    evaluation: Evaluation

    @staticmethod
    def of(evaluation: Evaluation) -> Sample:
        n = evaluation.problem.n
        rows = np.random.Generator(np.random.Philox(key=n)).permutation(n)[:_ROWS]
        some = evaluation.some_rows(np.sort(rows))
        kept = tuple(whole(f) if isinstance(f, Loss) else f for f in some.problem.losses)
        problem = dataclasses.replace(some.problem, losses=kept)
        return Sample(dataclasses.replace(some, problem=problem, advance=Reporter()))

    @property
    def called(self) -> int:
        """With how many rows the model was called so far."""
        return self.evaluation.advance.done

    def changes(self, feature: Feature, values: Floats) -> list[Floats]:
        """For each loss D (rows, m) with the feature at each of m values."""
        parts = [self._part(feature, values[k : k + _TOGETHER]) for k in range(0, len(values), _TOGETHER)]
        return [np.concatenate(tables, axis=1) for tables in zip(*parts, strict=True)]

    def _part(self, feature: Feature, values: Floats) -> list[Floats]:
        problem, plan = self.evaluation.problem, Constants(self.evaluation.problem.n, len(values))
        found = self.evaluation.on(_held(problem, feature, values)).measure(plan, (feature,))
        tables = [moments.table for moments in found.moments[feature.name]]
        return [np.zeros((plan.n, plan.values)) if table is None else table for table in tables]

    def error(self, feature: Feature, rule: Rule, donors: Indices, true: list[Floats]) -> float:
        """Of changes that are interpolated from the nodes: the largest of all losses, relative to their size."""
        at_nodes, apart = self.changes(feature, rule.nodes), 0.0
        for known, changes in zip(true, at_nodes, strict=True):
            size = float(np.sqrt(np.mean(known**2)))
            missed = changes @ rule.project.T @ rule.polynomials[donors].T - known
            apart = max(apart, float(np.sqrt(np.mean(missed**2))) / size if size > 0.0 else 0.0)
        return apart


def _held(problem: Problem, feature: Feature, values: Floats) -> Problem:
    """The same rows, with one column at given values."""
    held = np.zeros((len(values), int(problem.flat.shape[1])))
    held[:, feature.columns[0]] = values
    return dataclasses.replace(problem, store=ConstantStore.over(problem.rows, held))


def _allowed(tolerance: float, evaluation: Evaluation) -> float:
    """What is asked for, unless rounding is larger, as that of single precision usually is."""
    return max(tolerance, _UNITS * arrays.epsilon(evaluation.base.predictions))


# ---------------------------------------------------------------------------------------------------------------------
# The route


@dataclass(frozen=True, eq=False)
class NodesJob:
    """Columns of many values, one after the other; ``taken``: how many rows each has called the model with."""

    question: Exchange
    features: tuple[Feature, ...]
    tolerance: float
    taken: dict[str, int] = field(default_factory=dict)
    route: str = "nodes"

    def evaluations(self, feature: Feature) -> int:
        """At the nodes and in the sample that they are chosen on; before that is known, for a usual number of nodes."""
        return self.taken.get(feature.name, self.question.problem.n * ORDERS[len(ORDERS) // 2])

    def run(self, evaluation: Evaluation) -> FromMoments:
        known, plans, block = {}, {}, (0, 0)
        sample = Sample.of(evaluation)
        for feature in self.features:
            expected, before = self.evaluations(feature), sample.called
            plan = AtNodes(self._rule(sample, evaluation, feature))
            in_sample = sample.called - before
            self.taken[feature.name] = in_sample + plan.n * plan.columns
            evaluation.advance.expect(self.evaluations(feature) - expected)
            evaluation.advance(in_sample)
            problem = _held(self.question.problem, feature, plan.rule.nodes)
            found = evaluation.on(problem).measure(plan, (feature,))
            known[feature.name], plans[feature.name] = found.moments[feature.name], plan
            block = max(block, found.block)
            for moments in known[feature.name]:
                _check_end(feature, plan.rule, moments.donor_sum)
        return FromMoments(self.question.problem, self.features, known, plans, block)

    def _rule(self, sample: Sample, evaluation: Evaluation, feature: Feature) -> Rule:
        """Of as many nodes as show the sampled rows; an error if none do."""
        values = _column(self.question.problem, feature)
        donors = np.argsort(values)[np.linspace(0, len(values) - 1, _DONORS).astype(np.int64)]
        true, error, tolerance = sample.changes(feature, values[donors]), np.inf, _allowed(self.tolerance, evaluation)
        most = min(len(np.unique(values)) // 2, _affordable(evaluation.problem))
        for order in (order for order in ORDERS if order <= most):
            rule = gauss_rule(values, order)
            error = sample.error(feature, rule, donors, true)
            if error <= tolerance:
                return rule
        raise ValueError(
            f"route='nodes': the loss is no smooth function of {shown(feature.name)} (ReLU, trees, kinks of a loss?): "
            f"changes are missed by {error:.1e} of their size, {tolerance:.0e} are allowed; pass route='auto'"
        )


def _affordable(problem: Problem) -> int:
    """For how many nodes the memory holds polynomials of all donors, and what is made of them."""
    return problem.memory // (4 * 8 * problem.n)


def _check_end(feature: Feature, rule: Rule, donor_sum: Floats) -> None:
    """The changes that donors make, of all rows together, must be shown well before the last polynomials."""
    parts = rule.polynomials.T @ donor_sum / len(donor_sum)
    varying, last = float(np.sum(parts[1:] ** 2)), float(np.sum(parts[-_LAST:] ** 2))
    if last > _SHARE**2 * varying:
        raise ValueError(
            f"route='nodes': {len(rule.nodes)} nodes do not show how the mean loss depends on {shown(feature.name)}: "
            "rows outside of the sample are not smooth; pass route='auto'"
        )


def _column(problem: Problem, feature: Feature) -> Floats:
    return np.asarray(arrays.to_host(problem.store.column(feature.columns[0])), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Smooth:
    question: Exchange
    tolerance: float

    def _few(self, feature: Feature) -> bool:
        """Whether the feature has so few values, or such as are counts, that they are taken as they are."""
        classes = classes_of(self.question, feature)
        values = _column(self.question.problem, feature)
        return classes is not None and (classes.columns <= 4 * ORDERS[0] or bool(np.all(values == np.round(values))))

    def cost(self, feature: Feature) -> float | str:
        if len(feature.columns) > 1:
            return f"{shown(feature.name)} is a group of columns, and nodes are values of one"
        if not np.all(np.isfinite(_column(self.question.problem, feature))):
            return f"{shown(feature.name)} has missing or infinite values, between which there are no nodes"
        problem = self.question.problem
        if problem.n < 4 * ORDERS[0] and not self._few(feature):
            return f"{problem.n} rows are fewer than nodes are worth"
        if _affordable(problem) < ORDERS[0]:
            return f"memory={problem.memory} bytes is too small for nodes of {problem.n} rows; pass more to rl.Run"
        return 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        few = [feature for feature in features if self._few(feature)]
        smooth = tuple(feature for feature in features if feature not in few)
        plans = ((feature, classes_of(self.question, feature)) for feature in few)
        found: list[Job[Measured]] = [NodesJob(self.question, smooth, self.tolerance)] if smooth else []
        return [*found, *(called(self.question, "distinct", plan, (f,)) for f, plan in plans if plan is not None)]


class Nodes(Route):
    """Few values of a column instead of all donors; where the user asks for it.

    ``tolerance``: the error of the changes of the loss, relative to their size. Another one is that of another route in
    the list `exact.ROUTES`.
    """

    name, calls = "nodes", True

    def __init__(self, tolerance: float = TOLERANCE) -> None:
        self.tolerance = tolerance

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        if not question.forced:
            return "is taken only where it is asked for"
        if problem.rows.coded or not arrays.is_floating(problem.xp, problem.flat.dtype):
            return "needs X of floating numbers, between which the model is called"
        if arrays.epsilon(question.base.predictions) > COARSE:
            return "needs predictions of single or double precision"

        def opened() -> Offer[Measured]:
            return _Smooth(question, self.tolerance)

        return opened
