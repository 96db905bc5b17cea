"""Without labels: every method measures how far predictions move, by loss="prediction_shift" and y=None."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression

import methods
import oracles
import reliance as rl


def formula(x):
    return x[..., 0] * x[..., 1] + x[..., 2] ** 2


def data(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n), rng.normal(size=n)], axis=1)


@pytest.mark.parametrize("name", ["ablation", "permutation", "all", "halves"])
@pytest.mark.once_per_device
@pytest.mark.filterwarnings("ignore:.*fewer than 3 draws:UserWarning")
def test_methods_are_the_literal_loops(backend, name):
    method, X = methods.METHODS[name], data()
    options = {"loss": "prediction_shift", "compare": "difference", "keep": "rows"}
    result = method(formula, backend.asarray(X), features=[0, 1, 3], **options)
    X = backend.rounded(X)
    expected = methods.tables(method, formula, oracles.LOSSES["squared_error"], X, formula(X), [[0], [1], [3]])
    methods.assert_result(backend, result, expected, "difference")
    assert result.base_risk == 0.0
    assert result.values[2] == 0.0


CONDITIONAL = {
    "conditional": lambda *a, **o: rl.conditional_model_reliance(*a, compare="difference", rng=0, **o),
    "conditional, shifts": lambda *a, **o: rl.conditional_model_reliance(*a, compare="difference", pairs=4, rng=0, **o),
    "relative": lambda *a, **o: rl.relative_importance(*a, given=[1], draws=4, rng=0, **o),
    "relative, neighbours": lambda *a, **o: rl.relative_importance(
        *a, given=rl.Given([1], sampler="knn"), draws=4, rng=0, **o
    ),
    "rest": lambda *a, **o: rl.relative_importance(*a, given="rest", draws=4, rng=0, **o),
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional_methods_take_the_predictions_for_labels(name):
    X, call = data(40), CONDITIONAL[name]
    found = call(formula, X, None, features=[0, 2, 3], loss="prediction_shift")
    labelled = call(formula, X, formula(X), features=[0, 2, 3], loss="squared_error")
    assert found.base_risk == 0.0
    np.testing.assert_allclose(found.values, labelled.values, rtol=1e-10)
    np.testing.assert_allclose(found.std_error, labelled.std_error, rtol=1e-10)
    assert found.values[2] == 0.0


MODELS = {
    "linear": LinearRegression(),
    "boosting": GradientBoostingRegressor(n_estimators=10, random_state=0),
    "forest": RandomForestRegressor(3, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("keep", ["rows", ()])
def test_routes_equal_the_plain_one(name, keep):
    X = data(90)
    model = MODELS[name].fit(X, formula(X))
    options = {"loss": "prediction_shift", "compare": "difference", "features": [0, 1, 2], "keep": keep}
    found = rl.model_reliance(model, X, **options)
    plain = rl.model_reliance(model, X, route="plain", **options)
    assert set(found.routes) == {"linear" if name == "linear" else "trees"}
    for field in ("values", "std_error", "skewness", "random_variable_error", "row_error"):
        np.testing.assert_allclose(getattr(found, field), getattr(plain, field), rtol=1e-9, atol=1e-12, err_msg=field)


def test_first_layer_distinct_values_and_several_outputs():
    X = data(30)
    W = np.random.default_rng(1).normal(size=(4, 3))
    model = rl.models.FirstLayer(W, np.zeros(3), np.tanh)
    options = {"loss": "prediction_shift", "compare": "difference"}
    for route, features in (("first_layer", [0, 1]), ("distinct", [1])):
        found = rl.model_reliance(model, X, route=route, features=features, **options)
        assert set(found.routes) == {route}
        table = oracles.all_pairs(30)[0]
        for feature, value in zip(features, found.values, strict=True):
            f = oracles.replaced_predictions(lambda row: np.tanh(row @ W), X, table, [feature])
            moved = np.mean((f - np.tanh(X @ W)[:, None, :]) ** 2, axis=2).sum() / (30 * 29)
            np.testing.assert_allclose(value, moved, rtol=1e-10)


def test_classifiers_move_their_probabilities():
    X = data(20)
    model = RandomForestClassifier(4, max_leaf_nodes=6, random_state=0).fit(X, formula(X) > 0.5)
    found = rl.model_reliance(model.predict_proba, X, loss="prediction_shift", compare="difference")
    f = oracles.replaced_predictions(lambda row: model.predict_proba(row[None, :])[0], X, oracles.all_pairs(20)[0], [0])
    moved = np.mean((f - model.predict_proba(X)[:, None, :]) ** 2, axis=2).sum() / (20 * 19)
    np.testing.assert_allclose(found.values[0], moved, rtol=1e-10)


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: rl.ablation_importance(formula, data(), **o),
        lambda **o: rl.permutation_importance(formula, data(), draws=4, **o),
        lambda **o: rl.model_reliance(formula, data(), **o),
        lambda **o: rl.model_reliance(LinearRegression().fit(data(), formula(data())), data(), **o),
        lambda **o: rl.conditional_model_reliance(formula, data(), **o),
        lambda **o: rl.relative_importance(formula, data(), given=[1], draws=4, **o),
    ],
)
def test_a_ratio_to_nothing_is_an_error(call):
    with pytest.raises(ValueError, match=r"is 0 under loss='prediction_shift', not above 0: use compare='difference'"):
        call(loss="prediction_shift", compare="ratio")
    with pytest.raises(ValueError, match=r"y is None but loss='squared_error' needs labels.*'prediction_shift'"):
        call(loss="squared_error")
