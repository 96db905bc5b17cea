"""Figures with a line for each feature: bars, groups of bars, spreads over draws, ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from reliance import inference
from reliance._core.words import shown
from reliance.plots import style
from reliance.plots.style import BLUE, GREY, ORANGE, VERMILLION, Floats, Measured

if TYPE_CHECKING:
    from reliance.rashomon.results import ClassReliance
    from reliance.results.comparisons import Delta
    from reliance.results.extrapolation import Extrapolation
    from reliance.results.importance import Importance
    from reliance.results.interactions import Interactions
    from reliance.results.linear import LinearImportance
    from reliance.results.null import NullImportance
    from reliance.results.tested import TestResult


class Compared(Measured, Protocol):
    """Risks that were compared: `Importance`, `AlgorithmReliance`."""

    @property
    def compare(self) -> str: ...
    @property
    def loss(self) -> str: ...
    @property
    def method(self) -> str: ...


# ---------------------------------------------------------------------------------------------------------------------
# Bars


def bars(result: Compared, ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
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
    what, null = style.amount(result.compare, result.loss), inference.null_value(result.compare)
    return _bars(result, ax, level, most, null, what, result.method)


def difference_bars(result: Delta, ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
    """The same for the difference of two relative importances."""
    return _bars(result, ax, level, most, 0.0, "difference of importance, first set minus second", "delta")


def interaction_bars(result: Interactions, ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
    """The same for interactions, the largest of either sign on top."""
    what = f"interaction, {result.loss}"
    return _bars(result, ax, level, most, 0.0, what, "interaction_importance", np.abs(result.values))


def coefficient_bars(result: LinearImportance, ax: Any = None, most: int = 30) -> Any:
    """Signed coefficients on their scale, the largest of either sign on top."""
    signed = result.by_range if result.scale == "range" else result.by_deviation
    what = "coefficient on features scaled to [0, 1]" if result.scale == "range" else "coefficient, standardised"
    return _plain_bars(result.names, signed, ax, most, 0.0, what, "linear_importance", np.abs(signed))


def extrapolation_bars(result: Extrapolation, ax: Any = None, most: int = 30) -> Any:
    """The values of all features from what independent ones have, and a line at the limit."""
    near = result.method == "neighbours"
    what = "distance to the nearest row, over that of the data" if near else "area under the curve, replaced or real"
    null = 1.0 if near else 0.5
    ax = _plain_bars(result.names, result.values, ax, most, null, what, "extrapolation_check", result.values)
    ax.axvline(result.limit, color=VERMILLION, linestyle="--", linewidth=1.2)
    return ax


def p_value_bars(result: TestResult, ax: Any = None, alpha: float = 0.05, most: int = 30) -> Any:
    """Adjusted p-values, the smallest on top, and a line at ``alpha``."""
    if isinstance(alpha, bool) or not isinstance(alpha, float | int) or not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha={shown(alpha)}: give a number between 0 and 1")
    what = "p" if result.adjust == "none" else f"p, adjusted ({result.adjust})"
    name = f"{result.method} test"
    ax = _plain_bars(result.names, result.p_adjusted, ax, most, 0.0, what, name, -result.p_adjusted)
    ax.axvline(alpha, color=VERMILLION, linestyle="--", linewidth=1.2)
    return ax


def _plain_bars(
    names: tuple[str, ...],
    values: Floats,
    ax: Any,
    most: int,
    null: float,
    what: str,
    name: str,
    by: Floats,
    ends: Floats | None = None,
) -> Any:
    """In the order of ``by``, with whiskers if there are ends."""
    order = style.largest(by, most)
    ax = style.feature_axes(ax, [names[k] for k in order])
    # A bar below the line of no importance is a feature the model does better without.
    colours = [BLUE if value >= null else VERMILLION for value in values[order]]
    ax.barh(np.arange(len(order)), style.stretch(values[order], null), left=null, height=0.7, color=colours)
    if ends is not None:
        style.whiskers(ax, np.arange(len(order)), ends[order])
    return style.finish(ax, xlabel=what, title=style.title(name, len(order), len(names)), null=null)


def _bars(
    result: Measured, ax: Any, level: float, most: int, null: float, what: str, name: str, by: Floats | None = None
) -> Any:
    by, ends = result.values if by is None else by, inference.known_interval(result, level)
    return _plain_bars(result.names, result.values, ax, most, null, what, name, by, ends)


def set_bars(result: Mapping[str, Importance], ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
    """A group of bars for each feature, a colour for each set of variables, with intervals as whiskers.

    Features are in the order of their largest value in any set; ``ax``, ``level`` and ``most`` are as in `bars`.
    """
    return grouped(result, ax, level, most, "given")


def grouped(results: Mapping[str, Importance], ax: Any, level: float, most: int, heading: str | None) -> Any:
    """Bars of several results of the same features, side by side; ``heading`` is the legend's."""
    ones = list(results.values())
    table = np.stack([one.values for one in ones])
    order = style.largest(np.where(np.isnan(table), -np.inf, table).max(axis=0), most)
    sets = [name or "(nothing)" for name in results]
    null = inference.null_value(ones[0].compare)
    ax = style.feature_axes(ax, [ones[0].names[k] for k in order], len(ones), sets)
    height, drawn = 0.84 / len(ones), []
    places = [np.arange(len(order)) - 0.42 + (k + 0.5) * height for k in range(len(ones))]
    for k, one in enumerate(ones):
        lengths = style.stretch(one.values[order], null)
        drawn.append(ax.barh(places[k], lengths, left=null, height=0.9 * height, **style.fill(k)))
    ends = [inference.known_interval(one, level)[order] for one in ones]
    style.whiskers(ax, np.concatenate(places), np.concatenate(ends))
    style.legend(ax, drawn, sets, heading)
    title = style.title(ones[0].method, len(order), len(ones[0].names))
    return style.finish(ax, xlabel=style.amount(ones[0].compare, ones[0].loss), title=title, null=null)


