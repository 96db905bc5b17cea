"""JAX compiles what it traced: values that changed since must be seen, and what is kept must not grow without end."""

from __future__ import annotations

import functools
import gc
import weakref

import numpy as np
import pytest

import reliance as rl
from reliance._core import tracing

jax = pytest.importorskip("jax")
jnp = jax.numpy

N, P = 12, 3
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, P)).astype(np.float32)
Y = RNG.normal(size=N).astype(np.float32)
FIRST, SECOND = np.float32([1, 0, 2]), np.float32([0, 3, 1])


def squared(y, prediction):
    return (y - prediction) ** 2


def double_loop(predict, loss=squared, n=N):
    """Base risk, and the risk of all pairs for each feature, one row after the other in plain NumPy."""
    base = np.mean(loss(Y[:n], predict(X[:n])))
    risks = np.zeros(P)
    for j in range(P):
        total = 0.0
        for i in range(n):
            rows = np.repeat(X[i : i + 1], n - 1, axis=0)
            rows[:, j] = [X[k, j] for k in range(n) if k != i]
            total += float(np.sum(loss(np.repeat(Y[i : i + 1], n - 1), predict(rows))))
        risks[j] = total / (n * (n - 1))
    return float(base), risks


def check(model, weights, loss="squared_error", oracle=squared, rows=N):
    x, y = jnp.asarray(X[:rows]), jnp.asarray(Y[:rows])
    found = rl.model_reliance(model, x, y, loss=loss, compare="difference", run=rl.Run(block=(5, 4)))
    base, risks = double_loop(lambda Z: Z @ weights, oracle, rows)
    np.testing.assert_allclose(found.base_risk, base, rtol=1e-5)
    np.testing.assert_allclose(found.replaced_risk, risks, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Models whose values change: each is made once, `write` gives it other weights


class Written:
    """NumPy memory that is written in place."""

    def __init__(self):
        self.w = np.zeros(P, dtype=np.float32)

    def write(self, weights):
        self.w[:] = weights

    def __call__(self, Z):
        return Z @ jnp.asarray(self.w)


class ReadLate(Written):
    """Used as it is, without a copy to JAX."""

    def __call__(self, Z):
        return jnp.dot(Z, self.w)


class Replaced:
    """An attribute that is another array."""

    def write(self, weights):
        self.w = jnp.asarray(weights)

    def __call__(self, Z):
        return Z @ self.w


class InnerJit(Replaced):
    def __call__(self, Z):
        return jax.jit(lambda z: z @ self.w)(Z)


class InnerJitOfNumPy(Written):
    def __call__(self, Z):
        return jax.jit(lambda z: jnp.dot(z, self.w))(Z)


class LastingJit(Replaced):
    """JAX remembers its trace for each shape, and uses the old weights for those it has seen."""

    def __init__(self):
        self.product = jax.jit(lambda z: z @ self.w)

    def __call__(self, Z):
        return self.product(Z)


class LastingJitOfScalars:
    def __init__(self):
        self.product = jax.jit(lambda z: self.w[0] * z[:, 0] + self.w[1] * z[:, 1] + self.w[2] * z[:, 2])

    def write(self, weights):
        self.w = [float(w) for w in weights]

    def __call__(self, Z):
        return jnp.where(jnp.ones(Z.shape[0]) > 0, self.product(Z), 0.0)


class TwiceNested(Replaced):
    def __call__(self, Z):
        return jax.jit(lambda z: jax.jit(lambda v: v @ self.w)(z))(Z)


class Scanned(Replaced):
    def __call__(self, Z):
        return jax.lax.map(lambda z: z @ self.w, Z)


class Checkpointed(Replaced):
    def __call__(self, Z):
        return jax.checkpoint(lambda z: jax.jit(lambda v: v @ self.w)(z))(Z)


class CustomDerivative(Replaced):
    def __call__(self, Z):
        @jax.custom_jvp
        def product(z):
            return jax.jit(lambda v: v @ self.w)(z)

        product.defjvp(lambda primals, tangents: (product(*primals), tangents[0] @ self.w))
        return product(Z)


class Branched(Replaced):
    def __call__(self, Z):
        return jax.lax.cond(Z[0, 0] == Z[0, 0], lambda z: jax.jit(lambda v: v @ self.w)(z), lambda z: z[:, 0], Z)


class Scalars:
    """Numbers that are written into the operations themselves."""

    def write(self, weights):
        self.w = [float(w) for w in weights]

    def __call__(self, Z):
        a, b, c = self.w
        return jax.jit(lambda z: a * z[:, 0] + b * z[:, 1])(Z) + c * Z[:, 2]


class OnTheHost(Replaced):
    def __call__(self, Z):
        host = functools.partial(lambda w, z: np.asarray(z) @ np.asarray(w), np.asarray(self.w))
        return jax.pure_callback(host, jax.ShapeDtypeStruct(Z.shape[:1], Z.dtype), Z)


# Each is compiled several times.
MODELS = [
    Written,
    InnerJit,
    Scanned,
    Scalars,
    *(
        pytest.param(model, marks=pytest.mark.slow)
        for model in (
            ReadLate,
            Replaced,
            InnerJitOfNumPy,
            TwiceNested,
            Checkpointed,
            CustomDerivative,
            Branched,
            OnTheHost,
        )
    ),
]


@pytest.mark.parametrize("make", MODELS)
def test_other_weights_are_seen(make):
    model = make()
    for weights, rows in ((FIRST, N), (SECOND, N), (FIRST, N - 1)):  # the base pass has another shape, the tile has not
        model.write(weights)
        check(model, weights, rows=rows)


@pytest.mark.parametrize("make", [LastingJit, LastingJitOfScalars])
def test_a_lasting_jit_is_one_function(make):
    """The tile was traced with the old weights, the base pass, of another number of rows, was not: never mixed."""
    model = make()
    model.write(FIRST)
    check(model, FIRST)
    model.write(SECOND)
    check(model, SECOND, rows=N - 1)


@pytest.mark.parametrize("make", [LastingJit, LastingJitOfScalars])
def test_a_lasting_jit_whose_first_trace_is_the_old_one(make):
    model = make()
    model.write(FIRST)
    model(jnp.ones((2, P)))
    model.write(SECOND)
    run = tracing.traced(model, "run")
    np.testing.assert_allclose(run(jnp.ones((2, P))), FIRST.sum() * np.ones(2))  # as JAX answers by itself
    with pytest.raises(tracing.StaleError, match=r"changed after JAX traced it.*clear_cache\(\)") as caught:
        run(jnp.ones((3, P)))
    assert len(str(caught.value)) <= 300


@pytest.mark.slow
def test_layers_that_one_line_makes():
    """Several functions of one place in the code, whose weights differ, are no contradiction."""
    weights = [jnp.eye(P), 2.0 * jnp.eye(P), jnp.diag(jnp.asarray(SECOND))]
    layers = [jax.jit(lambda z, w=w: z @ w) for w in weights] + [jax.jit(lambda z, k=k: z * k) for k in (2.0, 3.0)]

    def model(Z):
        for layer in layers:
            Z = layer(Z)
        return jnp.sum(Z, axis=1)

    for rows in (N, N - 1):
        check(model, 12.0 * SECOND, rows=rows)


@pytest.mark.parametrize("make", [Written, InnerJit, Scalars])
def test_other_weights_behind_a_function(make):
    model = make()
    for call in (lambda Z: model(Z), functools.partial(lambda m, Z: m(Z), model), model.__call__):
        for weights in (FIRST, SECOND):
            model.write(weights)
            check(call, weights)


def test_close_numbers_are_told_apart():
    """Numbers that print alike are other numbers."""
    for last in (1.0, np.nextafter(np.float32(1.0), np.float32(2.0)), -0.0, 0.0, np.nan):
        scaled_by = tracing.traced(lambda z, last=last: z * np.float32(last), "scaled_by")
        np.testing.assert_array_equal(np.asarray(scaled_by(jnp.ones(2))), np.full(2, last, dtype=np.float32))
        np.testing.assert_array_equal(np.signbit(scaled_by(jnp.ones(2))), np.signbit(np.full(2, last)))


# ---------------------------------------------------------------------------------------------------------------------
# Losses whose values change

SCALE, CENTRE = 1.0, np.zeros(1, dtype=np.float32)


def scaled(y, prediction):
    return SCALE * (y - prediction) ** 2


def centred(y, prediction):
    return (y - prediction - jnp.asarray(CENTRE)) ** 2


def jitted(y, prediction):
    return jax.jit(lambda a, b: SCALE * (a - b) ** 2)(y, prediction)


@pytest.mark.parametrize("loss", [scaled, jitted])
def test_a_global_in_a_loss_is_seen(loss, monkeypatch):
    for scale in (1.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        check(linear, FIRST, loss, lambda y, p, s=scale: s * (y - p) ** 2)


def test_memory_written_in_a_loss_is_seen():
    for centre in (0.0, 2.0):
        CENTRE[:] = centre
        check(linear, FIRST, centred, lambda y, p, c=centre: (y - p - c) ** 2)


def test_a_global_in_a_metric_is_seen(monkeypatch):
    metric = rl.Metric(lambda y, p: SCALE * jnp.mean((y - p) ** 2), name="scaled")
    found = []
    for scale in (1.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        result = rl.permutation_importance(linear, jnp.asarray(X), jnp.asarray(Y), draws=3, rng=0, loss=metric)
        found.append(result.replaced_risk)
    np.testing.assert_allclose(found[1], 5.0 * found[0], rtol=1e-5)


def linear(Z):
    return Z @ jnp.asarray(FIRST)


@pytest.mark.slow
def test_a_global_in_a_loss_of_trees_is_seen(monkeypatch):
    trees = pytest.importorskip("sklearn.tree")
    model = trees.DecisionTreeRegressor(max_depth=2, random_state=0).fit(X, Y)
    predict = lambda Z: model.predict(Z)  # noqa: E731
    for scale in (1.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        found = rl.model_reliance(model, jnp.asarray(X), jnp.asarray(Y), loss=scaled, compare="difference")
        base, risks = double_loop(predict, lambda y, p, s=scale: s * (y - p) ** 2)
        np.testing.assert_allclose(found.base_risk, base, rtol=1e-5)
        np.testing.assert_allclose(found.replaced_risk, risks, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# What is kept


def test_equal_functions_share_their_programs():
    """A new lambda that does the same, also with other weights, compiles nothing."""
    tracing._programs.clear()
    counts = set()
    for seed in range(4):
        w = jnp.asarray(np.random.default_rng(seed).normal(size=P).astype(np.float32))
        check(lambda Z, w=w: jax.nn.relu(Z @ w) - jax.nn.relu(-(Z @ w)), np.asarray(w), lambda y, p: (y - p) ** 2)
        counts.add(len(tracing._programs))
    assert len(counts) == 1


@pytest.mark.slow
def test_new_lambdas_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(tracing, "MOST_PROGRAMS", 4)
    tracing._programs.clear()
    model, programs, losses = Replaced(), [], []
    model.write(FIRST)
    for k in range(8):
        loss = lambda y, p, k=k: (k + 1.0) * (y - p) ** 2  # noqa: E731
        losses.append(weakref.ref(loss))
        rl.permutation_importance(model, jnp.asarray(X), jnp.asarray(Y), draws=3, rng=0, loss=loss)
        programs += [weakref.ref(program) for program in tracing._programs.values()]
        del loss
    gc.collect()
    assert len(tracing._programs) <= 4
    assert len({id(program()) for program in programs if program() is not None}) <= 4
    assert sum(loss() is not None for loss in losses) <= 1


@pytest.mark.slow
def test_large_constants_are_not_hoarded(monkeypatch):
    """What an inner jit closes over is part of the program: only so many bytes of it are kept."""
    monkeypatch.setattr(tracing, "MOST_BYTES", 100)
    tracing._programs.clear()
    model = InnerJit()
    for k in range(4):
        model.write(FIRST + k)
        check(model, FIRST + k)
    assert 0 < tracing._kept_bytes() <= 100
