"""Metrics over all pairs: free of the order of rows, by the routes of losses, with the errors of their influence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

import reliance as rl

pytestmark = pytest.mark.filterwarnings("ignore:the losses of:UserWarning")
FIELDS = ("values", "replaced_risk", "row_values", "std_error", "skewness", "random_variable_error", "row_error")


def classes(n, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n).round(1)])
    y = (X[:, 0] + 0.7 * X[:, 1] + rng.normal(size=n) > 0.7).astype(int)
    y[:2] = 0, 1
    return X, y, rng.uniform(0.5, 2.0, n)


def scores(X):
    return np.floor(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]


def quadruple_loop(predict, X, y, w, column):
    """P(a positive row with any donor scores below a negative one with any donor), ties 1/2; and the scores."""
    n = len(X)
    table = np.full((n, n), np.nan)
    for i, k in itertools.permutations(range(n), 2):
        row = X[i : i + 1].copy()
        row[0, column] = X[k, column]
        table[i, k] = predict(row)[0]
    below = total = 0.0
    for i, k in itertools.permutations(range(n), 2):
        for j, m in itertools.permutations(range(n), 2):
            if y[i] == 1 and y[j] == 0:
                total += w[i] * w[j]
                below += w[i] * w[j] * ((table[i, k] < table[j, m]) + 0.5 * (table[i, k] == table[j, m]))
    return below / total, table


def base_loop(predict, X, y, w):
    s, below, total = predict(X), 0.0, 0.0
    for i, j in itertools.product(np.flatnonzero(y == 1), np.flatnonzero(y == 0)):
        total += w[i] * w[j]
        below += w[i] * w[j] * ((s[i] < s[j]) + 0.5 * (s[i] == s[j]))
    return below / total, s


def pseudo(score, own_class, value, cases, y, w):
    """L' of one score among cases (score, row)."""
    share = {label: sum(w[j] for _, j in cases if y[j] == label) for label in (0, 1)}

    def below(label):
        return sum(w[j] * ((s < score) + 0.5 * (s == score)) for s, j in cases if y[j] == label) / share[label]

    part = (1.0 - below(0) - value) if own_class == 1 else (below(1) - value)
    return value + part * (share[0] + share[1]) / share[own_class]


@pytest.mark.parametrize("route", ["plain", "auto"])
@pytest.mark.parametrize("weighted", [False, True])
def test_auc_and_its_error_are_those_of_literal_loops(route, weighted):
    X, y, w = classes(8)
    w = w if weighted else np.ones(8)
    n, options = 8, {"compare": "difference", "keep": "rows", "weights": w if weighted else None}
    found = rl.model_reliance(scores, X, y, loss="auc", route=route, **options)
    assert found.routes == (("plain",) * 3 if route == "plain" else ("plain", "distinct", "plain"))
    rarer = min(np.sum(y == 0), np.sum(y == 1))  # an AUC's error rests on so many rows
    wider = np.sqrt(rarer / (rarer - 1) / (n / (n - 1)))
    base, own = base_loop(scores, X, y, w)
    before = [pseudo(own[i], y[i], base, list(zip(own, range(n), strict=True)), y, w) for i in range(n)]
    for column in range(3):
        value, table = quadruple_loop(scores, X, y, w, column)
        np.testing.assert_allclose(found.values[column], value - base, atol=1e-13)
        cases = [(table[i, k], i) for i, k in itertools.permutations(range(n), 2)]
        h = np.full((n, n), np.nan)
        for i, k in itertools.permutations(range(n), 2):
            change = pseudo(table[i, k], y[i], value, cases, y, w) - before[i]
            h[i, k] = w[i] * (change - (value - base)) / w.mean()
        psi = np.nanmean(h, axis=1) + np.nansum(h, axis=0) / (n - 1)
        error = np.sqrt((n - 1) ** 2 / (n * (n - 2) ** 2) * np.var(psi, ddof=1))
        if not weighted:
            np.testing.assert_allclose(found.std_error[column], wider * error, rtol=1e-12)
        ours = found.row_values[column]
        np.testing.assert_allclose(ours, np.nanmean(h, axis=1) + w / w.mean() * (value - base), atol=1e-12)


