"""Draws by ranks: the construction against literal loops, the engine on every backend, and the noise that is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Backend
from reliance import plans
from reliance._core import streams
from reliance.data.features import Feature
from reliance.engine import evaluating, prepare
from reliance.engine.reductions import Moments, joined
from reliance.engine.shapes import fixed_bytes
from reliance.methods import measuring
from reliance.plans import orderings, windows
from reliance.plans.partial import Later
from reliance.plans.protocol import Tile

ANY = Feature("x0", (0,))


def ranked(column: Any, draws: int, key: int, cycles: bool = False) -> plans.Ranked:
    values = np.asarray(column).reshape(len(column), -1)
    return plans.Ranked(len(values), draws, key, plans.Orders(len(values), key, lambda feature: values), cycles)


def donors_of(plan: Any) -> np.ndarray:
    return np.asarray(plan.donors(range(plan.n), range(plan.draws)))


# ---------------------------------------------------------------------------------------------------------------------
# The construction


@pytest.mark.parametrize("n, draws", [(7, 3), (12, 4), (31, 8), (10, 9), (5, 8), (4, 1)])
def test_the_literal_construction(n: int, draws: int) -> None:
    """Rows in random order, windows of the sorted donors, one number a window and draw, one row at a time."""
    column, key = np.random.default_rng(n).normal(size=n), 5
    row_at = streams.ordering(key, n, 0).tolist()
    sorted_rows = sorted(range(n), key=lambda i: column[i])
    bounds = [h * n // draws for h in range(draws + 1)]
    moves = sorted(range(draws), key=lambda h: int(format(h, "020b")[::-1], 2))  # windows apart first
    plan = ranked(column, draws, key).part(ANY)
    for k in range(draws):
        turns = streams.turns(key, draws, k)
        for q, row in enumerate(row_at):
            t = (q + bounds[moves[k]]) % n
            window = next(s for s in range(draws) if bounds[s] <= t < bounds[s + 1])
            start, size = bounds[window], bounds[window + 1] - bounds[window]
            place = start + (t - start + int(turns[window] * size)) % size
            assert plan.donors(range(row, row + 1), range(k, k + 1)) == sorted_rows[place]


@given(
    n=st.integers(2, 70),
    draws=st.integers(1, 90),
    key=st.integers(0, 2**64),
    cycles=st.booleans(),
    levels=st.integers(1, 80),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_draws_are_permutations_for_any_range(
    n: int, draws: int, key: int, cycles: bool, levels: int, data: st.DataObject
) -> None:
    column = np.random.default_rng(n).integers(0, levels, size=n).astype(np.float64)
    whole = ranked(column, draws, key, cycles)
    plan = whole.part(ANY)
    donors = donors_of(plan)
    assert np.array_equal(np.sort(donors, axis=0), np.tile(np.arange(n)[:, None], draws))
    top, left = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, draws - 1))
    rows, columns = (
        range(top, data.draw(st.integers(top + 1, n))),
        range(left, data.draw(st.integers(left + 1, draws))),
    )
    again = ranked(column, draws, key, cycles).part(ANY)
    block = donors[rows.start : rows.stop, columns.start : columns.stop]
    assert np.array_equal(again.donors(rows, columns), block)
    assert np.array_equal(plan.ordering[whole.donors(rows, columns)], block)
    v = np.random.default_rng(1).normal(size=n)
    lent = [sum(v[i] for i, k in zip(*np.nonzero(donors == donor), strict=True)) for donor in range(n)]
    np.testing.assert_allclose(plan.spread(v), lent, atol=1e-12)
    for one, numbers in ((plan, donors), (whole, donors_of(whole))):
        flat = one.users(columns).flat.reshape(n, len(columns))
        row, column_of = np.divmod(flat, len(columns))
        assert np.array_equal(numbers[row, column_of + left], np.tile(np.arange(n)[:, None], len(columns)))


@pytest.mark.parametrize("n", [5, 8, 50, 64, 601])
@pytest.mark.parametrize("draws", [3, 8, 16, 24])
def test_a_plan_that_may_grow_keeps_its_draws(n: int, draws: int) -> None:
    column = np.random.default_rng(0).normal(size=n)
    few, many = (ranked(column, k, 3, cycles=True) for k in (draws, 2 * draws))
    assert np.array_equal(donors_of(few.part(ANY)), donors_of(many.part(ANY))[:, :draws])
    tile = Tile(range(n), range(draws))
    assert np.array_equal(few.contrasts(tile), many.contrasts(tile))


@pytest.mark.parametrize("draws, cycles", [(4, False), (10, False), (8, True), (16, True), (32, True)])
def test_a_row_borrows_from_each_stretch_once(draws: int, cycles: bool) -> None:
    """Of each of the K stretches of the sorted donors, if n is a multiple of K; nearly so in several cycles."""
    n = 320
    places = donors_of(ranked(np.arange(n), draws, 0, cycles)) * draws // n
    met = [len(set(row)) for row in places.tolist()]
    assert min(met) == draws if draws <= 10 else np.mean(met) > 0.9 * draws


@pytest.mark.parametrize(
    "n, draws, cycles", [(25, 8, False), (24, 8, False), (30, 16, True), (32, 16, True), (9, 7, False)]
)
def test_rows_that_miss_a_stretch_are_counted(n: int, draws: int, cycles: bool) -> None:
    """By loops over rows, draws and stretches; nothing is missed in one cycle if n is a multiple of the draws."""
    plan = ranked(np.arange(n), draws, 4, cycles)
    places, total = donors_of(plan), 0.0
    for i in range(n):
        for s in range(draws):
            first, end = s * n // draws, (s + 1) * n // draws
            met = sum(first <= place < end for place in places[i])
            total += (met - draws * (end - first) / n) ** 2
    assert plan.windows.uneven(draws) == pytest.approx(total / n)
    assert (total == 0.0) == (n % draws == 0 and not cycles)
    assert total <= 2 * draws**2


def test_as_many_draws_as_rows_are_all_pairs() -> None:
    donors = donors_of(ranked(np.random.default_rng(0).normal(size=23), 23, 1).part(ANY))
    assert np.array_equal(np.sort(donors, axis=1), np.tile(np.arange(23), (23, 1)))


def test_the_whole_plan_has_no_donors_of_its_own() -> None:
    plan = ranked(np.arange(10.0), 4, 0)
    for ask in (plan.spread, plan.variance, plan.influence, plan.fixed_data_error):
        with pytest.raises(TypeError, match=r"part\(feature\)"):
            ask(np.zeros(10))


# ---------------------------------------------------------------------------------------------------------------------
# Orders


def test_one_column_is_sorted_and_missing_values_are_last() -> None:
    column = np.array([3.0, np.nan, -1.0, 3.0, np.inf, -np.inf, np.nan, 0.0])
    order = plans.Orders(8, 0, lambda feature: column[:, None])(ANY)
    assert np.array_equal(column[order], np.sort(column), equal_nan=True)


def test_ties_are_in_random_order() -> None:
    """Of a constant column each row is first equally often: 3000 keys, 6 rows."""
    first = [orderings.by_values(np.ones((6, 1)), streams.tie_order(key, 6))[0] for key in range(3000)]
    counts = np.bincount(first, minlength=6)
    assert np.all(np.abs(counts - 500) < 5 * np.sqrt(500 * 5 / 6))


@pytest.mark.parametrize("width, share", [(2, 0.2), (3, 0.35), (5, 0.6), (40, 0.97)])
def test_neighbours_in_the_order_of_a_group_are_alike(width: int, share: float) -> None:
    """What is left of the columns' ranks' variance within 16 stretches; a random order leaves all of it."""
    values = np.random.default_rng(0).normal(size=(1600, width))
    order = orderings.by_values(values, streams.tie_order(0, 1600))
    assert np.array_equal(np.sort(order), np.arange(1600))
    ranks = np.argsort(np.argsort(values, axis=0), axis=0)[order].reshape(16, 100, width)
    assert ranks.var(axis=1).mean() < share * np.arange(1600).var()


@pytest.mark.parametrize("width", [1, 2, 4])
def test_only_ranks_count(width: int) -> None:
    values = np.round(np.random.default_rng(0).normal(size=(90, width)), 1)
    ties = streams.tie_order(0, 90)
    assert np.array_equal(orderings.by_values(values, ties), orderings.by_values(np.exp(values), ties))


def test_orders_are_kept_up_to_a_limit() -> None:
    asked: list[str] = []

    def values(feature: Feature) -> np.ndarray:
        asked.append(feature.name)
        return np.zeros((100, 1))

    orders = plans.Orders(100, 0, values, limit=800)
    a, b, c = (Feature(name, (0,)) for name in "abc")
    for feature in (a, b, a, b, c, a):
        orders(feature)
    assert asked == ["a", "b", "c", "a"]
    # Ties and the order in hand, 8 bytes a row, and 4 for each that is kept.
    assert orders.nbytes(1) == 2000
    assert orders.nbytes(9) == 2400


# ---------------------------------------------------------------------------------------------------------------------
# The engine


def model(X: Any) -> Any:
    return X[:, 0] * X[:, 1] + X[:, 2]


def evaluated(problem: Any, plan: Any) -> dict[str, tuple[Moments, ...]]:
    with evaluating(problem) as evaluation:
        return evaluation.measure(plan).moments


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:, 1] = np.round(X[:, 1])
    return X, model(X) + rng.normal(size=n)


@pytest.mark.parametrize("block", [None, (7, 3), (40, 2)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.paired("block", "weighted", one_in=2)
def test_sums_of_the_engine(backend: Backend, block: Any, weighted: bool) -> None:
    """Every sum against loops over rows and draws, with donors that are the host's on every backend."""
    n, draws, columns = 25, 5, [(0,), (1,), (0, 2)]
    X, y = data(n)
    w = np.random.default_rng(1).integers(1, 4, size=n).astype(float) if weighted else None
    arrays = (backend.asarray(a) for a in (X, y, w))
    rows, labels, weights = arrays
    problem = prepare(model, rows, labels, weights=weights, features=columns, rng=3)
    problem = dataclasses.replace(problem, block=block)
    plan = plans.Ranked(n, draws, problem.key, plans.Orders.of(problem.flat, problem.key))
    found = evaluated(problem, plan)
    X, y = backend.rounded(X), backend.rounded(y)
    w = np.ones(n) if problem.host_weights is None else problem.host_weights
    host = plans.Orders(n, problem.key, lambda feature: X[:, list(feature.columns)])
    for feature in problem.features:
        donors = donors_of(plans.Ranked(n, draws, problem.key, host).part(feature))
        signs = plan.contrasts(Tile(range(n), range(draws)))
        assert signs is not None
        sums = {name: np.zeros(n) for name in ("row_sum", "donor_sum", "row_squares", "row_contrast")}
        drawn = np.zeros(draws)
        for i in range(n):
            for k in range(draws):
                row = X[i].copy()
                row[list(feature.columns)] = X[donors[i, k], list(feature.columns)]
                change = (y[i] - model(row[None])[0]) ** 2 - (y[i] - model(X[i : i + 1])[0]) ** 2
                change *= n / (n - 1)  # a row that is its own donor counts as a pair, with a change of 0
                sums["row_sum"][i] += change
                sums["donor_sum"][donors[i, k]] += w[i] * change
                sums["row_squares"][i] += change**2
                sums["row_contrast"][i] += signs[i, k] * change
                drawn[k] += w[i] * change
        one = found[feature.name][0]
        for name, expected in sums.items():
            backend.assert_close(getattr(one, name), expected, scale=float(np.max(np.abs(expected))) * 4)
        backend.assert_close(one.draw_sum, drawn, scale=float(np.max(np.abs(drawn))) * 4)


