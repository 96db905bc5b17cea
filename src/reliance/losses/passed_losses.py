"""Losses of torch and optax as they are: called as (prediction, y), without reduction, and averaged within each row."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from reliance._core.arrays import backend, describe, is_floating, namespace
from reliance._core.kinds import Array
from reliance._core.words import shown

_TORCH, _OPTAX = ("torch.nn.functional", "torch.nn.modules.loss", "torch._C._nn"), ("optax",)
_BACKENDS = {"torch": "torch", "optax": "jax"}


@dataclass(frozen=True, eq=False)
class Passed:
    """A loss ``(prediction, y) -> (m, ...)`` of another library as one of ours, ``(y, prediction) -> (m,)``."""

    function: Callable[[Array, Array], Array]
    name: str
    ignore_index: int | None
    library: str

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(y, prediction)
        if backend(xp) != _BACKENDS[self.library]:
            raise TypeError(
                f"loss {self.name[:60]} is one of {self.library}, and the predictions are {describe(prediction)}: pass "
                f"X as arrays of {_BACKENDS[self.library]}, or one of our losses by its name"
            )
        labels = self._labels(y, prediction)
        losses = self.function(prediction, labels)
        if losses.ndim < 1 or losses.shape[0] != prediction.shape[0]:
            raise ValueError(
                f"loss {self.name[:60]} returned shape {tuple(losses.shape)} for {prediction.shape[0]} rows: pass "
                f"lambda y, p: ..., a function with one loss per row"
            )
        if losses.ndim == 1:
            return losses
        across = tuple(range(1, losses.ndim))
        if self.ignore_index is None or labels.ndim != losses.ndim:
            return xp.mean(losses, axis=across)
        counts = xp.astype(labels != self.ignore_index, losses.dtype)
        return xp.sum(losses, axis=across) / xp.sum(counts, axis=across)

    def _labels(self, y: Array, prediction: Array) -> Array:
        """Numbers like the predictions where each has one, and positions of classes otherwise."""
        xp = namespace(y, prediction)
        if tuple(y.shape) == tuple(prediction.shape):
            return xp.astype(y, prediction.dtype, copy=False)
        return y if is_floating(xp, y.dtype) else xp.astype(y, xp.int64 if self.library == "torch" else y.dtype)


def of_others(loss: Any) -> Passed | None:
    """A loss of torch or optax as one of ours; None if it is of no such library."""
    function: Any
    function, given = (loss.func, dict(loss.keywords)) if isinstance(loss, partial) else (loss, {})
    is_module = not hasattr(function, "__name__")
    home = str(type(function).__module__ if is_module else function.__module__)
    name = type(function).__name__ if is_module else str(function.__name__)
    if home.startswith(_OPTAX):
        _check_two(function, name, set(given))
        return Passed(partial(function, **given), name, None, "optax")
    if not home.startswith(_TORCH):
        return None
    _check_two(function.forward if is_module else function, name, set(given))
    settings = vars(function) if is_module else given
    weight = getattr(function, "weight", None) if is_module else given.get("weight")
    if weight is not None:
        raise ValueError(
            f"loss={name[:60]} has weight=, by which its mean is divided, too: leave it out, and pass weights= of the "
            "rows to the method"
        )
    classes = "cross_entropy" in name or "CrossEntropy" in name or "NLL" in name or "nll" in name
    ignored = int(settings.get("ignore_index", -100)) if classes else None
    if not is_module:
        return Passed(partial(function, **{**given, "reduction": "none"}), name, ignored, "torch")
    own = copy.copy(function)
    own.reduction = "none"
    return Passed(own, name, ignored, "torch")


def _check_two(function: Callable[..., object], name: str, given: set[str]) -> None:
    """It takes a prediction and labels, and needs nothing else."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that does not tell
        return
    places = [one for one in parameters if one.kind <= one.POSITIONAL_OR_KEYWORD]
    needed = [one.name for one in places if one.default is one.empty]
    if len(places) < 2 or any(name not in given for name in needed[2:]):
        raise TypeError(
            f"loss={name[:60]} is called with {shown(', '.join(needed))}, not with a prediction and labels: pass a "
            "function, lambda y, p: ..., with one loss per row"
        )
