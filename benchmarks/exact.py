"""The exact routes of all pairs against what they must cost: ratios, each measured in one run.

    python benchmarks/exact.py             everything
    python benchmarks/exact.py linear      one part: linear, first_layer, hist, lightgbm, forest, growth, memory

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, report

Case = Callable[[], object]


# ---------------------------------------------------------------------------------------------------------------------
# Linear models


def linear_data(n: int, p: int = 50, centre: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    X += centre
    beta = rng.normal(size=p)
    return X, X @ beta + rng.normal(size=n), beta


def fitted(X: np.ndarray, y: np.ndarray):
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(X[:10_000], y[:10_000])


def linear() -> None:
    """All pairs of all 50 features of a linear model over one X.T @ X."""
    for centre in (0.0, 1000.0):
        _linear(centre)


def _linear(centre: float, n: int = 1_000_000) -> None:
    X, y, beta = linear_data(n, centre=centre)
    model, own = fitted(X, y), rl.models.Linear(beta)
    cases: dict[str, Case] = {
        "LinearRegression, ratio": lambda: rl.model_reliance(model, X, y),
        "LinearRegression, difference": lambda: rl.model_reliance(model, X, y, compare="difference"),
        "rl.models.Linear, ratio": lambda: rl.model_reliance(own, X, y),
    }
    gram, *times = alternate(lambda: X.T @ X, *cases.values(), repeats=7)
    for name, seconds in zip(cases, times, strict=True):
        detail = f"{seconds:.3f} s / {gram:.3f} s, columns about {centre:g}"
        report(f"{name}, n={n} p=50, over X.T @ X", seconds / gram, "<= 3", detail)


# ---------------------------------------------------------------------------------------------------------------------
# A first affine layer


def first_layer() -> None:
    """The plain route over the one that exchanges pre-activations, on a wide torch network."""
    import torch

    torch.manual_seed(0)
    n, p, features = 1000, 1000, list(range(20))
    net = torch.nn.Sequential(torch.nn.Linear(p, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).eval()
    X, y = torch.randn(n, p), torch.randn(n)
    found: dict[str, rl.Importance] = {}

    def run(route: str) -> Case:
        return lambda: found.update({route: rl.model_reliance(net, X, y, features=features, route=route)})

    auto, plain = alternate(run("auto"), run("plain"), repeats=2)
    assert set(found["auto"].routes) == {"first_layer"}
    close = np.abs(found["auto"].values - found["plain"].values).max()
    detail = f"{plain:.2f} s / {auto:.2f} s, largest difference of values {close:.2g}"
    report(f"torch {p}-64-1, n={n}, {len(features)} features, plain over first_layer", plain / auto, ">= 5", detail)


# ---------------------------------------------------------------------------------------------------------------------
# Trees


def tree_data(n: int, p: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = X[:, 0] + np.sin(3 * X[:, 1]) * X[:, 2] + X[:, 3] * X[:, 4] + 0.3 * X[:, 5:].sum(axis=1) + rng.normal(size=n)
    return X, y


def against_sklearn(name: str, model, X: np.ndarray, y: np.ndarray, repeats: int) -> None:
    """scikit-learn's permutation importance with some repeats, over all pairs of all features."""
    from sklearn.inspection import permutation_importance

    def peer() -> object:
        return permutation_importance(model, X, y, n_repeats=repeats, scoring="neg_mean_squared_error", random_state=0)

    found: dict[str, rl.Importance] = {}

    def ours() -> object:
        return found.update(ours=rl.model_reliance(model, X, y, compare="difference"))

    exact, sampled = alternate(ours, peer, repeats=3)
    assert set(found["ours"].routes) == {"trees"}
    detail = f"{sampled:.2f} s / {exact:.2f} s"
    report(f"{name}, n={len(y)} p=20, n_repeats={repeats} over all pairs", sampled / exact, "> 1", detail)


def hist() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, y = tree_data(100_000)
    model = HistGradientBoostingRegressor(max_iter=100, max_leaf_nodes=31, random_state=0).fit(X, y)
    against_sklearn("HistGradientBoosting, 100 x 31 leaves", model, X, y, 1)


def lightgbm() -> None:
    from lightgbm import LGBMRegressor

    X, y = tree_data(100_000)
    model = LGBMRegressor(n_estimators=100, num_leaves=31, verbose=-1).fit(X, y)
    against_sklearn("LightGBM, 100 x 31 leaves", model, X, y, 1)


