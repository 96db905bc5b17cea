"""Bounds of a range for new rows that hold for every distribution, by Hoeffding's inequality."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reliance._core.checks import warn
from reliance._core.words import shown
from reliance.rashomon.question import Question, Reference, is_number

Floats = NDArray[np.float64]


def check_confidence(confidence: float | None, loss_bound: float | None, reference: Reference) -> None:
    if confidence is None:
        if loss_bound is not None:
            raise ValueError(f"loss_bound={shown(loss_bound)} is used with confidence= only: pass both, or neither")
        return
    if not is_number(confidence) or not 0.0 < float(confidence) < 1.0:
        raise ValueError(f"confidence={shown(confidence)}: pass a level between 0 and 1, such as 0.95, or None")
    if loss_bound is None or not is_number(loss_bound) or not 0.0 < float(loss_bound) < math.inf:
        raise ValueError(
            f"confidence= rests on Hoeffding's inequality and needs loss_bound=, what the loss of a row cannot exceed; "
            f"it is {shown(loss_bound)}"
        )
    if reference is None or is_number(reference):
        raise ValueError(
            "confidence= needs reference=, a model that was not chosen on these rows: the best model here is closer to "
            "these rows than to new ones"
        )


def outer(question: Question, confidence: float, loss_bound: float) -> Floats:
    """Bounds (p, 2) for the population, see the notes of `model_class_reliance`."""
    if question.reference_risk > loss_bound:
        raise ValueError(
            f"loss_bound={loss_bound:g} is what the loss of a row cannot exceed, but the reference's mean loss is "
            f"{question.reference_risk:g}"
        )
    warn("outer bounds by Hoeffding's inequality hold for every distribution and are usually very wide")
    n, B = question.rows.n, loss_bound
    term = math.log(6.0 / (1.0 - confidence))
    q1, q2 = B * math.sqrt(term / (2 * n)), B * math.sqrt(term / (2 * (n // 2)))
    # The mean of loss(f) - (1 + epsilon) loss(reference), whose range is (2 + epsilon) B.
    enlarged = question.bound + (2.0 + (question.epsilon if question.relative else 0.0)) * q1
    ranges = question.ranges(enlarged)
    low, high = np.asarray([r.lower for r in ranges]), np.asarray([r.upper for r in ranges])
    if np.isnan([low, high]).any():
        raise ValueError(
            f"confidence= needs certified ends, and those of {type(question.model_class).__name__} are achieved only"
        )
    if question.compare == "difference":
        return np.stack([low - q1 - q2, high + q1 + q2], axis=1)
    least = question.model_class.best(question.data).risk
    upper = (high * least + q2) / (least - q1) if least > q1 else np.full(len(high), math.inf)
    return np.stack([np.maximum((low * least - q2) / (least + q1), 0.0), upper], axis=1)
