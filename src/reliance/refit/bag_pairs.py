"""The rows that each member of a bag was not fitted on, who lends to whom among them, and what that can change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from reliance._core import streams
from reliance._core.checks import warn
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.models.calling import name_of
from reliance.refit.bag_trees import Words, bits
from reliance.refit.bagged import Bag

Floats = NDArray[np.float64]


def left_out(bag: Bag, n: int, weights: Floats | None) -> dict[int, Indices]:
    """For each member that can be measured, the rows that it was not fitted on: two, of which one counts."""
    found: dict[int, Indices] = {}
    for number, samples in enumerate(bag.samples):
        outside = np.ones(n, dtype=bool)
        outside[samples] = False
        rows = np.flatnonzero(outside)
        if len(rows) >= 2 and (weights is None or weights[rows].any()):
            found[number] = rows
    if not found:
        raise ValueError(
            f"forest={name_of(bag.source)} left no rows out of its bags, so there is nothing to measure it on: fit it "
            "with bootstrap=True, or use permutation_importance on data that it was not fitted on"
        )
    if len(found) < len(bag.samples):
        warn(
            f"{len(bag.samples) - len(found)} of {len(bag.samples)} members left fewer than 2 rows out of their bags, "
            "or none with a weight, and are not measured"
        )
    return found


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a member and a row that was out of its bag, of some members and in their order.

    Attributes
    ----------
    n : int
        Rows of X.
    members : tuple of int
    row : integer array (M,)
    donor : integer array (M, K)
        The rows of X that lend to it.
    tree : integer array (M,)
        The place of its member among ``members``; ``bounds`` (B + 1,): where the pairs of each begin and end.
    weight : array (M,)
        w: the same sum for each member of the bag, and 1 in all.
    """

    n: int
    members: tuple[int, ...]
    row: Indices
    donor: Indices
    tree: Indices
    bounds: Indices
    weight: Floats
    weighted: bool

    @property
    def draws(self) -> int:
        return int(self.donor.shape[1])

    @cached_property
    def member(self) -> Indices:
        return np.asarray(self.members)[self.tree]

    def each(self) -> Iterator[tuple[int, slice]]:
        """The members, and where their pairs are."""
        for member, start, stop in zip(self.members, self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            yield member, slice(start, stop)

    @cached_property
    def by_row(self) -> sparse.csc_array:
        """(n, B): the weight of a row in a member."""
        return sparse.csc_array((self.weight, self.row, self.bounds), shape=(self.n, len(self.members)))

    @cached_property
    def by_donor(self) -> sparse.csc_array:
        """(n, B): the weight of the rows that borrowed from a row, over K."""
        if not self.weighted:  # each row lends as often as it borrows
            return self.by_row
        entries = np.repeat(self.weight / self.draws, self.draws), self.donor.reshape(-1), self.bounds * self.draws
        return sparse.csc_array(entries, shape=(self.n, len(self.members)))


def make_pairs(
    outside: Mapping[int, Indices], n: int, key: int, draws: int, weights: Floats | None, members: int
) -> Pairs:
    """The pairs of some of so many members."""
    sizes = np.array([len(rows) for rows in outside.values()])
    row = np.concatenate(list(outside.values()))
    donor = np.concatenate([rows[shifted(key, len(rows), number, draws)] for number, rows in outside.items()])
    tree = np.repeat(np.arange(len(sizes)), sizes)
    own = np.ones(len(row)) if weights is None else weights[row]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    weight = own / (members * np.bincount(tree, own)[tree])
    return Pairs(n, tuple(outside), row, donor, tree, bounds, weight, weights is not None)


def shifted(key: int, m: int, member: int, draws: int) -> Indices:
    """``(m, K)``: the donors among a member's m rows. m - 1 shifts are all pairs; after them they begin again."""
    order = streams.ordering(key, m, member)
    position = np.empty(m, dtype=np.int64)
    position[order] = np.arange(m)
    shifts = np.resize(streams.shifts(key, m, member), draws)
    return streams.as_indices(order[(position[:, None] + shifts) % m])


class Uses(NamedTuple):
    """Replacements that can change an answer: of which feature, of which pair, in which draw, (U,) each."""

    feature: Indices
    pair: Indices
    draw: Indices

    def at(self, places: Indices | slice) -> Uses:
        return Uses(self.feature[places], self.pair[places], self.draw[places])


def find_uses(pairs: Pairs, flips: Words, width: int, features: Sequence[Feature]) -> Uses:
    """The uses that matter, member by member, so that a tree stays in the cache while it is asked.

    ``flips (M, K, words)``: the columns that can change the answer, for each pair and draw.
    """
    wanted = np.stack([bits(feature.columns, width) for feature in features])
    asked = [(place, np.flatnonzero(words)) for place, words in enumerate(wanted.T) if words.any()]
    found: list[tuple[Indices, ...]] = []
    for _, at in pairs.each():
        own = flips[at]
        met = np.zeros((len(features), *own.shape[:2]), dtype=bool)
        for place, some in asked:
            met[some] |= own[..., place] & wanted[some, place][:, None, None] != 0
        feature, pair, draw = np.nonzero(met)
        found.append((feature, pair + at.start, draw))
    return Uses(*(np.concatenate(part) for part in zip(*found, strict=True)))


def padded_columns(features: Sequence[Feature]) -> Indices:
    """``(g, p)``: the first, second, ... column of each feature; one with fewer columns repeats its last."""
    most = max(len(feature.columns) for feature in features)
    return np.array([[f.columns[min(g, len(f.columns) - 1)] for f in features] for g in range(most)])
