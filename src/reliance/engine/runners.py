"""Who does the items of a job: this thread, several threads, devices, any executor, or the workers of a dask cluster.

Answers come in the order of the items, whoever is done first. A little more than what workers have in hand is waiting,
so that nothing but the answers of as many items is held.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from reliance._core import devices, threads
from reliance._core.kinds import Device, Namespace
from reliance._core.run import Devices, Run, within_worker
from reliance._core.words import short
from reliance.engine import sending
from reliance.engine.problems import Problem
from reliance.engine.replicas import Replicas
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
        tick = _until(stopped)
        as_here = devices.settings_of_thread()

        def work(item: Item) -> Answer:
            if not hasattr(own, "desk"):
                own.desk = Desk()
            with within_worker(), threads.shared(self.count), as_here(), job.here():
                return job.do(item, own.desk, tick)

        def submit(item: Item) -> Future[Answer]:
            return self.pool.submit(contextvars.copy_context().run, work, item)

        # Models call BLAS and OpenMP, which would start a thread for each core in each of our threads.
        with threads.limited(max(1, threads.available() // self.count)):
            yield from _in_order(job, items, submit, _AHEAD * self.count, advance, stopped)


class _CopyError(Exception):
    """An item went wrong on a device that has a copy of the job: the item, and the device."""


class OnDevices:
    """Several devices, each with a copy of the job: an item goes to whichever is free."""

    def __init__(self, pool: ThreadPoolExecutor, found: Sequence[Device], xp: Namespace, home: Device) -> None:
        self.pool, self.xp, self.devices, self.count = pool, xp, found, len(found)
        first = found.index(home)  # which has the original
        self.replicas = [None if k == first else Replicas(xp, home, one) for k, one in enumerate(found)]

    def each(self, job: Job[Item, Answer], advance: Advance) -> Iterator[tuple[Item, Answer]]:
        items, several = _several(job)
        if not several:
            yield from Serial().each(job, advance)
            return
        stopped, as_here, count = threading.Event(), devices.settings_of_thread(), self.count
        free: SimpleQueue[tuple[Device, Job[Item, Answer], Desk]] = SimpleQueue()

        def work(item: Item) -> Answer:
            device, own, desk = free.get()
            try:
                with within_worker(), threads.shared(count), as_here(), devices.on_device(self.xp, device), own.here():
                    return own.do(item, desk, _until(stopped))
            except Exception as error:
                if own is job or isinstance(error, CancelledError):
                    raise
                raise _CopyError(item, device) from error
            finally:
                free.put((device, own, desk))

        def submit(item: Item) -> Future[Answer]:
            return self.pool.submit(contextvars.copy_context().run, work, item)

        with ExitStack() as stack:
            for device, replicas in zip(self.devices, self.replicas, strict=True):
                own = job if replicas is None else replicas.of(job)
                if replicas is not None:
                    stack.enter_context(own.away())
                free.put((device, own, Desk()))
            stack.enter_context(threads.limited(max(1, threads.available() // count)))
            try:
                yield from _in_order(job, items, submit, _AHEAD * count, advance, stopped)
            except _CopyError as failed:
                item, device = failed.args
                job.do(item, Desk(), _ignored)  # the error is the model's own if it makes it here, too
                reason = short(str(failed.__cause__).strip().partition("\n")[0], 90)
                raise TypeError(
                    f"the model works where X is, but a copy of it on {device} does not ({reason}): it may use "
                    "arrays that are no part of it; pass the module itself, or parameters by rl.models.jax"
                ) from failed.__cause__


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


def _ignored(size: int) -> None:
    """Nobody counts it."""


def _until(stopped: threading.Event) -> Advance:
    """Ends the work in hand once nobody waits for its answer."""

    def tick(size: int) -> None:
        if stopped.is_set():
            raise CancelledError

    return tick


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
def opened(run: Run, problem: Problem | None = None) -> Iterator[Runner]:
    """The runner that a call asks for; what it started or wrote for the call is gone afterwards.

    ``problem``: whose rows are on one of the devices, where there may be several.
    """
    workers = threads.cores() if run.workers == -1 else run.workers
    with ExitStack() as stack:
        if run.devices is not None:
            assert problem is not None
            yield OnDevices(*_devices(stack, run.devices, problem))
        elif workers is None or workers == 1:
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


def _devices(
    stack: ExitStack, named: Devices, problem: Problem
) -> tuple[ThreadPoolExecutor, Sequence[Device], Namespace, Device]:
    if problem.store.streams:
        raise ValueError(
            "run has devices=, but X is read in blocks, by one reader: pass X in memory, or one device, "
            "rl.Run(device='cuda:0')"
        )
    assert isinstance(named, tuple)
    found = devices.beside(named, problem.xp, problem.device)
    return stack.enter_context(ThreadPoolExecutor(len(found))), found, problem.xp, problem.device
