"""What all results are: frozen records whose arrays nobody writes to, and that become plain JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


def read_only(values: Any, dtype: Any = None) -> NDArray[Any]:
    """A copy that nobody writes to; an array that already is one stays as it is."""
    is_own = isinstance(values, np.ndarray) and values.base is None and not values.flags.writeable
    if is_own and (dtype is None or values.dtype == dtype):
        return np.asarray(values)
    own = np.array(values, dtype=dtype)
    own.flags.writeable = False
    return own


class Record:
    """Base of the results, which are frozen dataclasses.

    Arrays are the result's own and read-only, also after copying, unpickling and in another process.
    """

    _dtypes: ClassVar[Mapping[str, Any]] = {}
    _not_plain: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, value in self._fields().items():
            if isinstance(value, np.ndarray) or (name in self._dtypes and value is not None):
                object.__setattr__(self, name, read_only(value, self._dtypes.get(name)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies and pickles of arrays can be written to, whatever the arrays were.
        self.__dict__.update({k: read_only(v) if isinstance(v, np.ndarray) else v for k, v in state.items()})

    def to_dict(self) -> dict[str, Any]:
        """All fields as strict JSON: plain numbers, strings and lists, with None for NaN and infinities.

        ``json.dumps(result.to_dict(), allow_nan=False)`` always works; `save`, where a result has it, loses nothing.
        """
        return {name: plain(value) for name, value in self._fields().items() if name not in self._not_plain}

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A value as strict JSON has it: lists for arrays, Python's numbers for NumPy's, None for NaN and infinities."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            known = np.isfinite(value)
            value = value.astype(object)
            value[~known] = None
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
