"""Baselines and companions: scaled coefficients, interactions, extrapolation, training against test data."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import oracles
import reliance as rl
from reliance import plans

EXAMPLES = Path(__file__).parents[1] / "examples"
KEY = 11


def product(x):
    return x[..., 0] * x[..., 1] + x[..., 2]


def rows(n, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def noisy(X, seed=1):
    return product(X) + np.random.default_rng(seed).normal(size=len(X))


# ---------------------------------------------------------------------------------------------------------------------
# Coefficients


def test_scaled_coefficients_are_those_of_models_fitted_to_scaled_features():
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    X = rows(60) * [1.0, 1e-3, 50.0] + [0.0, 3.0, -7.0]
    y = X @ [1.0, 500.0, 0.2] + rows(60, 1, 4)[:, 0]
    model = LinearRegression().fit(X, y)
    result = rl.linear_importance(model, X)
    np.testing.assert_allclose(result.by_range, LinearRegression().fit(MinMaxScaler().fit_transform(X), y).coef_)
    scaled = LinearRegression().fit(StandardScaler().fit_transform(X), y).coef_
    np.testing.assert_allclose(result.by_deviation, scaled)
    np.testing.assert_allclose(result.values, np.abs(result.by_range))
    pipeline = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    for same in (rl.linear_importance(pipeline, X, scale="deviation"), rl.linear_importance(None, X, y)):
        np.testing.assert_allclose(same.coefficients, model.coef_)
    np.testing.assert_allclose(rl.linear_importance(pipeline, X, scale="deviation").values, np.abs(scaled))


def test_coefficients_of_classifiers():
    from sklearn.linear_model import LogisticRegression

    X = rows(50)
    model = LogisticRegression().fit(X, X[:, 0] > 0)
    np.testing.assert_allclose(rl.linear_importance(model, X).by_range, model.coef_[0] * np.ptp(X, axis=0))


@pytest.mark.once_per_device
def test_scales_on_every_backend(backend):
    X, coef = rows(20), np.array([2.0, -1.0, 0.5])
    own = backend.rounded(X)
    result = rl.linear_importance(rl.models.Linear(backend.asarray(coef)), backend.asarray(X), features=[2, 0])
    backend.assert_close(result.by_range, (coef * np.ptp(own, axis=0))[[2, 0]])
    backend.assert_close(result.by_deviation, (coef * own.std(axis=0))[[2, 0]])
    fitted = rl.linear_importance(None, backend.asarray(X), backend.asarray(X @ coef))
    np.testing.assert_allclose(fitted.coefficients, coef, rtol=1e-12 if backend.dtype == "float64" else 1e-5)


def test_tables_of_coefficients():
    result = rl.linear_importance(rl.models.Linear(np.array([1.0, -9.0, 3.0])), rows(20), names=["a", "b", "c"])
    ranked = result.ranked()
    assert ranked.values.tolist() == sorted(result.values, reverse=True)
    assert result.to_frame().loc["b", "by_range"] == result.by_range[1] < 0
    assert result.to_dict()["coefficients"] == [1.0, -9.0, 3.0]
    assert "standardised" in repr(result)
    assert "<table>" in result._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((None, rows(9)), {}, ValueError, "model is None and y is None"),
        ((rl.models.Linear(np.ones(3)), rows(9), np.ones(9)), {}, ValueError, "y is given with a model"),
        ((product, rows(9)), {}, TypeError, "no coefficients that can be read"),
        ((rl.models.Linear(np.ones(2)), rows(9)), {}, ValueError, r"coefficients of shape \(2,\), but X has 3 columns"),
        ((rl.models.Linear(np.ones(3)), rows(9)), {"scale": "unit"}, ValueError, "scale='unit' is unknown"),
        ((rl.models.Linear(np.ones(3)), rows(9)), {"features": [(0, 1)]}, ValueError, "is a group"),
        ((None, np.ones((9, 3)), np.arange(9.0)), {}, ValueError, "of which 0 are linearly independent"),
        ((None, rows(9), rows(9)), {}, ValueError, "one number per row"),
        ((rl.models.Linear(np.ones(3)), rows(8).reshape(4, 2, 3)), {}, ValueError, "rows of one dimension"),
    ],
)
def test_bad_input_of_linear_importance(arguments, options, error, message):
    with pytest.raises(error, match=message):
        rl.linear_importance(*arguments, **options)


@pytest.mark.filterwarnings("ignore:X holds NaN")
def test_missing_values_have_no_range():
    X = rows(9)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values in column 'x1'"):
        rl.linear_importance(rl.models.Linear(np.ones(3)), X)


# ---------------------------------------------------------------------------------------------------------------------
# Interactions


def squared(y, p):
    return float((y - p) ** 2)


def literal_importances(X, y, donors, mask, weights=None):
    """The literal table of D (n, K) of every single feature and pair."""
    groups = [*itertools.combinations(range(3), 1), *itertools.combinations(range(3), 2)]
    tables = {g: oracles.loss_table(product, squared, X, y, g, donors, mask, weights) for g in groups}
    return {g: (oracles.answer(t, "difference").value, t) for g, t in tables.items()}


@pytest.mark.once_per_device
@pytest.mark.parametrize("draws", [4, "all"])
def test_interactions_equal_literal_loops(backend, draws):
    X, n = rows(9), 9
    y = noisy(X)
    if draws == "all":
        donors, mask = oracles.all_pairs(n)
    else:
        donors, mask = plans.Shifts(n, 4, KEY).donors(range(n), range(4)), None
    found = literal_importances(backend.rounded(X), backend.rounded(y), donors, mask)
    result = rl.interaction_importance(product, backend.asarray(X), backend.asarray(y), draws=draws, rng=KEY)
    assert result.pairs == (("x0", "x1"), ("x0", "x2"), ("x1", "x2"))
    for place, (j, k) in enumerate(itertools.combinations(range(3), 2)):
        joint, first, second = found[j, k][0], found[j,][0], found[k,][0]
        backend.assert_close(result.values[place], joint - first - second, scale=50)
        backend.assert_close(
            [result.joint[place], result.first[place], result.second[place]], [joint, first, second], 50
        )
        if draws == "all":  # the jackknife of the paired difference: drop a row and every pair that it is in
            D = found[j, k][1].D - found[j,][1].D - found[k,][1].D
            left = []
            for drop in range(n):
                kept = [D[i, m] for i in range(n) for m in range(n) if i != m and drop not in (i, m)]
                left.append(sum(kept) / len(kept))
            error = math.sqrt((n - 1) / n * sum((value - np.mean(left)) ** 2 for value in left))
            backend.assert_close(result.std_error[place], error, scale=50)


def pairs_risk(f, X, y, columns):
    """Over all pairs of different rows, literally."""
    total, n = 0.0, len(X)
    for i in range(n):
        for k in range(n):
            row = X[i].copy()
            row[list(columns)] = X[k, list(columns)]
            total += (f(row) - y[i]) ** 2 if i != k else 0.0
    return total / (n * (n - 1))


@pytest.mark.parametrize("names", [["a", "b", "a × b", "c"], ["a × b", "c", "a", "b × c"]])
@pytest.mark.parametrize("route", ["auto", "plain"])
def test_interactions_of_columns_that_are_called_like_pairs(names, route):
    X = np.random.default_rng(5).normal(size=(14, 4))
    y = X[:, 0]

    def f(x):
        return 2.0 * x[..., 0] * x[..., 1] + 3.0 * x[..., 2] - x[..., 3]

    result = rl.interaction_importance(f, X, y, draws="all", names=names, route=route)
    place = {name: j for j, name in enumerate(names)}
    base = np.mean((f(X) - y) ** 2)
    assert len(result.pairs) == 6
    for k, (one, other) in enumerate(result.pairs):
        j, i = place[one], place[other]
        joint, first, second = (pairs_risk(f, X, y, columns) - base for columns in ([j, i], [j], [i]))
        found = (result.joint[k], result.first[k], result.second[k], result.values[k])
        np.testing.assert_allclose(found, (joint, first, second, joint - first - second), rtol=1e-9, atol=1e-12)


def test_weighted_interactions_equal_literal_loops():
    X, n = rows(9), 9
    y, weights = noisy(X), np.linspace(0.5, 2.0, 9)
    donors = plans.Shifts(n, 5, KEY).donors(range(n), range(5))
    found = literal_importances(X, y, donors, None, weights)
    result = rl.interaction_importance(product, X, y, draws=5, weights=weights, rng=KEY, between=[(2, 0)])
    assert result.pairs == (("x2", "x0"),)
    expected = found[0, 2][0] - found[0,][0] - found[2,][0]
    assert result.values[0] == pytest.approx(expected, rel=1e-12)


def test_draws_are_those_of_permutation_importance_and_routes_agree():
    from sklearn.ensemble import GradientBoostingRegressor

    X = rows(60)
    y = noisy(X)
    result = rl.interaction_importance(product, X, y, rng=3, draws=7)
    shifts = rl.Draws(7, design="shifts")  # all features share their donors, also with their pairs
    own = rl.permutation_importance(product, X, y, rng=3, draws=shifts, features=[0, 1, 2, (0, 1)])
    np.testing.assert_allclose([result.first[0], result.second[0], result.second[1]], own.values[:3], rtol=1e-12)
    assert result.joint[0] == pytest.approx(own.values[3], rel=1e-12)
    model = GradientBoostingRegressor(n_estimators=10, random_state=0).fit(X, y)
    linear = rl.models.Linear(np.array([1.0, 2.0, 0.0]))
    for one in (model, linear):
        auto, plain = (rl.interaction_importance(one, X, y, draws="all", route=route) for route in ("auto", "plain"))
        np.testing.assert_allclose(auto.values, plain.values, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(auto.std_error, plain.std_error, rtol=1e-9, atol=1e-10)


def test_models_that_add_up_have_no_interaction_beyond_dependence():
    """Linear f, squared error: I(jk) - I(j) - I(k) = 2 b_j b_k E[(x_j' - x_j)(x_k' - x_k)] = 4 b_j b_k Cov(j, k)."""
    X = rows(400)
    X[:, 1] += X[:, 0]
    y = X @ [1.0, 2.0, 3.0]
    result = rl.interaction_importance(rl.models.Linear(np.array([1.0, 2.0, 3.0])), X, y, draws="all")
    covariance = np.cov(X.T)
    expected = [4 * 1 * 2 * covariance[0, 1], 4 * 1 * 3 * covariance[0, 2], 4 * 2 * 3 * covariance[1, 2]]
    np.testing.assert_allclose(result.values, expected, rtol=1e-9, atol=1e-10)


def test_metrics_groups_and_tables():
    X = rows(80, 4)
    y = (product(X) > 0).astype(int)
    result = rl.interaction_importance(
        product, X, y, loss="auc", features={"left": [0, 1], "third": 2, "none": 3}, between=[("left", "third")], rng=0
    )
    assert result.names == ("left × third",)
    assert np.isfinite(result.interval()).all()
    whole = rl.interaction_importance(product, X, product(X), rng=0)
    assert whole.ranked().names[0] == "x0 × x1"
    frame = whole.to_frame()
    assert frame.loc["x0 × x1", "value"] == whole.values[0] < 0
    assert frame.loc["x0 × x1", "lower"] == whole.interval()[0, 0]
    assert whole.to_dict()["pairs"][0] == ["x0", "x1"]
    assert "x0 × x1" in repr(whole)
    assert "<table>" in whole._repr_html_()
    nothing = [k for k, pair in enumerate(whole.pairs) if "x3" in pair]
    assert whole.values[nothing].tolist() == [0.0] * 3
    assert whole.std_error[nothing].tolist() == [0.0] * 3


def test_a_metric_without_rows_has_no_interval():
    X = rows(30)
    metric = rl.Metric(lambda y, p: ((y - p) ** 2).mean() ** 0.5, name="root")
    result = rl.interaction_importance(product, X, noisy(X), loss=metric, rng=0)
    assert np.isnan(result.to_frame()["lower"]).all()
    with pytest.raises(ValueError, match="says nothing about single rows"):
        result.interval()
    with pytest.raises(ValueError, match="says nothing about single rows"):
        result.test()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"between": []}, ValueError, "between is empty"),
        ({"between": "x0"}, TypeError, "pass a list of pairs"),
        ({"between": [0, 1]}, TypeError, "between holds 0"),
        ({"between": [(0, 1, 2)]}, TypeError, "two features"),
        ({"between": [(0, 7)]}, ValueError, "between holds 7"),
        ({"between": [(0, "z")]}, ValueError, "between holds 'z', which is none of the features 'x0'"),
        ({"between": [(0, 0)]}, ValueError, "share column 0"),
        ({"between": [(0, 1), (1, 0)]}, ValueError, "twice"),
        ({"between": [("a", "x0")], "features": {"a": [0, 1], "x0": 0}}, ValueError, "share column 0"),
        ({"features": [0]}, ValueError, "takes two features"),
        ({"draws": 2}, ValueError, "draws=2 is too few"),
        ({"draws": 40}, ValueError, "draws=40 is more than the 19 shifts"),
        ({"draws": "some"}, ValueError, "draws='some' is unknown"),
        ({"loss": ["squared_error", "absolute_error"]}, ValueError, "one loss at a time"),
        ({"route": "fast"}, ValueError, "route='fast' is unknown"),
    ],
)
def test_bad_input_of_interactions(options, error, message):
    X = rows(20)
    with pytest.raises(error, match=message):
        rl.interaction_importance(product, X, noisy(X), **options)


def test_wrong_alternatives_and_levels():
    X = rows(30)
    result = rl.interaction_importance(product, X, noisy(X), rng=0)
    both = rl.compare_splits(product, train=(X, noisy(X)), test=(X, noisy(X, 2)), rng=0)
    for test in (result.test, both.test):
        with pytest.raises(ValueError, match="alternative='more' is not known"):
            test(alternative="more")
    for interval in (result.interval, both.interval):
        with pytest.raises(ValueError, match="level=2"):
            interval(2)


@pytest.mark.slow
@pytest.mark.parametrize("draws", [3, 20, "all"])
def test_interaction_intervals_cover(draws):
    """f = x0 x1 + x2 on independent standard normals: -2 for (x0, x1), 0 for the others, however noisy."""
    replicates, n, truth = 400, 120, np.array([-2.0, 0.0, 0.0])
    covered, rejected = np.zeros(3), np.zeros(3)
    for seed in range(replicates):
        X = rows(n, seed=seed)
        result = rl.interaction_importance(product, X, noisy(X, 10_000 + seed), draws=draws, rng=seed)
        low, high = result.interval().T
        covered += (low <= truth) & (truth <= high)
        rejected += result.test(adjust="none").p_value < 0.05
    error = math.sqrt(0.95 * 0.05 / replicates)
    assert (covered / replicates > 0.95 - 3 * error).all(), covered / replicates
    assert (rejected[1:] / replicates < 0.05 + 3 * error).all(), rejected / replicates
    assert rejected[0] > 0.95 * replicates  # power: how often the interaction that is there is found


# ---------------------------------------------------------------------------------------------------------------------
# Extrapolation


def literal_ratios(X, chosen, donors, columns):
    """Mean nearest distance of replaced rows to others than itself and its donor, over that of the rows to others."""
    Z = X / X.std(axis=0)
    real, replaced = [], []
    for i, k in zip(chosen, donors, strict=True):
        real.append(min(math.dist(Z[i], Z[m]) for m in range(len(X)) if m != i))
        row = Z[i].copy()
        row[list(columns)] = Z[k, list(columns)]
        replaced.append(min(math.dist(row, Z[m]) for m in range(len(X)) if m not in (i, k)))
    return np.mean(replaced) / np.mean(real), np.mean(np.asarray(replaced) > np.quantile(real, 0.95))


@pytest.mark.once_per_device
@pytest.mark.filterwarnings("ignore:replacing")
def test_distance_ratios_equal_literal_loops(backend):
    X = rows(30)
    X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    donors = plans.Shifts(30, 1, KEY).donors(range(30), range(1))[:, 0]
    result = rl.extrapolation_check(backend.asarray(X), features=[0, 2, (0, 1)], rng=KEY)
    expected = [literal_ratios(backend.rounded(X), range(30), donors, columns) for columns in ((0,), (2,), (0, 1))]
    tolerance = 1e-10 if backend.dtype == "float64" else 1e-4
    np.testing.assert_allclose(result.values, [ratio for ratio, _ in expected], rtol=tolerance)
    np.testing.assert_allclose(result.outside, [share for _, share in expected])


def correlated(n=300, noise=0.2, seed=0):
    x = rows(n, 3, seed)
    return np.column_stack([x[:, 0], x[:, 0] + noise * x[:, 1], x[:, 2]])


@pytest.mark.parametrize("options", [{}, {"method": "classifier", "folds": 2, "features": [0, 2]}], ids=str)
def test_dependent_features_are_warned_about_and_independent_ones_are_not(options):
    with pytest.warns(UserWarning, match="replacing 'x0'.* makes rows unlike those of X"):
        result = rl.extrapolation_check(correlated(), **options, rng=0)
    assert result.beyond == (("x0",) if options else ("x0", "x1"))
    assert result.ranked().names[-1] == "x2"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rl.extrapolation_check(rows(300), **options, rng=0).beyond == ()
        if not options:
            assert rl.extrapolation_check(correlated(), rng=0, limit=100).beyond == ()


@pytest.mark.filterwarnings("ignore:replacing")
def test_a_group_of_dependent_columns_stays_with_the_data():
    result = rl.extrapolation_check(correlated(), features={"both": [0, 1], "one": 0}, rng=0)
    assert result.beyond == ("one",)
    assert result.values[0] == pytest.approx(1, abs=0.15)


@pytest.mark.filterwarnings("ignore:replacing")
def test_some_rows_twins_and_tables():
    few = rl.extrapolation_check(correlated(), rows=100, rng=0)
    assert (few.rows, few.n) == (100, 300)
    assert few.beyond == ("x0", "x1")
    twins = np.repeat(np.eye(2), 20, axis=0)  # two kinds of rows, of which an exchange makes two new ones
    result = rl.extrapolation_check(twins, rng=0)
    assert result.values.tolist() == [np.inf, np.inf]
    assert rl.extrapolation_check(np.column_stack([twins[:, 0], twins[:, 0] * 0]), rng=0).values.tolist() == [1.0, 1.0]
    frame = few.to_frame()
    assert frame.loc["x0", "distance_ratio"] == few.values[0]
    assert frame["beyond"].tolist() == [True, True, False]
    assert few.to_dict()["method"] == "neighbours"
    assert "limit 1.25" in repr(few)
    assert "<table>" in few._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "integers"])
@pytest.mark.parametrize("n", [40, 120])
def test_no_classifier_tells_replaced_rows_of_independent_features(kind, n):
    """The area is 0.5 on average, also of classifiers that remember every value, and hardly ever above the limit."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.tree import DecisionTreeClassifier

    for classifier in (DecisionTreeClassifier(random_state=0), KNeighborsClassifier(1)):
        found = []
        for seed in range(40):
            draw = np.random.default_rng(seed)
            X = draw.normal(size=(n, 2)) if kind == "normal" else draw.integers(0, 6, size=(n, 2)).astype(float)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                options = {"method": "classifier", "classifier": classifier, "features": [0], "folds": 4}
                found.append(rl.extrapolation_check(X, **options, rng=seed))
        areas = np.asarray([one.values[0] for one in found])
        assert abs(areas.mean() - 0.5) < 3.5 * areas.std() / np.sqrt(len(areas))
        assert sum(bool(one.beyond) for one in found) <= 1