def test_later_draws_join_the_earlier_ones() -> None:
    X, y = data(40)
    problem = prepare(model, X, y, rng=0)
    few, many = (plans.Ranked(40, k, 0, plans.Orders.of(problem.flat, 0), cycles=True) for k in (8, 24))
    first, later, whole = (evaluated(problem, plan) for plan in (few, Later(many, 8), many))
    for name, (expected,) in whole.items():
        both = joined(first[name][0], later[name][0])
        for part in dataclasses.fields(Moments):
            a, b = getattr(both, part.name), getattr(expected, part.name)
            assert (a is None and b is None) or np.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_an_auc_is_measured_by_ranks() -> None:
    X, y = data(60)
    labels = (y > 0).astype(int)
    problem = prepare(model, X, labels, loss="auc", rng=0)
    plan = plans.Ranked(60, 6, problem.key, plans.Orders.of(problem.flat, problem.key))
    result = measuring.measure(problem, plan, "difference", "permutation_importance")

    def auc(scores: np.ndarray) -> float:
        up, down = scores[labels == 1], scores[labels == 0]
        return float(np.mean((up[:, None] > down) + 0.5 * (up[:, None] == down)))

    for j, feature in enumerate(problem.features):
        donors, changes = donors_of(plan.part(feature)), []
        for k in range(6):
            Z = X.copy()
            Z[:, j] = X[donors[:, k], j]
            changes.append((auc(model(X)) - auc(model(Z))) * 60 / 59)
        np.testing.assert_allclose(result.values[j], np.mean(changes), rtol=1e-10)
        np.testing.assert_allclose(result.draws[j], changes, rtol=1e-10)


