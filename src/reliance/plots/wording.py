"""What figures say: names that fit, what an axis measures, titles, and the caption below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from reliance._core import words

NAME = 40  # letters of a name, in figures as in tables

# Metrics are losses, so that smaller is better: an axis must not promise an AUC where it shows 1 - AUC.
_LOSSES = {
    "auc": "1 - AUC",
    "r2": "1 - R²",
    "accuracy": "1 - accuracy",
    "rmse": "RMSE",
    "squared_error": "squared error",
    "absolute_error": "absolute error",
    "log_loss": "log loss",
    "cross_entropy": "cross-entropy",
    "zero_one": "share of wrong labels",
    "hinge": "hinge loss",
    "huber": "Huber loss",
    "pinball": "pinball loss",
    "poisson_deviance": "Poisson deviance",
    "prediction_shift": "squared change of the prediction",
}
_COMPARED = {"difference": "increase in {}", "ratio": "{}, replaced / original", "share": "share of {}"}
# An algorithm that is fitted without a feature, or with one alone.
_LEFT = {
    "out": {"difference": "increase in {} without the feature", "ratio": "{}, without / with the feature"},
    "in": {"difference": "decrease in {} with the feature alone", "ratio": "{}, without / with the feature alone"},
}


class HasRisk(Protocol):
    """What was measured on n rows, and the loss of the model there."""

    @property
    def n(self) -> int: ...
    @property
    def loss(self) -> str: ...
    @property
    def base_risk(self) -> float: ...


def text(given: str) -> str:
    """Dollar signs are not mathematics."""
    return given.replace("$", r"\$")


def labels(names: Sequence[str], most: int = NAME) -> list[str]:
    """Names that fit an axis, told apart as in tables."""
    return [text(name) for name in words.told_apart(names, most)]


def heading(method: str) -> str:
    """The name of a function in words: "Permutation importance"."""
    spoken = method.replace("_", " ")
    return spoken[:1].upper() + spoken[1:]


def loss_in_words(loss: str) -> str:
    """What the numbers of a loss are, on one line."""
    return words.short(_LOSSES.get(loss, loss))


def amount(compare: str, loss: str, leave: str | None = None) -> str:
    """The name of the axis of values; of refits also whether features are left out or alone."""
    forms = _LEFT.get(leave or "", _COMPARED)
    return forms[compare].format(loss_in_words(loss))


def of_rows(contributes: bool, quantity: str) -> str:
    """The name of the axis of values of single rows."""
    return "contribution to the prediction" if contributes else amount("difference", quantity)


def own(row: int, contributes: bool, base: float) -> str:
    """A row, and what its values are changes of."""
    return f"row {row}, {'prediction' if contributes else 'loss'} {base:.4g}"


def title(what: str, drawn: int, there: int, things: str = "features") -> str:
    """What is drawn; of how many, if not of all."""
    return what if drawn == there else f"{what}, {drawn} largest of {there} {things}"


def measured(result: HasRisk) -> str:
    """On how many rows, and how good the model is there; a share of the variance has nothing to do with that."""
    rows = f"n = {result.n}"
    return rows if getattr(result, "compare", "") == "share" else f"{rows}, base loss {result.base_risk:.4g}"


def whisker_words(level: float, known: bool) -> str:
    """What whiskers are; that there are none is said, too."""
    return f"whiskers: {percent(level)} interval" if known else "no interval is known"


def percent(level: float) -> str:
    return f"{100.0 * level:.6g}%"


def caption(*parts: str) -> str:
    """One sentence of those parts that say something."""
    return "; ".join(part for part in parts if part)


def unlabelled(hidden: int, there: int, things: str = "features") -> str:
    """How many labels the axis has no room for."""
    return f"{hidden} of {there} {things} have no label for lack of room" if hidden else ""


def number(value: float) -> str:
    """A number beside a bar."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)
