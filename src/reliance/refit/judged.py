"""The rows that refitted models will be judged on, and by which losses, before there is any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reliance.data.passed import FeaturesLike
from reliance.data.rows import Rows, read
from reliance.engine.problems import check_labels
from reliance.losses.checks import check_takes_weights
from reliance.losses.functions import Loss, LossesLike, LossLike, Metric, resolve_all
from reliance.models.default_losses import default_loss, default_of_fits


class Judged(NamedTuple):
    """Checked rows, and the losses of their labels."""

    rows: Rows
    losses: tuple[Loss | Metric, ...]


def judged_rows(
    fit: object,
    X: object,
    y: object,
    features: FeaturesLike = None,
    loss: LossLike | LossesLike | None = None,
    weights: object = None,
    names: Sequence[str] | None = None,
    shared: bool = False,
) -> Judged:
    """Everything that can be said before the first fit; ``shared``: all models are judged by these very losses."""
    named = None if loss is None else resolve_all(loss)
    rows = read(X, y, features=features, weights=weights, names=names)
    default = default_of_fits if shared else default_loss
    losses = (default(fit, rows.y),) if named is None else named
    check_labels(losses, rows.y)
    if rows.weights is not None:
        for function in losses:
            check_takes_weights(function, "weights= is given")
    return Judged(rows, losses)
