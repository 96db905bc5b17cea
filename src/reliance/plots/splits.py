"""Training beside test data: the distribution of importances over features, and both importances of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reliance import inference
from reliance.plots import style, wording
from reliance.plots.groups import grouped
from reliance.plots.spreads import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.splits import SplitComparison

_SPLITS = ("training data", "test data")


def split_boxes(result: SplitComparison, ax: Axes | None = None) -> Axes:
    """The importances of all features as two boxes side by side, with a point for each feature."""
    return _distributions(result, ax, "box")


def split_violins(result: SplitComparison, ax: Axes | None = None) -> Axes:
    """The importances of all features as two violins side by side, with a point for each feature."""
    return _distributions(result, ax, "violin")


def split_bars(result: SplitComparison, ax: Axes | None = None, level: float = 0.95, most: int = 30) -> Axes:
    """For each feature a bar for each of the two splits, with intervals as whiskers."""
    both = dict(zip(_SPLITS, (result.on_train, result.on_test), strict=True))
    return grouped(both, ax, level, most, None)


def _distributions(result: SplitComparison, ax: Axes | None, form: str) -> Axes:
    samples, places = [result.on_train.values, result.on_test.values], (1.0, 2.0)
    ax = style.axes(ax, 5.0, 4.5)
    # Every feature is a point, outliers included: the boxes do not draw them a second time.
    spread(ax, samples, places, [style.PALE_BLUE, style.ORANGE], form, vertical=True, outliers=False)
    for place, sample in zip(places, samples, strict=True):
        # Side by side, so that equal values are seen; the same picture each time.
        aside = 0.1 * np.sin(2.4 * np.arange(len(sample)))
        ax.plot(place + aside, sample, ".", color=style.INK, markersize=4, alpha=0.6)
    ax.set_xticks(places, _SPLITS)
    ax.set_xlim(0.4, 2.6)
    train, test = result.on_train, result.on_test
    risks = f"{train.base_risk:.4g} and {test.base_risk:.4g}"
    features = "1 feature" if len(result.names) == 1 else f"{len(result.names)} features"
    return style.finish(
        ax,
        ylabel=wording.amount(result.on_train.compare, result.on_train.loss),
        title=f"Importance of {features}",
        grid="y",
        null=inference.null_value(result.on_train.compare),
        caption=f"n = {train.n} and {test.n}, base loss {risks}; points: features",
    )
