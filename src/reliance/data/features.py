"""What is replaced: single columns, groups of columns, parts of a row by slices or masks, each with a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance._core.arrays import is_array, to_host
from reliance._core.kinds import HostArray
from reliance._core.streams import Indices
from reliance._core.words import closest, short, shown
from reliance.data import indexing
from reliance.data.passed import FeaturesLike


@dataclass(frozen=True)
class Feature:
    """A named set of columns of the flattened features, replaced together.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Strictly increasing positions in ``range(P)``, P the number of features of a row.
    """

    name: str
    columns: tuple[int, ...]

    @cached_property
    def runs(self) -> tuple[slice, ...]:
        """The columns as few contiguous slices: a patch of an image is one slice per line, not per pixel."""
        if len(self.columns) == 1:
            return (slice(self.columns[0], self.columns[0] + 1),)
        columns = np.asarray(self.columns)
        starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 2) != 1)
        stops = np.append(starts[1:], len(columns))
        return tuple(slice(int(columns[a]), int(columns[b - 1]) + 1) for a, b in zip(starts, stops, strict=True))


def column_names(names: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...]:
    """A name for each flattened feature: the given ones, or x0, x1, ... and x[0,3] in several dimensions."""
    width = int(np.prod(shape))
    if names is None:
        if len(shape) == 1:
            return tuple(f"x{j}" for j in range(width))
        return tuple("x[" + ",".join(map(str, index)) + "]" for index in np.ndindex(*shape))
    if isinstance(names, str):
        raise TypeError(f"names={shown(names)} is one string: pass a sequence of {width} names")
    if not isinstance(names, Iterable) or isinstance(names, set | frozenset):
        raise TypeError(
            f"names={shown(names)} is not a sequence: pass a list of {width} names, in the order of the columns"
        )
    given = tuple(names)
    if len(given) != width:
        raise ValueError(f"names has {len(given)} entries but X has {width} features per row: give one name for each")
    if not all(isinstance(name, str) for name in given):
        bad = next(name for name in given if not isinstance(name, str))
        raise TypeError(f"names holds {shown(bad)}: names must be strings")
    if len(set(given)) < len(given):
        twice = sorted({name for name in given if given.count(name) > 1})
        raise ValueError(f"names holds {shown(twice[0])} twice: names must be distinct")
    return given


def resolve_features(
    features: FeaturesLike, names: Sequence[str] | None, shape: tuple[int, ...]
) -> tuple[Feature, ...]:
    """The features to measure, from anything that the ``features`` argument takes.

    Parameters
    ----------
    features : None, sequence, mapping or mask
        None: each column. A sequence of indices, names, slicings such as ``np.s_[0, 2:5]``, or tuples of indices and
        names as groups. A mapping from a group's name to its columns, a slicing, an index of the first axis, or a mask
        of booleans. For inputs of several dimensions, an integer array of the features' shape: one group for each
        distinct non-negative integer, negative entries are left alone. Or masks of booleans, one below the other.
    names : sequence of str or None
    shape : tuple of int
        Shape of one row's features.
    """
    labels = column_names(names, shape)
    if features is None:
        return tuple(Feature(name, (j,)) for j, name in enumerate(labels))
    if isinstance(features, str | bytes) or not isinstance(features, Iterable):
        one = shown(features)
        remedy = "list(range(start, stop)), or names" if isinstance(features, slice) else f"[{one}]"
        raise TypeError(f"features={one} is not a list: pass {remedy}")
    entries = indexing.grid(shape)
    if is_array(features) and len(features.shape) > 1:
        found = _from_array(to_host(features), shape, entries)
    elif isinstance(features, Mapping):
        found = [Feature(str(name), _group(spec, labels, entries, str(name))) for name, spec in features.items()]
    else:
        found = [_from_entry(entry, labels, entries) for entry in _entries(features)]
    if not found:
        raise ValueError("features is empty: name at least one feature, or pass None for all")
    _check_distinct(found)
    return tuple(found)


def _entries(given: Iterable[object]) -> list[object]:
    """Names, numbers and groups as Python has them, also from arrays."""
    if is_array(given):
        host = to_host(given)
        if host.dtype.kind == "b":
            raise TypeError(
                "features is a mask of booleans: pass the positions, np.flatnonzero(mask), or as one group "
                "{'name': mask}"
            )
        return list(host.tolist())
    return [to_host(entry).item() if is_array(entry) and len(entry.shape) == 0 else entry for entry in given]


def _from_entry(entry: object, labels: tuple[str, ...], entries: Indices) -> Feature:
    if indexing.is_mask(entry):
        raise TypeError("features holds a mask of booleans, which has no name: pass {'name': mask}")
    if indexing.is_slicing(entry):
        name = f"x[{indexing.written(entry)}]"
        return Feature(name, _as_columns(indexing.positions(entry, entries, f"features: {name}")))
    if isinstance(entry, tuple | list | set | frozenset) or is_array(entry):
        columns = _columns(entry, labels, shown(entry))
        return Feature("+".join(labels[j] for j in columns), columns)
    column = _column(entry, labels)
    return Feature(labels[column], (column,))


def _group(spec: object, labels: tuple[str, ...], entries: Indices, name: str) -> tuple[int, ...]:
    """The columns of a named group: np.s_[0] is the number 0, the first channel of an image, not its first pixel."""
    first = isinstance(spec, int | np.integer) and not isinstance(spec, bool) and entries.ndim > 1
    if first or indexing.is_slicing(spec) or indexing.is_mask(spec):
        return _as_columns(indexing.positions(spec, entries, f"features: group {short(name)}"))
    return _columns(spec, labels, short(name))


def _as_columns(found: Indices) -> tuple[int, ...]:
    return tuple(map(int, found))


def _columns(spec: object, labels: tuple[str, ...], group: str) -> tuple[int, ...]:
    """The columns of one group, from indices and names."""
    if isinstance(spec, str | int | np.integer):
        return (_column(spec, labels),)
    if not isinstance(spec, Iterable):
        raise TypeError(
            f"features: group {short(group)} is {shown(spec)}: give an index, a name, a list of these, a slicing such "
            "as np.s_[0, 2:5], or a mask"
        )
    columns = [_column(entry, labels) for entry in _entries(spec)]
    if not columns:
        raise ValueError(f"features: group {short(group)} is empty: give it at least one column or leave it out")
    if len(set(columns)) < len(columns):
        twice = next(j for j in columns if columns.count(j) > 1)
        raise ValueError(
            f"features: group {short(group)} holds column {shown(labels[twice])} twice: name each column once"
        )
    return tuple(sorted(columns))


def _column(entry: object, labels: tuple[str, ...]) -> int:
    if isinstance(entry, str):
        if entry not in labels:
            raise ValueError(f"features names {shown(entry)}, which X does not have: {closest(entry, labels)}")
        return labels.index(entry)
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer):
        raise TypeError(f"features holds {shown(entry)}: give an index, a name or a tuple of these")
    index = int(entry)
    if not -len(labels) <= index < len(labels):
        raise ValueError(f"features holds index {shown(index)}, but X has {len(labels)} features per row")
    return index % len(labels)


def _from_array(given: HostArray, shape: tuple[int, ...], entries: Indices) -> list[Feature]:
    """Groups by their numbers in a mask of the shape of a row, or by masks of booleans, one below the other."""
    if given.dtype.kind == "b" and given.shape[1:] == shape:
        stacked = [indexing.positions(mask, entries, f"features: mask {k}") for k, mask in enumerate(given)]
        return [Feature(str(k), _as_columns(one)) for k, one in enumerate(stacked)]
    if given.shape != shape:
        raise ValueError(
            f"features is a mask of shape {given.shape}, but a row of X has shape {shape}: the mask must have that "
            "shape; masks of booleans may stand one below the other"
        )
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"features is a mask of dtype {given.dtype}: give integers, one number for each group, or {{'name': mask}}"
        )
    flat = given.reshape(-1)
    # One sort for all groups, not one pass over the mask for each.
    order = np.argsort(flat, kind="stable")
    numbers, starts = np.unique(flat[order], return_index=True)
    groups = np.split(order, starts[1:])
    found = [Feature(str(k), _as_columns(g)) for k, g in zip(numbers, groups, strict=True) if k >= 0]
    if not found:
        raise ValueError("features is a mask of negative numbers, which are left alone: number a group 0 or higher")
    return found


def _check_distinct(found: Sequence[Feature]) -> None:
    """No feature twice, under one name or two. Groups may overlap: windows do."""
    seen: set[tuple[int, ...]] = set()
    named: set[str] = set()
    for feature in found:
        if feature.columns in seen:
            raise ValueError(f"features holds {shown(feature.name)} twice: name each feature once")
        if feature.name in named:
            raise ValueError(f"features: two groups are called {shown(feature.name)}: give them different names")
        seen.add(feature.columns)
        named.add(feature.name)
