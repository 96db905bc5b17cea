"""Feature impact, out-of-bag importance and refits: ratios, each measured in one run.

    python benchmarks/refit.py                  everything
    python benchmarks/refit.py linear           one part: linear, boosted (feature impact), out_of_bag, workers
    python benchmarks/refit.py boosted --rows 10000

Times are the best of alternating repeats, so that both sides of a ratio see the same machine. What takes longer than a
minute for one repeat is measured once.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import SEED, need, report

from reliance.refit.bag_pairs import shifted

COLUMNS = 50


def regression(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Float64, and not linear, so that a boosted model has something to split on."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + np.sin(3.0 * X[:, 3]) + 0.5 * rng.normal(size=n)


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = function()
    return time.perf_counter() - start, answer


def against(what: str, ours: Callable[[], Any], theirs: Callable[[], Any], goal: str, *, repeats: int = 3) -> None:
    """The time of the other over ours, alternating; the slower side only once if it takes more than a minute."""
    ours()  # warm
    slow, expected = seconds(theirs)
    fast, found = seconds(ours)
    for _ in range(repeats - 1 if slow < 60.0 else 0):
        slow, fast = min(slow, seconds(theirs)[0]), min(fast, seconds(ours)[0])
    far = float(np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-12 * np.max(np.abs(expected)))))
    report(what, slow / fast, goal, f"{slow:.3f} s / {fast:.3f} s, largest relative difference {far:.2g}")


def impact(model: Any, n: int) -> None:
    """Feature impact against the paper's own package, nine quantiles."""
    package = need("featureimpact")
    X, y = regression(n, COLUMNS)
    model.fit(X, y)

    def theirs() -> Any:
        found = package.FeatureImpact()
        found.make_quantiles(X)
        return package.averaged_impact(found.compute_impact(model, X), normalize=False).to_numpy()

    def ours() -> Any:
        return rl.feature_impact(model, X).values

    against(f"feature impact, {type(model).__name__}, n={n} p={COLUMNS}", ours, theirs, ">= 5")


def linear(n: int) -> None:
    impact(need("sklearn.linear_model").LinearRegression(), n)


def boosted(n: int) -> None:
    impact(need("sklearn.ensemble").HistGradientBoostingRegressor(random_state=0), n)


def out_of_bag(n: int) -> None:
    """Out-of-bag importance of 200 fully grown trees against the literal loop over them, with the same permutations."""
    ensemble = need("sklearn.ensemble")
    X, y = regression(min(n, 5000), 30)
    forest = ensemble.RandomForestRegressor(200, random_state=0, n_jobs=-1).fit(X, y)

    def loop() -> Any:
        total = np.zeros(X.shape[1])
        for number, (tree, samples) in enumerate(zip(forest.estimators_, forest.estimators_samples_, strict=True)):
            outside = np.ones(len(X), dtype=bool)
            outside[samples] = False
            rows, labels = X[outside], y[outside]
            base = np.mean((tree.predict(rows) - labels) ** 2)
            order = shifted(0, len(rows), number, 1)[:, 0]
            for column in range(X.shape[1]):
                replaced = rows.copy()
                replaced[:, column] = rows[order, column]
                total[column] += np.mean((tree.predict(replaced) - labels) ** 2) - base
        return total / len(forest.estimators_)

    what = f"out-of-bag importance, 200 trees, n={len(X)} p=30"
    against(what, lambda: rl.out_of_bag_importance(forest, X, y, rng=0).values, loop, ">= 5")


def workers(n: int) -> None:
    """Algorithm reliance of a forest on all cores against one worker: threads, because its fits release the lock."""
    ensemble = need("sklearn.ensemble")
    X, y = regression(min(n, 5000), 10)
    forest = ensemble.RandomForestRegressor(50, random_state=0)

    def run(jobs: int) -> Any:
        return rl.algorithm_reliance(forest, X, y, cv=2, rng=0, run=rl.Run(workers=jobs)).values

    cores = os.cpu_count() or 1
    what = f"algorithm reliance, forest, n={len(X)} p=10, {cores} workers"
    against(what, lambda: run(cores), lambda: run(1), f"<= {cores}", repeats=1)


PARTS = {"linear": linear, "boosted": boosted, "out_of_bag": out_of_bag, "workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        PARTS[name](options.rows)


if __name__ == "__main__":
    main()
