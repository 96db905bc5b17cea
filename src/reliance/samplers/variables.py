"""What can be conditioned on: the model's features, and variables that it never saw."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.kinds import Array
from reliance._core.words import closest, listed, shown
from reliance.data import tables
from reliance.data.checked_arrays import as_array
from reliance.data.rows import Rows

REST: Final = "rest"
# Values of a column of text that are told apart where it is given.
_MOST_LEVELS = 50
# A set of variables: columns, or all but the feature's own.
Given: TypeAlias = tuple[int, ...] | Literal["rest"]


@dataclass(frozen=True, eq=False)
class Variables:
    """Features and context side by side.

    Attributes
    ----------
    matrix : array (n, P + C)
    width : int
        P, the number of columns of X.
    columns : dict
        The columns of each name.
    coded : tuple of int
        Columns of codes, which are no numbers (see `reliance.data.tables`).
    encoded : mapping
        For a column of codes of a table, the columns of 0 and 1 that stand for it where it is given: one for each of
        its values but the first.
    groups : mapping
        The columns of the features of a call that are no single columns: they can be given by their names, too.
    """

    matrix: Array
    width: int
    columns: dict[str, tuple[int, ...]]
    coded: tuple[int, ...] = ()
    encoded: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def name_of(self, column: int) -> str:
        """What a message calls a column, also one that stands for a value of another."""
        own = next((j for j, place in self.encoded.items() if column in place), column)
        return next((name for name, place in self.columns.items() if own in place), str(column))

    def named(self, message: str) -> str:
        """A sampler's message, which knows columns by number, with their names."""
        return re.sub(r"column (\d+) of X", lambda found: f"column {shown(self.name_of(int(found[1])))} of X", message)

    def with_uniforms(self, key: int) -> Variables:
        """With one more column: a number in [0, 1) for each row."""
        xp, dev = arrays.namespace(self.matrix), arrays.device(self.matrix)
        u = arrays.from_host(streams.uniforms(key, 0, int(self.matrix.shape[0]), 0, 1), xp, dev, self.matrix.dtype)
        return replace(self, matrix=xp.concat([self.matrix, u], axis=1))

    def given(self, wanted: Given, target: tuple[int, ...]) -> tuple[int, ...]:
        """The columns of a resolved set of variables, for a feature with these columns."""
        rest = tuple(j for j in range(self.width) if j not in target)
        found = rest if isinstance(wanted, str) else tuple(wanted)
        bad = [j for j in (*target, *found) if j in self.coded and j not in self.encoded]
        if found and bad:
            raise TypeError(
                f"column {shown(self.name_of(bad[0]))} is one of several inputs, or holds more than {_MOST_LEVELS} "
                "different texts, categories or dates, and samplers compute with numbers: encode it first, or leave it "
                "out of features and given"
            )
        if not any(j in self.encoded for j in found):
            return found
        return self._independent(found)

    def words(self, wanted: Given) -> str:
        """What a set is, for results."""
        if isinstance(wanted, str):
            return "given the rest"
        return f"given {', '.join(self.name_of(j) for j in wanted) or 'nothing'}"

    def _independent(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """With values in the place of codes, less those that follow from what is given before them.

        A category that follows from another one says nothing more, and no line can be fitted to both.
        """
        plain = tuple(j for j in found if j not in self.encoded)
        values = [c for j in found for c in self.encoded.get(j, ())]
        known = np.asarray(arrays.to_host(self.matrix), dtype=np.float64)
        basis = np.linalg.qr(np.column_stack([np.ones(len(known)), known[:, list(plain)]]))[0]
        kept = []
        for c in values:
            left = known[:, c] - basis @ (basis.T @ known[:, c])
            left -= basis @ (basis.T @ left)  # once more: what is left may be small
            size = np.linalg.norm(left)
            if size > 1e-8 * np.linalg.norm(known[:, c]):
                basis = np.column_stack([basis, left / size])
                kept.append(c)
        return (*plain, *kept)


def check_order(X: object, context: object, fit_on: object) -> None:
    """Variables of tables must have the rows of X, or of the rows to fit on, in the same order."""
    pairs: list[tuple[str, object, str, object]] = [("X", X, "context", context)]
    if isinstance(fit_on, tuple | list) and len(fit_on) == 2:
        pairs.append(("fit_on[0]", fit_on[0], "fit_on[1]", fit_on[1]))
    for name, rows, other, given in pairs:
        several = given if isinstance(given, Mapping) else {}
        parts = {f"{other}[{shown(key)}]": part for key, part in several.items()} or {other: given}
        for label, part in parts.items():
            tables.check_aligned(**{name: rows, label: part})


def gather(rows: Rows, context: object, y: object, moved: bool = False) -> Variables:
    """The variables of the evaluated rows; ``moved``: X was NumPy and went to a torch module, as they do, then."""
    flat = rows.flat
    columns: dict[str, tuple[int, ...]] = {name: (j,) for j, name in enumerate(rows.names)}
    groups = {feature.name: feature.columns for feature in rows.features if feature.name not in columns}
    parts, width, encoded = [arrays.as_floating(flat)], int(flat.shape[1]), {}
    for j, levels in _levels(rows).items():
        parts.append(arrays.from_host(levels, rows.xp, rows.device, parts[0].dtype))
        encoded[j] = tuple(range(width, width + levels.shape[1]))
        width += levels.shape[1]
    for name, values in ({} if context is None else _checked_context(context, flat, moved)).items():
        if name in columns or name in groups:
            raise ValueError(f"context: {shown(name)} is the name of a feature, too; give the variable another name")
        if y is not None and _is_label(values, as_array(y, "y")):
            raise ValueError(f"context: {shown(name)} equals y; the label cannot be conditioned on")
        columns[name] = tuple(range(width, width + int(values.shape[1])))
        width += int(values.shape[1])
        parts.append(arrays.namespace(flat).astype(values, parts[0].dtype))
    matrix = parts[0] if len(parts) == 1 else rows.xp.concat(parts, axis=1)
    return Variables(matrix, int(flat.shape[1]), columns, rows.coded, encoded, groups)


def _levels(rows: Rows) -> dict[int, NDArray[np.float64]]:
    """For each column of a table that holds codes of not too many values, ``(n, m - 1)`` columns of 0 and 1."""
    found = {}
    for j in () if rows.table is None else rows.table.coded:
        codes = arrays.to_host(rows.flat[:, j]).astype(np.int64)
        if codes.max() < _MOST_LEVELS:
            found[j] = (codes[:, None] == np.arange(1, codes.max() + 1)).astype(np.float64)
    return found


def gather_training(fit_on: Sequence[object], evaluated: Variables, X: Array, moved: bool = False) -> Array:
    """``(m, P + C)``: the rows that samplers are fitted on, if not the evaluated ones."""
    rows, context = fit_on
    if evaluated.encoded:
        raise TypeError(
            f"fit_on: column {shown(evaluated.name_of(min(evaluated.encoded)))} of X holds text, categories or dates, "
            "whose codes are those of X alone: encode it first, or leave fit_on out"
        )
    if tables.is_table(rows):
        rows = _same_columns(tables.numeric_columns(rows, "fit_on[0]"), evaluated)
    rows = _beside(as_array(rows, "fit_on[0]"), X, moved)
    if arrays.namespace(rows) is not arrays.namespace(X) or arrays.device(rows) != arrays.device(X):
        raise TypeError(f"fit_on: X_train is a {arrays.describe(rows)} but X is a {arrays.describe(X)}: convert it")
    if len(rows.shape) < 2 or rows.shape[0] < 2:
        raise ValueError(
            f"fit_on: X_train has shape {tuple(rows.shape)}: pass at least 2 rows of features, or no fit_on to fit the "
            "sampler on the rows of X"
        )
    xp = arrays.namespace(rows)
    flat = xp.reshape(rows, (rows.shape[0], -1))
    if int(flat.shape[1]) != evaluated.width:
        raise ValueError(f"fit_on: X_train has {flat.shape[1]} columns but X has {evaluated.width}")
    outside = {name: place for name, place in evaluated.columns.items() if place[0] >= evaluated.width}
    found = {} if context is None else _checked_context(context, flat, moved)
    missing = [name for name in outside if name not in found]
    if missing:
        raise ValueError(
            f"fit_on: context_train lacks {shown(missing[0])}, which context has: pass it for the same rows"
        )
    dtype = evaluated.matrix.dtype
    parts = [xp.astype(flat, dtype, copy=False), *(xp.astype(found[name], dtype) for name in outside)]
    training = parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)
    if training.shape[1] != evaluated.matrix.shape[1]:
        raise ValueError("fit_on: the variables of context_train have other widths than those of context")
    return training


