"""Trees of the libraries against calling the model for every pair: deep and shallow, on ties, gaps and categories."""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn import ensemble as sk
from sklearn.tree import DecisionTreeRegressor

import reliance as rl

TRAINED, MEASURED = 300, 36
GROUPS = ["a", "b", "town", "same", ("a", "town"), ("a", "b"), ("town", "same")]


def table(seed, missing=True):
    """Numbers that repeat, with gaps, a category and a constant; labels with an interaction, weights."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=TRAINED).round(1), rng.normal(size=TRAINED).round(2)
    town = rng.choice(["north", "south", "east", "west", "centre"], TRAINED)
    y = a * (town == "north") + b - 0.5 * (town == "east") * b + 0.3 * rng.normal(size=TRAINED)
    if missing:
        a[rng.random(TRAINED) < 0.15] = np.nan
    found = pd.DataFrame({"a": a, "b": b, "town": pd.Categorical(town), "same": np.full(TRAINED, 2.0)})
    return found, y, rng.uniform(0.5, 2.0, TRAINED)


def coded(X):
    return X.assign(town=X["town"].cat.codes).to_numpy(dtype=float)


LIGHT = {"min_child_samples": 1, "min_split_gain": 0.0, "cat_smooth": 0.1, "min_data_per_group": 1, "verbose": -1}
OF_TABLES = {
    "histogram": lambda seed: sk.HistGradientBoostingRegressor(max_iter=9, min_samples_leaf=4, random_state=seed),
    "deep histogram": lambda seed: sk.HistGradientBoostingRegressor(
        max_iter=3, max_leaf_nodes=None, min_samples_leaf=1, random_state=seed
    ),
    "light": lambda seed: lightgbm.LGBMRegressor(n_estimators=9, n_jobs=1, random_state=seed, **LIGHT),
    "deep light": lambda seed: lightgbm.LGBMRegressor(n_estimators=3, num_leaves=120, n_jobs=1, **LIGHT),
    "extreme": lambda seed: xgboost.XGBRegressor(n_estimators=9, max_depth=4, enable_categorical=True, n_jobs=1),
    "deep extreme": lambda seed: xgboost.XGBRegressor(n_estimators=3, max_depth=12, enable_categorical=True, n_jobs=1),
    "dart": lambda seed: xgboost.XGBRegressor(
        n_estimators=9, booster="dart", rate_drop=0.3, enable_categorical=True, n_jobs=1, random_state=seed
    ),
}
OF_NUMBERS = {
    "forest of two outputs": lambda seed: sk.RandomForestRegressor(3, random_state=seed),
    "extreme of two outputs": lambda seed: xgboost.XGBRegressor(
        n_estimators=4, max_depth=9, multi_strategy="multi_output_tree", n_jobs=1
    ),
    "median of deep trees": lambda seed: sk.AdaBoostRegressor(
        DecisionTreeRegressor(), n_estimators=4, random_state=seed
    ),
    "outliers": lambda seed: sk.IsolationForest(n_estimators=5, contamination=0.3, random_state=seed),
}


def compared(model, X, y, w, tolerance, **options):
    """Values and errors of the trees and of the model itself."""
    asked = {"features": GROUPS, "weights": w, "compare": "difference", "names": ("a", "b", "town", "same"), **options}
    if isinstance(X, pd.DataFrame):
        del asked["names"]
    every, other = (rl.model_reliance(model, X, y, route=route, **asked) for route in ("auto", "plain"))
    for loss, found in every.items():
        plain = other[loss]
        assert set(found.routes) <= {"trees", "unused"}
        scale = np.max(np.abs(plain.values))
        for name in ("values", "std_error", "random_variable_error"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(plain, name), rtol=tolerance, atol=tolerance * scale, err_msg=name
            )


@pytest.mark.filterwarnings("ignore:X holds NaN", "ignore:the losses of", "ignore:constant in X", "ignore:.*missing")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@pytest.mark.parametrize("name", OF_TABLES)
def test_trees_on_tables(name, seed):
    X, y, w = table(seed)
    model = OF_TABLES[name](seed).fit(X, y)
    some = slice(0, MEASURED)
    # XGBoost adds float32 numbers.
    tolerance = 1e-9 if "light" in name or "histogram" in name else 2e-4
    compared(model, X[some], y[some], w[some], tolerance, loss=["squared_error", "absolute_error"])


@pytest.mark.filterwarnings("ignore:X holds NaN", "ignore:the losses of", "ignore:constant in X")
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_trees_on_numbers(name):
    X, y, w = table(20, missing="median" not in name and "outliers" not in name)
    X = coded(X)
    if "two outputs" in name:
        y = np.stack([y, y * X[:, 1]], axis=1)
    model = OF_NUMBERS[name](3).fit(X, y)
    labels, options = y[:MEASURED], {"loss": ["squared_error", "huber"]}
    if name == "outliers":
        labels, options = model.predict(X[MEASURED : 2 * MEASURED]), {"loss": ["zero_one"]}
    compared(model, X[:MEASURED], labels, w[:MEASURED], 2e-4 if "extreme" in name else 1e-9, **options)


@pytest.mark.filterwarnings("ignore:the losses of")
def test_interactions_by_joint_cells():
    """All pairs of two features together, in trees of more than 64 leaves: the model is called for the base pass."""
    X, y, w = table(7, missing=False)
    X = coded(X)[:, :3]
    model = sk.RandomForestRegressor(3, random_state=0).fit(X, y)
    asked = {"draws": "all", "weights": w[:MEASURED], "loss": "squared_error"}
    found, plain = (
        rl.interaction_importance(model, X[:MEASURED], y[:MEASURED], route=route, **asked)
        for route in ("trees", "plain")
    )
    for name in ("values", "joint", "std_error"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-9, atol=1e-12, err_msg=name)
    assert found.evaluations < plain.evaluations
