"""What all figures share: colours, axes, whiskers, the line of no importance; the one import of matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance._core.words import shown
from reliance.plots import wording

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

# Okabe and Ito's palette, which readers with any colour vision can tell apart; without yellow, which white swallows.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILLION, GREY, LIGHT = "#56B4E9", "#D55E00", "#595959", "#D9D9D9"
# Bars are paler than points, so that whiskers stand out on them.
PALE_BLUE, PALE_VERMILLION, INK = "#7FB8DA", "#F0A878", "#1A1A1A"
# Neighbours also differ where green and red do not: green and purple, both grey there, stand apart.
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE, GREY)
# Signed values as in bars: blue above 0, red below.
DIVERGING = "RdBu"
_HATCHES = ("", "///", "...", "xxx")
_LETTER = 0.078  # inches of a letter, on average
_SMALL_LETTER = 0.05
_LEAST_ROOM = 7.5  # points from one label to the next: smaller ones cannot be read


class Measured(Protocol):
    """What has a value, and an interval, for each feature."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> Floats: ...
    def interval(self, level: float = 0.95) -> Floats: ...


# ---------------------------------------------------------------------------------------------------------------------
# Axes


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given Axes, or those of a new figure."""
    if ax is not None:
        if not hasattr(ax, "barh"):
            raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}")
        return ax
    return subplots(width, height, 1)[0]


def subplots(width: float, height: float, many: int, share: bool = False) -> NDArray[np.object_]:
    """An array of the Axes of a new figure, in a line; they may share the axis of features."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed: pip install matplotlib") from error
    made = plt.subplots(1, many, figsize=(width, height), layout="constrained", squeeze=False, sharey=share)[1]
    return np.asarray(made[0], dtype=object)


def count(most: object, there: int, name: str = "most") -> int:
    """How many of those that are there to draw."""
    if isinstance(most, bool) or not isinstance(most, int | np.integer):
        raise TypeError(f"{name}={shown(most)} is not an integer: give how many to draw")
    if most < 1:
        raise ValueError(f"{name}={most} leaves nothing to draw: give 1 or more")
    return min(int(most), there)


def largest(values: Floats, most: object) -> Places:
    """The places of the largest values, in their order; unknown ones come last."""
    order = np.argsort(-values, kind="stable")
    return order[: count(most, len(values))]


def height(lines: int, each: float = 0.28) -> float:
    """Inches of a new figure: a place for each line, and room for title, axis and caption."""
    return min(1.5 + each * lines, 60.0)


def feature_axes(
    ax: Axes | None, names: Sequence[str], lines: int = 1, beside: Sequence[str] = (), least: float = 0.0
) -> Axes:
    """Axes with a place 0, 1, ... for each label, downwards; ``lines`` bars share a place, ``beside`` is the legend."""
    widest = max(map(len, names)) + (max(map(len, wording.labels(beside))) + 6 if beside else 0)
    each = 0.28 if lines == 1 else 0.12 + 0.16 * lines
    ax = axes(ax, 5.0 + _LETTER * widest, max(least, height(len(names), each)))
    name_places(ax, names)
    return ax


def name_places(ax: Axes, names: Sequence[str]) -> None:
    """A label for each place, smaller where room is little, and where there is too little for some of them only."""
    room = place_room(ax, len(names))
    step = max(1, math.ceil(_LEAST_ROOM / room))
    ax.set_yticks(range(0, len(names), step), names[::step])
    if room * step < 13.0:
        ax.tick_params(axis="y", labelsize=0.75 * room * step)
    ax.set_ylim(len(names) - 0.4, -0.6)


def place_room(ax: Axes, places: float) -> float:
    """Points from one of so many places to the next."""
    return float(72.0 * ax.figure.get_figheight() * ax.get_position().height / places)


def finish(
    ax: Axes,
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    grid: str = "x",
    null: float | None = None,
    caption: str = "",
) -> Axes:
    """Names of the axes, the line of no importance, a light grid, the caption."""
    if null is not None:
        (ax.axvline if grid == "x" else ax.axhline)(null, color=GREY, linewidth=1.0)
    for put, label in ((ax.set_xlabel, xlabel), (ax.set_ylabel, ylabel)):
        if label:
            put(wording.text(label))
    ax.set_title(wording.text(title), fontsize="medium")
    ax.grid(axis=grid, linewidth=0.5, alpha=0.4)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    put_caption(ax, caption)
    return ax


