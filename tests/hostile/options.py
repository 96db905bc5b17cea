"""Odd values of every shared option, for every function whose signature has it, and groups of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

import reliance as rl
from hostile.functions import CHECKED, IN_GIVEN, IN_RUN, IN_SCRAMBLER, IN_UNTIL, KEY, Function, N, P, X, Y, score
from hostile.record import Case, Number, Refused

HUGE = "x" * 5000
# Option: values that are refused with the option's own name.
ODD: dict[str, dict[str, Any]] = {
    "draws": {
        "0": 0,
        "-1": -1,
        "1.5": 1.5,
        "true": True,
        "nan": math.nan,
        "text": "many",
        "none": None,
        "list": [3],
        "array": np.array([2, 3]),
    },
    "pairs": {"0": 0, "-1": -1, "1.5": 1.5, "true": True, "text": "some", "none": 1j, "array": np.array([2, 3])},
    "between": {
        "text": "x0x1",
        "number": 3,
        "empty": [],
        "no pairs": [0, 1],
        "three": [(0, 1, 2)],
        "unknown": [(0, "age")],
        "outside": [(0, P)],
        "itself": [(1, 1)],
        "twice": [(0, 1), (1, 0)],
        "array": np.ones(3),
    },
    "compare": {"text": "minus", "none": None, "list": ["ratio"], "number": 1, "array": np.array(["ratio", "ratio"])},
    "loss": {
        "unknown": "squared",
        "number": 0,
        "empty": [],
        "twice": ["huber", "huber"],
        "long": HUGE,
        "array": np.ones(3),
        "list of none": [None],
    },
    "memory": {
        "0": 0,
        "-1": -1,
        "float": 1.5e9,
        "nan": math.nan,
        "text": "much",
        "negative text": "-1GB",
        "huge": 2**70,
        "true": True,
        "list": [1],
        "10 bytes": 10,
    },
    "block": {
        "0": 0,
        "-1": -1,
        "1.5": 1.5,
        "text": "big",
        "three": (1, 2, 3),
        "empty": (),
        "nested": ((1, 2),),
        "true": True,
        "floats": (2.0, 2.0),
    },
    "rng": {
        "0.5": 0.5,
        "text": "seed",
        "-1": -1,
        "true": True,
        "legacy": np.random.RandomState(0),
        "array": np.array([0.5, 1.5]),
        "function": len,
    },
    "progress": {"3": 3, "text": "bar", "list": [True], "none": None},
    "names": {
        "one": ["a"],
        "text": "abc",
        "twice": ["a", "a", "b"],
        "numbers": [1, 2, 3],
        "long": [HUGE, HUGE, "b"],
        "nested": [["a"], ["b"], ["c"]],
        "number": 3,
        "set": {"a", "b", "c"},
    },
    "features": {
        "name": ["age"],
        "index": [P],
        "negative": [-P - 1],
        "float": [1.0],
        "bare name": "x0",
        "bare index": 0,
        "empty": [],
        "empty group": [()],
        "twice": [1, "x1"],
        "column twice": [(0, 0)],
        "none inside": [None],
        "dict of none": {"a": None},
        "slice": slice(0, 2),
        "slice of nothing": [slice(2, 2)],
        "bool": [True, False, True],
        "mask of floats": np.zeros(P),
        "long": [HUGE],
        "nan": [math.nan],
        "nested": [[[0]]],
        "tensor of floats": torch.tensor([0.0, 1.0]),
        "huge": [10**30],
        "function": len,
    },
    "clusters": {
        "short": [1, 2],
        "one": np.zeros(N),
        "two": np.arange(N) % 2,
        "3-d": np.zeros((N, 1, 1)),
        "number": 3,
        "unknown": "patient",
        "nan": np.full(N, math.nan),
        "none inside": [None, *range(N - 1)],
        "mapping": {"a": 1},
        "function": len,
    },
    "keep": {"text": "all", "none": None, "number": 3, "list": ["rows", "all"], "nested": [["rows"]], "true": True},
    "route": {"text": "fast", "none": None, "number": 1},
    "form": {"text": "sum", "none": None},
    "quantiles": {"0": 0, "-1": -1, "text": "many", "outside": [0.5, 1.5], "falling": [0.9, 0.1], "nan": [math.nan]},
    "normalize": {"text": "yes", "none": None},
    "scale": {"text": "unit", "none": None, "list": ["range"]},
    "center": {"text": "mean", "none": None, "number": 2},
    "rows": {"outside": [N], "negative": [-N - 1], "float": [0.5], "empty": [], "text": "first", "0": 0},
    "epsilon": {"negative": -0.1, "nan": math.nan, "inf": math.inf, "text": "5%", "none": None, "true": True},
    "relative": {"text": "yes", "number": 2, "list": [True]},
    "reference": {"nan": math.nan, "below": -1.0, "text": "best", "not of the class": len},
    "confidence": {"2": 2.0, "text": "high", "alone": 0.9},
    "loss_bound": {"alone": 1.0},
    "given": {
        "unknown": ["age"],
        "index": [P],
        "number": 0,
        "text": "all",
        "none": None,
        "float": [0.5],
        "label": ["y"],
        "nested": [[0]],
        "empty mapping": {},
        "long": [HUGE],
    },
    "context": {
        "number": 3,
        "short": {"c": Y[:-1]},
        "text": {"c": ["a"] * N},
        "3-d": {"c": np.zeros((N, 1, 1))},
        "name of a feature": {"x0": Y},
        "name of a number": {0: Y},
        "scalar": {"c": 1.0},
    },
    "sampler": {"unknown": "normal", "none": None, "number": 3, "class": dict},
    "fit_on": {"number": 3, "short": (X[:0], None), "columns": (X[:, :2], None), "text": "train"},
    "regressor": {"text": "forest", "number": 3},
    "classifier": {"text": "forest", "number": 3},
    "crossfit": {"0": 0, "1": 1, "-1": -1, "1.5": 1.5, "too many": N + 1, "true": True, "text": "all"},
    "cv": {
        "0": 0,
        "1": 1,
        "too many": N + 1,
        "1.5": 1.5,
        "true": True,
        "text": "loo",
        "empty": [],
        "shared rows": [(np.arange(6), np.arange(5, 12))],
        "outside": [(np.arange(6), np.arange(6, 13))],
        "negative": [(np.arange(6), np.array([-1, -2]))],
        "masks": [(np.arange(N) < 6, np.arange(N) >= 6)],
        "no test": [(np.arange(N), np.arange(0))],
        "no training": [(np.arange(0), np.arange(N))],
        "not pairs": [np.arange(6)],
    },
    "target": {"text": "models", "number": 1},
    "leave": {"text": "one", "none": None},
    "method": {"text": "magic", "number": 3, "none": None},
    "workers": {"0": 0, "1.5": 1.5, "text": "all", "true": True, "-2": -2, "class": ThreadPoolExecutor},
    "rounds": {"0": 0, "-1": -1, "1.5": 1.5, "true": True, "text": "many"},
    "importance": {"text": "gini", "number": 3, "none": None, "wrong shape": lambda model, X, y: np.ones((2, 2))},
    "limit": {"0": 0, "negative": -1.0, "nan": math.nan, "text": "far"},
    "folds": {"1": 1, "1.5": 1.5, "text": "five"},
    "precision": {"0": 0.0, "negative": -1.0, "nan": math.nan, "text": "small"},
    "top": {"0": 0, "too many": P + 1, "1.5": 1.5, "true": True},
    "budget": {"0": 0, "1.5": 1.5, "too small": 100},
    "run": {"text": "8MB", "number": 3, "mapping": {"memory": "8MB"}, "class": rl.Run},
    "train": {"array": X, "one": (X,), "five": (X, Y, None, None, Y), "none": None},
    "test": {"array": X, "one": (X,), "other columns": (X[:, :2], Y), "none": None},
    "fit": {"number": 3, "none": None, "text": "ols"},
}


def _call(function: Function, option: str, value: Any) -> Any:
    if option == "fit":
        return function.run(X, Y, model=value)
    if option in ("train", "test"):
        pair = {"train": (X, Y), "test": (X, Y), option: value}
        return rl.compare_splits(score, **pair)
    if option in IN_RUN:
        return function.run(X, Y, run=rl.Run(**{option: value}))
    if option in IN_UNTIL and function.takes("precision"):
        return function.run(X, Y, draws=rl.Until(**{option: value}))
    if option in IN_GIVEN and function.takes("given"):
        return function.run(X, Y, given=rl.Given("rest", **{option: value}))
    if option in IN_SCRAMBLER and function.takes("crossfit"):
        return function.run(X, Y, sampler=rl.samplers.Scrambler(**{option: value}))
    return function.run(X, Y, **{option: value})


def _odd(function: Function) -> Iterator[Case]:
    for option, values in ODD.items():
        if not function.takes(option) or function.name.startswith("sklearn"):
            continue
        for odd, value in values.items():
            if (function.name, odd) == ("null_importance", "10 bytes"):
                continue  # it measures by a function of the caller's own, which needs no block
            if (function.name, f"{option} {odd}") == ("report", "given none"):
                continue  # all other features, the default
            yield Case(
                function.name,
                f"{option} {odd}",
                lambda option=option, value=value: _call(function, option, value),
                Refused((option,)),
            )


# Features that are taken: which columns they name.
GROUPS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "names": (["x2", "x0"], ((2,), (0,))),
    "negative": ([-1, -3], ((2,), (0,))),
    "array": (np.array([2, 0]), ((2,), (0,))),
    "small integers": (np.array([2, 0], dtype=np.uint8), ((2,), (0,))),
    "NumPy integers": ([np.int32(2), np.int64(0)], ((2,), (0,))),
    "tuple": ((1, 2), ((1,), (2,))),
    "range": (range(2), ((0,), (1,))),
    "group": ([(2, "x0")], ((2, 0),)),
    "group and its part": ([0, (0, 2)], ((0,), (0, 2))),
    "mapping": ({"b": [1], "ac": [0, 2]}, ((1,), (0, 2))),
    "mapping to a name": ({"b": "x1"}, ((1,),)),
}
SINGLE = {"feature_impact", "linear_importance", "interaction_importance"}


def _grouped(function: Function) -> Iterator[Case]:
    for odd, (given, groups) in GROUPS.items():
        if function.name in SINGLE and (any(len(g) > 1 for g in groups) or len(groups) == 1):
            continue
        if function.name in ("null_importance", "linear_importance"):
            continue
        yield Case(
            function.name,
            f"features as {odd}",
            lambda given=given: function.run(X, Y, features=given),
            Number(lambda groups=groups: function.truth(X, Y, groups=groups)),
        )


# Other options that change nothing, or what they say.
SAME: dict[str, dict[str, Any]] = {
    "rng": {
        "seed sequence": np.random.SeedSequence(KEY),
        "NumPy integer": np.int64(KEY),
        "large": 2**64,
        "generator": np.random.default_rng(KEY),
    },
    "memory": {"text": "20MB", "lower case": "100mb", "one row more or less": 20_000},
    "block": {"1": 1, "one cell": (1, 1), "huge": 10**12, "NumPy": np.int64(5), "odd shape": (5, 3)},
    "progress": {"function": lambda done, total: None},
    "names": {"NumPy": np.array(["a", "b", "c"]), "odd": ["", " ", "\n"], "tuple": ("p", "q", "r")},
    "features": {"none": None},
}
# Where the numbers depend on the donors, or nothing is drawn.
ANY_DONOR = {"rng": {"ablation_importance", "extrapolation_check", "algorithm_reliance"}}


def _same(function: Function) -> Iterator[Case]:
    for option, values in SAME.items():
        if not function.takes(option) or function.name in ANY_DONOR.get(option, ()):
            continue
        for odd, value in values.items():
            yield Case(
                function.name,
                f"{option} as {odd}",
                lambda option=option, value=value: _call(function, option, value),
                Number(lambda: function.truth(X, Y)),
            )


# The values that gather settings: each refuses what is odd at once, where it is made.
GATHERED: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "Run": {
        "no memory": ({"memory": 0}, "memory"),
        "memory in words": ({"memory": "a lot"}, "memory"),
        "memory yes": ({"memory": True}, "memory"),
        "block 0": ({"block": 0}, "block"),
        "block of three": ({"block": (1, 2, 3)}, "block"),
        "no workers": ({"workers": 0}, "workers"),
        "half a worker": ({"workers": 0.5}, "workers"),
        "a folder by number": ({"checkpoint": 3}, "checkpoint"),
        "no folder": ({"checkpoint": ""}, "checkpoint"),
        "no part": ({"part": (0, 2)}, "part"),
        "a part beyond": ({"part": (3, 2)}, "part"),
        "one number of part": ({"part": 2}, "part"),
        "no time": ({"deadline": 0}, "deadline"),
        "time in words": ({"deadline": "soon"}, "deadline"),
        "interrupt unknown": ({"on_interrupt": "stop"}, "on_interrupt"),
    },
    "Blocks": {
        "length 0": ({"length": 0}, "length"),
        "length in words": ({"length": "month"}, "length"),
        "half": ({"length": 0.5}, "length"),
        "yes": ({"length": True}, "length"),
        "lends in other words": ({"lend": "other clusters"}, "lend"),
    },
    "Monitor": {
        "no loss": ({"model": score}, "loss"),
        "no bound": ({"model": score, "loss": "squared_error"}, "bound"),
        "unknown method": ({"model": score, "loss": "zero_one", "method": "betting"}, "method"),
        "a level of 95": ({"model": score, "loss": "zero_one", "level": 95}, "level"),
    },
    "Clusters": {
        "lends nowhere": ({"labels": Y, "lend": "nowhere"}, "lend"),
        "lends stretches": ({"labels": Y, "lend": "stretches"}, "lend"),
        "no lender": ({"labels": Y, "lend": None}, "lend"),
    },
    "Draws": {
        "none": ({"count": 0}, "count"),
        "half": ({"count": 0.5}, "count"),
        "yes": ({"count": True}, "count"),
        "unknown design": ({"count": 3, "design": "sorted"}, "design"),
        "no design": ({"count": 3, "design": None}, "design"),
    },
    "Donors": {
        "nothing": ({}, "Donors"),
        "rows and labels of others": ({"X": X, "within": Y}, "labels"),
        "labels of no rows": ({"within": Y, "labels": Y}, "labels"),
    },
    "Given": {
        "unknown sampler": ({"variables": [], "sampler": "normal"}, "sampler"),
        "no sampler": ({"variables": [], "sampler": 3}, "sampler"),
        "class of a sampler": ({"variables": [], "sampler": rl.samplers.KNN}, "sampler"),
        "rows alone to fit on": ({"variables": [], "fit_on": X}, "fit_on"),
    },
    "Until": {
        "precision 0": ({"precision": 0.0}, "precision"),
        "precision nan": ({"precision": float("nan")}, "precision"),
        "precision in words": ({"precision": "fine"}, "precision"),
        "relative in words": ({"relative": "no"}, "relative"),
        "top 0": ({"top": 0}, "top"),
        "budget negative": ({"budget": -1}, "budget"),
        "precision beside top": ({"precision": 0.1, "top": 1}, "top"),
    },
}


def _gathered() -> Iterator[Case]:
    for name, values in GATHERED.items():
        for odd, (settings, word) in values.items():
            yield Case(name, odd, lambda name=name, given=settings: getattr(rl, name)(**given), Refused((word,)))


def cases() -> Iterator[Case]:
    yield from _gathered()
    for function in CHECKED:
        yield from _odd(function)
        if function.takes("features"):
            yield from _grouped(function)
        yield from _same(function)
