"""Long work shows how far it is: not at all, as a bar, or to a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from reliance._core.words import shown

if TYPE_CHECKING:
    from tqdm import tqdm

Progress: TypeAlias = bool | Callable[[int, int], None]
Report: TypeAlias = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Nobody asked."""


class Reporter:
    """Counts what is done: ``report(done, total)`` after each step, ``announce`` when more is expected."""

    def __init__(self, total: int = 0, report: Report = _silent, announce: Report = _silent) -> None:
        self.done, self.total, self.report, self.announce = 0, total, report, announce

    def __call__(self, steps: int) -> None:
        self.done += steps
        self.report(self.done, self.total)

    def expect(self, steps: int) -> None:
        """More than was announced so far."""
        self.total += steps
        self.announce(self.done, self.total)


def check_progress(progress: object) -> None:
    """What the user passes: a yes, a no, or a function."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress={shown(progress)}: pass True, False or a function (done, total) -> None")


@contextmanager
def reporting(progress: Progress, total: int = 0, unit: str = "rows") -> Iterator[Reporter]:
    """A reporter, and the bar that it moves if there is one."""
    check_progress(progress)
    with ExitStack() as stack:
        if callable(progress):
            reporter = Reporter(0, progress)
        elif progress:
            bar = _Bar(stack, unit)
            reporter = Reporter(0, bar, bar)
        else:
            reporter = Reporter()
        if total:
            reporter.expect(total)
        yield reporter


class _Bar:
    """A bar of tqdm, shown once it is known how much there is to do."""

    def __init__(self, stack: ExitStack, unit: str) -> None:
        self.stack, self.unit = stack, unit
        self.bar: tqdm | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None:
            from tqdm.auto import tqdm

            self.bar = self.stack.enter_context(tqdm(total=total, unit=self.unit, unit_scale=True))
        self.bar.total = total
        self.bar.update(done - self.bar.n)
