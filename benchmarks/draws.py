"""Draws by ranks against independent permutations and shifts: noise, widths and time, each a ratio.

    python benchmarks/draws.py             everything, a few minutes
    python benchmarks/draws.py noise       one part: noise, weekly, widths, time

Noise is measured on tables of all n^2 changes of the loss, so that hundreds of seeds cost no predictions. The variance
of independent permutations is Hoeffding's, exact; that of ranks is a mean square over seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reliance import plans
from reliance._core import streams
from reliance.data.features import Feature
from reliance.engine import prepare
from reliance.methods import measuring
from reliance.plans import orderings

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import SEED, alternate, report

DRAWS = (5, 10, 20, 64)
GOALS = {5: 3.5, 10: 7.0, 20: 15.0, 64: 30.0}
FEATURE = Feature("x", (0,))


@dataclass(frozen=True)
class Case:
    """A model's losses (n, n), row i with the feature of row k, and the values (n, g) that donors are sorted by."""

    name: str
    values: np.ndarray
    losses: np.ndarray
    numeric: bool = True

    @property
    def changes(self) -> np.ndarray:
        return self.losses - np.diag(self.losses)[:, None]


def donors(values: np.ndarray, draws: int, key: int) -> np.ndarray:
    """``(n, draws)``, by ranks."""
    n = len(values)
    plan = plans.Ranked(n, draws, key, plans.Orders(n, key, lambda feature: values))
    return np.asarray(plan.part(FEATURE).donors(range(n), range(draws)))


def gain(case: Case, draws: int, seeds: int) -> float:
    """The variance of independent permutations over that of ranks."""
    changes = case.changes
    n, exact = len(changes), changes.sum() / (len(changes) * (len(changes) - 1))
    rows = np.arange(n)[:, None]
    found = [changes[rows, donors(case.values, draws, key)].mean() * n / (n - 1) for key in range(seeds)]
    return independent(changes, draws) / float(np.mean((np.asarray(found) - exact) ** 2))


def independent(changes: np.ndarray, draws: int) -> float:
    n = len(changes)
    e = changes * n / (n - 1)
    e = e - e.mean(axis=0) - e.mean(axis=1)[:, None] + e.mean()
    return float((e**2).sum() / (n - 1) / n**2 / draws)


# ---------------------------------------------------------------------------------------------------------------------
# Models


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian, a uniform, a heavy-tailed and a categorical column, and two Gaussian ones that interact."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, 6))
    X[:, 1], X[:, 2], X[:, 3] = 4 * rng.random(n), np.exp(X[:, 2]), rng.integers(0, 6, size=n)
    level = np.array([0.0, 2.0, -1.0, 1.0, 0.5, -2.0])[X[:, 3].astype(int)]
    y = X[:, 0] * (1 + np.sin(2 * X[:, 1])) + 0.5 * X[:, 2] + level + X[:, 4] * X[:, 5] + rng.normal(size=n)
    return X, y


