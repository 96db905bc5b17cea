"""Clusters and series: errors by literal sums, whatever the labels, the backend and the route."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import reliance as rl
from reliance._core.streams import ordering
from reliance.data.clusters import Membership
from reliance.inference import corrections, freedom
from reliance.inference.clusters import clustered

RNG = np.random.default_rng(3)
OF = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 2, 3, 4, 2, 3, 4, 3])[RNG.permutation(36)]
N = len(OF)
X = RNG.normal(size=(N, 3)) + RNG.normal(size=(12, 3))[OF]
Y = X[:, 0] + RNG.normal(size=N) + RNG.normal(size=12)[OF]
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)


def model(rows):
    return rows[:, 0] + 0.5 * rows[:, 1] * rows[:, 2]


def literal_error(column: int, compare: str, weights: np.ndarray, of: np.ndarray = OF) -> float:
    """Of all pairs: the sums over a cluster of what its rows do as borrowers and as lenders, squared and added up."""
    base = (Y - model(X)) ** 2
    change = np.zeros((N, N))
    for i, k in itertools.product(range(N), range(N)):
        row = X[i].copy()
        row[column] = X[k, column]
        change[i, k] = weights[i] * ((Y[i] - model(row[None, :])[0]) ** 2 - base[i])
    unit = weights * base if compare == "ratio" else weights
    theta = change.sum() / (N - 1) / unit.sum()
    h = np.where(np.eye(N, dtype=bool), 0.0, change - theta * unit[:, None]) / unit.mean()
    psi = (h.sum(axis=1) + h.sum(axis=0)) / (N - 1)
    labels = np.unique(of)
    G = len(labels)
    sums = [psi[of == label].sum() / N for label in labels]
    mean = np.mean(sums)
    # The jackknife of pairs of clusters, and what unequal clusters take off in the worst case.
    square = sum((one - mean) ** 2 for one in sums) * G / (G - 1) * ((G - 1) / (G - 2)) ** 2
    worst = max(1 / _left(shares(of, w)) / (G / (G - 1)) for w in (np.ones(N), weights))
    return float(np.sqrt(square * worst))


def shares(of: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.array([weights[of == label].sum() for label in np.unique(of)]) / weights.sum()


def _left(p: np.ndarray) -> float:
    """E sum p^2 (m - sum p m)^2 over sum p^2, for independent m of variance 1."""
    centring = np.eye(len(p)) - np.outer(np.ones(len(p)), p)
    return float(np.trace(centring.T @ np.diag(p**2) @ centring) / np.sum(p**2))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_all_pairs_by_literal_sums(backend, compare, weighted):
    rows, y = backend.asarray(X), backend.asarray(Y)
    weights = WEIGHTS if weighted else None
    passed = None if weights is None else backend.asarray(weights)
    result = rl.model_reliance(model, rows, y, compare=compare, weights=passed, clusters=OF)
    expected = [literal_error(j, compare, np.ones(N) if weights is None else weights) for j in range(3)]
    np.testing.assert_allclose(result.std_error, expected, rtol=1e-3 if backend.dtype == "float32" else 1e-9)
    plain = rl.model_reliance(model, rows, y, compare=compare, weights=passed)
    np.testing.assert_array_equal(result.values, plain.values)
    assert result.units == 12
    assert result.plan == "all pairs, 12 clusters"


def test_degrees_of_freedom_are_satterthwaites():
    for sizes in ([3, 3, 3, 3, 3], [1, 2, 3, 10, 4, 5], [2, 2, 3, 9]):
        p = np.array(sizes) / np.sum(sizes)
        of = Membership(np.repeat(np.arange(len(p)), sizes), len(p), "")
        centring = np.eye(len(p)) - np.outer(np.ones(len(p)), p)
        form = centring.T @ np.diag(p**2) @ centring
        expected = np.trace(form) ** 2 / np.trace(form @ form)
        support = freedom.clustered_support(of, np.inf, None)
        assert support.units - 1.0 == pytest.approx(expected)
    equal = Membership(np.repeat(np.arange(20), 10), 20, "")
    assert freedom.clustered_support(equal, np.inf, None) == pytest.approx((20, 1.0))


def test_rows_that_are_copies_tell_nothing_new():
    """Ten copies of each row, as clusters: the error of the rows themselves, not a third of it."""
    single = rl.model_reliance(model, X, Y, compare="difference")
    copies = rl.model_reliance(
        model, np.tile(X, (10, 1)), np.tile(Y, 10), compare="difference", clusters=np.tile(np.arange(N), 10)
    )
    np.testing.assert_allclose(copies.std_error, single.std_error, rtol=0.06)
    blind = rl.model_reliance(model, np.tile(X, (10, 1)), np.tile(Y, 10), compare="difference")
    assert (blind.std_error < 0.4 * single.std_error).all()


def test_the_noise_of_draws_is_taken_off():
    """With clusters of one row the error of few draws is about that of rows."""
    plain = rl.ablation_importance(model, X, Y, draws=3, rng=0)
    alone = rl.ablation_importance(model, X, Y, draws=3, rng=0, clusters=np.arange(N))
    np.testing.assert_allclose(alone.std_error, plain.std_error, rtol=0.08)
    psi = np.random.default_rng(0).normal(size=N)
    found = clustered(psi, 0.0, Membership(np.arange(N), N, ""))
    assert found.variance == pytest.approx(0.5 * np.var(found.influence, ddof=1) / N)  # at most half


@pytest.mark.parametrize("route", ["plain", "linear"])
def test_every_route(route):
    from sklearn.linear_model import LinearRegression

    fitted = LinearRegression().fit(X, Y)
    found = rl.model_reliance(fitted, X, Y, route=route, loss="squared_error", clusters=OF)
    plain = rl.model_reliance(fitted.predict, X, Y, loss="squared_error", clusters=OF)
    np.testing.assert_allclose(found.std_error, plain.std_error, rtol=1e-9)
    np.testing.assert_allclose(found.skewness, plain.skewness, rtol=1e-6)


def test_labels_of_any_kind():
    import torch

    text = np.array([f"patient {label}" for label in OF])
    expected = rl.permutation_importance(model, X, Y, clusters=OF, rng=0).std_error
    for labels in (text, text.tolist(), text.astype(object), pd.Series(text), torch.from_numpy(OF), OF - 100.5):
        found = rl.permutation_importance(model, X, Y, clusters=labels, rng=0)
        np.testing.assert_allclose(found.std_error, expected, rtol=1e-12)  # sums in another order
    table = pd.DataFrame(np.column_stack([X, OF]), columns=["a", "b", "c", "site"])
    found = rl.permutation_importance(
        lambda t: model(t.to_numpy()), table, Y, clusters="site", features=["a", "b", "c"], rng=0
    )
    np.testing.assert_allclose(found.std_error, expected)


def test_conditional_methods_and_the_jackknife():
    def split(parts):
        return [set(OF[part]) for part in parts]

    for kept, gone in corrections.jackknife_groups(7, N, Membership(OF, 12, "")):
        left, out = split((kept, gone))
        assert not left & out
        assert len(kept) + len(gone) == N
    assert len(corrections.jackknife_groups(7, N, Membership(OF, 12, ""))) == 12
    np.testing.assert_array_equal(  # without clusters: every 20th row of an order
        corrections.jackknife_groups(7, N)[3][1], np.sort(ordering(7, N, 0)[3::20])
    )
    for sampler, units in (("gaussian", 12), ("knn", 12), ("leaves", 12)):
        given = rl.Given("rest", sampler=sampler)
        found = rl.relative_importance(model, X, Y, given=given, draws=4, clusters=OF, rng=0)
        assert found.units == units
        assert (found.degrees_of_freedom <= 11).all()
        assert (found.std_error > 0).all()
    assert rl.conditional_model_reliance(model, X, Y, clusters=OF, rng=0).units == 12


def test_rows_tests_use_clusters():
    found = rl.model_reliance(model, X, Y, compare="difference", clusters=OF, keep="rows")
    sums = np.stack([[row[g == OF].sum() for g in range(12)] for row in found.row_values]) * 12 / N
    np.testing.assert_allclose(found.unit_values, sums)
    np.testing.assert_allclose(found.row_error, sums.std(axis=1, ddof=1) / np.sqrt(12))
    assert found.test(method="sign-flip").p_value.shape == (3,)
    drawn = rl.permutation_importance(model, X, Y, draws=rl.Draws(20, "permutations"), clusters=OF, rng=0)
    with pytest.raises(ValueError, match="rows in clusters"):
        drawn.test(method="rank")


def test_few_units_of_a_rare_value():
    """A column that two clusters alone vary has an error that rests on these."""
    rare = X.copy()
    rare[:, 1] = np.where(OF < 2, RNG.normal(size=N), 0.0)
    found = rl.permutation_importance(model, rare, Y, clusters=OF, rng=0)
    assert found.degrees_of_freedom[1] == 2.0
    assert found.degrees_of_freedom[0] > 5.0


def test_until_watches_clusters():
    found = rl.permutation_importance(model, X, Y, draws=rl.Until(top=1), clusters=OF, rng=0)
    assert found.units == 12
    assert found.stopped


def test_blocks_are_clusters_of_neighbours():
    time = RNG.permutation(N)
    place = np.argsort(np.argsort(time))
    blocks = rl.permutation_importance(model, X, Y, clusters=rl.Blocks(length=5, order=time), rng=0)
    own = rl.permutation_importance(model, X, Y, clusters=place * 7 // N, rng=0)
    np.testing.assert_array_equal(blocks.std_error, own.std_error)
    assert blocks.plan.endswith("7 blocks of 5 rows")
    dates = np.datetime64("2020-01-01") + time
    again = rl.permutation_importance(model, X, Y, clusters=rl.Blocks(length=5, order=dates), rng=0)
    np.testing.assert_array_equal(again.std_error, blocks.std_error)


def test_clusters_are_checked():
    def measure(clusters, **options):
        return rl.permutation_importance(model, X, Y, clusters=clusters, rng=0, **options)

    with pytest.raises(ValueError, match="holds 1 label"):
        measure(np.zeros(N))
    with pytest.raises(ValueError, match="shape"):
        measure(OF[:-1])
    with pytest.raises(ValueError, match="missing labels"):
        measure(np.where(OF == 3, np.nan, OF))
    with pytest.raises(ValueError, match="no column of X"):
        measure("patient")
    with pytest.raises(TypeError, match="several kinds"):
        measure(np.array([None, *OF[1:]], dtype=object))
    with pytest.raises(TypeError, match="one label per row"):
        measure(3)
    with pytest.raises(ValueError, match="blocks of 36 rows"):
        measure(rl.Blocks(length=10))
    with pytest.raises(ValueError, match="length"):
        rl.Blocks(length=0)
    with pytest.raises(ValueError, match="another order"):
        rl.permutation_importance(
            lambda t: model(t.to_numpy()), pd.DataFrame(X), Y, clusters=pd.Series(OF)[::-1], rng=0
        )
    with pytest.raises(ValueError, match="pairs of rows"):
        rl.model_reliance(model, X, Y, pairs="halves", clusters=OF, rng=0)
    with pytest.raises(ValueError, match="fit_on"):
        rl.relative_importance(model, X, Y, given=rl.Given("rest", fit_on=(X, None)), clusters=OF, rng=0)
    with pytest.warns(UserWarning, match="clusters: 4 of them"):
        measure(OF % 4)
    with pytest.raises(TypeError, match="clusters"):
        rl.feature_impact(model, X, clusters=OF)


def test_other_replacements():
    """Given values need nothing but the rows; labels keep psi among these; other rows have clusters nobody knows."""
    found = rl.permutation_importance(model, X, Y, replace="mean", clusters=OF, rng=0)
    base = (Y - model(X)) ** 2
    written = X.copy()
    written[:, 0] = X[:, 0].mean()
    change = (Y - model(written)) ** 2 - base
    psi = change - change.mean()
    sums = np.array([psi[g == OF].sum() for g in range(12)]) / N
    expected = np.sqrt(np.sum(sums**2) * 12 / 11 * (11 / 10) ** 2 / (_left(shares(OF, np.ones(N))) * 12 / 11))
    np.testing.assert_allclose(found.std_error[0], expected)
    within = rl.permutation_importance(model, X, Y, replace=rl.Donors(within=OF % 3), clusters=OF, rng=0)
    assert within.units == 12
    with pytest.raises(ValueError, match="other rows"):
        rl.permutation_importance(model, X, Y, replace=rl.Donors(X[:7]), clusters=OF, rng=0)
    kept = rl.permutation_importance(model, X, Y, replace=rl.Donors(X[:7]), keep="influence", rng=0)
    assert kept.ranks().first.shape == (3,)


def test_rows_on_disk(tmp_path):
    np.save(tmp_path / "X.npy", X)
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = rl.permutation_importance(model, X, Y, clusters=OF, keep="influence", rng=0)
    found = rl.permutation_importance(model, stored, Y, clusters=OF, keep="influence", rng=0)
    np.testing.assert_allclose(found.std_error, expected.std_error)
    assert found.influence.origin == expected.influence.origin
    (found - expected).interval()


def test_several_models_share_their_clusters():
    both = rl.permutation_importance({"a": model, "b": lambda rows: rows[:, 0]}, X, Y, clusters=OF, rng=0)
    assert all(one.units == 12 for one in both.values())


@pytest.mark.parametrize("draws", ["all", 6])
def test_interactions(draws):
    """The sums of D_jk - D_j - D_k within clusters; ten copies of each row tell nothing new."""
    single = rl.interaction_importance(model, X, Y, draws=draws, rng=0)
    alone = rl.interaction_importance(model, X, Y, draws=draws, clusters=np.arange(N), rng=0)
    np.testing.assert_allclose(alone.std_error, single.std_error, rtol=0.08)
    found = rl.interaction_importance(model, X, Y, draws=draws, clusters=OF, rng=0)
    np.testing.assert_array_equal(found.values, single.values)
    assert (found.degrees_of_freedom < 11).all()
    if draws != "all":
        return
    copies = rl.interaction_importance(
        model, np.tile(X, (10, 1)), np.tile(Y, 10), draws="all", clusters=np.tile(np.arange(N), 10)
    )
    np.testing.assert_allclose(copies.std_error[2], single.std_error[2], rtol=0.12)


def test_compared_models_are_the_difference_of_two_results():
    def other(rows):
        return rows[:, 0]

    both = rl.compare_models({"a": model, "b": other}, X, Y, clusters=OF, rng=0)
    one, two = (rl.permutation_importance(f, X, Y, clusters=OF, keep="influence", rng=0) for f in (model, other))
    delta, expected = both.delta("a", "b"), one - two
    np.testing.assert_allclose(delta.values, expected.values)
    np.testing.assert_allclose(delta.std_error, expected.std_error)
    np.testing.assert_allclose(delta.degrees_of_freedom, expected.degrees_of_freedom)
    assert both["a"].units == 12


def test_sobol_indices_by_literal_sums():
    """T = sum (f_i - f_ik)^2 / ((n - 1) sum 2 (f_i - mean)^2 n/(n - 1)): a ratio, whose psi are summed in clusters."""
    found = rl.sobol_total(model, X, clusters=OF)
    own = model(X)
    unit = 2.0 * (own - own.mean()) ** 2 * N / (N - 1)
    for j in range(3):
        change = np.zeros((N, N))
        for i, k in itertools.product(range(N), range(N)):
            row = X[i].copy()
            row[j] = X[k, j]
            change[i, k] = (own[i] - model(row[None, :])[0]) ** 2
        share = change.sum() / (N - 1) / unit.sum()
        h = np.where(np.eye(N, dtype=bool), 0.0, change - share * unit[:, None]) / unit.mean()
        psi = (h.sum(axis=1) + h.sum(axis=0)) / (N - 1)
        sums = np.array([psi[g == OF].sum() / N for g in range(12)])
        square = np.sum((sums - sums.mean()) ** 2) * 12 / 11 * (11 / 10) ** 2
        error = np.sqrt(square / _left(shares(OF, np.ones(N))) * 11 / 12)
        np.testing.assert_allclose([found.values[j], found.std_error[j]], [share, error])
    assert found.plan == "all pairs, 12 clusters"
    with pytest.raises(ValueError, match="form='product'"):
        rl.sobol_total(model, X, form="product", clusters=OF)


def test_splits_with_clusters_of_their_own():
    other = RNG.normal(size=(40, 3))
    y = other[:, 0] + RNG.normal(size=40)
    both = rl.compare_splits(model, train=(X, Y, None, OF), test=(other, y), pairs="all", compare="difference")
    one = rl.model_reliance(model, X, Y, compare="difference", clusters=OF)
    two = rl.model_reliance(model, other, y, compare="difference")
    np.testing.assert_allclose(both.std_error, np.hypot(one.std_error, two.std_error))
    a, b = one.std_error**2, two.std_error**2
    np.testing.assert_allclose(both.degrees_of_freedom, (a + b) ** 2 / (a**2 / one.degrees_of_freedom + b**2 / 39))
