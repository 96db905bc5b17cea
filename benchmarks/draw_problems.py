"""Models on columns of many kinds, as tables of all n^2 losses: what `draws.py` measures draws on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reliance._core import streams
from reliance.plans import orderings

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import SEED

NAMES = ("linear", "logistic", "MLP", "boosted", "forest")


@dataclass(frozen=True)
class Case:
    """A model's losses (n, n), row i with the feature of row k, and the values (n, g) that donors are sorted by."""

    name: str
    values: np.ndarray
    losses: np.ndarray
    numeric: bool = True

    @property
    def changes(self) -> np.ndarray:
        return self.losses - np.diag(self.losses)[:, None]

    @property
    def exact(self) -> float:
        """The mean change over all n (n - 1) pairs."""
        n = len(self.losses)
        return float(self.changes.sum() / (n * (n - 1)))

    def lookup(self) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
        """A model whose prediction is the loss, from the table, and its rows: a row's number and its donor's place."""
        order = orderings.by_values(self.values, streams.tie_order(0, len(self.values)))
        X = np.column_stack([np.arange(len(order)), np.argsort(order)]).astype(np.float64)

        def predict(batch: np.ndarray) -> np.ndarray:
            return self.losses[batch[:, 0].astype(int), order[batch[:, 1].astype(int)]]

        return predict, X


def rows(n: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian, a uniform, a heavy-tailed and a categorical column, and two Gaussian ones that interact."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[:, 1], X[:, 2], X[:, 3] = 4 * rng.random(n), np.exp(X[:, 2]), rng.integers(0, 6, size=n)
    level = np.array([0.0, 2.0, -1.0, 1.0, 0.5, -2.0])[X[:, 3].astype(int)]
    y = X[:, 0] * (1 + np.sin(2 * X[:, 1])) + 0.5 * X[:, 2] + level + X[:, 4] * X[:, 5] + rng.normal(size=n)
    return X, y


def table(predict: Callable[[np.ndarray], np.ndarray], X: np.ndarray, columns: list[int]) -> np.ndarray:
    """``(n, n)``: the prediction of row i with these columns of row k."""
    n = len(X)
    found = np.empty((n, n))
    for start in range(0, n, 50):
        block = np.repeat(X[start : start + 50], n, axis=0)
        block[:, columns] = np.tile(X[:, columns], (len(block) // n, 1))
        found[start : start + 50] = predict(block).reshape(-1, n)
    return found


def models(X: np.ndarray, y: np.ndarray, names: Sequence[str] = NAMES) -> dict[str, tuple[Any, str]]:
    """Fitted models and their losses, by name."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(hidden_layer_sizes=(32, 32), max_iter=300, random_state=0)
    unfitted = {
        "linear": (LinearRegression(), "squared"),
        "logistic": (LogisticRegression(max_iter=1000), "log"),
        "MLP": (make_pipeline(StandardScaler(), network), "squared"),
        "boosted": (HistGradientBoostingRegressor(max_iter=60, random_state=0), "squared"),
        "forest": (RandomForestRegressor(n_estimators=30, min_samples_leaf=3, random_state=0), "squared"),
    }
    labels = {"squared": y, "log": y > np.median(y)}
    return {name: (unfitted[name][0].fit(X, labels[unfitted[name][1]]), unfitted[name][1]) for name in names}


COLUMNS = {"Gaussian": [0], "uniform": [1], "heavy-tailed": [2], "categorical": [3], "a pair": [4, 5]}


def cases(n: int, seed: int = SEED) -> list[Case]:
    """All models and columns, on rows that the models were not fitted on."""
    X, y = rows(1000 + n, seed)
    fitted, (X, own) = models(X[:1000], y[:1000]), (X[1000:], y[1000:])
    label = own > np.median(y[:1000])
    found = []
    for name, (model, loss) in fitted.items():
        for kind, columns in COLUMNS.items():
            if loss == "log":
                p = np.clip(table(lambda Z, m=model: m.predict_proba(Z)[:, 1], X, columns), 1e-12, 1 - 1e-12)
                losses = -np.where(label[:, None], np.log(p), np.log1p(-p))
            else:
                losses = (table(model.predict, X, columns) - own[:, None]) ** 2
            if np.ptp(losses, axis=1).max() > 0.0:
                numeric = kind not in ("categorical", "a pair")
                found.append(Case(f"{name}, {kind}", X[:, columns], losses, numeric))
    return found
