"""Tree ensembles as flat arrays: any library's trees, evaluated on any namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reliance._core import arrays, loops
from reliance._core.arrays import backend, index_dtype, namespace
from reliance._core.kinds import Array, Device, DType, HostArray, Namespace

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Link: TypeAlias = Literal["identity", "exp", "logistic", "softmax", "signed_square", "step"]
Output: TypeAlias = Literal["flat", "columns", "pair", "argmax", "threshold", "median"]

# How many (row, tree) pairs are followed at once: NumPy and torch are fastest on a CPU while all stays in its cache.
_CACHED_PAIRS, _PAIRS = 1 << 16, 1 << 22


@dataclass(frozen=True, eq=False)
class Categories:
    """What a categorical split does with a value."""

    left: Floats  # sorted: these go left
    known: Floats | None = None  # sorted: of these the others go right; what is outside goes where NaN goes. None: all
    whole: Literal["floor", "trunc"] | None = None  # how the value is made an integer before it is looked up


@dataclass(frozen=True)
class Finish:
    """How the K raw outputs of a row become its prediction: a pure array function (m, K) -> prediction.

    ``link`` is applied to ``scale * raw``. ``output`` is "flat": (m,) of one column; "columns": (m, K); "pair":
    (1 - p, p) of one column; "argmax": the one of ``classes`` with the largest column; "threshold": the second of two
    ``classes`` where the one column is above ``cut``, or equal to it if ``at_cut``; "median": the least column that
    has, with all smaller ones, half of the ``weights`` of the columns.
    """

    link: Link = "identity"
    output: Output = "flat"
    scale: float = 1.0
    classes: tuple[object, ...] = ()
    cut: float = 0.5
    at_cut: bool = False
    weights: tuple[float, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether predictions are labels, which are equal or not."""
        return self.output in ("argmax", "threshold") or self.link == "step"

    def __call__(self, raw: Array) -> Array:
        xp = namespace(raw)
        values = _linked(self.link, raw if self.scale == 1.0 else raw * self.scale)
        if self.output == "columns":
            return values
        if self.output == "flat":
            return values[:, 0]
        if self.output == "pair":
            return xp.stack([1.0 - values[:, 0], values[:, 0]], axis=1)
        if self.output == "median":
            return _weighted_median(values, _put(np.asarray(self.weights), xp, _place(raw), raw.dtype))
        if self.output == "argmax":
            chosen = xp.argmax(values, axis=1)
        else:
            above = values[:, 0] >= self.cut if self.at_cut else values[:, 0] > self.cut
            chosen = xp.astype(above, index_dtype(xp))
        labels = np.asarray(self.classes)
        dtype = {"b": None, "f": raw.dtype}.get(labels.dtype.kind, index_dtype(xp))
        return xp.take(_put(labels, xp, _place(raw), dtype), chosen, axis=0)


class _Coded(NamedTuple):
    """A categorical column: its values, and the same with NaN at the end."""

    column: int
    whole: Literal["floor", "trunc"] | None
    values: Array
    ended: Array


class _Splits(NamedTuple):
    """What categorical splits look up."""

    slot: Array
    base: Array
    answers: Array
    categorical: Array
    coded: list[_Coded]


