"""Rows that arrive over time: intervals by the literal sums of the theorems, and how often they hold at all times."""

from __future__ import annotations

import math

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance.inference.sequences import Asymptotic, EmpiricalBernstein


def literal_bernstein(x: np.ndarray, alpha: float) -> tuple[float, float]:
    """Theorem 2 of Waudby-Smith and Ramdas for numbers in [0, 1], one after the other."""
    sums = squares = bets = weighted = width = 0.0
    for i, value in enumerate(x, start=1):
        mean, variance = (0.5 + sums) / i, (0.25 + squares) / i
        bet = min(math.sqrt(2.0 * math.log(2.0 / alpha) / (variance * i * math.log(1.0 + i))), 0.5)
        v, psi = 4.0 * (value - mean) ** 2, (-math.log(1.0 - bet) - bet) / 4.0
        bets, weighted, width = bets + bet, weighted + bet * value, width + v * psi
        sums += value
        squares += (value - (0.5 + sums) / (i + 1)) ** 2
    half = (math.log(2.0 / alpha) + width) / bets
    return max(weighted / bets - half, 0.0), min(weighted / bets + half, 1.0)


def test_bounded_intervals_by_literal_sums():
    values = np.random.default_rng(0).beta(0.5, 3.0, size=(2, 90))
    found = EmpiricalBernstein.of(2, -2.0, 2.0, 0.9)
    for part in np.split(4.0 * values - 2.0, [1, 30, 47], axis=1):
        found = found.update(part)
    expected = [literal_bernstein(row, 0.1) for row in values]
    np.testing.assert_allclose(found.interval(), 4.0 * np.asarray(expected) - 2.0)


def test_asymptotic_intervals_by_the_formula():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(2, 400))
    found = Asymptotic.of(2, 0.95)
    for part in np.split(values, [7, 200], axis=1):
        found = found.update(part)
    t, alpha = 400, 0.05
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 1000
    half = math.sqrt(2 * (t * rho2 + 1) / (t**2 * rho2) * math.log(math.sqrt(t * rho2 + 1) / alpha))
    half = half * values.std(axis=1, ddof=1)
    np.testing.assert_allclose(found.value, values.mean(axis=1))
    np.testing.assert_allclose(found.interval().T, [found.value - half, found.value + half])


def batch(rng: np.random.Generator, n: int = 60, used: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2))
    return X, used * X[:, 0] + rng.normal(size=n)


def model(rows):
    return rows[:, 0]


@pytest.mark.once_per_device
def test_pairs_by_literal_loops(backend):
    """Rows at places q and q + n/2 lend each other the feature; losses are cut to the bound."""
    rng = np.random.default_rng(1)
    monitor, pairs = rl.Monitor(model, loss="squared_error", bound=3.0, rng=5), []
    for number in range(2):
        X, y = map(backend.rounded, batch(rng, 20))
        result = monitor.update(backend.asarray(X), backend.asarray(y))
        donors = plans.halves(20, 5 + number).donors(range(20), range(1))[:, 0]
        change = np.minimum((y - X[donors, 0]) ** 2, 3.0) - np.minimum((y - X[:, 0]) ** 2, 3.0)
        np.testing.assert_allclose(result.by_batch[number, 0], change.mean(), rtol=1e-4)
        pairs += [(change[i] + change[k]) / 2 for i, k in enumerate(donors) if i < k]
    low, high = result.interval()[0]
    assert low < np.mean(pairs) < high
    # Intervals depend on the order of the pairs a little, through the bets: the first ones weigh more.
    expected = [6.0 * end - 3.0 for end in literal_bernstein((np.asarray(pairs) + 3.0) / 6.0, 0.05)]
    np.testing.assert_allclose([low, high], expected, atol=0.2)
    assert result.names == ("x0", "x1")
    assert result.rows.tolist() == [20, 20]


def test_asymptotic_batches_are_permutation_importances():
    rng = np.random.default_rng(2)
    monitor, values = rl.Monitor(model, method="asymptotic", rng=0), []
    for number in range(3):
        X, y = batch(rng)
        result = monitor.update(X, y)
        values.append(rl.permutation_importance(model, X, y, rng=number).values)
    np.testing.assert_allclose(result.by_batch, values)
    np.testing.assert_allclose(result.values, np.mean(values, axis=0))
    assert monitor.result is result


