"""How often intervals, tests and ranks are right where rows depend on each other, and where several are read at once.

Models are fixed and linear, so that the true values are formulas: replacing feature j of independent rows raises the
squared error by 2 b_j^2 Var(x_j) if the residual does not depend on x_j, and by 0 if y ignores a feature that the model
uses, whatever its coefficient is. `python tests/test_uncertainty_coverage.py --replicates 1000` prints the table of
docs/which_uncertainty.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import reliance as rl

Floats = NDArray[np.float64]
REPLICATES = 1000
USES = np.array([1.0, 0.3])  # the model's coefficients: y needs the first feature alone
TRUE = np.array([2.0, 0.0])
BLOCKS = rl.Blocks()
BASE = 1.0 + USES[1] ** 2


def model(X: Floats) -> Floats:
    return X[:, :2] @ USES


@dataclass(frozen=True)
class Shares:
    """Of the replicates: right for each of two features or for all, and a true null rejected."""

    right: tuple[float, ...]
    rejected: float = np.nan


# ---------------------------------------------------------------------------------------------------------------------
# Rows that depend on each other


def clustered(rng: np.random.Generator, count: int, unequal: bool) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Clusters of 10 rows, or of a varying number: features and noise have an intraclass correlation of 0.5."""
    sizes = 1 + rng.poisson(9.0 * rng.gamma(2.0, 0.5, size=count)) if unequal else np.full(count, 10)
    of = np.repeat(np.arange(count), sizes)
    parts = np.sqrt(0.5) * (rng.normal(size=(count, 3))[of] + rng.normal(size=(len(of), 3)))
    return parts[:, :2], parts[:, 0] + parts[:, 2], of


def series(rng: np.random.Generator, n: int, rho: float) -> tuple[Floats, Floats]:
    """Features and noise that are AR(1)."""
    steps = rng.normal(size=(n, 3)) * np.sqrt(1.0 - rho**2)
    steps[0] = rng.normal(size=3)
    for i in range(1, n):
        steps[i] += rho * steps[i - 1]
    return steps[:, :2], steps[:, 0] + steps[:, 2]


def _judged(measure: Callable[[np.random.Generator], rl.Importance], truth: Floats, replicates: int) -> Shares:
    right, rejected = np.zeros(2), 0
    for seed in range(replicates):
        result = measure(np.random.default_rng([seed, 19]))
        low, high = result.interval().T
        right += (low <= truth) & (truth <= high)
        rejected += result.test("two-sided", adjust="none").p_value[1] < 0.05
    return Shares(tuple(right / replicates), rejected / replicates)


def by_clusters(count: int, unequal: bool, compare: str, replicates: int) -> Shares:
    def measure(rng: np.random.Generator) -> rl.Importance:
        X, y, of = clustered(rng, count, unequal)
        return rl.permutation_importance(model, X, y, clusters=of, compare=compare, rng=0)

    return _judged(measure, TRUE if compare == "difference" else 1.0 + TRUE / BASE, replicates)


def by_lending(lend: str, unequal: bool, replicates: int) -> Shares:
    """Donors of other clusters are independent of the row; those of its own vary half as much."""

    def measure(rng: np.random.Generator) -> rl.Importance:
        X, y, of = clustered(rng, 20, unequal)
        return rl.permutation_importance(model, X, y, clusters=rl.Clusters(of, lend=lend), rng=0)

    return _judged(measure, TRUE if lend == "other clusters" else TRUE / 2.0, replicates)


def as_if_independent(count: int, replicates: int) -> Shares:
    def measure(rng: np.random.Generator) -> rl.Importance:
        X, y, _ = clustered(rng, count, False)
        return rl.permutation_importance(model, X, y, rng=0)

    return _judged(measure, TRUE, replicates)


def by_given(count: int, replicates: int) -> Shares:
    """Relative importance given the other feature, which is independent: the same true values."""

    def measure(rng: np.random.Generator) -> rl.Importance:
        X, y, of = clustered(rng, count, False)
        return rl.relative_importance(model, X, y, given="rest", clusters=of, rng=0)

    return _judged(measure, TRUE, replicates)


def by_blocks(rho: float, replicates: int, n: int = 500, blocks: rl.Blocks | None = BLOCKS) -> Shares:
    def measure(rng: np.random.Generator) -> rl.Importance:
        X, y = series(rng, n, rho)
        return rl.permutation_importance(model, X, y, clusters=blocks, rng=0)

    return _judged(measure, TRUE, replicates)


