"""Odd kinds of y and of weights, for every function that takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

from hostile.functions import CHECKED, WEIGHTS, Function, N, X, Y
from hostile.record import Case, Number, Refused

COUNTS = np.round(Y * 2.0).astype(np.int64) + 20
POSITIVE = np.median(Y) < Y
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
SHUFFLED = np.random.default_rng(1).permutation(N)
ZEROS = np.where(np.arange(N) % 4 == 0, 0.0, WEIGHTS)


def _with(values: np.ndarray, at: int, value: float) -> np.ndarray:
    changed = np.array(values, dtype=np.float64)
    changed[at] = value
    return changed


@dataclass(frozen=True)
class Kind:
    """``make() -> odd y or weights`` with the numbers ``plain``, or the words that refuse it; ``rows`` are the X."""

    name: str
    make: Callable[[], Any]
    plain: Any = None
    words: tuple[str, ...] = ()
    rows: Any = None  # X
    rtol: float = 1e-9


def _rows(kind: Kind) -> Any:
    return X if kind.rows is None else kind.rows


# y: taken
Y_TAKEN = [
    Kind("list", lambda: Y.tolist(), Y),
    Kind("tuple", lambda: tuple(Y.tolist()), Y),
    Kind("range", lambda: range(N), np.arange(N)),
    Kind("negative strides", lambda: Y[::-1].copy()[::-1], Y),
    Kind("float32", lambda: Y.astype(np.float32), Y.astype(np.float32), rtol=1e-6),
    Kind("float16", lambda: Y.astype(np.float16), Y.astype(np.float16), rtol=1e-6),
    Kind("int64", lambda: COUNTS, COUNTS),
    Kind("int8", lambda: COUNTS.astype(np.int8), COUNTS),
    Kind("uint8", lambda: COUNTS.astype(np.uint8), COUNTS),
    Kind("bool", lambda: POSITIVE, POSITIVE),
    Kind("series", lambda: pd.Series(Y), Y),
    Kind("series of another index", lambda: pd.Series(Y, index=np.arange(100, 100 + N)), Y),
    Kind("series of the index of X", lambda: pd.Series(Y, index=FRAME.index), Y, rows=FRAME),
    Kind("series nullable", lambda: pd.Series(Y, dtype="Float64"), Y),
    Kind("polars", lambda: pl.Series(Y), Y),
    Kind("pyarrow", lambda: pa.array(Y), Y),
    Kind("pyarrow chunked", lambda: pa.chunked_array([Y[:5], Y[5:]]), Y),
]
# y: refused
Y_REFUSED = [
    Kind("generator", lambda: (v for v in Y), words=("y", "once")),
    Kind("scalar", lambda: 1.0, words=("y",)),
    Kind("0-d", lambda: np.array(1.0), words=("y",)),
    Kind("text", lambda: "labels", words=("y",)),
    Kind("empty", list, words=("y",)),
    Kind("short", lambda: Y[:-1], words=("y has shape (11,)", "12")),
    Kind("long", lambda: np.append(Y, 0.0), words=("y has shape (13,)", "12")),
    Kind("column", lambda: Y[:, None], words=("y has shape (12, 1)",)),
    Kind("two columns", lambda: np.stack([Y, Y], axis=1), words=("y has shape (12, 2)",)),
    Kind("nan", lambda: _with(Y, 3, np.nan), words=("y", "NaN")),
    Kind("inf", lambda: _with(Y, 3, np.inf), words=("y", "infinite")),
    Kind("text array", lambda: np.where(POSITIVE, "yes", "no"), words=("dtype",)),
    Kind("list of text", lambda: ["a", "b"] * 6, words=("dtype",)),
    Kind("object", lambda: Y.astype(object), words=("y", "object")),
    Kind("nones", lambda: [None] * N, words=("y",)),
    Kind("complex", lambda: Y + 1j, words=("y", "complex")),
    Kind("dates", lambda: COUNTS.astype("datetime64[D]"), words=("y",)),
    Kind("masked", lambda: np.ma.masked_greater(Y, 0.0), words=("y", "masked")),
    Kind("series missing", lambda: pd.Series(_with(Y, 3, np.nan), dtype="Float64"), words=("y",)),
    Kind("categories", lambda: pd.Series(np.where(POSITIVE, "b", "a"), dtype="category"), words=("dtype",)),
    Kind("series permuted", lambda: pd.Series(Y).iloc[SHUFFLED], words=("y", "index"), rows=FRAME),
    Kind("table of two columns", lambda: pd.DataFrame({"a": Y, "b": Y}), words=("y",)),
    Kind("torch", lambda: torch.from_numpy(Y), words=("y", "torch")),
    Kind("dict", lambda: {"y": Y}, words=("y",)),
]
# weights: taken
W_TAKEN = [
    Kind("list", lambda: WEIGHTS.tolist(), WEIGHTS),
    Kind("int64", lambda: COUNTS, COUNTS),
    Kind("uint8", lambda: COUNTS.astype(np.uint8), COUNTS),
    Kind("float32", lambda: WEIGHTS.astype(np.float32), WEIGHTS.astype(np.float32), rtol=1e-6),
    Kind("float16", lambda: WEIGHTS.astype(np.float16), WEIGHTS.astype(np.float16), rtol=1e-6),
    Kind("some zero", lambda: ZEROS, ZEROS),
    Kind("huge", lambda: WEIGHTS * 1e307, WEIGHTS),
    Kind("tiny", lambda: WEIGHTS * 1e-200, WEIGHTS),
    Kind("subnormal", lambda: np.round(WEIGHTS * 4) * 5e-322, np.round(WEIGHTS * 4)),
    Kind("negative strides", lambda: WEIGHTS[::-1].copy()[::-1], WEIGHTS),
    Kind("series", lambda: pd.Series(WEIGHTS), WEIGHTS),
]
# weights: refused
W_REFUSED = [
    Kind("scalar", lambda: 1.0, words=("weight",)),
    Kind("text", lambda: "balanced", words=("weight",)),
    Kind("short", lambda: WEIGHTS[:-1], words=("weight", "11", "12")),
    Kind("column", lambda: WEIGHTS[:, None], words=("weight", "(12, 1)")),
    Kind("generator", lambda: (w for w in WEIGHTS), words=("weight", "once")),
    Kind("negative", lambda: -WEIGHTS, words=("weight", "negative")),
    Kind("one negative", lambda: _with(WEIGHTS, 4, -1e-9), words=("weight", "negative")),
    Kind("nan", lambda: _with(WEIGHTS, 4, np.nan), words=("weight", "NaN")),
    Kind("inf", lambda: _with(WEIGHTS, 4, np.inf), words=("weight", "infinite")),
    Kind("all zero", lambda: np.zeros(N), words=("weight", "zero")),
    Kind("text array", lambda: WEIGHTS.astype(str), words=("weight",)),
    Kind("object", lambda: WEIGHTS.astype(object), words=("weight", "object")),
    Kind("complex", lambda: WEIGHTS + 0j, words=("weight", "complex")),
    Kind("dates", lambda: COUNTS.astype("datetime64[D]"), words=("weight",)),
    Kind("masked", lambda: np.ma.masked_greater(WEIGHTS, 1.0), words=("weight", "masked")),
    Kind("bool mask of text", lambda: ["True"] * N, words=("weight",)),
    Kind("torch", lambda: torch.from_numpy(WEIGHTS), words=("weight", "torch")),
    Kind("series permuted", lambda: pd.Series(WEIGHTS).iloc[SHUFFLED], words=("weight", "index"), rows=FRAME),
]


# Whether labels suit the algorithm is for the user's own `fit` to say, which takes some that the losses do not.
FITTED = ("algorithm_reliance", "cross_validated_importance", "null_importance")
# Of an ensemble, losses are of the rows that its members left out, whose shape they tell.
FOR_FIT = ("column", "two columns", "table of two columns", "text array", "list of text", "categories")


def weighted(function: Function) -> bool:
    return function.takes("weights") or function.name == "compare_splits"  # whose train may hold them


def _label_case(function: Function, kind: Kind) -> Case:
    if kind.plain is None:
        return Case(
            function.name, f"y {kind.name}", lambda: function.run(_rows(kind), kind.make()), Refused(kind.words)
        )
    y = np.asarray(kind.plain, dtype=np.float64)
    return Case(
        function.name,
        f"y {kind.name}",
        lambda: function.run(_rows(kind), kind.make()),
        Number(lambda: function.truth(X, y), kind.rtol),
    )


def _weights_case(function: Function, kind: Kind) -> Case:
    def call() -> Any:
        return function.run(_rows(kind), Y, weights=kind.make())

    if kind.plain is None:
        return Case(function.name, f"weights {kind.name}", call, Refused(kind.words))
    w = np.asarray(kind.plain, dtype=np.float64)
    return Case(function.name, f"weights {kind.name}", call, Number(lambda: function.truth(X, Y, weights=w), kind.rtol))


def cases() -> Iterator[Case]:
    for function in CHECKED:
        if function.name.startswith("sklearn"):
            continue
        if function.labelled:
            for kind in (*Y_TAKEN, *Y_REFUSED):
                ensemble = function.name == "out_of_bag_importance" and kind.name in ("column", "two columns")
                if not ensemble and (function.name not in FITTED or kind.name not in FOR_FIT):
                    yield _label_case(function, kind)
        if weighted(function):
            for kind in (*W_TAKEN, *W_REFUSED):
                yield _weights_case(function, kind)