@pytest.mark.parametrize("loss", ["auc", "rmse", "r2", "accuracy"])
def test_the_order_of_rows_changes_nothing(loss):
    X, y, _ = classes(60)
    order = np.argsort(y + 0.1 * X[:, 0])
    predict = (lambda Z: (scores(Z) > 0).astype(int)) if loss == "accuracy" else scores
    one = rl.model_reliance(predict, X, y, loss=loss, compare="difference")
    other = rl.model_reliance(predict, X[order], y[order], loss=loss, compare="difference")
    for field in ("values", "std_error", "skewness"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-9, atol=1e-12)
    assert not one.fixed_data_error.any()


def same(found, plain):
    for name in FIELDS:
        expected = getattr(plain, name)
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-8, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(found.interval(), plain.interval(), rtol=1e-8, atol=1e-10)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from([DecisionTreeClassifier, RandomForestClassifier, GradientBoostingClassifier]),
    weighted=st.booleans(),
    depth=st.sampled_from([2, None]),
)
def test_auc_by_cells_of_trees_is_that_of_every_pair(seed, kind, weighted, depth):
    X, y, w = classes(50, seed)
    sizes = {} if kind is DecisionTreeClassifier else {"n_estimators": 4}
    model = kind(max_depth=depth, random_state=0, **sizes).fit(X, y)
    options = {"loss": "auc", "compare": "difference", "keep": "rows", "weights": w if weighted else None}
    options["features"] = [0, 1, 2, (0, 2)]
    found = rl.model_reliance(model, X, y, **options)
    # Leaves whose values are equal but for rounding have an order for the model, and none for the route.
    predict = model.predict_proba if kind is not GradientBoostingClassifier else _rounded(model)
    same(found, rl.model_reliance(predict, X, y, route="plain", **options))
    assert "plain" not in found.routes


def _rounded(model):
    def predict(Z):
        return model.decision_function(Z).round(12)

    return predict


def test_leaves_that_differ_by_rounding_are_ties_for_the_trees():
    """Newton steps of two leaves with the same shares of classes differ in their last bit."""
    X, y, _ = classes(50, 2030)
    model = GradientBoostingClassifier(max_depth=None, random_state=0, n_estimators=4).fit(X, y)
    leaves = np.unique(np.concatenate([tree.tree_.value.ravel() for tree in model.estimators_[:, 0]]))
    assert np.diff(leaves).min() < 1e-14  # or there is nothing to see here
    found = rl.model_reliance(model, X, y, loss="auc", compare="difference")
    expected = rl.model_reliance(_rounded(model), X, y, loss="auc", compare="difference", route="plain")
    np.testing.assert_allclose(found.replaced_risk[:1], expected.replaced_risk[:1], rtol=1e-12)


def test_metrics_leave_losses_their_routes_and_ride_on_them():
    X, _, _ = classes(80)
    rng = np.random.default_rng(1)
    X, y = X + rng.normal(size=X.shape), X[:, 0] + rng.normal(size=80)
    linear = LinearRegression().fit(X, y)
    found = rl.model_reliance(linear, X, y, loss=["squared_error", "r2", "rmse"], compare="difference", keep="rows")
    for name, result in found.items():
        assert result.routes == ("linear",) * 3
        assert not result.evaluations.any()
        same(result, rl.model_reliance(linear, X, y, loss=name, compare="difference", keep="rows", route="plain"))
    without_rows = rl.model_reliance(linear, X, y, loss=["squared_error", "r2"], compare="difference")
    np.testing.assert_allclose(without_rows["r2"].std_error, found["r2"].std_error)
    own = rl.Metric(lambda y, p: np.mean((y - p) ** 4) ** 0.25, name="own")
    found = rl.model_reliance(linear, X, y, loss=[own, "squared_error"])
    assert found["squared_error"].routes == ("linear",) * 3
    assert found["own"].routes == ("plain",) * 3
    labels = (y > 0).astype(int)
    linear = rl.models.Linear(linear.coef_, 0.1)
    found = rl.model_reliance(linear, X, labels, loss=["squared_error", "auc"])
    assert found["squared_error"].routes == ("linear",) * 3
    same_value = rl.model_reliance(linear, X, labels, loss="auc")
    np.testing.assert_allclose(found["auc"].values, same_value.values)


def test_one_evaluation_serves_losses_and_ranks_where_no_route_has_sums_alone():
    X, y, _ = classes(30)
    rows = []

    def counted(Z):
        rows.append(len(Z))
        return 1.0 / (1.0 + np.exp(-scores(Z)))

    rl.model_reliance(counted, X, y, loss="log_loss", features=[0])
    alone = sum(rows)
    rows.clear()
    rl.model_reliance(counted, X, y, loss=["auc", "log_loss"], features=[0])
    assert sum(rows) == alone


