"""Sentences of a report: what numbers say, for a reader who has a minute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import short, shown, told_apart
from reliance.plots.wording import loss_in_words
from reliance.report.html import Html, element, join, number, numbers

Floats = NDArray[np.float64]
LEVEL = 0.95
ALPHA = 0.05
_NAMED = 8  # names in a sentence
# Losses of single rows, of which the mean is taken; metrics are of all rows, and a user's own say what they are.
_MEANS = frozenset(
    [
        "squared_error",
        "absolute_error",
        "log_loss",
        "cross_entropy",
        "hinge",
        "huber",
        "pinball",
        "poisson_deviance",
        "prediction_shift",
    ]
)


def name(feature: str) -> Html:
    """A feature's name in a sentence."""
    return element("b", element("bdi", short(feature, 60)))


def names(features: Sequence[str], most: int = _NAMED) -> Html:
    """Some names in a sentence; how many more there are."""
    parts: list[object] = [name(feature) for feature in features[:most]]
    if len(features) > most:
        parts.append(f"{len(features) - most} more")
    return join(parts) if len(parts) < 2 else join([join(parts[:-1], ", "), " and ", parts[-1]])


def labels(features: Sequence[str]) -> list[Html]:
    """Names for a table, told apart as in figures; what was cut is there in full for who points at it."""
    cut = told_apart(features)
    return [
        element("bdi", label, title=None if label == feature else feature)
        for label, feature in zip(cut, features, strict=True)
    ]


def loss(result: Any) -> str:
    """The loss in words: "mean squared error", "1 - AUC"."""
    words = loss_in_words(result.loss)
    return f"mean {words}" if result.loss in _MEANS else words


def estimate(value: float, low: float, high: float) -> str:
    """A value with its interval in a sentence, all with the same decimals."""
    if math.isnan(low) or math.isnan(high):
        return f"{number(value)}, no interval is known"
    own, least, most = numbers([value, low, high])
    return f"{own}, 95% interval {least} to {most}"


def count(many: int, thing: str) -> str:
    """A number of things."""
    return f"{many:,} {thing}" + ("" if many == 1 else "s")


def percent(value: float) -> str:
    """A share; more digits where it is small."""
    if not math.isfinite(value):
        return "–"
    written = f"{100 * value:.0f}%" if abs(value) >= 0.0995 or value == 0 else f"{100 * value:.1f}%"
    return written.replace("-", "−") if written.strip("-0.%") else written.lstrip("-")


def call(function: str, arguments: str, options: Mapping[str, object]) -> str:
    """A call that can be repeated; options that say nothing are left out."""
    known = {key: value for key, value in options.items() if value is not None}
    known |= {"names": Html("names")} if "names" in known else {}
    said = [f"{key}={value if isinstance(value, Html) else shown(value, 80)}" for key, value in known.items()]
    return f"rl.{function}({', '.join([arguments, *said])})"


def largest(features: Sequence[str], values: Floats, most: int = 3) -> str:
    """The first few features with their values, for alternative text."""
    few = [f"{short(one)} {number(float(value))}" for one, value in zip(features[:most], values[:most], strict=True)]
    return ", ".join(few)