# ---------------------------------------------------------------------------------------------------------------------
# Spreads


def spread(ax: Any, samples: list[Floats], places: Any, colours: list[str], form: str, vertical: bool = False) -> None:
    """Boxes or violins of samples, each with its median; samples that are not finite have none."""
    kept = [k for k, sample in enumerate(samples) if np.isfinite(sample).all()]
    if not kept:
        return
    where = {"positions": [places[k] for k in kept], "orientation": "vertical" if vertical else "horizontal"}
    finite = [samples[k] for k in kept]
    if form == "box":
        looks = {"medianprops": {"color": "black"}, "flierprops": {"marker": ".", "markersize": 4}}
        bodies = ax.boxplot(finite, widths=0.6, patch_artist=True, manage_ticks=False, **looks, **where)["boxes"]
    else:
        parts = ax.violinplot(finite, widths=0.8, showmedians=True, showextrema=False, **where)
        parts["cmedians"].set_color("black")
        bodies = parts["bodies"]
    for k, body in zip(kept, bodies, strict=True):
        body.set_facecolor(colours[k])
        body.set_alpha(0.7)


def draw_boxes(result: Any, ax: Any = None, most: int = 30) -> Any:
    """The spread of the values over draws (trees, splits) for each feature, as boxes; most important on top."""
    return _draws(result, ax, most, "box")


def draw_violins(result: Any, ax: Any = None, most: int = 30) -> Any:
    """The spread of the values over draws (trees, splits) for each feature, as violins; most important on top."""
    return _draws(result, ax, most, "violin")


def _draws(result: Any, ax: Any, most: int, form: str) -> Any:
    samples, what = _samples(result, form)
    order = style.largest(result.values, most)
    null = inference.null_value(result.compare)
    ax = style.feature_axes(ax, [result.names[k] for k in order])
    spread(ax, [samples[k] for k in order], range(len(order)), [BLUE] * len(order), form)
    title = style.title(f"{result.method}, {samples.shape[1]} {what}", len(order), len(result.names))
    return style.finish(ax, xlabel=style.amount(result.compare, result.loss), title=title, null=null)


