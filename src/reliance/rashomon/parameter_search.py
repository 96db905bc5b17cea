"""Good models that rely little or much on a feature, by gradients.

Nothing here is certified. What is returned are models: each lies in the class and, in float64 on all rows, in the set
of good models, and its reliance is measured over all pairs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.arrays import device, namespace
from reliance._core.kinds import Array, Operand
from reliance.data.features import Feature
from reliance.rashomon import ascent
from reliance.rashomon.frameworks import (
    Framework,
    Merit,
    Operands,
    Optimiser,
    Pressure,
    framework_of,
    not_differentiable,
)
from reliance.rashomon.protocol import ClassData, Member, Range

if TYPE_CHECKING:
    from reliance.rashomon.differentiable import DifferentiableClass

_CELLS = 2**16  # pairs of rows in a step of the search unless shifts are given, and in a block of a gradient
_NOISE = 0.3  # of the parameters' size, for the starts after the first
_HALVINGS = 30
_STARTS = 16  # what the random numbers are for
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class FoundModel:
    """A model of a `DifferentiableClass`.

    Attributes
    ----------
    function : callable
        ``(params, X) -> (m,)``.
    params : dict of tensors or tree of arrays
    """

    function: Callable[[Operand, Operand], Array]
    params: object

    def __call__(self, X: Array) -> Array:
        return self.function(self.params, X)


@dataclass(frozen=True, eq=False)
class Search:
    """The class on given rows, in random order, where its parameters are.

    Attributes
    ----------
    X, y : arrays in float64
    """

    given: DifferentiableClass
    framework: Framework
    data: ClassData
    X: Array
    y: Array

    @staticmethod
    def of(given: DifferentiableClass, data: ClassData) -> Search:
        framework = framework_of(given.apply, given.params)
        with framework.precise():
            X, y = framework.at_home(data.X, data.y)
            xp = namespace(X)
            order = arrays.from_host(streams.ordering(data.key, X.shape[0], 0), xp, device(X))
            X, y = (xp.take(framework.widened(a), order, axis=0) for a in (X, y))
        if not np.isfinite(arrays.to_host(framework.first)).all():
            raise ValueError("the model's parameters hold NaN or infinite values: pass others to start from")
        return Search(given, framework, data, X, y)

    @property
    def radius(self) -> float:
        return float(self.given.radius or 0.0)

    @property
    def cells(self) -> int:
        """Pairs of a block: of rows, their donors' values, and both together in float64."""
        return min(_CELLS, self.data.memory // (4 * 8 * int(self.X.shape[1])))

    @property
    def schedule(self) -> ascent.Schedule:
        given, n = self.given, self.X.shape[0]
        count = given.shifts or max(_CELLS // n, 1)
        return ascent.Schedule(n, self.data.key, given.steps, given.learning_rate, count)

    # Searches

    def best(self, *others: Array) -> Array:
        """The parameters of least risk: these, the given ones, or what is found from there and from places near."""
        operands = self._narrowed(self._rows)
        schedule, optimiser = dataclasses.replace(self.schedule, count=0), self.optimiser(None)
        first = self._scaled(self.framework.first)
        with self.framework.session():
            self._check_slope(first, operands)
            starts = self._starts(first)
            ends = [ascent.search(optimiser, start, operands, schedule, ascent.NO_PRESSURE) for start in starts]
        return min([first, *others, *(end for end in ends if self.norm(end) <= self.radius)], key=self.risk)

    def range(
        self,
        optimiser: Optimiser,
        feature: Feature,
        best: Array,
        least: float,
        bound: float,
        compare: str,
        conditional: bool,
    ) -> Range:
        with self.framework.precise():
            exchanged = ascent.exchanged(self.X, feature.columns, conditional)
        wide = self._rows._replace(kept=exchanged[0], lent=exchanged[1])
        operands = self._narrowed(wide)
        found, spreads = [], []
        for sign in (1.0, -1.0):
            pressure = ascent.pressure_at(sign, bound, least)
            with self.framework.session():
                ends = [ascent.search(optimiser, x, operands, self.schedule, pressure) for x in self._starts(best)]
            good = [best, *filter(lambda x: self._is_good(x, bound), (self._within(x, best, bound) for x in ends))]
            values = np.array([self._value(x, wide, compare, self.schedule.count) for x in good])
            found.append(good[int(np.argmin(sign * values))])
            spreads.append(float(np.ptp(values[1:])) if len(values) > 1 else 0.0)
        pairs = self.X.shape[0] - 1 if self.given.pairs == "all" else int(self.given.pairs)
        reached = [(self._value(x, wide, compare, pairs), self.member(x)) for x in found]
        (lowest, low), (highest, high) = sorted(
            reached, key=lambda end: end[0]
        )  # by rounding, or by the pairs of a step
        return Range(math.nan, math.nan, low, high, lowest, highest, (spreads[0], spreads[1]))

    def optimiser(self, compare: str | None) -> Optimiser:
        return self.framework.optimiser(self._merit(compare), self.radius)

    def _merit(self, compare: str | None) -> Merit:
        """What a search makes small: the risk, or the Lagrangian of a reliance."""
        n = self.X.shape[0]

        def merit(theta: Array, operands: Operands, shifts: Array, pressure: Pressure) -> tuple[Array, Array]:
            sums = self._loss_sums(theta, operands, shifts)
            risk = sums[0] / n
            if compare is None:
                return risk, risk
            return ascent.lagrangian(risk, sums[1] / (n * shifts.shape[0]), compare, pressure), risk

        return merit

    def _loss_sums(self, theta: Array, operands: Operands, shifts: Array) -> Array:
        def predict(rows: Array) -> Array:
            return self.framework.predict(theta, rows)

        return ascent.loss_sums(predict, operands, shifts, self.given.loss, self.cells)

    def _check_slope(self, theta: Array, operands: Operands) -> None:
        """At a place near the first one, where nothing is 0 by chance."""
        near = self._near(theta, 1)
        slope = self.framework.slope(self._merit(None), near, operands, self._uploaded(_NONE), ascent.NO_PRESSURE)
        if not bool(arrays.to_host(namespace(slope).any(slope != 0))):
            raise not_differentiable("its gradient is 0")

    def _starts(self, theta: Array) -> list[Array]:
        return [theta, *(self._near(theta, k) for k in range(1, self.given.starts))]

    def _near(self, theta: Array, number: int) -> Array:
        """Parameters near given ones, the same for the same key."""
        host = arrays.to_host(theta)
        size = _NOISE * max(float(np.sqrt(np.mean(host.astype(np.float64) ** 2))), 1e-3)
        noise = streams.stream(self.data.key, _STARTS, number).normal(size=host.shape) * size
        moved = arrays.from_host(noise, namespace(theta), device(theta), theta.dtype)
        return self._scaled(theta + moved)

    def _scaled(self, theta: Array) -> Array:
        norm = self.norm(theta)
        return theta if norm <= self.radius else theta * (self.radius / norm * (1.0 - 4.0 * arrays.epsilon(theta)))

    def _within(self, theta: Array, best: Array, bound: float) -> Array:
        """theta, moved towards the best model until its risk is at most the bound; the ball is convex."""
        if self.risk(theta) <= bound:
            return theta
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.risk(best + middle * (theta - best)) <= bound else (low, middle)
        return best + low * (theta - best)

    # What is returned is measured in float64 on all rows.

    @property
    def _rows(self) -> Operands:
        return Operands(self.X, self.y, self.X, self.X)

    def _narrowed(self, operands: Operands) -> Operands:
        with self.framework.precise():
            return Operands(*(self.framework.narrowed(a) for a in operands))

    @cached_property
    def _measure(self) -> Callable[..., Array]:
        return self.framework.compiled(self._loss_sums)

    def _risks(self, theta: Array, operands: Operands, shifts: NDArray[np.int64]) -> tuple[float, float]:
        """Own and switched risk."""
        with self.framework.precise():
            sums = self._measure(self.framework.widened(theta), operands, self._uploaded(shifts))
            own, switched = arrays.to_host(sums).tolist()
        n = self.X.shape[0]
        return own / n, switched / (n * max(len(shifts), 1))

    def _uploaded(self, shifts: NDArray[np.int64]) -> Array:
        xp = namespace(self.X)
        return arrays.from_host(shifts, xp, device(self.X), arrays.index_dtype(xp))

    def risk(self, theta: Array) -> float:
        return self._risks(theta, self._rows, _NONE)[0]

    def norm(self, theta: Array) -> float:
        return float(np.linalg.norm(arrays.to_host(theta).astype(np.float64)))

    def _is_good(self, theta: Array, bound: float) -> bool:
        return self.risk(theta) <= bound and self.norm(theta) <= self.radius

    def _value(self, theta: Array, operands: Operands, compare: str, count: int) -> float:
        """Reliance over so many shifts of the rows; all n - 1 are all pairs."""
        first = np.zeros(1, dtype=np.int64)
        donors = dataclasses.replace(self.schedule, count=count).donors(first)[0]
        risk, switched = self._risks(theta, operands, donors)
        if compare == "ratio" and risk <= 0.0:
            raise ValueError(
                f"compare='ratio' divides by the risk, which is {risk:g} for a model of the class: pass "
                "compare='difference'"
            )
        return switched / risk if compare == "ratio" else switched - risk

    def member(self, theta: Array) -> Member:
        return Member(FoundModel(self.framework.function(), self.framework.tree(theta)), self.risk(theta))
