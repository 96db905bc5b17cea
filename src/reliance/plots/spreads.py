"""Spreads as boxes or violins: over draws, trees, splits, and rounds of permuted labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reliance import inference
from reliance._core.words import shown
from reliance.plots import style, wording
from reliance.plots.style import GREY, INK, ORANGE, PALE_BLUE, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.algorithm import AlgorithmReliance
    from reliance.results.importance import Importance
    from reliance.results.null import NullImportance


def spread(
    ax: Axes,
    samples: Sequence[Floats],
    places: Sequence[float] | Floats,
    colours: Sequence[str],
    form: str,
    vertical: bool = False,
    outliers: bool = True,
) -> None:
    """Boxes or violins of samples, each with its median; samples that are not finite have none.

    Without ``outliers``, for figures that show every value as a point: none is drawn twice.
    """
    kept = [k for k, sample in enumerate(samples) if np.isfinite(sample).all()]
    if not kept:
        return
    where = {"positions": [places[k] for k in kept], "orientation": "vertical" if vertical else "horizontal"}
    finite = [samples[k] for k in kept]
    if form == "box":
        looks = {"medianprops": {"color": INK, "linewidth": 1.4}, "showfliers": outliers}
        points = {"marker": ".", "markersize": 4, "markerfacecolor": GREY, "markeredgecolor": "none"}
        lines = {name: {"color": GREY, "linewidth": 0.9} for name in ("whiskerprops", "capprops", "boxprops")}
        drawn = ax.boxplot(
            finite, widths=0.6, patch_artist=True, manage_ticks=False, flierprops=points, **lines, **looks, **where
        )
        bodies = drawn["boxes"]
    else:
        parts = ax.violinplot(finite, widths=0.8, showmedians=True, showextrema=False, **where)
        parts["cmedians"].set_color(INK)
        bodies = parts["bodies"]
    for k, body in zip(kept, bodies, strict=True):
        body.set_facecolor(colours[k])
        body.set_alpha(0.85)


# ---------------------------------------------------------------------------------------------------------------------
# Draws


def draw_boxes(result: Importance | AlgorithmReliance, ax: Axes | None = None, most: int = 30) -> Axes:
    """The spread of the values over draws (trees, splits) for each feature, as boxes; most important on top."""
    return _draws(result, ax, most, "box")


def draw_violins(result: Importance | AlgorithmReliance, ax: Axes | None = None, most: int = 30) -> Axes:
    """The spread of the values over draws (trees, splits) for each feature, as violins; most important on top."""
    return _draws(result, ax, most, "violin")


def _draws(result: Importance | AlgorithmReliance, ax: Axes | None, most: int, form: str) -> Axes:
    samples, what = _samples(result, form)
    order = style.largest(result.values, most)
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[k] for k in order])
    spread(ax, [samples[k] for k in order], np.arange(float(len(order))), [PALE_BLUE] * len(order), form)
    caption = wording.caption(
        wording.measured(result),
        f"spread over {samples.shape[1]} {what}, not an interval",
        style.hidden_labels(ax, len(order)),
    )
    return style.finish(
        ax,
        xlabel=wording.amount(result.compare, result.loss, getattr(result, "leave", None)),
        title=wording.title(wording.heading(result.method), len(order), len(result.names)),
        null=inference.null_value(result.compare),
        caption=caption,
    )


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
# Permuted labels


def null_ranges(result: NullImportance, ax: Axes | None = None, most: int = 30) -> Axes:
    """The middle 90% under permuted labels as bars, and the values as points."""
    return _null(result, ax, most, "range")


def null_boxes(result: NullImportance, ax: Axes | None = None, most: int = 30) -> Axes:
    """All rounds of permuted labels as boxes, and the values as points."""
    return _null(result, ax, most, "box")


def null_violins(result: NullImportance, ax: Axes | None = None, most: int = 30) -> Axes:
    """All rounds of permuted labels as violins, and the values as points."""
    return _null(result, ax, most, "violin")


def _null(result: NullImportance, ax: Axes | None, most: int, form: str) -> Axes:
    order = style.largest(result.values, most)
    null, places = result.null[order], np.arange(float(len(order)))
    entries = ["labels as they are", "permuted labels" + (", 5-95%" if form == "range" else "")]
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[k] for k in order], beside=entries)
    ax.use_sticky_edges = False
    if form == "range":
        low, high = np.quantile(null, [0.05, 0.95], axis=1)
        body = ax.barh(places, high - low, left=low, height=0.5, color=style.LIGHT, edgecolor=GREY, linewidth=0.6)
    else:
        spread(ax, list(null), places, [style.LIGHT] * len(order), form)
        bodies = ax.patches if form == "box" else ax.collections
        body = bodies[0] if len(bodies) else ax.barh([0.0], [0.0], color=style.LIGHT)  # none is known in every round
    points = ax.plot(result.values[order], places, "D", color=ORANGE, markeredgecolor="black", markersize=6)
    style.legend(ax, [points[0], body], entries)
    caption = wording.caption(
        f"n = {result.n}, {result.rounds} rounds of permuted labels", style.hidden_labels(ax, len(order))
    )
    title = wording.title("Null importance", len(order), len(result.names))
    return style.finish(ax, xlabel=result.measure, title=title, caption=caption)
