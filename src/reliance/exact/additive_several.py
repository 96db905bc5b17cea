"""All pairs of linear models with several scores: smooth losses, as functions of the value that a donor lends.

A donor's value moves all scores of a row along a line, so the loss of a pair is a function of that one number and of
what the row keeps. Donors are replaced by points of their values (see `additive_sums`), rows are not: O(n) evaluations
of the loss for each point, and none of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.exact import trust
from reliance.exact.additive_points import LossAt, Sides
from reliance.exact.additive_ways import AdditiveOffer, Way, clipped, is_moved, log_loss_of, smooth
from reliance.exact.protocol import Exchange
from reliance.losses import formulas
from reliance.losses.functions import Loss, row_losses
from reliance.models.several_scores import SeveralScores

Floats = NDArray[np.float64]
# By how much a value may move scores whose exponentials are multiplied: what underflows is nothing beside the rest.
_SAFE = 100.0


@dataclass(frozen=True, eq=False)
class SoftmaxLogLoss:
    """The log loss of softmax probabilities of C scores that a value moves; ``slopes (C,)``.

    Labels are ``(m, 1 + C)``: the class, and what the scores keep.
    """

    slopes: Floats

    def __call__(self, labels: HostArray, values: Floats) -> Floats:
        return log_loss_of(labels[:, 0], labels[:, 1:] + values[:, None] * self.slopes)

    def table(self, labels: HostArray, kept: Floats, lent: Floats) -> Floats:
        """exp(a + b) = exp(a) exp(b): a product of matrices, and one logarithm for each pair."""
        moved = lent[:, None] * self.slopes
        if np.max(np.abs(moved)) > _SAFE:
            pairs = self(np.repeat(labels, len(lent), axis=0), (kept[:, None] + lent).reshape(-1))
            return pairs.reshape(len(kept), len(lent))
        scores = labels[:, 1:] + kept[:, None] * self.slopes
        scores -= np.max(scores, axis=1, keepdims=True)
        found = np.exp(scores) @ np.exp(moved).T
        np.log(found, out=found)
        own = labels[:, 0].astype(np.int64)
        found -= np.take_along_axis(scores, own[:, None], axis=1)
        found -= moved.T[own]
        return clipped(found)


@dataclass(frozen=True, eq=False)
class SeveralReading:
    """``scores (n, C)``: those of the rows."""

    question: Exchange
    form: SeveralScores
    scores: Floats

    def _used(self, feature: Feature) -> list[int]:
        return [column for column in feature.columns if np.any(self.form.slopes[column])]

    def _values(self, column: int) -> Floats:
        return np.asarray(arrays.to_host(self.question.problem.store.column(column)), dtype=np.float64)

    def _target(self, place: int) -> HostArray:
        return arrays.to_host(self.question.base.targets[place])

    def moves(self, feature: Feature) -> bool:
        """For each column alone: what moves nothing at its ends moves nothing between them."""
        for column in self._used(feature):
            x = self._values(column)
            for end in (x.min(), x.max()):
                answers = self.form.answer(self.scores + (end - x)[:, None] * self.form.slopes[column])
                if is_moved(self.question.base, answers):
                    return True
        return False

    def sides(self, feature: Feature, place: int) -> Sides:
        """The values of the column are exchanged; a row's label is what it is judged by and what its scores keep."""
        (column,) = self._used(feature)
        x = self._values(column)
        kept = self.scores - x[:, None] * self.form.slopes[column]
        target = self._target(place).astype(np.float64).reshape(len(x), -1)
        return Sides.of(x, x, np.concatenate([target, kept], axis=1), self.question.problem.host_weights)

    def way(self, feature: Feature, place: int) -> Way | str:
        function, target = self.question.problem.losses[place], self._target(place)
        name = f"loss={shown(function.name)}"
        if not isinstance(function, Loss) or target.dtype.kind not in "biuf":
            return f"{name} is not one of numbers in single rows"
        if len(self._used(feature)) != 1:
            return f"feature {shown(feature.name)} is a group of columns, and the model has several scores"
        loss = self._loss_at(function, self.form.slopes[self._used(feature)[0]], target)
        found = smooth(function, loss, self.sides(feature, place), self.form.continuous)
        return found or f"{name} is not smooth enough in the model's scores"

    def _loss_at(self, function: Loss, slopes: Floats, target: HostArray) -> LossAt:
        """F: the losses of labels with kept scores, and values."""
        width, shape = self.scores.shape[1], target.shape[1:]
        if function.rows is formulas.log_loss and self.form.softmax and not shape:
            return SoftmaxLogLoss(slopes)

        def losses(labels: HostArray, values: Floats) -> Floats:
            scores = labels[:, -width:] + values[:, None] * slopes
            own = labels[:, :-width].reshape(len(values), *shape)
            return np.asarray(row_losses(function, own, self.form.answer(scores)), dtype=np.float64)

        return losses


def opened(question: Exchange, form: SeveralScores) -> AdditiveOffer:
    """Raises `trust.Disagreement` if the model does not predict what its coefficients say."""
    scores = form.score(question.problem.flat)
    trust.check_scores(question.problem, question.base, form, scores)
    return AdditiveOffer(SeveralReading(question, form, scores))
