"""Variances of an estimate and the ends of its interval, as array functions.

L(i,k) is the loss of row i with the feature of donor k, l_i its base loss, D = L - l, w_i its weight, K the draws per
row. One kernel serves differences, ratios and weights:

    h_ik = (w_i D_ik - x u_i) / mean(u)        difference: u = w,  x = theta;        ratio: u = w l,  x = rho - 1

Its row means r_i, donor terms c_k = (sum of h over the uses of donor k) / K and sum of squares give every variance.
Everything here runs in the namespace and on the device of its arrays and can be traced; `inference` is its host side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from reliance._core.arrays import Array, device, namespace

GOLDEN = (3.0 - math.sqrt(5.0)) / 2.0


class Kernel(NamedTuple):
    """The kernel h of a feature: how far the estimate is from its null value, r (n,), c (n,) and the sum of h^2."""

    excess: Array
    rows: Array
    donors: Array
    total: Array
    scale: Array


class Variance(NamedTuple):
    """The variance of an estimate, and the part of it that more draws would remove (nan where it is not known)."""

    population: Array
    monte_carlo: Array


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


# ---------------------------------------------------------------------------------------------------------------------
# Variances, in any namespace. h_ik = a_i + b_k + e_ik; every function returns Var(estimate) = n Var / n.


def _spread2(x: Array) -> Array:
    return namespace(x).var(x, correction=1)


def _scalar(like: Array, value: float) -> Array:
    return namespace(like).full((), value, dtype=like.dtype, device=device(like))


def pairs_variance(r: Array, c: Array) -> Variance:
    """All pairs: the jackknife, in closed form (nan for two rows: leaving one out leaves no pair)."""
    n = r.shape[0]
    if n < 3:
        return Variance(_scalar(r, math.nan), _scalar(r, math.nan))
    return Variance((n - 1) ** 2 / (n * (n - 2) ** 2) * _spread2(r + c), _scalar(r, 0.0))


def shifts_variance(r: Array, c: Array, total: Array, indicator: Array, draws: int) -> Variance:
    """K >= 3 shifts: the two-way fit of h, exact in the Fourier domain. Everything here is in circulant order.

    ``indicator (n,)`` is 1 at the shifts that were drawn. In frequencies the row means are R = A + S B and the donor
    terms C = B + conj(S) A, so that A + B = (R (1 - conj S) + C (1 - S)) / d and the fit needs no equations solved.
    """
    xp = namespace(r, c, indicator)
    n, k = r.shape[0], draws
    share = xp.conj(xp.fft.rfft(indicator))[1:] / k
    row = xp.fft.rfft(r - xp.mean(r))[1:]
    donor = xp.fft.rfft(c - xp.mean(c))[1:]
    # Real sequences: each frequency stands for itself and its mirror image, except n/2.
    place = xp.arange(1, n // 2 + 1, dtype=r.dtype, device=device(r))
    copies = xp.where(2 * place == n, _scalar(r, 1.0), _scalar(r, 2.0))
    d = 1.0 - _power(share)
    fitted = d > max(1e-9, 8.0 * float(xp.finfo(r.dtype).eps))  # otherwise rows and donors cannot be told apart here
    safe = xp.where(fitted, d, xp.ones_like(d))
    nothing = xp.zeros_like(d)
    explained = _power(row) + xp.where(fitted, _power(donor - xp.conj(share) * row) / safe, nothing)
    freedom = n * k - n - xp.sum(xp.where(fitted, copies, nothing))
    residual = xp.maximum((total - k / n * xp.sum(copies * explained)) / freedom, _scalar(r, 0.0)) / k
    clear = d > 0.25
    both = _power(row * (1.0 - xp.conj(share)) + donor * (1.0 - share)) / (n * safe**2)
    noise = (2.0 - 2.0 * xp.real(share)) / safe * residual
    used = xp.where(clear, copies, nothing)
    linear = xp.sum(used * xp.where(clear, both - noise, nothing)) / xp.sum(used)
    return Variance(xp.maximum(residual, residual + linear) / n, residual / n)


def _power(z: Array) -> Array:
    xp = namespace(z)
    return xp.real(z) ** 2 + xp.imag(z) ** 2


def few_draws_variance(r: Array, c: Array, total: Array, draws: int) -> Variance:
    """One or two derangements: too few to tell a + b from e, so the floor is half the spread of the row means."""
    n = r.shape[0]
    moments = _spread2(r + c) - total / (n * draws - 1) / draws
    return Variance(namespace(r).maximum(moments, 0.5 * _spread2(r)) / n, _scalar(r, math.nan))


def resample_variance(r: Array, c: Array, total: Array, draws: int) -> Variance:
    """Independent donors: n Var = Var(a + b) + (Var b + Var e)/K.

    A donor is used N_k ~ Poisson(K) times, so Var(r + c) = Var(a + b) + (Var a + 2 Var b + 2 Var e)/K; less
    V_h/K = (Var a + Var b + Var e)/K this is n Var. Given the data, the draws of a row are independent and rows do not
    share them: the Monte-Carlo part of n Var is exactly the mean over rows of Var(h_ik | i)/K, which the within-row
    sample variance estimates without bias; n Var cannot be below it. At K = 1 it is unknown, but
    Var a + 2 Cov + 2 Var b + Var e >= (3 - sqrt 5)/2 (Var a + Var b + Var e) whatever the two effects are.
    """
    xp = namespace(r, c)
    n = r.shape[0]
    moments = _spread2(r + c) - total / (n * draws - 1) / draws
    if draws == 1:
        return Variance(xp.maximum(moments, GOLDEN * _spread2(r)) / n, _scalar(r, math.nan))
    within = (total - draws * xp.sum(r**2)) / (n * (draws - 1)) / draws
    return Variance(xp.maximum(moments, within) / n, within / n)


def permutations_variance(r: Array, c: Array, total: Array, lent: Array, draws: int) -> Variance:
    """K >= 3 independent permutations: n Var = Var(a + b) + Var(e)/K, as each donor is used K times.

    Var(r + c) = Var(a + b) + (Var a + Var b + 2 Var e)/K, so the moments are those of independent donors. The floor is
    Var(e)/K, the Monte-Carlo part. Taking each row's mean away removes a from h: what is left has within-row variance
    Var b + Var e, and its donor terms c - lent/K (``lent``: the r of the rows that borrowed from each donor) have the
    variance (1 - q) [(1 - q + q^2) Var b + q Var e], q = 1/K. The two are solved for Var e.
    """
    xp = namespace(r, c)
    n, q = r.shape[0], 1.0 / draws
    moments = _spread2(r + c) - total / (n * draws - 1) * q
    within = (total - draws * xp.sum(r**2)) / (n * (draws - 1))
    noise = ((1.0 - q + q**2) * within - _spread2(c - lent * q) / (1.0 - q)) / (1.0 - q) ** 2
    monte_carlo = xp.maximum(noise, _scalar(r, 0.0)) * q
    found = xp.maximum(moments, monte_carlo)
    # Both estimates below 0 (a few rows only) must not make an interval of no width.
    return Variance(xp.where(found > 0.0, found, 0.5 * _spread2(r)) / n, monte_carlo / n)


def halves_variance(r: Array) -> Variance:
    """Halves: n/2 independent pairs, the sample is their means; r is in the plan's order, partners n/2 apart."""
    half = r.shape[0] // 2
    if half < 2:
        return Variance(_scalar(r, math.nan), _scalar(r, math.nan))
    return Variance(_spread2(pair_means(r)) / half, _scalar(r, math.nan))


