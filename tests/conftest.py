"""The backends every engine test runs on, one pytest parameter each."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

RTOL = {"float64": 1e-12, "float32": 1e-5}
# Of array-api-strict: a device that is not the default one, one whose default dtype is not the data's, and one without
# float64.
HOST = (
    "numpy-float64",
    "numpy-float32",
    "numpy-readonly-float64",
    "strict-device1-float64",
    "strict-device2-float64",
    "strict-no_float64-float32",
    "torch-cpu-float64",
    "torch-cpu-float32",
    "jax-float32",
    "jax-x64-float64",
)
# One dtype for each namespace: for tests that are not about numbers.
ONCE = (
    "numpy-float64",
    "strict-device2-float64",
    "strict-no_float64-float32",
    "torch-cpu-float64",
    "jax-float32",
)
# About the last digits, which depend on how JAX compiles: `make slow` runs their JAX cases again, without --quick-jax.
ROUNDING = {
    "test_engine_property.py",
    "test_engine_truth.py",
    "test_evaluations.py",
    "test_functional.py",
    "test_inference_truth.py",
    "test_invariances.py",
    "test_losses_truth.py",
    "test_relative.py",
}
# JAX with and without x64.
WIDTHS = ("jax-float32", "jax-x64-float64")
CUDA = ("torch-cuda-float64", "torch-cuda-float32", "cupy-float64", "cupy-float32", "jax-cuda-float32")


@dataclass(frozen=True)
class Backend:
    """A namespace, a device and a floating dtype.

    ``asarray`` uploads a host array, floats in the dtype under test; ``rounded`` is what the device then holds, in
    float64, which is what an oracle has to start from.
    """

    name: str
    dtype: str
    xp: Any
    upload: Callable[[np.ndarray], Any]

    @property
    def kind(self) -> str:
        return self.name.split("-")[0]

    @property
    def rtol(self) -> float:
        return RTOL[self.dtype]

    def _cast(self, values: Any) -> np.ndarray:
        host = np.asarray(values)
        return host.astype(self.dtype) if host.dtype.kind == "f" else host

    def asarray(self, values: Any) -> Any:
        return None if values is None else self.upload(self._cast(values))

    def rounded(self, values: Any) -> Any:
        if values is None:
            return None
        host = self._cast(values)
        return host.astype(np.float64) if host.dtype.kind == "f" else host

    def assert_close(self, actual: Any, expected: Any, scale: float = 1.0) -> None:
        """Equal to rounding; ``scale`` is the size of the losses, whose differences the values are."""
        expected = np.asarray(expected, dtype=np.float64)
        np.testing.assert_allclose(actual, expected, rtol=self.rtol, atol=self.rtol * scale)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: run the backends of a GPU, too")
    parser.addoption("--quick-jax", action="store_true", help="JAX compiles in half of the time, to slower programs")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick-jax") and not hasattr(config, "workerinput"):  # workers inherit the environment
        _let_jax_compile_quickly()
    config.addinivalue_line("markers", "once_per_device: on every backend, but in one dtype only")
    config.addinivalue_line(
        "markers", "paired(*parameters, one_in): every pair of their values and backends; the full product is slow"
    )
    config.addinivalue_line("markers", "compiled_for_users: again in `make slow`, without --quick-jax")


def _let_jax_compile_quickly() -> None:
    """By settings that JAX and XLA read when they start: most of the time of these tests is compilation."""
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
    # XLA ends the process at a flag that it does not know, and flags come and go with its versions.
    command = [sys.executable, "-c", "from jaxlib import xla_client; xla_client.make_cpu_client()"]
    if subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, check=False).returncode == 0:
        os.environ["XLA_FLAGS"] = flags


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        paired = item.get_closest_marker("paired")
        if paired is not None and not _is_in_the_design(item.callspec.indices, paired.args, paired.kwargs["one_in"]):
            item.add_marker(pytest.mark.slow)
        if item.path.name in ROUNDING and "jax" in item.name:
            item.add_marker(pytest.mark.compiled_for_users)
        if _waits_for_slow(item):
            item.add_marker(pytest.mark.slow)


def _waits_for_slow(item: pytest.Item) -> bool:
    """Whether `make slow` has the case of JAX: most of the time of `make test` would be compilations.

    Every eighth test, or case of one, runs on JAX in `make test`, and of these every second with x64.
    """
    callspec = getattr(item, "callspec", None)
    name = None if callspec is None else callspec.params.get("backend")
    if name not in WIDTHS:
        return False
    turn = zlib.crc32(item.nodeid.replace(name, "").encode())
    if item.get_closest_marker("once_per_device") is not None:
        return turn % 8 != 0
    return turn % 16 != WIDTHS.index(name)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again."""
    gc.collect()
    gc.freeze()


def _is_in_the_design(indices: dict[str, int], parameters: tuple[str, ...], one_in: int) -> bool:
    """The full product on the first backend, and a Latin square on the others.

    With ``one_in`` no larger than the number of values of any parameter, every value of each parameter meets every
    value of each other one, and every backend.
    """
    backend = indices["backend"]
    return backend == 0 or (backend + sum(indices[name] for name in parameters)) % one_in == 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names = ONCE if metafunc.definition.get_closest_marker("once_per_device") else HOST
        gpu = CUDA if metafunc.config.getoption("--device") == "cuda" else ()
        metafunc.parametrize("backend", (*names, *gpu), indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    name, dtype = request.param.rsplit("-", 1)
    family, _, variant = name.partition("-")
    with contextlib.ExitStack() as stack:
        xp, upload = MAKERS[family](stack, variant)
        yield Backend(name, dtype, xp, upload)


def _numpy(stack: contextlib.ExitStack, variant: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    def upload(host: np.ndarray) -> np.ndarray:
        own = host.copy()
        own.flags.writeable = variant != "readonly"
        return own

    return np, upload


def _refuse(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        raise AssertionError(f"{name} of a device array: a hidden synchronisation")

    return method


def _strict(stack: contextlib.ExitStack, variant: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    xp = pytest.importorskip("array_api_strict")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xp.set_array_api_strict_flags(boolean_indexing=False, data_dependent_shapes=False)
    stack.callback(xp.reset_array_api_strict_flags)
    dev = xp.Device(variant)
    # The holes of array-api-strict: it lets these through on any device.
    array = type(xp.zeros(()))
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    for name in ("__float__", "__bool__", "__int__", "__index__", "__complex__"):
        patch.setattr(array, name, _refuse(name))
    return xp, lambda host: xp.asarray(host, device=dev)


def _torch(stack: contextlib.ExitStack, variant: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    torch = pytest.importorskip("torch")
    if variant == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return torch, lambda host: torch.from_numpy(host.copy()).to(variant)


def _jax(stack: contextlib.ExitStack, variant: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    jax = pytest.importorskip("jax")
    platform = "cuda" if variant == "cuda" else "cpu"
    try:
        dev = jax.devices(platform)[0]
    except RuntimeError:
        pytest.skip(f"JAX finds no {platform} device")
    stack.enter_context(jax.enable_x64(variant == "x64"))
    return jax.numpy, lambda host: jax.device_put(host, dev)


def _cupy(stack: contextlib.ExitStack, variant: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("CuPy finds no CUDA device")
    return cupy, cupy.asarray


MAKERS: dict[str, Callable[[contextlib.ExitStack, str], tuple[Any, Callable[[np.ndarray], Any]]]] = {
    "numpy": _numpy,
    "strict": _strict,
    "torch": _torch,
    "jax": _jax,
    "cupy": _cupy,
}
