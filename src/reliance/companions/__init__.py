"""What goes with an importance: baselines, interactions, and checks of the data it was measured on."""

from reliance.companions.extrapolation import Extrapolation, extrapolation_check
from reliance.companions.interactions import Interactions, interaction_importance
from reliance.companions.linear import LinearImportance, linear_importance
from reliance.companions.splits import SplitComparison, compare_splits

__all__ = [
    "Extrapolation",
    "Interactions",
    "LinearImportance",
    "SplitComparison",
    "compare_splits",
    "extrapolation_check",
    "interaction_importance",
    "linear_importance",
]
