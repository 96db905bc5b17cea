"""Figures of local importance: all rows as a heat map, one row as a waterfall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reliance._core.words import shown
from reliance.plots import feature_values, style, wording
from reliance.plots.style import Floats, Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.local import LocalImportance


def heat(result: LocalImportance, ax: Axes | None = None, most: int = 30, rows: int = 200) -> Axes:
    """Features down, most important first, rows across; blue above 0, red below, white at 0.

    Parameters
    ----------
    most, rows : int
        How many features and rows at most; the title says how many there are.
    """
    order = style.largest(result._sizes(), most)
    m = style.count(rows, len(result.rows), "rows")
    values = result.values[:m][:, order].T
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[j] for j in order], least=3.2)  # for the words beside the colours
    import matplotlib

    limit = style.colour_limit(values, 0.0)
    colours = matplotlib.colormaps[style.DIVERGING].with_extremes(bad=style.LIGHT)
    # Drawn as rectangles between the places, so that the axis of names is that of all figures.
    edges = np.arange(m + 1) - 0.5, np.arange(len(order) + 1) - 0.5
    drawn = ax.pcolormesh(*edges, values, cmap=colours, vmin=-limit, vmax=limit)
    ax.set_ylim(len(order) - 0.5, -0.5)
    widest = max(len(str(row)) for row in result.rows[:m].tolist())
    across = float(ax.figure.get_figwidth() * ax.get_position().width)
    step = _round_step(m / max(1.0, 0.6 * across / (0.1 * (widest + 1))))
    ax.set_xticks(range(0, m, step), [str(row) for row in result.rows[:m:step]])
    bar = ax.figure.colorbar(drawn, ax=ax, aspect=30)
    bar.set_label(wording.text(wording.of_rows(result.contributes, result.quantity)))
    bar.outline.set_visible(False)
    all_m, all_p = result.values.shape
    parts = [f"{m} of {all_m} rows"] * (m < all_m) + [f"{len(order)} largest of {all_p} features"] * (
        len(order) < all_p
    )
    caption = wording.caption(
        f"{len(result.rows)} of {result.n} rows explained, {result.draws_per_row} draws",
        f"every {_ordinal(step)} row has a label" if step > 1 else "",
        style.hidden_labels(ax, len(order)),
    )
    style.finish(ax, xlabel="row", title=", ".join(["Local importance", *parts]), caption=caption)
    ax.grid(visible=False)
    return ax


def _round_step(least: float) -> int:
    """The first of 1, 2, 5, 10, 20, 50, ... that is at least so much."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10


def _ordinal(k: int) -> str:
    ending = "th" if k % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    return f"{k}{ending}"


# ---------------------------------------------------------------------------------------------------------------------
# Waterfall


@dataclass(frozen=True, eq=False)
class _Steps:
    """From where it starts to the prediction: labels and lengths of the bars, from top to bottom."""

    labels: list[str]
    lengths: Floats
    start: float
    end: float
    known: bool  # whether the start is the mean prediction, or one that was given


