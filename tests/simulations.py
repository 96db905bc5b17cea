"""Data generators whose importances are known exactly, for the coverage tests.

Each `Simulation` draws data, gives a model (fixed, not fitted to the data, so that the target is one number) and knows,
from formulas that use nothing of the library, the model's risk and its risk with a feature replaced by that of an
independent row.

`replicate` measures one draw of the data with the public functions. To halve the time, the ratio is summarised from the
evaluation that gives the difference; `test_coverage.py` proves that this is what the public functions give.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import reliance as rl
from reliance import inference

Floats = NDArray[np.float64]
N = 200
COMPARES = ("difference", "ratio")


class Risks(NamedTuple):
    """Population risks of a model: as it is, and with one feature taken from an independent row."""

    base: float
    replaced: float

    def truth(self, compare: str) -> float:
        return self.replaced - self.base if compare == "difference" else self.replaced / self.base


@dataclass(frozen=True)
class Simulation:
    """A data generator, a fixed model, and the risks (loss, feature) -> Risks."""

    draw: Callable[[np.random.Generator, int], tuple[Floats, NDArray]]
    model: Callable[[Floats], Floats]
    losses: tuple[str, ...]
    features: tuple[str, ...]  # the first columns of X; "null..." ones are used by the model, though y ignores them
    risks: dict[tuple[str, str], Risks]


# ---------------------------------------------------------------------------------------------------------------------
# Linear models, squared error


def linear(
    features: tuple[str, ...],
    true: tuple[float, ...],
    used: tuple[float, ...],
    correlation: tuple[tuple[float, ...], ...] | None = None,
    noise: float = 1.0,
    log_scale: float | None = None,
) -> Simulation:
    """Outcome y = X @ true + noise, model X @ used, X Gaussian (or independent lognormals).

    With S the covariance of X and b the used coefficients, replacing column j by an independent copy changes the mean
    squared error by 2 b_j (Cov(y, x_j) - sum over k != j of b_k S_kj).
    """
    beta, b, p = np.asarray(true), np.asarray(used), len(true)
    if log_scale is None:
        covariance = np.eye(p) if correlation is None else np.asarray(correlation)
        factor = np.linalg.cholesky(covariance)
        mean = np.zeros(p)
    else:
        variance = np.exp(log_scale**2)
        covariance = np.eye(p) * variance * (variance - 1.0)
        factor = np.eye(p)
        mean = np.full(p, np.exp(log_scale**2 / 2.0))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        X = rng.standard_normal((n, p)) @ factor.T
        if log_scale is not None:
            X = np.exp(log_scale * X)
        return X, X @ beta + noise * rng.standard_normal(n)

    gap = beta - b
    base = noise**2 + gap @ covariance @ gap + (gap @ mean) ** 2
    risks = {}
    for j, name in enumerate(features):
        others = np.arange(p) != j
        change = 2.0 * b[j] * (covariance[j] @ beta - covariance[j, others] @ b[others])
        risks["squared_error", name] = Risks(float(base), float(base + change))
    return Simulation(draw, lambda X: X @ b, ("squared_error",), features, risks)


# ---------------------------------------------------------------------------------------------------------------------
# Logistic models, log loss and AUC


def logistic(features: tuple[str, ...], true: tuple[float, ...], used: tuple[float, ...]) -> Simulation:
    """P(y = 1 | x) = 1 / (1 + exp(-x @ true)), model the same with other coefficients.

    The classes are equally likely and x given y is N((y - 1/2) true, I), for which that is the exact posterior; scores
    are then Gaussian given the class. A replaced feature comes from either class with probability 1/2.
    """
    delta, b = np.asarray(true), np.asarray(used)
    # Each feature's part in the distance between the classes' mean scores, and the scores' spread within a class.
    shift, spread = b * delta, float(np.linalg.norm(b))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, NDArray[np.int64]]:
        y = rng.integers(0, 2, n)
        return rng.standard_normal((n, len(delta))) + (y[:, None] - 0.5) * delta, y

    z, mass = np.polynomial.hermite_e.hermegauss(120)
    mass = mass / mass.sum()

    def log_loss(mean: float) -> float:
        """E log(1 + exp(-s)) for s ~ N(mean, spread^2), by Gauss-Hermite quadrature."""
        return float(mass @ np.logaddexp(0.0, -(mean + spread * z)))

    def auc_loss(distance: float) -> float:
        """P(s1 < s0) for independent s1, s0 with means that far apart."""
        return float(norm.cdf(-distance / (np.sqrt(2.0) * spread)))

    risks, whole = {}, float(shift.sum())
    for name, own in zip(features, shift.tolist(), strict=True):
        # The donor is of the same class as the row, or of the other.
        replaced = 0.5 * log_loss(0.5 * whole) + 0.5 * log_loss(0.5 * whole - own)
        risks["log_loss", name] = Risks(log_loss(0.5 * whole), replaced)
        # Donors of a positive and a negative row: each of its row's class, both of one class, or each of the other's.
        replaced = 0.25 * auc_loss(whole) + 0.5 * auc_loss(whole - own) + 0.25 * auc_loss(whole - 2.0 * own)
        risks["auc", name] = Risks(auc_loss(whole), replaced)
    return Simulation(draw, lambda X: 1.0 / (1.0 + np.exp(-(X @ b))), ("log_loss", "auc"), features, risks)


NAMES = ("strong", "weak", "null")
SIMULATIONS = {
    # y does not depend on "null", and the model's other coefficients are right or shrunk.
    "linear": linear(NAMES, (1.0, 0.5, 0.0), (1.0, 0.3, 0.4)),
    # The null feature is correlated with those that matter: permuting it makes rows that do not occur.
    "correlated": linear(
        NAMES, (1.0, 0.5, 0.0), (1.0, 0.5, 0.4), correlation=((1.0, 0.5, 0.5), (0.5, 1.0, 0.25), (0.5, 0.25, 1.0))
    ),
    # The null feature moves the prediction more than the noise does. Row and donor effects cancel almost wholly here,
    # which a floor on the variance does not notice.
    "overfitted": linear(("strong", "null"), (1.0, 0.0), (1.0, 0.5), noise=0.3),
    "lognormal": linear(("strong", "null"), (1.0, 0.0), (1.0, 0.2), log_scale=1.0),
    # Also the base losses have heavy tails: what a ratio divides by is as uncertain as what it divides.
    "heavy": linear(("strong", "null"), (1.0, 0.0), (1.0, 0.4), log_scale=1.0),
    "logistic": logistic(NAMES, (1.5, 0.8, 0.0), (1.5, 0.8, 0.5)),
}


# ---------------------------------------------------------------------------------------------------------------------
# Replicates


class Design(NamedTuple):
    """How donors are chosen: a public function and its arguments."""

    call: Callable[..., rl.Importance | dict[str, rl.Importance]]
    arguments: dict[str, object]


DESIGNS = {
    # The default design, and the one before it.
    **{f"ranks-{k}": Design(rl.permutation_importance, {"draws": k}) for k in (3, 5, 16)},
    **{f"shifts-{k}": Design(rl.permutation_importance, {"draws": rl.Draws(k, design="shifts")}) for k in (3, 20)},
    "pairs": Design(rl.model_reliance, {"pairs": "all"}),
    **{f"iid-{k}": Design(rl.ablation_importance, {"draws": k}) for k in (5, 10)},
}


def weights_of(rng: np.random.Generator, weighted: bool, n: int = N) -> Floats | None:
    """Weights independent of the data, so that the truth is the same."""
    return rng.uniform(0.5, 1.5, n) if weighted else None


@contextmanager
def also_as_ratios() -> Iterator[list[inference.Summary]]:
    """Whatever is summarised meanwhile as a difference is also summarised as a ratio, into the list."""
    original, ratios = inference.summarize, []

    def both(moments: Any, base: Any, weights: Any, plan: Any, compare: str, **options: Any) -> inference.Summary:
        # What donors lent is in units of the comparison: not the difference's.
        ratios.append(original(moments, base, weights, plan, "ratio", **{**options, "lent": None}))
        return original(moments, base, weights, plan, compare, **options)

    inference.summarize = both
    try:
        yield ratios
    finally:
        inference.summarize = original


def replicate(
    simulation: Simulation,
    design: Design,
    X: Floats,
    y: NDArray,
    weights: Floats | None,
    key: int,
    losses: tuple[str, ...],
) -> dict[tuple[str, str], rl.Importance]:
    """The results of one data set by (loss, compare), from one call of the public function."""
    common = {"loss": list(losses), "weights": weights, "rng": key, "names": simulation.features}
    with also_as_ratios() as ratios:
        measured = design.call(simulation.model, X, y, compare="difference", **common, **design.arguments)
    found, p = {}, len(simulation.features)
    for index, loss in enumerate(losses):
        found[loss, "difference"] = measured[loss]
        own = ratios[index * p : (index + 1) * p]
        columns = {"values": [s.value for s in own]}
        for field in dataclasses.fields(own[0]):
            if getattr(measured[loss], field.name, None) is not None:
                columns[field.name] = [getattr(s, field.name) for s in own]
        found[loss, "ratio"] = dataclasses.replace(measured[loss], compare="ratio", **columns)
    return found


class Cell(NamedTuple):
    """What the replicates of one design gave for one feature, loss and comparison."""

    simulation: str
    design: str
    weighted: bool
    loss: str
    compare: str
    feature: str
    replicates: int
    covered: float  # share of the 95% population intervals that hold the truth
    rejected: float  # share of default tests with p < 0.05
    error_ratio: float  # root mean square of the standard errors over the standard deviation of the values

    def __str__(self) -> str:
        weights = "weighted" if self.weighted else "equal weights"
        return (
            f"{self.simulation}, {self.design}, {weights}, {self.loss}, {self.compare}, {self.feature}: "
            f"covered {self.covered:.4f}, rejected {self.rejected:.4f}, se/sd {self.error_ratio:.3f} "
            f"({self.replicates} replicates)"
        )


def seed_of(*words: object) -> np.random.Generator:
    """A generator for a cell: independent of the order in which cells are run."""
    return np.random.default_rng([int.from_bytes(str(word).encode(), "little") for word in words])


def simulate(
    name: str,
    design: str,
    weighted: bool,
    replicates: int,
    losses: tuple[str, ...] | None = None,
    part: int = 0,
    n: int = N,
) -> Iterator[tuple[tuple[str, str, str], Floats]]:
    """Yields for each (loss, compare, feature) the columns value, standard error, lower, upper, p-value."""
    simulation, chosen = SIMULATIONS[name], DESIGNS[design]
    losses = simulation.losses if losses is None else losses
    rng = seed_of(name, design, weighted, part, *(() if n == N else (n,)))
    rows: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*very skewed")  # a few of thousands of data sets are
        for _ in range(replicates):
            X, y = simulation.draw(rng, n)
            weights, key = weights_of(rng, weighted, n), int(rng.integers(2**62))
            for (loss, compare), result in replicate(simulation, chosen, X, y, weights, key, losses).items():
                bounds, p = result.interval(0.95), result.test(adjust="none").p_value
                for j, feature in enumerate(simulation.features):
                    line = (result.values[j], result.std_error[j], *bounds[j], p[j])
                    rows.setdefault((loss, compare, feature), []).append(line)
    for where, lines in rows.items():
        yield where, np.asarray(lines)


def summarise(name: str, design: str, weighted: bool, found: dict[tuple[str, str, str], Floats]) -> list[Cell]:
    cells = []
    for (loss, compare, feature), table in found.items():
        value, error, lower, upper, p = table.T
        truth = SIMULATIONS[name].risks[loss, feature].truth(compare)
        covered, rejected = np.mean((lower <= truth) & (truth <= upper)), np.mean(p < 0.05)
        ratio = np.sqrt(np.mean(error**2)) / np.std(value)
        shares = (float(covered), float(rejected), float(ratio))
        cells.append(Cell(name, design, weighted, loss, compare, feature, len(p), *shares))
    return cells


def cells(
    name: str, design: str, weighted: bool, replicates: int, losses: tuple[str, ...] | None = None, n: int = N
) -> list[Cell]:
    return summarise(name, design, weighted, dict(simulate(name, design, weighted, replicates, losses, n=n)))


def formulations(draws: int, replicates: int) -> dict[str, float]:
    """How often each formulation's interval, of resampled draws, holds the value in the population."""
    simulation, rng = SIMULATIONS["linear"], seed_of("formulations", draws)
    truth = simulation.risks["squared_error", "strong"].truth("difference")
    covered = dict.fromkeys(("population", "random-variable", "fixed-data")[: 3 if draws > 1 else 2], 0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*very skewed")
        for _ in range(replicates):
            X, y = simulation.draw(rng, N)
            result = rl.ablation_importance(simulation.model, X, y, draws=draws, features=[0], rng=rng)
            for formulation in covered:
                low, high = result.interval(0.95, formulation)[0]
                covered[formulation] += low <= truth <= high
    return {formulation: float(count) / replicates for formulation, count in covered.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The tables of docs/intervals.md


def _part(job: tuple[str, str, bool, int, int, int]) -> dict[tuple[str, str, str], Floats]:
    name, design, weighted, replicates, part, n = job
    return dict(simulate(name, design, weighted, replicates, part=part, n=n))


def table(cells: list[Cell], quantity: str) -> Iterator[str]:
    """Lines of a Markdown table: one column for each design, difference / ratio in per cent."""
    designs = list(dict.fromkeys(cell.design for cell in cells))
    yield f"| {quantity} | " + " | ".join(designs) + " |"
    yield "|---|" + "---|" * len(designs)
    known = {(c.simulation, c.loss, c.feature, c.design, c.compare): 100.0 * getattr(c, quantity) for c in cells}
    for simulation, loss, feature in dict.fromkeys((c.simulation, c.loss, c.feature) for c in cells):
        if quantity == "rejected" and feature != "null":
            continue
        pairs = ([known[simulation, loss, feature, design, compare] for compare in COMPARES] for design in designs)
        yield f"| {simulation}, {loss}, {feature} | " + " | ".join(f"{a:.1f} / {b:.1f}" for a, b in pairs) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the population interval, size of the test.")
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--only", nargs="*", default=list(SIMULATIONS), choices=list(SIMULATIONS))
    parser.add_argument("--designs", nargs="*", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--rows", type=int, default=N)
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--formulations", action="store_true", help="compare the three formulations instead")
    given = parser.parse_args()
    if given.formulations:
        for draws in (1, 5, 20):
            print(f"K = {draws}:", formulations(draws, given.replicates))
        return
    parts, found = 8, []
    with ProcessPoolExecutor(given.processes) as pool:
        for name in given.only:
            for design in given.designs:
                options = (given.weighted, given.replicates // parts)
                jobs = [(name, design, *options, 1 + part, given.rows) for part in range(parts)]
                answers = list(pool.map(_part, jobs))
                joined = {where: np.concatenate([answer[where] for answer in answers]) for where in answers[0]}
                found += summarise(name, design, given.weighted, joined)
    for quantity in ("covered", "rejected"):
        print("\n".join(table(found, quantity)), end="\n\n")


if __name__ == "__main__":
    main()
