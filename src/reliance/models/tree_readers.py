"""Fitted tree ensembles of scikit-learn, LightGBM and XGBoost, read into flat arrays.

What a model holds is read, never guessed: anything that is not understood, such as an unknown objective, linear leaves
or the layout of a later release, gives None, and the model is then evaluated as any other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from scipy.special import logit

from reliance._core.kinds import HostArray
from reliance.models.ensembles import Categories, Ensemble, Finish, Floats, Link
from reliance.models.libraries import (
    Boosting,
    Forest,
    GradientBoosting,
    HistogramBoosting,
    LightgbmBooster,
    LightgbmEstimator,
    SklearnTree,
    TreeEstimator,
    XgboostBooster,
    XgboostEstimator,
    XgboostTree,
)
from reliance.models.tree_parts import Cut, TreeNodes, classification, in_column, joined, regression, set_bits
from reliance.models.untouched import inherits

# What predictions may go through.
_METHODS = ("predict", "predict_proba", "decision_function", "inplace_predict", "_raw_predict")


def read(model: object, method: str) -> Ensemble | None:
    """The trees behind ``model.method``; None if the model is not a fitted ensemble that is fully understood.

    A model is an estimator of exactly one of the known classes, because a subclass may predict otherwise, or a booster
    of LightGBM (read as its ``predict``) or of XGBoost (as its ``inplace_predict``). What was read is to be compared
    with the model's own predictions before it is relied on (`ensembles.agrees`).
    """
    library = type(model).__module__.partition(".")[0]
    methods = ("predict", "predict_proba", "decision_function")
    if library not in _READERS or library not in sys.modules or method not in methods:
        return None
    if not inherits(model, _METHODS, library):
        return None
    try:
        return _READERS[library](model, method)
    except Exception:  # not fitted, or another layout: it may fail anywhere, and the model itself still works
        return None


# ---------------------------------------------------------------------------------------------------------------------
# scikit-learn

_SKLEARN_LINKS: dict[str, tuple[Link, float]] = {
    "IdentityLink": ("identity", 1.0),
    "LogLink": ("exp", 1.0),
    "LogitLink": ("logistic", 1.0),
    "HalfLogitLink": ("logistic", 2.0),
    "MultinomialLogit": ("softmax", 1.0),
}


def _read_sklearn(model: object, method: str) -> Ensemble | None:
    if _is_forest(model):
        return _forest(model, method)
    if _is_gradient_boosting(model):
        return _gradient_boosting(model, method)
    return _histogram_boosting(model, method) if _is_histogram_boosting(model) else None


def _is_forest(model: object) -> TypeGuard[Forest]:
    from sklearn import ensemble, tree

    return _is_one_of(model, tree, "DecisionTree", "ExtraTree") or _is_one_of(
        model, ensemble, "RandomForest", "ExtraTrees"
    )


def _is_gradient_boosting(model: object) -> TypeGuard[GradientBoosting]:
    from sklearn import ensemble

    return _is_one_of(model, ensemble, "GradientBoosting")


def _is_histogram_boosting(model: object) -> TypeGuard[HistogramBoosting]:
    from sklearn import ensemble

    return _is_one_of(model, ensemble, "HistGradientBoosting")


def _is_one_of(model: object, module: object, *names: str) -> bool:
    return type(model) in [getattr(module, name + task) for name in names for task in ("Regressor", "Classifier")]


def _sklearn_tree(tree: SklearnTree, value: Floats) -> TreeNodes:
    feature = np.where(tree.children_left >= 0, tree.feature, -1)
    return TreeNodes(
        feature, tree.threshold, tree.children_left, tree.children_right, tree.missing_go_to_left != 0, value
    )


def _forest(model: Forest, method: str) -> Ensemble | None:
    members: Sequence[TreeEstimator] = getattr(model, "estimators_", [model])
    if not all(inherits(member, _METHODS, "sklearn") for member in members):
        return None
    trees = [member.tree_ for member in members]
    if not hasattr(model, "classes_"):
        finish = regression(method, model.n_outputs_, scale=1.0 / len(trees))
    elif model.n_outputs_ > 1 or model.n_classes_ == 1 or method == "decision_function":
        return None
    else:
        finish = classification(method, model.n_classes_, model.classes_, "identity", 1.0 / len(trees))
    # (N, outputs, 1) of regressions, (N, 1, classes) of shares
    parts = [_sklearn_tree(tree, tree.value.reshape(tree.node_count, -1)) for tree in trees]
    return joined(parts, 0.0, finish, model.n_features_in_, "float32", "float64")


def _boosting_finish(model: Boosting, method: str, columns: int, at_cut: bool) -> Finish | None:
    link, scale = _SKLEARN_LINKS[type(model._loss.link).__name__]
    if hasattr(model, "classes_"):
        return classification(method, columns, model.classes_, link, scale, Cut(0.0, at_cut))
    return regression(method, columns, link, scale)


def _gradient_boosting(model: GradientBoosting, method: str) -> Ensemble | None:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    constant = type(model.init_) in (str, DummyClassifier, DummyRegressor)
    if not constant or getattr(model.init_, "strategy", None) == "stratified":  # the latter is random
        return None
    columns = model.estimators_.shape[1]
    # The first guess is the same for every row: scikit-learn computes it, through the link of its loss.
    offset = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))[0]
    trees = [
        _sklearn_tree(tree.tree_, in_column(model.learning_rate * tree.tree_.value[:, 0, 0], k, columns))
        for stage in model.estimators_
        for k, tree in enumerate(stage)
    ]
    finish = _boosting_finish(model, method, columns, at_cut=True)
    return joined(trees, offset, finish, model.n_features_in_, "float32", "float64")


def _histogram_boosting(model: HistogramBoosting, method: str) -> Ensemble | None:
    n_features, columns = model.n_features_in_, model.n_trees_per_iteration_
    order, values = np.arange(n_features), list[HostArray]()
    if model._preprocessor is not None:
        # The categorical columns come first, each value replaced by its place among the known ones.
        order = np.argsort(~np.asarray(model.is_categorical_), kind="stable")
        values = list(model._preprocessor.named_transformers_["encoder"].categories_)
        if any(found.dtype.kind not in "biuf" for found in values):
            return None  # texts are in no numeric array
    trees = []
    for stage in model._predictors:
        for k, predictor in enumerate(stage):
            nodes = predictor.nodes
            leaf, splits = nodes["is_leaf"] != 0, {}
            feature = np.where(leaf, -1, order[np.where(leaf, 0, nodes["feature_idx"])])
            for node in np.flatnonzero(~leaf & (nodes["is_categorical"] != 0)):
                known = values[nodes["feature_idx"][node]].astype(np.float64)
                codes = set_bits(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]).astype(np.int64)
                splits[int(node)] = Categories(known[codes], known[~np.isnan(known)])
            threshold, missing_left = nodes["num_threshold"], nodes["missing_go_to_left"]
            added = in_column(nodes["value"], k, columns)
            trees.append(TreeNodes(feature, threshold, nodes["left"], nodes["right"], missing_left, added, splits))
    finish = _boosting_finish(model, method, columns, at_cut=False)
    return joined(trees, model._baseline_prediction, finish, n_features, "float64", "float64")


# ---------------------------------------------------------------------------------------------------------------------
# LightGBM

_LIGHTGBM_LINKS: dict[str, Link] = {
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), "identity"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), "logistic"),
    "multiclass": "softmax",
}
_LIGHTGBM_ZERO = float(np.float32(1e-35))  # what is not farther from 0 is 0


def _is_lightgbm_estimator(model: object) -> TypeGuard[LightgbmEstimator]:
    import lightgbm

    return type(model) in (lightgbm.LGBMRegressor, lightgbm.LGBMClassifier)


def _is_lightgbm_booster(model: object) -> TypeGuard[LightgbmBooster]:
    import lightgbm

    return type(model) is lightgbm.Booster


def _read_lightgbm(model: object, method: str) -> Ensemble | None:
    if _is_lightgbm_estimator(model):
        booster, classes = model.booster_, getattr(model, "classes_", None)
        if callable(model.objective_) or model.get_params().get("pred_early_stop"):
            return None
    elif _is_lightgbm_booster(model):
        booster, classes = model, None
    else:
        return None
    head, *bodies = booster.model_to_string().split("\nend of trees")[0].split("\nTree=")
    fields = dict(line.partition("=")[::2] for line in head.splitlines())
    columns = int(fields["num_tree_per_iteration"])
    trees = [_lightgbm_tree(body, t % columns, columns) for t, body in enumerate(bodies)]
    objective, *options = fields["objective"].split()
    settings = dict(option.partition(":")[::2] for option in options)
    if not set(settings) <= {"sqrt", "sigmoid", "num_class"}:
        return None
    link = "signed_square" if "sqrt" in settings else _LIGHTGBM_LINKS[objective]
    scale = float(settings.get("sigmoid", 1.0))
    if "average_output" in fields:  # random forests; raw scores are not averaged
        scale *= columns / len(trees)
    if classes is not None:
        finish = classification(method, columns, classes, link, scale)
    else:
        finish = regression(method, columns, link, scale)
    return joined(trees, 0.0, finish, int(fields["max_feature_idx"]) + 1, "float64", "float64")


def _lightgbm_tree(text: str, column: int, columns: int) -> TreeNodes:
    """One tree of a model's text: inner nodes first, then the leaves, to which negative children point."""
    fields = dict(line.partition("=")[::2] for line in text.splitlines())

    def numbers(name: str, dtype: type[np.generic], leaf: float | None = None) -> HostArray:
        found = np.array(fields.get(name, "").split(), dtype=dtype)
        return found if leaf is None else np.append(found, np.full(leaves, leaf, dtype=dtype))

    leaves = int(fields["num_leaves"])
    feature, kind = numbers("split_feature", np.int64, -1), numbers("decision_type", np.int64, 0)
    threshold = numbers("threshold", np.float64, 0.0)
    categorical, missing = kind & 1 != 0, (kind >> 2) & 3
    if fields["is_linear"] != "0" or np.any(~categorical & (missing == 1)):
        raise ValueError("linear leaves, or zeros as missing values: an interval of them goes the way of NaN")
    bounds, words, splits = numbers("cat_boundaries", np.int64), numbers("cat_threshold", np.uint32), {}
    for node in np.flatnonzero(categorical):
        start, stop = bounds[int(threshold[node])], bounds[int(threshold[node]) + 1]
        splits[int(node)] = Categories(set_bits(words[start:stop]), whole="trunc")
    # NaN is 0 where none was seen in training; in a categorical split it is in no set.
    missing_left = np.where(missing == 2, kind & 2 != 0, threshold >= 0.0) & ~categorical
    zero = np.where(threshold >= 0.0, _LIGHTGBM_ZERO, np.nextafter(-_LIGHTGBM_ZERO, -np.inf))
    threshold = np.where(np.abs(threshold) <= _LIGHTGBM_ZERO, zero, threshold)
    left, right = numbers("left_child", np.int64, 0), numbers("right_child", np.int64, 0)
    left, right = (np.where(child < 0, leaves - 2 - child, child) for child in (left, right))
    value = np.append(np.zeros(leaves - 1), numbers("leaf_value", np.float64))
    return TreeNodes(feature, threshold, left, right, missing_left, in_column(value, column, columns), splits)


