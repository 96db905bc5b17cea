"""One seed, the same indices on every backend, at every block size.

Every random index is drawn on the host from a counter-based generator, ``Philox(key, counter)``, so that any range of
any draw can be made on its own, in any order, and is uploaded explicitly where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import shown

Indices: TypeAlias = NDArray[np.int64]
RandomState: TypeAlias = (
    int | Sequence[int] | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None
)

# The third counter word says what the numbers are for; the fourth counts draws (or orderings).
_DONORS, _ORDER, _SHIFTS, SIGNS, _UNIFORMS, LABELS, FOLDS, _TURNS, _TIES, _LENT, NOISE, MULTIPLIERS = range(12)


def resolve_key(rng: RandomState) -> int:
    """The Philox key of a run.

    A non-negative integer below 2**128 is the key itself. Anything else that `numpy.random.default_rng` takes (SPEC 7)
    makes a Generator, which is consumed once, for the key.
    """
    if isinstance(rng, bool | float | np.floating | np.bool_ | np.random.RandomState):
        raise TypeError(
            f"rng={shown(rng)} is not a seed: pass None, an integer, a SeedSequence or a numpy.random.Generator "
            "(numpy.random.default_rng(...))"
        )
    if isinstance(rng, int | np.integer):
        if not 0 <= int(rng) < 2**128:
            raise ValueError(f"rng={rng} is out of range: an integer seed must be in [0, 2**128)")
        return int(rng)
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"rng={shown(rng)} is not a seed: pass None, an integer, a SeedSequence or a numpy.random.Generator"
        ) from error
    return int(generator.integers(2**63, dtype=np.int64))


def stream(key: int, purpose: int, index: int, skip: int = 0) -> np.random.Generator:
    """The generator of one purpose and index, after ``skip`` counter steps of four 64-bit numbers each."""
    return np.random.Generator(np.random.Philox(key=key, counter=[skip, 0, purpose, index]))


def ordering(key: int, n: int, cycle: int) -> Indices:
    """The random ordering of the rows of one cycle of the circulant design."""
    return stream(key, _ORDER, cycle).permutation(n)


def shifts(key: int, n: int, cycle: int) -> Indices:
    """All shifts 1..n-1 in random order; K draws are the first K of them, so they begin every larger number."""
    return stream(key, _SHIFTS, cycle).permutation(n - 1) + 1


def turns(key: int, count: int, draw: int) -> NDArray[np.float64]:
    """``(count,)`` numbers in [0, 1): by how much one draw turns each window of the donors' order."""
    return stream(key, _TURNS, draw).random(count)


def tie_order(key: int, n: int) -> Indices:
    """A random ordering of the rows that says which of equal values comes first; not that of the rows' places."""
    return stream(key, _TIES, 0).permutation(n)


def lent_order(key: int, count: int, group: int) -> Indices:
    """A random ordering of the lenders of one group, or of the steps between them."""
    return stream(key, _LENT, group).permutation(count)


def iid_donors(key: int, n: int, start: int, stop: int, draw: int) -> Indices:
    """Independent uniform donors, with replacement, of rows start..stop-1 in one draw: counter ``[0, 0, 0, draw]``.

    One 64-bit number per row (a double in [0, 1) times n), so that row i's donor is the i-th of the stream whatever the
    range asked for; `Generator.integers` rejects numbers and cannot be entered in the middle.
    """
    skip, offset = divmod(start, 4)
    uniform = stream(key, _DONORS, draw, skip).random(offset + stop - start)[offset:]
    return (uniform * n).astype(np.int64)


def uniforms(key: int, start: int, stop: int, draw: int, count: int) -> NDArray[np.float64]:
    """``(stop - start, count)`` numbers in [0, 1) for rows start..stop-1 in one draw."""
    skip, offset = divmod(start * count, 4)
    return stream(key, _UNIFORMS, draw, skip).random(offset + (stop - start) * count)[offset:].reshape(-1, count)


def as_indices(values: object) -> Indices:
    return np.asarray(values, dtype=np.int64)
