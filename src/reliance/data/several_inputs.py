"""Several inputs of a model: a tuple or a mapping of arrays, of which a feature is one input, or a part of one.

Each input is cut into pieces, such that a feature is a set of whole pieces. What is no number to compute with has a
code elsewhere in the library; here the code of a piece is the number of the row that it belongs to. The engine
exchanges the inputs themselves (see `reliance.engine.input_stores`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

import numpy as np

from reliance._core.arrays import (
    describe,
    device,
    from_host,
    index_dtype,
    is_array,
    namespace,
    to_host,
)
from reliance._core.kinds import Array, HostArray
from reliance._core.streams import Indices
from reliance._core.words import listed, shown
from reliance.data import indexing
from reliance.data.features import Feature
from reliance.data.kinds import check_kind

# Of an input: a key of the mapping, or its position.
Name: TypeAlias = Hashable


def is_several(X: object) -> TypeGuard[Mapping[Name, Array] | tuple[Array, ...]]:
    """Whether X is a tuple or a mapping of arrays, rather than one array."""
    parts = list(X.values()) if isinstance(X, Mapping) else X if isinstance(X, tuple) else []
    return len(parts) > 0 and all(is_array(part) and getattr(part, "ndim", 0) > 0 for part in parts)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a model and their pieces.

    Attributes
    ----------
    parts : dict from names to arrays (n, ...)
    named : bool
        Whether the model takes them by name, ``model(**inputs)``, or in their order, ``model(*inputs)``.
    pieces : tuple of (name, positions)
        Which input, and which entries of a row of it, among all in their order; None: all of them.
    features : tuple of Feature
        Whose columns are pieces.
    """

    parts: dict[Name, Array]
    named: bool
    pieces: tuple[tuple[Name, Indices | None], ...]
    features: tuple[Feature, ...]

    @property
    def array(self) -> Array:
        """``(n, pieces)``: the number of each row, for each of its pieces; takes no memory where arrays have views."""
        first = next(iter(self.parts.values()))
        xp, dev = namespace(first), device(first)
        own = from_host(np.arange(first.shape[0])[:, None], xp, dev, index_dtype(xp))
        return xp.broadcast_to(own, (first.shape[0], len(self.pieces)))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the pieces."""
        return tuple(f"{name}, piece {k}" for k, (name, _) in enumerate(self.pieces))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of a row of each input."""
        return tuple(tuple(part.shape[1:]) for part in self.parts.values())

    def columns(self, feature: Feature) -> tuple[tuple[int, ...], ...]:
        """For each input, which entries of a row belong to a feature."""
        found: dict[Name, list[Indices]] = {name: [] for name in self.parts}
        for piece in feature.columns:
            name, at = self.pieces[piece]
            found[name].append(np.arange(math.prod(self.parts[name].shape[1:])) if at is None else at)
        return tuple(tuple(np.sort(np.concatenate(own)).tolist()) if own else () for own in found.values())

    def values(self, feature: Feature) -> HostArray:
        """``(n, g)`` on the host: every entry of a row that belongs to a feature, of whichever inputs."""
        found = []
        for part, columns in zip(self.parts.values(), self.columns(feature), strict=True):
            xp = namespace(part)
            flat = xp.reshape(part, (part.shape[0], -1))
            runs = Feature(feature.name, columns).runs if columns else ()
            found += [to_host(flat[:, run]) for run in runs]
        return np.concatenate(found, axis=1)

    def take(self, index: Array) -> Inputs:
        """Some of the rows, by an index on their device."""
        return self._each(lambda part: namespace(part).take(part, index, axis=0))

    def head(self, n: int) -> Inputs:
        """The first n rows."""
        return self._each(lambda part: part[:n, ...])

    def _each(self, change: Callable[[Array], Array]) -> Inputs:
        return replace(self, parts={name: change(part) for name, part in self.parts.items()})


