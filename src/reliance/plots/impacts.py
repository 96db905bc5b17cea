"""Figures of feature impact: averaged over quantiles, and at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reliance.plots import style

if TYPE_CHECKING:
    from reliance.results.impact import Impact

_MARKERS, _LINES = "osD^vP*", ("-", "--", ":", "-.")


def impact_bars(result: Impact, ax: Any = None, most: int = 30) -> Any:
    """Bars of the averaged impacts, the largest on top, with a point for each quantile unless they are normalized."""
    order = style.largest(result.values, most)
    places = np.arange(len(order))
    ax = style.feature_axes(ax, [result.names[k] for k in order])
    ax.barh(places, result.values[order], height=0.7, color=style.SKY)
    if not result.normalized:
        points = result.impact[:, order]
        ax.plot(points.reshape(-1), np.tile(places, len(points)), ".", color="black", markersize=4)
    what = "normalized impact" if result.normalized else "impact, averaged (bars) and at each quantile (points)"
    return style.finish(ax, xlabel=what, title=_title(result, len(order)))


def impact_lines(result: Impact, ax: Any = None, most: int = 7) -> Any:
    """A line over the quantiles for each feature, the largest first in the legend."""
    order = style.largest(result.values, most)
    names = [result.names[k] for k in order]
    ax = style.axes(ax, 6.0 + 0.078 * max(map(len, style.labels(names))), 4.5)
    lines = []
    for k, feature in enumerate(order):
        turn, colour = divmod(k, len(style.COLOURS))  # the same colour comes again with another line
        looks = {"color": style.COLOURS[colour], "marker": _MARKERS[colour], "linestyle": _LINES[turn % len(_LINES)]}
        lines += ax.plot(result.quantiles, result.impact[:, feature], markersize=4, linewidth=1.4, **looks)
    style.legend(ax, lines, names)
    return style.finish(ax, xlabel="quantile", ylabel="impact", title=_title(result, len(order)), grid="y")


def _title(result: Impact, shown: int) -> str:
    return style.title("feature_impact", shown, len(result.names))
