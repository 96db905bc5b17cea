"""Figures of results, with matplotlib, which is imported only when one is drawn.

Each function takes a result and ``ax=``, and returns the Axes; ``result.plot(kind=...)`` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reliance.plots.by_feature import (
    bars,
    coefficient_bars,
    difference_bars,
    draw_boxes,
    draw_violins,
    extrapolation_bars,
    interaction_bars,
    null_boxes,
    null_ranges,
    null_violins,
    p_value_bars,
    ranges,
    set_bars,
)
from reliance.plots.curves import curve
from reliance.plots.impacts import impact_bars, impact_lines
from reliance.plots.local import heat, waterfall
from reliance.plots.splits import split_bars, split_boxes, split_violins
from reliance.plots.style import draw, side_by_side

Kinds = Mapping[str, Callable[..., Any]]

REFITS: Kinds = {"bar": bars, "box": draw_boxes, "violin": draw_violins}
IMPORTANCE: Kinds = {**REFITS, "curve": curve}
SETS: Kinds = {"bar": set_bars}
DELTA: Kinds = {"bar": difference_bars}
INTERACTIONS: Kinds = {"bar": interaction_bars}
LINEAR: Kinds = {"bar": coefficient_bars}
EXTRAPOLATION: Kinds = {"bar": extrapolation_bars}
TESTS: Kinds = {"bar": p_value_bars}
RANGES: Kinds = {"range": ranges}
NULLS: Kinds = {"range": null_ranges, "box": null_boxes, "violin": null_violins}
SPLITS: Kinds = {"box": split_boxes, "violin": split_violins, "bar": split_bars}
IMPACT: Kinds = {"bar": impact_bars, "quantiles": impact_lines}
LOCAL: Kinds = {"heat": heat, "waterfall": waterfall}

__all__ = [
    "DELTA",
    "EXTRAPOLATION",
    "IMPACT",
    "IMPORTANCE",
    "INTERACTIONS",
    "LINEAR",
    "LOCAL",
    "NULLS",
    "RANGES",
    "REFITS",
    "SETS",
    "SPLITS",
    "TESTS",
    "bars",
    "draw",
    "side_by_side",
]
