"""Bagged ensembles as they are: their members, the rows each was fitted on, and what each answers.

Members that are scikit-learn's trees are asked for leaves, without the checks of each call; and from the features on
the way to a leaf it is known which replaced values cannot matter.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance._core.words import shown
from reliance.models.calling import Model, name_of
from reliance.models.libraries import SklearnTree, TreeEstimator
from reliance.models.untouched import inherits


@dataclass(frozen=True, eq=False)
class Member:
    """One model of a bag.

    Attributes
    ----------
    estimator : object
    columns : integer array or None
        The columns it takes; None: all.
    method : str
        What it is asked for.
    classes, places : arrays or None
        Of a classifier: the classes of the bag, and where the member's own stand among them.
    encoded : bool
        Whether its labels are positions among the classes of the bag.
    tree : object or None
        The nodes, if it is one of scikit-learn's trees.
    leaves : array (nodes, ...) or None
        What a tree answers at each of its nodes.
    """

    estimator: TreeEstimator
    columns: Indices | None
    method: str
    classes: HostArray | None = None
    places: Indices | None = None
    encoded: bool = False
    tree: SklearnTree | None = None
    leaves: HostArray | None = None

    @property
    def nodes(self) -> SklearnTree:
        """Those of a member that is a tree."""
        assert self.tree is not None
        return self.tree

    def seen(self, rows: HostArray) -> HostArray:
        """The columns of the rows that it takes."""
        return rows if self.columns is None else rows[:, self.columns]

    def leaf(self, rows: HostArray) -> Indices:
        """The node of the tree that each row ends in. scikit-learn's trees compare in float32."""
        return np.asarray(self.nodes.apply(self.seen(rows).astype(np.float32, copy=False)))

    def at_leaf(self, leaf: Indices) -> HostArray:
        assert self.leaves is not None
        return self.leaves[leaf]

    def answer(self, rows: HostArray) -> HostArray:
        if self.leaves is not None:
            return self.at_leaf(self.leaf(rows))
        return _in_places(self, np.asarray(getattr(self.estimator, self.method)(self.seen(rows))))


@dataclass(frozen=True, eq=False)
class Bag:
    """The members of an ensemble, and for each the rows of X that it was fitted on.

    ``of_trees``: all members are trees. ``dtype``: what the members take; ``working``: that of the blocks.
    """

    source: object
    members: tuple[Member, ...]
    samples: tuple[Indices, ...]
    classes: HostArray | None
    of_trees: bool
    dtype: np.dtype[np.generic]
    working: np.dtype[np.generic]

    def rows(self, block: HostArray) -> HostArray:
        """What the members are given of a block."""
        return block[:, :-1].astype(self.dtype, copy=False)

    def predict(self, block: HostArray) -> HostArray:
        """The answers to a block whose last column says which member is asked, its rows in the order of the members."""
        asked = block[:, -1]
        starts = np.flatnonzero(np.diff(asked, prepend=-1.0))
        rows = self.rows(block)
        found = [
            self.members[int(asked[start])].answer(rows[start:stop])
            for start, stop in zip(starts, np.append(starts[1:], len(asked)), strict=True)
        ]
        return np.concatenate(found)


def read_bag(model: Model, X: HostArray) -> Bag:
    """The bag behind a fitted ensemble, as the losses ask for it."""
    forest, method = model.source, model.method or "predict"
    name = name_of(forest)
    if model.parts is not None:
        raise ValueError(
            f"these losses need several methods of the members of forest={name} ({', '.join(model.parts)}): measure "
            "them in separate calls"
        )
    members = getattr(forest, "estimators_", None)
    if members is None and not _is_fitted(forest):
        raise ValueError(f"forest={name} is not fitted: call its fit(X, y) first")
    if members is None and hasattr(forest, "fit"):
        raise TypeError(
            f"forest={name} is one model, not a bag of members: pass a fitted RandomForest*, "
            "ExtraTrees*(bootstrap=True) or Bagging*, of a pipeline the forest in it; or use permutation_importance on "
            "rows that it was not fitted on"
        )
    fitted_on = None if isinstance(members, np.ndarray) or members is None else _sampled(forest)
    if members is None or fitted_on is None:
        raise TypeError(
            f"forest={name} does not say which rows each of its members was fitted on: pass a fitted RandomForest*, "
            "ExtraTrees*(bootstrap=True) or Bagging* of scikit-learn, or an object with predict, estimators_ and "
            "estimators_samples_"
        )
    columns = _checked_columns(forest, len(members), X)
    samples = _checked_samples(forest, fitted_on, len(members), X)
    classes = getattr(forest, "classes_", None)
    if isinstance(classes, list):
        raise ValueError(f"forest={name} has several outputs with classes of their own: fit one forest for each")
    classes = None if classes is None else np.asarray(classes)
    read = tuple(_member(forest, one, own, method, classes) for one, own in zip(members, columns, strict=True))
    of_trees = all(member.leaves is not None for member in read)
    dtype: np.dtype[np.generic] = np.dtype(np.float32) if of_trees else X.dtype
    working: np.dtype[np.generic] = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return Bag(forest, read, samples, classes, of_trees, dtype, working)


def _is_fitted(forest: object) -> bool:
    """What scikit-learn says of its estimators, and of those that look like one."""
    if "sklearn" not in sys.modules or not hasattr(forest, "fit") or not hasattr(forest, "get_params"):
        return not hasattr(forest, "fit")
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(forest)
    except NotFittedError:
        return False
    return True