def read(X: Mapping[Name, Array] | tuple[Array, ...], features: object, names: Sequence[str] | None) -> Inputs:
    """Inputs and features, checked."""
    parts: dict[Name, Array] = dict(X) if isinstance(X, Mapping) else dict(enumerate(X))
    if names is not None:
        raise ValueError("names= is for columns of one array: X is several inputs; name features as {'name': input}")
    first_name, first = next(iter(parts.items()))
    for name, part in parts.items():
        check_kind(part, f"X[{name!r}]")
        if namespace(part) is not namespace(first) or device(part) != device(first):
            raise TypeError(
                f"X[{shown(name)}] is a {describe(part)} but X[{shown(first_name)}] is a {describe(first)}: convert "
                "one of them"
            )
        if part.shape[0] != first.shape[0]:
            raise ValueError(
                f"X[{shown(name)}] has {part.shape[0]} rows but X[{shown(first_name)}] has {first.shape[0]}: they must "
                "agree"
            )
    chosen = _chosen(_by_name(features, parts), parts)
    pieces: list[tuple[Name, Indices | None]] = []
    columns: dict[str, list[int]] = {feature: [] for feature in chosen}
    for name, part in parts.items():
        here = {feature: own[name] for feature, own in chosen.items() if name in own}
        cut, owned = _cut(here, math.prod(part.shape[1:]))
        for feature, own in owned.items():
            columns[feature] += [len(pieces) + k for k in own]
        pieces += [(name, at) for at in cut]
    found = tuple(Feature(feature, tuple(place)) for feature, place in columns.items())
    return Inputs(parts, isinstance(X, Mapping), tuple(pieces), found)


def _by_name(features: object, parts: dict[Name, Array]) -> dict[str, list[object]]:
    """For each feature what it is made of: inputs, or (input, part of it)."""
    if features is None:
        return _distinct((_label(name), [name]) for name in parts)
    if isinstance(features, Mapping):
        return _distinct(
            (str(name), list(members) if isinstance(members, list) else [members]) for name, members in features.items()
        )
    if isinstance(features, str) or not isinstance(features, Sequence):
        raise TypeError(
            f"features={shown(features)}: for several inputs pass a list of inputs, or a mapping from names to an "
            "input, (input, slice), (input, mask) or a list of these"
        )
    return _distinct((_label(name), [name]) for name in features)


def _distinct(named: Iterable[tuple[str, list[object]]]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for name, members in named:
        if name in found:
            raise ValueError(f"features: two are called {name[:80]!r}: name each once, as in {{'name': input}}")
        found[name] = members
    return found


def _label(name: object) -> str:
    return name if isinstance(name, str) else f"input {name}"


def _chosen(wanted: dict[str, list[object]], parts: dict[Name, Array]) -> dict[str, dict[Name, Indices]]:
    """For each feature and each input that it touches, which entries of a row belong to it, in increasing order."""
    found: dict[str, dict[Name, Indices]] = {}
    grids = {name: indexing.grid(tuple(part.shape[1:])) for name, part in parts.items()}
    for feature, members in wanted.items():
        own = found.setdefault(feature, {})
        for member in members:
            name, where = member if isinstance(member, tuple) and len(member) == 2 else (member, None)
            if not isinstance(name, Hashable) or isinstance(name, bool) or name not in parts:
                raise ValueError(f"features: {shown(feature)} names the input {shown(name)}, but X has {listed(parts)}")
            at = grids[name].reshape(-1)
            if where is not None:
                at = indexing.positions(where, grids[name], f"features: {shown(feature)}, input {shown(name)}")
            own[name] = np.union1d(own[name], at) if name in own else at
        if not own:
            raise ValueError(f"features: group {shown(feature)} is empty: give it an input or a part of one")
    return found


def _cut(here: dict[str, Indices], width: int) -> tuple[list[Indices | None], dict[str, list[int]]]:
    """The pieces of an input, entries that the same features hold; and which pieces are each feature's.

    Each feature splits the pieces that it meets only in part, so the work is that of the entries that features name,
    not of all entries for each feature.
    """
    piece, count = np.zeros(width, dtype=np.int64), 1
    for at in here.values():
        met, label = np.unique(piece[at], return_inverse=True)
        piece[at] = count + label
        count += len(met)
    numbers, piece = np.unique(piece, return_inverse=True)
    order = np.argsort(piece, kind="stable")
    cut: list[Indices | None] = list(np.split(order, np.cumsum(np.bincount(piece))[:-1]))
    owned = {feature: np.unique(piece[at]).tolist() for feature, at in here.items()}
    return [None] if len(numbers) == 1 else cut, owned
