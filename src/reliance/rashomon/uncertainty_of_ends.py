"""How uncertain the ends of a range are because the rows are a sample: by the envelope theorem, or by a bootstrap.

An end V is the reliance of its model f, subject to risk(f) <= bound. By the envelope theorem it moves with the rows as
if f stayed what it is: V = reliance(f) - slope (risk(f) - bound), slope = dV / dbound. The bound moves with the risk of
the reference, and if that is the best model, the theorem holds for it, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.run import Run
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.problems import assembled
from reliance.engine.sending import Advance
from reliance.losses.functions import Loss, resolve_all
from reliance.rashomon import jobs, stacked
from reliance.rashomon.protocol import ListedClass, Member, ModelClass, Range, ResampledClass
from reliance.rashomon.question import Question
from reliance.rashomon.stacked import Fitted

Floats = NDArray[np.float64]
_STEP = 1e-4  # of the bound, relative: the slope is a difference over twice that
_EXACT = 1e-5  # how close what is achieved and what is certified must be, relative
_FEWEST = 20  # samples
_AT_ONCE = 250  # samples whose counts are held at a time
_SAMPLES = 103  # which random numbers the samples of the rows are (see `streams.stream`)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors (p, 2) of both ends; of listed models the reliance (M', p) of the good ones of each sample."""

    errors: Floats
    drawn: list[Floats] | None = None


def check(uncertainty: object, model_class: ModelClass) -> int | None:
    """How many samples of the rows, 0 for the envelope; None if nothing was asked."""
    if uncertainty is False:
        return None
    if uncertainty is True:
        return 0
    if not isinstance(uncertainty, int | np.integer) or uncertainty < _FEWEST:
        raise ValueError(
            f"uncertainty={shown(uncertainty)}: pass True, or a number of bootstrap samples of at least {_FEWEST}"
        )
    if hasattr(model_class, "bootstrap"):
        raise ValueError(
            f"uncertainty={uncertainty} would call all models on every sample: pass FiniteClass(models, "
            f"bootstrap={uncertainty}), which evaluates none again; result.interval() then uses its samples"
        )
    return int(uncertainty)


def measured(question: Question, found: list[Range], samples: int) -> Uncertainty:
    """By the envelope theorem, or by the spread of the ends over bootstrap samples, with the reference of each."""
    if not samples:
        return Uncertainty(_of_envelope(question, found))
    if isinstance(question.model_class, ListedClass):
        drawn = _each(question, _GoodOfSample, range(samples))
        ends = np.stack([[values.min(axis=0), values.max(axis=0)] for values in drawn]).transpose(0, 2, 1)
        return Uncertainty(_spread(ends), drawn)
    return Uncertainty(_spread(sample_ends(question, samples)))


def _spread(ends: Floats) -> Floats:
    return np.asarray(np.std(ends, axis=0, ddof=1))


def sample_ends(question: Question, samples: int) -> Floats:
    """(B, p, 2): both ends on bootstrap samples of the rows; from sums that are known, where the class can."""
    n, found = question.rows.n, []
    for start in range(0, samples, _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, samples))
        counts = np.stack([np.bincount(_drawn(question, b), minlength=n) for b in some])
        known = _from_counts(question, counts.astype(np.float64))
        found.append(_asked_again(question, some) if known is None else known)
    return np.concatenate(found)


def _from_counts(question: Question, counts: Floats) -> Floats | None:
    if not isinstance(question.model_class, ResampledClass):
        return None
    risks = None
    if question.anchor is not None and question.reference is not None:
        losses = _fitted(question, question.anchor, _row_loss(question.model_class)).losses
        risks = counts @ losses / question.rows.n

    def bounds(least: Floats) -> Floats:
        if question.anchor is None:  # a risk was given
            return np.full(len(least), question.bound)
        return question.bound_of(least if risks is None else risks)

    known = question.model_class
    return known.sample_ends(question.data, counts, bounds, question.rows.features, question.compare)


def _drawn(question: Question, b: int) -> NDArray[np.int64]:
    """The rows of a sample."""
    return streams.stream(question.data.key, _SAMPLES, b).integers(question.rows.n, size=question.rows.n)


def _asked_again(question: Question, some: range) -> Floats:
    return np.asarray(_each(question, _OfSample, some))


