"""Losses and metrics against literal loops, scipy, scikit-learn and torch, on every backend."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliance._core.arrays import is_floating, namespace, to_host
from reliance.losses import checks as loss_checks
from reliance.losses import functions as ls

BACKENDS = ["numpy", "strict", "strict_no_float64", "torch", "jax"]
SINGLE = {"strict_no_float64", "jax"}  # float32 only


def put(name, array):
    """Upload a host array to a backend, in float32 where it has no float64."""
    array = np.asarray(array)
    if name in SINGLE and array.dtype == np.float64:
        array = array.astype(np.float32)
    if name == "numpy":
        array = array.copy()
        array.flags.writeable = False
        return array
    if name.startswith("strict"):
        strict = pytest.importorskip("array_api_strict")
        strict.set_array_api_strict_flags(boolean_indexing=False, data_dependent_shapes=False)
        return strict.asarray(array, device=strict.Device("device1" if name == "strict" else "no_float64"))
    if name == "torch":
        return pytest.importorskip("torch").from_numpy(array.copy())
    return pytest.importorskip("jax.numpy").asarray(array)


@pytest.fixture(autouse=True)
def _restore_strict_flags():
    yield
    try:
        import array_api_strict
    except ImportError:
        return
    array_api_strict.reset_array_api_strict_flags()


@pytest.fixture(params=BACKENDS)
def name(request):
    return request.param


def tolerance(name):
    return {"rtol": 2e-5, "atol": 2e-6} if name in SINGLE else {"rtol": 1e-12, "atol": 1e-13}


def assert_rows(loss, name, y, prediction, expected):
    """The rows agree with the oracle, and are on the device of the input."""
    loss = ls.resolve(loss)
    y_, p_ = put(name, y), put(name, prediction)
    loss_checks.check(loss, y_, p_)
    rows = ls.row_losses(loss, y_, p_)
    assert namespace(rows) is namespace(p_)
    assert rows.shape == (len(y),)
    if name.startswith("strict"):
        assert rows.device == p_.device
    np.testing.assert_allclose(to_host(rows), expected, **tolerance(name))


def random(seed=0):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------------------------------------------------------
# Per-row losses of numbers


POINTWISE = {
    "squared_error": lambda a, b: (a - b) ** 2,
    "absolute_error": lambda a, b: abs(a - b),
    "prediction_shift": lambda a, b: (a - b) ** 2,
    "huber": lambda a, b: 0.5 * (a - b) ** 2 if abs(a - b) <= 1 else abs(a - b) - 0.5,
    "pinball": lambda a, b: 0.5 * abs(a - b),
}


@pytest.mark.parametrize("loss", POINTWISE)
@pytest.mark.parametrize("outputs", [(), (3,), (2, 2)])
def test_pointwise_losses_are_the_mean_of_a_literal_loop_over_outputs(loss, outputs, name):
    rng = random()
    y, p = rng.normal(size=(9, *outputs)) * 2, rng.normal(size=(9, *outputs))
    expected = [
        np.mean([POINTWISE[loss](a, b) for a, b in zip(u.ravel(), v.ravel(), strict=True)])
        for u, v in zip(y.reshape(9, -1), p.reshape(9, -1), strict=True)
    ]
    assert_rows(loss, name, y, p, expected)


@pytest.mark.parametrize("delta", [0.3, 1.0, 2.5])
def test_huber_is_torchs(delta, name):
    torch = pytest.importorskip("torch")
    rng = random(1)
    y, p = rng.normal(size=50) * 3, rng.normal(size=50)
    y[0] = p[0] + delta
    expected = torch.nn.functional.huber_loss(torch.tensor(p), torch.tensor(y), reduction="none", delta=delta)
    assert_rows(ls.huber(delta), name, y, p, expected.numpy())


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_pinball_is_scikit_learns(q, name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(2)
    y, p = rng.normal(size=20), rng.normal(size=20)
    expected = [metrics.mean_pinball_loss([a], [b], alpha=q) for a, b in zip(y, p, strict=True)]
    assert_rows(ls.pinball(q), name, y, p, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_poisson_deviance_is_scikit_learns(dtype, name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(3)
    y, p = rng.poisson(1.5, size=30).astype(dtype), rng.gamma(1.0, size=30) + 0.05
    assert np.any(y == 0)
    expected = [metrics.mean_poisson_deviance([a], [b]) for a, b in zip(y, p, strict=True)]
    assert_rows("poisson_deviance", name, y, p, expected)


def test_hinge_is_scikit_learns(name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(4)
    y, p = rng.choice([-1, 1], size=30), rng.normal(size=30) * 2
    expected = [metrics.hinge_loss(y, p, sample_weight=one) for one in np.eye(30)]  # one row alone would lose its sign
    assert_rows("hinge", name, y, p, expected)


# ---------------------------------------------------------------------------------------------------------------------
# Per-row losses of labels


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8, np.bool_, np.float64])
def test_binary_log_loss_is_scikit_learns(dtype, name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(5)
    y, p = rng.integers(0, 2, size=30).astype(dtype), rng.uniform(size=30)
    expected = [metrics.log_loss([int(a)], [b], labels=[0, 1]) for a, b in zip(y, p, strict=True)]
    assert_rows("log_loss", name, y, p, expected)
    assert_rows("log_loss", name, y, np.stack([1 - p, p], axis=1), expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float64])
def test_multiclass_log_loss_is_scikit_learns(dtype, name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(6)
    y, p = rng.integers(0, 4, size=30).astype(dtype), softmax(rng.normal(size=(30, 4)))
    expected = [metrics.log_loss([int(a)], [b], labels=range(4)) for a, b in zip(y, p, strict=True)]
    assert_rows("log_loss", name, y, p, expected)


def test_log_loss_clips_at_the_eps_of_the_predictions(name):
    eps = float(np.finfo(np.float32 if name in SINGLE else np.float64).eps)
    y, p = np.array([0, 1, 0, 1]), np.array([1.0, 0.0, 0.0, 1.0])
    expected = [-math.log(eps)] * 2 + [-math.log(1 - eps)] * 2
    assert_rows("log_loss", name, y, p, expected)
    assert_rows("log_loss", name, y, np.stack([1 - p, p], axis=1), expected)
    # the dtype of the labels changes that of the loss, not where it is clipped
    p32 = p.astype(np.float32)
    a, b = (to_host(ls.row_losses(ls.log_loss, put(name, v), put(name, p32))) for v in (y, y.astype(np.float64)))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float64])
def test_cross_entropy_is_torchs(dtype, name):
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    rng = random(7)
    y, z = rng.integers(0, 4, size=30), rng.normal(size=(30, 4)) * 5
    expected = F.cross_entropy(torch.tensor(z), torch.tensor(y), reduction="none").numpy()
    assert_rows("cross_entropy", name, y.astype(dtype), z, expected)
    y, z = rng.integers(0, 2, size=30), rng.normal(size=30) * 5
    expected = F.binary_cross_entropy_with_logits(torch.tensor(z), torch.tensor(1.0 * y), reduction="none").numpy()
    assert_rows("cross_entropy", name, y.astype(dtype), z, expected)


def test_cross_entropy_is_stable_for_huge_logits(name):
    y, z = np.array([0, 1, 0, 1]), np.array([1e4, 1e4, -80.0, 80.0])
    assert_rows("cross_entropy", name, y, z, [1e4, 0.0, math.exp(-80), math.exp(-80)])
    both = np.array([[0.0, 1e4], [0.0, 1e4]])
    assert_rows("cross_entropy", name, y[:2], both, [1e4, 0.0])


def test_zero_one(name):
    y, labels = np.array([0, 1, 2, 1]), np.array([0, 2, 2, 1])
    for dtype in (np.int64, np.int32, np.float64):
        assert_rows("zero_one", name, y, labels.astype(dtype), [0, 1, 0, 0])
        assert_rows("zero_one", name, y.astype(dtype), labels, [0, 1, 0, 0])
    assert_rows("zero_one", name, y == 1, np.array([0, 1, 1, 1]), [0, 0, 1, 0])
    assert_rows("zero_one", name, np.array([-1, 1, -1, 1]), np.array([-1, -1, -1, 1]), [0, 1, 0, 0])
    scores = np.array([[3.0, 1, 2], [1, 2, 3], [0, 0, 1], [-3, -1, -2]])
    assert_rows("zero_one", name, y, scores, [0, 1, 0, 0])


def test_zero_one_and_accuracy_compare_numpy_strings():
    y, p = np.array(["cat", "dog", "cat"]), np.array(["cat", "cat", "cat"])
    for labels in (p, p.astype(object)):
        loss_checks.check(ls.zero_one, y, labels)
        np.testing.assert_array_equal(ls.row_losses(ls.zero_one, y, labels), [0, 1, 0])
    assert ls.accuracy.value(y, p) == pytest.approx(1 / 3)


# ---------------------------------------------------------------------------------------------------------------------
# Dtypes


def dtype_name(x):
    return str(x.dtype).rsplit(".", 1)[-1]


@pytest.mark.parametrize("loss", ["squared_error", "hinge", "zero_one", "log_loss", "cross_entropy"])
def test_the_dtype_is_the_predictions_but_at_least_float32_and_never_cast_down(loss, name):
    if name in SINGLE:
        pytest.skip("has only one floating dtype")
    y = np.array([1, 1])
    for of_y, of_p, expected in [
        (np.int64, np.float32, "float32"),
        (np.int64, np.float64, "float64"),
        (np.float32, np.float64, "float64"),
        (np.float64, np.float32, "float64"),
        (np.float32, np.float32, "float32"),
        (np.float64, np.int64, "float64"),
        (np.int64, np.int64, "float64"),
    ]:
        rows = ls.row_losses(ls.resolve(loss), put(name, y.astype(of_y)), put(name, np.array([1, 0]).astype(of_p)))
        assert dtype_name(rows) == expected, (of_y, of_p)


@pytest.mark.parametrize("loss", ["squared_error", "hinge", "log_loss", "cross_entropy", "auc", "r2", "rmse"])
def test_half_precision_is_raised(loss):
    torch = pytest.importorskip("torch")
    jnp = pytest.importorskip("jax.numpy")
    half = [torch.tensor([0.25, 0.5, 0.75], dtype=d) for d in (torch.float16, torch.bfloat16)]
    half += [jnp.asarray([0.25, 0.5, 0.75], dtype=d) for d in (jnp.float16, jnp.bfloat16)]
    for p in half:
        xp = namespace(p)
        y = xp.asarray([1, 0, 1]) if loss not in ("r2", "rmse") else xp.asarray([1.0, 2.0, 3.0], dtype=p.dtype)
        found = ls.resolve(loss)
        if isinstance(found, ls.Metric):
            rows = ls.draw_losses(found, y, p[:, None])
        else:
            rows = ls.row_losses(found, y, p)
        assert is_floating(xp, rows.dtype)
        assert rows.dtype.itemsize >= 4
        assert np.all(np.isfinite(to_host(rows)))


def test_half_precision_is_checked_like_the_rest():
    jnp = pytest.importorskip("jax.numpy")
    y, p = (jnp.asarray(v, dtype=jnp.bfloat16) for v in ([0, 1, 1], [0.0, 1.0, 0.5]))
    loss_checks.check(ls.zero_one, y, y)
    loss_checks.check(ls.log_loss, y, p)
    with pytest.raises(ValueError, match=r"the predictions must be integer labels, got 0\.5"):
        loss_checks.check(ls.zero_one, y, p)
    with pytest.raises(ValueError, match=r"y must be integer labels, got 0\.5"):
        loss_checks.check(ls.log_loss, p, p)


def test_nan_predictions_give_nan_not_a_bounded_loss(name):
    p = np.array([np.nan, 0.5])
    labels = {"hinge": [1, 1], "log_loss": [1, 1], "cross_entropy": [1, 1]}
    for loss in ("squared_error", "absolute_error", "huber", "pinball", "hinge", "log_loss", "cross_entropy"):
        y = np.array(labels.get(loss, [1.0, 1.0]))
        rows = to_host(ls.row_losses(ls.resolve(loss), put(name, y), put(name, p)))
        assert list(np.isnan(rows)) == [True, False], loss
    assert bool(to_host(ls.log_loss.valid(put(name, p))))  # finiteness has its own error


# ---------------------------------------------------------------------------------------------------------------------
# Metrics


def metric_value(metric, name, y, p, w=None):
    args = [put(name, v) for v in (y, p, w) if v is not None]
    value = ls.resolve(metric).value(*args)
    assert value.shape == ()
    return float(to_host(value))


def auc_loop(y, s, w=None):
    """1 - AUC by comparing every positive with every negative."""
    w = np.ones(len(y)) if w is None else w
    lost = total = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] == 1 and y[j] == 0:
                total += w[i] * w[j]
                lost += w[i] * w[j] * (1.0 if s[j] > s[i] else 0.5 if s[j] == s[i] else 0.0)
    return lost / total


def weighted_data(kind, seed=8, n=60):
    rng = random(seed)
    w = rng.gamma(1.0, size=n) + 0.01
    w[3] = 0.0
    if kind == "auc":
        return rng.integers(0, 2, size=n), np.round(rng.normal(size=n), 1), w
    if kind == "accuracy":
        return rng.integers(0, 3, size=n), rng.integers(0, 3, size=n), w
    y = rng.normal(size=n) + 3
    return y, y + rng.normal(size=n), w


def sklearn_value(kind, y, p, w=None):
    metrics = pytest.importorskip("sklearn.metrics")
    if kind == "auc":
        return 1 - metrics.roc_auc_score(y, p, sample_weight=w)
    if kind == "r2":
        return 1 - metrics.r2_score(y, p, sample_weight=w)
    if kind == "rmse":
        return math.sqrt(metrics.mean_squared_error(y, p, sample_weight=w))
    return 1 - metrics.accuracy_score(y, p, sample_weight=w)


METRICS = ["auc", "r2", "rmse", "accuracy"]


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_metric_values_are_scikit_learns(kind, weighted, name):
    y, p, w = weighted_data(kind)
    w = w if weighted else None
    loss_checks.check(ls.resolve(kind), put(name, y), put(name, p))
    np.testing.assert_allclose(metric_value(kind, name, y, p, w), sklearn_value(kind, y, p, w), **tolerance(name))


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_pseudo_losses_per_draw_average_to_the_metric_of_that_draw(kind, weighted, name):
    y, p, w = weighted_data(kind)
    rng = random(9)
    draws = np.stack([p, p[rng.permutation(len(p))], p[rng.permutation(len(p))]], axis=1)
    w_ = put(name, w) if weighted else None
    rows = ls.draw_losses(ls.resolve(kind), put(name, y), put(name, draws), w_)
    assert rows.shape == draws.shape
    means = np.average(to_host(rows), axis=0, weights=w if weighted else None)
    expected = [sklearn_value(kind, y, draws[:, k], w if weighted else None) for k in range(3)]
    np.testing.assert_allclose(means, expected, **tolerance(name))


def test_auc_pseudo_losses_are_the_formula_in_a_literal_loop(name):
    y, s, w = weighted_data("auc", n=25)
    for weights in (None, w):
        u = np.ones(len(y)) if weights is None else weights
        a, expected = auc_loop(y, s, u), []
        for i in range(len(y)):
            below = [
                np.sum(u[y == c] * ((s[y == c] < s[i]) + 0.5 * (s[y == c] == s[i]))) / np.sum(u[y == c]) for c in (0, 1)
            ]
            own = (1 - below[0] - a) if y[i] == 1 else (below[1] - a)
            expected.append(a + np.sum(u) / np.sum(u[y == y[i]]) * own)
        args = () if weights is None else (put(name, weights),)
        rows = ls.auc.influence(put(name, y), put(name, s), *args)
        np.testing.assert_allclose(to_host(rows), expected, **tolerance(name))


@pytest.mark.parametrize("kind", ["r2", "rmse", "auc"])
def test_pseudo_losses_are_the_influence_function_by_finite_differences(kind):
    """The derivative of the weighted value in the weight of row i is (pseudo-loss - value) w-bar / sum(w)."""
    y, p, w = weighted_data(kind, n=12)
    w = w + 0.1
    metric, h = ls.resolve(kind), 1e-6
    rows, value = metric.influence(y, p, w), metric.value(y, p, w)
    for i in range(len(y)):
        step = np.zeros(len(y))
        step[i] = h
        slope = (metric.value(y, p, w + step) - metric.value(y, p, w - step)) / (2 * h)
        assert slope == pytest.approx((rows[i] - value) / np.sum(w), rel=1e-5, abs=1e-8)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3), st.integers(0, 4)), min_size=2, max_size=30))
def test_auc_with_ties_is_the_quadratic_loop(rows):
    y, s, w = (np.array(column) for column in zip(*rows, strict=True))
    y, s, w = y.astype(int), s / 2.0, w / 2.0
    if len(set(y)) < 2:
        return
    assert float(ls.auc.value(y, s)) == pytest.approx(auc_loop(y, s), abs=1e-12)
    assert np.mean(ls.auc.influence(y, s)) == pytest.approx(auc_loop(y, s), abs=1e-12)
    if w[y == 1].sum() > 0 and w[y == 0].sum() > 0:
        assert float(ls.auc.value(y, s, w)) == pytest.approx(auc_loop(y, s, w), abs=1e-12)
        assert np.average(ls.auc.influence(y, s, w), weights=w) == pytest.approx(auc_loop(y, s, w), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_several_outputs_are_pooled_in_r2_and_rmse(weighted, name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random(10)
    y = rng.normal(size=(40, 3)) * [1, 2, 5]
    p, w = y + rng.normal(size=(40, 3)), rng.gamma(2.0, size=40)
    sw = w if weighted else None
    expected = 1 - metrics.r2_score(y, p, sample_weight=sw, multioutput="variance_weighted")
    np.testing.assert_allclose(metric_value("r2", name, y, p, sw), expected, **tolerance(name))
    expected = math.sqrt(np.average(np.mean((y - p) ** 2, axis=1), weights=sw))
    np.testing.assert_allclose(metric_value("rmse", name, y, p, sw), expected, **tolerance(name))
    rows = ls.draw_losses(ls.rmse, put(name, y), put(name, p[:, None]), None if sw is None else put(name, sw))
    np.testing.assert_allclose(np.average(to_host(rows)[:, 0], weights=sw), expected, **tolerance(name))


def test_rmse_of_a_perfect_fit_is_zero(name):
    y = put(name, np.array([1.0, 2.0]))
    assert float(to_host(ls.rmse.value(y, y))) == 0.0
    np.testing.assert_array_equal(to_host(ls.rmse.influence(y, y)), [0.0, 0.0])


def test_two_columns_of_probabilities_serve_auc(name):
    y, s, _ = weighted_data("auc")
    p = 1 / (1 + np.exp(-s))
    both = np.stack([1 - p, p], axis=1)
    loss_checks.check(ls.auc, put(name, y), put(name, both))
    rows = ls.draw_losses(ls.auc, put(name, y), put(name, both[:, None, :]))
    np.testing.assert_allclose(to_host(rows).mean(), sklearn_value("auc", y, p), **tolerance(name))


def test_a_strided_draw_gives_no_warning():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ls.draw_losses(ls.auc, torch.tensor([0, 1, 1]), torch.rand(3, 4, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------------------------
# User-made losses and metrics


def largest_error(y, prediction, weights=None):
    return namespace(y).max(namespace(y).abs(y - prediction))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_metric_without_influence_carries_its_value_in_every_row(weighted, name):
    y, p = np.arange(4.0), random().normal(size=(4, 3))
    metric = ls.Metric(largest_error)
    assert metric.name == "largest_error"
    assert metric.influence is None
    rows = ls.draw_losses(metric, put(name, y), put(name, p), put(name, np.ones(4)) if weighted else None)
    expected = np.max(np.abs(y[:, None] - p), axis=0)
    np.testing.assert_allclose(to_host(rows), np.broadcast_to(expected, (4, 3)), **tolerance(name))


def test_a_metric_may_return_a_python_number():
    rows = ls.draw_losses(ls.Metric(lambda y, p: 2.0, name="two"), np.zeros(3), np.zeros((3, 2)))
    np.testing.assert_array_equal(rows, np.full((3, 2), 2.0))


def test_metric_takes_names_by_keyword_only():
    with pytest.raises(TypeError):
        ls.Metric(largest_error, None, "name")
    with pytest.raises(TypeError, match=r"Metric needs a function of \(y, prediction\), got 3"):
        ls.Metric(3)
    with pytest.raises(ValueError, match="target='labels' is unknown; use one of any, real, class"):
        ls.Metric(largest_error, target="labels")
    with pytest.raises(ValueError, match="output='proba' is unknown; use one of value, probability, score"):
        ls.Loss("mine", largest_error, output="proba")


def test_resolve():
    def mine(y, prediction):
        return abs(y - prediction)

    assert ls.resolve("squared_error") is ls.squared_error
    assert ls.resolve(ls.auc) is ls.auc
    assert ls.resolve(mine) == ls.Loss("mine", mine)
    assert ls.resolve(mine).target == "any"
    assert ls.resolve("huber") == ls.huber(1.0) == ls.resolve(ls.huber)
    assert ls.resolve("pinball") == ls.pinball() == ls.resolve(ls.pinball)
    assert ls.resolve_all("r2") == (ls.r2,)
    assert [one.name for one in ls.resolve_all(["r2", mine, ls.huber(2)])] == ["r2", "mine", "huber(delta=2.0)"]
    assert set(ls._KNOWN) == set(POINTWISE) | set(METRICS) | {
        "log_loss",
        "cross_entropy",
        "zero_one",
        "hinge",
        "poisson_deviance",
    }
    assert all(ls.resolve(known).name == known for known in ls._KNOWN)
    with pytest.raises(ValueError, match=r"loss='mse' is unknown; the known names are squared_error, .*accuracy"):
        ls.resolve("mse")
    with pytest.raises(TypeError, match=r"loss must be a name, a function .*got 3"):
        ls.resolve(3)
    with pytest.raises(ValueError, match=r"loss=\[\] is empty"):
        ls.resolve_all([])
    with pytest.raises(ValueError, match="loss names 'r2' more than once"):
        ls.resolve_all(["r2", ls.r2])


def test_equal_parameters_are_equal_hashable_objects():
    assert ls.huber(1.5) == ls.huber(1.5)
    assert hash(ls.huber(1.5)) == hash(ls.huber(1.5))
    assert ls.huber(1) == ls.huber(1.0)
    assert ls.huber(1.5) != ls.huber(2.5)
    assert ls.pinball(0.2) == ls.pinball(0.2) != ls.pinball(0.3)
    assert len({ls.resolve(known) for known in ls._KNOWN}) == len(ls._KNOWN)
    for known in ls._KNOWN.values():
        assert pickle.loads(pickle.dumps(known)) == known
    with pytest.raises(ValueError, match="delta=0 must be a positive number"):
        ls.huber(0)
    with pytest.raises(ValueError, match="q=1 must lie strictly between 0 and 1"):
        ls.pinball(1)


def test_answers_of_a_wrong_shape_are_refused(name):
    y, p = put(name, np.arange(4.0)), put(name, np.ones(4))
    xp = namespace(y)
    with pytest.raises(ValueError, match=r"'average' returned shape \(\) instead of shape \(4,\).*wrap .*Metric"):
        ls.row_losses(ls.Loss("average", lambda y, p: xp.mean(y - p)), y, p)
    with pytest.raises(ValueError, match=r"'outer' returned shape \(4, 4\) instead of shape \(4,\)"):
        ls.row_losses(ls.Loss("outer", lambda y, p: y[:, None] - p[None, :]), y, p)
    with pytest.raises(ValueError, match=r"'number' returned float instead"):
        ls.row_losses(ls.Loss("number", lambda y, p: 1.0), y, p)
    with pytest.raises(ValueError, match=r"'rows' returned shape \(4,\) instead of shape \(\): value must return one"):
        ls.draw_losses(ls.Metric(lambda y, p: y - p, name="rows"), y, p[:, None])
    with pytest.raises(ValueError, match=r"'m' returned shape \(\) .*influence must return one number per row"):
        ls.draw_losses(ls.Metric(largest_error, largest_error, name="m"), y, p[:, None])


# ---------------------------------------------------------------------------------------------------------------------
# Shapes and checks


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "zero_one", "hinge"])
def test_predictions_with_one_column_are_viewed_as_a_vector(loss, name):
    y, p = put(name, np.array([1, 1, 1])), np.array([1.0, 0.0, 1.0])
    a, b = (ls.row_losses(ls.resolve(loss), y, put(name, q)) for q in (p, p[:, None]))
    np.testing.assert_array_equal(to_host(a), to_host(b))


SHAPES = [
    ("squared_error", (5, 1), (5,), r"y has shape \(5, 1\) but the predictions have shape \(5,\); pass y\[:, 0\]"),
    ("zero_one", (5, 1), (5,), r"pass y\[:, 0\], of shape \(5,\)"),
    ("log_loss", (5, 1), (5, 2), r"pass y\[:, 0\]"),
    ("rmse", (5, 1), (5,), r"pass y\[:, 0\]"),
    ("auc", (5, 1), (5,), r"pass y\[:, 0\]"),
    ("user", (5, 1), (5,), r"pass y\[:, 0\]"),
    ("user", (5,), (4,), r"one prediction per row"),
    ("squared_error", (5,), (4,), r"y has shape \(5,\) but .* \(4,\); the model must return one prediction per row"),
    ("squared_error", (5,), (), r"one prediction per row"),
    ("squared_error", (5,), (5, 5), r"the two must be equal: return from the model only what y holds"),
    ("squared_error", (5, 5), (5,), r"the two must be equal"),
    ("r2", (5, 2), (5, 3), r"the two must be equal"),
    ("cross_entropy", (5, 3), (5, 3), r"of shape \(5,\); for one-hot y pass its argmax"),
    ("cross_entropy", (5,), (5, 3, 2), r"predictions must be of shape \(n,\) or \(n, classes\)"),
    ("accuracy", (5,), (5, 3, 2), r"predictions must be of shape \(n,\) or \(n, classes\)"),
    ("auc", (5,), (5, 3), r"auc takes one score per row; measure one class c against the rest"),
]


@pytest.mark.parametrize(("loss", "of_y", "of_p", "message"), SHAPES)
def test_shapes_never_broadcast(loss, of_y, of_p, message, name):
    found = ls.Loss("user", lambda y, p: (y - p)[:, 0]) if loss == "user" else ls.resolve(loss)
    y, p = put(name, np.zeros(of_y)), put(name, np.ones(of_p))
    with pytest.raises(ValueError, match=message):
        loss_checks.check(found, y, p)
    if of_p == ():
        return
    run, p = (ls.draw_losses, p[:, None, ...]) if isinstance(found, ls.Metric) else (ls.row_losses, p)
    with pytest.raises(ValueError, match=message):
        run(found, y, p)


HALF = [0.5, 0.5, 0.5]
VALUES = [
    ("log_loss", [0, 1, 2], HALF, r"y has labels 2 that are not among the predicted classes 0\.\.1"),
    ("log_loss", [-1, 1, 1], HALF, r"y has labels -1 .*pass \(y \+ 1\) // 2"),
    ("log_loss", [0, 3, 9], [[0.2, 0.3, 0.5]] * 3, r"labels 3, 9 that are not among the predicted classes 0\.\.2"),
    ("cross_entropy", [0, 7, 1], [[1.0, 2.0]] * 3, r"cross_entropy: y has labels 7 .* 0\.\.1; encode y"),
    ("zero_one", [0, 7, 1], [[1.0, 2.0]] * 3, r"zero_one: y has labels 7 .* 0\.\.1"),
    ("auc", [0, 1, 2], HALF, r"auc: y has labels 2 that are not among the predicted classes 0\.\.1"),
    ("log_loss", [0.0, 0.3, 1.0], HALF, r"log_loss: y must be integer labels, got 0\.3"),
    ("log_loss", [0, 1, 1], [0.5, -1.5, 2.0], r"probabilities in \[0, 1\].*'cross_entropy'; .*from -1\.5 to 2"),
    ("log_loss", [0, 1, 1], [[0.9, 0.1], [0.5, 0.5], [0.7, 0.7]], r"must sum to 1, but row 2 sums to 1\.4"),
    ("hinge", [0, 1, 1], HALF, r"hinge: y must be -1 or 1, got 0, 1; for labels 0 and 1 pass 2\*y - 1"),
    ("poisson_deviance", [0, -2, 1], HALF, r"poisson_deviance: y must be >= 0, got -2"),
    ("poisson_deviance", [0, 2, 1], [0.5, 0.0, 1.0], r"needs predictions > 0; .*exp; .*from 0 to 1"),
    ("zero_one", [0, 1, 1], [0.25, 0.5, 1.0], r"the predictions must be integer labels, got 0\.25, 0\.5; threshold"),
    ("accuracy", [0, 1, 1], [0.25, 0.5, 1.0], r"accuracy: the predictions must be integer labels.*threshold"),
    ("zero_one", [0.5, 1.0, 1.0], [0, 1, 1], r"zero_one: y must be integer labels, got 0\.5"),
    ("auc", [1, 1, 1], HALF, r"auc: y holds only the class 1; it needs rows of both classes"),
    ("r2", [2.0, 2.0, 2.0], HALF, r"r2: y is constant, so its variance is 0; pass loss='squared_error'"),
]


@pytest.mark.parametrize(("loss", "y", "p", "message"), VALUES)
def test_values_that_a_loss_is_not_defined_for(loss, y, p, message, name):
    with pytest.raises(ValueError, match=message):
        loss_checks.check(ls.resolve(loss), put(name, np.array(y)), put(name, np.array(p)))


def test_strings_are_refused_where_numbers_are_needed():
    text, numbers = np.array(["a", "b", "a"]), np.array([0, 1, 0])
    with pytest.raises(ValueError, match=r"log_loss: y must be numbers, got dtype <U1; encode labels as 0\.\.C-1"):
        loss_checks.check(ls.log_loss, text, np.array(HALF))
    with pytest.raises(ValueError, match="squared_error: the predictions must be numbers"):
        loss_checks.check(ls.squared_error, numbers, text)
    for p in (numbers, np.eye(3)):
        with pytest.raises(ValueError, match=r"zero_one: y has dtype <U1 .*the same kind of labels as y holds"):
            loss_checks.check(ls.zero_one, text, p)


def test_probabilities_may_round_above_one(name):
    p = np.array([1 + 2e-7, 0.5]).astype(np.float32)
    loss_checks.check(ls.log_loss, put(name, np.array([1, 0])), put(name, p))
    assert np.all(to_host(ls.row_losses(ls.log_loss, put(name, np.array([1, 0])), put(name, p))) > 0)


# ---------------------------------------------------------------------------------------------------------------------
# Tracing, gradients, devices

LABELS = {"hinge": [1, -1, 1, -1], "log_loss": [0, 1, 1, 0], "cross_entropy": [0, 1, 1, 0], "auc": [0, 1, 1, 0]}


def example(loss):
    y = np.array(LABELS.get(loss, [1.0, 2.0, 0.0, 3.0]))
    return y, np.array([0.3, 0.6, 0.6, 0.9])


@pytest.mark.parametrize("loss", ls._KNOWN)
def test_everything_the_engine_calls_traces_under_jit(loss):
    jax = pytest.importorskip("jax")
    found = ls.resolve(loss)
    y, p = (put("jax", v) for v in example(loss))

    def run(y, p, w):
        if isinstance(found, ls.Metric):
            return ls.draw_losses(found, y, p[:, None], w), found.value(y, p)
        valid = True if found.valid is None else found.valid(p)
        return ls.row_losses(found, y, p), valid

    for eager, traced in zip(run(y, p, None), jax.jit(run)(y, p, None), strict=True):
        np.testing.assert_allclose(traced, eager, rtol=1e-6)
    if isinstance(found, ls.Metric):
        jax.jit(run)(y, p, put("jax", np.ones(4)))
    static = jax.jit(ls.row_losses if isinstance(found, ls.Loss) else ls.draw_losses, static_argnums=0)
    static(found, y, p if isinstance(found, ls.Loss) else p[:, None])


DIFFERENTIABLE = ["squared_error", "absolute_error", "log_loss", "cross_entropy", "hinge", "huber", "pinball"]
DIFFERENTIABLE += ["poisson_deviance", "prediction_shift", "r2", "rmse"]


@pytest.mark.parametrize("loss", DIFFERENTIABLE)
def test_gradients_match_finite_differences(loss):
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    found, (y, p) = ls.resolve(loss), example(loss)
    function = found.value if isinstance(found, ls.Metric) else lambda y, p: namespace(p).sum(found.rows(y, p))
    steps = 1e-6 * np.eye(4)
    expected = [(function(y, p + h) - function(y, p - h)) / 2e-6 for h in steps]
    t = torch.tensor(p, requires_grad=True)
    function(torch.tensor(y), t).backward()
    np.testing.assert_allclose(t.grad.numpy(), expected, rtol=1e-6, atol=1e-8)
    slope = jax.grad(function, argnums=1)(put("jax", y), put("jax", p))
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_finite_where_log_loss_is_clipped_and_logits_are_huge():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    y = np.array([0, 1, 0, 1])
    cases = [(ls.log_loss, np.array([0.0, 0.0, 1.0, 1.0])), (ls.cross_entropy, np.array([1e4, -1e4, 0.0, 0.0]))]
    cases += [(loss, np.stack([1 - p, p], axis=1)) for loss, p in cases]
    for loss, p in cases:
        t = torch.tensor(p, requires_grad=True)
        ls.row_losses(loss, torch.tensor(y), t).sum().backward()
        assert torch.all(torch.isfinite(t.grad))
        slope = jax.grad(lambda q, loss=loss: ls.row_losses(loss, put("jax", y), q).sum())(put("jax", p))
        assert np.all(np.isfinite(slope))
    perfect = jax.grad(lambda q: ls.rmse.value(q * 0 + 1.0, q))(put("jax", np.ones(3)))
    assert np.all(np.isfinite(perfect))


@pytest.mark.parametrize("loss", ls._KNOWN)
def test_no_tensor_leaves_a_cuda_device(loss):
    """Fake CUDA tensors: shapes, dtypes, devices and hidden synchronisation, without a GPU."""
    torch = pytest.importorskip("torch")
    import ctypes

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    if not torch.cuda.is_available():
        library = ctypes.CDLL(torch.__path__[0] + "/lib/libc10.so")
        guards = (ctypes.c_void_p * 22).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
        guards[1] = guards[1] or guards[14]

    class OneDevice(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            found = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
            assert all(t.device.type == "cuda" for t in found), func
            return out

    found = ls.resolve(loss)
    with FakeTensorMode():
        integer = loss in LABELS or loss in ("zero_one", "accuracy", "poisson_deviance")
        y = torch.zeros(6, device="cuda:0", dtype=torch.int32 if integer else torch.float32)
        shapes = [(6,), (6, 3)] if loss in ("log_loss", "cross_entropy", "zero_one", "accuracy") else [(6,)]
        for shape in shapes:
            p, w = torch.zeros(shape, device="cuda:0"), torch.ones(6, device="cuda:0")
            with OneDevice():
                if isinstance(found, ls.Metric):
                    for weights in (None, w):
                        assert ls.draw_losses(found, y, p[:, None, ...], weights).shape == (6, 1)
                    assert found.value(y, p, w).shape == ()
                else:
                    assert ls.row_losses(found, y, p).shape == (6,)
                    assert found.valid is None or found.valid(p).shape == ()


@pytest.mark.parametrize("loss", ls._KNOWN)
def test_nothing_is_read_back_on_a_strict_device(loss, monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    strict.set_array_api_strict_flags(boolean_indexing=False, data_dependent_shapes=False)
    found, (y, p) = ls.resolve(loss), example(loss)
    second = strict.Device("device2")
    y, p = strict.asarray(y, device=second), strict.asarray(p, device=second)

    def refuse(self, *args):
        raise AssertionError("read back to the host")

    for method in ("__float__", "__bool__", "__int__", "__index__"):
        monkeypatch.setattr(type(y), method, refuse)
    if isinstance(found, ls.Metric):
        assert ls.draw_losses(found, y, p[:, None]).device == second
        assert found.value(y, p, strict.ones_like(p)).device == second
    else:
        assert ls.row_losses(found, y, p).device == second
        assert found.valid is None or found.valid(p).device == second
