"""A report: one page about a model, with figures, tables and what to be careful about."""

from reliance.report.writing import Report, report

__all__ = ["Report", "report"]
