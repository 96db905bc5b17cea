"""Importances over batches of rows, with bands that hold at all times together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reliance.plots import style, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.monitored import Monitored


def monitored_lines(result: Monitored, ax: Axes | None = None, most: int = 4) -> Axes:
    """A line with a band over the number of rows for each feature, and a point for each batch."""
    order = style.largest(result.values, most)
    names = [result.names[k] for k in order]
    ax = style.axes(ax, 6.0 + 0.078 * max(map(len, wording.labels(names))), 4.5)
    rows = np.cumsum(result.rows)
    middle = rows - result.rows / 2.0
    lines = []
    for k, feature in enumerate(order):
        colour = style.COLOURS[k % len(style.COLOURS)]
        ax.fill_between(rows, result.lower[:, feature], result.upper[:, feature], color=colour, alpha=0.18, linewidth=0)
        ax.plot(middle, result.by_batch[:, feature], ".", color=colour, markersize=5, alpha=0.7)
        lines += ax.plot(rows, result.running[:, feature], color=colour, linewidth=1.6)
    style.legend(ax, lines, names)
    band = f"bands: {wording.percent(result.level)} intervals, at all times together"
    return style.finish(
        ax,
        xlabel="rows so far",
        ylabel=wording.amount("difference", result.loss),
        title=wording.title("Importance over time", len(order), len(result.names)),
        grid="y",
        null=0.0,
        caption=wording.caption(f"{len(rows)} batches", band, "points: each batch"),
    )
