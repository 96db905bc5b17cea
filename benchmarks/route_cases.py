"""The kinds of models that `routes.py` measures: one small function each, which fits a model and makes its rows.

A kind is a function of the number of rows under `@kind(name, loss=...)`: it returns a fitted `Case`. Add yours to the
section that it belongs to; pipelines, kernel machines and models without a route are in `route_cases_more.py`. Models
are fitted on at most `TRAINED` rows, so that only the measurement grows with n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

SEED, TRAINED = 0, 5_000


class Case(NamedTuple):
    """A fitted model and the rows that it is measured on."""

    model: Any
    X: Any
    y: Any


class Kind(NamedTuple):
    """How a kind of model is measured.

    ``goal``: at most so many scikit-learn repeats. ``options``: further options of `rl.model_reliance`, such as a route
    that is never taken by itself.
    """

    make: Callable[[int], Case]
    loss: str
    goal: float
    options: dict[str, Any]


KINDS: dict[str, Kind] = {}


def kind(name: str, loss: str = "squared_error", goal: float = 1.0, **options: Any):
    """Enter a function of n under a name of the table."""

    def entered(make: Callable[[int], Case]) -> Callable[[int], Case]:
        # This folder is a package, too: a file that is imported under both of its names enters its kinds twice.
        assert name not in KINDS or KINDS[name].make.__qualname__ == make.__qualname__, name
        KINDS[name] = Kind(make, loss, goal, options)
        return make

    return entered


# ---------------------------------------------------------------------------------------------------------------------
# Data, for all kinds the same


def numbers(n: int, p: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns and labels with a linear part, a curve and an interaction; the first rows train."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(max(n, TRAINED), p))
    smooth = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.3 * X[:, 4:].sum(axis=1)
    return X, smooth + rng.normal(size=len(X))


def fitted(model: Any, X: Any, y: Any, n: int) -> Case:
    """Fitted on the first rows, measured on the first n."""
    model.fit(X[:TRAINED], y[:TRAINED])
    return Case(model, X[:n], y[:n])


def on_numbers(model: Any, n: int) -> Case:
    return fitted(model, *numbers(n), n)


def on_first(model: Any, n: int) -> Case:
    """Fitted on fewer rows: models whose training is cubic in them."""
    X, y = numbers(n)
    return Case(model.fit(X[: TRAINED // 5], y[: TRAINED // 5]), X[:n], y[:n])


def on_counts(model: Any, n: int) -> Case:
    X, y = numbers(n)
    rates = np.exp(np.clip(0.3 * y, -3.0, 3.0))
    return fitted(model, X, np.random.default_rng(SEED + 1).poisson(rates), n)


def on_labels(model: Any, n: int) -> Case:
    X, y = numbers(n)
    return fitted(model, X, (y > 0).astype(int), n)


def on_classes(model: Any, n: int) -> Case:
    X, y = numbers(n)
    return fitted(model, X, np.digitize(y, [-1.0, 1.0]), n)


def mixed_table(n: int) -> tuple[Any, np.ndarray]:
    """A pandas table of numbers, some of them missing, a text and a category of pandas."""
    import pandas as pd

    X, y = numbers(n, 6)
    rng = np.random.default_rng(SEED + 2)
    town = rng.choice(["north", "south", "east", "west"], len(X))
    size = rng.choice(["small", "medium", "large"], len(X))
    gaps = X.copy()
    gaps[rng.random(len(X)) < 0.05, 1] = np.nan
    table = pd.DataFrame(gaps, columns=[f"x{j}" for j in range(6)])
    table["town"] = town
    table["size"] = pd.Categorical(size, ["small", "medium", "large"])
    return table, y + (town == "north") - 0.5 * (size == "large")


# ---------------------------------------------------------------------------------------------------------------------
# Linear models


@kind("Ridge")
def ridge(n: int) -> Case:
    from sklearn.linear_model import Ridge

    return on_numbers(Ridge(), n)


@kind("Lasso")
def lasso(n: int) -> Case:
    from sklearn.linear_model import Lasso

    return on_numbers(Lasso(0.05), n)


@kind("HuberRegressor, absolute error", "absolute_error")
def huber(n: int) -> Case:
    from sklearn.linear_model import HuberRegressor

    return on_numbers(HuberRegressor(), n)


@kind("Ridge, R2", "r2")
def ridge_r2(n: int) -> Case:
    return ridge(n)


# ---------------------------------------------------------------------------------------------------------------------
# Additive models with a link, smooth networks


@kind("LogisticRegression, log loss", "log_loss")
def logistic(n: int) -> Case:
    from sklearn.linear_model import LogisticRegression

    return on_labels(LogisticRegression(), n)


@kind("PoissonRegressor, deviance", "poisson_deviance")
def poisson(n: int) -> Case:
    from sklearn.linear_model import PoissonRegressor

    return on_counts(PoissonRegressor(), n)


@kind("TweedieRegressor, deviance", "poisson_deviance")
def tweedie(n: int) -> Case:
    from sklearn.linear_model import TweedieRegressor

    return on_counts(TweedieRegressor(power=1.5, link="log"), n)


@kind("LogisticRegression of 3 classes, log loss", "log_loss")
def multinomial(n: int) -> Case:
    from sklearn.linear_model import LogisticRegression

    return on_classes(LogisticRegression(), n)


@kind("LogisticRegression, accuracy", "accuracy")
def logistic_accuracy(n: int) -> Case:
    return logistic(n)


@kind("LogisticRegression, AUC", "auc")
def logistic_auc(n: int) -> Case:
    return logistic(n)


@kind("ExplainableBoostingRegressor, main effects")
def explainable(n: int) -> Case:
    from interpret.glassbox import ExplainableBoostingRegressor

    return on_numbers(ExplainableBoostingRegressor(interactions=0, n_jobs=1), n)


@kind("LinearGAM")
def gam(n: int) -> Case:
    from pygam import LinearGAM

    return on_numbers(LinearGAM(), n)


@kind("MLPRegressor, tanh, nodes", goal=np.inf, route="nodes")
def smooth_network(n: int) -> Case:
    from sklearn.neural_network import MLPRegressor

    model = MLPRegressor(hidden_layer_sizes=(32,), activation="tanh", max_iter=50, random_state=0)
    return on_numbers(model, n)


# ---------------------------------------------------------------------------------------------------------------------
# Trees


@kind("HistGradientBoostingRegressor")
def hist(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return on_numbers(HistGradientBoostingRegressor(random_state=0), n)


@kind("HistGradientBoostingClassifier, log loss", "log_loss")
def hist_labels(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return on_labels(HistGradientBoostingClassifier(random_state=0), n)


@kind("GradientBoostingRegressor")
def gradient_boosting(n: int) -> Case:
    from sklearn.ensemble import GradientBoostingRegressor

    return on_numbers(GradientBoostingRegressor(random_state=0), n)


@kind("LGBMRegressor")
def lightgbm(n: int) -> Case:
    from lightgbm import LGBMRegressor

    return on_numbers(LGBMRegressor(verbose=-1), n)


@kind("XGBRegressor")
def xgboost(n: int) -> Case:
    from xgboost import XGBRegressor

    return on_numbers(XGBRegressor(), n)


@kind("XGBRegressor, DART")
def dart(n: int) -> Case:
    from xgboost import XGBRegressor

    return on_numbers(XGBRegressor(booster="dart", rate_drop=0.1), n)


@kind("VotingRegressor of boosting and a forest", goal=3.0)
def votes(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, VotingRegressor

    forest = RandomForestRegressor(20, min_samples_leaf=20, random_state=0)
    return on_numbers(VotingRegressor([("a", HistGradientBoostingRegressor(random_state=0)), ("b", forest)]), n)


@kind("BaggingRegressor of trees", goal=3.0)
def bagging(n: int) -> Case:
    from sklearn.ensemble import BaggingRegressor

    return on_numbers(BaggingRegressor(n_estimators=20, random_state=0), n)


@kind("HistGradientBoostingRegressor, absolute error", "absolute_error")
def hist_absolute(n: int) -> Case:
    return hist(n)


@kind("HistGradientBoostingClassifier, AUC", "auc")
def hist_auc(n: int) -> Case:
    return hist_labels(n)


@kind("CatBoostRegressor, 300 trees")
def catboost(n: int) -> Case:
    from catboost import CatBoostRegressor

    return on_numbers(CatBoostRegressor(iterations=300, verbose=0, allow_writing_files=False, thread_count=1), n)


def on_categories(model: Any, n: int) -> Case:
    """A table whose texts are categories of pandas."""
    table, y = mixed_table(n)
    return fitted(model, table.assign(town=table["town"].astype("category")), y, n)


@kind("HistGradientBoostingRegressor, pandas categories")
def hist_categories(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return on_categories(HistGradientBoostingRegressor(random_state=0), n)


@kind("LGBMRegressor, pandas categories")
def lightgbm_categories(n: int) -> Case:
    from lightgbm import LGBMRegressor

    return on_categories(LGBMRegressor(verbose=-1), n)


@kind("XGBRegressor, pandas categories")
def xgboost_categories(n: int) -> Case:
    from xgboost import XGBRegressor

    return on_categories(XGBRegressor(enable_categorical=True), n)


@kind("RandomForestRegressor", goal=3.0)
def forest(n: int) -> Case:
    from sklearn.ensemble import RandomForestRegressor

    return on_numbers(RandomForestRegressor(random_state=0), n)


@kind("RandomForestClassifier, log loss", "log_loss", goal=3.0)
def forest_labels(n: int) -> Case:
    from sklearn.ensemble import RandomForestClassifier

    return on_labels(RandomForestClassifier(min_samples_leaf=5, random_state=0), n)


@kind("DecisionTreeRegressor")
def tree(n: int) -> Case:
    from sklearn.tree import DecisionTreeRegressor

    return on_numbers(DecisionTreeRegressor(max_leaf_nodes=50, random_state=0), n)


@kind("AdaBoostRegressor", goal=3.0)
def ada_boost(n: int) -> Case:
    from sklearn.ensemble import AdaBoostRegressor

    return on_numbers(AdaBoostRegressor(n_estimators=10, random_state=0), n)
