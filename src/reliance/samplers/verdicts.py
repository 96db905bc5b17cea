"""Which of several samplers fits, and what is said where none does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from reliance._core.checks import warn
from reliance._core.words import listed, shown
from reliance.samplers.draws import Draws, Sampler
from reliance.samplers.misfit import Misfit

LEVEL = 1e-3  # of a call: how often one with a right sampler is warned about
SWITCH = 1e-2  # of a feature: how often a right sampler gives way to the next one
_REASONS = ("mean", "spread")


def sampler_name(sampler: Sampler) -> str:
    """As it stands in results."""
    return type(sampler).__name__.lower()


class Tried(NamedTuple):
    """A sampler, its draws, and what a check found of them."""

    sampler: Sampler
    parts: Draws
    misfit: Misfit | None

    @property
    def name(self) -> str:
        return sampler_name(self.sampler)

    def passes(self, level: float) -> bool:
        return self.misfit is None or self.misfit.passes(level)


class Verdict(NamedTuple):
    """Of one feature: the sampler that drew it, the names of all that were tried, and one that passes, if known."""

    feature: str
    sampler: str
    misfit: Misfit | None
    tried: tuple[str, ...]
    better: str | None = None


def chosen(candidates: Sequence[Sampler], draw: Callable[[Sampler], Tried]) -> tuple[Tried, tuple[str, ...]]:
    """The first sampler that passes, and the names of those that were tried.

    If none does, the first whose mean passes, because a wrong mean does more harm than a wrong spread; or the one that
    leaves the least of it. What cannot be fitted is no choice, but for the first, whose error is the user's.
    """
    tried = [draw(candidates[0])]
    if tried[0].misfit is None:
        return tried[0], (tried[0].name,)
    for sampler in candidates[1:]:
        if tried[-1].passes(SWITCH):
            break
        try:
            one = draw(sampler)
        except ValueError:
            continue
        if one.misfit is not None:  # too few rows to tell: no reason to prefer it
            tried.append(one)
    names = tuple(dict.fromkeys(one.name for one in tried))
    if tried[-1].passes(SWITCH):
        return tried[-1], names
    mean_passes = [one for one in tried if one.misfit is not None and 2.0 * one.misfit.mean >= SWITCH]
    return (mean_passes or sorted(tried, key=_mean_share))[0], names


def _mean_share(one: Tried) -> float:
    return 0.0 if one.misfit is None else one.misfit.mean_share


def better(candidates: Sequence[Sampler], tried: tuple[str, ...], draw: Callable[[Sampler], Tried]) -> str | None:
    """The name of the first sampler that passes, of those that were not tried."""
    for sampler in candidates:
        if sampler_name(sampler) in tried:
            continue
        try:
            one = draw(sampler)
        except (ValueError, TypeError):  # not for these columns
            continue
        if one.misfit is not None and one.passes(SWITCH):
            return one.name
    return None


def is_wrong(misfit: Misfit | None, features: int = 1) -> bool:
    """Whether it is beyond doubt, of one feature of some."""
    return misfit is not None and not misfit.passes(LEVEL / features)


def report(verdicts: Iterable[Verdict], remedies: tuple[str, str] | None) -> None:
    """Warn about features whose sampler is wrong; the remedies are of a wrong mean and of a wrong spread."""
    known = [verdict for verdict in verdicts if verdict.misfit is not None]
    wrong: dict[tuple[str, int], list[Verdict]] = {}
    for verdict in known:
        if is_wrong(verdict.misfit, len(known)):
            # Around a wrong mean every spread is one.
            place = 0 if verdict.misfit is not None and 2 * len(known) * verdict.misfit.mean < LEVEL else 1
            wrong.setdefault((verdict.sampler, place), []).append(verdict)
    for (sampler, place), some in wrong.items():
        share = max(verdict.misfit[2 + place] for verdict in some if verdict.misfit is not None)
        names = listed(dict.fromkeys(verdict.feature for verdict in some), 2)
        remedy = _advice(some) if remedies is None else remedies[place]
        warn(
            f"{shown(sampler)} does not fit {names}: the given columns explain {share:.0%} of the {_REASONS[place]} of "
            f"what it leaves, so draws are wrong and useless features may look important. {remedy}"
        )


def _advice(some: Sequence[Verdict]) -> str:
    names = dict.fromkeys(verdict.better for verdict in some if verdict.better is not None)
    if names:
        return f"sampler={listed(names, 2)} in rl.Given passes this check"
    tried = dict.fromkeys(name for verdict in some for name in verdict.tried)
    return f"{listed(tried)} were tried and none fits: try 'knn', 'residual' or your own sampler in rl.Given"
