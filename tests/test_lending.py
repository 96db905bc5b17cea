"""Who lends under clusters: values and errors by literal loops over the pairs that are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance.plans import Groups

pytestmark = pytest.mark.filterwarnings("ignore:clusters. . of them")  # few, for short loops
RNG = np.random.default_rng(5)
OF = np.repeat(np.arange(8), 4)[RNG.permutation(32)]
N = len(OF)
X = RNG.normal(size=(N, 3)) + RNG.normal(size=(8, 3))[OF]
Y = X[:, 0] + RNG.normal(size=N) + RNG.normal(size=8)[OF]
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
FEATURES = ((0,), (1, 2))


def model(rows):
    return rows[:, 0] + 0.5 * rows[:, 1] * rows[:, 2]


def changes(columns: tuple[int, ...]) -> np.ndarray:
    """D (n, n), row by row and donor by donor."""
    base, found = (Y - model(X)) ** 2, np.zeros((N, N))
    for i in range(N):
        for k in range(N):
            row = X[i].copy()
            row[list(columns)] = X[k, list(columns)]
            found[i, k] = (Y[i] - model(row[None, :])[0]) ** 2 - base[i]
    return found


def literal(columns, allowed, compare, weights) -> tuple[float, np.ndarray]:
    """The value over pairs that are allowed, each row counting by its weight, and psi of all rows."""
    D, base = changes(columns), (Y - model(X)) ** 2
    unit = weights * base if compare == "ratio" else weights
    donors = allowed.sum(axis=1)
    excess = sum(weights[i] * D[i, allowed[i]].sum() / donors[i] for i in range(N)) / unit.sum()
    psi = np.zeros(N)
    for i in range(N):
        for k in np.flatnonzero(allowed[i]):
            h = (weights[i] * D[i, k] - excess * unit[i]) / unit.mean() / donors[i]
            psi[i] += h
            psi[k] += h
    return excess + (compare == "ratio"), psi


def spread_of_sums(psi: np.ndarray, of: np.ndarray) -> float:
    """The squares of the clusters' sums of psi over n, about their mean, as a variance of their total."""
    sums = np.array([psi[of == g].sum() / N for g in np.unique(of)])
    return float(np.sum((sums - sums.mean()) ** 2) * len(sums) / (len(sums) - 1))


@pytest.mark.parametrize(("compare", "weighted"), [("difference", False), ("difference", True), ("ratio", True)])
def test_other_clusters_by_literal_pairs(backend, compare, weighted):
    weights = WEIGHTS if weighted else np.ones(N)
    result = rl.model_reliance(
        model,
        backend.asarray(X),
        backend.asarray(Y),
        compare=compare,
        features=list(FEATURES),
        weights=backend.asarray(weights) if weighted else None,
        clusters=rl.Clusters(OF, lend="other clusters"),
    )
    rtol = 2e-3 if backend.dtype == "float32" else 1e-9
    share = np.array([weights[g == OF].sum() for g in range(8)]) / weights.sum()
    # Clusters of unequal weight: E sum p^2 (m - sum p m)^2 is so much less than sum p^2 for independent m.
    centring = np.eye(8) - np.outer(np.ones(8), share)
    left = np.trace(centring.T @ np.diag(share**2) @ centring) / np.sum(share**2)
    for j, columns in enumerate(FEATURES):
        value, psi = literal(columns, OF[:, None] != OF, compare, weights)
        error = np.sqrt(spread_of_sums(psi, OF) * (7 / 6) ** 2 * max(1.0, 7 / 8 / left))
        np.testing.assert_allclose(result.values[j], value, rtol=rtol)
        np.testing.assert_allclose(result.std_error[j], error, rtol=rtol)
    assert result.plan == "donors of other clusters, 28 per row, 8 clusters"


