"""Importance without labels, and importance for single rows."""

from reliance.impact.impact_results import Impact
from reliance.impact.quantiles import feature_impact

__all__ = ["Impact", "feature_impact"]
