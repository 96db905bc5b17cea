"""Several devices: each has a copy of rows and model, units go to whichever is free, and sums are merged in order."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import array_api_strict as xps
import numpy as np
import pytest

import reliance as rl
from reliance.engine import units

torch = pytest.importorskip("torch")

N, P = 48, 4
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, P))
Y = X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=N)
CALLS = {
    "ranks": lambda *data, **k: rl.permutation_importance(*data, draws=9, rng=1, keep="rows", **k),
    "resampled": lambda *data, **k: rl.ablation_importance(*data, draws=6, weights=abs(data[2]) + 0.5, rng=1, **k),
    "all pairs": lambda *data, **k: rl.model_reliance(*data, route="plain", loss=["squared_error", "r2"], rng=1, **k),
    "given": lambda *data, **k: rl.relative_importance(*data, given=[1], draws=4, features=[0, 2], rng=1, **k),
    "until": lambda *data, **k: rl.permutation_importance(*data, draws=rl.Until(budget=9000), rng=1, **k),
}


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that small problems have many."""
    monkeypatch.setattr(units, "_UNIT_ROWS", 150)
    monkeypatch.setattr(units, "_LARGER", 1)
    monkeypatch.setattr(units, "_LEAST_FEATURES", 2)
    with rl.Run(block=(12, 2)):
        yield


class Net(torch.nn.Module):
    """Knows which of its copies were called, and with which parameters."""

    called: dict[int, int] = {}

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop = torch.nn.Linear(P, 5, dtype=torch.float64), torch.nn.Dropout(0.5)
        self.norm, self.last = torch.nn.BatchNorm1d(5, dtype=torch.float64), torch.nn.Linear(5, 1, dtype=torch.float64)

    def forward(self, rows: Any) -> Any:
        Net.called[id(self)] = self.first.weight.data_ptr()
        time.sleep(0.0002)  # leaves the interpreter to others
        return self.last(torch.tanh(self.norm(self.drop(self.first(rows)))))


def first(result: Any) -> Any:
    return result if hasattr(result, "values") and not callable(result.values) else next(iter(result.values()))


