"""Checks of arguments that many functions take, and warnings that point at the user's own line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from reliance._core.words import shown


def check_draws(draws: object, name: str = "draws") -> int:
    """A number of draws: an integer of at least 1."""
    if isinstance(draws, bool | np.bool_) or not isinstance(draws, int | np.integer):
        raise TypeError(f"{name}={shown(draws)} is not an integer: pass how many times each row is replaced")
    if draws < 1:
        raise ValueError(f"{name}={draws} is too small: each row must be replaced at least once")
    return int(draws)


def check_choice(value: object, choices: Sequence[str], name: str) -> str:
    """One of a few names, or an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={shown(value)} is unknown: choose one of {', '.join(map(repr, choices))}")
    return value


# Where warnings of this package go, if somebody collects them; in the thread or task that does alone.
_COLLECTED: ContextVar[list[str] | None] = ContextVar("reliance_warnings", default=None)


@contextmanager
def collecting() -> Iterator[list[str]]:
    """A list of what this package warns about meanwhile, which nobody else hears.

    Not by a filter of the interpreter's warnings, which would be that of all threads.
    """
    found: list[str] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def warn(message: str) -> None:
    """A UserWarning at the line outside of this package that led here, however deep the calls within it are."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.append(message)
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "reliance":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
