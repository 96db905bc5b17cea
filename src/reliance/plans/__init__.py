"""Replacement plans: which row lends its feature to which row, in which draw."""

from reliance.plans.classes import Classes
from reliance.plans.drawn import Drawn
from reliance.plans.pairs import Pairs
from reliance.plans.permutations import Permutations
from reliance.plans.protocol import Plan, Tile, Users, tiles
from reliance.plans.resample import Resample
from reliance.plans.shifts import Shifts, every_shift, halves

__all__ = [
    "Classes",
    "Drawn",
    "Pairs",
    "Permutations",
    "Plan",
    "Resample",
    "Shifts",
    "Tile",
    "Users",
    "every_shift",
    "halves",
    "tiles",
]
