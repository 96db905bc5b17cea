"""Samplers that take the value of a row whose given columns are like the row's own: `KNN` and `Leaves`.

The values are observed ones, so they suit any type of column: categories, counts, several modes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import (
    device,
    from_host,
    index_dtype,
    is_accelerator,
    is_array,
    namespace,
    sum_dtype,
    to_host,
)
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.samplers.draws import DonorDraws, Host, check_columns, take_columns

_CELLS = 2**21  # distances held at a time
# Coordinates up to which a k-d tree is faster than all distances.
_TREE_COLUMNS = 12
# Rows of a leaf. With 30 of 200 rows a feature changes much within a leaf, and a true null is rejected 10% of the time.
_FEWEST_MATES, _MOST_MATES = 10, 30


def _host_columns(X: Array, columns: tuple[int, ...]) -> Host:
    return to_host(take_columns(X, columns)).astype(np.float64)


def _check_width(X: Array, width: int) -> None:
    if len(X.shape) != 2 or X.shape[1] != width:
        raise ValueError(f"X has shape {tuple(X.shape)}, but the sampler was fitted on rows of {width} columns")
    if X.shape[0] < 2:
        raise ValueError(f"X has {X.shape[0]} rows: a donor must be another row, so give at least 2")


def _value_order(values: Host) -> NDArray[np.int64]:
    """``(n,)``: each row's place when rows are ordered by their values, column after column, ties by index."""
    order = np.lexsort(values.T[::-1])
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return place


# ---------------------------------------------------------------------------------------------------------------------
# Nearest neighbours


@dataclass(frozen=True)
class KNN:
    """Donors among the k nearest other rows.

    The squared distance of two rows is the sum over the given columns of ((x - x') / sd)^2, and of 2 for each
    categorical column in which they differ: what one-hot columns give, and as much as two rows differ on average in a
    standardised column. Ties go to the smaller index. On a CPU neighbours are found by a k-d tree, about O(n log n) for
    few columns; rows whose ties it cannot settle, and rows with many columns, by distances to all others, as on an
    accelerator: in chunks of rows, in the widest dtype of the device, O(n^2) time. O(n k) memory.

    A donor's value belongs to the donor's given columns, not to the row's, so the draws are the wider the farther
    the neighbours are: keep ``given`` to a few columns, or take another sampler.

    Parameters
    ----------
    k : int or None
        None: 5, or n - 1 if that is less. The bias grows with the distance to the k-th neighbour, (k/n)^(1/q) for q
        given columns, while more candidates hardly lower the variance, which is that of the rows: for n = 200 to
        4000 and q = 1 to 8, the error with 5 was at most 1.13 times the least, with sqrt(n)/2 up to 1.75 times
        (``benchmarks/samplers.py --neighbours --runs 30``).
    categorical : tuple of int
        Columns of X without an order.
    """

    k: int | None = None
    categorical: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        whole = isinstance(self.k, int | np.integer) and not isinstance(self.k, bool)
        if self.k is not None and (not whole or self.k < 1):
            raise ValueError(f"k={shown(self.k)} is not a number of neighbours: give at least 1")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedKNN:
        """The rows of the fit give the columns' standard deviations; donors are evaluated rows."""
        check_columns(X, target, given)
        # On the host, so that every backend scales with the same bits.
        columns = _host_columns(X, given)
        spread = columns.std(axis=0)
        varies = spread > 1e-13 * np.abs(columns.mean(axis=0))  # a constant column has a spread of rounding only
        weights = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
        return FittedKNN(self, X.shape[1], target, given, weights)


