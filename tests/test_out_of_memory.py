"""When memory runs out the engine calls the model with fewer rows and goes on to the right answer."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from methods import METHODS, assert_result, tables
from oracles import CASES
from reliance.engine.stores import ArrayStore

CASE = CASES["squared_error"]


class OutOfMemoryError(RuntimeError):
    """What torch.cuda and CuPy call theirs."""


ERRORS = {
    "MemoryError": lambda: MemoryError("Unable to allocate 3 GiB"),
    "torch-cuda": lambda: RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "torch-cpu": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    "class-name": lambda: OutOfMemoryError("Out of memory allocating 1,024 bytes"),
    "jax": lambda: RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1024 bytes."),
}


class Small:
    """A model that takes at most so many rows."""

    def __init__(self, most, error):
        self.most, self.error = most, error
        self.sizes = []

    def __call__(self, x):
        if x.shape[0] > self.most:
            raise self.error()
        self.sizes.append(x.shape[0])
        return CASE.formula(x)


def measured(backend, model, method, **options):
    X, y = CASE.data(n=12, seed=1)
    result = METHODS[method](
        model, backend.asarray(X), backend.asarray(y), compare="difference", keep="rows", **options
    )
    exact = backend.rounded(X), backend.rounded(y)
    return result, tables(METHODS[method], CASE.formula, CASE.oracle, *exact, [(j,) for j in range(4)])


@pytest.mark.once_per_device
@pytest.mark.parametrize("error", ERRORS)
def test_every_backends_error(backend, error):
    model = Small(5, ERRORS[error])
    result, expected = measured(backend, model, "permutation")
    assert_result(backend, result, expected, "difference")
    assert np.prod(result.block) <= 5
    assert max(model.sizes) <= 5


@pytest.mark.once_per_device
@pytest.mark.parametrize("block", [None, (4, 3)], ids=str)
@pytest.mark.parametrize("most", [1, 2, 11])
@pytest.mark.parametrize("method", ["ablation", "all"])
def test_every_method(backend, method, most, block):
    result, expected = measured(backend, Small(most, MemoryError), method, run=rl.Run(block=block))
    assert_result(backend, result, expected, "difference")
    assert np.prod(result.block) <= most


@pytest.mark.once_per_device
def test_metrics(backend):
    X, y = CASE.data(n=12, seed=2)
    arrays = backend.asarray(X), backend.asarray(y)
    result = METHODS["permutation"](Small(5, MemoryError), *arrays, loss="rmse")
    plain = METHODS["permutation"](CASE.formula, *arrays, loss="rmse")
    backend.assert_close(result.draws, plain.draws)


def test_memory_that_runs_out_later():
    """The model takes large blocks at first and small ones afterwards."""
    X, y = CASE.data(n=12, seed=3)
    small, calls = Small(4, MemoryError), []

    def model(x):
        calls.append(len(x))
        return CASE.formula(x) if len(calls) < 3 else small(x)

    result = METHODS["all"](model, X, y, run=rl.Run(block=(6, 6)), keep="rows")
    plain = METHODS["all"](CASE.formula, X, y, keep="rows")
    np.testing.assert_allclose(result.row_values, plain.row_values, rtol=1e-12)
    assert np.prod(result.block) <= 4


@pytest.mark.parametrize("message", ["RESOURCE_EXHAUSTED: Out of memory", "out of memory"])
def test_jax_memory_that_runs_out_on_the_device(message):
    """The compiled function is traced well and fails when it runs."""
    jax = pytest.importorskip("jax")
    X, y = (np.float32(a) for a in CASE.data(n=12, seed=4))

    def host(x):
        if x.shape[0] > 5:
            raise RuntimeError(message)
        return np.asarray(CASE.formula(np.asarray(x)), dtype=np.float32)

    def model(x):
        return jax.pure_callback(host, jax.ShapeDtypeStruct((x.shape[0],), x.dtype), x)

    result = METHODS["permutation"](model, jax.numpy.asarray(X), jax.numpy.asarray(y))
    plain = METHODS["permutation"](CASE.formula, X, y)
    np.testing.assert_allclose(result.values, plain.values, rtol=1e-5)
    assert np.prod(result.block) <= 5


@pytest.mark.parametrize("method", ["permutation", "all"])
@pytest.mark.parametrize("most", [3, 20])
def test_a_block_that_cannot_be_allocated(monkeypatch, method, most):
    allocate = ArrayStore.allocate

    def limited(self, rows):
        if rows > most:
            raise MemoryError(f"no room for {rows} rows")
        return allocate(self, rows)

    X, y = CASE.data(n=12, seed=5)
    plain = METHODS[method](CASE.formula, X, y)
    monkeypatch.setattr(ArrayStore, "allocate", limited)
    result = METHODS[method](CASE.formula, X, y)
    np.testing.assert_allclose(result.values, plain.values, rtol=1e-12)
    assert np.prod(result.block) <= most


@pytest.mark.once_per_device
def test_one_row_that_does_not_fit(backend):
    X, y = CASE.data(n=6, seed=6)
    with pytest.raises(MemoryError, match="model Small ran out of memory on a single row"):
        rl.permutation_importance(Small(0, MemoryError), backend.asarray(X), backend.asarray(y), draws=3)


@pytest.mark.once_per_device
@pytest.mark.parametrize("error", [ValueError("out of memory, said the model"), RuntimeError("shapes do not fit")])
def test_other_errors_are_the_models_own(backend, error):
    def model(x):
        raise error

    X, y = CASE.data(n=6, seed=7)
    with pytest.raises(type(error), match=str(error)):
        rl.permutation_importance(model, backend.asarray(X), backend.asarray(y), draws=3)
