"""JAX: how often it compiles, what it transfers, what lowers for CUDA, strips on several devices, float32 sums."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from reliance import functional
from reliance._core import tracing

jax = pytest.importorskip("jax")
jnp = jax.numpy

N, P = 30, 20
RNG = np.random.default_rng(3)
X, Y, LABELS = RNG.normal(size=(N, P)), RNG.normal(size=N), np.arange(N) % 2
METHODS = {
    "pairs": (rl.model_reliance, {"compare": "difference", "run": rl.Run(block=(8, 7))}),
    "shifts": (rl.permutation_importance, {"draws": rl.Draws(7, design="shifts"), "run": rl.Run(block=(N, 4))}),
    "ranks": (rl.permutation_importance, {"draws": 7, "run": rl.Run(block=(N, 4))}),
    "resample": (rl.ablation_importance, {"draws": 7, "run": rl.Run(block=(N, 4))}),
    "chunks": (rl.permutation_importance, {"draws": 7, "run": rl.Run(block=(8, 4))}),
    "resample_chunks": (rl.ablation_importance, {"draws": 7, "run": rl.Run(block=(8, 4))}),
    "auc": (rl.permutation_importance, {"draws": 7, "run": rl.Run(block=(N, 4)), "loss": "auc"}),
    "mixed": (rl.permutation_importance, {"draws": 7, "run": rl.Run(block=(8, 4)), "loss": ["rmse", "squared_error"]}),
    "weights": (rl.model_reliance, {"run": rl.Run(block=50), "weights": True}),
    "metric_pairs": (rl.model_reliance, {"loss": "r2", "run": rl.Run(block=(N, 6))}),
}
COMPILATIONS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _listener():
    """JAX has no public way to remove a listener: one for all tests, it only appends."""

    def note(event, duration, **details):
        if event.endswith("backend_compile_duration"):
            COMPILATIONS.append(str(details.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(note)


def make_model(width=P, seed=0):
    """A new object each time, with nothing compiled for it."""
    w = jnp.asarray(np.random.default_rng(seed).normal(size=(width,)))
    return lambda Z: jax.nn.sigmoid(Z @ w)


def measure(name, model, **changes):
    function, settings = METHODS[name]
    chosen = settings | changes
    y = jnp.asarray(LABELS if chosen.get("loss") == "auc" else Y)
    if chosen.get("weights") is True:
        chosen["weights"] = jnp.asarray(np.abs(Y))
    return function(model, jnp.asarray(X), y, rng=5, **chosen)


# ---------------------------------------------------------------------------------------------------------------------
# Compilation


@pytest.mark.parametrize("name", METHODS)
def test_one_compilation_for_a_tile_shape(name):
    """Over 20 features, edge tiles, a second call, groups of any size and more draws."""
    tracing._programs.clear()
    model = make_model()
    measure(name, model)
    chunked = METHODS[name][1]["run"].block == (8, 4)
    # The base pass, its rows once more, and the step; a tile of several blocks has a part and a join. A narrower last
    # tile is padded.
    assert len(tracing._programs) == (4 if chunked else 3)
    COMPILATIONS.clear()
    measure(name, model)
    assert COMPILATIONS == []
    measure(name, model, features=[0, (1, 2), tuple(range(5, P))])
    assert COMPILATIONS == []
    if "draws" in METHODS[name][1]:
        measure(name, model, draws=rl.Draws(9, design="shifts") if name == "shifts" else 9)
        assert COMPILATIONS == []


def test_another_tile_shape_is_one_more():
    tracing._programs.clear()
    model = make_model()
    measure("pairs", model)
    before = len(tracing._programs)
    COMPILATIONS.clear()
    measure("pairs", model, run=rl.Run(block=(5, 6)))
    assert len(tracing._programs) - before <= 3  # the step, and the base pass and its check if their rows changed
    assert len(COMPILATIONS) <= 3


@pytest.mark.slow
def test_a_search_compiles_once_for_all_features():
    """Rounds of a differentiable class: one program finds the best model, one all ends of all features."""
    for features in ([0], [1, (0, 2), 3]):
        given = rl.DifferentiableClass(lambda p, Z: jnp.tanh(Z @ p), jnp.full(P, 0.1), radius=5.0, starts=2, steps=20)
        COMPILATIONS.clear()
        rl.model_class_reliance(given, jnp.asarray(X), jnp.asarray(Y), epsilon=0.5, features=features, rng=0)
        assert sum("ascent_round" in name for name in COMPILATIONS) == 2


def test_bound_methods_share_their_compilation():
    class Regressor:
        def __init__(self):
            self.w = jnp.asarray(RNG.normal(size=P))

        def predict(self, Z):
            return Z @ self.w

    regressor = Regressor()
    measure("pairs", regressor.predict)
    COMPILATIONS.clear()
    measure("pairs", regressor.predict)
    assert COMPILATIONS == []


@pytest.mark.parametrize("name", ["pairs", "resample", "mixed"])
def test_the_cache_does_not_keep_the_model(name):
    model = make_model()
    measure(name, model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_new_parameters_are_seen():
    """Tracing bakes arrays in: a model that was trained further must not answer with its old ones."""

    class Model:
        def __call__(self, Z):
            return Z @ self.w

    model, first, second = Model(), np.eye(P)[0], np.eye(P)[1]
    for weights in (first, second, second):
        model.w = jnp.asarray(weights)
        COMPILATIONS.clear()
        found = measure("pairs", model)
        np.testing.assert_array_equal(found.values != 0, weights != 0)
    assert COMPILATIONS == []  # nothing new the third time


def test_untraceable_models_run_eagerly():
    def model(Z):
        return jnp.asarray(np.asarray(Z)[:, 0] * 2.0)

    with pytest.warns(UserWarning, match="cannot be traced") as caught:
        found = measure("pairs", model, features=[0, 1])
    assert sum("cannot be traced" in str(w.message) for w in caught) == 1
    traced = measure("pairs", lambda Z: Z[:, 0] * 2.0, features=[0, 1])
    np.testing.assert_allclose(found.values, traced.values, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Transfers and CUDA


@pytest.fixture
def steps(monkeypatch):
    """Every compiled function with the operands of its first call; each call runs under a transfer guard."""
    found, traced = {}, tracing.traced

    def guarded(function, name, baked=None):
        function = traced(function, name, baked)

        def call(*data):
            found.setdefault(name, (jax.jit(function), data))
            with jax.transfer_guard("disallow"):
                return function(*data)

        return call

    monkeypatch.setattr(tracing, "traced", guarded)
    return found


@pytest.mark.parametrize("name, x64", [*((name, False) for name in METHODS), ("auc", True), ("resample_chunks", True)])
def test_steps_lower_for_cuda_and_transfer_nothing(steps, name, x64):
    with jax.enable_x64(x64), warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that failed under the guard would be run eagerly, with a warning
        measure(name, make_model())
        chunked = METHODS[name][1]["run"].block == (8, 4)
        blocks = {"traced_part", "traced_join"} if chunked else {"traced_step"}
        assert set(steps) == {"traced_base", "traced_probe"} | blocks
        for function, data in steps.values():
            exported = jax.export.export(function, platforms=["cuda"])(*data)
            assert exported.platforms == ("cuda",)
            assert ("float64" if x64 else "float32") in str(exported.out_avals)


def test_the_guard_has_teeth():
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        jax.jit(lambda a: a + 1)(np.ones(3))


@pytest.mark.parametrize("block", [None, 7])
def test_functional_lowers_for_cuda(block):
    def value(w, x, y):
        return functional.pairwise_risk(lambda Z: jnp.tanh(Z @ w), x, y, (0, 3), block=block)

    operands = tuple(jnp.asarray(a) for a in (X[0], X, Y))
    for function in (value, jax.grad(value)):
        jitted = jax.jit(function)
        with jax.transfer_guard("disallow"):
            jitted(*operands)
        assert jax.export.export(jitted, platforms=["cuda"])(*operands).platforms == ("cuda",)


# ---------------------------------------------------------------------------------------------------------------------
# Devices and sums

SHARDED = """
    import random
    import jax, jax.numpy as jnp, numpy as np
    from reliance.engine import blocks, executors, reductions, runners, units
    from reliance.engine.base_pass import base_pass
    from reliance import Run, plans
    from reliance.engine.problems import prepare

    n, p, devices = 33, 2, jax.devices()
    assert len(devices) == 8, devices
    rng = np.random.default_rng(0)
    host, labels, w = (rng.normal(size=size).astype("float32") for size in ((n, p), n, p))
    model = lambda Z: jnp.tanh(Z @ w)

    def opened(device, plan, block, loss):
        X, y = (jax.device_put(a, device) for a in (host, labels))
        problem = prepare(model, X, y, loss=loss, run=Run(block=block), rng=1)
        call = executors.Caller(problem.model)
        base = base_pass(problem, call)
        shape, together = blocks.planned(problem, plan, base, call, problem.features)
        return problem, base, call, blocks.make_executor(problem, plan, base, call, shape, together)

    def share(plan, shape, index):
        # An eighth of the rows of all pairs, or of the draws, along the edges of tiles.
        total, step = (n, shape[0]) if plan.rectangular else (plan.columns, shape[1])
        some = np.array_split(np.arange(0, total, step), 8)[index]
        some = range(int(some[0]), min(int(some[-1]) + step, total))
        return plans.Tile(some, range(plan.columns)) if plan.rectangular else plans.Tile(range(n), some)

    for plan, block, loss in [
        (plans.Pairs(n), (4, 11), "squared_error"),
        (plans.Resample(n, 17, 1), (20, 2), ["squared_error", "rmse"]),
    ]:
        parts, used = [], set()
        for index, device in enumerate(devices):
            problem, base, call, executor = opened(device, plan, block, loss)
            sums = executor.step if plan.rectangular else executor.join
            def noted(*arguments, sums=sums):
                packed = sums(*arguments)
                used.update(packed.devices())
                return packed
            setattr(executor, sums.__name__, noted)
            parts.append(blocks.accumulate(executor, problem.features, share(plan, block, index), lambda rows: None))
        assert used == set(devices), used
        random.Random(0).shuffle(parts)
        work = units.Work.of(problem, plan, base, call, problem.features)
        one = units.evaluate(work, runners.Serial().each(work, lambda rows: None)).moments
        for feature in problem.features:
            for index in range(len(problem.losses)):
                total = reductions.Accumulator.init(plan)
                for part in parts:
                    total.merge(part[feature.name][index])
                found, expected = total.finalize(plan), one[feature.name][index]
                for name, value in vars(expected).items():
                    if value is not None:
                        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-12)
    print("equal")
