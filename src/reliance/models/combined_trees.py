"""Models of scikit-learn that combine others, each of them an ensemble of trees: together they are one ensemble."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeGuard

import numpy as np

from reliance.models.ensembles import Ensemble, Finish, Floats, Ints, Link, rounded_down
from reliance.models.libraries import AdaBoost, Bagging, GradientBoosting, Several, Voting
from reliance.models.sklearn_trees import boosted_trees, is_gradient_boosting
from reliance.models.tree_parts import Cut, NotRead, classification, in_column, regression
from reliance.models.untouched import inherits

Read: TypeAlias = Callable[[object, str], Ensemble | str]


class Part(NamedTuple):
    """An ensemble, how often it counts, and which columns of the rows it sees, (P,) of all; None: each its own."""

    ensemble: Ensemble
    times: float
    columns: Ints | None = None


def read_combined(model: object, method: str, read: Read) -> Ensemble | None:
    """The trees of all members; None if the model is no such sum. ``read``: what members are read by."""
    from sklearn import ensemble

    if _is_ada_boost(model, ensemble.AdaBoostRegressor):
        return _ada_median(model, method, read)
    if _is_ada_boost(model, ensemble.AdaBoostClassifier):
        return _ada_votes(model, method, read)
    if _is_voting(model):
        return _voting(model, method, read)
    if _is_bagging(model):
        return _bagging(model, method, read)
    if _is_several(model):
        return _several(model, method, read)
    if is_gradient_boosting(model) and not hasattr(model, "classes_"):
        return _boosted_on(model, method, read)
    return None


def _is_voting(model: object) -> TypeGuard[Voting]:
    from sklearn import ensemble

    return type(model) is ensemble.VotingRegressor


def _is_bagging(model: object) -> TypeGuard[Bagging]:
    from sklearn import ensemble

    return type(model) in (ensemble.BaggingRegressor, ensemble.BaggingClassifier)


def _is_ada_boost(model: object, kind: type) -> TypeGuard[AdaBoost]:
    return type(model) is kind and inherits(model, ("_get_median_predict", "_check_X"), "sklearn")


def _is_several(model: object) -> TypeGuard[Several]:
    from sklearn import multioutput

    return type(model) is multioutput.MultiOutputRegressor


def _several(model: Several, method: str, read: Read) -> Ensemble | None:
    """One model for each output."""
    members = [_member(one, method, read) for one in model.estimators_]
    finish = regression(method, len(members))
    return None if finish is None else added(_apart(members), finish, members[0].n_features)


def _apart(members: Sequence[Ensemble]) -> list[Part]:
    """Each with a raw output of its own."""
    outputs = len(members)
    return [
        Part(
            dataclasses.replace(
                one, value=in_column(one.value[:, 0], k, outputs), offset=in_column(one.offset, k, outputs)[0]
            ),
            1.0,
        )
        for k, one in enumerate(members)
    ]


def _ada_median(model: AdaBoost, method: str, read: Read) -> Ensemble | None:
    """A weighted median of what the members predict."""
    if method != "predict":
        return None
    members = [_member(one, method, read) for one in model.estimators_]
    finish = Finish(output="median", weights=tuple(model.estimator_weights_[: len(members)].tolist()))
    return added(_apart(members), finish, model.n_features_in_)


def _ada_votes(model: AdaBoost, method: str, read: Read) -> Ensemble | None:
    """Votes for the class that a member predicts, and against the others."""
    classes, weights = np.asarray(model.classes_), model.estimator_weights_[: len(model.estimators_)]
    several = len(classes) > 2
    share = 1.0 / (len(classes) - 1) if len(classes) > 1 else 1.0
    link: Link = "softmax" if several else "logistic"
    finish = classification(method, len(classes) if several else 1, classes, link, share, Cut(0.0, False))
    if finish is None:
        return None
    parts = []
    for one, weight in zip(model.estimators_, weights / model.estimator_weights_.sum(), strict=True):
        tree = _member(one, "predict_proba", read, "columns")
        if len(tree.roots) > 1:
            raise NotRead(f"its members {type(one).__name__[:40]} are not single trees")
        label = np.asarray(one.classes_)[np.argmax(tree.value, axis=1)]
        votes = np.where(label[:, None] == classes, weight, -share * weight)
        votes = votes if several else votes[:, 1:] - votes[:, :1]
        votes[tree.feature >= 0] = 0.0
        parts.append(Part(dataclasses.replace(tree, value=votes, offset=np.zeros(votes.shape[1])), 1.0))
    return added(parts, finish, model.n_features_in_)


def _voting(model: Voting, method: str, read: Read) -> Ensemble | None:
    weights = [1.0] * len(model.estimators_) if model._weights_not_none is None else model._weights_not_none
    members = [_member(one, method, read) for one in model.estimators_]
    total = float(np.sum(weights))
    parts = [Part(one, float(weight) / total) for one, weight in zip(members, weights, strict=True)]
    return added(parts, Finish(), members[0].n_features)


def _bagging(model: Bagging, method: str, read: Read) -> Ensemble | None:
    labels = getattr(model, "classes_", None)
    finish: Finish | None = Finish(scale=1.0 / len(model.estimators_))
    asked = method if labels is None else "predict_proba"
    if labels is not None:
        if method == "decision_function" or any(len(one.classes_) != len(labels) for one in model.estimators_):
            raise NotRead("some of its members have seen fewer classes than others")
        finish = classification(method, len(labels), labels, "identity", 1.0 / len(model.estimators_))
    if finish is None:
        return None
    members = [_member(one, asked, read, finish.output) for one in model.estimators_]
    if labels is not None and any(one.finish.scale != 1.0 for one in members):
        raise NotRead("its members are forests, whose shares of classes are rounded before they are added")
    columns = [np.asarray(some, dtype=np.int64) for some in model.estimators_features_]
    return added(
        [Part(one, 1.0, some) for one, some in zip(members, columns, strict=True)], finish, model.n_features_in_
    )


def _boosted_on(model: GradientBoosting, method: str, read: Read) -> Ensemble | None:
    """Gradient boosting that begins with another model, which gets rows of float32 as its trees do."""
    own = boosted_trees(model, method, 0.0)
    if own is None or own.finish.link != "identity":
        return None
    first = dataclasses.replace(_member(model.init_, "predict", read), compared_in="float32")
    return added([Part(first, 1.0), Part(own, 1.0)], Finish(), own.n_features)


def _member(model: object, method: str, read: Read, output: str = "flat") -> Ensemble:
    """One whose predictions are its raw outputs but for a factor, so that they can be added up."""
    found = read(model, method)
    if isinstance(found, str):
        raise NotRead(f"its member {type(model).__name__[:40]} is no ensemble of trees that can be read")
    wanted = ("flat",) if output == "flat" else ("columns",)
    if found.finish.link != "identity" or found.finish.output not in wanted:
        raise NotRead(f"its member {type(model).__name__[:40]} predicts no sum of its trees")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Sums


def added(parts: Sequence[Part], finish: Finish, n_features: int) -> Ensemble:
    """One ensemble whose raw outputs are the sums of what the parts predict."""
    narrow = all(part.ensemble.compared_in == "float32" for part in parts)
    nodes = np.cumsum([0, *(len(part.ensemble.feature) for part in parts)])[:-1]
    splits = np.cumsum([0, *(len(part.ensemble.categories) for part in parts)])[:-1]
    ensembles = [part.ensemble for part in parts]
    times = [part.times * part.ensemble.finish.scale for part in parts]

    def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays)

    return Ensemble(
        feature=joined([_columns(part) for part in parts]),
        threshold=joined([one.threshold if narrow else _doubled(one) for one in ensembles]),
        left=joined([one.left + start for one, start in zip(ensembles, nodes, strict=True)]),
        right=joined([one.right + start for one, start in zip(ensembles, nodes, strict=True)]),
        missing_left=joined([one.missing_left for one in ensembles]),
        category=joined(
            [np.where(one.category < 0, -1, one.category + k) for one, k in zip(ensembles, splits, strict=True)]
        ),
        categories=tuple(split for one in ensembles for split in one.categories),
        value=joined([one.value * factor for one, factor in zip(ensembles, times, strict=True)]),
        roots=joined([one.roots + start for one, start in zip(ensembles, nodes, strict=True)]),
        offset=np.sum([one.offset * factor for one, factor in zip(ensembles, times, strict=True)], axis=0),
        compared_in="float32" if narrow else "float64",
        finish=finish,
        n_features=int(n_features),
        precision=max(one.precision for one in ensembles),
    )


def _columns(part: Part) -> Ints:
    feature = part.ensemble.feature
    return feature if part.columns is None else np.where(feature < 0, -1, part.columns[np.maximum(feature, 0)])


def _doubled(ensemble: Ensemble) -> Floats:
    """Thresholds that doubles are compared with, as their nearest float32 is with the thresholds of the ensemble."""
    if ensemble.compared_in == "float64":
        return ensemble.threshold
    if np.any(ensemble.category >= 0):
        raise NotRead("its members round numbers to different precisions, and one of them has categories")
    below = rounded_down(ensemble.threshold)
    with np.errstate(over="ignore"):
        above = np.nextafter(below, np.float32(np.inf))
    middle = 0.5 * (below.astype(np.float64) + above.astype(np.float64))
    # Half-way between two of them a double goes to the even one.
    even = below.view(np.int32) % 2 == 0
    found = np.where(even, middle, np.nextafter(middle, -np.inf))
    return np.asarray(np.where(np.isfinite(middle), found, ensemble.threshold), dtype=np.float64)
