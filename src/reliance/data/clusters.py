"""Rows that belong together: clusters by their labels, and blocks of a series.

Rows of one patient, site or scene, and rows that follow each other in time, resemble each other: they tell less than as
many independent rows. Whatever is uncertain is then counted by clusters. A series is cut into blocks of neighbours,
long enough that blocks hardly depend on each other, and these are its clusters. Who may lend to whom is part of the
same value, because it is a question about clusters: which plan does it is chosen by the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.checks import check_choice, warn
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance._core.words import closest, shown
from reliance.data import tables
from reliance.data.passed import DataLike

Floats = NDArray[np.float64]
_FEW = 10  # clusters, below which a t quantile is all that holds an interval up
_FEWEST = 3  # leaving one of two out would leave none to lend
_FEWEST_BLOCKS = 6
ANYWHERE = "anywhere"


@dataclass(frozen=True, eq=False)
class Membership:
    """Which of ``count`` clusters each row belongs to: ``codes (n,)``, 0 to count - 1. ``label`` says it in words.

    ``lend``: who may lend to whom, as the user has put it. ``offsets (n,)``: the places of the rows within their
    clusters, where whole stretches are lent.
    """

    codes: Indices
    count: int
    label: str
    lend: str = ANYWHERE
    offsets: Indices | None = None

    def sums(self, values: Floats) -> Floats:
        """``(..., count)``: the sums of ``(..., n)`` within clusters, over the mean size of a cluster.

        Their mean is the mean of the values, as if clusters were rows.
        """
        flat = values.reshape(-1, values.shape[-1])
        sums = np.stack([np.bincount(self.codes, row, minlength=self.count) for row in flat])
        return np.asarray(sums.reshape(*values.shape[:-1], self.count) * (self.count / len(self.codes)))

    def shares(self, weights: Floats | None) -> Floats:
        """``(count,)``: what part of all rows, or of their weight, each cluster has."""
        found = np.bincount(self.codes, weights, minlength=self.count).astype(np.float64)
        return np.asarray(found / found.sum())

    def touched(self, rows: NDArray[np.bool_]) -> int:
        """How many clusters have one of some rows ``(n,)``."""
        return int(np.unique(self.codes[rows]).size)

    def take(self, ids: Indices) -> Membership:
        """Of some of the rows."""
        left, codes = np.unique(self.codes[ids], return_inverse=True)
        offsets = None if self.offsets is None else self.offsets[ids]
        return Membership(codes.reshape(-1), len(left), self.label, self.lend, offsets)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Rows that belong together, and who may lend to whom: ``clusters=rl.Clusters(patient, lend="other clusters")``.

    The labels alone, ``clusters=patient``, are the same as ``lend="anywhere"``.

    Parameters
    ----------
    labels : array (n,), or name of a column of X
        What each row belongs to: patients, users, sites, images of one scene.
    lend : {"anywhere", "other clusters", "same cluster"}
        Which rows a feature is borrowed from. "anywhere": every other row, as without clusters. "other clusters": how
        much the model relies on the feature, a row of its own cluster being too much like it to count as another one.
        "same cluster": how much it relies on what varies *within* clusters; what clusters differ by stays as it is.
        Each is a question of its own, with values of its own.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(30), 10)
    >>> X = rng.normal(size=(30, 1))[patient] + 0.5 * rng.normal(size=(300, 1))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> def importance(lend):
    ...     clusters = rl.Clusters(patient, lend=lend)
    ...     return rl.permutation_importance(lambda X: X[:, 0], X, y, clusters=clusters, rng=0)
    >>> importance("other clusters").plan
    'donors of other clusters, 16 per row, 30 clusters'
    >>> values = [importance(lend).values[0] for lend in ("other clusters", "anywhere", "same cluster")]
    >>> values == sorted(values, reverse=True)
    True
    """

    labels: DataLike | str
    lend: str = ANYWHERE

    def __post_init__(self) -> None:
        check_choice(self.lend, (ANYWHERE, "other clusters", "same cluster"), "lend")