# ---------------------------------------------------------------------------------------------------------------------
# XGBoost

_XGBOOST_LINKS: dict[str, Link] = {
    **dict.fromkeys(("reg:squarederror", "reg:squaredlogerror", "reg:absoluteerror"), "identity"),
    **dict.fromkeys(("reg:pseudohubererror", "reg:quantileerror", "binary:logitraw"), "identity"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "exp"),
    **dict.fromkeys(("reg:logistic", "binary:logistic"), "logistic"),
    **dict.fromkeys(("multi:softprob", "multi:softmax"), "softmax"),
    "binary:hinge": "step",
}


def _is_xgboost_estimator(model: object) -> TypeGuard[XgboostEstimator]:
    import xgboost

    classifiers = (xgboost.XGBClassifier, xgboost.XGBRFClassifier)
    return type(model) in (xgboost.XGBRegressor, xgboost.XGBRFRegressor, *classifiers)


def _is_xgboost_booster(model: object) -> TypeGuard[XgboostBooster]:
    import xgboost

    return type(model) is xgboost.Booster


def _read_xgboost(model: object, method: str) -> Ensemble | None:
    import xgboost

    classifies = type(model) in (xgboost.XGBClassifier, xgboost.XGBRFClassifier)
    if _is_xgboost_estimator(model):
        booster, best = model.get_booster(), model.get_booster().attr("best_iteration")
        if not np.isnan(model.missing):
            return None
    elif _is_xgboost_booster(model):
        booster, best = model, None
    else:
        return None
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gbm, shape, objective = (learner[name] for name in ("gradient_booster", "learner_model_param", "objective"))
    if gbm["name"] not in ("gbtree", "dart"):
        return None
    forest, name = gbm.get("gbtree", gbm)["model"], objective["name"]
    targets = int(shape["num_target"])
    columns = max(int(shape["num_class"]), targets, 1)
    # After early stopping the estimators use the best iterations only, a booster all.
    used = len(forest["trees"]) if best is None else forest["iteration_indptr"][int(best) + 1]
    weights = np.asarray(gbm.get("weight_drop", [1.0] * used), dtype=np.float32)[:used]
    parts = zip(forest["trees"][:used], forest["tree_info"][:used], weights, strict=True)
    trees = [_xgboost_tree(tree, column, columns, weight) for tree, column, weight in parts]
    link = _XGBOOST_LINKS[name]
    if classifies:
        if targets > 1 or method == "decision_function" or (name == "binary:logitraw" and method != "predict"):
            return None
        finish = classification(method, columns, np.asarray(getattr(model, "classes_", ())), link, 1.0)
    elif name == "multi:softmax" and method == "predict":
        finish = Finish("identity", "argmax", classes=tuple(float(k) for k in range(columns)))
    else:
        finish = regression(method, columns, link)
    base = np.asarray(json.loads(shape["base_score"]), dtype=np.float32).astype(np.float64)
    if link in ("logistic", "exp"):  # it is stored among the predictions, not the raw outputs
        base = logit(np.clip(base, 1e-6, 1 - 1e-6)) if link == "logistic" else np.log(base)
    return joined(trees, base, finish, int(shape["num_feature"]), "float32", "float32")


