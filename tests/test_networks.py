"""Networks whose answers are more than one array: which output is measured, several tasks, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import reliance as rl

torch = pytest.importorskip("torch")
N, P = 12, 4


@dataclass
class Answer:
    loss: object
    logits: object
    hidden_states: tuple = ()


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=N), rng.integers(0, 3, size=N)


def all_pairs(predict, X, y, loss):
    """The mean over i != k of loss(row i with column j of row k) - loss(row i): a literal double loop."""
    values = []
    for j in range(X.shape[1]):
        total = 0.0
        for i in range(len(X)):
            for k in range(len(X)):
                if i != k:
                    replaced = X[i : i + 1].copy()
                    replaced[0, j] = X[k, j]
                    total += loss(y[i], predict(replaced)[0]) - loss(y[i], predict(X[i : i + 1])[0])
        values.append(total / (len(X) * (len(X) - 1)))
    return np.asarray(values)


def squared(y, p):
    return (y - p) ** 2


def cross_entropy(y, p):
    return float(np.log(np.sum(np.exp(p))) - p[y])


class Two(torch.nn.Module):
    """Two heads behind one layer; answers in the form that it is told."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(1)
        self.form = form
        self.trunk = torch.nn.Sequential(torch.nn.Linear(P, 6), torch.nn.Tanh(), torch.nn.Dropout(0.5))
        self.price, self.kind = torch.nn.Linear(6, 1), torch.nn.Linear(6, 3)
        self.double()

    def forward(self, x):
        h = self.trunk(x)
        price, kind = self.price(h)[:, 0], self.kind(h)
        return self.form(price, kind)


def by_hand(net, part):
    net = Two(lambda price, kind: (price, kind)).eval()

    def predict(x):
        with torch.no_grad():
            return net(torch.from_numpy(x))[part].numpy()

    return predict


FORMS = {
    "name": (lambda p, k: {"price": p, "kind": k}, "price"),
    "attribute": (lambda p, k: Answer(k, p), "logits"),
    "place": (lambda p, k: (k, p), 1),
    "function": (lambda p, k: (k, p), lambda answer: answer[1]),
}
ALONE = {
    "logits": lambda p, k: Answer(None, p, (k,)),
    "logits in a mapping": lambda p, k: {"logits": p, "kind": k},
    "tuple of one": lambda p, k: (p,),
    "mapping of one": lambda p, k: {"anything": p},
}


@pytest.mark.parametrize("form", FORMS)
def test_an_output_of_a_torch_module(form):
    answer, output = FORMS[form]
    net, (X, y, _) = Two(answer).train(), rows()
    model = rl.models.torch(net, output=output)
    result = rl.model_reliance(model, X, y, compare="difference")
    np.testing.assert_allclose(result.values, all_pairs(by_hand(net, 0), X, y, squared), rtol=1e-9)
    assert net.training  # it ran in evaluation mode, in its own dtype, and has its mode back


@pytest.mark.parametrize("form", ALONE)
def test_an_output_that_needs_no_word(form):
    net, (X, y, _) = Two(ALONE[form]), rows()
    result = rl.model_reliance(net, X, y, compare="difference")
    np.testing.assert_allclose(result.values, all_pairs(by_hand(net, 0), X, y, squared), rtol=1e-9)


def test_a_sequence_whose_end_answers_with_a_tuple():
    class End(torch.nn.Module):
        def forward(self, h):
            return (h[:, 0],)

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(P, 5), torch.nn.Tanh(), End()).double()
    X, y, _ = rows()
    plain, layer = (rl.model_reliance(net, X, y, route=route) for route in ("plain", "first_layer"))
    np.testing.assert_allclose(plain.values, layer.values, rtol=1e-9)
    assert set(layer.routes) == {"first_layer"}