def test_the_error_is_that_of_leaving_clusters_out():
    """The jackknife, literally: a cluster is left out as borrower and as lender."""
    result = rl.model_reliance(
        model, X, Y, compare="difference", features=[0], clusters=rl.Clusters(OF, lend="other clusters")
    )
    D = changes((0,))
    values = []
    for gone in range(8):
        pairs = (OF[:, None] != OF) & (gone != OF) & (OF[:, None] != gone)
        values.append(D[pairs].mean())
    error = np.sqrt(7 / 8 * np.sum((values - np.mean(values)) ** 2))
    np.testing.assert_allclose(result.std_error[0], error)


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_same_cluster_is_a_sample_of_clusters(compare):
    result = rl.model_reliance(
        model, X, Y, compare=compare, features=list(FEATURES), clusters=rl.Clusters(OF, lend="same cluster")
    )
    allowed = (OF[:, None] == OF) & ~np.eye(N, dtype=bool)
    for j, columns in enumerate(FEATURES):
        value, psi = literal(columns, allowed, compare, np.ones(N))
        psi /= 2.0  # a cluster is all the borrowers and all the lenders of its own value
        np.testing.assert_allclose(result.values[j], value)
        np.testing.assert_allclose(result.std_error[j], np.sqrt(spread_of_sums(psi, OF)))
    assert result.plan == "donors of the same cluster, 3 per row, 8 clusters"
    by_label = rl.permutation_importance(model, X, Y, replace=rl.Donors(within=OF), clusters=OF, draws=3, rng=0)
    plain = rl.permutation_importance(model, X, Y, clusters=rl.Clusters(OF, lend="same cluster"), rng=0)
    np.testing.assert_allclose(by_label.std_error, plain.std_error)  # the same question in other words


def test_every_donor_of_another_cluster_once():
    """Clusters of unequal size: no row meets its own cluster, and all others before any comes again."""
    of = np.repeat(np.arange(5), [1, 2, 9, 4, 3])[np.random.default_rng(0).permutation(19)]
    for independent in (False, True):
        plan = plans.OtherClusters(19, 40, 3, "other clusters", independent, Groups(of, of))
        donors = plan.donors(range(19), range(40))
        assert (of[donors] != of[:, None]).all()
        assert plan.exhausted_at == np.inf
        np.testing.assert_array_equal(plan.donors(range(4, 9), range(7, 30)), donors[4:9, 7:30])
        if not independent:
            for i in range(19):
                others = np.flatnonzero(of != of[i])
                np.testing.assert_array_equal(np.sort(donors[i, : len(others)]), others)
    # Any donor is as likely as any other in each draw: over keys, about equally often.
    met = np.zeros(19)
    for key in range(2000):
        plan = plans.OtherClusters(19, 2, key, "other clusters", False, Groups(of, of))
        met[plan.donors(range(19), range(2))[0, 1]] += 1
    others = met[of != of[0]]
    assert np.sum((others - others.mean()) ** 2) / others.mean() < 40.0  # chi-squared of at most 18 degrees


def test_values_of_draws_by_literal_donors():
    of = np.repeat(np.arange(6), [2, 9, 4, 3, 8, 6])
    result = rl.permutation_importance(model, X, Y, draws=7, clusters=rl.Clusters(of, lend="other clusters"), rng=11)
    donors = plans.OtherClusters(N, 7, 11, "other clusters", False, Groups(of, of)).donors(range(N), range(7))
    for j in range(3):
        D = changes((j,))
        np.testing.assert_allclose(result.values[j], np.mean([D[i, donors[i]].mean() for i in range(N)]))


