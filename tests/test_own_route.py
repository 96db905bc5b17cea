"""A route of one's own, as the page on adding parts shows it: chosen where it applies, left where it does not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from reliance import exact

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
rng = np.random.default_rng(3)
X = rng.normal(size=(12, 3))
X[:, 2] = np.round(X[:, 2])
y = X.prod(axis=1) + rng.normal(size=12)


@pytest.fixture(scope="module")
def page():
    """What the code of the page defines."""
    section = PAGE.read_text(encoding="utf-8").split("\n## A route\n")[1].split("\n## ")[0]
    found: dict[str, object] = {"__name__": "page"}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], found)
    return found


@pytest.fixture
def listed(monkeypatch):
    def insert(route):
        monkeypatch.setattr("reliance.exact.routes.ROUTES", [route, *exact.ROUTES])

    return insert


def switched(column, model):
    """Literally: the mean loss over all pairs of rows, over the base risk."""
    total = 0.0
    for i in range(len(X)):
        for k in range(len(X)):
            if i != k:
                row = X[i].copy()
                row[column] = X[k, column]
                total += (y[i] - float(model(row[None])[0])) ** 2
    return total / (len(X) * (len(X) - 1)) / np.mean((y - model(X)) ** 2)


def test_it_is_taken_where_it_applies(page, listed):
    listed(page["ProductRoute"]())
    model = page["Product"]()
    found = rl.model_reliance(model, X, y)
    assert found.routes == ("product",) * 3
    assert found.evaluations.tolist() == [0, 0, 0]
    np.testing.assert_allclose(found.values, [switched(j, model) for j in range(3)], rtol=1e-10)
    plain = rl.model_reliance(model, X, y, route="plain")
    np.testing.assert_allclose(found.interval(), plain.interval(), rtol=1e-8)


def test_features_that_it_does_not_take_go_to_the_next(page, listed):
    listed(page["ProductRoute"]())
    found = rl.model_reliance(page["Product"](), X, y, features=[0, 2, (0, 1)])
    assert found.routes == ("product", "product", "plain")
    other = rl.model_reliance(page["Product"](), X, y, loss="absolute_error")
    assert other.routes == ("plain", "plain", "distinct")


def test_forced_it_says_why_not(page, listed):
    listed(page["ProductRoute"]())
    with pytest.raises(ValueError, match="route='product' needs a Product of columns, and no weights: pass route="):
        rl.model_reliance(lambda X: X[:, 0], X, y, route="product")
    with pytest.raises(ValueError, match=r"route='product': 'x0\+x1' is a group of columns: pass route='auto'"):
        rl.model_reliance(page["Product"](), X, y, features=[(0, 1)], route="product")
    with pytest.raises(ValueError, match="route='product' is for all pairs, of losses"):
        rl.model_reliance(page["Product"](), X, y, pairs=5, rng=0, route="product")


def test_other_questions_do_not_ask_it(page, listed):
    listed(page["ProductRoute"]())
    model = page["Product"]()
    assert rl.feature_impact(model, X).routes == ("plain",) * 3
    chosen = rl.local_importance(model, X, y, rows=[4])
    np.testing.assert_allclose(chosen.values, rl.local_importance(model, X, y).values[[4]], rtol=1e-10)


def test_a_model_that_predicts_something_else_is_called(page, listed):
    class Off(page["Product"]):
        def __call__(self, X):
            return 2.0 * super().__call__(X)

    listed(page["ProductRoute"]())
    with pytest.warns(UserWarning, match="route='product': model .*Off does not predict what the product"):
        found = rl.model_reliance(Off(), X, y)
    assert found.routes == ("plain", "plain", "distinct")
    np.testing.assert_allclose(found.values, [switched(j, Off()) for j in range(3)], rtol=1e-10)
    with pytest.raises(ValueError, match=r"route='product': model .*Off does not predict"):
        rl.model_reliance(Off(), X, y, route="product")


def test_given_up_in_the_middle_all_its_features_go_to_the_next(page, listed):
    offer = page["ProductOffer"]

    class Halting(offer):
        def jobs(self, features):
            class Late:
                route = "product"

                def __init__(self):
                    self.features = features[1:]

                def evaluations(self, feature):
                    return 7

                def run(self, evaluation):
                    evaluation.advance(7)
                    raise exact.Disagreement

            return [*super().jobs(features[:1]), Late()]

    class Route(page["ProductRoute"]):
        def pairs(self, question):
            found = super().pairs(question)
            return found if isinstance(found, str) else lambda: Halting(question)

    listed(Route())
    seen = []
    with pytest.warns(UserWarning, match="route='product': model .*Product does not predict"):
        found = rl.model_reliance(page["Product"](), X, y, progress=lambda done, total: seen.append((done, total)))
    assert found.routes == ("plain", "plain", "distinct")
    np.testing.assert_allclose(found.values, [switched(j, page["Product"]()) for j in range(3)], rtol=1e-10)
    assert seen[-1][0] == seen[-1][1] == 7 + int(found.evaluations.sum())


def test_the_cheaper_of_two_is_taken(page, listed):
    """Whatever their order: by how many rows the model is called with."""

    class Dear(page["ProductOffer"]):
        def cost(self, feature):
            return 1e9

    class Route(page["ProductRoute"]):
        name = "dear"

        def pairs(self, question):
            found = super().pairs(question)
            return found if isinstance(found, str) else lambda: Dear(question)

    listed(Route())
    assert rl.model_reliance(page["Product"](), X, y).routes == ("plain", "plain", "distinct")
    assert rl.model_reliance(page["Product"](), X, y, route="dear").evaluations.tolist() == [0, 0, 0]
