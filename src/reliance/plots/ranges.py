"""Ranges as dumbbells: from the good model of a class that relies least to the one that relies most, and of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reliance import inference
from reliance._core.words import listed, shown
from reliance.plots import style, wording
from reliance.plots.style import BLUE, GREY, INK, ORANGE, PALE_BLUE, Floats

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from reliance.rashomon.results import ClassReliance
    from reliance.results.ranks import Ranks

_ACHIEVED, _CERTIFIED, _REFERENCE = "achieved by a good model", "certified for all of them", "reference"
_EXACT = "least and most, exactly"


def ranges(
    result: ClassReliance, ax: Axes | None = None, most: int = 30, reference: Any = None, level: float = 0.95
) -> Axes:
    """Dumbbells between what good models achieve, and what is certified as whiskers; the largest lower end on top.

    A feature far up is one that every good model relies on.

    Parameters
    ----------
    result : ClassReliance
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    most : int
        How many features at most.
    reference : Importance or array (p,), optional
        The reliance of one model, drawn as a dot: an `Importance` that has these features, or values in their order.
        By default that of the reference, where the result knows it.
    level : float
        Of the intervals of both ends, drawn below the ranges where the result knows them.
    """
    values = _reference(result, reference)
    order = style.largest(result.achieved_lower, most)
    low, high, places = result.achieved_lower[order], result.achieved_upper[order], np.arange(float(len(order)))
    certified = np.stack([result.lower, result.upper], axis=1)[order]
    achieved = np.stack([low, high], axis=1)
    some = not np.isnan(certified).all()
    # Whiskers that end where the dots are would be hidden by them: the dots then say both.
    exact = bool(np.allclose(certified, achieved, rtol=1e-6, atol=1e-9))
    entries = [_EXACT if exact else _ACHIEVED]
    entries += [_CERTIFIED] * (some and not exact) + [_REFERENCE] * (values is not None)
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[k] for k in order], beside=entries)
    ax.use_sticky_edges = False  # a range does not begin at the edge of the axes
    handles: list[Artist] = [_dumbbells(ax, places, low, high)]
    # Where one end alone is certified, the whisker begins at the other end that was achieved.
    one_sided = np.isnan(certified).sum(axis=1) == 1
    ends = np.where(one_sided[:, None] & np.isnan(certified), achieved, certified)
    before = len(ax.collections)
    if not exact:
        style.whiskers(ax, places, ends, GREY, zorder=0.8)
    handles += ax.collections[before:]
    if values is not None:
        handles += ax.plot(values[order], places, "D", color=ORANGE, markeredgecolor=INK, markersize=5, zorder=4)
    if result.end_errors is not None:
        handles.append(_intervals(ax, places, result.interval(level)[order]))
        entries.append(f"{wording.percent(level)} interval of an end")
    if len(entries) > 1:
        style.legend(ax, handles, entries)
    caption = wording.caption(
        f"n = {result.n}, reference loss {result.reference_risk:.4g}",
        f"good: a loss of at most {result.bound:.4g}",
        "ends are exact" if exact and len(entries) == 1 else "",
        style.hidden_labels(ax, len(order)),
    )
    name = f"{'Conditional model' if result.conditional else 'Model'} class reliance, {result.model_class}"
    return style.finish(
        ax,
        xlabel=wording.amount(result.compare, result.loss),
        title=wording.title(name, len(order), len(result.names)),
        null=inference.null_value(result.compare),
        caption=caption,
    )


def rank_ranges(result: Ranks, ax: Axes | None = None, most: int = 30) -> Axes:
    """The ranks that each feature may have, the most important on top."""
    order = style.largest(result.values, most)
    labels = wording.labels(result.names)
    ax = style.feature_axes(ax, [labels[k] for k in order])
    first, last = (ranks[order].astype(np.float64) for ranks in (result.first, result.last))
    _dumbbells(ax, np.arange(len(order), dtype=np.float64), first, last)
    ax.locator_params(axis="x", integer=True)
    caption = f"all sets hold together with probability {result.level:g}"
    return style.finish(
        ax,
        xlabel="rank, 1 the most important",
        title=wording.title("Ranks", len(order), len(result.names)),
        caption=wording.caption(caption, style.hidden_labels(ax, len(order))),
    )


def _dumbbells(ax: Axes, places: Floats, low: Floats, high: Floats) -> Artist:
    """A thick line with a dot at either end; an end that is not finite is cut off at the edge of the axes."""
    finite = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])
    if finite.size:
        ax.update_datalim([(value, places[0]) for value in (finite.min(), finite.max())], updatey=False)
        ax.autoscale_view(scaley=False)
    left, right = ax.get_xlim()
    known = ~(np.isnan(low) | np.isnan(high))
    room = style.place_room(ax, len(places))
    looks = {"color": PALE_BLUE, "linewidth": min(4.0, 0.4 * room), "zorder": 1.5, "capstyle": "butt"}
    ax.hlines(places[known], np.maximum(low[known], left), np.minimum(high[known], right), **looks)
    ends, where = np.concatenate([low, high]), np.tile(places, 2)
    ends = np.where(np.isfinite(ends), ends, np.nan)
    return ax.plot(ends, where, "o", color=BLUE, markersize=min(6.0, 0.6 * room), zorder=3)[0]


def _intervals(ax: Axes, places: Floats, ends: Floats) -> Artist:
    """Thin lines just below a range, one for each end."""
    before = len(ax.collections)
    for end in (0, 1):
        style.whiskers(ax, places + (0.2, 0.32)[end], ends[:, end], INK, zorder=2.0)
    return ax.collections[before]


def _reference(result: ClassReliance, given: Any) -> Floats | None:
    """The values of one model in the order of the features; an `Importance` is read by its names."""
    if given is None:
        return result.reference_reliance
    names: Sequence[str] | None = getattr(given, "names", None)
    if names is not None and hasattr(given, "values"):
        if given.compare != result.compare or given.loss != result.loss:
            raise ValueError(
                f"reference is a {given.compare} of {given.loss}, the range one of {result.compare} of {result.loss}: "
                "measure both with the same compare= and loss="
            )
        absent = [name for name in result.names if name not in names]
        if absent:
            raise ValueError(
                f"reference lacks {listed(absent)}: measure all features of the range, or give their values"
            )
        found = dict(zip(names, given.values, strict=True))
        return np.asarray([found[name] for name in result.names])
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"reference={shown(given)}: give an Importance of the same features, or an array with a value for each"
        ) from error
    if values.shape != (len(result.names),):
        raise ValueError(
            f"reference has shape {values.shape} and there are {len(result.names)} features: give an Importance, or a "
            "value for each feature"
        )
    return values