def resolve_given(given: object, variables: Variables) -> dict[str, Given]:
    """Sets of variables by name: columns, or "rest". One set that is not named has the name ""."""
    if isinstance(given, Mapping):
        if not given:
            raise ValueError("given is an empty mapping: name at least one set, for instance {'none': []}")
        return {str(name): _columns(members, variables) for name, members in given.items()}
    return {"": _columns(given, variables)}


def _columns(members: object, variables: Variables) -> Given:
    if isinstance(members, str):
        if members == REST:
            return REST
        raise TypeError(f"given={shown(members)} is a text: pass a list of names, [{shown(members)}], or 'rest'")
    if not isinstance(members, Sequence):
        raise TypeError(
            f"given={shown(members)} is a {type(members).__name__}: pass a list of names or indices, or 'rest'"
        )
    found: list[int] = []
    for member in members:
        if isinstance(member, bool | np.bool_) or not isinstance(member, str | int | np.integer):
            raise TypeError(f"given holds {shown(member)}: name features by name or index, context variables by name")
        if isinstance(member, str):
            known = {**variables.groups, **variables.columns}
            if member not in known:
                raise ValueError(
                    f"given names {shown(member)}, which is neither a feature nor a variable of context: "
                    f"{closest(member, known)}. The label cannot be conditioned on"
                )
            found += known[member]
        elif not 0 <= int(member) < variables.width:
            raise ValueError(f"given holds the index {member}: X has the columns 0 to {variables.width - 1}")
        else:
            found.append(int(member))
    return tuple(dict.fromkeys(found))


