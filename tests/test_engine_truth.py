"""Rounding, noise, memory that is used again, and input that is written to: the engine's numbers are the model's."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import reliance as rl
from reliance.engine import rounding

N = 40


def data(seed: int = 0, n: int = N, p: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, p))


def all_pairs(predict, X, y, column: int) -> float:
    """Mean over i != k of the squared error of row i with row k's value, less that of the row itself: a double loop."""
    n, found = len(X), 0.0
    for i in range(n):
        for k in range(n):
            if i != k:
                row = X[i].copy()
                row[column] = X[k, column]
                found += (y[i] - predict(row[None, :])[0]) ** 2 - (y[i] - predict(X[i : i + 1])[0]) ** 2
    return found / (n * (n - 1))


def reliance(model, X, y, **settings):
    return rl.model_reliance(model, X, y, compare="difference", route="plain", **settings)


# ---------------------------------------------------------------------------------------------------------------------
# Rounding


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_outputs_far_from_zero_keep_their_features(dtype):
    torch = pytest.importorskip("torch")
    X = data()
    y = X[:, 0] + 100.0
    layer = torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight[...] = torch.tensor([[1.0, 0.0, 0.0]])
        layer.bias[...] = 100.0

    def low(Z):
        with torch.autocast("cpu", dtype=getattr(torch, dtype)):
            return layer(Z)

    found = reliance(low, torch.from_numpy(np.float32(X)), torch.from_numpy(np.float32(y)))
    truth = all_pairs(lambda Z: Z[:, 0] + 100.0, X, y, 0)
    # A number is known to half a unit: 0.25 at 100 in bfloat16.
    assert found.values[0] == pytest.approx(truth, rel=0.1 if dtype == "bfloat16" else 0.01)
    assert found.test(adjust="none").p_value[0] < 0.05
    assert found.values[1:].tolist() == [0.0, 0.0]
    assert found.test(adjust="none").p_value[1:].tolist() == [1.0, 1.0]


def test_jax_16_bit_outputs_keep_their_features():
    jnp = pytest.importorskip("jax.numpy")
    X = data()
    y = X[:, 0] + 100.0
    found = reliance(lambda Z: (Z[:, 0] + 100.0).astype(jnp.bfloat16), jnp.asarray(X), jnp.asarray(y))
    assert found.values[0] == pytest.approx(all_pairs(lambda Z: Z[:, 0] + 100.0, X, y, 0), rel=0.1)
    assert found.values[1:].tolist() == [0.0, 0.0]


def second(y, predictions):
    return (y - predictions[:, 1]) ** 2


@pytest.mark.parametrize("method", ["all", "draws", "stacked"])
def test_each_output_has_its_own_rounding(backend, method):
    """The loss is about the second output, whose size is 1; the first one is 1e6."""
    X = data(n=20)
    y = 1 / (1 + np.exp(-X[:, 1]))

    def model(Z):
        xp = backend.xp
        return xp.stack([1e6 + 1e3 * Z[:, 0], 1 / (1 + xp.exp(-Z[:, 1]))], axis=1)

    arrays = backend.asarray(X), backend.asarray(y)
    truth = all_pairs(lambda Z: 1 / (1 + np.exp(-Z[:, 1])), X, y, 1)
    if method == "stacked":
        listed = rl.FiniteClass({"a": model, "b": lambda Z: model(Z)}, loss=second)
        values = rl.model_class_reliance(listed, *arrays, epsilon=1.0, compare="difference").upper
    elif method == "all":
        values = reliance(model, *arrays, loss=second).values
    else:
        values = rl.permutation_importance(model, *arrays, loss=second, draws=20, rng=0).values
    assert values[1] == pytest.approx(truth, rel=1e-4)
    assert values[[0, 2]].tolist() == [0.0, 0.0]


def test_float32_far_from_zero(backend):
    """x from 0 to 1 moves 1e6 + x by 16 of its last places."""
    X = np.random.default_rng(0).uniform(size=(N, 2))
    found = reliance(lambda Z: 1e6 + Z[:, 0], backend.asarray(X), backend.asarray(X[:, 0] + 1e6))
    assert found.values[0] == pytest.approx(all_pairs(lambda Z: Z[:, 0], X, X[:, 0], 0), rel=0.1)
    assert found.values[1] == 0.0


