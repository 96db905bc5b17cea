"""Replacement plans: which row lends its feature to which row, in which draw."""

from reliance.plans.bases import Drawn, Rectangular
from reliance.plans.between import OtherClusters, Stretches
from reliance.plans.classes import Classes
from reliance.plans.lent import Groups, Lent, Within, Written
from reliance.plans.orderings import Orders
from reliance.plans.pairs import Pairs
from reliance.plans.permutations import Permutations
from reliance.plans.protocol import Plan, Terms, Tile, Users, Variance, tiles
from reliance.plans.ranked import Ranked
from reliance.plans.resample import Resample
from reliance.plans.shifts import EveryShift, Halves, Shifts, every_shift, halves

__all__ = [
    "Classes",
    "Drawn",
    "EveryShift",
    "Groups",
    "Halves",
    "Lent",
    "Orders",
    "OtherClusters",
    "Pairs",
    "Permutations",
    "Plan",
    "Ranked",
    "Rectangular",
    "Resample",
    "Shifts",
    "Stretches",
    "Terms",
    "Tile",
    "Users",
    "Variance",
    "Within",
    "Written",
    "every_shift",
    "halves",
    "tiles",
]
