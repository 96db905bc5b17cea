"""Figures of local importance: all rows as a heat map, one row as a waterfall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reliance.plots import style

if TYPE_CHECKING:
    from reliance.results.local import LocalImportance


def heat(result: LocalImportance, ax: Any = None, most: int = 30, rows: int = 200) -> Any:
    """Features down, most important first, rows across; blue above 0, red below, white at 0.

    Parameters
    ----------
    most, rows : int
        How many features and rows at most; the title says how many there are.
    """
    order = style.largest(np.mean(np.abs(result.values), axis=0), most)
    m = style.count(rows, len(result.rows), "rows")
    values = result.values[:m][:, order].T
    ax = style.feature_axes(ax, [result.names[j] for j in order], least=2.9)  # for the words beside the colours
    finite = np.abs(values[np.isfinite(values)])
    limit = float(finite.max(initial=0.0)) or 1.0
    # Drawn as rectangles between the places, so that the axis of names is that of all figures.
    image = ax.pcolormesh(
        np.arange(m + 1) - 0.5, np.arange(len(order) + 1) - 0.5, values, cmap=style.DIVERGING, vmin=-limit, vmax=limit
    )
    ax.set_ylim(len(order) - 0.5, -0.5)
    step = max(1, -(-m // 12))
    ax.set_xticks(range(0, m, step), [str(row) for row in result.rows[:m:step]])
    bar = ax.figure.colorbar(image, ax=ax, aspect=30)
    bar.set_label(style.text(_quantity(result)))
    all_m, all_p = result.values.shape
    whole = (m, len(order)) == (all_m, all_p)
    title = "local_importance" if whole else f"{m} of {all_m} rows, {len(order)} of {all_p} features"
    style.finish(ax, xlabel="row", title=title)
    ax.grid(visible=False)
    return ax


def waterfall(result: LocalImportance, ax: Any = None, row: int | None = None, most: int = 12) -> Any:
    """The values of one row, the largest on top, each beginning where the one above ends.

    Parameters
    ----------
    row : int
        A row of X; may be left out if there is one only.
    most : int
        How many features at most; the smallest others are one bar.
    """
    if row is None:
        if len(result.rows) > 1:
            raise ValueError(f"a waterfall is of one row and the result has {len(result.rows)}: pass row=")
        row = int(result.rows[0])
    values = result.values[result.position(row)]
    order = np.argsort(-np.abs(values), kind="stable")
    shown = style.count(most, len(order))
    names, bars = [result.names[j] for j in order[:shown]], values[order[:shown]]
    if len(order) > shown:
        names.append(f"{len(order) - shown} others")
        bars = np.append(bars, values[order[shown:]].sum())
    ends = np.cumsum(bars)
    starts = np.concatenate([[0.0], ends[:-1]])
    ax = style.feature_axes(ax, names)
    places = np.arange(len(bars))
    ax.barh(places, bars, left=starts, height=0.7, color=[style.BLUE if b >= 0.0 else style.VERMILLION for b in bars])
    ax.vlines(ends[:-1], places[:-1] - 0.35, places[:-1] + 1.35, color=style.GREY, linewidth=0.8)
    for place, start, end, bar in zip(places, starts, ends, bars, strict=True):
        where = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
        ax.annotate(f"{bar:+.3g}", (max(start, end), place), **where)
    ax.use_sticky_edges = False
    ax.margins(x=0.12)  # for the numbers
    base = result.base[result.position(row)]
    return style.finish(ax, xlabel=_quantity(result), title=f"row {row}: {result.quantity} {base:.4g}", null=0.0)


def _quantity(result: LocalImportance) -> str:
    return "contribution to the prediction" if result.quantity == "prediction" else f"change of {result.quantity}"
