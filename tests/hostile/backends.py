"""Kinds of arrays of torch, JAX and the strict namespace, calls inside `jit`, and the pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import torch

import reliance as rl
from hostile import loops
from hostile.functions import FUNCTIONS, KEY, N, X, Y, host, score
from hostile.loops import Data
from hostile.record import Case, Expectation, Number, Refused
from hostile.rows import COUNTS, labels_of

COUNT_LABELS = np.round(labels_of(COUNTS))


def _measure(rows: Any, y: Any, model: Any = score, **options: Any) -> Any:
    return rl.permutation_importance(model, rows, y, **{"draws": N, "rng": KEY, **options}).values


def _truth(rows: Any, y: Any, predict: Any = score) -> Callable[[], Any]:
    return lambda: loops.differences(Data(predict, np.asarray(rows, dtype=np.float64), np.asarray(y, dtype=np.float64)))


def _in(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The model's own predictions in a narrow dtype, by NumPy."""
    return lambda rows: np.asarray(score(np.asarray(rows, dtype=dtype)), dtype=np.float64)


def _narrow(dtype: Any) -> tuple[Any, Any]:
    return np.asarray(jnp.asarray(X, dtype), dtype=np.float64), np.asarray(jnp.asarray(Y, dtype), dtype=np.float64)


def _jax(dtype: Any) -> Callable[[], Any]:
    return lambda: _measure(jnp.asarray(X, dtype=dtype), jnp.asarray(Y, dtype=dtype))


def _changing_constant() -> Any:
    """The weights of a JAX model in NumPy memory, changed between two calls."""
    w = np.array([1.0, 0.0, 0.0], dtype=np.float32)

    def model(x: Any) -> Any:
        return x @ w

    rows, y = jnp.asarray(X, dtype=jnp.float32), jnp.asarray(Y, dtype=jnp.float32)
    _measure(rows, y, model)
    w[:] = [0.0, 2.0, 1.0]
    return _measure(rows, y, model)


SCALE = 1.0


def _changing_loss() -> Any:
    """A global in a custom loss, changed between two calls."""
    global SCALE
    rows, y = jnp.asarray(X, dtype=jnp.float32), jnp.asarray(Y, dtype=jnp.float32)

    def loss(y: Any, p: Any) -> Any:
        return SCALE * (y - p) ** 2

    SCALE = 1.0
    _measure(rows, y, loss=loss)
    SCALE = 5.0
    found = _measure(rows, y, loss=loss)
    SCALE = 1.0
    return found


def _inside_jit() -> Any:
    return jax.jit(lambda rows: _measure(rows, jnp.asarray(Y)))(jnp.asarray(X))


class _Dropping(torch.nn.Module):
    """Left in training mode; its dropout must be off, and its mode as before."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
        self.linear = torch.nn.Linear(3, 1, dtype=torch.float64)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.5, -0.5, 0.25]]))
            self.linear.bias.fill_(0.25)

    def forward(self, x: Any) -> Any:
        return self.drop(self.linear(x))[:, 0]


def _dropping() -> Any:
    net = _Dropping().train()
    found = _measure(torch.from_numpy(X), torch.from_numpy(Y), net)
    return [*found, float(net.training and net.drop.training)]


def _dropping_truth() -> Any:
    truth = _truth(X, Y, lambda rows: rows @ np.array([1.5, -0.5, 0.25]) + 0.25)()
    return [*truth, 1.0]


class _Mixed(torch.nn.Module):
    """One parameter in bfloat16 that has nothing to do with the rows, others in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        self.linear = torch.nn.Linear(3, 1)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.5, -0.5, 0.25]]))
            self.linear.bias.fill_(0.25)

    def forward(self, x: Any) -> Any:
        return self.linear(x)[:, 0] * self.gate.to(x.dtype)


def _mixed() -> Any:
    return _measure(torch.from_numpy(X).float(), torch.from_numpy(Y).float(), _Mixed())


