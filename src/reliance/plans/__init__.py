"""Replacement plans: which row lends its feature to which row, in which draw."""

from reliance.plans.designs import Pairs, Permutations, Plan, Resample, Shifts, halves

__all__ = ["Pairs", "Permutations", "Plan", "Resample", "Shifts", "halves"]
