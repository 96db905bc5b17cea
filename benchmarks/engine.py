"""The engine against the bare model and against its peers: ratios, each measured in one run.

    python benchmarks/engine.py            everything
    python benchmarks/engine.py bare       one part: bare, sklearn, captum, memory, compilations

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine.
"""

from __future__ import annotations

import logging
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, report

BATCHES = (256, 1024, 2048, 4096, 8192, 16384, 65536)


# ---------------------------------------------------------------------------------------------------------------------
# All pairs over the bare model


def mlp_weights(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (rng.normal(size=(a, b)).astype(np.float32) / np.sqrt(a), rng.normal(size=b).astype(np.float32))
        for a, b in pairwise(sizes)
    ]


def numpy_mlp(layers: list[tuple[np.ndarray, np.ndarray]]) -> Callable[[np.ndarray], np.ndarray]:
    def predict(X: np.ndarray) -> np.ndarray:
        for weight, bias in layers[:-1]:
            X = np.maximum(X @ weight + bias, 0)
        return (X @ layers[-1][0] + layers[-1][1])[:, 0]

    return predict


def torch_mlp(layers: list[tuple[np.ndarray, np.ndarray]]):
    import torch

    parts: list[torch.nn.Module] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
            linear.bias.copy_(torch.from_numpy(bias))
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def jax_mlp(layers: list[tuple[np.ndarray, np.ndarray]]):
    import jax.numpy as jnp

    on_device = [(jnp.asarray(w), jnp.asarray(b)) for w, b in layers]

    def predict(X):
        for weight, bias in on_device[:-1]:
            X = jnp.maximum(X @ weight + bias, 0)
        return (X @ on_device[-1][0] + on_device[-1][1])[:, 0]

    return predict


