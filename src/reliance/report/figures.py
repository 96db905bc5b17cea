"""Figures of results as part of a page: drawn by the results themselves, with words for those who do not see them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from reliance.report.html import Html, element

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.6  # inches, of figures that stand alone
_LARGEST_SVG = 250_000  # bytes; above it a figure of many points is a picture of pixels
_DPI = 200


def figure(draw: Callable[[Axes], object], alt: str, *, height: float, width: float = WIDTH) -> Html:
    """What ``draw`` puts on Axes, as an image in the page; the caption of a figure becomes words below it."""
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib, which is not installed: pip install matplotlib") from error
    # As the library draws it, whatever the user's own settings; no window, nothing of pyplot's.
    with matplotlib.style.context("default", after_reset=True):
        made = Figure(figsize=(width, height), layout="constrained")
        ax = made.add_subplot()
        draw(ax)
        caption = _take_words(ax)
        source = _encoded(made)
    # The page is as wide as the figure at most; its height is known before it is there.
    image = element("img", src=source, alt=alt, width=round(96 * width), height=round(96 * height))
    # What is wide on a small screen can be moved sideways, rather than become too small to read.
    frame = (
        element("div", image, class_="wide", role="group", aria_label="Figure", tabindex="0")
        if width >= WIDTH
        else image
    )
    return element("figure", frame, element("figcaption", caption))


def by_feature(count: int, lines: int = 1, most: int = 30) -> float:
    """Inches for bars of so many features."""
    each = 0.28 if lines == 1 else 0.12 + 0.16 * lines
    return 1.3 + each * min(count, most)


def _take_words(ax: Axes) -> str:
    """Title and caption of a figure, which are taken out of it: the page has them as text."""
    said = [ax.get_title()]
    ax.set_title("")
    for found in [one for one in ax.texts if one.get_gid() == "caption"]:
        said.append(found.get_text())
        found.remove()
    words = [" ".join(part.replace(r"\$", "$").split()) for part in said]
    return ". ".join(part for part in words if part) + "."


def _encoded(made: Figure) -> str:
    """A data URL: lines that stay sharp at any size, or pixels where lines would be too many."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "reliance"}):
        made.savefig(file, format="svg", metadata={"Date": None})
    kind = "svg+xml"
    if file.tell() > _LARGEST_SVG:
        file, kind = io.BytesIO(), "png"
        made.savefig(file, format="png", dpi=_DPI)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
