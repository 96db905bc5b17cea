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


# ---------------------------------------------------------------------------------------------------------------------
# Rows in another order

FRAME = pd.DataFrame(X, columns=["a", "b"])
LABELS = pd.Series(Y)
WEIGHTS = pd.Series(np.arange(1.0, N + 1.0))


def fit(X, y):
    return lambda X: np.asarray(X)[:, 0]


def relative(context=None, fit_on=None, frame=FRAME):
    return rl.relative_importance(
        lambda T: T["a"].to_numpy(),
        frame,
        Y,
        features=["a"],
        given=["c"],
        context=context,
        fit_on=fit_on,
        draws=3,
        rng=0,
    )


CONTEXT = pd.DataFrame({"c": X[:, 0] + RNG.normal(size=N)})
ARRAYS = {"c": CONTEXT["c"].to_numpy()}
SHUFFLED = {
    "y": lambda m: measure(FRAME, m(LABELS)),
    "y as a table": lambda m: measure(FRAME, m(LABELS.to_frame())),
    "weights": lambda m: measure(FRAME, LABELS, weights=m(WEIGHTS)),
    "weights beside y": lambda m: measure(X, LABELS, weights=m(WEIGHTS)),
    "X": lambda m: measure(m(FRAME), LABELS),
    "all pairs": lambda m: rl.model_reliance(lambda T: T["a"].to_numpy(), FRAME, m(LABELS)),
    "context": lambda m: relative(m(CONTEXT)),
    "context as a mapping": lambda m: relative({"c": m(CONTEXT["c"])}),
    "fit_on": lambda m: relative(ARRAYS, (FRAME, m(CONTEXT))),
    "fit_on as a mapping": lambda m: relative(ARRAYS, (FRAME, {"c": m(CONTEXT["c"])})),
    "a refit's y": lambda m: rl.algorithm_reliance(fit, FRAME, m(LABELS), cv=2, rng=0),
    "a refit's weights": lambda m: rl.algorithm_reliance(fit, FRAME, LABELS, weights=m(WEIGHTS), cv=2, rng=0),
    "y_test": lambda m: rl.algorithm_reliance(fit, FRAME, LABELS, X_test=FRAME, y_test=m(LABELS)),
    "weights of a test set": lambda m: rl.algorithm_reliance(
        fit, FRAME, LABELS, X_test=FRAME, y_test=LABELS, weights=m(WEIGHTS)
    ),
    "cross-validation": lambda m: rl.cross_validated_importance(fit, FRAME, m(LABELS), cv=2, rng=0, draws=3),
    "null importance": lambda m: rl.null_importance(fit, FRAME, m(LABELS), rounds=2, rng=0, draws=3),
    "a class": lambda m: rl.model_class_reliance(rl.LinearClass(), FRAME, m(LABELS + 0.1 * WEIGHTS), epsilon=0.1),
    "the model's prediction": lambda m: rl.permutation_importance(lambda T: m(T["a"]), FRAME, Y, draws=3, rng=0),
}


def shuffled(x):
    return x.iloc[np.roll(np.arange(len(x)), 3)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("where", list(SHUFFLED))
def test_rows_of_tables_in_another_order_are_refused(where):
    with pytest.raises(
        ValueError, match=r"in another order, and rows are matched by position: pass .*\.loc\["
    ) as error:
        SHUFFLED[where](shuffled)
    assert len(str(error.value)) <= 300


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("where", list(SHUFFLED))
def test_other_labels_of_rows_are_no_matter(where):
    """Rows that were numbered anew, or have labels of their own, are matched by position."""
    plain = SHUFFLED[where](lambda x: x)
    for renumbered in (
        lambda x: x.set_axis(np.arange(100, 100 + len(x)), axis=0),
        lambda x: x.set_axis([f"row {k}" for k in range(len(x))], axis=0),
        lambda x: x.set_axis(np.arange(1, len(x) + 1), axis=0),
    ):
        found = SHUFFLED[where](renumbered)
        for name in ("values", "lower", "upper"):
            if hasattr(plain, name):
                np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))


def test_labels_of_several_kinds_and_of_several_levels():
    mixed = ["x", 1, *range(10, 8 + N)]
    levels = pd.MultiIndex.from_product([["u", "v"], range(N // 2)])
    for index in (mixed, levels, pd.date_range("2020", periods=N), [0, 0, *range(N - 2)]):
        frame, y = FRAME.set_axis(index, axis=0), LABELS.set_axis(index, axis=0)
        measure(frame, y)
        with pytest.raises(ValueError, match="another order"):
            measure(frame, shuffled(y))
