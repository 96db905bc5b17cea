"""Partial dependence and individual curves of all pairs, against literal loops and scikit-learn's brute force."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.inspection import partial_dependence
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor

import oracles
import reliance as rl


def tied_data(n=24, seed=0):
    """A column without ties, a factor, rounded numbers, and one that no model below uses."""
    rng = np.random.default_rng(seed)
    columns = (rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n).round(1), rng.normal(size=n))
    X = np.stack(columns, axis=1).astype(float)
    return X, X[:, 0] * X[:, 1] + X[:, 2] ** 2 + 0.1 * rng.normal(size=n)


def literal(predict, X, columns, weights=None):
    """Values (m, g), mean (m, ...) and individual curves (n, m, ...), row by row."""
    values = np.unique(X[:, columns], axis=0)
    ice = []
    for row in X:
        line = []
        for value in values:
            changed = row.copy()
            changed[columns] = value
            line.append(predict(changed))
        ice.append(line)
    ice = np.asarray(ice, dtype=np.float64)
    return values, np.average(ice, axis=0, weights=weights), ice


def formula(x):
    return x[..., 0] * x[..., 1] + x[..., 2] ** 2


def two_outputs(x):
    xp = oracles.array_api_compat.array_namespace(x)
    return xp.stack([formula(x), x[..., 0] - x[..., 1]], axis=-1)


@pytest.mark.once_per_device
@pytest.mark.parametrize(("predict", "weighted", "route"), [(formula, True, "auto"), (two_outputs, False, "plain")])
def test_curves_are_the_literal_means(backend, predict, weighted, route):
    X, y = tied_data(14)
    y = y if predict is formula else np.stack([y, X[:, 0]], axis=1)
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else None
    features = {"a": [0], "b": [1], "ab": [0, 1], "nothing": [3]}
    result = rl.model_reliance(
        predict,
        backend.asarray(X),
        backend.asarray(y),
        weights=backend.asarray(w),
        features=features,
        route=route,
        keep=("curves", "ice"),
    )
    for name, columns in features.items():
        values, mean, ice = literal(predict, backend.rounded(X), columns, backend.rounded(w))
        curve = result.curves[name]
        np.testing.assert_array_equal(curve.values, values if len(columns) > 1 else values[:, 0])
        backend.assert_close(curve.mean, mean, np.abs(ice).max())
        backend.assert_close(curve.ice, ice, np.abs(ice).max())


MODELS = {
    "linear": (LinearRegression(), "linear"),
    "forest": (RandomForestRegressor(5, random_state=0), "trees"),
    "deep forest": (RandomForestRegressor(2, random_state=0), "trees"),
    "boosting": (GradientBoostingRegressor(n_estimators=15, random_state=0), "trees"),
    "network": (MLPRegressor(hidden_layer_sizes=(4,), max_iter=30, random_state=0), None),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_brute_force_partial_dependence_at_the_observed_values(name):
    X, y = tied_data(150 if name == "deep forest" else 40)
    model, route = MODELS[name]
    model.fit(X, y)
    result = rl.model_reliance(model, X, y, features=[0, 1, 2, (1, 2)], keep=("curves", "ice"))
    if route is not None:
        assert set(result.routes[:3]) == {route}
    for j in range(3):
        values = np.unique(X[:, j])
        peer = partial_dependence(model, X, [j], custom_values={j: values}, method="brute", kind="both")
        curve = result.curves[f"x{j}"]
        np.testing.assert_array_equal(curve.values, values)
        np.testing.assert_allclose(curve.mean, peer.average[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(curve.ice, peer.individual[0], rtol=1e-10, atol=1e-10)
    pair = result.curves[result.names[3]]
    np.testing.assert_array_equal(pair.values, np.unique(X[:, [1, 2]], axis=0))
    for value, mean in zip(pair.values[::10], pair.mean[::10], strict=True):
        Z = X.copy()
        Z[:, [1, 2]] = value
        np.testing.assert_allclose(mean, model.predict(Z).mean(), rtol=1e-10, atol=1e-10)


def test_classes_have_a_curve_each():
    X, y = tied_data(60)
    labels = np.digitize(y, [0.0, 1.0])
    model = RandomForestClassifier(5, max_leaf_nodes=8, random_state=0).fit(X, labels)
    result = rl.model_reliance(model, X, labels, loss="log_loss", compare="difference", keep="curves")
    peer = partial_dependence(
        model, X, [1], custom_values={1: np.unique(X[:, 1])}, method="brute", response_method="predict_proba"
    )
    assert result.curves["x1"].mean.shape == (3, 3)
    np.testing.assert_allclose(result.curves["x1"].mean, peer.average.T, rtol=1e-10, atol=1e-10)
    assert result.curves["x1"].ice is None


@pytest.mark.once_per_device
def test_first_layer_and_metrics_give_the_same_curves(backend):
    X, y = tied_data(12)
    W = np.random.default_rng(3).normal(size=(4, 3))
    xp = backend.xp
    weight, bias = backend.asarray(W), backend.asarray(np.zeros(3))
    model = rl.models.FirstLayer(weight, bias, lambda H: xp.sum(xp.abs(H), axis=1))

    def predict(row):
        return np.abs(row @ backend.rounded(W)).sum()

    options = {"keep": "ice", "features": [0, 1]}
    results = [
        rl.model_reliance(model, backend.asarray(X), backend.asarray(y), route="first_layer", **options),
        rl.model_reliance(model, backend.asarray(X), backend.asarray(y), loss="r2", **options),
    ]
    for result in results:
        for j in range(2):
            values, mean, ice = literal(predict, backend.rounded(X), [j])
            curve = result.curves[f"x{j}"]
            np.testing.assert_array_equal(curve.values, values[:, 0])
            backend.assert_close(curve.mean, mean, 100.0)
            backend.assert_close(curve.ice, ice, 100.0)


@pytest.mark.parametrize("route", ["auto", "plain"])
def test_curves_cost_no_evaluation(route):
    X, y = tied_data()
    calls = []

    def model(Z):
        calls.append(len(Z))
        return formula(Z)

    without = rl.model_reliance(model, X, y, route=route)
    count, with_curves = sum(calls), rl.model_reliance(model, X, y, route=route, keep="ice")
    assert sum(calls) == 2 * count
    assert without.curves is None
    np.testing.assert_array_equal(with_curves.evaluations, without.evaluations)
    np.testing.assert_array_equal(with_curves.values, without.values)
    np.testing.assert_array_equal(with_curves.interval(), without.interval())


def test_several_losses_share_their_curves():
    X, y = tied_data()
    found = rl.model_reliance(formula, X, y, loss=["squared_error", "absolute_error"], keep="curves")
    first, second = (found[name].curves for name in ("squared_error", "absolute_error"))
    assert list(first) == ["x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(first["x0"].mean, second["x0"].mean)


@pytest.mark.parametrize("suffix", ["json", "npz"])
@pytest.mark.parametrize("keep", ["curves", "ice"])
def test_files_hold_the_curves(tmp_path, suffix, keep):
    X, y = tied_data(8)
    X[0, 0] = np.nan
    with pytest.warns(UserWarning, match="NaN"):
        result = rl.model_reliance(lambda X: np.nan_to_num(X[:, 0]) * X[:, 1], X, y, keep=keep, features=[0, (0, 1)])
    path = tmp_path / f"result.{suffix}"
    result.save(path)
    read = rl.load(path)
    assert list(read.curves) == list(result.names)
    for name, curve in result.curves.items():
        for part in ("values", "mean", "ice"):
            np.testing.assert_array_equal(getattr(read.curves[name], part), getattr(curve, part))
    assert np.isnan(result.curves["x0"].values[-1])
    assert result.ranked().curves is result.curves
    assert result.to_dict()["curves"]["x0"]["mean"] == result.curves["x0"].mean.tolist()


def test_curves_cannot_be_written_to():
    X, y = tied_data(8)
    curve = rl.model_reliance(formula, X, y, keep="curves").curves["x0"]
    with pytest.raises(ValueError, match="read-only"):
        curve.mean[0] = 1.0


def test_errors():
    X, y = tied_data()
    for keep in ("curves", "ice"):
        for call in (rl.permutation_importance, rl.ablation_importance, rl.conditional_model_reliance):
            with pytest.raises(ValueError, match=f"keep='{keep}'.*pairs='all'"):
                call(formula, X, y, keep=keep)
        for pairs in (3, "halves"):
            with pytest.raises(ValueError, match=f"keep='{keep}'.*pairs='all'"):
                rl.model_reliance(formula, X, y, pairs=pairs, keep=keep)
    with pytest.raises(ValueError, match="keep='all' is unknown: what can be kept is 'rows', 'influence', 'curves'"):
        rl.model_reliance(formula, X, y, keep="all")
    with pytest.raises(ValueError, match=r"keep='ice' keeps .* bytes in all, which memory=20000 does not hold"):
        rl.model_reliance(formula, X, y, keep="ice", run=rl.Run(memory=20_000))
    assert rl.model_reliance(formula, X, y, keep="curves", run=rl.Run(memory=20_000)).curves
    words, options = np.where(y > 0, "yes", "no"), {"loss": "zero_one", "compare": "difference"}
    with pytest.raises(ValueError, match=r"keep='curves' needs numbers.*predict_proba"):
        rl.model_reliance(lambda X: np.where(formula(X) > 0, "yes", "no"), X, words, keep="curves", **options)


# ---------------------------------------------------------------------------------------------------------------------
# Columns that hold no numbers


def coded_result(**options):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "city": ["Rom", "Ulm", "Bonn", "Ulm", "Rom", None],
            "size": pandas.Categorical(["s", "l", "s", "m", "l", "m"]),
            "height": np.arange(6.0),
        }
    )
    effect = {"Rom": 1.0, "Ulm": 3.0, "Bonn": -2.0}

    def model(table):
        own = table["city"].map(effect).fillna(10.0).to_numpy(dtype=float)
        return own + table["height"].to_numpy() + (table["size"] == "l").to_numpy(dtype=float)

    found = rl.model_reliance(model, frame, np.arange(6.0), compare="difference", keep="curves", **options)
    return found, effect, frame


def test_curves_of_text_and_categories_name_their_values():
    found, effect, frame = coded_result()
    rest = np.mean(frame["height"] + (frame["size"] == "l"))
    city = found.curves["city"]
    assert sorted(city.labels) == ["Bonn", "Rom", "Ulm", "missing"]
    for label, mean in zip(city.labels, city.mean, strict=True):
        assert mean == pytest.approx(effect.get(label, 10.0) + rest)
    assert sorted(found.curves["size"].labels) == ["l", "m", "s"]
    assert found.curves["height"].labels is None


def test_curves_of_groups_with_text_name_their_values():
    found, _, _ = coded_result(features=[("city", "height")])
    curve = found.curves["city+height"]
    assert curve.labels[0].split(", ") == ["Rom", "0"]
    assert len(curve.labels) == len(curve.values) == 6


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_labels_of_curves_are_saved_and_drawn(tmp_path, suffix):
    found, _, _ = coded_result()
    found.save(tmp_path / f"curves.{suffix}")
    loaded = rl.load(tmp_path / f"curves.{suffix}")
    assert loaded.curves["city"].labels == found.curves["city"].labels
    assert loaded.curves["height"].labels is None
    pytest.importorskip("matplotlib")
    ax = loaded.plot(kind="curve", feature="city")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list(found.curves["city"].labels)
