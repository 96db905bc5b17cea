"""How the work is done, in one value: ``run=rl.Run(...)`` for a call, ``with rl.Run(...):`` for a block of code."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Protocol, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Device
from reliance._core.words import shown

Memory: TypeAlias = int | str | None
Block: TypeAlias = int | tuple[int, int] | str | None
Workers: TypeAlias = int | Executor | None
Setting = TypeVar("Setting")


class Mesh(Protocol):
    """A mesh of JAX's."""

    @property
    def devices(self) -> NDArray[np.object_]: ...


Devices: TypeAlias = Sequence[Device] | Mesh | None

_DEFAULT_MEMORY = "1GB"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_DURATIONS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "days": 86400.0}


@dataclass(frozen=True)
class Run:
    """How the work is done. What is None comes from the ``with rl.Run(...):`` around a call, then from the default.

    Values do not depend on it, beyond rounding.

    Parameters
    ----------
    memory : int or str, optional
        Bytes that may be allocated, such as ``"512MB"`` (default 1 GB), beyond X, y and what the model itself needs;
        by each worker, if there are several.
    block : int, (rows, draws) or "tune", optional
        Rows of a block, its shape, or measure the fastest size.
    workers : int, concurrent.futures.Executor or dask.distributed.Client, optional
        How many parts of the work, or refits, are done at once: on so many threads, -1 for one per core. Or where they
        are done: a ProcessPoolExecutor, for instance, or a dask client, which are not shut down. With NumPy, results
        are the same to the last bit for any number of workers.
    checkpoint : str or path, optional
        A folder that finished units of work are kept in. The same call goes on where it was, after whatever happened;
        another call is refused. Pass ``rng=``, for without it no two calls are the same.
    part : (int, int), optional
        ``(3, 16)`` does the third of sixteen parts of the units, keeps them in ``checkpoint`` and returns a line about
        what is there, no result; the call without ``part`` gathers. For array jobs on a shared folder.
    deadline : float or str, optional
        Seconds, or text such as ``"20min"``. Draws that do not fit are not made, and ``result.stopped`` is "deadline";
        the intervals are those of the draws that were made. All pairs are made shift by shift. Draws by ranks are those
        of `Until`. The first 8 draws are always made.
    on_interrupt : {"raise", "partial"}, optional
        "partial": Ctrl-C ends the call as a deadline does, with ``result.stopped`` "interrupted".
    device : str, torch.device or jax.Device, optional
        Where the model computes, while X stays on the host and goes there block by block: ``"cuda:0"``.
    devices : list of devices, or jax.sharding.Mesh, optional
        Each has a copy of the rows and of the model, and the next part of the work goes to whichever is free:
        ``["cuda:0", "cuda:1"]``, or ``jax.devices()``. X is on one of them.

    Notes
    -----
    ``with`` holds for the thread or task that it is in, and for the work that is started there. Of several around a
    call the innermost that says something about a setting counts. Workers have no workers of their own.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> with rl.Run(memory="8MB"):
    ...     result = rl.model_reliance(lambda X: X[:, 0], X, X[:, 1], run=rl.Run(block=(10, 5)))
    >>> result.block
    (10, 5)
    """

    memory: Memory = None
    block: Block = None
    workers: Workers = None
    device: Device = None
    devices: Devices = None
    checkpoint: str | os.PathLike[str] | None = None
    part: tuple[int, int] | None = None
    deadline: float | str | None = None
    on_interrupt: str | None = None

    def __post_init__(self) -> None:
        if self.memory is not None:
            parse_memory(self.memory)
        object.__setattr__(self, "block", _checked_block(self.block))
        object.__setattr__(self, "workers", _checked_workers(self.workers))
        object.__setattr__(self, "devices", _checked_devices(self.devices))
        for name in ("workers", "device"):
            if self.devices is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"run has devices= and {name}={shown(getattr(self, name))}, which both say where the work is done: "
                    "leave one of them out"
                )
        object.__setattr__(self, "part", _checked_part(self.part))
        if self.deadline is not None:
            parse_seconds(self.deadline)
        if self.on_interrupt not in (None, "raise", "partial"):
            raise ValueError(f"on_interrupt={shown(self.on_interrupt)} is unknown: choose 'raise' or 'partial'")
        folder = self.checkpoint
        if folder is not None and (not isinstance(folder, str | os.PathLike) or not str(folder)):
            raise TypeError(f"checkpoint={shown(folder)}: pass the path of a folder, or None")

    @property
    def bytes(self) -> int:
        """The memory as a number."""
        return parse_memory(_DEFAULT_MEMORY if self.memory is None else self.memory)

    @property
    def seconds(self) -> float | None:
        """The deadline as a number."""
        return None if self.deadline is None else parse_seconds(self.deadline)

    @property
    def ends_early(self) -> bool:
        """Whether a call may end with what is there."""
        return self.deadline is not None or self.on_interrupt == "partial"

    def __enter__(self) -> Run:
        _AROUND.set((*_AROUND.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        # By identity, the last one: generators may leave their `with` in another order than they entered.
        around = _AROUND.get()
        place = max((k for k, one in enumerate(around) if one is self), default=None)
        if place is not None:
            _AROUND.set(around[:place] + around[place + 1 :])


# A tuple that is never changed: threads and tasks see what is set in their own context alone.
_AROUND: ContextVar[tuple[Run, ...]] = ContextVar("reliance_runs", default=())


@contextmanager
def within_worker(run: Run | None = None) -> Iterator[None]:
    """Memory and blocks as they are, and nothing else: a worker of a pool starts no pool of its own."""
    known = resolved(run)
    with only(Run(known.memory, known.block)):
        yield


@contextmanager
def only(run: Run) -> Iterator[None]:
    """These settings and no others around them: a forked process, for instance, inherits those of its parent."""
    token = _AROUND.set((run,))
    try:
        yield
    finally:
        _AROUND.reset(token)


def resolved(run: Run | None = None) -> Run:
    """The settings of a call, each from its own Run or the innermost ``with`` that has it; None where nobody does."""
    if run is not None and not isinstance(run, Run):
        raise TypeError(f"run={shown(run)}: pass how the work is done as rl.Run(memory='2GB'), or None")
    runs = (*_AROUND.get(), *(() if run is None else (run,)))
    return Run(**{field.name: _last([getattr(one, field.name) for one in runs]) for field in fields(Run)})


def _last(said: list[Setting | None]) -> Setting | None:
    return next((value for value in reversed(said) if value is not None), None)


# ---------------------------------------------------------------------------------------------------------------------
# What the user passes


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number or text such as "512MB" or "2GiB"."""
    if isinstance(memory, int | np.integer) and not isinstance(memory, bool):
        number = int(memory)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(
                f"memory={shown(memory)} is not an amount: pass bytes as an integer or text such as '512MB'"
            )
        number = int(Decimal(match[1]) * _UNITS[match[2].lower()])
    if number < 1:
        raise ValueError(f"memory={shown(memory)} is too small: pass a positive number of bytes")
    if number >= 2**63:
        raise ValueError(f"memory={shown(memory)} is more than any machine has: pass what may be used, such as '2GB'")
    return number


def parse_seconds(deadline: float | str) -> float:
    """Seconds, from a number or text such as "20min" or "1.5 h"."""
    if isinstance(deadline, int | float | np.number) and not isinstance(deadline, bool):
        seconds = float(deadline)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", deadline) if isinstance(deadline, str) else None
        if match is None or match[2] not in _DURATIONS:
            raise ValueError(f"deadline={shown(deadline)} is not a time: pass seconds, or text such as '20min' or '2h'")
        seconds = float(match[1]) * _DURATIONS[match[2]]
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"deadline={shown(deadline)}: pass a positive number of seconds, or text such as '20min'")
    return seconds


def _checked_block(block: Block) -> Block:
    if block is None or (isinstance(block, str) and block == "tune"):
        return block
    sizes: tuple[int | str, ...] = block if isinstance(block, tuple) else (block,)
    whole = all(isinstance(s, int | np.integer) and not isinstance(s, bool) and s > 0 for s in sizes)
    if not whole or not 1 <= len(sizes) <= 2:
        raise ValueError(
            f"block={shown(block)} is not a block size: pass a number of rows, (rows, draws), 'tune' or None "
            "(the default)"
        )
    return (int(sizes[0]), int(sizes[1])) if len(sizes) == 2 else int(sizes[0])


def _checked_part(part: object) -> tuple[int, int] | None:
    if part is None:
        return None
    numbers = list(part) if isinstance(part, tuple | list) else []
    if len(numbers) != 2 or not all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in numbers):
        raise TypeError(f"part={shown(part)}: pass which part of how many, such as (3, 16)")
    if not 1 <= numbers[0] <= numbers[1]:
        raise ValueError(f"part={shown(part)}: the first of 16 parts is (1, 16), the last (16, 16)")
    return int(numbers[0]), int(numbers[1])


def _checked_devices(devices: object) -> tuple[Device, ...] | None:
    if devices is None:
        return None
    grid = getattr(devices, "devices", None)  # of a mesh
    found = list(grid.flat) if isinstance(grid, np.ndarray) else devices
    if not isinstance(found, list | tuple) or not found:
        raise TypeError(
            f"devices={shown(devices)}: pass a list such as ['cuda:0', 'cuda:1'] or jax.devices(), or a mesh of JAX"
        )
    return tuple(found)


def _submits(workers: object) -> TypeGuard[Executor]:
    return not isinstance(workers, type) and callable(getattr(workers, "submit", None))


def _checked_workers(workers: object) -> Workers:
    if workers is None or _submits(workers):
        return workers
    if isinstance(workers, bool | np.bool_) or not isinstance(workers, int | np.integer):
        raise TypeError(
            f"workers={shown(workers)}: pass a number of threads, -1 for one per core, a concurrent.futures.Executor "
            "or a dask.distributed.Client"
        )
    if workers < 1 and workers != -1:
        raise ValueError(f"workers={workers} is not a number of threads: pass 1 or more, or -1 for one per core")
    return int(workers)
