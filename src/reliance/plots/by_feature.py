"""Bars, one for each feature, with intervals as whiskers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from reliance import inference
from reliance._core.words import shown
from reliance.plots import style, wording
from reliance.plots.style import PALE_BLUE, PALE_VERMILLION, VERMILLION, Floats, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.delta import Delta
    from reliance.results.extrapolation import Extrapolation
    from reliance.results.interactions import Interactions
    from reliance.results.linear import LinearImportance
    from reliance.results.local import LocalImportance
    from reliance.results.tested import TestResult

_ADJUSTED = {"holm": "Holm", "bh": "Benjamini-Hochberg"}


class Compared(Measured, wording.HasRisk, Protocol):
    """Risks that were compared: `Importance`, `AlgorithmReliance`."""

    @property
    def compare(self) -> str: ...
    @property
    def method(self) -> str: ...


def bars(result: Compared, ax: Axes | None = None, level: float = 0.95, most: int = 30) -> Axes:
    """Bars from the line of no importance, most important on top, with intervals as whiskers.

    Parameters
    ----------
    result : Importance or AlgorithmReliance
        What to draw.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    level : float
        Confidence level of the whiskers. Where a result has no interval there are none.
    most : int
        How many features at most; the largest are drawn and the title says how many there are.

    Returns
    -------
    matplotlib Axes
    """
    return _plain_bars(
        result.names,
        result.values,
        ax,
        most,
        null=inference.null_value(result.compare),
        what=wording.amount(result.compare, result.loss, getattr(result, "leave", None)),
        name=wording.heading(result.method),
        ends=inference.known_interval(result, level),
        level=level,
        caption=wording.measured(result),
    )


def difference_bars(result: Delta, ax: Axes | None = None, level: float = 0.95, most: int = 30) -> Axes:
    """The same for the difference of two importances, the largest of either sign on top."""
    return _plain_bars(
        result.names,
        result.values,
        ax,
        most,
        what=result.what,
        name="Difference of importances",
        by=np.abs(result.values),
        ends=inference.known_interval(result, level),
        level=level,
    )


def interaction_bars(result: Interactions, ax: Axes | None = None, level: float = 0.95, most: int = 30) -> Axes:
    """The same for interactions, the largest of either sign on top."""
    return _plain_bars(
        result.names,
        result.values,
        ax,
        most,
        what=f"joint increase in {wording.loss_in_words(result.loss)}, less both single ones",
        name="Interaction importance",
        by=np.abs(result.values),
        ends=inference.known_interval(result, level),
        level=level,
        caption=wording.measured(result),
        things="pairs",
    )


def row_bars(
    result: LocalImportance, ax: Axes | None = None, row: int | None = None, level: float = 0.95, most: int = 30
) -> Axes:
    """The values of one row, the largest of either sign on top, with intervals over the draws.

    Parameters
    ----------
    row : int
        A row of X; may be left out if there is one only.
    """
    place = result.position(row)
    inference.check_level(level)
    known = not np.isnan(result.std_error).all()
    what = wording.of_rows(result.contributes, result.quantity)
    own = wording.own(result.rows[place], result.contributes, result.base[place])
    return _plain_bars(
        result.names,
        result.values[place],
        ax,
        most,
        what=what,
        name="Local importance",
        by=np.abs(result.values[place]),
        ends=result.interval(level)[place] if known else np.full((len(result.names), 2), np.nan),
        level=level,
        caption=f"{own}, {result.draws_per_row} draws",
    )


def coefficient_bars(result: LinearImportance, ax: Axes | None = None, most: int = 30) -> Axes:
    """Signed coefficients on their scale, the largest of either sign on top."""
    by_range = result.scale == "range"
    signed = result.by_range if by_range else result.by_deviation
    what = "coefficient on features scaled to [0, 1]" if by_range else "coefficient on standardised features"
    caption = f"scales from n = {result.n} rows"
    name = "Linear importance"
    return _plain_bars(result.names, signed, ax, most, what=what, name=name, by=np.abs(signed), caption=caption)


def extrapolation_bars(result: Extrapolation, ax: Axes | None = None, most: int = 30) -> Axes:
    """The values of all features from what independent ones have, and a line at the limit."""
    near = result.method == "neighbours"
    what = "distance to the nearest row, replaced / original" if near else "AUC of telling replaced rows from real ones"
    caption = f"{result.rows} of {result.n} rows; dashed: the limit, {result.limit:g}"
    null, name = (1.0 if near else 0.5), "Extrapolation check"
    ax = _plain_bars(result.names, result.values, ax, most, null=null, what=what, name=name, caption=caption)
    ax.axvline(result.limit, color=VERMILLION, linestyle="--", linewidth=1.2)
    return ax


def p_value_bars(result: TestResult, ax: Axes | None = None, alpha: float = 0.05, most: int = 30) -> Axes:
    """Adjusted p-values, the smallest on top, and a line at ``alpha``."""
    if isinstance(alpha, bool) or not isinstance(alpha, float | int) or not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha={shown(alpha)}: give a number between 0 and 1")
    p = result.p_adjusted
    what = (
        "p-value" if result.adjust == "none" else f"p-value, adjusted ({_ADJUSTED.get(result.adjust, result.adjust)})"
    )
    name, caption = f"Test: {result.method}, {result.alternative}", f"dashed: {alpha:g}"
    ax = _plain_bars(result.names, p, ax, most, what=what, name=name, by=-p, caption=caption, chosen="smallest of")
    ax.axvline(alpha, color=VERMILLION, linestyle="--", linewidth=1.2)
    ax.set_xlim(left=-0.01)
    # A bar of almost no length is the most important one here: its end is marked.
    order = style.largest(-p, most)
    known = np.flatnonzero(np.isfinite(p[order]))
    if known.size:
        ax.plot(p[order][known], known, "o", color=style.BLUE, markersize=4, clip_on=False)
    return ax


def _plain_bars(
    names: tuple[str, ...],
    values: Floats,
    ax: Axes | None,
    most: int,
    *,
    what: str,
    name: str,
    null: float = 0.0,
    by: Floats | None = None,
    ends: Floats | None = None,
    level: float = 0.95,
    caption: str = "",
    things: str = "features",
    chosen: str = "largest of",
) -> Axes:
    """In the order of ``by``, with whiskers if there are ends."""
    order = style.largest(values if by is None else by, most)
    labels = wording.labels(names)
    ax = style.feature_axes(ax, [labels[k] for k in order])
    # A bar below the line of no importance is a feature the model does better without.
    colours = [PALE_BLUE if value >= null else PALE_VERMILLION for value in values[order]]
    ax.barh(np.arange(len(order)), style.stretch(values[order], null), left=null, height=0.7, color=colours)
    uncertainty = ""
    if ends is not None:
        style.whiskers(ax, np.arange(len(order)), ends[order])
        uncertainty = wording.whisker_words(level, not np.isnan(ends[order]).all())
    unknown = int(np.sum(~np.isfinite(values[order])))
    missing = f"{unknown} not known or not finite" if unknown else ""
    caption = wording.caption(caption, uncertainty, missing, style.hidden_labels(ax, len(order), things))
    title = wording.title(name, len(order), len(names), things).replace("largest of", chosen)
    return style.finish(ax, xlabel=what, title=title, null=null, caption=caption)
