"""Refits, one after the other, on threads or on any executor; a failure loses nothing that was finished."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from reliance._core import calls, threads
from reliance._core.kinds import Array
from reliance._core.run import Run, only, resolved
from reliance._core.words import short, shown
from reliance.data.passed import FitLike, Fits, ModelLike, RowsLike
from reliance.engine import sending
from reliance.models.calling import name_of
from reliance.models.modules import is_torch_module

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RefitError(RuntimeError):
    """Some refits failed. The others were finished; ``result`` holds them.

    Attributes
    ----------
    failures : dict
        From what failed, as ``"without 'age'"`` or ``"round 7"``, to its exception.
    result : object or None
        The result of all that was finished, where that is enough for one.
    """

    def __init__(self, message: str, failures: Mapping[str, BaseException], result: object) -> None:
        super().__init__(message)
        self.failures, self.result = dict(failures), result

    def __reduce__(self) -> tuple[type[RefitError], tuple[str, dict[str, BaseException], object]]:
        # By default an exception is made again of its message alone. What cannot travel is told in words.
        sent = {
            label: error if _travels(error) else RuntimeError(_told(error)) for label, error in self.failures.items()
        }
        return type(self), (str(self), sent, self.result if _travels(self.result) else None)


def _travels(value: object) -> bool:
    """Whether another process can have it: some exceptions can be pickled, but not unpickled."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {short(str(error), 120)}"


class Task(NamedTuple, Generic[T_co]):
    """A refit: how messages name it, what is done (it can be pickled), and whether all others need it."""

    label: str
    work: Callable[[], T_co]
    needed: bool = False


class Outcome(NamedTuple, Generic[T]):
    """The answers of the tasks that were finished, by their place; the failures; what stopped the others."""

    answers: dict[int, T]
    failures: dict[str, BaseException]
    interrupt: KeyboardInterrupt | None


def run(tasks: Sequence[Task[T]], settings: Run | None, advance: Callable[[int], None]) -> Outcome[T]:
    """Run all tasks. One that is needed by the others raises at once; nothing depends on the order answers come in."""
    answers: dict[int, T] = {}
    failures: dict[str, BaseException] = {}
    known = resolved(settings)
    check_no_folder(known, "refits")
    workers = threads.cores() if known.workers == -1 else known.workers
    own = ThreadPoolExecutor(workers) if isinstance(workers, int) and workers > 1 else None
    pool = own if workers is None or isinstance(workers, int) else sending.as_executor(workers)
    # What the call says of memory and blocks holds in its refits, in other threads and processes, too.
    at_once = getattr(pool, "_max_workers", 1)  # of other executors the number is not known
    inside = functools.partial(_within, replace(known, workers=None), at_once)
    tasks = [task._replace(work=functools.partial(inside, task.work)) for task in tasks]
    registry = _Registry()
    if isinstance(pool, ThreadPoolExecutor):
        tasks = [task._replace(work=functools.partial(registry.run, task.work)) for task in tasks]
    try:
        for place, answer in _one_by_one(tasks) if pool is None else _together(tasks, pool):
            if isinstance(answer, KeyboardInterrupt):
                raise answer
            if not isinstance(answer, BaseException):
                answers[place] = answer
            elif registry.shared is not None:  # no number is right, and other errors come from it
                raise registry.shared
            elif tasks[place].needed:
                answer.add_note(f"This happened {tasks[place].label}, which everything else is compared with.")
                raise answer
            else:
                failures[tasks[place].label] = answer
            advance(1)
    except KeyboardInterrupt as stop:
        return Outcome(answers, failures, stop)
    finally:
        if own is not None:  # what is running cannot be stopped; nobody waits for it after an error
            own.shutdown(wait=False, cancel_futures=True)
    return Outcome(answers, failures, None)


def _within(run: Run, workers: int, work: Callable[[], T]) -> T:
    with only(run), threads.shared(workers):
        return work()


def check_finished(outcome: Outcome[T], result: object) -> None:
    """If not everything was finished, the exception that carries what was.

    After Ctrl-C the KeyboardInterrupt itself has the attribute ``result``.
    """
    if outcome.interrupt is not None:
        outcome.interrupt.result = result  # type: ignore[attr-defined]
        raise outcome.interrupt
    if outcome.failures:
        label, first = next(iter(outcome.failures.items()))
        if not outcome.answers:  # not one refit, but all of them
            first.add_note(f"This happened in the refit {label}; all {len(outcome.failures)} refits failed.")
            raise first
        others = f", and {len(outcome.failures) - 1} more" if len(outcome.failures) > 1 else ""
        rest = "what was finished is in the attribute result of this error" if result is not None else "nothing is left"
        message = f"the refit {short(label)} failed{others}: {_told(first)}; {rest}, all failures in failures"
        raise RefitError(message, outcome.failures, result) from first


_THREAD = threading.local()


