"""Intervals and tests of draws by ranks, simulated: linear models whose importances are known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reliance import plans
from reliance.engine import prepare
from reliance.methods import measuring

pytestmark = pytest.mark.slow

# y = x0 + 0.3 x1 + noise; the model uses x2, too, though y ignores it, so its importance is 0 with an error.
TRUE, USED = np.array([1.0, 0.3, 0.0]), np.array([1.0, 0.3, 0.4])
BASE = 1.0 + 0.4**2


def model(X: Any) -> Any:
    return X @ USED


def measured(X: np.ndarray, y: np.ndarray, draws: int, key: int, compare: str, cycles: bool = False) -> Any:
    problem = prepare(model, X, y, rng=key)
    plan = plans.Ranked(len(X), draws, key, plans.Orders.of(problem.flat, key), cycles)
    return measuring.measure(problem, plan, compare, "permutation_importance")


@pytest.mark.parametrize(
    "n, draws, compare, cycles",
    [
        (100, 3, "difference", False),
        (100, 5, "ratio", False),
        (100, 8, "difference", False),
        (200, 20, "difference", False),
        (100, 16, "ratio", True),
        (200, 8, "difference", True),
    ],
)
def test_population_intervals_cover(n: int, draws: int, compare: str, cycles: bool) -> None:
    """93 to 97.5%, and a size of 3.5 to 6.5%, give or take three standard errors of 500 replicates."""
    change = 2.0 * USED * TRUE
    truth = change if compare == "difference" else 1.0 + change / BASE
    replicates, inside, rejected = 500, np.zeros(3), 0
    for seed in range(replicates):
        rng = np.random.default_rng([seed, n, draws])
        X = rng.normal(size=(n, 3))
        result = measured(X, X @ TRUE + rng.normal(size=n), draws, seed, compare, cycles)
        ends = result.interval()
        inside += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        rejected += result.test(adjust="none").p_value[2] < 0.05
    slack = 3.0 * np.sqrt(0.05 * 0.95 / replicates)
    assert np.all(inside / replicates > 0.93 - slack)
    assert np.all(inside / replicates < 0.975 + slack)
    assert 0.035 - slack < rejected / replicates < 0.065 + slack


@pytest.mark.parametrize("draws, cycles", [(3, False), (5, False), (8, False), (16, False), (20, False), (16, True)])
def test_fixed_data_intervals_cover(draws: int, cycles: bool) -> None:
    """90 to 100% of 300 keys, and from 8 draws on at most 0.7 as wide as those of shifts.

    200 is no multiple of 16: some rows meet a stretch twice, which is most of the noise of a smooth, bounded column.
    """
    n, rng = 200, np.random.default_rng(draws)
    X = rng.normal(size=(n, 3))
    X[:, 0] = 4.0 * rng.random(n) - 2.0
    X[:, 1] = np.round(X[:, 1])
    y = X @ TRUE + rng.normal(size=n)
    exact = measuring.measure(prepare(model, X, y, rng=0), plans.Pairs(n), "difference", "x").values
    inside, ours, theirs = np.zeros(3), [], []
    for key in range(300):
        result = measured(X, y, draws, key, "difference", cycles)
        ends = result.interval(formulation="fixed-data")
        inside += (ends[:, 0] <= exact) & (exact <= ends[:, 1])
        ours.append(result.fixed_data_error)
        problem = prepare(model, X, y, rng=key)
        theirs.append(measuring.measure(problem, plans.Shifts(n, draws, key), "difference", "x").fixed_data_error)
    assert np.all(inside / 300 > 0.90)
    if draws >= 8:
        assert np.median(ours) <= 0.7 * np.median(theirs)