def test_the_classifier_is_the_users():
    from sklearn.linear_model import LogisticRegression

    # Linear terms say nothing where only the dependence changes.
    result = rl.extrapolation_check(correlated(), method="classifier", classifier=LogisticRegression(), folds=3, rng=0)
    np.testing.assert_allclose(result.values, 0.5, atol=0.1)
    assert result.outside is None
    assert "auc" in result.to_frame()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "density"}, ValueError, "method='density' is unknown"),
        ({"rows": 1}, ValueError, "rows=1: pass an integer of at least 2"),
        ({"folds": 1}, ValueError, "folds=1"),
        ({"method": "classifier", "folds": 40}, ValueError, "folds=40 is too many for 10 replaced rows"),
        ({"limit": -1}, ValueError, "limit=-1"),
        ({"classifier": object()}, ValueError, "method='neighbours' uses none"),
        ({"classifier": object(), "method": "classifier"}, TypeError, "has no predict_proba"),
        ({"features": ["z"]}, ValueError, "features names 'z'"),
    ],
)
def test_bad_input_of_extrapolation(options, error, message):
    with pytest.raises(error, match=message):
        rl.extrapolation_check(rows(20), **options)


@pytest.mark.filterwarnings("ignore:X holds NaN")
def test_rows_without_distances():
    X = rows(20)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="which have no distance"):
        rl.extrapolation_check(X)
    with pytest.raises(ValueError, match="X has 3 rows"):
        rl.extrapolation_check(rows(3))


