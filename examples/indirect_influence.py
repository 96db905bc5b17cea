"""
Which variables influence a model that does not use them?
=========================================================

Study VI-A of König et al. (2020), Figures 2 and 3. X1 acts on Y along X2 and X3, and along X4::

    X1 -> X2 -> X3 -> Y,    X1 -> X4 -> Y

The regression uses X3 and X4 only, so the permutation importance of X1 and X2 is 0. That the importance of X3 and X4
falls when X1 or X2 is given shows their indirect influence. The script prints each importance with its interval beside
the value that the fitted model has in the population, and draws the figure::

    python examples/indirect_influence.py [indirect_influence.png]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

FEATURES = ["X1", "X2", "X3", "X4"]
PARENTS = {"X1": [], "X2": ["X1"], "X3": ["X2"], "X4": ["X1"], "Y": ["X3", "X4"]}
SIGMA = {"X1": 1.0, "X2": 1.0, "X3": 0.3, "X4": 1.0, "Y": 0.5}
SETS = {"nothing": [], "X1": ["X1"], "X2": ["X2"], "X1 and X2": ["X1", "X2"]}


def mixing(parents: Mapping[str, Sequence[str]], sigma: Mapping[str, float]) -> np.ndarray:
    """M, with the variables = M @ (standard normal noises): each is the sum of its parents and its own noise."""
    names = list(parents)
    M = np.zeros((len(names), len(names)))
    for k, name in enumerate(names):  # causes come before their effects
        M[k, k] = sigma[name]
        for parent in parents[name]:
            M[k] += M[names.index(parent)]
    return M


def draw(
    parents: Mapping[str, Sequence[str]], sigma: Mapping[str, float], samples: int, seed: int
) -> dict[str, np.ndarray]:
    """Rows of all variables."""
    noise = np.random.default_rng(seed).normal(size=(samples, len(parents)))
    return dict(zip(parents, (noise @ mixing(parents, sigma).T).T, strict=True))


def least_squares(X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Intercept and slopes."""
    found = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y)[0]
    return float(found[0]), found[1:]


def analytic(
    parents: Mapping[str, Sequence[str]],
    sigma: Mapping[str, float],
    features: Sequence[str],
    slopes: np.ndarray,
    sets: Mapping[str, Sequence[str]],
) -> dict[tuple[str, str], float]:
    """The relative importances, by set and feature, of a linear model for squared error in the population.

    2 b^2 Var(X_j | X_G) + 2 b [Cov(R, X_j) - B Cov(R, X_G)], where b is the feature's slope, R = Y - f(X), and
    B = S_jG S_GG^-1 the coefficients of X_j's regression on X_G.
    """
    names = list(parents)
    M = mixing(parents, sigma)
    S = M @ M.T
    places = [names.index(name) for name in features]
    residual = S[names.index("Y")] - slopes @ S[places]  # Cov(R, each variable)
    found = {}
    for label, given in sets.items():
        G = [names.index(name) for name in given]
        for name, b, j in zip(features, slopes, places, strict=True):
            if j in G:
                found[label, name] = 0.0  # it keeps its own value
                continue
            B = np.linalg.solve(S[np.ix_(G, G)], S[G, j])
            variance = S[j, j] - B @ S[G, j]
            found[label, name] = float(2 * b**2 * variance + 2 * b * (residual[j] - B @ residual[G]))
    return found


def study(
    samples: int = 100_000, seed: int = 0, sampler: Any = "gaussian"
) -> tuple[rl.RelativeImportance, dict[tuple[str, str], float]]:
    """Model and sampler from the first 90% of the rows, importances on the others; and the analytic values."""
    data = draw(PARENTS, SIGMA, samples, seed)
    X, y = np.column_stack([data[name] for name in FEATURES]), data["Y"]
    train = samples * 9 // 10
    intercept, slopes = least_squares(X[:train], y[:train])
    result = rl.relative_importance(
        lambda batch: batch @ slopes + intercept,
        X[train:],
        y[train:],
        given=rl.Given(SETS, sampler=sampler, fit_on=(X[:train], None)),
        names=FEATURES,
        rng=seed,
    )
    return result, analytic(PARENTS, SIGMA, FEATURES, slopes, SETS)


def table(result: rl.RelativeImportance, expected: Mapping[tuple[str, str], float]) -> str:
    """Set, feature, estimate, interval and analytic value, a line each."""
    width = max(map(len, ["given", *result]))
    lines = [f"{'given':<{width}}  feature  estimate  95% interval      analytic"]
    for label, one in result.items():
        for name, value, (low, high) in zip(one.names, one.values, one.interval(), strict=True):
            # + 0.0: no «-0.000».
            shown = [round(float(number), 3) + 0.0 for number in (value, low, high, expected[label, name])]
            lines.append("{:<{}}  {:<7}  {:8.3f}  {:6.3f} to {:6.3f}  {:8.3f}".format(label, width, name, *shown))
    return "\n".join(lines)


def changes(delta: rl.Delta) -> str:
    """Feature, difference and interval, a line each."""
    lines = []
    for name, value, (low, high) in zip(delta.names, delta.values, delta.interval(), strict=True):
        shown = [round(float(number), 3) + 0.0 for number in (value, low, high)]
        lines.append("{:<7}  {:8.3f}  {:6.3f} to {:6.3f}".format(name, *shown))
    return "\n".join(lines)


def figure(result: rl.RelativeImportance, expected: Mapping[tuple[str, str], float], title: str, picture: Path) -> None:
    """Bars by conditioning set, a colour for each feature, with 95% intervals and the analytic values."""
    import matplotlib

    matplotlib.use("Agg")  # write the figure, open no window
    names = next(iter(result.values())).names
    truth = [[expected[label, name] for name in names] for label in result]
    ax = result.plot(by="set", marks={"analytic value": truth})
    ax.set_title(title, fontsize="medium")
    ax.figure.savefig(picture, dpi=150, facecolor="white")


def main(picture: Path = Path("indirect_influence.png"), samples: int = 100_000) -> None:
    """Measure, print, draw."""
    result, expected = study(samples)
    print(f"mean squared error on {result['nothing'].n} test rows: {result['nothing'].base_risk:.3f}\n")
    print(table(result, expected))
    print("\nDoes X1 add to X2? Importance given X2 minus importance given X1 and X2:")
    print(changes(result.delta("X2", "X1 and X2")))
    figure(result, expected, "Indirect influence: X1 → X2 → X3 → Y and X1 → X4 → Y, a linear regression of Y", picture)
    print(f"\nWrote {picture.resolve()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