# ---------------------------------------------------------------------------------------------------------------------
# Several estimates at once


def many(rng: np.random.Generator, n: int, coefficients: Floats) -> tuple[Floats, Floats]:
    """Features with pairwise correlations of 0.3, and labels that are the model's prediction and noise."""
    p = len(coefficients)
    X = np.sqrt(0.3) * rng.normal(size=(n, 1)) + np.sqrt(0.7) * rng.normal(size=(n, p))
    return X, X @ coefficients + rng.normal(size=n)


def together(n: int, replicates: int, p: int = 20) -> Shares:
    """All p intervals right: one by one, and as simultaneous ones."""
    b = np.linspace(0.1, 1.0, p)
    each = together = 0
    for seed in range(replicates):
        X, y = many(np.random.default_rng([seed, 20]), n, b)
        result = rl.permutation_importance(lambda Z: Z @ b, X, y, keep="influence", rng=0)
        for simultaneous in (False, True):
            low, high = result.interval(simultaneous=simultaneous).T
            right = bool(((low <= 2 * b**2) & (2 * b**2 <= high)).all())
            each, together = each + (right and not simultaneous), together + (right and simultaneous)
    return Shares((each / replicates, together / replicates))


def ranked(n: int, replicates: int) -> Shares:
    """All sets of ranks hold the true ones; two features share each of the ranks 1 to 2, 3 to 4, ..."""
    b = np.repeat([1.0, 0.7, 0.5, 0.3], 2)
    first, last = np.repeat([1, 3, 5, 7], 2), np.repeat([2, 4, 6, 8], 2)
    right, told = 0, 0.0
    for seed in range(replicates):
        X, y = many(np.random.default_rng([seed, 21]), n, b)
        found = rl.permutation_importance(lambda Z: Z @ b, X, y, keep="influence", rng=0).ranks()
        right += bool(((found.first <= first) & (last <= found.last)).all())
        told += found.above.sum() / 24.0  # pairs that differ
    return Shares((right / replicates, told / replicates))


