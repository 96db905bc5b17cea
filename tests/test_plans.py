"""Replacement plans: which row lends to which, for any range, the same every time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reliance as rl
from methods import donor_table
from reliance import plans
from reliance._core import streams

KEYS = st.integers(0, 2**128 - 1)
SIZES = st.integers(2, 40)


def permutations(n, draws, key):
    return plans.Permutations(n, draws, lambda k: np.random.default_rng([key % 2**32, k]).permutation(n))


MAKERS = {
    "shifts": plans.Shifts,
    "resample": plans.Resample,
    "permutations": permutations,
    "natural": lambda n, draws, key: plans.Shifts(n, min(draws, n - 1)),
    "every_shift": lambda n, draws, key: plans.every_shift(n),
    "halves": lambda n, draws, key: plans.halves(n + n % 2, key),
}
LABELS = {maker: f"{maker}, 5 per row" for maker in ("shifts", "resample", "permutations")}
LABELS |= {"natural": "shifts, 5 per row", "every_shift": "all pairs", "halves": "halves, 1 per row"}


def ranges(plan, data):
    """A range of rows and one of columns within a cycle."""
    rows = sorted(data.draw(st.lists(st.integers(0, plan.n), min_size=2, max_size=2, unique=True)))
    edges = [0, *plan.cuts(), plan.columns]
    part = data.draw(st.integers(0, len(edges) - 2))
    within = st.integers(edges[part], edges[part + 1])
    columns = sorted(data.draw(st.lists(within, min_size=2, max_size=2, unique=True)))
    return range(*rows), range(*columns)


# ---------------------------------------------------------------------------------------------------------------------
# What every plan promises


@given(n=SIZES, draws=st.integers(1, 50), key=KEYS, data=st.data())
@pytest.mark.parametrize("maker", MAKERS)
def test_donors_do_not_depend_on_the_range_asked_for(maker, n, draws, key, data):
    plan = MAKERS[maker](n, draws, key)
    donors, _ = donor_table(plan)
    assert donors.shape == (plan.n, plan.draws)
    assert donors.min() >= 0
    assert donors.max() < plan.n
    rows, columns = ranges(plan, data)
    part = plan.donors(rows, columns)
    np.testing.assert_array_equal(part, donors[rows.start : rows.stop, columns.start : columns.stop])


@given(n=SIZES, draws=st.integers(1, 50), key=KEYS, data=st.data())
@pytest.mark.parametrize("maker", MAKERS)
def test_users_are_the_inverse_of_donors(maker, n, draws, key, data):
    plan = MAKERS[maker](n, draws, key)
    _, columns = ranges(plan, data)
    lenders = plan.donors(range(plan.n), columns).reshape(-1)
    users = plan.users(columns)
    assert sorted(users.flat.tolist()) == list(range(lenders.size))
    d = len(columns)
    bounds = np.arange(plan.n + 1) * d if users.bounds is None else users.bounds
    assert bounds[0] == 0
    assert bounds[-1] == lenders.size
    for donor in range(plan.n):
        assert (lenders[users.flat[bounds[donor] : bounds[donor + 1]]] == donor).all()


@given(n=SIZES, draws=st.integers(1, 50), key=KEYS, seed=st.integers(0, 1000))
@pytest.mark.parametrize("maker", [*MAKERS, "pairs"])
def test_spread_is_the_sum_over_the_uses_of_a_donor(maker, n, draws, key, seed):
    plan = plans.Pairs(n) if maker == "pairs" else MAKERS[maker](n, draws, key)
    donors, mask = donor_table(plan)
    v, expected = np.random.default_rng(seed).normal(size=plan.n), np.zeros(plan.n)
    for i in range(plan.n):
        for k in range(donors.shape[1]):
            if mask[i, k]:
                expected[donors[i, k]] += v[i]
    np.testing.assert_allclose(plan.spread(v), expected, rtol=1e-12, atol=1e-12)


@given(n=SIZES, draws=st.integers(1, 50), key=KEYS, b=st.integers(1, 50), d=st.integers(1, 60))
@pytest.mark.parametrize("maker", [*MAKERS, "pairs"])
def test_tiles_cover_every_cell_once(maker, n, draws, key, b, d):
    plan = plans.Pairs(n) if maker == "pairs" else MAKERS[maker](n, draws, key)
    seen = np.zeros((plan.n, plan.columns), dtype=int)
    for tile in plans.tiles(plan, (b, d)):
        assert 0 < len(tile.columns) <= d
        assert len(tile.rows) <= b or not plan.rectangular
        assert not any(tile.columns.start < cut < tile.columns.stop for cut in plan.cuts())
        seen[tile.rows.start : tile.rows.stop, tile.columns.start : tile.columns.stop] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("maker", MAKERS)
def test_plans_say_what_they_are(maker):
    plan = MAKERS[maker](8, 5, 1)
    assert plan.label == LABELS[maker]
    assert plan.exhaustive == (maker == "every_shift")
    assert plan.units == (4 if maker == "halves" else 8)
    assert not plan.rectangular
    assert plan.columns == plan.draws
    assert hash(plan) == hash(plan)
    with pytest.raises(AttributeError):
        plan.n = 3


# ---------------------------------------------------------------------------------------------------------------------
# Shifts


@given(n=SIZES, draws=st.integers(1, 90), key=KEYS)
def test_each_shift_is_a_derangement_that_uses_every_donor(n, draws, key):
    donors, _ = donor_table(plans.Shifts(n, draws, key))
    for k in range(draws):
        assert sorted(donors[:, k].tolist()) == list(range(n))
        assert (donors[:, k] != np.arange(n)).all()


@given(n=SIZES, draws=st.integers(1, 45), key=KEYS)
@pytest.mark.parametrize("maker", ["shifts", "resample"])
def test_the_first_of_twice_as_many_draws_are_the_draws(maker, n, draws, key):
    few, _ = donor_table(MAKERS[maker](n, draws, key))
    many, _ = donor_table(MAKERS[maker](n, 2 * draws, key))
    np.testing.assert_array_equal(few, many[:, :draws])


@given(n=SIZES, key=KEYS, cycles=st.integers(1, 3))
def test_a_whole_cycle_of_shifts_is_all_pairs(n, key, cycles):
    donors, _ = donor_table(plans.Shifts(n, cycles * (n - 1), key))
    for cycle in range(cycles):
        part = donors[:, cycle * (n - 1) : (cycle + 1) * (n - 1)]
        for i in range(n):
            assert sorted(part[i].tolist()) == [k for k in range(n) if k != i]


@given(n=SIZES, draws=st.integers(1, 100), key=KEYS)
def test_a_new_ordering_starts_where_the_shifts_end(n, draws, key):
    cuts = plans.Shifts(n, draws, key).cuts()
    assert cuts == tuple(k for k in range(1, draws) if k % (n - 1) == 0)


@given(n=SIZES, key=KEYS, draws=st.integers(1, 39))
def test_order_and_shifts_are_the_circulant_design(n, key, draws):
    """Position q borrows from position (q + s_k) mod n: the form that the Fourier fit reads."""
    plan = plans.Shifts(n, min(draws, n - 1), key)
    donors, _ = donor_table(plan)
    assert len(set(plan.shifts.tolist())) == plan.draws
    for k, shift in enumerate(plan.shifts.tolist()):
        assert 1 <= shift <= n - 1
        for q in range(n):
            assert donors[plan.order[q], k] == plan.order[(q + shift) % n]


def test_orderings_of_later_cycles_are_new():
    donors, _ = donor_table(plans.Shifts(30, 58, 7))
    assert not np.array_equal(donors[:, :29], donors[:, 29:])


def test_every_ordering_and_shift_is_as_likely():
    first = np.array([plans.Shifts(4, 1, key).donors(range(1), range(1))[0, 0] for key in range(3000)])
    np.testing.assert_allclose(np.bincount(first, minlength=4)[1:] / 3000, 1 / 3, atol=0.035)


@pytest.mark.parametrize("n", [2, 4, 10])
def test_halves_swap_partners(n):
    """Of one ordering of the key's: place q and place q + n/2."""
    order, half = np.random.Generator(np.random.Philox(key=7, counter=[0, 0, 1, 0])).permutation(n), n // 2
    plan = plans.halves(n, 7)
    assert plan.draws == 1
    donors = plan.donors(range(n), range(1))[:, 0]
    for place in range(half):
        assert donors[order[place]] == order[place + half]
        assert donors[order[place + half]] == order[place]


