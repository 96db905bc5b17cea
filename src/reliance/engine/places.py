"""Which rows stand at the places that donors are given by, where each feature has an order of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reliance._core.arrays import Array
from reliance.data.features import Feature
from reliance.engine.stores import Lender, Store
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


class Lenders:
    """What each feature is taken from by a plan's donors: the store, or the store with the feature's own order."""

    def __init__(self, store: Store, plan: Plan, upload: Callable[[np.ndarray[Any, Any]], Array]) -> None:
        self.store, self.plan, self.upload = store, plan, upload
        self.known: dict[str, Lender] = {}

    def __call__(self, feature: Feature) -> Lender:
        if feature.name not in self.known:
            order = self.plan.part(feature).ordering
            lender = self.store if order is None else self.store.in_order(feature, self.upload(order))
            self.known[feature.name] = lender
        return self.known[feature.name]
