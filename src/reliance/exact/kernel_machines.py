r"""All pairs of a kernel machine: sums over its s centres instead of calls of it.

A kernel factors into what the exchanged columns give and what the others give, so the raw outputs of all pairs of a
feature are a product of two matrices, ``A (n, R) @ B (n, R).T``: the kernel is never evaluated for a pair. That is
:math:`O(n^2 R)`, in blocks of the engine, for any loss and any group of columns.

Of a single column there is more to know. What a row would be predicted with the value x is a smooth function of x, for
a polynomial kernel a polynomial, for a Gaussian one as good as that: Chebyshev polynomials of some degree q - 1 give it
to the last digit, and the number q is found from the kernel's own coefficients. Then B has q columns instead of R; and
under squared error D is a polynomial of degree 2 (q - 1), so that all sums, of its squares too, are quadratic forms of
2 q - 1 coefficients of each row: :math:`O(n (s + q) q)` in all, and n x n numbers are nowhere made.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.engine.rounding import ROUNDING
from reliance.exact import panels, trust
from reliance.exact.called import Called, FromMoments
from reliance.exact.distinct import classes_of
from reliance.exact.kernel_tables import Interval, KernelStore, coefficients, interval
from reliance.exact.protocol import Almost, Exchange, Job, Measured, Opening, Route
from reliance.exact.unused import Unused
from reliance.losses.functions import is_squared
from reliance.losses.outputs import is_output, is_whole
from reliance.models import kernel_machines
from reliance.models.calling import Model
from reliance.models.kernel_machines import KernelMachine
from reliance.plans import Plan

Floats = NDArray[np.float64]
# What an entry of a table costs of a call of the machine: a product instead of kernel values.
_SHARE = 0.1
# Rows whose polynomials are held together.
_STRIP = 2**11
NEEDS = (
    "needs a kernel machine (scikit-learn's SVR, NuSVR, SVC, NuSVC, OneClassSVM, KernelRidge or "
    "GaussianProcessRegressor) and X of float64 or integers"
)


# ---------------------------------------------------------------------------------------------------------------------
# Sums, under squared error


@dataclass(frozen=True, eq=False)
class SumsJob:
    """Single columns whose sums are quadratic forms of coefficients."""

    opened: _Opened
    features: tuple[Feature, ...]
    route: str = "kernel"

    def evaluations(self, feature: Feature) -> int:
        return self.opened.problem.n * self._span(feature).order

    def _span(self, feature: Feature) -> Interval:
        found = self.opened.store.intervals[feature.columns[0]]
        assert found is not None
        return found

    def run(self, evaluation: Evaluation) -> FromMoments:
        problem, plan, known = self.opened.problem, self.opened.question.plan, {}
        for feature in self.features:
            known[feature.name] = self._moments(feature)
            evaluation.advance(self.evaluations(feature))
        return FromMoments(problem, self.features, known, {f.name: plan for f in self.features})

    def _moments(self, feature: Feature) -> tuple[Moments, ...]:
        opened, column, span = self.opened, feature.columns[0], self._span(feature)
        X, base, weights = opened.store.X, opened.base, opened.problem.host_weights
        donors = Donors.of(span, X[:, column])
        own, slack = (np.asarray(arrays.to_host(a), dtype=np.float64) for a in (base.predictions, base.slack))
        sums = [Sums.of(len(X), donors.order) for _ in base.targets]
        between = np.asarray(chebyshev.chebvander(panels.nodes(donors.order), span.order - 1)).T
        moved = False
        for rows, own_coefficients in coefficients(opened.machine, X, column, span):
            moves = own_coefficients @ between + (opened.machine.offset - own[rows, None])
            moved = moved or bool(np.any(np.abs(moves) > slack[rows, None]))
            for function, target, one in zip(opened.problem.losses, base.targets, sums, strict=True):
                # D = (y - f)^2 - (y - f_i)^2, where f = f_i + the move.
                residual = np.asarray(target[rows], dtype=np.float64) - own[rows]
                changes = moves if is_output(function) else moves * (moves - 2.0 * residual[:, None])
                one.add(rows, changes, donors, None if weights is None else weights[rows])
        return tuple(one.moments(donors) if moved else _nothing(len(X)) for one in sums)


def _nothing(n: int) -> Moments:
    return Moments(np.zeros(n), np.zeros(n), np.zeros(n), None)


@dataclass(frozen=True, eq=False)
class Donors:
    """The values of a column: sums over them of the polynomials (order,), and of their products (order, order)."""

    span: Interval
    values: Floats
    order: int
    total: Floats
    squares: Floats

    @staticmethod
    def of(span: Interval, values: Floats) -> Donors:
        order = 2 * span.order - 1
        total, squares = np.zeros(order), np.zeros((order, order))
        for start in range(0, len(values), _STRIP):
            part = span.polynomials(values[start : start + _STRIP], order)
            total += part.sum(axis=0)
            squares += part.T @ part
        return Donors(span, values, order, total, squares)

    def at(self, coefficients: Floats) -> Floats:
        """``(n,)``: a polynomial at the values."""
        strips = range(0, len(self.values), _STRIP)
        parts = [self.span.polynomials(self.values[s : s + _STRIP], self.order) @ coefficients for s in strips]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Sums:
    """Running sums under one loss: of rows, of their squares, and the coefficients of the donors' sums."""

    rows: Floats
    squares: Floats
    lent: Floats
    turn: Floats = field(repr=False)

    @staticmethod
    def of(n: int, order: int) -> Sums:
        return Sums(np.zeros(n), np.zeros(n), np.zeros(order), panels.to_coefficients(order).T)

    def add(self, rows: slice, changes: Floats, donors: Donors, weights: Floats | None) -> None:
        """``changes (b, order)``: D of some rows at the points."""
        found = changes @ self.turn
        self.rows[rows] = found @ donors.total
        self.squares[rows] = np.maximum(np.einsum("ij,ij->i", found @ donors.squares, found), 0.0)
        self.lent[...] += found.sum(axis=0) if weights is None else weights @ found

    def moments(self, donors: Donors) -> Moments:
        return Moments(self.rows, donors.at(self.lent), self.squares, None)


