"""Errors, intervals and tests against literal formulas: full matrices, double loops, explicit Fourier sums."""

from __future__ import annotations

import cmath
import itertools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from methods import population_variance
from reliance import inference, plans
from reliance._core.arrays import device, to_host
from reliance.engine.reductions import Moments
from reliance.inference import variance
from reliance.plans.variances import GOLDEN, pair_means

# ---------------------------------------------------------------------------------------------------------------------
# Plans of a few lines, and the literal kernel


@dataclass(frozen=True)
class FakePlan:
    """Any plan, by its table of donors (n, K), with the errors of the plan of its kind."""

    kind: str
    table: np.ndarray
    order: np.ndarray | None = None
    shifts: np.ndarray | None = None

    @property
    def n(self):
        return self.table.shape[0]

    @property
    def draws(self):
        return self.table.shape[1]

    def spread(self, v):
        total = np.zeros(self.n)
        for i, k in itertools.product(range(self.n), range(self.draws)):
            total[self.table[i, k]] += v[i]
        return total

    def __getattr__(self, name):
        found = getattr(OF_KIND[self.kind], name)
        return found.fget(self) if isinstance(found, property) else found.__get__(self)


OF_KIND = {
    "pairs": plans.Pairs,
    "halves": plans.Halves,
    "resample": plans.Resample,
    "permutations": plans.Permutations,
    "shifts": plans.Shifts,
}


