"""The pure functions with traced columns, several inputs and donors of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance import functional

N, P = 12, 5
RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(N, P)), RNG.normal(size=N)
DONORS = np.stack([RNG.permutation(N) for _ in range(3)], axis=1)


def model(Z):
    return Z[:, 0] * Z[:, 1] + Z[:, 2] * Z[:, 4]


def literal(columns):
    """The mean loss with the columns of each donor."""
    found = []
    for k in range(DONORS.shape[1]):
        rows = X.copy()
        rows[:, columns] = X[DONORS[:, k]][:, columns]
        found.append(np.mean((model(rows) - Y) ** 2))
    return np.mean(found)


@pytest.mark.parametrize("columns", [[0], [1, 2], [0, 2, 4], list(range(P))], ids=str)
def test_columns_in_every_form(backend, columns):
    rows, labels, donors = backend.asarray(X), backend.asarray(Y), backend.asarray(DONORS)
    mask = np.isin(np.arange(P), columns)
    forms = [columns, mask, backend.asarray(mask), backend.asarray(np.asarray(columns))]
    for form in forms:
        found = functional.lent_risk(model, rows, labels, form, donors)
        backend.assert_close(rl._core.arrays.to_host(found), literal(columns))


def test_one_program_for_all_features():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    rows, labels, donors = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(DONORS)

    def risk(column):
        return functional.lent_risk(model, rows, labels, column, donors)

    found = jax.jit(jax.vmap(risk))(jnp.arange(P))
    np.testing.assert_allclose(found, [literal([j]) for j in range(P)], rtol=1e-4)
    patches = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=bool)
    np.testing.assert_allclose(jax.vmap(risk)(jnp.asarray(patches)), [literal([0, 1]), literal([2, 3, 4])], rtol=1e-4)
    shifted = jax.vmap(lambda j: functional.shifted_risk(model, rows, labels, j, [1, 2]))(jnp.arange(P))
    single = [functional.shifted_risk(model, X, Y, j, [1, 2]) for j in range(P)]
    np.testing.assert_allclose(shifted, single, rtol=1e-4)


def test_several_inputs():
    inputs = {"a": X[:, :3], "b": X[:, 3:]}

    def both(a, b):
        return model(np.concatenate([a, b], axis=1))

    for columns, flat in (({"a": 1}, [1]), ({"a": [0, 2], "b": 1}, [0, 2, 4])):
        np.testing.assert_allclose(functional.lent_risk(both, inputs, Y, columns, DONORS), literal(flat))
        places = {"ab".index(name): own for name, own in columns.items()}
        np.testing.assert_allclose(functional.lent_risk(both, tuple(inputs.values()), Y, places, DONORS), literal(flat))
    np.testing.assert_allclose(functional.base_risk(both, inputs, Y), np.mean((model(X) - Y) ** 2))
    for columns, words in ((1, "mapping"), ({"c": 1}, "input 'c'"), ({"a": 7}, "range")):
        with pytest.raises(ValueError, match=words):
            functional.lent_risk(both, inputs, Y, columns, DONORS)
    with pytest.raises(ValueError, match="one array"):
        functional.lent_risk(model, X, Y, {"a": 1}, DONORS)


def test_donors_within_labels_are_those_of_the_method():
    labels = np.arange(N) % 3
    donors = functional.within_donors(labels, 3, key=4)
    assert (labels[donors] == labels[:, None]).all()
    change = functional.lent_risk(model, X, Y, 2, donors) - functional.base_risk(model, X, Y)
    found = rl.permutation_importance(model, X, Y, draws=3, rng=4, replace=rl.Donors(within=labels))
    np.testing.assert_allclose(found.values[2], change)
    with pytest.raises(ValueError, match="labels"):
        functional.within_donors(np.zeros((3, 2)), 1, key=0)


@pytest.mark.filterwarnings("ignore:Dynamo")
def test_a_whole_graph_of_torch():
    torch = pytest.importorskip("torch")
    rows, labels, donors = torch.tensor(X), torch.tensor(Y), torch.tensor(DONORS)
    weight = torch.ones(P, dtype=torch.float64, requires_grad=True)

    def risk(rows, donors):
        return functional.lent_risk(lambda Z: model(Z * weight), rows, labels, [1, 2], donors)

    compiled = torch.compile(risk, fullgraph=True, backend="eager")  # needs no compiler of C++
    np.testing.assert_allclose(float(compiled(rows, donors).detach()), literal([1, 2]))
    (own,) = torch.autograd.grad(risk(rows, donors), weight)
    (other,) = torch.autograd.grad(compiled(rows, donors), weight)
    np.testing.assert_allclose(own, other)
