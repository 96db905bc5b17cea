"""Joint moments of all features with the residuals, in one pass over the rows whose arrays stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance.data.features import Feature

Floats = NDArray[np.float64]
# Powers of z (a feature's part of a linear prediction), of the residual and of the weight.
Monomial: TypeAlias = tuple[int, int, int]
# The highest power of z and residual together: influence values are squares, and their third moment is wanted.
DEGREE = 6
# Bytes of one number for each feature and row of a chunk: a few such arrays stay in the cache.
_CHUNK_BYTES = 300_000
# Rows, and numbers, that say well enough where columns lie: powers are taken about that point and moved to the mean at
# the end.
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 1024, 2**17
# Sixth powers about a point lose a digit or two if the mean is half a standard deviation away, four if it is three. The
# first is for columns that need not be centred, the second for what the sample has not seen.
_NEAR, _FAR = 0.5, 3.0
# Spreads and coefficients whose sixth powers neither overflow nor underflow.
_MODERATE = (1e-25, 1e25)
# A sum of sixth powers below this has lost digits to underflow.
_TINY = 1e-280


@dataclass(frozen=True)
class Effects:
    """The parts of a linear prediction, z = gain * sum of coef (x - centre) over the columns of each feature.

    Attributes
    ----------
    flat : array (n, P)
    columns, centre, coef : arrays (C,)
        The columns of all features, one feature after the other.
    starts, gain : arrays (F,)
        Where each feature's columns begin. Without groups the coefficients are in ``gain``: the moments are multiplied
        with their powers at the end, instead of every number.
    """

    flat: Array
    columns: NDArray[np.int64]
    centre: Floats
    coef: Floats
    starts: NDArray[np.int64]
    gain: Floats

    @classmethod
    def of(cls, flat: Array, features: Sequence[Feature], coef: Floats) -> Effects:
        columns = np.concatenate([np.asarray(feature.columns, dtype=np.int64) for feature in features])
        starts = np.cumsum([0, *(len(feature.columns) for feature in features[:-1])])
        rows = max(8, min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // flat.shape[1]))
        sample = _float64(arrays.to_host(flat[:: max(1, flat.shape[0] // rows), :])[:, columns])
        with np.errstate(over="ignore"):
            centre, spread = np.mean(sample, axis=0), np.std(sample, axis=0)
        own, ones, (low, high) = coef[columns], np.ones(len(columns)), _MODERATE
        sizes = np.stack([spread, np.abs(own)])
        single = len(starts) == len(columns) and bool(np.all((sizes == 0.0) | ((sizes > low) & (sizes < high))))
        coef, gain = (ones, own) if single else (own, ones[: len(starts)])
        # Columns that lie about 0 need not be moved: one array less for the cache to hold.
        about_0 = bool(np.all(np.abs(centre) <= _NEAR * spread))
        return cls(flat, columns, np.zeros(len(columns)) if about_0 else centre, coef, starts, gain)

    @property
    def chunk_rows(self) -> int:
        # A multiple of 8 rows begins on a cache line if the array does.
        return max(_CHUNK_BYTES // (8 * max(len(self.columns), int(self.flat.shape[1]))) // 8 * 8, 8)


class JointSums:
    """Sums over rows of z^a e^b w^c for all features, a + b <= 6, to which `add` adds some rows."""

    def __init__(self, effects: Effects, weighted: bool) -> None:
        self.effects, self.factors = effects, _factors(weighted)
        rows, width, features = effects.chunk_rows, len(effects.columns), len(effects.starts)
        self.totals = np.zeros(len(self.factors))
        # How many factors go with each power of z. A product with one line is several times slower than with two.
        self.counts = [max(2, sum(a + b <= DEGREE for b, _ in self.factors)) for a in range(1, DEGREE + 1)]
        self.sums = np.zeros((sum(self.counts), features))
        self.part = np.empty_like(self.sums)
        self.parts = np.split(self.part, np.cumsum(self.counts)[:-1])  # views, one for each power
        self.whole = bool(np.array_equal(effects.columns, np.arange(effects.flat.shape[1])))
        # Constants repeated for each row: one long loop instead of a short one for each row.
        self.centre = _aligned(rows, width, effects.centre) if np.any(effects.centre) else None
        self.coef = _aligned(rows, width, effects.coef) if np.any(effects.coef != 1.0) else None
        self.gathered = _aligned(rows, width)
        self.room = _aligned(rows, features), _aligned(rows, features), _aligned(rows, features)

    def add(self, flat: HostArray, e: Floats, w: Floats | None, coef: Floats) -> Floats:
        """Add rows (m, P) with their residuals and weights (m,); returns ``flat @ coef``, which costs little here."""
        products, rows = np.empty(len(e)), self.effects.chunk_rows
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # `centred` sees what came of it
            lines = self._lines(e, w)
            self.totals += np.sum(lines, axis=1)
            for start in range(0, len(e), rows):
                stop = min(start + rows, len(e))
                x = _float64(flat[start:stop, :])
                np.matmul(x, coef, out=products[start:stop])
                z = self._effects(x)
                # What is not the user's can be written over: the fewer arrays, the more rows the cache holds.
                self._add(z, z if z is not x else self.room[2][: len(z)], lines[:, start:stop])
        return products

    def _add(self, z: Floats, fifth: Floats, lines: Floats) -> None:
        square, cube = self.room[0][: len(z)], self.room[1][: len(z)]
        p1, p2, p3, p4, p5, p6 = self.parts
        np.matmul(lines[: len(p1)], z, out=p1)
        np.matmul(lines[: len(p2)], np.multiply(z, z, out=square), out=p2)
        np.matmul(lines[: len(p3)], np.multiply(z, square, out=cube), out=p3)
        np.matmul(lines[: len(p5)], np.multiply(square, cube, out=fifth), out=p5)
        np.matmul(lines[: len(p4)], np.multiply(square, square, out=square), out=p4)
        np.matmul(lines[: len(p6)], np.multiply(cube, cube, out=cube), out=p6)
        self.sums += self.part

    def _effects(self, x: Floats) -> Floats:
        m, effects = len(x), self.effects
        z = x if self.whole else x[:, effects.columns]
        if self.centre is not None:
            z = np.subtract(z, self.centre[:m], out=self.gathered[:m])
        if self.coef is not None:
            z = np.multiply(z, self.coef[:m], out=self.gathered[:m])
        if len(effects.starts) < len(effects.columns):
            z = np.add.reduceat(z, effects.starts, axis=1)
        return z

    def _lines(self, e: Floats, w: Floats | None) -> Floats:
        """The factors of each row, (k, m)."""
        lines = np.ones((len(self.factors), len(e)))
        for k, (b, c) in enumerate(self.factors):
            if b > 0:
                np.multiply(lines[self.factors.index((b - 1, c))], e, out=lines[k])
            elif w is not None and c > 0:
                np.multiply(lines[k - 1], w, out=lines[k])
        return lines

    def centred(self) -> tuple[dict[Monomial, Floats], NDArray[np.bool_]]:
        """The sums (F,) of z^a e^b w^c with z less its mean, by (a, b, c), and for which features they are precise."""
        powers = [self.totals[:, None], *np.split(self.sums, np.cumsum(self.counts)[:-1])]
        away = powers[1][0] / powers[0][0]  # the mean of z
        with np.errstate(over="ignore", invalid="ignore"):
            found = {
                (a, b, c): sum(comb(a, i) * (-away) ** (a - i) * powers[i][k] for i in range(a + 1))
                for a in range(DEGREE + 1)
                for k, (b, c) in enumerate(self.factors)
                if a + b <= DEGREE
            }
            near = powers[0][0] * away**2 < _FAR**2 * found[2, 0, 0]
            normal = (powers[6][0] > _TINY) & np.isfinite(powers[6][0])
            return {(a, b, c): self.effects.gain**a * total for (a, b, c), total in found.items()}, near & normal


def _factors(weighted: bool) -> list[tuple[int, int]]:
    """The powers (b, c) of residual and weight that come with powers of z, by increasing b.

    The residual enters a kernel with the weight only, and at most as a square: b <= 2c.
    """
    powers = range(DEGREE + 1)
    return [(b, c) for b in powers for c in range(4) if b <= 2 * c] if weighted else [(b, 0) for b in powers]


def _aligned(rows: int, width: int, values: Floats | None = None) -> Floats:
    """Room for (rows, width) numbers that begins on a cache line: everything is twice as fast there."""
    raw = np.empty(rows * width + 8)
    start = -raw.ctypes.data % 64 // 8
    found = raw[start : start + rows * width].reshape(rows, width)
    if values is not None:
        found[...] = values
    return found


def _float64(x: HostArray) -> Floats:
    return np.asarray(x, dtype=np.float64)
