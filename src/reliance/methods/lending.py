"""Who lends to whom where clusters have a say in it: ``clusters=rl.Clusters(labels, lend=...)`` and ``rl.Blocks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from reliance import plans
from reliance._core.checks import warn
from reliance._core.words import listed, shown
from reliance.data.clusters import ANYWHERE, Membership
from reliance.data.rows import Rows
from reliance.plans import Groups, Plan

# The plan of so many draws; ``independent``: donors by chance, as in ablation.
Lending: TypeAlias = Callable[[int, bool], Plan]


def lending(rows: Rows, key: int) -> Lending | None:
    """Plans that lend as the clusters of the rows say; None: any row lends to any other."""
    clusters = rows.clusters
    if clusters is None or clusters.lend == ANYWHERE:
        return None
    return _LENDING[clusters.lend](clusters, rows.n, key)


def lent(rows: Rows, key: int, draws: int, name: str, usual: int) -> Plan | None:
    """The plan of a number of draws, if clusters say who lends: no more than there are donors for.

    ``usual``: the number that nobody need have asked for, of which nothing is said.
    """
    made = lending(rows, key)
    if made is None:
        return None
    plan = made(draws, False)
    if draws <= plan.exhausted_at:
        return plan
    most = int(plan.exhausted_at)
    if draws != usual:
        warn(f"{name}={draws} is more than the {most} donors that a row has: each lends once, which is all")
    return made(most, False)


def all_lent(rows: Rows, key: int, name: str) -> Plan | None:
    """Every donor of every row once, if clusters say who lends."""
    made = lending(rows, key)
    if made is None:
        return None
    most = made(1, False).exhausted_at
    if most == np.inf:
        assert rows.clusters is not None
        raise ValueError(
            f"{name}='all' and clusters with lend={shown(rows.clusters.lend)}: rows have different numbers of donors "
            f"where clusters differ in size; pass a number of draws, such as {name}=64"
        )
    return made(int(most), False)


def check_anywhere(rows: Rows, what: str) -> None:
    """Refuse clusters that say who lends, where something else says it."""
    if rows.clusters is not None and rows.clusters.lend != ANYWHERE:
        raise ValueError(
            f"clusters has lend={shown(rows.clusters.lend)}, and {what} chooses the donors, too: leave one of the two "
            "out"
        )


def _others(clusters: Membership, n: int, key: int) -> Lending:
    groups = Groups(clusters.codes, clusters.codes)
    return lambda draws, independent: plans.OtherClusters(n, draws, key, clusters.lend, independent, groups)


def _same(clusters: Membership, n: int, key: int) -> Lending:
    groups = Groups(clusters.codes, clusters.codes)
    alone = np.flatnonzero(groups.sizes[clusters.codes] == 1)
    if alone.size:
        warn(
            f"lend={shown(clusters.lend)}: {alone.size} rows are the only ones of their cluster and keep their own "
            f"value, which makes the importance smaller: rows {listed(alone.tolist())}. Join small clusters"
        )
    return lambda draws, independent: plans.Within(n, draws, key, groups, independent, clusters.lend)


def _stretches(clusters: Membership, n: int, key: int) -> Lending:
    offsets = clusters.offsets
    assert offsets is not None  # blocks that lend stretches know them
    return lambda draws, independent: plans.Stretches(
        n, draws, key, clusters.lend, independent, clusters.codes, offsets
    )


_LENDING: dict[str, Callable[[Membership, int, int], Lending]] = {
    "other clusters": _others,
    "other blocks": _others,
    "same cluster": _same,
    "same block": _same,
    "stretches": _stretches,
}