@given(n=SIZES)
def test_every_shift_is_all_pairs_in_natural_order(n):
    plan = plans.every_shift(n)
    donors, _ = donor_table(plan)
    assert plan.exhaustive
    np.testing.assert_array_equal(donors, (np.arange(n)[:, None] + np.arange(1, n)) % n)


# ---------------------------------------------------------------------------------------------------------------------
# Resampling, pairs, permutations


@given(n=SIZES, key=KEYS, draw=st.integers(0, 20), data=st.data())
def test_iid_donors_are_an_independent_philox_stream(n, key, draw, data):
    start, stop = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True)))
    philox = np.random.Philox(key=key, counter=[0, 0, 0, draw])
    expected = np.floor(np.random.Generator(philox).random(n) * n).astype(int)
    found = plans.Resample(n, draw + 1, key).donors(range(start, stop), range(draw, draw + 1))
    np.testing.assert_array_equal(found[:, 0], expected[start:stop])


def test_resampled_donors_are_uniform_and_may_be_the_row_itself():
    donors, _ = donor_table(plans.Resample(5, 4000, 3))
    np.testing.assert_allclose(np.bincount(donors.reshape(-1)) / donors.size, 0.2, atol=0.012)
    np.testing.assert_allclose((donors == np.arange(5)[:, None]).mean(axis=1), 0.2, atol=0.03)


