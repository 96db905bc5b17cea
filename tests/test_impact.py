"""Feature impact against the paper's package, literal loops and the linear theorem."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import array_api_compat
import numpy as np
import pytest

import reliance as rl
from reliance.methods.held_values import nearest_values

QUANTILES = [0.1, 0.25, 0.5, 0.9]


def columns(n=120, seed=0, missing=0.0):
    """Continuous, categories, ties, a constant, skewed; some entries NaN."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.integers(0, 3, size=n),
            np.round(rng.normal(size=n), 1),
            np.full(n, 0.1),
            rng.lognormal(size=n),
        ]
    )
    X[rng.random(X.shape) < missing] = np.nan
    return X


def labels(X, seed=1):
    known = np.nan_to_num(X)
    return known[:, 0] * known[:, 1] + known[:, 2] ** 2 + np.random.default_rng(seed).normal(size=len(X)) / 5


def package(model, X, quantiles=9, method="predict"):
    """Impact per quantile (Q, p), in the package's order, and averages (p,)."""
    from featureimpact import FeatureImpact, averaged_impact

    found = FeatureImpact()
    found.make_quantiles(X, quantiles)
    impact = found.compute_impact(model, X, method)
    return impact.to_numpy(), averaged_impact(impact, normalize=False).to_numpy()


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X holds NaN")
        return rl.feature_impact(*arguments, **options)


def literal(predict, X, quantiles):
    """Equation 3 by loops over rows: sigma(y - y_kq) / sigma(x_k), held at the entries nearest to the quantiles."""
    n, p = X.shape
    own = [float(predict(row)) for row in X]
    found = np.zeros((len(quantiles), p))
    for k in range(p):
        spread = np.std(X[:, k], ddof=1)
        if np.ptp(X[:, k]) == 0:
            continue
        for line, q in enumerate(quantiles):
            position, x = n * q + 0.4 + 0.2 * q, sorted(X[:, k].tolist())
            below = min(max(int(position), 1), n - 1)
            share = min(max(position - below, 0.0), 1.0)
            target = (1 - share) * x[below - 1] + share * x[below]
            value = X[int(np.argmin(np.abs(X[:, k] - target))), k]
            changes = []
            for i in range(n):
                row = X[i].copy()
                row[k] = value
                changes.append(own[i] - float(predict(row)))
            mean = sum(changes) / n
            found[line, k] = (sum((c - mean) ** 2 for c in changes) / (n - 1)) ** 0.5 / spread
    return found


def formula(x):
    xp = array_api_compat.array_namespace(x)
    return xp.exp(0.5 * x[..., 0]) * x[..., 1] + x[..., 2] ** 2 - 0.25 * x[..., 4]


# ---------------------------------------------------------------------------------------------------------------------
# The package


def estimators():
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor

    return {
        "linear": LinearRegression(),
        "scaled": make_pipeline(StandardScaler(), LinearRegression()),
        "boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
        "histogram": HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
        "forest": RandomForestRegressor(8, random_state=0),
        "support": SVR(),
    }


@pytest.mark.parametrize("route", ["auto", "plain"])
@pytest.mark.parametrize("kind", ["linear", "scaled", "boosting", "histogram", "tree", "forest", "support"])
def test_equals_the_package(kind, route):
    X = columns()
    model = estimators()[kind].fit(X, labels(X))
    rows, averages = package(model, X)
    result = rl.feature_impact(model, X, route=route)
    np.testing.assert_allclose(result.values, averages, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.sort(result.impact, axis=0), np.sort(rows, axis=0), rtol=1e-10, atol=1e-12)
    auto = {"linear": "linear", "scaled": "linear", "forest": "plain", "support": "plain"}.get(kind, "trees")
    used = "plain" if route == "plain" else auto
    assert result.routes[0] == used
    assert result.routes[3] == "constant"


