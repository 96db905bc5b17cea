"""Tables of pandas, polars and pyarrow: numbers for the engine, and their own kind of table back for the model.

The engine moves numbers. A column of numbers enters as it is. Any other column (text, categories, dates, numbers with
missing entries) enters as codes, one for each distinct value, and before the model is called the codes become the
values again, taken from the user's own column, so that neither a value nor a type is ever converted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Array, HostArray, Operand
from reliance._core.words import short, shown
from reliance.data.frames import Column, ColumnType, Frame, PandasLike, RowLabels, TellsMissing

_LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf")
_COLUMNS = ("Series", "Index", "ExtensionArray", "Array", "ChunkedArray")
_LARGEST = 2**53  # integers up to here are numbers of float64, too


def is_table(x: object) -> bool:
    """Whether x is a table of rows and named columns, without importing any library of tables."""
    return _of_library(x) and hasattr(type(x), "columns") and not _is_column(x)


def is_column(x: object) -> bool:
    """Whether x is one column of such a table."""
    return _of_library(x) and _is_column(x)


def _of_library(x: object) -> bool:
    library = type(x).__module__.partition(".")[0]
    return library in _LIBRARIES and library in sys.modules


def _is_column(x: object) -> bool:
    """By its classes: a table's own columns answer to any name that an attribute could have."""
    return any(kind.__name__ in _COLUMNS for kind in type(x).__mro__)


def _is_pandas(x: object) -> TypeGuard[PandasLike]:
    return hasattr(type(x), "iloc")


def _tells_missing(x: object) -> TypeGuard[TellsMissing]:
    return hasattr(type(x), "isna")


def check_aligned(**given: object) -> None:
    """Rows are matched by position: an error if two of the arguments have the same row labels in another order.

    Other labels, as after a `reset_index` of one of them, say nothing of the order.
    """
    known: dict[str, RowLabels] = {}
    for name, x in given.items():
        own = x.index if _of_library(x) and _is_pandas(x) else None
        if own is None:
            continue
        for other, index in known.items():
            if len(own) == len(index) and not own.equals(index) and _same_labels(own, index):
                raise ValueError(
                    f"{name} has the row labels (index) of {other} in another order, and rows are matched by position: "
                    f"pass {name}.loc[{other}.index], or {name}.to_numpy() if the order is right as it is"
                )
        known[name] = own


def _same_labels(one: RowLabels, other: RowLabels) -> bool:
    try:
        return bool(one.sort_values().equals(other.sort_values()))
    except TypeError:  # labels of several kinds
        return Counter(one.tolist()) == Counter(other.tolist())


@dataclass(frozen=True, eq=False)
class Table:
    """A table as the engine sees it.

    Attributes
    ----------
    names : tuple of str
        Of the columns, as the model knows them.
    array : NumPy array (n, P)
        Numbers, or codes of the values.
    coded : tuple of int
        The columns that hold codes.
    """

    names: tuple[str, ...]
    array: HostArray
    coded: tuple[int, ...]
    _frame: Frame
    _speakers: Mapping[int, NDArray[np.int64]]  # for each code the first row that has its value
    _masked: Mapping[int, ColumnType]  # columns of pandas' own types, and what numbers they hold
    _labels: Sequence[object]  # the names as the table has them: pandas knows other names than text

    def dtype(self, j: int) -> str:
        """What the table's own library calls the type of a column."""
        native = self._frame[:, j].to_native()
        return str(getattr(native, "dtype" if hasattr(type(native), "dtype") else "type"))

    def is_categorical(self, j: int) -> bool:
        """Whether a column is of a type of categories."""
        import narwhals as nw

        return self._frame[:, j].dtype in (nw.Categorical, nw.Enum)

    def values(self, j: int) -> list[object]:
        """The value behind each code of a column; None if it is missing."""
        values = self._frame[:, j][self._speakers[j]]
        pairs = zip(values.to_list(), values.is_null().to_list(), strict=True)
        return [None if absent or value != value else value for value, absent in pairs]

    def texts(self, j: int) -> tuple[str, ...]:
        """The value behind each code of a column, in words."""
        return tuple("missing" if value is None else str(value) for value in self.values(j))

    def decode(self, block: HostArray) -> object:
        """Rows of the engine, ``(m, P)``, as a table of the user's own kind with the user's own types."""
        import narwhals as nw

        frame = nw.from_numpy(np.asarray(block), schema=self.names, backend=self._frame.implementation)
        if self.coded:
            parts = [self._values(block, j) if j in self.coded else frame.select(n) for j, n in enumerate(self.names)]
            frame = nw.concat(parts, how="horizontal")
        native = nw.to_native(_with_types(frame, self._frame.schema, np.asarray(block)))
        if self._masked:
            fitting = [j for j, dtype in self._masked.items() if _fits(np.asarray(block)[:, j], dtype)]
            own = nw.to_native(self._frame)
            native = native.astype({self.names[j]: own[self.names[j]].dtype for j in fitting})
        if tuple(self._labels) != self.names:
            native.columns = self._labels
        return native

    def _values(self, block: HostArray, j: int) -> Frame:
        import narwhals as nw

        rows = self._speakers[j][block[:, j].astype(np.int64)]
        values: Frame = nw.maybe_reset_index(self._frame.select(self.names[j])[rows])
        return values


