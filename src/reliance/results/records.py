"""Frozen records whose arrays nobody writes to, that become plain JSON, and that a file can hold."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reliance._core.kinds import HostArray
from reliance._core.words import listed, short
from reliance.results import files
from reliance.results.files import Kept

KINDS: dict[str, type[Record]] = {}  # every class of records by its name: what a file may hold
_DEEPEST = 4  # records within records


def read_only(values: object, dtype: DTypeLike | None = None) -> HostArray:
    """A copy that nobody writes to; an array that already is one stays as it is."""
    if (
        isinstance(values, np.ndarray)
        and values.base is None
        and not values.flags.writeable
        and (dtype is None or values.dtype == dtype)
    ):
        return np.asarray(values)
    own = np.array(values, dtype=dtype)
    own.flags.writeable = False
    return own


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """Base of results and of their parts, which are frozen dataclasses.

    Arrays are the record's own and read-only, also after copying, unpickling and in another process. ``_kept`` says how
    each field stands in a file; from it follow the dtypes, what a file is checked for, and which axis is the features'.
    """

    _kept: ClassVar[Mapping[str, Kept]] = {}
    _dtypes: ClassVar[Mapping[str, type[np.generic]]] = {}
    _not_plain: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._dtypes = files.dtypes(cls._kept)
        ours = cls.__module__.partition(".")[0] == "reliance"
        KINDS[cls.__name__ if ours else f"{cls.__module__}.{cls.__qualname__}"] = cls

    def __post_init__(self) -> None:
        for name, value in self._fields().items():
            if isinstance(value, np.ndarray) or (name in self._dtypes and value is not None):
                object.__setattr__(self, name, read_only(value, self._dtypes.get(name)))

    def __setstate__(self, state: dict[str, object]) -> None:
        # Copies and pickles of arrays can be written to, whatever the arrays were.
        self.__dict__.update({k: read_only(v) if isinstance(v, np.ndarray) else v for k, v in state.items()})

    def to_dict(self) -> dict[str, Any]:
        """All fields as strict JSON: plain numbers, strings and lists, with None for NaN and infinities.

        ``json.dumps(result.to_dict(), allow_nan=False)`` always works; ``save`` loses nothing.
        """
        return {name: plain(value) for name, value in self._fields().items() if name not in self._not_plain}

    def _fields(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def _taken(self, order: NDArray[np.intp]) -> Self:
        """Some features, in an order, wherever a field has an axis of them."""
        moved: dict[str, Any] = {}
        for name, one in self._kept.items():
            value = getattr(self, name)
            if isinstance(value, Record):
                moved[name] = value._taken(order)
            elif one.kind == "records" and value is not None:
                taken = {key: item._taken(order) for key, item in value.items()}
                if any(taken[key] is not value[key] for key in taken):
                    moved[name] = taken
            elif "p" in one.shape and isinstance(value, np.ndarray):
                moved[name] = np.take(value, order, axis=one.shape.index("p"))
            elif "p" in one.shape and value:
                moved[name] = tuple(value[k] for k in order)
        return dataclasses.replace(self, **moved) if moved else self

    # -----------------------------------------------------------------------------------------------------------------
    # Files

    @classmethod
    def _kind(cls) -> str:
        return next(kind for kind, known in KINDS.items() if known is cls)

    def _saved(self, prefix: str = "") -> dict[str, object]:
        """What a file holds: fields by name, those of records within this one with a dot."""
        found: dict[str, object] = {}
        for name, one in self._kept.items():
            value, name = getattr(self, name), prefix + name
            if one.kind == "objects":
                continue
            if one.kind == "record" and value is not None:
                found |= {name: value._kind(), **value._saved(f"{name}.")}
            elif one.kind == "records" and value is not None:
                found[name] = list(value)
                for k, item in enumerate(value.values()):
                    found |= {f"{name}.{k}": item._kind(), **item._saved(f"{name}.{k}.")}
            else:
                # Readers of JSON in other languages keep integers to 53 bits only: a key is written as text.
                found[name] = str(value) if one.kind == "key" else value
        return found

    @classmethod
    def _read(cls, path: str | os.PathLike[str], found: Mapping[str, object], prefix: str = "") -> Self:
        """The record of such fields, checked."""
        own = {name: value for name, value in found.items() if "." not in name}
        within: dict[str, dict[str, object]] = {}
        for name in found:
            first, dot, rest = name.partition(".")
            if dot:
                within.setdefault(first, {})[rest] = found[name]
        fields = files.checked(path, cls.__name__, own, cls._kept, prefix)
        for name, one in cls._kept.items():
            if one.kind == "objects":
                fields[name] = ()
            elif one.kind == "record" and fields[name] is not None:
                fields[name] = _part(path, one, fields[name], within.pop(name, {}), f"{prefix}{name}.")
            elif one.kind == "records" and fields[name] is not None:
                fields[name] = _parts(path, one, fields[name], within.pop(name, {}), f"{prefix}{name}.")
        if within:
            files.refuse(path, f"it has {prefix}{listed(within)} with fields that no {cls.__name__} has")
        result = cls(**fields)
        if fault := result._fault():
            files.refuse(path, fault)
        return result

    def _fault(self) -> str:
        """What of a file that was read does not fit together."""
        return ""


def _part(path: str | os.PathLike[str], one: Kept, kind: str, found: Mapping[str, object], prefix: str) -> Record:
    known = KINDS.get(kind)
    if known is None or (one.choices and kind not in one.choices) or prefix.count(".") > 2 * _DEEPEST:
        files.refuse(path, f"its field {short(prefix[:-1])!r} holds no {listed(one.choices) or 'result'}")
    return known._read(path, found, prefix)


def _parts(
    path: str | os.PathLike[str], one: Kept, keys: tuple[str, ...], found: Mapping[str, object], prefix: str
) -> dict[str, Record]:
    parts: dict[str, Record] = {}
    for k, key in enumerate(keys):
        kind = found.get(str(k))
        if not isinstance(kind, str):
            files.refuse(path, f"it lacks '{prefix}{k}'")
        own = {name.partition(".")[2]: value for name, value in found.items() if name.startswith(f"{k}.")}
        parts[key] = _part(path, one, kind, own, f"{prefix}{k}.")
    strange = [prefix + name for name in found if name.partition(".")[0] not in set(map(str, range(len(keys))))]
    if strange:
        files.refuse(path, f"it has {listed(strange)}, which belong to nothing")
    return parts


def plain(value: object) -> Any:
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