@pytest.mark.parametrize("draws", [1, 2, 3, 20, 49, 50, 51, 100])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_any_number_of_draws_has_an_answer(draws: int, compare: str) -> None:
    X, y = data(50)
    X[:, 2] = 1.0
    problem = prepare(model, X, y, weights=np.arange(1.0, 51.0), rng=0)
    plan = plans.Ranked(50, draws, 0, plans.Orders.of(problem.flat, 0))
    with pytest.warns(UserWarning, match="constant"):
        result = measuring.measure(problem, plan, compare, "permutation_importance")
    assert result.plan == f"ranks, {draws} per row"
    assert np.all(np.isfinite(result.values))
    assert np.all(result.std_error[:2] > 0.0)
    assert result.values[2] == (1.0 if compare == "ratio" else 0.0)
    assert np.isnan(result.fixed_data_error[:2]).all() == (draws == 1)


def test_all_pairs_by_ranks_are_all_pairs() -> None:
    X, y = data(31)
    problem = prepare(model, X, y, rng=0)
    plan = plans.Ranked(31, 31, 0, plans.Orders.of(problem.flat, 0))
    for compare in ("difference", "ratio"):
        by_ranks, pairs = (
            measuring.measure(problem, p, compare, "permutation_importance") for p in (plan, plans.Pairs(31))
        )
        for name in ("values", "fixed_data_error", "monte_carlo_share"):
            np.testing.assert_allclose(getattr(by_ranks, name), getattr(pairs, name), rtol=1e-9, atol=1e-12)
        # A ratio's errors count the base loss of a row that is its own donor: 1 in n.
        exactly = 1e-9 if compare == "difference" else 1 / 31
        np.testing.assert_allclose(by_ranks.std_error, pairs.std_error, rtol=exactly)


