"""Rows on the host, the model on a device: blocks go there, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from reliance._core import arrays
from reliance.models import placing

N, P = 200, 4
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, P)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2).astype(np.float32)
CALLS = {
    "ranks": lambda *data, **more: rl.permutation_importance(*data, draws=4, rng=0, **more),
    "resample": lambda *data, **more: rl.ablation_importance(*data, draws=3, rng=0, **more),
    "all pairs": lambda *data, **more: rl.model_reliance(*data, route="plain", **more),
}

# JAX compiles every operation for every shape.
MARKS = {"ranks": pytest.mark.slow, "resample": pytest.mark.slow}


def network():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(P, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_torch_gives_what_rows_on_its_device_give(call):
    torch = pytest.importorskip("torch")
    model, tensors = network(), (torch.from_numpy(X), torch.from_numpy(Y))
    wanted = call(model, *tensors).values
    for data in ((X, Y), (X.astype(np.float64), Y), (torch.from_numpy(X), torch.from_numpy(Y))):
        np.testing.assert_array_equal(call(model, *data, run=rl.Run(device="cpu")).values, wanted)
    with rl.Run(device=torch.device("cpu")):
        np.testing.assert_array_equal(call(lambda x: model(x)[:, 0], X, Y).values, wanted)


@pytest.mark.parametrize("call", [pytest.param(CALLS[name], id=name, marks=MARKS.get(name, ())) for name in CALLS])
@pytest.mark.slow
def test_jax_gives_what_rows_on_its_device_give(call):
    jax = pytest.importorskip("jax")
    jnp, run = jax.numpy, rl.Run(device=jax.devices()[0])

    def model(x):
        assert isinstance(x, jax.Array)
        return jnp.tanh(x[:, 0]) + x[:, 1] * x[:, 2]

    wanted = call(model, jnp.asarray(X), jnp.asarray(Y))
    found = call(model, X, Y, run=run)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-5, atol=1e-6)
    assert found.values[3] == wanted.values[3]  # not used


def test_rows_that_a_device_cannot_hold_go_in_blocks_unasked(monkeypatch):
    torch, kinds = pytest.importorskip("torch"), []
    found = placing.in_blocks
    monkeypatch.setattr(placing, "in_blocks", lambda *given: kinds.append(found(*given)) or kinds[-1])
    wanted = rl.permutation_importance(network(), torch.from_numpy(X), torch.from_numpy(Y), rng=0).values
    for size, streams in ((4 * X.nbytes, False), (4 * X.nbytes - 4, True)):
        monkeypatch.setattr(arrays, "device_bytes", lambda xp, dev, size=size: size)
        np.testing.assert_array_equal(rl.permutation_importance(network(), X, Y, rng=0).values, wanted)
        assert (kinds[-1] is not None) == streams


def test_what_a_device_is_not_for():
    cases = [
        ("meta", (network(), X, Y), r"run has device='meta' but the model's parameters are on cpu"),
        ("moon", (network(), X, Y), r"device='moon' is no device: pass text such as 'cuda:0'"),
        ("cpu", (lambda a, b: a[:, 0], (X, X), Y), "several inputs go to the model's device at once"),
        ("cpu", (rl.models.torch(network(), layer="0"), X, Y), "what is inside of a model is held for all rows"),
    ]
    for device, given, words in cases:
        with pytest.raises(ValueError, match=words):
            rl.permutation_importance(*given, run=rl.Run(device=device))
    with pytest.raises(ValueError, match=r"run has device='cpu': pass X on that device"):
        rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, run=rl.Run(device="cpu"))
    with pytest.raises(TypeError, match="needs all of X at once, and X is a host array for a device"):
        rl.conditional_model_reliance(network(), X, Y, run=rl.Run(device="cpu"))


SHARDED = """
    import jax, jax.numpy as jnp, numpy as np
    import reliance as rl
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    assert len(devices) == 8
    rows = NamedSharding(Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 3)).astype("f")
    X[:, 1] = rng.integers(0, 3, 48)
    y = (X[:, 0] * X[:, 1]).astype("f")

    def model(x):
        return jnp.tanh(x[:, 0] * x[:, 1])

    whole, parts = [jnp.asarray(a) for a in (X, y)], [jax.device_put(a, rows) for a in (X, y)]
    for call in (
        lambda *d: rl.permutation_importance(model, *d, draws=4, rng=0),
        lambda *d: rl.permutation_importance(model, *d, draws=rl.Draws(3, design="shifts"), rng=0, run=rl.Run(block=9)),
        lambda *d: rl.model_reliance(model, *d),
        lambda *d: rl.ablation_importance(model, *d, draws=3, rng=0, weights=abs(d[1]) + 1),
        lambda *d: rl.feature_impact(model, d[0], quantiles=3),
        lambda *d: rl.local_importance(model, *d, rows=[1, 40]),
        lambda *d: rl.conditional_model_reliance(model, *d, rng=0),
    ):
        one, several = call(*whole).values, call(*parts).values
        np.testing.assert_allclose(several, one, rtol=2e-4, atol=1e-5)
    assert parts[0].sharding.is_equivalent_to(rows, 2)
"""


@pytest.mark.slow
def test_rows_of_jax_in_parts_on_eight_devices():
    pytest.importorskip("jax")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(Path(rl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    code = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SHARDED)]
    done = subprocess.run(code, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
