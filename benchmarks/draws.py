"""Draws by ranks against independent permutations and shifts: noise, widths and time, each a ratio.

    python benchmarks/draws.py             everything, a few minutes
    python benchmarks/draws.py noise       one part: noise, weekly, widths, shares, conditional, time

Noise is measured on tables of all n^2 changes of the loss, so that hundreds of seeds cost no predictions. The variance
of independent permutations is Hoeffding's, exact; that of ranks is a mean square over seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl
from reliance import plans
from reliance._core import streams
from reliance.data.features import Feature
from reliance.engine import prepare
from reliance.methods import measuring
from reliance.plans import orderings

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, report
from draw_problems import Case, cases, models, rows, table

DRAWS = (5, 10, 20, 64)
GOALS = {5: 3.5, 10: 7.0, 20: 15.0, 64: 30.0}
FEATURE = Feature("x", (0,))


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


def _looked_up(case: Case, draws: int, key: int, design: str) -> rl.Importance:
    predict, X = case.lookup()
    how = rl.Draws(draws, design=design)
    return rl.permutation_importance(predict, X, np.zeros(len(X)), draws=how, loss=_prediction, features=[1], rng=key)


def _prediction(y: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    return prediction


def widths(n: int = 200, keys: int = 100, problems: int = 40) -> None:
    """Fixed-data intervals of many problems: how often they hold the value of all pairs, and widths over shifts."""
    known = [case for seed in (1, 2) for case in cases(n, seed)][:problems]
    for k in (3, 5, 8, 16, 20):
        inside, ratios, safety = [], [], []
        for case in known:
            ours = [_looked_up(case, k, key, "ranks") for key in range(keys)]
            theirs = [_looked_up(case, k, key, "shifts").fixed_data_error[0] for key in range(max(keys // 4, 1))]
            ends = np.asarray([result.interval(formulation="fixed-data")[0] for result in ours])
            errors = np.asarray([result.fixed_data_error[0] for result in ours])
            wrong = np.asarray([result.values[0] for result in ours]) - case.exact
            inside.append(np.mean((ends[:, 0] <= case.exact) & (case.exact <= ends[:, 1])))
            ratios.append(np.median(errors) / np.median(theirs))
            safety.append(np.mean(errors**2) / np.mean(wrong**2))
        detail = f"median {np.median(inside):.1%}, {len(known)} problems, n={n}"
        report(
            f"fixed-data intervals, {k} draws: covered in the worst problem", float(np.min(inside)), ">= 0.9", detail
        )
        detail = f"estimated over true variance: least {np.min(safety):.2f}, median {np.median(safety):.1f}"
        goal = "<= 0.7" if k >= 8 else "-"
        report(f"fixed-data intervals, {k} draws: width over shifts, median", float(np.median(ratios)), goal, detail)


def shares(n: int = 600, seeds: int = 60) -> None:
    """Which part of the variance of an estimate is left to the draws, by their number: true, and as reported."""
    known = cases(n)
    errors = {case.name: _looked_up(case, 24, 0, "ranks").std_error[0] for case in known}
    for k in (4, 8, 12, 16, 24):
        true = [independent(case.changes, k) / gain(case, k, seeds) / errors[case.name] ** 2 for case in known]
        random = [independent(case.changes, k) / errors[case.name] ** 2 for case in known]
        told = [_looked_up(case, k, 1, "ranks").monte_carlo_share[0] for case in known]
        detail = f"worst {np.max(true):.1%}, reported {np.median(told):.1%}; independent permutations "
        detail += f"{np.median(random):.1%}, worst {np.max(random):.1%}; {len(known)} columns of models, n={n}"
        report(f"share of {k} draws in the variance, per cent, median", 100 * float(np.median(true)), "-", detail)


def conditional(n: int = 300, seeds: int = 60) -> None:
    """The noise of shifts over that of ranks of residuals, for one column given the rest."""
    X, y = rows(1000 + n)
    X = X[:, [0, 1, 4, 5]]
    X[:, 0] += 0.7 * X[:, 2] + 0.3 * X[:, 1]
    fitted = models(X[:1000], y[:1000], ["linear", "MLP", "boosted"])
    for method in ("gaussian", "residual", "conditional reliance"):
        for k in (5, 10, 20):
            ratios = {}
            for name, (model, _) in fitted.items():
                noises = {}
                for design in ("shifts", "ranks"):
                    how = rl.Draws(k, design=design)
                    found = [_given_rest(method, model, X[1000:], y[1000:], how, key) for key in range(seeds)]
                    noises[design] = np.var(found, ddof=1)
                ratios[name] = float(noises["shifts"] / noises["ranks"])
            detail = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items()) + f", n={n}"
            report(f"noise of shifts over ranks, {method}, {k} draws, least", min(ratios.values()), "> 1", detail)


def _given_rest(method: str, model: Any, X: np.ndarray, y: np.ndarray, how: rl.Draws, key: int) -> float:
    common = {"features": [0], "loss": _mean_square(), "compare": "difference", "rng": key}
    if method == "conditional reliance":
        return float(rl.conditional_model_reliance(model, X, y, pairs=how, **common).values[0])
    given = rl.Given("rest", sampler=method)
    return float(rl.relative_importance(model, X, y, given=given, draws=how, **common).values[0])


def _mean_square() -> rl.Metric:
    """Squared error without an error of its own: a sampler's part in it would take more time than the draws."""
    return rl.Metric(lambda y, prediction: np.mean((y - prediction) ** 2), name="mean square")


def time(n: int = 20_000, draws: int = 8, repeats: int = 5) -> None:
    """Time over shifts, all six columns."""
    X, y = rows(1000 + n)
    fitted = models(X[:1000], y[:1000])
    for name in ("linear", "MLP", "boosted"):
        calls = [lambda r=r, m=fitted[name][0]: _measured(m, X[1000:], y[1000:], draws, 0, r) for r in (True, False)]
        ours, theirs = alternate(*calls, repeats=repeats)
        goal = "<= 1.05" if name != "linear" else "-"
        report(f"time over shifts, {name}, n={n}, {draws} draws", ours / theirs, goal, f"{ours:.2f} s / {theirs:.2f} s")


PARTS: dict[str, Callable[[], None]] = {
    "noise": noise,
    "weekly": weekly,
    "widths": widths,
    "shares": shares,
    "conditional": conditional,
    "time": time,
}


def main(chosen: list[str]) -> None:
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in chosen or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