def _xgboost_tree(tree: XgboostTree, column: int, columns: int, weight: np.float32) -> TreeNodes:
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    condition = np.asarray(tree["split_conditions"], dtype=np.float32)
    feature = np.where(left >= 0, np.asarray(tree["split_indices"]), -1)
    missing_left, splits = np.asarray(tree["default_left"]) != 0, {}
    segments = (tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"])
    for node, start, size in zip(*segments, strict=True):
        found = np.sort(np.asarray(tree["categories"][start : start + size], dtype=np.float64))
        splits[int(node)] = Categories(found, whole="floor")
        # Listed values go right, all others left: exchanged, so that a split lists what goes left.
        left[node], right[node], missing_left[node] = right[node], left[node], not missing_left[node]
    categorical = (np.asarray(tree["split_type"]) == 1) & (feature >= 0)
    if int(tree["tree_param"]["size_leaf_vector"]) > 1 or set(splits) != set(np.flatnonzero(categorical).tolist()):
        raise ValueError("leaves with several values, or a categorical split without its categories")
    threshold = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)  # x < t
    return TreeNodes(
        feature, threshold, left, right, missing_left, in_column(condition * weight, column, columns), splits
    )


_READERS = {"sklearn": _read_sklearn, "lightgbm": _read_lightgbm, "xgboost": _read_xgboost}
