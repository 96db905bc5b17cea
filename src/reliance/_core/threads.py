"""How many threads a piece of work may use: the one place that decides it, so that nested pools do not multiply."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar

from reliance._core import arrays

_sharing: ContextVar[int] = ContextVar("sharing", default=1)


def cores() -> int:
    """How many cores this process may use; containers and batch systems often give fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available() -> int:
    """How many threads to start here: the cores, divided by the pools that this work already is a part of."""
    return max(1, cores() // _sharing.get())


@contextmanager
def shared(workers: int) -> Iterator[None]:
    """Inside, the work is one of so many that run at the same time."""
    token = _sharing.set(_sharing.get() * max(1, workers))
    try:
        yield
    finally:
        _sharing.reset(token)


@contextmanager
def limited(count: int) -> Iterator[None]:
    """BLAS and OpenMP start at most so many threads inside, if threadpoolctl is there to tell them; so does torch."""
    with ExitStack() as stack:
        stack.enter_context(arrays.torch_threads(count))
        with suppress(ImportError):
            from threadpoolctl import threadpool_limits

            stack.enter_context(threadpool_limits(limits=count))
        yield
