"""Partial dependence at the values that occur, and the curves of single rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance._core import words
from reliance._core.words import shown
from reliance.plots import style, wording
from reliance.plots.style import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from reliance.results.curves import Curve
    from reliance.results.importance import Importance

_SLANTED = 0.42  # inches from one slanted label to the next
_FEW = 10  # values that are drawn as points, not as a line


def curve(
    result: Importance,
    ax: Axes | None = None,
    feature: str | None = None,
    output: int | None = None,
    points: bool | None = None,
    values: Sequence[str] | None = None,
    rows: int = 100,
) -> Axes:
    """Partial dependence of one feature, a rug of the values that occur, and curves of single rows if they were kept.

    Parameters
    ----------
    result : Importance
        Measured with ``keep="curves"``, or ``keep="ice"`` for single rows.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    feature : str
        Its name; may be left out if there is one only.
    output : int, optional
        Which output of the model; all if not given, and then no single rows if there are several.
    points : bool, optional
        Points side by side, as for categories, instead of a line; by default for up to 10 values.
    values : sequence of str, optional
        What to write at the points, in the order of the values; by default the text or category of a table's column.
    rows : int
        Curves of at most so many single rows, evenly spaced over all.
    """
    name, found = _chosen(result, feature)
    values = found.labels if values is None and points is not False else values
    mean, ice, names = _outputs(found, output)
    if points is None:
        points = values is not None or len(found.values) <= _FEW
    ax = style.axes(ax, 6.0 + (0.078 * 10 if len(names) > 1 else 0.0), 4.0)
    x = _places(ax, found.values, points, values)
    joined = ~np.isnan(found.values) & (not points)
    said = []
    if ice is not None:
        said.append(_single_rows(ax, x, ice, joined, rows))
    lines: list[Line2D] = []
    for k in range(mean.shape[1]):
        turn, colour = divmod(k, len(style.COLOURS))
        line = {"linewidth": 2.0, "linestyle": ("-", "--", ":", "-.")[turn % 4]}
        dots = {"linestyle": "none", "marker": "osD^vP*"[colour], "markersize": 7}
        lines += _line(ax, x, mean[:, k], joined, line, dots, color=style.COLOURS[colour])
    if joined.any():
        looks = {"color": "black", "markersize": 6, "markeredgewidth": 0.6, "transform": ax.get_xaxis_transform()}
        ax.plot(x[joined], np.full(int(joined.sum()), 0.015), "|", **looks)
    if len(names) > 1:
        style.legend(ax, lines, names, "output")
    if joined.any():
        said.append("ticks: values that occur")
    unnamed = len(found.values) - len(ax.get_xticks()) if points else 0
    caption = wording.caption(f"n = {result.n}", *said, wording.unlabelled(unnamed, len(found.values), "values"))
    ylabel = "mean prediction" if output is None else f"mean of output {output}"
    return style.finish(
        ax, xlabel=words.short(name, 60), ylabel=ylabel, title="Partial dependence", grid="y", caption=caption
    )


def _single_rows(ax: Axes, x: Floats, ice: Floats, joined: NDArray[np.bool_], rows: int) -> str:
    """Grey curves of some rows, evenly spaced over all; of how many, in words."""
    drawn = style.count(rows, len(ice), "rows")
    chosen = np.unique(np.linspace(0, len(ice) - 1, drawn).round().astype(np.int64))
    dots = {"linestyle": "none", "marker": ".", "markersize": 4}
    _line(ax, x, ice[chosen].T, joined, {"linewidth": 0.6}, dots, color=style.GREY, alpha=0.35)
    return f"grey: {len(chosen)} of {len(ice)} rows"


def _line(
    ax: Axes,
    x: Floats,
    y: Floats,
    joined: NDArray[np.bool_],
    line: Mapping[str, object],
    dots: Mapping[str, object],
    **looks: object,
) -> list[Line2D]:
    """A line through the values that are joined, dots at the others; the first of what was drawn."""
    drawn = [
        ax.plot(x[part], y[part], **form, **looks)[0] for part, form in ((joined, line), (~joined, dots)) if part.any()
    ]
    return drawn[:1]


def _chosen(result: Importance, feature: str | None) -> tuple[str, Curve]:
    """The feature and its curve, if there is one that can be drawn."""
    if result.curves is None:
        raise ValueError(
            "kind='curve' needs curves, and this result has none: measure with model_reliance(..., pairs='all', "
            "keep='curves'), or keep='ice' for the curves of single rows"
        )
    if feature is None and len(result.names) > 1:
        raise ValueError(f"a curve is of one feature and the result has {len(result.names)}: pass feature=")
    name = result.names[0] if feature is None else feature
    if name not in result.curves:
        raise ValueError(f"feature={shown(name)} was not measured: it must be one of {words.listed(result.names)}")
    found = result.curves[name]
    if found.values.ndim > 1:
        raise ValueError(
            f"feature={shown(name)} is a group of {found.values.shape[1]} columns, which no axis holds: measure its "
            "columns by themselves, or read result.curves"
        )
    return name, found


def _outputs(found: Curve, output: int | None) -> tuple[Floats, Floats | None, list[str]]:
    """Mean (m, outputs), single rows (n, m) if one output is drawn, and the outputs' names."""
    m = found.mean.shape[0]
    mean = found.mean.reshape((m, -1))
    shape = found.mean.shape[1:]
    names = [str(index[0] if len(index) == 1 else index) for index in np.ndindex(*shape)] if shape else [""]
    if output is not None:
        if isinstance(output, bool) or not isinstance(output, int | np.integer) or not 0 <= output < len(names):
            raise ValueError(
                f"output={shown(output)} is not one of the model's {len(names)}: give 0 to {len(names) - 1}"
            )
        mean, names = mean[:, [output]], [names[output]]
    ice = None
    if found.ice is not None and len(names) == 1:
        ice = found.ice.reshape((len(found.ice), m, -1))[:, :, output or 0]
    return mean, ice, names


def _places(ax: Axes, values: Floats, points: bool, words: Sequence[str] | None) -> Floats:
    """Where the values stand: categories side by side, numbers where they are, missing ones at the right."""
    if words is not None and (not points or len(words) != len(values)):
        raise ValueError(f"values= names {len(words)} points, but {len(values)} values are drawn as points={points}")
    if points:
        names = [f"{v:.4g}" if np.isfinite(v) else "missing" for v in values] if words is None else list(words)
        shown = wording.labels(names, 24)
        # Names that are too wide for their places are turned, and left out where turned ones would touch.
        slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if _crowded(ax, shown) else {}
        step = math.ceil(len(shown) * _SLANTED / _across(ax)) if slanted else 1
        ax.set_xticks(range(0, len(shown), step), shown[::step], **slanted)
        ax.set_xlim(-0.6, len(shown) - 0.4)
        return np.arange(len(values), dtype=np.float64)
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    right = (float(known.max()) if known.size else 0.0) + 0.08 * (span or 1.0)
    if np.isnan(values).any():
        ax.axvline(right, color=style.GREY, linewidth=0.6, linestyle=":")
        ax.annotate("missing", (right, 1.0), xycoords=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=8)
    return np.where(np.isnan(values), right, values)


def _crowded(ax: Axes, names: Sequence[str]) -> bool:
    return max(map(len, names)) * 0.085 + 0.1 > _across(ax) / len(names)


def _across(ax: Axes) -> float:
    """Inches of the Axes; those of a new figure leave less for words at the side."""
    return float(ax.figure.get_figwidth() * ax.get_position().width)
