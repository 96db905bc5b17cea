"""Odd models: what they return, what they do with their input, what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import reliance as rl
from hostile.functions import FUNCTIONS, Function, X, Y, score
from hostile.record import Case, Number, Refused, Warned

# The functions that call a model of the user's, on all routes.
CALLERS = [
    FUNCTIONS[name]
    for name in (
        "ablation_importance",
        "permutation_importance",
        "model_reliance",
        "conditional_model_reliance",
        "relative_importance",
        "interaction_importance",
        "compare_splits",
        "compare_models",
        "feature_impact",
        "sobol_total",
        "sobol_first",
        "local_importance",
    )
]


def reused_buffer() -> Callable[[Any], Any]:
    """Answers are views of one buffer, which the next call writes over: numba, IO binding, CUDA graphs."""
    buffer = np.zeros(1_000_000)

    def model(x: Any) -> Any:
        view = buffer[: len(x)]
        view[:] = score(x)
        return view

    return model


# Models whose numbers are right: what they return is score, in another form.
SAME: dict[str, Callable[[], Any]] = {
    "reused buffer": reused_buffer,
    "column": lambda: lambda x: score(x)[:, None],
    "mapping of one": lambda: lambda x: {"out": score(x)},
    "tuple of one": lambda: lambda x: (score(x),),
    "readonly": lambda: lambda x: np.broadcast_to(score(x), (1, len(x)))[0],
    "fortran": lambda: lambda x: np.asfortranarray(np.stack([score(x)] * 2, axis=1))[:, 0],
    "works on a copy": lambda: _on_a_copy,
    "partial": lambda: functools.partial(_scaled, 1.0),
    "method": lambda: _Holder().answer,
    "callable object": lambda: _Holder(),
    "estimator": lambda: _Estimator(),
    "few rows at a time": lambda: lambda x: np.concatenate([score(x[i : i + 1]) for i in range(len(x))]),
}


def _on_a_copy(x: Any) -> Any:
    y = np.array(x)
    answer = score(y)
    y[:] = 0.0
    return answer


def _scaled(factor: float, x: Any) -> Any:
    return factor * score(x)


class _Holder:
    def answer(self, x: Any) -> Any:
        return score(x)

    __call__ = answer


class _Estimator:
    def predict(self, x: Any) -> Any:
        return score(x)


# Models that are refused: what they return is no prediction.
BROKEN: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "none": (lambda: lambda x: None, ("model", "returned None")),
    "list": (lambda: lambda x: score(x).tolist(), ("model", "list")),
    "scalar": (lambda: lambda x: 1.0, ("model", "float")),
    "mean": (lambda: lambda x: score(x).mean(), ("model",)),
    "short": (lambda: lambda x: score(x)[:-1], ("model", "shape")),
    "long": (lambda: lambda x: np.append(score(x), 0.0), ("model", "shape")),
    "transposed": (lambda: lambda x: score(x)[None, :], ("model", "shape")),
    "text": (lambda: lambda x: np.array(["a"] * len(x)), ("predict", "number")),
    "object": (lambda: lambda x: score(x).astype(object), ("predict", "object")),
    "complex": (lambda: lambda x: score(x) + 0j, ("predict", "complex")),
    "dates": (lambda: lambda x: np.zeros(len(x), dtype="datetime64[D]"), ("predict", "datetime64")),
    "nan": (lambda: lambda x: score(x) * np.nan, ("NaN", "predictions")),
    "inf": (lambda: lambda x: score(x) + np.inf, ("infinite", "predictions")),
    "masked": (lambda: lambda x: np.ma.masked_less(score(x), 0.0), ("model", "masked")),
    "torch tensor": (lambda: lambda x: torch.from_numpy(np.asarray(score(x))), ("model", "torch")),
    "tuple": (lambda: lambda x: (score(x), score(x)), ("model", "tuple")),
    "dict": (lambda: lambda x: {"out": score(x), "other": score(x)}, ("model", "dict")),
    "generator": (lambda: lambda x: (v for v in score(x)), ("model", "generator")),
    "number": (lambda: 3, ("model=3",)),
    "nothing": (lambda: None, ("model=None",)),
    "words": (lambda: "forest", ("model",)),
    "a class": (lambda: _Estimator, ("model", "class")),
    "long words": (lambda: "x" * 5000, ("model",)),
}
# Models that change their input, in all rows or only where a value was replaced.
KNOWN = {tuple(row) for row in X.tolist()}


def _writes(x: Any) -> Any:
    answer = score(x)
    x[:, 1] += 1.0
    return answer


def _writes_to_new_rows(x: Any) -> Any:
    answer = score(x)
    for row in x:
        if tuple(row.tolist()) not in KNOWN:
            row[2] = 9.0
    return answer


def _doubles(x: Any) -> Any:
    x *= 2.0
    return score(x)


CHANGING = {"writes": _writes, "writes to new rows": _writes_to_new_rows, "doubles": _doubles}


def _number_case(function: Function, odd: str, make: Callable[[], Any]) -> Case:
    return Case(
        function.name,
        f"model {odd}",
        lambda: function.run(X, Y, model=make()),
        Number(lambda: function.truth(X, Y)),
    )


def _of(function: Function) -> Iterator[Case]:
    for odd, make in SAME.items():
        yield _number_case(function, odd, make)
    for odd, (make, words) in BROKEN.items():
        yield Case(function.name, f"model {odd}", lambda make=make: function.run(X, Y, model=make()), Refused(words))
    for odd, model in CHANGING.items():
        yield Case(
            function.name,
            f"model {odd}",
            lambda model=model: function.run(X, Y, model=model),
            Refused(("model", "input")),
        )


def _small_blocks() -> Iterator[Case]:
    """Answers that come in parts, joined."""
    for function in CALLERS:
        yield Case(
            function.name,
            "model reused buffer in parts",
            lambda function=function: function.run(X, Y, model=reused_buffer(), run=rl.Run(block=5)),
            Number(lambda function=function: function.truth(X, Y)),
        )


# ---------------------------------------------------------------------------------------------------------------------
# Random and batch-dependent models: a number cannot be right, a word must be said


def _random() -> Callable[[Any], Any]:
    generator = np.random.default_rng(0)
    return lambda x: score(x) + generator.normal(size=len(x))


def _batch(x: Any) -> Any:
    return score(x) - score(x).mean()


def _finite(function: Function, model: Any) -> Any:
    """Nothing is known of the number but that it is one."""
    return np.isfinite(function.run(X, Y, model=model))


def _restless() -> Iterator[Case]:
    for name in ("permutation_importance", "ablation_importance", "model_reliance"):
        function = FUNCTIONS[name]
        yield Case(
            name,
            "model random",
            lambda function=function: _finite(function, _random()),
            Warned(("model",), lambda: np.ones(3)),
        )
        yield Case(
            name,
            "model of the batch",
            lambda function=function: _finite(function, _batch),
            Warned(("model",), lambda: np.ones(3)),
        )


def cases() -> Iterator[Case]:
    for function in CALLERS:
        yield from _of(function)
    yield from _small_blocks()
    yield from _restless()
