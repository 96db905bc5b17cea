"""Tables of numbers, categories and columns of two values: relative and conditional importance without options."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("sklearn")
N = 1200


def rows(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """``kind`` follows from ``group``; ``age`` is shifted by it; ``flag`` has nothing to do with anything."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["north", "south", "west"], size=N)
    table = pd.DataFrame(
        {
            "age": 2.0 * (group == "west") + rng.normal(size=N),
            "group": group,
            "kind": pd.Categorical(np.where(group == "west", "coast", "inland")),
            "flag": rng.uniform(size=N) < 0.4,
        }
    )
    return table, rng.normal(size=N)


def model(table) -> np.ndarray:
    columns = {name: np.asarray(table[name].to_list()) for name in ("age", "kind", "flag")}
    return columns["age"] + 3.0 * (columns["kind"] == "coast") + 2.0 * columns["flag"]


@pytest.mark.parametrize("library", [lambda table: table, pl.from_pandas], ids=["pandas", "polars"])
def test_each_feature_has_a_sampler_that_fits_it(library) -> None:
    table, noise = rows()
    y = model(table) + noise
    result = rl.relative_importance(model, library(table), y, given="rest", rng=0)
    assert result.routes == ("gaussian", "leaves", "leaves", "leaves")
    # E (x~ - x)^2 = 2 Var(x | rest) times the squared coefficient.
    np.testing.assert_allclose(result.values[[0, 1, 3]], [2.0, 0.0, 2.0 * 4.0 * 0.4 * 0.6], rtol=0.2)
    # A tree splits on age, too, before it has told all groups apart: most of what follows from the rest is gone.
    assert result.values[2] < 0.2 * 2.0 * 9.0 * np.var(table["kind"] == "coast")


def test_a_category_that_is_given() -> None:
    table, noise = rows(1)
    y = model(table) + noise
    sets = {"none": [], "group": ["group"]}
    result = rl.relative_importance(model, table, y, given=sets, features=["age", "kind"], rng=0)
    kind = np.asarray(table["kind"] == "coast")
    marginal = 2.0 * np.var(table["age"], ddof=1), 2.0 * 9.0 * np.var(kind, ddof=1)
    np.testing.assert_allclose(result["none"].values, marginal, rtol=0.15)
    np.testing.assert_allclose(result["group"].values, [2.0, 0.0], rtol=0.15, atol=1e-12)


def test_conditional_model_reliance() -> None:
    table, noise = rows(2)
    part = table.iloc[:200]
    y = (model(table) + noise)[:200]
    result = rl.conditional_model_reliance(model, part, y, pairs=8, compare="difference", rng=0)
    assert result.routes == ("scrambler", "leaves", "leaves", "scrambler")
    assert result.values[1] == 0.0
    assert result.values[0] == pytest.approx(2.0, rel=0.35)


def test_a_column_of_two_values_in_an_array() -> None:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=N), rng.uniform(size=N) < 0.3]).astype(np.float64)
    result = rl.relative_importance(lambda x: x[:, 0] + x[:, 1], X, X[:, 0] + X[:, 1], given="rest", rng=0)
    assert result.routes == ("gaussian", "leaves")
    assert result.values[1] == pytest.approx(2.0 * 0.3 * 0.7, rel=0.15)


@pytest.mark.parametrize("sampler", ["gaussian", "residual"])
def test_what_makes_numbers_of_categories_is_refused_by_name(sampler) -> None:
    table, y = rows()
    for name, words in (("group", "holds text.*pass 'leaves' or 'knn'"), ("kind", "only 2 values.*'leaves' or 'knn'")):
        given = rl.Given(["age"], sampler=sampler)
        with pytest.raises((TypeError, ValueError), match=f"column '{name}' of X .*{words}"):
            rl.relative_importance(model, table, y, features=[name], given=given, rng=0)


def test_names_of_people_are_too_many_to_be_given() -> None:
    table, y = rows()
    table["name"] = [f"person {k % 60}" for k in range(N)]
    with pytest.raises(TypeError, match=r"column 'name' .*more than 50 different texts"):
        rl.relative_importance(model, table, y, features=["age"], given=["name"], rng=0)
    assert rl.permutation_importance(model, table, y, draws=3, rng=0).names[-1] == "name"


def test_codes_are_those_of_the_evaluated_rows() -> None:
    table, y = rows()
    with pytest.raises(TypeError, match=r"fit_on: column 'group' of X"):
        rl.relative_importance(model, table, y, given=rl.Given(["group"], fit_on=(table, None)), features=["age"])
