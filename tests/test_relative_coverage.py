"""Intervals and tests of relative importance and conditional model reliance, on data whose truth is known.

Samplers are fitted on the evaluated rows, which the intervals have to count. Observed shares are compared with a band
that is widened by three binomial standard errors of the replicates: see `test_coverage.outside`.
Run as a program, the file prints the table of the documentation.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reliance as rl
from relative_cases import relative_importance
from reliance.samplers.residual import OLS, Gaussian, Leaves, Residual
from simulations import seed_of
from test_coverage import REPLICATES, outside

pytestmark = pytest.mark.slow
Floats = NDArray[np.float64]
COVERAGE = (0.92, 0.975)
SIZE = (0.035, 0.065)
TRAINING = 200


# ---------------------------------------------------------------------------------------------------------------------
# Data


class World(NamedTuple):
    """Rows and labels; a second set of labels that column 0 says nothing about beyond what is given; the truth."""

    draw: Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]
    model: Callable[[Floats], Floats]
    given: list[int]
    truth: float
    marginal: float = np.nan  # with nothing given


def relative_truth(covariance: Floats, coefficients: Floats, used: Floats, given: list[int]) -> float:
    """RFI_0^G = 2 b^2 Var(x|G) + 2 b [Cov(R, x) - B Cov(R, G)] for the model X @ used, R = y - X @ used."""
    S, b = covariance, used[0]
    R = S @ (coefficients - used)  # Cov(R, X)
    B = np.linalg.solve(S[np.ix_(given, given)], S[given, 0])
    return float(2 * b**2 * (S[0, 0] - B @ S[given, 0]) + 2 * b * (R[0] - B @ R[given]))


def gaussian_world(given: list[int], own: tuple[float, ...]) -> World:
    """Jointly Gaussian columns, a linear model whose coefficients are not those of y."""
    root = np.asarray([[1.0, 1.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.3, 1.0]])
    covariance = root @ root.T
    coefficients, nothing, used = np.asarray([1.0, 1.0, 0.0]), np.asarray([0.0, 2.0, 0.0]), np.asarray(own)

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
        X = rng.normal(size=(n, 3)) @ root.T
        noise = rng.normal(size=(2, n))
        return X, X @ coefficients + noise[0], X @ nothing + noise[1]

    truth, marginal = (relative_truth(covariance, coefficients, used, g) for g in (given, []))
    assert abs(relative_truth(covariance, nothing, used, given)) < 1e-12
    return World(draw, lambda X: X @ used, given, truth, marginal)


def strata_world() -> World:
    """Four groups, in which column 0 has other means and other spreads: x | g ~ N(g, (1 + g/4)^2)."""
    spreads = 1 + np.arange(4) / 4
    b = 0.8

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
        g = rng.integers(0, 4, size=n)
        x = g + spreads[g] * rng.normal(size=n)
        noise = rng.normal(size=(2, n))
        return np.stack([x, g], axis=1), x + g + noise[0], 2 * g + noise[1]

    # R = y - f = (1 - b) x + noise, so Cov(R, x | g) = (1 - b) Var(x | g).
    truth = (2 * b**2 + 2 * b * (1 - b)) * float(np.mean(spreads**2))
    return World(draw, lambda X: b * X[:, 0] + X[:, 1], [1], truth)


ALL = gaussian_world([1, 2], (0.8, 1.0, 0.2))
SOME = gaussian_world([1], (0.8, 1.0, 0.0))
STRATA = strata_world()


# ---------------------------------------------------------------------------------------------------------------------
# Replicates


class Setup(NamedTuple):
    """A world, and how column 0 is measured there."""

    world: World
    options: dict[str, Any]
    trained: bool = False


SETUPS = {
    "gaussian": Setup(ALL, {"sampler": "gaussian"}),
    "gaussian, one given": Setup(SOME, {"sampler": "gaussian"}),
    "normal": Setup(ALL, {"sampler": Gaussian("normal")}),
    "gaussian, trained": Setup(ALL, {"sampler": "gaussian"}, trained=True),
    "normal, trained": Setup(ALL, {"sampler": Gaussian("normal")}, trained=True),
    "gaussian, 5 draws": Setup(ALL, {"sampler": "gaussian", "draws": 5}),
    "gaussian, shifts": Setup(ALL, {"sampler": "gaussian", "draws": rl.Draws(16, design="shifts")}),
    "conditional reliance": Setup(ALL, {"pairs": "all"}),
    "conditional reliance, 5 draws": Setup(ALL, {"pairs": 5}),
    "conditional reliance, 16 draws": Setup(ALL, {"pairs": 16}),
    "leaves": Setup(STRATA, {"sampler": Leaves("exact")}),
    "residual, OLS": Setup(ALL, {"sampler": Residual(OLS())}),
    "residual, kernel ridge": Setup(ALL, {"sampler": "residual"}),
    "knn": Setup(SOME, {"sampler": "knn"}),
}


def measure(setup: Setup, X: Floats, y: Floats, training: Floats | None, key: int) -> rl.Importance:
    common = {"features": [0], "compare": "difference", "rng": key}
    if "pairs" in setup.options:
        return rl.conditional_model_reliance(setup.world.model, X, y, **setup.options, **common)
    fitted = {} if training is None else {"fit_on": (training, None)}
    return relative_importance(setup.world.model, X, y, given=setup.world.given, **fitted, **setup.options, **common)


class Cell(NamedTuple):
    """What the replicates gave: the share of 95% intervals that hold the truth, and of rejected true nulls."""

    name: str
    n: int
    covered: float
    rejected: float
    error_ratio: float
    bias: float
    replicates: int


def simulate(name: str, n: int, replicates: int) -> Cell:
    setup, rng = SETUPS[name], seed_of("relative", name, n)
    truth = setup.world.truth
    values, errors, covered, rejected = [], [], 0, 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*very skewed")  # a few of thousands of data sets are
        for _ in range(replicates):
            X, y, null = setup.world.draw(rng, n)
            training = setup.world.draw(rng, TRAINING)[0] if setup.trained else None
            key = int(rng.integers(2**62))
            found = measure(setup, X, y, training, key)
            low, high = found.interval(0.95)[0]
            covered += bool(low <= truth <= high)
            values.append(found.values[0])
            errors.append(found.std_error[0])
            rejected += bool(measure(setup, X, null, training, key).test().p_value[0] < 0.05)
    ratio = float(np.sqrt(np.mean(np.square(errors))) / np.std(values))
    bias = float(np.mean(values) - truth)
    return Cell(name, n, covered / replicates, rejected / replicates, ratio, bias, replicates)


def simulate_delta(name: str, n: int, replicates: int) -> Cell:
    """Of RFI given nothing minus RFI given column 1."""
    rng, options = seed_of("delta", name, n), SETUPS[name].options
    truth = SOME.marginal - SOME.truth
    values, errors, covered = [], [], 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*very skewed")
        for _ in range(replicates):
            X, y, _ = SOME.draw(rng, n)
            sets = {"none": [], "one": [1]}
            found = relative_importance(
                SOME.model, X, y, given=sets, features=[0], rng=int(rng.integers(2**62)), **options
            ).delta("none", "one")
            low, high = found.interval(0.95)[0]
            covered += bool(low <= truth <= high)
            values.append(found.values[0])
            errors.append(found.std_error[0])
    ratio = float(np.sqrt(np.mean(np.square(errors))) / np.std(values))
    return Cell(f"{name}, delta", n, covered / replicates, np.nan, ratio, float(np.mean(values) - truth), replicates)


def complaints(cell: Cell, coverage: tuple[float, float] = COVERAGE, size: tuple[float, float] = SIZE) -> list[str]:
    print(cell)  # for the table, shown by pytest -rP
    found = [f"coverage: {cell}"] if outside(cell.covered, coverage, cell.replicates) else []
    return found + ([f"size: {cell}"] if outside(cell.rejected, size, cell.replicates) else [])


# ---------------------------------------------------------------------------------------------------------------------
# Intervals and tests


# Draws are by ranks of the residuals unless a name says otherwise.
EVALUATED = ["conditional reliance", "conditional reliance, 16 draws", "normal", "gaussian", "leaves"]


@pytest.mark.parametrize("n", [500, 200])
@pytest.mark.parametrize("name", EVALUATED)
def test_fitted_on_the_evaluated_rows(name: str, n: int) -> None:
    found = complaints(simulate(name, n, REPLICATES))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["gaussian, 5 draws", "conditional reliance, 5 draws", "gaussian, shifts"])
def test_few_draws_and_shifts(name: str) -> None:
    found = complaints(simulate(name, 200, REPLICATES))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["normal, trained", "gaussian, trained"])
def test_fitted_on_200_other_rows(name: str) -> None:
    found = complaints(simulate(name, 500, REPLICATES))
    assert not found, "\n".join(found)


def test_refitted_without_groups_of_rows() -> None:
    """Each replicate fits 42 times: fewer of them, and the band is widened accordingly."""
    found = complaints(simulate("residual, OLS", 200, 300))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["gaussian", "normal"])
def test_differences_of_sets(name: str) -> None:
    """The paired interval of RFI given nothing minus RFI given column 1."""
    cell = simulate_delta(name, 200, REPLICATES)
    print(cell)
    assert not outside(cell.covered, COVERAGE, cell.replicates), cell


@pytest.mark.parametrize("world", [ALL, SOME, STRATA], ids=["all", "some", "strata"])
def test_truths_agree_with_monte_carlo(world: World) -> None:
    """The formulas against draws from the conditional distribution itself; no code of the library."""
    rng, n = np.random.default_rng(0), 400_000
    X, y, null = world.draw(rng, n)
    switched = X.copy()
    if world is STRATA:
        switched[:, 0] = X[:, 1] + (1 + X[:, 1] / 4) * rng.normal(size=n)
    else:
        G = np.column_stack([np.ones(n), X[:, world.given]])
        mean = G @ np.linalg.lstsq(G, X[:, 0])[0]
        switched[:, 0] = mean + np.std(X[:, 0] - mean) * rng.normal(size=n)
    for labels, truth in ((y, world.truth), (null, 0.0)):
        change = (labels - world.model(switched)) ** 2 - (labels - world.model(X)) ** 2
        assert abs(change.mean() - truth) < 5 * change.std() / np.sqrt(n)


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage and size of relative importance.")
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="*", default=[200, 500])
    parser.add_argument("--only", nargs="*", default=list(SETUPS), choices=list(SETUPS))
    given = parser.parse_args()
    print("| sampler | n | coverage | size | se / sd | bias | replicates |\n|---|---|---|---|---|---|---|")
    for name in given.only:
        for n in given.rows:
            cell = simulate(name, n, given.replicates)
            shares = f"{100 * cell.covered:.1f} | {100 * cell.rejected:.1f} | {cell.error_ratio:.3f} | {cell.bias:.3f}"
            print(f"| {name} | {n} | {shares} | {cell.replicates} |", flush=True)


if __name__ == "__main__":
    main()
