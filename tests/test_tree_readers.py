"""Tree ensembles read into flat arrays predict what their libraries predict: scikit-learn, LightGBM, XGBoost."""

from __future__ import annotations

import functools
import warnings

import catboost as cat
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn import ensemble, tree
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl
from reliance._core.arrays import to_host
from reliance.models import ensembles
from reliance.models.ensembles import agrees
from reliance.models.tree_readers import attempt, read

P, CATEGORICAL = 4, 3


@functools.cache
def data(missing=False, n=240, seed=0):
    """Rounded numbers, signs, numbers without ties, and codes of categories."""
    rng = np.random.default_rng(seed)
    X = np.stack([rng.normal(size=n).round(1), rng.integers(-1, 2, n), rng.normal(size=n), rng.integers(0, 7, n)], 1)
    X = X.astype(float)
    mean = X[:, 0] + (X[:, 1] == 0) * X[:, 2] + np.isin(X[:, 3], [1, 4, 5]) * 1.5
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, mean + 0.3 * rng.normal(size=n)


def target(kind, y):
    edges = np.quantile(y, [0.3, 0.7])
    return {
        "regression": y,
        "several": np.stack([y, -y, y**2], axis=1),
        "counts": np.abs(y).round() + 1.0,
        "share": 1 / (1 + np.exp(-y)),
        "binary": (y > edges[0]).astype(int),
        "labels": np.where(y > edges[0], 7, 3),
        "bool": y > edges[0],
        "words": np.where(y > edges[0], "yes", "no"),
        "multiclass": np.digitize(y, edges),
        "float labels": np.digitize(y, edges) * 2.0,
    }[kind]


def at_thresholds(found, missing):
    """Rows of the data, and rows made of the thresholds, their neighbours in both precisions, and odd values."""
    X, _ = data(missing)
    rng = np.random.default_rng(1)
    columns = []
    for column in range(P):
        t = found.threshold[(found.feature == column) & (found.category < 0)]
        t32 = t.astype(np.float32)
        parts = [t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf), t32]
        parts += [np.nextafter(t32, np.float32(s * np.inf)) for s in (-1, 1)]
        parts += [[0.0, -0.0, 1e-36, -1e-35, 1e6, -1e6], X[:, column]]
        if (found.category[found.feature == column] >= 0).any():
            parts = [X[:, column], [8.0, 1e6, -1.0]]
            if found.categories[0].whole:  # LightGBM and XGBoost make integers of them
                parts.append([0.5, 1.7, 4.99999999999, -0.5, 2.0**31])
        if missing:
            parts.append([np.nan])
        values = np.concatenate(parts)  # a threshold may be infinite, which scikit-learn does not accept as a value
        columns.append(rng.choice(values[~np.isinf(values) & (np.abs(np.nan_to_num(values)) < 1e30)], 1500))
    return np.concatenate([X, np.stack(columns, axis=1)])


