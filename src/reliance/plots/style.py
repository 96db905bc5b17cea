"""What all figures share: colours, axes, names, whiskers, the line of no importance; the one import of matplotlib."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import words
from reliance._core.words import shown

Floats = NDArray[np.float64]

# Okabe and Ito's palette, which readers with any colour vision can tell apart; without yellow, which white swallows.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILLION, GREY = "#56B4E9", "#D55E00", "#595959"
# Neighbours also differ where green and red do not: green and purple, both grey there, stand apart.
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE, GREY)
# Signed values as in bars: blue above 0, red below.
DIVERGING = "RdBu"
_HATCHES = ("", "///", "...", "xxx")
_LETTER = 0.078  # inches of a letter, on average


class Measured(Protocol):
    """What has a value, and an interval, for each feature."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> Floats: ...
    def interval(self, level: float = 0.95) -> Floats: ...


def draw(kinds: Mapping[str, Callable[..., Any]], kind: Any, result: Any, ax: Any, options: Mapping[str, Any]) -> Any:
    """Draw a result as one of the kinds that it has; the names of options are checked."""
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind={shown(kind)} is not known: use one of {', '.join(map(repr, kinds))}")
    known = list(inspect.signature(kinds[kind]).parameters)[2:]  # after the result and ax
    for name in options:
        if name not in known:
            raise TypeError(f"kind={shown(kind)} has no option {shown(name)}: it takes {', '.join(known) or 'none'}")
    return kinds[kind](result, ax, **options)


def side_by_side(results: Mapping[str, Any], chosen: Mapping[str, Any], ax: Any, options: Mapping[str, Any]) -> Any:
    """Each result in Axes of its own, below its name; their array."""
    if ax is None:
        first = next(iter(results.values()))
        lines = len(getattr(first, "names", ())) or 10
        places = subplots(7.0 * len(results), max(3.0, min(1.6 + 0.28 * min(lines, 30), 60.0)), len(results))
    else:
        places = np.atleast_1d(np.asarray(ax, dtype=object))
    if places.shape != (len(results),):
        raise ValueError(f"ax has shape {places.shape}: give a sequence of {len(results)} Axes, one for each result")
    for place, (name, result) in zip(places, results.items(), strict=True):
        drawn = result.plot(ax=place, **chosen, **options)
        drawn.set_title(text(f"{words.short(name)}: {drawn.get_title()}".removesuffix(": ")), fontsize="medium")
    return places


def axes(ax: Any, width: float, height: float) -> Any:
    """The given Axes, or those of a new figure."""
    if ax is not None:
        if not hasattr(ax, "barh"):
            raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}")
        return ax
    return subplots(width, height, 1)[0]


