"""Summaries of features whose pairs are known in closed form: the mathematics of `inference.summarize`, all at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance.data.features import Feature
from reliance.exact.joint_moments import Monomial
from reliance.exact.protocol import Summarizer
from reliance.inference.summary import Summary, null_value
from reliance.plans import Plan

if TYPE_CHECKING:
    from reliance.exact.linear import LinearReading

Floats = NDArray[np.float64]
# Below this share of what its terms could add up to, a sum of squares has cancelled: at 1e-3 errors keep 12 digits.
_CANCELLED = 1e-3


@dataclass(frozen=True)
class Polynomial:
    """Of a row's z, residual (less its mean) and weight; each coefficient is a number or (F,), one for each feature."""

    terms: dict[Monomial, Floats | float]

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial(_collected([*self.terms.items(), *other.terms.items()]))

    def __mul__(self, other: Polynomial | Floats | float) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial({powers: other * factor for powers, factor in self.terms.items()})
        return Polynomial(
            _collected(
                ((p[0] + q[0], p[1] + q[1], p[2] + q[2]), f * g)
                for p, f in self.terms.items()
                for q, g in other.terms.items()
            )
        )

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * -1.0


def _collected(terms: Iterable[tuple[Monomial, Floats | float]]) -> dict[Monomial, Floats | float]:
    found: dict[Monomial, Floats | float] = {}
    for powers, factor in terms:
        found[powers] = found[powers] + factor if powers in found else factor
    return found


def linear_summaries(route: LinearReading, features: Sequence[Feature], summarizer: Summarizer) -> dict[str, Summary]:
    """Summaries of some features that a linear model uses, by name: all pairs, squared error.

    Values of single rows, metrics, and features for which the moments lose digits, are computed row by row.
    """
    plan, every = summarizer.plan, route.problem.features
    known: list[Summary | None] = [None] * len(every)
    if plan.n > 2 and not summarizer.by_row:
        with np.errstate(over="ignore", invalid="ignore"):
            known = _from_moments(route, summarizer.base_losses, plan, summarizer.compare)
    closed = {feature.name: summary for feature, summary in zip(every, known, strict=True) if summary is not None}
    return {
        feature.name: closed[feature.name].resting_on(summarizer.supports[feature.name], plan.n)
        if feature.name in closed
        else summarizer(feature, route.moments(feature))
        for feature in features
    }


def _from_moments(route: LinearReading, base_losses: Floats, plan: Plan, compare: str) -> list[Summary | None]:
    """Summaries of all features from their joint moments alone; None where these lose digits.

    The names are those of `LinearReading`, `variance.kernel` and `inference.summarize`, here with polynomials of a
    row's z, e and w in place of its numbers.
    """
    n, draws, weights = plan.n, plan.draws, route.problem.host_weights
    one, z = Polynomial({(0, 0, 0): 1.0}), Polynomial({(1, 0, 0): 1.0})
    w = one if weights is None else Polynomial({(0, 0, 1): 1.0})
    e = Polynomial({(0, 1, 0): 1.0, (0, 0, 0): route.bias})
    z2, z3, z4 = (route.sums[power, 0, 0] for power in (2, 3, 4))

    def total(polynomial: Polynomial) -> Floats:
        return np.asarray(sum(factor * route.sums[powers] for powers, factor in polynomial.terms.items()))

    s, t = z + e, z * z + z * e * 2.0
    row_sum = one * z2 + t * n
    donor_sum = z * z * total(w) - z * (2.0 * total(w * s)) + one * total(w * t)
    squares = one * z4 - s * (4.0 * z3) + s * s * (4.0 * z2) + t * (2.0 * z2) + t * t * n

    weighted, unit = w * row_sum, w * e * e if compare == "ratio" else w
    scale = total(unit) / n
    excess = total(weighted) / (n * draws * scale)
    rows = (weighted * (1.0 / draws) - unit * excess) * (1.0 / scale)
    donors = (donor_sum - (one * (n * scale) - unit) * excess) * (1.0 / (draws * scale))
    cells = total(w * w * squares) - 2.0 * excess * total(weighted * unit) + excess**2 * draws * total(unit * unit)
    cells = np.maximum(cells / scale**2, draws * total(rows * rows))

    psi, values = rows + donors, weighted * (1.0 / (draws * scale)) - one * excess  # both with mean 0
    second, third, spread = total(psi * psi), total(psi * psi * psi), total(values * values)
    precise = route.precise & _precise(route, psi, second) & _precise(route, values, spread) & np.isfinite(third)
    risk = inference.risk(base_losses, weights) + total(weighted) / (draws * total(w))
    return [
        _summary(n, draws, null_value(compare), *map(float, numbers)) if kept else None
        for kept, *numbers in zip(precise, excess, risk, second, third, spread, cells, strict=True)
    ]


def _precise(route: LinearReading, polynomial: Polynomial, squares: Floats) -> NDArray[np.bool_]:
    """Whether a polynomial's sum of squares is not small against those of its terms."""
    sizes = [abs(f) * np.sqrt(route.sums[2 * a, 2 * b, 2 * c]) for (a, b, c), f in polynomial.terms.items()]
    return np.asarray(squares > _CANCELLED * np.asarray(sum(sizes)) ** 2)


def _summary(
    n: int,
    draws: int,
    null: float,
    excess: float,
    risk: float,
    second: float,
    third: float,
    spread: float,
    cells: float,
) -> Summary:
    """The errors of all pairs, from the sums of psi^2, psi^3, the squared deviations of the rows' values, and h^2."""
    variance = (n - 1) / (n * (n - 2) ** 2) * second
    return Summary(
        value=null + excess,
        replaced_risk=risk,
        std_error=math.sqrt(variance),
        skewness=third / (n**3 * variance**1.5),
        monte_carlo_share=0.0,
        fixed_data_error=0.0,
        random_variable_error=math.sqrt(cells) / (n * draws),
        row_error=math.sqrt(spread / (n * (n - 1))),
        draws=None,
        row_values=None,
    )
