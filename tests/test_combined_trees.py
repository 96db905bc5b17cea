"""Sums and medians of tree ensembles are read: votes, bagging, AdaBoost, boosting on another model, outliers."""

from __future__ import annotations

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBRegressor

import reliance as rl
from reliance.models.combined_trees import Part, added
from reliance.models.ensembles import Finish
from reliance.models.tree_readers import attempt

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)).round(2)
X[:, 3] = X[:, 3] > 0
y = X[:, 0] + X[:, 1] * X[:, 2] + X[:, 3] + 0.1 * rng.normal(size=60)
FOREST = RandomForestRegressor(4, max_depth=3, random_state=0)
HISTOGRAM = HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=5)
LIGHT, EXTREME = LGBMRegressor(n_estimators=4, verbose=-1, min_child_samples=5), XGBRegressor(n_estimators=3)

SUMS = {
    "votes": VotingRegressor([("a", FOREST), ("b", HISTOGRAM)]),
    "weighted votes": VotingRegressor(
        [("a", FOREST), ("b", HISTOGRAM), ("c", "drop"), ("d", LIGHT)], weights=[1, 2, 5, 3]
    ),
    "votes of float32": VotingRegressor([("a", EXTREME), ("b", FOREST)]),
    "bagging": BaggingRegressor(DecisionTreeRegressor(max_depth=4), 5, max_features=0.5, random_state=0),
    "bagging of deep trees": BaggingRegressor(n_estimators=3, random_state=0),
    "bagging of boosting": BaggingRegressor(HISTOGRAM, 3, max_features=3, random_state=0),
    "bagging of votes": BaggingRegressor(VotingRegressor([("a", FOREST), ("b", LIGHT)]), 2, random_state=0),
    "boosting on a forest": GradientBoostingRegressor(init=FOREST, n_estimators=5, random_state=0),
    "boosting on histograms": GradientBoostingRegressor(init=HISTOGRAM, n_estimators=5, random_state=0),
    "extra trees": ExtraTreesRegressor(4, max_depth=4, random_state=0),
    "a weighted median": AdaBoostRegressor(n_estimators=7, random_state=0),
    "a weighted median of deep trees": AdaBoostRegressor(DecisionTreeRegressor(), n_estimators=3, random_state=0),
}


def agree(model, labels, loss, rtol=1e-9):
    found, plain = (rl.model_reliance(model, X, labels, loss=loss, compare="difference", route=way) for way in WAYS)
    scale = np.max(np.abs(plain.values))
    np.testing.assert_allclose(found.values, plain.values, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(found.std_error, plain.std_error, rtol=rtol, atol=rtol * scale)
    return found


WAYS = ("auto", "plain")


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_read_and_measured(name):
    model = SUMS[name].fit(X, y)
    trees = attempt(model, "predict")
    rows = np.concatenate([X, np.random.default_rng(1).normal(size=(500, 4))])
    rtol = 1e-5 if name == "votes of float32" else 1e-10
    np.testing.assert_allclose(trees(rows), model.predict(rows), rtol=rtol, atol=rtol)
    assert set(agree(model, y, "squared_error", rtol).routes) == {"trees"}


def test_one_model_for_each_output():
    several = np.stack([y, -2.0 * y, y**2], axis=1)
    model = MultiOutputRegressor(GradientBoostingRegressor(n_estimators=4, random_state=0)).fit(X, several)
    assert set(agree(model, several, "squared_error").routes) == {"trees"}


def test_shares_of_classes_are_added():
    labels = np.digitize(y, [-1.0, 1.0])
    model = BaggingClassifier(DecisionTreeClassifier(max_depth=3), 4, max_features=3, random_state=0).fit(X, labels)
    found = rl.model_reliance(model, X, labels, loss="log_loss", compare="difference")
    assert set(found.routes) == {"trees"}
    agree(model, labels, "log_loss")
    agree(model, labels, "zero_one")


@pytest.mark.parametrize("cuts", [[0.0], [-1.0, 1.0]], ids=["two", "three"])
def test_votes_of_ada_boost(cuts):
    labels = np.digitize(y, cuts) + 3
    model = AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=6, random_state=0).fit(X, labels)
    for loss, method in {"log_loss": "predict_proba", "zero_one": "predict"}.items():
        trees = attempt(model, method)
        np.testing.assert_allclose(trees(X), getattr(model, method)(X), rtol=1e-12)
        assert set(agree(model, labels, loss).routes) == {"trees"}


@pytest.mark.parametrize("columns", [1.0, 0.5])
def test_outliers_of_an_isolation_forest(columns):
    model = IsolationForest(n_estimators=8, max_features=columns, contamination=0.2, random_state=0).fit(X)
    inside = model.predict(X)
    assert set(agree(model, inside, "zero_one").routes) <= {"trees", "unused"}


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (AdaBoostRegressor(LinearRegression(), n_estimators=2), "member LinearRegression"),
        (VotingRegressor([("a", FOREST), ("b", LinearRegression())]), "member LinearRegression"),
        (BaggingClassifier(RandomForestClassifier(2, max_depth=2), 2), "forests"),
        (GradientBoostingRegressor(init=LinearRegression(), n_estimators=2), "member LinearRegression"),
        (LGBMRegressor(n_estimators=2, verbose=-1, linear_tree=True), "leaves are linear"),
    ],
)
def test_words_say_what_is_no_sum_of_trees(model, word):
    labels = (y > 0).astype(int) if isinstance(model, BaggingClassifier) else y
    model.fit(X, labels)
    loss = "log_loss" if isinstance(model, BaggingClassifier) else "squared_error"
    with pytest.raises(ValueError, match=word):
        rl.model_reliance(model, X, labels, loss=loss, route="trees")


def test_thresholds_of_float32_among_doubles():
    """Doubles next to, and half-way between, numbers of float32 go the way that their nearest float32 goes."""
    narrow = attempt(DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y), "predict")
    wide = attempt(HISTOGRAM.fit(X, y), "predict")
    assert (narrow.compared_in, wide.compared_in) == ("float32", "float64")
    both = added([Part(narrow, 1.0), Part(wide, 0.0)], Finish(), 4)
    assert both.compared_in == "float64"
    cut = narrow.threshold[narrow.feature >= 0].astype(np.float32)
    near = np.concatenate([np.nextafter(cut, np.float32(side)) for side in (-np.inf, np.inf)] + [cut])
    halves = [(near.astype(float) + np.nextafter(near, np.float32(side))) / 2 for side in (-np.inf, np.inf)]
    values = np.concatenate([near.astype(float), *halves, *(np.nextafter(h, s) for h in halves for s in (-9, 9))])
    rows = np.random.default_rng(0).choice(values, size=(2000, 4))
    np.testing.assert_array_equal(both(rows), narrow(rows))