def _with_types(frame: Frame, schema: Mapping[str, ColumnType], block: HostArray) -> Frame:
    import narwhals as nw

    changed = [
        nw.col(name).cast(schema[name])
        for j, (name, dtype) in enumerate(frame.schema.items())
        if dtype != schema[name] and _fits(block[:, j], schema[name])
    ]
    return frame.with_columns(changed) if changed else frame


def _fits(values: HostArray, dtype: ColumnType) -> bool:
    """Whether a type can hold values that a sampler made: a mean plus a residual is rarely a whole number."""
    import narwhals as nw

    if dtype == nw.Boolean:
        return bool(np.all((values == 0) | (values == 1)))
    return not dtype.is_integer() or bool(np.all(values == np.trunc(values)))


def _opened(x: object, name: str) -> Frame:
    """A table of narwhals, or why x is none."""
    try:
        import narwhals as nw
    except ImportError as error:
        raise ImportError(f"{name} is a table: install reliance[tables], which reads it, or pass an array") from error
    if type(x).__name__ == "RecordBatch":
        raise TypeError(f"{name} is a RecordBatch of pyarrow: pass the table, pyarrow.Table.from_batches([{name}])")
    levels = x.columns.nlevels if _is_pandas(x) else 1
    if levels > 1:
        raise ValueError(
            f"{name} has columns of {levels} levels (a MultiIndex): give each one name, for instance "
            f"{name}.set_axis(['_'.join(map(str, c)) for c in {name}.columns], axis=1)"
        )
    try:
        frame: Frame = nw.from_native(x, eager_only=True)
        return frame
    except TypeError as error:  # a lazy table of polars, say
        raise TypeError(
            f"{name} is a {type(x).__name__}, which is not a table in memory: pass {name}.collect(), or an array"
        ) from error
    except ValueError as error:
        raise ValueError(f"{name}: {short(str(error), 200)}; rename the columns") from error


def read(x: object, name: str) -> Table:
    """A table, checked."""
    frame = _opened(x, name)
    import narwhals as nw

    labels, names = frame.columns, tuple(map(str, frame.columns))
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{name} has two columns named {shown(twice)}: rename one")
    frame = frame.rename({label: new for label, new in zip(labels, names, strict=True) if label is not new})
    columns, speakers = [], {}
    for j, column in enumerate(names):
        values = _numbers(frame[column])
        if values is None:
            values, speakers[j] = _codes(frame[column], f"{name}[{column!r}]")
        columns.append(values)
    narrow = bool(columns) and all(values.dtype == np.float32 for values in columns)
    array = np.empty((len(frame), len(columns)), dtype=np.float32 if narrow else np.float64)
    for j, values in enumerate(columns):
        array[:, j] = values
    masked = {j: frame[n].dtype for j, n in enumerate(names) if j not in speakers and _is_masked(frame[n])}
    return Table(names, array, tuple(speakers), nw.maybe_reset_index(frame), speakers, masked, labels)


def column_labels(x: object, name: str = "X") -> list[str]:
    """The names of a table's columns, as it has them."""
    return list(_opened(x, name).columns)


def _numbers(series: Column) -> HostArray | None:
    """The column as numbers, if it holds nothing else and float64 has all of them."""
    import narwhals as nw

    plain = series.dtype.is_numeric() and not series.dtype.is_decimal()
    if not (plain or series.dtype == nw.Boolean) or not _is_plain(series):
        return None
    values: HostArray = series.to_numpy()
    if values.dtype.kind not in "biuf":
        return None
    if values.dtype.kind in "iu" and values.size and max(abs(int(values.min())), abs(int(values.max()))) > _LARGEST:
        return None
    return values


