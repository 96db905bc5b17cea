"""The routes of exact all pairs, by kind of model: which is taken, whether it is right, what it costs, how it grows.

    python benchmarks/routes.py                    all kinds; prints the table
    python benchmarks/routes.py Ridge SVR          kinds whose name contains one of these
    python benchmarks/routes.py --quick            sizes that only show that it runs
    python benchmarks/routes.py --write            and writes the table into docs/performance.md

Each row is all pairs of all features. *Agreement* is the largest difference from ``route="plain"`` on 200 rows, of
values and of standard errors, relative to the largest of them. *Repeats* is the time over that of one repeat of
scikit-learn's ``permutation_importance`` of the same model, both CPU time of this process, each the best of alternating
runs, at 10^4 rows and at the last size. *Exponent* is that of the time between the last two sizes; after the table the
largest of each route is printed. The size grows until all pairs would take longer than LONGEST seconds, so kinds
without a route stop early.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
import route_cases as cases
import route_cases_more
from route_cases import KINDS, Case, Kind

assert route_cases_more.kind is cases.kind  # it enters its kinds when it is imported

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks/routes.py: begin -->", "<!-- benchmarks/routes.py: end -->"
SIZES, QUICK = (200, 1_000, 10_000, 100_000), (60, 120)
SHOWN, REPEATS, LONGEST, ENOUGH = 10_000, 3, 16.0, 4.0
SCORES = {
    "squared_error": "neg_mean_squared_error",
    "absolute_error": "neg_mean_absolute_error",
    "log_loss": "neg_log_loss",
    "poisson_deviance": "neg_mean_poisson_deviance",
    "zero_one": "accuracy",
    "accuracy": "accuracy",
    "r2": "r2",
    "rmse": "neg_root_mean_squared_error",
    "auc": "roc_auc",
}


@dataclass(frozen=True)
class Row:
    """One row of the table; ``times``: for each size, of all pairs and of one repeat, in seconds."""

    name: str
    kind: Kind
    routes: tuple[str, ...]
    values_apart: float
    errors_apart: float
    times: dict[int, tuple[float, float]]

    def repeats(self, n: int) -> float:
        ours, theirs = self.times[n]
        return ours / theirs

    @property
    def exponent(self) -> float:
        if len(self.times) < 2:
            return float("nan")
        (first, (before, _)), (last, (after, _)) = list(self.times.items())[-2:]
        return float(np.log(after / before) / np.log(last / first))


class _Predicting:
    """A function as an estimator, which scikit-learn asks for; it was fitted before."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def fit(self, X: Any, y: Any) -> None: ...

    def predict(self, X: Any) -> Any:
        return self.function(X)


