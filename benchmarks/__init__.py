"""The asv suite (``asv run --python=same --quick``) and the scripts that print ratios."""