@pytest.mark.parametrize(
    "answer, output, words",
    [
        (lambda p, k: None, None, "returned None.*return predictions"),
        (lambda p, k: {"a": None, "b": p}, "a", "returned None for output='a'"),
        (lambda p, k: (p, k), None, "a tuple of 2: choose one as in rl.models.torch.*places 0 to 1"),
        (lambda p, k: {"a": p, "b": k}, None, "a dict of 2: choose one.*'a', 'b'"),
        (lambda p, k: {"a": p, "b": k}, "c", "output='c' is not in.*'a', 'b'"),
        (lambda p, k: (p, k), 2, "output=2 is not in.*places 0 to 1"),
        (lambda p, k: Answer(p, k), "nothing", "output='nothing' is not in.*'loss', 'logits'"),
        (lambda p, k: p, 0, "output=0 is not in.*leave output out"),
    ],
)
def test_outputs_that_are_not_there(answer, output, words):
    X, y, _ = rows()
    with pytest.raises((TypeError, ValueError), match=words) as error:
        rl.permutation_importance(rl.models.torch(Two(answer), output=output), X, y, draws=3)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: rl.models.torch(lambda x: x), "no torch.nn.Module"),
        (lambda: rl.models.torch(Two(None), output=1.5), "output=1.5: pass a name"),
        (lambda: rl.models.jax(3), "apply=3 cannot be called"),
        (lambda: rl.models.flax(3), "pass a module of nnx, or one of linen with its variables"),
        (lambda: rl.models.keras(3), "no keras.Model"),
    ],
)
def test_what_is_no_network(make, words):
    with pytest.raises(TypeError, match=words):
        make()


# ---------------------------------------------------------------------------------------------------------------------
# Tasks

TASKS = {
    "outputs by the names of tasks": {"price": "squared_error", "kind": "cross_entropy"},
    "outputs by name": {"value": ("price", "squared_error"), "label": ("kind", "cross_entropy")},
}


@pytest.mark.parametrize("case", TASKS)
@pytest.mark.parametrize("bare", [True, False])
def test_several_tasks_in_one_pass(case, bare):
    X, y, labels = rows()
    net = Two(lambda p, k: {"price": p, "kind": k})
    calls = []
    net.register_forward_hook(lambda *given: calls.append(1))
    tasks = TASKS[case]
    (one, other), targets = tasks, (y, labels)
    asked = dict(zip(tasks, targets, strict=True))
    model = net if bare else rl.models.torch(net, output="price")
    result = rl.model_reliance(model, X, asked, loss=tasks, compare="difference")
    assert list(result) == [one, other]
    assert result[one].loss == one
    np.testing.assert_allclose(result[one].values, all_pairs(by_hand(net, 0), X, y, squared), rtol=1e-9)
    np.testing.assert_allclose(result[other].values, all_pairs(by_hand(net, 1), X, labels, cross_entropy), rtol=1e-9)
    alone = len(calls)
    calls.clear()
    rl.model_reliance(rl.models.torch(net, output="price"), X, y, compare="difference")
    assert alone == len(calls)


def test_tasks_with_their_own_labels_and_metrics():
    X, y, labels = rows()
    net = Two(lambda p, k: (p, k))
    tasks = {"price": (0, y, "r2"), "shift": (1, "prediction_shift"), "zero": (1, labels == 0, first_against_rest())}
    found = rl.permutation_importance(net, X, loss=tasks, rng=0, draws=5)
    r2 = rl.permutation_importance(by_hand(net, 0), X, y, loss="r2", rng=0, draws=5)
    np.testing.assert_allclose(found["price"].values, r2.values, rtol=1e-9)
    np.testing.assert_allclose(found["price"].interval(), r2.interval(), rtol=1e-9)
    shift = rl.permutation_importance(by_hand(net, 1), X, loss="prediction_shift", rng=0, draws=5)
    np.testing.assert_allclose(found["shift"].values, shift.values, rtol=1e-9)


def first_against_rest():
    return rl.losses.Loss("first", lambda y, p: torch.log(torch.exp(p[:, 0]) + 1.0) * y)


