"""Models of CatBoost, read into flat arrays: oblivious trees, and the others that it grows."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from reliance.models.ensembles import Ensemble, Finish, Floats, Link
from reliance.models.libraries import CatboostFloat, CatboostModel, CatboostNode, CatboostSplit, CatboostText
from reliance.models.tree_parts import NotRead, TreeNodes, classification, joined, regression

# A whole level of an oblivious tree asks one question: 2^12 leaves are more than anyone grows.
_DEEPEST = 12
_LINKS: dict[str, Link] = {
    **dict.fromkeys(("Logloss", "CrossEntropy", "MultiClassOneVsAll"), "logistic"),
    "MultiClass": "softmax",
}


def _is_catboost(model: object) -> TypeGuard[CatboostModel]:
    import catboost

    return type(model) in (catboost.CatBoost, catboost.CatBoostRegressor, catboost.CatBoostClassifier)


def catboost_levels(model: object, columns: tuple[int, ...]) -> dict[int, list[object]]:
    """None are known: CatBoost compares hashes of categories, or statistics of the labels that came with them."""
    return {}


def read_catboost(model: object, method: str, encoded: bool) -> Ensemble | None:
    if not _is_catboost(model):
        return None
    text = _text(model)
    floats = {one["feature_index"]: one for one in text["features_info"]["float_features"]}
    scale, bias = text["scale_and_bias"]
    columns = len(bias)
    if "oblivious_trees" in text:
        trees = [
            _oblivious(tree["splits"], np.asarray(tree["leaf_values"]).reshape(-1, columns), floats)
            for tree in text["oblivious_trees"]
        ]
    else:
        trees = [_grown(tree, columns, floats) for tree in text["trees"]]
    trees = [tree._replace(value=scale * tree.value) for tree in trees]
    return joined(trees, bias, _finish(model, method, columns), len(model.feature_names_), "float32", "float64")


def _text(model: CatboostModel) -> CatboostText:
    """The model as CatBoost writes it down; it writes to files only."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "model.json")
        model.save_model(path, format="json")
        with open(path, encoding="utf-8") as file:
            found: CatboostText = json.load(file)
    return found


def _finish(model: CatboostModel, method: str, columns: int) -> Finish | None:
    import catboost

    loss = str(model.get_all_params()["loss_function"]).partition(":")[0]
    if type(model) is not catboost.CatBoostClassifier:
        exponential = type(model) is catboost.CatBoostRegressor and loss in ("Poisson", "Tweedie")
        if loss == "RMSEWithUncertainty" or method != "predict":
            return None
        return regression(method, columns, "exp" if exponential else "identity")
    if method == "decision_function" or "binclass_probability_threshold" in model.get_metadata().keys():  # noqa: SIM118
        return None
    return classification(method, columns, model.classes_, _LINKS[loss], 1.0)


class _Question(NamedTuple):
    """What a node asks; a leaf nothing."""

    column: int = -1
    threshold: float = 0.0
    missing_left: bool = False


def _question(split: CatboostSplit, floats: Mapping[int, CatboostFloat]) -> _Question:
    """``x > border`` goes right."""
    if split["split_type"] != "FloatFeature":
        raise NotRead("CatBoost splits on hashes and statistics of categories, which are no values of X")
    feature = floats[split["float_feature_index"]]
    return _Question(feature["flat_feature_index"], split["border"], feature["nan_value_treatment"] != "AsTrue")


def _oblivious(splits: Sequence[CatboostSplit], value: Floats, floats: Mapping[int, CatboostFloat]) -> TreeNodes:
    """A tree of which each level asks one question, as a whole binary tree; the first split is the lowest bit."""
    if len(splits) > _DEEPEST:
        raise NotRead(f"an oblivious tree of CatBoost has {len(splits)} levels")
    asked = [_question(split, floats) for split in reversed(splits)]
    inner = [one for level, one in enumerate(asked) for _ in range(2**level)]
    first = [2 * node + 1 for node in range(len(inner))]
    every = np.concatenate([np.zeros((len(inner), value.shape[1])), value])
    return _nodes([*inner, *[_Question()] * len(value)], [*first, *[0] * len(value)], every)


def _grown(root: CatboostNode, columns: int, floats: Mapping[int, CatboostFloat]) -> TreeNodes:
    """A tree that grew leaf by leaf, as nodes within nodes."""
    asked, first, values = [], [], []
    waiting, number = [root], 1
    for node in waiting:  # which grows while it is read
        split = node.get("split")
        if split is None:
            asked.append(_Question())
            first.append(0)
            values.append(np.broadcast_to(np.asarray(node["value"], dtype=np.float64), (columns,)))
        else:
            asked.append(_question(split, floats))
            first.append(number)
            values.append(np.zeros(columns))
            waiting += [node["left"], node["right"]]
            number += 2
    return _nodes(asked, first, np.stack(values))


def _nodes(asked: list[_Question], first: list[int], value: Floats) -> TreeNodes:
    """Nodes whose left child is ``first``, and the right one next to it."""
    column, threshold, missing = zip(*asked, strict=True)
    left = np.asarray(first, dtype=np.int64)
    return TreeNodes(
        feature=np.asarray(column, dtype=np.int64),
        threshold=np.asarray(threshold, dtype=np.float64),
        left=left,
        right=left + 1,
        missing_left=np.asarray(missing, dtype=np.bool_),
        value=value,
    )
