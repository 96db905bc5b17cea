"""Odd kinds of X, for every function: taken as the numbers they hold, or refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

from hostile.functions import CHECKED, Function, N, P, X, Y
from hostile.record import Case, Number, Refused

NAMES = ["age", "income", "dose"]
# Small integers, every column of which varies and none of which the others determine.
COUNTS = np.random.default_rng(3).integers(0, 5, size=(N, P))
MIXED = np.column_stack([COUNTS[:, 0], X[:, 1:]])
FLAGS = (np.random.default_rng(8).integers(0, 2, size=(N, P))).astype(bool)


@dataclass(frozen=True)
class Kind:
    """``make() -> odd X`` with the numbers ``plain``, or the words that refuse it."""

    name: str
    make: Callable[[], Any]
    plain: np.ndarray | None = None
    words: tuple[str, ...] = ()
    rtol: float = 1e-9
    labels: Callable[[np.ndarray], Any] = np.asarray  # the arrays of y must be of X's kind


def _readonly() -> np.ndarray:
    rows = X.copy()
    rows.flags.writeable = False
    return rows


def _mapped() -> np.ndarray:
    path = Path(tempfile.mkdtemp()) / "rows.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def _frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(NAMES, X.T, strict=True)) | columns)


def _renamed(*names: Any) -> Callable[[], pd.DataFrame]:
    return lambda: pd.DataFrame(X, columns=list(names))


TAKEN = [
    Kind("fortran", lambda: np.asfortranarray(X), X),
    Kind("negative strides", lambda: X[::-1, ::-1].copy()[::-1, ::-1], X),
    Kind("every second", lambda: np.repeat(np.repeat(X, 2, 0), 2, 1)[::2, ::2], X),
    Kind("readonly", _readonly, X),
    Kind("memory mapped", _mapped, X),
    Kind("lists", lambda: X.tolist(), X),
    Kind("tuples in a list", lambda: [tuple(row) for row in X.tolist()], X),
    Kind("list of arrays", lambda: list(X), X),
    Kind("subclass", lambda: X.view(_Odd), X),
    Kind("float32", lambda: X.astype(np.float32), X.astype(np.float32), rtol=1e-4),
    Kind("float16", lambda: X.astype(np.float16), X.astype(np.float16), rtol=2e-2),
    Kind("big-endian", lambda: X.astype(">f8"), X),
    Kind("int64", lambda: COUNTS, COUNTS),
    Kind("int8", lambda: COUNTS.astype(np.int8), COUNTS),
    Kind("uint8", lambda: COUNTS.astype(np.uint8), COUNTS),
    Kind("uint64", lambda: COUNTS.astype(np.uint64), COUNTS),
    Kind("bool", lambda: FLAGS, FLAGS),
    Kind("pandas", lambda: _frame(), X),
    Kind("pandas permuted index", lambda: _frame().set_index(np.arange(N)[::-1]), X, labels=np.asarray),
    Kind("pandas repeated index", lambda: _frame().set_index(np.zeros(N)), X),
    Kind("pandas integer names", lambda: pd.DataFrame(X), X),
    Kind("pandas nullable", lambda: _frame().astype("Float64"), X),
    Kind("pandas pyarrow", lambda: _frame().astype("double[pyarrow]"), X),
    Kind("pandas int and float", lambda: _frame(age=COUNTS[:, 0]), MIXED),
    Kind("pandas flags", lambda: pd.DataFrame(FLAGS, columns=NAMES), FLAGS),
    Kind("pandas named type", _renamed("type", "shape", "T"), X),
    Kind("pandas named predict", _renamed("predict", "index", "columns"), X),
    Kind("pandas named dtype", _renamed("dtype", "values", "iloc"), X),
    Kind("polars", lambda: pl.DataFrame(dict(zip(NAMES, X.T, strict=True))), X),
    Kind("polars named type", lambda: pl.DataFrame(dict(zip(["type", "T", "n"], X.T, strict=True))), X),
    Kind("polars int and float", lambda: pl.from_pandas(_frame(age=COUNTS[:, 0])), MIXED),
    Kind("pyarrow int and float", lambda: pa.Table.from_pandas(_frame(age=COUNTS[:, 0])), MIXED),
    Kind("pandas nullable int", lambda: _frame(age=pd.array(COUNTS[:, 0], dtype="Int64")), MIXED),
    Kind("polars lazy", lambda: pl.DataFrame(X).lazy(), X),
    Kind("pyarrow", lambda: pa.table(dict(zip(NAMES, X.T, strict=True))), X),
    Kind("pyarrow named type", lambda: pa.table(dict(zip(["type", "schema", "n"], X.T, strict=True))), X),
    Kind("torch", lambda: torch.from_numpy(X), X, labels=torch.from_numpy),
    Kind("torch gradient", lambda: torch.from_numpy(X.copy()).requires_grad_(), X, labels=torch.from_numpy),
    Kind("torch transposed", lambda: torch.from_numpy(X.T.copy()).T, X, labels=torch.from_numpy),
]
REFUSED = [
    Kind("none", lambda: None, words=("X",)),
    Kind("scalar", lambda: 3.0, words=("X",)),
    Kind("0-d", lambda: np.float64(3.0), words=("X",)),
    Kind("text", lambda: "rows", words=("X",)),
    Kind("generator", lambda: (row for row in X), words=("X", "once")),
    Kind("ragged", lambda: [[1.0], [1.0, 2.0]], words=("X", "length")),
    Kind("set", lambda: {1.0, 2.0}, words=("X",)),
    Kind("flat", lambda: X[:, 0], words=("X has shape (12,)",)),
    Kind("range", lambda: range(N), words=("X has shape (12,)",)),
    Kind("no rows", lambda: X[:0], words=("X has", "0")),
    Kind("one row", lambda: X[:1], words=("X has 1 row",)),
    Kind("no columns", lambda: X[:, :0], words=("X has shape (12, 0)",)),
    Kind("object", lambda: X.astype(object), words=("X", "object")),
    Kind("complex", lambda: X + 0j, words=("X", "complex")),
    Kind("longdouble", lambda: X.astype(np.longdouble), words=("X", "float64")),
    Kind("text array", lambda: X.astype(str), words=("X", "<U")),
    Kind("bytes array", lambda: X.astype("S8"), words=("X", "S8")),
    Kind("dates", lambda: COUNTS.astype("datetime64[D]"), words=("X", "datetime")),
    Kind("durations", lambda: COUNTS.astype("timedelta64[s]"), words=("X", "timedelta")),
    Kind("records", lambda: np.zeros(N, dtype=[("a", float), ("b", float)]), words=("X",)),
    Kind("masked", lambda: np.ma.masked_greater(X, 1.0), words=("X", "masked")),
    Kind("sparse", lambda: _sparse(), words=("X", "sparse")),
    Kind("memoryview", lambda: memoryview(X), words=("X", "memoryview")),
    Kind("repeated names", lambda: pd.DataFrame(X, columns=["a", "a", "b"]), words=("X", "a", "rename")),
    Kind("names equal as text", lambda: pd.DataFrame(X, columns=[1, "1", "b"]), words=("X", "1", "rename")),
    Kind("multiindex", lambda: pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a"], NAMES])), words=("X",)),
    Kind("series", lambda: pd.Series(X[:, 0]), words=("X", "shape (12,)")),
    Kind("torch meta", lambda: torch.empty((N, P), device="meta"), words=("X", "meta"), labels=torch.from_numpy),
    Kind("torch sparse", lambda: torch.from_numpy(X).to_sparse(), words=("X", "sparse"), labels=torch.from_numpy),
    Kind("torch complex", lambda: torch.from_numpy(X + 0j), words=("X", "complex"), labels=torch.from_numpy),
    Kind("function", lambda: len, words=("X",)),
    Kind("dict", lambda: {"a": 1.0}, words=("X",)),
]


class _Odd(np.ndarray):
    """A subclass whose rows are the same numbers."""


def _sparse() -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(X)


def labels_of(plain: np.ndarray) -> np.ndarray:
    """Labels for other rows than X: a plane with the noise of Y."""
    noise = Y - 1.5 * X[:, 0] - X[:, 1]
    return 1.5 * np.asarray(plain, dtype=np.float64)[:, 0] + plain[:, 1] + noise


# What a function cannot take, or takes otherwise than the rest.
TENSORS = ("", " gradient", " transposed", " sparse", " complex")
# What fits something to all rows at once does not read them in blocks.
NEEDS_ALL = (
    "conditional_model_reliance",
    "relative_importance",
    "compare_splits",
    "extrapolation_check",
    "linear_importance",
    "algorithm_reliance",
    "cross_validated_importance",
    "null_importance",
    "out_of_bag_importance",
    "conditional_model_class_reliance",
)
OTHERWISE: dict[tuple[str, str], tuple[str, ...]] = {
    **{(function, "polars lazy"): ("X", "collect") for function in NEEDS_ALL},
    **{("out_of_bag_importance", f"torch{kind}"): ("X", "torch", "NumPy") for kind in TENSORS},
}


# Columns of two values are drawn from strata, which is no literal loop: tests/test_mixed_columns.py.
DRAWN_OTHERWISE = {("relative_importance", "bool"), ("relative_importance", "pandas flags")}


def _case(function: Function, kind: Kind) -> Case:
    words = OTHERWISE.get((function.name, kind.name), kind.words)
    plain = X if kind.plain is None else np.asarray(kind.plain, dtype=np.float64)
    y = labels_of(plain)

    def call() -> Any:
        return function.run(kind.make(), kind.labels(y))

    expected = Refused(words) if words else Number(lambda: function.truth(plain, y), kind.rtol)
    return Case(function.name, f"X {kind.name}", call, expected)


def cases() -> Iterator[Case]:
    for function in CHECKED:
        facade = function.name.startswith("sklearn")  # whose X is scikit-learn's to check
        for kind in TAKEN if facade else (*TAKEN, *REFUSED):
            if (function.name, kind.name) in DRAWN_OTHERWISE:
                continue
            if not facade or kind.name not in ("torch gradient", "polars lazy"):
                yield _case(function, kind)