def bare() -> None:
    """Rows a second of an all-pairs run over the best rows a second of the bare model at any batch size."""
    import jax
    import jax.numpy as jnp
    import torch

    rng = np.random.default_rng(0)
    n = 2000
    X = rng.normal(size=(n, 32)).astype(np.float32)
    y = rng.normal(size=n).astype(np.float32)
    layers = mlp_weights(rng, (32, 128, 128, 1))
    module = torch_mlp(layers).eval()
    traced = jax.jit(jax_mlp(layers))
    cases = {
        "torch": (module, torch.from_numpy, lambda f, Z: f(Z)),
        "JAX jit": (traced, jnp.asarray, lambda f, Z: f(Z).block_until_ready()),
        "NumPy": (numpy_mlp(layers), np.asarray, lambda f, Z: f(Z)),
    }
    for name, (model, put, call) in cases.items():
        data, labels = put(X), put(y)
        batches = {m: put(np.tile(X, (m // n + 1, 1))[:m].copy()) for m in BATCHES}

        def run(model=model, data=data, labels=labels) -> object:
            return rl.model_reliance(model, data, labels, features=[0])

        def bare_rate(m: int, model=model, call=call, batches=batches) -> Callable[[], object]:
            def go() -> None:
                with torch.no_grad():
                    for _ in range(max(1, 262144 // m)):
                        call(model, batches[m])

            return go

        measured = alternate(run, *[bare_rate(m) for m in BATCHES], repeats=3)
        rates = [max(1, 262144 // m) * m / s for m, s in zip(BATCHES, measured[1:], strict=True)]
        ours = n * n / measured[0]
        best = int(np.argmax(rates))
        detail = f"{ours:.3g} rows/s, bare {rates[best]:.3g} at batch {BATCHES[best]}"
        report(f"all pairs on a {name} MLP, rows/s over the bare model's best", ours / rates[best], ">= 0.9", detail)


# ---------------------------------------------------------------------------------------------------------------------
# Peers


def sklearn() -> None:
    """Against scikit-learn's permutation_importance: the same number of replaced rows, the same loss."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import LinearRegression
    from sklearn.neural_network import MLPRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 20))
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=500)
    models = ((LinearRegression(), ">= 10"), (RandomForestRegressor(100, random_state=0), ">= 5"))
    for estimator, goal in (*models, (MLPRegressor(random_state=0), ">= 4")):
        model = estimator.fit(X, y)

        def theirs(model=model) -> object:
            return permutation_importance(model, X, y, n_repeats=30, scoring="neg_mean_squared_error", random_state=0)

        def ours(model=model) -> object:
            return rl.permutation_importance(model, X, y, draws=30, rng=0)

        close = np.abs(theirs().importances_mean - ours().values).max()
        sk, own = alternate(theirs, ours, repeats=3 if "Forest" in type(model).__name__ else 7)
        detail = f"{sk:.3f} s / {own:.3f} s, largest difference of values {close:.2g}"
        report(f"scikit-learn, {type(model).__name__}, n=500 p=20 K=30", sk / own, goal, detail)


def captum() -> None:
    """Against captum's FeaturePermutation called K times on the same torch module."""
    import torch
    from captum.attr import FeaturePermutation

    rng = np.random.default_rng(0)
    n, p, draws = 5000, 32, 20
    X = torch.from_numpy(rng.normal(size=(n, p)).astype(np.float32))
    y = torch.from_numpy(rng.normal(size=n).astype(np.float32))
    for sizes in ((p, 1), (p, 32, 1), (p, 128, 128, 1)):
        module = torch_mlp(mlp_weights(rng, sizes)).eval()

        def risk(Z: torch.Tensor, module=module) -> torch.Tensor:
            return ((module(Z)[:, 0] - y) ** 2).mean()

        def theirs(risk=risk) -> list[torch.Tensor]:
            with torch.no_grad():
                return [FeaturePermutation(risk).attribute(X) for _ in range(draws)]

        def ours(module=module) -> object:
            return rl.permutation_importance(module, X, y, draws=draws, rng=0)

        # captum gives original minus permuted, once for each call.
        found = -torch.stack([torch.as_tensor(a).reshape(-1)[:p] for a in theirs()]).mean(0).numpy()
        close = np.abs(found - ours().values).max()
        them, own = alternate(theirs, ours, repeats=3)
        detail = f"{them:.3f} s / {own:.3f} s, largest difference of values {close:.2g}"
        name = "-".join(map(str, sizes))
        report(f"captum FeaturePermutation, {name}, n={n} p={p} K={draws}", them / own, ">= 2.5", detail)


# ---------------------------------------------------------------------------------------------------------------------
# Memory and compilations


def memory() -> None:
    """Peak of what is allocated during an all-pairs run over its memory= budget."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20000, 8)), rng.normal(size=20000)
    budget = 8_000_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = rl.model_reliance(lambda Z: Z[:, 0], X, y, features=[0], run=rl.Run(memory=budget))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    detail = f"{peak / 1e6:.2f} MB of {budget / 1e6:.0f} MB, block {result.block}"
    report("peak memory over memory=, all pairs, n=20000", peak / budget, "<= 1.25", detail)


def compilations() -> None:
    """Compilations of the tile function over 20 features, groups of two sizes and two calls."""
    import jax
    import jax.numpy as jnp

    names: list[str] = []

    class Compiled(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if "Finished XLA compilation" in message:
                names.append(message.split("Finished XLA compilation of ")[1].split(" in ")[0])

    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(500, 20)).astype(np.float32))
    y = jnp.asarray(rng.normal(size=500).astype(np.float32))
    model = jax_mlp(mlp_weights(rng, (20, 64, 1)))
    handler = Compiled()
    logger = logging.getLogger("jax._src.dispatch")
    logger.addHandler(handler)
    logger.propagate = False
    noisy = logging.getLogger("jax._src.interpreters.pxla")
    noisy.disabled = True
    jax.config.update("jax_log_compiles", True)
    rl.model_reliance(model, X, y)
    rl.model_reliance(model, X, y, features=[*range(20), (0, 1), (2, 3, 4)])
    jax.config.update("jax_log_compiles", False)
    logger.removeHandler(handler)
    steps = sum("traced_step" in name for name in names)
    detail = f"{len(names)} with the base pass and single operations on X and y, all in the first call"
    report("JAX compilations of the tile function, 22 features, 2 calls", steps, "1 a shape", detail)


PARTS = {"bare": bare, "sklearn": sklearn, "captum": captum, "memory": memory, "compilations": compilations}


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence of the peers' models is not the subject
        for name in chosen or PARTS:
            PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
