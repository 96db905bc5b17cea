"""The functional layer against literal loops, its gradients against finite differences, its memory against n^2."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from reliance import _array, functional

N = 7
RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(N, 4)), RNG.normal(size=N)
COLUMNS = [2, (0, 3), [1, 0, 2]]
BLOCKS = [None, 1, 3, N, 50]


def model(Z):
    """The same function on every namespace, interactions included."""
    xp = _array.namespace(Z)
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
    backend.assert_close(_array.to_host(found), np.mean([cell(host, labels, i, i, 0) for i in range(N)]))


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
    backend.assert_close(_array.to_host(found), expected)
    if g == 1:
        short = functional.switched_losses(model, x, y, columns, given[:, :, 0])
        np.testing.assert_array_equal(_array.to_host(short), _array.to_host(found))


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_shifted_risk(backend, data, columns):
    x, y, host, labels = data
    shifts = [1, 5, 3]
    expected = np.mean([cell(host, labels, i, (i + s) % N, columns) for i in range(N) for s in shifts])
    for given in (shifts, np.asarray(shifts), backend.asarray(np.asarray(shifts, dtype=np.int32))):
        backend.assert_close(_array.to_host(functional.shifted_risk(model, x, y, columns, given)), expected)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_pairwise_risk(backend, data, columns, block):
    x, y, host, labels = data
    expected = np.mean([cell(host, labels, i, k, columns) for i, k in itertools.permutations(range(N), 2)])
    found = functional.pairwise_risk(model, x, y, columns, block=block)
    assert found.shape == ()
    backend.assert_close(_array.to_host(found), expected)


def test_all_shifts_are_all_pairs(backend, data):
    x, y, _, _ = data
    shifted, paired = functional.shifted_risk(model, x, y, 0, range(1, N)), functional.pairwise_risk(model, x, y, 0)
    backend.assert_close(_array.to_host(shifted), _array.to_host(paired))


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_pairwise_moments(backend, data, columns):
    x, y, host, labels = data
    table = pairs(host, labels, columns)
    found = functional.pairwise_moments(model, x, y, columns)
    backend.assert_close(_array.to_host(found.rows), np.nanmean(table, axis=1), scale=10)
    backend.assert_close(_array.to_host(found.donors), np.nanmean(table, axis=0), scale=10)
    backend.assert_close(_array.to_host(found.variance), np.nanvar(table, ddof=1), scale=10)


def test_inputs_of_several_dimensions_and_outputs(backend):
    host, labels = X.reshape(N, 2, 2), RNG.normal(size=(N, 2))

    def outputs(Z):
        xp = _array.namespace(Z)
        return xp.stack([Z[:, 0, 1] * Z[:, 1, 0], xp.sin(Z[:, 1, 1])], axis=1)

    flat, y = backend.rounded(X), backend.rounded(labels)
    expected = np.mean(
        [
            np.mean(risk(y[i], outputs(switched(flat, i, k, (1, 3)).reshape(1, 2, 2))[0]))
            for i, k in itertools.permutations(range(N), 2)
        ]
    )
    for block in (None, 3):
        found = functional.pairwise_risk(outputs, backend.asarray(host), backend.asarray(labels), (1, 3), block=block)
        backend.assert_close(_array.to_host(found), expected)


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_pieces_make_the_interval(backend, data, compare):
    """The interval of `model_reliance`, from the moments on the device; the t quantile alone is the host's."""
    if backend.kind == "jax" and backend.dtype == "float32":
        pytest.skip("the standard error of a ratio in float32 has fewer digits than the comparison asks for")
    x, y, _, _ = data
    xp = _array.namespace(x)
    rows, donors, _ = functional.pairwise_moments(model, x, y, 0)
    value = xp.mean(rows)
    if compare == "ratio":
        base = functional.base_risk(model, x, y)
        own = functional.switched_losses(model, x, y, 0, x[:, :1])[:, 0]
        lent = (xp.sum(own) - own) / (N - 1)
        rows, donors = (rows - value / base * own) / base, (donors - value / base * lent) / base
        value = 1.0 + value / base
    error = xp.sqrt(functional.pairs_variance(rows, donors).population)
    gamma = functional.skewness(rows + donors) / N**0.5
    ends = functional.hull(value, error, gamma, float(stats.t.ppf(0.975, N - 1)), compare == "ratio")
    with pytest.warns(UserWarning, match="skewed") if abs(float(_array.to_host(gamma))) > 0.3 else _quiet():
        expected = rl.model_reliance(model, x, y, features=[0], compare=compare).interval()[0]
    np.testing.assert_allclose([_array.to_host(end) for end in ends], expected, rtol=30 * backend.rtol)


def _quiet():
    import contextlib

    return contextlib.nullcontext()


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
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
