"""What the readers of trees share: nodes one tree after the other, and how raw outputs become predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reliance._core.kinds import HostArray
from reliance.models.ensembles import Bools, Categories, Ensemble, Finish, Floats, Ints, Link, Output

_Float: TypeAlias = Literal["float32", "float64"]
# What predictions may go through.
METHODS = ("predict", "predict_proba", "decision_function", "inplace_predict", "_raw_predict")


class NotRead(Exception):
    """Why trees are not read, in a few words."""


class TreeNodes(NamedTuple):
    """One tree with its own node numbers, the root first; ``feature`` is negative at leaves."""

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools
    value: Floats  # (N, K)
    categories: Mapping[int, Categories] = {}  # of categorical splits, by node


def joined(
    trees: Sequence[TreeNodes],
    offset: ArrayLike,
    finish: Finish | None,
    n_features: int,
    compared_in: _Float,
    computed_in: str,
) -> Ensemble | None:
    """The trees one after the other."""
    if finish is None:
        return None
    sizes = np.array([tree.feature.size for tree in trees])
    roots = np.cumsum(sizes) - sizes
    dtypes: tuple[type[np.generic], ...] = (np.int64, np.float64, np.int64, np.int64, np.bool_, np.float64)
    feature, threshold, left, right, missing_left, value = (
        np.concatenate([tree[i] for tree in trees]).astype(dtype) for i, dtype in enumerate(dtypes)
    )
    inner, own, shift, size = feature >= 0, np.arange(feature.size), np.repeat(roots, sizes), np.repeat(sizes, sizes)
    outside = [inner & ((child <= 0) | (child >= size)) for child in (left, right)]
    if np.any(outside) or np.any(feature >= n_features) or not np.all(np.isfinite(value[~inner])):
        raise ValueError("a child outside its tree, a feature that does not exist, or a leaf without a value")
    splits = {root + at: c for root, tree in zip(roots, trees, strict=True) for at, c in tree.categories.items()}
    category = np.full(feature.size, -1)
    category[list(splits)] = np.arange(len(splits))
    return Ensemble(
        feature=np.where(inner, feature, -1),
        threshold=np.where(inner & (category < 0), threshold, 0.0),
        left=np.where(inner, left + shift, own),
        right=np.where(inner, right + shift, own),
        missing_left=inner & missing_left,
        category=category,
        categories=tuple(splits.values()),
        value=np.where(inner[:, None], 0.0, value),
        roots=roots,
        offset=np.broadcast_to(np.asarray(offset, dtype=np.float64).reshape(-1), value.shape[1:]).copy(),
        compared_in=compared_in,
        finish=finish,
        n_features=int(n_features),
        precision=float(np.finfo(computed_in).eps),
    )


def recoded(ensemble: Ensemble, column: int, own: Floats, seen: Floats) -> Ensemble:
    """The same trees for rows that hold ``own (v,)`` where the library sees ``seen (v,)``; others go the way of NaN."""
    nodes = np.flatnonzero(ensemble.feature == column)
    left = ensemble.decide(nodes, seen)
    category, threshold = ensemble.category.copy(), ensemble.threshold.copy()
    category[nodes] = len(ensemble.categories) + np.arange(len(nodes))
    threshold[nodes] = 0.0
    order = np.argsort(own)
    known = own[order]
    splits = tuple(Categories(known[goes[order]], known) for goes in left)
    return dataclasses.replace(
        ensemble, category=category, threshold=threshold, categories=(*ensemble.categories, *splits)
    )


def in_column(values: HostArray, column: int, columns: int) -> Floats:
    """(N, K): what the leaves of a tree for one of the outputs add."""
    table = np.zeros((len(values), columns))
    table[:, column] = values
    return table


def set_bits(words: NDArray[np.uint32]) -> Floats:
    """The numbers of the bits that are set in a sequence of 32-bit words."""
    words = np.asarray(words, dtype=np.uint32)
    return np.flatnonzero((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(np.float64)


def regression(method: str, columns: int, link: Link = "identity", scale: float = 1.0) -> Finish | None:
    return Finish(link, "flat" if columns == 1 else "columns", scale) if method == "predict" else None


class Cut(NamedTuple):
    """Where labels change in the raw outputs, and whether they change at that place already."""

    at: float
    included: bool


def classification(
    method: str, columns: int, classes: HostArray, link: Link, scale: float, raw_cut: Cut | None = None
) -> Finish | None:
    """``raw_cut``: if the library does not take labels from probabilities."""
    classes = np.asarray(classes)
    if classes.shape != (max(columns, 2),):
        return None
    if method == "decision_function":
        return Finish("identity", "flat" if columns == 1 else "columns")
    if method == "predict_proba":
        return Finish(link, "pair" if columns == 1 else "columns", scale)
    if classes.dtype.kind not in "biuf":  # arrays of other namespaces hold numbers
        return None
    output: Output = "threshold" if columns == 1 else "argmax"
    labels = tuple(classes.tolist())
    if raw_cut is None:
        return Finish(link, output, scale, labels)
    return Finish("identity", output, 1.0, labels, raw_cut.at, raw_cut.included)
