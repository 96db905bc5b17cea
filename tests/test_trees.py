"""The route through the trees equals the plain all-pairs route, whatever the trees and the data."""

from __future__ import annotations

import tracemalloc

import lightgbm
import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import ensemble as sk
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor

import oracles
import reliance as rl
from reliance._core import arrays
from reliance.exact import reached
from reliance.exact import trees as route
from reliance.models import tree_readers
from reliance.models.ensembles import Categories, Ensemble, Finish
from test_structure import assert_same

LEVELS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def grown(rng, leaves, columns, outputs, categorical=()):
    """One tree as lists of nodes, split at random: thresholds that are values of the data and repeat."""
    feature, threshold, left, right, missing, category = [-1], [0.0], [0], [0], [False], [-1]
    sets = []
    open_ = [0]
    while len(open_) < leaves:
        node = open_.pop(int(rng.integers(len(open_))))
        feature[node] = int(rng.integers(columns))
        missing[node] = bool(rng.integers(2))
        if feature[node] in categorical:
            category[node] = len(sets)
            known = None if rng.integers(2) else LEVELS[:4]
            sets.append(Categories(LEVELS[rng.random(5) < 0.5], known))
        else:
            threshold[node] = float(rng.choice(LEVELS) + rng.choice([0.0, 0.0, 0.1]))
        for child in (left, right):
            child[node] = len(feature)
            open_.append(len(feature))
            for array, new in zip(
                (feature, threshold, left, right, missing, category),
                (-1, 0.0, len(feature), len(feature), False, -1),
                strict=True,
            ):
                array.append(new)
    value = np.zeros((len(feature), outputs))
    value[np.asarray(feature) < 0] = rng.normal(size=(leaves, outputs)).round(1)
    return feature, threshold, left, right, missing, category, sets, value


def made(seed, leaves=(1, 4, 9, 20), columns=4, outputs=1, categorical=(), finish=None, compared_in="float64"):
    """An ensemble of random trees, one for each number of leaves."""
    rng = np.random.default_rng(seed)
    parts, roots, sets, start = [], [], [], 0
    for number in leaves:
        feature, threshold, left, right, missing, category, found, value = grown(
            rng, number, columns, outputs, categorical
        )
        roots.append(start)
        shifted = [c if c < 0 else c + len(sets) for c in category]
        parts.append((feature, threshold, np.add(left, start), np.add(right, start), missing, shifted, value))
        sets += found
        start += len(feature)
    feature, threshold, left, right, missing, category, value = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Ensemble(
        feature=feature.astype(np.int64),
        threshold=threshold,
        left=left.astype(np.int64),
        right=right.astype(np.int64),
        missing_left=missing.astype(bool),
        category=category.astype(np.int64),
        categories=tuple(sets),
        value=value,
        roots=np.asarray(roots),
        offset=rng.normal(size=outputs),
        compared_in=compared_in,
        finish=finish or Finish(output="flat" if outputs == 1 else "columns"),
        n_features=columns,
        precision=2.2e-16,
    )


def levels(seed, n, columns=4, missing=0.0):
    """Rows whose values are often equal to thresholds; one column is constant."""
    rng = np.random.default_rng(seed)
    X = rng.choice(LEVELS, size=(n, columns)) + rng.choice([0.0, 0.05, -0.05], size=(n, columns))
    X[:, columns - 1] = 0.5
    X[rng.random((n, columns)) < missing] = np.nan
    return X, rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def both(model, X, y, **options):
    """The automatic and the plain route."""
    options = {"keep": "rows", **options}
    return rl.model_reliance(model, X, y, **options), rl.model_reliance(model, X, y, route="plain", **options)


# ---------------------------------------------------------------------------------------------------------------------
# Any trees


