"""Trees that were fitted on categories of a table: the route through them equals calls of the model, pair by pair."""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost
from sklearn import ensemble as sk

import reliance as rl
from reliance.data import tables
from reliance.models import tree_readers

N = 60
LEVELS = {"shop": np.array(["v", "w", "x", "y", "z"]), "size": np.array([30, 40, 50])}


def table(seed=0, n=N):
    """Texts, whole numbers and numbers with gaps as categories or masked numbers, in an order of their own."""
    rng = np.random.default_rng(seed)
    shop, size = rng.choice(LEVELS["shop"], n), rng.choice(LEVELS["size"], n)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=n).round(1),
            "shop": pd.Categorical(shop, categories=rng.permutation(LEVELS["shop"])),
            "size": pd.Categorical(size),
            "rooms": pd.array(rng.integers(0, 5, n), dtype="Int64"),
            "flat": np.zeros(n),
            "grade": rng.integers(0, 4, n),
        }
    )
    y = frame["price"] + 2 * np.isin(shop, ["v", "y"]) + (size == 40) + (frame["grade"] == 2) + 0.3 * frame["rooms"]
    frame.loc[rng.random(n) < 0.1, "shop"] = None
    frame.loc[rng.random(n) < 0.1, "rooms"] = pd.NA
    return frame, y.to_numpy(dtype=np.float64) + 0.1 * rng.normal(size=n)


LIGHT = {"n_estimators": 8, "min_child_samples": 2, "min_data_per_group": 2, "cat_smooth": 1.0, "verbose": -1}
MODELS = {
    "histogram": (sk.HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=3), 1e-12),
    "histogram by name": (
        sk.HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=3, categorical_features=["shop", "grade"]),
        1e-12,
    ),
    "lightgbm": (lightgbm.LGBMRegressor(**LIGHT, n_jobs=1), 1e-12),
    "xgboost": (xgboost.XGBRegressor(n_estimators=8, max_depth=3, enable_categorical=True, n_jobs=1), 2e-5),
    "xgboost dart": (
        xgboost.XGBRegressor(booster="dart", rate_drop=0.3, n_estimators=8, enable_categorical=True, n_jobs=1),
        2e-5,
    ),
}


def literal(model, frame, y, columns):
    """(n, n): the squared error of row i with these columns of row k, from tables made one by one."""
    found = np.empty((len(frame), len(frame)))
    for k in range(len(frame)):
        replaced = frame.copy()
        for column in columns:
            replaced[column] = frame[column].iloc[[k] * len(frame)].array
        found[:, k] = (np.asarray(model.predict(replaced), dtype=np.float64) - y) ** 2
    return found


@pytest.mark.filterwarnings("ignore:constant in X")
@pytest.mark.parametrize("name", MODELS)
def test_categories_equal_a_literal_loop(name):
    model, tolerance = MODELS[name]
    model.fit(*table(1, 300))
    frame, y = table(2)
    features = ["price", "shop", "size", "rooms", ("shop", "grade")]
    found = rl.model_reliance(model, frame, y, features=features, compare="difference")
    assert set(found.routes) <= {"trees", "unused"}
    base = (np.asarray(model.predict(frame), dtype=np.float64) - y) ** 2
    for place, feature in enumerate(features):
        losses = literal(model, frame, y, [feature] if isinstance(feature, str) else feature)
        expected = (losses - base[:, None])[~np.eye(N, dtype=bool)].mean()
        np.testing.assert_allclose(found.values[place], expected, rtol=tolerance, atol=tolerance)


def test_levels_that_training_has_not_seen():
    """They go where missing values go, in both libraries that accept them."""
    frame, y = table(3, 200)
    known = frame.assign(shop=frame["shop"].where(frame["shop"] != "y").cat.remove_unused_categories())
    for name in ("histogram", "lightgbm"):
        model = MODELS[name][0].fit(known, y)
        new, target = table(4)
        found = rl.model_reliance(model, new, target, features=["shop"])
        called = rl.model_reliance(model, new, target, features=["shop"], route="plain")
        assert found.routes == ("trees",)
        np.testing.assert_allclose(found.values, called.values, rtol=1e-10)
        np.testing.assert_allclose(found.std_error, called.std_error, rtol=1e-10)


def test_categories_of_polars():
    frame, y = table(5, 200)
    kept = pl.DataFrame({"price": frame["price"].to_numpy(), "shop": frame["shop"].astype(object).fillna("v").tolist()})
    kept = kept.with_columns(pl.col("shop").cast(pl.Categorical))
    model = MODELS["histogram"][0].fit(kept, y)
    found, called = (rl.model_reliance(model, kept, y, route=route) for route in ("auto", "plain"))
    assert set(found.routes) == {"trees"}
    np.testing.assert_allclose(found.values, called.values, rtol=1e-10)


def test_labels_and_probabilities_share_the_trees():
    frame, y = table(6, 200)
    model = sk.HistGradientBoostingClassifier(max_iter=5).fit(frame, y > 1)
    found = rl.model_reliance(model, frame, y > 1, loss=["log_loss", "zero_one"], features=["shop", "price"])
    for result in found.values():
        assert set(result.routes) == {"trees"}


def test_many_levels_fall_into_few_cells():
    """Levels that no split tells apart are one donor."""
    rng = np.random.default_rng(7)
    level = rng.integers(0, 40, 400)
    frame = pd.DataFrame({"level": pd.Categorical(level), "x": rng.normal(size=400)})
    y = (level % 2) + 0.0
    model = lightgbm.LGBMRegressor(**{**LIGHT, "n_estimators": 1, "num_leaves": 3}).fit(frame, y)
    found = rl.model_reliance(model, frame, y, features=["level"])
    assert found.evaluations[0] <= 3 * 400
    called = rl.model_reliance(model, frame, y, features=["level"], route="distinct")
    np.testing.assert_allclose(found.values, called.values, rtol=1e-10)


def test_columns_that_are_not_understood_call_the_model():
    frame, y = table(8, 100)
    model = sk.HistGradientBoostingRegressor(max_iter=3).fit(frame, y)
    dates = frame.assign(rooms=pd.date_range("2020-01-01", periods=len(frame)))
    assert tree_readers.read(model, "predict", tables.read(frame, "X")) is not None
    assert tree_readers.read(model, "predict", tables.read(dates, "X")) is None
