"""What the trees of a bag tell: which rows a replaced feature can move, and whether X and y are those of the fit.

A row's prediction in a tree depends on the features that its own path tests, and on no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import to_host
from reliance._core.kinds import Array, HostArray
from reliance._core.streams import Indices
from reliance.models.calling import name_of
from reliance.refit.bagged import Bag, Member

Words = NDArray[np.uint64]
# Trees whose leaves are counted: five bags together hold 99% of the rows.
_CHECKED_TREES = 5
_MEANS = ("squared_error", "friedman_mse", "poisson")


def word_count(width: int) -> int:
    return (width + 63) // 64


def bits(columns: Sequence[int], width: int) -> Words:
    """``(words,)``: a set of columns, a bit each."""
    words = np.zeros(word_count(width), dtype=np.uint64)
    for column in columns:
        words[column // 64] |= np.uint64(1 << (column % 64))
    return words


class _Nodes(NamedTuple):
    """The nodes of some trees, one tree after the other; ``feature`` is negative at leaves."""

    roots: Indices
    feature: Indices
    threshold: NDArray[np.float64]
    left: Indices
    right: Indices
    missing_left: NDArray[np.bool_]


def _joined(members: Sequence[Member]) -> _Nodes:
    sizes = np.array([member.nodes.node_count for member in members])
    roots = np.cumsum(sizes) - sizes
    left, right = (
        np.concatenate([getattr(m.nodes, side) + root for m, root in zip(members, roots, strict=True)])
        for side in ("children_left", "children_right")
    )
    threshold = np.concatenate([member.nodes.threshold for member in members])
    missing = np.concatenate([member.nodes.missing_go_to_left for member in members]).astype(bool)
    return _Nodes(roots, np.concatenate([_tested(member) for member in members]), threshold, left, right, missing)


def walk(
    members: Sequence[Member], table: HostArray, tree: Indices, row: Indices, donor: Indices
) -> tuple[Indices, Words]:
    """Rows down their trees, a level at a time, with a look at what their donors' values would do there.

    Parameters
    ----------
    members : sequence of Member
        Trees.
    table : array (n, P + 1)
    tree, row, donor : integer arrays (M,), (M,), (M, K)
        Which of the trees, which row of the table, and its donors.

    Returns
    -------
    leaf : integer array (M,)
        The number of the row's leaf within its tree.
    flips : array (M, K, words)
        The columns, a bit each, whose value the donor would send another way at a node of the row's own path: with any
        other column borrowed, the row ends in the same leaf.
    """
    nodes, (m, k), width = _joined(members), donor.shape, table.shape[1]
    flat, words = table.astype(np.float32, copy=False).reshape(-1), word_count(width - 1)
    has_missing = bool(np.isnan(flat).any())
    flips = np.zeros(m * k * words, dtype=np.uint64)
    leaf = np.empty(m, dtype=np.int64)
    # Of the rows that are not in a leaf yet: their number, where their own and their donors' values begin, their node.
    pair, own, lent, node = np.arange(m), row * width, np.ascontiguousarray(donor.T * width), nodes.roots.take(tree)
    while True:
        feature = nodes.feature.take(node)
        inside = feature >= 0
        if not inside.all():
            ended = ~inside
            leaf[pair[ended]] = node[ended]
            kept = np.flatnonzero(inside)
            pair, own, lent = pair.take(kept), own.take(kept), lent.take(kept, axis=1)
            node, feature = node.take(kept), feature.take(kept)
        if not pair.size:
            return leaf - nodes.roots.take(tree), flips.reshape(m, k, words)
        threshold = nodes.threshold.take(node)
        missing = nodes.missing_left.take(node) if has_missing else None
        to_left = _goes_left(flat.take(own + feature), threshold, missing)
        for draw in range(k):
            other = _goes_left(flat.take(lent[draw] + feature), threshold, missing)
            hit = np.flatnonzero(to_left != other)
            column = feature.take(hit)
            place = (pair.take(hit) * k + draw) * words + column // 64
            flips[place] |= np.left_shift(np.uint64(1), (column % 64).astype(np.uint64))
        node = np.where(to_left, nodes.left.take(node), nodes.right.take(node))


def _goes_left(
    value: NDArray[np.float32], threshold: NDArray[np.float64], missing_left: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    left = np.asarray(value <= threshold)
    return left if missing_left is None else left | (np.isnan(value) & missing_left)


def differences(member: Member, own: HostArray, lent: HostArray) -> Words:
    """``(m, words)``: the columns that a member of any other kind takes and in which rows and donors differ."""
    width = own.shape[1]
    words = np.zeros((len(own), word_count(width)), dtype=np.uint64)
    for column in range(width) if member.columns is None else np.unique(member.columns).tolist():
        differs = (own[:, column] != lent[:, column]).astype(np.uint64)
        words[:, column // 64] |= np.left_shift(differs, np.uint64(column % 64))
    return words


def _tested(member: Member) -> Indices:
    """The column of X that each node tests; negative at leaves."""
    own: Indices = member.nodes.feature
    return own if member.columns is None else np.where(own >= 0, member.columns[own], -1)


def check_fitted_on(bag: Bag, X: HostArray, y: Array | None) -> None:
    """Raise if some of the trees were visibly fitted on other rows or labels; says nothing of what cannot be known."""
    remedy = "pass the X and y of the fit, in the same order, because out-of-bag rows are known for those only"
    checked = [(m, rows) for m, rows in zip(bag.members, bag.samples, strict=True) if m.tree is not None and rows.size]
    for member, samples in checked[:_CHECKED_TREES]:
        if not _counts_agree(member, samples, X):
            raise ValueError(
                f"X is not what forest={name_of(bag.source)} was fitted on: its rows do not fall into the leaves of "
                f"the trees as the training rows did; {remedy}"
            )
        if y is not None and not _labels_agree(bag, member, samples, to_host(y)):
            raise ValueError(
                f"y is not what forest={name_of(bag.source)} was fitted on: its mean over the rows of a tree is not "
                f"what the tree predicts at its root; {remedy}"
            )


def _counts_agree(member: Member, samples: Indices, X: HostArray) -> bool:
    """Whether the rows of a bag fall into the leaves as often as the tree says its training rows did."""
    tree, distinct = member.nodes, np.unique(samples)
    total = int(tree.n_node_samples[0])
    rows = {len(distinct): distinct, len(samples): samples}.get(
        total
    )  # a row drawn twice has weight 2, or is there twice
    if rows is None:  # rows of weight 0, which were left out
        return True
    found = np.bincount(member.leaf(X[rows]), minlength=tree.node_count)
    return bool(np.all(found[tree.children_left < 0] == tree.n_node_samples[tree.children_left < 0]))


def _labels_agree(bag: Bag, member: Member, samples: Indices, y: HostArray) -> bool:
    """Whether the root predicts the mean label of the bag, or its shares of classes; True where weights hide it."""
    tree, estimator = member.nodes, member.estimator
    if not np.isclose(tree.weighted_n_node_samples[0], len(samples), rtol=1e-12, atol=0.0):
        return True
    if bag.classes is None:
        if estimator.criterion not in _MEANS or y.dtype.kind not in "biuf":
            return True
        own, known = tree.value[0, :, 0], y[samples].reshape(len(samples), -1).astype(np.float64)
        return bool(np.allclose(own, known.mean(axis=0), rtol=1e-6, atol=1e-6 * np.abs(known).max()))
    weighted = getattr(bag.source, "class_weight", None) or estimator.class_weight
    if weighted is not None or member.places is None:
        return True
    shares = np.array([np.mean(y[samples] == label) for label in bag.classes[member.places]])
    return bool(np.allclose(tree.value[0, 0, : len(shares)], shares, rtol=0.0, atol=1e-6))
