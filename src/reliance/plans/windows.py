"""Stretches of a sorted order, and the places that rows borrow from in each draw: the geometry of `Ranked`.

Places 0..n-1 of the donors' order are cut into J windows. The rows stand in a random order of their own, a row at its
place q. Draw k = j J + h moves every row on by a bound, t = (q + B_h) mod n, and turns each window by an offset
of its own, so every draw is a bijection from rows to places. Everything is a roll or a turn of contiguous arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams
from reliance._core.streams import Indices

Floats = NDArray[np.float64]
# Cells of a table of rows and stretches that is made; larger ones are bounded.
_COUNTED = 2**20
# Entries of tables of all draws, if they are kept.
_KEPT = 2**20
# Rows up to which all draws are made together: the temporary arrays of more leave a core's cache.
_TOGETHER = 2**12


def radical_inverse(j: int) -> float:
    """0, 1/2, 1/4, 3/4, 1/8, ...: the binary digits of j behind the point, in reverse."""
    value, half = 0.0, 0.5
    while j:
        value, j, half = value + half * (j & 1), j >> 1, half / 2.0
    return value


def thue_morse(count: int) -> NDArray[np.int8]:
    """``(count,)``: +1 -1 -1 +1 -1 +1 +1 -1 ..., which is orthogonal to every low polynomial of its places."""
    signs = np.ones(1, dtype=np.int8)
    while len(signs) < count:
        signs = np.concatenate([signs, -signs])
    return signs[:count]


class Tables(NamedTuple):
    """Of all draws, ``(K, n)`` each: the row at each place, and for each row its place and its sign."""

    users: Indices
    places: Indices
    signs: NDArray[np.int8]

    @classmethod
    def of(cls, places: Indices, signs: NDArray[np.int8]) -> Tables:
        """The rows at the places follow from the places of the rows."""
        users, rows = np.empty_like(places), np.arange(places.shape[1])
        for own, place in zip(users, places, strict=True):
            own[place] = rows
        return cls(users, places, signs)


@dataclass(frozen=True)
class Windows:
    """J windows of n places, a random order of the rows, and the turns of the draws, all from a key."""

    n: int
    count: int
    key: int

    @cached_property
    def bounds(self) -> Indices:
        """``(J + 1,)``: B_h = floor(h n / J)."""
        return np.arange(self.count + 1, dtype=np.int64) * self.n // self.count

    @cached_property
    def sizes(self) -> Indices:
        return np.diff(self.bounds)

    @cached_property
    def order(self) -> Indices:
        """The row at each place q."""
        return streams.ordering(self.key, self.n, 0)

    @cached_property
    def position(self) -> Indices:
        """The place q of each row."""
        places = np.empty(self.n, dtype=np.int64)
        places[self.order] = np.arange(self.n)
        return places

    @cached_property
    def _signs(self) -> NDArray[np.int8]:
        """``(n,)``: the Thue-Morse sign of the window at each place."""
        return np.repeat(thue_morse(self.count), self.sizes)

    def signs(self, k: int) -> NDArray[np.int8]:
        """``(n,)``: the sign of draw k at each place t: that of its window, and of its cycle in the same sequence.

        So two cycles that share a stretch of a window have different signs, and what is left is their difference.
        """
        return self._signs if (k // self.count).bit_count() % 2 == 0 else -self._signs

    @property
    def nbytes(self) -> int:
        """Of the arrays above and of what one draw needs on the way."""
        return 8 * 7 * self.n

    def shift(self, k: int) -> int:
        """By how many places draw k moves the rows on: whole windows, far apart first, so that few draws are spread."""
        return int(self.bounds[self._spread_out[k % self.count]])

    @cached_property
    def _spread_out(self) -> list[int]:
        return sorted(range(self.count), key=radical_inverse)

    def turned(self, k: int) -> Indices:
        """``(n,)``: the donor's place for each t.

        The first cycle turns each window. Cycle 2^p + i takes the places of cycle i to the other half of a 2^p-th of
        their window, and turns each half: so 2^p cycles give a row one donor of each 2^p-th of each window. Turns are
        drawn anew, because steps of 1/2, 1/4, ... would fall in step with a pattern of the order, weekdays say. And
        a row takes its neighbour's place, so that not the same rows miss a window in every cycle if sizes are unequal.
        """
        level = (k // self.count).bit_length()
        if level == 0:
            return self._turn(0, self._shares(k))
        before = np.roll(self.turned(k - (self.count << (level - 1))), -1)
        return self._turn(level, self._shares(k))[self._turn(level - 1, None)[before]]

    def turned_back(self, k: int) -> Indices:
        """``(n,)``: the t of each donor's place."""
        level = (k // self.count).bit_length()
        if level == 0:
            return self._turn(0, self._shares(k), back=True)
        before = (self.turned_back(k - (self.count << (level - 1))) - 1) % self.n
        return before[self._turn(level - 1, None, back=True)[self._turn(level, self._shares(k), back=True)]]

    def _shares(self, k: int) -> Floats:
        """In [0, 1): by how much of it draw k turns each part of a window."""
        return streams.turns(self.key, self.count << (k // self.count).bit_length(), k)

    def _turn(self, level: int, shares: Floats | None, back: bool = False) -> Indices:
        """``(n,)``: where places go if every 2^level-th of each window is turned, by half of it without shares.

        Shares ``(draws, parts)`` are those of several draws, whose places ``(draws, n)`` are found at once.
        """
        bounds = np.arange((self.count << level) + 1, dtype=np.int64) * self.n // (self.count << level)
        sizes = np.diff(bounds)
        steps = sizes // 2
        if shares is not None:  # a size times the largest number below 1 can round up to the size
            steps = np.minimum((shares * sizes).astype(np.int64), np.maximum(sizes - 1, 0))
        if back:
            steps = np.where(steps > 0, sizes - steps, 0)
        part = np.repeat(np.arange(len(sizes)), sizes)
        places = np.take(steps, part, axis=-1)
        places += np.arange(self.n)
        # What is turned beyond its part begins it again; in place, because small problems feel every temporary array.
        np.subtract(places, sizes[part], out=places, where=places >= bounds[1:][part])
        return streams.as_indices(places)

    def places(self, k: int) -> Indices:
        """``(n,)``: the donor's place for each row."""
        return np.roll(self.turned(k), -self.shift(k))[self.position]

    def users(self, k: int) -> Indices:
        """``(n,)``: the row that borrows from each place."""
        return np.roll(self.order, self.shift(k))[self.turned_back(k)]

    def kept_bytes(self, draws: int) -> int:
        """Of the tables of all draws, which small problems keep: blocks and every feature's errors ask for them."""
        return 25 * self.n * draws if self.n * draws <= _KEPT else 0

    def tables(self, draws: int) -> Tables | None:
        """Of so many draws, made once; None if they would be too large to keep."""
        if self.n * draws > _KEPT:
            return None
        last: tuple[int, Tables] | None = self.__dict__.get("_last_tables")
        if last is None or last[0] != draws:
            together = draws <= self.count and self.n <= _TOGETHER
            made = self._one_cycle(draws) if together else self._draw_by_draw(draws)
            last = (draws, made)
            self.__dict__["_last_tables"] = last
        return last[1]

    def _one_cycle(self, draws: int) -> Tables:
        """All draws at once: for small problems the calls cost more than the numbers."""
        every = range(draws)
        turned = self._turn(0, np.stack([self._shares(k) for k in every]))
        t = self.position + np.asarray([self.shift(k) for k in every])[:, None]
        np.subtract(t, self.n, out=t, where=t >= self.n)  # a remainder takes several times as long
        return Tables.of(np.take_along_axis(turned, t, axis=1), self._signs[t])

    def _draw_by_draw(self, draws: int) -> Tables:
        every = range(draws)
        return Tables.of(np.stack([self.places(k) for k in every]), np.stack([self.row_signs(k) for k in every]))

    def spread(self, v: Floats, draws: int) -> Floats:
        """``(n,)``: for each place the sum of ``v[i]`` over the rows i that borrow from it."""
        tables = self.tables(draws)
        if tables is not None:
            return np.asarray(np.take(v, tables.users).sum(axis=0))
        ordered, total = v[self.order], np.zeros(self.n)
        for k in range(draws):
            total += np.roll(ordered, self.shift(k))[self.turned_back(k)]
        return total

    def contrasted(self, g: Floats, draws: int) -> Floats:
        """``(n,)``: for each row the sum over its donors of ``g[place]``, times how far its sign is from their mean."""
        tables, means = self.tables(draws), self.sign_sums(draws) / draws
        if tables is not None:
            return np.asarray(np.einsum("ki,ki->i", np.take(g, tables.places), self._centred(draws, tables, means)))
        signed, plain = np.zeros(self.n), np.zeros(self.n)
        for k in range(draws):
            given, shift = g[self.turned(k)], -self.shift(k)
            signed += np.roll(given * self.signs(k), shift)
            if means.any():
                plain += np.roll(given, shift)
        return np.asarray(signed[self.position] - means * plain[self.position])

    def _centred(self, draws: int, tables: Tables, means: Floats) -> Floats:
        """``(K, n)``: the signs less their mean over the draws of a row, kept with the tables."""
        last: tuple[int, Floats] | None = self.__dict__.get("_last_centred")
        if last is None or last[0] != draws:
            last = (draws, tables.signs - means)
            self.__dict__["_last_centred"] = last
        return last[1]

    def row_signs(self, k: int) -> NDArray[np.int8]:
        """``(n,)``: the sign of the window that each row borrows from."""
        return np.roll(self.signs(k), -self.shift(k))[self.position]

    def sign_sums(self, draws: int) -> Floats:
        """``(n,)``: the sum of the signs of a row's donors; 0 but for odd J, unequal windows and broken cycles."""
        last: tuple[int, Floats] | None = self.__dict__.get("_last_sums")
        if last is None or last[0] != draws:
            last = (draws, self._made_sign_sums(draws))
            self.__dict__["_last_sums"] = last
        return last[1]

    def _made_sign_sums(self, draws: int) -> Floats:
        tables = self.tables(draws)
        if tables is not None:
            return np.asarray(tables.signs.sum(axis=0, dtype=np.float64))
        total = np.zeros(self.n)
        for k in range(draws):
            total += np.roll(self.signs(k), -self.shift(k))
        return total[self.position]

    def uneven(self, draws: int) -> float:
        """How unevenly rows meet the stretches of so many draws: 0 in one cycle if n is a multiple of them.

        The squared differences between how often a row borrows from a stretch and its share of the places, summed over
        the stretches and averaged over rows. In a plan that grows, of its first J 2^p draws, and in proportion of the
        rest. Of large tables, where it is next to nothing, a bound: two rows of each stretch meet half of them twice.
        """
        whole = draws // self.count
        if whole == 0 or self.n <= draws:
            return 0.0
        last: tuple[int, float] | None = self.__dict__.get("_last_uneven")
        if last is None or last[0] != draws:
            stretches = self.count << (whole.bit_length() - 1)
            last = (draws, self._made_uneven(stretches, draws) * whole * self.count / stretches)
            self.__dict__["_last_uneven"] = last
        return last[1]

    def _made_uneven(self, stretches: int, draws: int) -> float:
        if self.n % stretches == 0 and stretches == self.count:
            return 0.0
        if self.n * stretches > _COUNTED:
            return 2.0 * stretches**2 / self.n
        bounds = np.arange(stretches + 1, dtype=np.int64) * self.n // stretches
        stretch = np.repeat(np.arange(stretches), np.diff(bounds))
        tables = self.tables(draws)
        places = np.stack([self.places(k) for k in range(stretches)]) if tables is None else tables.places[:stretches]
        cells = np.arange(self.n) * stretches + stretch[places]
        met = np.bincount(cells.reshape(-1), minlength=self.n * stretches).reshape(self.n, stretches)
        return float(np.sum((met - stretches * np.diff(bounds) / self.n) ** 2) / self.n)

    def means(self, v: Floats) -> Floats:
        """``(n,)``: the mean of each place's window."""
        sums = np.add.reduceat(v, self.bounds[:-1][self.sizes > 0])
        sizes = self.sizes[self.sizes > 0]
        return np.repeat(sums / sizes, sizes)
