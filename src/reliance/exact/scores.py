"""Draws of a linear model: a donor moves a row's prediction by one number, so the other columns are not looked at.

All pairs of a linear model have closed forms (`linear`, `additive`). Draws have none, but a prediction with a borrowed
feature is the row's own, less what the feature adds to it, plus what the donor's adds: the product of all columns with
the coefficients is never made again, and no block of rows is filled.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import kernels, known_models
from reliance.engine.problems import Problem
from reliance.engine.shapes import fixed_bytes
from reliance.engine.stores import Lender, Resident, Store
from reliance.exact import trust
from reliance.exact.called import Called
from reliance.exact.linear import effect
from reliance.exact.protocol import Exchange, Measured, Offer, Opening, Route
from reliance.models.calling import Model

Floats = NDArray[np.float64]
# With fewer rows, comparing the coefficients with the model takes longer than they save.
FEWEST_ROWS = 2**13
# What a prediction costs of a call of the model: less than one, however much.
_MOVED = 0.5


@dataclass(frozen=True, eq=False)
class ScoreStore(Resident):
    """Rows as predictions, of which a donor changes what the feature adds to them; on the host.

    Attributes
    ----------
    X : array (n, P)
    coef : array (P,)
    predictions : array (n,)
    """

    X: Array
    coef: Floats
    predictions: Floats
    # What features add, (n,) each, centred; of the features of a pass.
    _effects: dict[str, Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def xp(self) -> Namespace:
        return arrays.namespace(self.X)

    @cached_property
    def device(self) -> Device:
        return arrays.device(self.X)

    @property
    def n(self) -> int:
        return len(self.predictions)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def flat(self) -> Array:
        return self.X

    @property
    def row_bytes(self) -> int:
        return 8

    @property
    def held_bytes(self) -> int:
        return 8 * self.n

    def lent_bytes(self, feature: Feature) -> int:
        """Of what it adds, as the rows stand and in the order of donors."""
        return 16 * self.n

    def lend(self, features: tuple[Feature, ...]) -> None:
        for name in set(self._effects) - {feature.name for feature in features}:
            self._effects.pop(name, None)

    def effect(self, feature: Feature) -> Floats:
        found = self._effects.get(feature.name)
        if found is None:
            found = self._effects[feature.name] = effect(self.X, self.coef, feature)
        return found

    def head(self, n: int) -> ScoreStore:
        return ScoreStore(self.X[:n, :], self.coef, self.predictions[:n])

    def allocate(self, rows: int) -> Floats:
        return np.empty(rows)

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Floats, rows: range, d: int) -> None:
        """Nothing to prepare: `swap` writes the whole block."""

    def restore(self, block: Floats, rows: range, d: int, feature: Feature) -> None:
        """Nothing to restore."""

    def holds(self, block: Floats, rows: range, d: int, feature: Feature | None) -> None:
        """Nothing is read again."""

    def swap(self, block: Floats, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        self.moved(block, rows, d, feature, self.effect(feature), donors)

    def moved(self, block: Floats, rows: range, d: int, feature: Feature, lent: Floats, donors: range | Array) -> None:
        """Predictions with what donors add, ``lent`` at their row numbers or places."""
        some = slice(rows.start, rows.stop)
        kept = self.predictions[some] - self.effect(feature)[some]
        cube = block[: len(rows) * d].reshape(len(rows), d)
        if isinstance(donors, range):
            given = lent[donors.start : donors.stop]
        else:
            given = np.take(lent, arrays.to_host(donors).reshape(-1, d))
        np.add(kept[:, None], given, out=cube)

    def in_order(self, feature: Feature, order: Indices) -> Lender:
        return _InOrder(self, self.effect(feature)[order])

    def model_input(self, block: Floats, rows: int) -> Floats:
        return block[:rows]

    def lending(self, ids: Indices) -> Store:
        raise TypeError("what features add to predictions is exchanged between all rows")

    def borrowing(self, lenders: kernels.Block) -> Store:
        raise TypeError("what features add to predictions is exchanged between all rows")

    def gathered(self, index: Array) -> Floats:
        return np.asarray(self.predictions[arrays.to_host(index)])

    @property
    def whole(self) -> Floats:
        return self.predictions

    def operands(self, feature: Feature) -> kernels.Operands:
        raise TypeError("predictions are moved in place")

    @property
    def switched(self) -> kernels.Switched:
        raise TypeError("predictions are moved in place")


@dataclass(frozen=True, eq=False)
class _InOrder:
    """``lent (n,)``: what donors add, place by place."""

    store: ScoreStore
    lent: Floats

    def swap(self, block: Floats, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        self.store.moved(block, rows, d, feature, self.lent, donors)


class Scores(Route):
    """Predictions of a linear model, moved by what donors add."""

    name, says, draws = "scores", "its coefficients say", True

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem, plan = question.problem, question.plan
        if plan.rectangular or not (plan.lends and plan.among_rows):
            return "is for draws of donors among the rows"
        if problem.n < FEWEST_ROWS and not question.forced:
            return f"pays from {FEWEST_ROWS} rows on"
        form = known_models.linear_form(problem)
        if form is None or problem.model.classes is not None or hasattr(problem.model.source, "classes_"):
            return "needs a linear regression of scikit-learn, or rl.models.Linear"
        predictions = question.base.predictions
        if not isinstance(predictions, np.ndarray) or predictions.dtype != np.float64 or problem.store.streams:
            return "needs rows on the host, all of them, and predictions of double precision"
        if predictions.shape != (problem.n,):
            return "needs one prediction for each row"
        return partial(_opened, question, form)


def _opened(question: Exchange, form: tuple[Floats, float]) -> Offer[Measured]:
    """Raises `trust.Disagreement` if the model does not predict what its coefficients say."""
    problem = question.problem
    trust.check_linear(problem, question.base, form)
    store = ScoreStore(problem.flat, form[0], question.base.predictions)
    model = Model(_itself, problem.model.source, block_rows=problem.n * question.plan.columns)
    return _Moved(question, dataclasses.replace(problem, store=store, model=model))


def _itself(predictions: Array) -> Array:
    return predictions


@dataclass(frozen=True, eq=False)
class _Moved:
    """``problem``: the same, rows are predictions and the model leaves them as they are."""

    question: Exchange
    problem: Problem

    def cost(self, feature: Feature) -> float | str:
        problem, plan = self.problem, self.question.plan
        if 2 * fixed_bytes(problem, plan, 1, self.question.base.output_bytes) > problem.memory:
            return f"memory={problem.memory} bytes is too small for what features add to {problem.n} predictions"
        return _MOVED * self.problem.n * self.question.plan.columns

    def jobs(self, features: tuple[Feature, ...]) -> list[Called]:
        return [Called(Scores.name, self.problem, self.question.base, self.question.plan, features)]