@dataclass(frozen=True, eq=False)
class Blocks:
    """A series: ``clusters=rl.Blocks()`` cuts rows that follow each other into blocks, which count as clusters.

    Neighbours of a time series, or of a path through space, resemble each other. A block holds rows that follow each
    other; if it is long against the dependence, blocks hardly depend on each other, and a t quantile on their number
    less one makes up for having few of them.

    Parameters
    ----------
    length : int, optional
        Rows of a block. By default about n^(2/3) / 2: 33 of 500 rows, 232 of 10,000. Take longer ones where neighbours
        at that distance still resemble each other; there must be 6 blocks at least. ``result.plan`` says what it was.
    order : array (n,), or name of a column of X, optional
        Time, or the place along a path through space. By default rows are in order as they are.
    lend : {"anywhere", "other blocks", "same block", "stretches"}
        Which rows a feature is borrowed from. "anywhere": every other row. "other blocks": no near neighbours. "same
        block": neighbours alone, so that slow changes stay. "stretches": a block borrows the whole stretch of values of
        another block, place by place, so that the values keep their local structure: with ``length=24`` rows of 9
        o'clock borrow from 9 o'clock of other days. Blocks then have exactly ``length`` rows; what is left at the end
        of the series borrows and does not lend.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.cumsum(np.random.default_rng(0).normal(size=(500, 2)), axis=0)
    >>> model = lambda X: X[:, 0]
    >>> result = rl.permutation_importance(model, X, model(X), clusters=rl.Blocks(), rng=0)
    >>> result.plan
    'ranks, 16 per row, 15 blocks of 33 rows'
    >>> days = rl.Blocks(length=24, lend="stretches")
    >>> rl.permutation_importance(model, X, model(X), clusters=days, draws=10, rng=0).plan
    'whole stretches of other blocks, 10 per row, 21 blocks of 24 rows'
    """

    length: int | None = None
    order: DataLike | str | None = None
    lend: str = ANYWHERE

    def __post_init__(self) -> None:
        check_choice(self.lend, (ANYWHERE, "other blocks", "same block", "stretches"), "lend")
        if self.length is None:
            return
        whole = isinstance(self.length, int | np.integer) and not isinstance(self.length, bool)
        if not whole or self.length < 1:
            raise ValueError(f"length={shown(self.length)}: pass how many rows a block has, or None")
        object.__setattr__(self, "length", int(self.length))

    def of(self, n: int, order: HostArray | None) -> Membership:
        """The blocks of n rows, as even as they can be; ``order (n,)``: their places in the series."""
        length = max(1, math.ceil(n ** (2.0 / 3.0) / 2.0)) if self.length is None else self.length
        count = n // length
        if count < _FEWEST_BLOCKS:
            raise ValueError(
                f"clusters=Blocks(length={length}) leaves {count} blocks of {n} rows: at least {_FEWEST_BLOCKS} are "
                "needed to see how much blocks differ. Pass a shorter length, or measure more rows"
            )
        place = np.arange(n) if order is None else np.empty(n, dtype=np.int64)
        if order is not None:
            place[np.argsort(order, kind="stable")] = np.arange(n)
        if self.lend != "stretches":
            return Membership(place * count // n, count, f"{count} blocks of {n // count} rows", self.lend)
        count = -(-n // length)  # with what is left at the end
        return Membership(place // length, count, f"{count} blocks of {length} rows", self.lend, place % length)


ClustersLike = DataLike | str | Blocks | Clusters


def companion(clusters: object) -> object:
    """What goes with the rows, one by one."""
    if isinstance(clusters, Clusters):
        return clusters.labels
    return clusters.order if isinstance(clusters, Blocks) else clusters


def read(clusters: object, n: int, column: Callable[[str], HostArray | None], names: tuple[str, ...]) -> Membership:
    """Clusters as a user passes them: labels, the name of a column, or blocks; ``column`` knows the columns of X."""

    def labels(given: object, name: str) -> HostArray:
        if not isinstance(given, str):
            return _labels(given, name, n)
        found = column(given)
        if found is None:
            raise ValueError(f"{name}={shown(given)} is no column of X: {closest(given, names)}, or pass an array (n,)")
        return found

    if isinstance(clusters, Blocks):
        order = None if clusters.order is None else labels(clusters.order, "order")
        return clusters.of(n, order)
    lend = clusters.lend if isinstance(clusters, Clusters) else ANYWHERE
    found, codes = np.unique(labels(companion(clusters), "clusters"), return_inverse=True)
    count = len(found)
    if count < _FEWEST:
        raise ValueError(
            f"clusters holds {count} label{'s' * (count > 1)}: so few clusters do not show how much clusters differ. "
            "Measure more of them, or leave clusters out if rows are independent"
        )
    if count < _FEW:
        warn(
            f"clusters: {count} of them. Intervals rest on {count - 1} degrees of freedom or fewer: they are wide, and "
            "right only if clusters are alike in size and kind. More rows per cluster do not help, more clusters do"
        )
    return Membership(codes.reshape(-1).astype(np.int64), count, f"{count} clusters", lend)


def _labels(given: object, name: str, n: int) -> HostArray:
    """``(n,)`` labels or places on the host, of any kind that can be sorted."""
    if tables.is_column(given) or tables.is_table(given):
        given = tables.as_column(given, name)
    if isinstance(given, list | tuple | range):
        given = np.asarray(given)
    if not arrays.is_array(given):
        raise TypeError(f"{name} is a {type(given).__name__}: pass one label per row, as an array, a list or a column")
    found = arrays.to_host(given)
    if found.shape != (n,):
        raise ValueError(f"{name} has shape {found.shape} but X has {n} rows: give one label per row, shape ({n},)")
    if found.dtype.kind == "O":
        if not all(isinstance(label, str) for label in found):
            raise TypeError(f"{name} holds labels of several kinds, or missing ones: pass text or numbers alone")
        found = found.astype(str)
    unknown = found != found
    if np.any(unknown):
        raise ValueError(f"{name} holds {int(unknown.sum())} missing labels: say where these rows belong, or drop them")
    return found
