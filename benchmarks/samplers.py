"""How far each conditional sampler is from the truth: ``python -m benchmarks.samplers``.

A fixed model f, a feature x and given columns G whose conditional law of x is known. The quantity is the mean change in
squared loss when x is replaced by a draw given G; the truth comes from many draws of the true law. The table shows, in
per cent of the truth, the sampler's bias over independent data sets and its standard error.

``--neighbours`` shows the error of ``KNN`` over k instead: why 5 is its default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import SEED
from reliance.samplers.residual import KNN, Gaussian, Knockoffs, Leaves, Residual, Residuals, Sampler, ValueDraws

DRAWS = 20


@dataclass(frozen=True)
class Law:
    """Given columns, and draws of x given them; column 0 of X is x, then G, then a column that depends on x."""

    name: str
    given: Callable[[np.random.Generator, int], np.ndarray]
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    categorical: tuple[int, ...] = ()


def normals(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 2)) @ np.asarray([[1.0, 0.5], [0.0, 0.9]])


def mixed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.column_stack([rng.normal(size=n), rng.integers(3, size=n)])


def linear(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    return 0.8 * G[:, 0] - 0.5 * G[:, 1] + 0.6 * rng.normal(size=len(G))


def curved(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    return np.sin(2 * G[:, 0]) + np.cos(2 * G[:, 1]) + 0.6 * rng.normal(size=len(G))


def heteroscedastic(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    return 0.8 * G[:, 0] + (0.2 + 0.8 / (1 + np.exp(-3 * G[:, 1]))) * rng.normal(size=len(G))


def bimodal(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    sign = np.where(rng.random(len(G)) < 1 / (1 + np.exp(-2 * G[:, 0])), 1.0, -1.0)
    return 2 * sign + 0.3 * G[:, 1] + 0.3 * rng.normal(size=len(G))


def by_category(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    """A mean and a slope for each category, which is a code without order."""
    code = G[:, 1].astype(int)
    return (
        np.asarray([2.0, -1.0, 0.5])[code]
        + np.asarray([0.0, 1.0, -1.0])[code] * G[:, 0]
        + 0.5 * rng.normal(size=len(G))
    )


def binary(rng: np.random.Generator, G: np.ndarray) -> np.ndarray:
    return (rng.random(len(G)) < 1 / (1 + np.exp(-1.5 * G[:, 0] - G[:, 1] + 1))).astype(float)


LAWS = (
    Law("linear", normals, linear),
    Law("curved", normals, curved),
    Law("heteroscedastic", normals, heteroscedastic),
    Law("bimodal", normals, bimodal),
    Law("mixed types", mixed, by_category, (2,)),
    Law("binary target", mixed, binary, (2,)),
)
# Samplers that are told which given columns are categories.
SAMPLERS: dict[str, Callable[[Law], Sampler]] = {
    "gaussian": lambda law: Gaussian(),
    "normal": lambda law: Gaussian("normal"),
    "residual": lambda law: Residual(),
    "knn": lambda law: KNN(categorical=law.categorical),
    "leaves": lambda law: Leaves(),
    "knockoffs": lambda law: Knockoffs(),
}


def model(x: np.ndarray, G: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Curved in x and with an interaction, so that more than means and variances of the draws matter."""
    return (
        x
        + 0.3 * x * x * (1 + 0.5 * np.tanh(G[:, 0]))[(...,) + (None,) * (x.ndim - 1)]
        + after.reshape(-1, *(1,) * (x.ndim - 1))
    )


