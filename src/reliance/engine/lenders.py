"""What a feature is replaced by, if not by values of the measured rows: other rows, or values that are given.

Lenders are rows as the store has them, ``(m, P)``, or a tuple of such arrays for several inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from reliance._core import arrays, streams
from reliance._core.kinds import Array
from reliance._core.run import Run
from reliance._core.words import listed, shown
from reliance.data import tables
from reliance.data.checked_arrays import as_array
from reliance.data.several_inputs import Name
from reliance.engine.kernels import Block
from reliance.engine.problems import Problem, behind
from reliance.engine.stores import ArrayStore

# Inputs are called by their names; the only one by None.
_HIDDEN = "hidden"  # activations, where they are measured beside the numbers of rows


def at_hand(problem: Problem, asks: str) -> Problem:
    """With all rows as one array, beside which others can stand: a memory map is one, other sources are refused."""
    rows = problem.rows
    if rows.streamed is None:
        return problem
    return replace(problem, store=ArrayStore(rows.streamed.whole(asks), rows.shape))


def _parts(problem: Problem) -> dict[Name, Array]:
    """The rows ``(n, P)``, of each input by its name."""
    whole = problem.store.whole
    if problem.rows.inputs is None:
        assert not isinstance(whole, tuple)
        return {None: whole}
    return dict(zip(problem.rows.inputs.parts, whole, strict=True))


def _touched(problem: Problem) -> dict[Name, list[int]]:
    """Of each input, the columns that some feature has."""
    inputs = problem.rows.inputs
    if inputs is None:
        return {None: sorted({column for feature in problem.features for column in feature.columns})}
    columns: dict[Name, set[int]] = {name: set() for name in inputs.parts}
    for feature in problem.features:
        for name, own in zip(inputs.parts, inputs.columns(feature), strict=True):
            columns[name].update(own)
    return {name: sorted(own) for name, own in columns.items()}


def _block(parts: Mapping[Name, Array]) -> Block:
    return parts[None] if None in parts else tuple(parts.values())


def check_numbers(problem: Problem, what: str) -> None:
    """Features must be numbers to be replaced by numbers."""
    table = problem.rows.table
    if table is None:
        return
    coded = [problem.rows.names[j] for j in _touched(problem)[None] if j in table.coded]
    if coded:
        raise TypeError(
            f"{what} would put numbers in the place of {listed(coded, 3)}, which holds text, categories, dates or "
            "missing entries: leave it out of features, or borrow from the rows themselves"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Values that are made


def means(problem: Problem) -> Block:
    """One line: the mean of each column."""
    return _made(problem, "mean", lambda part, name: arrays.namespace(part).mean(part, axis=0, keepdims=True))


def zeros(problem: Problem) -> Block:
    """One line of 0."""
    check_numbers(problem, "replace='zero'")
    return _block({name: arrays.namespace(part).zeros_like(part[:1, :]) for name, part in _parts(problem).items()})


def noise(problem: Problem) -> Block:
    """``n`` lines of independent normal numbers, with the mean and the standard deviation of each column."""
    order = list(_parts(problem))

    def made(part: Array, name: Name) -> Array:
        xp, dev = arrays.namespace(part), arrays.device(part)
        normal = streams.stream(problem.key, streams.NOISE, order.index(name)).standard_normal(tuple(part.shape))
        drawn = arrays.from_host(normal, xp, dev, part.dtype)
        return xp.mean(part, axis=0, keepdims=True) + xp.std(part, axis=0, keepdims=True) * drawn

    return _made(problem, "noise", made)


def _made(problem: Problem, kind: str, made: Callable[[Array, Name], Array]) -> Block:
    check_numbers(problem, f"replace={shown(kind)}")
    found, touched = {}, _touched(problem)
    for name, part in _parts(problem).items():
        if arrays.is_floating(arrays.namespace(part), part.dtype):
            found[name] = made(part, name)
        elif touched[name]:
            raise TypeError(
                f"replace={shown(kind)} makes fractions, and {_input(name)} holds {part.dtype}: pass floating-point "
                "numbers, or replace= an array of that type"
            )
        else:
            found[name] = part
    return _block(found)


def _input(name: Name) -> str:
    return "X" if name is None or name == _HIDDEN else f"X[{shown(name)}]"


# ---------------------------------------------------------------------------------------------------------------------
# Values that are given


def given(problem: Problem, values: object) -> Block:
    """Values of one row, for all of them, or of every row: ``(1 or n, P)``."""
    check_numbers(problem, "replace=")
    parts, touched = _parts(problem), _touched(problem)
    passed = _by_input(problem, values)
    lines = {name: _lines(problem, passed[name], name) for name in parts if name in passed}
    missing = [name for name in parts if name not in lines and touched[name]]
    if missing:
        raise ValueError(f"replace= has nothing for {_input(missing[0])}, of which features are measured: add it")
    most = max(int(one.shape[0]) for one in lines.values())
    found = {}
    for name, part in parts.items():
        own = lines.get(name, part)
        xp = arrays.namespace(own)
        found[name] = own if own.shape[0] == most else xp.broadcast_to(own[:1, :], (most, own.shape[1]))
    return _block(found)


def of_function(problem: Problem, function: Callable[..., object]) -> Block:
    """The values that a function makes of all rows, as a model takes them."""
    inputs, table = problem.rows.inputs, problem.rows.table
    if table is not None:
        answer = function(table.decode(arrays.to_host(problem.flat)))
    elif inputs is None:
        mapped = arrays.to_host(problem.flat) if problem.rows.streamed is not None else None
        answer = function(problem.rows.X if mapped is None else mapped.reshape(-1, *problem.rows.shape))
    elif _HIDDEN in inputs.parts:
        answer = function(inputs.parts[_HIDDEN])
    else:
        answer = function(dict(inputs.parts) if inputs.named else tuple(inputs.parts.values()))
    return given(problem, answer)


def _by_input(problem: Problem, values: object) -> dict[Name, object]:
    inputs = problem.rows.inputs
    if tables.is_table(values):
        values = tables.read(values, "replace").array
    if inputs is None:
        return {None: values}
    if _HIDDEN in inputs.parts:
        return {_HIDDEN: values}
    if isinstance(values, Mapping):
        found = dict(values)
    elif isinstance(values, tuple | list) and len(values) == len(inputs.parts):
        found = dict(zip(inputs.parts, values, strict=True))
    elif isinstance(values, int | float):
        found = dict.fromkeys(inputs.parts, values)
    else:
        raise TypeError(
            f"replace={shown(values)}: X has the inputs {listed(inputs.parts, 3)}; pass a mapping or tuple of values, "
            "one for each input"
        )
    strange = [name for name in found if name not in inputs.parts]
    if strange:
        raise ValueError(f"replace= names {shown(strange[0])}, but X has the inputs {listed(inputs.parts, 3)}")
    return found


def _lines(problem: Problem, values: object, name: Name) -> Array:
    """``(1 or n, P)`` beside the rows, in their dtype."""
    part, shape = _parts(problem)[name], _shape(problem, name)
    passed = np.asarray(values) if isinstance(values, int | float) else as_array(values, "replace")
    if passed.ndim == 0:
        passed = np.full(shape, arrays.to_host(passed))
    if tuple(passed.shape) == shape:
        passed = passed[None, ...]
    if tuple(passed.shape[1:]) != shape or passed.shape[0] not in (1, problem.n):
        raise ValueError(
            f"replace= has shape {tuple(passed.shape)} for {_input(name)} of shape {(problem.n, *shape)}: pass values "
            f"of a row, {shape}, or of all rows; rl.Donors(X) has other rows to borrow from"
        )
    return _beside(passed, part, "replace=", name)


def _shape(problem: Problem, name: Name) -> tuple[int, ...]:
    inputs = problem.rows.inputs
    return problem.rows.shape if inputs is None else tuple(inputs.parts[name].shape[1:])


def _beside(values: Array, part: Array, what: str, name: Name) -> Array:
    """Flat, on the device and in the dtype of the rows, if that changes no value."""
    xp, dev = arrays.namespace(part), arrays.device(part)
    if arrays.namespace(values) is xp and arrays.device(values) == dev:
        cast = xp.astype(values, part.dtype, copy=False)
    else:
        cast = arrays.from_host(arrays.to_host(values), xp, dev, part.dtype)
    if not arrays.is_floating(xp, part.dtype) and np.any(arrays.to_host(cast) != arrays.to_host(values)):
        raise TypeError(
            f"{what} has values that {_input(name)}, which holds {part.dtype}, cannot take: pass the same type"
        )
    return xp.reshape(cast, (cast.shape[0], -1))


# ---------------------------------------------------------------------------------------------------------------------
# Other rows


def of_rows(problem: Problem, model: object, X: object, given_X: object, run: Run | None) -> Block:
    """Other rows than those that are measured, as the store has them: what is inside a network is computed."""
    check_numbers(problem, "rl.Donors(X)")
    if tables.is_table(X) and tables.is_table(given_X):
        first, second = tables.column_labels(given_X), tables.column_labels(X)
        if first != second:
            few = [listed(labels, 3) for labels in (second, first)]
            raise ValueError(f"rl.Donors(X) has the columns {few[0]}, X of the call {few[1]}: they must be the same")
    other = at_hand(behind(model, X, run, problem.memory), "rl.Donors(X)")
    mine, theirs = _parts(problem), _parts(other)
    if list(mine) != list(theirs):
        raise ValueError(
            f"rl.Donors(X) has the inputs {listed(theirs, 3)}, X of the call {listed(mine, 3)}: they must be the same"
        )
    check_numbers(other.of_features(problem.features), "rl.Donors(X)")
    found = {}
    for name, part in mine.items():
        shapes = _shape(problem, name), _shape(other, name)
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"rl.Donors(X): its rows have shape {shapes[1]}, those of {_input(name)} {shapes[0]}: pass rows alike"
            )
        found[name] = _beside(theirs[name], part, "rl.Donors(X)", name)
    return _block(found)
