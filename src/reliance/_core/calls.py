"""The outermost public function that is at work: where its units are kept, which part is done, or a count of them.

A call may evaluate several times, and public functions call each other. What is kept in a folder is numbered in the
order of the evaluations, which is the same whenever the same call is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reliance._core.checks import warn
from reliance._core.run import Run, resolved
from reliance._core.words import shown


@dataclass
class Call:
    """What is known of a call while it is at work.

    Attributes
    ----------
    folder : Path or None
        Where finished units are kept.
    part : (int, int) or None
        Which part of the units is done, (3, 16) for the third of sixteen.
    dry : bool
        Units are counted, not done.
    evaluations, units, rows, ready, memory : int
        So far: evaluations that were opened, units, rows of theirs that the model is called with, units that are done,
        the most bytes that were planned for.
    seconds : float
        That the model takes for these rows, at the speed of the base pass.
    passes, read : float
        How often all rows are read for these units, if they are read in blocks, and the bytes of it.
    """

    folder: Path | None = None
    part: tuple[int, int] | None = None
    dry: bool = False
    evaluations: int = 0
    units: int = 0
    rows: int = 0
    ready: int = 0
    memory: int = 0
    seconds: float = 0.0
    passes: float = 0.0
    read: float = 0.0

    def status(self) -> str:
        """What a call that does a part of the units answers."""
        assert self.part is not None
        there = f"{self.ready} of {self.units} units are there"
        return f"part {self.part[0]} of {self.part[1]} is done: {there}"


C = TypeVar("C", bound=Call | None)

_AT_WORK: ContextVar[Call | None] = ContextVar("reliance_call", default=None)


def at_work() -> Call | None:
    """The call that is at work in this thread, if it keeps or counts units."""
    return _AT_WORK.get()


@contextmanager
def keeping(run: object) -> Iterator[Call | None]:
    """The call of a public function whose settings name a folder; None for others, and inside of another call."""
    settings = resolved(run if isinstance(run, Run) else None)
    if _AT_WORK.get() is not None or (settings.checkpoint is None and settings.part is None):
        yield None
        return
    if settings.checkpoint is None:
        raise ValueError(
            f"part={settings.part} is a part of units that are kept in a folder: pass checkpoint='folder', too, which "
            "all parts can see"
        )
    with _working(Call(Path(settings.checkpoint).absolute(), settings.part)) as call:
        yield call
    if not call.evaluations:
        folder = shown(str(settings.checkpoint))
        warn(f"checkpoint={folder}: the work of this method is not cut into units, so nothing is kept")


@contextmanager
def counting() -> Iterator[Call]:
    """Inside, the units of a call are counted and not done."""
    with _working(Call(dry=True)) as call:
        yield call


@contextmanager
def aside() -> Iterator[None]:
    """Inside, nothing is kept: what is quick and not cut into units is done again by a call that goes on."""
    with _working(None):
        yield


@contextmanager
def _working(call: C) -> Iterator[C]:
    token = _AT_WORK.set(call)
    try:
        yield call
    finally:
        _AT_WORK.reset(token)