@pytest.mark.filterwarnings("ignore:X holds NaN", "ignore:the losses of")
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 14),
    leaves=st.lists(st.sampled_from([1, 2, 3, 8, 31, 33, 64, 65, 90]), min_size=1, max_size=4),
    outputs=st.sampled_from([1, 3]),
    categorical=st.sampled_from([(), (0,), (0, 2)]),
    missing=st.sampled_from([0.0, 0.2]),
    weighted=st.booleans(),
    compare=st.sampled_from(["difference", "ratio"]),
    block=st.sampled_from([None, 1, 5, (4, 3)]),
    loss=st.sampled_from(["squared_error", "absolute_error", "huber"]),
)
def test_any_trees(seed, n, leaves, outputs, categorical, missing, weighted, compare, block, loss):
    model = made(seed, leaves, outputs=outputs, categorical=categorical, compared_in=("float32", "float64")[seed % 2])
    X, y, w = levels(seed + 1, n, missing=missing)
    y = 3.0 + (y if outputs == 1 else np.stack([y] * outputs, axis=1))
    options = {"compare": compare, "weights": w if weighted else None, "run": rl.Run(block=block), "loss": loss}
    found, plain = both(model, X, y, features=[0, 1, 2, 3, (0, 1), (2, 3)], **options)
    for name in ("values", "replaced_risk", "row_values", "std_error", "random_variable_error"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-10, atol=1e-10, err_msg=name)
    settled = plain.std_error > 1e-9  # the skewness of rounding is anything
    np.testing.assert_allclose(found.skewness[settled], plain.skewness[settled], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.interval()[settled], plain.interval()[settled], rtol=1e-10, atol=1e-10)
    assert set(found.routes) <= {"trees", "unused"}


@pytest.mark.filterwarnings("ignore:X holds NaN")
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_walks_and_masks_agree_with_a_literal_table(monkeypatch, missing):
    model = made(5, leaves=(12, 30, 7))
    X, y, _ = levels(6, 12, missing=missing)
    donors, mask = oracles.all_pairs(12)

    def literal(x):  # down each tree by hand
        total = model.offset[0]
        for node in model.roots:
            while model.feature[node] >= 0:
                value = x[model.feature[node]]
                left = model.missing_left[node] if np.isnan(value) else value <= model.threshold[node]
                node = model.left[node] if left else model.right[node]
            total += model.value[node, 0]
        return total

    asked = {"compare": "difference", "features": [0, 1, 2, 3, (0, 2), (1, 2, 3)]}
    masks = rl.model_reliance(model, X, y, **asked)
    monkeypatch.setattr(arrays, "mask_size", lambda xp, bits: None)
    monkeypatch.setattr(reached, "_ENTRIES", 100)  # one tree at a time, a few of its nodes
    walks = rl.model_reliance(model, X, y, **asked)
    for j, columns in enumerate([[0], [1], [2], [3], [0, 2], [1, 2, 3]]):
        table = oracles.loss_table(literal, lambda t, p: (t - p) ** 2, X, y, columns, donors, mask, None)
        expected = oracles.answer(table, "difference").value
        for found in (masks, walks):
            assert found.routes[j] == "trees"
            np.testing.assert_allclose(found.values[j], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.once_per_device
@pytest.mark.filterwarnings("ignore:X holds NaN", "ignore:the losses of")
@pytest.mark.parametrize(
    ("leaves", "outputs", "categorical"),
    [((6, 31, 1), 1, (0,)), ((33, 64, 2), 1, ()), ((9, 5), 3, (1,)), ((90, 70), 1, ()), ((80, 3), 2, (0,))],
    ids=["masks", "wide-masks", "outputs", "walks", "walks-outputs"],
)
def test_trees_on_every_backend(backend, leaves, outputs, categorical):
    model = made(2, leaves, outputs=outputs, categorical=categorical)
    X, y, w = levels(3, 30, missing=0.1)
    y = y if outputs == 1 else np.stack([y] * outputs, axis=1)
    X, y, w = (backend.asarray(a) for a in (X, y, w))
    found, plain = both(model, X, y, weights=w, features=[0, 1, 2, 3, (0, 2)], loss=["squared_error", "huber"])
    tolerance = 1e-10 if backend.dtype == "float64" else 1e-4
    for loss in ("squared_error", "huber"):
        assert_same(found[loss], plain[loss], tolerance, tolerance)
        assert set(found[loss].routes) <= {"trees", "unused"}


def test_a_forest_of_the_host_is_measured_where_the_rows_are(backend):
    X, y, w = levels(4, 40)
    y = (y > 0).astype(int) + 1
    # Large leaves: a share of 0 would be clipped at the precision of the dtype.
    forest = sk.RandomForestClassifier(8, max_depth=2, min_samples_leaf=8, random_state=0).fit(X, y)
    expected = rl.model_reliance(forest, X, y, loss="log_loss", weights=w, compare="difference", route="plain")
    X, y, w = (backend.asarray(a) for a in (X, y, w))
    if backend.dtype == "float32":  # thresholds between values: rounding the values moves no row
        assert np.array_equal(forest.apply(levels(4, 40)[0]), forest.apply(backend.rounded(levels(4, 40)[0])))
    found = rl.model_reliance(forest, X, y, loss="log_loss", weights=w, compare="difference")
    assert set(found.routes) <= {"trees", "unused"}
    backend.assert_close(found.values, expected.values, scale=10.0)
    backend.assert_close(found.std_error, expected.std_error, scale=10.0)
    # Other methods evaluate the trees there, too.
    assert rl.permutation_importance(forest, X, y, loss="log_loss", draws=3, rng=0).values[0] != 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Libraries


def library_data(n=90):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, 5)).round(1)
    X[:, 1] = rng.integers(0, 5, n)
    score = X[:, 0] * (X[:, 1] > 2) + X[:, 2] + 0.3 * rng.normal(size=n)
    return X, score, rng.uniform(0.5, 2.0, n)


