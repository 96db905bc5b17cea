"""Sections as units of work: each can fail by itself, and what it warns about is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reliance._core.checks import collecting
from reliance._core.progress import Reporter
from reliance._core.words import short
from reliance.report import context, measured
from reliance.report.measured import Part
from reliance.report.question import DoesNotApply, Question
from reliance.results.base import Result

_LONGEST = 400  # letters of an error or a warning


@dataclass(frozen=True)
class Unit:
    """A section: what it is called on the page, and in short, and how it is made, knowing the results before it."""

    title: str
    brief: str
    make: Callable[[Question, Mapping[str, Result]], Part]


# In the order of the page; a section may use the results of those before it.
UNITS: Mapping[str, Unit] = {
    "importance": Unit("What the model relies on", "Importance", measured.importance),
    "splits": Unit("Training against test rows", "Training and test", measured.splits),
    "given": Unit("What each feature alone contributes", "Given others", measured.given),
    "extrapolation": Unit("Are the replaced rows realistic?", "Extrapolation", context.extrapolation),
    "curves": Unit("How predictions follow the features", "Curves", context.curves),
    "class": Unit("What every good linear model relies on", "Linear models", context.linear_class),
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a section: its part of the page, or the error."""

    name: str
    title: str
    brief: str
    part: Part | None
    warnings: tuple[str, ...]
    error: Exception | None = None

    @property
    def failed(self) -> str:
        """The error in words; empty if there is none."""
        if self.error is None:
            return ""
        words = short(str(self.error), _LONGEST) or "no reason was given"
        expected = isinstance(self.error, ValueError | TypeError | ImportError)
        return words if expected else f"{type(self.error).__name__}: {words}"


def run(question: Question, names: Sequence[str], advance: Reporter) -> list[Outcome]:
    """All units, one after the other. An interrupt ends the report; an error ends only its section."""
    found: list[Outcome] = []
    results: dict[str, Result] = {}
    for name in names:
        outcome = _made(question, name, results)
        found.append(outcome)
        if outcome.part is not None:
            results[name] = outcome.part.result
        advance(1)
    return found


def _made(question: Question, name: str, results: Mapping[str, Result]) -> Outcome:
    unit = UNITS[name]
    part, error = None, None
    with collecting() as said:
        try:
            part = unit.make(question, results)
        except Exception as found:  # whatever a model or a sampler does: the other sections are worth having
            error = found
    once = tuple(dict.fromkeys(short(message, _LONGEST) for message in said))
    return Outcome(name, unit.title, unit.brief, part, once, error)


def applies(outcome: Outcome) -> bool:
    return not isinstance(outcome.error, DoesNotApply)
