"""Inputs as users have them: read as what they are, or refused in words that say what to do."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance.data import tables

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
        given=rl.Given(["c"], context=context, fit_on=fit_on),
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
    "y_test": lambda m: rl.algorithm_reliance(fit, FRAME, LABELS, cv=(FRAME, m(LABELS))),
    "weights of a test set": lambda m: rl.algorithm_reliance(
        fit, FRAME, LABELS, cv=(FRAME, LABELS), weights=m(WEIGHTS)
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


# ---------------------------------------------------------------------------------------------------------------------
# Words


def linear(X, y=Y, **options):
    return rl.permutation_importance(rl.models.Linear(np.ones(2)), X, y, draws=3, **options)


def levels():
    return FRAME.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]), axis=1)


def batch():
    return pytest.importorskip("pyarrow").RecordBatch.from_pandas(FRAME)


def sparse():
    return FRAME.assign(a=pd.arrays.SparseArray(X[:, 0]))


def torch_loss(name):
    torch = pytest.importorskip("torch")
    return getattr(torch.nn, name)() if name[0].isupper() else getattr(torch.nn.functional, name)


TEXT = np.array(["no", "yes"] * (N // 2))
LONG = "n" * 5000
DAYS = np.arange(N).astype("M8[D]")
REFUSED = {
    "levels of columns": (lambda: measure(levels()), ValueError, ["X", "2 levels", "set_axis"]),
    "record batch": (lambda: measure(batch()), TypeError, ["X", "RecordBatch", "from_batches"]),
    "record batch of labels": (lambda: measure(X, batch()), TypeError, ["y", "RecordBatch", "columns"]),
    "slice": (lambda: measure(X, features=slice(0, 2)), TypeError, ["features=slice(0, 2", "list(range("]),
    "slice of nothing": (lambda: measure(X, features=[slice(2, 2)]), ValueError, ["x[2:2]", "chooses nothing"]),
    "slice of two axes": (lambda: measure(X, features={"g": np.s_[:, 0]}), ValueError, ["group g", "does not fit"]),
    "mask of booleans": (lambda: measure(X, features=np.array([True, False])), TypeError, ["flatnonzero"]),
    "floating index": (lambda: measure(X, features=np.array([0.0])), TypeError, ["features holds 0.0"]),
    "long name": (lambda: measure(X, features=[LONG]), ValueError, ["features names", "x0", "x1"]),
    "long names": (lambda: measure(X, names=[LONG + "1", LONG + "2"], features=["q"]), ValueError, ["'q'"]),
    "long group": (lambda: measure(X, features={LONG: []}), ValueError, ["group nnn", "empty"]),
    "long index": (lambda: measure(X, features=[10**400]), ValueError, ["index 1000", "2 features"]),
    "names twice": (lambda: measure(X, names=[LONG, LONG]), ValueError, ["names holds", "twice"]),
    "text labels": (lambda: measure(X, TEXT), ValueError, ["zero_one", "y has dtype", "same kind of labels"]),
    "text classes": (lambda: measure(X, TEXT, loss="auc"), ValueError, ["auc", "0..C-1", "np.unique"]),
    "objects of text": (lambda: measure(X, TEXT.astype(object)), TypeError, ["y", "object", "astype(str)"]),
    "objects": (lambda: measure(X.astype(object)), TypeError, ["X", "object", "astype(float)"]),
    "labels of objects": (lambda: measure(X, Y.astype(object)), TypeError, ["y", "object", "astype(float)"]),
    "text weights": (lambda: measure(X, weights=TEXT), TypeError, ["weights", "<U3", "number"]),
    "weights written out": (lambda: measure(X, weights=["1"] * N), TypeError, ["weights", "<U1", "number"]),
    "boolean weights": (lambda: measure(X, weights=Y > 0), TypeError, ["weights", "bool", "leave rows out"]),
    "weights of objects": (lambda: measure(X, weights=np.ones(N, dtype=object)), TypeError, ["weights", "object"]),
    "complex rows": (lambda: measure(X + 0j), TypeError, ["X", "complex128", "X.real"]),
    "complex labels": (lambda: measure(X, Y + 0j), TypeError, ["y", "complex128", "y.real"]),
    "complex weights": (lambda: measure(X, weights=np.ones(N) + 0j), TypeError, ["weights", "complex128"]),
    "dates": (lambda: measure(np.stack([DAYS, DAYS], axis=1)), TypeError, ["X", "datetime64", "timedelta64(1, 'D')"]),
    "labels of dates": (lambda: measure(X, DAYS), TypeError, ["y", "datetime64"]),
    "durations": (lambda: measure(X, DAYS - DAYS[0]), TypeError, ["y", "timedelta64", "y / np"]),
    "long doubles": (lambda: measure(X.astype(np.longdouble)), TypeError, ["X", "astype(np.float64)"]),
    "labels of long doubles": (lambda: measure(X, Y.astype(np.longdouble)), TypeError, ["y", "np.float64"]),
    "weights of long doubles": (
        lambda: measure(X, weights=np.ones(N, dtype=np.longdouble)),
        TypeError,
        ["weights", "np.float64"],
    ),
    "text rows": (lambda: measure(np.stack([TEXT, TEXT], axis=1)), TypeError, ["X", "<U3", "table"]),
    "records": (lambda: measure(np.zeros((N, 2), dtype=[("a" * 500, float)])), TypeError, ["X has dtype"]),
    "keep None": (lambda: measure(X, keep=None), TypeError, ["keep=None", "()"]),
    "keep a number": (lambda: measure(X, keep=1), TypeError, ["keep=1", "()"]),
    "keep a list in a list": (lambda: measure(X, keep=[["rows"]]), ValueError, ["keep=['rows']", "'rows'"]),
    "keep something long": (lambda: measure(X, keep=LONG), ValueError, ["keep='nnn", "'rows'"]),
    "much memory": (lambda: measure(X, run=rl.Run(memory=10**400)), ValueError, ["memory=1000", "2GB"]),
    "much memory in words": (
        lambda: measure(X, run=rl.Run(memory="9" * 400 + "GB")),
        ValueError,
        ["memory='999", "2GB"],
    ),
    "infinite memory": (lambda: measure(X, run=rl.Run(memory=1e400)), ValueError, ["memory=inf", "512MB"]),
    "no amount of memory": (lambda: measure(X, run=rl.Run(memory=LONG)), ValueError, ["memory='nnn", "512MB"]),
    "long draws": (lambda: rl.permutation_importance(measure, X, Y, draws=[LONG]), TypeError, ["draws=['nnn"]),
    "sparse column": (lambda: linear(sparse()), TypeError, ["'a'", "sparse", "to_dense"]),
    "text column": (lambda: linear(FRAME.assign(a=TEXT)), TypeError, ["'a'", "text", "encode"]),
    "long column": (lambda: linear(FRAME.assign(**{LONG: TEXT})), TypeError, ["'nnn", "text", "encode"]),
    "nullable labels": (lambda: measure(X, pd.Series([1, None] * 5, dtype="Int64")), ValueError, ["y", "5 missing"]),
    "nullable array": (lambda: measure(X, pd.array([1, None] * 5, dtype="Int64")), ValueError, ["y", "5 missing"]),
    "nullable booleans": (lambda: measure(X, pd.array([True, None] * 5)), ValueError, ["y", "5 missing"]),
    "missing category": (lambda: measure(X, pd.Categorical(["a", None] * 5)), ValueError, ["y", "5 missing"]),
    "nullable weights": (
        lambda: measure(X, weights=pd.Series([1, None] * 5, dtype="Int64")),
        ValueError,
        ["weights", "5 missing"],
    ),
    "unknown loss": (lambda: measure(X, loss=LONG), ValueError, ["loss='nnn", "log_loss"]),
    "no loss": (lambda: measure(X, loss=dict.fromkeys(range(5000))), TypeError, ["loss", "name"]),
    "loss of torch": (lambda: measure(X, loss=torch_loss("cross_entropy")), TypeError, ["torch", "cross_entropy"]),
    "module of torch": (lambda: measure(X, loss=torch_loss("CrossEntropyLoss")), TypeError, ["CrossEntropyLoss"]),
    "generator": (lambda: measure(x for x in X), TypeError, ["X is a generator", "list(X)"]),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_is_told_what_to_do(case):
    call, kind, words = REFUSED[case]
    with pytest.raises(kind) as error:
        call()
    text = str(error.value)
    assert len(text) <= 300
    for word in words:
        assert word in text


def test_features_from_generators_tensors_and_tables():
    torch = pytest.importorskip("torch")
    expected = measure(X, features=[0, 1])
    wanted = (
        (j for j in range(2)),
        range(2),
        np.arange(2),
        np.arange(2, dtype=np.uint8),
        torch.arange(2),
        [torch.tensor(0), np.array(1)],
        {"x0": torch.tensor([0]), "x1": (j for j in [1])},
        pd.Series([0, 1]),
        pd.Index(["x0", "x1"]),
    )
    for features in wanted:
        found = measure(X, features=features)
        assert found.names == expected.names
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">f2"])
def test_the_order_of_bytes_is_no_matter(dtype):
    """Also for a torch module, which takes no other order than its own."""
    torch = pytest.importorskip("torch")
    rows, y, w = (10 * a for a in (X, Y, np.arange(1.0, N + 1)))
    swapped = [a.astype(dtype) for a in (rows, y, w)]
    native = [a.astype(a.dtype.newbyteorder("=")) for a in swapped]
    expected, found = (measure(a, b, weights=c) for a, b, c in (native, swapped))
    np.testing.assert_array_equal(found.values, expected.values)
    if dtype != ">i4":
        net = torch.nn.Linear(2, 1).double()
        expected, found = (rl.permutation_importance(net, a, b, draws=3, rng=0) for a, b, _ in (native, swapped))
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("memory", ["999999TB", 2**62, "1.5GiB", np.int64(10**9)])
def test_amounts_of_memory(memory):
    np.testing.assert_array_equal(measure(X, run=rl.Run(memory=memory)).values, measure(X).values)


def test_losses_and_checks_under_raising_floats():
    far = np.array([[-800.0, 1e-200], [800.0, 0.0], [1.0, 1e-170], [0.0, -800.0]])
    y = np.array([0, 1, 0, 1])
    options = {"loss": "cross_entropy", "rng": 0, "draws": 3}
    expected = rl.permutation_importance(lambda X: X.sum(axis=1), far, y, **options)
    wide = rl.permutation_importance(lambda X: X + 0.0, far, y, **options)
    with np.errstate(all="raise"):
        found = rl.permutation_importance(lambda X: X.sum(axis=1), far, y, **options)
        both = rl.permutation_importance(lambda X: X + 0.0, far, y, **options)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(both.values, wide.values)
