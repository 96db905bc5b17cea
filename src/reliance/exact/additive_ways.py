"""How the moments of one loss of an additive score are found, and the jobs that find them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.reductions import Moments
from reliance.exact import additive_pieces, additive_sums, trust
from reliance.exact.additive_pieces import Pieces
from reliance.exact.additive_points import LossAt, Sides
from reliance.exact.called import FromMoments
from reliance.exact.protocol import Exchange, Job, Measured
from reliance.exact.unused import Unused
from reliance.losses import formulas
from reliance.losses.functions import Loss
from reliance.losses.outputs import is_output

Floats = NDArray[np.float64]
# Pairs that are computed one by one, in the place of points.
_FEW = 2**20


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


def smooth(function: Loss, loss: LossAt, sides: Sides, continuous: bool) -> Smooth | None:
    """Few pairs one by one, if link and loss are known to have no jumps; otherwise points, if the loss is smooth.

    ``continuous``: what is known of the link.
    """
    known = function.rows is formulas.log_loss or function.rows is formulas.cross_entropy
    known = known or is_output(function) or isinstance(function.rows, formulas.Pointwise)
    if sides.n**2 <= _FEW and known and continuous:  # rounding of scores stays rounding
        return Smooth(loss, None)
    width = additive_sums.chosen_width(loss, sides)
    return None if width is None else Smooth(loss, width)


def log_loss_of(labels: HostArray, scores: Floats) -> Floats:
    """The log loss of logistic or softmax probabilities, clipped as it is; without the rounding of those near 1."""
    return clipped(np.asarray(formulas.cross_entropy(labels, scores), dtype=np.float64))


def clipped(losses: Floats) -> Floats:
    """As those of probabilities between eps and 1 - eps; in place."""
    eps = float(np.finfo(np.float64).eps)
    return np.clip(losses, -np.log1p(-eps), -np.log(eps), out=losses)


# ---------------------------------------------------------------------------------------------------------------------
# Offers and jobs


class Reading(Protocol):
    """A model that was read: the two sides of all pairs of a feature, and ways to the moments of its losses."""

    @property
    def question(self) -> Exchange: ...

    def moves(self, feature: Feature) -> bool:
        """Whether some donor moves some prediction by more than rounding."""
        ...

    def sides(self, feature: Feature, place: int) -> Sides:
        """Of a feature, under the labels of one loss."""
        ...

    def way(self, feature: Feature, place: int) -> Way | str:
        """How the moments of a feature under one loss are found, or why they cannot be."""
        ...


@dataclass(frozen=True, eq=False)
class AdditiveOffer:
    """``found``: what was found about features, by their names; None: not used."""

    reading: Reading
    found: dict[str, tuple[Way, ...] | str | None] = field(default_factory=dict)

    def cost(self, feature: Feature) -> float | str:
        found = self._ways(feature)
        return found if isinstance(found, str) else 0.0

    def jobs(self, features: tuple[Feature, ...]) -> list[Job[Measured]]:
        ways = {f.name: self._ways(f) for f in features}
        used = {name: one for name, one in ways.items() if isinstance(one, tuple)}
        some = tuple(f for f in features if f.name in used)
        rest = tuple(f for f in features if f.name not in used)
        found: list[Job[Measured]] = [AdditiveJob(self.reading, some, used)] if some else []
        return [*found, Unused(self.reading.question.problem, rest)] if rest else found

    def _ways(self, feature: Feature) -> tuple[Way, ...] | str | None:
        if feature.name not in self.found:
            self.found[feature.name] = self._looked(feature) if self.reading.moves(feature) else None
        return self.found[feature.name]

    def _looked(self, feature: Feature) -> tuple[Way, ...] | str:
        ways: list[Way] = []
        for place in range(len(self.reading.question.problem.losses)):
            way = self.reading.way(feature, place)
            if isinstance(way, str):
                return way
            ways.append(way)
        return tuple(ways)


@dataclass(frozen=True, eq=False)
class AdditiveJob:
    """Features and how each loss is measured."""

    reading: Reading
    features: tuple[Feature, ...]
    ways: dict[str, tuple[Way, ...]]
    route: str = "additive"

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> FromMoments:
        question = self.reading.question
        known = {
            f.name: tuple(way.moments(self.reading.sides(f, place)) for place, way in enumerate(self.ways[f.name]))
            for f in self.features
        }
        plans = {f.name: question.plan for f in self.features}
        return FromMoments(question.problem, self.features, known, plans)


def is_moved(base: Base, answers: HostArray) -> bool:
    """Whether some of a model's answers to replaced rows differ from those to the rows by more than rounding."""
    own = arrays.to_host(base.predictions)
    answers = answers.reshape(own.shape)
    if own.dtype.kind != "f":
        return bool(np.any(answers != own))
    return bool(np.any(np.abs(answers - own) > arrays.to_host(base.slack)))
