"""Which rows models are fitted on and which they are measured on, and which columns they see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.kinds import Array, HostArray
from reliance._core.streams import Indices
from reliance._core.words import short, shown
from reliance.data import tables
from reliance.data.checked_arrays import as_array
from reliance.data.passed import RowsLike, TableLike
from reliance.losses.functions import Loss, Metric
from reliance.models.calling import name_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Floats = NDArray[np.float64]


class Split(NamedTuple):
    """Rows to fit on and rows to measure on."""

    train: Indices
    test: Indices


def is_table(x: object) -> TypeIs[TableLike]:
    return tables.is_table(x)


def as_rows(X: object, name: str) -> RowsLike:
    """Rows to fit on: an array, or a table as it is."""
    if is_table(X):
        tables.column_labels(X, name)  # a table in memory, or an error
        return X
    return as_array(X, name)


@overload
def take(x: Array | None, rows: Indices) -> Array: ...
@overload
def take(x: RowsLike | None, rows: Indices) -> RowsLike: ...
def take(x: RowsLike | None, rows: Indices) -> RowsLike:
    """Some rows of an array or a table, always a copy: what a fit does to its data stays with it."""
    if is_table(x):
        import narwhals as nw

        taken: TableLike = nw.to_native(nw.from_native(x, eager_only=True)[rows])
        return taken
    assert x is not None  # labels of rows to test come with these rows
    xp, dev = arrays.namespace(x), arrays.device(x)
    return xp.take(x, arrays.from_host(rows, xp, dev, arrays.index_dtype(xp)), axis=0)


def take_columns(X: RowsLike, columns: Sequence[int]) -> RowsLike:
    """Some columns, in their order; no column is one of zeros, from which nothing but a constant can be learnt."""
    if is_table(X):
        import narwhals as nw

        frame = nw.from_native(X, eager_only=True)
        constant = nw.from_dict({"nothing": np.zeros(len(frame))}, backend=frame.implementation)
        chosen: TableLike = nw.to_native(frame[:, list(columns)] if columns else constant)
        return chosen
    xp, dev = arrays.namespace(X), arrays.device(X)
    if not columns:
        return xp.zeros((X.shape[0], 1), dtype=X.dtype, device=dev)
    index = np.asarray(columns, dtype=np.int64)
    return xp.take(X, arrays.from_host(index, xp, dev, arrays.index_dtype(xp)), axis=1)


def are_labels(losses: Iterable[Loss | Metric]) -> bool:
    """Whether y holds classes, of which every fold should have its share."""
    return any(loss.target in ("class", "sign") or loss.labels for loss in losses)


def is_random(cv: object) -> TypeGuard[int]:
    return isinstance(cv, int | np.integer) and not isinstance(cv, bool | np.bool_)


def is_test_set(cv: object) -> TypeGuard[tuple[object, object]]:
    """Whether it is (X_test, y_test) and no splits of the rows: of those each entry is a pair itself."""
    return isinstance(cv, tuple) and len(cv) == 2 and not isinstance(cv[0], tuple | list)


def resolve_splits(
    cv: object, X: RowsLike, y: Array, *, stratify: bool, key: int, weights: Floats | None = None
) -> tuple[Split, ...]:
    """The splits of a number of folds, of a scikit-learn splitter, or of a list of (train, test) rows.

    ``weights``: those of the rows measured, of which every split needs some.
    """
    splits = _resolved(cv, X, y, stratify, key)
    for place, split in enumerate(splits):
        if weights is not None and not weights[split.test].any():
            raise ValueError(
                f"weights are all 0 for the test rows of split {place}, which has nothing to measure: pass cv= whose "
                "splits all test rows that count"
            )
    return splits


def _resolved(cv: object, X: RowsLike, y: Array, stratify: bool, key: int) -> tuple[Split, ...]:
    n = int(y.shape[0])
    if is_random(cv):
        return _random_folds(int(cv), n, arrays.to_host(y) if stratify and y.ndim == 1 else None, key)
    if isinstance(cv, type):
        raise TypeError(f"cv={cv.__name__} is a class: pass an instance, {cv.__name__}(...)")
    wanted = "pass a number of folds, a splitter, or a list of (train, test) index arrays"
    if isinstance(cv, bool | float | str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise TypeError(f"cv={shown(cv)}: {wanted}")
    pairs = _split_by(cv, X, arrays.to_host(y)) if _is_splitter(cv) else cv
    if not isinstance(pairs, Iterable):
        raise TypeError(f"cv={shown(cv)}: {wanted}")
    splits = tuple(_checked(pair, place, n) for place, pair in enumerate(pairs))
    if not splits:
        raise ValueError("cv has no split: give at least one pair of (train, test) rows")
    return splits


class Splitter(Protocol):
    """A splitter of scikit-learn."""

    def split(self, X: object, y: HostArray, /) -> Iterable[object]: ...


def _is_splitter(cv: object) -> TypeGuard[Splitter]:
    return callable(getattr(cv, "split", None))


def _split_by(cv: Splitter, X: RowsLike, y: HostArray) -> list[object]:
    """What a splitter says of these rows and labels; it gets no groups."""
    try:
        return list(cv.split(X if is_table(X) else arrays.to_host(X), y))
    except Exception as error:  # whatever a splitter of the user's raises
        raise ValueError(
            f"cv={name_of(cv)} cannot split these rows: {short(str(error), 80)}; if it needs groups, pass its splits: "
            "cv=list(splitter.split(X, y, groups))"
        ) from error


def _random_folds(folds: int, n: int, labels: HostArray | None, key: int) -> tuple[Split, ...]:
    """Rows in random order, or by label and then at random, dealt out like cards: equal shares of each class."""
    if folds < 2:
        raise ValueError(f"cv={folds} is too small: give at least 2 folds")
    if n < 2 * folds:
        raise ValueError(
            f"cv={folds} is too large for {n} rows: every fold needs at least 2, so at most {n // 2} folds"
        )
    order = streams.stream(key, streams.FOLDS, 0).permutation(n)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(n, dtype=np.int64)
    fold[order] = np.arange(n) % folds
    return tuple(Split(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(folds))


def _both(pair: object) -> Iterable[object]:
    if not isinstance(pair, Iterable):
        raise TypeError
    return pair


def _checked(pair: object, place: int, n: int) -> Split:
    try:
        train, test = (np.asarray(rows) for rows in _both(pair))
    except (TypeError, ValueError) as error:
        raise TypeError(f"cv: split {place} is {shown(pair)}: give a pair of index arrays, (train, test)") from error
    for name, rows, least in (("training", train, 1), ("test", test, 2)):
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"cv: the {name} rows of split {place} are not row numbers: give a 1-d array of integers")
        if rows.size < least:
            raise ValueError(f"cv: split {place} has {rows.size} {name} rows: at least {least} are needed")
        if rows.min() < 0 or rows.max() >= n:
            wrong = int(rows.min() if rows.min() < 0 else rows.max())
            raise ValueError(f"cv: split {place} names row {wrong}, but X has the rows 0 to {n - 1}")
    if np.unique(test).size < test.size:
        raise ValueError(f"cv: split {place} tests a row twice: name each test row once")
    both = np.intersect1d(train, test)
    if both.size:
        raise ValueError(f"cv: row {int(both[0])} is both fitted and tested in split {place}: the two must be disjoint")
    return Split(streams.as_indices(train), streams.as_indices(test))