class _Tables(NamedTuple):
    """The nodes as they are looked up, on the host or on a device."""

    feature: Array
    threshold: Array
    child: Array
    roots: Array
    value: Array
    offset: Array
    members: list[Array | None]
    missing_left: Array | None
    splits: _Splits | None


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees whose leaves are added up: N nodes, T trees and K raw outputs in one set of flat arrays.

    Examples
    --------
    >>> stump = Ensemble(
    ...     np.array([0, -1, -1]), np.array([0.5, 0, 0]), np.array([1, 1, 2]), np.array([2, 1, 2]),
    ...     np.array([True, False, False]), np.full(3, -1), (), np.array([[0.0], [10.0], [20.0]]), np.array([0]),
    ...     np.array([1.0]), "float64", Finish(), n_features=1, precision=2.2e-16,
    ... )
    >>> stump(np.array([[0.5], [0.6], [np.nan]])).tolist()
    [11.0, 21.0, 11.0]
    """

    feature: Ints  # (N,) the column that a node splits on, -1 at a leaf
    threshold: Floats  # (N,) at a numeric split x <= threshold goes left
    left: Ints  # (N,) numbers of nodes; the leaf itself at a leaf
    right: Ints
    missing_left: Bools  # (N,) whether NaN goes left
    category: Ints  # (N,) which of the categories decides, -1 at a numeric split
    categories: tuple[Categories, ...]
    value: Floats  # (N, K) what a leaf adds to the raw outputs; 0 at inner nodes
    roots: Ints  # (T,) increasing: the nodes of a tree follow its root
    offset: Floats  # (K,)
    compared_in: Literal["float32", "float64"]  # to what values are rounded before they are compared
    finish: Finish
    n_features: int
    precision: float  # relative, of the library's own predictions
    _placed: dict[tuple[Namespace, str, bool, bool], _Tables] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, X: Array) -> Array:
        return self.finish(self.raw(X))

    def raw(self, X: Array) -> Array:
        """The K raw outputs of each row, before ``finish``: (m, K) in the widest float of the device."""
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X has shape {tuple(X.shape)}: the trees were fitted on {self.n_features} columns")
        xp, dev = namespace(X), _place(X)
        cached = backend(xp) in ("numpy", "torch") and not arrays.is_accelerator(xp, dev)
        rows = max((_CACHED_PAIRS if cached else _PAIRS) // self.roots.size, 1)
        return self._follow(X) if X.shape[0] <= rows else loops.map_parts(self._follow, X, rows)

    def decide(self, nodes: Ints, values: Floats) -> Bools:
        """Which way each of the inner nodes sends each value: (q, v) on the host, True for left."""
        nodes = np.asarray(nodes)
        with np.errstate(over="ignore"):  # beyond float32 is infinite there, too
            values = np.asarray(values, dtype=np.float64).astype(self.compared_in).astype(np.float64)
        missing = np.isnan(values)
        left = values <= self.threshold[nodes, None]
        for place in np.flatnonzero(self.category[nodes] >= 0):
            split = self.categories[self.category[nodes[place]]]
            looked_up = values if split.whole is None else getattr(np, split.whole)(values)
            left[place] = np.isin(looked_up, split.left)
            if split.known is not None:
                outside = ~left[place] & ~np.isin(looked_up, split.known)
                left[place] |= outside & self.missing_left[nodes[place]]
        return np.where(missing, self.missing_left[nodes, None], left)

    @cached_property
    def depth(self) -> int:
        """Splits on the longest path."""
        level, steps = self.roots, 0
        while True:
            level = level[self.feature[level] >= 0]
            if not level.size:
                return steps
            level, steps = np.concatenate([self.left[level], self.right[level]]), steps + 1

    def _follow(self, X: Array) -> Array:
        """All rows through all trees, level by level; a leaf leads to itself."""
        xp, dev = namespace(X), _place(X)
        t = self._tables(X, xp, dev)
        m, trees = X.shape[0], self.roots.size
        x = xp.astype(X, t.threshold.dtype)
        entries, splits = xp.reshape(x, (-1,)), t.splits
        codes = None if splits is None else xp.reshape(_codes(x, splits.coded), (-1,))
        rows = xp.arange(m, dtype=index_dtype(xp), device=dev)[:, None]
        rows = xp.reshape(xp.broadcast_to(rows, (m, trees)), (-1,))
        node = xp.reshape(xp.broadcast_to(t.roots[None, :], (m, trees)), (-1,))

        def below(node: Array, _: object) -> Array:
            value = xp.take(entries, rows * self.n_features + xp.take(t.feature, node, axis=0), axis=0)
            left = value <= xp.take(t.threshold, node, axis=0)  # False for NaN
            if t.missing_left is not None:
                left = left | (xp.isnan(value) & xp.take(t.missing_left, node, axis=0))
            if codes is not None and splits is not None:
                code = xp.take(codes, rows * len(splits.coded) + xp.take(splits.slot, node, axis=0), axis=0)
                answer = xp.take(splits.answers, xp.take(splits.base, node, axis=0) + code, axis=0)
                left = xp.where(xp.take(splits.categorical, node, axis=0), answer, left)
            return xp.take(t.child, 2 * node + xp.astype(left, node.dtype), axis=0)

        if arrays.device(X) is None:  # traced: one compiled level, where fused ones take very long
            node = loops.fold(below, node, loops.stacked([(t.roots,)] * self.depth))
        else:
            for _ in range(self.depth):
                node = below(node, None)
        leaves, columns = xp.reshape(node, (m, trees)), []
        for k, members in enumerate(t.members):
            own = leaves if members is None else xp.take(leaves, members, axis=1)
            added = xp.take(t.value[k, :], xp.reshape(own, (-1,)), axis=0)
            columns.append(xp.sum(xp.reshape(added, tuple(own.shape)), axis=1))
        return xp.stack(columns, axis=1) + t.offset

    def _tables(self, X: Array, xp: Namespace, dev: Device) -> _Tables:
        """The nodes on the device of ``X``, uploaded once."""
        wide, traced = "float64" in arrays.real_dtypes(xp, dev), backend(xp) == "jax"
        narrow = self.compared_in == "float32" or not wide or X.dtype == xp.float32
        key = (xp, str(dev), narrow, wide)
        if key not in self._placed:
            host = self._host_tables(narrow, wide, flushes=traced)
            self._placed[key] = host if traced else _upload(host, xp, dev)
        # What is made while JAX traces must not outlive the trace: there they are constants, made anew.
        return _upload(self._placed[key], xp, dev) if traced else self._placed[key]

    def _host_tables(self, narrow: bool, wide: bool, flushes: bool) -> _Tables:
        """What `_follow` looks up, in NumPy; what no node needs is left out."""
        threshold = rounded_down(self.threshold) if narrow else self.threshold
        if flushes:
            tiny = np.finfo(threshold.dtype).tiny  # XLA takes subnormal numbers for 0, which must stay above "below 0"
            threshold = np.where((threshold < 0) & (threshold > -tiny), -tiny, threshold)
        sums = np.float64 if wide else np.float32
        adds = np.logical_or.reduceat(self.value != 0, self.roots, axis=0)  # (T, K): most add to one class only
        return _Tables(
            feature=np.maximum(self.feature, 0),
            threshold=threshold,
            child=np.stack([self.right, self.left], axis=1).reshape(-1),
            roots=self.roots,
            value=np.ascontiguousarray(self.value.T, dtype=sums),
            offset=self.offset.astype(sums),
            members=[None if column.all() else np.flatnonzero(column) for column in adds.T],
            missing_left=self.missing_left if self.missing_left.any() else None,
            splits=self._category_tables(narrow) if (self.category >= 0).any() else None,
        )

    def _category_tables(self, narrow: bool) -> _Splits:
        """For each categorical column its values, whose positions are codes; for each split the answer to each code."""
        slot, base, answers, coded, start = np.zeros_like(self.feature), np.zeros_like(self.feature), [], [], 0
        splits = np.flatnonzero(self.category >= 0)
        for place, column in enumerate(np.unique(self.feature[splits])):
            nodes = splits[self.feature[splits] == column]
            used = [self.categories[c] for c in np.unique(self.category[nodes])]
            values = np.unique(np.concatenate([part for c in used for part in (c.left, c.known) if part is not None]))
            if narrow:  # a value that is no float32 is equal to none
                values = values[values.astype(np.float32) == values]
            values = values if values.size else np.zeros(1)
            found = self.decide(nodes, np.concatenate([values, [np.inf, np.nan]]))
            slot[nodes], base[nodes] = place, start + np.arange(nodes.size) * found.shape[1]
            start += found.size
            answers.append(found.reshape(-1))
            values = values.astype(np.float32 if narrow else np.float64)
            coded.append(_Coded(int(column), used[0].whole, values, np.append(values, values.dtype.type(np.nan))))
        return _Splits(slot, base, np.concatenate(answers), self.category >= 0, coded)


def agrees(ensemble: Ensemble, own_predictions: ArrayLike, library_predictions: ArrayLike) -> bool:
    """Whether the trees as they were read predict what the library predicts: host arrays for the same rows."""
    own, library = np.asarray(own_predictions), np.asarray(library_predictions)
    if own.shape != library.shape:
        return False
    if ensemble.finish.exact:
        return bool(np.array_equal(own, library))
    scale = float(np.max(np.abs(library), initial=0.0))
    relative = _relative(ensemble, own)
    return bool(np.all(np.abs(own - library) <= relative * (np.abs(library) + scale)))


def settled(ensemble: Ensemble, raw: Floats) -> Bools:
    """(m,): for which rows rounding cannot change the label that raw outputs (m, K) on the host are turned into."""
    finish = ensemble.finish
    if not finish.exact:
        return np.ones(len(raw), dtype=bool)
    slack = _relative(ensemble, raw) * float(np.max(np.abs(raw), initial=0.0))
    if finish.output == "argmax":
        second, first = np.sort(raw, axis=1)[:, -2:].T
        return np.asarray(first - second > slack)
    values = arrays.to_host(_linked("identity" if finish.link == "step" else finish.link, raw * finish.scale))[:, 0]
    return np.asarray(np.abs(values - (0.0 if finish.link == "step" else finish.cut)) > slack)


def _relative(ensemble: Ensemble, own: Floats) -> float:
    """The library adds the trees in another order and perhaps in float32, so errors grow with their number."""
    precision = max(ensemble.precision, float(np.finfo(own.dtype).eps))
    return precision * float(32 + 4 * ensemble.roots.size**0.5)


def _linked(link: Link, raw: Array) -> Array:
    xp = namespace(raw)
    if link == "exp":
        return xp.exp(raw)
    if link == "logistic":
        small = xp.exp(-xp.abs(raw))  # never overflows
        return xp.where(raw >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
    if link == "softmax":
        powers = xp.exp(raw - xp.max(raw, axis=1, keepdims=True))
        return powers / xp.sum(powers, axis=1, keepdims=True)
    if link == "signed_square":
        return xp.sign(raw) * raw * raw
    return xp.astype(raw > 0, raw.dtype) if link == "step" else raw


def _weighted_median(values: Array, weights: Array) -> Array:
    """Of each row (m, K), as scikit-learn takes it."""
    xp = namespace(values)
    m, columns = values.shape
    order = xp.reshape(xp.argsort(values, axis=1), (-1,))
    share = xp.cumulative_sum(xp.reshape(xp.take(weights, order, axis=0), (m, columns)), axis=1)
    chosen = xp.argmax(xp.astype(share >= 0.5 * share[:, -1:], index_dtype(xp)), axis=1)
    rows = xp.arange(m, dtype=index_dtype(xp), device=_place(values))
    return xp.take(xp.reshape(xp.sort(values, axis=1), (-1,)), rows * columns + chosen, axis=0)


def _codes(x: Array, coded: list[_Coded]) -> Array:
    """(m, C): the position of each value among those of its column; after them come any other value and NaN."""
    xp = namespace(x)
    columns = []
    for column, whole, values, ended in coded:
        looked_up = x[:, column] + 0.0  # contiguous, which torch wants
        looked_up = looked_up if whole is None else xp.floor(looked_up) if whole == "floor" else xp.trunc(looked_up)
        place = xp.astype(xp.searchsorted(values, looked_up), index_dtype(xp))
        outside = xp.astype(xp.isnan(looked_up), place.dtype) + values.shape[0]
        columns.append(xp.where(xp.take(ended, place, axis=0) == looked_up, place, outside))
    return xp.stack(columns, axis=1)


def rounded_down(threshold: Floats) -> NDArray[np.float32]:
    """The largest float32 that is not above: ``x <= t`` stays what it is for every float32 x."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
        return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _place(x: Array) -> Device:
    """The device of an array; a traced array of JAX has none."""
    return None if backend(namespace(x)) == "jax" else arrays.device(x)


def _put(host: HostArray, xp: Namespace, dev: Device, dtype: DType | None = None) -> Array:
    return xp.asarray(host, dtype=dtype) if backend(xp) == "jax" else arrays.from_host(host, xp, dev, dtype)


def _upload(host: _Tables, xp: Namespace, dev: Device) -> _Tables:
    """Every array, integers in the dtype of indices."""

    def put(table: Array) -> Array:
        values = arrays.to_host(table)
        return _put(values, xp, dev, index_dtype(xp) if values.dtype.kind == "i" else None)

    splits = host.splits
    if splits is not None:
        coded = [_Coded(one.column, one.whole, put(one.values), put(one.ended)) for one in splits.coded]
        splits = _Splits(put(splits.slot), put(splits.base), put(splits.answers), put(splits.categorical), coded)
    return _Tables(
        feature=put(host.feature),
        threshold=put(host.threshold),
        child=put(host.child),
        roots=put(host.roots),
        value=put(host.value),
        offset=put(host.offset),
        members=[None if member is None else put(member) for member in host.members],
        missing_left=None if host.missing_left is None else put(host.missing_left),
        splits=splits,
    )
