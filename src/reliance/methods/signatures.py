"""The keywords that methods share, for the signatures that tell what a call returns: nothing here runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from reliance._core.progress import Progress
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, LossesLike, LossLike
from reliance.methods.adaptive import Until
from reliance.methods.replacing import ReplaceLike
from reliance.plans import Plan


class Shared(TypedDict, total=False):
    """Of all methods that measure losses."""

    features: FeaturesLike
    weights: DataLike | None
    rng: RandomState
    run: Run | None
    progress: Progress
    names: Sequence[str] | None


class Measuring(Shared, total=False):
    """Of those that replace a feature of a given model."""

    compare: str
    clusters: ClustersLike | None
    keep: str | Sequence[str]


class Replacing(Measuring, total=False):
    """Of those that may replace it by something else than values of other rows."""

    replace: ReplaceLike


class Permuting(TypedDict, total=False):
    """Of permutation importance within another method."""

    draws: int | Until | Plan
    loss: LossLike | None
    compare: str
    weights: DataLike | None
    keep: str | Sequence[str]


class Watching(TypedDict, total=False):
    """Of every batch of a monitor."""

    features: FeaturesLike
    names: Sequence[str] | None
    run: Run | None


class Judging(TypedDict, total=False):
    """What says which losses judge which features."""

    features: FeaturesLike
    loss: LossLike | LossesLike | None
    names: Sequence[str] | None