# ---------------------------------------------------------------------------------------------------------------------
# Training and test data


@pytest.mark.once_per_device
def test_both_splits_are_model_reliance_and_their_difference_is_welchs(backend):
    X, Z = rows(30), rows(50, seed=5)
    y, z = noisy(X), noisy(Z, 6)
    train, test = ((backend.asarray(a), backend.asarray(b)) for a, b in ((X, y), (Z, z)))
    both = rl.compare_splits(product, train=train, test=test, pairs="all", rng=0)
    first, second = (rl.model_reliance(product, *split) for split in (train, test))
    np.testing.assert_array_equal(both.on_train.values, first.values)
    np.testing.assert_array_equal(both.on_test.values, second.values)
    for k in range(3):
        a, b = first.std_error[k] ** 2, second.std_error[k] ** 2
        assert both.values[k] == first.values[k] - second.values[k]
        assert both.std_error[k] == pytest.approx(math.sqrt(a + b))
        assert both.degrees_of_freedom[k] == pytest.approx((a + b) ** 2 / (a**2 / 29 + b**2 / 49))


def test_interval_and_test_of_the_difference():
    from scipy import stats

    X, Z = rows(40), rows(60, seed=5)
    both = rl.compare_splits(product, train=(X, noisy(X)), test=(Z, noisy(Z, 6), np.ones(60)), rng=0)
    tested = both.test("two-sided", adjust="none")
    for k, (low, high) in enumerate(both.interval(0.9)):
        spread = stats.t(both.degrees_of_freedom[k])
        assert high - low == pytest.approx(2 * spread.ppf(0.95) * both.std_error[k])
        assert tested.p_value[k] == pytest.approx(2 * spread.sf(abs(both.values[k]) / both.std_error[k]))
    frame = both.to_frame()
    assert frame.loc["x0", "difference"] == both.values[0]
    assert frame.loc["x1", "train_lower"] == both.on_train.interval()[1, 0]
    assert both.to_dict()["on_test"]["n"] == 60
    assert "compare_splits: ratio of squared_error, n = 40 and 60" in repr(both)
    assert "<table>" in both._repr_html_()


