"""How much a model relies on a feature, with honest uncertainty, on NumPy, CuPy, JAX and PyTorch."""

from __future__ import annotations

from reliance import functional, knockoffs, losses, models, samplers
from reliance.class_results import ClassReliance
from reliance.comparisons import Delta, RelativeImportance
from reliance.conditional import conditional_model_reliance, relative_importance
from reliance.impact import Impact, feature_impact
from reliance.importance import ablation_importance, model_reliance, permutation_importance
from reliance.losses import Metric
from reliance.model_classes import DifferentiableClass, FiniteClass, KernelClass, LinearClass
from reliance.rashomon import conditional_model_class_reliance, model_class_reliance
from reliance.results import Importance, load

__version__ = "0.1.0"

__all__ = [
    "ClassReliance",
    "Delta",
    "DifferentiableClass",
    "FiniteClass",
    "Impact",
    "Importance",
    "KernelClass",
    "LinearClass",
    "Metric",
    "RelativeImportance",
    "ablation_importance",
    "conditional_model_class_reliance",
    "conditional_model_reliance",
    "feature_impact",
    "functional",
    "knockoffs",
    "load",
    "losses",
    "model_class_reliance",
    "model_reliance",
    "models",
    "permutation_importance",
    "relative_importance",
    "samplers",
]