def forest() -> None:
    from sklearn.ensemble import RandomForestRegressor

    X, y = tree_data(5_000)
    model = RandomForestRegressor(100, random_state=0, n_jobs=2).fit(X, y).set_params(n_jobs=None)
    against_sklearn("RandomForest, 100 trees to purity", model, X, y, 5)


# ---------------------------------------------------------------------------------------------------------------------
# Growth and memory: each route that is to be linear in the rows has its line in GROWTH, each route in MEMORY


def linear_case(n: int) -> Case:
    X, y, beta = linear_data(n)
    model = rl.models.Linear(beta)
    return lambda: rl.model_reliance(model, X, y)


def boosted_case(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, y = tree_data(20_000)
    model = HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=31, random_state=0).fit(X, y)
    X, y = tree_data(n)
    return lambda: rl.model_reliance(model, X, y)


# name: (a case for n rows, the numbers of rows)
GROWTH: dict[str, tuple[Callable[[int], Case], tuple[int, ...]]] = {
    "linear model, p=50": (linear_case, (1_000, 10_000, 100_000, 1_000_000)),
    "boosted trees, 20 x 31 leaves, p=20": (boosted_case, (1_000, 10_000, 100_000, 1_000_000)),
}


def growth() -> None:
    """The exponent of time in the number of rows, fitted on the logarithmic scale."""
    for name, (make, sizes) in GROWTH.items():
        times = []
        for n in sizes:
            case = make(n)
            times.append(alternate(case, repeats=5)[0])
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        last = np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2])
        detail = f"last step {last:.2f}; " + ", ".join(
            f"{n}: {t * 1e3:.3g} ms" for n, t in zip(sizes, times, strict=True)
        )
        report(f"exponent of time in n, {name}", slope, "<= 1.1", detail)


def linear_memory(budget: int) -> Case:
    X, y, _ = linear_data(1_000_000)
    model = fitted(X, y)
    return lambda: rl.model_reliance(model, X, y, run=rl.Run(memory=budget))


def first_layer_memory(budget: int) -> Case:
    """In NumPy, whose memory tracemalloc sees."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(1000, 1000)), rng.normal(size=1000), rng.normal(size=(1000, 64))
    model = rl.models.FirstLayer(weight, 0.0, lambda H: np.maximum(H, 0.0).sum(axis=1))
    return lambda: rl.model_reliance(model, X, y, features=[0, 1], run=rl.Run(memory=budget))


def boosted_memory(budget: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, y = tree_data(100_000)
    model = HistGradientBoostingRegressor(max_iter=100, max_leaf_nodes=31, random_state=0).fit(X, y)
    return lambda: rl.model_reliance(model, X, y, run=rl.Run(memory=budget))


def forest_memory(budget: int) -> Case:
    from sklearn.ensemble import RandomForestRegressor

    X, y = tree_data(5_000)
    model = RandomForestRegressor(100, random_state=0).fit(X, y)
    return lambda: rl.model_reliance(model, X, y, run=rl.Run(memory=budget))


# name: (a case for a budget, the budget in bytes)
MEMORY: dict[str, tuple[Callable[[int], Case], int]] = {
    "linear model, n=1000000 p=50": (linear_memory, 100_000_000),
    "first layer, n=1000 p=1000": (first_layer_memory, 20_000_000),
    "boosted trees, n=100000 p=20": (boosted_memory, 200_000_000),
    "forest to purity, n=5000 p=20": (forest_memory, 200_000_000),
}


def memory() -> None:
    """Peak of what is allocated over the memory= budget."""
    for name, (make, budget) in MEMORY.items():
        case = make(budget)
        tracemalloc.start()
        before, start = tracemalloc.get_traced_memory()[0], time.perf_counter()
        case()
        peak, seconds = tracemalloc.get_traced_memory()[1] - before, time.perf_counter() - start
        tracemalloc.stop()
        detail = f"{peak / 1e6:.1f} MB of {budget / 1e6:.0f} MB, {seconds:.1f} s with tracing"
        report(f"peak memory over memory=, {name}", peak / budget, "<= 1", detail)


PARTS: dict[str, Callable[[], None]] = {
    "linear": linear,
    "first_layer": first_layer,
    "hist": hist,
    "lightgbm": lightgbm,
    "forest": forest,
    "growth": growth,
    "memory": memory,
}


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in chosen or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
