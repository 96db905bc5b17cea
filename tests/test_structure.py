"""The exact shortcuts equal the plain all-pairs route: values, rows, donors (through the errors), intervals."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.linear_model import Lasso, LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
import reliance as rl
from reliance.data.features import resolve_features
from reliance.exact import joint_moments

FIELDS = ("values", "replaced_risk", "row_values", "std_error", "skewness", "random_variable_error")
FEATURES = [0, 1, 2, 3, (1, 2), (0, 3)]


def assert_same(found, plain, rtol=1e-10, atol=1e-10):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=rtol, atol=atol, err_msg=name)
    if plain.n > 2:
        np.testing.assert_allclose(found.interval(), plain.interval(), rtol=rtol, atol=atol)


def tied_data(n=40, seed=0):
    """One column without ties, three with: a factor, a constant, rounded numbers."""
    rng = np.random.default_rng(seed)
    columns = (rng.normal(size=n), rng.integers(0, 3, n), np.full(n, 2.0), rng.normal(size=n).round(1))
    return np.stack(columns, axis=1).astype(float), rng.normal(size=n), rng.uniform(0.5, 2.0, n)


# ---------------------------------------------------------------------------------------------------------------------
# Distinct values


@pytest.mark.once_per_device
@pytest.mark.parametrize("weighted", [False, True])
def test_distinct_values_equal_the_plain_route(backend, weighted):
    X, y, w = tied_data()
    X, y, w = (backend.asarray(a) for a in (X, y, w))

    def model(Z):
        return Z[:, 0] * Z[:, 1] + Z[:, 3] ** 2 + Z[:, 2] * Z[:, 3]

    options = {
        "features": FEATURES,
        "weights": w if weighted else None,
        "loss": ["squared_error", "absolute_error"],
        "keep": "rows",
    }
    found = rl.model_reliance(model, X, y, **options)
    plain = rl.model_reliance(model, X, y, route="plain", **options)
    for loss in options["loss"]:
        tolerance = 1e-10 if backend.dtype == "float64" else 1e-4
        assert_same(found[loss], plain[loss], tolerance, tolerance)
        assert found[loss].routes == ("plain", "distinct", "distinct", "distinct", "distinct", "plain")
        sizes = [40, 3, 1, len(np.unique(tied_data()[0][:, 3])), 3, 40]
        assert found[loss].evaluations.tolist() == [40 * m for m in sizes]


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    n=st.integers(3, 12),
    compare=st.sampled_from(["difference", "ratio"]),
    weighted=st.booleans(),
    block=st.sampled_from([None, 1, 7, (2, 3)]),
)
def test_any_ties(data, n, compare, weighted, block):
    values = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, np.nan, np.inf])
    X = data.draw(hnp.arrays(np.float64, (n, 2), elements=values))
    y = data.draw(hnp.arrays(np.float64, n, elements=st.floats(-2, 2))) + 10.0
    w = data.draw(hnp.arrays(np.float64, n, elements=st.floats(0.5, 2))) if weighted else None

    def model(Z):  # tells 0.0 from -0.0, and takes NaN and infinities
        return np.nan_to_num(Z[:, 0], nan=0.7, posinf=3.0) + np.copysign(0.5, Z[:, 1]) + np.isnan(Z[:, 1])

    options = {"compare": compare, "weights": w, "run": rl.Run(block=block), "keep": "rows", "features": [0, 1, (0, 1)]}
    with (
        np.errstate(invalid="ignore"),
        pytest.warns(UserWarning, match="NaN or infinite") if not np.isfinite(X).all() else _nothing(),
    ):
        found = rl.model_reliance(model, X, y, **options)
        plain = rl.model_reliance(model, X, y, route="plain", **options)
    for name in FIELDS:
        if name != "skewness" or plain.std_error.min() > 1e-9:  # the skewness of rounding is anything
            np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-10, atol=1e-10, err_msg=name)


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_multiclass_losses():
    rng = np.random.default_rng(3)
    X = rng.integers(0, 4, size=(30, 3)).astype(float)
    y, W = rng.integers(0, 3, 30), rng.normal(size=(3, 3))
    found = rl.model_reliance(lambda Z: Z @ W, X, y, loss="cross_entropy", keep="rows")
    assert found.routes == ("distinct",) * 3
    assert_same(found, rl.model_reliance(lambda Z: Z @ W, X, y, loss="cross_entropy", keep="rows", route="plain"))


# ---------------------------------------------------------------------------------------------------------------------
# Linear models


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        LinearRegression(fit_intercept=False),
        Lasso(0.01),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(StandardScaler(with_mean=False), "passthrough", StandardScaler(with_std=False), Ridge()),
    ],
    ids=["ols", "origin", "lasso", "scaled", "twice"],
)
def test_linear_models_in_closed_form(estimator, compare, weighted):
    X, y, w = tied_data(seed=1)
    X = X + np.array([1e3, 0.0, 0.0, -50.0])  # far from 0: the closed form must not lose digits
    model = estimator.fit(X, y)
    options = {"compare": compare, "weights": w if weighted else None, "features": FEATURES, "keep": "rows"}
    found = rl.model_reliance(model, X, y, **options)
    assert set(found.routes) <= {"linear", "unused"}
    assert not found.evaluations.any()
    assert_same(found, rl.model_reliance(model, X, y, route="plain", **options), 1e-9, 1e-9)


@pytest.mark.once_per_device
def test_linear_object_is_the_literal_double_loop(backend):
    X, y, _ = tied_data(seed=2)
    coef = np.array([1.0, -0.5, 0.0, 2.0])
    model = rl.models.Linear(backend.asarray(coef), 0.25)
    found = rl.model_reliance(model, backend.asarray(X), backend.asarray(y), compare="difference")
    assert found.routes == ("linear", "linear", "unused", "linear")
    assert found.values[2] == 0.0
    X, y, coef = (backend.rounded(a) for a in (X, y, coef))
    n = len(y)
    for j in range(4):
        base = switched = 0.0
        for i in range(n):
            base += (X[i] @ coef + 0.25 - y[i]) ** 2 / n
            for k in range(n):
                if k != i:
                    row = X[i].copy()
                    row[j] = X[k, j]
                    switched += (row @ coef + 0.25 - y[i]) ** 2 / (n * (n - 1))
        backend.assert_close(found.values[j], switched - base, scale=100.0)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    n=st.integers(4, 12),
    compare=st.sampled_from(["difference", "ratio"]),
    weighted=st.booleans(),
    shift=st.sampled_from([0.0, 100.0]),
)
def test_any_linear_model(data, n, compare, weighted, shift):
    """Ties, constant columns, zero coefficients, groups."""
    values = st.sampled_from([0.0, 1.0, 1.5, -2.0, 0.25])
    X = data.draw(hnp.arrays(np.float64, (n, 4), elements=values)) + shift
    coef = data.draw(hnp.arrays(np.float64, 4, elements=st.sampled_from([0.0, 1.0, -0.5, 3.0])))
    y = data.draw(hnp.arrays(np.float64, n, elements=st.floats(-2, 2))) + 10.0
    w = data.draw(hnp.arrays(np.float64, n, elements=st.floats(0.5, 2))) if weighted else None
    model = rl.models.Linear(coef, -shift * coef.sum())
    options = {"compare": compare, "weights": w, "features": [0, 1, 2, 3, (0, 1), (2, 3)]}
    plain = rl.model_reliance(model, X, y, route="plain", keep="rows", **options)
    for keep in ((), ("rows",)):  # in one pass over all features, and row by row
        found = rl.model_reliance(model, X, y, keep=keep, **options)
        assert set(found.routes) <= {"linear", "unused"}
        for name in (
            "values",
            "replaced_risk",
            "std_error",
            "random_variable_error",
            *(["row_values"] if keep else []),
        ):
            np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-10, atol=1e-10, err_msg=name)
        settled = plain.std_error > 1e-9  # the skewness of rounding is anything
        np.testing.assert_allclose(found.interval()[settled], plain.interval()[settled], rtol=1e-10, atol=1e-10)


def test_a_model_with_a_link_is_not_linear():
    X, y, _ = tied_data()
    model = PoissonRegressor().fit(X, np.abs(y))
    assert "linear" not in rl.model_reliance(model, X, np.abs(y)).routes


def test_other_losses_of_a_linear_model_are_evaluated():
    X, y, _ = tied_data()
    assert "linear" not in rl.model_reliance(LinearRegression().fit(X, y), X, y, loss="absolute_error").routes


ERRORS = ("values", "replaced_risk", "std_error", "skewness", "random_variable_error", "row_error", "monte_carlo_share")


def assert_same_errors(found, expected, rtol=1e-9, atol=1e-9):
    """Without the values of the rows, whose absence is what lets all features be summarised at once."""
    assert found.row_values is None
    for name in ERRORS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("chunk", [8 * 4 * 8, 300_000], ids=["many-chunks", "one-chunk"])
@pytest.mark.parametrize(
    "features", [None, FEATURES, [3, 1], [(0, 1, 2, 3)]], ids=["all", "groups", "some", "one-group"]
)
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_moments_of_linear_models_give_what_the_rows_give(monkeypatch, compare, weighted, offset, features, chunk):
    monkeypatch.setattr(joint_moments, "_CHUNK_BYTES", chunk)
    X, y, w = tied_data(n=300, seed=5)
    model = rl.models.Linear(np.array([1.0, -0.5, 2.0, 1.5]), 0.25)
    y = y + model(X)
    X[:, 2] += np.linspace(0.0, 1e-3, 300)  # weak beside the others
    X, y = X + offset, y + offset * 4.0
    options = {"compare": compare, "weights": w if weighted else None, "features": features}
    found = rl.model_reliance(model, X, y, **options)
    assert set(found.routes) == {"linear"}
    assert_same_errors(found, rl.model_reliance(model, X, y, keep="rows", **options), 1e-10, 1e-10)
    assert_same_errors(found, rl.model_reliance(model, X, y, route="plain", **options))


@pytest.mark.once_per_device
def test_moments_of_linear_models_on_every_backend(backend):
    X, y, w = tied_data(n=60, seed=6)
    coef = np.array([1.0, -0.5, 0.0, 2.0])
    given = [backend.asarray(a) for a in (X, y, w)]
    model = rl.models.Linear(backend.asarray(coef))
    found = rl.model_reliance(model, given[0], given[1], weights=given[2])
    X, y, w, coef = (backend.rounded(a) for a in (X, y, w, coef))
    expected = rl.model_reliance(rl.models.Linear(coef), X, y, weights=w)
    tolerance = 1e-12 if backend.dtype == "float64" else 1e-4
    assert_same_errors(found, expected, tolerance, tolerance)
    assert found.interval()[2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_moments_of_few_rows(n, compare):
    X, y, _ = tied_data(n=n, seed=7)
    model = rl.models.Linear(np.array([1.0, -0.5, 0.0, 2.0]))
    found = rl.model_reliance(model, X, y, compare=compare)
    assert_same_errors(found, rl.model_reliance(model, X, y, compare=compare, route="plain"))


@pytest.mark.parametrize("seed", range(4))
def test_moments_that_cancel_are_not_used(seed):
    n = 1000
    x = np.random.default_rng(seed).normal(size=n)
    X = np.stack([x - x.mean(), np.repeat([-1.0, 1.0], n // 2)], axis=1)
    # y = x0 and twice that predicted: every row's mean change is the same.
    found = rl.model_reliance(rl.models.Linear(np.array([2.0, 0.0])), X, X[:, 0], compare="difference")
    assert found.row_error[0] < 1e-15 * found.values[0]
    assert found.std_error[0] > 0.01 * found.values[0]
    # A balanced +-1 that is predicted without error: every row is changed alike, and lends alike.
    found = rl.model_reliance(rl.models.Linear(np.array([0.0, 3.0])), X, 3.0 * X[:, 1], compare="difference")
    np.testing.assert_allclose(found.values[1], 9.0 * 2.0 * n / (n - 1.0), rtol=1e-12)
    assert found.std_error[1] < 1e-12


@pytest.mark.parametrize("weighted", [False, True])
def test_joint_moments_are_the_literal_sums(weighted):
    rng = np.random.default_rng(12)
    n = 5000
    X, e, w = rng.normal(size=(n, 3)), rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    X[:, 1] += 1e3
    features = resolve_features(None, None, (3,))
    coef = np.array([1.0, -2.0, 0.5])
    sums = joint_moments.JointSums(joint_moments.Effects.of(X, features, coef), weighted)
    for start in (0, 3000):
        rows = slice(start, start + 3000)
        products = sums.add(X[rows], e[rows], w[rows] if weighted else None, coef)
        np.testing.assert_allclose(products, X[rows] @ coef, rtol=1e-12)
    found, precise = sums.centred()
    assert precise.tolist() == [True, True, True]
    z = coef * (X - X.mean(axis=0))
    for (a, b, c), total in found.items():
        terms = z**a * e[:, None] ** b * (w[:, None] if weighted else 1.0) ** c
        np.testing.assert_allclose(total, terms.sum(axis=0), rtol=1e-10, atol=1e-10 * np.abs(terms).sum())
        assert a + b <= 6


@pytest.mark.parametrize("unit", [1e-60, 1e60, 1e200])
def test_units_of_a_column_do_not_matter(unit):
    X, y, _ = tied_data(n=50, seed=9)
    coef = np.array([1.0, -0.5, 0.25, 2.0])
    expected = rl.model_reliance(rl.models.Linear(coef), X, y)
    units = np.array([unit, 1.0, 1.0, 1.0 / unit])
    assert_same_errors(rl.model_reliance(rl.models.Linear(coef / units), X * units, y), expected, 1e-9, 1e-12)


def test_a_sample_that_misleads_costs_no_digits():
    rng = np.random.default_rng(10)
    n = 200_000
    X = rng.normal(size=(n, 2))
    X[:: n // 1024, 0] = 1e3  # the rows that are looked at first lie elsewhere ...
    X[:: n // 1024, 1] = 0.5  # ... or are all the same
    y = X @ [1.0, 1.0] + rng.normal(size=n)
    coef = np.array([0.9, 1.2])
    features = resolve_features(None, None, (2,))
    sums = joint_moments.JointSums(joint_moments.Effects.of(X, features, coef), False)
    sums.add(X, y, None, coef)
    assert sums.centred()[1].tolist() == [False, True]
    model = rl.models.Linear(coef)
    assert_same_errors(rl.model_reliance(model, X, y), rl.model_reliance(model, X, y, keep="rows"), 1e-9, 1e-12)


def test_unused_features_of_a_linear_model_are_exactly_nothing():
    X, y, _ = tied_data(n=50)
    X = np.concatenate([X, np.full((50, 1), 0.1)], axis=1)  # a constant whose mean is not exactly 0.1
    found = rl.model_reliance(rl.models.Linear(np.array([1.0, 0.0, 3.0, 1e-20, 5.0])), X, y, compare="difference")
    assert found.routes == ("linear", "unused", "unused", "unused", "unused")
    assert not found.interval()[[1, 3]].any()
    assert found.test().p_value[[1, 3]].tolist() == [1.0] * 2
    for j in (2, 4):  # constants that are used are not identified
        assert np.isnan([*found.interval()[j], found.test().p_value[j]]).all()


def test_linear_models_of_many_rows_copy_no_table():
    n, p = 100_000, 20
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    model = LinearRegression().fit(X[:1000], y[:1000])
    rl.model_reliance(model, X[:1000], y[:1000])  # imports
    tracemalloc.start()
    found = rl.model_reliance(model, X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(found.routes) == {"linear"}
    assert peak < 10 * 8 * n  # the table has 20


def test_a_linear_model_that_changes_its_input_is_found():
    X, y, _ = tied_data()
    own = X.copy()

    class Centring(LinearRegression):
        def predict(self, X):
            X -= 1.0
            return super().predict(X)

    with pytest.raises(ValueError, match="changes its input"):
        rl.model_reliance(Centring().fit(X, y), X, y)
    in_place = make_pipeline(StandardScaler(copy=False), Ridge()).fit(X.copy(), y)
    with pytest.raises(ValueError, match="changes its input"):
        rl.model_reliance(in_place, X, y)
    np.testing.assert_array_equal(X, own)


@pytest.mark.filterwarnings("ignore:X holds NaN:UserWarning")
def test_a_linear_model_predicts_nan_from_nan():
    X, y, _ = tied_data()
    model = LinearRegression().fit(X, y)
    with pytest.raises(ValueError, match="returned NaN or infinite predictions"):
        rl.model_reliance(model, np.where(X == 2.0, np.nan, X), y)


# ---------------------------------------------------------------------------------------------------------------------
# A first affine layer


@pytest.mark.once_per_device
@pytest.mark.parametrize("weighted", [False, True])
def test_first_layer_equals_the_plain_route(backend, weighted):
    rng = np.random.default_rng(4)
    X, W, b = rng.normal(size=(25, 70)), rng.normal(size=(70, 5)), rng.normal(size=5)
    X[:, 3] = X[:, 3].round()
    y, w = rng.normal(size=25), rng.uniform(0.5, 2.0, 25)
    X, W, b, y, w = (backend.asarray(a) for a in (X, W, b, y, w))
    model = rl.models.FirstLayer(W, b, lambda H: (H * H)[:, 0] + H[:, 1])
    options = {"features": [0, 3, (5, 6, 60)], "keep": "rows", "weights": w if weighted else None}
    found = rl.model_reliance(model, X, y, **options)
    assert found.routes == ("first_layer", "distinct", "first_layer")
    tolerance = 1e-10 if backend.dtype == "float64" else 1e-3
    assert_same(found, rl.model_reliance(model, X, y, route="plain", **options), tolerance, tolerance)


def test_torch_sequential_never_recomputes_the_wide_product(monkeypatch):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(100, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    net = net.double().train()
    X, y = torch.randn(30, 100, dtype=torch.float64), torch.randn(30, dtype=torch.float64)
    plain = rl.model_reliance(net, X, y, features=[0, 7], route="plain", keep="rows")
    rows = []
    linear = torch.nn.functional.linear

    def counted(H, *given):
        rows.append(tuple(H.shape))
        return linear(H, *given)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    found = rl.model_reliance(net, X, y, features=[0, 7], keep="rows")
    assert found.routes == ("first_layer", "first_layer")
    assert_same(found, plain)
    # The base pass, and its rows once more in a batch of 63; 64 replaced rows for each feature and the rows as they
    # are, on which the route is checked.
    assert sum(m for m, width in rows if width == 100) == 30 + 63 + 2 * 64 + 30
    assert net.training


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 10),
    compare=st.sampled_from(["difference", "ratio"]),
    weighted=st.booleans(),
    block=st.sampled_from([None, 1, 7, (2, 3)]),
    outputs=st.sampled_from([1, 3]),
)
@example(seed=520, n=3, compare="difference", weighted=False, block=1, outputs=1)  # rounding of a constant column
def test_any_first_layer(seed, n, compare, weighted, block, outputs):
    """Ties, constant columns, several outputs, groups of any columns."""
    rng = np.random.default_rng(seed)
    X = rng.choice([0.0, 1.0, -0.5, 2.0], size=(n, 66))
    X[:, 5] = 1.0
    W, b = rng.normal(size=(66, 4)), rng.normal(size=4)
    y = 10.0 + (rng.normal(size=n) if outputs == 1 else rng.normal(size=(n, outputs)))
    model = rl.models.FirstLayer(W, b, lambda H: np.tanh(H)[:, 0] if outputs == 1 else np.tanh(H)[:, :outputs])
    options = {"compare": compare, "run": rl.Run(block=block), "features": [0, 5, (1, 2), (7, 30, 65)], "keep": "rows"}
    options["weights"] = rng.uniform(0.5, 2.0, n) if weighted else None
    plain = rl.model_reliance(model, X, y, route="plain", **options)
    for route in ("auto", "first_layer"):
        found = rl.model_reliance(model, X, y, route=route, **options)
        for name in ("values", "replaced_risk", "row_values", "std_error", "random_variable_error"):
            np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-10, atol=1e-10, err_msg=name)


def test_a_hooked_first_layer_is_left_alone():
    net = torch.nn.Sequential(torch.nn.Linear(70, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).double()
    net[0].register_forward_hook(lambda module, args, out: 2 * out)
    X, y = torch.randn(20, 70, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    assert rl.model_reliance(net, X, y, features=[0]).routes == ("plain",)


# ---------------------------------------------------------------------------------------------------------------------
# Choice


@pytest.mark.parametrize(
    ("route", "message"),
    [("linear", "needs a linear model"), ("first_layer", "rl.models.FirstLayer"), ("distinct", "'x0' differ")],
)
def test_a_forced_route_that_does_not_apply(route, message):
    X, y, _ = tied_data()
    with pytest.raises(ValueError, match=message):
        rl.model_reliance(lambda Z: Z[:, 0], X, y, route=route)


@pytest.mark.parametrize("options", [{"loss": rl.Metric(rl.losses.rmse.value)}, {"pairs": 5}, {"pairs": "halves"}])
def test_routes_are_for_all_pairs_of_row_losses(options):
    X, y, _ = tied_data()
    with pytest.raises(ValueError, match="is for all pairs, of losses"):
        rl.model_reliance(lambda Z: Z[:, 0], X, y, route="distinct", **options)
    assert set(rl.model_reliance(lambda Z: Z[:, 0], X, y, **options).routes) == {"plain"}


def test_auto_equals_the_literal_table():
    X, y, _ = tied_data(n=12)

    def model(x):
        return np.sin(x[0]) * x[1] + x[3]

    donors, mask = oracles.all_pairs(12)
    found = rl.model_reliance(lambda Z: np.sin(Z[:, 0]) * Z[:, 1] + Z[:, 3], X, y, compare="difference")
    for j in range(4):
        table = oracles.loss_table(model, lambda t, p: (t - p) ** 2, X, y, [j], donors, mask, None)
        np.testing.assert_allclose(found.values[j], oracles.answer(table, "difference").value, rtol=1e-12, atol=1e-14)