def table(predict: Callable[[np.ndarray], np.ndarray], X: np.ndarray, columns: list[int]) -> np.ndarray:
    """``(n, n)``: the prediction of row i with these columns of row k."""
    n = len(X)
    found = np.empty((n, n))
    for start in range(0, n, 50):
        block = np.repeat(X[start : start + 50], n, axis=0)
        block[:, columns] = np.tile(X[:, columns], (len(block) // n, 1))
        found[start : start + 50] = predict(block).reshape(-1, n)
    return found


def models(X: np.ndarray, y: np.ndarray) -> dict[str, tuple[Any, str]]:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(hidden_layer_sizes=(32, 32), max_iter=300, random_state=0)
    return {
        "linear": (LinearRegression().fit(X, y), "squared"),
        "logistic": (LogisticRegression(max_iter=1000).fit(X, y > np.median(y)), "log"),
        "MLP": (make_pipeline(StandardScaler(), network).fit(X, y), "squared"),
        "boosted": (HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(X, y), "squared"),
        "forest": (RandomForestRegressor(n_estimators=30, min_samples_leaf=3, random_state=0).fit(X, y), "squared"),
    }


COLUMNS = {"Gaussian": [0], "uniform": [1], "heavy-tailed": [2], "categorical": [3], "a pair": [4, 5]}


def cases(n: int) -> list[Case]:
    X, y = rows(1000 + n)
    fitted, (X, own) = models(X[:1000], y[:1000]), (X[1000:], y[1000:])
    label = own > np.median(y[:1000])
    found = []
    for name, (model, loss) in fitted.items():
        for kind, columns in COLUMNS.items():
            if loss == "log":
                p = np.clip(table(lambda Z, m=model: m.predict_proba(Z)[:, 1], X, columns), 1e-12, 1 - 1e-12)
                losses = -np.where(label[:, None], np.log(p), np.log1p(-p))
            else:
                losses = (table(model.predict, X, columns) - own[:, None]) ** 2
            if np.ptp(losses, axis=1).max() > 0.0:
                numeric = kind not in ("categorical", "a pair")
                found.append(Case(f"{name}, {kind}", X[:, columns], losses, numeric))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Parts


def noise(n: int = 600, seeds: int = 100) -> None:
    """Variances of independent permutations over those of ranks, and the one deterministic shift beside them."""
    known = cases(n)
    found = {case.name: [gain(case, k, seeds) for k in DRAWS] for case in known}
    for case in known:
        detail = ", ".join(f"{k}: {g:.1f}" for k, g in zip(DRAWS, found[case.name], strict=True))
        single, bias = one_shift(case)
        print(f"  {case.name:<26} {detail:<44} one shift by n/2 is off by {bias:+.0%} of {single:.3g}", flush=True)
    numeric = [case.name for case in known if case.numeric]
    for at, k in enumerate(DRAWS):
        gains = [found[name][at] for name in numeric]
        detail = f"least {min(gains):.1f}, of {len(gains)} columns, n={n}"
        report(
            f"noise of permutations over ranks, {k} draws, median", float(np.median(gains)), f">= {GOALS[k]:g}", detail
        )
    auc(n, seeds)


def one_shift(case: Case) -> tuple[float, float]:
    """The exact value, and by which share of it one shift of the sorted rows by n/2 is off (arXiv:2512.13892)."""
    changes = case.changes
    n = len(changes)
    order = orderings.by_values(case.values, streams.tie_order(0, n))
    exact = float(changes.sum() / (n * (n - 1)))
    return exact, float(changes[order, np.roll(order, n // 2)].mean()) / exact - 1.0


def auc(n: int, seeds: int) -> None:
    """The same for 1 - AUC of a logistic model, both sides simulated."""
    X, y = rows(1000 + n)
    model = models(X[:1000], y[:1000])["logistic"][0]
    label = y[1000:] > np.median(y[:1000])
    scores = table(model.decision_function, X[1000:], [0])
    at = np.arange(n)

    def mean_auc(borrowed: np.ndarray) -> float:
        ranks = np.argsort(np.argsort(scores[at[:, None], borrowed], axis=0), axis=0) + 1.0
        positives = label.sum()
        return float(
            np.mean(ranks[label].sum(axis=0) - positives * (positives + 1) / 2) / (positives * (n - positives))
        )

    for k in DRAWS:
        rng = np.random.default_rng(k)
        plain = [mean_auc(np.stack([rng.permutation(n) for _ in range(k)], axis=1)) for _ in range(seeds)]
        by_ranks = [mean_auc(donors(X[1000:, :1], k, key)) for key in range(seeds)]
        report(f"noise of permutations over ranks, AUC, {k} draws", float(np.var(plain) / np.var(by_ranks)), "> 1")


def weekly(seeds: int = 400) -> None:
    """A day index with a weekly effect: the noise of permutations over that of ranks; 4 standard errors are 0.3."""
    for n in (560, 600, 700):
        days, own = np.arange(float(n)), np.random.default_rng(n).normal(size=n)
        case = Case("weekly", days[:, None], (own[:, None] - np.sin(2 * np.pi * days / 7)) ** 2)
        for k in (5, 8, 20):
            report(f"noise of permutations over ranks, weekdays, n={n}, {k} draws", gain(case, k, seeds), ">= 0.7")


def _measured(model: Any, X: np.ndarray, y: np.ndarray, draws: int, key: int, ranks: bool) -> Any:
    problem = prepare(model, X, y, rng=key)
    plan: Any = plans.Shifts(len(X), draws, key)
    if ranks:
        plan = plans.Ranked(len(X), draws, key, plans.Orders.of(problem.flat, key))
    return measuring.measure(problem, plan, "difference", "permutation_importance")


def widths(n: int = 400, seeds: int = 5) -> None:
    """Widths of fixed-data intervals over those of shifts."""
    X, y = rows(1000 + n)
    fitted = models(X[:1000], y[:1000])
    for k in (5, 8, 20):
        ratios = []
        for name in ("linear", "MLP", "boosted"):
            for key in range(seeds):
                ours, theirs = (_measured(fitted[name][0], X[1000:], y[1000:], k, key, r) for r in (True, False))
                ratios.append(ours.fixed_data_error / theirs.fixed_data_error)
        goal = "<= 0.7" if k >= 8 else "-"
        report(
            f"width of fixed-data intervals over shifts, {k} draws, median", float(np.median(ratios)), goal, f"n={n}"
        )


def time(n: int = 20_000, draws: int = 8, repeats: int = 5) -> None:
    """Time over shifts, all six columns."""
    X, y = rows(1000 + n)
    fitted = models(X[:1000], y[:1000])
    for name in ("linear", "MLP", "boosted"):
        calls = [lambda r=r, m=fitted[name][0]: _measured(m, X[1000:], y[1000:], draws, 0, r) for r in (True, False)]
        ours, theirs = alternate(*calls, repeats=repeats)
        goal = "<= 1.05" if name != "linear" else "-"
        report(f"time over shifts, {name}, n={n}, {draws} draws", ours / theirs, goal, f"{ours:.2f} s / {theirs:.2f} s")


PARTS: dict[str, Callable[[], None]] = {"noise": noise, "weekly": weekly, "widths": widths, "time": time}


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in chosen or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
