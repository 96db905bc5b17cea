"""Which columns the functions of a basis read: what is said about it, checked on replaced rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from reliance._core.arrays import device, from_host, index_dtype, namespace, to_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.rashomon.protocol import ClassData

# The columns that each function reads; None: every function may read every column.
Said: TypeAlias = Sequence[Sequence[int]] | None
_SAME = 1e-6  # relative to a function's size: how equal values of float32 networks are


def check_columns(columns: Sequence[Sequence[int]], width: int, many: int) -> None:
    if len(columns) != many:
        raise ValueError(f"columns has {len(columns)} entries, but basis returns {many} functions")
    wrong = [j for own in columns for j in own if not 0 <= j < width]
    if wrong:
        raise ValueError(f"columns names {wrong[0]}, but X has {width} columns: pass numbers of columns of X")


def reads(
    columns: Said, values: Callable[[Array], Array], data: ClassData, within: ClassData, feature: Feature
) -> tuple[tuple[int, ...], bool]:
    """Which functions read a feature, and whether one of them reads other columns, too; checked."""
    many, chosen = int(within.X.shape[1]), set(feature.columns)
    if columns is None:
        return tuple(range(many)), True
    own = tuple(k for k in range(many) if chosen & set(columns[k]))
    alone = [k for k in own if chosen.issuperset(columns[k])]
    wrong = _otherwise(values, data, within, feature, own, alone)
    if wrong is not None:
        raise ValueError(
            f"columns says that function {wrong} of the basis reads {shown(tuple(columns[wrong]))}, but replacing "
            f"{shown(feature.name)} changes it otherwise: correct columns, or leave it out"
        )
    return own, len(alone) < len(own)


def _otherwise(
    values: Callable[[Array], Array],
    data: ClassData,
    within: ClassData,
    feature: Feature,
    own: Sequence[int],
    alone: Sequence[int],
) -> int | None:
    """A function that is not what it should be with the feature of the next row: the next row's, or what it was."""
    xp, n = namespace(data.X), int(data.X.shape[0])
    turn = from_host(np.roll(np.arange(n), -1), xp, device(data.X), index_dtype(xp))
    mask = np.isin(np.arange(int(data.X.shape[1])), feature.columns)
    turned = xp.where(from_host(mask, xp, device(data.X)), xp.take(data.X, turn, axis=0), data.X)
    found, before = (to_host(z).astype(np.float64) for z in (values(turned), within.X))
    expected = before.copy()
    expected[:, list(alone)] = np.roll(before, -1, axis=0)[:, list(alone)]
    size = np.maximum(np.abs(before).max(axis=0), 1e-300)
    sure = [k for k in range(before.shape[1]) if k in alone or k not in own]
    return next((k for k in sure if np.any(np.abs(found[:, k] - expected[:, k]) > _SAME * size[k])), None)