def test_a_change_is_seen():
    rng = np.random.default_rng(3)
    monitor = rl.Monitor(model, method="asymptotic", rng=0, names=["a", "b"])
    for number in range(40):
        result = monitor.update(*batch(rng, used=1.0 if number < 12 else -0.5))
    assert result.drifted.tolist() == [True, False]
    assert "importance has changed: 'a'" in repr(result)
    assert result.by_batch[-1, 0] < 0.0


def test_the_result_is_one_of_the_others(tmp_path):
    rng = np.random.default_rng(4)
    monitor = rl.Monitor(lambda X: (X[:, 1] > 0) * 1, loss="zero_one", level=0.9, rng=0)
    with pytest.raises(ValueError, match="no rows"):
        _ = monitor.result
    for _ in range(3):
        X = rng.normal(size=(30, 2))
        result = monitor.update(X, (X[:, 1] > 0) * 1)
    assert "3 batches" in repr(result)
    assert "lower 90%" in repr(result)
    assert result.ranked().names == ("x1", "x0")
    assert list(result.to_frame().columns) == ["value", "lower", "upper", "last_batch", "drifted"]
    assert len(result.history()) == 6
    result.save(tmp_path / "seen.json")
    np.testing.assert_array_equal(rl.load(tmp_path / "seen.json").lower, result.lower)


def test_monitors_are_checked():
    for options, words in (
        ({}, "name of a loss"),
        ({"loss": "squared_error"}, "no bound"),
        ({"loss": "squared_error", "bound": -1.0}, "bound=-1.0"),
        ({"loss": "zero_one", "bound": 2.0}, "at most 1"),
        ({"loss": "squared_error", "method": "betting"}, "method"),
        ({"loss": "squared_error", "bound": 4.0, "level": 2.0}, "level"),
        ({"method": "asymptotic", "bound": 4.0}, "bound=4.0"),
    ):
        with pytest.raises(ValueError, match=words):
            rl.Monitor(model, **options)
    with pytest.raises(TypeError, match="metric"):
        rl.Monitor(model, loss="auc", bound=1.0)
    monitor = rl.Monitor(model, method="asymptotic", rng=0)
    monitor.update(*batch(np.random.default_rng(0)))
    with pytest.raises(ValueError, match="features"):
        monitor.update(np.zeros((20, 3)) + np.arange(20.0)[:, None], np.arange(20.0))


# ---------------------------------------------------------------------------------------------------------------------
# At all times


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2.0, 2.0), (0.3, 6.0)])
def test_bounded_intervals_hold_at_all_times(shape):
    """Of 1000 streams of 2000 values each, read after every 10: the promise is 95%."""
    rng, right = np.random.default_rng(7), np.ones(1000, dtype=bool)
    found, mean = EmpiricalBernstein.of(1000, 0.0, 1.0, 0.95), shape[0] / sum(shape)
    for _ in range(200):
        found = found.update(rng.beta(*shape, size=(1000, 10)))
        low, high = found.interval().T
        right &= (low <= mean) & (mean <= high)
    assert right.mean() >= 0.95
    assert np.mean(high - low) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bounded", "asymptotic"])
def test_intervals_of_importances_hold_at_all_times(method):
    """All 12 intervals of both features right, and no false alarm: 2 and 0 are the true importances, cut or not."""
    options = {"method": method} if method == "asymptotic" else {"loss": "squared_error", "bound": 30.0}
    right, alarms, once = np.zeros(2), np.zeros(2), np.zeros(2)
    for seed in range(40):
        rng, monitor = np.random.default_rng([seed, 24]), rl.Monitor(_uses_both, rng=seed, **options)
        for _ in range(12):
            X, y = batch(rng, 100)
            result = monitor.update(X, y)
        inside = (result.lower <= [2.0, 0.0]) & (result.upper >= [2.0, 0.0])
        right, alarms, once = right + inside.all(axis=0), alarms + result.drifted, once + inside[-1]
    print(method, right / 40, once / 40, alarms / 40, np.mean(result.upper[-1] - result.lower[-1]))
    assert (right / 40 >= 0.9).all()
    assert (alarms / 40 <= 0.1).all()


def _uses_both(rows):
    return rows[:, 0] + 0.3 * rows[:, 1]
