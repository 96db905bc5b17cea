"""Inputs as users have them: read as what they are, or refused in words that say what to do."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance import tables

pd = pytest.importorskip("pandas")

N = 10
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = X[:, 0] - X[:, 1]

# Names that code asks objects for. A column of a table, or a label of a series, answers to them.
PROBED = (
    "type",
    "device",
    "dtype",
    "shape",
    "ndim",
    "columns",
    "index",
    "name",
    "iloc",
    "predict",
    "fit",
    "values",
    "data",
    "array",
    "__array_namespace__",
    "split",
    "compute",
    "collect",
)


def measure(X, y=Y, **options):
    return rl.permutation_importance(lambda T: 2.0 * np.asarray(T)[:, 0], X, y, draws=3, rng=0, **options)


# ---------------------------------------------------------------------------------------------------------------------
# Names that look like attributes


@pytest.mark.parametrize("name", PROBED)
def test_a_column_of_any_name_leaves_a_table_a_table(name):
    frame = pd.DataFrame({name: X[:, 0], "other": X[:, 1]})
    seen = []

    def model(table):
        seen.append(type(table))
        return 2.0 * table[name].to_numpy()

    assert tables.is_table(frame)
    found = rl.permutation_importance(model, frame, Y, draws=3, rng=0)
    assert found.names == (name, "other")
    assert set(seen) == {pd.DataFrame}
    np.testing.assert_array_equal(found.values, measure(X).values)
    pair = rl.algorithm_reliance(lambda X, y: lambda X: X.iloc[:, 0].to_numpy(), frame, Y, cv=2, rng=0)
    assert pair.names == (name, "other")


@pytest.mark.parametrize("name", PROBED)
def test_labels_and_weights_with_an_index_of_any_names(name):
    index = [name, *map(str, range(N - 1))]
    y, w = pd.Series(Y, index=index), pd.Series(np.arange(1.0, N + 1), index=index)
    assert tables.is_column(y)
    expected = measure(X, weights=np.arange(1.0, N + 1))
    np.testing.assert_array_equal(measure(X, y, weights=w).values, expected.values)


@pytest.mark.parametrize("name", PROBED)
def test_the_facade_reads_a_column_of_any_name(name):
    pytest.importorskip("sklearn")
    from sklearn.inspection import permutation_importance as theirs
    from sklearn.linear_model import LinearRegression

    from reliance.sklearn import permutation_importance as ours

    frame = pd.DataFrame({name: X[:, 0], "other": X[:, 1]})
    model = LinearRegression().fit(frame, Y)
    want, got = (f(model, frame, Y, n_repeats=3, random_state=0) for f in (theirs, ours))
    np.testing.assert_allclose(got.importances, want.importances, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(Y),
        pd.Index(Y),
        pd.RangeIndex(N),
        pd.Categorical(np.arange(N) % 3),
        pd.CategoricalIndex(np.arange(N) % 3),
        pd.array(np.arange(N), dtype="Int64"),
        pd.array(Y, dtype="Float64"),
    ],
    ids=lambda column: type(column).__name__,
)
def test_every_kind_of_pandas_column_is_one(column):
    assert tables.is_column(column)
    assert not tables.is_table(column)
    expected = measure(X, np.asarray(column, dtype=float))
    np.testing.assert_array_equal(measure(X, column).values, expected.values)
