"""Arrays of rows, labels and weights, from anything that stands for one: checked before any model is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.checks import warn
from reliance._core.kinds import Array, HostArray
from reliance._core.words import short
from reliance.data import tables
from reliance.data.kinds import check_kind
from reliance.losses.formulas import is_numeric

# Numbers that are looked at together: the answers for all of X would take an eighth of its size.
_FINITE_CHUNK = 2**16


def as_array(x: object, name: str) -> Array:
    """An array of a supported namespace as it is; nested lists, and columns of tables, as NumPy."""
    if isinstance(x, Iterator):
        raise TypeError(f"{name} is a {type(x).__name__}, which can be read only once: pass an array or list({name})")
    check_kind(x, name)
    if tables.is_column(x) or tables.is_table(x):
        x = tables.as_column(x, name)
    if not arrays.is_array(x):
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
    return _as_numbers(x, name) if isinstance(x, np.ndarray) else x


def _as_numbers(x: HostArray, name: str) -> HostArray:
    """NumPy's numbers, or text, which may be labels; any byte order, which says nothing about the numbers."""
    kind, dtype = x.dtype.kind, short(str(x.dtype))
    if kind == "f" and x.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {dtype}, more than losses are computed in: pass {name}.astype(np.float64)")
    if kind in "biufUS":
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    remedies = {
        "c": f"a model is compared in real numbers: pass {name}.real, or real and imaginary parts as columns",
        "M": f"pass numbers, for instance ({name} - {name}.min()) / np.timedelta64(1, 'D')",
        "m": f"pass numbers, for instance {name} / np.timedelta64(1, 'D')",
    }
    remedy = f"pass numbers, for instance {name}.astype(float)"
    if kind == "O" and x.size and all(isinstance(value, str) for value in x.flat):
        remedy = f"it holds text: pass {name}.astype(str)" if name == "y" else "it holds text: encode it as numbers"
    raise TypeError(f"{name} has dtype {dtype}: {remedies.get(kind, remedy)}")


def check_rows(X: Array, fewest: int = 2) -> None:
    if X.ndim < 2:
        raise ValueError(f"X has shape {tuple(X.shape)}: it must be (n, features), for one feature X[:, None]")
    if X.shape[0] < fewest:
        raise ValueError(
            f"X has {X.shape[0]} rows: replacing a feature needs at least {fewest}, one to lend and one to borrow"
        )
    if math.prod(X.shape[1:]) == 0:
        raise ValueError(f"X has shape {tuple(X.shape)}: there is no feature to replace")
    if X.shape[0] >= 2**31:
        raise ValueError(f"X has {X.shape[0]} rows: the limit is 2**31 - 1")
    if isinstance(X, np.ndarray) and X.dtype.kind in "US":
        raise TypeError(f"X has dtype {X.dtype}: pass numbers, or a table, whose columns may hold text")
    if not is_numeric(X):
        raise TypeError(f"X has dtype {X.dtype}: pass real numbers")


def check_companion(X: Array, other: Array | None, name: str) -> None:
    """Labels and weights come with X: same namespace, same device, same number of rows."""
    if other is None:
        return
    if arrays.namespace(other) is not arrays.namespace(X) or arrays.device(other) != arrays.device(X):
        raise TypeError(
            f"{name} is a {arrays.describe(other)} but X is a {arrays.describe(X)}: convert one of them, so that both "
            "are of one kind and on one device"
        )
    if other.ndim == 0 or other.shape[0] != X.shape[0]:
        raise ValueError(
            f"{name} has shape {tuple(other.shape)} but X has {X.shape[0]} rows: their first axes must be equal"
        )


def _all_finite(x: Array) -> bool:
    xp = arrays.namespace(x)
    if isinstance(x, np.ndarray):
        return x.dtype.kind not in "fc" or _host_finite(x)
    if not arrays.is_floating(xp, x.dtype):
        return True
    # NaN and infinities survive in a sum, which needs no room; finite numbers may overflow in it.
    return bool(arrays.to_host(xp.isfinite(xp.sum(x)))) or bool(arrays.to_host(xp.all(xp.isfinite(x))))


def _host_finite(x: NDArray[np.floating]) -> bool:
    """One pass over memory: a sum of squares is finite only if all numbers are. If it is not, they are looked at."""
    flat = x.reshape(-1) if x.flags.c_contiguous else x.T.reshape(-1) if x.flags.f_contiguous else None
    if flat is not None and x.dtype.itemsize >= 4:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if np.isfinite(np.dot(flat, flat)):
                return True
    step = max(1, _FINITE_CHUNK // math.prod(x.shape[1:]))
    return all(bool(np.isfinite(x[start : start + step]).all()) for start in range(0, len(x), step))


def check_labels_finite(y: Array, name: str) -> None:
    if not _all_finite(y):
        raise ValueError(f"{name} holds NaN or infinite values: drop those rows, a loss cannot be computed for them")


def check_finite(parts: Iterable[Array], y: Array | None) -> None:
    """``parts``: the rows, all together or some at a time."""
    if y is not None:
        check_labels_finite(y, "y")
    if not all(map(_all_finite, parts)):
        warn("X holds NaN or infinite values. They are passed on as they are: fine if the model takes them.")


def checked_weights(weights: Array) -> NDArray[np.float64]:
    """Weights on the host in float64, for inference, times a power of 2: no sum or square over- or underflows.

    Only their proportions count, and powers of 2 leave every digit of these.
    """
    if weights.ndim != 1:
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}: give one number per row, shape ({weights.shape[0]},)"
        )
    if not is_numeric(weights):
        raise TypeError(f"weights has dtype {short(str(weights.dtype))}: give one number per row, as a number")
    if weights.dtype == arrays.namespace(weights).bool:
        raise TypeError(
            f"weights has dtype {weights.dtype}: to leave rows out, take them out of X and y; as weights 0 and 1, "
            "under which rows left out still lend their values, pass numbers"
        )
    host = np.asarray(arrays.to_host(weights), dtype=np.float64)
    if not np.isfinite(host).all():
        raise ValueError("weights holds NaN or infinite values: give finite, non-negative numbers")
    if (host < 0).any():
        raise ValueError(f"weights holds negative values (the smallest is {host.min():g}): give non-negative numbers")
    if not host.any():
        raise ValueError("weights are all zero: at least one row must count")
    return np.asarray(np.ldexp(host, -int(np.frexp(host.max())[1])))
