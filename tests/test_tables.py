"""Tables of pandas, polars and pyarrow: names and types kept, and the same numbers as from arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oracles
import reliance as rl
from reliance.data import tables

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N = 40


def mixed() -> Any:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": rng.normal(size=N),
            "children": rng.integers(0, 4, size=N),
            "member": rng.integers(0, 2, size=N).astype(bool),
            "city": rng.choice(["Rome", "Oslo", "Lima"], size=N),
            "size": pd.Categorical(rng.choice(["S", "M"], size=N), categories=["S", "M", "L"], ordered=True),
            "since": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 9, size=N), unit="D"),
            "maybe": pd.array([None if k % 5 == 0 else k % 3 for k in range(N)], dtype="Int64"),
        },
        index=np.arange(N) + 100,
    )


KINDS: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def schema(table: Any) -> Any:
    return table.dtypes.to_dict() if hasattr(table, "iloc") else table.schema


def rows_of(table: Any, rows: np.ndarray) -> Any:
    """The rows of a table as its own library takes them."""
    if hasattr(table, "iloc"):
        return table.iloc[rows].reset_index(drop=True)
    return table[rows.tolist()] if isinstance(table, pl.DataFrame) else table.take(pa.array(rows))


def same(one: Any, other: Any) -> bool:
    return bool(one.equals(other))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return KINDS[request.param]


def number(value: Any) -> float:
    """Of anything that a column holds."""
    if value is None or value is pd.NA:
        return 7.5
    if isinstance(value, str):
        return float(len(value) + ord(value[0]) / 100)
    return float(value.day) if hasattr(value, "day") else float(value)


def columns(table: Any) -> dict[str, list[Any]]:
    if hasattr(table, "iloc"):
        return {name: table[name].tolist() for name in table.columns}
    return table.to_dict(as_series=False) if isinstance(table, pl.DataFrame) else table.to_pydict()


def score(table: Any) -> np.ndarray:
    """A model that reads every column in its own type."""
    read = columns(table)
    return np.asarray(
        [sum((j + 1) * number(v[i]) for j, v in enumerate(read.values())) for i in range(len(read["age"]))]
    )


def test_what_the_model_gets_is_the_table_itself(kind: Callable[[Any], Any]) -> None:
    given = kind(mixed())
    rows = np.array([5, 0, 0, 39, 7])
    table = tables.read(given, "X")
    back = table.decode(table.array[rows])
    assert type(back) is type(given)
    assert schema(back) == schema(given)
    assert same(back, rows_of(given, rows))
    assert table.names == tuple(mixed().columns)


def test_reliance_equals_a_literal_loop_over_tables(kind: Callable[[Any], Any]) -> None:
    given, y = kind(mixed()), np.arange(N) / 10.0
    result = rl.model_reliance(score, given, y, compare="difference")
    read = columns(given)
    names = list(read)
    base = score(given)
    for j, name in enumerate(names):
        values = np.asarray([number(v) for v in read[name]])
        switched = base[:, None] + (j + 1) * (values[None, :] - values[:, None])
        losses = (y[:, None] - switched) ** 2
        off = ~np.eye(N, dtype=bool)
        np.testing.assert_allclose(result.values[j], losses[off].mean() - ((y - base) ** 2).mean(), rtol=1e-9)
    assert result.names == tuple(names)
    # A column of few values costs n evaluations for each of them.
    assert result.routes[names.index("city")] == "distinct"
    assert result.evaluations[names.index("city")] == 3 * N


def test_names_choose_features_and_groups(kind: Callable[[Any], Any]) -> None:
    result = rl.permutation_importance(
        score, kind(mixed()), np.zeros(N), features=["city", ("age", "since")], draws=3, rng=0
    )
    assert result.names[0] == "city"
    assert "age" in result.names[1]
    assert result.values.shape == (2,)


def test_a_table_of_numbers_gives_what_its_array_gives(kind: Callable[[Any], Any]) -> None:
    frame = mixed()[["age", "children"]]
    X, y = frame.to_numpy(), np.linspace(0, 1, N)

    def on_table(table: Any) -> np.ndarray:
        read = columns(table)
        return np.asarray(read["age"]) * np.asarray(read["children"])

    for method in (rl.model_reliance, rl.permutation_importance, rl.ablation_importance):
        ours = method(on_table, kind(frame), y, rng=1)
        arrays = method(lambda X: X[:, 0] * X[:, 1], X, y, rng=1)
        np.testing.assert_allclose(ours.values, arrays.values, rtol=1e-12)


def test_estimators_are_called_as_they_were_fitted(kind: Callable[[Any], Any]) -> None:
    """With names if they were fitted with names: scikit-learn warns of anything else, and warnings are errors here."""
    from sklearn.linear_model import LinearRegression

    frame, y = mixed()[["age", "children"]], np.arange(N) / 7.0
    X = frame.to_numpy(dtype=float)
    plain = LinearRegression().fit(X, y)
    (donors, mask), squared = oracles.all_pairs(N), lambda y, f: (y - f) ** 2
    literal = [
        oracles.loss_table(lambda row: plain.predict(row[None])[0], squared, X, y, [j], donors, mask, None)
        for j in range(2)
    ]
    expected = [oracles.answer(table, "ratio").value for table in literal]
    for fitted_on in (kind(frame), X):
        model = LinearRegression().fit(fitted_on, y)
        for route in ("linear", "plain"):
            result = rl.model_reliance(model, kind(frame), y, route=route)
            np.testing.assert_allclose(result.values, expected, rtol=1e-9)


def test_trees_are_read_through_a_table(kind: Callable[[Any], Any]) -> None:
    from sklearn.ensemble import RandomForestRegressor

    frame, y = mixed()[["age", "children"]], mixed()["age"].to_numpy() ** 2
    model = RandomForestRegressor(5, random_state=0).fit(kind(frame), y)
    by_trees = rl.model_reliance(model, kind(frame), y)
    called = rl.model_reliance(model, kind(frame), y, route="plain")
    assert set(by_trees.routes) <= {"trees", "unused"}
    np.testing.assert_allclose(by_trees.values, called.values, rtol=1e-10)


def test_a_torch_module_takes_a_table_of_numbers() -> None:
    torch = pytest.importorskip("torch")
    frame = mixed()[["age", "children"]]
    net = torch.nn.Linear(2, 1)
    X = frame.to_numpy(dtype=np.float32)
    result = rl.permutation_importance(net, frame, pd.Series(X[:, 0]), draws=3, rng=0)
    arrays = rl.permutation_importance(net, X, X[:, 0], draws=3, rng=0)
    np.testing.assert_allclose(result.values, arrays.values, rtol=1e-5)
    assert result.names == ("age", "children")
    with pytest.raises(TypeError, match="takes arrays, but X: column 'city' holds text"):
        rl.permutation_importance(torch.nn.Linear(3, 1), mixed()[["age", "children", "city"]], X[:, 0])


def test_labels_and_weights_come_as_columns(kind: Callable[[Any], Any]) -> None:
    frame = mixed()[["age", "children"]]
    frame["y"], frame["w"] = np.arange(N) * 1.0, np.arange(N) + 1.0
    table = kind(frame)
    take = table.column if isinstance(table, pa.Table) else table.__getitem__
    X = frame[["age", "children"]].to_numpy()
    ours = rl.permutation_importance(lambda X: X[:, 0], X, take("y"), weights=take("w"), draws=3, rng=0)
    arrays = rl.permutation_importance(
        lambda X: X[:, 0], X, frame["y"].to_numpy(), weights=frame["w"].to_numpy(), draws=3, rng=0
    )
    np.testing.assert_array_equal(ours.values, arrays.values)


def test_text_labels(kind: Callable[[Any], Any]) -> None:
    from sklearn.linear_model import LogisticRegression

    frame = mixed()[["age", "children"]]
    y = pd.Series(np.where(frame["age"] > 0, "old", "young"))
    model = LogisticRegression().fit(kind(frame), y)
    result = rl.permutation_importance(model, kind(frame), y, loss="log_loss", draws=3, rng=0)
    assert result.values[0] > result.values[1]


def test_context_and_training_rows_come_as_tables(kind: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    context = pd.DataFrame({"cause": frame["a"] + rng.normal(size=60)})
    y = frame["a"].to_numpy()
    model = rl.models.Linear(np.array([1.0, 1.0]))
    ours = rl.relative_importance(
        model,
        kind(frame),
        y,
        given=rl.Given(["cause"], context=kind(context), fit_on=(kind(frame), kind(context))),
        rng=0,
    )
    X, C = frame.to_numpy(), {"cause": context["cause"].to_numpy()}
    arrays = rl.relative_importance(
        model, X, y, given=rl.Given(["cause"], context=C, fit_on=(X, C)), rng=0, names=["a", "b"]
    )
    np.testing.assert_allclose(ours.values, arrays.values, rtol=1e-12)
    assert ours.names == ("a", "b")
    by_name = rl.relative_importance(model, kind(frame), y, given=["b"], rng=0)
    np.testing.assert_allclose(by_name.values, rl.relative_importance(model, X, y, given=[1], rng=0).values, rtol=1e-12)


def test_numbers_that_float64_does_not_have_are_kept(kind: Callable[[Any], Any]) -> None:
    large = 2**53 + 1
    frame = pd.DataFrame({"id": np.array([large, 1, 2], dtype=np.int64), "x": [0.5, 1.5, 2.5]})
    table = tables.read(kind(frame), "X")
    assert table.coded == (0,)
    back = columns(table.decode(table.array))
    assert [int(v) for v in back["id"]] == [large, 1, 2]


def test_column_names_that_are_no_text() -> None:
    frame = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=[2020, 2021])
    table = tables.read(frame, "X")
    assert table.names == ("2020", "2021")
    assert list(table.decode(table.array).columns) == [2020, 2021]


def test_bad_tables(kind: Callable[[Any], Any]) -> None:
    y = np.zeros(N)
    given = rl.Given(["age"], sampler="gaussian")
    with pytest.raises(TypeError, match=r"column 'city' of X holds text.*Gaussian would make numbers"):
        rl.relative_importance(score, kind(mixed()), y, features=["city"], given=given)
    with pytest.raises(TypeError, match=r"context: column 'city' holds text"):
        rl.relative_importance(
            score, kind(mixed()), y, features=["age"], given=rl.Given(["city2"], context=kind(mixed()[["city"]]))
        )
    gaps = mixed()[["age", "maybe"]]
    with pytest.raises(ValueError, match=r"y holds 8 missing values: drop those rows"):
        rl.permutation_importance(score, kind(gaps), gaps["maybe"])


def test_lazy_tables_and_equal_names_are_errors() -> None:
    with pytest.raises(TypeError, match=r"X: column '.*' holds text, categories, dates or missing entries"):
        rl.permutation_importance(score, pl.from_pandas(mixed()).lazy(), np.zeros(N))
    twice = pd.DataFrame(np.zeros((3, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="rename the columns"):
        rl.permutation_importance(score, twice, np.zeros(3))
    with pytest.raises(TypeError, match="which cannot be compared"):
        rl.permutation_importance(score, pd.DataFrame({"a": [[1], [2], [3]]}), np.zeros(3))


def test_a_model_of_arrays_hears_what_it_was_given() -> None:
    with pytest.raises(Exception, match="") as caught:  # whatever pandas says to this index
        rl.permutation_importance(lambda X: X[:, 0], mixed()[["age"]], np.zeros(N))
    assert "was called with a pandas DataFrame" in caught.value.__notes__[0]
