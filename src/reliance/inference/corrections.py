"""What a fitted sampler adds to the error of an estimate: it is not known, it was estimated.

The mean loss depends on the sampler's parameters, and those on the rows they were fitted on. Where the sampler is a
least squares fit, each of these rows has a known influence on the parameters, and a derivative of the mean loss turns
it into an influence on the estimate. Otherwise the sampler is fitted again without a group of rows, group by group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.arrays import Array
from reliance._core.streams import Indices
from reliance.data.clusters import Membership
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.reductions import Moments
from reliance.engine.stores import Scrambled, Values
from reliance.inference import freedom
from reliance.plans import Plan
from reliance.samplers.draws import Normal, Residuals, ValueDraws

Floats = NDArray[np.float64]
Change = Callable[[range, Array], Array]
# The step of the derivatives, in standard deviations of the residual: central differences are exact for squared error
# of linear models at any step, and a model of steps, such as a tree, needs one that it can see.
_STEP = 0.25
# Draws that the derivative of the mean loss is taken from: a mean over all rows, it needs few.
DERIVATIVE_DRAWS = 4


@dataclass(frozen=True)
class Effect:
    """Influences on the mean loss, one for each loss: of the evaluated rows (n,), or of the training rows (m,).

    ``freedom`` is what the fit leaves of the m training rows.
    """

    rows: tuple[Floats, ...]
    training: tuple[Floats, ...] | None
    freedom: float | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Least squares


def residual_effect(evaluation: Evaluation, parts: Residuals, plan: Plan, feature: Feature) -> Effect:
    """Of x~_ik = z_i'B + (x_k - z_k'B), B by least squares: res_i z_i' Szz^-1 g, g = mean of dL/dx~ (z_i - z_k).

    The mean of dL/dx~ over the donors of a row, or over the rows of a donor, is the difference of two runs in which the
    mean is moved by a step: their row sums and donor sums are all that is needed.
    """
    design = _host(parts.design)
    flat, shape = arrays.as_floating(evaluation.problem.flat), evaluation.problem.rows.shape
    gradients = []
    for a, step in enumerate(_steps(parts.residual)):
        means = (parts.mean + _along(parts.mean, a, step), parts.mean - _along(parts.mean, a, step))
        stores = (Scrambled(flat, shape, feature, mean, parts.residual) for mean in means)
        up, down = (evaluation.moments(store, plan, feature) for store in stores)
        gradients.append([_slope(evaluation, design, p, m, plan, step) for p, m in zip(up, down, strict=True)])
    return _least_squares_effect(parts, _host(parts.residual), design, gradients)


def normal_effect(evaluation: Evaluation, parts: ValueDraws, plan: Plan, feature: Feature) -> Effect:
    """Of x~ = z'B + L eps, eps normal: through B, and through the Cholesky factor L of the residuals' covariance."""
    normal = parts.normal
    assert normal is not None
    design, scale = _host(normal.design), _host(normal.scale)
    flat, shape = arrays.as_floating(evaluation.problem.flat), evaluation.problem.rows.shape
    g = scale.shape[0]

    def difference(change: Change, step: float) -> list[tuple[Moments, Moments]]:
        def moved(sign: float) -> Values:
            return Values(flat, shape, feature, partial(_moved, parts, sign * step, change))

        up, down = (evaluation.moments(moved(sign), plan, feature) for sign in (1.0, -1.0))
        return list(zip(up, down, strict=True))

    gradients, slopes = [], []
    for a in range(g):
        step = _STEP * float(np.linalg.norm(scale[a]))
        pairs = difference(partial(_unit, a), step)
        gradients.append([_slope(evaluation, design, up, down, plan, step) for up, down in pairs])
        for b in range(a + 1):
            pairs = difference(partial(_noise, normal, a, b), step)
            slopes.append([_mean_slope(evaluation, up, down, plan, step) for up, down in pairs])
    residual = _host(normal.training[1]) if normal.training is not None else _own_residual(evaluation, normal, feature)
    found = _least_squares_effect(normal, residual, design, gradients)
    return _with_scale(found, residual, scale, slopes)


def _moved(parts: ValueDraws, step: float, change: Change, rows: range, u: Array) -> Array:
    values = parts.values(rows, u)
    return values + step * change(rows, values)


def _unit(a: int, rows: range, values: Array) -> Array:
    """1 in the place of x~_a."""
    return _along(values, a, 1.0)


def _noise(normal: Normal, a: int, b: int, rows: range, values: Array) -> Array:
    """eps_b in the place of x~_a."""
    xp = arrays.namespace(values)
    inverse = np.linalg.inv(_host(normal.scale))[b]
    centred = values - normal.mean[rows.start : rows.stop, None, :]
    weights = arrays.from_host(inverse, xp, arrays.device(values), values.dtype)
    eps = xp.sum(centred * weights, axis=2)
    return _along(values, a, 1.0) * eps[:, :, None]


def _own_residual(evaluation: Evaluation, normal: Normal, feature: Feature) -> Floats:
    return np.asarray(_host(evaluation.problem.flat)[:, list(feature.columns)] - _host(normal.mean))


def _with_scale(found: Effect, residual: Floats, scale: Floats, slopes: list[list[float]]) -> Effect:
    """Adds what the covariance contributes: dL = L low(L^-1 (res res' - Sigma) L^-T), low halving the diagonal."""
    inverse = np.linalg.inv(scale)
    white = residual @ inverse.T
    inner = white[:, :, None] * white[:, None, :] - np.eye(len(scale))
    low = np.tril(inner) - 0.5 * inner * np.eye(len(scale))
    factor = np.einsum("ab,ibc->iac", scale, low)
    places = [(a, b) for a in range(len(scale)) for b in range(a + 1)]

    def more(loss: int) -> Floats:
        return np.asarray(sum(slopes[k][loss] * factor[:, a, b] for k, (a, b) in enumerate(places)))

    if found.training is not None:
        return Effect(found.rows, tuple(t + more(k) for k, t in enumerate(found.training)), found.freedom)
    return Effect(tuple(r + more(k) for k, r in enumerate(found.rows)), None)


def _least_squares_effect(
    parts: Residuals | Normal, residual: Floats, design: Floats, gradients: list[list[Floats]]
) -> Effect:
    """Sum over target columns a of res_ia z_i' Szz^-1 g_a, for each loss."""
    bread = _host(parts.bread)
    where, freedom = (design, residual), None
    if parts.training is not None:
        Z, left = (_host(t) for t in parts.training)
        # Of few rows the residuals are too small, by sqrt(1 - h_ii) each (HC2): the fit went towards them.
        hat = np.sum(Z @ bread * Z, axis=1) / len(Z)
        where, freedom = (Z, left / np.sqrt(np.maximum(1.0 - hat, 1e-6))[:, None]), max(float(len(Z) - hat.sum()), 1.0)
    effects = tuple(
        np.asarray(sum(where[1][:, a] * (where[0] @ (bread @ gradient[k])) for a, gradient in enumerate(gradients)))
        for k in range(len(gradients[0]))
    )
    if parts.training is None:
        return Effect(effects, None)
    return Effect(tuple(np.zeros(len(design)) for _ in effects), effects, freedom)


def _slope(evaluation: Evaluation, design: Floats, up: Moments, down: Moments, plan: Plan, step: float) -> Floats:
    """(q,): the derivative of the (weighted) mean loss in the coefficients."""
    w = _weights(evaluation)
    rows = w * (up.row_sum - down.row_sum)
    donors = up.donor_sum - down.donor_sum
    return np.asarray(design.T @ (rows - donors) / (2.0 * step * plan.n * plan.draws * w.mean()))


def _mean_slope(evaluation: Evaluation, up: Moments, down: Moments, plan: Plan, step: float) -> float:
    w = _weights(evaluation)
    return float(np.sum(w * (up.row_sum - down.row_sum)) / (2.0 * step * plan.n * plan.draws * w.mean()))


def _weights(evaluation: Evaluation) -> Floats:
    weights = evaluation.problem.host_weights
    return np.ones(evaluation.problem.n) if weights is None else weights


def _steps(residual: Array) -> list[float]:
    return [float(max(_STEP * s, 1e-300)) for s in np.std(_host(residual), axis=0)]


def _along(like: Array, a: int, step: float) -> Array:
    """Zeros but for the last axis' place a."""
    xp = arrays.namespace(like)
    unit = np.zeros(like.shape[-1])
    unit[a] = step
    return xp.zeros_like(like) + arrays.from_host(unit, xp, arrays.device(like), like.dtype)


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# Any sampler: delete a group, fit again


def jackknife_groups(key: int, n: int, clusters: Membership | None = None) -> list[tuple[Indices, Indices]]:
    """The rows that are left, and those that are not, when each of (at most) 20 random groups is deleted.

    Clusters stay whole: the largest come first, and each goes to the group that is the smallest so far.
    """
    units = n if clusters is None else clusters.count
    order, groups = streams.ordering(key, units, 0), min(units, freedom.JACKKNIFE_GROUPS)
    if clusters is None:
        group = np.empty(n, dtype=np.int64)
        group[order] = np.arange(n) % groups
    else:
        group = _even_groups(clusters, order, groups)[clusters.codes]
    return [(np.flatnonzero(group != g), np.flatnonzero(group == g)) for g in range(groups)]


def _even_groups(clusters: Membership, order: Indices, groups: int) -> Indices:
    """``(count,)``: the group of each cluster, of about as many rows in each; ties by the order."""
    sizes = np.bincount(clusters.codes, minlength=clusters.count)
    filled, group = np.zeros(groups, dtype=np.int64), np.empty(clusters.count, dtype=np.int64)
    for cluster in order[np.argsort(-sizes[order], kind="stable")]:
        smallest = int(np.argmin(filled))
        group[cluster], filled[smallest] = smallest, filled[smallest] + sizes[cluster]
    return group
