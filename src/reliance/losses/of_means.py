"""Metrics that are smooth functions of a mean loss: their pairs are those of a loss of single rows.

With m the mean of the losses L, such a metric g(m) has the pseudo-losses P(L) = g(m) + g'(m) (L - m), and perhaps a
term of the labels alone. So the change of a pseudo-loss is a multiple of the change of the loss plus a number of the
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.losses import formulas
from reliance.losses.functions import Loss, Metric, squared_error, zero_one

Floats: TypeAlias = NDArray[np.float64]


class PseudoLosses(Protocol):
    """What the influence function of a metric makes of losses whose (weighted) mean is known; on the host."""

    def slope(self, mean: float) -> float:
        """How much a pseudo-loss changes with the row's loss."""
        ...

    def of(self, losses: Floats, mean: float) -> Floats:
        """The pseudo-losses (n,) of losses (n,)."""
        ...


@dataclass(frozen=True)
class Itself:
    """The mean loss."""

    def slope(self, mean: float) -> float:
        return 1.0

    def of(self, losses: Floats, mean: float) -> Floats:
        return losses


@dataclass(frozen=True)
class Root:
    """sqrt(m) + (L - m) / (2 sqrt(m)); 0 for a perfect fit."""

    def slope(self, mean: float) -> float:
        return 0.5 / float(np.sqrt(mean)) if mean > 0.0 else 0.0

    def of(self, losses: Floats, mean: float) -> Floats:
        root = float(np.sqrt(max(mean, 0.0)))
        return np.asarray(root + self.slope(mean) * (losses - mean))


@dataclass(frozen=True, eq=False)
class Share:
    """m / V + (L - (m / V) S) / V, S (n,) the squared distance of each label from their mean, V the mean of S."""

    spread: Floats
    variance: float

    def slope(self, mean: float) -> float:
        return 1.0 / self.variance

    def of(self, losses: Floats, mean: float) -> Floats:
        share = mean / self.variance
        return np.asarray(share + (losses - share * self.spread) / self.variance)


def _itself(y: HostArray, weights: Floats | None) -> PseudoLosses:
    return Itself()


def _root(y: HostArray, weights: Floats | None) -> PseudoLosses:
    return Root()


def _share(y: HostArray, weights: Floats | None) -> PseudoLosses:
    labels = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    spread = np.mean((labels - np.average(labels, axis=0, weights=weights)) ** 2, axis=1)
    return Share(spread, float(np.average(spread, weights=weights)))


_Known: TypeAlias = tuple[Loss, Callable[[HostArray, Floats | None], PseudoLosses]]
# By their influence functions: a metric keeps its own under another name.
_KNOWN: list[tuple[Callable[..., object], _Known]] = [
    (formulas.inaccuracy, (zero_one, _itself)),
    (formulas.rmse, (squared_error, _root)),
    (formulas.r2, (squared_error, _share)),
]


def _known(function: Loss | Metric) -> _Known | None:
    if not isinstance(function, Metric):
        return None
    return next((found for influence, found in _KNOWN if function.influence is influence), None)


def row_loss(function: Loss | Metric) -> Loss | None:
    """The loss of single rows whose mean a metric is a function of; None of other metrics, and of losses."""
    known = _known(function)
    return None if known is None else known[0]


def pseudo_losses(metric: Loss | Metric, y: HostArray, weights: Floats | None) -> PseudoLosses:
    """Of a metric that has a `row_loss`, on labels (n, ...) with the weights of the rows."""
    known = _known(metric)
    return Itself() if known is None else known[1](y, weights)
