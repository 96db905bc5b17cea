"""Which rows stand at the places that donors are given by, where each feature has an order of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reliance._core.arrays import Array
from reliance.data.features import Feature
from reliance.plans import Plan


class RowsAtPlaces:
    """The order of each feature's donors on the device, uploaded once; None: the plan's donors are row numbers."""

    def __init__(self, plan: Plan, upload: Callable[[np.ndarray[Any, Any]], Array]) -> None:
        self.plan, self.upload = plan, upload
        self.known: dict[str, Array | None] = {}

    def __call__(self, feature: Feature) -> Array | None:
        if feature.name not in self.known:
            order = self.plan.part(feature).ordering
            self.known[feature.name] = None if order is None else self.upload(order)
        return self.known[feature.name]
