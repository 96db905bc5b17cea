"""Odd arguments of the methods of results, what they export, and files that are not what `save` wrote."""

from __future__ import annotations

import copy
import functools
import io
import json
import math
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl
from hostile.functions import FOLDS, KEY, N, X, Y, fit, plane, score, weaker
from hostile.functions import _sizes as sizes
from hostile.record import Case, Number, Refused


def _imputed() -> list[rl.Importance]:
    return [rl.permutation_importance(score, X + 0.01 * k, Y, draws=3, rng=KEY) for k in range(5)]


@functools.cache
def results() -> dict[str, Any]:
    """One result of each class."""
    half = N // 2
    relative = rl.relative_importance(score, X, Y, given={"none": [], "rest": "rest"}, draws=3, rng=KEY)
    return {
        "Importance": rl.permutation_importance(score, X, Y, draws=3, rng=KEY, keep="rows"),
        "Impact": rl.feature_impact(score, X),
        "AlgorithmReliance": rl.algorithm_reliance(fit, X, Y, cv=FOLDS),
        "NullImportance": rl.null_importance(fit, X, Y, rounds=3, importance=sizes, rng=KEY),
        "LocalImportance": rl.local_importance(score, X, Y),
        "LinearImportance": rl.linear_importance(None, X, Y),
        "Interactions": rl.interaction_importance(score, X, Y, draws="all"),
        "Extrapolation": rl.extrapolation_check(X, rng=KEY),
        "SplitComparison": rl.compare_splits(
            score, train=(X[:half], Y[:half]), test=(X[half:], Y[half:]), pairs="all", names=["a", "b", "c"]
        ),
        "ModelComparison": rl.compare_models({"a": score, "b": plane}, X, Y, draws=3, rng=KEY),
        "ClassReliance": rl.model_class_reliance(rl.FiniteClass([score, weaker, plane]), X, Y, epsilon=3.0),
        "RelativeImportance": relative,
        "Delta": relative.delta("none", "rest"),
        "Pooled": rl.pool(_imputed()),
        "Monitored": rl.Monitor(score, loss="squared_error", method="asymptotic", rng=KEY).update(X, Y),
        "Ranks": rl.permutation_importance(score, X, Y, draws=3, rng=KEY, keep="influence").ranks(),
        "Results": rl.permutation_importance(score, X, Y, draws=3, rng=KEY, loss=["squared_error", "absolute_error"]),
    }


NAMES = [
    "Importance",
    "Impact",
    "AlgorithmReliance",
    "NullImportance",
    "LocalImportance",
    "LinearImportance",
    "Interactions",
    "Extrapolation",
    "SplitComparison",
    "ModelComparison",
    "ClassReliance",
    "RelativeImportance",
    "Delta",
    "Pooled",
    "Monitored",
    "Ranks",
    "Results",
]
LEVELS = {
    "0": 0.0,
    "1": 1.0,
    "95": 95,
    "negative": -0.5,
    "nan": math.nan,
    "text": "0.95",
    "none": None,
    "true": True,
    "array": np.array([0.9, 0.95]),
    "list": [0.9],
    "complex": 0.9j,
}
CHOICES = {"unknown": "larger", "none": None, "number": 1, "list": ["greater"], "array": np.array(["greater", "less"])}
STRANGERS = {"unknown": "all", "none": None, "number": 0, "list": ["none"]}
# Method, its argument, odd values, and the classes that have it.
METHODS: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
    (
        "interval",
        "level",
        LEVELS,
        ("Importance", "AlgorithmReliance", "LocalImportance", "Interactions", "SplitComparison", "Delta"),
    ),
    ("ranks", "level", LEVELS, ("Importance",)),
    (
        "to_frame",
        "level",
        LEVELS,
        (
            "Importance",
            "AlgorithmReliance",
            "LocalImportance",
            "Interactions",
            "SplitComparison",
            "Delta",
            "RelativeImportance",
            "ModelComparison",
            "Results",
        ),
    ),
    ("interval", "formulation", CHOICES, ("Importance",)),
    (
        "test",
        "alternative",
        CHOICES,
        ("Importance", "AlgorithmReliance", "Interactions", "SplitComparison", "Delta", "Pooled", "Results"),
    ),
    ("test", "method", CHOICES, ("Importance", "NullImportance")),
    (
        "test",
        "adjust",
        CHOICES,
        ("Importance", "AlgorithmReliance", "Interactions", "NullImportance", "Delta", "Pooled"),
    ),
    ("for_target", "target", CHOICES, ("AlgorithmReliance",)),
    ("goodness_of_fit", "method", CHOICES, ("NullImportance",)),
    ("position", "row", {"outside": N, "negative": -1, "text": "a", "float": 0.5, "none": None}, ("LocalImportance",)),
    ("delta", "first", STRANGERS, ("RelativeImportance", "ModelComparison")),
    ("save", "path", {"none": None, "number": 3.5, "ending": "result.txt", "empty": ""}, tuple(NAMES)),
    (
        "plot",
        "kind",
        {"unknown": "pie", "none": None, "list": ["bar"]},
        tuple(name for name in NAMES if name not in ("Results", "ModelComparison")),  # None is what its entries draw
    ),
]


