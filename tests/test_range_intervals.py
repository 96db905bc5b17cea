"""Intervals of the ends of a range: what they are made of, and how often they cover the range of the population."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from reliance._core import streams
from reliance.rashomon import uncertainty_of_ends
from reliance.rashomon.question import ask

COEF = np.array([1.0, 0.5, 0.3, 0.0])


def sample(rng, n):
    X = rng.normal(size=(n, 4))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    return X, X @ COEF + rng.normal(size=n)


@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize(
    "options", [{}, {"relative": False}, {"reference": rl.models.Linear(COEF)}, {"reference": 1.1}]
)
def test_errors_are_derivatives_in_the_weights_of_the_rows(compare, options):
    """The envelope's influence of a row: the end's change when that row is there twice, by literal repetition."""
    X, y = sample(np.random.default_rng(0), 60)
    ask = {"epsilon": 0.2, "compare": compare, "features": [0, (1, 2)], **options}
    found = rl.model_class_reliance(rl.LinearClass(), X, y, uncertainty=True, **ask)
    ends = np.stack([found.achieved_lower, found.achieved_upper], axis=1)
    # Each row many times, and one of them once more: pairs of copies change nothing, so differences are scaled.
    many, n = 40, len(y)
    every = rl.model_class_reliance(rl.LinearClass(), np.tile(X, (many, 1)), np.tile(y, many), **ask)
    start = np.stack([every.achieved_lower, every.achieved_upper], axis=1)
    moved = []
    for i in range(n):
        X2, y2 = np.vstack([np.tile(X, (many, 1)), X[i]]), np.append(np.tile(y, many), y[i])
        one = rl.model_class_reliance(rl.LinearClass(), X2, y2, **ask)
        moved.append((np.stack([one.achieved_lower, one.achieved_upper], axis=1) - start) * (many * n + 1))
    expected = np.std(moved, axis=0, ddof=1) / np.sqrt(n)
    np.testing.assert_allclose(found.end_errors, expected, rtol=0.08)
    assert np.abs(ends - start).max() < 0.2  # the same question


def test_bootstrap_is_the_spread_over_samples():
    X, y = sample(np.random.default_rng(1), 80)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, uncertainty=40, rng=0)
    same = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, uncertainty=40, rng=0)
    np.testing.assert_array_equal(found.end_errors, same.end_errors)
    rng, ends = np.random.default_rng(2), []
    for _ in range(40):
        ids = rng.integers(80, size=80)
        one = rl.model_class_reliance(rl.LinearClass(), X[ids], y[ids], epsilon=0.1)
        ends.append(np.stack([one.lower, one.upper], axis=1))
    np.testing.assert_allclose(found.end_errors, np.std(ends, axis=0, ddof=1), rtol=0.5)
    envelope = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, uncertainty=True)
    np.testing.assert_allclose(found.end_errors[:3, 1], envelope.end_errors[:3, 1], rtol=0.6)


@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize(
    "options", [{}, {"relative": False}, {"reference": rl.models.Linear(COEF)}, {"reference": 2.0}]
)
def test_samples_from_sums_are_the_question_asked_again(compare, options):
    """The ends on samples side by side, from counts of the rows, and from the drawn rows themselves one by one."""
    X, y = sample(np.random.default_rng(4), 50)
    X[:, 2] += 30.0
    given = {"epsilon": 0.2, "relative": True, "reference": None, **options}
    asked = ask(rl.LinearClass(), X, y, *given.values(), compare, [0, 3, (1, 2), (0, 1, 2, 3)], None, 0, None, False)
    found = uncertainty_of_ends.sample_ends(asked, 20)
    for b in range(20):
        ids = streams.stream(asked.data.key, uncertainty_of_ends._SAMPLES, b).integers(50, size=50)
        one = rl.model_class_reliance(
            rl.LinearClass(), X[ids], y[ids], compare=compare, features=[0, 3, (1, 2), (0, 1, 2, 3)], **given
        )
        np.testing.assert_allclose(found[b], np.stack([one.lower, one.upper], axis=1), rtol=1e-9, atol=1e-9)


def test_samples_of_nearly_dependent_columns_are_looked_at_again():
    X, y = sample(np.random.default_rng(5), 40)
    X[:, 3] = X[:, 0] + 1e-3 * X[:, 3]
    asked = ask(rl.LinearClass(), X, y, 0.1, True, None, "ratio", None, None, 0, None, False)
    assert uncertainty_of_ends._from_counts(asked, np.ones((3, 40))) is None
    assert uncertainty_of_ends.sample_ends(asked, 2).shape == (2, 4, 2)


def test_intervals_of_results(tmp_path):
    X, y = sample(np.random.default_rng(3), 100)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=True)
    wide, narrow = found.interval(0.95), found.interval(0.5)
    assert wide.shape == (4, 2, 2)
    assert (wide[..., 0] < narrow[..., 0]).all()
    assert (wide[..., 1] >= narrow[..., 1]).all()
    assert found.lower[3] < 1.0 <= narrow[3, 0, 1]  # reaches to no reliance
    found.save(tmp_path / "range.json")
    np.testing.assert_array_equal(rl.load(tmp_path / "range.json").interval(), wide)
    with pytest.raises(ValueError, match="level"):
        found.interval(95)
    listed = [rl.models.Linear(COEF + 0.1 * k) for k in range(3)]
    drawn = rl.model_class_reliance(rl.FiniteClass(listed, bootstrap=50), X, y, epsilon=0.1, rng=0)
    assert np.isfinite(drawn.interval()).all()
    trees = rl.TreeClass(depth=1, penalty=0.1, cuts=2, loss="squared_error")
    assert np.isfinite(rl.model_class_reliance(trees, X, y, epsilon=0.1, uncertainty=20, rng=0).interval()).all()


def test_claims_are_t_tests_of_an_end():
    X, y = sample(np.random.default_rng(3), 100)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=True)
    for claim, end, side in (("every", 0, 1.0), ("some", 1, 1.0), ("none", 1, -1.0)):
        value = (found.achieved_lower, found.achieved_upper)[end]
        expected = stats.t.sf(side * np.log(value / 1.2) / (found.end_errors[:, end] / value), 99)
        tested = found.test(claim, margin=0.2, adjust="none")
        np.testing.assert_allclose(tested.p_value, expected, rtol=1e-9)
        assert "good model" in repr(tested)
    for options, words in (
        ({"claim": "all"}, "claim="),
        ({"margin": -1}, "margin=-1"),
        ({"claim": "none"}, "margin=0"),
    ):
        with pytest.raises(ValueError, match=words):
            found.test(**options)


@pytest.mark.slow
def test_claims_have_their_size():
    """At the edge of each claim, where the end in the population is the margin; and far from it on the wrong side."""
    truth = rl.model_class_reliance(rl.LinearClass(), *sample(np.random.default_rng(99), 400_000), epsilon=0.1)
    replicates, rejected = 250, np.zeros((3, 3))
    needless = 0
    for k in range(replicates):
        X, y = sample(np.random.default_rng([7, k]), 200)
        found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, features=[0, 1, 2], uncertainty=True)
        for row, (claim, edge) in enumerate((("every", truth.lower), ("some", truth.upper), ("none", truth.upper))):
            for j in range(3):
                margin = max(edge[j] - 1.0, 0.0)
                rejected[row, j] += found.test(claim, margin=margin, adjust="none").p_value[j] < 0.05
        needless += bool(found.test("every", adjust="none").p_value[2] < 0.05)  # its lower end is below 1
    share = rejected / replicates
    assert truth.lower[2] < 1.0
    assert (share <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / replicates)).all(), share
    assert share[1:].mean() > 0.02, share  # not far too careful
    assert needless / replicates <= 0.05


def test_what_is_refused():
    X, y = sample(np.random.default_rng(4), 50)
    for kind, options, words in (
        (rl.LinearClass(), {}, "not measured"),
        (rl.LinearClass(), {"uncertainty": 3}, "uncertainty=3"),
        (rl.LinearClass(), {"uncertainty": "yes"}, "uncertainty="),
        (rl.LinearClass(), {"uncertainty": True, "epsilon": 0.0}, "larger epsilon"),
        (rl.FiniteClass([rl.models.Linear(COEF)]), {"uncertainty": True}, "jump"),
        (rl.FiniteClass([rl.models.Linear(COEF)]), {"uncertainty": 50}, "bootstrap=50"),
        (rl.TreeClass(loss="squared_error", penalty=0.1, depth=1), {"uncertainty": True}, "jump"),
    ):
        with pytest.raises(ValueError, match=words):
            rl.model_class_reliance(kind, X, y, **{"epsilon": 0.1, **options}).interval()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "replicates"), [(200, 200), (500, 120)])
def test_linear_ranges_are_covered(n, replicates):
    """Of the range in the population, each end by itself; ends near no reliance are covered more often."""
    truth = rl.model_class_reliance(rl.LinearClass(), *sample(np.random.default_rng(99), 400_000), epsilon=0.1)
    ends = np.stack([truth.lower, truth.upper], axis=1)
    covered = np.zeros((4, 2))
    for k in range(replicates):
        X, y = sample(np.random.default_rng([n, k]), n)
        low, high = np.moveaxis(
            rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, uncertainty=True).interval(), 2, 0
        )
        covered += (low <= ends) & (ends <= high)
    share = covered / replicates
    slack = 3 * np.sqrt(0.95 * 0.05 / replicates)
    assert (share >= 0.92 - slack).all(), share
    assert share.mean() >= 0.94


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 500])
def test_ranges_of_lists_are_covered(n):
    models = [
        rl.models.Linear(COEF + step) for step in ([0, 0, 0, 0], [0.2, -0.2, 0, 0], [0, 0.1, 0, 0.1], [0.3, 0, 0, 0])
    ]
    truth = rl.model_class_reliance(rl.FiniteClass(models), *sample(np.random.default_rng(99), 200_000), epsilon=0.2)
    ends, covered, replicates = np.stack([truth.lower, truth.upper], axis=1), np.zeros((4, 2)), 150
    for k in range(replicates):
        X, y = sample(np.random.default_rng([n, k]), n)
        found = rl.model_class_reliance(rl.FiniteClass(models, bootstrap=60), X, y, epsilon=0.2, rng=k)
        low, high = np.moveaxis(found.interval(), 2, 0)
        covered += (low <= ends) & (ends <= high)
    assert (covered / replicates >= 0.88).all(), covered / replicates
