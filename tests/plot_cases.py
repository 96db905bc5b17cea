"""Results for the tests of figures, and what their Axes say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import reliance as rl
from reliance.methods.splits import SplitComparison
from reliance.rashomon.members import Members
from reliance.rashomon.results import ClassReliance
from reliance.results.algorithm import AlgorithmReliance
from reliance.results.comparisons import Delta, RelativeImportance
from reliance.results.curves import Curve
from reliance.results.impact import Impact
from reliance.results.local import LocalImportance
from reliance.results.null import NullImportance
from test_results import make

NAMES = ("price in $", "_hidden", "a name of sixty letters, which no axis of a small figure holds", "d")
VALUES = np.array([0.5, -0.2, 0.0, 1.5])


def importance(**given):
    return make(values=VALUES, names=list(NAMES), **given)


def relative():
    return RelativeImportance({"": importance(), "_a": make(values=VALUES[::-1], names=list(NAMES))})


def class_reliance(lower=(0.9, 1.0, math.nan), upper=(2.0, math.inf, math.nan)):
    low, high = np.array([1.0, 1.1, 1.2]), np.array([1.5, 3.0, 1.2])
    models = (abs, abs, abs)
    ends = (np.array(lower), np.array(upper), low, high, models, models, low, high)
    return ClassReliance(("a", "b", "c"), *ends, 1.0, 1.1, "ratio", "squared_error", 9, False, "LinearClass")


def listed_reliance():
    """Three models, of which one is not good, with errors of the ends."""
    values = np.array([[1.0, 1.4, 2.0], [1.5, 1.2, 2.2], [math.nan] * 3])
    members = Members(("m", "n", "o"), np.array([1.0, 1.05, 3.0]), np.array([True, True, False]), values)
    low, high, models = values[:2].min(axis=0), values[:2].max(axis=0), (abs, abs, abs)
    ends = (low, high, low, high, models, models, low, high)
    fixed = (1.0, 1.1, "ratio", "squared_error", 9, False, "FiniteClass")
    return ClassReliance(("a", "b", "c"), *ends, *fixed, members=members, end_errors=np.full((3, 2), 0.05))


def splits():
    zeros = np.zeros(4)
    return SplitComparison(
        importance(), make(values=VALUES / 2, names=list(NAMES)), NAMES, VALUES / 2, zeros, zeros + 9
    )


def impact():
    table = np.arange(12.0).reshape(3, 4)
    return Impact(
        NAMES, np.array([0.2, 0.5, 0.8]), table, table.mean(axis=0), table, False, 9, np.ones(4), ("plain",) * 4, (1,)
    )


def local():
    values = np.array([[1.0, -2.0, 0.5, 0.0], [0.0, 3.0, -0.5, 0.1]])
    ones = np.ones(4)
    return LocalImportance(NAMES, np.array([4, 7]), values, values * 0, np.zeros(2), "prediction", 9, 5, 0, ones)


def nulls():
    return NullImportance(NAMES, VALUES, np.random.default_rng(0).normal(size=(4, 19)), 9, 1, "measure of $")


def refits(folds=5):
    table = VALUES[:, None] + np.linspace(-0.1, 0.1, folds)
    return AlgorithmReliance(
        NAMES, VALUES, "difference", 1.0, VALUES + 1, "fitted models", table, VALUES * 0 + 0.1, VALUES * 0, VALUES * 0,
        50, 49, folds - 1, 10, "algorithm_reliance", "squared_error", "out",
    )  # fmt: skip


def with_curves(mean, values, ice=None):
    return dataclasses.replace(make(values=[1.0, 0.5], names=["a", "b"], k=None), curves={
        "a": Curve(np.asarray(values), np.asarray(mean), ice), "b": Curve(np.zeros((3, 2)), np.zeros(3)),
    })  # fmt: skip


def delta():
    return Delta(NAMES, VALUES, np.full(4, 0.1), np.full(4, 30.0))


def ranks():
    first, last = np.array([2, 4, 3, 1]), np.array([2, 4, 4, 3])
    return rl.Ranks(NAMES, VALUES, first, last, np.zeros((4, 4), dtype=bool), 0.9)


def pooled():
    ones = np.ones(4)
    rest = (0.01 * ones, 0.0 * ones, 0.1 * ones, 30.0 * ones, 0.0 * ones)
    return rl.Pooled(NAMES, VALUES, "difference", *rest, 1.0, 50, 5, "permutation_importance", "squared_error")


def monitored():
    steps = np.linspace(1.0, 0.4, 6)[:, None]
    running, half = VALUES * np.ones((6, 1)), steps * np.ones(4)
    rows = np.full(6, 50, dtype=np.int64)
    ends = (running - half, running + half)
    return rl.Monitored(
        NAMES, VALUES, running, *ends, running + steps - 0.7, rows, 0.95, "asymptotic", "squared_error", 0
    )


def linear():
    return rl.LinearImportance(NAMES, VALUES, 2.0 * VALUES, 3.0 * VALUES, "range", 9)


def interactions():
    pairs = tuple((name, "other") for name in NAMES)
    error = np.full(4, 0.1)
    rest = (error, 0.0 * error, np.full(4, 29.0), 1.0, 30, 3, "l", 5, 1)
    return rl.Interactions(pairs, VALUES, VALUES, VALUES, VALUES, *rest)


def extrapolation():
    return rl.Extrapolation(NAMES, 1.0 + VALUES, np.full(4, 0.5), "neighbours", 1.25, 9, 9, 1)


def judged():
    return interactions().test()


def all_rows():
    """Contributions of all four rows of x0 x1, which is no sum, with x2 unused."""
    X = np.array([[1.0, 2.0, 7.0], [3.0, -1.0, 7.5], [0.5, 4.0, 8.0], [-2.0, 1.0, 9.0]])
    return rl.local_importance(lambda Z: Z[:, 0] * Z[:, 1], X, names=["a", "b", "c"]), X


KINDS = [
    (importance, ["bar", "box", "violin", "curve", "beeswarm", "image"]),
    (relative, ["bar"]),
    (delta, ["bar"]),
    (ranks, ["range"]),
    (pooled, ["bar"]),
    (listed_reliance, ["range", "cloud", "risk"]),
    (monitored, ["line"]),
    (splits, ["box", "violin", "bar"]),
    (impact, ["bar", "quantiles"]),
    (local, ["heat", "waterfall", "bar", "beeswarm", "image"]),
    (nulls, ["range", "box", "violin"]),
    (refits, ["bar", "box", "violin"]),
    (linear, ["bar"]),
    (interactions, ["bar"]),
    (extrapolation, ["bar"]),
    (judged, ["bar"]),
]
PICTURE = {"shape": (2, 2), "names": NAMES}
OPTIONS = {
    ("local", "waterfall"): {"row": 7},
    ("local", "bar"): {"row": 7},
    ("local", "image"): {"row": 7, **PICTURE},
    ("importance", "image"): PICTURE,
}


def words(labels):
    return [label.get_text() for label in labels]


def segments(ax, index=0):
    return np.array([segment[:, 0] for segment in ax.collections[index].get_segments()])


def caption(ax):
    return " ".join(" ".join(text.get_text() for text in ax.texts if text.get_gid() == "caption").split())