def _strictly(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: _measure(make(), strict.asarray(Y))


F = rl.functional
TABLE: dict[tuple[str, str], tuple[Callable[[], Any], Expectation]] = {
    ("permutation_importance", "JAX"): (_jax(jnp.float32), Number(_truth(X, Y), 1e-5)),
    ("permutation_importance", "JAX float16"): (
        _jax(jnp.float16),
        Number(_truth(*_narrow(jnp.float16), _in(jnp.float16)), 5e-3),
    ),
    ("permutation_importance", "JAX bfloat16"): (
        _jax(jnp.bfloat16),
        Number(_truth(*_narrow(jnp.bfloat16), _in(jnp.bfloat16)), 3e-2),
    ),
    ("permutation_importance", "JAX int32"): (
        lambda: _measure(jnp.asarray(COUNTS, dtype=jnp.int32), jnp.asarray(COUNT_LABELS, dtype=jnp.int32)),
        Number(_truth(COUNTS, COUNT_LABELS), 1e-5),
    ),
    ("permutation_importance", "JAX constant changed"): (
        _changing_constant,
        Number(_truth(X, Y, lambda rows: rows @ np.array([0.0, 2.0, 1.0])), 1e-5),
    ),
    ("permutation_importance", "JAX loss changed"): (
        _changing_loss,
        Number(lambda: 5.0 * loops.differences(Data(score, X, Y)), 1e-5),
    ),
    ("permutation_importance", "inside jit"): (_inside_jit, Refused(("functional",))),
    ("permutation_importance", "NumPy y beside JAX X"): (
        lambda: _measure(jnp.asarray(X), torch.from_numpy(Y)),
        Refused(("y", "torch")),
    ),
    ("permutation_importance", "torch module in training mode"): (_dropping, Number(_dropping_truth)),
    ("permutation_importance", "torch module of mixed dtypes"): (
        _mixed,
        Number(_truth(X, Y, lambda rows: rows @ np.array([1.5, -0.5, 0.25]) + 0.25), 1e-5),
    ),
    ("permutation_importance", "torch nested"): (
        lambda: _measure(torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]), torch.ones(2)),
        Refused(("X", "nested")),
    ),
    ("permutation_importance", "torch meta y"): (
        lambda: _measure(torch.from_numpy(X), torch.empty(N, device="meta")),
        Refused(("y", "meta")),
    ),
    ("permutation_importance", "strict"): (
        _strictly(lambda: strict.asarray(X)),
        Number(_truth(X, Y)),
    ),
    ("permutation_importance", "strict complex"): (
        _strictly(lambda: strict.asarray(X + 0j)),
        Refused(("X", "complex")),
    ),
    ("permutation_importance", "strict y on another device"): (
        lambda: _measure(strict.asarray(X), strict.asarray(Y, device=strict.Device("device1"))),
        Refused(("y", "device1")),
    ),
    ("model_reliance", "torch"): (
        lambda: rl.model_reliance(score, torch.from_numpy(X), torch.from_numpy(Y)).values,
        Number(lambda: loops.ratios(Data(score, X, Y))),
    ),
    ("model_reliance", "strict"): (
        lambda: rl.model_reliance(score, strict.asarray(X), strict.asarray(Y)).values,
        Number(lambda: loops.ratios(Data(score, X, Y))),
    ),
    ("functional.pairwise_risk", "in blocks"): (
        lambda: float(host(F.pairwise_risk(score, X, Y, (0, 2), block=5))),
        Number(lambda: loops.switched_risk(Data(score, X, Y), (0, 2))),
    ),
    ("functional.pairwise_risk", "inside jit"): (
        lambda: float(jax.jit(lambda rows: F.pairwise_risk(score, rows, jnp.asarray(Y), (0,)))(jnp.asarray(X))),
        Number(lambda: loops.switched_risk(Data(score, X, Y), (0,)), 1e-5),
    ),
    ("functional.pairwise_risk", "column outside"): (
        lambda: F.pairwise_risk(score, X, Y, (3,)),
        Refused(("columns",)),
    ),
    ("functional.pairwise_risk", "no column"): (lambda: F.pairwise_risk(score, X, Y, ()), Refused(("columns",))),
    ("functional.pairwise_risk", "column of text"): (
        lambda: F.pairwise_risk(score, X, Y, ("x0",)),
        Refused(("columns",)),
    ),
    ("functional.pairwise_risk", "block 0"): (lambda: F.pairwise_risk(score, X, Y, (0,), block=0), Refused(("block",))),
    ("functional.pairwise_moments", "mean of the rows"): (
        lambda: float(host(F.pairwise_moments(score, X, Y, (0,)).rows).mean()),
        Number(lambda: loops.switched_risk(Data(score, X, Y), (0,)) - loops.base_risk(Data(score, X, Y))),
    ),
    ("functional.pairwise_moments", "column outside"): (
        lambda: F.pairwise_moments(score, X, Y, (3,)),
        Refused(("columns",)),
    ),
    ("plans", "all permutations of a circle are all pairs"): (
        lambda: (
            rl.permutation_importance(
                score, X, Y, draws=rl.plans.Permutations(N, N - 1, lambda k: (np.arange(N) + k + 1) % N)
            ).values
        ),
        Number(lambda: loops.differences(Data(score, X, Y))),
    ),
    ("plans", "of other rows"): (
        lambda: rl.permutation_importance(score, X, Y, draws=rl.plans.Permutations(N + 1, 3, np.arange)),
        Refused(("draws", str(N + 1))),
    ),
    ("plans", "no permutation"): (
        lambda: rl.permutation_importance(
            score, X, Y, draws=rl.plans.Permutations(N, 3, lambda k: np.zeros(N, dtype=np.int64))
        ),
        Refused(("permutation",)),
    ),
    ("functional.base_risk", "loss unknown"): (lambda: F.base_risk(score, X, Y, loss="cubed"), Refused(("loss",))),
    ("functional.base_risk", "y short"): (lambda: F.base_risk(score, X, Y[:-1]), Refused(("y",))),
    ("functional.shifted_risk", "shift 0 and n"): (
        lambda: float(host(F.shifted_risk(score, X, Y, (0,), [0, N]))),
        Number(lambda: loops.base_risk(Data(score, X, Y))),
    ),
    ("functional.shifted_risk", "no shift"): (lambda: F.shifted_risk(score, X, Y, (0,), []), Refused(("shifts",))),
    ("functional.shifted_risk", "half a shift"): (
        lambda: F.shifted_risk(score, X, Y, (0,), [0.5]),
        Refused(("shifts",)),
    ),
    ("functional.switched_losses", "values of a wrong shape"): (
        lambda: F.switched_losses(score, X, Y, (0,), X[:3]),
        Refused(("values",)),
    ),
}


