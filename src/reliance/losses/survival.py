"""Losses of survival times that may be censored: ``y (n, 2)`` holds times, and 1 where the event was observed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import device as device_of
from reliance._core.arrays import from_host, namespace, to_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.losses.formulas import Host, MeanOf, wide
from reliance.losses.functions import Loss, Metric

Floats = NDArray[np.float64]


def _not_survival(labels: Host, prediction: Array) -> str:
    if labels.ndim != 2 or labels.shape[1] != 2:
        return f"y has shape {labels.shape}: pass (n, 2), times and 1 where the event was observed, 0 where censored"
    if np.any((labels[:, 1] != 0) & (labels[:, 1] != 1)):
        return "the second column of y must be 1 where the event was observed and 0 where it was censored"
    if not labels[:, 1].any():
        return "no event was observed: all rows of y are censored"
    return "" if prediction.ndim == 1 else "the model must return one number per row"


# ---------------------------------------------------------------------------------------------------------------------
# Scores: the larger, the sooner


def cox(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    r"""Pseudo-losses of the negative log partial likelihood of Cox over n, with Breslow's ties.

    With S(t) = sum of w exp(eta) over the rows at risk at t, and Lambda(t) the sum of w delta / S(T) over events up to
    t: delta (log S(T) - eta) + exp(eta) Lambda(T) - mean(delta), whose mean is the metric.
    """
    xp = namespace(y, prediction)
    time, event, eta = wide(y[:, 0]), wide(y[:, 1]), wide(prediction)
    w = xp.ones_like(eta) if weights is None else wide(weights)
    top = xp.max(eta)
    hazard = xp.exp(eta - top)
    late = xp.argsort(-time)
    u = xp.take(-time, late)
    running = xp.cumulative_sum(xp.take(w * hazard, late), include_initial=True)
    at_risk = xp.take(running, xp.searchsorted(u, -time, side="right"))
    early = xp.argsort(time)
    steps = xp.cumulative_sum(xp.take(w * event / at_risk, early), include_initial=True)
    cumulative = xp.take(steps, xp.searchsorted(xp.take(time, early), time, side="right"))
    share = xp.sum(w * event) / xp.sum(w)
    return event * (xp.log(at_risk) + top - eta) + hazard * cumulative - share


def concordance(y: Array, prediction: Array, weights: Array | None = None) -> Array:
    """Pseudo-losses of 1 - Harrell's C: A + n (bad_i - A c_i) / sum of c, over the pairs that each row is one of.

    A pair can be compared if the row with the earlier time had its event; it is bad if that row has the lower score.
    """
    xp = namespace(y, prediction)
    time, event, score = wide(y[:, 0]), wide(y[:, 1]), wide(prediction)
    w = xp.ones_like(score) if weights is None else wide(weights)
    pairs = (w * event)[:, None] * w[None, :] * xp.astype(time[:, None] < time[None, :], score.dtype)
    gap = score[:, None] - score[None, :]
    bad = pairs * (xp.astype(gap < 0.0, score.dtype) + 0.5 * xp.astype(gap == 0.0, score.dtype))
    total = xp.sum(pairs)
    value = xp.sum(bad) / total
    own = xp.sum(bad, axis=1) + xp.sum(bad, axis=0) - value * (xp.sum(pairs, axis=1) + xp.sum(pairs, axis=0))
    return value + xp.sum(w) * own / (w * total)


def _not_comparable(labels: Host, prediction: Array) -> str:
    why = _not_survival(labels, prediction)
    if why:
        return why
    first = labels[labels[:, 1] == 1, 0].min()
    return "" if np.any(labels[:, 0] > first) else "no pair of rows can be compared: no time is after an observed event"


cox_likelihood = Metric(MeanOf(cox), cox, name="cox_likelihood", undefined=_not_survival)
c_index = Metric(MeanOf(concordance), concordance, name="c_index", undefined=_not_comparable)


# ---------------------------------------------------------------------------------------------------------------------
# Probabilities of survival


@dataclass(frozen=True, eq=False)
class _Brier:
    """Squared errors of P(T > at), each row counted by 1 / P(not censored before it is known)."""

    at: float
    times: Floats
    survival: Floats

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp, dev = namespace(y, prediction), device_of(prediction)
        time, event, p = wide(y[:, 0]), wide(y[:, 1]), wide(prediction)
        times = from_host(self.times, xp, dev, time.dtype)
        steps = from_host(np.concatenate([[1.0], self.survival]), xp, dev, time.dtype)
        before = xp.take(steps, xp.searchsorted(times, time, side="left"))  # just before the time
        after = float(steps_at(self.times, self.survival, self.at))
        died = (time <= self.at) & (event == 1.0)
        alive = time > self.at
        nothing = xp.zeros_like(p)
        dead_part = xp.where(died, p * p / xp.where(died, before, xp.ones_like(before)), nothing)
        return dead_part + xp.where(alive, (1.0 - p) ** 2 / after, nothing)


def steps_at(times: Floats, survival: Floats, at: float) -> float:
    """The value of a step function that is 1 before its first step."""
    place = int(np.searchsorted(times, at, side="right"))
    return 1.0 if place == 0 else float(survival[place - 1])


def censoring(y: Host) -> tuple[Floats, Floats]:
    """Kaplan and Meier's estimate that a row is not censored by a time: times, and the values from them on."""
    times = np.unique(y[:, 0])
    at_risk = np.array([np.sum(y[:, 0] >= t) for t in times], dtype=np.float64)
    # Who has the event at a time is not at risk of being censored at it any more.
    events = np.array([np.sum((y[:, 0] == t) & (y[:, 1] == 1)) for t in times])
    censored = np.array([np.sum((y[:, 0] == t) & (y[:, 1] == 0)) for t in times])
    left = np.maximum(at_risk - events, 1.0)
    return times, np.cumprod(1.0 - censored / left)