def test_pairs_are_a_rectangle():
    plan = plans.Pairs(6)
    assert (plan.label, plan.draws, plan.columns, plan.rectangular, plan.cuts()) == ("all pairs", 5, 6, True, ())
    assert list(plan.donors(range(2, 4), range(1, 5))) == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="rectangular"):
        plan.users(range(6))


@pytest.mark.parametrize(
    "bad", [[0, 1, 1], [0, 1], [0, 1, 3], [-1, 0, 1], [[0, 1, 2]]], ids=["twice", "short", "range", "negative", "2-d"]
)
@pytest.mark.parametrize("use", ["donors", "users", "spread"])
def test_an_explicit_permutation_must_be_one(bad, use):
    plan = plans.Permutations(3, 2, lambda k: [1, 2, 0] if k == 0 else bad)
    calls = {
        "donors": lambda: plan.donors(range(3), range(2)),
        "users": lambda: plan.users(range(2)),
        "spread": lambda: plan.spread(np.ones(3)),
    }
    with pytest.raises(ValueError, match=r"permutation 1 is not a permutation of range\(3\)"):
        calls[use]()


# ---------------------------------------------------------------------------------------------------------------------
# A plan of one's own, end to end


@dataclass(frozen=True)
class Listed(plans.Drawn):
    """Donors from a table."""

    table: np.ndarray

    @property
    def n(self):
        return self.table.shape[0]

    @property
    def draws(self):
        return self.table.shape[1]

    def donors(self, rows, columns):
        return self.table[rows.start : rows.stop, columns.start : columns.stop]


class Measured(Listed):
    def variance(self, terms):
        return plans.Variance(np.var(terms.rows, ddof=1) / self.n, np.asarray(0.0))


def quadratic(X):
    return X[:, 0] * X[:, 1]