def _facade() -> Iterator[Case]:
    """In scikit-learn's place: its own numbers, and its own words where it refuses."""
    function = FUNCTIONS["sklearn.permutation_importance"]
    bad: dict[str, dict[str, Any]] = {
        "n_repeats 0": {"n_repeats": 0},
        "n_repeats 1.5": {"n_repeats": 1.5},
        "max_samples 0": {"max_samples": 0},
        "max_samples 2.0": {"max_samples": 2.0},
        "max_samples 0.01": {"max_samples": 0.01},
        "max_samples text": {"max_samples": "half"},
        "scoring unknown": {"scoring": "best"},
        "scoring number": {"scoring": 3},
        "random_state text": {"random_state": "seed"},
        "n_jobs text": {"n_jobs": "all"},
    }
    for odd, options in bad.items():
        yield Case(
            function.name, odd, lambda options=options: function.run(X, Y, **options), Refused((odd.split()[0],))
        )
    yield Case(
        function.name,
        "sample_weight",
        lambda: function.run(X, Y, weights=np.arange(1.0, N + 1)),
        Number(lambda: function.truth(X, Y, weights=np.arange(1.0, N + 1))),
    )


def cases() -> Iterator[Case]:
    for (function, odd), (call, expected) in TABLE.items():
        yield Case(function, odd, call, expected)
    yield from _facade()
