"""Exact shortcuts: the moments of all n(n-1) pairs without n^2 evaluations, where the model or the data allow it.

What a route of one's own needs is here: see the page on adding parts.
"""

from reliance.engine.reductions import Moments
from reliance.exact.called import Called, FromMoments, Known
from reliance.exact.protocol import Almost, Exchange, Job, Measured, Offer, Opening, Route
from reliance.exact.routes import ROUTES
from reliance.exact.trust import Disagreement

__all__ = [
    "ROUTES",
    "Almost",
    "Called",
    "Disagreement",
    "Exchange",
    "FromMoments",
    "Job",
    "Known",
    "Measured",
    "Moments",
    "Offer",
    "Opening",
    "Route",
]
