"""A few rows as they are and with a feature of another row: on them a shortcut must say what the model says.

What a model does to extreme predictions alone, such as clipping them, shows where extreme values meet extreme rows: so
each feature takes its least and its largest value in the rows of the least and the largest prediction, and besides
values of rows drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray

# Rows that are replaced, in all and for one feature; and rows that stay as they are.
_REPLACED, _EACH, _KEPT = 512, 64, 32
# Bytes of them at most; and numbers that are searched for the largest one of each column, in all and together.
_BYTES, _SEARCHED, _STRIP = 2**24, 2**22, 2**16
# A shortcut computes in another order than the model: by how many units in the last place they may differ. Of 16 bits
# not that many are left, and a shortcut cannot be told from something else.
UNITS, COARSE = 1e3, 1e-4


class Probe(NamedTuple):
    """Rows ``own``, of which the columns in ``mask`` are taken from the rows ``lent``: all (m, P), on the device."""

    own: Array
    lent: Array
    mask: Array

    @property
    def block(self) -> Array:
        """What the model is called with: a new array."""
        return arrays.namespace(self.own).where(self.mask, self.lent, self.own)


def probe(
    flat: Array,
    groups: Sequence[Sequence[int]],
    outputs: HostArray | None = None,
    lenders: Array | None = None,
    memory: int = 16 * _BYTES,
) -> Probe:
    """Rows of ``flat (n, P)`` with the columns of some features from other rows.

    Parameters
    ----------
    groups : sequence of sequences of int
        The columns of each feature. Of very many features several are replaced together.
    outputs : host array (n, ...), optional
        Predictions, whose least and largest rows are among them.
    lenders : array (N, P), optional
        Who lends, if not the rows themselves.
    memory : int
        Bytes, of which a sixteenth is taken for the rows at most.
    """
    xp, dev = arrays.namespace(flat), arrays.device(flat)
    lenders = flat if lenders is None else lenders
    affordable = max(min(_BYTES, memory // 16) // max(int(flat.shape[1]) * arrays.itemsize(flat), 1), 16)
    most = min(_REPLACED, affordable)
    parts = [np.concatenate([np.asarray(g) for g in part]) for part in _together(groups, most)]
    each = max(min(most // len(parts), _EACH), 1)
    row, donor = _pairs(flat, lenders, [int(part[0]) for part in parts], each, outputs)
    kept = np.linspace(0, flat.shape[0] - 1, min(_KEPT, affordable, flat.shape[0])).astype(np.int64)
    mask = np.zeros((len(row) + len(kept), int(flat.shape[1])), dtype=bool)
    for k, part in enumerate(parts):
        mask[k * each : (k + 1) * each, part] = True

    def taken(rows: Array, index: NDArray[np.int64]) -> Array:
        return arrays.cells(rows, arrays.from_host(index, xp, dev, arrays.index_dtype(xp)), slice(None))

    own = taken(flat, np.concatenate([row, kept]))
    return Probe(own, xp.concat([taken(lenders, donor), own[len(row) :, :]]), arrays.from_host(mask, xp, dev))


def _together(groups: Sequence[Sequence[int]], most: int) -> list[Sequence[Sequence[int]]]:
    size = -(-len(groups) // most)
    return [groups[start : start + size] for start in range(0, len(groups), size)]


def _pairs(
    flat: Array, lenders: Array, columns: list[int], each: int, outputs: HostArray | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and donors, ``each`` for each of the columns: the extreme ones first, the others drawn."""
    random = np.random.Generator(np.random.Philox(key=len(columns)))
    n, lent = int(flat.shape[0]), int(lenders.shape[0])
    row, donor = random.integers(n, size=(len(columns), each)), random.integers(lent, size=(len(columns), each))
    low, high = (ends[columns] for ends in _ends(lenders))
    if outputs is None:
        extremes = random.integers(n, size=2)
    else:
        first = np.asarray(outputs).reshape(n, -1)[:, 0].astype(np.float64, copy=False)
        extremes = np.asarray([np.argmax(first), np.argmin(first)])
    for k, (end, value) in enumerate([(0, high), (1, low), (0, low), (1, high)][:each]):
        row[:, k], donor[:, k] = extremes[end], value
    return row.reshape(-1).astype(np.int64), donor.reshape(-1).astype(np.int64)


def _ends(rows: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(P,) each: a row with the least, and one with the largest value of each column; of very many rows, of some."""
    xp, (n, width) = arrays.namespace(rows), (int(size) for size in rows.shape)
    step, strip = -(-n * width // _SEARCHED), max(_STRIP // width, 1)
    ids = np.arange(0, n, step)
    found = []
    for start in range(0, len(ids), strip):
        some = ids[start : start + strip]
        index = arrays.from_host(some, xp, arrays.device(rows), arrays.index_dtype(xp))
        part = arrays.as_floating(arrays.cells(rows, index, slice(None)))
        low, high = arrays.fetch([xp.argmin(part, axis=0), xp.argmax(part, axis=0)])
        least, most = arrays.fetch([xp.min(part, axis=0), xp.max(part, axis=0)])
        found.append((some[low], least, some[high], most))
    low, least, high, most = (np.stack(parts) for parts in zip(*found, strict=True))
    every = np.arange(width)
    return low[np.argmin(least, axis=0), every], high[np.argmax(most, axis=0), every]


def same(claimed: HostArray, predictions: HostArray, scale: float, precision: float) -> bool:
    """Whether a shortcut's answers are the model's up to rounding: host arrays, ``precision`` relative to ``scale``."""
    apart = [
        np.max(np.abs(claimed[start : start + _STRIP] - predictions[start : start + _STRIP]))
        for start in range(0, len(claimed), _STRIP)
    ]
    return bool(np.max(apart) <= UNITS * precision * scale)