@pytest.mark.paired("n", "wide", one_in=2)
@pytest.mark.parametrize("n", [7, 50, 333])
@pytest.mark.parametrize("wide", [False, True])
def test_a_column_that_a_network_ignores_is_unused(backend, n, wide):
    rng = np.random.default_rng(n)
    h = 128 if wide else 16
    weights = [backend.asarray(rng.normal(size=s) / np.sqrt(s[0])) for s in ((6, h), (h, h), (h, 3))]
    first = rng.normal(size=(6, h))
    first[4] = 0.0
    weights[0] = backend.asarray(first)
    xp = backend.xp

    def model(Z):
        for w in weights[:-1]:
            Z = xp.tanh(Z @ w)
        return Z @ weights[-1]

    X = data(n, n, 6)
    y = rng.normal(size=(n, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rl.permutation_importance(model, backend.asarray(X), backend.asarray(y), draws=3, rng=0)
    assert found.values[4] == 0.0
    assert found.test(adjust="none").p_value[4] == 1.0
    assert np.all(found.values[[0, 1, 2, 3, 5]] != 0.0)


def test_outputs_that_are_mostly_zero():
    X = data(n=60)

    def model(Z):
        return np.maximum(Z[:, 0] - 1.0, 0.0)

    y = model(X)
    found = reliance(model, X, y)
    assert found.values[0] == pytest.approx(all_pairs(model, X, y, 0), rel=1e-10)
    assert found.values[1:].tolist() == [0.0, 0.0]


# ---------------------------------------------------------------------------------------------------------------------
# Models that are random, or look at their batch


def noise(Z):
    return Z[:, 0] + 0.05 * np.random.default_rng().normal(size=len(Z))


def centred(Z):
    return Z[:, 0] - 0.5 * Z.mean(axis=0)[0]


def labels(Z):
    return (Z[:, 0] + np.random.default_rng().normal(size=len(Z)) > 0).astype(np.int64)


@pytest.mark.parametrize("model", [noise, centred, labels])
@pytest.mark.parametrize("n", [3, 40, 200])
def test_noise_is_noticed(model, n):
    X = data(n=n)
    loss = "zero_one" if model is labels else "squared_error"
    if model is labels and n == 3:
        pytest.skip("three labels may be the same twice")
    with pytest.warns(
        UserWarning, match=rf"model {model.__name__} predicts the same rows differently in another batch"
    ):
        rl.permutation_importance(model, X, labels(X) if model is labels else X[:, 0], loss=loss, draws=3, rng=0)


def test_dropout_in_a_closure_is_noticed():
    torch = pytest.importorskip("torch")
    X = torch.from_numpy(np.float32(data()))
    with pytest.warns(UserWarning, match="dropout"):
        reliance(lambda Z: torch.nn.functional.dropout(Z[:, 0], 0.2), X, X[:, 0])


def test_batch_statistics_are_noticed_on_every_backend(backend):
    X = data()
    with pytest.warns(UserWarning, match="other rows of its batch"):
        reliance(lambda Z: Z[:, 0] - backend.xp.mean(Z[:, 0]), backend.asarray(X), backend.asarray(X[:, 0]))


def test_a_deterministic_model_is_not_suspected():
    """Also one that computes in float32 and returns float64, or in bfloat16 and returns float32."""
    torch = pytest.importorskip("torch")
    X = data(n=100, p=8)
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).requires_grad_(False)

    def single(Z):
        return net(torch.from_numpy(np.float32(Z))).numpy()[:, 0].astype(np.float64)

    def half(Z):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(torch.from_numpy(np.float32(Z))).float().numpy()[:, 0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (single, half):
            assert np.all(rl.permutation_importance(model, X, X[:, 0], draws=3, rng=0).values != 0.0)


@pytest.mark.parametrize("n, most", [(1, 1), (1, 99), (2, 3), (7, 16384), (64, 16384), (5000, 16384), (5000, 2)])
def test_the_probe(n, most):
    rows, batch = rounding.probe(n, most)
    assert len(batch) <= min(most, 127)
    assert np.array_equal(batch[len(batch) - len(rows) :], rows)
    assert set(batch) <= set(range(n))
    assert len(set(rows.tolist())) == len(rows) == min(n, 64, (most + 1) // 2)


# ---------------------------------------------------------------------------------------------------------------------
# Memory that a model uses again


class Reused:
    """Answers in the same memory each time."""

    def __init__(self, like, columns: int | None = None) -> None:
        self.memory = like(20_000) if columns is None else like((20_000, columns))

    def __call__(self, Z):
        answer = self.memory[: len(Z)]
        answer[...] = Z[:, 0] + 2.0 * Z[:, 1] * Z[:, 2]
        return answer


@pytest.mark.parametrize("loss", ["squared_error", "rmse"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_answers_in_memory_that_is_used_again(kind, loss):
    """More rows than one call has: parts of the base pass, of tiles and of whole-set metrics wait for each other."""
    X = data(n=700)
    y = X[:, 0] + 2.0 * X[:, 1] * X[:, 2]
    settings = {"loss": loss, "draws": 3, "rng": 0}
    expected = rl.permutation_importance(lambda Z: Z[:, 0] + 2.0 * Z[:, 1] * Z[:, 2], X, y, **settings)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        X, y, model = torch.from_numpy(X), torch.from_numpy(y), Reused(lambda n: torch.empty(n, dtype=torch.float64))
    else:
        model = Reused(np.empty)
    for run in (rl.Run(memory="1MB"), rl.Run(memory="1MB", block=100)):
        found = rl.permutation_importance(model, X, y, **settings, run=run)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-10)


def test_models_that_share_memory_are_told_apart():
    X = data(n=20)
    memory = np.empty(20_000)

    def answering(formula):
        def model(Z):
            memory[: len(Z)] = formula(Z)
            return memory[: len(Z)]

        return model

    formulas = {"a": lambda Z: Z[:, 0], "b": lambda Z: Z[:, 0] + Z[:, 1]}
    y = X[:, 0] + X[:, 2]
    found = rl.model_class_reliance(
        rl.FiniteClass({name: answering(f) for name, f in formulas.items()}), X, y, epsilon=10.0, compare="difference"
    )
    expected = [[all_pairs(f, X, y, j) for f in formulas.values()] for j in range(3)]
    np.testing.assert_allclose(found.lower, np.min(expected, axis=1), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(found.upper, np.max(expected, axis=1), rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Input that is written to


def writer(seen, column: int, when: str):
    """Changes a column of rows that are not rows of X (``seen``), and computes as it would have without."""

    def model(Z):
        answer = Z[:, 0] * Z[:, 1] + Z[:, 2]
        replaced = np.array([tuple(row) not in seen for row in np.asarray(Z).tolist()])
        if when == "first":
            replaced = replaced & (np.cumsum(replaced) == 1)
        if replaced.any():
            Z[int(np.flatnonzero(replaced)[-1]), column] = 5.0
        return answer

    return model


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["pairs", "draws", "blocks", "together"])
def test_writing_into_replaced_rows_is_refused(kind, column, method):
    """Features may share a block: the writer then changes a row of each call, in a column that is not replaced."""
    X = data(n=12)
    y = X[:, 2]
    model = writer(
        {tuple(row) for row in X.tolist()}, column, "last" if method == "together" and not column else "first"
    )
    run = {"pairs": rl.Run(block=(12, 12)), "draws": rl.Run(block=(12, 3)), "blocks": rl.Run(block=(5, 3))}.get(method)

    def measured(model, *arrays):
        if method == "draws":
            return rl.permutation_importance(model, *arrays, draws=3, rng=0, run=run).values
        return reliance(model, *arrays, run=run).values

    arrays = X, y
    if kind == "torch":
        torch = pytest.importorskip("torch")
        arrays = torch.from_numpy(X), torch.from_numpy(y)
    with pytest.raises(ValueError, match=r"model writer.*changes its input"):
        measured(model, *arrays)


def test_writing_is_found_without_a_synchronisation():
    """array-api-strict refuses to look at an array on its device."""
    xp = pytest.importorskip("array_api_strict")
    X = data(n=8)
    dev = xp.Device("device1")
    calls = []

    def model(Z):
        calls.append(1)
        answer = Z[:, 0] + Z[:, 1]
        if len(calls) == 3:  # after the base pass and the rows that are predicted again
            Z[0, 2] = 9.0
        return answer

    with pytest.raises(ValueError, match="changes its input"):
        reliance(model, xp.asarray(X, device=dev), xp.asarray(X[:, 0], device=dev))


def test_nan_is_not_a_change():
    X = data()
    X[3, 2] = np.nan
    with pytest.warns(UserWarning, match="X holds NaN"):
        found = reliance(lambda Z: Z[:, 0], X, X[:, 1], run=rl.Run(block=(7, 5)))
    assert found.values[0] == pytest.approx(all_pairs(lambda Z: Z[:, 0], X, X[:, 1], 0))


def test_activations_in_place_behind_a_first_layer():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 1)).double()
    X, y = torch.from_numpy(data()), torch.from_numpy(data()[:, 0])
    plain = reliance(net, X, y)
    behind = rl.model_reliance(net, X, y, compare="difference", route="first_layer")
    np.testing.assert_allclose(behind.values, plain.values, rtol=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Tuned blocks


def test_tuning_times_the_compiled_model():
    jax = pytest.importorskip("jax")
    traced = []

    def model(Z):
        traced.append(isinstance(Z, jax.core.Tracer))
        return jax.numpy.tanh(Z[:, 0] * Z[:, 1])

    X = jax.numpy.asarray(data())
    found = reliance(model, X, X[:, 0], run=rl.Run(block="tune"))
    assert all(traced)
    np.testing.assert_allclose(found.values, reliance(model, X, X[:, 0]).values, rtol=1e-4, atol=1e-6)


def test_tuning_behind_a_first_layer(backend):
    X = data()
    W = backend.asarray(data(1, 3, 5))
    xp = backend.xp
    model = rl.models.FirstLayer(W, 0.0, lambda H: xp.sum(xp.tanh(H), axis=1))
    arrays = backend.asarray(X), backend.asarray(X[:, 0])
    tuned, plain = (
        rl.model_reliance(model, *arrays, compare="difference", route="first_layer", run=rl.Run(block=block))
        for block in ("tune", None)
    )
    backend.assert_close(tuned.values, plain.values)


def test_tuning_out_of_bag():
    ensemble = pytest.importorskip("sklearn.ensemble")
    from sklearn.linear_model import Ridge

    X = data(n=60)
    y = X[:, 0] + 0.1 * X[:, 1]
    for model in (
        ensemble.RandomForestRegressor(5, random_state=0),
        ensemble.BaggingRegressor(Ridge(), random_state=0),
    ):
        model.fit(X, y)
        tuned, plain = (
            rl.out_of_bag_importance(model, X, y, rng=0, run=rl.Run(block=block)) for block in ("tune", None)
        )
        np.testing.assert_allclose(tuned.values, plain.values, rtol=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Crashes and words


def test_numpy_may_raise_on_everything():
    X = data(n=30)
    y = (X[:, 0] > 0).astype(np.int64)

    def model(Z):
        first = 1.0 / (1.0 + np.exp(-3.0 * Z[:, 0]))
        return np.stack([1.0 - first, first, np.zeros(len(Z))], axis=1)

    found = {}
    for mode in ("ignore", "raise"):
        with np.errstate(all=mode):
            found[mode] = reliance(model, X, y, loss="cross_entropy").values
            big = np.where(X > 0, X * 1e-300, X * 1e200)
            rl.permutation_importance(lambda Z: np.clip(Z[:, 0], -1, 1), big, X[:, 1], draws=3, rng=0)
    np.testing.assert_array_equal(found["ignore"], found["raise"])


def test_memory_that_does_not_hold_what_n_rows_need():
    X = data(n=2000)
    with pytest.raises(ValueError, match=r"memory=20000 bytes is too small: sums, losses and predictions of 2000 rows"):
        reliance(lambda Z: Z[:, 0], X, X[:, 1], run=rl.Run(memory=20_000))
    with pytest.raises(ValueError, match=r"memory=50 bytes is too small for one row"):
        reliance(lambda Z: Z[:, 0], X, X[:, 1], run=rl.Run(memory=50))


SHARDED = """
    import jax, jax.numpy as jnp, numpy as np
    import reliance as rl
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    assert len(jax.devices()) == 4
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 3)).astype("f"), rng.normal(size=24).astype("f")
    model = lambda Z: jnp.tanh(Z[:, 0] * Z[:, 1])
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    sharded = jax.device_put(X, rows), jax.device_put(y, rows)
    for function, settings in (
        (rl.model_reliance, dict(compare="difference")),
        (rl.permutation_importance, dict(draws=3, rng=0)),
        (rl.permutation_importance, dict(draws=3, rng=0, loss="rmse", run=rl.Run(block=7))),
        (rl.permutation_importance, dict(draws=3, rng=0, weights=True)),
    ):
        found = []
        for data in ((jnp.asarray(X), jnp.asarray(y)), sharded):
            weights = {"weights": abs(data[1])} if settings.get("weights") else {}
            found.append(function(model, *data, **settings | weights).values)
        np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)
        assert found[0][2] == found[1][2] == 0.0
"""


@pytest.mark.slow
def test_rows_of_jax_on_several_devices():
    pytest.importorskip("jax")
    import os

    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