class _Registry:
    """The models that the threads of one run were given: one that is fitted again while it is measured is wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[weakref.ref[object], int]] = {}
        self.shared: TypeError | None = None

    def run(self, work: Callable[[], T]) -> T:
        _THREAD.registry = self
        try:
            return work()
        finally:
            _THREAD.registry = None

    def check(self, model: object, fit: object) -> None:
        owner, thread = getattr(model, "__self__", model), threading.get_ident()
        if isinstance(owner, types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            return  # has nothing that a fit could change
        with self._lock:
            known, first = self._seen.get(id(owner), (None, thread))
            if known is not None and known() is owner and first != thread:
                self.shared = TypeError(
                    f"fit={name_of(fit)} returned the same {type(owner).__name__} on two threads, so it was fitted "
                    "again while it was measured: make a new model in each call, or leave workers out"
                )
                raise self.shared
            with contextlib.suppress(TypeError):  # not everything can be referred to weakly
                self._seen[id(owner)] = (weakref.ref(owner), thread)


def _one_by_one(tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | BaseException]]:
    for place, task in enumerate(tasks):
        answer: T | BaseException
        try:
            answer = task.work()
        except Exception as error:  # whatever the user's fit raises
            answer = error
        yield place, answer


def _together(tasks: Sequence[Task[T]], pool: Executor) -> Iterator[tuple[int, T | BaseException]]:
    places = {pool.submit(task.work): place for place, task in enumerate(tasks)}
    try:
        for future in as_completed(places):
            error = future.exception()
            yield places[future], future.result() if error is None else error
    finally:
        for future in places:
            future.cancel()


# ---------------------------------------------------------------------------------------------------------------------
# What the user passes


def check_workers(run: Run | None, sent: Mapping[str, object]) -> None:
    """``sent`` are the user's functions, which must reach other processes if the refits run there."""
    if not isinstance(resolved(run).workers, ProcessPoolExecutor):
        return
    for name, value in sent.items():
        try:
            pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"{name}={name_of(value)} cannot be sent to another process ({short(str(error), 80)}): define it at "
                "the top level of a module, or use threads, rl.Run(workers=2), which need not send it"
            ) from error


def check_no_folder(run: Run, work: str) -> None:
    """Refits are not cut into units that could be kept, and there is no result of some of them by itself."""
    if calls.at_work() is not None and run.checkpoint is None:
        raise ValueError(f"rl.estimate counts rows that a given model is called with, and {work} have other costs")
    if run.ends_early:
        raise ValueError(
            f"run has deadline={run.deadline} and on_interrupt={run.on_interrupt}, but {work} cannot end early with "
            "what is there: leave them out"
        )
    if run.checkpoint is not None:
        raise ValueError(
            f"run has checkpoint={shown(str(run.checkpoint))}, but {work} are not cut into units that could be kept: "
            "leave it out; what was finished before an error or Ctrl-C is in its attribute result"
        )


def check_fit(fit: object) -> None:
    """A function ``(X, y) -> model``, or an estimator that can be cloned."""
    if isinstance(fit, type):
        raise TypeError(
            f"fit={fit.__name__} is a class: pass an instance, {fit.__name__}(), or a function (X, y) -> model"
        )
    if inspect.ismethod(fit) and _is_estimator(fit.__self__):
        owner = type(fit.__self__).__name__
        raise TypeError(
            f"fit={owner}.{fit.__name__} would fit your own estimator again and again: pass the estimator itself, of "
            "which each fit has a clone"
        )
    if is_torch_module(fit):
        raise TypeError(
            f"fit is a torch module ({name_of(fit)}), which does not say how it is trained: pass a function "
            "(X, y) -> trained module"
        )
    if not callable(fit) and not _is_estimator(fit):
        raise TypeError(
            f"fit={shown(fit)} can fit nothing: pass a function (X, y) -> model or a scikit-learn estimator"
        )


def _is_estimator(fit: object) -> TypeIs[Fits]:
    return callable(getattr(fit, "fit", None)) and callable(getattr(fit, "get_params", None))


def fitted(fit: FitLike, X: RowsLike, y: Array) -> ModelLike:
    """A new model: of a clone of the estimator, or what the function returns."""
    if _is_estimator(fit):
        from sklearn.base import clone

        own = clone(fit)
        if own is fit:
            raise TypeError(f"fit={name_of(fit)} cannot be fitted again, its clone is itself: pass one that can be")
        estimator: ModelLike = own.fit(X, y)
        return estimator
    model: ModelLike = fit(X, y)
    registry = getattr(_THREAD, "registry", None)
    if registry is not None:
        registry.check(model, fit)
    if not callable(model) and not hasattr(model, "predict"):
        raise TypeError(
            f"fit={name_of(fit)} returned {shown(model)}, which is not a model: return a function batch -> "
            "predictions, a fitted estimator or a torch.nn.Module"
        )
    return model