def put_caption(ax: Axes, caption: str) -> None:
    """Small words below the axis, which move with it; no title or label that is set later covers them."""
    if not caption:
        return
    # New figures are wide for the sake of names and legends beside the Axes.
    room = min(4.6, float(ax.figure.get_figwidth() * ax.get_position().width))
    lines = textwrap.wrap(wording.text(caption), max(24, int(room / _SMALL_LETTER)))
    place = {"xycoords": ax.xaxis.label, "xytext": (0, -3), "textcoords": "offset points", "annotation_clip": False}
    looks = {"ha": "center", "va": "top", "fontsize": "x-small", "color": GREY, "gid": "caption"}
    ax.annotate("\n".join(lines), (0.5, 0.0), **place, **looks)


def hidden_labels(ax: Axes, there: int, things: str = "features") -> str:
    """How many places of the axis of names have no label, in words."""
    return wording.unlabelled(there - len(ax.get_yticks()), there, things)


def legend(ax: Axes, handles: Sequence[Artist], names: Sequence[str], title: str | None = None) -> None:
    """Beside the axes, where it covers no data."""
    # matplotlib leaves out what begins with an underscore.
    shown = ["\u200b" + name if name.startswith("_") else name for name in wording.labels(names)]
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    columns = 1 + (len(shown) - 1) // 20
    ax.legend(handles, shown, title=title, frameon=False, fontsize="small", ncols=columns, alignment="left", **place)


def fill(index: int) -> dict[str, object]:
    """How to fill the bars of one of several sets: a colour, and a hatch when colours run out."""
    return {
        "facecolor": COLOURS[index % len(COLOURS)],
        "hatch": _HATCHES[(index // len(COLOURS)) % len(_HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.0,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Uncertainty


def whiskers(ax: Axes, places: HostArray, ends: Floats, colour: str = INK, zorder: float = 2.0) -> None:
    """Lines between known ends (p, 2), with caps; an infinite end is an arrow at the edge of the axes."""
    known = ~np.isnan(ends).any(axis=1)
    if not known.any():
        return
    places, ends = places[known], ends[known]
    finite = ends[np.isfinite(ends)]
    if finite.size:
        ax.update_datalim([(value, places[0]) for value in (finite.min(), finite.max())], updatey=False)
        ax.autoscale_view(scaley=False)
    # Thin where many share little room.
    room = place_room(ax, abs(np.subtract(*ax.get_ylim())))
    width = min(1.3, 0.15 * room)
    looks = {"color": colour, "path_effects": _halo(width) if room > 8.0 else None, "zorder": zorder}
    caps = ends
    if np.isinf(ends).any():
        edges = ax.get_xlim()
        ax.set_xlim(edges)  # the arrows mark these edges
        for end, edge, marker in ((-math.inf, edges[0], "<"), (math.inf, edges[1], ">")):
            at = places[(ends == end).any(axis=1)]
            if not at.size:  # an empty line that is not clipped would count as a point at the corner of the figure
                continue
            ax.plot(np.full(len(at), edge), at, marker, color=colour, markersize=min(5.0, 0.5 * room), clip_on=False)
        caps = np.where(np.isinf(ends), math.nan, ends)
        ends = np.clip(ends, *edges)
    ax.hlines(places, ends[:, 0], ends[:, 1], linewidth=width, **looks)
    size = {"markersize": min(7.0, 0.6 * room), "markeredgewidth": width}
    ax.plot(caps.T.reshape(-1), np.tile(places, 2), "|", **size, **looks)


def _halo(width: float) -> list[object]:
    """A white rim, on which a line is seen whatever lies below it."""
    from matplotlib import patheffects

    return [patheffects.withStroke(linewidth=width + 1.4, foreground="white")]


def stretch(values: Floats, null: float) -> Floats:
    """Lengths of bars from the line of no importance; none for what is not finite."""
    return np.where(np.isfinite(values), values - null, 0.0)


def colour_limit(values: HostArray, null: float) -> float:
    """How far the colours of signed values reach to either side of no importance."""
    finite = np.abs(values[np.isfinite(values)] - null)
    return float(finite.max(initial=0.0)) or 1.0
