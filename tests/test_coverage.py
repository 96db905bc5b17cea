"""The intervals cover what they say and the tests reject as often as they say, on data whose truth is known.

Observed shares of R replicates are compared with a band that is widened by three binomial standard errors, so a cell whose
true level lies in the band practically never fails. The table in docs/intervals.md comes from `simulations.py`, with more
replicates than a test suite should take.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import simulations
from scipy import stats
from simulations import COMPARES, DESIGNS, SIMULATIONS, Cell, N, Risks

import reliance as rl

COVERAGE = (0.93, 0.975)
SIZE = (0.035, 0.065)


def outside(share: float, band: tuple[float, float], replicates: int) -> bool:
    """Whether a share lies further out of a band than the binomial error of so many replicates explains."""
    low, high = (edge + side * 3.0 * math.sqrt(edge * (1.0 - edge) / replicates) for edge, side in zip(band, (-1, 1)))
    return not low <= share <= high


def complaints(cells: list[Cell], coverage: tuple[float, float] = COVERAGE, size: tuple[float, float] = SIZE) -> list[str]:
    found = [f"coverage: {cell}" for cell in cells if outside(cell.covered, coverage, cell.replicates)]
    nulls = [cell for cell in cells if cell.feature == "null"]
    return found + [f"size: {cell}" for cell in nulls if outside(cell.rejected, size, cell.replicates)]


# ---------------------------------------------------------------------------------------------------------------------
# The simulations themselves


@pytest.mark.parametrize("name", SIMULATIONS)
def test_truths_agree_with_monte_carlo(name: str) -> None:
    """The formulas for the risks against a million rows and a shift of them; no code of the library."""
    simulation, n = SIMULATIONS[name], 1_000_000
    X, y = simulation.draw(np.random.default_rng(0), n)

    def risk(prediction: np.ndarray, loss: str) -> tuple[float, float]:
        if loss == "auc":
            ranks = stats.rankdata(prediction)
            positive = int(y.sum())
            below = ranks[y == 1].sum() - positive * (positive + 1) / 2
            return 1.0 - below / (positive * (n - positive)), 0.5 / math.sqrt(n)
        if loss == "log_loss":
            losses = -np.log(np.where(y == 1, prediction, 1.0 - prediction))
        else:
            losses = (y - prediction) ** 2
        return float(losses.mean()), float(losses.std()) / math.sqrt(n)

    for j, feature in enumerate(simulation.features):
        switched = X.copy()
        switched[:, j] = np.roll(X[:, j], 1)
        for loss in simulation.losses:
            known = simulation.risks[loss, feature]
            for rows, truth in ((X, known.base), (switched, known.replaced)):
                estimate, error = risk(simulation.model(rows), loss)
                assert abs(estimate - truth) < 5.0 * error, (loss, feature)


def test_nulls_are_nulls() -> None:
    for simulation in SIMULATIONS.values():
        for loss in simulation.losses:
            known = simulation.risks[loss, "null"]
            assert known.replaced == pytest.approx(known.base, abs=1e-12)
    assert Risks(2.0, 3.0).truth("difference") == 1.0
    assert Risks(2.0, 3.0).truth("ratio") == 1.5


@pytest.mark.parametrize("compare", COMPARES)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("name", ["linear", "logistic"])
@pytest.mark.parametrize("design", DESIGNS)
def test_a_replicate_is_the_public_function(design: str, name: str, weighted: bool, compare: str) -> None:
    """Replicates take difference and ratio from one evaluation; that changes nothing."""
    simulation, rng = SIMULATIONS[name], np.random.default_rng(5)
    X, y = simulation.draw(rng, 60)
    weights = simulations.weights_of(rng, weighted, 60)
    found = simulations.replicate(simulation, DESIGNS[design], X, y, weights, key=7)
    public = DESIGNS[design].call(
        simulation.model,
        X,
        y,
        loss=list(simulation.losses),
        compare=compare,
        weights=weights,
        names=simulation.features,
        rng=7,
        **DESIGNS[design].arguments,
    )
    for loss in simulation.losses:
        one, other = found[loss, compare].to_dict(), public[loss].to_dict()
        one["base_risk"], other["base_risk"] = pytest.approx(one["base_risk"]), pytest.approx(other["base_risk"])
        np.testing.assert_equal({**one, "base_risk": 0}, {**other, "base_risk": 0})
        np.testing.assert_array_equal(found[loss, compare].interval(0.9), public[loss].interval(0.9))


# ---------------------------------------------------------------------------------------------------------------------
# The population interval and the default test


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", ["linear", "correlated", "overfitted"])
def test_linear(name: str, design: str, weighted: bool) -> None:
    cells = simulations.cells(name, design, weighted, 2000)
    assert not complaints(cells), "\n".join(complaints(cells))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("design", DESIGNS)
def test_log_loss(design: str, weighted: bool) -> None:
    cells = simulations.cells("logistic", design, weighted, 2000, ("log_loss",))
    assert not complaints(cells), "\n".join(complaints(cells))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("design", DESIGNS)
def test_auc(design: str, weighted: bool) -> None:
    cells = simulations.cells("logistic", design, weighted, 1000 if design == "pairs" else 2000, ("auc",))
    assert not complaints(cells), "\n".join(complaints(cells))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("design", DESIGNS)
def test_lognormal(design: str, weighted: bool) -> None:
    """Squared errors of lognormal features have moments that 200 rows cannot show: at least 86%."""
    cells = simulations.cells("lognormal", design, weighted, 2000)
    found = complaints(cells, coverage=(0.86, 1.0), size=(0.0, 1.0))
    assert not found, "\n".join(found)
