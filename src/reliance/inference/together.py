"""Several estimates together: intervals that all hold at once, and differences of any two.

How far each unit moves each estimate, psi (p, m), says everything about the joint errors of p estimates. Scaled to
columns z = (psi - mean) / sqrt(m (m - 1)), a contrast c'theta has the variance |c'z|^2 and the skewness sum (c'z)^3 /
|c'z|^3. A Gaussian multiplier bootstrap, z'xi with xi standard normal, has the same covariances; the largest of its
|t| says at which level each single interval has to be taken so that all hold together (Chernozhukov, Chetverikov and
Kato 2013). Each is then taken at that level with its own t quantile and its own skewness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reliance._core import streams
from reliance.inference.summary import interval

Floats = NDArray[np.float64]
_BOOTSTRAPS, _STEP = 10_000, 1000
# Estimates of which all pairs are compared by bootstraps: for more of them Bonferroni's bound costs little width.
_MOST_PAIRED = 200


def columns(parts: Sequence[Floats]) -> Floats:
    """``(p, M)``: z, of the influence values ``(p, m)`` of independent sets of units side by side."""
    scaled = []
    for psi in parts:
        m = psi.shape[1]
        scaled.append((psi - psi.mean(axis=1, keepdims=True)) / math.sqrt(m * (m - 1.0)))
    return np.concatenate(scaled, axis=1)


def errors(z: Floats) -> tuple[Floats, Floats]:
    """Standard errors ``(p,)`` and skewness ``(p,)`` of estimates; a skewness of 0 where nothing moves."""
    error = np.sqrt(np.sum(z * z, axis=1))
    unit = z / np.where(error > 0.0, error, 1.0)[:, None]
    return error, np.asarray(np.sum(unit * unit * unit, axis=1))


def single_level(z: Floats, level: float, key: int) -> float:
    """The level of each interval, so that those of all p estimates hold together with the given one."""
    error, _ = errors(z)
    moved = z[error > 0.0]
    if len(moved) < 2:
        return level
    largest = np.concatenate([np.abs(drawn).max(axis=0) for drawn in _bootstraps(moved, key, scaled=True)])
    return _level_of(largest, level, len(moved))


def pair_level(z: Floats, level: float, key: int) -> float:
    """The same for the differences of all pairs of estimates."""
    p, pairs = len(z), len(z) * (len(z) - 1) // 2
    if p > _MOST_PAIRED:
        return _bonferroni(level, pairs)
    if p < 3:
        return level
    scale = 1.0 / _distances(z)
    largest = []
    for drawn in _bootstraps(z, key, scaled=False):
        most = np.zeros(drawn.shape[1])
        for j in range(p - 1):
            apart = np.abs(drawn[j] - drawn[j + 1 :]) * scale[j, j + 1 :, None]
            np.maximum(most, apart.max(axis=0), out=most)
        largest.append(most)
    return _level_of(np.concatenate(largest), level, pairs)


def _level_of(largest: Floats, level: float, many: int) -> float:
    """The two-sided level of the quantile of the largest of so many |t|, between that of one and Bonferroni's."""
    quantile = float(np.quantile(largest, level, method="higher"))
    return min(max(level, 1.0 - 2.0 * float(special.ndtr(-quantile))), _bonferroni(level, many))


def _bonferroni(level: float, many: int) -> float:
    return 1.0 - (1.0 - level) / many


def _bootstraps(z: Floats, key: int, scaled: bool) -> Iterator[Floats]:
    """``(p, step)`` at a time: z'xi, over their standard errors if ``scaled``."""
    if scaled:
        z = z / np.sqrt(np.sum(z * z, axis=1, keepdims=True))
    if z.shape[1] > len(z):  # the same covariances from as many columns as there are estimates
        size, vectors = np.linalg.eigh(z @ z.T)
        z = vectors * np.sqrt(np.maximum(size, 0.0))
    for start in range(0, _BOOTSTRAPS, _STEP):
        yield z @ streams.stream(key, streams.MULTIPLIERS, start).standard_normal((z.shape[1], _STEP))


def _distances(z: Floats) -> Floats:
    """``(p, p)``: the standard error of each difference; infinite where two estimates move alike."""
    square = np.sum(z * z, axis=1)
    apart = square[:, None] + square[None, :] - 2.0 * (z @ z.T)
    floor = 1e-12 * np.maximum(square[:, None], square[None, :])  # what rounding leaves of nothing
    return np.asarray(np.sqrt(np.where(apart > floor, apart, np.inf)))


class Ranked(NamedTuple):
    """``first (p,)``, ``last (p,)``: the ranks that an estimate may have, 1 being the largest.

    ``above (p, p)``: whether estimate j is surely larger than estimate k.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    above: NDArray[np.bool_]


def rank_sets(values: Floats, z: Floats, df: Floats, level: float, key: int) -> Ranked:
    """Ranks that hold together with the given level: one behind those that are surely larger, and so on.

    A difference of two is taken at the level at which all differences hold together, with the fewer degrees of freedom
    of the two (Mogstad, Romano, Shaikh and Wilhelm 2024).
    """
    p = len(values)
    each, above = pair_level(z, level, key), np.zeros((p, p), dtype=np.bool_)
    for j in range(p - 1):
        gap = values[j] - values[j + 1 :]
        error, gamma = errors(z[j] - z[j + 1 :])
        with np.errstate(invalid="ignore"):
            ends = interval(gap, error, np.minimum(df[j], df[j + 1 :]), each, gamma=gamma)
            known = error > 0.0
            above[j, j + 1 :], above[j + 1 :, j] = known & (ends[:, 0] > 0.0), known & (ends[:, 1] < 0.0)
    return Ranked(1 + above.sum(axis=0), p - above.sum(axis=1), above)
