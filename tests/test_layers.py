"""Inside a network: units, channels, heads and directions of a layer, against a loop with torch's own hooks."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import reliance as rl

torch = pytest.importorskip("torch")
nn = torch.nn
N, P, H = 10, 3, 4


def rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, P))
    return X, X[:, 0] - X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


@contextlib.contextmanager
def hook(layer, function):
    handle = layer.register_forward_hook(lambda module, given, out: function(out))
    try:
        yield
    finally:
        handle.remove()


def by_hooks(net, layer, inputs, y, change, count):
    """For each feature j the mean over i != k of the change in squared error, one row of the whole network at a time.

    ``change(j, own, donor)``: the activations of a row with feature j of the donor.
    """
    net = net.eval()
    seen, n = [], len(y)

    def first(out):
        return out[0] if isinstance(out, tuple) else out

    def run(i):
        answer = (
            net(**{k: v[i : i + 1] for k, v in inputs.items()}) if isinstance(inputs, dict) else net(inputs[i : i + 1])
        )
        return getattr(answer, "logits", answer).reshape(())

    with torch.no_grad():
        with hook(layer, lambda out: seen.append(first(out).clone())):
            base = torch.stack([run(i) for i in range(n)])
        values = []
        for j in range(count):
            total = 0.0
            for i in range(n):
                for k in range(n):
                    if i == k:
                        continue
                    new = change(j, seen[i].clone(), seen[k])
                    with hook(layer, lambda out, new=new: (new, *out[1:]) if isinstance(out, tuple) else new):
                        total += float((run(i) - y[i]) ** 2 - (base[i] - y[i]) ** 2)
            values.append(total / (n * (n - 1)))
    return np.asarray(values)


def unit(j, own, donor):
    own.reshape(-1)[j] = donor.reshape(-1)[j]
    return own


class Residual(nn.Module):
    """The layers ``a`` and ``b`` stand beside a way round them; ``act`` is one module called twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b, self.head = nn.Linear(P, H), nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, 1)
        self.act, self.unused, self.drop = nn.ReLU(inplace=True), nn.Linear(H, H), nn.Dropout(0.5)

    def forward(self, x):
        h = self.embed(x)
        h = h + self.act(self.a(h))
        h = h + self.drop(self.act(self.b(h))) * x[:, :1]
        return self.head(h)


def seeded(make, dtype=torch.float64):
    torch.manual_seed(0)
    return make().to(dtype)


def sequence():
    inner = nn.Sequential(nn.Linear(H, H), nn.Tanh())
    return nn.Sequential(
        nn.Linear(P, H), nn.BatchNorm1d(H), nn.ReLU(inplace=True), nn.Dropout(0.5), inner, nn.Linear(H, 1)
    )


CASES = {
    "before an activation in place": (sequence, "1"),
    "a sequence inside": (sequence, "4"),
    "inside a sequence inside": (sequence, "4.0"),
    "the first layer": (Residual, "embed"),
    "beside a way round": (Residual, "a"),
    "beside a way round, reading the input": (Residual, "b"),
}


@pytest.mark.parametrize("case", CASES)
def test_units_of_a_layer_equal_a_loop_with_hooks(case):
    make, name = CASES[case]
    net, (X, y) = seeded(make).train(), rows()
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    layer = net.get_submodule(name)
    result = rl.model_reliance(rl.models.torch(net, layer=layer), X, y, compare="difference")
    assert net.training
    assert "forward" not in vars(layer)
    assert result.names == ("h0", "h1", "h2", "h3")
    np.testing.assert_allclose(result.values, by_hooks(net, layer, X, y, unit, H), rtol=1e-9, atol=1e-12)


def test_parts_before_the_layer_do_not_run_again():
    net, (X, y) = seeded(sequence), rows(n=40)
    passes = {"before": 0, "behind": 0}

    class Counted(nn.Linear):
        def forward(self, x):
            passes[self.where] += len(x)
            return super().forward(x)

    net[0].__class__, net[5].__class__ = Counted, Counted
    net[0].where, net[5].where = "before", "behind"
    rl.model_reliance(rl.models.torch(net, layer="2"), X, y, route="plain")
    # All pairs of 4 units are 6400 rows of the rest; the first layer sees the rows themselves a few times.
    assert passes["behind"] >= 4 * 40 * 40
    assert passes["before"] <= 12 * 40


