"""Odd classes of models, samplers, knockoffs and models of the library: refused where they are made or used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import reliance as rl
from hostile import loops
from hostile.functions import FUNCTIONS, KEY, N, P, X, Y, plane, score, weaker
from hostile.loops import Data
from hostile.record import Case, Expectation, Number, Refused
from relative_cases import relative_importance

ASK = rl.model_class_reliance


def _asked(model_class: Any, X: Any = X, y: Any = Y, ask: Callable[..., Any] = ASK, **options: Any) -> Any:
    found = ask(model_class, X, y, **{"epsilon": 0.1, **options})
    return np.stack([found.lower, found.upper])


def _ols() -> Callable[[Any], Any]:
    return loops.least_squares(X, Y)


def _point(measure: Callable[[Data], Any]) -> Callable[[], Any]:
    """With epsilon 0 the best model alone is good."""
    return lambda: np.stack([measure(Data(_ols(), X, Y))] * 2)


CLASSES: dict[tuple[str, str], tuple[Callable[[], Any], Expectation]] = {
    # Linear models
    ("LinearClass", "epsilon 0"): (
        lambda: _asked(rl.LinearClass(), epsilon=0.0),
        Number(_point(loops.ratios), 1e-6),
    ),
    ("LinearClass", "epsilon 0, conditional"): (
        lambda: _asked(rl.LinearClass(), epsilon=0.0, ask=rl.conditional_model_class_reliance),
        Number(_point(loops.conditional_ratios), 1e-6),
    ),
    ("LinearClass", "loss unknown"): (lambda: _asked(rl.LinearClass(loss="cubed")), Refused(("loss",))),
    ("LinearClass", "loss None"): (lambda: _asked(rl.LinearClass(loss=None)), Refused(("loss",))),
    ("LinearClass", "ridge negative"): (lambda: _asked(rl.LinearClass(ridge=-1.0)), Refused(("ridge",))),
    ("LinearClass", "ridge nan"): (lambda: _asked(rl.LinearClass(ridge=math.nan)), Refused(("ridge",))),
    ("LinearClass", "ridge text"): (lambda: _asked(rl.LinearClass(ridge="1")), Refused(("ridge",))),
    ("LinearClass", "intercept text"): (lambda: _asked(rl.LinearClass(intercept="no")), Refused(("intercept",))),
    ("LinearClass", "class itself"): (lambda: _asked(rl.LinearClass), Refused(("model_class",))),
    ("LinearClass", "more columns than rows"): (
        lambda: _asked(rl.LinearClass(), X=X[:3], y=Y[:3]),
        Refused(("X",)),
    ),
    ("LinearClass", "constant labels"): (lambda: _asked(rl.LinearClass(), y=np.ones(N)), Refused(("y is constant",))),
    ("LinearClass", "nan in X"): (
        lambda: _asked(rl.LinearClass(), X=np.where(np.arange(N)[:, None] == 2, np.nan, X)),
        Refused(("X", "NaN")),
    ),
    ("LinearClass", "text labels"): (lambda: _asked(rl.LinearClass(), y=["a", "b"] * 6), Refused(("y", "number"))),
    # Kernels
    ("KernelClass", "kernel unknown"): (lambda: _asked(rl.KernelClass("cosine")), Refused(("kernel",))),
    ("KernelClass", "kernel number"): (lambda: _asked(rl.KernelClass(3)), Refused(("kernel",))),
    ("KernelClass", "landmarks 0"): (lambda: _asked(rl.KernelClass(landmarks=0)), Refused(("landmarks",))),
    ("KernelClass", "landmarks 1.5"): (lambda: _asked(rl.KernelClass(landmarks=1.5)), Refused(("landmarks",))),
    ("KernelClass", "landmarks of other columns"): (
        lambda: _asked(rl.KernelClass(landmarks=X[:, :2], radius=1.0)),
        Refused(("landmarks",)),
    ),
    ("KernelClass", "radius negative"): (lambda: _asked(rl.KernelClass(radius=-1.0)), Refused(("radius",))),
    ("KernelClass", "radius nan"): (lambda: _asked(rl.KernelClass(radius=math.nan)), Refused(("radius",))),
    ("KernelClass", "radius text"): (lambda: _asked(rl.KernelClass(radius="1")), Refused(("radius",))),
    ("KernelClass", "bandwidth 0"): (
        lambda: _asked(rl.KernelClass(bandwidth=0.0, radius=1.0)),
        Refused(("bandwidth",)),
    ),
    ("KernelClass", "bandwidth short"): (
        lambda: _asked(rl.KernelClass(bandwidth=[1.0], radius=1.0)),
        Refused(("bandwidth",)),
    ),
    ("KernelClass", "bandwidth text"): (
        lambda: _asked(rl.KernelClass(bandwidth="wide", radius=1.0)),
        Refused(("bandwidth",)),
    ),
    ("KernelClass", "degree 0"): (
        lambda: _asked(rl.KernelClass("polynomial", degree=0, radius=1.0)),
        Refused(("degree",)),
    ),
    # Lists of models
    ("FiniteClass", "empty"): (lambda: _asked(rl.FiniteClass([])), Refused(("models",))),
    ("FiniteClass", "none"): (lambda: _asked(rl.FiniteClass(None)), Refused(("models",))),
    ("FiniteClass", "one model, not a list"): (lambda: _asked(rl.FiniteClass(score)), Refused(("models",))),
    ("FiniteClass", "a number in it"): (lambda: _asked(rl.FiniteClass([score, 3])), Refused(("model",))),
    ("FiniteClass", "names of numbers"): (
        lambda: _asked(rl.FiniteClass({1: score, 2: weaker})),
        Refused(("models",)),
    ),
    ("FiniteClass", "loss unknown"): (lambda: _asked(rl.FiniteClass([score], loss="cubed")), Refused(("loss",))),
    ("FiniteClass", "bootstrap 0"): (lambda: _asked(rl.FiniteClass([score], bootstrap=0)), Refused(("bootstrap",))),
    ("FiniteClass", "bootstrap 1.5"): (lambda: _asked(rl.FiniteClass([score], bootstrap=1.5)), Refused(("bootstrap",))),
    ("FiniteClass", "generator"): (
        lambda: _asked(rl.FiniteClass(m for m in (score, weaker)), epsilon=9.0),
        Number(lambda: loops.class_range([Data(m, X, Y) for m in (score, weaker)], 9.0, loops.ratios)),
    ),
    ("FiniteClass", "one model"): (
        lambda: _asked(rl.FiniteClass([plane]), epsilon=0.0),
        Number(lambda: np.stack([loops.ratios(Data(plane, X, Y))] * 2)),
    ),
    ("FiniteClass", "a model that returns None"): (
        lambda: _asked(rl.FiniteClass([score, lambda x: None])),
        Refused(("model", "returned None")),
    ),
    ("FiniteClass", "a model of the wrong length"): (
        lambda: _asked(rl.FiniteClass([score, lambda x: score(x)[:-1]])),
        Refused(("model", "shape")),
    ),
    ("FiniteClass", "several inputs"): (
        lambda: _asked(rl.FiniteClass([lambda a, b: 1.5 * a - b, lambda a, b: a]), X=(X[:, 0], X[:, 1]), epsilon=99.0),
        Number(
            lambda: loops.class_range(
                [Data(f, X[:, :2], Y) for f in (lambda x: 1.5 * x[:, 0] - x[:, 1], lambda x: x[:, 0])],
                99.0,
                loops.ratios,
            )
        ),
    ),
    # Trees
    ("TreeClass", "depth 0"): (lambda: _asked(rl.TreeClass(depth=0)), Refused(("depth",))),
    ("TreeClass", "penalty nan"): (lambda: _asked(rl.TreeClass(penalty=math.nan)), Refused(("penalty",))),
    ("TreeClass", "cuts text"): (lambda: _asked(rl.TreeClass(cuts="many")), Refused(("cuts",))),
    ("TreeClass", "cuts True"): (lambda: _asked(rl.TreeClass(cuts=True)), Refused(("cuts",))),
    ("TreeClass", "loss unknown"): (lambda: _asked(rl.TreeClass(loss="cubed")), Refused(("loss",))),
    ("TreeClass", "trees of nothing"): (lambda: _asked(rl.TreeClass.from_trees([])), Refused(("trees",))),
    ("TreeClass", "a tree, not a list"): (lambda: _asked(rl.TreeClass.from_trees(3)), Refused(("trees",))),
    ("TreeClass", "nan in X"): (
        lambda: _asked(rl.TreeClass(loss="squared_error"), X=np.where(np.arange(N)[:, None] == 2, np.nan, X)),
        Refused(("X", "NaN")),
    ),
    # Functions
    ("BasisClass", "basis None"): (lambda: _asked(rl.BasisClass(None)), Refused(("basis",))),
    ("BasisClass", "ridge negative"): (lambda: _asked(rl.BasisClass(np.sin, ridge=-1.0)), Refused(("ridge",))),
    ("BasisClass", "loss unknown"): (lambda: _asked(rl.BasisClass(np.sin, loss="cubed")), Refused(("loss",))),
    ("BasisClass", "intercept text"): (lambda: _asked(rl.BasisClass(np.sin, intercept="no")), Refused(("intercept",))),
    ("BasisClass", "columns of others"): (lambda: _asked(rl.BasisClass(np.sin, [(9,)] * P)), Refused(("columns",))),
    ("BasisClass", "basis of a number"): (lambda: _asked(rl.BasisClass(lambda x: 3.0)), Refused(("basis",))),
    ("BasisClass", "no forest"): (lambda: _asked(rl.BasisClass.from_forest(3)), Refused(("forest",))),
    ("BasisClass", "no network"): (lambda: _asked(rl.BasisClass.from_last_layer(3)), Refused(("module",))),
    ("BasisClass", "no cuts"): (lambda: _asked(rl.BasisClass.from_steps({})), Refused(("cuts",))),
    # Networks
    ("DifferentiableClass", "no radius"): (lambda: _asked(rl.DifferentiableClass(score, {})), Refused(("radius",))),
    ("DifferentiableClass", "starts 0"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=1.0, starts=0)),
        Refused(("starts",)),
    ),
    ("DifferentiableClass", "steps -1"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=1.0, steps=-1)),
        Refused(("steps",)),
    ),
    ("DifferentiableClass", "learning_rate 0"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=1.0, learning_rate=0.0)),
        Refused(("learning_rate",)),
    ),
    ("DifferentiableClass", "radius negative"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=-1.0)),
        Refused(("radius",)),
    ),
    ("DifferentiableClass", "loss unknown"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=1.0, loss="cubed")),
        Refused(("loss",)),
    ),
    ("DifferentiableClass", "no parameters"): (
        lambda: _asked(rl.DifferentiableClass(score, {}, radius=1.0)),
        Refused(("params",)),
    ),
    ("DifferentiableClass", "apply of a number"): (
        lambda: _asked(rl.DifferentiableClass(3, {}, radius=1.0)),
        Refused(("apply",)),
    ),
}


# ---------------------------------------------------------------------------------------------------------------------
# Samplers


def _given(sampler: Any, **options: Any) -> Any:
    return relative_importance(score, X, Y, **{"given": ["x1"], "sampler": sampler, "rng": KEY, **options}).values


def _given_truth() -> Any:
    """Column 0 given column 1, by least squares, residuals of all other rows."""

    def values(data: Data) -> Any:
        design = np.column_stack([np.ones(N), data.X[:, 1]])
        fitted = design @ np.linalg.lstsq(design, data.X[:, :1], rcond=None)[0]
        return fitted[:, None, :] + (data.X[:, :1] - fitted)[None, :, :]

    data = Data(score, X, Y)
    return np.array([loops.switched_risk(data, (0,), values(data)) - loops.base_risk(data)])


S = rl.samplers
SAMPLERS: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "gaussian of one column": (
        lambda: _given("gaussian", features=[0], draws=N),
        Number(_given_truth),
    ),
    "given itself": (lambda: _given("gaussian", features=[1], draws=3), Number(lambda: [0.0])),
    "given nothing": (
        lambda: _given("gaussian", given=[], draws=N),
        Number(lambda: loops.differences(Data(score, X, Y))),
    ),
    "gaussian draws unknown": (lambda: _given(S.Gaussian(draws="uniform")), Refused(("draws",))),
    "gaussian ridge negative": (lambda: _given(S.Gaussian(ridge=-1.0)), Refused(("ridge",))),
    "gaussian ridge nan": (lambda: _given(S.Gaussian(ridge=math.nan)), Refused(("ridge",))),
    "residual folds 1": (lambda: _given(S.Residual(folds=1)), Refused(("folds",))),
    "residual folds 1.5": (lambda: _given(S.Residual(folds=1.5)), Refused(("folds",))),
    "residual folds many": (lambda: _given(S.Residual(folds=N + 1)), Refused(("folds",))),
    "residual regressor number": (lambda: _given(S.Residual(regressor=3)), Refused(("regressor",))),
    "knn 0": (lambda: _given(S.KNN(0)), Refused(("k",))),
    "knn too many": (lambda: _given(S.KNN(N)), Refused(("k",))),
    "knn 1.5": (lambda: _given(S.KNN(1.5)), Refused(("k",))),
    "leaves 0": (lambda: _given(S.Leaves(0)), Refused(("strata",))),
    "knockoffs method": (lambda: _given(S.Knockoffs("best")), Refused(("method",))),
    "class itself": (lambda: _given(S.Gaussian), Refused(("sampler",))),
    "context of nan": (lambda: _given("gaussian", given=["c"], context={"c": Y * np.nan}), Refused(("NaN",))),
    "context constant": (
        lambda: _given("gaussian", given=["c"], context={"c": np.ones(N)}, features=[0], draws=N),
        Refused(("given", "constant")),
    ),
    "given twice": (lambda: _given("gaussian", given=["x1", 1], features=[0], draws=N), Number(_given_truth)),
}
K = rl.samplers
KNOCKOFFS: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "copies method": (lambda: K.knockoff_copies(X, method="best"), Refused(("method",))),
    "copies flat": (lambda: K.knockoff_copies(X[:, 0]), Refused(("X",))),
    "copies nan": (lambda: K.knockoff_copies(X * np.nan), Refused(("X", "NaN"))),
    "copies list of text": (lambda: K.knockoff_copies([["a"], ["b"]]), Refused(("X",))),
    "copies rng": (lambda: K.knockoff_copies(X, rng=0.5), Refused(("rng",))),
    "filter fdr 0": (lambda: K.knockoff_filter([1.0, 2.0], fdr=0.0), Refused(("fdr",))),
    "filter fdr 2": (lambda: K.knockoff_filter([1.0, 2.0], fdr=2.0), Refused(("fdr",))),
    "filter fdr nan": (lambda: K.knockoff_filter([1.0, 2.0], fdr=math.nan), Refused(("fdr",))),
    "filter offset 2": (lambda: K.knockoff_filter([1.0, 2.0], offset=2), Refused(("offset",))),
    "filter nan": (lambda: K.knockoff_filter([1.0, math.nan]), Refused(("W", "finite"))),
    "filter 2-d": (lambda: K.knockoff_filter(X), Refused(("W",))),
    "filter text": (lambda: K.knockoff_filter(["a", "b"]), Refused(("W",))),
    # Six scores above 2 and one of -1: at an fdr of 0.2, (1 + 0) / 6 <= 0.2 at the threshold 2.
    "filter": (
        lambda: K.knockoff_filter([2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -1.0, 0.0], fdr=0.2)[0],
        Number(lambda: [0, 1, 2, 3, 4, 5]),
    ),
}
MODELS: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "Linear of lists": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Linear([1.5, 1.0, 0.0])),
        Refused(("coef", "array")),
    ),
    "Linear short": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Linear(np.ones(2))),
        Refused(("coef",)),
    ),
    "Linear nan": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Linear(np.full(P, np.nan))),
        Refused(("NaN",)),
    ),
    "Linear text": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Linear("abc")),
        Refused(("coef",)),
    ),
    "FirstLayer": (
        lambda: FUNCTIONS["model_reliance"].run(
            X, Y, model=rl.models.FirstLayer(np.eye(P), 0.0, score), route="first_layer"
        ),
        Number(lambda: loops.ratios(Data(score, X, Y))),
    ),
    "FirstLayer of a wrong weight": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.FirstLayer(np.eye(2), 0.0, score)),
        Refused(("weight",)),
    ),
    "Additive": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Additive({0: lambda x: 2 * x}), route="additive"),
        Number(lambda: loops.ratios(Data(lambda X: 2 * X[:, 0], X, Y))),
    ),
    "Additive of text": (lambda: rl.models.Additive("abc"), Refused(("shapes", "mapping"))),
    "Additive of a number": (lambda: rl.models.Additive([1.0]), Refused(("column 0", "a function"))),
    "Additive of few values": (lambda: rl.models.Additive([(np.ones(2), np.ones(2))]), Refused(("one value more",))),
    "Additive of falling edges": (
        lambda: rl.models.Additive([(np.array([1.0, 0.0]), np.ones(3))]),
        Refused(("do not increase",)),
    ),
    "Additive of names": (lambda: rl.models.Additive({"age": np.sin}), Refused(("'age'", "places"))),
    "Additive of a wrong link": (lambda: rl.models.Additive([np.sin], link="probit"), Refused(("link='probit'",))),
    "Additive of more columns": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=rl.models.Additive({P: np.sin})),
        Refused(("shapes", f"column {P}")),
    ),
    "onnx none": (lambda: rl.models.onnx(None), Refused(("path",))),
    "onnx no file": (lambda: rl.models.onnx("/nowhere/model.onnx"), Refused(("model.onnx",), (ValueError, OSError))),
}
FEATURES: dict[str, tuple[Callable[[], Any], Expectation]] = {
    "channels of words": (lambda: rl.features.channels("images"), Refused(("X is a str",))),
    "channels of numbers": (lambda: rl.features.channels(np.ones(3)), Refused(("no parts to choose from",))),
    "channels of an axis that is not there": (lambda: rl.features.channels((3, 8, 8), axis=3), Refused(("axis 3",))),
    "channels with few names": (lambda: rl.features.channels((3, 8), names=["red"]), Refused(("names", "3 different"))),
    "channels of no input": (lambda: rl.features.channels({"a": X}, of="b"), Refused(("of='b'", "'a'"))),
    "positions twice": (lambda: rl.features.positions((3, 8, 8), axes=(1, 1)), Refused(("axes", "each once"))),
    "patches of nothing": (lambda: rl.features.patches((3, 8, 8), 0), Refused(("size=0",))),
    "patches larger than the image": (lambda: rl.features.patches((3, 8, 8), 9), Refused(("smaller size",))),
    "windows of half a step": (lambda: rl.features.windows((10, 2), 2, stride=0.5), Refused(("stride=0.5",))),
    "channels": (
        lambda: FUNCTIONS["model_reliance"].run(X, Y, model=score, features=rl.features.channels(X)),
        Number(lambda: loops.ratios(Data(score, X, Y))),
    ),
}


def cases() -> Iterator[Case]:
    for (function, odd), (call, expected) in CLASSES.items():
        yield Case(function, odd, call, expected)
    for name, table in (("samplers", SAMPLERS), ("knockoffs", KNOCKOFFS), ("models", MODELS), ("features", FEATURES)):
        for odd, (call, expected) in table.items():
            yield Case(name, odd, call, expected)