def _each(question: Question, kind: Callable[[Question], _Asked], some: range) -> list[Floats]:
    """What is asked about each sample, shared out among the workers."""
    ask = kind(replace(question, progress=False, run=Run(), data=replace(question.data, run=Run())))
    each, data = tuple(some), question.data
    return jobs.answers(ask, each, question.model_class, data, question.run, lambda size: None, lambda b: 1)


class _Asked(Protocol):
    def __call__(self, b: int, advance: Advance) -> Floats: ...


@dataclass(frozen=True, eq=False)
class _OfSample:
    """The ends, (p, 2), on one sample of the rows."""

    question: Question

    def __call__(self, b: int, advance: Advance) -> Floats:
        one = self.question.of_sample(np.sort(_drawn(self.question, b)))
        return np.asarray([(r.achieved_lower, r.achieved_upper) for r in one.ranges(one.bound)])


@dataclass(frozen=True, eq=False)
class _GoodOfSample:
    """The reliance (M', p) of all good models of one sample of the rows."""

    question: Question

    def __call__(self, b: int, advance: Advance) -> Floats:
        one = self.question.of_sample(np.sort(_drawn(self.question, b)))
        assert isinstance(one.model_class, ListedClass)
        found = one.model_class.members(one.data, one.bound, one.rows.features, one.compare, one.conditional)
        return found.values[found.inside]


def _of_envelope(question: Question, found: list[Range]) -> Floats:
    _check_exact(question, found)
    slopes = _slopes(question)
    loss, reference = _row_loss(question.model_class), np.zeros(question.rows.n)
    if question.anchor is not None:
        scale = 1.0 + question.epsilon if question.relative else 1.0
        reference = scale * _fitted(question, question.anchor, loss).losses
    spread = np.zeros((len(found), 2))
    for j, (feature, one) in enumerate(zip(question.rows.features, found, strict=True)):
        for end, member in enumerate((one.least, one.most)):
            part = _fitted(question, member, loss)
            moved = _influence(question, part, feature) - slopes[j, end] * (part.losses - reference)
            spread[j, end] = np.std(moved, ddof=1) / math.sqrt(len(moved))
    return spread


def _check_exact(question: Question, found: list[Range]) -> None:
    if isinstance(question.model_class, ListedClass):
        raise ValueError(
            "uncertainty=True needs ends that move smoothly with the bound, and those of a list of models jump: pass a "
            "number of bootstrap samples (uncertainty=200; FiniteClass(models, bootstrap=200))"
        )
    for feature, one in zip(question.rows.features, found, strict=True):
        scale = _EXACT * max(abs(one.achieved_lower), abs(one.achieved_upper), question.reference_risk)
        gaps = (one.achieved_lower - one.lower, one.upper - one.achieved_upper)
        if not max(gaps) <= scale:  # also where nothing is certified
            raise ValueError(
                f"uncertainty=True needs exact ends, and those of {shown(feature.name)} are achieved by a search: pass "
                "a number of bootstrap samples, such as uncertainty=200"
            )


def _slopes(question: Question) -> Floats:
    """(p, 2): how the ends move with the bound."""
    least, bound = question.model_class.best(question.data).risk, question.bound
    if (1.0 - 2.0 * _STEP) * bound <= least:
        raise ValueError(
            f"uncertainty=True needs epsilon above {2 * _STEP:g}: with almost the best model alone the ends move with "
            "the root of the bound; pass a larger epsilon, or a number of bootstrap samples"
        )
    ends = [
        np.asarray([(r.achieved_lower, r.achieved_upper) for r in question.ranges(share * bound)])
        for share in (1.0 - _STEP, 1.0 + _STEP)
    ]
    return np.asarray((ends[1] - ends[0]) / (2.0 * _STEP * bound))


def _row_loss(model_class: ModelClass) -> Loss:
    (loss,) = resolve_all(model_class.loss)
    assert isinstance(loss, Loss)
    return loss


def _fitted(question: Question, member: Member, loss: Loss) -> Fitted:
    rows, data = question.rows, question.data
    problem = assembled(member.model, rows, (loss,), key=data.key, memory=data.memory)
    return Fitted.of("the model at an end", replace(problem, run=data.run))


def _influence(question: Question, part: Fitted, feature: Feature) -> Floats:
    """(n,): how each row moves the reliance of one model, as base and as donor."""
    asked = stacked.Question((feature,), question.compare, question.conditional, influence=True)
    (found,) = stacked.reliances(asked, {0: part}, lambda rows: None)
    assert found.influence is not None
    return np.asarray(found.influence[0, 0])
