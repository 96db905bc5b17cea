"""Rows that are not where, or what, the model takes: they go to its device in blocks, or are made sparse again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array, Device, DType, HostArray, Namespace, Operand
from reliance._core.words import listed, shown
from reliance.data import stored_arrays
from reliance.data.sparse_rows import SparseBlock
from reliance.data.streamed import Streamed
from reliance.models.modules import home
from reliance.models.networks import module_of

# Rows that take more than this share of a device's memory go there in blocks, unasked.
_SHARE = 4


def in_blocks(model: object, X: Array, device: Device) -> Streamed | None:
    """The rows (n, P) as they go to the device of the model in blocks; None if they go at once, or are there.

    ``device``: what the user asks for; None: a torch module's own, if the rows are read from disk or too many for it.
    """
    if device is not None:
        return _asked(model, X, device)
    module = module_of(model)
    if module is None:
        return None
    xp, dev, dtype = _home(model)
    if isinstance(X, Streamed):
        return X.placed(xp, dev, dtype)
    known = arrays.device_bytes(xp, dev) if isinstance(X, np.ndarray) else None
    size = int(np.prod(X.shape)) * arrays.itemsize(X)
    return None if known is None or size <= known // _SHARE else _from_host(X).placed(xp, dev, dtype)


def on_sparse(
    predict: Callable[[Operand], Array], again: Callable[[HostArray | SparseBlock], object], name: str
) -> Callable[[HostArray | SparseBlock], Array]:
    """``predict`` of sparse rows, as a function of blocks or numbers; ``name``: that of the model, in an error."""
    words = f"model {name[:60]} cannot take the sparse rows that X has: pass X.toarray()"

    def of_blocks(block: HostArray | SparseBlock) -> Array:
        try:
            answer = predict(again(block))
        except Exception as error:
            if arrays.is_out_of_memory(error):
                raise
            raise TypeError(words) from error
        if not arrays.is_array(answer):
            raise TypeError(f"{words}, or return an array: it returned a {type(answer).__name__}")
        return answer

    return of_blocks


def by_name(
    predict: Callable[[Operand], Array], source: object, names: tuple[str, ...], name: str
) -> Callable[[HostArray], Array] | None:
    """``predict`` of tables, as an estimator wants them that was fitted on columns with names; None of any other."""
    known = getattr(source, "feature_names_in_", None)
    if known is None or importlib.util.find_spec("pandas") is None:
        return None
    if list(map(str, known)) != list(names):
        raise ValueError(
            f"model {name[:60]} was fitted on the columns {listed(list(map(str, known)), 4)}, but X has "
            f"{listed(names, 4)}: give X the same columns in the same order"
        )
    import pandas as pd

    return lambda block: predict(pd.DataFrame(block, columns=list(names)))


def _asked(model: object, X: Array, device: Device) -> Streamed | None:
    xp, dev = arrays.named_device(device)
    dtype = None
    if module_of(model) is not None:
        xp, own, dtype = _home(model)
        if not _is(own, dev):
            raise ValueError(
                f"run has device={shown(str(device))} but the model's parameters are on {own}: move the model there, "
                "or leave device out"
            )
        dev = own
    if isinstance(X, Streamed):
        return X.placed(xp, dev, dtype)
    if arrays.namespace(X) is xp and _is(arrays.device(X), dev):
        return None
    if arrays.is_accelerator(arrays.namespace(X), arrays.device(X)):
        raise ValueError(
            f"run has device={shown(str(device))} but X is a {arrays.describe(X)}: pass X on the host, or leave device "
            "out"
        )
    return _from_host(X).placed(xp, dev, dtype)


def _from_host(X: Array) -> Streamed:
    return Streamed.on_host(stored_arrays.held(X))


def _home(model: object) -> tuple[Namespace, Device, DType | None]:
    """Of a torch module."""
    (xp, host), module = arrays.named_device("cpu"), module_of(model)
    found = None if module is None else home(module)
    return (xp, host, None) if found is None else (xp, *found)


def _is(own: Device, named: Device) -> bool:
    """Whether a device is the one that is named: "cuda" may be any of them."""
    if own == named:
        return True
    kind = getattr(named, "type", None)
    return kind is not None and getattr(named, "index", None) is None and getattr(own, "type", None) == kind
