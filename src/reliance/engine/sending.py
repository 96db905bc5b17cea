"""Jobs that other processes do: what all of their items need is sent once and kept there, each large array once a call.

Large arrays of NumPy go to files that workers of the same machine map into their memory, or to the workers of a dask
cluster; everything else is one pickle that names them.
"""

from __future__ import annotations

import importlib
import io
import itertools
import pickle
import tempfile
import threading
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar

import numpy as np

from reliance._core import threads
from reliance._core.kinds import HostArray
from reliance._core.run import within_worker
from reliance._core.words import short
from reliance.models.calling import name_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Item = TypeVar("Item")
Answer = TypeVar("Answer", covariant=True)
Kept = TypeVar("Kept")
Advance: TypeAlias = Callable[[int], None]
# A job's key, its pickle or where that is, and its large arrays or where they are.
Parcel: TypeAlias = tuple[str, object, list[object]]
# The same as a worker finds them.
Pickled: TypeAlias = bytes | Path
Large: TypeAlias = list[HostArray | Path]

# Arrays of at least so many bytes are sent by themselves.
_LARGE = 2**20


class Desk:
    """What a worker keeps from one item to the next: a buffer, say."""

    def __init__(self) -> None:
        self.key: object = None
        self.value: Any = None

    def kept(self, key: object, make: Callable[[], Kept]) -> Kept:
        """What was made for the same key last time, or made now."""
        if self.key != key:
            self.key = self.value = None  # makes room first
            self.value = make()
            self.key = key
        kept: Kept = self.value
        return kept


class Job(Protocol[Item, Answer]):
    """Items that can be done by anybody, in any order."""

    def items(self) -> Iterator[Item]: ...
    def do(self, item: Item, desk: Desk, advance: Advance) -> Answer: ...
    def size(self, item: Item) -> int:
        """In the units of the progress."""
        ...

    @property
    def on_threads(self) -> bool:
        """Whether several threads can do items at the same time."""
        ...

    def here(self) -> AbstractContextManager[None]:
        """What surrounds the work of another thread."""
        ...

    def away(self) -> AbstractContextManager[None]:
        """What surrounds the work of another process."""
        ...

    def sent(self) -> Mapping[str, object]:
        """What of the user's has to reach other processes, with the words that name it."""
        ...


@dataclass(frozen=True)
class Carried(Generic[Kept]):
    """An answer that may hold functions: it travels between processes as jobs do."""

    value: Kept

    def __reduce__(self) -> tuple[Callable[[bytes], Carried[object]], tuple[bytes]]:
        return _carried, (packed(self.value, _is_nothing)[0],)


def _is_nothing(value: object) -> TypeGuard[object]:
    return False


def _carried(pickled: bytes) -> Carried[object]:
    return Carried(unpacked(pickled, ()))


# ---------------------------------------------------------------------------------------------------------------------
# From here


class Sender(Protocol):
    """Puts jobs where workers find them."""

    def send(self, job: Job[Item, Answer]) -> Parcel: ...


class Files:
    """For other processes of this machine, or of those that see the same folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, itertools.count()
        self.known: dict[int, tuple[HostArray, Path]] = {}  # with the array, so that its identity is not used again

    def send(self, job: Job[Item, Answer]) -> Parcel:
        pickled, large = _packed(job)
        path = self.folder / f"{next(self.count)}.pickle"
        path.write_bytes(pickled)
        return f"{self.folder}/{path.name}", path, [self._written(array) for array in large]

    def _written(self, array: HostArray) -> Path:
        if id(array) not in self.known:
            path = self.folder / f"{next(self.count)}.npy"
            np.save(path, array, allow_pickle=False)
            self.known[id(array)] = array, path
        return self.known[id(array)][1]


@contextmanager
def files() -> Iterator[Files]:
    with tempfile.TemporaryDirectory(prefix="reliance-", ignore_cleanup_errors=True) as folder:
        yield Files(Path(folder))


class DaskClient(Protocol):
    """A client of a dask cluster."""

    def scatter(self, value: object, /, *, broadcast: bool, hash: bool) -> object: ...
    def nthreads(self) -> dict[str, int]: ...
    def get_executor(self, *, pure: bool) -> Executor: ...


class Scattered:
    """For the workers of a dask cluster: every one of them has a copy, so that a lost one takes nothing with it."""

    def __init__(self, client: DaskClient) -> None:
        self.client = client
        self.known: dict[int, tuple[HostArray, object]] = {}

    def send(self, job: Job[Item, Answer]) -> Parcel:
        pickled, large = _packed(job)
        return uuid.uuid4().hex, self._put(pickled), [self._scattered(array) for array in large]

    def _scattered(self, array: HostArray) -> object:
        if id(array) not in self.known:
            self.known[id(array)] = array, self._put(array)
        return self.known[id(array)][1]

    def _put(self, value: object) -> object:
        try:
            return self.client.scatter(value, broadcast=True, hash=False)
        except (OSError, RuntimeError, TimeoutError) as error:  # closed, gone, or without workers
            raise lost(error) from error


def is_dask(workers: object) -> TypeIs[DaskClient]:
    """Whether it is a client of dask's, without importing it."""
    return all(callable(getattr(workers, name, None)) for name in ("scatter", "submit", "nthreads"))


