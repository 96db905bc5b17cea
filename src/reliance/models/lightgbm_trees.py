"""Boosters and estimators of LightGBM, read into flat arrays."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from reliance._core.kinds import HostArray
from reliance.models.ensembles import Categories, Ensemble, Link
from reliance.models.libraries import LightgbmBooster, LightgbmEstimator
from reliance.models.tree_parts import NotRead, TreeNodes, classification, in_column, joined, regression, set_bits

_LINKS: dict[str, Link] = {
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), "identity"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), "logistic"),
    "multiclass": "softmax",
}
_ZERO = float(np.float32(1e-35))  # what is not farther from 0 is 0


def _is_lightgbm_estimator(model: object) -> TypeGuard[LightgbmEstimator]:
    import lightgbm

    return type(model) in (lightgbm.LGBMRegressor, lightgbm.LGBMClassifier)


def _is_lightgbm_booster(model: object) -> TypeGuard[LightgbmBooster]:
    import lightgbm

    return type(model) is lightgbm.Booster


def lightgbm_levels(model: object, columns: tuple[int, ...]) -> dict[int, list[object]]:
    """Of the columns of type category, in their order."""
    booster = model.booster_ if _is_lightgbm_estimator(model) else model
    if not _is_lightgbm_booster(booster):
        return {}
    return dict(zip(columns, booster.pandas_categorical or [], strict=True))


def read_lightgbm(model: object, method: str, encoded: bool) -> Ensemble | None:
    if _is_lightgbm_estimator(model):
        booster, classes = model.booster_, getattr(model, "classes_", None)
        if callable(model.objective_) or model.get_params().get("pred_early_stop"):
            raise NotRead("its objective is a function, or it stops early in predictions")
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
    link = "signed_square" if "sqrt" in settings else _LINKS[objective]
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
    if fields["is_linear"] != "0":
        raise NotRead("its leaves are linear (linear_tree): predictions change with every value, not with cells")
    if np.any(~categorical & (missing == 1)):  # an interval of them goes the way of NaN
        raise NotRead("it takes zeros for missing values (zero_as_missing)")
    bounds, words, splits = numbers("cat_boundaries", np.int64), numbers("cat_threshold", np.uint32), {}
    for node in np.flatnonzero(categorical):
        start, stop = bounds[int(threshold[node])], bounds[int(threshold[node]) + 1]
        splits[int(node)] = Categories(set_bits(words[start:stop]), whole="trunc")
    # NaN is 0 where none was seen in training; in a categorical split it is in no set.
    missing_left = np.where(missing == 2, kind & 2 != 0, threshold >= 0.0) & ~categorical
    zero = np.where(threshold >= 0.0, _ZERO, np.nextafter(-_ZERO, -np.inf))
    threshold = np.where(np.abs(threshold) <= _ZERO, zero, threshold)
    left, right = numbers("left_child", np.int64, 0), numbers("right_child", np.int64, 0)
    left, right = (np.where(child < 0, leaves - 2 - child, child) for child in (left, right))
    value = np.append(np.zeros(leaves - 1), numbers("leaf_value", np.float64))
    return TreeNodes(feature, threshold, left, right, missing_left, in_column(value, column, columns), splits)