def waterfall(
    result: LocalImportance,
    ax: Axes | None = None,
    row: int | None = None,
    most: int = 12,
    X: object = None,
    names: Sequence[str] | None = None,
    start: float | None = None,
) -> Axes:
    """From the mean prediction to that of one row: its contributions, the largest on top, and the rest.

    The rest is what features contribute together: contributions add up to the prediction less the mean prediction only
    for models that are sums of functions of single features.

    Parameters
    ----------
    row : int
        A row of X; may be left out if there is one only.
    most : int
        How many features at most; the smallest others are one bar.
    X : array or table, optional
        The rows that were measured: labels then say the values of features.
    names : sequence of str, optional
        Of X's columns, if they were measured with ``names=``; tables have their own.
    start : float, optional
        Where to start. By default the mean prediction if all rows of X were explained; if some were, which do not tell
        it, the prediction less all contributions, and then there is no rest.
    """
    if not result.contributes:
        raise ValueError(
            f"kind='waterfall' adds up contributions to a prediction, and changes of {shown(result.quantity)} do not "
            "add up: use kind='bar', or measure without y and loss"
        )
    row = int(result.rows[result.position(row)])
    steps = _steps(result, row, most, X, names, start)
    ax = style.feature_axes(ax, steps.labels)
    places = np.arange(len(steps.lengths))
    ends = steps.start + np.cumsum(steps.lengths)
    starts = np.concatenate([[steps.start], ends[:-1]])
    colours = [style.PALE_BLUE if length >= 0.0 else style.PALE_VERMILLION for length in steps.lengths]
    ax.barh(places, steps.lengths, left=starts, height=0.62, color=colours)
    ax.vlines(ends[:-1], places[:-1] - 0.31, places[:-1] + 1.31, color=style.GREY, linewidth=0.8)
    for place, one, other, length in zip(places, starts, ends, steps.lengths, strict=True):
        where = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
        ax.annotate(f"{length:+.3g}", (max(one, other), place), **where)
    ax.use_sticky_edges = False
    ax.margins(x=0.15)  # for the numbers
    begin = "mean prediction" if steps.known and start is None else "start" if steps.known else "without contributions"
    _level(ax, steps.start, f"{begin} {steps.start:.4g}", top=True)
    _level(ax, steps.end, f"prediction {steps.end:.4g}", top=False)
    caption = wording.caption(
        f"n = {result.n}, {result.draws_per_row} draws",
        "" if steps.known else f"{len(result.rows)} of {result.n} rows do not tell the mean prediction: pass start=",
        style.hidden_labels(ax, len(steps.labels)),
    )
    return style.finish(ax, xlabel="prediction", title=f"Contributions to the prediction of row {row}", caption=caption)


def _level(ax: Axes, at: float, words: str, top: bool) -> None:
    """A line over the whole height at a prediction, and its name inside, above the first bar or below the last."""
    ax.axvline(at, color=style.GREY, linewidth=0.9, linestyle=":", zorder=0.9)
    low, high = ax.get_ylim()  # the first bar is on top
    ax.set_ylim(*((low, high - 0.55) if top else (low + 0.55, high)))
    left, right = ax.get_xlim()
    ahead = at <= (left + right) / 2.0
    place = {"xytext": (3 if ahead else -3, -2 if top else 2), "textcoords": "offset points", "fontsize": "small"}
    edge = {"ha": "left" if ahead else "right", "va": "top" if top else "bottom", "color": style.GREY}
    ax.annotate(words, (at, 1.0 if top else 0.0), xycoords=ax.get_xaxis_transform(), **place, **edge)


def _steps(
    result: LocalImportance, row: int, most: int, X: object, names: Sequence[str] | None, start: float | None
) -> _Steps:
    feature_values.check_no_names(X, names)
    place = result.position(row)
    values, end = result.values[place], float(result.base[place])
    order: Places = np.argsort(-np.abs(values), kind="stable")
    shown_first = order[: style.count(most, len(order))]
    others = order[len(shown_first) :]
    labels = wording.labels(result.names)
    if X is not None:
        columns = feature_values.read(X, names, result.names, result.n)
        for k in shown_first:
            value = columns.word(result.names[k], row)
            labels[k] += "" if value is None else f" = {wording.text(value)}"
    texts, lengths = [labels[j] for j in shown_first], [float(v) for v in values[shown_first]]
    if len(others):
        texts.append(f"{len(others)} others")
        lengths.append(float(values[others].sum()))
    whole = len(result.rows) == result.n
    known = start is not None or whole
    begin = _checked_start(start) if start is not None else float(result.base.mean())
    if not known:
        begin = end - float(values.sum())
    rest = end - begin - float(values.sum())
    if known and abs(rest) > 1e-9 * max(abs(end), abs(begin), float(np.abs(values).sum())):
        texts.append("features together")
        lengths.append(rest)
    return _Steps(texts, np.asarray(lengths), begin, end, known)


def _checked_start(start: Any) -> float:
    number = isinstance(start, int | float | np.integer | np.floating) and not isinstance(start, bool)
    if not number or not np.isfinite(start):
        raise ValueError(f"start={shown(start)} is no prediction: give a finite number, such as the mean prediction")
    return float(start)
