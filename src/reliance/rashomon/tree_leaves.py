"""What the leaves of a tree output so that their loss is least, from sums over their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance._core.words import listed, shown
from reliance.models.ensembles import Finish

Floats = NDArray[np.float64]


class LeafRule(Protocol):
    """The best output of a leaf, and the loss of its rows then.

    Attributes
    ----------
    statistics : array (n, s)
        Of each row, whose sums are all that a leaf needs.
    finish : Finish
        From the outputs to predictions.
    """

    @property
    def statistics(self) -> Floats: ...

    @property
    def finish(self) -> Finish: ...

    def losses(self, sums: Floats) -> Floats:
        """(q, s) -> (q,): the sums of the losses of the rows of leaves; never below 0."""
        ...

    def output(self, sums: Floats) -> tuple[float, ...]:
        """(s,) -> K numbers."""
        ...


@dataclass(frozen=True, eq=False)
class Majority:
    """Labels under zero-one loss: the most frequent one, the first of those that are equally frequent."""

    statistics: Floats
    finish: Finish

    @classmethod
    def of(cls, y: HostArray) -> Majority:
        classes, codes = np.unique(y, return_inverse=True)
        return cls(np.eye(len(classes))[codes], Finish(output="argmax", classes=tuple(classes.tolist())))

    def losses(self, sums: Floats) -> Floats:
        return np.asarray(sums.sum(axis=1) - sums.max(axis=1))

    def output(self, sums: Floats) -> tuple[float, ...]:
        return tuple(np.eye(len(sums))[int(np.argmax(sums))].tolist())


@dataclass(frozen=True, eq=False)
class Shares:
    """Labels 0, ..., K - 1 under log loss: the share of each."""

    statistics: Floats
    finish: Finish

    @classmethod
    def of(cls, y: HostArray) -> Shares:
        classes, codes = np.unique(y, return_inverse=True)
        if classes.dtype.kind not in "biuf" or not np.array_equal(classes, np.arange(len(classes))):
            raise ValueError(
                f"y has the labels {shown(classes[:5].tolist())}, but loss='log_loss' needs 0, ..., K - 1: encode "
                "them, as np.unique(y, return_inverse=True)[1] does"
            )
        return cls(np.eye(len(classes))[codes], Finish(output="columns"))

    def losses(self, sums: Floats) -> Floats:
        share = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1.0)
        return np.asarray(-np.sum(sums * np.log(np.where(share > 0, share, 1.0)), axis=1))

    def output(self, sums: Floats) -> tuple[float, ...]:
        return tuple((sums / sums.sum()).tolist())


@dataclass(frozen=True, eq=False)
class Means:
    """Numbers under squared error: their mean."""

    statistics: Floats
    finish: Finish
    centre: float

    @classmethod
    def of(cls, y: HostArray) -> Means:
        if y.dtype.kind not in "biuf":
            raise TypeError(f"y has dtype {y.dtype}, but loss='squared_error' needs numbers")
        numbers = y.astype(np.float64)
        centre = float(numbers.mean())
        away = numbers - centre  # squares about 0 would cancel
        return cls(np.stack([np.ones_like(away), away, away**2], axis=1), Finish(), centre)

    def losses(self, sums: Floats) -> Floats:
        return np.maximum(sums[:, 2] - sums[:, 1] ** 2 / np.maximum(sums[:, 0], 1.0), 0.0)

    def output(self, sums: Floats) -> tuple[float, ...]:
        return (self.centre + float(sums[1] / sums[0]),)


RULES: dict[str, Callable[[HostArray], LeafRule]] = {
    "zero_one": Majority.of,
    "log_loss": Shares.of,
    "squared_error": Means.of,
}


def rule_of(loss: str, y: HostArray) -> LeafRule:
    if loss not in RULES:
        raise ValueError(
            f"loss={shown(loss)} has no rule for the best leaves: choose {listed(list(RULES))}, or list fitted trees "
            "with TreeClass.from_trees(trees, loss=...), which takes any loss of rows"
        )
    return RULES[loss](y)