def data(law: Law, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    G = law.given(rng, n)
    x = law.draw(rng, G)
    after = 0.5 * x + 0.5 * rng.normal(size=n)  # depends on x beyond G: a draw must not follow it
    X = np.column_stack([x, G, after])
    return X, model(x, G, after) + rng.normal(size=n)


def change(X: np.ndarray, y: np.ndarray, values: np.ndarray) -> float:
    """Mean change in squared loss for values (n, K) in the place of column 0."""
    G, after = X[:, 1:-1], X[:, -1]
    return float(np.mean((y[:, None] - model(values, G, after)) ** 2) - np.mean((y - model(X[:, 0], G, after)) ** 2))


def draw_values(sampler: Sampler, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``(n, DRAWS)`` from any sampler."""
    n = len(X)
    drawn: Any = sampler.fit(X, (0,), tuple(range(1, X.shape[1] - 1))).on(X)
    if isinstance(drawn, Residuals):
        donors = (np.arange(n)[:, None] + rng.permutation(n - 1)[:DRAWS] + 1) % n
        return drawn.mean + drawn.residual[:, 0][donors]
    if isinstance(drawn, ValueDraws):
        return drawn.values(slice(0, n), rng.random((n, DRAWS, drawn.uniforms)))[:, :, 0]
    return X[:, 0][drawn.donors(range(n), rng.random((n, DRAWS)))]


def truth(law: Law, n: int = 400_000) -> float:
    rng = np.random.default_rng([SEED, 1])
    X, y = data(law, rng, n)
    return float(np.mean([change(X, y, law.draw(rng, X[:, 1:-1])[:, None]) for _ in range(10)]))


def estimates(make: Callable[[Law], Sampler], law: Law, n: int, runs: int) -> np.ndarray:
    found = []
    for run in range(runs):
        rng = np.random.default_rng([SEED, 2, run])
        X, y = data(law, rng, n)
        found.append(change(X, y, draw_values(make(law), X, rng)))
    return np.asarray(found)


def bias_table(n: int, runs: int) -> None:
    print(f"Bias in per cent of the truth, n = {n}, {runs} data sets, {DRAWS} draws; +- its standard error")
    print(f"{'law':16}{'truth':>8}" + "".join(f"{name:>16}" for name in SAMPLERS))
    for law in LAWS:
        true = truth(law)
        cells = []
        for make in SAMPLERS.values():
            try:
                found = 100 * (estimates(make, law, n, runs) / true - 1)
                cells.append(f"{found.mean():+8.1f} +-{found.std() / np.sqrt(runs):4.1f}")
            except ValueError:
                cells.append("refused")
        print(f"{law.name:16}{true:8.3f}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def neighbour_table(runs: int) -> None:
    print(f"Relative root mean squared error of KNN in per cent, {runs} data sets, linear law with q given columns")
    sizes = (3, 5, 10, 20, 40)
    print(f"{'q':>3}{'n':>6}" + "".join(f"{f'k = {k}':>10}" for k in sizes) + f"{'sqrt(n)/2':>12}")
    for q in (1, 3, 8):
        for n in (200, 1000, 4000):
            errors = [neighbour_error(n, q, k, runs) for k in (*sizes, max(5, round(n**0.5 / 2)))]
            print(
                f"{q:3}{n:6}" + "".join(f"{error:10.1f}" for error in errors[:-1]) + f"{errors[-1]:12.1f}", flush=True
            )


def neighbour_error(n: int, q: int, k: int, runs: int) -> float:
    """x = 0.7 mean direction of G + noise of variance 0.51, y = x + noise: the truth is 2 * 0.51."""
    found = []
    for run in range(runs):
        rng = np.random.default_rng([SEED, 3, run])
        G = rng.normal(size=(n, q))
        x = 0.7 * G.sum(axis=1) / np.sqrt(q) + np.sqrt(0.51) * rng.normal(size=n)
        y = x + 0.5 * rng.normal(size=n)
        drawn = KNN(k).fit(np.column_stack([x, G]), (0,), tuple(range(1, q + 1))).on(np.column_stack([x, G]))
        values = x[drawn.donors(range(n), rng.random((n, DRAWS)))]
        found.append((np.mean((y[:, None] - values) ** 2) - np.mean((y - x) ** 2)) / 1.02 - 1)
    return 100 * float(np.sqrt(np.mean(np.square(found))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--neighbours", action="store_true")
    options = parser.parse_args()
    if options.neighbours:
        neighbour_table(options.runs)
    else:
        bias_table(options.rows, options.runs)


if __name__ == "__main__":
    main()
