"""How much a model relies on a feature, with honest uncertainty, on NumPy, CuPy, JAX and PyTorch."""

from __future__ import annotations

from reliance import features, functional, losses, models, plans, samplers
from reliance._core.run import Run
from reliance.data.clusters import Blocks, Clusters
from reliance.losses import Metric
from reliance.methods.adaptive import Until
from reliance.methods.compare_models import compare_models
from reliance.methods.conditional import conditional_model_reliance, relative_importance
from reliance.methods.drawing import Draws
from reliance.methods.estimates import Estimate, estimate
from reliance.methods.extrapolation import extrapolation_check
from reliance.methods.interactions import interaction_importance
from reliance.methods.linear import linear_importance
from reliance.methods.local import local_importance
from reliance.methods.monitoring import Monitor
from reliance.methods.quantiles import feature_impact
from reliance.methods.replacement import ablation_importance, model_reliance, permutation_importance
from reliance.methods.replacing import Donors
from reliance.methods.sobol import sobol_first, sobol_total
from reliance.methods.splits import compare_splits
from reliance.rashomon.model_classes import (
    BasisClass,
    DifferentiableClass,
    FiniteClass,
    KernelClass,
    LinearClass,
    TreeClass,
)
from reliance.rashomon.reliance import conditional_model_class_reliance, model_class_reliance
from reliance.rashomon.results import ClassReliance
from reliance.refit.algorithm import algorithm_reliance
from reliance.refit.cross_validation import cross_validated_importance
from reliance.refit.null import null_importance
from reliance.refit.out_of_bag import out_of_bag_importance
from reliance.refit.running import RefitError
from reliance.report import Report, report
from reliance.results.algorithm import AlgorithmReliance
from reliance.results.base import load
from reliance.results.comparisons import RelativeImportance
from reliance.results.delta import Delta
from reliance.results.extrapolation import Extrapolation
from reliance.results.impact import Impact
from reliance.results.importance import Importance
from reliance.results.interactions import Interactions
from reliance.results.linear import LinearImportance
from reliance.results.local import LocalImportance
from reliance.results.mapping import Results
from reliance.results.merging import merge
from reliance.results.models import ModelComparison
from reliance.results.monitored import Monitored
from reliance.results.null import NullImportance
from reliance.results.pooled import Pooled, pool
from reliance.results.ranks import Ranks
from reliance.results.splits import SplitComparison
from reliance.samplers.given import Given

__version__ = "0.1.0"

__all__ = [
    "AlgorithmReliance",
    "BasisClass",
    "Blocks",
    "ClassReliance",
    "Clusters",
    "Delta",
    "DifferentiableClass",
    "Donors",
    "Draws",
    "Estimate",
    "Extrapolation",
    "FiniteClass",
    "Given",
    "Impact",
    "Importance",
    "Interactions",
    "KernelClass",
    "LinearClass",
    "LinearImportance",
    "LocalImportance",
    "Metric",
    "ModelComparison",
    "Monitor",
    "Monitored",
    "NullImportance",
    "Pooled",
    "Ranks",
    "RefitError",
    "RelativeImportance",
    "Report",
    "Results",
    "Run",
    "SplitComparison",
    "TreeClass",
    "Until",
    "ablation_importance",
    "algorithm_reliance",
    "compare_models",
    "compare_splits",
    "conditional_model_class_reliance",
    "conditional_model_reliance",
    "cross_validated_importance",
    "estimate",
    "extrapolation_check",
    "feature_impact",
    "features",
    "functional",
    "interaction_importance",
    "linear_importance",
    "load",
    "local_importance",
    "losses",
    "merge",
    "model_class_reliance",
    "model_reliance",
    "models",
    "null_importance",
    "out_of_bag_importance",
    "permutation_importance",
    "plans",
    "pool",
    "relative_importance",
    "report",
    "samplers",
    "sobol_first",
    "sobol_total",
]


def __dir__() -> list[str]:
    """Public is what is exported: packages of the implementation are not offered for completion."""
    return [*__all__, "__version__"]
