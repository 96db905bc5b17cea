"""Variances of an estimate, by how its donors were drawn, as array functions.

h_ik = a_i + b_k + e_ik is the kernel of `reliance.inference.variance`, r_i its row means, c_k = (sum of h over the uses
of donor k) / K and ``total`` its sum of squares. Every function returns Var(estimate) = n Var / n, in the namespace and
on the device of its arrays, and can be traced; errors over the draws alone are the host's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from reliance._core.arrays import Array, device, namespace
from reliance.plans.protocol import Floats, Variance

GOLDEN = (3.0 - math.sqrt(5.0)) / 2.0


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


def resample_variance(r: Array, c: Array, total: Array, draws: int, left: float = 1.0) -> Variance:
    """Independent donors: n Var = Var(a + b) + (Var b + Var e)/K.

    A donor is used N_k ~ Poisson(K) times, so Var(r + c) = Var(a + b) + (Var a + 2 Var b + 2 Var e)/K; less
    V_h/K = (Var a + Var b + Var e)/K this is n Var. Given the data, the draws of a row are independent and rows do not
    share them: the Monte-Carlo part of n Var is exactly the mean over rows of Var(h_ik | i)/K, which the within-row
    sample variance estimates without bias; n Var cannot be below it. At K = 1 it is unknown, but
    Var a + 2 Cov + 2 Var b + Var e >= (3 - sqrt 5)/2 (Var a + Var b + Var e) whatever the two effects are. ``left``:
    what is left of the noise of draws without replacement.
    """
    xp = namespace(r, c)
    n = r.shape[0]
    moments = _spread2(r + c) - left * total / (n * draws - 1) / draws
    if draws == 1:
        return Variance(xp.maximum(moments, GOLDEN * _spread2(r)) / n, _scalar(r, math.nan))
    within = left * (total - draws * xp.sum(r**2)) / (n * (draws - 1)) / draws
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


class RankedEffects(NamedTuple):
    """What ranks tell about the donors and the noise, q = 1/K; arrays ``(n,)`` by row, the rest 0-d.

    ``donors``: b, their effects. ``kept``: the same without what is noise in them. ``within``: W, the variance of h
    within rows; ``apart``: the same without what windows differ by for all rows. ``noise``: nu, the variance of the
    noise of b. ``within_windows``: Var b_w, that of b within windows.
    """

    donors: Array
    kept: Array
    within: Array
    apart: Array
    noise: Array
    within_windows: Array


def ranked_effects(r: Array, between: Array, inside: Array, total: Array, draws: int, windows: int) -> RankedEffects:
    """Effects of the donors of ranks, from their terms freed of their borrowers' row effects, c~ = c - lent / K.

    ``between``: cb, the mean of c~ over the window of each donor, ``inside``: cw = c~ - cb. Donors' effects are smooth
    between windows, where every row meets all of them, and noisy within: taking each row's mean away leaves the
    variance Var b + Var e within rows, and within windows c~ has (1 - q)^2 of that of b, besides noise.
    """
    xp = namespace(r, between, inside)
    n, q, nothing = r.shape[0], 1.0 / draws, _scalar(r, 0.0)
    within = xp.maximum((total - draws * xp.sum(r**2)) / (n * draws), nothing)
    apart = xp.maximum(within - xp.mean(between**2), nothing)
    spread = xp.sum(inside**2) / (n - windows) if n > windows else nothing
    noise = xp.maximum(((1.0 - q + q**2) * apart - spread) / (1.0 - q) ** 2, nothing)
    most = spread / (1.0 - q) ** 2
    own = xp.minimum(xp.maximum((apart - noise) / (1.0 - q), nothing), most)
    nu = (q * noise + q**2 * (1.0 - q) * own) / (1.0 - q) ** 2
    safe = xp.where(most > 0.0, most, xp.ones_like(most))
    keep = xp.where(most > 0.0, xp.maximum(1.0 - nu / safe, nothing), nothing)
    single = inside / (1.0 - q)
    return RankedEffects(between + single, between + keep * single, within, apart, nu, own)


def ranked_monte_carlo(
    contrasts: Array, effects: RankedEffects, draws: int, left: int = 0, uneven: float = 0.0
) -> Array:
    """N times the variance over the draws alone of K >= 2 draws by ranks, on the safe side.

    ``contrasts (n,)``: T, for each row the sum of its changes with signs that alternate between windows, of mean square
    1. What a row's mean has of chance, T has, too, and besides it only what such signs leave of a smooth curve.
    ``left``: draws of a cycle that is not complete, which do not meet all windows: counted as if they were independent.
    So are those that some rows have too many of one window and too few of another, if n is no multiple of K:
    ``uneven`` is their sum of squares in a row, on average. Which rows these are is chance, and T does not see it.
    """
    xp = namespace(contrasts)
    chance = _spread2(contrasts) + left * effects.within + uneven * effects.apart
    return xp.minimum(chance / draws**2, effects.within / draws)


def ranked_variance(r: Array, effects: RankedEffects, monte_carlo: Array, draws: int) -> Variance:
    """K >= 3 draws by ranks: n Var = s2(r + b), less the noise of b and what r has of donors within windows."""
    xp = namespace(r)
    n = r.shape[0]
    moments = _spread2(r + effects.donors) - effects.noise - effects.within_windows / draws
    found = xp.maximum(moments, monte_carlo)
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


def lent_variance(
    r: Array, c: Array, between: Array, total: Array, draws: int, *, lenders: int, groups: int, left: float
) -> Variance:
    """Donors that are another sample than the rows: Var = s2(r)/n + (sum of S_k^2 - T)/(n K)^2, S_k = K c_k.

    With N_k uses of lender k the estimate has the variance Var a/n + Var b sum N_k^2/(n K)^2 + Var e/(n K). Row means
    have s2(r) = Var a + (Var b + Var e)/K: all of it but what lenders add by being used more than once, which is
    Var b (sum N_k^2 - n K)/(n K)^2. Their sums S_k, free of the means of their groups (``c`` is), have sum S_k^2 =
    sum N_k^2 Var b + n K (Var a + Var e), and T, the sum of h^2 around the same means (``between (n,)``), is
    n K (Var a + Var b + Var e). ``left``: what is left of the noise of draws without replacement.
    """
    xp = namespace(r, c)
    n = r.shape[0]
    nothing = _scalar(r, 0.0)
    within = total - draws * xp.sum(between**2)
    centred = lenders / max(lenders - groups, 1)
    repeated = xp.maximum(centred * draws**2 * xp.sum(c**2) - within, nothing) / (n * draws) ** 2
    population = _spread2(r) / n + repeated
    if draws == 1:
        return Variance(population, nothing if left == 0.0 else _scalar(r, math.nan))
    noise = (total - draws * xp.sum(r**2)) / (n * (draws - 1)) / draws / n
    return Variance(population, left * noise)


def unknown(like: Array) -> Variance:
    """Where nothing is known about it."""
    return Variance(_scalar(like, math.nan), _scalar(like, math.nan))


# ---------------------------------------------------------------------------------------------------------------------
# Over the draws alone, the data fixed; on the host


def independent_error(draws: Floats) -> float:
    """Standard error of a mean of independent draws (nan: one draw says nothing about its spread)."""
    k = len(draws)
    return float(np.sqrt(k * np.var(draws, ddof=1)) / k) if k > 1 else math.nan


def merrick_error(draws: Floats) -> float:
    """The same in Merrick's maximum-likelihood form."""
    return float(np.sqrt(np.var(draws) / len(draws))) if len(draws) > 1 else math.nan


def shifts_share(draws: int, n: int) -> float:
    """K^2 over S^2 times the variance of the mean of K shifts, S^2 being that of one.

    n-1 shifts are the exact mean, so the draws that matter are the K' = K mod (n-1) left over; they are a sample
    without replacement, enter the mean with weight K'/K, and (K'/K)^2 (1 - K'/(n-1)) S^2/K' is their variance.
    """
    left = draws % (n - 1)
    return left * (1.0 - left / (n - 1))


def row_errors(row_sum: Floats, row_squares: Floats, draws: int, share: float) -> Floats:
    """Standard errors of the means of rows over K draws; ``share``: K^2 over S^2 times their variances."""
    if share == 0.0:
        return np.zeros(len(row_sum))
    if draws == 1:
        return np.full(len(row_sum), math.nan)
    spread = np.maximum(row_squares - row_sum**2 / draws, 0.0) / (draws - 1)
    return np.asarray(np.sqrt(share * spread) / draws)