def _is_masked(series: Column) -> bool:
    """Whether a column is of a type that only pandas has."""
    native = series.to_native()
    return _is_pandas(native) and not isinstance(native.dtype, np.dtype)


def _is_plain(series: Column) -> bool:
    """No entry is missing; of pandas' own types, which have a mask, NaN neither: it would come back as missing."""
    native = series.to_native()
    if _is_pandas(native):
        if isinstance(native.dtype, np.dtype):
            return native.dtype.kind in "biuf"
        return int(series.null_count()) == 0 and not bool(np.isnan(series.to_numpy().astype(np.float64)).any())
    return int(series.null_count()) == 0


def _codes(series: Column, name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    values = zip(series.to_list(), series.is_null().to_list(), strict=True)
    return codes_of([_MISSING if absent else value for value, absent in values], name)


def codes_of(values: Sequence[object], name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A code for each row, equal for equal values, in order of appearance; and the first row of each code."""
    known: dict[object, int] = {}
    codes = np.empty(len(values))
    first: list[int] = []
    for row, value in enumerate(values):
        # NaN differs from itself, but one is as missing as the other; 1 and True are equal, but not the same.
        key = _MISSING if isinstance(value, float) and value != value else (type(value), value)
        try:
            code = known.setdefault(key, len(known))
        except TypeError as error:
            raise TypeError(
                f"{short(name)} holds {shown(value)}, which cannot be compared: pass numbers, text or dates"
            ) from error
        if code == len(first):
            first.append(row)
        codes[row] = code
    return codes, np.asarray(first, dtype=np.int64)


_MISSING = object()


def as_column(x: object, name: str) -> HostArray:
    """Labels or weights that come as a column, or as a table of them, (n,) or (n, columns): as NumPy."""
    import narwhals as nw

    if type(x).__name__ == "RecordBatch":
        raise TypeError(f"{name} is a RecordBatch of pyarrow: pass one of its columns")
    if is_table(x):
        frame = nw.from_native(x, eager_only=True)
        # By position: names need not be text.
        named = [f"{name}[{shown(column)}]" for column in frame.columns]
        parts = [as_column(nw.to_native(frame[:, j]), label) for j, label in enumerate(named)]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    try:
        series = nw.from_native(x, series_only=True)
        missing, values = int(series.null_count()), series.to_numpy()
    except TypeError:  # pandas.Index, pandas.Categorical and arrow arrays are columns, too, but not series
        values = np.asarray(x)
        missing = int(np.sum(x.isna())) if _tells_missing(x) else 0
    if missing:
        raise ValueError(f"{name} holds {missing} missing values: drop those rows")
    text = values.dtype.kind == "O" and all(isinstance(value, str) for value in values)
    return np.asarray(values.astype(str) if text else values)


def called(predict: Callable[[Operand], Array], table: Table) -> Callable[[HostArray], Array]:
    """``predict`` of tables, as a function of the engine's numbers; predictions that are a column become an array."""

    def of_numbers(block: HostArray) -> Array:
        given = table.decode(block)
        try:
            answer = predict(given)
        except Exception as error:
            kind = f"{type(given).__module__.partition('.')[0]} {type(given).__name__}"
            error.add_note(f"The model was called with a {kind}, the kind of X: pass an array if it takes arrays.")
            raise
        check_aligned(**{"the model's input": given, "the model's prediction": answer})
        return as_column(answer, "the model's prediction") if is_column(answer) else answer

    return of_numbers


def numeric_columns(x: object, name: str) -> dict[str, HostArray]:
    """Each column of a table of numbers, by name."""
    table = read(x, name)
    check_numbers(table, range(len(table.names)), name)
    return {column: np.ascontiguousarray(table.array[:, j]) for j, column in enumerate(table.names)}


def check_numbers(table: Table, columns: Sequence[int] | range, name: str) -> None:
    bad = [j for j in columns if j in table.coded]
    if not bad:
        return
    column, dtype = shown(table.names[bad[0]]), table.dtype(bad[0])
    if dtype.startswith("Sparse"):
        raise TypeError(
            f"{name}: column {column} is sparse, where plain numbers are needed: pass X[{column}].sparse.to_dense() in "
            "its place"
        )
    raise TypeError(
        f"{name}: column {column} holds text, categories, dates or missing entries ({short(dtype)}), where numbers are "
        "needed: encode it first, or leave it out"
    )
