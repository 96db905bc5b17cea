"""Reliance over classes of models against what it must cost: ratios, each measured in one run.

    python benchmarks/rashomon.py            everything
    python benchmarks/rashomon.py linear     one part: linear, ridge, kernel, torch

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, report


def linear_data(n: int, p: int, centre: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    X += centre
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def linear() -> None:
    """All 50 features of the linear class over one X.T @ X."""
    n, p = 1_000_000, 50
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


def ridge() -> None:
    """With a ball of coefficients: seconds a feature."""
    X, y = linear_data(10_000, 20)
    radius = 0.9 * float(np.linalg.norm(np.linalg.lstsq(X, y)[0]))
    case = lambda: rl.model_class_reliance(rl.LinearClass(ridge=radius), X, y, epsilon=0.05, rng=0)  # noqa: E731
    seconds = alternate(case, repeats=1)[0]
    report("linear class with ridge=, n=10000 p=20, seconds a feature", seconds / 20, "-", f"{seconds:.2f} s in all")


# Each class has its line here: name -> function.
def kernel() -> None:
    """One feature of a kernel class with 200 landmarks, over the product of its feature matrix with itself."""
    n, m = 10_000, 200
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


def torch() -> None:
    """One feature of a torch network over one run of its exact model reliance."""
    import torch

    torch.manual_seed(0)
    X = torch.randn(300, 4)
    y = torch.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * torch.randn(300)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        loss = torch.mean((net(X)[:, 0] - y) ** 2)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    found = rl.DifferentiableClass(net, radius=20.0, starts=2, steps=300)
    once, seconds = alternate(
        lambda: rl.model_reliance(net, X, y, features=[0]),
        lambda: rl.model_class_reliance(found, X, y, epsilon=0.1, features=[0]),
        repeats=1,
    )
    detail = f"{seconds:.2f} s / {once:.4f} s, 2 starts of 300 steps"
    report("torch 4-16-1, n=300, one feature, class over model reliance", seconds / once, "-", detail)


PARTS: dict[str, Callable[[], None]] = {"linear": linear, "ridge": ridge, "kernel": kernel, "torch": torch}


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in chosen or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