"""


@pytest.mark.slow
def test_strips_on_eight_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(rl.__file__).parents[1]), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", textwrap.dedent(SHARDED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal"


@pytest.mark.compiled_for_users
@pytest.mark.parametrize("name", ["pairs", "shifts"])
@pytest.mark.slow
def test_float32_sums_do_not_drift(name):
    """Millions of losses of one sign in float32: exact to rounding, where adding them one by one loses digits."""
    n = 3000
    host = np.random.default_rng(0).uniform(1.0, 2.0, size=(n, 1)).astype(np.float32)
    with jax.enable_x64(False):
        x, y = jnp.asarray(host), jnp.zeros(n, dtype="float32")
        model = lambda Z: Z[:, 0]  # noqa: E731
        if name == "pairs":
            found = rl.model_reliance(model, x, y, compare="difference", loss="absolute_error", keep="rows")
        else:
            shifts = rl.Draws(n - 1, design="shifts")
            found = rl.permutation_importance(model, x, y, draws=shifts, loss="absolute_error", keep="rows")
    wide = host[:, 0].astype(np.float64)
    rows = (wide.sum() - wide) / (n - 1) - wide
    np.testing.assert_allclose(found.row_values[0], rows, rtol=0, atol=3e-7)
    np.testing.assert_allclose(found.replaced_risk, wide.mean(), rtol=1e-7)
    drift = np.cumsum(np.tile(host[:, 0], 1000), dtype=np.float32)[-1] / (1000 * n) / wide.mean() - 1.0
    assert abs(drift) > 1e-5  # what adding one by one would do