def _checked_columns(forest: object, count: int, X: HostArray) -> list[Indices | None]:
    width = getattr(forest, "n_features_in_", X.shape[1])
    if X.ndim != 2 or X.shape[1] != width:
        raise ValueError(
            f"X has shape {X.shape} but forest={name_of(forest)} was fitted on {width} features: pass the X that it "
            "was fitted on"
        )
    given = getattr(forest, "estimators_features_", None)
    if given is None:
        return [None] * count
    whole = np.arange(width)
    return [None if np.array_equal(own, whole) else np.asarray(own, dtype=np.int64) for own in given]


def _sampled(forest: object) -> tuple[Indices, ...] | None:
    """The rows that each member was fitted on; None if the ensemble does not say. scikit-learn draws them once more."""
    found = getattr(forest, "estimators_samples_", None)
    return None if found is None else tuple(np.asarray(rows, dtype=np.int64) for rows in found)


def _checked_samples(forest: object, samples: tuple[Indices, ...], count: int, X: HostArray) -> tuple[Indices, ...]:
    if len(samples) != count:
        raise ValueError(
            f"forest={name_of(forest)} has {count} estimators_ but {len(samples)} estimators_samples_: fit it again"
        )
    fitted = getattr(forest, "_n_samples", None)
    least = 1 + max((int(rows.max()) for rows in samples if rows.size), default=-1)
    if len(X) < least or (fitted is not None and len(X) != fitted):
        rows = f"at least {least}" if fitted is None else str(fitted)
        raise ValueError(
            f"X has {len(X)} rows but forest={name_of(forest)} was fitted on {rows}: pass the X and y that it was "
            "fitted on, in the same order, because out-of-bag rows are known for those only"
        )
    return samples


def _member(
    forest: object, estimator: TreeEstimator, columns: Indices | None, method: str, classes: HostArray | None
) -> Member:
    if not hasattr(estimator, method):
        raise TypeError(
            f"the members of forest={name_of(forest)}, {name_of(estimator)}, have no {method}, which the loss needs: "
            "choose another loss, such as 'zero_one' for labels"
        )
    member = Member(estimator, columns, method)
    if classes is not None:
        encoded = _encodes(forest)
        member = replace(member, classes=classes, places=_places(forest, estimator, classes), encoded=encoded)
    kind = _tree_kind(estimator)
    if kind is None or (kind == "classifier") != (classes is not None):
        return member
    value = estimator.tree_.value
    if kind == "regressor":
        raw = value[:, :, 0] if estimator.n_outputs_ > 1 else value[:, 0, 0]
    else:
        shares = value[:, 0, : estimator.n_classes_]
        raw = shares if method == "predict_proba" else estimator.classes_[np.argmax(shares, axis=1)]
    return replace(member, tree=estimator.tree_, leaves=np.ascontiguousarray(_in_places(member, raw)))


def _tree_kind(estimator: TreeEstimator) -> str | None:
    """What kind of tree of scikit-learn it is, exactly: a subclass, or one that was patched, may predict otherwise."""
    if "sklearn" not in sys.modules:
        return None
    from sklearn import tree

    if not inherits(estimator, ("predict", "predict_proba", "apply"), "sklearn"):
        return None
    if type(estimator) in (tree.DecisionTreeRegressor, tree.ExtraTreeRegressor):
        return "regressor"
    one_label = type(estimator) in (tree.DecisionTreeClassifier, tree.ExtraTreeClassifier) and estimator.n_outputs_ == 1
    return "classifier" if one_label else None


def _encodes(forest: object) -> bool:
    """Whether the members were fitted on the positions of labels among the ensemble's classes: scikit-learn's are."""
    if "sklearn" not in sys.modules:
        return False
    from sklearn import ensemble

    known = ensemble.BaggingClassifier | ensemble.RandomForestClassifier | ensemble.ExtraTreesClassifier
    return isinstance(forest, known)


def _places(forest: object, estimator: object, classes: HostArray) -> Indices:
    own = np.asarray(getattr(estimator, "classes_", np.arange(len(classes)) if _encodes(forest) else classes))
    if _encodes(forest):
        return own.astype(np.int64)
    places = np.searchsorted(classes, own)
    if not np.array_equal(classes[np.minimum(places, len(classes) - 1)], own):
        raise ValueError(
            f"a member of forest={name_of(forest)} has the classes {shown(own.tolist())}, which are not all among the "
            f"ensemble's classes_ {shown(classes.tolist())}: sort classes_, and let it hold every label"
        )
    return places.astype(np.int64)


def _in_places(member: Member, raw: HostArray) -> HostArray:
    """A member's labels as the bag's, and its probabilities in the bag's order; 0 for classes that it never saw."""
    places, classes = member.places, member.classes
    if places is None or classes is None:
        return raw
    if member.method == "predict":
        return classes[raw.astype(np.int64)] if member.encoded else raw
    if len(places) == len(classes) and np.array_equal(places, np.arange(len(classes))):
        return raw
    if member.method != "predict_proba":
        raise ValueError(
            f"a member was fitted on the classes {shown(classes[places].tolist())} only, so its {member.method} cannot "
            "be compared: choose loss='log_loss' or 'zero_one'"
        )
    shares = np.zeros((len(raw), len(classes)))
    shares[:, places] = raw
    return shares
