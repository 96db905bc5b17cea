"""Results as text, HTML and data frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape as escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reliance._core.kinds import HostArray
from reliance._core.words import listed as listed
from reliance._core.words import short as short
from reliance._core.words import told_apart as told_apart

if TYPE_CHECKING:
    from pandas import DataFrame

_SHOWN = 20


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
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.cells)
        below = f"<p>{escape(self.closing)}</p>" if self.closing else ""
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>{body}</tbody></table>{below}"


def number(value: float, form: str = "#.4g") -> str:
    """A cell; a dash for what is not known."""
    if value == 0.0:
        return "0"
    return "-" if math.isnan(value) else format(float(value), form).rstrip(".")


def by_feature(
    title: str,
    names: Sequence[str],
    columns: Mapping[str, HostArray],
    by: HostArray,
    name: str = "feature",
    forms: Sequence[str] | None = None,
    rest: str = "to_frame() has all",
) -> Table:
    """One row per feature, or of many those that are largest by some numbers; what is not known comes last.

    Names are told apart among all of them, as in figures: a feature has the same label in both.
    """
    chosen, closing = np.arange(len(names)), ""
    if len(chosen) > _SHOWN:
        chosen = np.argsort(-np.asarray(by), kind="stable")[:_SHOWN]
        closing = f"the {_SHOWN} largest of {len(names)} {name}s; {rest}"
    forms = forms or ["#.4g"] * len(columns)
    places = [int(k) for k in chosen]
    labels = told_apart(names)
    cells = [
        [labels[k], *(number(float(c[k]), form) for c, form in zip(columns.values(), forms, strict=True))]
        for k in places
    ]
    return Table(title, [name, *columns], cells, closing)


def frame(names: Sequence[object], columns: Mapping[str, object], name: str = "feature") -> DataFrame:
    """A pandas DataFrame, one row per feature, or per pair of them."""
    pd = pandas()
    return pd.DataFrame(dict(columns), index=pd.Index(names, name=name))


def pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
    return pd
