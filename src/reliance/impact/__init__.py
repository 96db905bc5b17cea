"""Importance without labels, and importance for single rows."""

from reliance.impact.impact_results import Impact
from reliance.impact.local import local_importance
from reliance.impact.local_results import LocalImportance
from reliance.impact.quantiles import feature_impact
from reliance.impact.sobol import sobol_first, sobol_total

__all__ = ["Impact", "LocalImportance", "feature_impact", "local_importance", "sobol_first", "sobol_total"]