def _report() -> Iterator[Case]:
    def ask(section: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "audit.html"
            return rl.report(score, X, Y, path=path, sections=["importance"], draws=3, rng=KEY)[section].values

    yield Case("Report", "section", lambda: ask("importance"), Number(lambda: results()["Importance"].values))
    for odd, section in {"other": "curves", "unknown": "all", "number": 0, "none": None}.items():
        yield Case("Report", f"section {odd}", lambda section=section: ask(section), Refused(("section",), (KeyError,)))


def _pool() -> Iterator[Case]:
    def mean() -> Any:
        return sum(one.values for one in _imputed()) / 5.0

    yield Case("pool", "five", lambda: rl.pool(_imputed()).values, Number(mean))
    one = functools.partial(rl.permutation_importance, score, X, Y, draws=3, rng=KEY)
    odd = {
        "one": lambda: one(),
        "one in a list": lambda: [one()],
        "none": lambda: None,
        "numbers": lambda: [1.0, 2.0],
        "other features": lambda: [one(), one(features=[0, 1])],
        "other loss": lambda: [one(), one(loss="absolute_error")],
        "other rows": lambda: [one(), rl.permutation_importance(score, X[:-1], Y[:-1], draws=3, rng=KEY)],
    }
    for name, make in odd.items():
        yield Case("pool", f"results {name}", lambda make=make: rl.pool(make()), Refused(("results",)))


def _methods() -> Iterator[Case]:
    for method, argument, values, classes in METHODS:
        for name in classes:
            for odd, value in values.items():

                def call(name: str = name, method: str = method, argument: str = argument, value: Any = value) -> Any:
                    second = "rest" if name == "RelativeImportance" else "b"
                    more = {"second": second} if method == "delta" else {}
                    return getattr(results()[name], method)(**{argument: value, **more})

                what = "set" if name == "RelativeImportance" else "models"
                refused = Refused((what,), (KeyError, TypeError)) if method == "delta" else Refused((argument,))
                yield Case(name, f"{method} {argument} {odd}", call, refused)


# ---------------------------------------------------------------------------------------------------------------------
# What goes out comes back


def _numbers_of(result: Any) -> Any:
    if isinstance(result, rl.Results):
        return np.stack([one.values for one in result.values()])
    return np.stack([result.lower, result.upper]) if isinstance(result, rl.ClassReliance) else result.values


def _strict(result: Any) -> Any:
    """As strict JSON and back; the numbers of the field that all results have."""
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    if "values" in found:
        return found["values"]
    return [found["lower"], found["upper"]] if "lower" in found else found["by_range"]


def _saved(result: Any, ending: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"result.{ending}"
        result.save(path)
        return _numbers_of(rl.load(path))


def _writable(result: Any) -> Any:
    """Arrays of a copy are as read-only as those of the result."""
    again = pickle.loads(pickle.dumps(result))
    one = next(iter(again.values())) if isinstance(again, rl.Results) else again
    return [float(one.values.flags.writeable)]


def _round_trips() -> Iterator[Case]:
    def case(name: str, odd: str, way: Callable[[Any], Any]) -> Case:
        return Case(name, odd, lambda: way(results()[name]), Number(lambda: _numbers_of(results()[name]), 1e-15))

    for name in NAMES:
        yield case(name, "copied", lambda result: _numbers_of(copy.copy(result)))
        if name != "ClassReliance":  # its models may be functions
            yield case(name, "pickled", lambda result: _numbers_of(pickle.loads(pickle.dumps(result))))
        if name not in ("RelativeImportance", "ModelComparison", "Results", "Delta"):
            yield case(name, "strict JSON", _strict)
        for ending in ("json", "npz"):
            yield case(name, f"saved as {ending}", lambda result, ending=ending: _saved(result, ending))
    for name in ("Importance", "Impact", "AlgorithmReliance", "NullImportance", "RelativeImportance", "Results"):
        yield Case(name, "unpickled readonly", lambda name=name: _writable(results()[name]), Number(lambda: [0.0]))


# ---------------------------------------------------------------------------------------------------------------------
# Files


def _file(content: bytes, ending: str = "json") -> Callable[[], Any]:
    def call() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"result.{ending}"
            path.write_bytes(content)
            return rl.load(path)

    return call


def _bytes(ending: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"result.{ending}"
        results()["Importance"].save(path)
        return path.read_bytes()


def _changed(**changes: Any) -> Callable[[], Any]:
    def call() -> Any:
        content = json.loads(_bytes("json"))
        place = content if set(changes) & set(content) else next(v for v in content.values() if isinstance(v, dict))
        place.update(changes)
        return _file(json.dumps(content).encode())()

    return call


def _without(key: str) -> Callable[[], Any]:
    def call() -> Any:
        content = json.loads(_bytes("json"))
        place = content if key in content else next(v for v in content.values() if isinstance(v, dict))
        del place[key]
        return _file(json.dumps(content).encode())()

    return call


def _bomb() -> bytes:
    """An npz whose one array says that it holds a terabyte."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("values.npy", header.getvalue() + b"\0" * 64)
    return content.getvalue()


def _pickled() -> bytes:
    content = io.BytesIO()
    np.savez(content, values=np.array([{"a": 1}], dtype=object))
    return content.getvalue()


FILES: dict[str, Callable[[], Any]] = {
    "empty": _file(b""),
    "no JSON": _file(b"{values: 3"),
    "other JSON": _file(b'{"a": 1}'),
    "a list": _file(b"[1, 2]"),
    "a number": _file(b"3"),
    "bytes": _file(bytes(range(256))),
    "truncated": lambda: _file(_bytes("json")[:-40])(),
    "empty npz": _file(b"", "npz"),
    "no npz": _file(b"PK\x03\x04 nothing", "npz"),
    "truncated npz": lambda: _file(_bytes("npz")[:-100], "npz")(),
    "bomb": lambda: _file(_bomb(), "npz")(),
    "pickles": lambda: _file(_pickled(), "npz")(),
    "ending": _file(b"{}", "txt"),
    "kind unknown": _changed(format="reliance.Importances"),
    "values short": _changed(values=[1.0]),
    "values text": _changed(values=["a", "b", "c"]),
    "values nested": _changed(values=[[1.0], [2.0], [3.0]]),
    "names short": _changed(names=["a"]),
    "names twice": _changed(names=["a", "a", "b"]),
    "compare unknown": _changed(compare="minus"),
    "n negative": _changed(n=-1),
    "n text": _changed(n="12"),
    "values missing": _without("values"),
    "names missing": _without("names"),
}


def _files() -> Iterator[Case]:
    for odd, call in FILES.items():
        yield Case("load", f"file {odd}", call, Refused(("path",)))
    yield Case("load", "path none", lambda: rl.load(None), Refused(("path",)))
    yield Case("load", "path number", lambda: rl.load(3.5), Refused(("path",)))
    yield Case("load", "folder", lambda: rl.load(tempfile.gettempdir()), Refused(("path",), (ValueError, OSError)))
    yield Case(
        "load", "no such file", lambda: rl.load("/nowhere/result.json"), Refused(("result.json",), (FileNotFoundError,))
    )


# ---------------------------------------------------------------------------------------------------------------------
# merge and estimate


def _some(features: Any, rows: slice = slice(None), **options: Any) -> Any:
    options = {"features": features, "draws": N, "rng": KEY, **options}
    return rl.permutation_importance(score, X[rows], Y[rows], **options)


MERGED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (list, "results"),
    "a number": (lambda: 3, "results"),
    "one result": (lambda: _some([0]), "results"),
    "text": (lambda: "results", "results"),
    "other results": (lambda: [_some([0]), rl.feature_impact(score, X)], "results"),
    "a feature twice": (lambda: [_some([0, 1]), _some([1, 2])], "x1"),
    "another key": (lambda: [_some([0]), _some([1], rng=KEY + 1)], "rng"),
    "other draws": (lambda: [_some([0]), _some([1], draws=3)], "plan"),
    "other rows": (lambda: [_some([0]), _some([1], rows=slice(1, None))], "base_risk"),
    "another loss": (lambda: [_some([0]), _some([1], loss="absolute_error")], "base_risk"),
    "ratios": (lambda: [_some([0]), _some([1], compare="ratio")], "compare"),
    "rows in one": (lambda: [_some([0], keep="rows"), _some([1])], "row_values"),
}
ESTIMATED: dict[str, tuple[Callable[[], Any], str]] = {
    "no method": (lambda: rl.estimate(None, score, X, Y), "method"),
    "a function of others": (lambda: rl.estimate(np.mean, X), "method"),
    "no model": (lambda: rl.estimate(rl.linear_importance, None, X, Y), "method"),
    "refits": (lambda: rl.estimate(rl.null_importance, fit, X, Y, rounds=2), "refits"),
    "a class": (lambda: rl.estimate(rl.model_class_reliance, rl.LinearClass(), X, Y, epsilon=0.1), "class"),
    "until": (lambda: rl.estimate(rl.permutation_importance, score, X, Y, draws=rl.Until(top=1)), "draws"),
    "bad argument": (lambda: rl.estimate(rl.permutation_importance, score, X, Y, draws=0), "draws"),
}


def _together() -> Iterator[Case]:
    for odd, (made, word) in MERGED.items():
        yield Case("merge", odd, lambda made=made: rl.merge(made()), Refused((word,)))
    truth = Number(lambda: _some(None).values)
    yield Case("merge", "parts", lambda: rl.merge([_some([0]), _some([1, 2])]).values, truth)
    for odd, (call, word) in ESTIMATED.items():
        yield Case("estimate", odd, call, Refused((word,)))
    for name in ("estimate", "Estimate"):

        def counted() -> Any:
            return np.asarray([rl.estimate(rl.permutation_importance, score, X, Y, draws=5).model_rows])

        yield Case(name, "rows", counted, Number(lambda: np.asarray([5.0 * X.shape[0] * X.shape[1]])))


# ---------------------------------------------------------------------------------------------------------------------
# RefitError


def _failing(rows: Any, y: Any) -> Any:
    if rows.shape[1] < 3:
        raise RuntimeError("no fit without all columns")
    return fit(rows, y)


def _refit_error() -> Iterator[Case]:
    def again() -> Any:
        try:
            rl.algorithm_reliance(_failing, X, Y, cv=FOLDS)
        except rl.RefitError as error:
            found = pickle.loads(pickle.dumps(error))
            return [float(str(found) == str(error)), float(len(found.failures) == len(error.failures))]
        raise AssertionError("no RefitError")

    yield Case("RefitError", "pickled", again, Number(lambda: [1.0, 1.0]))
    yield Case(
        "RefitError",
        "raised",
        lambda: rl.algorithm_reliance(_failing, X, Y, cv=FOLDS),
        Refused(("x0",), (rl.RefitError,)),
    )


def cases() -> Iterator[Case]:
    yield from _report()
    yield from _pool()
    yield from _methods()
    yield from _round_trips()
    yield from _files()
    yield from _together()
    yield from _refit_error()
