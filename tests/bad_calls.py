"""Calls of the three methods on good input, of which tests of bad input change one argument."""

from __future__ import annotations

import numpy as np

import reliance as rl
from oracles import CASES

CASE = CASES["squared_error"]
X, Y = CASE.data(n=10)


def score(x):
    return x[..., 0]


def measure(model=score, X=X, y=Y, **options):
    return rl.permutation_importance(model, X, y, **{"draws": 3, "rng": 0, **options})


def reliance(model=score, X=X, y=Y, **options):
    return rl.model_reliance(model, X, y, **options)


def ablation(model=score, X=X, y=Y, **options):
    return rl.ablation_importance(model, X, y, **{"rng": 0, **options})


def replaced(array, at, value):
    changed = np.array(array, dtype=float)
    changed[at] = value
    return changed