# LightGBM takes every core that it finds, also where another worker has it.
REGRESSORS = {
    "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    "deep tree": DecisionTreeRegressor(random_state=0),
    "extra tree": ExtraTreeRegressor(max_depth=5, random_state=0),
    "forest": sk.RandomForestRegressor(7, random_state=0),
    "deep forest": sk.RandomForestRegressor(5, bootstrap=False, max_features=2, random_state=0),
    "extra trees": sk.ExtraTreesRegressor(5, max_leaf_nodes=20, random_state=0),
    "gradient boosting": sk.GradientBoostingRegressor(n_estimators=20, random_state=0),
    "hist": sk.HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=4),
    "hist categories": sk.HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=4, categorical_features=[1]),
    "lightgbm": lightgbm.LGBMRegressor(n_estimators=20, min_child_samples=4, verbose=-1, n_jobs=1),
    "lightgbm deep": lightgbm.LGBMRegressor(n_estimators=5, num_leaves=80, min_child_samples=1, verbose=-1, n_jobs=1),
}
CLASSIFIERS = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": sk.RandomForestClassifier(7, random_state=0),
    "gradient boosting": sk.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "hist": sk.HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=4),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=10, min_child_samples=4, verbose=-1, n_jobs=1),
}
GROUPS = [0, 1, 2, 3, 4, (0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("name", "missing"),
    # Gradient boosting takes no missing values.
    [(name, missing) for name in REGRESSORS for missing in (False, True) if not (missing and "gradient" in name)],
)
@pytest.mark.filterwarnings("ignore:X holds NaN", "ignore:the losses of", "ignore:X does not have valid feature names")
def test_regressors_of_the_libraries(name, missing):
    X, y, w = library_data()
    if missing:
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    model = REGRESSORS[name].fit(X, y)
    losses = ["squared_error", "absolute_error"]
    found, plain = both(model, X, y, weights=w, features=GROUPS, loss=losses, compare="difference")
    for loss in losses:
        assert_same(found[loss], plain[loss])
        assert set(found[loss].routes) <= {"trees", "unused"}


@pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:the losses of", "ignore:X does not have valid feature names")
def test_classifiers_of_the_libraries(name, classes, loss):
    X, score, w = library_data()
    y = np.digitize(score, [0.0] if classes == 2 else [-0.5, 0.5]) + 5  # labels that are not positions
    model = CLASSIFIERS[name].fit(X, y)
    found, plain = both(model, X, y, weights=w, features=GROUPS, loss=loss, compare="difference")
    assert_same(found, plain)
    # Shares of mixed leaves may tie, and then the order in which a library adds them decides on the label.
    mixed = name == "forest" and loss == "zero_one"
    assert set(found.routes) <= ({"distinct", "trees", "unused"} if mixed else {"trees", "unused"})


@pytest.mark.parametrize("kind", ["regression", "binary", "several"])
@pytest.mark.filterwarnings("ignore:the losses of", "ignore:X holds NaN")
def test_xgboost_in_float64(kind):
    """XGBoost adds its trees in float32: its own pairs agree to that, those of its trees in float64 to rounding."""
    X, score, w = library_data()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    if kind == "regression":
        model, y, options, method = xgboost.XGBRegressor(n_estimators=15), score, {}, "predict"
    else:
        y = np.digitize(score, [0.0] if kind == "binary" else [-0.5, 0.5])
        model, options, method = xgboost.XGBClassifier(n_estimators=8), {"loss": "log_loss"}, "predict_proba"
    model.fit(X, y)
    options |= {"weights": w, "features": GROUPS, "compare": "difference"}
    found, plain = both(model, X, y, **options)
    assert set(found.routes) <= {"trees", "unused"}
    assert_same(found, plain, 1e-4, 1e-5)
    read = tree_readers.read(model, method)
    assert_same(*both(read, X, y, **options))


@pytest.mark.filterwarnings("ignore:the losses of")
def test_raw_boosters():
    X, y, _ = library_data()
    light = lightgbm.train({"verbose": -1, "min_data_in_leaf": 4, "num_threads": 1}, lightgbm.Dataset(X, y), 10)
    found, plain = both(light, X, y)
    assert_same(found, plain)
    assert set(found.routes) <= {"trees", "unused"}
    extreme = xgboost.train({}, xgboost.DMatrix(X, y), 10)
    found, plain = both(extreme, X, y)
    assert_same(found, plain, 1e-4, 1e-5)
    assert set(found.routes) <= {"trees", "unused"}


# ---------------------------------------------------------------------------------------------------------------------
# Invariances, choice, limits


@pytest.mark.parametrize("deep", [False, True])
def test_the_number_of_workers_changes_no_bit(monkeypatch, deep):
    model = made(3, (80, 70) if deep else (20, 31, 5))
    X, y, w = levels(4, 50)
    found = []
    for workers in (1, 2, 3):
        monkeypatch.setattr(route, "_workers", lambda problem, workers=workers: workers)
        found.append(
            rl.model_reliance(model, X, y, weights=w, features=[0, 1, 2, (0, 1)], run=rl.Run(block=7), keep="rows")
        )
    for other in found[1:]:
        assert np.array_equal(found[0].row_values, other.row_values)
        assert np.array_equal(found[0].std_error, other.std_error)


def test_the_model_sees_the_base_pass_and_a_few_rows_on_which_the_trees_are_checked(monkeypatch):
    X, y, _ = library_data()
    model = sk.HistGradientBoostingRegressor(max_iter=5).fit(X, y)
    seen = []
    kind = type(model._predictors[0][0])
    predict = kind.predict
    monkeypatch.setattr(kind, "predict", lambda self, Z, **given: seen.append(len(Z)) or predict(self, Z, **given))
    found = rl.model_reliance(model, X, y)
    assert sum(seen) == 5 * (len(X) + 127 + 64 * X.shape[1] + 32)  # 127: some rows of the base pass once more
    cells = [len(np.unique(np.searchsorted(np.unique(t), X[:, j]))) for j, t in enumerate(thresholds(model))]
    assert found.evaluations.tolist() == [len(X) * m if m > 1 else 0 for m in cells]


def thresholds(model):
    nodes = np.concatenate([predictor.nodes for (predictor,) in model._predictors])
    return [nodes["num_threshold"][(nodes["is_leaf"] == 0) & (nodes["feature_idx"] == j)] for j in range(5)]


def test_a_column_without_splits_is_unused():
    X, y, _ = library_data()
    X[:, 4] = 1.0
    model = sk.GradientBoostingRegressor(n_estimators=5).fit(X, y)
    found = rl.model_reliance(model, X, y, features=[0, 4, (0, 4)])
    assert found.routes == ("trees", "unused", "trees")
    assert found.values[1] == 1.0
    assert found.evaluations[1] == 0
    assert found.values[0] == found.values[2]
    assert found.interval()[1].tolist() == [1.0, 1.0]


def test_a_forced_route_that_does_not_apply():
    X, y, _ = levels(1, 30)
    with pytest.raises(ValueError, match="ensemble of trees that can be read"):
        rl.model_reliance(lambda Z: Z[:, 0], X, y, route="trees")
    labels = (y > 0).astype(int)
    forest = sk.RandomForestClassifier(3, max_depth=2, random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match="whose ties its library breaks by rounding"):
        rl.model_reliance(forest, X, labels, route="trees", loss="zero_one")


@pytest.mark.parametrize("leaves", [(31,) * 20, (90,) * 20], ids=["masks", "walks"])
@pytest.mark.parametrize("memory", [4_000_000, 30_000_000])
def test_memory(leaves, memory):
    model = made(1, leaves)
    X, y, _ = levels(2, 4000)
    X += np.random.default_rng(0).normal(scale=0.01, size=X.shape)
    rl.model_reliance(model, X[:100], y[:100])
    tracemalloc.start()
    try:
        found = rl.model_reliance(model, X, y, run=rl.Run(memory=memory))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert set(found.routes) == {"trees"}
    assert peak < memory
    with pytest.raises(ValueError, match="memory=1000 bytes is too small"):
        rl.model_reliance(model, X, y, run=rl.Run(memory=1000))


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_deep_trees_whose_rows_share_cells(shared):
    """Rows in one cell of all columns, of two, of one: no donor leaves a row's way, or few do."""
    rng = np.random.default_rng(0)
    model = DecisionTreeRegressor().fit(rng.normal(size=(300, 3)), rng.normal(size=300))
    X = np.repeat(rng.normal(size=(1, 3)), 12, axis=0)
    X[:, shared:] = rng.normal(size=(12, 3 - shared))
    X[:, 0] += 1e-13 * np.arange(12)  # distinct, and one cell
    y = rng.normal(size=12)
    assert model.get_n_leaves() > 64
    found = rl.model_reliance(model, X, y, compare="difference")
    assert {"trees", "unused"} >= set(found.routes)
    for j in range(3):
        one = lambda row: model.predict(row[None])[0]  # noqa: E731
        table = oracles.loss_table(one, lambda a, b: (a - b) ** 2, X, y, [j], *oracles.all_pairs(12))
        np.testing.assert_allclose(found.values[j], oracles.answer(table, "difference").value, atol=1e-12)


def hungry(kind):
    """Models of which every row has many walks, or many cells, and their data."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 3)), rng.normal(size=500)
    if kind == "one column":  # every donor leads every row to a leaf of its own
        return sk.ExtraTreesRegressor(3, random_state=0).fit(X[:, :1], y), X[:, :1], y, {}
    if kind == "two columns":
        return sk.RandomForestRegressor(10, random_state=0).fit(X[:, :2], y), X[:, :2], y, {}
    if kind == "classes":
        labels = rng.integers(6, size=500)
        return sk.RandomForestClassifier(5, random_state=0).fit(X, labels), X, labels, {"loss": "log_loss"}
    if kind == "two losses":
        losses = {"loss": ["squared_error", "absolute_error"]}
        return sk.RandomForestRegressor(5, random_state=0).fit(X, y), X, y, losses
    if kind == "group":  # a table of rows and joint cells
        return sk.RandomForestRegressor(5, random_state=0).fit(X, y), X, y, {"features": [(0, 1)]}
    return sk.GradientBoostingRegressor(n_estimators=60, max_depth=5).fit(X, y), X, y, {}  # leaf masks


@pytest.mark.parametrize("kind", ["one column", "two columns", "classes", "two losses", "group", "masks"])
@pytest.mark.slow
def test_trees_keep_to_the_memory(kind):
    model, X, y, options = hungry(kind)
    memory = 8_000_000
    rl.model_reliance(model, X[:30], y[:30], **options)  # imports
    tracemalloc.start()
    found = rl.model_reliance(model, X, y, run=rl.Run(memory=memory), **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = next(iter(found.values())) if isinstance(found, rl.Results) else found
    assert set(found.routes) == {"trees"}
    # Reading the trees, and the rows on which they are checked, are the model's share of it.
    assert peak < memory + 2_000_000