@pytest.mark.parametrize(
    "loss, y, words",
    [
        ({}, None, "is empty"),
        ({"price": ("a", "b", "c", "d")}, None, "4 parts"),
        ({"price": "squared_error"}, {"prize": 1}, "no labels for the task 'price': it has 'prize'"),
        ({"price": "squared_error"}, None, "y is None"),
        ({0: "squared_error"}, None, "the task 0 is no text"),
        ({"price": "square_error"}, None, "unknown"),
        ({"price": (1.5, "squared_error")}, None, "output=1.5"),
    ],
)
def test_tasks_that_are_none(loss, y, words):
    X, _, _ = rows()
    with pytest.raises((TypeError, ValueError), match=words) as error:
        rl.permutation_importance(Two(lambda p, k: {"price": p, "kind": k}), X, y, loss=loss)
    assert len(str(error.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# JAX


def jax_parts():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    rng = np.random.default_rng(3)
    params = {"w": jnp.asarray(rng.normal(size=(P, 3)), dtype=jnp.float32)}

    def apply(params, x):
        h = jnp.tanh(x @ params["w"])
        return {"price": h[:, 0], "kind": h}

    def predict(x, part=None):
        h = np.tanh(x.astype(np.float32) @ np.asarray(params["w"]))
        return h[:, 0] if part is None else h

    return jnp, apply, params, predict


def test_an_output_of_a_jax_function_and_tasks():
    jnp, apply, params, predict = jax_parts()
    X, y, labels = rows()
    given = [jnp.asarray(a, dtype=jnp.float32) for a in (X, y)]
    result = rl.model_reliance(rl.models.jax(apply, params, output="price"), *given, compare="difference")
    truth = all_pairs(predict, X, y, squared)
    np.testing.assert_allclose(result.values, truth, rtol=2e-4, atol=1e-5)
    several = rl.model_reliance(
        rl.models.jax(apply, params),
        given[0],
        {"price": given[1], "kind": jnp.asarray(labels)},
        loss={"price": "squared_error", "kind": "cross_entropy"},
        compare="difference",
    )
    np.testing.assert_allclose(several["price"].values, truth, rtol=2e-4, atol=1e-5)
    kind = all_pairs(lambda x: predict(x, 1), X, labels, cross_entropy)
    np.testing.assert_allclose(several["kind"].values, kind, rtol=2e-4, atol=1e-5)


@pytest.mark.slow
def test_outputs_of_flax_and_equinox():
    jnp, _, _, _ = jax_parts()
    import jax

    nnx, eqx = pytest.importorskip("flax.nnx"), pytest.importorskip("equinox")
    linen = pytest.importorskip("flax.linen")
    X, y, _ = rows()
    given = [jnp.asarray(a, dtype=jnp.float32) for a in (X, y)]

    class Nnx(nnx.Module):
        def __init__(self):
            self.linear = nnx.Linear(P, 2, rngs=nnx.Rngs(0))
            self.norm = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
            self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

        def __call__(self, x):
            h = self.dropout(self.norm(self.linear(x)))
            return h[:, 0], h

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            h = linen.Dense(2)(x)
            return Answer(None, h[:, 0])

    class Eqx(eqx.Module):
        linear: eqx.nn.Linear

        def __call__(self, x):
            return self.linear(x)[0], None

    one = Nnx()
    one.train()
    mean = np.asarray(one.norm.mean.get_value()).copy()
    module = Linen()
    variables = module.init(jax.random.key(0), given[0])
    net = Eqx(eqx.nn.Linear(P, 2, key=jax.random.key(0)))
    params, static = eqx.partition(net, eqx.is_array)
    dense = variables["params"]["Dense_0"]
    models = {
        # Running statistics of the start, no dropout: a linear function.
        "nnx": (rl.models.flax(one, output=0), one.linear.kernel, one.linear.bias, 1 / np.sqrt(1 + 1e-5)),
        "linen": (rl.models.flax(module, variables), dense["kernel"], dense["bias"], 1.0),
        "equinox": (
            rl.models.jax(lambda p, x: jax.vmap(eqx.combine(p, static))(x), params, output=0),
            net.linear.weight.T,
            net.linear.bias,
            1.0,
        ),
    }
    for name, (model, weight, bias, scale) in models.items():
        W, b = np.asarray(weight[...])[:, 0], float(np.asarray(bias[...])[0])
        truth = all_pairs(lambda x, W=W, b=b, scale=scale: (x @ W + b) * scale, X, y, squared)
        result = rl.model_reliance(model, *given, compare="difference")
        np.testing.assert_allclose(result.values, truth, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_array_equal(one.norm.mean.get_value(), mean)
