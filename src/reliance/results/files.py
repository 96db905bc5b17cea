"""Results in files that anybody can read: JSON or npz, never pickle; and nothing is believed that a file says.

A file may be cut short, changed by hand, or made to do harm. What it says is checked before memory is taken for it:
arrays are stored as they are, so a file never holds more numbers than it has bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, TypeAlias

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.words import listed, short, shown

_VERSION = 1
# What reading bytes that are not what they say can raise; RuntimeError: an encrypted archive, or endless nesting.
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, LookupError, RuntimeError, OSError)
_DTYPES: dict[str, type[np.generic]] = {"floats": np.float64, "counts": np.int64, "flags": np.bool_}
_WORDS = {"names": "text", "sizes": "counts", "pairs": "pairs of text"}
_MOST_DIGITS = 200  # of an integer: keys have 39


class Kept(NamedTuple):
    """How a field stands in a file.

    Attributes
    ----------
    kind : str
        "floats", "counts", "flags": arrays; "names", "sizes", "pairs": lists of text, of counts, of two texts;
        "number", "count", "key" (a whole number written as text), "text", "flag"; "record", "records": a record, or a
        mapping of them, whose own fields follow with a dot ("curves.0.mean"); "objects": what no file holds, and is
        empty in a result that was read.
    shape : tuple of str
        Of arrays and lists: "p" is the number of features, which `ranked` puts in order, "n" the field n; equal letters
        are equal lengths.
    optional : bool
        Whether it may be null.
    choices : tuple of str
        What a text, or the class of a record, may be, if not anything.
    """

    kind: str
    shape: tuple[str, ...] = ()
    optional: bool = False
    choices: tuple[str, ...] = ()


Fields: TypeAlias = Mapping[str, Kept]


def floats(*shape: str, optional: bool = False) -> Kept:
    return Kept("floats", shape, optional)


def counts(*shape: str) -> Kept:
    return Kept("counts", shape)


def names(*shape: str) -> Kept:
    return Kept("names", shape)


def text(*choices: str) -> Kept:
    return Kept("text", choices=choices)


def record(*choices: str, optional: bool = False) -> Kept:
    return Kept("record", optional=optional, choices=choices)


def records(*choices: str, optional: bool = False) -> Kept:
    return Kept("records", optional=optional, choices=choices)


def dtypes(kept: Mapping[str, Kept]) -> dict[str, type[np.generic]]:
    """Those of the arrays."""
    return {name: _DTYPES[one.kind] for name, one in kept.items() if one.kind in _DTYPES}


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def write(path: str | os.PathLike[str], kind: str, fields: Mapping[str, object]) -> None:
    """Write fields (arrays, numbers, strings, tuples, None) exactly. npz: the arrays, and a header with the rest.

    The file is there as a whole or not at all: if anything fails, one of the same name stays as it was.
    """
    path = _path(path)
    as_json = _suffix(path) == ".json"
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray) and not as_json}
    rest = {name: _exact(value) for name, value in fields.items() if name not in arrays}
    header = json.dumps({"format": f"reliance.{kind}", "version": _VERSION, **rest}, allow_nan=False)
    with _replacing(path) as file:
        if as_json:
            file.write(header.encode("utf-8"))
        else:
            np.savez(file, allow_pickle=False, header=np.array(header), **arrays)


def _path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path={shown(path)} is not a file name: pass one that ends in .json or .npz")
    return Path(path)


def _exact(value: object) -> object:
    """JSON has no nan and no infinity: "nan", "inf" and "-inf", which float() and NumPy read."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return value.item() if isinstance(value, np.generic) else value


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside the old one, which takes its place once it is on the disk."""
    path = Path(os.path.realpath(path))  # what a link names is replaced, not the link
    new = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with new.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            new.chmod(path.stat().st_mode & 0o7777)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, object]]:
    """Which kind of result a file holds, and its fields, not checked yet."""
    found = _contents(_path(path))
    kind, version = found.pop("format", ""), found.pop("version", None)
    if not isinstance(kind, str) or not kind.startswith("reliance."):
        return "", {}
    if version != _VERSION:
        raise ValueError(f"path={named(path)} was saved by another version of reliance: read it with that version")
    return kind.removeprefix("reliance."), found


def checked(
    path: str | os.PathLike[str], kind: str, found: Mapping[str, object], kept: Mapping[str, Kept], prefix: str = ""
) -> dict[str, Any]:
    """The fields of one record as they should be; ``prefix`` stands before their names in the file."""
    wanted = {name: one for name, one in kept.items() if one.kind != "objects"}
    missing = [prefix + name for name in wanted if name not in found]
    strange = [prefix + name for name in found if name not in wanted]
    if missing or strange:
        what = f"lacks {listed(missing)}" if missing else f"has {listed(strange)}, which no {kind} has"
        refuse(path, f"it {what}")
    sizes = {"2": 2}
    result: dict[str, Any] = {}
    for name in sorted(wanted, key=lambda name: name not in ("names", "n")):  # what gives the lengths comes first
        try:
            result[name] = _checked(found[name], wanted[name], name, sizes)
        except (ValueError, TypeError, OverflowError) as error:
            refuse(path, f"its field {short(prefix + name)!r} {short(str(error), 100)}", error)
    return result


def _checked(value: Any, one: Kept, name: str, sizes: dict[str, int]) -> Any:
    """A field as it should be, or a ValueError that says what it is instead."""
    if value is None:
        if one.optional:
            return None
        raise ValueError("is null")
    if one.kind in _DTYPES:
        return _array(value, one, sizes)
    if isinstance(value, np.ndarray):
        raise ValueError("is an array")
    if one.kind in ("names", "sizes", "pairs", "records"):
        each = "names" if one.kind == "records" else one.kind
        if not isinstance(value, list) or not all(_fits(item, each) for item in value):
            raise ValueError(f"is not a list of {_WORDS[each]}")
        if one.shape:
            _match((len(value),), one.shape, sizes)
        if (name == "names" or one.kind == "records") and len(set(value)) < len(value):
            raise ValueError("holds a name twice")
        return tuple(map(tuple, value)) if one.kind == "pairs" else tuple(value)
    if not _fits(value, one.kind) or (one.choices and value not in one.choices):
        wanted = f"one of {listed(one.choices)}" if one.choices else f"a {one.kind}"
        raise ValueError(f"is {shown(value, 30)}, not {wanted}")
    if name == "n":
        sizes["n"] = value
    return {"number": float, "key": int}.get(one.kind, lambda same: same)(value)


def _fits(value: object, kind: str) -> bool:
    if kind in ("text", "names", "record"):
        return isinstance(value, str)
    if kind == "pairs":
        return isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value)
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "key":
        return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    if kind == "number":
        return value in ("nan", "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool))
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _array(value: Any, one: Kept, sizes: dict[str, int]) -> HostArray:
    if not isinstance(value, np.ndarray):
        if not isinstance(value, list) or _holds_null(value):
            raise ValueError("is not a list of numbers")
        if one.kind == "counts" and not all(_fits(item, "count") for item in value):
            raise ValueError("is not a list of counts")
        if one.kind == "flags" and not all(type(item) is bool for item in np.array(value, dtype=object).flat):
            raise ValueError("is not a list of true and false")
        try:
            value = np.array(value, dtype=_DTYPES[one.kind])
        except ValueError as error:
            raise ValueError("is not a list of numbers, or its rows differ in length") from error
    found: HostArray = value
    if value.dtype != _DTYPES[one.kind]:
        raise ValueError(f"is an array of {value.dtype}, not of {np.dtype(_DTYPES[one.kind])}")
    if one.kind == "counts" and (value < 0).any():
        raise ValueError("has negative counts")
    if one.shape:
        _match(found.shape, one.shape, sizes)
    return found


def _holds_null(value: list[object]) -> bool:
    """NumPy would read null as nan."""
    return any(_holds_null(item) if isinstance(item, list) else item is None for item in value)


def _match(shape: tuple[int, ...], wanted: tuple[str, ...], sizes: dict[str, int]) -> None:
    fits = len(shape) == len(wanted)
    fits = fits and all(sizes.setdefault(letter, size) == size for letter, size in zip(wanted, shape, strict=True))
    if not fits:
        known = ", ".join(f"{sizes[letter]}" if letter in sizes else letter for letter in wanted)
        raise ValueError(f"has shape {shape}, not ({known}{',' if len(wanted) == 1 else ''})")


# ---------------------------------------------------------------------------------------------------------------------
# Bytes


def _contents(path: Path) -> dict[str, object]:
    """What a file holds, not checked yet: of npz the header and the arrays."""
    suffix = _suffix(path)
    with path.open("rb") as file:  # a file that is not there is the system's own error
        try:
            found = json.loads(file.read()) if suffix == ".json" else _unzipped(file)
        except _BROKEN as error:
            refuse(path, f"it is cut short or no {suffix} file of ours ({short(str(error), 80)})", error)
    if not isinstance(found, dict):
        refuse(path, "it holds no saved Importance or other result")
    return found


def _unzipped(file: BinaryIO) -> dict[str, object]:
    """The members of an npz. They are stored, not compressed, so no member is larger than the file."""
    there = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as members:
        infos = {info.filename.removesuffix(".npy"): info for info in members.infolist()}
        if len(infos) < len(members.infolist()):
            raise ValueError("a name twice")
        if sum(info.file_size for info in infos.values()) > there:
            raise ValueError("its arrays are larger than the file: save writes none that are compressed")
        if "header" not in infos:
            return {}
        found: object = json.loads(str(_npy(members.read(infos["header"]))))
        if not isinstance(found, dict):
            return {}
        rest = [name for name in infos if name != "header"]
        if any(name in found for name in rest):
            raise ValueError("a field twice")
        return found | {name: _npy(members.read(infos[name])) for name in rest}


def _npy(data: bytes) -> HostArray:
    """An array of the npy format, of numbers or text; its shape is compared with the bytes that are there."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise ValueError(f"npy version {version}")
    shape, by_column, dtype = read_header[version](file)
    if dtype.hasobject:
        raise ValueError("Python objects, which are never unpickled")
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("an array that is longer or shorter than it says")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if by_column else "C")


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".json", ".npz"):
        raise ValueError(f"path={named(path)} must end in .json or .npz")
    return path.suffix.lower()


def named(path: str | os.PathLike[str]) -> str:
    """A path's end, which tells more than its beginning."""
    words = str(path)
    return repr(words if len(words) <= 80 else "..." + words[-77:])


def refuse(path: str | os.PathLike[str], why: str, error: BaseException | None = None) -> NoReturn:
    raise ValueError(f"path={named(path)} cannot be read: {why}; give a file that save wrote") from error