@pytest.mark.parametrize("method", ["permutation", "ablation", "relative", "local", "interaction", "weights"])
def test_every_plan_is_that_of_the_rest_on_the_activations(method):
    """The layer's activations as X, and the rest of a sequence as the model: the same numbers and intervals."""
    net, (X, y) = seeded(sequence).eval(), rows(n=30)
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    with torch.no_grad():
        hidden = net[:2](X)
    functions = {
        "permutation": lambda m, x: rl.permutation_importance(m, x, y, rng=0, draws=8),
        "ablation": lambda m, x: rl.ablation_importance(m, x, y, rng=0, draws=4),
        "relative": lambda m, x: rl.relative_importance(m, x, y, given=["h0"], rng=0, draws=4, **names(x)),
        "local": lambda m, x: rl.local_importance(m, x, y, rows=[0, 3]),
        "interaction": lambda m, x: rl.interaction_importance(m, x, y, features=[0, 1], rng=0, draws=4),
        "weights": lambda m, x: rl.permutation_importance(
            m, x, y, rng=0, draws=8, weights=torch.linspace(1.0, 2.0, 30, dtype=torch.float64), features={"two": [0, 1]}
        ),
    }

    def names(x):
        return {"names": [f"h{j}" for j in range(H)]} if x is hidden else {}

    class Rest(nn.Module):
        def __init__(self):
            super().__init__()
            self.rest = net[2:]

        def forward(self, x):
            return self.rest(x.clone())

    ours = functions[method](rl.models.torch(net, layer=net[1]), X)
    plain = functions[method](Rest(), hidden)
    np.testing.assert_allclose(ours.values, plain.values, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.interval(), plain.interval(), rtol=1e-9, atol=1e-12)


def test_channels_of_a_convolution_and_another_dtype():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
            self.head = nn.Linear(3 * 16, 1)

        def forward(self, x):
            return {"score": self.head(torch.relu_(self.norm(self.conv(x))).flatten(1))}

    net = seeded(Net, torch.float32)
    X, y = torch.randn(8, 1, 4, 4), torch.randn(8)
    model = rl.models.torch(net, layer=net.norm, output="score")
    groups = {f"channel {c}": np.s_[c] for c in range(3)}
    result = rl.model_reliance(model, X.numpy(), y.numpy(), features=groups, compare="difference")

    def channel(j, own, donor):
        own[:, j] = donor[:, j]
        return own

    truth = by_hooks(net_of(net, "score"), net.norm, X, y, channel, 3)
    np.testing.assert_allclose(result.values, truth, rtol=1e-3, atol=1e-5)
    assert result.names == tuple(groups)


def net_of(net, key):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)[key]

    return One()


@dataclass
class Output:
    logits: object
    hidden_states: object = None


class Attention(nn.Module):
    """As libraries of transformers have them: heads side by side, a padding mask, an answer with a second part."""

    def __init__(self, width=4, heads=2):
        super().__init__()
        self.heads, self.mixed, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.context = nn.Identity()

    def forward(self, h, mask):
        b, t, w = h.shape
        q, k, v = self.mixed(h).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) + (1.0 - mask[:, None, None, :]) * -1e9
        context = self.context((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))
        return self.out(context), None


