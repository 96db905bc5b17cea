"""Figures of results, with matplotlib, which is imported only when one is drawn.

Each function takes a result and ``ax=``, and returns the Axes; ``result.plot(kind=...)`` calls them.
"""

from __future__ import annotations

from reliance.plots.by_feature import (
    bars,
    coefficient_bars,
    difference_bars,
    extrapolation_bars,
    interaction_bars,
    p_value_bars,
    row_bars,
)
from reliance.plots.clouds import cloud, risks
from reliance.plots.curves import curve
from reliance.plots.groups import set_bars, together
from reliance.plots.images import image, local_image
from reliance.plots.impacts import impact_bars, impact_lines
from reliance.plots.kinds import Kinds, draw
from reliance.plots.local import heat, waterfall
from reliance.plots.monitored import monitored_lines
from reliance.plots.ranges import ranges, rank_ranges
from reliance.plots.splits import split_bars, split_boxes, split_violins
from reliance.plots.spreads import draw_boxes, draw_violins, null_boxes, null_ranges, null_violins
from reliance.plots.swarm import local_swarm, row_swarm

REFITS: Kinds = {"bar": bars, "box": draw_boxes, "violin": draw_violins}
IMPORTANCE: Kinds = {**REFITS, "curve": curve, "beeswarm": row_swarm, "image": image}
POOLED: Kinds = {"bar": bars}
SETS: Kinds = {"bar": set_bars}
DELTA: Kinds = {"bar": difference_bars}
INTERACTIONS: Kinds = {"bar": interaction_bars}
LINEAR: Kinds = {"bar": coefficient_bars}
EXTRAPOLATION: Kinds = {"bar": extrapolation_bars}
TESTS: Kinds = {"bar": p_value_bars}
RANGES: Kinds = {"range": ranges, "cloud": cloud, "risk": risks}
RANKS: Kinds = {"range": rank_ranges}
NULLS: Kinds = {"range": null_ranges, "box": null_boxes, "violin": null_violins}
SPLITS: Kinds = {"box": split_boxes, "violin": split_violins, "bar": split_bars}
IMPACT: Kinds = {"bar": impact_bars, "quantiles": impact_lines}
MONITORED: Kinds = {"line": monitored_lines}
LOCAL: Kinds = {"heat": heat, "waterfall": waterfall, "bar": row_bars, "beeswarm": local_swarm, "image": local_image}

__all__ = [
    "DELTA",
    "EXTRAPOLATION",
    "IMPACT",
    "IMPORTANCE",
    "INTERACTIONS",
    "LINEAR",
    "LOCAL",
    "MONITORED",
    "NULLS",
    "POOLED",
    "RANGES",
    "RANKS",
    "REFITS",
    "SETS",
    "SPLITS",
    "TESTS",
    "bars",
    "draw",
    "together",
]
