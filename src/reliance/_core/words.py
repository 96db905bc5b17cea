"""What messages and tables say about names and values that may be long or many."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence

_NAME = 40
_ROOM = 120
_COMPARED = 20_000  # names that one is compared with
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 10**6  # cut once, below


def short(name: str, most: int = _NAME) -> str:
    """A name that fits a table or an axis: one line, not too long."""
    name = " ".join(name[: 10 * most].split()) + ("..." if len(name) > 10 * most else "")
    return name if len(name) <= most else name[: most - 3] + "..."


def told_apart(names: Sequence[str], most: int = _NAME) -> list[str]:
    """Names that fit a table or an axis, different where the names are.

    Names are cut at their ends; those that would then look the same, in their middles; those that still would, to where
    they begin to differ; and the few that no cut tells apart get a number.
    """
    whole = [" ".join(name.split()) for name in names]
    found, half = [short(name, most) for name in names], (most - 3) // 2
    for places in _alike(found):
        for k in places:
            found[k] = f"{whole[k][:half]}...{whole[k][-half:]}" if len(whole[k]) > most else found[k]
    for places in _alike(found):
        at = _differ([whole[k] for k in places])
        for k in places:
            found[k] = _from(whole[k], at, most) if len(whole[k]) > most else found[k]
    for places in _alike(found):
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names[k] for k in places), 1)}
        for k in places:
            found[k] += f" ({numbers[names[k]]})" if len(numbers) > 1 else ""
    return found


def _alike(labels: Sequence[str]) -> list[list[int]]:
    """The places of labels that occur more than once."""
    places: dict[str, list[int]] = {}
    for k, label in enumerate(labels):
        places.setdefault(label, []).append(k)
    return [found for found in places.values() if len(found) > 1]


def _differ(names: Sequence[str]) -> int:
    """Where names begin to differ: the first and the last in order have the shortest beginning in common."""
    first, last = min(names), max(names)
    pairs = zip(first, last, strict=False)
    return next((k for k, (one, other) in enumerate(pairs) if one != other), min(len(first), len(last)))


def _from(name: str, at: int, most: int) -> str:
    """A few letters, and those from a place on."""
    few = most // 4
    rest = name[at : at + most - few - 6]
    return f"{name[:few]}...{rest}{'...' if at + len(rest) < len(name) else ''}"


def shown(value: object, most: int = 60) -> str:
    """The repr of what the user passed, on one line and not too long."""
    return short(_BRIEF.repr(value), most)


def listed(names: Iterable[object], most: int = 5) -> str:
    """Some of many names or values, for messages: at most five, as many as fit."""
    names = list(names)
    few: list[str] = []
    for name in names[:most]:
        few.append(shown(name, _NAME))
        if len(", ".join(few)) > _ROOM:
            del few[max(1, len(few) - 1) :]
            break
    more = len(names) - len(few)
    return ", ".join(few) + (f" and {more} more" if more else "")


def closest(name: str, names: Iterable[str]) -> str:
    """What a message says of the names there are: the most similar ones, or the first."""
    names = list(names)
    similar = difflib.get_close_matches(name[:_NAME], names[:_COMPARED], n=3, cutoff=0.5)
    if len(names) <= 3 or not similar:
        return f"the names are {listed(names)}"
    return f"of {len(names)} names the closest are {listed(similar)}"
