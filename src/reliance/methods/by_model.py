"""Several models by name, asked the same question: the same rows, the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeGuard, TypeVar

from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import shown
from reliance.data.passed import ModelLike
from reliance.results.base import Result
from reliance.results.mapping import Results

R = TypeVar("R", bound=Result)


def is_several(model: object) -> TypeGuard[Mapping[str, ModelLike]]:
    """Whether these are models by name, and not one model."""
    return isinstance(model, Mapping)


def checked(models: object, name: str, fewest: int = 1) -> dict[str, ModelLike]:
    """Models by their names, at least so many."""
    if not is_several(models):
        raise TypeError(f"{name}={shown(models)} is no mapping: pass models by name, {{'a': first, 'b': second}}")
    for key in models:
        if not isinstance(key, str):
            raise TypeError(f"{name} holds the name {shown(key)}: names of models are text, {{'a': first}}")
    if len(models) < fewest:
        raise ValueError(f"{name} holds {len(models)} models: pass at least {fewest}, {{'a': first, 'b': second}}")
    return dict(models)


def of_each(models: Mapping[str, ModelLike], rng: RandomState, asked: Callable[[ModelLike, int], R]) -> Results[R]:
    """The result of each model; ``asked`` is given a model and the key of the random numbers, the same for all."""
    key, found = resolve_key(rng), {}
    for name, model in checked(models, "model").items():
        with about(name):
            found[name] = asked(model, key)
    return Results(found, by="model")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Errors say which model they are about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This is about the model {shown(name)}.")
        raise
