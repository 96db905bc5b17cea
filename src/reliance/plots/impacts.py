"""Figures of feature impact: averaged over quantiles, and at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reliance.plots import style, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.impact import Impact

_MARKERS, _LINES = "osD^vP*", ("-", "--", ":", "-.")


def impact_bars(result: Impact, ax: Axes | None = None, most: int = 30) -> Axes:
    """Bars of the averaged impacts, the largest on top, with a point for each quantile unless they are normalized."""
    order = style.largest(result.values, most)
    places = np.arange(len(order))
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[k] for k in order])
    ax.barh(places, result.values[order], height=0.7, color=style.PALE_BLUE)
    if not result.normalized:
        points = result.impact[:, order]
        ax.plot(points.reshape(-1), np.tile(places, len(points)), ".", color=style.INK, markersize=4)
    what = (
        "normalized impact, shares of 1"
        if result.normalized
        else "impact: spread of predictions per unit of the feature"
    )
    points_words = "" if result.normalized else "bars: mean, points: each quantile"
    caption = wording.caption(_caption(result), points_words, style.hidden_labels(ax, len(order)))
    return style.finish(ax, xlabel=what, title=_title(result, len(order)), null=0.0, caption=caption)


def impact_lines(result: Impact, ax: Axes | None = None, most: int = 7) -> Axes:
    """A line over the quantiles for each feature, the largest first in the legend."""
    order = style.largest(result.values, most)
    names = [result.names[k] for k in order]
    ax = style.axes(ax, 6.0 + 0.078 * max(map(len, wording.labels(names))), 4.5)
    lines = []
    for k, feature in enumerate(order):
        turn, colour = divmod(k, len(style.COLOURS))  # the same colour comes again with another line
        looks = {"color": style.COLOURS[colour], "marker": _MARKERS[colour], "linestyle": _LINES[turn % len(_LINES)]}
        lines += ax.plot(result.quantiles, result.impact[:, feature], markersize=4, linewidth=1.4, **looks)
    style.legend(ax, lines, names)
    what = "quantile at which the feature is held"
    return style.finish(
        ax, xlabel=what, ylabel="impact", title=_title(result, len(order)), grid="y", caption=_caption(result)
    )


def _title(result: Impact, shown: int) -> str:
    return wording.title("Feature impact", shown, len(result.names))


def _caption(result: Impact) -> str:
    return f"n = {result.n}, {len(result.quantiles)} quantiles"