def paired(n: int, replicates: int, clusters: bool = False) -> Shares:
    """The difference of two models, one of which uses the second feature for nothing: 2 (1 - 0.8^2), and 0."""
    right, rejected = np.zeros(2), 0
    truth = np.array([2.0 - 2.0 * 0.8**2 - 2.0 * 0.8 * 0.2, 0.0])
    for seed in range(replicates):
        rng = np.random.default_rng([seed, 22])
        X, y, of = clustered(rng, n // 10, False)
        if not clusters:
            X, y, of = rng.normal(size=(n, 2)), rng.normal(size=n), None
            y = X[:, 0] + y
        options = {"clusters": of, "keep": "influence", "rng": 0}
        one = rl.permutation_importance(model, X, y, **options)
        other = rl.permutation_importance(lambda Z: 0.8 * Z[:, 0], X, y, **options)
        delta = one - other
        low, high = delta.interval().T
        right += (low <= truth) & (truth <= high)
        rejected += delta.test(adjust="none").p_value[1] < 0.05
    return Shares(tuple(right / replicates), rejected / replicates)


def stopped(goal: rl.Until, replicates: int, n: int = 100) -> Shares:
    """Two features of nearly equal importance, with random permutations, whose noise lets the data decide."""
    b, right = np.array([1.0, 0.9]), np.zeros(2)
    for seed in range(replicates):
        rng = np.random.default_rng([seed, 23])
        X = rng.normal(size=(n, 2))
        y = X @ b + rng.normal(size=n)
        low, high = rl.permutation_importance(lambda Z: Z @ b, X, y, draws=goal, rng=seed).interval().T
        right += (low <= 2 * b**2) & (2 * b**2 <= high)
    return Shares(tuple(right / replicates))


CASES: dict[str, Callable[[int], Shares]] = {
    "20 clusters of 10, as if independent": lambda r: as_if_independent(20, r),
    "20 clusters of 10": lambda r: by_clusters(20, False, "difference", r),
    "20 clusters of 10, ratio": lambda r: by_clusters(20, False, "ratio", r),
    "20 clusters of 10, donors of other clusters": lambda r: by_lending("other clusters", False, r),
    "20 clusters, unequal, donors of other clusters": lambda r: by_lending("other clusters", True, r),
    "20 clusters of 10, donors of the same cluster": lambda r: by_lending("same cluster", False, r),
    "50 clusters of 10": lambda r: by_clusters(50, False, "difference", r),
    "20 clusters, unequal": lambda r: by_clusters(20, True, "difference", r),
    "50 clusters, unequal": lambda r: by_clusters(50, True, "difference", r),
    "50 clusters of 10, given the rest": lambda r: by_given(50, r),
    "series 0.6, n = 500, as if independent": lambda r: by_blocks(0.6, r, blocks=None),
    "series 0.6, n = 500": lambda r: by_blocks(0.6, r),
    "series 0.6, n = 500, whole stretches": lambda r: by_blocks(0.6, r, blocks=rl.Blocks(lend="stretches")),
    "series 0.9, n = 500": lambda r: by_blocks(0.9, r),
    "20 features, n = 200: one by one, together": lambda r: together(200, r),
    "ranks of 8, n = 200: all right, pairs told apart": lambda r: ranked(200, r),
    "two models, n = 200": lambda r: paired(200, r),
    "two models, 20 clusters of 10": lambda r: paired(200, r, clusters=True),
    "Until(precision=0.7), n = 100": lambda r: stopped(rl.Until(precision=0.7, design="permutations"), r),
    "Until(top=1), n = 100": lambda r: stopped(rl.Until(top=1, design="permutations"), r),
}


# ---------------------------------------------------------------------------------------------------------------------
# Bands: what the documents say, give or take three standard errors of so few replicates


def check(name: str, right: tuple[tuple[float, float], ...], size: tuple[float, float] | None, replicates: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CASES[name](replicates)
    print(name, found)

    def within(share: float, band: tuple[float, float]) -> bool:
        error = np.sqrt(np.asarray(band) * (1.0 - np.asarray(band)) / replicates)
        return bool(band[0] - 3.0 * error[0] <= share <= band[1] + 3.0 * error[1])

    assert all(within(share, band) for share, band in zip(found.right, right, strict=True)), found
    assert size is None or within(found.rejected, size), found


GOOD, SIZE = (0.93, 0.975), (0.035, 0.065)
BANDS = {
    "20 clusters of 10, as if independent": (((0.6, 0.8), (0.6, 0.8)), (0.2, 0.4)),
    "20 clusters of 10": ((GOOD, GOOD), SIZE),
    "20 clusters of 10, ratio": ((GOOD, GOOD), SIZE),
    "20 clusters of 10, donors of other clusters": ((GOOD, GOOD), SIZE),
    "20 clusters, unequal, donors of other clusters": ((GOOD, GOOD), (0.025, 0.065)),
    "20 clusters of 10, donors of the same cluster": ((GOOD, GOOD), SIZE),
    "50 clusters of 10": ((GOOD, GOOD), SIZE),
    "20 clusters, unequal": ((GOOD, GOOD), (0.025, 0.065)),
    "50 clusters, unequal": ((GOOD, GOOD), SIZE),
    "50 clusters of 10, given the rest": ((GOOD, GOOD), SIZE),
    "series 0.6, n = 500": ((GOOD, GOOD), SIZE),
    "series 0.6, n = 500, whole stretches": ((GOOD, GOOD), SIZE),
    "series 0.9, n = 500": (((0.87, 0.975), (0.92, 0.975)), (0.03, 0.08)),
    "20 features, n = 200: one by one, together": (((0.3, 0.7), (0.93, 0.99)), None),
    "ranks of 8, n = 200: all right, pairs told apart": (((0.95, 1.0), (0.7, 1.0)), None),
    "two models, n = 200": ((GOOD, GOOD), (0.025, 0.065)),
    "two models, 20 clusters of 10": ((GOOD, GOOD), SIZE),
    "Until(precision=0.7), n = 100": ((GOOD, GOOD), None),
    "Until(top=1), n = 100": ((GOOD, GOOD), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BANDS)
def test_bands(name):
    right, size = BANDS[name]
    check(name, right, size, 300)


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage under dependence, and of several intervals at once.")
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| case | right | size |\n|---|---|---|")
    for name in given.only:
        found = CASES[name](given.replicates)
        right = ", ".join(f"{100 * share:.1f}" for share in found.right)
        size = "" if np.isnan(found.rejected) else f"{100 * found.rejected:.1f}"
        print(f"| {name} | {right} | {size} |", flush=True)


if __name__ == "__main__":
    main()
