"""Draws of linear models by moved predictions are those of the model that is called."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.inspection import permutation_importance as of_sklearn
from sklearn.linear_model import LinearRegression, Ridge, RidgeClassifier

import reliance as rl
import reliance.sklearn
from reliance.exact import scores

N = 150
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 4))
X[:, 1] = 1e6 + X[:, 1].round(1)
X[:, 3] = 2.0
y = X[:, 0] + X[:, 1] - 1e6 + rng.normal(size=N)
WEIGHTS = rng.uniform(0.5, 2.0, N)
MODEL = LinearRegression().fit(X, y)


@pytest.fixture(autouse=True)
def _of_few_rows(monkeypatch):
    monkeypatch.setattr(scores, "FEWEST_ROWS", 1)


@pytest.mark.filterwarnings("ignore:constant in X:UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"draws": rl.Draws(6, design="shifts"), "weights": WEIGHTS, "keep": "rows"},
        {"draws": 5, "features": [(0, 1), 2], "compare": "ratio"},
        {"draws": 2, "loss": ["absolute_error", "squared_error"], "run": rl.Run(block=16)},
        {"draws": 4, "loss": "r2"},
        {"draws": 4, "clusters": np.arange(N) // 5, "run": rl.Run(workers=2)},
    ],
    ids=["ranks", "shifts", "groups", "losses", "metric", "clusters"],
)
def test_moved_predictions_are_the_model_s(options):
    found = rl.permutation_importance(MODEL, X, y, rng=3, **options)
    called = rl.permutation_importance(lambda rows: MODEL.predict(rows), X, y, rng=3, **options)
    several = isinstance(options.get("loss"), list)
    for own, other in zip(*(r.values() if several else [r] for r in (found, called)), strict=True):
        assert set(own.routes) == {"scores"}
        assert set(other.routes) == {"plain"}
        assert own.evaluations.tolist() == other.evaluations.tolist()
        for name in ("values", "std_error", "draws", "row_values"):
            a, b = getattr(own, name), getattr(other, name)
            if b is not None:  # of a constant column nothing is known unless its coefficient is
                np.testing.assert_allclose(a, np.nan_to_num(b), rtol=1e-7, atol=1e-9, err_msg=name)


def test_scikit_learns_permutations():
    options = {"n_repeats": 3, "random_state": 0, "scoring": "neg_mean_squared_error"}
    found = reliance.sklearn.permutation_importance(MODEL, X, y, **options)
    known = of_sklearn(MODEL, X, y, **options)
    np.testing.assert_allclose(found.importances, known.importances, rtol=1e-9, atol=1e-9)


def test_what_is_no_linear_regression_is_called():
    for model, labels in ((RidgeClassifier().fit(X, y > 0), y > 0), (_Clipped().fit(X, y), y)):
        found = rl.permutation_importance(model, X[:, :4], labels, draws=2, features=[0])
        assert found.routes == ("plain",)
    with pytest.raises(ValueError, match="route='scores' is for draws"):
        rl.model_reliance(MODEL, X, y, route="scores")


class _Clipped(Ridge):
    def predict(self, rows):
        return np.clip(super().predict(rows), -1.0, 1.0)
