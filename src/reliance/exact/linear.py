"""All pairs of a linear model under squared error, in closed form: O(n) a feature and no evaluation.

Everything about a feature is a polynomial in its joint moments with the residuals (see `joint_moments`), which one pass
over the rows gives for all features. What needs single rows is made for one feature at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import trust
from reliance.exact.called import Known
from reliance.exact.held import HeldAt, Impacts, KnownImpacts
from reliance.exact.joint_moments import Effects, JointSums, Monomial
from reliance.exact.linear_summaries import linear_summaries
from reliance.exact.protocol import ChosenRows, Exchange, Job, Measured, Opening, Route, Summarizer
from reliance.exact.unused import Unused
from reliance.inference import Summary
from reliance.losses.functions import is_squared
from reliance.losses.outputs import is_output, real_losses

Floats = NDArray[np.float64]
# Chunks of rows that are downloaded, and whose residuals are prepared, together.
_STRIP = 16


@dataclass(frozen=True)
class LinearReading:
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
        return output_moments(self.effect(feature), self.problem.host_weights)

    def _moves(self, feature: Feature) -> bool:
        if not np.any(self.coef[list(feature.columns)]):
            return False
        z = self.effect(feature)
        return bool(np.any(np.maximum(z.max() - z, z - z.min()) > self.slack))

    def effect(self, feature: Feature) -> Floats:
        """``z``, centred: only differences of it count, and its powers lose fewest digits there."""
        return effect(self.problem.flat, self.coef, feature)


def effect(flat: Array, coef: Floats, feature: Feature) -> Floats:
    z = np.zeros(int(flat.shape[0]))
    for column in feature.columns:
        if coef[column] != 0.0:
            z += coef[column] * _host(flat[:, column])
    return np.asarray(z - z.mean())


def output_moments(z: Floats, w: Floats | None) -> Moments:
    """Moments with the prediction in the place of the loss: D_ik = z_k - z_i."""
    donors = len(z) * z if w is None else np.sum(w) * z - np.sum(w * z)
    return Moments(-len(z) * z, donors, np.sum(z * z) + len(z) * z * z, None)


# ---------------------------------------------------------------------------------------------------------------------
# Offers and jobs


@dataclass(frozen=True, eq=False)
class LinearOffer:
    """All pairs under squared error."""

    reading: LinearReading

    def cost(self, feature: Feature) -> float | str:
        return 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        problem = self.reading.problem
        unused = {f.name for f, used in zip(problem.features, self.reading.used, strict=True) if not used}
        some = tuple(f for f in features if f.name not in unused)
        rest = tuple(f for f in features if f.name in unused)
        found: list[Job[Measured]] = [LinearJob(self.reading, some)] if some else []
        return [*found, Unused(problem, rest)] if rest else found


@dataclass(frozen=True, eq=False)
class LinearJob:
    """A job that is its own answer. Moments of (n,) are made when they are asked for, one feature at a time."""

    reading: LinearReading
    features: tuple[Feature, ...]
    route: str = "linear"
    block: tuple[int, int] = (0, 0)

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> LinearJob:
        return self

    def moments(self, feature: Feature) -> tuple[Moments, ...]:
        reading = self.reading
        return tuple(
            reading.output_moments(feature) if is_output(function) else reading.moments(feature)
            for function in reading.problem.losses
        )

    def summaries(self, summarizer: Summarizer) -> dict[str, Summary]:
        return linear_summaries(self.reading, self.features, summarizer)

    def curve(self, feature: Feature, index: int, speakers: Indices, whole: bool) -> tuple[Floats, Floats | None]:
        z = self.reading.effect(feature)
        change = z[speakers] - inference.risk(z, self.reading.problem.host_weights)
        return np.asarray(change), z[speakers] - z[:, None] if whole else None


@dataclass(frozen=True, eq=False)
class _Contributions:
    """The prediction in the place of the loss, of all rows or of chosen ones."""

    question: Exchange
    coef: Floats

    def cost(self, feature: Feature) -> float | str:
        return 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[Known]:
        problem = self.question.problem
        known = {f.name: (self._moments(f),) * len(problem.losses) for f in features}
        return [Known("linear", problem, self.question.plan, features, known)]

    def _moments(self, feature: Feature) -> Moments:
        found = output_moments(effect(self.question.problem.flat, self.coef, feature), None)
        if not isinstance(self.question, ChosenRows):
            return found
        rows = self.question.rows
        return Moments(found.row_sum[rows], found.donor_sum, found.row_squares[rows], None)


def _contributions(question: Exchange, rows: Problem, form: tuple[Floats, float]) -> _Contributions:
    trust.check_linear(rows, question.base, form, lenders=question.problem.flat)
    return _Contributions(question, form[0])


@dataclass(frozen=True, eq=False)
class _Sizes:
    """The impact of a feature is the size of its coefficient, whatever value it is held at."""

    question: HeldAt
    coef: Floats

    def cost(self, feature: Feature) -> float | str:
        return 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[KnownImpacts]:
        held = self.question.held
        sizes = {f.name: np.full(len(held[f.name].rows), float(abs(self.coef[f.columns[0]]))) for f in features}
        return [KnownImpacts("linear", features, sizes)]


def _sizes(question: HeldAt, form: tuple[Floats, float]) -> _Sizes:
    trust.check_linear(question.problem, question.base, form)
    return _Sizes(question, form[0])


class Linear(Route):
    """Closed forms of a model that is known to be linear."""

    name, says = "linear", "its coefficients say"
    needs = "needs a linear model (a linear regressor of scikit-learn, also behind StandardScaler, or rl.models.Linear)"

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        form, measured = known_models.linear_form(problem), real_losses(problem.losses)
        if form is not None and not measured:
            return partial(_contributions, question, problem, form)
        squares = len(measured) == 1 and is_squared(measured[0]) and len(question.base.targets[0].shape) == 1
        if form is None or not squares:
            return f"{self.needs}, loss='squared_error' and one output"
        return lambda: LinearOffer(read(problem, question.base, form))

    def held(self, question: HeldAt) -> Opening[Impacts]:
        form = known_models.linear_form(question.problem)
        return self.needs if form is None else partial(_sizes, question, form)

    def chosen(self, question: ChosenRows) -> Opening[Measured]:
        form = known_models.linear_form(question.problem)
        if form is None or real_losses(question.some.losses):
            return f"{self.needs}, and the prediction in the place of a loss"
        return partial(_contributions, question, question.some, form)


def read(problem: Problem, base: Base, form: tuple[Floats, float]) -> LinearReading:
    """Raises `trust.Disagreement` if the model does not predict what its coefficients say."""
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
    trust.check_linear(problem, base, form, claimed)
    return LinearReading(problem, coef, residual, _host(base.slack).reshape(-1), bias, *sums.centred())


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)