def test_trees_measure_accuracy_and_r2():
    X, y, w = classes(70)
    forest = RandomForestRegressor(5, random_state=0).fit(X, y)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    for model, loss in ((forest, "r2"), (forest, "rmse"), (tree, "accuracy")):
        options = {"loss": loss, "weights": w, "compare": "difference", "keep": "rows"}
        found = rl.model_reliance(model, X, y, **options)
        assert set(found.routes) <= {"trees", "unused"}
        same(found, rl.model_reliance(model, X, y, route="plain", **options))


def test_a_perfect_fit_and_an_unused_feature():
    X = np.random.default_rng(0).normal(size=(20, 2))
    found = rl.model_reliance(lambda Z: Z[:, 0], X, X[:, 0], loss=["rmse", "r2"], compare="difference")
    pairs = [(X[i, 0] - X[k, 0]) ** 2 for i, k in itertools.permutations(range(20), 2)]
    np.testing.assert_allclose(found["rmse"].values, [np.sqrt(np.mean(pairs)), 0.0])
    np.testing.assert_allclose(found["r2"].values, [np.mean(pairs) / np.var(X[:, 0]), 0.0])
    assert found["rmse"].std_error[1] == 0.0


def test_tiny_probabilities_keep_their_order():
    """Naive Bayes' probabilities of 1e-40 and 1e-50 differ, though both are 0 beside those of other rows."""
    X = np.random.default_rng(0).normal(size=(12, 1))
    y = np.arange(12) % 2
    plain = rl.model_reliance(lambda Z: Z[:, 0], X, y, loss="auc", compare="difference")
    tiny = rl.model_reliance(lambda Z: 10.0 ** (-100.0 - 50.0 * Z[:, 0]), X, 1 - y, loss="auc", compare="difference")
    np.testing.assert_allclose(tiny.values, plain.values, atol=1e-14)
    np.testing.assert_allclose(tiny.std_error, plain.std_error, rtol=1e-12)


def test_tables_beyond_the_memory_are_replaced_by_draws():
    X, y, _ = classes(100)
    exact = rl.model_reliance(scores, X, y, loss="auc", compare="difference")
    with pytest.warns(UserWarning, match=r"loss='auc' over all pairs ranks 100 x 100 scores.*64 draws by ranks"):
        found = rl.model_reliance(
            scores, X, y, loss=["auc", "squared_error"], compare="difference", run=rl.Run(memory=200_000)
        )
    assert found["auc"].plan == "ranks, 64 per row"
    assert found["squared_error"].plan == "all pairs"
    assert (found["auc"].fixed_data_error > 0.0).all()
    assert (np.abs(found["auc"].values - exact.values) < 0.3 * exact.std_error).all()


def test_a_route_without_tables_is_refused_for_ranks():
    X, y, _ = classes(30)
    model = rl.models.Linear(np.ones(3))
    with pytest.raises(ValueError, match="route='linear' keeps no table"):
        rl.model_reliance(model, X, y, loss="auc", route="linear")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["auc", "rmse", "r2"])
def test_intervals_of_metrics_over_all_pairs_cover(loss):
    """600 samples of 150 rows: 95% less three binomial errors, and no more than that above."""
    rng = np.random.default_rng(0)

    def sample(n):
        X = rng.normal(size=(n, 2))
        eta = X[:, 0] + 0.5 * X[:, 1]
        y = (eta + rng.logistic(size=n) > 0).astype(float) if loss == "auc" else eta + rng.normal(size=n)
        return X, y

    def predict(X):
        return X[:, 0] + 0.5 * X[:, 1]

    X, y = sample(200_000)  # the truth: donors are independent rows
    moved = X.copy()
    moved[:, 0] = rng.permutation(moved[:, 0])
    base, replaced = (getattr(rl.losses, loss).value(y, predict(Z)) for Z in (X, moved))
    truth, hits, repeats = replaced - base, 0, 600
    for _ in range(repeats):
        X, y = sample(150)
        low, high = rl.model_reliance(predict, X, y, loss=loss, compare="difference", features=[0]).interval()[0]
        hits += low <= truth <= high
    assert abs(hits / repeats - 0.95) < 3.0 * np.sqrt(0.95 * 0.05 / repeats) + 0.005
