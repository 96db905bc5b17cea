"""How much a model relies on a feature, with honest uncertainty, on NumPy, CuPy, JAX and PyTorch."""

from __future__ import annotations

from reliance import functional, losses, models
from reliance.importance import ablation_importance, model_reliance, permutation_importance
from reliance.losses import Metric
from reliance.results import Importance, load

__version__ = "0.1.0"

__all__ = [
    "Importance",
    "Metric",
    "ablation_importance",
    "functional",
    "load",
    "losses",
    "model_reliance",
    "models",
    "permutation_importance",
]