def assert_close(one: Any, other: Any) -> None:
    one, other = first(one), first(other)
    np.testing.assert_allclose(one.values, other.values, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.interval(), other.interval(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_copies_of_a_torch_module(name: str) -> None:
    net, data = Net(), (torch.from_numpy(X), torch.from_numpy(Y))
    wanted = CALLS[name](net, *data)
    Net.called = {}
    found = CALLS[name](net, *data, run=rl.Run(devices=["cpu", torch.device("cpu"), "cpu"]))
    assert_close(found, wanted)
    assert len(Net.called) == len(set(Net.called.values())) > 1
    assert id(net) in Net.called
    assert net.training
    assert net.drop.training


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, first: Any, second: Any) -> Any:
        return {"out": self.net(first)[:, 0] + second}


def test_several_inputs_models_in_two_outputs_and_losses_of_ones_own(tmp_path: Path) -> None:
    data, scale = (torch.from_numpy(X), torch.from_numpy(Y)), torch.tensor(2.0, dtype=torch.float64)
    run, some = rl.Run(devices=["cpu", "cpu"]), {"draws": 9, "rng": 1}
    cases = [
        (rl.models.torch(Nested(), output="out"), ((data[0], data[1]), data[1]), {}),
        (rl.models.split(Net().first, Net().last), data, {}),
        (Net(), data, {"loss": lambda y, prediction: scale * (y - prediction) ** 4}),
        (Net(), (X, Y), {}),  # goes to the module, and from there to its copies
    ]
    for model, given, more in cases:
        wanted = rl.permutation_importance(model, *given, **some, **more)
        assert_close(rl.permutation_importance(model, *given, **some, **more, run=run), wanted)
    kept = rl.Run(devices=["cpu", "cpu"], checkpoint=tmp_path)
    for _ in range(2):
        assert_close(rl.permutation_importance(Net(), *data, **some, run=kept), CALLS["ranks"](Net(), *data))


def test_what_a_thread_has_set_holds_on_all_devices() -> None:
    """Mixed precision is set for a thread: copies, and threads, must not compute in another precision."""
    net, seen = torch.nn.Linear(P, 1), set()

    def model(rows: Any) -> Any:
        answer = net(rows)
        seen.add((answer.dtype, threading.current_thread() is threading.main_thread()))
        return answer[:, 0].float()

    data = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
    with torch.autocast("cpu", torch.bfloat16):
        for run in (rl.Run(workers=2), rl.Run(devices=["cpu", "cpu"])):
            rl.permutation_importance(model, *data, draws=9, rng=1, run=run)
    assert {dtype for dtype, _ in seen} == {torch.bfloat16}
    assert {main for _, main in seen} == {True, False}


def test_devices_of_array_api_strict() -> None:
    """Which refuses to mix devices: everything that a unit needs is where it is done."""
    here, there = (xps.Device(name) for name in ("device1", "device2"))
    data = [xps.asarray(a, device=here) for a in (X, Y)]
    slopes, calls = xps.asarray([1.0, 2.0, 0.5, 0.0], device=here), []
    SEEN.append(calls)

    def model(rows: Any) -> Any:
        return noting(rows) + rows @ slopes

    def call(**k: Any) -> Any:
        return rl.permutation_importance(model, *data, draws=3, rng=1, **k)

    assert_close(call(run=rl.Run(devices=[here, "device2"])), call())
    assert set(calls) == {here, there}


SEEN: list[list[Any]] = []


def noting(rows: Any) -> Any:
    """Found by its name, so that copies of it are itself."""
    SEEN[-1].append(rows.device)
    time.sleep(0.001)
    return rows[:, 0] * rows[:, 1]


SLOPES = xps.asarray([1.0, 2.0, 0.5, 0.0], device=xps.Device("device1"))


def of_a_global(rows: Any) -> Any:
    return rows @ SLOPES


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, rows: Any) -> Any:
        return rows[:, 0]


def failing(rows: Any) -> Any:
    time.sleep(0.001)
    if not np.isin(rows.numpy()[:, 0], X[:, 0]).all() or not np.isin(rows[:, 0] * rows[:, 1], X[:, 0] * X[:, 1]).all():
        raise KeyError("no such row")
    return rows[:, 0]


def test_what_cannot_be_copied_is_said() -> None:
    strict = [xps.asarray(a, device=xps.Device("device1")) for a in (X, Y)]
    tensors, options = (torch.from_numpy(X), torch.from_numpy(Y)), {"draws": 9, "rng": 1}
    with pytest.raises(TypeError, match=r"a copy of it on .*device2.* does not .*pass the module itself"):
        rl.permutation_importance(of_a_global, *strict, **options, run=rl.Run(devices=["device1", "device2"]))
    run = rl.Run(devices=["cpu", "cpu"])
    with pytest.raises(TypeError, match=r"model \(Locked\) cannot be copied to cpu .*lock.*rl.models.torch"):
        rl.permutation_importance(Locked(), *tensors, **options, run=run)
    with pytest.raises(KeyError, match="no such row"):  # the model's own, whichever copy makes it
        rl.permutation_importance(failing, *tensors, **options, run=run)