def survival_brier(at: float, y: object) -> Loss:
    """The Brier score of predicted probabilities to survive a time, weighted by the inverse chance of censoring.

    Parameters
    ----------
    at : float
        The time; the model returns P(T > at), ``(n,)``.
    y : array (m, 2)
        Times and events from which the chance of being censored is estimated (Kaplan and Meier): those of the rows that
        are measured, or of the training data. It is taken as known.

    References
    ----------
    Graf, E., Schmoor, C., Sauerbrei, W., Schumacher, M. (1999). Assessment and comparison of prognostic classification
    schemes for survival data. Statistics in Medicine 18, 2529-2545.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> y = np.array([[1.0, 1], [2.0, 1], [3.0, 1]])  # nobody is censored: squared errors of P(T > 1.5)
    >>> rl.losses.survival_brier(1.5, y).rows(y, np.array([0.25, 0.5, 1.0])).tolist()
    [0.0625, 0.25, 0.0]
    """
    if isinstance(at, bool) or not isinstance(at, Real) or not np.isfinite(float(at)):
        raise ValueError(f"survival_brier: at={shown(at)} must be a time, a finite number")
    host = np.asarray(y if isinstance(y, list | tuple) else to_host(y), dtype=np.float64)
    why = _not_survival(host, np.zeros(len(host))) if host.ndim == 2 else "y must be of shape (m, 2), times and events"
    if why:
        raise ValueError(f"survival_brier: {why}")
    times, survival = censoring(host)
    if steps_at(times, survival, float(at)) <= 0.0:
        raise ValueError(f"survival_brier: at={shown(at)} is after all rows of y are censored: pass an earlier time")
    return Loss("survival_brier", _Brier(float(at), times, survival), undefined=_not_probabilities)


def _not_probabilities(labels: Host, prediction: Array) -> str:
    why = _not_survival(labels, prediction)
    host = to_host(prediction)
    if not why and np.any((host < 0.0) | (host > 1.0)):
        return "the model must return probabilities to survive, from 0 to 1"
    return why