def make_plan(kind, n, k, rng):
    if kind == "pairs":
        return FakePlan(kind, np.array([[j for j in range(n) if j != i] for i in range(n)]))
    if kind == "halves":
        return FakePlan(kind, np.array([[(i + n // 2) % n] for i in range(n)]), np.arange(n))
    if kind == "resample":
        return FakePlan(kind, rng.integers(0, n, size=(n, k)))
    if kind == "permutations":
        return FakePlan(kind, np.stack([rng.permutation(n) for _ in range(k)], axis=1))
    table = np.zeros((n, k), dtype=np.int64)
    kept = None
    for draw in range(k):  # a new ordering after n - 1 shifts
        if draw % (n - 1) == 0:
            order, shifts = rng.permutation(n), rng.permutation(n - 1) + 1
            kept = kept or (order, shifts[:k])
        for position in range(n):
            table[order[position], draw] = order[(position + shifts[draw % (n - 1)]) % n]
    return FakePlan(kind, table, *kept)


def make_losses(plan, rng, scale=1.0):
    """Base losses, changes D (n, K) that depend on row and donor as real ones do, and weights."""
    n = plan.n
    a, b, u, v = rng.normal(size=(4, n))
    base = rng.gamma(2.0, size=n)
    changes = np.empty(plan.table.shape)
    for i, k in itertools.product(range(n), range(plan.draws)):
        j = plan.table[i, k]
        changes[i, k] = scale * (0.4 + a[i] + b[j] ** 2 + u[i] * v[j])
    return base, changes, rng.uniform(0.2, 3.0, size=n)


def moments_of(changes, weights, plan, with_draws=True):
    donor = np.zeros(plan.n)
    for i, k in itertools.product(range(plan.n), range(plan.draws)):
        donor[plan.table[i, k]] += weights[i] * changes[i, k]
    draw_sum = (weights[:, None] * changes).sum(axis=0) if with_draws else None
    return Moments(changes.sum(axis=1), donor, (changes**2).sum(axis=1), draw_sum)


@dataclass
class Literal:
    """The design's formulas, from the whole matrix h."""

    plan: FakePlan
    base: np.ndarray
    changes: np.ndarray
    weights: np.ndarray
    compare: str

    def __post_init__(self):
        w, n, k = self.weights, self.plan.n, self.plan.draws
        mean_w = sum(w) / n
        base_risk = sum(w[i] * self.base[i] for i in range(n)) / sum(w)
        theta = sum(w[i] * self.changes[i, j] for i in range(n) for j in range(k)) / (k * sum(w))
        self.h = np.empty((n, k))
        for i, j in itertools.product(range(n), range(k)):
            if self.compare == "difference":
                self.h[i, j] = w[i] * (self.changes[i, j] - theta) / mean_w
            else:
                rho = 1 + theta / base_risk
                self.h[i, j] = w[i] * (self.changes[i, j] - (rho - 1) * self.base[i]) / (mean_w * base_risk)
        self.value = theta if self.compare == "difference" else 1 + theta / base_risk
        self.replaced = base_risk + theta
        self.scale = 1.0 if self.compare == "difference" else base_risk
        self.r = np.array([sum(row) / k for row in self.h])
        self.c = np.zeros(n)
        for i, j in itertools.product(range(n), range(k)):
            self.c[self.plan.table[i, j]] += self.h[i, j] / k
        self.v_h = np.var(self.h, ddof=1)

    def n_var(self):
        n, k, r, c = self.plan.n, self.plan.draws, self.r, self.c
        kind = self.plan.kind
        s2 = np.var(r + c, ddof=1)
        within = np.mean([np.var(row, ddof=1) for row in self.h]) if k > 1 else math.nan
        if kind == "halves":
            pairs = [(r[i] + r[i + n // 2]) / 2 for i in range(n // 2)]
            return n * np.var(pairs, ddof=1) / (n // 2), math.nan
        if kind == "pairs" or (kind == "shifts" and k >= n - 1):
            return (n - 1) ** 2 / (n - 2) ** 2 * s2, None if kind == "shifts" else 0.0
        if kind == "resample":
            floor = within / k if k > 1 else (3 - math.sqrt(5)) / 2 * np.var(r, ddof=1)
            return max(s2 - self.v_h / k, floor), (floor if k > 1 else math.nan)
        if k < 3:
            return max(s2 - self.v_h / k, 0.5 * np.var(r, ddof=1)), math.nan
        if kind == "permutations":
            left = np.zeros(n)
            for i, j in itertools.product(range(n), range(k)):
                left[self.plan.table[i, j]] += (self.h[i, j] - r[i]) / k
            # Var left = (1 - q) [(1 - q + q^2) B + q E], within = B + E, as a linear system
            q = 1 / k
            system = np.array([[(1 - q) * (1 - q + q * q), (1 - q) * q], [1.0, 1.0]])
            floor = max(np.linalg.solve(system, [np.var(left, ddof=1), within])[1], 0.0) / k
            return max(s2 - self.v_h / k, floor), floor
        return self.fourier()

    def fourier(self):
        n, k = self.plan.n, self.plan.draws
        r, c = self.r[self.plan.order], self.c[self.plan.order]

        def transform(x, w):
            return sum(x[t] * cmath.exp(-2j * math.pi * w * t / n) for t in range(n))

        explained, fitted, terms = 0.0, 0, []
        for w in range(1, n):
            s = sum(cmath.exp(2j * math.pi * w * int(shift) / n) for shift in self.plan.shifts) / k
            big_r, big_c = transform(r, w), transform(c, w)
            d = 1 - abs(s) ** 2
            explained += abs(big_r) ** 2
            if d > 1e-9:
                explained += abs(big_c - s.conjugate() * big_r) ** 2 / d
                fitted += 1
            if d > 1 / 4:
                both = abs(big_r * (1 - s.conjugate()) + big_c * (1 - s)) ** 2
                terms.append((both / (n * d**2), (2 - 2 * s.real) / d))
        se2 = (((self.h - self.h.mean()) ** 2).sum() - k / n * explained) / (n * k - n - fitted)
        mean = sum(both - noise * se2 / k for both, noise in terms) / len(terms)
        return max(se2 / k, se2 / k + mean), se2 / k

    def fixed_error(self):
        kind, n, k = self.plan.kind, self.plan.n, self.plan.draws
        if kind == "pairs":
            return 0.0
        draws = self.draws()
        if kind == "resample":
            return math.nan if k == 1 else math.sqrt(sum((x - sum(draws) / k) ** 2 for x in draws) / k / k)
        if kind == "shifts" and k % (n - 1) == 0:
            return 0.0
        if k == 1:
            return math.nan
        s2 = sum((x - sum(draws) / k) ** 2 for x in draws) / (k - 1)
        if kind == "permutations":
            return math.sqrt(s2 / k)
        left = k % (n - 1)
        return math.sqrt((left / k) ** 2 * (1 - left / (n - 1)) * s2 / left)

    def draws(self):
        w, null = self.weights, float(self.compare == "ratio")
        return [null + sum(w * self.changes[:, k]) / sum(w) / self.scale for k in range(self.plan.draws)]


CASES = [
    ("pairs", 9, None),
    ("pairs", 3, None),
    ("halves", 12, None),
    ("resample", 11, 1),
    ("resample", 11, 2),
    ("resample", 10, 6),
    ("permutations", 11, 1),
    ("permutations", 11, 2),
    ("permutations", 12, 5),
    ("shifts", 12, 1),
    ("shifts", 12, 2),
    ("shifts", 12, 3),  # even n has the frequency n/2
    ("shifts", 13, 3),
    ("shifts", 13, 7),
    ("shifts", 9, 8),
    ("shifts", 9, 16),
    ("shifts", 9, 11),
    ("shifts", 9, 21),
]


@pytest.mark.parametrize("scale", [1.0, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize(("kind", "n", "k"), CASES)
def test_summary_is_the_literal_formula(kind, n, k, compare, weighted, scale):
    rng = np.random.default_rng([n, k or 0, 5])
    plan = make_plan(kind, n, k, rng)
    base, changes, weights = make_losses(plan, rng, scale)
    weights = weights if weighted else np.ones(n)
    literal = Literal(plan, base, changes, weights, compare)
    found = inference.summarize(
        moments_of(changes, weights, plan, kind != "pairs"), base, weights if weighted else None, plan, compare
    )
    n_var, monte_carlo = literal.n_var()
    close = {"rtol": 1e-9, "atol": 1e-13}
    np.testing.assert_allclose(found.value, literal.value, **close)
    np.testing.assert_allclose(found.replaced_risk, literal.replaced, **close)
    np.testing.assert_allclose(found.std_error, math.sqrt(n_var / n), **close)
    np.testing.assert_allclose(found.fixed_data_error, literal.fixed_error(), **close)
    if monte_carlo is None:
        monte_carlo = n * literal.fixed_error() ** 2
    np.testing.assert_allclose(found.monte_carlo_share, monte_carlo / n_var, rtol=1e-8)
    every = literal.h.ravel()
    ml = sum((x - every.mean()) ** 2 for x in every) / every.size
    np.testing.assert_allclose(found.random_variable_error, math.sqrt(ml / every.size), **close)
    if kind == "halves":
        psi = np.array([(literal.r[i] + literal.r[i + n // 2]) / 2 for i in range(n // 2)])
    else:
        psi = literal.r + literal.c
    third = sum((x - psi.mean()) ** 3 for x in psi) / psi.size
    expected = third / (psi.size**2 * (n_var / n) ** 1.5)
    np.testing.assert_allclose(found.skewness, expected, rtol=1e-8, atol=1e-9)
    if kind == "pairs":
        assert found.draws is None
    else:
        np.testing.assert_allclose(found.draws, literal.draws(), **close)
    # The rows' contributions average to the value; their standard error is the paired t test's.
    np.testing.assert_allclose(found.row_values.mean(), found.value, **close)
    units = (found.row_values[: n // 2] + found.row_values[n // 2 :]) / 2 if kind == "halves" else found.row_values
    np.testing.assert_allclose(found.row_error, stats.sem(units), **close)
    if compare == "difference" and not weighted:
        np.testing.assert_allclose(found.row_values, changes.mean(axis=1), **close)


def test_all_pairs_error_is_the_delete_one_jackknife():
    rng = np.random.default_rng(3)
    plan = make_plan("pairs", 8, None, rng)
    base, changes, _ = make_losses(plan, rng)
    full = np.zeros((8, 8))
    for i, k in itertools.product(range(8), range(7)):
        full[i, plan.table[i, k]] = changes[i, k]

    def estimate(kept):
        return np.mean([full[i, j] for i in kept for j in kept if i != j])

    without = [estimate([i for i in range(8) if i != gone]) for gone in range(8)]
    jackknife = math.sqrt(7 / 8 * sum((x - np.mean(without)) ** 2 for x in without))
    found = inference.summarize(moments_of(changes, np.ones(8), plan, False), base, None, plan, "difference")
    assert found.std_error == pytest.approx(jackknife, rel=1e-12)


@pytest.mark.parametrize("shifts", [[1, 2, 5], [2, 4, 6], [1, 3, 4, 9]])
def test_fourier_fit_is_the_two_way_least_squares_fit(shifts):
    """Also where rows and donors are confounded at a frequency: n = 12 and even shifts only."""
    rng = np.random.default_rng(0)
    n, k = 12, len(shifts)
    order = rng.permutation(n)
    table = np.zeros((n, k), dtype=np.int64)
    for q, j in itertools.product(range(n), range(k)):
        table[order[q], j] = order[(q + shifts[j]) % n]
    plan = FakePlan("shifts", table, order, np.array(shifts))
    base, changes, _ = make_losses(plan, rng)
    design = np.zeros((n * k, 2 * n))
    for i, j in itertools.product(range(n), range(k)):
        design[i * k + j, i] = design[i * k + j, n + table[i, j]] = 1.0
    fit = np.linalg.lstsq(design, changes.ravel(), rcond=None)
    residual = changes.ravel() - design @ fit[0]
    se2 = (residual**2).sum() / (n * k - fit[2])
    found = inference.summarize(moments_of(changes, np.ones(n), plan), base, None, plan, "difference")
    assert found.monte_carlo_share * found.std_error**2 * n == pytest.approx(se2 / k, rel=1e-9)


def test_merrick_intervals_from_the_paper():
    """Equations 10 to 12, ablated minus original, with t quantiles."""
    rng = np.random.default_rng(1)
    plan = make_plan("resample", 15, 4, rng)
    base, changes, _ = make_losses(plan, rng)
    found = inference.summarize(moments_of(changes, np.ones(15), plan), base, None, plan, "difference")
    for sample, error in [
        (changes.ravel(), found.random_variable_error),
        (changes.mean(axis=0), found.fixed_data_error),
    ]:
        size = len(sample)
        estimate = sum(sample) / size
        sem = math.sqrt(sum((x - estimate) ** 2 for x in sample) / size / size)
        q = stats.t.ppf(0.95, size - 1)
        bounds = inference.interval(np.array([found.value]), np.array([error]), size - 1, 0.9)
        np.testing.assert_allclose(bounds, [[estimate - q * sem, estimate + q * sem]], rtol=1e-12)


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize(("kind", "n", "k"), CASES)
def test_a_feature_that_changes_nothing(kind, n, k, compare):
    rng = np.random.default_rng(0)
    plan = make_plan(kind, n, k, rng)
    base, changes, weights = make_losses(plan, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = inference.summarize(moments_of(0 * changes, weights, plan), base, weights, plan, compare)
        null = float(compare == "ratio")
        value, error, gamma = (np.array([x]) for x in (found.value, found.std_error, found.skewness))
        bounds = inference.interval(value, error, n - 1, gamma=gamma, ratio=compare == "ratio")
        assert (found.value, found.std_error, found.row_error, found.random_variable_error) == (null, 0, 0, 0)
        assert bounds.tolist() == [[null, null]]
        for alternative in inference.ALTERNATIVES:
            statistic, p = inference.t_test(value, error, n - 1, alternative, compare == "ratio")
            assert statistic[0] == 0
            assert p[0] == 1


def test_too_few_rows_have_no_population_error():
    rng = np.random.default_rng(0)
    for kind, n in [("pairs", 2), ("shifts", 2), ("halves", 2)]:
        plan = make_plan(kind, n, 1, rng)
        base, changes, weights = make_losses(plan, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = inference.summarize(moments_of(changes, weights, plan), base, None, plan, "difference")
        assert math.isnan(found.std_error)
        assert math.isnan(found.monte_carlo_share)


def test_metric_without_rows_keeps_its_draws_only():
    rng = np.random.default_rng(0)
    plan = make_plan("shifts", 10, 4, rng)
    base, changes, weights = make_losses(plan, rng)
    found = inference.summarize(moments_of(changes, weights, plan), base, None, plan, "difference", per_row=False)
    assert found.fixed_data_error > 0
    assert all(map(math.isnan, (found.std_error, found.random_variable_error, found.row_error, found.skewness)))
    assert np.isnan(found.row_values).all()


def test_ratio_of_zero_risk_and_unknown_comparison_are_errors():
    plan = make_plan("pairs", 4, None, np.random.default_rng(0))
    moments = Moments(np.ones(4), np.ones(4), np.ones(4), None)
    with pytest.raises(ValueError, match="compare='difference'"):
        inference.summarize(moments, np.zeros(4), None, plan, "ratio")
    with pytest.raises(ValueError, match="compare='percent'"):
        inference.summarize(moments, np.ones(4), None, plan, "percent")


def test_bound_for_one_independent_draw_is_sharp():
    """Var a + 2 Cov + 2 Var b + Var e over Var a + Var b + Var e is never below (3 - sqrt 5)/2, and reaches it."""
    x = np.linspace(0, 5, 100_001)  # sd of a in units of that of b, fully opposed, no e
    assert ((x**2 - 2 * x + 2) / (x**2 + 1)).min() == pytest.approx(GOLDEN, abs=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


def literal_hall(x, gamma):
    return 3 / gamma * (np.cbrt(1 + gamma * (x - gamma / 6)) - 1)


@pytest.mark.parametrize("gamma", [-3.0, -1.0, -0.2, 0.01, 0.4, 1.0, 3.0])
def test_hall_is_the_printed_formula(gamma):
    for x in (-5.0, -2.0, 0.0, 0.5, 2.0, 5.0):  # cube roots of negative numbers among them
        assert float(variance.hall(x, np.array(gamma))) == pytest.approx(literal_hall(x, gamma), rel=1e-10, abs=1e-12)


def test_hall_is_smooth_at_zero():
    assert float(variance.hall(1.7, np.array(0.0))) == 1.7
    for gamma in (1e-300, 1e-12, -1e-12):
        assert float(variance.hall(1.7, np.array(gamma))) == pytest.approx(1.7, abs=1e-10)


@pytest.mark.parametrize("gamma", [-0.4, 0.3])
def test_interval_is_the_hull(gamma):
    value, error, df = 1.3, 0.4, 30
    q = stats.t.ppf(0.95, df)
    one = np.array([value]), np.array([error]), df, 0.9
    expected = [
        min(value - q * error, value - error * literal_hall(q, gamma)),
        max(value + q * error, value - error * literal_hall(-q, gamma)),
    ]
    np.testing.assert_allclose(inference.interval(*one, gamma=np.array([gamma])), [expected], rtol=1e-12)
    log, s = math.log(value), error / value
    expected = [
        math.exp(min(log - q * s, log - s * literal_hall(q, gamma))),
        math.exp(max(log + q * s, log - s * literal_hall(-q, gamma))),
    ]
    np.testing.assert_allclose(inference.interval(*one, gamma=np.array([gamma]), ratio=True), [expected], rtol=1e-12)


def test_ratios_without_logarithm_stay_on_their_scale():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = np.array([-0.5, 0.0, 1e-9]), np.array([0.1, 0.0, 1.0])
        bounds = inference.interval(*one, 20, gamma=np.zeros(3), ratio=True)
    q = stats.t.ppf(0.975, 20)
    np.testing.assert_allclose(bounds[0], [-0.5 - 0.1 * q, -0.5 + 0.1 * q])
    assert bounds[1].tolist() == [0, 0]
    assert bounds[2].tolist() == [0, math.inf]


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, math.nan])
def test_level_must_be_a_probability(level):
    with pytest.raises(ValueError, match="level="):
        inference.t_quantile(level, 10)


# ---------------------------------------------------------------------------------------------------------------------
# Other namespaces

# One case of each formula.
FORMULAS = [
    ("pairs", 9, None),
    ("halves", 12, None),
    ("resample", 11, 1),
    ("resample", 10, 6),
    ("permutations", 12, 5),
    ("shifts", 12, 2),
    ("shifts", 12, 3),
    ("shifts", 13, 7),
]


@pytest.mark.parametrize(("kind", "n", "k"), FORMULAS)
def test_variances_run_in_any_namespace(backend, kind, n, k):
    rng = np.random.default_rng(8)
    plan = make_plan(kind, n, k, rng)
    base, changes, weights = make_losses(plan, rng)
    moments = moments_of(changes, weights, plan)
    expected = inference.summarize(moments, base, weights, plan, "ratio")

    def run(row_sum, donor_sum, squares, weights, unit, lent, indicator, lent_r):
        h = variance.kernel(row_sum, donor_sum, squares, weights, unit, lent, plan.draws)
        found = population_variance(kind, h.rows, h.donors, h.total, plan.draws, indicator=indicator, lent=lent_r)
        psi = pair_means(h.rows) if kind == "halves" else h.rows + h.donors
        gamma = variance.skewness(psi, found.population)
        ends = variance.hull(1.0 + h.excess, found.population**0.5, gamma, 2.0, True)
        return (found.population, found.monte_carlo, gamma, *ends)

    unit, squares = weights * base, np.array((weights**2 * moments.row_squares).sum())
    lent = plan.spread(unit)
    h = variance.kernel(moments.row_sum, moments.donor_sum, squares, weights, unit, lent, plan.draws)
    # Shifts in circulant order: only the Fourier fit minds.
    order, indicator = np.arange(n), np.zeros(n)
    if kind == "shifts":
        order = plan.order
        indicator[plan.shifts] = 1
    by_row = [x[order] for x in (moments.row_sum, moments.donor_sum, weights, unit, lent)]
    inputs = [*by_row[:2], squares, *by_row[2:], indicator, plan.spread(h.rows)]
    arrays = [backend.asarray(x) for x in inputs]
    if backend.kind == "jax":  # eagerly, each of the many small operations would be compiled on its own
        import jax

        run = jax.jit(run)
    found = run(*arrays)
    assert all(x.dtype == arrays[0].dtype and device(x) == device(arrays[0]) for x in found)
    population, monte_carlo, gamma, lower, upper = (float(to_host(x)) for x in found)
    close = {"rel": 1e-9 if backend.dtype == "float64" else 2e-3}
    assert math.sqrt(population) == pytest.approx(expected.std_error, **close)
    assert monte_carlo / population == pytest.approx(expected.monte_carlo_share, nan_ok=True, **close)
    assert gamma == pytest.approx(expected.skewness, abs=1e-4)
    assert lower < expected.value < upper


# ---------------------------------------------------------------------------------------------------------------------
# Tests


def run_test(method, alternative="greater", *, rows=None, draws=None, k=1, compare="difference", **given):
    units = 40 if rows is None else rows.shape[1]
    known = {"values": np.zeros(1), "std_error": np.zeros(1), "row_error": np.zeros(1), "key": 5, "family": 1, **given}
    return inference.test(
        method, alternative, compare=compare, units=units, draws_per_row=k, rows=rows, draws=draws, **known
    )


@pytest.mark.parametrize("alternative", inference.ALTERNATIVES)
def test_t_tests_are_scipys(alternative):
    rows = np.random.default_rng(0).normal(0.2, size=(3, 40))
    expected = stats.ttest_1samp(rows, 0.0, axis=1, alternative=alternative)
    given = {"values": rows.mean(axis=1), "std_error": stats.sem(rows, axis=1), "row_error": stats.sem(rows, axis=1)}
    for method in ("t", "paired"):
        statistic, p = run_test(method, alternative, **given)
        np.testing.assert_allclose(statistic, expected.statistic, rtol=1e-12)
        np.testing.assert_allclose(p, expected.pvalue, rtol=1e-12)
    given["values"] = 1 + given["values"]
    np.testing.assert_allclose(run_test("paired", alternative, compare="ratio", **given)[1], expected.pvalue, rtol=1e-9)
    statistic, p = run_test("t", alternative, compare="ratio", **given)
    logs = np.log(given["values"]) / (given["std_error"] / given["values"])
    np.testing.assert_allclose(statistic, logs, rtol=1e-12)
    tail = {"greater": stats.t.sf(logs, 39), "less": stats.t.cdf(logs, 39), "two-sided": 2 * stats.t.sf(abs(logs), 39)}
    np.testing.assert_allclose(p, tail[alternative], rtol=1e-9)


def test_t_without_error_is_certain_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statistic, p = inference.t_test(
            np.array([1.0, -1.0, 0.0, 1.0]), np.array([0, 0, 0, math.nan]), 9, "greater", False
        )
    np.testing.assert_array_equal(statistic, [math.inf, -math.inf, 0, math.nan])
    np.testing.assert_array_equal(p, [0, 1, 1, math.nan])


@pytest.mark.parametrize("alternative", inference.ALTERNATIVES)
def test_sign_flip_estimates_the_exact_p_value(alternative):
    rows = np.random.default_rng(2).normal(0.3, size=(2, 10))
    statistic, p = run_test("sign-flip", alternative, rows=rows)
    np.testing.assert_allclose(statistic, rows.mean(axis=1))
    signs = np.array(list(itertools.product([-1, 1], repeat=10)))
    for row, found in zip(rows, p, strict=True):
        flipped, observed = signs @ row, row.sum()
        count = {
            "greater": flipped >= observed - 1e-9,
            "less": flipped <= observed + 1e-9,
            "two-sided": abs(flipped) >= abs(observed) - 1e-9,
        }[alternative]
        assert found == pytest.approx(count.mean(), abs=0.02)


def test_sign_flip_is_reproducible_and_warns_for_many_draws():
    rows = np.random.default_rng(2).normal(0.3, size=(2, 30))
    assert run_test("sign-flip", rows=rows)[1].tolist() == run_test("sign-flip", rows=rows)[1].tolist()
    assert run_test("sign-flip", rows=rows)[1][1] == run_test("sign-flip", rows=rows[1:])[1][0]
    with pytest.warns(UserWarning, match="which means of 5 draws are not"):
        run_test("sign-flip", rows=rows, k=5)
    assert run_test("sign-flip", rows=np.zeros((1, 30)))[1] == 1


def test_sign_flip_of_halves_is_exact():
    """Under the null a pair's mean change is symmetric about 0: the size is right, and 1/(B+1) is reachable."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 400, 40))
    partner = np.roll(x, 20, axis=1)
    changes = (y - partner) ** 2 - (y - x) ** 2
    pairs = (changes[:, :20] + changes[:, 20:]) / 2
    placed = np.empty_like(changes)
    placed[:, np.random.Generator(np.random.Philox(key=5, counter=[0, 0, 1, 0])).permutation(40)] = changes
    _, p = run_test("sign-flip", rows=plans.halves(40, 5).unit_values(placed))
    assert stats.kstest(p, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(p, run_test("sign-flip", rows=pairs)[1])


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_rank_test_counts_draws(compare):
    null = float(compare == "ratio")
    draws = null + np.array([[0.3, -0.1, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match="at least 59 draws"):
        _, p = run_test("rank", draws=draws, compare=compare, k=4, family=3)
    np.testing.assert_allclose(p, [3 / 5, 1 / 5, 1])
    with pytest.warns(UserWarning, match="at least 19 draws"):
        _, p = run_test("rank", "less", draws=draws, compare=compare, k=4)
    np.testing.assert_allclose(p, [4 / 5, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, p = run_test("rank", "two-sided", draws=null + np.ones((1, 19)), compare=compare, k=19)
    np.testing.assert_allclose(p, [2 / 20])
    with pytest.raises(ValueError, match="all pairs have none"):
        run_test("rank")


@pytest.mark.parametrize("alternative", inference.ALTERNATIVES)
def test_wilcoxon_and_sign_are_scipys(alternative):
    rows = np.random.default_rng(4).normal(0.3, size=(2, 25))
    rows[0, :3] = 0.0
    _, p = run_test("wilcoxon", alternative, rows=rows)
    np.testing.assert_allclose(p, [stats.wilcoxon(r[r != 0], alternative=alternative).pvalue for r in rows])
    _, p = run_test("sign", alternative, rows=rows)
    expected = [stats.binomtest(int((r > 0).sum()), int((r != 0).sum()), alternative=alternative).pvalue for r in rows]
    np.testing.assert_allclose(p, expected)
    for method in ("wilcoxon", "sign"):
        assert run_test(method, alternative, rows=np.zeros((1, 25)))[1] == 1


def test_refused_tests_say_why():
    rows = np.zeros((1, 10))
    for method in ("wilcoxon", "sign"):
        with pytest.raises(ValueError, match=r"0\.19-0\.97"):
            run_test(method, rows=rows, k=2)
    with pytest.raises(ValueError, match="keep="):
        run_test("sign-flip")
    with pytest.raises(ValueError, match="method='z'"):
        run_test("z")
    with pytest.raises(ValueError, match="alternative='more'"):
        run_test("t", "more")
    with pytest.raises(ValueError, match="adjust='bonferroni'"):
        inference.adjust(np.ones(2), "bonferroni")


def test_adjusted_p_values():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = np.round(rng.uniform(size=8) ** 3, 2)  # ties among them
        m = len(p)
        holm, bh = np.empty(m), np.empty(m)
        ascending = sorted(range(m), key=lambda i: p[i])
        for place, i in enumerate(ascending):
            holm[i] = min(1, max((m - q) * p[ascending[q]] for q in range(place + 1)))
            bh[i] = min(1, min(m / (q + 1) * p[ascending[q]] for q in range(place, m)))
        np.testing.assert_allclose(inference.adjust(p, "holm"), holm)
        np.testing.assert_allclose(inference.adjust(p, "bh"), bh)
        np.testing.assert_allclose(inference.adjust(p, "bh"), stats.false_discovery_control(p))
        np.testing.assert_array_equal(inference.adjust(p, "none"), p)
    with_nan = inference.adjust(np.array([0.01, math.nan, 0.02]), "holm")
    np.testing.assert_allclose(with_nan, [0.02, math.nan, 0.02])


# ---------------------------------------------------------------------------------------------------------------------
# The floors: effects of rows and donors that cancel, and residuals alone, are where variances come out too small


def coverage(kind, k, effects, replicates=1500, n=200):
    """Share of 95% intervals that hold 0, and mean variance over true variance."""
    rng = np.random.default_rng(11)
    rows, quantile = np.arange(n), stats.t.ppf(0.975, n - 1)
    covered, estimates, errors = 0, [], []
    for _ in range(replicates):
        x, z, u, v = rng.normal(size=(4, n))
        a, b, e = effects(x, z)
        if kind == "resample":
            table = rng.integers(0, n, size=(n, k))
        else:
            table = np.argsort(rng.random((n, k)), axis=0)
        changes = a[:, None] + b[table] + e * u[:, None] * v[table]
        h = changes - changes.mean()
        r = h.mean(axis=1)
        c = np.bincount(table.ravel(), weights=h.ravel(), minlength=n) / k
        lent = np.bincount(table.ravel(), weights=r[np.repeat(rows, k)], minlength=n)
        found = population_variance(kind, r, c, np.sum(h**2), k, lent=lent)
        covered += abs(changes.mean()) <= quantile * math.sqrt(found.population)
        estimates.append(changes.mean())
        errors.append(float(found.population))
    return covered / replicates, np.mean(errors) / np.var(estimates)


def opposed(x, z):
    return x, -x + 0.1 * z, 1.0


def residual_only(x, z):
    return 0.05 * x, 0.05 * z, 1.0


@pytest.mark.parametrize("effects", [opposed, residual_only])
@pytest.mark.parametrize(("kind", "k"), [("resample", 1), ("resample", 3), ("permutations", 3), ("permutations", 10)])
def test_floors_keep_the_level(kind, k, effects):
    share, ratio = coverage(kind, k, effects)
    assert 0.93 <= share <= 0.98
    assert 0.85 <= ratio <= 1.35
