"""Trimmed losses: values against a literal mean of the smallest losses, and coverage where tails are heavy.

Run as a program, the file prints the table of the documentation: ``python tests/test_trimmed.py --replicates 1000``.
"""

from __future__ import annotations

import argparse
import functools
import warnings

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance._core import arrays
from test_coverage import outside

WORLDS = ("normal", "lognormal", "t3")
BAND = (0.92, 0.98)


def literal(losses: np.ndarray, share: float, weights: np.ndarray | None = None) -> float:
    """The mean of the smallest losses; of the one at the edge, the part of its weight that is kept."""
    w = np.ones(len(losses)) if weights is None else weights
    left, total = (1.0 - share) * w.sum(), 0.0
    kept = left
    for place in np.argsort(losses):
        part = min(w[place], left)
        total, left = total + part * losses[place], left - part
    return total / kept


@pytest.mark.parametrize("share", [0.05, 0.2, 0.37])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_value_is_the_mean_of_the_smallest_losses(backend, share, weighted):
    rng = np.random.default_rng(0)
    y, p = rng.normal(size=(2, 23))
    w = rng.uniform(0.5, 2.0, size=23) if weighted else None
    metric = rl.losses.trimmed("absolute_error", share)
    arguments = [backend.asarray(a) for a in (y, p, *(() if w is None else (w,)))]
    for function in (metric.value, metric.influence):
        found = arrays.to_host(function(*arguments))
        value = float(np.average(np.broadcast_to(found, (23,)), weights=w))
        assert abs(value - literal(np.abs(y - p), share, w)) < 1e-5


def test_importance_is_the_difference_of_trimmed_means():
    """A literal loop over the draws: every row's loss with its donor's value."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + rng.standard_t(2, size=40)
    loss, draws = rl.losses.trimmed("squared_error", 0.1), rl.Draws(5, design="shifts")
    result = rl.permutation_importance(lambda X: X[:, 0], X, y, loss=loss, draws=draws, features=[0], rng=0)
    donors = plans.Shifts(40, 5, result.key).donors(range(40), range(5))
    base = literal((X[:, 0] - y) ** 2, 0.1)
    expected = [literal((X[donors[:, k], 0] - y) ** 2, 0.1) - base for k in range(5)]
    np.testing.assert_allclose(result.draws[0], expected)
    assert result.base_risk == pytest.approx(base)


def test_what_cannot_be_trimmed():
    with pytest.raises(ValueError, match=r"share=0\.5 must lie strictly between 0 and 1/2"):
        rl.losses.trimmed(share=0.5)
    with pytest.raises(TypeError, match="'auc' is a metric of all rows"):
        rl.losses.trimmed("auc")
    assert rl.losses.trimmed("log_loss").output == "probability"
    assert rl.losses.trimmed("squared_error", 0.1) == rl.losses.trimmed("squared_error", 0.1)


# ---------------------------------------------------------------------------------------------------------------------
# Coverage


def rows(world: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X, e = rng.normal(size=(n, 2)), rng.normal(size=n)
    X = np.exp(X) if world == "lognormal" else X
    return X, X[:, 0] + (rng.standard_t(3, size=n) if world == "t3" else e)


def model(X):
    return X[:, 0] + 0.3 * X[:, 1]


@functools.cache
def truth(world: str, share: float, compare: str) -> np.ndarray:
    """By a million rows, whose error is a thirtieth of an interval's."""
    rng = np.random.default_rng(99)
    X, y = rows(world, 1_000_000, rng)

    def risk(X):
        losses = np.sort((model(X) - y) ** 2)
        return losses[: round(len(losses) * (1.0 - share))].mean()

    found = []
    for column in range(2):
        replaced = X.copy()
        replaced[:, column] = rng.permutation(X[:, column])
        found.append(risk(replaced))
    return np.asarray(found) - risk(X) if compare == "difference" else np.asarray(found) / risk(X)


def covered(world: str, n: int, share: float, compare: str, replicates: int) -> np.ndarray:
    """Of the strong and of the useless feature; a share of 0 is the mean loss itself."""
    true, hits = truth(world, share, compare), np.zeros(2)
    loss = rl.losses.trimmed("squared_error", share) if share else "squared_error"
    for seed in range(replicates):
        X, y = rows(world, n, np.random.default_rng([seed, n]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ends = rl.permutation_importance(model, X, y, loss=loss, compare=compare, rng=seed).interval()
        hits += (ends[:, 0] <= true) & (true <= ends[:, 1])
    return hits / replicates


@pytest.mark.slow
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_cover_with_heavy_tails(world, compare):
    for n in (50, 200):
        for share in covered(world, n, 0.1, compare, 150):
            assert not outside(share, BAND, 150), (n, share)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=1000)
    replicates = parser.parse_args().replicates
    print("| rows | n | loss | difference | ratio |\n|---|---|---|---|---|")
    for world in WORLDS:
        for n in (50, 200):
            for share in (0.0, 0.05, 0.1):
                found = [covered(world, n, share, how, replicates) for how in ("difference", "ratio")]
                cells = " | ".join(f"{100 * strong:.1f} / {100 * null:.1f}" for strong, null in found)
                print(f"| {world} | {n} | {f'trimmed, {share}' if share else 'mean'} | {cells} |", flush=True)
