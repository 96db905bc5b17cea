"""Which rows stand at the places that donors are given by, where each feature has an order of its own; padded tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reliance._core.arrays import Array
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.engine.stores import Lender, Store
from reliance.plans import Plan, Users


class RowsAtPlaces:
    """The order of each feature's donors on the device, uploaded once; None: the plan's donors are row numbers."""

    def __init__(self, plan: Plan, upload: Callable[[HostArray], Array]) -> None:
        self.plan, self.upload = plan, upload
        self.known: dict[str, Array | None] = {}

    def __call__(self, feature: Feature) -> Array | None:
        if feature.name not in self.known:
            order = self.plan.part(feature).ordering
            self.known[feature.name] = None if order is None else self.upload(order)
        return self.known[feature.name]


class Lenders:
    """What each feature is taken from by a plan's donors: the store, or the store with the feature's own order."""

    def __init__(self, store: Store, plan: Plan, upload: Callable[[HostArray], Array]) -> None:
        self.store, self.plan, self.upload = store, plan, upload
        self.known: dict[str, Lender] = {}

    def __call__(self, feature: Feature) -> Lender:
        if feature.name not in self.known:
            order = self.plan.part(feature).ordering
            lender = self.store if order is None else self.store.in_order(feature, self.upload(order))
            self.known[feature.name] = lender
        return self.known[feature.name]


def padded(values: range, size: int) -> HostArray:
    """The numbers of a range, the last one repeated up to a size."""
    return np.minimum(np.arange(values.start, values.start + size), values.stop - 1)


def padded_users(users: Users, n: int, d: int, size: int) -> HostArray:
    """Flat positions in an (n, d) tile as positions in an (n, size) tile whose last columns are masked, hence zero."""
    if d == size:
        return users.flat
    index = users.flat // d * size + users.flat % d
    if users.bounds is None:  # d uses a donor become size uses, the new ones of a masked cell
        return np.pad(index.reshape(n, d), ((0, 0), (0, size - d)), constant_values=d).reshape(-1)
    return np.pad(index, (0, n * (size - d)), constant_values=d)