@pytest.mark.parametrize("length", [4, 5])
def test_stretches_by_literal_pairs(length):
    """Blocks borrow from whole blocks, each row from its own place; two rows are left over of 32 with length 5."""
    time = np.random.default_rng(1).permutation(N)
    block, offset, whole = time // length, time % length, N // length
    allowed = (offset[:, None] == offset) & (block[:, None] != block) & (block < whole)
    blocks = rl.Blocks(length, order=time, lend="stretches")
    result = rl.model_reliance(model, X, Y, compare="difference", features=list(FEATURES), clusters=blocks)
    if length == 4:  # every donor of every row
        D = changes(FEATURES[1])
        np.testing.assert_allclose(result.values[1], D[allowed].mean())
        values = [D[allowed & (block != gone) & (block[:, None] != gone)].mean() for gone in range(8)]
        error = np.sqrt(7 / 8 * np.sum((values - np.mean(values)) ** 2))
        np.testing.assert_allclose(result.std_error[1], error)
    plan = plans.Stretches(N, whole - 1, 0, "stretches", False, block, offset)
    donors = plan.donors(range(N), range(whole - 1))
    for i in range(N):
        assert allowed[i, donors[i]].all()
        assert len(set(donors[i])) == whole - 1
    for k in range(whole - 1):  # a block borrows from one block
        assert all(len(set(block[donors[block == g, k]])) == 1 for g in range(whole))
    by_chance = plans.Stretches(N, 9, 0, "stretches", True, block, offset).donors(range(N), range(9))
    assert all(allowed[i, by_chance[i]].all() for i in range(N))


def test_stretches_keep_the_hour():
    """A daily pattern that the model knows: a whole day of another day's values does not break it."""
    hour = np.tile(np.arange(12), 30)
    x = np.sin(2 * np.pi * hour / 12)
    table = np.column_stack([x + 0.01 * RNG.normal(size=360), RNG.normal(size=360)])
    day = rl.Blocks(12, lend="stretches")
    kept = rl.permutation_importance(lambda t: t[:, 0], table, x, clusters=day, rng=0)
    mixed = rl.permutation_importance(lambda t: t[:, 0], table, x, clusters=rl.Blocks(12), rng=0)
    assert kept.values[0] < 0.01 * mixed.values[0]


def test_until_ablation_and_models_lend_alike():
    clusters = rl.Clusters(OF, lend="other clusters")
    until = rl.permutation_importance(model, X, Y, draws=rl.Until(top=1), clusters=clusters, rng=0)
    assert until.plan.startswith("donors of other clusters")
    assert "other clusters" in rl.ablation_importance(model, X, Y, clusters=clusters, rng=0).plan
    both = rl.compare_models({"a": model, "b": lambda rows: rows[:, 0]}, X, Y, draws="all", clusters=clusters, rng=0)
    exact = rl.model_reliance(model, X, Y, compare="difference", clusters=clusters)
    np.testing.assert_allclose(both["a"].values, exact.values)


def test_what_cannot_lend_so_is_refused():
    clusters = rl.Clusters(OF, lend="other clusters")
    with pytest.raises(ValueError, match="lend"):
        rl.Clusters(OF, lend="nowhere")
    for call in (
        lambda: rl.relative_importance(model, X, Y, given="rest", clusters=clusters, rng=0),
        lambda: rl.conditional_model_reliance(model, X, Y, clusters=clusters, rng=0),
        lambda: rl.interaction_importance(model, X, Y, clusters=clusters, rng=0),
        lambda: rl.permutation_importance(model, X, Y, replace="mean", clusters=clusters, rng=0),
        lambda: rl.permutation_importance(model, X, Y, draws=rl.Draws(3), clusters=clusters, rng=0),
        lambda: rl.permutation_importance(
            model, X, Y, draws=rl.Until(top=1, design="shifts"), clusters=clusters, rng=0
        ),
        lambda: rl.model_reliance(model, X, Y, clusters=rl.Clusters(OF // 3, lend="other clusters"), rng=0),
    ):
        with pytest.raises(ValueError, match="lend='other clusters'"):
            call()
    with pytest.warns(UserWarning, match="only ones of their cluster"):
        rl.permutation_importance(
            model, X, Y, clusters=rl.Clusters(np.where(np.arange(N) == 0, 99, OF), lend="same cluster"), rng=0
        )