def subplots(width: float, height: float, many: int) -> Any:
    """An array of the Axes of a new figure, in a line."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed: pip install matplotlib") from error
    return plt.subplots(1, many, figsize=(width, height), layout="constrained", squeeze=False)[1][0]


def count(most: Any, there: int, name: str = "most") -> int:
    """How many of those that are there to draw."""
    if isinstance(most, bool) or not isinstance(most, int | np.integer):
        raise TypeError(f"{name}={shown(most)} is not an integer: give how many to draw")
    if most < 1:
        raise ValueError(f"{name}={most} leaves nothing to draw: give 1 or more")
    return min(int(most), there)


def largest(values: Floats, most: Any) -> NDArray[np.intp]:
    """The places of the largest values, in their order; unknown ones come last."""
    order = np.argsort(-values, kind="stable")
    return order[: count(most, len(values))]


# ---------------------------------------------------------------------------------------------------------------------
# Text


def text(words: str) -> str:
    """Dollar signs are not mathematics."""
    return words.replace("$", r"\$")


def labels(names: Sequence[str], most: int = 40) -> list[str]:
    """Names that fit an axis, told apart as in tables."""
    return [text(name) for name in words.told_apart(names, most)]


def amount(compare: str, loss: str) -> str:
    """The name of the axis of values."""
    return f"{ {'difference': 'increase', 'ratio': 'ratio', 'share': 'share'}[compare] } of {loss}"


def title(what: str, shown: int, there: int) -> str:
    return what if shown == there else f"{what}, {shown} largest of {there}"


# ---------------------------------------------------------------------------------------------------------------------
# Axes


def feature_axes(ax: Any, names: Sequence[str], lines: int = 1, beside: Sequence[str] = (), least: float = 0.0) -> Any:
    """Axes with a place 0, 1, ... for each name, downwards; ``lines`` bars share a place, ``beside`` is the legend."""
    shown = labels(names)
    widest = max(map(len, shown)) + (max(map(len, labels(beside))) + 6 if beside else 0)
    each = 0.28 if lines == 1 else 0.12 + 0.16 * lines
    ax = axes(ax, 5.0 + _LETTER * widest, max(least, min(1.2 + each * len(shown), 60.0)))
    # In Axes that were given, many names must share little room.
    room = 72.0 * ax.figure.get_figheight() * ax.get_position().height / len(shown)
    step = max(1, math.ceil(5.0 / room))
    ax.set_yticks(range(0, len(shown), step), shown[::step])
    if room < 13.0:
        ax.tick_params(axis="y", labelsize=max(4.0, 0.75 * room * step))
    ax.set_ylim(len(shown) - 0.4, -0.6)
    return ax


def finish(ax: Any, *, xlabel: str = "", ylabel: str = "", title: str = "", grid: str = "x", null: Any = None) -> Any:
    """Names of the axes, the line of no importance, a light grid."""
    if null is not None:
        (ax.axvline if grid == "x" else ax.axhline)(null, color=GREY, linewidth=1.0)
    for put, label in ((ax.set_xlabel, xlabel), (ax.set_ylabel, ylabel)):
        if label:
            put(text(label))
    ax.set_title(text(title), fontsize="medium")
    ax.grid(axis=grid, linewidth=0.5, alpha=0.4)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def legend(ax: Any, handles: Sequence[Any], names: Sequence[str], title: str | None = None) -> None:
    """Beside the axes, where it covers no data."""
    # matplotlib leaves out what begins with an underscore.
    shown = ["\u200b" + name if name.startswith("_") else name for name in labels(names)]
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    columns = 1 + (len(shown) - 1) // 20
    ax.legend(handles, shown, title=title, frameon=False, fontsize="small", ncols=columns, alignment="left", **place)


def fill(index: int) -> dict[str, Any]:
    """How to fill the bars of one of several sets: a colour, and a hatch when colours run out."""
    return {
        "facecolor": COLOURS[index % len(COLOURS)],
        "hatch": _HATCHES[(index // len(COLOURS)) % len(_HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.0,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Uncertainty


def whiskers(ax: Any, places: NDArray[Any], ends: Floats, colour: str = "black", zorder: float = 2.0) -> None:
    """Lines between known ends (p, 2), with caps; an infinite end is an arrow at the edge of the axes."""
    known = ~np.isnan(ends).any(axis=1)
    if not known.any():
        return
    places, ends = places[known], ends[known]
    finite = ends[np.isfinite(ends)]
    if finite.size:
        ax.update_datalim([(value, places[0]) for value in (finite.min(), finite.max())], updatey=False)
        ax.autoscale_view(scaley=False)
    if np.isinf(ends).any():
        edges = ax.get_xlim()
        ax.set_xlim(edges)  # the arrows mark these edges
        for end, edge, marker in ((-math.inf, edges[0], "<"), (math.inf, edges[1], ">")):
            at = places[(ends == end).any(axis=1)]
            ax.plot(np.full(len(at), edge), at, marker, color=colour, markersize=5, clip_on=False)
        caps = np.where(np.isinf(ends), math.nan, ends)
        ends = np.clip(ends, *edges)
    else:
        caps = ends
    # Thin where many share little room.
    room = 72.0 * ax.figure.get_figheight() * ax.get_position().height / abs(np.subtract(*ax.get_ylim()))
    width = min(1.2, 0.15 * room)
    ax.hlines(places, ends[:, 0], ends[:, 1], color=colour, linewidth=width, zorder=zorder)
    looks = {"markersize": min(5.0, 0.7 * room), "markeredgewidth": width}
    ax.plot(caps.T.reshape(-1), np.tile(places, 2), "|", color=colour, **looks)


def stretch(values: Floats, null: float) -> Floats:
    """Lengths of bars from the line of no importance; none for what is not finite."""
    return np.where(np.isfinite(values), values - null, 0.0)
