"""How much a model relies on a feature, with honest uncertainty, on NumPy, CuPy, JAX and PyTorch."""

from __future__ import annotations

from reliance import functional, knockoffs, losses, models, samplers
from reliance.class_results import ClassReliance
from reliance.companions import (
    Extrapolation,
    Interactions,
    LinearImportance,
    SplitComparison,
    compare_splits,
    extrapolation_check,
    interaction_importance,
    linear_importance,
)
from reliance.comparisons import Delta, RelativeImportance
from reliance.conditional import conditional_model_reliance, relative_importance
from reliance.impact import (
    Impact,
    LocalImportance,
    feature_impact,
    local_importance,
    sobol_first,
    sobol_total,
)
from reliance.importance import ablation_importance, model_reliance, permutation_importance
from reliance.loading import load
from reliance.losses import Metric
from reliance.model_classes import DifferentiableClass, FiniteClass, KernelClass, LinearClass
from reliance.rashomon import conditional_model_class_reliance, model_class_reliance
from reliance.refit.algorithm import algorithm_reliance
from reliance.refit.cross_validation import cross_validated_importance
from reliance.refit.null import null_importance
from reliance.refit.null_results import NullImportance
from reliance.refit.out_of_bag import out_of_bag_importance
from reliance.refit.results import AlgorithmReliance
from reliance.refit.running import RefitError
from reliance.results import Importance

__version__ = "0.1.0"

__all__ = [
    "AlgorithmReliance",
    "ClassReliance",
    "Delta",
    "DifferentiableClass",
    "Extrapolation",
    "FiniteClass",
    "Impact",
    "Importance",
    "Interactions",
    "KernelClass",
    "LinearClass",
    "LinearImportance",
    "LocalImportance",
    "Metric",
    "NullImportance",
    "RefitError",
    "RelativeImportance",
    "SplitComparison",
    "ablation_importance",
    "algorithm_reliance",
    "compare_splits",
    "conditional_model_class_reliance",
    "conditional_model_reliance",
    "cross_validated_importance",
    "extrapolation_check",
    "feature_impact",
    "functional",
    "interaction_importance",
    "knockoffs",
    "linear_importance",
    "load",
    "local_importance",
    "losses",
    "model_class_reliance",
    "model_reliance",
    "models",
    "null_importance",
    "out_of_bag_importance",
    "permutation_importance",
    "relative_importance",
    "samplers",
    "sobol_first",
    "sobol_total",
]
