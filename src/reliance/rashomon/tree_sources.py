"""Where the trees of a class come from: a search over sparse trees, fitted trees, or trees that ArborEnum has found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.data.rows import Rows
from reliance.engine import known_models
from reliance.engine.evaluation import evaluating
from reliance.engine.problems import Problem, assembled
from reliance.losses import functions
from reliance.losses.functions import Loss
from reliance.models import adapting
from reliance.models.ensembles import Ensemble, Finish, agrees
from reliance.rashomon.tree_cuts import Tests
from reliance.rashomon.tree_paths import Path, TreePaths
from reliance.rashomon.tree_search import Leaf, Node

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trees:
    """M trees on given rows.

    Attributes
    ----------
    paths : TreePaths
    predictions : array (V, ...)
        What the V different values of leaves are as predictions.
    loss : Loss
    target : array (n,)
    model : callable
        The tree at a place, as a function of batches.
    """

    paths: TreePaths
    predictions: HostArray
    loss: Loss
    target: HostArray
    model: Callable[[int], Callable[[Array], Array]]

    @property
    def leaves(self) -> Ints:
        """(M,): how many each tree has."""
        return np.asarray(self.paths.trees.sum(axis=1)).astype(np.int64)

    def losses(self, values: Ints) -> Floats:
        """(V', n): every row's loss if it reached a leaf of a value."""
        n, many = len(self.target), len(values)
        rows = np.repeat(self.predictions[values], n, axis=0)
        found = functions.row_losses(self.loss, np.concatenate([self.target] * many), rows)
        table = np.asarray(arrays.to_host(found), dtype=np.float64).reshape(many, n)
        if not np.isfinite(table).all():
            raise ValueError(f"loss={shown(self.loss.name)} is NaN or infinite for some labels and values of leaves")
        return table


class Walk(Protocol):
    """The leaves of a tree, each with its path and the key of its value."""

    def __call__(self) -> Iterator[tuple[Path, object]]: ...


def gathered(columns: Ints, left: NDArray[np.bool_], walks: Sequence[Walk]) -> tuple[TreePaths, list[object]]:
    """The paths of trees, leaves that several have once, and the keys of their values."""
    values: dict[object, int] = {}
    leaves: dict[tuple[Path, int], int] = {}
    own: list[int] = []
    ends = [0]
    for walk in walks:
        for path, value in walk():
            own.append(leaves.setdefault((path, values.setdefault(value, len(values))), len(leaves)))
        ends.append(len(own))
    trees = sparse.csr_array((np.ones(len(own)), own, ends), shape=(len(walks), len(leaves)))
    known = np.array([value for _, value in leaves], dtype=np.int64)
    return TreePaths(columns, left, tuple(path for path, _ in leaves), known, trees), list(values)


# ---------------------------------------------------------------------------------------------------------------------
# Trees of nodes


def of_nodes(tests: Tests, X: Floats, nodes: Sequence[Node], finish: Finish, loss: Loss, y: HostArray) -> Trees:
    """Trees over tests of single columns."""
    paths, values = gathered(tests.columns, tests.left(X), [_Nodes(tree) for tree in nodes])
    raw = np.asarray(values, dtype=np.float64)
    predictions = arrays.to_host(finish(raw))
    return Trees(paths, predictions, loss, y, lambda k: ensemble_of(nodes[k], tests, finish, X.shape[1]))


@dataclass(frozen=True, eq=False)
class _Nodes:
    tree: Node

    def __call__(self) -> Iterator[tuple[Path, object]]:
        stack: list[tuple[Node, Path]] = [(self.tree, ())]
        while stack:
            node, path = stack.pop()
            if isinstance(node, Leaf):
                yield tuple(sorted(set(path))), node.value
            else:
                stack += [(node.right, (*path, -node.test - 1)), (node.left, (*path, node.test + 1))]


def ensemble_of(tree: Node, tests: Tests, finish: Finish, columns: int) -> Ensemble:
    """A tree as a model of any array."""
    nodes, children = [tree], [(0, 0)]
    for place, node in enumerate(nodes):  # grows
        if not isinstance(node, Leaf):
            children[place] = (len(nodes), len(nodes) + 1)
            nodes += [node.left, node.right]
            children += [(0, 0), (0, 0)]
    inner = np.array([not isinstance(node, Leaf) for node in nodes])
    test = np.array([0 if isinstance(node, Leaf) else node.test for node in nodes])
    width = next(len(node.value) for node in nodes if isinstance(node, Leaf))
    value = np.array([node.value if isinstance(node, Leaf) else (0.0,) * width for node in nodes])
    own = np.arange(len(nodes))
    left, right = (np.where(inner, [pair[k] for pair in children], own) for k in (0, 1))
    return Ensemble(
        feature=np.where(inner, tests.columns[test], -1),
        threshold=np.where(inner, tests.points[test], 0.0),
        left=left,
        right=right,
        missing_left=np.zeros(len(nodes), dtype=bool),
        category=np.full(len(nodes), -1),
        categories=(),
        value=value,
        roots=np.array([0]),
        offset=np.zeros(width),
        compared_in="float64",
        finish=finish,
        n_features=columns,
        precision=float(np.finfo(np.float64).eps),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Fitted trees


def of_fitted(models: Mapping[str, object], rows: Rows, loss: Loss, key: int, memory: int) -> Trees:
    """Single trees that a library has fitted, read and compared with their own predictions."""
    known = _Known([], [], {}, arrays.to_host(rows.numbers("TreeClass")).astype(np.float64))
    walks, targets = [], []
    predictions: dict[bytes, HostArray] = {}
    for name, model in models.items():
        read, target = _read(name, model, rows, loss, key, memory)
        targets.append(target)
        if not np.array_equal(target, targets[0]):
            raise ValueError(f"{shown(name)} was fitted to other classes than the first tree: fit all to the same y")
        walks.append(_Leaves(list(_fitted_leaves(read, known, predictions))))
    paths, values = gathered(np.asarray(known.columns), np.asarray(known.left), walks)
    table = np.concatenate([predictions[value] for value in values if isinstance(value, bytes)])
    sources = list(models.values())
    return Trees(paths, table, loss, targets[0], lambda k: _call(sources[k], loss))


def _call(model: object, loss: Loss) -> Callable[[Array], Array]:
    return model if callable(model) else adapting.adapt(model, [loss]).predict


def _read(name: str, model: object, rows: Rows, loss: Loss, key: int, memory: int) -> tuple[Ensemble, HostArray]:
    """The tree, and the labels as its loss takes them."""
    turned = np.stack([np.roll(column, j + 1) for j, column in enumerate(arrays.to_host(rows.flat).T)], axis=1)
    replaced = arrays.from_host(turned, rows.xp, arrays.device(rows.flat), rows.flat.dtype)
    found, target = _checked(name, assembled(model, rows, (loss,), key=key, memory=memory))
    _checked(name, assembled(model, replace(rows, flat=replaced), (loss,), key=key, memory=memory))
    return found, target


def _checked(name: str, problem: Problem) -> tuple[Ensemble, HostArray]:
    """An error if the model is no single tree, or predicts something else than the tree that was read."""
    read = known_models.ensemble(problem)
    if read is None or len(read.roots) != 1:
        raise TypeError(
            f"{shown(name)} is a {type(problem.model.source).__name__}, not a single fitted tree that can be read: "
            "pass trees of scikit-learn, or the models to FiniteClass"
        )
    with evaluating(problem) as evaluation:
        predicted, target = evaluation.base.predictions, evaluation.base.targets[0]
    if not agrees(read, arrays.to_host(read(problem.flat)), arrays.to_host(predicted)):
        raise ValueError(f"the tree that was read from {shown(name)} predicts something else: use FiniteClass")
    return read, arrays.to_host(target)


@dataclass(frozen=True, eq=False)
class _Known:
    """The tests that trees share."""

    columns: list[int]
    left: list[NDArray[np.bool_]]
    places: dict[tuple[object, ...], int]
    X: Floats

    def place(self, tree: Ensemble, node: int) -> int:
        column = int(tree.feature[node])
        flags = tree.decide(np.array([node]), self.X[:, column])[0]
        key = (column, np.packbits(flags).tobytes())
        if key not in self.places:
            self.places[key] = len(self.columns)
            self.columns.append(column)
            self.left.append(flags)
        return self.places[key]


def _fitted_leaves(tree: Ensemble, known: _Known, predictions: dict[bytes, HostArray]) -> Iterator[tuple[Path, object]]:
    """The leaves of a tree; what is new in them is added to the tests and to the predictions."""
    stack: list[tuple[int, Path]] = [(int(tree.roots[0]), ())]
    while stack:
        node, path = stack.pop()
        if tree.feature[node] < 0:
            predicted = arrays.to_host(tree.finish(tree.value[node][None, :] + tree.offset))
            predictions.setdefault(predicted.tobytes(), predicted)
            yield tuple(sorted(set(path))), predicted.tobytes()
        else:
            test = known.place(tree, node) + 1
            stack += [(int(tree.right[node]), (*path, -test)), (int(tree.left[node]), (*path, test))]


@dataclass(frozen=True, eq=False)
class _Leaves:
    leaves: list[tuple[Path, object]]

    def __call__(self) -> Iterator[tuple[Path, object]]:
        return iter(self.leaves)