def pair_means(r: Array) -> Array:
    """Means of the two halves' partners, along the last axis."""
    half = r.shape[-1] // 2
    return 0.5 * (r[..., :half] + r[..., half:])


def rows_variance(r: Array, total: Array, draws: int) -> Variance:
    """New values for each row, independent of the other rows: the sample is the rows' means."""
    n = r.shape[0]
    spread = _spread2(r) / n
    if draws == 1:
        return Variance(spread, _scalar(r, math.nan))
    return Variance(spread, (total - draws * namespace(r).sum(r**2)) / (n * (draws - 1)) / draws / n)


def strata_variance(psi: Array, r: Array, between: Array, total: Array, draws: int) -> Variance:
    """Independent donors from the row's own stratum: n Var = s2(psi) - V_within/K, psi = r + c - the stratum's mean.

    As for independent donors from all rows, within each stratum; ``between (n,)`` are the strata's means of h, so that
    V_within is the mean square of h around them.
    """
    xp = namespace(psi)
    n = psi.shape[0]
    within = (total - draws * xp.sum(between**2)) / (n * draws - 1)
    moments = _spread2(psi) - within / draws
    if draws == 1:
        return Variance(xp.maximum(moments, GOLDEN * _spread2(r)) / n, _scalar(r, math.nan))
    monte_carlo = (total - draws * xp.sum(r**2)) / (n * (draws - 1)) / draws
    return Variance(xp.maximum(moments, monte_carlo) / n, monte_carlo / n)


def skewness(influence: Array, variance: Array) -> Array:
    """Gamma: the skewness of the estimate, from its influence values psi (m,) and its variance; 0 if that is 0.

    The third moment of psi = r + c is that of the estimate to O(1/K^2), but with few draws its variance is not: r and c
    mix in other rows' effects. So the third moment is standardised by the estimate's own variance: m^-2 m3 / Var^1.5.
    """
    xp = namespace(influence)
    third = xp.mean((influence - xp.mean(influence)) ** 3)
    flat = variance <= 0.0
    scale = influence.shape[0] ** 2 * xp.where(flat, xp.ones_like(variance), variance) ** 1.5
    return xp.where(flat, xp.zeros_like(third), third / scale)


def population_variance(
    kind: str,
    r: Array,
    c: Array,
    total: Array,
    draws: int,
    *,
    indicator: Array | None = None,
    lent: Array | None = None,
    influence: Array | None = None,
    between: Array | None = None,
) -> Variance:
    """Variance of the estimate over new data, by the plan's kind.

    Parameters
    ----------
    kind : str
        "pairs", "shifts", "resample", "permutations", "halves", "values", "strata" or "named".
    r, c, total : arrays (n,), (n,), ()
        Row means and donor terms of the kernel h, and its sum of squares. For 3 <= K < n-1 shifts and for halves r and
        c are in circulant order.
    draws : int
        K, the draws per row.
    indicator : array (n,), optional
        Shifts: 1 at the shifts drawn, 0 elsewhere.
    lent : array (n,), optional
        Permutations: for each donor the sum of r over its uses.
    influence, between : arrays (n,), optional
        Strata: see `strata_variance`.
    """
    if kind == "halves":
        return halves_variance(r)
    if kind == "values":
        return rows_variance(r, total, draws)
    if kind == "strata":
        return strata_variance(influence, r, between, total, draws)
    if kind == "named":  # donors chosen by the data: only refitting knows
        return Variance(_scalar(r, math.nan), _scalar(r, math.nan))
    if kind == "pairs" or (kind == "shifts" and draws >= r.shape[0] - 1):
        return pairs_variance(r, c)
    if kind == "resample":
        return resample_variance(r, c, total, draws)
    if draws < 3:
        return few_draws_variance(r, c, total, draws)
    if kind == "shifts":
        return shifts_variance(r, c, total, indicator, draws)
    return permutations_variance(r, c, total, lent, draws)


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