def as_executor(workers: Executor | DaskClient) -> Executor:
    """An executor as it is, a dask client as one."""
    return workers.get_executor(pure=False) if is_dask(workers) else workers


def dask_workers(client: DaskClient) -> int:
    """How many items a cluster does at once."""
    try:
        counts = client.nthreads()
    except Exception as error:  # whatever a client says that is closed, or whose scheduler is gone
        raise lost(error) from error
    return max(1, sum(counts.values()))


def lost(error: BaseException) -> RuntimeError:
    """What is said when those who do the work are gone."""
    reason = short(str(error) or type(error).__name__, 90)
    return RuntimeError(
        f"the workers of run=rl.Run(workers=...) are lost ({reason}): a process may have been killed, for want of "
        "memory, say; make a new pool or cluster, perhaps with fewer workers, and call again"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Pickles


def _pickler() -> type[pickle.Pickler]:
    """That of cloudpickle, which sends also functions of a session or a notebook; joblib has a copy of it."""
    try:
        from cloudpickle import Pickler
    except ImportError:
        try:
            from joblib.externals.cloudpickle import Pickler
        except ImportError:
            raise ImportError(
                "work goes to other processes and devices by cloudpickle, which is not installed: pip install "
                "cloudpickle, or use threads, rl.Run(workers=2)"
            ) from None
    found: type[pickle.Pickler] = Pickler
    return found


def packed(value: object, by_itself: Callable[[object], TypeGuard[Kept]]) -> tuple[bytes, list[Kept]]:
    """The pickle of a value, and what goes by itself, which the pickle names by numbers."""
    apart: dict[int, tuple[int, Kept]] = {}
    base = _pickler()

    class Packer(base):  # type: ignore[valid-type, misc]  # imported when it is needed
        def persistent_id(self, one: object) -> int | None:
            return apart.setdefault(id(one), (len(apart), one))[0] if by_itself(one) else None

        def reducer_override(self, value: object) -> object:
            if isinstance(value, types.ModuleType):  # namespaces of arrays
                return importlib.import_module, (value.__name__,)
            return super().reducer_override(value)

    buffer = io.BytesIO()
    Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue(), [one for _, one in apart.values()]


def unpacked(pickled: bytes, apart: Sequence[object]) -> object:
    """What was packed, with these in the places of what went by itself."""

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> object:
            return apart[number]

    found: object = Unpacker(io.BytesIO(pickled)).load()
    return found


def _is_large(value: object) -> TypeGuard[HostArray]:
    return type(value) is np.ndarray and value.nbytes >= _LARGE and not value.dtype.hasobject


def _packed(job: Job[Item, Answer]) -> tuple[bytes, list[HostArray]]:
    """The pickle of a job, and the large arrays that it names by their number."""
    try:
        return packed(job, _is_large)
    except ImportError:
        raise
    except Exception as error:
        what, reason = unsendable(job, error)
        raise TypeError(
            f"{what} cannot be sent to another process ({reason}): use threads, rl.Run(workers=2), which share it, or "
            "a model that can be pickled, such as a function at the top level of a module"
        ) from error


def unsendable(job: Job[Item, Answer], error: Exception) -> tuple[str, str]:
    """What of a job cannot be pickled, and why."""
    what, reason = "the work", error
    for words, value in job.sent().items():
        try:
            _pickler()(io.BytesIO(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        except Exception as own:
            what, reason = f"{words} ({short(name_of(value), 60)})", own
            break
    return what, short(str(reason), 80)


# ---------------------------------------------------------------------------------------------------------------------
# There


# The last job of this process, and for each of its threads a desk.
_loading = threading.Lock()
_last: tuple[str, Job[Any, Any] | None] = ("", None)
_desks = threading.local()


def _loaded(key: str, pickled: Pickled, large: Large) -> Job[Any, object]:
    global _last
    with _loading:
        if _last[0] != key:
            _last = ("", None)
            data = pickled.read_bytes() if isinstance(pickled, Path) else pickled
            try:
                found = unpacked(data, [_mapped(one) for one in large])
                assert _is_job(found)
                _last = (key, found)
            except Exception as error:
                raise TypeError(
                    f"a worker process cannot load the work it was sent ({short(str(error), 120)}): model and losses "
                    "must be importable there, in the same versions"
                ) from error
        job = _last[1]
        assert job is not None
        return job


def _mapped(large: HostArray | Path) -> HostArray:
    return np.asarray(np.load(large, mmap_mode="r")) if isinstance(large, Path) else large


def _is_job(value: object) -> TypeIs[Job[Any, object]]:
    return callable(getattr(value, "do", None))


def perform(key: str, pickled: Pickled, large: Large, workers: int, item: object) -> object:
    """One item of a job, in a worker process."""
    job = _loaded(key, pickled, large)
    if getattr(_desks, "key", "") != key:
        _desks.key, _desks.desk = key, Desk()
    with within_worker(), threads.shared(workers), threads.limited(threads.available()), job.away():
        return job.do(item, _desks.desk, _ignored)


def _ignored(size: int) -> None:
    """The process that has sent the item counts it when it is done."""