def test_a_plan_of_ones_own_is_measured_and_summed_as_it_says():
    rng = np.random.default_rng(0)
    X, y, table = rng.normal(size=(12, 2)), rng.normal(size=12), rng.integers(0, 12, size=(12, 5))
    found = rl.permutation_importance(quadratic, X, y, draws=Measured(table), keep="rows")
    D = np.empty((2, 12, 5))
    for j, i, k in np.ndindex(D.shape):
        row = X[i].copy()
        row[j] = X[table[i, k], j]
        D[j, i, k] = (row[0] * row[1] - y[i]) ** 2 - (X[i, 0] * X[i, 1] - y[i]) ** 2
    np.testing.assert_allclose(found.values, D.mean(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(found.draws, D.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.row_values, D.mean(axis=2), rtol=1e-12)
    np.testing.assert_allclose(found.std_error, D.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(12), rtol=1e-12)
    np.testing.assert_allclose(found.fixed_data_error, D.mean(axis=1).std(axis=1, ddof=1) / np.sqrt(5), rtol=1e-12)
    assert (found.plan, found.units, found.draws_per_row) == ("measured, 5 per row", 12, 5)
    assert found.degrees_of_freedom.tolist() == [11, 11]


def test_a_plan_without_a_variance_has_values_alone():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = rl.permutation_importance(quadratic, X, X[:, 0], draws=Listed(np.argsort(X, axis=0)))
    assert np.isfinite(found.values).all()
    assert np.isnan(found.std_error).all()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Listed(np.zeros((5, 2), dtype=int)), "Listed has n=5 .* X has 6 rows"),
        (Listed(np.zeros((6, 0), dtype=int)), "at least one draw"),
        (Listed(np.zeros((6, 2))), "of float64"),
        (Listed(np.full((6, 2), 6)), "names donors 6 to 6 in draw 0: rows are 0 to 5"),
        (Listed(np.full((6, 2), -1)), "names donors -1 to -1"),
        (Listed(np.zeros((6, 2, 2), dtype=int)), r"donors \(6, 1, 2\)"),
        (plans.Pairs(6), "Pairs has no draws of donors"),
    ],
)
def test_a_plan_that_fits_not(plan, words):
    X = np.ones((6, 2))
    with pytest.raises(ValueError, match=words):
        rl.permutation_importance(quadratic, X, X[:, 0], draws=plan)


# ---------------------------------------------------------------------------------------------------------------------
# Seeds


@pytest.mark.parametrize("seed", [0, 5, 2**128 - 1, np.int64(7)])
def test_an_integer_is_the_key_itself(seed):
    assert streams.resolve_key(seed) == int(seed)


def test_a_generator_is_consumed_once():
    generator, twin = np.random.default_rng(3), np.random.default_rng(3)
    key = streams.resolve_key(generator)
    assert key == int(twin.integers(2**63, dtype=np.int64))
    assert generator.integers(1000) == twin.integers(1000)
    assert streams.resolve_key(generator) != key


@pytest.mark.parametrize("make", [lambda: np.random.SeedSequence(4), lambda: [1, 2, 3], lambda: np.random.PCG64(5)])
def test_other_seeds_give_the_same_key_each_time(make):
    assert streams.resolve_key(make()) == streams.resolve_key(make())


def test_no_seed_is_a_new_key_each_time():
    assert streams.resolve_key(None) != streams.resolve_key(None)


@pytest.mark.parametrize("bad", [1.5, True, "7", np.random.RandomState(0)], ids=str)
def test_what_is_no_seed(bad):
    with pytest.raises(TypeError, match=r"rng=.*(Generator|default_rng)"):
        streams.resolve_key(bad)


@pytest.mark.parametrize("bad", [-1, 2**128])
def test_seeds_out_of_range(bad):
    with pytest.raises(ValueError, match=rf"rng={bad} is out of range: .*2\*\*128"):
        streams.resolve_key(bad)
