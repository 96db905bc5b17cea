"""Several inputs of a model: a tuple or a mapping of arrays, of which a feature is one input, or a part of one.

The engine moves row numbers. Each input is cut into pieces, such that a feature is a set of whole pieces, and a piece
is one column that holds the number of the row it is taken from. Before the model is called, the pieces are put together
again from those rows. So inputs of any shape and type are exchanged as they are, by the same engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import (
    describe,
    device,
    from_host,
    index_dtype,
    is_array,
    itemsize,
    namespace,
    to_host,
)
from reliance._core.kinds import Array, HostArray
from reliance._core.words import listed, shown
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
    pieces : tuple of (name, mask)
        Which input, and which entries of a row of it, a host array of booleans; None: all of them.
    features : tuple of Feature
        Whose columns are pieces.
    """

    parts: dict[Name, Array]
    named: bool
    pieces: tuple[tuple[Name, NDArray[np.bool_] | None], ...]
    features: tuple[Feature, ...]

    @property
    def array(self) -> Array:
        """``(n, pieces)``: from which row each piece of each row is taken, in the beginning from the row itself."""
        first = next(iter(self.parts.values()))
        xp, dev = namespace(first), device(first)
        own = np.broadcast_to(np.arange(first.shape[0])[:, None], (first.shape[0], len(self.pieces)))
        return from_host(np.ascontiguousarray(own), xp, dev, index_dtype(xp))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the pieces."""
        return tuple(f"{name}, piece {k}" for k, (name, _) in enumerate(self.pieces))

    @property
    def row_bytes(self) -> int:
        """Of all inputs of a row."""
        return sum(math.prod(part.shape[1:]) * itemsize(part) for part in self.parts.values())

    def values(self, feature: Feature) -> HostArray:
        """``(n, g)`` on the host: every entry of a row that belongs to a feature, of whichever inputs."""
        found = []
        for column in feature.columns:
            name, mask = self.pieces[column]
            part = to_host(self.parts[name])
            flat = part.reshape(part.shape[0], -1)
            found.append(flat if mask is None else flat[:, mask.reshape(-1)])
        return np.concatenate(found, axis=1)

    def assembler(self) -> Callable[[Array], dict[Name, Array]]:
        """The function that puts inputs together from row numbers ``(m, pieces)``."""
        first = next(iter(self.parts.values()))
        xp, dev = namespace(first), device(first)
        masks = [None if mask is None else from_host(mask, xp, dev) for _, mask in self.pieces]

        def put_together(block: Array) -> dict[Name, Array]:
            made: dict[Name, Array] = {}
            for column, ((name, _), mask) in enumerate(zip(self.pieces, masks, strict=True)):
                taken = xp.take(self.parts[name], block[:, column], axis=0)
                made[name] = taken if mask is None or name not in made else xp.where(mask, taken, made[name])
            return made

        return put_together


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
    chosen = _masks(_by_name(features, parts), parts)
    pieces: list[tuple[Name, NDArray[np.bool_] | None]] = []
    columns: dict[str, list[int]] = {feature: [] for feature in chosen}
    for name, part in parts.items():
        here = {feature: masks[name] for feature, masks in chosen.items() if name in masks}
        for mask, owners in _cut(here, tuple(part.shape[1:])):
            for feature in owners:
                columns[feature].append(len(pieces))
            pieces.append((name, mask))
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


def _masks(wanted: dict[str, list[object]], parts: dict[Name, Array]) -> dict[str, dict[Name, NDArray[np.bool_]]]:
    """For each feature and each input that it touches, which entries of a row belong to it."""
    found: dict[str, dict[Name, NDArray[np.bool_]]] = {}
    for feature, members in wanted.items():
        found[feature] = {}
        for member in members:
            name, where = member if isinstance(member, tuple) and len(member) == 2 else (member, None)
            if not isinstance(name, Hashable) or isinstance(name, bool) or name not in parts:
                raise ValueError(f"features: {shown(feature)} names the input {shown(name)}, but X has {listed(parts)}")
            mask = _mask(where, tuple(parts[name].shape[1:]), f"features: {feature!r}, input {name!r}")
            found[feature][name] = found[feature].get(name, np.zeros_like(mask)) | mask
    return found


def _mask(where: object, shape: tuple[int, ...], what: str) -> NDArray[np.bool_]:
    mask = np.zeros(shape, dtype=bool)
    if where is None:
        return ~mask
    if isinstance(where, slice | int | np.integer) and not isinstance(where, bool) and shape:
        mask[where] = True
    else:
        given = to_host(where) if is_array(where) else np.asarray(where)
        if given.dtype != np.bool_ or given.shape != shape:
            raise ValueError(
                f"{what}: pass a slice of the first axis of a row, or a boolean mask of the shape {shape} of a row"
            )
        mask |= given
    if not mask.any():
        raise ValueError(f"{what}: {shown(where)} chooses nothing of a row of the shape {shape}")
    return mask


def _cut(
    here: dict[str, NDArray[np.bool_]], shape: tuple[int, ...]
) -> list[tuple[NDArray[np.bool_] | None, list[str]]]:
    """The pieces of an input: entries that the same features hold, and which features these are."""
    if not here:
        return [(None, [])]
    owners = np.stack([mask.reshape(-1) for mask in here.values()])  # (features, entries)
    kinds, which = np.unique(owners, axis=1, return_inverse=True)
    names, found = list(here), []
    for k in range(kinds.shape[1]):
        mask = None if kinds.shape[1] == 1 else (which.reshape(-1) == k).reshape(shape)
        found.append((mask, [names[f] for f in np.flatnonzero(kinds[:, k])]))
    return found
