"""All pairs of a linear model under squared error, in closed form: O(n) a feature and no evaluation.

Everything about a feature is a polynomial in its joint moments with the residuals (see `joint_moments`), which one pass
over the rows gives for all features. What needs single rows is made for one feature at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.arrays import Array
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.engine.executors import Base
from reliance.engine.inputs import Problem
from reliance.engine.reductions import Moments
from reliance.exact import trust
from reliance.exact.joint_moments import Effects, JointSums, Monomial
from reliance.losses.functions import is_squared
from reliance.losses.outputs import real_losses

Floats = NDArray[np.float64]
# Chunks of rows that are downloaded, and whose residuals are prepared, together.
_STRIP = 16


@dataclass(frozen=True)
class LinearRoute:
    """f(x) = x'b + constant, squared error.

    Replacing a feature (or group) of row i by that of donor k changes the prediction by z_k - z_i, z = x_g'b_g, so with
    the residual e_i = y_i - f(x_i)

        D_ik = (z_k - z_i)^2 - 2 e_i (z_k - z_i) = z_k^2 - 2 s_i z_k + t_i,   s_i = z_i + e_i,   t_i = z_i^2 + 2 e_i z_i

    and every sum over rows or donors is a polynomial in the power sums of z.

    Attributes
    ----------
    residual, slack : arrays (n,)
        e, and by how much a prediction may move through rounding.
    bias : float
        The mean of e.
    sums : mapping from (a, b, c) to array (F,)
        Sums over the rows of z^a (e - bias)^b w^c, z centred, for each feature of the problem; c = 0 without weights.
    precise : array (F,)
        For which features these have all their digits.
    """

    problem: Problem
    coef: Floats
    residual: Floats
    slack: Floats
    bias: float
    sums: dict[Monomial, Floats]
    precise: NDArray[np.bool_]

    @cached_property
    def used(self) -> tuple[bool, ...]:
        """For each feature whether some donor moves some prediction by more than rounding, as the engine judges it."""
        # The range of z is at least twice its standard deviation: few features need to be looked at row by row.
        clear = self.sums[2, 0, 0] > self.problem.n * self.slack.max() ** 2
        return tuple(bool(c) or self._moves(f) for f, c in zip(self.problem.features, clear, strict=True))

    def moments(self, feature: Feature) -> Moments:
        """The moments of one feature, row by row; D_ii = 0, so sums over all k are sums over k != i."""
        z = self.effect(feature)
        n, e, w = len(z), self.residual, self.problem.host_weights
        s, t, square = z + e, z * (z + 2.0 * e), z * z
        z1, z2, z3, z4 = (float(np.sum(power)) for power in (z, square, square * z, square * square))
        rows = z2 - 2.0 * s * z1 + n * t
        squares = z4 + 4.0 * s * (s * z2 - z3 - t * z1) + t * (n * t + 2.0 * z2)
        if w is None:
            donors = n * square - 2.0 * z * np.sum(s) + np.sum(t)
        else:
            donors = np.sum(w) * square - 2.0 * z * np.sum(w * s) + np.sum(w * t)
        return Moments(rows, donors, squares, None)

    def output_moments(self, feature: Feature) -> Moments:
        """The same with the prediction in the place of the loss: D_ik = z_k - z_i."""
        z, w = self.effect(feature), self.problem.host_weights
        donors = len(z) * z if w is None else np.sum(w) * z - np.sum(w * z)
        return Moments(-len(z) * z, donors, np.sum(z * z) + len(z) * z * z, None)

    def _moves(self, feature: Feature) -> bool:
        if not np.any(self.coef[list(feature.columns)]):
            return False
        z = self.effect(feature)
        return bool(np.any(np.maximum(z.max() - z, z - z.min()) > self.slack))

    def effect(self, feature: Feature) -> Floats:
        """``z``, centred: only differences of it count, and its powers lose fewest digits there."""
        flat = self.problem.flat
        z = np.zeros(self.problem.n)
        for column in feature.columns:
            if self.coef[column] != 0.0:
                z += self.coef[column] * _host(flat[:, column])
        return np.asarray(z - z.mean())


def linear_route(problem: Problem, base: Base) -> LinearRoute | None:
    """The route of a linear model, if the model is one, the loss a squared difference and the output single.

    Raises `trust.Disagreement` if the model does not predict what its coefficients say.
    """
    measured = real_losses(problem.losses)
    squares = len(measured) == 1 and is_squared(measured[0])
    form = known_models.linear_form(problem) if squares and len(base.targets[0].shape) == 1 else None
    if form is None:
        return None
    coef, intercept = form
    predictions = _host(base.predictions).reshape(-1)
    residual = _host(base.targets[0]) - predictions
    bias, weights = float(np.mean(residual)), problem.host_weights
    effects = Effects.of(problem.flat, problem.features, coef)
    sums, claimed = JointSums(effects, weights is not None), np.empty(problem.n)
    strip = _STRIP * effects.chunk_rows
    for start in range(0, problem.n, strip):
        rows = slice(start, min(start + strip, problem.n))
        own = None if weights is None else weights[rows]
        claimed[rows] = sums.add(arrays.to_host(problem.flat[rows, :]), residual[rows] - bias, own, coef) + intercept
    # The coefficients are what the closed form uses: they must be the model that predicts.
    if not trust.reproduces(problem, base, form, claimed):
        raise trust.Disagreement
    return LinearRoute(problem, coef, residual, _host(base.slack).reshape(-1), bias, *sums.centred())


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)
