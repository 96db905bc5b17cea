"""The exact shortcuts equal the plain all-pairs route: values, rows, donors (through the errors), intervals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.linear_model import Lasso, LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
import reliance as rl

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

    options = {"compare": compare, "weights": w, "block": block, "keep": "rows", "features": [0, 1, (0, 1)]}
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


def test_a_model_with_a_link_is_not_linear():
    X, y, _ = tied_data()
    model = PoissonRegressor().fit(X, np.abs(y))
    assert "linear" not in rl.model_reliance(model, X, np.abs(y)).routes


def test_other_losses_of_a_linear_model_are_evaluated():
    X, y, _ = tied_data()
    assert "linear" not in rl.model_reliance(LinearRegression().fit(X, y), X, y, loss="absolute_error").routes


def test_a_model_that_is_not_its_coefficients_is_evaluated_with_a_warning():
    X, y, _ = tied_data()

    class Clipped(LinearRegression):
        def predict(self, X):
            return np.maximum(super().predict(X), 0.0)

    with pytest.warns(UserWarning, match="does not predict what its coefficients say"):
        found = rl.model_reliance(Clipped().fit(X, y), X, y)
    assert "linear" not in found.routes


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
    forward = torch.nn.Linear.forward

    def counted(self, H):
        rows.append((self.in_features, H.shape[0]))
        return forward(self, H)

    monkeypatch.setattr(torch.nn.Linear, "forward", counted)
    found = rl.model_reliance(net, X, y, features=[0, 7], keep="rows")
    assert found.routes == ("first_layer", "first_layer")
    assert_same(found, plain)
    assert sum(m for width, m in rows if width == 100) == 30  # the base pass
    assert net.training


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


@pytest.mark.parametrize("options", [{"loss": "rmse"}, {"pairs": 5}, {"pairs": "halves"}])
def test_routes_are_for_all_pairs_of_row_losses(options):
    X, y, _ = tied_data()
    with pytest.raises(ValueError, match="all pairs under per-row losses"):
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
