"""Tables of the companions' results: one row a feature, or a pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance import export

Floats = NDArray[np.float64]
_SHOWN = 20


def frozen(values: Any) -> Floats:
    """A copy that nobody writes to."""
    own = np.array(values, dtype=np.float64)
    own.flags.writeable = False
    return own


def frame(names: Sequence[Any], columns: Mapping[str, Any], name: str = "feature") -> Any:
    """A pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
    return pd.DataFrame(dict(columns), index=pd.Index(names, name=name))


def table(
    title: str, names: Sequence[str], columns: Mapping[str, Floats], by: Floats, name: str = "feature"
) -> export.Table:
    """What a repr shows: all rows, or of many those that are largest by some numbers."""
    chosen, closing = np.arange(len(names)), ""
    if len(chosen) > _SHOWN:
        chosen = np.argsort(-by, kind="stable")[:_SHOWN]
        closing = f"the {_SHOWN} largest of {len(names)} {name}s; to_frame() has all"
    cells = [
        [export.short(names[k]), *(export.number(float(c[k])) for c in columns.values())] for k in map(int, chosen)
    ]
    return export.Table(title, [name, *columns], cells, closing)
