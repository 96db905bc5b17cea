"""HTML that nobody can break: every text is escaped where it becomes part of an element, and nowhere else."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Neither HTML nor UTF-8 can hold these: control characters, halves of surrogate pairs, and what is no character.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"img", "meta", "link", "br"})
_LARGE, _SMALL = 1e7, 1e-4  # numbers outside are written with a power of ten
_SHORT = 25  # rows of a table that is not divided between two sheets of paper
_DIGITS = 4  # of the largest number of a column

Numbers: TypeAlias = Sequence[float] | NDArray[np.float64]


class Html(str):
    """Text that is HTML already. Made by `element` and `text` alone; any other string is escaped."""

    __slots__ = ()


def text(value: object) -> Html:
    """Any value as content of an element: HTML stays, all else is escaped."""
    return value if isinstance(value, Html) else Html(escaped(value))


def escaped(value: object) -> str:
    """Any value as characters that mean themselves, in content and within the quotes of an attribute."""
    return escape(_UNFIT.sub("\ufffd", str(value)), quote=True)


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element; ``class_`` is the attribute class, ``data_value`` is data-value, None and False leave one out."""
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        # What is HTML already as content is not as the value of an attribute.
        words.append(key if value is True else f'{key}="{escaped(value)}"')
    opened = f"<{' '.join(words)}>"
    if tag in _VOID:
        return Html(opened)
    return Html(f"{opened}{join(children)}</{tag}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other, each escaped unless it is HTML."""
    return Html(text(between).join(text(part) for part in parts if part is not None))


def paragraph(*children: object, class_: str | None = None) -> Html:
    return element("p", *children, class_=class_)


def bullets(items: Sequence[object], class_: str | None = None) -> Html | None:
    """A list, or nothing."""
    return element("ul", *(element("li", item) for item in items), class_=class_) if items else None


# ---------------------------------------------------------------------------------------------------------------------
# Numbers


def number(value: float) -> str:
    """A number in a sentence: four digits, no powers of ten where they can be avoided."""
    return numbers([value])[0]


def numbers(values: Sequence[float]) -> list[str]:
    """The numbers of a column with the same decimals, so that they stand below each other."""
    sizes = [abs(v) for v in values if math.isfinite(v) and v != 0.0]
    largest = max(sizes, default=1.0)
    form = f".{_DIGITS - 1}e"
    if _SMALL <= largest < _LARGE:
        decimals = max(0, _DIGITS - 1 - math.floor(math.log10(largest)))
        form = f",.{decimals}f"
    return [_number(float(value), form) for value in values]


def _number(value: float, form: str) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0.0:
        return "0"
    written = format(value, form)
    if not written.strip("-0.,"):  # what rounds to 0 has no sign
        written = written.lstrip("-")
    return written.replace("-", "−", 1) if written.startswith("-") else written


def p_value(value: float) -> str:
    """A p-value to three decimals."""
    if math.isnan(value):
        return "–"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


# ---------------------------------------------------------------------------------------------------------------------
# Tables


@dataclass(frozen=True)
class Column:
    """A column of numbers: its head, what it means, the numbers, and how they are written."""

    head: str
    means: str
    values: Sequence[float]
    written: Sequence[str]


def columns(parts: Sequence[tuple[str, str, Numbers]]) -> list[Column]:
    """Columns of one unit: they share their decimals."""
    every = [float(v) for _, _, values in parts for v in values]
    written, found, start = numbers(every), [], 0
    for head, means, values in parts:
        stop = start + len(values)
        found.append(Column(head, means, [float(v) for v in values], written[start:stop]))
        start = stop
    return found


def table(caption: str, names: Sequence[str], parts: Sequence[Column], first: str = "Feature") -> Html:
    """One row per feature, complete without a script; below it, what the columns mean.

    Cells hold their number in full as ``data-value``, which the script sorts by and shows.
    """
    heads = [element("th", first, scope="col", class_="name")]
    heads += [element("th", part.head, scope="col", data_tip=part.means) for part in parts]
    rows = []
    for k, name in enumerate(names):
        cells = [element("th", element("bdi", name), scope="row", class_="name")]
        cells += [element("td", part.written[k], data_value=repr(float(part.values[k]))) for part in parts]
        rows.append(element("tr", *cells))
    inner = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        class_="sortable short" if len(names) <= _SHORT else "sortable",
    )
    scroll = element("div", inner, class_="scroll", role="region", aria_label=caption, tabindex="0")
    meanings = [Html(element("dt", part.head) + element("dd", part.means)) for part in parts if part.means]
    return join([scroll, element("dl", *meanings, class_="columns") if meanings else None])
