"""What the benchmarks share: data, models and backends, all from fixed seeds."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SEED = 20190601
BACKENDS = ["numpy", "torch", "jax"]
Model = Callable[[Any], Any]


class Benchmark:
    """Base class with sensible options: a run takes seconds, not minutes."""

    timeout = 120
    rounds = 1
    warmup_time = 0


class safe_import(contextlib.AbstractContextManager["safe_import"]):
    """``with safe_import() as found: import torch`` leaves ``found.error`` set instead of failing discovery."""

    error = False

    def __enter__(self) -> safe_import:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.error = kind is not None and issubclass(kind, ImportError)
        return self.error


def need(name: str) -> Any:
    """Import a module, or skip the benchmark: asv takes NotImplementedError in ``setup`` as «not here»."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotImplementedError(f"{name} is not installed") from error


def regression(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian features, a linear signal in half of them, float32."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, p))
    y = X[:, : max(p // 2, 1)].sum(axis=1) + rng.normal(size=n)
    return X.astype(np.float32), y.astype(np.float32)


def network(p: int, width: int = 128) -> list[np.ndarray]:
    """Weights of a p-width-width-1 network without biases."""
    rng = np.random.default_rng(SEED + 1)
    sizes = [p, width, width, 1]
    return [
        (rng.normal(size=(fan_in, fan_out)) / np.sqrt(fan_in)).astype(np.float32)
        for fan_in, fan_out in itertools.pairwise(sizes)
    ]


def numpy_network(weights: list[np.ndarray]) -> Model:
    first, second, last = weights

    def model(X: np.ndarray) -> np.ndarray:
        return (np.maximum(np.maximum(X @ first, 0) @ second, 0) @ last)[:, 0]

    return model


def torch_network(weights: list[np.ndarray]) -> Model:
    torch = need("torch")
    layers: list[Any] = []
    for weight in weights:
        layer = torch.nn.Linear(*weight.shape, bias=False)
        layer.weight.data = torch.from_numpy(weight.T.copy())
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], torch.nn.Flatten(0))


def jax_network(weights: list[np.ndarray]) -> Model:
    jnp = need("jax.numpy")
    first, second, last = (jnp.asarray(weight) for weight in weights)

    def model(X: Any) -> Any:
        return (jnp.maximum(jnp.maximum(X @ first, 0) @ second, 0) @ last)[:, 0]

    return model


def on_backend(name: str, n: int, p: int, width: int = 128) -> tuple[Model, Any, Any]:
    """The same network and the same data on one backend."""
    X, y = regression(n, p)
    weights = network(p, width)
    if name == "torch":
        torch = need("torch")
        return torch_network(weights), torch.from_numpy(X), torch.from_numpy(y)
    if name == "jax":
        jnp = need("jax.numpy")
        return jax_network(weights), jnp.asarray(X), jnp.asarray(y)
    return numpy_network(weights), X, y


def sum_of_columns(X: Any) -> Any:
    """The cheapest model that uses its input, so that what is measured is the engine."""
    return X[:, 0] + X[:, 1]


@contextlib.contextmanager
def count_compilations() -> Iterator[list[str]]:
    """Collects one entry for each compilation that JAX makes inside."""
    monitoring = need("jax.monitoring")
    seen: list[str] = []
    active = True

    def listen(event: str, duration: float, **_: Any) -> None:
        if active and event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        active = False


# ---------------------------------------------------------------------------------------------------------------------
# Ratios, for the scripts that are run by themselves


def alternate(*functions: Callable[[], object], repeats: int = 5) -> list[float]:
    """Best time in seconds of each function, taken in turns, after one call to warm up."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(repeats):
        for k, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def report(what: str, ratio: float, goal: str, detail: str = "") -> None:
    print(f"{what:<62} {ratio:8.2f}   goal {goal:<8} {detail}", flush=True)