def test_a_feature_that_moves_nothing_does_not_differ():
    X = rows(40)
    both = rl.compare_splits(lambda X: X[:, 0], train=(X, X[:, 1]), test=(X[:20], X[:20, 1]), pairs=5, rng=0)
    assert both.values[1:].tolist() == [0.0, 0.0]
    assert both.interval()[1:].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert both.test().p_value[1:].tolist() == [1.0, 1.0]


def test_splits_under_a_metric_without_rows():
    X = rows(30)
    metric = rl.Metric(lambda y, p: ((y - p) ** 2).mean() ** 0.5, name="root")
    both = rl.compare_splits(product, train=(X, noisy(X)), test=(X, noisy(X)), loss=metric, rng=0)
    assert "difference" in repr(both)
    with pytest.raises(ValueError, match="says nothing about single rows"):
        both.interval()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train": rows(9)}, TypeError, r"\(X, y\), \(X, y, weights\) or \(X, y, weights, clusters\), got nd"),
        ({"test": (rows(9),)}, TypeError, "test must be a tuple"),
        ({"loss": ["squared_error"]}, ValueError, "one loss at a time"),
        ({"test": (rows(9, 2), np.ones(9))}, ValueError, "they must have the same features"),
        ({"test": (rows(9), np.ones(8))}, ValueError, r"y has shape \(8,\) but X has 9 rows"),
        ({"compare": "sum"}, ValueError, "compare='sum' is unknown"),
    ],
)
def test_bad_input_of_splits(options, error, message):
    with pytest.raises(error, match=message):
        rl.compare_splits(
            lambda X: X[:, 0], **{"train": (rows(9), np.ones(9)), "test": (rows(9), np.ones(9)), "pairs": 3, **options}
        )


