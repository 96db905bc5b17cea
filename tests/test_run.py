"""How the work is done, for a call or for a block of code: which setting counts, and where."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance._core.run import resolved

X = np.random.default_rng(0).normal(size=(30, 3))
Y = X[:, 0] + 0.5 * X[:, 1]
LONG = "n" * 5000


def model(X: Any) -> Any:
    return X[:, 0] * X[:, 1]


def used(**options: Any) -> tuple[int, int]:
    """The block that the model was called with."""
    return rl.model_reliance(model, X, Y, route="plain", **options).block


# ---------------------------------------------------------------------------------------------------------------------
# Which setting counts


def test_own_then_innermost_then_outer_then_default() -> None:
    assert resolved() == rl.Run()
    with rl.Run(memory="1MB", block=4):
        assert resolved() == rl.Run("1MB", 4)
        with rl.Run(memory="2MB"):
            assert resolved() == rl.Run("2MB", 4)
            assert resolved(rl.Run(block=(3, 2))) == rl.Run("2MB", (3, 2))
            assert resolved(rl.Run(memory=5)) == rl.Run(5, 4)
        assert resolved() == rl.Run("1MB", 4)
    assert resolved() == rl.Run()
    assert rl.Run().bytes == 10**9


def test_calls_use_it() -> None:
    default = used()
    with rl.Run(block=(5, 4)) as run:
        assert run == rl.Run(block=(5, 4))
        assert used() == (5, 4)
        assert used(run=rl.Run(block=(2, 3))) == (2, 3)
        assert used(run=rl.Run(memory="1MB")) == (5, 4)
    assert used() == default
    with rl.Run(memory=50), pytest.raises(ValueError, match="memory=50 bytes is too small"):
        used()
    with rl.Run(memory=50):
        assert used(run=rl.Run(memory="1GB")) == default


def test_one_value_may_be_entered_again() -> None:
    run = rl.Run(block=7)
    with run, rl.Run(block=8), run:
        assert resolved().block == 7
        with run:
            assert resolved().block == 7
    assert resolved().block is None
    with run:
        assert resolved().block == 7


def test_an_error_ends_it() -> None:
    with pytest.raises(KeyError), rl.Run(block=7):
        raise KeyError
    assert resolved() == rl.Run()


def test_generators_may_end_in_any_order() -> None:
    def inside(run: rl.Run) -> Iterator[None]:
        with run:
            yield

    first, second = inside(rl.Run(block=1)), inside(rl.Run(block=2))
    next(first)
    next(second)
    first.close()
    assert resolved().block == 2
    second.close()
    assert resolved().block is None


# ---------------------------------------------------------------------------------------------------------------------
# Threads, tasks, processes


def test_threads_have_their_own() -> None:
    barrier, found = threading.Barrier(2, timeout=10), {}

    def work(size: int) -> None:
        with rl.Run(block=size):
            barrier.wait()
            found[size] = resolved().block
            barrier.wait()

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 4)]
    with rl.Run(block=99):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert resolved().block == 99
    assert found == {3: 3, 4: 4}


def test_tasks_have_their_own() -> None:
    async def work(size: int) -> Any:
        with rl.Run(block=size):
            await asyncio.sleep(0)
            return resolved().block

    async def both() -> list[Any]:
        return await asyncio.gather(work(3), work(4))

    assert asyncio.run(both()) == [3, 4]
    assert resolved().block is None


def fit(X: Any, y: Any) -> Callable[[Any], Any]:
    return model


def measured_block(model: Any, X: Any, y: Any) -> list[float]:
    """What a refit sees of the settings around the call."""
    assert resolved().workers is None  # pools do not multiply
    return [float(resolved().block or 0), float(resolved().bytes)]


@pytest.mark.parametrize("pool", [None, ThreadPoolExecutor, ProcessPoolExecutor])
def test_refits_have_those_around_their_call(pool: Any) -> None:
    executor = None if pool is None else pool(1)
    try:
        with rl.Run(block=6, memory=4000, workers=executor):
            found = rl.null_importance(fit, X, Y, rounds=1, importance=measured_block, rng=0)
    finally:
        if executor is not None:
            executor.shutdown()
    assert found.values.tolist() == [6.0, 4000.0]
    assert found.null.tolist() == [[6.0], [4000.0]]


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("refits", ["algorithm", "folds", "null"])
def test_refits_have_the_memory_of_their_call(refits: str, workers: Any) -> None:
    run = rl.Run(memory=20, workers=workers)
    call = {
        "algorithm": lambda: rl.algorithm_reliance(fit, X, Y, cv=2, rng=0, run=run),
        "folds": lambda: rl.cross_validated_importance(fit, X, Y, cv=2, rng=0, run=run),
        "null": lambda: rl.null_importance(fit, X, Y, rounds=1, rng=0, run=run),
    }[refits]
    with pytest.raises(ValueError, match="memory=20 bytes is too small"):
        call()


# ---------------------------------------------------------------------------------------------------------------------
# The values themselves


@pytest.mark.parametrize("value", [rl.Run("2MB", (3, 4)), rl.Until(top=2, budget=1000), rl.Until(0.1, False)], ids=str)
def test_values_are_frozen_compared_and_pickled(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value == dataclasses.replace(value)
    assert hash(value) == hash(dataclasses.replace(value))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 3)


def test_integers_of_numpy_are_integers() -> None:
    assert rl.Run(block=(np.int64(3), np.int32(2))) == rl.Run(block=(3, 2))
    assert rl.Run(memory=np.int64(10**9)).bytes == 10**9
    goal = rl.Until(top=np.int64(2), budget=np.int32(7))
    assert (type(goal.top), type(goal.budget)) == (int, int)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rl.Run(memory=LONG), "memory='nnn"),
        (lambda: rl.Run(memory=0), "memory=0 is too small"),
        (lambda: rl.Run(memory=True), "memory=True"),
        (lambda: rl.Run(block=LONG), "block='nnn"),
        (lambda: rl.Run(block=(1, 2, 3)), "block=(1, 2, 3)"),
        (lambda: rl.Run(block=np.array([1, 2])), "block=array([1, 2])"),
        (lambda: rl.Run(workers=0), "workers=0 is not a number of threads"),
        (lambda: rl.Run(workers=-3), "workers=-3 is not a number of threads"),
        (lambda: rl.Run(workers=1.5), "workers=1.5: pass a number of threads"),
        (lambda: rl.Run(workers=True), "workers=True: pass a number of threads"),
        (lambda: rl.Run(workers=LONG), "workers='nnn"),
        (lambda: rl.Run(workers=ThreadPoolExecutor), "workers=<class"),
        (lambda: used(run=LONG), "run='nnn"),
        (lambda: used(run=rl.Run), "run=<class"),
        (lambda: used(run={"memory": "8MB"}), "rl.Run(memory='2GB')"),
        (lambda: rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, run=rl.Run(block=3)), "block=3"),
        (lambda: rl.Until(precision=LONG), "precision='nnn"),
        (lambda: rl.Until(precision=-1.0), "precision=-1.0"),
        (lambda: rl.Until(top=LONG), "top='nnn"),
        (lambda: rl.Until(budget=0), "budget=0"),
        (lambda: rl.Until(relative=LONG), "relative='nnn"),
        (lambda: rl.Until(precision=0.1, top=2), "leave one of the two out"),
    ],
)
def test_what_is_wrong_is_said_briefly(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert words in str(error.value)
    assert len(str(error.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# Signatures

FUNCTIONS = [getattr(rl, name) for name in rl.__all__ if inspect.isfunction(getattr(rl, name))]


# What came to 14 parameters later: whose rows belong together, what replaces a feature, how uncertain a range is.
LATER = {"clusters", "replace", "uncertainty"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_settings_are_gathered(function: Any) -> None:
    names = set(inspect.signature(function).parameters)
    assert len(names - LATER) <= 14
    assert not names & {"memory", "block", "n_jobs", "executor", "precision", "top", "budget"}


@pytest.mark.parametrize("method", [rl.model_class_reliance, rl.conditional_model_class_reliance])
def test_classes_of_models_have_workers(method: Any) -> None:
    Y = X[:, 0] + X[:, 1] ** 2
    wanted = method(rl.LinearClass(), X, Y, epsilon=0.1).upper
    np.testing.assert_array_equal(method(rl.LinearClass(), X, Y, epsilon=0.1, run=rl.Run(workers=2)).upper, wanted)
    with rl.Run(workers=2):
        np.testing.assert_array_equal(method(rl.LinearClass(), X, Y, epsilon=0.1).upper, wanted)
