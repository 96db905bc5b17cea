"""Pipelines whose steps treat columns apart: exchanged transformed columns equal calling them for every pair."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeRegressor

import reliance as rl
from reliance.models.pipelines import unfold

FIELDS = ("values", "replaced_risk", "row_values", "std_error", "random_variable_error")
pytestmark = pytest.mark.filterwarnings(
    "ignore:constant in X", "ignore:X holds NaN", "ignore:Feature", "ignore:Bins", "ignore:Stochastic Optimizer"
)


def data(n=70, seed=0):
    """A number, a level, a rounded number, one with gaps, a constant; and labels."""
    rng = np.random.default_rng(seed)
    columns = (
        rng.normal(size=n),
        rng.integers(0, 4, n),
        rng.normal(size=n).round(1),
        rng.normal(size=n),
        np.full(n, 2.0),
    )
    X = np.stack(columns, axis=1).astype(float)
    y = X[:, 0] ** 2 + X[:, 1] + 0.3 * X[:, 3] + 0.1 * rng.normal(size=n)
    X[rng.uniform(size=n) < 0.1, 3] = np.nan
    return X, y


def table(n=70):
    X, y = data(n)
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["kind"] = pd.Categorical(np.random.default_rng(1).choice(["u", "v", "w"], n))
    return frame, y


def both(model, X, y, **options):
    options = {"keep": "rows", "compare": "difference", **options}
    return (rl.model_reliance(model, X, y, route=route, **options) for route in ("auto", "plain"))


def assert_same(found, plain, tolerance=1e-10):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), tolerance, tolerance, err_msg=name)


def filled(*steps):
    return make_pipeline(SimpleImputer(), *steps)


def by_kind():
    return make_column_transformer(
        (SplineTransformer(n_knots=3), ["a", "c"]),
        (OneHotEncoder(handle_unknown="ignore"), ["b", "kind"]),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["d"]),
    )


ARRAYS = {
    "splines and ridge": (filled(SplineTransformer(n_knots=3), Ridge()), "pipeline+linear", None),
    "bins and poisson": (filled(KBinsDiscretizer(3), PoissonRegressor()), "pipeline+additive", "poisson_deviance"),
    "scaled boosting": (
        make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5)),
        "pipeline+trees",
        None,
    ),
    "scaled network": (filled(RobustScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=20)), "pipeline", None),
    "search": (
        GridSearchCV(filled(MinMaxScaler(), Ridge()), {"ridge__alpha": [0.1, 1.0]}, cv=2),
        "pipeline+additive",
        "absolute_error",
    ),
    "search over trees": (
        GridSearchCV(HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5), {"max_iter": [3, 5]}, cv=2),
        "pipeline+trees",
        None,
    ),
    "log labels": (
        TransformedTargetRegressor(filled(PowerTransformer(), Ridge()), func=np.log1p, inverse_func=np.expm1),
        "pipeline+additive",
        None,
    ),
    "union": (
        filled(FeatureUnion([("a", StandardScaler()), ("b", PolynomialFeatures(1)), ("c", "drop")]), Ridge()),
        "pipeline+linear",
        None,
    ),
    "chosen": (filled(MaxAbsScaler(), SelectKBest(f_regression, k=3), Ridge()), "pipeline+linear", None),
    "function": (
        filled(FunctionTransformer(np.tanh, feature_names_out="one-to-one"), Ridge()),
        "pipeline+linear",
        None,
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_pipelines_of_arrays_equal_the_plain_route(case):
    model, route, loss = ARRAYS[case]
    X, y = data()
    model.fit(X, np.abs(y))
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    found, plain = both(model, X, np.abs(y), loss=loss, weights=w, features=[0, 1, (2, 3), 4])
    assert found.routes[0] == route
    assert_same(found, plain)


@pytest.mark.parametrize("last", [Ridge(), HistGradientBoostingRegressor(max_iter=5), KNeighborsRegressor(3)])
def test_pipelines_of_tables_equal_the_plain_route(last):
    X, y = table(60)
    model = make_pipeline(by_kind(), last)
    if isinstance(last, HistGradientBoostingRegressor):
        model[0].sparse_threshold = 0
    found, plain = both(model.fit(X, y), X, y, features=["a", "b", ("c", "d"), "e", "kind"])
    assert found.routes[0].startswith("pipeline")
    assert found.routes[3] == "unused"  # no transformed column comes from it
    assert_same(found, plain)


def test_classifiers_behind_encoders():
    X, y = table(60)
    labels = np.where(y > np.median(y), "high", "low")
    encoders = ColumnTransformer(
        [("t", TargetEncoder(cv=3), ["kind", "b"]), ("q", QuantileTransformer(n_quantiles=9), ["a"])]
    )
    logistic = make_pipeline(encoders, LogisticRegression()).fit(X, labels)
    losses = ["log_loss", "accuracy"]
    found, plain = both(logistic, X, labels, loss=losses)
    for loss in losses:
        assert found[loss].routes == (
            "pipeline+additive",
            "pipeline+additive",
            "unused",
            "unused",
            "unused",
            "pipeline+additive",
        )
        assert_same(found[loss], plain[loss])
    ordinal = ColumnTransformer([("o", OrdinalEncoder(), ["kind"]), ("m", "passthrough", ["a", "d"])])
    boosted = (
        make_pipeline(ordinal, HistGradientBoostingClassifier(max_iter=5)).set_output(transform="pandas").fit(X, labels)
    )
    found, plain = both(boosted, X, labels, loss=losses)
    for loss in losses:
        assert set(found[loss].routes) == {"pipeline+trees", "unused"}
        assert_same(found[loss], plain[loss])
    least = FixedThresholdClassifier(logistic, threshold=0.3, pos_label="high").fit(X, labels)
    found, plain = both(least, X, labels, loss="zero_one")
    assert_same(found, plain)


STEPS = (
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    PowerTransformer(),
    SplineTransformer(n_knots=3),
    KBinsDiscretizer(2, encode="onehot-dense"),
    KBinsDiscretizer(3, encode="ordinal"),
    OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    PolynomialFeatures((1, 1)),
    "passthrough",
    "drop",
)
LAST = (Ridge(), DecisionTreeRegressor(max_depth=3), KNeighborsRegressor(2), PoissonRegressor())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.data())
def test_any_pipeline_equals_the_plain_route(data_):
    seed = data_.draw(st.integers(0, 5))
    X, y = data(25, seed)
    steps = [data_.draw(st.sampled_from(STEPS)) for _ in range(3)]
    order = data_.draw(st.permutations(range(5)))
    parts = [("a", steps[0], order[:2]), ("b", steps[1], order[2:3]), ("c", steps[2], order[3:])]
    remainder = data_.draw(st.sampled_from(["drop", "passthrough"]))
    columns = ColumnTransformer(parts[: data_.draw(st.integers(1, 3))], remainder=remainder)
    loss = data_.draw(st.sampled_from(["squared_error", "absolute_error"]))
    model = filled(columns, FunctionTransformer(), data_.draw(st.sampled_from(LAST)))
    try:
        model.fit(X, np.abs(y))
    except ValueError:  # no column is left
        return
    weights = np.random.default_rng(seed).uniform(size=25) if data_.draw(st.booleans()) else None
    found, plain = both(model, X, np.abs(y), loss=loss, weights=weights, features=[0, 1, 2, 3, 4, (0, 2), (1, 3)])
    assert all(route == "unused" or route.startswith("pipeline") for route in found.routes)
    assert_same(found, plain)


def test_curves_and_auc_come_along():
    X, y = data(60)
    labels = (y > np.median(y)).astype(int)
    model = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5)).fit(
        X, labels
    )
    found, plain = both(model, X, labels, loss="auc", features=[0, 1])
    assert_same(found, plain)
    model = filled(SplineTransformer(n_knots=3), Ridge()).fit(X, y)
    found, plain = both(model, X, y, features=[0, 1], keep=["ice", "rows"])
    for name in ("x0", "x1"):
        np.testing.assert_allclose(found.curves[name].mean, plain.curves[name].mean, rtol=1e-10)
        np.testing.assert_allclose(found.curves[name].ice, plain.curves[name].ice, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (PCA(), "the pipeline's PCA mixes columns"),
        (KNNImputer(), "the pipeline's KNNImputer mixes columns"),
        (Normalizer(), "the pipeline's Normalizer mixes columns"),
        (PolynomialFeatures(2), "the pipeline's PolynomialFeatures mixes columns: it multiplies them"),
        (FunctionTransformer(lambda Z: Z[:, ::-1]), "feature_names_out='one-to-one'"),
    ],
)
def test_what_mixes_columns_is_said_by_name(step, words):
    X, y = data(30)
    model = filled(step, Ridge()).fit(X, y)
    assert words in unfold(model, 5)
    with pytest.raises(ValueError, match="route='pipeline' does not apply") as raised:
        rl.model_reliance(model, X, y, route="pipeline")
    assert words in str(raised.value)
    found = rl.model_reliance(model, X, y, features=[0])
    assert found.routes == ("plain",)
    assert words in found.why_routes[0]


@pytest.mark.parametrize(
    "function", [lambda Z: Z - Z.mean(axis=1, keepdims=True), lambda Z: Z - Z.mean(axis=0), lambda Z: Z[:, ::-1]]
)
def test_a_function_that_is_not_what_it_says_is_noticed(function):
    X, y = data(60)
    model = filled(FunctionTransformer(function, feature_names_out="one-to-one"), Ridge()).fit(X, y)
    with pytest.warns(UserWarning, match="does not predict what its steps say"):
        found = rl.model_reliance(model, X, y, features=[0, 1])
    assert found.routes == ("plain", "distinct")


def test_a_subclass_may_do_something_else():
    class Odd(StandardScaler):
        def transform(self, X):
            return super().transform(X)[:, ::-1]

    X, y = data(30)
    assert "Odd is not known to treat columns apart" in unfold(filled(Odd(), Ridge()).fit(X, y), 5)
    assert unfold(Ridge().fit(X[:, :2], y), 2) == ""
