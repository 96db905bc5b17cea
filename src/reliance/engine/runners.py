"""Who does the items of a job: this thread, several threads, any executor, or the workers of a dask cluster.

Answers come in the order of the items, whoever is done first. A little more than what workers have in hand is waiting,
so that nothing but the answers of as many items is held.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

from reliance._core import threads
from reliance._core.run import Run, within_worker
from reliance.engine import sending
from reliance.engine.sending import Advance, Desk, Job

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)

# How many items are waiting or done ahead of the one whose answer is next, for each worker.
_AHEAD = 4
_SOME_WORKERS = 16  # of an executor that does not say how many it has


class Waiting(Protocol[Answer_co]):
    """A future: of an executor, or of dask."""

    def result(self) -> Answer_co: ...
    def cancel(self) -> object: ...


class Runner(Protocol):
    """Does the items of a job."""

    @property
    def count(self) -> int:
        """How many items are done at the same time."""
        ...

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        """Every item with its answer, in the order of the items; ``advance`` hears of the size of what is done."""
        ...


class Serial:
    """One item after the other, in this thread."""

    count = 1

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        desk = Desk()
        for item in job.items():
            yield item, job.do(item, desk, advance)


class Threads:
    """Several threads of this process: nothing is copied. Libraries such as NumPy let go of the interpreter."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self.pool, self.count = pool, count

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        items, several = _several(job)
        if not several or not job.on_threads:
            yield from Serial().each(job, advance)
            return
        stopped, own = threading.Event(), threading.local()

        def tick(size: int) -> None:
            if stopped.is_set():  # nobody waits for the answer
                raise CancelledError

        def work(item: Item) -> Answer:
            if not hasattr(own, "desk"):
                own.desk = Desk()
            with within_worker(), threads.shared(self.count), job.here():
                return job.do(item, own.desk, tick)

        def submit(item: Item) -> Future[Answer]:
            return self.pool.submit(contextvars.copy_context().run, work, item)

        # Models call BLAS and OpenMP, which would start a thread for each core in each of our threads.
        with threads.limited(max(1, threads.available() // self.count)):
            yield from _in_order(job, items, submit, _AHEAD * self.count, advance, stopped)


class Elsewhere:
    """Other processes, here or on other machines: what all items need is sent once, not with every item."""

    def __init__(self, submit: Callable[..., Waiting[Any]], sender: sending.Sender, count: int) -> None:
        self.submit, self.sender, self.count = submit, sender, count

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        items, several = _several(job)
        if not several:
            yield from Serial().each(job, advance)
            return
        parcel = self.sender.send(job)

        def submit(item: Item) -> Waiting[Answer]:
            return self.submit(sending.perform, *parcel, self.count, item)

        try:
            yield from _in_order(job, items, submit, _AHEAD * self.count, advance)
        except (BrokenExecutor, CancelledError) as error:
            raise sending.lost(error) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "distributed":
                raise sending.lost(error) from error
            raise


def _several(job: Job[Item, Answer]) -> tuple[Iterator[Item], bool]:
    """The items, and whether there is more than one."""
    items = job.items()
    first = list(itertools.islice(items, 2))
    return itertools.chain(first, items), len(first) > 1


def _in_order(
    job: Job[Item, Answer],
    items: Iterable[Item],
    submit: Callable[[Item], Waiting[Answer]],
    ahead: int,
    advance: Advance,
    stopped: threading.Event | None = None,
) -> Iterator[tuple[Item, Answer]]:
    """``stopped`` tells those at work that nobody wants their answers; they are waited for, as they use the model."""
    waiting: deque[tuple[Item, Waiting[Answer]]] = deque()

    def first() -> tuple[Item, Answer]:
        item, future = waiting[0]
        answer = future.result()
        waiting.popleft()
        advance(job.size(item))
        return item, answer

    try:
        for item in items:
            waiting.append((item, submit(item)))
            if len(waiting) >= ahead:
                yield first()
        while waiting:
            yield first()
    finally:
        for _, future in waiting:
            future.cancel()
        if stopped is not None:
            stopped.set()
            wait([future for _, future in waiting if isinstance(future, Future)])


# ---------------------------------------------------------------------------------------------------------------------
# Which runner


@contextmanager
def opened(run: Run) -> Iterator[Runner]:
    """The runner that a call asks for; what it started or wrote for the call is gone afterwards."""
    workers = threads.cores() if run.workers == -1 else run.workers
    with ExitStack() as stack:
        if workers is None or workers == 1:
            yield Serial()
        elif isinstance(workers, int):
            yield Threads(stack.enter_context(ThreadPoolExecutor(workers)), workers)
        elif isinstance(workers, ThreadPoolExecutor):
            yield Threads(workers, workers._max_workers)
        elif sending.is_dask(workers):
            # A lost worker's items are done again by others; those that raise are not tried again.
            submit = functools.partial(workers.submit, pure=False)
            yield Elsewhere(submit, sending.Scattered(workers), sending.dask_workers(workers))
        else:
            files = stack.enter_context(sending.files())
            yield Elsewhere(workers.submit, files, getattr(workers, "_max_workers", _SOME_WORKERS))
