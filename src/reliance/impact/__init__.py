"""Importance without labels, and importance for single rows."""
