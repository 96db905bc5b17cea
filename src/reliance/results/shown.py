"""Data frames of the companions' results: one row per feature, or per pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def frame(names: Sequence[Any], columns: Mapping[str, Any], name: str = "feature") -> Any:
    """A pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
    return pd.DataFrame(dict(columns), index=pd.Index(names, name=name))
