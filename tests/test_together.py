"""Several estimates at once: simultaneous intervals, ranks, differences; against literal loops and closed forms."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from reliance.inference import together

RNG = np.random.default_rng(4)
N = 60
X = RNG.normal(size=(N, 4))
Y = X @ np.array([1.0, 0.9, 0.2, 0.0]) + RNG.normal(size=N)
OF = np.arange(N) // 4


def model(rows):
    return rows[:, 0] + 0.9 * rows[:, 1] + 0.2 * rows[:, 2] ** 2


def other(rows):
    return 0.9 * rows[:, 0] + 0.9 * rows[:, 1]


def measured(predict=model, **options):
    options = {"keep": "influence", "rng": 0, **options}
    return rl.permutation_importance(predict, X, Y, **options)


@pytest.mark.parametrize("p", [2, 10])
def test_independent_estimates_need_sidaks_level(p):
    z = np.kron(np.eye(p), np.array([1.0, -1.0]))  # p estimates that share nothing
    assert together.single_level(z, 0.95, 3) == pytest.approx(0.95 ** (1 / p), abs=4 * 0.0022 / p)  # of 10,000
    assert together.single_level(z, 0.95, 3) == together.single_level(5.0 * z, 0.95, 3)  # from the key alone


def test_estimates_that_move_alike_need_no_more():
    z = np.outer(np.array([1.0, 2.0, -3.0]), RNG.normal(size=50))
    assert together.single_level(z, 0.9, 0) == pytest.approx(0.9, abs=0.008)
    assert together.single_level(np.vstack([z[:1], np.zeros((4, 50))]), 0.9, 0) == 0.9  # 0 is known to be 0
    assert together.pair_level(np.zeros((300, 4)), 0.95, 0) == pytest.approx(1 - 0.05 / (300 * 299 / 2))


def test_differences_of_equal_estimates_are_tukeys():
    """All pairs of independent means: the studentized range with infinitely many degrees of freedom."""
    p = 6
    z = np.kron(np.eye(p), np.array([1.0, -1.0]))
    quantile = stats.studentized_range.ppf(0.95, p, np.inf) / np.sqrt(2)
    assert together.pair_level(z, 0.95, 1) == pytest.approx(1 - 2 * stats.norm.sf(quantile), abs=0.001)


@pytest.mark.parametrize("clusters", [None, OF])
def test_simultaneous_intervals(clusters):
    found = measured(clusters=clusters)
    single, all_of_them = found.interval(), found.interval(simultaneous=True)
    assert (all_of_them[:3, 0] < single[:3, 0]).all()
    assert (all_of_them[:3, 1] > single[:3, 1]).all()
    bonferroni = found.interval(1 - 0.05 / 3)
    assert (np.ptp(all_of_them, axis=1)[:3] < np.ptp(bonferroni, axis=1)[:3] * (1 + 1e-9)).all()
    again = measured(clusters=clusters).interval(simultaneous=True)
    np.testing.assert_array_equal(all_of_them, again)
    units = N if clusters is None else 15
    assert found.influence.rows.shape == (4, units)
    # The kept influences have at least the reported error: draws add noise to them.
    spread = np.std(found.influence.rows, axis=1, ddof=1) / np.sqrt(units)
    assert (found.std_error <= spread * (1 + 1e-9)).all()
    assert (found.std_error > 0.9 * spread)[:2].all()


def test_kept_influences_on_every_backend(backend):
    found = rl.model_reliance(model, backend.asarray(X), backend.asarray(Y), keep="influence", clusters=OF)
    expected = rl.model_reliance(model, X, Y, keep="influence", clusters=OF)
    tolerance = 1e-3 if backend.dtype == "float32" else 1e-9
    np.testing.assert_allclose(found.influence.rows, expected.influence.rows, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(found.ranks().first, expected.ranks().first)


def test_ranks_are_those_of_the_pairs():
    found = measured()
    ranks = found.ranks(0.9)
    level = together.pair_level(found.influence.columns(), 0.9, found.key)
    first, last = np.ones(4, dtype=int), np.full(4, 4)
    for j, k in itertools.permutations(range(4), 2):
        psi = found.influence.rows[j] - found.influence.rows[k]
        error = np.std(psi, ddof=1) / np.sqrt(N)
        if error == 0.0:
            continue
        gamma = np.array([np.mean((psi - psi.mean()) ** 3) / N**2 / error**3])
        gap = np.array([found.values[j] - found.values[k]])
        low, high = rl.inference.interval(gap, np.array([error]), N - 1, level, gamma=gamma)[0]
        first[k] += low > 0
        last[k] -= high < 0
    np.testing.assert_array_equal(ranks.first, first)
    np.testing.assert_array_equal(ranks.last, last)
    assert (ranks.first[:2] < 3).all()
    assert "not told apart" in repr(found)
    assert "'x0 and x1'" in repr(found) or "'x1 and x0'" in repr(found)
    np.testing.assert_array_equal(ranks.interval(), np.stack([first, last], axis=1))
    with pytest.raises(ValueError, match=r"hold at 0\.9"):
        ranks.interval(0.95)
    order = ranks.ranked()
    np.testing.assert_array_equal(order.above, ranks.above[np.ix_(*[np.argsort(-ranks.values, kind="stable")] * 2)])


def test_a_feature_without_an_error_may_have_any_rank():
    flat = X.copy()
    flat[:, 2] = 1.0
    with pytest.warns(UserWarning, match="constant"):
        found = rl.permutation_importance(model, flat, Y, keep="influence", rng=0)
    ranks = found.ranks()
    assert (ranks.first[2], ranks.last[2]) == (1, 4)
    assert ranks.last[0] >= 3  # behind the other large one, and perhaps behind the unknown one


@pytest.mark.parametrize("clusters", [None, OF])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_differences_are_paired(clusters, compare):
    one, two = measured(clusters=clusters, compare=compare), measured(other, clusters=clusters, compare=compare)
    delta = one - two
    psi = one.influence.rows - two.influence.rows
    np.testing.assert_array_equal(delta.values, one.values - two.values)
    np.testing.assert_allclose(delta.std_error, np.std(psi, axis=1, ddof=1) / np.sqrt(psi.shape[1]))
    assert (delta.std_error[:2] < 0.7 * np.hypot(one.std_error, two.std_error)[:2]).all()
    assert (delta.degrees_of_freedom == (N - 1 if clusters is None else 14)).all()
    back = two - one
    np.testing.assert_allclose(back.interval()[:, ::-1], -delta.interval())
    pair = one.delta("x0", "x1")
    psi = one.influence.rows[0] - one.influence.rows[1]
    np.testing.assert_allclose(pair.std_error, np.std(psi, ddof=1) / np.sqrt(psi.size))
    assert pair.names == ("x0 - x1",)
    assert "x0 - x1" in repr(pair)


def test_differences_of_given_sets_and_refits():
    for sampler in ("gaussian", "knn"):
        sets = {"none": [], "rest": "rest"}
        options = {"draws": 4, "rng": 0, "keep": "influence", "features": [0, 1]}
        found = rl.relative_importance(model, X, Y, given=rl.Given(sets, sampler=sampler), **options)
        delta, known = found["none"] - found["rest"], found.delta("none", "rest")
        np.testing.assert_allclose(delta.std_error, known.std_error)
        np.testing.assert_allclose(delta.degrees_of_freedom, known.degrees_of_freedom)
        assert found["rest"].interval(simultaneous=True).shape == (2, 2)
        assert found["rest"].ranks().first.shape == (2,)


def test_differences_keep_to_the_same_rows():
    found = measured()
    with pytest.raises(ValueError, match="keep='influence'"):
        found - rl.permutation_importance(model, X, Y, rng=0)
    with pytest.raises(ValueError, match="different rows"):
        found - rl.permutation_importance(model, X[::-1], Y[::-1], keep="influence", rng=0)
    with pytest.raises(ValueError, match="different rows"):
        found - rl.permutation_importance(model, X[:-1], Y[:-1], keep="influence", rng=0)
    with pytest.raises(ValueError, match="clusters"):
        found - measured(clusters=OF)
    with pytest.raises(ValueError, match="only one of the two"):
        found - measured(features=[0, 1])
    with pytest.raises(ValueError, match="compare="):
        found - measured(compare="ratio")
    with pytest.raises(ValueError, match="different units"):
        found - measured(loss="absolute_error")
    with pytest.raises(TypeError):
        found - 3
    with pytest.raises(ValueError, match="no feature"):
        found.delta("x0", "x9")
    ratio = measured(loss=["squared_error", "absolute_error"], compare="ratio")
    assert (ratio["squared_error"] - ratio["absolute_error"]).names == found.names
    # Other columns of the same rows are known again by the labels.
    wide = rl.permutation_importance(
        lambda rows: model(rows[:, 1:]), np.column_stack([Y, X]), Y, features={f"x{j}": [j + 1] for j in range(4)},
        keep="influence", rng=0,
    )  # fmt: skip
    np.testing.assert_allclose((found - wide).values[:2], 0.0, atol=0.3)
    shifted = dataclasses.replace(found, names=("x3", "x2", "x1", "x0"))
    np.testing.assert_array_equal((found - shifted).values, found.values - found.values[::-1])


def test_what_cannot_be_said_together_is_refused():
    with pytest.raises(ValueError, match="keep='influence'"):
        rl.permutation_importance(model, X, Y, rng=0).interval(simultaneous=True)
    with pytest.raises(ValueError, match="population"):
        measured().interval(formulation="fixed-data", simultaneous=True)
    with pytest.raises(ValueError, match="keep='influence'"):
        rl.permutation_importance(model, X, Y, rng=0).ranks()
    metric = rl.Metric(lambda y, prediction: np.mean(np.abs(y - prediction)))
    with pytest.raises(ValueError, match="single rows"):
        measured(loss=metric).ranks()
    halves = [rl.model_reliance(model, X, Y, pairs="halves", keep="influence", rng=k) for k in (0, 1)]
    assert halves[0].ranks().first.shape == (4,)
    with pytest.raises(ValueError, match="pairs of rows"):
        halves[0] - halves[1]


def test_several_losses_are_adjusted_together():
    found = rl.permutation_importance(model, X, Y, loss=["squared_error", "absolute_error"], rng=0)
    tested = found.test()
    single = [one.test(adjust="none").p_value for one in found.values()]
    p = np.concatenate(single)
    order = np.argsort(p)
    holm = np.maximum.accumulate(np.minimum((len(p) - np.arange(len(p))) * p[order], 1.0))
    np.testing.assert_allclose(tested.p_adjusted[order], holm)
    assert tested.names[4] == "absolute_error: x0"
    with pytest.raises(TypeError, match="importances"):
        rl.Results({"a": tested}).test()


def test_the_warning_says_on_which_side():
    rng = np.random.default_rng(2)
    skewed = rng.lognormal(0.0, 1.5, size=(100, 1))
    found = rl.permutation_importance(lambda Z: Z[:, 0], skewed, skewed[:, 0] + rng.normal(size=100), rng=0)
    with pytest.warns(UserWarning, match="mostly above it"):
        found.interval()
    x = rng.normal(size=(100, 1))
    heavy = rl.permutation_importance(
        lambda Z: Z[:, 0], x, x[:, 0] + rng.standard_t(1.5, size=100), compare="ratio", rng=0
    )
    with pytest.warns(UserWarning, match="mostly below it"):
        heavy.interval()


# ---------------------------------------------------------------------------------------------------------------------
# Imputations


def test_rubins_rules_by_hand():
    found = [rl.permutation_importance(model, X + 0.1 * RNG.normal(size=X.shape), Y, rng=0) for _ in range(6)]
    pooled = rl.pool(found)
    for j in range(3):
        values = [one.values[j] for one in found]
        within = sum(one.std_error[j] ** 2 for one in found) / 6
        between = sum((value - sum(values) / 6) ** 2 for value in values) / 5
        total = within + 7 / 6 * between
        share = 7 / 6 * between / total
        observed = (N / (N + 2)) * (N - 1) * (1 - share)
        df = 1 / (share**2 / 5 + 1 / observed)
        assert pooled.values[j] == pytest.approx(sum(values) / 6)
        assert pooled.std_error[j] == pytest.approx(np.sqrt(total))
        assert pooled.degrees_of_freedom[j] == pytest.approx(df)
        half = stats.t.ppf(0.975, df) * np.sqrt(total)
        np.testing.assert_allclose(pooled.interval()[j], pooled.values[j] + half * np.array([-1.0, 1.0]))
    assert pooled.degrees_of_freedom[3] == N - 1  # nothing moves
    assert pooled.test().p_value[3] == 1.0
    assert "6 imputations" in repr(pooled)
    with pytest.warns(UserWarning, match="all the same"):
        rl.pool([found[0], found[0]])
    with pytest.warns(UserWarning, match="2 imputations"):
        rl.pool(found[:2])


@pytest.mark.slow
def test_pooled_intervals_cover():
    """A quarter of x0 is missing at random and drawn from its distribution given y: the interval keeps its level."""
    right, replicates = 0, 300
    for seed in range(replicates):
        rng = np.random.default_rng([seed, 5])
        x = rng.normal(size=150)
        y = x + rng.normal(size=150)
        gone, found = rng.random(150) < 0.25, []
        left = np.column_stack([np.ones((~gone).sum()), y[~gone]])
        fit, rest = np.linalg.lstsq(left, x[~gone])[:2]
        for _ in range(10):  # a proper imputation draws the line, too
            spread = np.sqrt(rest[0] / rng.chisquare(len(left) - 2))
            line = fit + spread * np.linalg.cholesky(np.linalg.inv(left.T @ left)) @ rng.normal(size=2)
            drawn = line[0] + line[1] * y + spread * rng.normal(size=150)
            filled = np.where(gone, drawn, x)[:, None]
            found.append(rl.permutation_importance(lambda Z: Z[:, 0], filled, y, rng=0))
        low, high = rl.pool(found).interval()[0]
        right += low <= 2.0 <= high
    assert 0.93 - 3 * np.sqrt(0.93 * 0.07 / replicates) < right / replicates < 0.995
