"""Everything the user passes is checked once, here, and becomes one frozen `Problem`."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from reliance import _array, models, several_inputs, tables
from reliance._array import Array, Device, Namespace
from reliance.features import Feature, column_names, resolve_features
from reliance.kinds import check_kind
from reliance.loss_formulas import is_numeric
from reliance.losses import Loss, Metric, compares_labels, resolve_all, takes_weights
from reliance.models import Model
from reliance.responses import assigned, label_positions
from reliance.rng import RandomState, resolve_key
from reliance.several_inputs import Inputs
from reliance.stores import ArrayStore, Store
from reliance.tables import Table

DEFAULT_MEMORY = "1GB"
CURVES = ("curves", "ice")
NEED_PAIRS = "curves come from all pairs of rows: pass them to model_reliance(pairs='all')"
# Numbers that are looked at together: the answers for all of X would take an eighth of its size.
_FINITE_CHUNK = 2**16

Progress: TypeAlias = bool | Callable[[int, int], None]
Block: TypeAlias = int | tuple[int, int] | str | None


@dataclass(frozen=True)
class Problem:
    """A model and the rows to measure it on, checked.

    Attributes
    ----------
    store : Store
        The rows, on the device where the work happens.
    targets : tuple
        For each loss what predictions are compared with, ``(n, ...)``; None for the model's own predictions.
    weights : array (n,) or None
        Weights of the rows' losses, the largest about 1; ``host_weights`` the same on the host in float64.
    features : tuple of Feature
    losses : tuple of Loss or Metric
    key : int
        Of the random numbers.
    memory : int
        Bytes that the engine may allocate.
    block : int, (rows, draws), "tune" or None
    names : tuple of str
        Of the P columns.
    coded : tuple of int
        Columns that hold codes of text, categories or dates (see `reliance.tables`), which only the model understands.
    """

    model: Model
    store: Store
    targets: tuple[Array | None, ...]
    weights: Array | None
    host_weights: NDArray[np.float64] | None
    features: tuple[Feature, ...]
    losses: tuple[Loss | Metric, ...]
    several: bool
    key: int
    memory: int
    block: Block
    progress: Progress
    keep: frozenset[str]
    names: tuple[str, ...] = ()
    coded: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        return self.store.n

    @property
    def flat(self) -> Array:
        """``(n, P)``: the rows as they were given."""
        return cast(ArrayStore, self.store).flat

    def numbers(self, asks: str, columns: Sequence[int] | None = None) -> Array:
        """``(n, P)``: the rows as numbers to compute with; an error in words if they, or some columns, are none.

        Codes of text and the row numbers of several inputs are only for the model. ``asks`` is who needs numbers.
        """
        bad = [j for j in self.coded if columns is None or j in columns]
        if bad:
            raise TypeError(
                f"{asks} needs numbers, but {self.names[bad[0]][:80]!r} of X holds text, categories, dates, missing "
                "entries or one of several inputs: encode it as numbers, pass one array, or leave it out"
            )
        return self.flat

    @property
    def xp(self) -> Namespace:
        return self.store.xp

    @property
    def device(self) -> Device:
        return self.store.device

    def head(self, n: int) -> Problem:
        """The same problem on its first n rows."""
        return dataclasses.replace(
            self,
            store=cast(ArrayStore, self.store).head(n),
            targets=tuple(None if t is None else t[:n, ...] for t in self.targets),
            weights=None if self.weights is None else self.weights[:n],
            host_weights=None if self.host_weights is None else self.host_weights[:n],
        )


def prepare(
    model: Any,
    X: Any,
    y: Any,
    features: Any = None,
    loss: Any = "squared_error",
    weights: Any = None,
    rng: RandomState = None,
    memory: int | str | None = None,
    block: Block = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    keeps: Sequence[str] = ("rows",),
    seen: bool = False,
) -> Problem:
    """Check the arguments that all methods share; ``keeps`` is what the method can keep.

    ``seen``: whether the values of X and y were looked at already, so that nothing is said twice about them.
    """
    losses = resolve_all(loss)
    tables.check_aligned(X=X, y=y, weights=weights)
    table = tables.read(X, "X") if tables.is_table(X) else None
    if table is not None:
        X, names = table.array, table.names if names is None else names
    inputs = several_inputs.read(X, features, names) if several_inputs.is_several(X) else None
    X = as_array(X, "X") if inputs is None else inputs.array
    y = None if y is None else as_array(y, "y")
    weights = None if weights is None else as_array(weights, "weights")
    _check_rows(X)
    _check_companion(X, y, "y")
    _check_companion(X, weights, "weights")
    # Checks first, transfer second: what is wrong is wrong where the user's arrays are.
    if not seen:
        _check_finite(X, y)
    host_weights = None if weights is None else checked_weights(weights, losses)
    if inputs is None:
        X, y, _ = models.at_home(model, X, y, None)
        adapted = models.on_arrays_of(models.adapt(model, losses), X)
    else:
        inputs = inputs.at_home(model)
        X, y = (None if a is None else _array.beside(a, inputs.array) for a in (X, y))
        adapted, names = inputs.model(models.adapt(model, losses)), inputs.names
    if table is not None:
        adapted = models.on_table(adapted, table)
    if adapted.parts is not None:
        losses = assigned(losses, adapted.parts)
    return Problem(
        model=adapted,
        store=ArrayStore.of(X),
        targets=tuple(_target(function, y, adapted) for function in losses),
        weights=None if host_weights is None else _upload(host_weights, X),
        host_weights=host_weights,
        features=resolve_features(features, names, tuple(X.shape[1:])) if inputs is None else inputs.features,
        losses=losses,
        several=isinstance(loss, list | tuple),
        key=resolve_key(rng),
        memory=parse_memory(DEFAULT_MEMORY if memory is None else memory),
        block=_checked_block(block),
        progress=_checked_progress(progress),
        keep=_checked_keep(keep, keeps),
        names=column_names(names, tuple(X.shape[1:])),
        coded=_coded(table, inputs),
    )


def _coded(table: Table | None, inputs: Inputs | None) -> tuple[int, ...]:
    if inputs is not None:
        return tuple(range(len(inputs.pieces)))
    return () if table is None else table.coded


def check_draws(draws: Any, name: str = "draws") -> int:
    """A number of draws: an integer of at least 1."""
    if isinstance(draws, bool | np.bool_) or not isinstance(draws, int | np.integer):
        raise TypeError(f"{name}={draws!r} is not an integer: pass how many times each row is replaced")
    if draws < 1:
        raise ValueError(f"{name}={draws} is too small: each row must be replaced at least once")
    return int(draws)


def check_choice(value: Any, choices: Sequence[str], name: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: choose one of {', '.join(map(repr, choices))}")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


def as_array(x: Any, name: str) -> Array:
    """An array of a supported namespace as it is; nested lists, and columns of tables, as NumPy."""
    if isinstance(x, Generator | Iterator | map | zip | filter):
        raise TypeError(f"{name} is a {type(x).__name__}, which can be read only once: pass an array or list({name})")
    check_kind(x, name)
    if tables.is_column(x) or tables.is_table(x):
        x = tables.as_column(x, name)
    if not _array.is_array(x):
        if not isinstance(x, list | tuple | range):
            raise TypeError(
                f"{name} is a {type(x).__name__}: pass a NumPy, CuPy, JAX or torch array, or a list of numbers"
            )
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ValueError(
                f"{name} is a list that NumPy cannot read as an array: its rows differ in length"
            ) from error
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first")
    if _array.namespace(x) is _array.namespace(np.empty(0)) and x.dtype.kind not in "biufUS":
        raise TypeError(f"{name} has dtype {x.dtype}: pass numbers, for instance {name}.astype(float)")
    return x


def _check_rows(X: Array) -> None:
    if X.ndim < 2:
        raise ValueError(f"X has shape {tuple(X.shape)}: it must be (n, features), for one feature X[:, None]")
    if X.shape[0] < 2:
        raise ValueError(
            f"X has {X.shape[0]} rows: replacing a feature needs at least 2, one to lend and one to borrow"
        )
    if math.prod(X.shape[1:]) == 0:
        raise ValueError(f"X has shape {tuple(X.shape)}: there is no feature to replace")
    if X.shape[0] >= 2**31:
        raise ValueError(f"X has {X.shape[0]} rows: the limit is 2**31 - 1")
    if isinstance(X, np.ndarray) and X.dtype.kind in "US":
        raise TypeError(f"X has dtype {X.dtype}: pass numbers, for instance with the strings encoded as integers")


def _check_companion(X: Array, other: Array | None, name: str) -> None:
    """Labels and weights come with X: same namespace, same device, same number of rows."""
    if other is None:
        return
    if _array.namespace(other) is not _array.namespace(X) or _array.device(other) != _array.device(X):
        raise TypeError(
            f"{name} is a {_array.describe(other)} but X is a {_array.describe(X)}: convert one of them, so that both "
            "are of one kind and on one device"
        )
    if other.ndim == 0 or other.shape[0] != X.shape[0]:
        raise ValueError(
            f"{name} has shape {tuple(other.shape)} but X has {X.shape[0]} rows: their first axes must be equal"
        )


def _all_finite(x: Array) -> bool:
    xp = _array.namespace(x)
    if isinstance(x, np.ndarray):
        return x.dtype.kind not in "fc" or _host_finite(x)
    if not _array.is_floating(xp, x.dtype):
        return True
    # NaN and infinities survive in a sum, which needs no room; finite numbers may overflow in it.
    return bool(_array.to_host(xp.isfinite(xp.sum(x)))) or bool(_array.to_host(xp.all(xp.isfinite(x))))


def _host_finite(x: NDArray[np.floating]) -> bool:
    """One pass over memory: a sum of squares is finite only if all numbers are. If it is not, they are looked at."""
    flat = x.reshape(-1) if x.flags.c_contiguous else x.T.reshape(-1) if x.flags.f_contiguous else None
    if flat is not None and x.dtype.itemsize >= 4:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.dot(flat, flat)):
                return True
    step = max(1, _FINITE_CHUNK // math.prod(x.shape[1:]))
    return all(bool(np.isfinite(x[start : start + step]).all()) for start in range(0, len(x), step))


def _check_finite(X: Array, y: Array | None) -> None:
    if y is not None and not _all_finite(y):
        raise ValueError("y holds NaN or infinite values: drop those rows, a loss cannot be computed for them")
    if not _all_finite(X):
        warnings.warn(
            "X holds NaN or infinite values. They are passed on as they are: fine if the model takes them.",
            UserWarning,
            stacklevel=4,
        )


def checked_weights(weights: Array, losses: Sequence[Loss | Metric]) -> NDArray[np.float64]:
    """Weights on the host in float64, for inference, times a power of 2: no sum or square over- or underflows.

    Only their proportions count, and powers of 2 leave every digit of these.
    """
    if weights.ndim != 1:
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}: give one number a row, shape ({weights.shape[0]},)"
        )
    if not is_numeric(weights) or weights.dtype == _array.namespace(weights).bool:
        raise TypeError(
            f"weights has dtype {weights.dtype}: give one number a row. To leave rows out, take them out of X, y and "
            "weights; weights of 0 and 1 keep their features as donors"
        )
    for function in losses:
        check_takes_weights(function, "weights= is given")
    host = np.asarray(_array.to_host(weights), dtype=np.float64)
    if not np.isfinite(host).all():
        raise ValueError("weights holds NaN or infinite values: give finite, non-negative numbers")
    if (host < 0).any():
        raise ValueError(f"weights holds negative values (the smallest is {host.min():g}): give non-negative numbers")
    if not host.any():
        raise ValueError("weights are all zero: at least one row must count")
    return np.asarray(np.ldexp(host, -int(np.frexp(host.max())[1])))


def check_takes_weights(function: Loss | Metric, why: str) -> None:
    """A metric that will be called with weights must take them: said before the work."""
    if isinstance(function, Metric) and not takes_weights(function):
        raise TypeError(
            f"{why}, so metric {function.name!r} is called as (y, prediction, weights), but its functions take "
            "no weights: give value and influence a third argument, weights=None"
        )


def _upload(values: NDArray[np.float64], X: Array) -> Array:
    xp, dev = _array.namespace(X), _array.device(X)
    return _array.from_host(values, xp, dev, _array.sum_dtype(xp, dev))


def _target(function: Loss | Metric, y: Array | None, model: Model) -> Array | None:
    """What predictions are compared with; labels as positions among the model's classes where it has them."""
    if function.target == "prediction":
        return None
    if y is None:
        raise ValueError(
            f"y is None but loss={function.name!r} needs labels: pass y, or loss='prediction_shift', which needs none"
        )
    if model.classes is None or not compares_labels(function):
        return y
    labels = _array.to_host(y)
    position = label_positions(labels, model.classes)
    if np.any(position < 0):
        stranger = labels[position < 0].reshape(-1)[0]
        shown = f"{model.classes[:5].tolist()}{' and others' if len(model.classes) > 5 else ''}"
        raise ValueError(
            f"y holds the label {stranger!r}, which is not among the model's classes {shown}: "
            "drop those rows or fit the model on all labels"
        )
    return _array.from_host(position, _array.namespace(y), _array.device(y))


