"""What messages and tables say about names and values that may be long or many."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

_NAME = 40
_ROOM = 120
_COMPARED = 20_000  # names that one is compared with
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 10**6  # cut once, below


def short(name: str, most: int = _NAME) -> str:
    """A name that fits a table or an axis: one line, not too long."""
    name = " ".join(name[: 10 * most].split()) + ("..." if len(name) > 10 * most else "")
    return name if len(name) <= most else name[: most - 3] + "..."


def shown(value: Any, most: int = 60) -> str:
    """The repr of what the user passed, on one line and not too long."""
    return short(_BRIEF.repr(value), most)


def listed(names: Iterable[Any], most: int = 5) -> str:
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
