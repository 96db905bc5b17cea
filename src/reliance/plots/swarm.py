"""Values of single rows, a point each: the beeswarm, coloured by the feature's value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reliance import inference
from reliance.plots import feature_values, style, wording
from reliance.plots.feature_values import Columns
from reliance.plots.style import Floats, Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from reliance.results.importance import Importance
    from reliance.results.local import LocalImportance

_BINS = 60


@dataclass(frozen=True, eq=False)
class _Points:
    """What a beeswarm shows: values (p, m) of m rows of X, in the order of the features."""

    names: tuple[str, ...]
    values: Floats
    sizes: Floats  # what features are ranked by
    rows: Places
    n: int


def row_swarm(
    result: Importance, ax: Axes | None = None, X: object = None, names: Sequence[str] | None = None, most: int = 20
) -> Axes:
    """A point for each row and feature at what the row contributes, most important feature on top.

    Parameters
    ----------
    result : Importance
        Measured with ``keep="rows"``.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    X : array or table, optional
        The rows that were measured: points are then coloured by the feature's value.
    names : sequence of str, optional
        Of X's columns, if they were measured with ``names=``; tables have their own.
    most : int
        How many features at most.
    """
    if result.row_values is None:
        raise ValueError("kind='beeswarm' shows single rows, and this result kept none: measure with keep='rows'")
    n = result.row_values.shape[1]
    points = _Points(result.names, result.row_values, result.values, np.arange(n), n)
    ax, order, said = _swarm(points, ax, X, names, most)
    return style.finish(
        ax,
        xlabel=f"{wording.amount(result.compare, result.loss)}, by row",
        title=wording.title(wording.heading(result.method), len(order), len(result.names)),
        null=inference.null_value(result.compare),
        caption=wording.caption(wording.measured(result), said, style.hidden_labels(ax, len(order))),
    )


def local_swarm(
    result: LocalImportance,
    ax: Axes | None = None,
    X: object = None,
    names: Sequence[str] | None = None,
    most: int = 20,
) -> Axes:
    """A point for each row and feature, the features with the largest mean size on top; options as in `row_swarm`."""
    points = _Points(result.names, result.values.T, result._sizes(), result.rows, result.n)
    ax, order, said = _swarm(points, ax, X, names, most)
    what = wording.of_rows(result.contributes, result.quantity)
    return style.finish(
        ax,
        xlabel=f"{what}, by row",
        title=wording.title("Local importance", len(order), len(result.names)),
        null=0.0,
        caption=wording.caption(
            f"{len(result.rows)} of {result.n} rows explained, {result.draws_per_row} draws",
            said,
            style.hidden_labels(ax, len(order)),
        ),
    )


def _swarm(
    points: _Points, ax: Axes | None, X: object, names: Sequence[str] | None, most: int
) -> tuple[Axes, Places, str]:
    """The points, their colours, and what must be said of them."""
    feature_values.check_no_names(X, names)
    order = style.largest(points.sizes, most)
    columns = None if X is None else feature_values.read(X, names, points.names, points.n)
    labels = wording.labels(points.names)
    ax = style.feature_axes(ax, [labels[k] for k in order], lines=2, least=2.4)
    ax.use_sticky_edges = False
    size = float(np.clip(1400.0 / points.values.shape[1], 5.0, 16.0))
    span = points.values[order]
    finite = span[np.isfinite(span)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    grey, coloured, shading = 0, None, _shading()
    for place, k in enumerate(order):
        values = points.values[k]
        known = np.isfinite(values)
        aside = place + offsets(values[known], low, high)
        looks = {"s": size, "linewidths": 0.0, "zorder": 2.0, "rasterized": known.sum() > 2000}
        shades = None if columns is None else _shades(columns, points.names[k], points.rows[known])
        if shades is None:
            ax.scatter(values[known], aside, color=style.BLUE if columns is None else style.GREY, alpha=0.7, **looks)
            grey += columns is not None
            continue
        seen = ~np.isnan(shades)
        ax.scatter(values[known][~seen], aside[~seen], color=style.LIGHT, **looks)
        coloured = ax.scatter(
            values[known][seen], aside[seen], c=shades[seen], cmap=shading, vmin=0.0, vmax=1.0, **looks
        )
    if coloured is not None:
        _scale(ax, coloured)
    return ax, order, f"grey: {grey} features without an order" if grey else ""


def _shading() -> Colormap:
    """Even to the eye, also in grey and for all kinds of colour vision; without the yellow that white swallows."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, 256)))


def _shades(columns: Columns, name: str, rows: Places) -> Floats | None:
    """The feature's values on a scale from 0 to 1, from its 5% to its 95% point, so that no outlier takes all colours.

    nan where a value is missing; None for groups of columns, and for text.
    """
    values = columns.numbers(name)
    if values is None:
        return None
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.05, 0.95]) if known.size else (0.0, 0.0)
    if low == high and known.size:  # a few values that differ, such as a rare flag
        low, high = known.min(), known.max()
    shades = (values[rows] - low) / (high - low) if high > low else np.where(np.isfinite(values[rows]), 0.5, np.nan)
    return np.asarray(np.clip(np.where(np.isfinite(values[rows]), shades, np.nan), 0.0, 1.0))


def offsets(values: Floats, low: float, high: float) -> Floats:
    """How far points move from their line so that they do not hide each other: further where there are more of them."""
    if high <= low:
        bins = np.zeros(len(values), dtype=np.int64)
    else:
        bins = np.minimum(((values - low) / (high - low) * _BINS).astype(np.int64), _BINS - 1)
    counts = np.bincount(bins, minlength=1)
    order = np.argsort(bins, kind="stable")
    first = np.cumsum(counts) - counts
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - first[bins[order]]
    # 0, 1, -1, 2, -2, ... steps, of a size that the fullest place just has room for.
    steps = np.where(rank % 2 == 1, (rank + 1) // 2, -(rank // 2))
    return np.asarray(steps * min(0.09, 0.8 / max(int(counts.max(initial=1)), 1)), dtype=np.float64)


def _scale(ax: Axes, drawn: object) -> None:
    """The colours, from low to high: each feature has its own."""
    bar = ax.figure.colorbar(drawn, ax=ax, aspect=30, fraction=0.05)
    bar.set_ticks([0.0, 1.0], labels=["low", "high"])
    bar.set_label("feature value")
    bar.outline.set_visible(False)