# ---------------------------------------------------------------------------------------------------------------------
# Settings

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number or text such as "512MB" or "2GiB"."""
    if isinstance(memory, int | np.integer) and not isinstance(memory, bool):
        number = int(memory)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(f"memory={memory!r} is not an amount: pass bytes as an integer or text such as '512MB'")
        number = int(float(match[1]) * _UNITS[match[2].lower()])
    if number < 1:
        raise ValueError(f"memory={memory!r} is too small: pass a positive number of bytes")
    return number


def _checked_block(block: Block) -> Block:
    if block is None or block == "tune":
        return block
    sizes: tuple[Any, ...] = block if isinstance(block, tuple) else (block,)
    whole = all(isinstance(s, int | np.integer) and not isinstance(s, bool) and s > 0 for s in sizes)
    if not whole or not 1 <= len(sizes) <= 2:
        raise ValueError(
            f"block={block!r} is not a block size: pass a number of rows, (rows, draws), 'tune' or None (the default)"
        )
    return (int(sizes[0]), int(sizes[1])) if len(sizes) == 2 else int(sizes[0])


def _checked_progress(progress: Progress) -> Progress:
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress={progress!r}: pass True, False or a function (done, total) -> None")
    return progress


def _checked_keep(keep: str | Sequence[str], known: Sequence[str]) -> frozenset[str]:
    wanted = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in wanted:
        if name in CURVES and name not in known:
            raise ValueError(f"keep={name!r}: {NEED_PAIRS}")
        if name not in known:
            raise ValueError(f"keep={name!r} is unknown: what can be kept is {', '.join(map(repr, known))}")
    return frozenset(wanted)
