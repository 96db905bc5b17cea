"""Several models on the same rows: paired differences against literal loops, what cannot be compared, coverage."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl

N, P = 40, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, P))
Y = X[:, 0] - 0.5 * X[:, 1] + RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)


def product(Z):
    return Z[:, 0] - Z[:, 1] * Z[:, 2]


def plane(Z):
    return 0.8 * Z[:, 0] - 0.3 * Z[:, 1]


def literal(predict, column, compare, weights):
    """The value over all pairs, and how each row moves it: as a row, and as a donor."""
    base = (predict(X) - Y) ** 2
    change = np.zeros((N, N))
    for i in range(N):
        for k in range(N):
            row = X[i : i + 1].copy()
            row[0, column] = X[k, column]
            change[i, k] = (predict(row)[0] - Y[i]) ** 2 - base[i]
    w = np.ones(N) if weights is None else weights
    unit = w * base if compare == "ratio" else w
    value = (w @ change).sum() / (N - 1) / unit.sum()
    h = (w[:, None] * change - value * unit[:, None]) / unit.mean()
    np.fill_diagonal(h, 0.0)
    return value + (compare == "ratio"), (h.sum(axis=1) + h.sum(axis=0)) / (N - 1)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_differences_are_those_of_literal_loops(compare, weights):
    both = rl.compare_models({"a": product, "b": plane}, X, Y, draws="all", compare=compare, weights=weights)
    delta = both.delta("a", "b")
    for column in range(P):
        (one, first), (other, second) = (literal(model, column, compare, weights) for model in (product, plane))
        np.testing.assert_allclose(both["a"].values[column], one)
        np.testing.assert_allclose(delta.values[column], one - other)
        if weights is None:  # few effective rows make an error larger, see inference.freedom
            error = np.std(first - second, ddof=1) / np.sqrt(N)
            np.testing.assert_allclose(delta.std_error[column], error)
    back = both.delta("b", "a")
    np.testing.assert_allclose(back.interval(), -delta.interval()[:, ::-1])


def test_every_model_has_the_donors_of_a_call_of_its_own():
    both = rl.compare_models({"a": product, "b": plane}, X, Y, rng=5, draws=7)
    for name, model in (("a", product), ("b", plane)):
        alone = rl.permutation_importance(model, X, Y, rng=5, draws=7)
        np.testing.assert_array_equal(both[name].values, alone.values)
        np.testing.assert_array_equal(both[name].std_error, alone.std_error)


def test_models_of_two_libraries_have_the_same_donors():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([0.8, -0.3, 0.0], dtype=torch.float32))

        def forward(self, x):
            return x @ self.w

    delta = rl.compare_models({"net": Net(), "plane": plane}, X, Y, rng=0).delta("net", "plane")
    np.testing.assert_allclose(delta.values, 0.0, atol=1e-6)
    assert np.all(delta.std_error < 1e-6)


def test_a_model_is_like_itself():
    delta = rl.compare_models({"a": product, "b": product, "c": plane}, X, Y, rng=0).delta("a", "b")
    assert not delta.values.any()
    assert not delta.std_error.any()
    assert delta.test().p_value.tolist() == [1.0] * P


def test_metrics_are_compared_by_their_influence():
    labels = Y > 0
    both = rl.compare_models({"a": product, "b": plane}, X, labels, loss="auc", rng=0)
    assert np.all(both.delta("a", "b").std_error[:2] > 0.0)
    alone = rl.Metric(lambda y, p: np.mean(np.abs(y - p)))
    unknown = rl.compare_models({"a": product, "b": plane}, X, Y, loss=alone, rng=0).delta("a", "b")
    assert np.isnan(unknown.std_error).all()


def test_tables_frames_files_and_figures(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    two = rl.compare_models({"a": product, "b": plane}, X, Y, rng=0)
    assert "b - a" in repr(two)
    assert "lower 95%" in repr(two)
    three = rl.compare_models({"a": product, "b": plane, "c": lambda Z: Z[:, 2]}, X, Y, rng=0)
    assert "c - a, p" in repr(three)
    frame = three.to_frame()
    np.testing.assert_array_equal(frame["c - a"], three["c"].values - three["a"].values)
    np.testing.assert_array_equal(frame["b - a, lower"], three.delta("b", "a").interval()[:, 0])
    assert len(three.plot().containers) >= 3
    for name in ("comparison.json", "comparison.npz"):
        three.save(tmp_path / name)
        again = rl.load(tmp_path / name)
        np.testing.assert_array_equal(again.delta("b", "c").interval(), three.delta("b", "c").interval())
    ranked = three.ranked()
    order = [three["a"].names.index(name) for name in ranked["a"].names]
    np.testing.assert_array_equal(ranked.delta("a", "c").std_error, three.delta("a", "c").std_error[order])


def test_models_by_name_in_permutation_importance():
    models = {"a": product, "b": plane}
    for rng in (7, np.random.default_rng(7)):
        found = rl.permutation_importance(models, X, Y, rng=rng, draws=5)
        assert found.by == "model"
        assert found["a"].key == found["b"].key
    alone = rl.permutation_importance(plane, X, Y, rng=found["b"].key, draws=5)
    np.testing.assert_array_equal(found["b"].values, alone.values)
    several = rl.permutation_importance(models, X, Y, rng=0, draws=5, loss=["squared_error", "absolute_error"])
    assert several["b"]["absolute_error"].loss == "absolute_error"


@pytest.mark.parametrize(
    ("models", "options", "error", "words"),
    [
        ([product, plane], {}, TypeError, "no mapping"),
        ({"a": product}, {}, ValueError, "at least 2"),
        ({"a": product, 1: plane}, {}, TypeError, "names of models are text"),
        ({"a": product, "b": plane}, {"loss": ["auc", "r2"]}, ValueError, "one loss at a time"),
        ({"a": product, "b": plane}, {"draws": "most"}, ValueError, "draws"),
        ({"a": product, "b": plane}, {"compare": "quotient"}, ValueError, "compare"),
        ({"a": product, "b": lambda Z: Z[:, :2]}, {"loss": "log_loss"}, ValueError, "loss"),
    ],
)
def test_what_cannot_be_compared(models, options, error, words):
    with pytest.raises(error, match=words):
        rl.compare_models(models, X, Y, rng=0, **options)


def test_models_are_judged_alike():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    labels = (Y > 0).astype(int)
    models = {"classes": LogisticRegression().fit(X, labels), "numbers": LinearRegression().fit(X, labels)}
    with pytest.raises(ValueError, match="pass loss="):
        rl.compare_models(models, X, labels)
    with pytest.raises(ValueError, match="shape") as caught:
        rl.compare_models({"good": plane, "bad": lambda Z: Z[:3]}, X, Y)
    assert "'bad'" in caught.value.__notes__[0]


def test_checkpoints_of_jax_share_a_compilation():
    jax = pytest.importorskip("jax")
    compiled: list[str] = []

    def note(event, duration, **details):
        if event.endswith("backend_compile_duration"):
            compiled.append(str(details.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(note)

    def apply(params, x):
        return jax.numpy.tanh(x @ params["w"]) @ params["v"]

    def checkpoint(seed):
        rng = np.random.default_rng(seed)
        params = {"w": rng.normal(size=(P, 5)), "v": rng.normal(size=5)}
        return rl.models.jax(apply, {name: jax.numpy.asarray(value) for name, value in params.items()})

    rows, labels = jax.numpy.asarray(X), jax.numpy.asarray(Y)
    rl.compare_models({"0": checkpoint(0), "1": checkpoint(1)}, rows, labels, rng=0)
    before = len(compiled)
    both = rl.compare_models({str(k): checkpoint(k) for k in range(2, 5)}, rows, labels, rng=0)
    assert len(compiled) == before, compiled[before:]
    assert len({tuple(one.values) for one in both.values()}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "widest"), [(16, 1.15), (3, 1.5), ("all", 1.15)])
def test_coverage_of_differences(draws, widest):
    """f = X b with independent columns: the difference of two models is 2 (a_j - b_j) times the true coefficient."""
    truth, a, b, runs, n = np.array([1.0, 0.5, 0.0]), np.array([0.9, 0.6, 0.3]), np.array([0.8, 0.6, -0.1]), 400, 120
    target, inside, errors, values = 2.0 * (a - b) * truth, np.zeros(3), [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(n, 3))
        y = Z @ truth + 0.5 * rng.normal(size=n)
        both = rl.compare_models({"a": lambda Z: Z @ a, "b": lambda Z: Z @ b}, Z, y, draws=draws, rng=seed)
        delta = both.delta("a", "b")
        low, high = delta.interval().T
        inside += (low <= target) & (target <= high)
        errors.append(delta.std_error)
        values.append(delta.values)
    assert np.all(inside / runs > 0.91), inside / runs
    wide = np.mean(errors, axis=0) / np.std(values, axis=0)
    assert np.all((wide > 0.9) & (wide < widest)), wide


def test_clusters_are_the_units_of_differences():
    clusters = np.arange(N) // 4
    both = rl.compare_models({"a": product, "b": plane}, X, Y, draws="all", clusters=clusters)
    one, other = (
        rl.model_reliance(model, X, Y, compare="difference", clusters=clusters, keep="influence")
        for model in (product, plane)
    )
    np.testing.assert_allclose(both.delta("a", "b").std_error, (one - other).std_error)
    assert both["a"].units == 10


def test_what_is_kept_of_each_model():
    both = rl.compare_models({"a": product, "b": plane}, X, Y, rng=0, keep=["rows", "influence"])
    assert both["a"].row_values.shape == (P, N)
    assert both["b"].ranks(0.9).first.min() == 1
    assert rl.compare_models({"a": product, "b": plane}, X, Y, rng=0)["a"].influence is None


def test_networks_of_flax_and_equinox():
    """The same weights in each library: the literal loop over donors, and no difference between them."""
    jax, nnx = pytest.importorskip("jax"), pytest.importorskip("flax.nnx")
    eqx = pytest.importorskip("equinox")
    jnp = jax.numpy
    weight = np.array([[0.8], [-0.3], [0.1]], dtype=np.float32)
    flax_net = nnx.Linear(P, 1, rngs=nnx.Rngs(0))
    flax_net.kernel[...] = jnp.asarray(weight)
    equinox_net = eqx.nn.Linear(P, 1, key=jax.random.key(0))
    equinox_net = eqx.tree_at(lambda net: (net.weight, net.bias), equinox_net, (jnp.asarray(weight.T), jnp.zeros(1)))
    params, static = eqx.partition(equinox_net, eqx.is_array)
    models = {
        "flax": rl.models.flax(flax_net),
        "equinox": rl.models.jax(lambda own, x: jax.vmap(eqx.combine(own, static))(x), params),
    }
    rows, labels = jnp.asarray(X), jnp.asarray(Y)
    both = rl.compare_models(models, rows, labels, draws=rl.Draws(3, design="shifts"), rng=2)
    donors = rl.plans.Shifts(N, 3, 2).donors(range(N), range(3))
    for j in range(P):
        changes = []
        for k in range(3):
            Z = X.copy()
            Z[:, j] = X[donors[:, k], j]
            changes.append(np.mean(((Z @ weight)[:, 0] - Y) ** 2 - ((X @ weight)[:, 0] - Y) ** 2))
        np.testing.assert_allclose(both["flax"].values[j], np.mean(changes), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(both.delta("flax", "equinox").values, 0.0, atol=1e-5)


@pytest.mark.parametrize("draws", ["all", 5])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_a_difference_that_rounding_left_is_zero(draws, compare):
    """The same function, its terms in another order: not significant, and without an error of rounding's size."""
    models = {"one": lambda Z: (0.1 * Z[:, 0] + 0.2 * Z[:, 1]) + 0.3 * Z[:, 2]}
    models |= {"other": lambda Z: 0.1 * Z[:, 0] + (0.2 * Z[:, 1] + 0.3 * Z[:, 2]), "plane": plane}
    found = rl.compare_models(models, X, Y, draws=draws, compare=compare, rng=0)
    assert (models["one"](X) != models["other"](X)).any()
    same = found.delta("one", "other")
    assert not same.values.any()
    assert not same.std_error.any()
    assert (same.test().p_adjusted == 1.0).all()
    np.testing.assert_allclose(found.delta("one", "plane").values, found["one"].values - found["plane"].values)
    assert (found.delta("one", "plane").std_error > 0.0).all()
