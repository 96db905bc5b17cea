"""All pairs of models whose score is a sum of functions of single columns: generalised linear models, additive ones.

A donor changes one term of the score, so the loss of a pair is a function of what the row keeps plus what the donor
lends. Where it is smooth, few points say everything (`additive_sums`); where it bends or jumps, sorting does
(`additive_pieces`). The model is not called, and a feature takes O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.exact import additive_pieces, additive_several, trust
from reliance.exact.additive_points import LossAt, Sides
from reliance.exact.additive_ways import AdditiveOffer, Pieced, Way, is_moved, log_loss_of, smooth
from reliance.exact.protocol import Almost, Exchange, Measured, Opening, Route
from reliance.losses import formulas
from reliance.losses.functions import Loss, Metric, is_squared, row_losses
from reliance.losses.outputs import is_output, is_whole, real_losses
from reliance.models.additive import AdditiveForm

Floats = NDArray[np.float64]
# Bytes that are held for a row: scores, points and sums.
_ROW_BYTES = 256
NEEDS = (
    "needs a model whose score is a sum over columns: a (generalised) linear model of scikit-learn, or "
    "rl.models.Additive"
)


def loss_at(function: Loss, form: AdditiveForm) -> LossAt:
    """F: the losses of labels and scores."""
    if function.rows is formulas.log_loss and form.logistic:
        return log_loss_of

    def losses(labels: HostArray, scores: Floats) -> Floats:
        return np.asarray(row_losses(function, labels, form.answer(scores)), dtype=np.float64)

    return losses


def way_of(function: Loss | Metric, form: AdditiveForm, sides: Sides, doubt: float) -> Way | str:
    """How to measure a loss, or why it cannot be done.

    ``doubt``: up to which size the sign of a score may be rounding.
    """
    name = f"loss={shown(function.name)}"
    if not isinstance(function, Loss):
        return f"{name} is a metric of all rows together"
    loss, pieces = loss_at(function, form), None
    if _is_of_sign(function, form):
        pieces = additive_pieces.of_labels(loss, sides.labels)
        if additive_pieces.near_a_break(pieces, sides, doubt):
            return f"{name}: some scores are 0 up to rounding, so that only the model knows the label"
    elif form.identity and isinstance(function.rows, formulas.Pointwise) and sides.labels.ndim == 1:
        pieces = additive_pieces.of_formula(function.rows, sides.labels)
    if pieces is not None:
        return Pieced(pieces)
    return smooth(function, loss, sides, form.continuous) or f"{name} is not smooth in the model's score"


def _is_of_sign(function: Loss, form: AdditiveForm) -> bool:
    """Whether it depends on predicted labels alone; curves of several answers show another than the label."""
    return function.output == "value" and (
        form.labels == "alone" or (form.labels == "beside" and not is_output(function))
    )


# ---------------------------------------------------------------------------------------------------------------------
# The route


@dataclass(frozen=True, eq=False)
class OneScore:
    """``scores (n,)``: those of the rows; ``doubt``: up to which size their signs may be rounding."""

    question: Exchange
    form: AdditiveForm
    scores: Floats
    doubt: float

    def sides(self, feature: Feature, place: int) -> Sides:
        problem = self.question.problem
        lent = self.form.effect(problem.flat, feature.columns)
        return Sides.of(self.scores, lent, arrays.to_host(self.question.base.targets[place]), problem.host_weights)

    def way(self, feature: Feature, place: int) -> Way | str:
        function = self.question.problem.losses[place]
        return way_of(function, self.form, self.sides(feature, place), self.doubt)

    def moves(self, feature: Feature) -> bool:
        """Links are monotone, so that the least and the largest of what is lent are enough."""
        sides = self.sides(feature, 0)
        if not np.ptp(sides.lent):
            return False
        ends = (self.form.answer(sides.kept + end) for end in (sides.lent.min(), sides.lent.max()))
        return any(is_moved(self.question.base, answers) for answers in ends)


class Additive(Route):
    """Sums over points of the scores."""

    name, says = "additive", "the sum of its columns' effects says"

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        form, several = known_models.additive_form(problem), known_models.several_scores(problem)
        if form is None and several is None:
            return NEEDS
        # What the closed form has refused, the same coefficients would refuse once more.
        squares = all(map(is_squared, real_losses(problem.losses)))
        if squares and not question.forced and known_models.linear_form(problem) is not None:
            return "leaves linear models under squared error to route='linear'"
        if problem.store.streams and (several is not None or _ROW_BYTES * problem.n > problem.memory):
            return Almost("needs the scores of all rows in memory, and X is read in blocks")
        if any(map(is_whole, problem.losses)):
            return Almost("keeps no curves of single rows")
        if form is not None:
            return partial(_opened, question, form)
        assert several is not None
        return partial(additive_several.opened, question, several)


def _opened(question: Exchange, form: AdditiveForm) -> AdditiveOffer:
    """Raises `trust.Disagreement` if the model does not predict what the effects of its columns say."""
    problem = question.problem
    scores = form.score(problem.flat)
    trust.check_scores(problem, question.base, form, scores)
    return AdditiveOffer(OneScore(question, form, scores, trust.doubtful(problem, scores)))