def test_what_is_kept_counts_as_memory() -> None:
    X, y = data(1000)
    problem = prepare(model, X, y, rng=0)
    plan = plans.Ranked(1000, 8, 0, plans.Orders.of(problem.flat, 0))
    more = fixed_bytes(problem, plan, 3, 8) - fixed_bytes(problem, plans.Shifts(1000, 8, 0), 3, 8)
    orders_on_host_and_device, contrasts = 8 * 1000 * (3 + 3), 8 * 1000 * 3
    assert more >= orders_on_host_and_device + contrasts


# ---------------------------------------------------------------------------------------------------------------------
# What is claimed of the noise: models as tables of changes D (n, n), so that thousands of seeds are cheap


def smooth(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared error of a linear model and a sine: (x, D)."""
    rng = np.random.default_rng(n)
    x, z, noise = rng.normal(size=(3, n))
    replaced = (noise[:, None] + (x[:, None] - x[None, :]) * (1.0 + z[:, None]) + np.sin(3 * x)[None, :]) ** 2
    return x, replaced - np.diag(replaced)[:, None]


def tied(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + 1)
    x = rng.integers(0, 4, size=n).astype(float)
    effect = rng.normal(size=(n, 4))
    replaced = effect[:, x.astype(int)] ** 2
    return x, replaced - np.diag(replaced)[:, None]


def estimates(x: np.ndarray, D: np.ndarray, draws: int, seeds: int, cycles: bool = False) -> np.ndarray:
    n = len(x)
    found = np.empty(seeds)
    for seed in range(seeds):
        plan = ranked(x, draws, seed, cycles).part(ANY)
        found[seed] = D[np.arange(n)[:, None], donors_of(plan)].mean() * n / (n - 1)
    return found


@pytest.mark.parametrize("n", [37, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 601))])
@pytest.mark.parametrize("draws", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 8, 16, 64))])
@pytest.mark.parametrize("make, cycles", [(smooth, False), (tied, False), (smooth, True)])
def test_unbiased(n: int, draws: int, make: Callable[[int], tuple[np.ndarray, np.ndarray]], cycles: bool) -> None:
    x, D = make(n)
    exact = D.sum() / (n * (n - 1))
    seeds = 2000 if make is smooth and not cycles else 500
    found = estimates(x, D, draws, seeds, cycles)
    assert abs(found.mean() - exact) <= 4.0 * found.std(ddof=1) / np.sqrt(len(found)) + 1e-12


def independent_variance(D: np.ndarray, draws: int) -> float:
    """Of the mean over independent permutations: Hoeffding's, of the doubly centred table."""
    n = len(D)
    scaled = D * n / (n - 1)
    e = scaled - scaled.mean(axis=0) - scaled.mean(axis=1)[:, None] + scaled.mean()
    return float((e**2).sum() / (n - 1) / n**2 / draws)


@pytest.mark.parametrize(
    "draws, cycles, least",
    [
        (5, False, 3.5),
        (16, True, 10),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((8, False, 5), (10, False, 7), (20, False, 15), (32, True, 15))
        ),
    ],
)
@pytest.mark.parametrize("n", [607, pytest.param(600, marks=pytest.mark.slow)])
def test_less_noise_than_permutations(n: int, draws: int, cycles: bool, least: float) -> None:
    x, D = smooth(n)
    exact = D.sum() / (n * (n - 1))
    found = estimates(x, D, draws, 150, cycles)
    assert independent_variance(D, draws) / np.mean((found - exact) ** 2) > least


