"""Confidence sequences: intervals of a mean that hold at all times together, however often they are looked at.

An interval of a fixed number of rows is right 95% of the time when it is read once. Who reads it after every batch, and
stops when it looks good, is right less often. A confidence sequence holds for all numbers of rows at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The bets stay below this share of what could be lost (Waudby-Smith and Ramdas 2024 advise 1/2 or 3/4).
_MOST = 0.5
# Units of data at which the asymptotic sequence is the narrowest.
_TIGHTEST = 1000


class Sequence(Protocol):
    """Means of p quantities over units that arrive in batches."""

    def update(self, values: Floats) -> Self:
        """With a batch of values ``(p, m)``."""
        ...

    @property
    def value(self) -> Floats:
        """``(p,)``: what the interval is about."""
        ...

    def interval(self) -> Floats:
        """``(p, 2)``."""
        ...


@dataclass(frozen=True, eq=False)
class EmpiricalBernstein:
    """Of values between two bounds, exact at every number of units (Waudby-Smith and Ramdas 2024, theorem 2).

    Values become x in [0, 1], and with predictable numbers l_i, which depend on earlier values alone,

        sum l x / sum l  +-  (log(2/alpha) + sum (x_i - m_{i-1})^2 (-log(1 - l_i) - l_i)) / sum l

    holds the mean at all times together with probability 1 - alpha; where the mean changes, the mean of the means with
    the same weights. m is the running mean; l_i is sqrt(2 log(2/alpha) / (v i log(1 + i))) with the running variance v,
    at most 1/2.

    ``totals (6, p)``: the sums of x and of its squared distances, of l and l x, of what is added to the width; and the
    number of units.
    """

    low: float
    high: float
    alpha: float
    totals: Floats

    @classmethod
    def of(cls, count: int, low: float, high: float, level: float) -> EmpiricalBernstein:
        return cls(low, high, 1.0 - level, np.zeros((6, count)))

    def update(self, values: Floats) -> EmpiricalBernstein:
        sums, squares, *_, before = self.totals
        m, x = values.shape[1], (values - self.low) / (self.high - self.low)
        place = before[:, None] + np.arange(1, m + 1)
        running = sums[:, None] + np.cumsum(x, axis=1)
        mean = (0.5 + running) / (place + 1.0)
        earlier = (0.5 + running - x) / place  # that of the units before
        distance = (x - mean) ** 2
        total = squares[:, None] + np.cumsum(distance, axis=1)
        variance = (0.25 + total - distance) / place
        bet = np.sqrt(2.0 * math.log(2.0 / self.alpha) / (variance * place * np.log1p(place)))
        bet = np.minimum(bet, _MOST)
        width = (x - earlier) ** 2 * (-np.log1p(-bet) - bet)
        added = [x.sum(axis=1), distance.sum(axis=1), bet.sum(axis=1), (bet * x).sum(axis=1), width.sum(axis=1)]
        new = np.stack([*added, np.full(len(x), float(m))])
        return replace(self, totals=self.totals + new)

    @property
    def value(self) -> Floats:
        return self._back(self.totals[3] / self.totals[2])

    def interval(self) -> Floats:
        centre, half = self.totals[3] / self.totals[2], (math.log(2.0 / self.alpha) + self.totals[4]) / self.totals[2]
        lower, upper = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
        return np.stack([self._back(lower), self._back(upper)], axis=1)

    def _back(self, x: Floats) -> Floats:
        return np.asarray(self.low + (self.high - self.low) * x)


@dataclass(frozen=True, eq=False)
class Asymptotic:
    """Of values of any size, for many units (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, theorem 2.2).

    The boundary of a Gaussian mixture martingale with the running standard deviation in the place of the true one:
    mean +- sd sqrt(2 (t r^2 + 1)/(t r)^2 log(sqrt(t r^2 + 1)/alpha)), with r such that it is narrowest at 1000 units.
    It holds at all times from a number of units on, as a normal approximation does at one.
    """

    alpha: float
    totals: Floats  # (3, p): sums, sums of squares about the mean, numbers of units

    @classmethod
    def of(cls, count: int, level: float) -> Asymptotic:
        return cls(1.0 - level, np.zeros((3, count)))

    def update(self, values: Floats) -> Asymptotic:
        sums, squares, before = self.totals
        m = values.shape[1]
        own = values.sum(axis=1)
        spread = np.sum((values - own[:, None] / m) ** 2, axis=1)
        apart = (own / m - sums / np.maximum(before, 1.0)) ** 2 * before * m / (before + m)  # Chan's formula
        return replace(self, totals=np.stack([sums + own, squares + spread + apart, before + m]))

    @property
    def value(self) -> Floats:
        return np.asarray(self.totals[0] / self.totals[2])

    def interval(self) -> Floats:
        count = self.totals[2]
        best = -2.0 * math.log(self.alpha)
        scale = (best + math.log1p(best)) / _TIGHTEST
        spread = np.sqrt(self.totals[1] / np.maximum(count - 1.0, 1.0))
        grown = count * scale + 1.0
        half = spread * np.sqrt(2.0 * grown / (count**2 * scale) * np.log(np.sqrt(grown) / self.alpha))
        return np.stack([self.value - half, self.value + half], axis=1)