def all_pairs(kind: Kind, case: Case, **options: Any) -> rl.Importance:
    options = {"loss": kind.loss, "compare": "difference", **kind.options, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant columns, skew and the like
        return rl.model_reliance(case.model, case.X, case.y, **options)


def one_repeat(kind: Kind, case: Case) -> object:
    from sklearn.inspection import permutation_importance

    model = case.model if hasattr(case.model, "fit") else _Predicting(case.model)
    return permutation_importance(model, case.X, case.y, n_repeats=1, scoring=SCORES[kind.loss], random_state=0)


def apart(found: np.ndarray, plain: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.max(np.abs(found - plain)) / max(float(np.max(np.abs(plain))), 1e-300))


def seconds(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Best CPU time of each, taken in turns until they take ENOUGH seconds together.

    The first call warms up, and counts if it is the only one.
    """
    times: list[list[float]] = []
    for _ in range(repeats + 1):
        one = []
        for function in functions:
            start = time.process_time()
            function()
            one.append(time.process_time() - start)
        times.append(one)
        if sum(map(sum, times)) > ENOUGH:
            break
    return [max(min(best), 1e-6) for best in zip(*(times[1:] or times), strict=True)]


def measure(name: str, kind: Kind, sizes: Sequence[int] = SIZES) -> Row:
    """Agreement on the rows of the first size, then times, as long as the next size is to take less than LONGEST."""
    case = kind.make(sizes[0])
    found, plain = all_pairs(kind, case), all_pairs(kind, case, route="plain")
    routes = tuple(dict.fromkeys(found.routes))
    apart_by = apart(found.values, plain.values), apart(found.std_error, plain.std_error)
    growth = 2.0 if np.max(found.evaluations) >= sizes[0] ** 2 else 1.1
    times: dict[int, tuple[float, float]] = {}
    for n in sizes:
        last = max(times, default=n)
        if times and times[last][0] * (n / last) ** growth > LONGEST:
            break
        case = case if len(case.y) == n else kind.make(n)
        calls = partial(all_pairs, kind, case), partial(one_repeat, kind, case)
        ours, theirs = seconds(*calls, repeats=REPEATS)
        times[n] = ours, theirs
    return Row(name, kind, routes, *apart_by, times)


# ---------------------------------------------------------------------------------------------------------------------
# The table

WORDS = (
    "## Routes by kind of model",
    "",
    "All pairs of all features, made by `python benchmarks/routes.py --write`. *Agree*: the largest difference from",
    "calling the model for every pair of 200 rows, of values and of standard errors. *Repeats*: CPU time over that of",
    "one repeat of scikit-learn's `permutation_importance`; below 1, all pairs cost less than one permutation of each",
    "feature. *Exponent*: how the time grows with n (1 is linear, 2 is pair by pair).",
    "",
)
HEAD = (
    "| model | loss | routes | values agree to | errors agree to | repeats, 10^4 rows | repeats | at n | exponent |",
    "|---|---|---|---|---|---|---|---|---|",
)


def line(row: Row) -> str:
    last = max(row.times)
    goal = "" if row.repeats(last) <= row.kind.goal or row.kind.goal == np.inf else f" (goal {row.kind.goal:g})"
    shown = f"{row.repeats(SHOWN):.2g}" if SHOWN in row.times else ""
    return (
        f"| {row.name} | {row.kind.loss} | {', '.join(row.routes)} | {row.values_apart:.0e} | {row.errors_apart:.0e} "
        f"| {shown} | {row.repeats(last):.2g}{goal} | {last} | {row.exponent:.2f} |"
    )


def exponents(rows: Sequence[Row]) -> str:
    """The largest exponent of each route, of kinds that take one route for all features."""
    found: dict[str, float] = {}
    for row in rows:
        routes = [route for route in row.routes if route != "unused"]
        if len(routes) == 1 and np.isfinite(row.exponent):
            found[routes[0]] = max(found.get(routes[0], -np.inf), row.exponent)
    return "Largest exponents: " + ", ".join(f"{route} {most:.2f}" for route, most in sorted(found.items())) + "."


def written(page: str, lines: Sequence[str]) -> str:
    """The page with the table between its two marks."""
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE} has no marks {BEGIN!r} and {END!r} for the table")
    table = "\n".join([BEGIN, "", *lines, "", END])
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: table, page, flags=re.DOTALL)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    chosen = {n: k for n, k in KINDS.items() if not given.kinds or any(w in n for w in given.kinds)}
    if not chosen:
        raise SystemExit(f"no kind is called {given.kinds[0]!r}: choose from {', '.join(KINDS)}")
    if given.write and (given.kinds or given.quick):
        raise SystemExit("--write: the table must come from one whole run")
    if given.quick:
        cases.TRAINED = 200
    print(*HEAD, sep="\n", flush=True)
    lines, rows = [*WORDS, *HEAD], []
    for name, kind in chosen.items():
        try:
            row = measure(name, kind, QUICK if given.quick else SIZES)
        except ImportError as error:
            print(f"| {name} | not installed: {error.name} |", flush=True)
            continue
        rows.append(row)
        lines.append(line(row))
        print(lines[-1], flush=True)
    lines += ["", exponents(rows)]
    print("", lines[-1], sep="\n")
    if given.write:
        PAGE.write_text(written(PAGE.read_text(), lines))


if __name__ == "__main__":
    main(sys.argv[1:])