@pytest.mark.slow
@pytest.mark.parametrize("draws, cycles", [(8, False), (20, False), (16, True), (32, True)])
@pytest.mark.parametrize("n", [560, 600])
def test_a_weekly_pattern_is_no_worse_than_permutations(n: int, draws: int, cycles: bool) -> None:
    """A day index whose order has a period that windows are multiples of (560 = 7 * 80); 400 seeds, 4 errors."""
    days, rng = np.arange(n, dtype=float), np.random.default_rng(0)
    own = rng.normal(size=n)
    replaced = (own[:, None] - np.sin(2 * np.pi * days / 7)[None, :]) ** 2
    D = replaced - np.diag(replaced)[:, None]
    found = estimates(days, D, draws, 400, cycles)
    ratio = np.mean((found - D.sum() / (n * (n - 1))) ** 2) / independent_variance(D, draws)
    assert ratio < 1.0 + 4.0 * np.sqrt(2 / 400)


SUMS = (
    lambda made, v, draws: made.spread(v, draws),
    lambda made, v, draws: made.contrasted(v, draws),
    lambda made, v, draws: made.sign_sums(draws),
    lambda made, v, draws: [made.uneven(draws)],
)


@pytest.mark.parametrize("n, draws, cycles", [(37, 5, False), (64, 16, False), (50, 24, True)])
def test_donors_signs_and_users_do_not_depend_on_tables(
    n: int, draws: int, cycles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    v = np.random.default_rng(0).normal(size=n)
    rows, columns = range(3, n - 2), range(1, draws)
    kept = ranked(v, draws, 1, cycles)
    expected = kept.donors(rows, columns), kept.contrasts(plans.Tile(rows, columns)), kept.users(columns).flat
    monkeypatch.setattr(windows, "_KEPT", 0)
    made = ranked(v, draws, 1, cycles)
    found = made.donors(rows, columns), made.contrasts(plans.Tile(rows, columns)), made.users(columns).flat
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n, draws, cycles", [(37, 5, False), (64, 16, False), (50, 24, True)])
def test_large_tables_are_never_held_whole(n: int, draws: int, cycles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw by draw, as for many rows, the sums are those of the tables that few rows keep."""
    v = np.random.default_rng(0).normal(size=n)
    kept = ranked(v, draws, 1, cycles).windows
    assert kept.kept_bytes(draws) > 0
    expected = [sums(kept, v, draws) for sums in SUMS]
    monkeypatch.setattr(windows, "_KEPT", 0)
    made = ranked(v, draws, 1, cycles).windows
    assert made.kept_bytes(draws) == 0
    found = [sums(made, v, draws) for sums in SUMS]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert "_last_tables" not in made.__dict__
