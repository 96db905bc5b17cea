"""Reliance over classes of models against what it must cost: ratios, each measured in one run.

    python benchmarks/rashomon.py            everything
    python benchmarks/rashomon.py linear     one part: linear, ridge, kernel, landmarks, trees, bootstrap, convex, torch
    python benchmarks/rashomon.py --tiny     sizes that only show that it runs

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import reliance as rl
from reliance.data.features import Feature
from reliance.data.rows import read
from reliance.rashomon.protocol import ClassData

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, report


@dataclass(frozen=True)
class Sizes:
    """How many rows, columns and landmarks each part has."""

    linear: tuple[int, int] = (1_000_000, 50)
    ridge: tuple[int, int] = (10_000, 20)
    kernel: tuple[int, int] = (10_000, 200)
    convex: tuple[int, int] = (10_000, 5)
    torch: tuple[int, int] = (300, 300)  # rows, steps
    landmarks: tuple[int, int] = (3000, 400)
    trees: tuple[int, int, int, float] = (2000, 12, 4, 0.08)  # rows, columns, depth, epsilon
    bootstrap: tuple[int, int, int] = (2873, 6, 1000)  # rows, columns, samples


TINY = Sizes(
    (2000, 5),
    (200, 3),
    (200, 10),
    (200, 2),
    (50, 20),
    landmarks=(120, 10),
    trees=(100, 4, 2, 0.1),
    bootstrap=(60, 2, 20),
)


def linear_data(n: int, p: int, centre: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    X += centre
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def linear(sizes: Sizes) -> None:
    """All features of the linear class over one X.T @ X."""
    n, p = sizes.linear
    for centre in (0.0, 1000.0):
        X, y = linear_data(n, p, centre)
        cases: dict[str, Callable[[], object]] = {
            "MCR, ratio": lambda X=X, y=y: rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05),
            "MCR, difference": lambda X=X, y=y: rl.model_class_reliance(
                rl.LinearClass(), X, y, epsilon=0.05, compare="difference"
            ),
            "CMCR, ratio": lambda X=X, y=y: rl.conditional_model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05),
        }
        gram, *times = alternate(lambda X=X: X.T @ X, *cases.values(), repeats=5)
        for name, seconds in zip(cases, times, strict=True):
            detail = f"{seconds:.3f} s / {gram:.3f} s, columns about {centre:g}"
            report(f"linear class, {name}, n={n} p={p}, over X.T @ X", seconds / gram, "<= 5", detail)


def ridge(sizes: Sizes) -> None:
    """With a ball of coefficients: seconds a feature."""
    n, p = sizes.ridge
    X, y = linear_data(n, p)
    radius = 0.9 * float(np.linalg.norm(np.linalg.lstsq(X, y)[0]))
    case = partial(rl.model_class_reliance, rl.LinearClass(ridge=radius), X, y, epsilon=0.05)
    seconds = alternate(case, repeats=1)[0]
    report(f"linear class with ridge=, n={n} p={p}, seconds a feature", seconds / p, "-", f"{seconds:.2f} s in all")


def kernel(sizes: Sizes) -> None:
    """One feature of a kernel class, over the product of its feature matrix with itself."""
    n, m = sizes.kernel
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)
    found = rl.KernelClass("rbf", landmarks=m, radius=50.0)
    features = rng.normal(size=(n, m))
    gram, seconds = alternate(
        lambda: features.T @ features,
        lambda: rl.model_class_reliance(found, X, y, epsilon=0.05, features=[0]),
        repeats=2,
    )
    report(f"kernel class, n={n} m={m}, one feature, over a {m} x {m} Gram", seconds / gram, "-", f"{seconds:.2f} s")


def landmarks(sizes: Sizes) -> None:
    """Both ends of a feature of a kernel class, set up once, over one eigendecomposition of that size."""
    n, m = sizes.landmarks
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    data, kind = ClassData(X, y, 0, 2**30), rl.KernelClass("rbf", landmarks=m, radius=5.0)
    bound = 1.05 * kind.best(data).risk
    square = rng.normal(size=(m, m))
    square = square + square.T

    def feature(j: int) -> object:
        return kind.ranges(data, bound, (Feature(f"x{j}", (j,)),), "ratio", False, lambda _: None)

    cases = [partial(feature, j) for j in range(3)]
    eigh, *times = alternate(lambda: np.linalg.eigh(square), *cases, repeats=5)
    for j, seconds in enumerate(times):
        detail = f"{seconds:.3f} s / {eigh:.4f} s"
        report(f"kernel class, n={n} m={m}, feature x{j}, over one eigh", seconds / eigh, "<= 10", detail)


def trees(sizes: Sizes) -> None:
    """Exact reliance of all good trees that ArborEnum has found, over its own time for their least and largest."""
    from arborenum import ArborEnum

    n, p, depth, epsilon = sizes.trees
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(n, p)).astype(float)
    y = ((X[:, 0] + X[:, 1] * X[:, 2] > 1) ^ (rng.random(n) < 0.2)).astype(int)
    peer = ArborEnum()
    peer.fit(X, y, lambda_reg=0.005, depth_budget=depth, rashomon_mult=epsilon, lookahead_k=depth - 1, key_mode="exact")
    data = ClassData(X, y, 0, 2**30, read(X, y))
    listed = rl.TreeClass.from_trees(peer, penalty=0.005)
    begun = time.perf_counter()
    features, bound = data.rows.features, 2.0 * listed.best(data).risk  # read once
    read_in = time.perf_counter() - begun

    def ours() -> object:
        return listed.members(data, bound, features, "difference", False)

    theirs, seconds = alternate(lambda: peer.get_exact_replacement_importance_intervals(X, y), ours, repeats=3)
    detail = f"{seconds:.4f} s / {theirs:.4f} s; ours is each tree's value over n(n-1) pairs, theirs the two ends; "
    detail += f"read once in {read_in:.1f} s"
    name = f"trees, {peer.count_trees()} good ones x {p} features, n={n}, over ArborEnum"
    report(name, seconds / theirs, "<= 1", detail)


def bootstrap(sizes: Sizes) -> None:
    """Bootstrap samples of the rows over one pass, of the linear class and of a list of models."""
    n, p, samples = sizes.bootstrap
    X, y = linear_data(n, p)
    coef = np.linalg.lstsq(X, y)[0]
    models = [rl.models.Linear(coef + 0.05 * np.cos(np.arange(p) + k)) for k in range(20)]
    cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "linear class": (
            lambda: rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05),
            lambda: rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=samples),
        ),
        "20 models": (
            lambda: rl.model_class_reliance(rl.FiniteClass(models), X, y, epsilon=1.0),
            lambda: rl.model_class_reliance(rl.FiniteClass(models, bootstrap=samples), X, y, epsilon=1.0),
        ),
    }
    for name, (one, many) in cases.items():
        once, seconds = alternate(one, many, repeats=3)
        detail = f"{seconds:.2f} s / {once:.4f} s"
        report(f"{name}, n={n} p={p}, {samples} bootstrap samples over one pass", seconds / once, "<= 60", detail)


def convex(sizes: Sizes) -> None:
    """One feature of the logistic and the hinge class: seconds."""
    n, p = sizes.convex
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    positive = X[:, 0] + rng.normal(size=n) > 0
    for loss, y in (("logistic", positive.astype(float)), ("hinge", np.where(positive, 1.0, -1.0))):
        found = rl.LinearClass(loss=loss, ridge=5.0)
        case = partial(rl.model_class_reliance, found, X, y, epsilon=0.05, features=[0], rng=0)
        seconds = alternate(case, repeats=1)[0]
        report(f"{loss} class, n={n} p={p}, one feature, seconds", seconds, "-")


def torch(sizes: Sizes) -> None:
    """One feature of a torch network over one run of its exact model reliance."""
    import torch

    n, steps = sizes.torch
    torch.manual_seed(0)
    X = torch.randn(n, 4)
    y = torch.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * torch.randn(n)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        loss = torch.mean((net(X)[:, 0] - y) ** 2)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    found = rl.DifferentiableClass(net, radius=20.0, starts=2, steps=steps)
    once, seconds = alternate(
        lambda: rl.model_reliance(net, X, y, features=[0]),
        lambda: rl.model_class_reliance(found, X, y, epsilon=0.1, features=[0]),
        repeats=1,
    )
    detail = f"{seconds:.2f} s / {once:.4f} s, 2 starts of {steps} steps"
    report(f"torch 4-16-1, n={n}, one feature, class over model reliance", seconds / once, "-", detail)


PARTS: dict[str, Callable[[Sizes], None]] = {
    "linear": linear,
    "ridge": ridge,
    "kernel": kernel,
    "landmarks": landmarks,
    "trees": trees,
    "bootstrap": bootstrap,
    "convex": convex,
    "torch": torch,
}


def main(arguments: list[str]) -> None:
    chosen = [name for name in arguments if name != "--tiny"]
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in chosen or PARTS:
        PARTS[name](TINY if "--tiny" in arguments else Sizes())


if __name__ == "__main__":
    main(sys.argv[1:])
