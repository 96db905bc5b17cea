"""Plans that grow: of any number of draws, the first of which are those of a smaller plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from reliance.plans.between import OtherClusters, Stretches
from reliance.plans.lent import Lent, Within
from reliance.plans.pairs import Pairs
from reliance.plans.permutations import Permutations
from reliance.plans.protocol import Plan
from reliance.plans.ranked import Ranked
from reliance.plans.resample import Resample
from reliance.plans.shifts import Shifts


def growing(plan: Plan, key: int) -> Callable[[int], Plan] | None:
    """Plans of the same design that grow up to this one; None if it is one draw, or somebody else's.

    Ranks grow by cycles. All pairs grow shift by shift, in the random order that the key gives: all shifts are all
    pairs, and the first of them are a valid sample at any time.
    """
    if type(plan) is Pairs and plan.factor is None:
        return partial(_shifts, plan.n, key)
    if type(plan) is Ranked:
        return partial(_with_draws, replace(plan, cycles=True))
    if type(plan) in (Resample, Permutations, Lent, Within, OtherClusters, Stretches) or (
        type(plan) is Shifts and plan.key is not None and plan.first is None
    ):
        return partial(_with_draws, plan)
    return None


def _shifts(n: int, key: int, draws: int) -> Plan:
    return Shifts(n, draws, key)


def _with_draws(plan: Any, draws: int) -> Plan:
    grown: Plan = replace(plan, draws=draws)
    return grown
