"""Trees that ArborEnum has enumerated, read as paths and compared with its own predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.models.ensembles import Finish
from reliance.rashomon.tree_cuts import Tests
from reliance.rashomon.tree_search import Leaf, Node, Split

Floats = NDArray[np.float64]
_COMPARED = 200  # trees whose predictions are compared, evenly spaced


class ArborEnum(Protocol):
    """What is read of a fitted ``arborenum.ArborEnum``."""

    binary_feature_specs_: Sequence[Mapping[str, float]] | None
    continuous_feature_indices_: Sequence[int] | None
    n_features_in_: int

    def count_trees(self) -> int: ...
    def get_tree_paths(self, tree_index: int) -> tuple[list[list[int]], Sequence[int]]: ...
    def get_continuous_cutpoints(self, continuous_group: int) -> Floats: ...
    def get_predictions(self, tree_index: int, X: HostArray) -> HostArray: ...


def is_arborenum(model: object) -> TypeGuard[ArborEnum]:
    return type(model).__module__.partition(".")[0] == "arborenum" and hasattr(model, "get_tree_paths")


def read(fitted: ArborEnum, X: Floats) -> tuple[Tests, list[Node], Finish]:
    """Tests, trees, and how leaves become labels."""
    if fitted.binary_feature_specs_ is None or fitted.continuous_feature_indices_ is None:
        raise ValueError("the ArborEnum was not fitted by fit(X, y, ...), so its columns are not known: call fit")
    if fitted.n_features_in_ != X.shape[1]:
        raise ValueError(f"the ArborEnum was fitted on {fitted.n_features_in_} columns, but X has {X.shape[1]}")
    columns = [int(spec["original_feature"]) for spec in fitted.binary_feature_specs_]
    points = [float(spec["cutpoint"]) for spec in fitted.binary_feature_specs_]
    for group, column in enumerate(fitted.continuous_feature_indices_):
        own = np.asarray(fitted.get_continuous_cutpoints(group), dtype=np.float64)
        columns += [int(column)] * len(own)
        points += own.tolist()
    tests = Tests(np.asarray(columns, dtype=np.int64), np.asarray(points))
    listed = [fitted.get_tree_paths(k) for k in range(fitted.count_trees())]
    if not listed:
        raise ValueError("the ArborEnum has found no trees: fit it with a larger rashomon_mult")
    if any(min(labels) < 0 for _, labels in listed):
        raise ValueError("some leaves of the ArborEnum defer to another model: fit it with use_deferral=False")
    many = 1 + max(int(max(labels)) for _, labels in listed)
    trees = [_tree([(tuple(path), int(label)) for path, label in zip(*one, strict=True)], many) for one in listed]
    _compare(fitted, X, tests, trees)
    return tests, trees, Finish(output="argmax", classes=tuple(range(many)))


def _tree(paths: Sequence[tuple[tuple[int, ...], int]], many: int) -> Node:
    """From the paths that are left below a node; +f is the left side of test f - 1."""
    path, label = paths[0]
    if not path:
        return Leaf(tuple(np.eye(many)[label].tolist()))
    test = abs(path[0])
    left, right = ([(p[1:], value) for p, value in paths if p[0] == side] for side in (test, -test))
    return Split(test - 1, _tree(left, many), _tree(right, many))


def _compare(fitted: ArborEnum, X: Floats, tests: Tests, trees: Sequence[Node]) -> None:
    """Some trees on the rows as they are, and with columns of other rows."""
    turned = np.stack([np.roll(column, j + 1) for j, column in enumerate(X.T)], axis=1)
    for rows in (X, turned):
        left = tests.left(rows)
        for k in np.unique(np.linspace(0, len(trees) - 1, _COMPARED).astype(np.int64)).tolist():
            if not np.array_equal(_labels(trees[k], left), np.asarray(fitted.get_predictions(k, rows))):
                raise ValueError(f"tree {k} that was read from the ArborEnum predicts something else than it does")


def _labels(tree: Node, left: NDArray[np.bool_]) -> NDArray[np.int64]:
    if isinstance(tree, Leaf):
        return np.full(left.shape[1], int(np.argmax(tree.value)))
    return np.where(left[tree.test], _labels(tree.left, left), _labels(tree.right, left))