def _checked_context(context: object, flat: Array, moved: bool) -> dict[str, Array]:
    """Each variable as (n, k), of the namespace and on the device of X."""
    if tables.is_table(context):
        context = tables.numeric_columns(context, "context")
    if not isinstance(context, Mapping):
        raise TypeError(
            f"context is a {type(context).__name__}: pass a mapping from names to arrays (n,) or (n, k), or a table"
        )
    found = {}
    for name, given in context.items():
        values = _beside(as_array(given, f"context[{shown(name)}]"), flat, moved)
        if arrays.namespace(values) is not arrays.namespace(flat) or arrays.device(values) != arrays.device(flat):
            raise TypeError(
                f"context[{shown(name)}] is a {arrays.describe(values)} but X is a {arrays.describe(flat)}: convert it"
            )
        if values.ndim not in (1, 2) or values.shape[0] != flat.shape[0]:
            raise ValueError(
                f"context[{shown(name)}] has shape {tuple(values.shape)}: it must have one entry or line for each of "
                f"the {flat.shape[0]} rows"
            )
        if isinstance(values, np.ndarray) and values.dtype.kind in "US":
            raise TypeError(f"context[{shown(name)}] holds text: pass categories as integers")
        found[str(name)] = values[:, None] if values.ndim == 1 else values
    return found


def _same_columns(columns: Mapping[str, Array], evaluated: Variables) -> Array:
    """The columns of a table in the order of X."""
    own = [name for name, place in evaluated.columns.items() if place[0] < evaluated.width]
    if set(own) != set(columns):
        lacks, more = (
            listed(sorted(one - other)) for one, other in ((set(own), set(columns)), (set(columns), set(own)))
        )
        raise ValueError(
            "fit_on: X_train must have the columns of X; it "
            + " and ".join(part for part in (lacks and f"lacks {lacks}", more and f"has {more} besides") if part)
        )
    return arrays.namespace(*columns.values()).stack([columns[name] for name in own], axis=1)


def _beside(values: Array, X: Array, moved: bool) -> Array:
    if moved and isinstance(values, np.ndarray):
        return arrays.from_host(values, arrays.namespace(X), arrays.device(X))
    return values


def _is_label(values: Array, y: Array) -> bool:
    host = arrays.to_host(values)
    label = arrays.to_host(y)
    return label.ndim == 1 and host.shape[1] == 1 and np.array_equal(host[:, 0], label) and len(np.unique(label)) > 2
