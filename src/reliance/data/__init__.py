"""Rows, features and tables, as the user passes them; no model is known here."""