def test_what_devices_are_not_for() -> None:
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (["cpu", "cpu"], (X, Y), r"X is NumPy, which has no devices: .*workers=4"),
        (["cpu", "meta"], tensors, "are of several kinds, which round differently"),
        (["meta", "meta"], tensors, r"but X is on cpu: pass X, y and the model on one of these devices"),
        (["cpu", "moon"], tensors, "'moon' is no device of torch, like cpu, where X is"),
        (["cpu", "cuda"], tensors, "'cuda' may be any of them: pass their numbers"),
        ([xps.Device("device1")], tensors, "is no device of torch"),
    ]
    for named, data, words in cases:
        with pytest.raises((TypeError, ValueError), match=words):
            rl.permutation_importance(lambda rows: rows[:, 0], *data, run=rl.Run(devices=named))
    with pytest.raises(ValueError, match=r"run has devices=, but a layer is measured where its module is"):
        rl.permutation_importance(rl.models.torch(Net(), layer="norm"), *tensors, run=rl.Run(devices=["cpu", "cpu"]))
    for given in ("cuda:0", [], 3):
        with pytest.raises(TypeError, match=r"devices=.*: pass a list such as \['cuda:0', 'cuda:1'\]"):
            rl.Run(devices=given)
    with pytest.raises(ValueError, match=r"run has devices= and workers=2, which both say where"):
        rl.Run(devices=["cpu"], workers=2)
    with pytest.raises(ValueError, match=r"run has devices=, but a class of models is searched where X is"):
        rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, run=rl.Run(devices=["cpu"]))


def test_rows_that_are_read_in_blocks_go_to_one_device(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = X
        with pytest.raises(ValueError, match=r"run has devices=, but X is read in blocks, by one reader"):
            rl.permutation_importance(lambda rows: rows[:, 0], file["X"], Y, run=rl.Run(devices=["cpu", "cpu"]))


JAX = """
    import jax, jax.numpy as jnp, numpy as np
    import reliance as rl
    from jax.sharding import Mesh
    from reliance._core import devices as placing
    from reliance.engine import units

    units._UNIT_ROWS, units._LARGER, units._LEAST_FEATURES = 150, 1, 2
    devices, used = jax.devices(), set()
    assert len(devices) == 8
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 3)).astype("f")
    data = [jax.device_put(a, devices[0]) for a in (X, X[:, 0] * X[:, 1])]
    weight = jax.device_put(np.asarray([1.0, 2.0, 0.0], dtype="f"), devices[0])
    entered = placing.on_device
    placing.on_device = lambda xp, dev: used.add(dev) or entered(xp, dev)
    traced, params = lambda x: jnp.tanh(x @ weight), rl.models.jax(lambda w, x: jnp.tanh(x @ w), weight)
    eager = lambda x: traced(x) if float(x[0, 0]) < 99 else x[:, 0]
    mesh = Mesh(np.array(devices), ("rows",))
    for call, several in (
        (lambda **k: rl.permutation_importance(traced, *data, draws=9, rng=0, **k), mesh),
        (lambda **k: rl.model_reliance(params, *data, route="plain", **k), mesh),
        (lambda **k: rl.relative_importance(params, *data, given=[1], draws=8, rng=0, **k), devices[:2]),
        (lambda **k: rl.permutation_importance(eager, *data, draws=9, features=[0], rng=0, **k), devices[:2]),
    ):
        used.clear()
        with rl.Run(block=(12, 2)):
            one, other = call(), call(run=rl.Run(devices=several))
        np.testing.assert_allclose(other.values, one.values, rtol=1e-5, atol=1e-7)
        assert (one.values == 0.0).tolist() == (other.values == 0.0).tolist()
        assert used == set(several.devices.flat if several is mesh else several)
    with jax.enable_x64(True):
        wide = [jax.device_put(np.asarray(a, dtype=np.float64), devices[1]) for a in data]
        with rl.Run(block=(12, 2)):
            call = lambda **k: rl.ablation_importance(lambda x: x[:, 0], *wide, draws=4, rng=0, **k)
            np.testing.assert_allclose(call(run=rl.Run(devices=devices[:2])).values, call().values, rtol=1e-13)
"""


@pytest.mark.slow
def test_eight_devices_of_jax() -> None:
    pytest.importorskip("jax")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(Path(rl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    code = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(JAX)]
    done = subprocess.run(code, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