class Transformer(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.embed, self.position = nn.Embedding(7, 4), nn.Parameter(torch.randn(1, 3, 4))
        self.blocks = nn.ModuleList(Attention() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in range(blocks))
        self.head = nn.Linear(4, 1)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.to(self.position.dtype)
        h = self.embed(input_ids) + self.position
        for block, norm in zip(self.blocks, self.norms, strict=True):
            h = h + block(norm(h), mask)[0]
        pooled = (h * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return Output(self.head(pooled))


def tokens(n=8):
    rng = np.random.default_rng(0)
    mask = (np.arange(3)[None, :] < rng.integers(1, 4, size=n)[:, None]).astype(np.int64)
    return {"input_ids": torch.from_numpy(rng.integers(0, 7, size=(n, 3))), "attention_mask": torch.from_numpy(mask)}


@pytest.mark.parametrize("name", ["blocks.0", "blocks.1.context"])
def test_heads_and_blocks_of_a_transformer_with_a_mask(name):
    net, X = seeded(Transformer), tokens()
    y = torch.randn(8, dtype=torch.float64)
    heads = {"head 0": np.s_[:, :2], "head 1": np.s_[:, 2:]}
    result = rl.model_reliance(rl.models.torch(net, layer=name), X, y, features=heads, compare="difference")

    def head(j, own, donor):
        own[:, :, 2 * j : 2 * j + 2] = donor[:, :, 2 * j : 2 * j + 2]
        return own

    truth = by_hooks(net, net.get_submodule(name), X, y, head, 2)
    np.testing.assert_allclose(result.values, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layer", ["1", "a"])
def test_directions(layer):
    net = seeded(sequence if layer == "1" else Residual)
    X, y = map(torch.from_numpy, rows())
    V = np.random.default_rng(1).normal(size=(2, H))
    result = rl.model_reliance(rl.models.torch(net, layer=layer, directions=V), X, y, compare="difference")
    assert result.names == ("direction 0", "direction 1")

    def along(j, own, donor):
        v = torch.from_numpy(V[j])
        return own + ((donor - own) @ v / (v @ v))[:, None] * v

    truth = by_hooks(net, net.get_submodule(layer), X, y, along, 2)
    np.testing.assert_allclose(result.values, truth, rtol=1e-8, atol=1e-11)
    axes = rl.models.torch(net, layer=layer, directions=np.eye(H))
    units = rl.models.torch(net, layer=layer)
    one, other = (rl.permutation_importance(m, X, y, rng=0, draws=4).values for m in (axes, units))
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-11)


def test_rare_rows_that_read_their_input_are_found():
    """The rest reads the input of one row of 200 only, which is not among those that are tried."""

    class Rare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(P, H)

        def forward(self, x):
            h = self.layer(x)
            return h.sum(1) + torch.where(x[:, 0] == 7.0, x[:, 1], 0.0)

    net, (X, y) = seeded(Rare), rows(n=200)
    X[1, 0] = 7.0
    result = rl.permutation_importance(rl.models.torch(net, layer="layer"), X, y, rng=0, draws=4)
    assert result.base_risk == pytest.approx(float(np.mean((net(torch.from_numpy(X)).detach().numpy() - y) ** 2)))


def test_tasks_and_threads_share_a_layer():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.drop, self.a, self.b = nn.Linear(P, H), nn.Dropout(0.5), nn.Linear(H, 1), nn.Linear(H, 1)

        def forward(self, x):
            h = self.drop(torch.tanh(self.layer(x)))
            return {"a": self.a(h), "b": self.b(h)}

    net, (X, y) = seeded(Two).train(), rows()
    model, tasks = rl.models.torch(net, layer=net.layer), {"a": "squared_error", "b": "squared_error"}
    found = {}

    def work(key):
        found[key] = rl.model_reliance(model, X, y, loss=tasks, compare="difference")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert net.training
    assert not any("forward" in vars(part) for part in net.modules())
    for key in "ab":
        truth = by_hooks(net_of(net, key), net.layer, torch.from_numpy(X), y, unit, H)
        for k in range(3):
            np.testing.assert_allclose(found[k][key].values, truth, rtol=1e-9, atol=1e-12)


def test_torch_layers_of_its_own_transformer():
    """In evaluation mode torch runs this module as one operation, past its parts; asked for a part, it does not."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dtype=torch.float64)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = block, nn.Linear(4, 1, dtype=torch.float64)

        def forward(self, x):
            return self.head(self.block(x).mean(1))

    net, X, y = Net(), torch.randn(6, 2, 4, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    groups = {"first": np.s_[:, :4], "rest": np.s_[:, 4:]}
    result = rl.model_reliance(rl.models.torch(net, layer=block.linear1), X, y, features=groups, compare="difference")

    def part(j, own, donor):
        at = slice(0, 4) if j == 0 else slice(4, None)
        own[..., at] = donor[..., at]
        return own

    np.testing.assert_allclose(result.values, by_hooks(net, block.linear1, X, y, part, 2), rtol=1e-8, atol=1e-11)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice, self.lstm, self.never = nn.Linear(P, P), nn.LSTM(P, 2, batch_first=True), nn.Linear(P, P)
        self.whole = nn.Flatten(0)

    def forward(self, x):
        h = self.twice(self.twice(x))
        out, _ = self.lstm(h[:, None])
        return out[:, 0].sum(1) + self.whole(h)[: len(x)] * 0.0


@pytest.mark.parametrize(
    "layer, options, words",
    [
        ("nothing", {}, "layer='nothing' is not a part of Odd: it has 'twice', 'lstm'"),
        (nn.Linear(3, 3), {}, "layer=Linear is not a part of Odd: pass one of its modules"),
        ("twice", {}, "is called 2 times in a pass"),
        ("never", {}, "is never called"),
        ("lstm", {}, "returns a tuple: choose a part that returns one tensor"),
        ("whole", {}, "for 10 rows: choose a part whose first axis are the rows"),
        (None, {"directions": np.eye(3)}, "pass layer="),
    ],
)
def test_layers_that_cannot_be_measured(layer, options, words):
    net, (X, y) = seeded(Odd), rows()
    with pytest.raises((TypeError, ValueError), match=words) as error:
        rl.permutation_importance(rl.models.torch(net, layer=layer, **options), X, y, draws=2)
    assert len(str(error.value)) <= 300
    assert not any("forward" in vars(part) for part in net.modules())


@pytest.mark.parametrize("V, words", [(np.eye(3), r"pass \(k, 4\)"), (np.zeros((1, H)), "length 0")])
def test_directions_that_are_none(V, words):
    net, (X, y) = seeded(sequence), rows()
    with pytest.raises(ValueError, match=words):
        rl.permutation_importance(rl.models.torch(net, layer="1", directions=V), X, y)


# ---------------------------------------------------------------------------------------------------------------------
# Other libraries: a model in two


@pytest.mark.once_per_device
@pytest.mark.parametrize("directions", [False, True])
def test_a_split_model_equals_a_double_loop(backend, directions):
    X, y = rows()
    W = np.random.default_rng(2).normal(size=(P, H))
    V = np.random.default_rng(3).normal(size=(2, H)) if directions else None
    w = backend.asarray(W)
    xp = backend.xp
    model = rl.models.split(lambda x: xp.tanh(x @ w), lambda h: h[:, 0] * h[:, 1] + h[:, 2], directions=V)
    result = rl.model_reliance(model, backend.asarray(X), backend.asarray(y), compare="difference")
    A, n = np.tanh(X @ W), len(X)

    def rest(h):
        return h[0] * h[1] + h[2]

    def changed(j, own, donor):
        if V is not None:
            return own + ((donor - own) @ V[j] / (V[j] @ V[j])) * V[j]
        new = own.copy()
        new[j] = donor[j]
        return new

    truth = [
        np.mean(
            [
                (rest(changed(j, A[i], A[k])) - y[i]) ** 2 - (rest(A[i]) - y[i]) ** 2
                for i in range(n)
                for k in range(n)
                if i != k
            ]
        )
        for j in range(H if V is None else 2)
    ]
    tolerance = 1e-9 if backend.dtype == "float64" else 2e-4
    np.testing.assert_allclose(result.values, truth, rtol=tolerance, atol=tolerance)


def test_gradients_go_through_the_rest_of_a_split():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    X, y = (jnp.asarray(a, dtype=jnp.float32) for a in rows())
    hidden = jnp.tanh(X @ jnp.ones((P, H)))

    def risk(w):
        return rl.functional.shifted_risk(lambda h: h @ w, hidden, y, [0], jnp.asarray([1]), loss="squared_error")

    w = jnp.linspace(0.1, 0.4, H)
    step = 1e-2
    numeric = [(risk(w.at[j].add(step)) - risk(w.at[j].add(-step))) / (2 * step) for j in range(H)]
    np.testing.assert_allclose(jax.grad(risk)(w), numeric, rtol=2e-2, atol=1e-3)