def check(model, method, missing=False, rtol=1e-10, ask=None):
    found = read(model, method)
    assert found is not None
    X = at_thresholds(found, missing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = (ask or getattr(model, method))(X)
    own = found(X)
    assert own.shape == expected.shape
    if found.finish.exact:
        np.testing.assert_array_equal(own, expected)
        assert own.dtype.kind == expected.dtype.kind
    else:
        np.testing.assert_allclose(own, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    assert agrees(found, own, expected)
    return found


@pytest.mark.parametrize("kind", ["regression", "several", "binary", "labels", "bool", "multiclass", "float labels"])
@pytest.mark.parametrize("missing", [False, True])
def test_trees_and_forests(kind, missing):
    X, y = data(missing)
    task = "Regressor" if kind in ("regression", "several") else "Classifier"
    for name in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"):
        module = tree if name in ("DecisionTree", "ExtraTree") else ensemble
        options = {"max_depth": 6} if module is tree else {"n_estimators": 8}
        model = getattr(module, name + task)(random_state=0, **options).fit(X, target(kind, y))
        for method in ("predict",) if task == "Regressor" else ("predict", "predict_proba"):
            check(model, method, missing)
        assert read(model, "decision_function") is None


def test_a_single_leaf():
    X, y = data()
    check(tree.DecisionTreeRegressor(max_depth=1).fit(X, np.ones_like(y)), "predict")


@pytest.mark.parametrize("kind", ["binary", "labels", "multiclass"])
def test_gradient_boosting_classifiers(kind):
    X, y = data()
    two_only = [] if kind == "multiclass" else [{"loss": "exponential"}]
    for options in [{}, {"init": "zero"}, {"init": DummyClassifier()}, *two_only]:
        model = ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0, **options).fit(X, target(kind, y))
        for method in ("predict", "predict_proba", "decision_function"):
            check(model, method)


def test_gradient_boosting_regressors():
    X, y = data()
    for options in ({}, {"loss": "huber"}, {"loss": "quantile", "alpha": 0.3}, {"init": "zero"}):
        check(ensemble.GradientBoostingRegressor(n_estimators=6, learning_rate=0.3, **options).fit(X, y), "predict")


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categorical", [None, [CATEGORICAL], [1, CATEGORICAL], [0, 1, 3]])
def test_histogram_boosting(missing, categorical):
    X, y = data(missing)
    options = {"max_iter": 8, "min_samples_leaf": 5, "categorical_features": categorical}
    for loss, kind in (("squared_error", "regression"), ("poisson", "counts"), ("gamma", "counts")):
        model = ensemble.HistGradientBoostingRegressor(loss=loss, **options).fit(X, target(kind, y))
        found = check(model, "predict", missing=True)  # they are accepted also where training had none
        assert bool(found.categories) == (categorical is not None)
    for kind in ("binary", "bool", "multiclass"):
        model = ensemble.HistGradientBoostingClassifier(**options).fit(X, target(kind, y))
        for method in ("predict", "predict_proba", "decision_function"):
            check(model, method, missing)


LIGHT = {
    "n_estimators": 8,
    "min_child_samples": 5,
    "min_data_per_group": 5,
    "cat_smooth": 1,
    "verbose": -1,
    "n_jobs": 1,
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categorical", [[], [CATEGORICAL]])
@pytest.mark.parametrize("options", [{}, {"max_cat_to_onehot": 20}, {"boosting_type": "dart"}, {"extra_trees": True}])
def test_lightgbm(missing, categorical, options):
    X, y = data(missing)
    model = lgb.LGBMRegressor(**LIGHT, **options).fit(X, y, categorical_feature=categorical)
    assert bool(check(model, "predict", missing=True).categories) == bool(categorical)
    check(model.booster_, "predict", missing)
    for kind in ("labels", "multiclass"):
        model = lgb.LGBMClassifier(**LIGHT, **options).fit(X, target(kind, y), categorical_feature=categorical)
        check(model, "predict", missing)
        check(model, "predict_proba", missing)
        check(model.booster_, "predict", missing)
        raw = functools.partial(model.predict, raw_score=True)
        check(model, "decision_function", missing, ask=raw)


def test_lightgbm_objectives():
    X, y = data()
    for objective in ("regression_l1", "huber", "fair", "quantile", "mape", "poisson", "gamma", "tweedie"):
        check(lgb.LGBMRegressor(**LIGHT, objective=objective).fit(X, target("counts", y)), "predict")
    check(lgb.LGBMRegressor(**LIGHT, objective="cross_entropy").fit(X, target("share", y)), "predict")


def test_lightgbm_variants():
    X, y = data()
    check(lgb.LGBMRegressor(**LIGHT, reg_sqrt=True).fit(X, y), "predict")
    check(lgb.LGBMClassifier(**LIGHT, sigmoid=0.7).fit(X, y > 0), "predict_proba")
    check(lgb.LGBMClassifier(**LIGHT, objective="multiclassova").fit(X, target("multiclass", y)), "predict_proba")
    forest = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
    check(lgb.LGBMRegressor(**LIGHT, **forest).fit(X, y), "predict")
    check(lgb.LGBMClassifier(**LIGHT, **forest).fit(X, target("multiclass", y)), "predict_proba")
    stop = [lgb.early_stopping(2, verbose=False)]
    sets = lgb.Dataset(X[:120], y[:120]), lgb.Dataset(X[120:], y[120:])
    params = {"verbose": -1, "learning_rate": 0.9, "min_data_in_leaf": 5}
    model = lgb.train(params, sets[0], 60, valid_sets=[sets[1]], callbacks=stop, keep_training_booster=True)
    assert check(model, "predict").roots.size == model.best_iteration < model.current_iteration()


EXTREME = {"n_estimators": 8, "max_depth": 4, "n_jobs": 1, "random_state": 0}
check_xgb = functools.partial(check, rtol=1e-5)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_cat_to_onehot": 20}, {"booster": "dart", "rate_drop": 0.4}])
def test_xgboost(missing, categorical, options):
    X, y = data(missing)
    options = {**EXTREME, **options, "feature_types": ["q", "q", "q", "c" if categorical else "q"]}
    model = xgb.XGBRegressor(**options, enable_categorical=True).fit(X, y)
    assert bool(check_xgb(model, "predict", missing=True).categories) == categorical
    check_xgb(model.get_booster(), "predict", missing, ask=model.get_booster().inplace_predict)
    for kind in ("binary", "multiclass"):
        model = xgb.XGBClassifier(**options, enable_categorical=True).fit(X, target(kind, y))
        check_xgb(model, "predict", missing)
        check_xgb(model, "predict_proba", missing)
        check_xgb(model.get_booster(), "predict", missing, ask=model.get_booster().inplace_predict)


def test_xgboost_objectives():
    X, y = data()
    objectives = {
        "regression": ("reg:absoluteerror", "reg:pseudohubererror"),
        "counts": ("reg:squaredlogerror", "count:poisson", "reg:gamma", "reg:tweedie"),
        "share": ("reg:logistic",),
        "binary": ("binary:logistic", "binary:logitraw", "binary:hinge"),
    }
    for kind, names in objectives.items():
        for name in names:
            check_xgb(xgb.XGBRegressor(**EXTREME, objective=name).fit(X, target(kind, y)), "predict")


def test_xgboost_variants():
    X, y = data()
    check_xgb(xgb.XGBRFRegressor(**EXTREME).fit(X, y), "predict")
    check_xgb(xgb.XGBRFClassifier(**EXTREME).fit(X, target("multiclass", y)), "predict_proba")
    check_xgb(xgb.XGBRegressor(**EXTREME).fit(X, target("several", y)), "predict")
    vectors = xgb.XGBRegressor(**EXTREME, multi_strategy="multi_output_tree").fit(X, target("several", y))
    assert len(check_xgb(vectors, "predict").roots) == EXTREME["n_estimators"]
    check_xgb(xgb.XGBRegressor(**EXTREME, base_score=1e4).fit(X, y + 1e4), "predict")
    check_xgb(xgb.XGBClassifier(**EXTREME, objective="binary:hinge").fit(X, target("binary", y)), "predict")
    quantiles = {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]}
    check_xgb(xgb.XGBRegressor(**EXTREME, **quantiles).fit(X, y), "predict")
    model = xgb.XGBClassifier(**EXTREME, objective="multi:softmax").fit(X, target("multiclass", y))
    check_xgb(model, "predict")
    check_xgb(model, "predict_proba")
    check_xgb(model.get_booster(), "predict", ask=model.get_booster().inplace_predict)
    model = xgb.XGBRegressor(**{**EXTREME, "n_estimators": 60}, learning_rate=0.9, early_stopping_rounds=2)
    model.fit(X[:120], y[:120], eval_set=[(X[120:], y[120:])], verbose=False)
    assert check_xgb(model, "predict").roots.size == model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    check_xgb(model.get_booster(), "predict", ask=model.get_booster().inplace_predict)


BOOSTED = {"iterations": 8, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("grown", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_catboost(missing, grown):
    X, y = data(missing)
    options = {**BOOSTED, "grow_policy": grown, "nan_mode": "Max" if grown == "Depthwise" else "Min"}
    check(cat.CatBoostRegressor(**options).fit(X, y), "predict", missing)
    check(cat.CatBoost(options).fit(X, y), "predict", missing)
    for kind in ("binary", "bool", "labels"):
        model = cat.CatBoostClassifier(**options).fit(X, target(kind, y))
        for method in ("predict", "predict_proba"):
            check(model, method, missing)
    model = cat.CatBoostClassifier(**options, loss_function="MultiClass").fit(X, target("multiclass", y))
    check(model, "predict_proba", missing)
    check(model, "predict", missing, ask=lambda X: model.predict(X)[:, 0])
    assert read(model, "decision_function") is None


def test_catboost_objectives():
    X, y = data()
    for loss, kind in {
        "Poisson": "counts",
        "Tweedie:variance_power=1.5": "counts",
        "MAE": "regression",
        "Quantile:alpha=0.3": "regression",
        "MultiRMSE": "several",
        "MultiQuantile:alpha=0.2,0.8": "regression",
    }.items():
        check(cat.CatBoostRegressor(**BOOSTED, loss_function=loss).fit(X, target(kind, y)), "predict")
    model = cat.CatBoostClassifier(**BOOSTED, loss_function="MultiClassOneVsAll").fit(X, target("multiclass", y))
    check(model, "predict_proba")


def test_why_trees_are_not_read():
    X, y = data()
    rows = [[*row[:3], str(row[3])] for row in X.tolist()]
    for options in ({"one_hot_max_size": 20}, {"one_hot_max_size": 1, "depth": 6}):
        model = cat.CatBoostRegressor(**{**BOOSTED, **options}, cat_features=[CATEGORICAL]).fit(rows, y)
        assert "hashes and statistics of categories" in attempt(model, "predict")
    with pytest.raises(ValueError, match=r"route='trees' cannot read the trees: its leaves are linear"):
        rl.model_reliance(lgb.LGBMRegressor(**LIGHT, linear_tree=True).fit(X, y), X, y, route="trees")
    assert attempt(lambda X: X[:, 0], "predict") == ""
    uncertain = cat.CatBoostRegressor(**BOOSTED, loss_function="RMSEWithUncertainty").fit(X, y)
    assert read(uncertain, "predict") is None


@functools.cache
def representative(name):
    X, y = data(missing=True)
    if name == "histogram":
        kind = ensemble.HistGradientBoostingClassifier(max_iter=5, categorical_features=[0, CATEGORICAL])
        return kind.fit(X, target("multiclass", y)), "predict_proba"
    if name == "forest":
        return ensemble.RandomForestClassifier(5, max_depth=8, random_state=0).fit(X, target("labels", y)), "predict"
    options = {**EXTREME, "feature_types": ["q", "q", "q", "c"], "enable_categorical": True}
    return xgb.XGBRegressor(**options).fit(X, y), "predict"


@pytest.mark.once_per_device
@pytest.mark.parametrize("name", ["histogram", "forest", "xgboost"])
def test_on_every_backend(backend, name, monkeypatch):
    model, method = representative(name)
    found = read(model, method)
    host = at_thresholds(found, missing=True).astype(backend.dtype)
    host[np.abs(host) < np.finfo(np.float32).tiny] = 0.0  # XLA takes subnormal numbers for zeros
    expected = getattr(model, method)(host)
    X = backend.asarray(host)
    calls = [found, found]  # the second time with what was uploaded the first
    if backend.kind == "jax":
        import jax

        calls.append(jax.jit(found))
    for call in calls:
        own = call(X)
        assert type(own) is type(X)
        assert agrees(found, to_host(own), expected)
    for constant in ("_PAIRS", "_CACHED_PAIRS"):  # in several parts, the last one smaller
        monkeypatch.setattr(ensembles, constant, 700 * found.roots.size)
    again = (lambda X: jax.jit(lambda X: found(X))(X)) if backend.kind == "jax" else found
    assert agrees(found, to_host(again(X)), expected)


def test_rows_are_rounded_as_the_library_rounds_them():
    """float32 and integer rows of a model that compares in float64."""
    model, method = representative("histogram")
    found = read(model, method)
    for dtype in (np.float32, np.int64):
        X = np.nan_to_num(at_thresholds(found, missing=False)).astype(dtype)
        assert agrees(found, found(X), model.predict_proba(X))


@pytest.mark.parametrize("name", ["histogram", "forest", "xgboost"])
def test_decisions_lead_every_row_to_its_leaf(name):
    model, method = representative(name)
    found = read(model, method)
    X = at_thresholds(found, missing=True)[::5]
    sums = np.tile(found.offset, (X.shape[0], 1))
    for root in found.roots:
        for i, row in enumerate(X):
            node = root
            while found.feature[node] >= 0:
                left = found.decide(np.array([node]), row[[found.feature[node]]])[0, 0]
                node = found.left[node] if left else found.right[node]
            sums[i] += found.value[node]
    np.testing.assert_allclose(sums, found.raw(X), rtol=1e-12, atol=1e-12)


def test_many_decisions_at_once():
    found = read(*representative("histogram"))
    values = np.array([-1.0, 0.0, 0.5, 1.0, 3.0, 6.0, 9.0, np.nan, np.inf])
    for column in range(P):
        nodes = np.flatnonzero(found.feature == column)
        each = [found.decide(np.array([node]), np.array([value]))[0, 0] for node in nodes for value in values]
        np.testing.assert_array_equal(found.decide(nodes, values).ravel(), each)


class Doubled(ensemble.RandomForestRegressor):
    def predict(self, X):
        return 2 * super().predict(X)


def not_understood():
    X, y = data()
    boosting, light, extreme = ensemble.GradientBoostingRegressor, lgb.LGBMRegressor, xgb.XGBRegressor
    yield "init", boosting(init=LinearRegression(), n_estimators=2).fit(X, y)
    random = DummyClassifier(strategy="stratified", random_state=0)
    yield "random init", ensemble.GradientBoostingClassifier(init=random, n_estimators=2).fit(X, y > 0)
    yield "subclass", Doubled(2).fit(X, y)
    yield "unfitted", tree.DecisionTreeRegressor()
    yield "unfitted lightgbm", light()
    yield "unfitted xgboost", extreme()
    yield "pipeline", make_pipeline(StandardScaler(), tree.DecisionTreeRegressor()).fit(X, y)
    yield "function", lambda X: X[:, 0]
    yield "words", tree.DecisionTreeClassifier().fit(X, target("words", y))
    several = np.stack([y > 0, y > 1], axis=1)
    yield "several classifiers", ensemble.RandomForestClassifier(2).fit(X, several)
    yield "several labels", xgb.XGBClassifier(n_estimators=2).fit(X, several)
    yield "linear trees", light(**LIGHT, linear_tree=True).fit(X, y)
    yield "zeros missing", light(**LIGHT, zero_as_missing=True).fit(X, y)
    yield "own objective", light(**LIGHT, objective=lambda y, p: (p - y, np.ones_like(y))).fit(X, y)
    yield "other objective", light(**LIGHT, objective="cross_entropy_lambda").fit(X, target("share", y))
    yield "linear booster", extreme(booster="gblinear", n_estimators=2).fit(X, y)
    yield "missing is -1", extreme(missing=-1.0, n_estimators=2).fit(X, y)


def test_what_is_not_understood_gives_none():
    for name, model in not_understood():
        assert read(model, "predict") is None, name
    X, y = data()
    words = tree.DecisionTreeClassifier(max_depth=3).fit(X, target("words", y))
    check(words, "predict_proba")
    assert read(words, "apply") is None


def test_wrong_columns_and_wrong_predictions():
    model, method = representative("forest")
    found = read(model, method)
    with pytest.raises(ValueError, match="4 columns"):
        found(np.zeros((3, 2)))
    assert not agrees(found, np.array([3, 7]), np.array([3, 3]))
    assert not agrees(found, np.array([3]), np.array([3, 3]))
    found = read(*representative("xgboost"))
    assert agrees(found, np.array([1.0, 2.0]), np.array([1.0, 2.000001]))
    assert not agrees(found, np.array([1.0, 2.0]), np.array([1.0, 2.0001]))
