"""Tables in files: rows, the target, and the columns that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.words import closest, listed, shown
from reliance.cli.models import Loaded
from reliance.data.passed import DataLike

if TYPE_CHECKING:
    import pandas as pd

# Which function of pandas reads a file, and what else it needs.
_READERS = {
    ".csv": ("read_csv", None),
    ".parquet": ("read_parquet", "pyarrow"),
    ".pq": ("read_parquet", "pyarrow"),
    ".arrow": ("read_feather", "pyarrow"),
    ".feather": ("read_feather", "pyarrow"),
}
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst")


@dataclass(frozen=True, eq=False)
class Data:
    """Rows as a model takes them, and what it should predict.

    Attributes
    ----------
    X : array (n, P) or pandas DataFrame
    y : array (n,)
    names : tuple of str
        Of the columns.
    """

    X: DataLike
    y: HostArray
    names: tuple[str, ...]


def read(path: str) -> pd.DataFrame:
    """A table in a file: CSV, parquet, or Arrow's own format."""
    file = Path(path)
    kind = file.with_suffix("").suffix if file.suffix.lower() in _PACKED else file.suffix
    if kind.lower() not in _READERS:
        raise ValueError(f"DATA={shown(path)} ends in none of {', '.join(_READERS)}: save the table as one of these")
    if not file.is_file():  # nothing is ever read over a network
        raise FileNotFoundError(f"DATA={shown(path)} is not a file: check the path")
    reader, needs = _READERS[kind.lower()]
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("tables are read with pandas, which is not installed: pip install reliance[cli]") from error
    try:
        table: pd.DataFrame = getattr(pd, reader)(file)
    except ImportError as error:
        raise ImportError(f"DATA={shown(path)} needs {needs}, which is not installed: pip install {needs}") from error
    except Exception as error:
        raise ValueError(f"DATA={shown(path)} could not be read: {str(error)[:160]}") from error
    table.columns = [str(name) for name in table.columns]
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise ValueError(f"DATA={shown(path)} has two columns called {shown(twice[0])}: rename one of them")
    return table


def column_list(said: Sequence[str] | None, known: Sequence[str], option: str) -> list[str] | None:
    """Names from a command line: a column as it is called, or several with commas between them."""
    if said is None:
        return None
    found = [name for word in said for name in ([word] if word in known else word.split(","))]
    for name in found:
        if name not in known:
            raise ValueError(f"{option} names {shown(name)}, which is not a column: {closest(name, known)}")
    return found


def divided(table: pd.DataFrame, target: str, ignored: Sequence[str] | None, loaded: Loaded) -> Data:
    """The target, and the columns of the model in its order; what it does not take must be named as ignored."""
    columns = list(table.columns)
    if target not in columns:
        raise ValueError(f"--target {shown(target)} is not a column: {closest(target, columns)}")
    left_out = {target, *(column_list(ignored, columns, "--ignore") or [])}
    chosen = [name for name in columns if name not in left_out]
    if loaded.names is not None:
        chosen = _in_order(chosen, list(loaded.names))
    if not chosen:
        raise ValueError(f"DATA has no column but {shown(target)}: there is nothing to measure")
    rows = table[chosen]
    text = [name for name in chosen if not _is_number(rows[name])]
    if text and not loaded.as_table:
        raise TypeError(
            f"column {shown(text[0])} holds no numbers, which this model needs: encode it, or name it in --ignore"
        )
    if loaded.categories:
        rows = rows.astype(dict.fromkeys(text, "category"))
    X = rows if loaded.as_table else rows.to_numpy(dtype=np.float64)
    return Data(X, _labels(table[target], target), tuple(chosen))


def _in_order(there: list[str], wanted: list[str]) -> list[str]:
    """The columns that a model names; by position if it was fitted without names."""
    missing = [name for name in wanted if name not in there]
    if len(missing) == len(wanted) == len(there):
        return there
    if missing:
        raise ValueError(f"the model takes {listed(missing, 3)}, which DATA does not have: it has {listed(there, 3)}")
    strange = [name for name in there if name not in wanted]
    if strange:
        raise ValueError(f"DATA has {listed(strange, 3)}, which the model does not take: name them in --ignore")
    return wanted


def _is_number(column: pd.Series) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _labels(column: pd.Series, target: str) -> HostArray:
    if column.isna().any():
        raise ValueError(f"--target {shown(target)} is missing in {int(column.isna().sum())} rows: drop them")
    if _is_number(column):
        return np.asarray(column.to_numpy())
    return np.asarray([str(value) for value in column])
