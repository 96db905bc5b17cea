"""Checks of arguments that many functions take, and warnings that point at the user's own line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

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


def warn(message: str) -> None:
    """A UserWarning at the line outside of this package that led here, however deep the calls within it are."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "reliance":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
