"""Linear models under squared error as a class: exact, or with a ball of coefficients an outer bound and a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.words import listed
from reliance.data.features import Feature
from reliance.models import calling
from reliance.rashomon.ball import Ball
from reliance.rashomon.ellipsoid import Ellipsoid, Point, ellipsoid_end, range_of
from reliance.rashomon.moments import fixed_intercept, row_moments
from reliance.rashomon.protocol import ClassData, Member, Range
from reliance.rashomon.resampled_linear import SampleShapes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LeastSquaresClass:
    """Linear models under squared error; see `reliance.LinearClass`."""

    radius: float | None = None
    intercept: bool | float = True

    @property
    def loss(self) -> str:
        return "squared_error"

    def best(self, data: ClassData) -> Member:
        shape = self._shape(data)
        if self.radius is not None:
            ball = Ball(shape, self.radius)
            return self._member(data, shape, ball.solution[0], ball.least)
        return self._member(data, shape, Point(shape.centre, 0.0), shape.least)

    def contains(self, data: ClassData, model: object) -> Member:
        form = calling.linear_form(model)
        if form is None:
            raise TypeError(
                f"reference={calling.name_of(model)} is not known to be linear: pass rl.models.Linear(coef, intercept) "
                "or a linear regressor of scikit-learn"
            )
        coef, intercept = form
        shape = self._shape(data)
        if coef.shape != (len(shape.factor),):
            raise ValueError(f"reference has {coef.size} coefficients but X has {len(shape.factor)} columns")
        if self.intercept is not True and intercept != fixed_intercept(self.intercept):
            raise ValueError(
                f"reference has the intercept {intercept:g} but all models of the class have "
                f"{fixed_intercept(self.intercept):g}: it is outside the class; pass intercept=True to the class"
            )
        if self.radius is not None and float(np.linalg.norm(coef)) > self.radius * (1.0 + 1e-12):
            raise ValueError(
                f"reference has coefficients of norm {np.linalg.norm(coef):g} but the class has ridge={self.radius:g}: "
                "it is outside the class"
            )
        mean = shape.moments.mean
        point = Point(coef, float(mean[-1] - intercept - mean[:-1] @ coef) if shape.intercept else 0.0)
        return Member(model if callable(model) else calling.Linear(coef, intercept), shape.risk(point))

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        shape = self._shape(data)
        if compare == "ratio" and self.best(data).risk == 0.0:
            raise ValueError(
                "compare='ratio' divides by the risk, and the best linear model predicts these rows exactly: use "
                "compare='difference', more rows, or fewer columns"
            )
        if self.radius is not None and bound == 0.0:
            raise ValueError(
                "the best linear model predicts these rows exactly, so only exact models are good: pass relative=False "
                "with a positive epsilon, more rows, or a smaller ridge="
            )
        end = partial(ellipsoid_end, shape) if self.radius is None else Ball(shape, self.radius).end
        found = []
        for feature in features:
            low, high = (end(bound, feature, compare, conditional, sign) for sign in (-1.0, 1.0))
            found.append(range_of(low, high, partial(self._member, data, shape)))
            advance(1)
        return found

    def sample_ends(
        self,
        data: ClassData,
        counts: Floats,
        bounds: Callable[[Floats], Floats],
        features: tuple[Feature, ...],
        compare: str,
    ) -> Floats | None:
        """Both ends on samples of the rows; None with a ball, a fixed intercept, or nearly dependent columns."""
        free = self.radius is None and self.intercept is True
        shapes = SampleShapes.of(data, counts) if free else None
        if shapes is None:
            return None
        allowed = bounds(shapes.least)
        return None if np.any(allowed < shapes.least) else shapes.ends(features, allowed, compare)

    def _shape(self, data: ClassData) -> Ellipsoid:
        if data.X.ndim != 2 or data.y.ndim != 1:
            raise ValueError(
                f"LinearClass needs X (n, P) and y (n,), not {tuple(data.X.shape)} and {tuple(data.y.shape)}"
            )
        moments = row_moments(data)
        if self.radius is None and moments.dependent:
            few = f"{moments.n} rows for {len(moments.mean) - 1} columns: " if moments.n <= len(moments.mean) else ""
            raise ValueError(
                f"{few}columns {listed(moments.dependent)} of X are constant or linear combinations of each other, so "
                "models of equal risk can have any coefficients there, and their reliance has no bound: drop "
                "columns, or bound the coefficients with LinearClass(ridge=radius)"
            )
        return Ellipsoid(moments.about(self.intercept), self.intercept is True)

    def _member(self, data: ClassData, shape: Ellipsoid, point: Point, risk: float) -> Member:
        """The model in the namespace, on the device and in the dtype of the rows."""
        coef = arrays.from_host(point.coef, arrays.namespace(data.X), arrays.device(data.X), data.X.dtype)
        mean, intercept = shape.moments.mean, fixed_intercept(self.intercept)
        if shape.intercept:
            intercept = float(mean[-1] - point.bias - mean[:-1] @ point.coef)
        return Member(calling.Linear(coef, intercept), risk)
