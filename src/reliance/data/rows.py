"""Checked data: rows, labels, weights, names and features, whatever they came as. No model is known here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, Device, HostArray, Namespace
from reliance._core.words import shown
from reliance.data import clusters as grouping
from reliance.data import on_disk, several_inputs, tables
from reliance.data.checked_arrays import (
    as_array,
    check_companion,
    check_finite,
    check_labels_finite,
    check_rows,
    checked_weights,
)
from reliance.data.clusters import Membership
from reliance.data.features import Feature, column_names, resolve_features
from reliance.data.passed import FeaturesLike
from reliance.data.several_inputs import Inputs
from reliance.data.streamed import Source, Streamed
from reliance.data.tables import Table


@dataclass(frozen=True)
class Rows:
    """Rows to measure on, checked.

    Attributes
    ----------
    flat : array (n, P)
        Numbers, or codes and row numbers that stand for what is none: see `numbers`. Rows that are read in blocks,
        `Streamed`, can be indexed as an array, and refuse everything else.
    shape : tuple of int
        Of one row as a model takes it.
    y : array (n, ...) or None
    weights : array (n,) or None
        Of the rows' losses, on the host in float64, the largest about 1.
    features : tuple of Feature
        What is measured.
    names : tuple of str
        Of the P columns.
    table : Table or None
        What the rows came as, if it was a table.
    inputs : Inputs or None
        What they came as, if it was several inputs.
    clusters : Membership or None
        Which rows belong together, if they are not independent.
    """

    flat: Array
    shape: tuple[int, ...]
    y: Array | None
    weights: NDArray[np.float64] | None
    features: tuple[Feature, ...]
    names: tuple[str, ...]
    table: Table | None = None
    inputs: Inputs | None = None
    clusters: Membership | None = None

    @property
    def n(self) -> int:
        return int(self.flat.shape[0])

    @property
    def xp(self) -> Namespace:
        return arrays.namespace(self.flat)

    @property
    def device(self) -> Device:
        return arrays.device(self.flat)

    @property
    def streamed(self) -> Streamed | None:
        """The rows, if they are read in blocks."""
        return self.flat if isinstance(self.flat, Streamed) else None

    @property
    def X(self) -> Array:
        """``(n, *shape)``."""
        return self.xp.reshape(self.flat, (self.n, *self.shape))

    @property
    def coded(self) -> tuple[int, ...]:
        """Columns that only a model can read: codes of text, categories or dates, and row numbers of several inputs."""
        if self.inputs is not None:
            return tuple(range(len(self.inputs.pieces)))
        return () if self.table is None else self.table.coded

    @cached_property
    def texts(self) -> Mapping[int, tuple[str, ...]]:
        """The value behind each code of a table's columns, in words."""
        return {} if self.table is None else {j: self.table.texts(j) for j in self.table.coded}

    def numbers(self, asks: str, columns: Sequence[int] | None = None) -> Array:
        """``(n, P)``: the rows as numbers to compute with; an error in words if they, or some columns, are none.

        ``asks`` is who needs numbers.
        """
        if self.streamed is not None and columns is None:
            return self.streamed.whole(asks)
        bad = [j for j in self.coded if columns is None or j in columns]
        if bad:
            raise TypeError(
                f"{asks} needs numbers, but {self.names[bad[0]][:80]!r} of X holds text, categories, dates, missing "
                "entries or one of several inputs: encode it as numbers, pass one array, or leave it out"
            )
        return self.flat

    def values(self, feature: Feature) -> HostArray:
        """``(n, g)`` on the host: the feature's own numbers, codes where it has none."""
        if self.inputs is not None:
            return self.inputs.values(feature)
        if arrays.is_mutable(self.xp):
            return arrays.to_host(self.xp.concat([self.flat[:, run] for run in feature.runs], axis=1))
        # JAX compiles for a shape: column by column, groups of any size need nothing new.
        return np.stack([arrays.to_host(self.flat[:, column]) for column in feature.columns], axis=1)

    def take(self, ids: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        index = arrays.from_host(ids, self.xp, self.device, arrays.index_dtype(self.xp))
        read = self.streamed
        return dataclasses.replace(
            self,
            flat=self.xp.take(self.flat, index, axis=0) if read is None else read.some(ids),
            y=None if self.y is None else arrays.namespace(self.y).take(self.y, index, axis=0),
            weights=None if self.weights is None else self.weights[ids],
            inputs=None if self.inputs is None else self.inputs.take(index),
            clusters=None if self.clusters is None else self.clusters.take(ids),
        )

    def head(self, n: int) -> Rows:
        """The first n rows."""
        return dataclasses.replace(
            self,
            flat=self.flat[:n, :] if self.streamed is None else self.streamed.some(np.arange(n)),
            y=None if self.y is None else self.y[:n, ...],
            weights=None if self.weights is None else self.weights[:n],
            inputs=None if self.inputs is None else self.inputs.head(n),
            clusters=None if self.clusters is None else self.clusters.take(np.arange(n)),
        )


def read(
    X: object,
    y: object = None,
    *,
    features: FeaturesLike = None,
    weights: object = None,
    names: Sequence[str] | None = None,
    clusters: object = None,
    fewest: int = 2,
) -> Rows:
    """Rows, labels, weights and clusters, checked; at least so many, two if they lend to each other."""
    source = on_disk.opened(X)
    if source is not None:
        if isinstance(grouping.companion(clusters), str) and not isinstance(clusters, grouping.Blocks):
            raise ValueError(
                f"clusters={shown(clusters)} names a column, and X is read in blocks: pass an array with a label for "
                "each row"
            )
        return _with_clusters(_read_in_blocks(*on_disk.companions(source, y, weights), features, names), clusters)
    on_disk.check_inputs(X)
    tables.check_aligned(X=X, y=y, weights=weights, clusters=grouping.companion(clusters))
    table = tables.read(X, "X") if tables.is_table(X) else None
    if table is not None:
        X, names = table.array, table.names if names is None else names
    inputs = several_inputs.read(X, features, names) if several_inputs.is_several(X) else None
    rows = as_array(X, "X") if inputs is None else inputs.array
    found = None if y is None else as_array(y, "y")
    weighing = None if weights is None else as_array(weights, "weights")
    check_rows(rows, fewest)
    check_companion(rows, found, "y")
    check_companion(rows, weighing, "weights")
    check_finite([rows], found)
    shape = tuple(rows.shape[1:])
    checked = Rows(
        flat=arrays.namespace(rows).reshape(rows, (rows.shape[0], -1)),
        shape=shape,
        y=found,
        weights=None if weighing is None else checked_weights(weighing),
        features=resolve_features(features, names, shape) if inputs is None else inputs.features,
        names=column_names(names if inputs is None else inputs.names, shape),
        table=table,
        inputs=inputs,
    )
    return _with_clusters(checked, clusters)


def _with_clusters(rows: Rows, clusters: object) -> Rows:
    if clusters is None:
        return rows

    def column(name: str) -> HostArray | None:
        if rows.inputs is not None or name not in rows.names:
            return None
        return arrays.to_host(rows.flat[:, rows.names.index(name)])

    return dataclasses.replace(rows, clusters=grouping.read(clusters, rows.n, column, rows.names))


def _read_in_blocks(
    source: Source, y: object, weights: object, features: FeaturesLike, names: Sequence[str] | None
) -> Rows:
    """The same of rows that are not in memory: what is checked about X is checked on the way."""
    as_array(np.empty((1, *source.shape[1:]), dtype=source.dtype), "X")
    # Of the shape and dtype of X, without its numbers.
    check_rows(np.broadcast_to(np.zeros((), dtype=source.dtype.newbyteorder("=")), source.shape))
    streamed = on_disk.streamed(source)
    found, weighing = on_disk.beside(y, "y", streamed), on_disk.beside(weights, "weights", streamed)
    check_companion(streamed, found, "y")
    check_companion(streamed, weighing, "weights")
    check_finite(on_disk.numbers(streamed), found)
    shape, known = tuple(source.shape[1:]), source.names if names is None else names
    return Rows(
        flat=streamed,
        shape=shape,
        y=found,
        weights=None if weighing is None else checked_weights(weighing),
        features=resolve_features(features, known, shape),
        names=column_names(known, shape),
    )


def labels(rows: Rows, y: object, name: str, moved: bool = False) -> Array | None:
    """Further labels of rows that are read, checked as y is; ``moved``: the rows went elsewhere, and so do these."""
    if y is None:
        return None
    given = as_array(y, name)
    found = arrays.beside(given, rows.flat) if moved else given
    check_companion(rows.flat, found, name)
    check_labels_finite(found, name)
    return found
