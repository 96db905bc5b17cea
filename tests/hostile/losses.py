"""Odd losses, metrics and comparisons: literal numbers of single rows, or refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import reliance as rl
from hostile import loops
from hostile.functions import FUNCTIONS, KEY, Function, N, X, Y, score
from hostile.loops import Data
from hostile.record import Case, Expectation, Number, Refused

CALLERS = [
    FUNCTIONS[name]
    for name in (
        "ablation_importance",
        "permutation_importance",
        "model_reliance",
        "conditional_model_reliance",
        "relative_importance",
        "interaction_importance",
        "local_importance",
        "out_of_bag_importance",
        "cross_validated_importance",
        "algorithm_reliance",
    )
]
LABELS = (np.median(Y) < Y).astype(np.int64)


def probability(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-score(x)))


def _steps(y: Any, p: Any) -> Any:
    return np.clip(np.round(4.0 * np.abs(y - p)), 0, 200) + 1.0


def _literal_steps(y: Any, p: Any) -> float:
    return float(min(max(round(4.0 * abs(y - p)), 0), 200)) + 1.0


def _far(y: Any, p: Any) -> Any:
    return np.abs(y - p) > 0.8


class _Steps:
    def __call__(self, y: Any, p: Any) -> Any:
        return _steps(y, p)


def _literal_huber(y: Any, p: Any) -> float:
    far = abs(y - p)
    return float(0.5 * far**2 if far <= 0.5 else 0.5 * (far - 0.25))


# Custom losses of odd dtypes and shapes, with the loss of a row.
OWN: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], float]]] = {
    "uint8": (lambda y, p: _steps(y, p).astype(np.uint8), _literal_steps),
    "int8": (lambda y, p: np.minimum(_steps(y, p), 100).astype(np.int8), lambda y, p: min(_literal_steps(y, p), 100.0)),
    "uint64": (lambda y, p: _steps(y, p).astype(np.uint64), _literal_steps),
    "int64": (lambda y, p: _steps(y, p).astype(np.int64), _literal_steps),
    "bool": (_far, lambda y, p: float(abs(y - p) > 0.8)),
    "float16": (lambda y, p: _steps(y, p).astype(np.float16), _literal_steps),
    "readonly": (lambda y, p: np.broadcast_to(_steps(y, p), (1, *_steps(y, p).shape))[0], _literal_steps),
    "callable object": (_Steps(), _literal_steps),
    "huber": (rl.losses.huber(0.5), _literal_huber),
    "pinball": (rl.losses.pinball(0.9), lambda y, p: max(0.9 * (y - p), -0.1 * (y - p))),
    "renamed": (dataclasses.replace(rl.losses.squared_error, name="mine"), loops.squared),
}
BROKEN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "scalar": (lambda y, p: np.mean((y - p) ** 2), ("loss", "shape ()")),
    "none": (lambda y, p: None, ("loss",)),
    "list": (lambda y, p: [0.0] * len(y), ("loss",)),
    "short": (lambda y, p: ((y - p) ** 2)[:-1], ("loss", "shape")),
    "nan": (lambda y, p: (y - p) * np.nan, ("loss", "NaN")),
    "inf": (lambda y, p: (y - p) + np.inf, ("loss", "infinite")),
    "complex": (lambda y, p: (y - p) + 1j, ("loss", "complex")),
    "object": (lambda y, p: ((y - p) ** 2).astype(object), ("loss", "object")),
    "text": (lambda y, p: np.array(["a"] * len(y)), ("loss",)),
    "masked": (lambda y, p: np.ma.masked_greater((y - p) ** 2, 0.5), ("loss", "masked")),
    "torch loss": (torch.nn.functional.cross_entropy, ("loss", "cross_entropy")),
    "torch module": (torch.nn.CrossEntropyLoss(), ("loss", "CrossEntropyLoss")),
    "misspelt": ("squared-error", ("loss", "squared_error")),
    "upper case": ("MSE", ("loss",)),
    "callable and twice": ([loops.squared, loops.squared], ("loss",)),
}


def _own(function: Function) -> Iterator[Case]:
    for odd, (loss, literal) in OWN.items():
        yield Case(
            function.name,
            f"loss {odd}",
            lambda loss=loss: function.run(X, Y, loss=loss),
            Number(lambda literal=literal: function.truth(X, Y, loss=literal), 1e-3 if odd == "float16" else 1e-9),
        )
    for odd, (loss, words) in BROKEN.items():
        yield Case(function.name, f"loss {odd}", lambda loss=loss: function.run(X, Y, loss=loss), Refused(words))


# ---------------------------------------------------------------------------------------------------------------------
# Built-in losses and metrics where labels or predictions do not fit them


def _measure(model: Any = score, y: Any = Y, X: Any = X, **options: Any) -> Any:
    return rl.permutation_importance(model, X, y, **{"draws": N, "rng": KEY, **options}).values


def _log_loss(y: Any, p: Any) -> float:
    return -math.log(p if y == 1 else 1.0 - p)


def _logistic(y: Any, z: Any) -> float:
    return math.log1p(math.exp(-z if y == 1 else z))


def _true(labels: Any, predict: Any, loss: Any) -> Callable[[], Any]:
    return lambda: loops.differences(Data(predict, X, labels, loss=loss))


def _auc_truth() -> np.ndarray:
    """1 - AUC of each of the n - 1 shifts, whose mean is over all pairs only for losses of rows."""
    from reliance import plans

    donors = plans.Shifts(N, N - 1, KEY).donors(range(N), range(N - 1))

    def area(scores: Any) -> float:
        wins = [
            1.0 if scores[a] > scores[b] else 0.5 if scores[a] == scores[b] else 0.0
            for a in range(N)
            for b in range(N)
            if LABELS[a] == 1 and LABELS[b] == 0
        ]
        return float(np.mean(wins))

    found = []
    for j in range(X.shape[1]):
        lost = []
        for k in range(N - 1):
            rows = X.copy()
            rows[:, j] = X[donors[:, k], j]
            lost.append(area(score(X)) - area(score(rows)))
        found.append(np.mean(lost))
    return np.array(found)


WORDS: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "log_loss": (lambda: _measure(probability, LABELS, loss="log_loss"), Number(_true(LABELS, probability, _log_loss))),
    "log_loss of bools": (
        lambda: _measure(probability, LABELS.astype(bool), loss="log_loss"),
        Number(_true(LABELS, probability, _log_loss)),
    ),
    "log_loss of uint8": (
        lambda: _measure(probability, LABELS.astype(np.uint8), loss="log_loss"),
        Number(_true(LABELS, probability, _log_loss)),
    ),
    "cross_entropy of large scores": (
        lambda: _measure(lambda x: 30.0 * score(x), LABELS, loss="cross_entropy"),
        Number(_true(LABELS, lambda x: 30.0 * score(x), _logistic)),
    ),
    "auc": (lambda: _measure(y=LABELS, loss="auc", draws=rl.Draws(N - 1, design="shifts")), Number(_auc_truth)),
    "zero_one of text": (
        lambda: _measure(lambda x: np.where(score(x) > 0, "b", "a"), np.where(LABELS == 1, "b", "a"), loss="zero_one"),
        Number(_true(LABELS, lambda x: (score(x) > 0).astype(int), lambda y, p: float(y != p))),
    ),
    "hinge of 0 and 1": (lambda: _measure(y=LABELS, loss="hinge"), Refused(("hinge", "y"))),
    "log_loss of scores": (lambda: _measure(y=LABELS, loss="log_loss"), Refused(("log_loss", "probabilities"))),
    "log_loss of three labels": (
        lambda: _measure(probability, np.arange(N) % 3, loss="log_loss"),
        Refused(("y", "label")),
    ),
    "log_loss of floats": (lambda: _measure(probability, Y, loss="log_loss"), Refused(("y", "log_loss"))),
    "log_loss of -1 and 1": (lambda: _measure(probability, 2 * LABELS - 1, loss="log_loss"), Refused(("y", "-1"))),
    "auc of one class": (lambda: _measure(y=np.ones(N, dtype=int), loss="auc"), Refused(("auc", "y"))),
    "auc of numbers": (lambda: _measure(y=Y, loss="auc"), Refused(("auc", "y"))),
    "r2 of a constant": (lambda: _measure(y=np.ones(N), loss="r2"), Refused(("r2", "y"))),
    "poisson of negative labels": (
        lambda: _measure(lambda x: np.exp(score(x)), Y - 5.0, loss="poisson_deviance"),
        Refused(("poisson_deviance", "y")),
    ),
    "poisson of negative rates": (
        lambda: _measure(y=LABELS, loss="poisson_deviance"),
        Refused(("poisson_deviance", "predictions")),
    ),
    "shift as a ratio": (
        lambda: _measure(y=None, loss="prediction_shift", compare="ratio"),
        Refused(("ratio", "difference")),
    ),
    "no labels": (lambda: _measure(y=None), Refused(("y is None", "prediction_shift"))),
    "ratio over 0": (lambda: _measure(y=score(X), compare="ratio"), Refused(("ratio", "difference"))),
    "ratio over a negative risk": (
        lambda: _measure(loss=lambda y, p: (y - p) ** 2 - 100.0, compare="ratio"),
        Refused(("ratio", "difference")),
    ),
    "huber of 0": (lambda: rl.losses.huber(0.0), Refused(("delta",))),
    "huber of nan": (lambda: rl.losses.huber(math.nan), Refused(("delta",))),
    "huber of text": (lambda: rl.losses.huber("1"), Refused(("delta",))),
    "pinball of 1": (lambda: rl.losses.pinball(1.0), Refused(("q",))),
    "pinball of nan": (lambda: rl.losses.pinball(math.nan), Refused(("q",))),
    "pinball of text": (lambda: rl.losses.pinball("median"), Refused(("q",))),
}


def _metric(**changes: Any) -> Any:
    return rl.Metric(**{"value": lambda y, p, w=None: np.max(np.abs(y - p), axis=0), "name": "largest", **changes})


METRICS: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "value None": (lambda: _measure(loss=_metric(value=None)), Refused(("Metric", "function"))),
    "value of a number": (lambda: _measure(loss=_metric(value=3)), Refused(("Metric", "function"))),
    "influence of a number": (lambda: _measure(loss=_metric(influence=3)), Refused(("Metric", "function"))),
    "name of a number": (lambda: _measure(loss=_metric(name=3)), Refused(("name",))),
    "output unknown": (lambda: _measure(loss=_metric(output="logits")), Refused(("output",))),
    "target unknown": (lambda: _measure(loss=_metric(target="labels")), Refused(("target",))),
    "value of many": (lambda: _measure(loss=_metric(value=lambda y, p: y - p)), Refused(("largest", "shape"))),
    "value NaN": (
        lambda: _measure(loss=_metric(value=lambda y, p: np.nan * np.mean(p, axis=0))),
        Refused(("largest",)),
    ),
    "weights it cannot take": (
        lambda: _measure(loss=rl.Metric(lambda y, p: np.mean(p), name="m"), weights=np.ones(N)),
        Refused(("weights", "m")),
    ),
}


def cases() -> Iterator[Case]:
    for function in CALLERS:
        yield from _own(function)
    for odd, (call, expected) in WORDS.items():
        yield Case("losses", odd, call, expected)
    for odd, (call, expected) in METRICS.items():
        yield Case("Metric", odd, call, expected)
