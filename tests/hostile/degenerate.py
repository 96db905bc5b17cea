"""Rows that are numbers of the right kind and yet odd: missing values, constants, twins, two rows, one column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from hostile.functions import CHECKED, FUNCTIONS, WEIGHTS, Function, N, X, Y, score
from hostile.labels import FITTED
from hostile.loops import Data
from hostile.record import Case, Number, Refused

REPLACING = ("ablation_importance", "permutation_importance", "model_reliance", "local_importance")
LABEL_FREE = ("feature_impact", "sobol_total")


def _with(value: float) -> np.ndarray:
    rows = X.copy()
    rows[2, 1] = value
    return rows


def _unlike(rows: np.ndarray) -> np.ndarray:
    return 1.5 * rows[:, 0] + WEIGHTS[: len(rows)]


CONSTANT = np.column_stack([X[:, 0], np.full(N, 0.5), X[:, 2]])
TWINS = np.concatenate([X[: N // 2], X[: N // 2]])
BINARY = np.column_stack([X[:, 0], (X[:, 1] > 0).astype(float), np.round(X[:, 2])])
LARGE = X * np.array([1e3, 1e-3, 1.0])


def _first(rows: Any) -> Any:
    return 1.5 * rows[:, 0]


def _taken(function: Function, odd: str, rows: np.ndarray, model: Any = score) -> Case:
    y = _unlike(rows)
    return Case(
        function.name,
        f"X {odd}",
        lambda: function.run(rows, y, model=model),
        Number(lambda: function.oracle(Data(model, rows, y))),
    )


def _missing(function: Function) -> Iterator[Case]:
    for odd, value in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        words = ("NaN",) if odd == "nan" else ("infinite",)
        yield Case(function.name, f"X with {odd}", lambda value=value: function.run(_with(value), Y), Refused(words))


def _tables() -> Iterator[Case]:
    sparse = pd.DataFrame({"a": X[:, 0], "b": pd.arrays.SparseArray(np.round(X[:, 1])), "c": X[:, 2]})
    plain = np.column_stack([X[:, 0], np.round(X[:, 1]), X[:, 2]])
    for name in REPLACING:
        function = FUNCTIONS[name]
        yield Case(
            name,
            "X of sparse columns",
            lambda function=function: function.run(sparse, Y),
            Number(lambda function=function: function.oracle(Data(score, plain, Y))),
        )


def cases() -> Iterator[Case]:
    for function in CHECKED:
        if not function.name.startswith("sklearn") and function.name not in FITTED:
            yield from _missing(function)
    for name in (*REPLACING, *LABEL_FREE):
        function = FUNCTIONS[name]
        for odd, rows in (("constant", CONSTANT), ("twins", TWINS), ("binary", BINARY), ("of other units", LARGE)):
            yield _taken(function, odd, rows)
        yield _taken(function, "one column", X[:, :1], _first)
        if name != "permutation_importance":  # whose shifts would repeat
            yield _taken(function, "4 rows", X[:4])
    for name in ("ablation_importance", "model_reliance"):
        yield _taken(FUNCTIONS[name], "2 rows", X[:2])
        yield _taken(FUNCTIONS[name], "3 rows", X[:3])
    yield from _tables()
