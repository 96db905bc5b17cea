"""What of a question about a class workers share out: features, and samples of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from reliance._core import arrays
from reliance._core.run import Run
from reliance.data.features import Feature
from reliance.engine import runners
from reliance.engine.sending import Advance, Carried, Desk
from reliance.engine.shapes import even
from reliance.rashomon.protocol import ClassData, ModelClass, Range

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# Into how many pieces features are cut: each piece prepares the class anew, once in a process.
_PIECES = 16


@dataclass(frozen=True, eq=False)
class Calls(Generic[Item, Answer]):
    """A job that is one function of each item. Answers hold models, which may be functions of a session."""

    function: Callable[[Item, Advance], Answer]
    each: tuple[Item, ...]
    model_class: ModelClass
    on_threads: bool
    length: Callable[[Item], int]

    def items(self) -> Iterator[Item]:
        return iter(self.each)

    def do(self, item: Item, desk: Desk, advance: Advance) -> Carried[Answer]:
        return Carried(self.function(item, advance))

    def size(self, item: Item) -> int:
        return self.length(item)

    def here(self) -> AbstractContextManager[None]:
        return nullcontext()

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sent(self) -> Mapping[str, object]:
        return {"model_class": self.model_class}


def answers(
    function: Callable[[Item, Advance], Answer],
    each: tuple[Item, ...],
    model_class: ModelClass,
    data: ClassData,
    run: Run,
    advance: Advance,
    length: Callable[[Item], int],
) -> list[Answer]:
    """The function of each item, by those who do the work."""
    job = Calls(function, each, model_class, _on_threads(data), length)
    with runners.opened(run) as runner:
        return [answer.value for _, answer in runner.each(job, advance)]


def _on_threads(data: ClassData) -> bool:
    """What JAX compiles belongs to one caller."""
    return arrays.is_mutable(arrays.namespace(data.X))


def pieces(features: tuple[Feature, ...], data: ClassData, run: Run) -> tuple[tuple[Feature, ...], ...]:
    """Features that are asked about together. Their ranges do not depend on each other, nor on how they are cut."""
    alone = run.workers in (None, 1) or (isinstance(run.workers, int) and not _on_threads(data))
    step = len(features) if alone else even(len(features), -(-len(features) // _PIECES))
    return tuple(features[start : start + step] for start in range(0, len(features), step))


@dataclass(frozen=True, eq=False)
class OfFeatures:
    """The ranges of some features over the good models of a class."""

    model_class: ModelClass
    data: ClassData
    bound: float
    compare: str
    conditional: bool

    def __call__(self, some: tuple[Feature, ...], advance: Advance) -> list[Range]:
        return self.model_class.ranges(self.data, self.bound, some, self.compare, self.conditional, advance)
