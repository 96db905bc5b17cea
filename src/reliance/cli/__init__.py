"""The command line: ``python -m reliance report|importance MODEL DATA --target COLUMN``."""

from reliance.cli.commands import main

__all__ = ["main"]
