"""Results as text, HTML, and files that anybody can read: JSON or npz, never pickle."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_VERSION = 1


class Table(NamedTuple):
    """A table to be shown: the first column is text, the others are numbers."""

    title: str
    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    closing: str = ""

    def text(self) -> str:
        rows = [list(row) for row in (self.header, *self.cells)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        name, *numbers = widths
        lines = [
            "  ".join([row[0].ljust(name), *(cell.rjust(width) for cell, width in zip(row[1:], numbers, strict=True))])
            for row in rows
        ]
        return "\n".join([self.title, *lines, *([self.closing] if self.closing else [])])

    def html(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.cells)
        below = f"<p>{html.escape(self.closing)}</p>" if self.closing else ""
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>{body}</tbody></table>{below}"


def number(value: float, form: str = "#.4g") -> str:
    """A cell; a dash for what is not known."""
    if value == 0.0:
        return "0"
    return "-" if math.isnan(value) else format(float(value), form).rstrip(".")


def short(name: str, most: int = 40) -> str:
    """A name that fits a table or an axis: one line, not too long."""
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 3] + "..."


def listed(names: Sequence[str], most: int = 5) -> str:
    """Some of many names, for messages."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def plain(value: Any) -> Any:
    """Arrays and tuples as lists, everything else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity: they become "nan", "inf" and "-inf", which float() and NumPy read."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".json", ".npz"):
        raise ValueError(f"path={str(path)!r} must end in .json or .npz")
    return path.suffix.lower()


def write(path: str | os.PathLike[str], kind: str, fields: Mapping[str, Any]) -> None:
    """Write fields (arrays, numbers, strings, tuples, None) exactly. npz: the arrays, and a header with the rest."""
    path = Path(path)
    as_json = _suffix(path) == ".json"
    arrays: dict[str, Any] = {
        name: value for name, value in fields.items() if isinstance(value, np.ndarray) and not as_json
    }
    rest = _finite({name: plain(value) for name, value in fields.items() if name not in arrays})
    text = json.dumps({"format": f"reliance.{kind}", "version": _VERSION, **rest}, allow_nan=False)
    if as_json:
        path.write_text(text, encoding="utf-8")
        return
    with path.open("wb") as file:
        np.savez(file, header=np.array(text), **arrays)


def kind_of(path: str | os.PathLike[str]) -> str:
    """Which kind of result a file holds."""
    path = Path(path)
    if _suffix(path) == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        with np.load(path, allow_pickle=False) as file:
            found = json.loads(str(file["header"])) if "header" in file.files else {}
    kind = found.get("format", "") if isinstance(found, dict) else ""
    return str(kind).removeprefix("reliance.")


def read(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """The fields of a file that `write` wrote; lists where there were tuples, and arrays where JSON held them."""
    path = Path(path)
    if _suffix(path) == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        found.update(json.loads(str(found.pop("header", "{}"))))
    if not isinstance(found, dict) or found.pop("format", None) != f"reliance.{kind}":
        raise ValueError(f"path={str(path)!r} holds no saved {kind}: give a file that its save method wrote")
    if found.pop("version", None) != _VERSION:
        raise ValueError(f"path={str(path)!r} was saved by another version of reliance: read it with that version")
    return found