# ---------------------------------------------------------------------------------------------------------------------
# The route


@dataclass(frozen=True, eq=False)
class _Opened:
    """``store``: rows as raw outputs; ``base``: the base pass, with room for the rounding of sums over centres."""

    question: Exchange
    machine: KernelMachine
    store: KernelStore
    base: Base

    @property
    def problem(self) -> Problem:
        return self.question.problem

    @cached_property
    def _squares(self) -> bool:
        """Whether every loss is squared error or the prediction itself, of which sums are wanted."""
        one = len(self.question.base.predictions.shape) == 1 and not self.machine.finish.exact
        known = all((is_squared(f) or is_output(f)) and not is_whole(f) for f in self.problem.losses)
        return one and known

    def _plan(self, feature: Feature) -> Plan:
        return classes_of(self.question, feature) or self.question.plan

    def _takes_sums(self, feature: Feature) -> bool:
        if not self._squares or len(feature.columns) > 1:
            return False
        span = self.store.intervals[feature.columns[0]]
        return span is not None and 2 * span.order <= self._plan(feature).columns

    def cost(self, feature: Feature) -> float | str:
        plan = self._plan(feature)
        if plan.columns == 1 or self._takes_sums(feature):
            return 0.0
        needed = self.store.table_bytes(feature)
        if 2 * needed > self.problem.memory:
            return f"feature {shown(feature.name)} needs {needed} of {self.problem.memory} bytes: pass a larger memory"
        return _SHARE * self.problem.n * plan.columns

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        constant = tuple(f for f in features if self._plan(f).columns == 1)
        sums = tuple(f for f in features if f not in constant and self._takes_sums(f))
        found: list[Job[Measured]] = [Unused(self.problem, constant)] if constant else []
        if sums:
            found.append(SumsJob(self, sums))
        # One at a time: each feature has its own two factors.
        return [*found, *(self._table(f) for f in features if f not in constant and f not in sums)]

    def _table(self, feature: Feature) -> Called:
        """In blocks of the engine. The session is the machine's own, though it is not called."""
        model = Model(self.machine.finish, self.machine.finish, session=self.problem.model.session)
        store = dataclasses.replace(self.store, held_bytes=self.store.table_bytes(feature))
        inside = dataclasses.replace(self.problem, store=store, model=model)
        return Called("kernel", inside, self.base, self._plan(feature), (feature,))


class Kernels(Route):
    """Products of what rows keep and what donors give; of single columns under squared error sums alone."""

    name, says = "kernel", "the sum over its centres predicts"

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        if problem.rows.coded or problem.model.method is None or len(problem.store.shape) != 1:
            return NEEDS
        found = kernel_machines.read(problem.model.source, problem.model.method)
        if isinstance(found, str):
            return f"cannot read the kernel machine: {found}" if found else NEEDS
        if problem.store.streams:
            return Almost("needs all rows in memory, and X is read in blocks")
        flat = problem.flat
        if not isinstance(flat, np.ndarray) or flat.shape[1] != found.n_features:
            return NEEDS
        if flat.dtype.kind not in "iu" and flat.dtype != np.float64:  # in which some machines compute
            return NEEDS
        return partial(_opened, question, found, np.asarray(flat, dtype=np.float64))


def _opened(question: Exchange, machine: KernelMachine, X: Floats) -> _Opened:
    """Raises `trust.Disagreement` if the sum over the centres is not what the machine predicts."""
    size = trust.check_kernel(question.problem, question.base, machine)
    rounding = ROUNDING * float(np.finfo(np.float64).eps) * size
    columns = {f.columns[0] for f in question.problem.features if len(f.columns) == 1}
    intervals = {column: interval(machine, column, X[:, column]) for column in columns}
    store = KernelStore(X, machine, intervals, question.problem.memory)
    slack = question.base.slack
    if question.base.predictions.dtype.kind == "f":
        slack = slack + rounding.reshape(slack.shape)
    return _Opened(question, machine, store, dataclasses.replace(question.base, slack=slack))
