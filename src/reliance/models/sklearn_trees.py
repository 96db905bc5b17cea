"""Trees, forests and gradient boosting of scikit-learn, read into flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from reliance._core.kinds import HostArray
from reliance.models.ensembles import Categories, Ensemble, Finish, Floats, Ints, Link
from reliance.models.libraries import (
    Boosting,
    Forest,
    GradientBoosting,
    HistogramBoosting,
    IsolationForest,
    SklearnTree,
    TreeEstimator,
)
from reliance.models.tree_parts import (
    METHODS,
    Cut,
    NotRead,
    TreeNodes,
    classification,
    in_column,
    joined,
    regression,
    set_bits,
)
from reliance.models.untouched import inherits

_LINKS: dict[str, tuple[Link, float]] = {
    "IdentityLink": ("identity", 1.0),
    "LogLink": ("exp", 1.0),
    "LogitLink": ("logistic", 1.0),
    "HalfLogitLink": ("logistic", 2.0),
    "MultinomialLogit": ("softmax", 1.0),
}


# What the labels of outliers go through.
_SCORES = ("score_samples", "_score_samples", "_compute_score_samples", "_compute_chunked_score_samples")


def read_sklearn(model: object, method: str, encoded: bool) -> Ensemble | None:
    if _is_forest(model):
        return _forest(model, method)
    if is_gradient_boosting(model):
        return _gradient_boosting(model, method)
    if _is_isolation_forest(model):
        return _isolation_forest(model, method)
    return _histogram_boosting(model, method, encoded) if _is_histogram_boosting(model) else None


def _is_forest(model: object) -> TypeGuard[Forest]:
    from sklearn import ensemble, tree

    return _is_one_of(model, tree, "DecisionTree", "ExtraTree") or _is_one_of(
        model, ensemble, "RandomForest", "ExtraTrees"
    )


def is_gradient_boosting(model: object) -> TypeGuard[GradientBoosting]:
    from sklearn import ensemble

    return _is_one_of(model, ensemble, "GradientBoosting")


def _is_histogram_boosting(model: object) -> TypeGuard[HistogramBoosting]:
    from sklearn import ensemble

    return _is_one_of(model, ensemble, "HistGradientBoosting")


def _is_isolation_forest(model: object) -> TypeGuard[IsolationForest]:
    from sklearn import ensemble

    return type(model) is ensemble.IsolationForest


def _is_one_of(model: object, module: object, *names: str) -> bool:
    return type(model) in [getattr(module, name + task) for name in names for task in ("Regressor", "Classifier")]


def _sklearn_tree(tree: SklearnTree, value: Floats) -> TreeNodes:
    feature = np.where(tree.children_left >= 0, tree.feature, -1)
    return TreeNodes(
        feature, tree.threshold, tree.children_left, tree.children_right, tree.missing_go_to_left != 0, value
    )


def _forest(model: Forest, method: str) -> Ensemble | None:
    members: Sequence[TreeEstimator] = getattr(model, "estimators_", [model])
    if not all(inherits(member, METHODS, "sklearn") for member in members):
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


def _isolation_forest(model: IsolationForest, method: str) -> Ensemble | None:
    """The lengths of the paths are added up; a row is an outlier where 2 to the power of less their mean is large."""
    from sklearn.ensemble._iforest import _average_path_length

    if method != "predict" or not inherits(model, _SCORES, "sklearn"):
        return None
    parts = []
    lengths = zip(model._decision_path_lengths, model._average_path_length_per_tree, strict=True)
    for member, some, (path, rest) in zip(model.estimators_, model.estimators_features_, lengths, strict=True):
        part = _sklearn_tree(member.tree_, np.asarray(path + rest - 1.0, dtype=np.float64)[:, None])
        parts.append(part._replace(feature=np.where(part.feature < 0, -1, np.asarray(some)[part.feature])))
    usual = len(parts) * float(_average_path_length([model._max_samples])[0])
    finish = Finish("exp", "threshold", -np.log(2.0) / usual, (1, -1), cut=-float(model.offset_))
    return joined(parts, 0.0, finish, model.n_features_in_, "float32", "float64")


def _boosting_finish(model: Boosting, method: str, columns: int, at_cut: bool) -> Finish | None:
    link, scale = _LINKS[type(model._loss.link).__name__]
    if hasattr(model, "classes_"):
        return classification(method, columns, model.classes_, link, scale, Cut(0.0, at_cut))
    return regression(method, columns, link, scale)


def _gradient_boosting(model: GradientBoosting, method: str) -> Ensemble | None:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    constant = type(model.init_) in (str, DummyClassifier, DummyRegressor)
    if not constant or getattr(model.init_, "strategy", None) == "stratified":  # the latter is random
        return None
    # The first guess is the same for every row: scikit-learn computes it, through the link of its loss.
    first = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))[0]
    return boosted_trees(model, method, first)


def boosted_trees(model: GradientBoosting, method: str, offset: ArrayLike) -> Ensemble | None:
    """What is added to a first guess."""
    columns = model.estimators_.shape[1]
    trees = [
        _sklearn_tree(tree.tree_, in_column(model.learning_rate * tree.tree_.value[:, 0, 0], k, columns))
        for stage in model.estimators_
        for k, tree in enumerate(stage)
    ]
    finish = _boosting_finish(model, method, columns, at_cut=True)
    return joined(trees, offset, finish, model.n_features_in_, "float32", "float64")


def sklearn_levels(model: object, columns: tuple[int, ...]) -> dict[int, list[object]]:
    """Of histogram boosting, which encodes the columns that it takes as categories."""
    if not _is_histogram_boosting(model) or model._preprocessor is None:
        return {}
    categories = model._preprocessor.named_transformers_["encoder"].categories_
    places = _histogram_order(model)[: len(categories)].tolist()
    return {column: found.tolist() for column, found in zip(places, categories, strict=True)}


def _histogram_order(model: HistogramBoosting) -> Ints:
    """Which column stands where in the trees: the categorical ones come first."""
    if model._preprocessor is None:
        return np.arange(model.n_features_in_)
    return np.argsort(~np.asarray(model.is_categorical_), kind="stable")


def _histogram_boosting(model: HistogramBoosting, method: str, encoded: bool) -> Ensemble | None:
    n_features, columns = model.n_features_in_, model.n_trees_per_iteration_
    order, values = _histogram_order(model), list[HostArray]()
    if model._preprocessor is not None:
        # Each value is replaced by its place among the known ones.
        values = list(model._preprocessor.named_transformers_["encoder"].categories_)
        if encoded:
            values = [np.arange(len(found)) for found in values]
        if any(found.dtype.kind not in "biuf" for found in values):
            raise NotRead("its categories are texts, which are in no array of numbers: pass a table")
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