def _samples(result: Any, form: str) -> tuple[Floats, str]:
    """The values of each draw, tree or split (p, K), and what they are."""
    for name, what in (("draws", "draws"), ("tree_values", "trees"), ("folds", "splits")):
        found = getattr(result, name, None)
        if found is not None and found.shape[1] > 1:
            return found, what
    if hasattr(result, "folds"):
        raise ValueError(f"kind={shown(form)} shows the spread over splits, and there is one: measure with cv=5, say")
    why = "all pairs have none" if result.draws is None else "one draw has none"
    raise ValueError(
        f"kind={shown(form)} shows the spread over draws, and {why}: measure with several, such as "
        "model_reliance(..., pairs=20) or permutation_importance(..., draws=20), or use kind='bar'"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Ranges


def ranges(result: ClassReliance, ax: Any = None, most: int = 30) -> Any:
    """What good models achieve as bars, and what is certified as whiskers; the largest upper end on top.

    Parameters
    ----------
    result : ClassReliance
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    most : int
        How many features at most.
    """
    order = style.largest(result.achieved_upper, most)
    low, high, places = result.achieved_lower[order], result.achieved_upper[order], np.arange(len(order))
    certified = np.stack([result.lower, result.upper], axis=1)[order]
    entries = ["achieved by a good model"] + ["certified for all of them"] * (not np.isnan(certified).all())
    ax = style.feature_axes(ax, [result.names[k] for k in order], beside=entries)
    ax.use_sticky_edges = False  # a range does not begin at the edge of the axes
    with np.errstate(invalid="ignore"):  # ends may be infinite
        width = high - low
    # A range that is one point has no width, but its edge is there.
    handles = [ax.barh(places, width, left=low, height=0.6, color=BLUE, edgecolor=BLUE, linewidth=1.5)]
    # Where one end alone is certified, the whisker begins at the other end that was achieved.
    one_sided = np.isnan(certified).sum(axis=1) == 1
    achieved = np.stack([low, high], axis=1)
    style.whiskers(
        ax, places, np.where(one_sided[:, None] & np.isnan(certified), achieved, certified), GREY, zorder=0.8
    )
    handles += ax.collections[-1:]
    if len(entries) > 1:
        style.legend(ax, handles, entries)
    name = "conditional_model_class_reliance" if result.conditional else "model_class_reliance"
    what = f"{style.amount(result.compare, result.loss)}, least to most among good models"
    title, null = style.title(name, len(order), len(result.names)), inference.null_value(result.compare)
    return style.finish(ax, xlabel=what, title=title, null=null)


def null_ranges(result: NullImportance, ax: Any = None, most: int = 30) -> Any:
    """The middle 90% under permuted labels as bars, and the values as points."""
    return _null(result, ax, most, "range")


def null_boxes(result: NullImportance, ax: Any = None, most: int = 30) -> Any:
    """All rounds of permuted labels as boxes, and the values as points."""
    return _null(result, ax, most, "box")


def null_violins(result: NullImportance, ax: Any = None, most: int = 30) -> Any:
    """All rounds of permuted labels as violins, and the values as points."""
    return _null(result, ax, most, "violin")


def _null(result: NullImportance, ax: Any, most: int, form: str) -> Any:
    order = style.largest(result.values, most)
    null, places = result.null[order], np.arange(len(order))
    entries = ["labels as they are", "permuted labels" + (", 5-95%" if form == "range" else "")]
    ax = style.feature_axes(ax, [result.names[k] for k in order], beside=entries)
    ax.use_sticky_edges = False
    if form == "range":
        low, high = np.quantile(null, [0.05, 0.95], axis=1)
        body = ax.barh(places, high - low, left=low, height=0.6, color=GREY, alpha=0.5)
    else:
        spread(ax, list(null), places, [GREY] * len(order), form)
        body = ax.patches[0] if form == "box" else ax.collections[0]
    points = ax.plot(result.values[order], places, "D", color=ORANGE, markeredgecolor="black", markersize=6)
    style.legend(ax, [points[0], body], entries)
    title = style.title(f"null_importance, {result.rounds} rounds", len(order), len(result.names))
    return style.finish(ax, xlabel=result.measure, title=title)
