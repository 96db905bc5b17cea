"""Where one of several answers stands, if they are the columns of one array."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reliance._core.arrays import namespace
from reliance._core.kinds import Array


@dataclass(eq=False)
class Place:
    """Columns ``start`` to ``stop`` of the predictions, which are rows of the given shape.

    A network says the shapes of its outputs when it answers for the first time, which is before any loss is computed.
    """

    start: int = 0
    stop: int = 0
    shape: tuple[int, ...] = ()

    def of(self, predictions: Array) -> Array:
        """``(m, *shape)`` of ``(m, W)``."""
        own = predictions[:, self.start : self.stop]
        return namespace(own).reshape(own, (own.shape[0], *self.shape))

    def fill(self, start: int, shape: tuple[int, ...]) -> int:
        """Where the place begins and the shape of a row of it; returns where it ends."""
        self.start, self.stop, self.shape = start, start + math.prod(shape), shape
        return self.stop