@pytest.mark.parametrize("quantiles", [1, 4, 30])
@pytest.mark.parametrize("missing", [0.1, 0.6])
def test_missing_values_and_any_number_of_quantiles(missing, quantiles):
    X = columns(missing=missing)
    model = estimators()["histogram"].fit(X, labels(X))
    rows, averages = package(model, X, quantiles)
    for route in ("auto", "plain"):
        result = quiet(model, X, quantiles=quantiles, route=route)
        np.testing.assert_allclose(result.values, averages, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(np.sort(result.impact, axis=0), np.sort(rows, axis=0), rtol=1e-10, atol=1e-12)


def test_other_methods_and_labels_as_the_package():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    X = columns()
    y = (labels(X) > 0.5).astype(int)
    model = LogisticRegression(max_iter=500).fit(X, y)
    result = rl.feature_impact(model, X, method="decision_function")
    np.testing.assert_allclose(result.values, package(model, X, method="decision_function")[1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.values[[0, 1, 2, 4]], np.abs(model.coef_[0, [0, 1, 2, 4]]), rtol=1e-10)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    np.testing.assert_allclose(rl.feature_impact(forest, X).values, package(forest, X)[1], rtol=1e-10, atol=1e-12)
    share = SimpleNamespace(predict=lambda X: forest.predict_proba(X)[:, 1])
    result = rl.feature_impact(share.predict, X)
    np.testing.assert_allclose(result.values, package(share, X)[1], rtol=1e-10, atol=1e-12)


def test_the_papers_boston_like_example_normalized():
    from featureimpact import FeatureImpact, averaged_impact

    X = columns(200, seed=3)
    model = estimators()["boosting"].fit(X, labels(X))
    found = FeatureImpact()
    found.make_quantiles(X)
    expected = averaged_impact(found.compute_impact(model, X), normalize=True)
    result = rl.feature_impact(model, X, normalize=True)
    np.testing.assert_allclose(result.values, expected, rtol=1e-10, atol=1e-14)
    assert result.values.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(result.impact, rl.feature_impact(model, X).impact)


# ---------------------------------------------------------------------------------------------------------------------
# Backends


@pytest.mark.once_per_device
def test_equals_literal_loops(backend):
    host = columns(40)
    result = rl.feature_impact(formula, backend.asarray(host), quantiles=QUANTILES)
    expected = literal(formula, backend.rounded(host), QUANTILES)
    tolerance = 1e-10 if backend.dtype == "float64" else 1e-5
    np.testing.assert_allclose(result.impact, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(result.values, expected.mean(axis=0), rtol=tolerance, atol=tolerance)
    assert result.routes == ("plain", "plain", "plain", "constant", "plain")
    assert result.evaluations.tolist() == [160, 120, 160, 0, 160]  # a category that is nearest to two quantiles: once


def test_linear_models_have_their_coefficients(backend):
    host = columns(50)
    coef = backend.rounded(np.array([1.5, -2.0, 0.1, 4.0, -1e-3]))
    X = backend.asarray(host)
    result = rl.feature_impact(rl.models.Linear(backend.asarray(coef), 3.0), X)
    expected = np.abs(coef) * [1, 1, 1, 0, 1]
    np.testing.assert_allclose(result.impact, np.tile(expected, (9, 1)), rtol=1e-10)
    assert result.evaluations.tolist() == [0] * 5
    weight = backend.asarray(coef)
    called = rl.feature_impact(lambda X: X @ weight, X)
    tolerance = 1e-10 if backend.dtype == "float64" else 2e-4  # the change of the last feature has lost digits
    np.testing.assert_allclose(called.values, expected, rtol=tolerance)


@pytest.mark.once_per_device
def test_trees_where_the_rows_are(backend):
    host = backend.rounded(columns(60))
    model = estimators()["boosting"].set_params(n_estimators=4).fit(host, labels(host))
    result = rl.feature_impact(model, backend.asarray(host), quantiles=5)
    tolerance = 1e-10 if backend.dtype == "float64" else 1e-4
    np.testing.assert_allclose(result.values, package(model, host, 5)[1], rtol=tolerance, atol=tolerance)
    split_on = {int(j) for tree in model.estimators_.ravel() for j in tree.tree_.feature if j >= 0}
    expected = ["constant" if j == 3 else "trees" if j in split_on else "unused" for j in range(5)]
    assert list(result.routes) == expected


@pytest.mark.once_per_device
def test_block_shapes_and_memory_change_nothing(backend):
    X = backend.asarray(columns(40))
    whole = rl.feature_impact(formula, X, quantiles=QUANTILES)
    for options in ({"run": rl.Run(block=(7, 2))}, {"run": rl.Run(memory=20_000)}):
        other = rl.feature_impact(formula, X, quantiles=QUANTILES, **options)
        np.testing.assert_allclose(other.impact, whole.impact, rtol=1e-10 if backend.dtype == "float64" else 1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# What is evaluated


def test_every_value_is_evaluated_once():
    seen = []

    def model(X):
        seen.append(X.copy())
        return X[:, 0] + X[:, 1] * X[:, 2]

    X = columns(30)
    result = rl.feature_impact(model, X, quantiles=9, features=[1, 3])
    # The base pass, and its rows once more in a batch of 63.
    assert sum(map(len, seen)) == 30 + 63 + result.evaluations.sum()
    held = np.concatenate(seen[2:])
    assert result.evaluations.tolist() == [30 * len(np.unique(result.points[:, 0])), 0]
    assert set(held[:, 1]) == set(result.points[:, 0]) <= set(X[:, 1])


def test_points_occur_in_the_data_and_names_and_order_are_kept():
    X = columns()
    result = rl.feature_impact(formula, X, features=["e", "b"], names=list("abcde"), quantiles=QUANTILES)
    assert result.names == ("e", "b")
    assert set(result.points[:, 0]) <= set(X[:, 4])
    assert set(result.points[:, 1]) <= set(X[:, 1])
    whole = rl.feature_impact(formula, X, quantiles=QUANTILES)
    np.testing.assert_array_equal(result.impact, whole.impact[:, [4, 1]])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 37])
def test_nearest_values_as_scipy_has_quantiles(n):
    from scipy.stats.mstats import mquantiles

    probabilities = np.asarray([0.01, 0.2, 0.5, 0.77, 0.99])
    rng = np.random.default_rng(n)
    for x in (rng.normal(size=n), rng.integers(0, 4, size=n).astype(float)):
        expected = [x[np.abs(x - q).argmin()] for q in mquantiles(x, probabilities)]
        assert nearest_values(x, probabilities).tolist() == expected


def test_images_and_integers():
    X = np.random.default_rng(0).integers(0, 9, size=(30, 2, 2))
    result = rl.feature_impact(lambda X: X[:, 0, 0] * 3 - X[:, 1, 1], X)
    np.testing.assert_allclose(result.values, [3, 0, 0, 1], rtol=1e-12)
    assert result.names[3] == "x[1,1]"


def test_progress_counts_to_its_total():
    from sklearn.linear_model import LinearRegression

    X = columns()
    for model in (formula, estimators()["boosting"].fit(X, labels(X)), LinearRegression().fit(X, labels(X))):
        calls = []
        rl.feature_impact(model, X, progress=lambda done, total, calls=calls: calls.append((done, total)))
        assert not calls or calls[-1][0] == calls[-1][1]


# ---------------------------------------------------------------------------------------------------------------------
# The result


def test_tables_files_and_order(tmp_path):
    result = rl.feature_impact(formula, columns(), names=["a", "b", "$c$", "d", "e"], quantiles=QUANTILES)
    frame = result.to_frame()
    assert frame.loc["b", "value"] == result.values[1]
    assert frame["q0.25"].tolist() == result.impact[1].tolist()
    ranked = result.ranked()
    assert ranked.values.tolist() == sorted(result.values, reverse=True)
    assert ranked.impact[:, 0].tolist() == result.impact[:, np.argmax(result.values)].tolist()
    assert "feature_impact: impact over 4 quantiles" in repr(result)
    assert "<table>" in result._repr_html_()
    for suffix in ("json", "npz"):
        path = tmp_path / f"result.{suffix}"
        result.save(path)
        assert rl.load(path).to_dict() == result.to_dict()
    with pytest.raises(ValueError, match="read-only"):
        result.values[0] = 1.0


def test_figures():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = rl.feature_impact(formula, columns(), quantiles=QUANTILES)
    bars = result.plot()
    assert [bar.get_width() for bar in bars.patches] == result.ranked().values.tolist()
    lines = result.plot("quantiles", most=2)
    assert lines.get_lines()[0].get_ydata().tolist() == result.ranked().impact[:, 0].tolist()
    assert len(lines.get_lines()) == 2
    with pytest.raises(ValueError, match="kind='pie' is not known"):
        result.plot("pie")
    with pytest.raises(ValueError, match="most=0 leaves nothing"):
        result.plot(most=0)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quantiles": 0}, ValueError, "quantiles=0 is too few"),
        ({"quantiles": -3}, ValueError, "quantiles=-3 is too few"),
        ({"quantiles": []}, ValueError, "quantiles is empty"),
        ({"quantiles": [0.0, 0.5]}, ValueError, "quantiles holds 0.0: probabilities must lie strictly between 0 and 1"),
        ({"quantiles": [0.5, 1]}, ValueError, "quantiles holds 1"),
        ({"quantiles": [0.5, float("nan")]}, ValueError, "quantiles holds nan"),
        ({"quantiles": [0.5, 0.2]}, ValueError, "do not increase: sort them"),
        ({"quantiles": [0.5, 0.5]}, ValueError, "do not increase"),
        ({"quantiles": ["median"]}, TypeError, "probabilities must be numbers"),
        ({"quantiles": "nine"}, TypeError, "quantiles='nine'"),
        ({"quantiles": True}, TypeError, "quantiles=True"),
        ({"quantiles": 0.5}, TypeError, "a list of probabilities"),
        ({"method": "predict_proba"}, TypeError, "is a function"),
        ({"method": 3}, TypeError, "method=3"),
        ({"route": "walk"}, ValueError, "route='walk' is unknown"),
        ({"features": [(0, 1)]}, ValueError, "is a group of 2 columns"),
        ({"features": ["z"]}, ValueError, "features names 'z'"),
        ({"run": rl.Run(memory=10)}, ValueError, "memory=10 bytes is too small"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        rl.feature_impact(formula, columns(20), **options)


def test_bad_models_and_data():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    X = columns(20)
    with pytest.raises(TypeError, match="has no such method"):
        rl.feature_impact(LinearRegression().fit(X, X[:, 0]), X, method="predict_proba")
    classifier = LogisticRegression().fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match=r"predictions of shape \(20, 2\).*predict_proba\(X\)\[:, 1\]"):
        rl.feature_impact(classifier, X, method="predict_proba")
    with pytest.raises(ValueError, match="normalize=True needs an impact above 0"):
        rl.feature_impact(lambda X: X[:, 0] * 0, X, normalize=True)
    with pytest.raises(ValueError, match="NaN or infinite predictions"):
        quiet(formula, columns(20, missing=0.5))
    lost = X.copy()
    lost[:, 2] = np.nan
    with pytest.raises(ValueError, match="feature 'x2' is NaN in every row"):
        quiet(lambda X: X[:, 0], lost)
    lost[:, 2] = np.inf
    with pytest.raises(ValueError, match="feature 'x2' holds infinite values"):
        quiet(lambda X: X[:, 0], lost)


def test_coefficients_that_do_not_predict_are_given_up():
    from sklearn.linear_model import LinearRegression

    class Clipped(LinearRegression):
        def predict(self, X):
            return np.clip(super().predict(X), -0.5, 0.5)

    X = columns()
    model = Clipped().fit(X, labels(X))
    result = rl.feature_impact(model, X)
    assert "linear" not in result.routes
    np.testing.assert_allclose(result.values, package(model, X)[1], rtol=1e-10, atol=1e-12)