@dataclass(frozen=True, eq=False)
class FittedKNN:
    """A fitted `KNN`."""

    sampler: KNN
    width: int
    target: tuple[int, ...]
    given: tuple[int, ...]
    weights: Host

    def on(self, X: Array) -> DonorDraws:
        _check_width(X, self.width)
        n = X.shape[0]
        if not self.given:
            return stratum_draws(np.zeros((1, n), dtype=np.int64), _host_columns(X, self.target))
        k = min(5, n - 1) if self.sampler.k is None else self.sampler.k
        if k > n - 1:
            raise ValueError(f"k={k} is more than the {n - 1} other rows: give at most that")
        table = self._table(X, k)
        # By target values: see `DonorDraws.donors`.
        place = _value_order(_host_columns(X, self.target))
        table = np.take_along_axis(table, np.argsort(place[table], axis=1), axis=1)

        def donors(rows: range, u: HostArray) -> NDArray[np.int64]:
            chosen = np.minimum((u * k).astype(np.int64), k - 1)
            return np.take_along_axis(table[rows.start : rows.stop], chosen, axis=1)

        return DonorDraws(donors, None, np.zeros(0, dtype=np.int64))

    def _table(self, X: Array, k: int) -> NDArray[np.int64]:
        """``(n, k)``: the k nearest other rows of each row."""
        xp, dev = namespace(X), device(X)
        if is_accelerator(xp, dev):
            columns = xp.astype(take_columns(X, self.given), sum_dtype(xp, dev), copy=False)
            return self._by_distances(columns, np.arange(X.shape[0]), k)
        columns = _host_columns(X, self.given)
        embedded = self._embedded(columns)
        if embedded.shape[1] > _TREE_COLUMNS or 3 * k + 8 >= len(columns):
            return self._by_distances(columns, np.arange(len(columns)), k)
        table, unsettled = self._by_tree(columns, embedded, k)
        if len(unsettled):
            table[unsettled] = self._by_distances(columns, unsettled, k)
        return table

    def _embedded(self, columns: Host) -> Host:
        """Coordinates whose Euclidean distances are ours: scaled columns, and one for each category."""
        parts = []
        for place, column in enumerate(self.given):
            values = columns[:, place]
            if column in self.sampler.categorical:
                parts += [(values == level).astype(np.float64) for level in np.unique(values)]
            else:
                parts.append(values * self.weights[place])
        return np.stack(parts, axis=1)

    def _by_tree(self, columns: Host, embedded: Host, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(n, k)``, and the rows that have more candidates at the k-th distance than the tree was asked for."""
        from scipy.spatial import cKDTree

        n, wanted = len(columns), 2 * k + 8
        _, found = cKDTree(embedded).query(embedded, k=wanted, workers=-1)
        squares = np.zeros(found.shape)
        for place, column in enumerate(self.given):  # once more, by differences, so that ties are exact
            own, others = columns[:, place, None], columns[found, place]
            if column in self.sampler.categorical:
                squares += 2 * (own != others)
            else:
                squares += ((own - others) * float(self.weights[place])) ** 2
        farthest = squares.max(axis=1)
        squares[found == np.arange(n)[:, None]] = np.inf
        order = np.lexsort((found, squares), axis=1)[:, :k]
        last = np.take_along_axis(squares, order[:, -1:], axis=1)[:, 0]
        unsettled = np.flatnonzero(last >= farthest * (1.0 - 1e-9))
        return np.take_along_axis(found, order, axis=1).astype(np.int64), unsettled

    def _by_distances(self, columns: Array, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """``(rows, k)``, from the distances of some rows to all others."""
        xp, dev = namespace(columns), device(columns)
        n = columns.shape[0]
        every = xp.arange(n, dtype=index_dtype(xp), device=dev)
        step = max(_CELLS // n, 1)
        parts = []
        for start in range(0, len(rows), step):
            index = from_host(rows[start : start + step], xp, dev, index_dtype(xp))
            squares = self._squared_distances(xp.take(columns, index, axis=0), columns)
            own = index[:, None] == every[None, :]
            parts.append(_nearest(xp.where(own, xp.full_like(squares, float("inf")), squares), k))
        return np.concatenate(parts)

    def _squared_distances(self, A: Array, B: Array) -> Array:
        """By differences, not by products: then rows at equal distances tie exactly."""
        xp = namespace(A)
        total = xp.zeros((A.shape[0], B.shape[0]), dtype=A.dtype, device=device(A))
        for place, column in enumerate(self.given):
            a, b = A[:, place][:, None], B[:, place][None, :]
            if column in self.sampler.categorical:
                total = total + 2 * xp.astype(a != b, A.dtype)
            else:
                total = total + ((a - b) * float(self.weights[place])) ** 2
        return total


def _nearest(squares: Array, k: int) -> NDArray[np.int64]:
    """``(b, k)`` on the host: the places of the k smallest of each line, the first ones if there are ties."""
    xp = namespace(squares)
    if not isinstance(squares, np.ndarray):
        # The standard has no selection of the k smallest: a full, stable sort.
        return to_host(xp.argsort(squares, axis=1, stable=True)[:, :k]).astype(np.int64)
    bound = np.partition(squares, k - 1, axis=1)[:, k - 1 : k]
    line, place = np.nonzero(squares <= bound)
    tied = squares[line, place] == bound[line, 0]
    starts = np.searchsorted(line, np.arange(squares.shape[0]))
    # Ties up to here in the same line, and how many of them the line needs beside what is nearer.
    ties = np.cumsum(tied)
    before = np.concatenate([[0], ties])[starts]
    nearer = np.bincount(line, weights=~tied, minlength=squares.shape[0]).astype(np.int64)
    keep = ~tied | (ties - before[line] <= (k - nearer)[line])
    chosen: NDArray[np.int64] = place[keep].reshape(-1, k).astype(np.int64)
    return chosen


# ---------------------------------------------------------------------------------------------------------------------
# Strata and leaves


Strata = NDArray[np.int64] | Callable[[Host], NDArray[np.int64]] | str | None


@dataclass(frozen=True, eq=False)
class Leaves:
    """Donors among the other rows of the same stratum.

    Parameters
    ----------
    strata : "exact", integer array (n,) or (n, T), callable or None
        "exact": rows with equal given columns form a stratum. An array: the strata of the evaluated rows, in one or in
        T partitions, of which each draw takes one at random. A callable: ``strata(Z)`` for the given columns Z (n, q)
        of the evaluated rows, on the host, returns such an array. None: the leaves of ``tree``.
    tree : estimator or None
        A scikit-learn tree or forest, which is cloned and fitted to predict the target from the given columns on the
        host. None: a decision tree, a classifier if the target is one column of few integers. In a forest each draw
        takes a random tree among those in which the row has leaf-mates, then a leaf-mate.
    min_leaf : int or None
        Rows in a leaf, at least, of the default tree. Within a leaf the target is taken to be independent of the
        given columns: small leaves are closer to that, large ones use more donors, and follow the noise of the target
        less. None: a twentieth of the rows, but from 10 to 30.
    """

    strata: Strata = None
    tree: object = None
    min_leaf: int | None = None

    def __post_init__(self) -> None:
        known = self.strata is None or callable(self.strata) or is_array(self.strata) or isinstance(self.strata, list)
        if not known and not (isinstance(self.strata, str) and self.strata == "exact"):
            raise ValueError(f"strata={shown(self.strata)} is unknown: pass 'exact', an integer array or a callable")
        if self.strata is not None and self.tree is not None:
            raise ValueError("strata and tree are both given: strata are either given or the leaves of the tree")
        if self.tree is not None and not hasattr(self.tree, "apply"):
            raise TypeError(f"tree={shown(self.tree)} has no apply(): pass a scikit-learn tree or forest")
        if self.min_leaf is not None and self.min_leaf < 2:
            raise ValueError(f"min_leaf={self.min_leaf} leaves a row without a donor: give at least 2")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedLeaves:
        """The rows of the fit grow the tree; donors are evaluated rows."""
        check_columns(X, target, given)
        strata = self.strata
        if strata is None and given:
            strata = self._grow(_host_columns(X, given), _host_columns(X, target))
        return FittedLeaves(X.shape[1], target, given, strata)

    def for_rows(self, rows: NDArray[np.int64]) -> Leaves:
        """The same for some of the evaluated rows: an array of strata is theirs."""
        if self.strata is None or isinstance(self.strata, str) or callable(self.strata):
            return self
        return dataclasses.replace(self, strata=np.asarray(to_host(self.strata))[rows])

    def _grow(self, Z: Host, T: Host) -> Callable[[Host], NDArray[np.int64]]:
        from sklearn.base import clone, is_classifier
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        least = min(max(len(Z) // 20, _FEWEST_MATES), _MOST_MATES) if self.min_leaf is None else self.min_leaf
        if self.tree is not None:
            tree = clone(self.tree)
        elif T.shape[1] == 1 and _is_categorical(T[:, 0]):
            tree = DecisionTreeClassifier(min_samples_leaf=least, random_state=0)
        else:
            tree = DecisionTreeRegressor(min_samples_leaf=least, random_state=0)
        spread = T.std(axis=0)
        if T.shape[1] > 1 and not is_classifier(tree):  # several targets count equally
            T = T / np.where(spread > 0, spread, 1.0)
        tree.fit(Z, T if T.shape[1] > 1 else T[:, 0])
        return lambda rows: tree.apply(rows)


def _is_categorical(values: Host) -> bool:
    """Few integers."""
    return bool((values == np.round(values)).all()) and np.unique(values).size <= 20


@dataclass(frozen=True, eq=False)
class FittedLeaves:
    """Fitted `Leaves`."""

    width: int
    target: tuple[int, ...]
    given: tuple[int, ...]
    strata: Strata

    def on(self, X: Array) -> DonorDraws:
        _check_width(X, self.width)
        return stratum_draws(self._partitions(X), _host_columns(X, self.target))

    def _partitions(self, X: Array) -> NDArray[np.int64]:
        """``(T, n)``: the stratum of each row in each of T partitions."""
        n = X.shape[0]
        if self.strata is None:
            return np.zeros((1, n), dtype=np.int64)
        if isinstance(self.strata, str):
            Z = _host_columns(X, self.given)
            if not self.given:
                return np.zeros((1, n), dtype=np.int64)
            found = np.unique(Z, axis=0, return_inverse=True)[1]
        else:
            found = self.strata(_host_columns(X, self.given)) if callable(self.strata) else self.strata
        found = np.asarray(to_host(found))
        if found.dtype.kind not in "iub" or found.ndim not in (1, 2) or found.shape[0] != n:
            raise ValueError(
                f"strata has shape {found.shape} and dtype {found.dtype}, but there are {n} rows: give one integer for "
                "each"
            )
        return np.atleast_2d(found.T).astype(np.int64)


def stratum_draws(partitions: NDArray[np.int64], values: Host) -> DonorDraws:
    """Donors among the other rows of the same stratum, of a random one of T partitions.

    Parameters
    ----------
    partitions : integer array (T, n)
    values : array (n, g)
        The target columns, which order the candidates.
    """
    count, n = partitions.shape
    place = _value_order(values)
    order, start, length, rank = (np.empty((count, n), dtype=np.int32) for _ in range(4))
    for t, strata in enumerate(partitions):
        order[t] = np.lexsort((place, strata))
        _, first, which, sizes = np.unique(strata[order[t]], return_index=True, return_inverse=True, return_counts=True)
        start[t, order[t]], length[t, order[t]] = first[which], sizes[which]
        rank[t, order[t]] = np.arange(n) - first[which]
    # For each row the partitions in which it has company come first.
    eligible = np.argsort(length < 2, axis=0, kind="stable")
    company = np.sum(length >= 2, axis=0)

    def donors(rows: range, u: HostArray) -> NDArray[np.int64]:
        own = np.arange(rows.start, rows.stop)[:, None]
        # One uniform number chooses both: its place among the partitions is uniform again.
        scaled = np.asarray(u, dtype=np.float64) * np.maximum(company[own], 1)
        chosen = np.minimum(scaled.astype(np.int64), np.maximum(company[own], 1) - 1)
        tree = eligible[chosen, own]
        others = np.maximum(length[tree, own] - 1, 1)
        mate = np.minimum(((scaled - chosen) * others).astype(np.int64), others - 1)
        mate = mate + (mate >= rank[tree, own])
        found = order[tree, np.minimum(start[tree, own] + mate, n - 1)]
        return np.where(company[own] > 0, found, own).astype(np.int64)

    return DonorDraws(donors, partitions[0] if count == 1 else None, np.flatnonzero(company == 0).astype(np.int64))
