"""The mean loss without its largest losses: an importance that a few rows cannot decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from reliance._core.arrays import namespace
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.losses import formulas
from reliance.losses.formulas import wide
from reliance.losses.functions import Loss, LossLike, Metric, resolve


@dataclass(frozen=True)
class Trimmed:
    """Pseudo-losses (min(L, q) - a q) / (1 - a), q the 1 - a quantile of the losses L: their mean is the trimmed mean.

    The same as T + (min(L, q) - W) / (1 - a), T the trimmed mean and W = (1 - a) T + a q the mean of min(L, q): the
    influence function, in which a loss beyond q counts as q (Huber 1981, 3.3).
    """

    rows: Callable[..., Array]
    share: float

    def __call__(self, y: Array, prediction: Array, weights: Array | None = None) -> Array:
        losses = wide(self.rows(y, prediction))
        xp = namespace(losses)
        order = xp.argsort(losses)
        w = xp.ones_like(losses) if weights is None else xp.take(wide(weights), order, axis=0)
        below = xp.cumulative_sum(w)
        # The first loss up to which lies the share that is kept; rounding of the sums must not take the next one.
        kept = (1.0 - self.share) * (1.0 - 1e-9) * below[-1]
        place = xp.sum(xp.astype(below < kept, order.dtype))
        q = xp.take(losses, xp.take(order, xp.reshape(place, (1,)), axis=0), axis=0)
        return (xp.minimum(losses, xp.broadcast_to(q, losses.shape)) - self.share * q) / (1.0 - self.share)


def trimmed(loss: LossLike = "squared_error", share: float = 0.05) -> Metric:
    """The mean of a loss without its largest ones: what is asked is how much worse all but the worst rows get.

    The importance is the mean of the smallest ``1 - share`` of the losses with the feature replaced, minus that of the
    losses as they are (or over it); which rows are left out may differ between the two. It is another target than the
    mean of all losses, smaller where the largest losses are those of the feature, and one that can be known: where
    features or noise have heavy tails, a few rows decide about a mean loss and its interval.

    Parameters
    ----------
    loss : name, function or Loss
        A loss of single rows.
    share : float
        Of the rows (or of their weight) with the largest losses, above 0 and below 1/2.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = X[:, 0] + rng.standard_t(2, size=500)  # squared errors have no variance
    >>> robust = rl.losses.trimmed("squared_error", 0.1)
    >>> result = rl.permutation_importance(lambda X: X[:, 0], X, y, loss=robust, rng=0)
    >>> low, high = result.interval()[0]
    >>> bool(0 < low), result.loss
    (True, 'trimmed(squared_error, 0.1)')
    """
    if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 < share < 0.5:
        raise ValueError(f"trimmed: share={shown(share)} must lie strictly between 0 and 1/2.")
    of = resolve(loss)
    if not isinstance(of, Loss):
        raise TypeError(f"trimmed: loss={shown(of.name)} is a metric of all rows: pass a loss of single rows.")
    influence = Trimmed(of.rows, float(share))
    return Metric(
        formulas.MeanOf(influence),
        influence,
        name=f"trimmed({of.name}, {float(share)!r})",
        target=of.target,
        output=of.output,
        valid=of.valid,
        requirement=of.requirement,
        undefined=of.undefined,
        labels=of.labels,
        positive=of.positive,
        columns=of.columns,
    )
