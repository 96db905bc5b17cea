"""The kernel of an estimate, its skewness and the ends of its interval, as array functions.

L(i,k) is the loss of row i with the feature of donor k, l_i its base loss, D = L - l, w_i its weight, K the draws per
row. One kernel serves differences, ratios and weights:

    h_ik = (w_i D_ik - x u_i) / mean(u)        difference: u = w,  x = theta;        ratio: u = w l,  x = rho - 1

Its row means r_i, donor terms c_k = (sum of h over the uses of donor k) / K and sum of squares give every variance.
Which of them is the plan's own: see `reliance.plans`. Everything here runs in the namespace and on the device of its
arrays and can be traced; `summary` is its host side.
"""

from __future__ import annotations

from typing import NamedTuple

from reliance._core.arrays import Array, namespace


class Kernel(NamedTuple):
    """The kernel h of a feature: how far the estimate is from its null value, r (n,), c (n,) and the sum of h^2."""

    excess: Array
    rows: Array
    donors: Array
    total: Array
    scale: Array


def kernel(
    row_sum: Array, donor_sum: Array, sum_squares: Array, weights: Array, unit: Array, lent: Array, draws: int
) -> Kernel:
    """The kernel h of a feature.

    Parameters
    ----------
    row_sum, donor_sum, sum_squares : arrays (n,), (n,), ()
        The sums of `Moments`; sum_squares is the sum of w^2 D^2 over all rows and draws.
    weights, unit : arrays (n,)
        w, and u: the weights, or weights times base losses.
    lent : array (n,)
        For each donor the sum of u over its uses.
    draws : int
        K.
    """
    xp = namespace(row_sum, donor_sum, weights, unit)
    scale = xp.mean(unit)
    weighted = weights * row_sum
    # Not rho - 1 but the excess itself: a feature that changes nothing has an excess of exactly 0.
    excess = xp.mean(weighted) / (draws * scale)
    rows = (weighted / draws - excess * unit) / scale
    donors = (donor_sum - excess * lent) / (draws * scale)
    squares = sum_squares - 2.0 * excess * xp.sum(weighted * unit) + excess**2 * draws * xp.sum(unit**2)
    # h has mean 0 by construction; its sum of squares is at least that of its row means, whatever was rounded away.
    total = xp.maximum(squares / scale**2, draws * xp.sum(rows**2))
    return Kernel(excess, rows, donors, total, scale)


def with_row_effect(h: Kernel, effect: Array, lent: Array, draws: int) -> Kernel:
    """The kernel h_ik + effect_i, whose mean is 0, too; ``lent``: for each donor the sum of effects over its uses."""
    xp = namespace(h.rows, effect)
    total = h.total + 2.0 * draws * xp.sum(h.rows * effect) + draws * xp.sum(effect**2)
    return h._replace(rows=h.rows + effect, donors=h.donors + lent / draws, total=total)


def skewness(influence: Array, variance: Array) -> Array:
    """Gamma: the skewness of the estimate, from its influence values psi (m,) and its variance; 0 if that is 0.

    The third moment of psi = r + c is that of the estimate to O(1/K^2), but with few draws its variance is not: r and c
    mix in other rows' effects. So the third moment is standardised by the estimate's own variance: m^-2 m3 / Var^1.5.
    """
    xp = namespace(influence)
    centred = influence - xp.mean(influence)
    third = xp.mean(centred * centred * centred)  # a general power takes twenty times as long
    flat = variance <= 0.0
    scale = influence.shape[0] ** 2 * xp.where(flat, xp.ones_like(variance), variance) ** 1.5
    return xp.where(flat, xp.zeros_like(third), third / scale)


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


def hall(x: float | Array, gamma: Array) -> Array:
    """Hall's g(x) = (3/gamma) (cbrt(1 + gamma (x - gamma/6)) - 1), written so that gamma = 0 is no exception."""
    xp = namespace(gamma)
    inner = x - gamma / 6.0
    cube = 1.0 + gamma * inner
    root = xp.abs(cube) ** (1.0 / 3.0)
    root = xp.where(cube < 0.0, -root, root)  # the real root, also of negative numbers
    return 3.0 * inner / (root**2 + root + 1.0)


def hull(value: Array, std_error: Array, gamma: Array, quantile: float | Array, ratio: bool) -> tuple[Array, Array]:
    """Ends of the hull of the t interval and Hall's skewness-corrected one; ratios on the logarithmic scale."""
    xp = namespace(value, std_error, gamma)
    at_least = xp.zeros_like(gamma) + quantile
    down = xp.maximum(at_least, hall(quantile, gamma)) * std_error
    up = xp.maximum(at_least, -hall(-quantile, gamma)) * std_error
    if not ratio:
        return value - down, value + up
    positive = value > 0.0  # losses below 0 can make a ratio that has no logarithm
    safe = xp.where(positive, value, xp.ones_like(value))
    lower = xp.where(positive, value * xp.exp(-down / safe), value - down)
    return lower, xp.where(positive, value * xp.exp(up / safe), value + up)
