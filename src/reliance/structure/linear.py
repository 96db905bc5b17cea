"""All pairs of a linear model under squared error, in closed form: O(n) a feature and no evaluation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance import _array, models
from reliance.executors import Base
from reliance.features import Feature
from reliance.inputs import Problem
from reliance.losses import squared_error
from reliance.reductions import Moments

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearRoute:
    """f(x) = x'b + constant, squared error.

    Replacing a feature (or group) of row i by that of donor k changes the prediction by z_k - z_i, z = x_g'b_g, so with
    the residual e_i = y_i - f(x_i)

        D_ik = (z_k - z_i)^2 - 2 e_i (z_k - z_i) = z_k^2 - 2 s_i z_k + t_i,   s_i = z_i + e_i,   t_i = z_i^2 + 2 e_i z_i

    and every sum over rows or donors is a polynomial in the power sums of z.
    """

    problem: Problem
    coef: Floats
    residual: Floats
    slack: Floats

    def moments(self, feature: Feature) -> Moments:
        """The moments of one feature; D_ii = 0, so sums over all k are sums over k != i."""
        z = self._effect(feature)
        n, e, w = len(z), self.residual, self.problem.host_weights
        s, t = z + e, z * (z + 2.0 * e)
        z1, z2, z3, z4 = (float(np.sum(z**power)) for power in (1, 2, 3, 4))
        rows = z2 - 2.0 * s * z1 + n * t
        squares = z4 + 4.0 * s * (s * z2 - z3 - t * z1) + t * (n * t + 2.0 * z2)
        if w is None:
            donors = n * z * z - 2.0 * z * np.sum(s) + np.sum(t)
            return Moments(rows, donors, float(np.sum(squares)), None)
        donors = np.sum(w) * z * z - 2.0 * z * np.sum(w * s) + np.sum(w * t)
        return Moments(rows, donors, float(np.sum(w * w * squares)), None)

    def is_used(self, feature: Feature) -> bool:
        """Whether some donor moves some prediction by more than rounding, as the engine judges it."""
        z = self._effect(feature)
        return bool(np.any(np.maximum(z.max() - z, z - z.min()) > self.slack))

    def _effect(self, feature: Feature) -> Floats:
        """``z``, centred: only differences of it count, and its powers lose fewest digits there."""
        flat = self.problem.flat
        z = np.zeros(self.problem.n)
        for column in feature.columns:
            if self.coef[column] != 0.0:
                z += self.coef[column] * np.asarray(_array.to_host(flat[:, column]), dtype=np.float64)
        return np.asarray(z - z.mean())


def linear_route(problem: Problem, base: Base) -> LinearRoute | None:
    """The route of a linear model, if the model is one, the loss squared error and the output single."""
    form = models.linear_form(problem.model.source)
    if form is None or problem.losses != (squared_error,) or len(base.targets[0].shape) != 1:
        return None
    coef, intercept = form
    if coef.shape != (problem.flat.shape[1],):
        return None
    predictions = _host(base.predictions).reshape(-1)
    xp = problem.xp
    weights = _array.from_host(coef, xp, problem.device, problem.flat.dtype)
    claimed = _host(problem.flat @ weights).reshape(-1) + intercept
    # The coefficients are what the closed form uses: they must be the model that predicts.
    scale = float(np.max(np.abs(predictions))) + float(np.max(np.abs(coef))) + abs(intercept)
    if not np.allclose(claimed, predictions, rtol=0.0, atol=1e3 * _array.epsilon(base.predictions) * scale):
        warnings.warn(
            f"model {models.name_of(problem.model.source)} does not predict what its coefficients say: its pairs are "
            "evaluated one by one",
            UserWarning,
            stacklevel=2,
        )
        return None
    return LinearRoute(problem, coef, _host(base.targets[0]) - predictions, _host(base.slack).reshape(-1))


def _host(x: Any) -> Floats:
    return np.asarray(_array.to_host(x), dtype=np.float64)
