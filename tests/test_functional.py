"""The functional layer against literal loops, its gradients against finite differences, its memory against n^2."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from reliance import functional
from reliance._core import arrays

N = 7
RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(N, 4)), RNG.normal(size=N)
COLUMNS = [2, (0, 3), [1, 0, 2]]


def model(Z):
    """The same function on every namespace, interactions included."""
    xp = arrays.namespace(Z)
    return xp.tanh(Z[:, 0] * Z[:, 1] + 0.5 * Z[:, 2]) - 0.3 * Z[:, 3] * Z[:, 2]


def risk(y, prediction):
    return (y - prediction) ** 2


def switched(host, i, k, columns):
    """Row i with some columns of row k."""
    row = host[i].copy()
    chosen = [columns] if isinstance(columns, int) else list(columns)
    row[chosen] = host[k][chosen]
    return row[None]


def cell(host, y, i, k, columns):
    return risk(y[i], model(switched(host, i, k, columns))[0])


def pairs(host, y, columns):
    """D(i, k), nan on the diagonal."""
    table = np.full((len(y), len(y)), np.nan)
    for i, k in itertools.permutations(range(len(y)), 2):
        table[i, k] = cell(host, y, i, k, columns) - cell(host, y, i, i, columns)
    return table


@pytest.fixture
def data(backend):
    return backend.asarray(X), backend.asarray(Y), backend.rounded(X), backend.rounded(Y)


def test_base_risk(backend, data):
    x, y, host, labels = data
    found = functional.base_risk(model, x, y)
    assert found.shape == ()
    backend.assert_close(arrays.to_host(found), np.mean([cell(host, labels, i, i, 0) for i in range(N)]))


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_switched_losses(backend, data, columns):
    x, y, host, labels = data
    g = 1 if isinstance(columns, int) else len(columns)
    values = RNG.normal(size=(N, 3, g))
    given, rounded = backend.asarray(values), backend.rounded(values)
    expected = np.empty((N, 3))
    for i, d in np.ndindex(N, 3):
        row = host[i : i + 1].copy()
        row[:, columns if isinstance(columns, int) else list(columns)] = rounded[i, d]
        expected[i, d] = risk(labels[i], model(row)[0])
    found = functional.switched_losses(model, x, y, columns, given)
    backend.assert_close(arrays.to_host(found), expected)
    if g == 1:
        short = functional.switched_losses(model, x, y, columns, given[:, :, 0])
        np.testing.assert_array_equal(arrays.to_host(short), arrays.to_host(found))


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_shifted_risk(backend, data, columns):
    x, y, host, labels = data
    shifts = [1, 5, 3]
    expected = np.mean([cell(host, labels, i, (i + s) % N, columns) for i in range(N) for s in shifts])
    for given in (shifts, np.asarray(shifts), backend.asarray(np.asarray(shifts, dtype=np.int32))):
        backend.assert_close(arrays.to_host(functional.shifted_risk(model, x, y, columns, given)), expected)


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_lent_risk(backend, data, columns):
    x, y, host, labels = data
    donors = np.random.default_rng(3).integers(0, N, size=(N, 4))
    expected = np.mean([cell(host, labels, i, donors[i, k], columns) for i in range(N) for k in range(4)])
    for given in (donors, donors.tolist(), backend.asarray(donors.astype(np.int32))):
        found = functional.lent_risk(model, x, y, columns, given)
        assert found.shape == ()
        backend.assert_close(arrays.to_host(found), expected)


@pytest.mark.parametrize("columns", [2, (0, 3)], ids=str)
def test_ranked_donors_are_those_of_the_method(backend, data, columns):
    """Permutations, the same on every backend; with them the risk is that of `permutation_importance`."""
    x, y, host, labels = data
    chosen = [columns] if isinstance(columns, int) else list(columns)
    values = x[:, columns] if isinstance(columns, int) else x[:, 0::3]  # columns 0 and 3
    donors = functional.ranked_donors(values, 3, key=5)
    assert donors.dtype == np.int64
    np.testing.assert_array_equal(donors, functional.ranked_donors(host[:, chosen], 3, key=5))
    np.testing.assert_array_equal(np.sort(donors, axis=0), np.tile(np.arange(N)[:, None], 3))
    expected = np.mean([cell(host, labels, i, donors[i, k], columns) for i in range(N) for k in range(3)])
    base = np.mean([cell(host, labels, i, i, columns) for i in range(N)])
    measured = rl.permutation_importance(model, x, y, draws=3, features=[columns], rng=5)
    by_hand = functional.ranked_donors(values, 3, measured.key)
    again = np.mean([cell(host, labels, i, by_hand[i, k], columns) for i in range(N) for k in range(3)])
    backend.assert_close(measured.values, [(again - base) * N / (N - 1)], 10)
    backend.assert_close(arrays.to_host(functional.lent_risk(model, x, y, columns, donors)), expected)


def test_ranked_donors_take_one_of_each_stretch():
    """Twelve values, three stretches of four: each row meets each stretch once, and missing values are the last."""
    values = np.random.default_rng(0).permutation(12).astype(np.float64)
    stretch = values.astype(int) // 4
    values[values >= 8] = np.nan
    for key in range(5):
        met = stretch[functional.ranked_donors(values, 3, key)]
        np.testing.assert_array_equal(np.sort(met, axis=1), np.tile([0, 1, 2], (12, 1)))


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_pairwise_risk(backend, data, columns):
    x, y, host, labels = data
    expected = np.mean([cell(host, labels, i, k, columns) for i, k in itertools.permutations(range(N), 2)])
    for block in (None, 1, 3, N, 50):
        found = functional.pairwise_risk(model, x, y, columns, block=block)
        assert found.shape == ()
        backend.assert_close(arrays.to_host(found), expected)
    every_shift = functional.shifted_risk(model, x, y, columns, range(1, N))
    backend.assert_close(arrays.to_host(every_shift), expected)


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_pairwise_moments(backend, data, columns):
    x, y, host, labels = data
    table = pairs(host, labels, columns)
    found = functional.pairwise_moments(model, x, y, columns)
    backend.assert_close(arrays.to_host(found.rows), np.nanmean(table, axis=1), scale=10)
    backend.assert_close(arrays.to_host(found.donors), np.nanmean(table, axis=0), scale=10)
    backend.assert_close(arrays.to_host(found.variance), np.nanvar(table, ddof=1), scale=10)


def test_inputs_of_several_dimensions_and_outputs(backend):
    host, labels = X.reshape(N, 2, 2), RNG.normal(size=(N, 2))

    def outputs(Z):
        xp = arrays.namespace(Z)
        return xp.stack([Z[:, 0, 1] * Z[:, 1, 0], xp.sin(Z[:, 1, 1])], axis=1)

    flat, y = backend.rounded(X), backend.rounded(labels)
    cells = itertools.permutations(range(N), 2)
    expected = np.mean([risk(y[i], outputs(switched(flat, i, k, (1, 3)).reshape(1, 2, 2))[0]) for i, k in cells])
    for block in (None, 3):
        found = functional.pairwise_risk(outputs, backend.asarray(host), backend.asarray(labels), (1, 3), block=block)
        backend.assert_close(arrays.to_host(found), expected)


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_pieces_make_the_interval(backend, data, compare):
    """The interval of `model_reliance`, from the moments on the device; the t quantile alone is the host's."""
    x, y, _, _ = data
    xp = arrays.namespace(x)
    rows, donors, _ = functional.pairwise_moments(model, x, y, 0)
    value = xp.mean(rows)
    if compare == "ratio":
        base = functional.base_risk(model, x, y)
        own = functional.switched_losses(model, x, y, 0, x[:, :1])[:, 0]
        lent = (xp.sum(own) - own) / (N - 1)
        rows, donors = (rows - value / base * own) / base, (donors - value / base * lent) / base
        value = 1.0 + value / base
    variance = functional.pairs_variance(rows, donors).population
    error, gamma = xp.sqrt(variance), functional.skewness(rows + donors, variance)
    ends = functional.hull(value, error, gamma, float(stats.t.ppf(0.975, N - 1)), compare == "ratio")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few rows are skewed
        expected = rl.model_reliance(model, x, y, features=[0], compare=compare).interval()[0]
    np.testing.assert_allclose([arrays.to_host(end) for end in ends], expected, rtol=30 * backend.rtol)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: functional.pairwise_risk(model, X, Y, 4), "columns=4"),
        (lambda: functional.pairwise_risk(model, X, Y, (1, 1)), "distinct"),
        (lambda: functional.pairwise_risk(model, X, Y, []), "columns"),
        (lambda: functional.pairwise_risk(model, X, Y, 0, block=0), "block=0"),
        (lambda: functional.pairwise_risk(model, X, Y, 0, loss="auc"), "whole-set metric"),
        (lambda: functional.base_risk(model, X, Y, loss="nonsense"), "nonsense"),
        (lambda: functional.switched_losses(model, X, Y, 0, X[:3]), "values has shape"),
        (lambda: functional.lent_risk(model, X, Y, 0, np.zeros(N, dtype=int)), r"donors has shape \(7,\)"),
        (lambda: functional.lent_risk(model, X, Y, 0, np.zeros((N, 2))), "donors has dtype float64"),
        (lambda: functional.ranked_donors(X[:1], 3, 0), "values has shape"),
        (lambda: functional.ranked_donors(X[:, 0], 0, 0), "draws=0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---------------------------------------------------------------------------------------------------------------------
# Gradients, and what they keep in memory

DONORS = functional.ranked_donors(X[:, [1, 3]], 3, key=1)
START = {"w": RNG.normal(size=(4, 3)), "v": RNG.normal(size=3), "X": X, "y": Y}


def network(parameters, xp):
    return lambda Z: xp.tanh(Z @ parameters["w"]) @ parameters["v"]


def objective(values, xp, block, loss, function=functional.pairwise_risk):
    """A risk as a function of parameters, inputs and labels."""
    extra = {
        functional.pairwise_risk: {"block": block},
        functional.shifted_risk: {"shifts": [1, 3]},
        functional.lent_risk: {"donors": DONORS},
    }[function]
    y = values["y"] if loss == "squared_error" else xp.asarray(np.arange(N) % 2)
    return function(network(values, xp), values["X"], y, (1, 3), loss=loss, **extra)


def finite_differences(function, values, step=1e-6):
    found = {}
    for name, value in values.items():
        found[name] = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * step
                ends.append(float(function(values | {name: moved})))
            found[name][index] = (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.fixture(scope="module", params=["squared_error", "cross_entropy"])
def slopes(request):
    """Central differences on NumPy in float64."""
    return request.param, finite_differences(lambda v: objective(v, np, None, request.param), START)


def assert_slopes(found, expected):
    for name, slope in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), slope, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("block", [None, 3])
def test_jax_gradient(slopes, block):
    jax = pytest.importorskip("jax")
    loss, expected = slopes
    with jax.enable_x64(True):
        given = {name: jax.numpy.asarray(value) for name, value in START.items()}
        found = jax.jit(jax.grad(lambda v: objective(v, jax.numpy, block, loss)))(given)
        assert_slopes(found, expected)
        jvp = jax.jvp(lambda v: objective(v, jax.numpy, block, loss), (given,), (given,))[1]
        np.testing.assert_allclose(jvp, sum(np.sum(expected[k] * START[k]) for k in START), rtol=1e-6)


@pytest.mark.parametrize("block", [None, 3])
def test_torch_gradient(slopes, block):
    torch = pytest.importorskip("torch")
    loss, expected = slopes
    given = {name: torch.tensor(value, requires_grad=True) for name, value in START.items()}
    objective(given, torch, block, loss).backward()
    found = {name: torch.zeros(t.shape) if t.grad is None else t.grad for name, t in given.items()}
    assert_slopes(found, expected)


@pytest.mark.parametrize("function", [functional.shifted_risk, functional.lent_risk])
def test_risks_of_some_pairs_have_gradients(function):
    torch = pytest.importorskip("torch")
    arguments = (None, "squared_error", function)
    expected = finite_differences(lambda v: objective(v, np, *arguments), START)
    given = {name: torch.tensor(value, requires_grad=True) for name, value in START.items()}
    objective(given, torch, *arguments).backward()
    assert_slopes({name: t.grad for name, t in given.items()}, expected)


def test_jax_gradient_keeps_a_strip():
    jax = pytest.importorskip("jax")
    n, width = 96, 64
    rng = np.random.default_rng(0)
    w, x, y = (jax.numpy.asarray(rng.normal(size=s), dtype="float32") for s in ((4, width), (n, 4), (n,)))

    def gradient(block):
        return jax.grad(
            lambda w: functional.pairwise_risk(lambda Z: jax.numpy.tanh(Z @ w).sum(axis=1), x, y, 0, block=block)
        )

    def peak(block):
        return jax.jit(gradient(block)).lower(w).compile().memory_analysis().temp_size_in_bytes

    activations = n * n * width * 4
    assert peak(None) >= activations
    assert peak(5) < 6 * 5 / n * activations
    text = str(jax.make_jaxpr(gradient(5))(w))
    assert "scan[" in text
    assert "remat2[" in text or "checkpoint[" in text


def test_torch_gradient_keeps_a_strip():
    torch = pytest.importorskip("torch")
    n, width, kept, rows = 40, 16, [], []
    w = torch.randn(4, width, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(n, 4, dtype=torch.float64), torch.randn(n, dtype=torch.float64)

    def forward(Z):
        rows.append(Z.shape[0])
        return torch.tanh(Z @ w).sum(1)

    def pack(t):
        kept.append(t.numel())
        return t

    slopes = []
    for block in (None, 7):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            risk = functional.pairwise_risk(forward, x, y, 0, block=block)
        slopes.append(torch.autograd.grad(risk, w)[0])
        if block is None:
            assert sum(kept) > n * n * width
            assert rows == [n * n]
        else:  # the forward pass, and again for each block in the backward pass
            assert sum(kept) < 7 * n * width
            assert rows == [7 * n] * 6 * 2
        kept.clear(), rows.clear()
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("x64", [False, True])
def test_jit_and_vmap(x64):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(x64):
        given = {name: jax.numpy.asarray(value) for name, value in START.items()}
        jitted = jax.jit(lambda v: objective(v, jax.numpy, 3, "squared_error"))
        expected = objective(START, np, None, "squared_error")
        np.testing.assert_allclose(jitted(given), expected, rtol=1e-13 if x64 else 1e-6)
        both = jax.vmap(jitted)(jax.tree.map(lambda a: jax.numpy.stack([a, a]), given))
        np.testing.assert_allclose(both, [expected] * 2, rtol=1e-13 if x64 else 1e-6)


def test_donors_are_an_operand():
    """Other donors need no new compilation, and the gradient is that of finite differences."""
    jax = pytest.importorskip("jax")
    traced = []

    @jax.jit
    def slope(values, donors):
        traced.append(1)
        network_of = network(values, jax.numpy)
        risk_of = lambda x: functional.lent_risk(network_of, x, values["y"], (1, 3), donors)  # noqa: E731
        return jax.grad(risk_of)(values["X"])

    with jax.enable_x64(True):
        given = {name: jax.numpy.asarray(value) for name, value in START.items()}
        for key in (1, 2):
            donors = functional.ranked_donors(X[:, [1, 3]], 3, key)
            expected = finite_differences(
                lambda v, donors=donors: functional.lent_risk(network(START, np), v["X"], Y, (1, 3), donors), {"X": X}
            )
            np.testing.assert_allclose(slope(given, jax.numpy.asarray(donors)), expected["X"], rtol=1e-6, atol=1e-8)
    assert len(traced) == 1
