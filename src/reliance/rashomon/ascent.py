"""Augmented Lagrangian search for good models that rely little or much on a feature; no framework is named here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance import functional
from reliance._core import arrays, loops, streams
from reliance._core.arrays import device, namespace
from reliance._core.kinds import Array
from reliance.engine import kernels
from reliance.engine.kernels import Predict
from reliance.rashomon.frameworks import Operands, Optimiser, Pressure
from reliance.samplers.draws import take_columns
from reliance.samplers.regressors import least_squares

_ROUNDS = 20  # of the multiplier
_SURFACE = 1e-5  # of the radius


@dataclass(frozen=True)
class Schedule:
    """Rates that fall to 0, and the donors of each step: new ones in every step, unless all are taken.

    Attributes
    ----------
    n, key : int
        Rows, and the key of the random numbers.
    steps : int
    rate : float
        At the beginning.
    count : int
        Donors of a row in a step.
    """

    n: int
    key: int
    steps: int
    rate: float
    count: int

    def donors(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """(T, count): the shifts of some steps, from one permutation of 1..n-1, again from its beginning at its end."""
        every = streams.shifts(self.key, self.n, 0)
        first = np.zeros_like(steps) if self.count >= self.n - 1 else steps * self.count
        return np.take(every, first[:, None] + np.arange(min(self.count, self.n - 1)), mode="wrap")

    def rounds(self) -> Iterator[tuple[list[float], NDArray[np.int64]]]:
        """Rates and donors, equally many a round: what is beyond the last step has the rate 0."""
        period = math.ceil(self.steps / _ROUNDS)
        for start in range(0, self.steps, period):
            at = np.arange(start, start + period)
            falling = 0.5 * self.rate * (1.0 + np.cos(np.pi * np.minimum(at / self.steps, 1.0)))
            yield falling.tolist(), self.donors(at)


def exchanged(X: Array, columns: tuple[int, ...], conditional: bool) -> tuple[Array, Array]:
    """What rows keep and what they lend, (n, P) each: the feature itself, or what least squares leaves of it."""
    xp, width = namespace(X), X.shape[1]
    mask, places = np.zeros(width, dtype=bool), np.zeros(width, dtype=np.int64)
    mask[list(columns)], places[list(columns)] = True, np.arange(len(columns))
    stays = xp.zeros_like(X)
    if conditional:
        rest = [j for j in range(width) if j not in columns]
        others = take_columns(X, rest) if rest else X[:, :0]
        predicted = least_squares(others, take_columns(X, columns), labels=rest).predict(others)
        stays = take_columns(predicted, places.tolist())
    kept = xp.where(arrays.from_host(mask, xp, device(X)), stays, X)
    return kept, X - kept


def loss_sums(predict: Predict, operands: Operands, shifts: Array, loss: str, cells: int) -> Array:
    """(2,): the sum of the rows' losses, and of those with the feature of row (i + s) mod n over all shifts s.

    A gradient keeps what the model computes of at most so many cells; blocks of rows are computed again for it.
    """
    X, y, kept, lent = operands
    xp, (n, width), count = namespace(X), X.shape, shifts.shape[0]
    rows = math.ceil(n / math.ceil(n / max(cells // (count + 1), 1)))  # equal blocks

    def strip(start: int) -> Array:
        at, inside = functional.strip_rows(X, start, rows)
        own = xp.take(X, at, axis=0)
        values = own[:, None, :]
        if count:
            lending = kernels.scrambled(kept, lent, at, (at[:, None] + shifts) % n)
            values = xp.concat([values, lending], axis=1)
        found = functional.switched_losses(predict, own, xp.take(y, at, axis=0), range(width), values, loss=loss)
        found = xp.where(inside[:, None], found, xp.zeros_like(found))
        return xp.stack([xp.sum(found[:, 0]), xp.sum(found[:, 1:])])

    return strip(0) if rows == n else loops.rematerialised_sum(strip, np.arange(0, n, rows), X)


def lagrangian(risk: Array, switched: Array, compare: str, pressure: Pressure) -> Array:
    """The signed reliance, plus the augmented Lagrangian of log(risk) <= log(bound).

    Nocedal and Wright (17.65): (max(0, multiplier + weight c)^2 - multiplier^2) / (2 weight) for the constraint c <= 0;
    the last term is constant.
    """
    xp = namespace(risk)
    change = xp.log(switched) - xp.log(risk) if compare == "ratio" else (switched - risk) / pressure.scale
    pressed = pressure.multiplier + pressure.weight * (xp.log(risk) - pressure.log_bound)
    pressed = xp.where(pressed > 0, pressed, xp.zeros_like(pressed))
    return pressure.sign * change + pressed**2 / (2 * pressure.weight)


def tangential(slope: Array, theta: Array, radius: float) -> Array:
    """The slope without what leads out of the ball, for parameters on its surface.

    Scaling back after a step is not enough: Adam gives all coordinates steps of one size, so that a slope along theta
    becomes a step in another direction, and the search would settle beside the minimum.
    """
    xp = namespace(theta)
    along, square = xp.sum(slope * theta), xp.sum(theta * theta)
    outward = xp.logical_and(along < 0, square >= (radius * (1.0 - _SURFACE)) ** 2)
    return slope - xp.where(outward, along / square, xp.zeros_like(along)) * theta


def pressure_at(sign: float, bound: float, least: float) -> Pressure:
    """The first round's. Violations count against the width of the set of good models."""
    weight = 10.0 / max(math.log(bound / least), 1e-3)
    return Pressure(sign, 0.0, weight, math.log(bound), least)


NO_PRESSURE = Pressure(1.0, 0.0, 1.0, math.inf, 1.0)  # any risk will do


def search(optimiser: Optimiser, start: Array, operands: Operands, schedule: Schedule, pressure: Pressure) -> Array:
    """Rounds of steps with a falling rate; after each round the multiplier follows the risk. The last parameters."""
    X = operands.X
    xp, dev = namespace(X), device(X)
    state, reached = optimiser.start(start), start
    for rates, donors in schedule.rounds():
        shifts = arrays.from_host(donors, xp, dev, arrays.index_dtype(xp))
        state, theta, last = optimiser.run(state, operands, rates, shifts, pressure)
        risk = float(arrays.to_host(last))
        if not math.isfinite(risk):
            return reached
        reached = theta
        if risk == 0.0:
            break
        excess = pressure.weight * (math.log(risk) - pressure.log_bound)
        pressure = pressure._replace(multiplier=max(0.0, pressure.multiplier + excess))
    return reached
