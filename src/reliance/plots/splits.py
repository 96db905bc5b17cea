"""Training beside test data: the distribution of importances over features, and both importances of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reliance import inference
from reliance.plots import style
from reliance.plots.by_feature import grouped, spread

if TYPE_CHECKING:
    from reliance.results.splits import SplitComparison

_SPLITS = ("training data", "test data")


def split_boxes(result: SplitComparison, ax: Any = None) -> Any:
    """The importances of all features as two boxes side by side, with a point for each feature."""
    return _distributions(result, ax, "box")


def split_violins(result: SplitComparison, ax: Any = None) -> Any:
    """The importances of all features as two violins side by side, with a point for each feature."""
    return _distributions(result, ax, "violin")


def split_bars(result: SplitComparison, ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
    """For each feature a bar for each of the two splits, with intervals as whiskers."""
    both = dict(zip(_SPLITS, (result.on_train, result.on_test), strict=True))
    return grouped(both, ax, level, most, None)


def _distributions(result: SplitComparison, ax: Any, form: str) -> Any:
    samples, places = [result.on_train.values, result.on_test.values], (1.0, 2.0)
    ax = style.axes(ax, 5.0, 4.5)
    spread(ax, samples, places, [style.BLUE, style.ORANGE], form, vertical=True)
    for place, sample in zip(places, samples, strict=True):
        # Side by side, so that equal values are seen; the same picture each time.
        aside = 0.1 * np.sin(2.4 * np.arange(len(sample)))
        ax.plot(place + aside, sample, ".", color=style.GREY, markersize=4, alpha=0.7)
    ax.set_xticks(places, _SPLITS)
    ax.set_xlim(0.4, 2.6)
    features = "1 feature" if len(result.names) == 1 else f"{len(result.names)} features"
    return style.finish(
        ax,
        ylabel=style.amount(result.on_train.compare, result.on_train.loss),
        title=f"Importance of {features}",
        grid="y",
        null=inference.null_value(result.on_train.compare),
    )
