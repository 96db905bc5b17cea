"""Boosters and estimators of XGBoost, read into flat arrays."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TypeGuard

import numpy as np
from scipy.special import logit

from reliance.models.ensembles import Categories, Ensemble, Finish, Floats, Link
from reliance.models.libraries import XgboostBooster, XgboostCategories, XgboostEstimator, XgboostTree
from reliance.models.tree_parts import NotRead, TreeNodes, classification, in_column, joined, regression

_LINKS: dict[str, Link] = {
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


def xgboost_levels(model: object, columns: tuple[int, ...]) -> dict[int, list[object]]:
    """Of the columns that were categories in training; later tables are encoded alike, since XGBoost 3.1."""
    booster = model.get_booster() if _is_xgboost_estimator(model) else model
    if not _is_xgboost_booster(booster):
        return {}
    gbm = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    encodings = gbm.get("gbtree", gbm)["model"]["cats"]["enc"]
    found = {column: _xgboost_values(encoding) for column, encoding in enumerate(encodings)}
    return {column: values for column, values in found.items() if values}


def _xgboost_values(encoding: XgboostCategories) -> list[object]:
    """Numbers, or the bytes of texts one after the other."""
    values = encoding["values"]
    if "offsets" not in encoding:
        return list(values)
    text, offsets = bytes(values), encoding["offsets"]
    return [text[start:stop].decode() for start, stop in pairwise(offsets)]


def read_xgboost(model: object, method: str, encoded: bool) -> Ensemble | None:
    import xgboost

    classifies = type(model) in (xgboost.XGBClassifier, xgboost.XGBRFClassifier)
    if _is_xgboost_estimator(model):
        booster, best = model.get_booster(), model.get_booster().attr("best_iteration")
        if not np.isnan(model.missing):
            raise NotRead(f"it takes {model.missing:g} for missing values (missing=)")
    elif _is_xgboost_booster(model):
        booster, best = model, None
    else:
        return None
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gbm, shape, objective = (learner[name] for name in ("gradient_booster", "learner_model_param", "objective"))
    if gbm["name"] not in ("gbtree", "dart"):
        raise NotRead(f"its booster is {gbm['name']}, which grows no trees")
    forest, name = gbm.get("gbtree", gbm)["model"], objective["name"]
    targets = int(shape["num_target"])
    columns = max(int(shape["num_class"]), targets, 1)
    # After early stopping the estimators use the best iterations only, a booster all.
    used = len(forest["trees"]) if best is None else forest["iteration_indptr"][int(best) + 1]
    weights = np.asarray(gbm.get("weight_drop", [1.0] * used), dtype=np.float32)[:used]
    parts = zip(forest["trees"][:used], forest["tree_info"][:used], weights, strict=True)
    trees = [_xgboost_tree(tree, column, columns, weight) for tree, column, weight in parts]
    link = _LINKS[name]
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
    if set(splits) != set(np.flatnonzero(categorical).tolist()):
        raise ValueError("a categorical split without its categories")
    threshold = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)  # x < t
    several = int(tree["tree_param"]["size_leaf_vector"]) > 1
    value = _xgboost_vectors(tree, columns, weight) if several else in_column(condition * weight, column, columns)
    return TreeNodes(feature, threshold, left, right, missing_left, value, splits)


def _xgboost_vectors(tree: XgboostTree, columns: int, weight: np.float32) -> Floats:
    """(N, K): what leaves add to all outputs (multi_output_tree); a leaf's right child is its place among leaves."""
    leaf, values = np.asarray(tree["left_children"]) < 0, np.asarray(tree["leaf_weights"], dtype=np.float32)
    found = np.zeros((len(leaf), columns))
    found[leaf] = (values * weight).reshape(-1, columns)[np.asarray(tree["right_children"])[leaf]]
    return found
