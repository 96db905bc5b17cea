"""All pairs of models whose score is a sum of functions of single columns: generalised linear models, additive ones.

A donor changes one term of the score, so the loss of a pair is a function of what the row keeps plus what the donor
lends. Where it is smooth, few points say everything (`additive_sums`); where it bends or jumps, sorting does
(`additive_pieces`). The model is not called, and a feature takes O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import known_models
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import additive_pieces, additive_sums, trust
from reliance.exact.additive_pieces import Pieces
from reliance.exact.additive_points import LossAt, Sides
from reliance.exact.called import FromMoments
from reliance.exact.protocol import Exchange, Job, Measured, Opening, Route
from reliance.exact.unused import Unused
from reliance.losses import formulas
from reliance.losses.functions import Loss, Metric, is_squared, row_losses
from reliance.losses.outputs import is_output, is_whole, real_losses
from reliance.models.additive import AdditiveForm

Floats = NDArray[np.float64]
# Pairs that are computed one by one, in the place of points.
_FEW = 2**20
NEEDS = (
    "needs a model whose score is a sum over columns: a (generalised) linear model of scikit-learn with one output or "
    "two classes, or rl.models.Additive"
)


class Way(Protocol):
    """How the moments of one loss are found."""

    def moments(self, sides: Sides) -> Moments:
        """Raises `trust.Disagreement` if the loss turns out to be another."""
        ...


@dataclass(frozen=True, eq=False)
class Smooth:
    """By points; ``width``: the length of their intervals, None if every pair is computed."""

    loss: LossAt
    width: float | None

    def moments(self, sides: Sides) -> Moments:
        width = self.width
        for _ in range(3):  # all rows may ask for shorter intervals than some of them did
            found, missed = additive_sums.moments(self.loss, sides, width)
            if missed <= additive_sums.TOLERANCE:
                return found
            width = None if width is None else 0.5 * width
        raise trust.Disagreement


@dataclass(frozen=True, eq=False)
class Pieced:
    """By sorting."""

    pieces: Pieces

    def moments(self, sides: Sides) -> Moments:
        return additive_pieces.moments(self.pieces, sides)


# ---------------------------------------------------------------------------------------------------------------------
# Losses as functions of the score


def loss_at(function: Loss, form: AdditiveForm) -> LossAt:
    """F: the losses of labels and scores."""
    if function.rows is formulas.log_loss and form.logistic:
        return _logistic_loss

    def losses(labels: HostArray, scores: Floats) -> Floats:
        found = row_losses(function, labels, form.answer(scores))
        return np.asarray(found, dtype=np.float64)

    return losses


def _logistic_loss(labels: HostArray, scores: Floats) -> Floats:
    """The log loss of logistic probabilities, clipped as it is; without the rounding of probabilities near 1."""
    eps = float(np.finfo(np.float64).eps)
    found = formulas.cross_entropy(labels, scores)
    return np.clip(np.asarray(found, dtype=np.float64), -np.log1p(-eps), -np.log(eps))


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
    if sides.n**2 <= _FEW and _is_continuous(function):
        return Smooth(loss, None)
    width = additive_sums.chosen_width(loss, sides)
    return f"{name} is not smooth in the model's score" if width is None else Smooth(loss, width)


def _is_of_sign(function: Loss, form: AdditiveForm) -> bool:
    """Whether it depends on predicted labels alone; curves of several answers show another than the label."""
    return function.output == "value" and (
        form.labels == "alone" or (form.labels == "beside" and not is_output(function))
    )


def _is_continuous(function: Loss) -> bool:
    """Whether a loss is known to have no jumps, so that rounding of scores stays rounding."""
    known = function.rows is formulas.log_loss or function.rows is formulas.cross_entropy
    return known or is_output(function) or isinstance(function.rows, formulas.Pointwise)


# ---------------------------------------------------------------------------------------------------------------------
# The route


@dataclass(frozen=True, eq=False)
class _Offer:
    """``scores (n,)``: those of the rows; ``doubt``: up to which size their signs may be rounding."""

    question: Exchange
    form: AdditiveForm
    scores: Floats
    doubt: float

    @cached_property
    def _ways(self) -> dict[str, tuple[Way, ...] | str | None]:
        """What was found about features, by their names; None: not used."""
        return {}

    def cost(self, feature: Feature) -> float | str:
        found = self._found(feature)
        return found if isinstance(found, str) else 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        ways = {f.name: self._found(f) for f in features}
        used = {name: one for name, one in ways.items() if isinstance(one, tuple)}
        some = tuple(f for f in features if f.name in used)
        rest = tuple(f for f in features if f.name not in used)
        found: list[Job[Measured]] = [AdditiveJob(self, some, used)] if some else []
        return [*found, Unused(self.question.problem, rest)] if rest else found

    def sides(self, feature: Feature, place: int) -> Sides:
        """Of a feature, under the labels of one loss."""
        problem = self.question.problem
        lent = self.form.effect(problem.flat, feature.columns)
        return Sides.of(self.scores, lent, arrays.to_host(self.question.base.targets[place]), problem.host_weights)

    def _found(self, feature: Feature) -> tuple[Way, ...] | str | None:
        if feature.name not in self._ways:
            self._ways[feature.name] = self._looked(feature)
        return self._ways[feature.name]

    def _looked(self, feature: Feature) -> tuple[Way, ...] | str | None:
        if not self._moves(feature):
            return None
        ways: list[Way] = []
        for place, function in enumerate(self.question.problem.losses):
            way = way_of(function, self.form, self.sides(feature, place), self.doubt)
            if isinstance(way, str):
                return way
            ways.append(way)
        return tuple(ways)

    def _moves(self, feature: Feature) -> bool:
        """Whether some donor moves some prediction by more than rounding: links are monotone, so ends are enough."""
        sides, base = self.sides(feature, 0), self.question.base
        if not np.ptp(sides.lent):
            return False
        own, slack = arrays.to_host(base.predictions), arrays.to_host(base.slack)
        for end in (sides.lent.min(), sides.lent.max()):
            answers = self.form.answer(sides.kept + end).reshape(own.shape)
            moved = answers != own if own.dtype.kind not in "f" else np.abs(answers - own) > slack
            if np.any(moved):
                return True
        return False


@dataclass(frozen=True, eq=False)
class AdditiveJob:
    """Features and how each loss is measured."""

    offer: _Offer
    features: tuple[Feature, ...]
    ways: dict[str, tuple[Way, ...]]
    route: str = "additive"

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> FromMoments:
        question = self.offer.question
        known = {
            f.name: tuple(way.moments(self.offer.sides(f, place)) for place, way in enumerate(self.ways[f.name]))
            for f in self.features
        }
        plans = {f.name: question.plan for f in self.features}
        return FromMoments(question.problem, self.features, known, plans)


class Additive(Route):
    """Sums over points of the scores."""

    name, says = "additive", "the sum of its columns' effects says"

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        form = known_models.additive_form(problem)
        if form is None:
            return NEEDS
        # What the closed form has refused, the same coefficients would refuse once more.
        if (
            not question.forced
            and known_models.linear_form(problem)
            and all(map(is_squared, real_losses(problem.losses)))
        ):
            return "leaves linear models under squared error to route='linear'"
        if any(map(is_whole, problem.losses)):
            return "keeps no curves of single rows"
        return partial(_opened, question, form)


def _opened(question: Exchange, form: AdditiveForm) -> _Offer:
    """Raises `trust.Disagreement` if the model does not predict what the effects of its columns say."""
    problem: Problem = question.problem
    scores = form.effect(problem.flat, range(int(problem.flat.shape[1]))) + form.intercept
    trust.check_additive(problem, question.base, form, scores)
    return _Offer(question, form, scores, trust.doubtful(problem, scores))