@pytest.mark.slow
def test_the_machine_that_learned_noise(monkeypatch, tmp_path, capsys):
    """Molnar's point: important on the training data, about 1 on test data, where what was learned does not help."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("train_or_test")
    both = example.study(0)
    assert len(both.names) == 50
    assert both.on_train.base_risk < 0.5 * both.on_test.base_risk
    assert (both.on_train.interval()[:, 0] > 1.0).mean() > 0.9  # almost every feature is important here ...
    low, high = both.on_test.interval().T
    assert ((low <= 1.0) & (high >= 1.0)).mean() > 0.85  # ... and is not there
    assert abs(np.median(both.on_test.values) - 1.0) < 0.01
    assert np.median(both.on_train.values) > 1.03
    assert (both.test().p_adjusted < 0.05).mean() > 0.5
    monkeypatch.setattr(example, "study", lambda: both)
    example.main(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert "training data" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_the_difference_of_splits_is_covered(compare: str) -> None:
    """A given linear model on two sources of rows: 2 b^2 Var(x_j) in each, or 1 + that over the noise."""
    beta, spread, replicates = np.array([1.0, 0.5, 0.0]), (1.0, 0.8), 500
    unit = 0.25 if compare == "ratio" else 1.0
    truth = 2 * beta**2 * (spread[0] ** 2 - spread[1] ** 2) / unit
    inside = np.zeros(3)
    for seed in range(replicates):
        rng = np.random.default_rng([seed, 8])
        sets = []
        for n, scale in zip((150, 250), spread, strict=True):
            X = scale * rng.normal(size=(n, 3))
            sets.append((X, X @ beta + 0.5 * rng.normal(size=n)))
        train, test = sets
        both = rl.compare_splits(lambda X: X @ beta, train=train, test=test, pairs="all", compare=compare, rng=seed)
        low, high = both.interval().T
        inside += (low <= truth) & (truth <= high)
    assert np.all(inside[:2] / replicates > 0.95 - 3.5 * np.sqrt(0.05 * 0.95 / replicates)), inside / replicates
    assert np.all(inside[:2] / replicates < 0.95 + 3.5 * np.sqrt(0.05 * 0.95 / replicates)), inside / replicates
    assert inside[2] == replicates  # not used: exactly 0
