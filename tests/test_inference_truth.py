"""What is said of an estimate is true: its interval, its test, why it stopped, and where it says nothing."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import reliance as rl

BETA = np.array([1.0, 0.5, 0.0])


def data(n: int, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ BETA + noise * rng.normal(size=n)


def model(X: Any) -> Any:
    return X @ BETA


# ---------------------------------------------------------------------------------------------------------------------
# draws=rl.Until(...)


def test_independent_draws_never_are_all_pairs() -> None:
    """They go on after n - 1 draws until the goal is settled, and end for a reason that is true of them."""
    X, y = data(6, noise=0.1)
    found = rl.ablation_importance(model, X, y, draws=rl.Until(precision=1e-9), rng=0)
    assert found.stopped == "rows"
    assert found.draws_per_row > 5
    assert np.all(found.monte_carlo_share[:2] <= 0.1)
    wide = rl.ablation_importance(model, X, y, draws=rl.Until(precision=1e9), rng=0)
    assert (wide.stopped, wide.draws_per_row) == ("precision", 8)
    budget = 6 + 3 * 6 * 9
    paid = rl.ablation_importance(model, X, y, draws=rl.Until(precision=1e-9, budget=budget), rng=0)
    assert (paid.stopped, paid.draws_per_row) == ("budget", 9)


def test_independent_draws_have_an_end() -> None:
    """Row and donor effects that cancel exactly leave the draws' own noise alone: no goal would ever end it."""
    X, y = np.array([[-1.0], [1.0]] * 2), np.array([-1.0, 1.0] * 2)
    found = rl.ablation_importance(lambda X: X[:, 0], X, y, draws=rl.Until(precision=1e-9), rng=0)
    assert found.stopped in ("rows", "limit")
    assert found.draws_per_row <= 100 * 4


@pytest.mark.parametrize("given", [{"precision": 0.1}, {"relative": False}])
def test_a_ranking_has_no_precision(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="and top=1: top stops at a settled ranking"):
        rl.Until(top=1, **given)


# ---------------------------------------------------------------------------------------------------------------------
# Words


ODD_LEVELS = [0, 1, 0.0, 1.0, 95, -0.5, math.nan, math.inf, "0.9", None, True, [0.9, 0.95], np.array([0.5] * 500)]


@pytest.mark.parametrize("level", ODD_LEVELS, ids=range(len(ODD_LEVELS)))
@pytest.mark.parametrize("formulation", ["population", "fixed-data", "random-variable"])
def test_odd_levels(level: Any, formulation: str) -> None:
    X, y = data(30)
    found = rl.permutation_importance(model, X, y, draws=3, rng=0)
    for ask in (lambda: found.interval(level, formulation), lambda: found.to_frame(level)):
        with pytest.raises((ValueError, TypeError), match=r"level=.*between 0 and 1, such as 0.95") as error:
            ask()
        assert len(str(error.value)) <= 300


@pytest.mark.parametrize("odd", ["populaton", None, 3, "x" * 5000, ["t"]])
def test_odd_choices(odd: Any) -> None:
    X, y = data(30)
    found = rl.permutation_importance(model, X, y, draws=3, rng=0)
    for name, ask in {
        "formulation": lambda: found.interval(formulation=odd),
        "method": lambda: found.test(method=odd),
        "alternative": lambda: found.test(alternative=odd),
        "adjust": lambda: found.test(adjust=odd),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}=.* is not known: use one of '") as error:
            ask()
        assert len(str(error.value)) <= 300


def test_a_table_says_where_interval_and_p_may_disagree() -> None:
    """A ratio whose base losses are nearly all 0 and a few huge: interval from below 1, and a tiny p beside it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.01 * rng.normal(size=40)
    y[0] += 9.0
    found = rl.model_reliance(lambda X: X[:, 0], X, y)
    with pytest.warns(UserWarning, match="'x0' are very skewed"):
        found.interval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table and a frame say it, or leave it out, without a warning
        text, page = repr(found), found._repr_html_()
        found.to_frame()
    for said in (text, page):
        assert "very skewed, interval and p may disagree: " in said
    assert text.splitlines()[-1].endswith("'x0'")
    X, y = data(200)
    assert "skewed" not in repr(rl.model_reliance(model, X, y))


# ---------------------------------------------------------------------------------------------------------------------
# On how many rows an error rests


def auc_data(n: int, positives: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.zeros(n, dtype=np.int64)
    y[rng.permutation(n)[:positives]] = 1
    X = rng.normal(size=(n, 2))
    X[:, 0] += 1.5 * y
    return X, y


def score(X: Any) -> Any:
    return X[:, 0] + 0.5 * X[:, 1]


def literal_auc_error(X: np.ndarray, y: np.ndarray) -> float:
    """All pairs pooled: each case's share of cases of the other class that it stands on the wrong side of, by loops."""
    n = len(y)

    def pseudo(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        of_ones, of_zeros = scores[y[rows] == 1], scores[y[rows] == 0]
        above = [np.mean((of_zeros > s) + 0.5 * (of_zeros == s)) for s in scores]
        below = [np.mean((of_ones < s) + 0.5 * (of_ones == s)) for s in scores]
        wrong = np.where(y[rows] == 1, above, below)
        value = np.mean(wrong[y[rows] == 1])
        return value + n / np.where(y[rows] == 1, np.sum(y == 1), np.sum(y == 0)) * (wrong - value)

    cases = np.array(list(itertools.permutations(range(n), 2)))
    Z = X[cases[:, 0]]
    Z[:, 0] = X[cases[:, 1], 0]
    h = np.full((n, n), np.nan)
    h[cases[:, 0], cases[:, 1]] = pseudo(score(Z), cases[:, 0]) - pseudo(score(X), np.arange(n))[cases[:, 0]]
    h -= np.nanmean(h)
    psi = np.nanmean(h, axis=1) + np.nansum(h, axis=0) / (n - 1)
    return float(np.sqrt((n - 1) ** 2 / (n * (n - 2) ** 2) * np.var(psi, ddof=1)))


@pytest.mark.parametrize("positives", [2, 3, 15, 27])
def test_auc_counts_the_rarer_class(backend: Any, positives: int) -> None:
    """All pairs: u rows of the rarer class, t(u - 1) and u/(u - 1) of variance."""
    X, y = auc_data(30, positives, 0)
    found = rl.model_reliance(score, backend.asarray(X), backend.asarray(y), loss="auc", compare="difference", rng=0)
    u = min(positives, 30 - positives)
    expected = math.sqrt(u / (u - 1) * 29 / 30) * literal_auc_error(X, y)
    np.testing.assert_allclose(found.std_error[0], expected, rtol=max(backend.rtol, 1e-9))
    assert found.degrees_of_freedom.tolist() == [u - 1, u - 1]
    value, error = found.values[0], found.std_error[0]
    p = stats.t(u - 1).sf(value / error)
    np.testing.assert_allclose(found.test(adjust="none").p_value[0], p, rtol=1e-9)
    low, high = found._interval(0.95)[0]
    assert low <= value - stats.t(u - 1).ppf(0.975) * error * (1 - 1e-9)
    assert high >= value + stats.t(u - 1).ppf(0.975) * error * (1 - 1e-9)


@pytest.mark.parametrize("positives", [1, 49])
@pytest.mark.parametrize("method", [rl.permutation_importance, rl.ablation_importance, rl.model_reliance])
def test_one_row_of_a_class_has_no_interval(method: Any, positives: int) -> None:
    X, y = auc_data(50, positives, 0)
    found = method(score, X, y, loss="auc", compare="difference", rng=0)
    assert np.isfinite(found.values).all()
    for ask in (found.interval, found.test):
        with pytest.raises(ValueError, match="'auc' rests on too few rows: one class of y") as error:
            ask()
        assert len(str(error.value)) <= 300
    assert np.isnan(found.std_error).all()
    assert "-" in repr(found).splitlines()[2]
    if method is not rl.model_reliance:
        assert np.isfinite(found.interval(formulation="fixed-data")).all()
        with pytest.raises(ValueError, match=r"draws=rl.Until\(...\) watches .* rests on too few rows"):
            method(score, X, y, loss="auc", rng=0, draws=rl.Until())


def test_a_metric_of_ones_own_may_count_classes() -> None:
    from reliance.losses import functions as losses

    X, y = auc_data(40, 4, 0)
    mine = rl.Metric(losses.auc.value, losses.auc.influence, name="mine", target="class", by_class=True)
    ours, theirs = (rl.permutation_importance(score, X, y, loss=loss, rng=0) for loss in (mine, "auc"))
    np.testing.assert_array_equal(ours.std_error, theirs.std_error)
    np.testing.assert_array_equal(ours.degrees_of_freedom, theirs.degrees_of_freedom)


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("method", [rl.permutation_importance, rl.ablation_importance, rl.model_reliance])
def test_weights_count_as_many_rows_as_they_weigh(method: Any, compare: str) -> None:
    """Five rows that have all of the weight are five rows, whatever the donors; equal weights change nothing."""
    X, y = data(40)
    weights = np.full(40, 1e-9)
    weights[:5] = 1.0
    found = method(model, X, y, weights=weights, compare=compare, rng=0)
    np.testing.assert_allclose(found.degrees_of_freedom[:2], 4.0, rtol=1e-6)
    plain, equal = (method(model, X, y, weights=w, compare=compare, rng=0) for w in (None, np.full(40, 1e-3)))
    np.testing.assert_allclose(equal.std_error, plain.std_error, rtol=1e-10)
    np.testing.assert_allclose(equal.degrees_of_freedom, plain.degrees_of_freedom, rtol=1e-10)
    assert np.all(plain.degrees_of_freedom == 39)
    alone = np.full(40, 1e-9)
    alone[7] = 1.0
    found = method(model, X, y, weights=alone, compare=compare, rng=0)
    with pytest.raises(ValueError, match="nearly all of the weight, is on one row"):
        found.interval()


def test_conditional_importance_counts_them_too() -> None:
    """A rare class, heavy weights, and one row of a class."""
    X, y = auc_data(60, 4, 0)
    X[:, 1] += 0.5 * X[:, 0]
    by_set = rl.relative_importance(score, X, y, given={"none": [], "x1": [1]}, features=[0], loss="auc", rng=0)
    for name in by_set:
        assert by_set[name].degrees_of_freedom[0] <= 3.0
    X, y = data(60)
    weights = np.full(60, 1e-9)
    weights[:5] = 1.0
    found = rl.conditional_model_reliance(model, X, y, weights=weights, compare="difference", rng=0)
    assert np.all(found.degrees_of_freedom[:2] <= 4.0 + 1e-6)
    X, y = auc_data(60, 1, 0)
    alone = rl.conditional_model_reliance(score, X, y, loss="auc", compare="difference", rng=0)
    with pytest.raises(ValueError, match="rests on too few rows"):
        alone.interval()


def levels(n: int) -> np.ndarray:
    """A column of numbers, a rare one of two values, three levels, a mostly missing one, and halves of two values."""
    rng = np.random.default_rng(0)
    rare, three, mostly = np.zeros(n), np.zeros(n), np.full(n, 7.0)
    rare[rng.permutation(n)[:3]] = 1.0
    three[rng.permutation(n)[:4]] = [1.0, 1.0, 2.0, 2.0]
    mostly[rng.permutation(n)[:6]] = rng.normal(size=6)
    return np.stack([rng.normal(size=n), rare, three, mostly, np.arange(n) % 2.0], axis=1)


@pytest.mark.parametrize(("n", "route"), [(40, "plain"), (40, "auto"), (40, "distinct"), (400, "auto")])
def test_rows_with_a_rare_value_are_counted(backend: Any, n: int, route: str) -> None:
    X = levels(n)
    y = X.sum(axis=1) + np.random.default_rng(1).normal(size=n)
    names = ["number", "rare", "three", "mostly", "even"]
    features = {**{name: j for j, name in enumerate(names)}, "rare and three": [1, 2], "mostly and number": [3, 0]}
    model = (
        rl.models.Linear(backend.asarray(np.ones(5))) if route == "auto" else lambda X: X @ backend.asarray(np.ones(5))
    )
    options = {"features": {k: features[k] for k in names[1:]} if route == "distinct" else features}
    found = rl.model_reliance(
        model, backend.asarray(X), backend.asarray(y), names=names, compare="difference", route=route, **options
    )
    freedom = dict(zip(found.names, found.degrees_of_freedom, strict=True))
    other = len(set(np.flatnonzero(X[:, 1])) | set(np.flatnonzero(X[:, 2])))
    expected = {"number": n - 1, "rare": 3, "three": 4, "mostly": 6, "even": n / 2, "mostly and number": n - 1}
    expected["rare and three"] = other
    assert freedom == {name: expected[name] for name in freedom}


def test_a_rare_value_widens_the_error_of_the_jackknife() -> None:
    """u = 3 + 1 units: sqrt(u/(u - 1) (n - 1)/n) times the literal leave-one-out error."""
    X, n = levels(20), 20
    y = X.sum(axis=1) + np.random.default_rng(1).normal(size=n)
    found = rl.model_reliance(lambda X: X.sum(axis=1), X, y, features=[1], compare="difference", route="plain")
    D = np.empty((n, n))
    for i in range(n):
        for k in range(n):
            residual = y[i] - X[i].sum()
            D[i, k] = (residual + X[i, 1] - X[k, 1]) ** 2 - residual**2
    left = []
    for gone in range(n):
        kept = [j for j in range(n) if j != gone]
        left.append(np.mean([D[i, k] for i in kept for k in kept if i != k]))
    jackknife = math.sqrt((n - 1) / n * np.sum((left - np.mean(left)) ** 2))
    np.testing.assert_allclose(found.std_error[0], math.sqrt(4 / 3 * 19 / 20) * jackknife, rtol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Halves


def test_sorted_rows_cover_as_shuffled_ones_do() -> None:
    """Partners of one random ordering: pairs of sorted rows are no more alike, or unlike, than any."""
    truth, inside = 2.0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X = np.sort(rng.normal(size=(100, 1)), axis=0)
        y = X[:, 0] + rng.normal(size=100)
        found = rl.model_reliance(lambda X: X[:, 0], X, y, pairs="halves", compare="difference", rng=seed)
        low, high = found._interval(0.95)[0]
        inside += low <= truth <= high
    assert abs(inside / 300 - 0.95) < 0.04, inside / 300


# ---------------------------------------------------------------------------------------------------------------------
# In scikit-learn's place


def fitted(*coefficients: float) -> Any:
    linear_model = pytest.importorskip("sklearn.linear_model")
    found = linear_model.LinearRegression().fit(np.eye(len(coefficients)), np.zeros(len(coefficients)))
    found.coef_, found.intercept_ = np.array(coefficients), 0.0
    return found


def replace_permutation_importance(*arguments: Any, **options: Any) -> Any:
    from reliance.sklearn import permutation_importance

    return permutation_importance(*arguments, **options)


def test_intervals_of_some_rows_are_theirs_alone() -> None:
    """The interval is that of the permuted rows by themselves, while the importances are scikit-learn's."""
    inspection = pytest.importorskip("sklearn.inspection")
    estimator, (X, y) = fitted(*BETA), data(80)
    options = {"scoring": "neg_mean_squared_error", "n_repeats": 6, "random_state": 1}
    found = replace_permutation_importance(estimator, X, y, max_samples=0.5, **options)
    theirs = inspection.permutation_importance(estimator, X, y, max_samples=0.5, **options)
    np.testing.assert_allclose(found.importances, theirs.importances, rtol=1e-12, atol=1e-12)
    # Rows outside the sample move the importances, not the intervals.
    from sklearn.utils.random import sample_without_replacement

    seed = np.random.RandomState(1).randint(np.iinfo(np.int32).max + 1)
    outside = np.setdiff1d(np.arange(80), sample_without_replacement(80, 40, random_state=np.random.RandomState(seed)))
    moved = y.copy()
    moved[outside] += 3.0
    other = replace_permutation_importance(estimator, X, moved, max_samples=0.5, **options)
    np.testing.assert_array_equal(other.intervals, found.intervals)
    assert np.abs(other.importances_mean - found.importances_mean).min() > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_intervals_of_some_rows_cover(share: float) -> None:
    """Strong, weak and null: 2 b (b - the true b) and so on, over new rows; the weak one was missed most."""
    estimator, replicates, inside = fitted(1.0, 0.1, 0.2), 400, np.zeros(3)
    truth = np.array([2.0, 0.02, 0.0])  # 2 b cov(x, y) with y = x0 + 0.1 x1 + noise
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 3))
        y = X[:, 0] + 0.1 * X[:, 1] + rng.normal(size=200)
        options = {"scoring": "neg_mean_squared_error", "random_state": seed, "max_samples": share}
        low, high = dict.__getitem__(replace_permutation_importance(estimator, X, y, **options), "intervals").T
        inside += (low <= truth) & (truth <= high)
    assert np.all(np.abs(inside / replicates - 0.95) < 0.04), inside / replicates


def test_only_asking_for_an_interval_warns() -> None:
    import pickle

    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    X = np.stack([rng.lognormal(size=60), rng.uniform(size=60)], axis=1)
    options = {"scoring": "neg_mean_squared_error", "n_repeats": 20, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = replace_permutation_importance(fitted(1.0, 1.0), X, X.sum(axis=1), **options)
        assert found.skewed.tolist() == [True, False]
        assert found.importances_mean[0] > 0.0
        copied = pickle.loads(pickle.dumps(found))
    for one in (found, copied):
        for ask in (lambda one=one: one.intervals, lambda one=one: one["intervals"]):
            with pytest.warns(UserWarning, match="the losses of 'x0' are very skewed"):
                assert ask().shape == (2, 2)


@pytest.mark.parametrize("share", [0.01, 0.02, 1, 0.99 / 40])
def test_too_few_rows_of_a_share(share: Any) -> None:
    X, y = data(40)
    with pytest.raises(ValueError, match=r"max_samples=.* of 40 rows is [01]: pass at least 2 rows"):
        replace_permutation_importance(fitted(*BETA), X, y, max_samples=share)


# ---------------------------------------------------------------------------------------------------------------------
# Coverage where an error rests on few rows


def shares(draw: Any, truth: np.ndarray, replicates: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """How often the intervals of each feature hold the truth, and how often a default test rejects."""
    inside, rejected = np.zeros(len(truth)), np.zeros(len(truth))
    for seed in range(replicates):
        X, y, weights, predict = draw(np.random.default_rng(seed))
        found = rl.permutation_importance(predict, X, y, weights=weights, rng=seed, **options)
        low, high = found._interval(0.95).T
        inside += (low <= truth) & (truth <= high)
        rejected += found.test(adjust="none").p_value < 0.05
    print("covered", inside / replicates, "rejected", rejected / replicates)  # for the table, shown by pytest -rP
    return inside / replicates, rejected / replicates


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100, 200])
def test_auc_of_rare_positives_covers(n: int) -> None:
    """5% positives, at least 2: 67-92% were covered, and 9-17% of nulls rejected, when all n rows were counted."""

    def draw(rng: np.random.Generator) -> Any:
        y = np.zeros(n, dtype=np.int64)
        while y.sum() < 2:
            y = (rng.random(n) < 0.05).astype(np.int64)
        X = rng.normal(size=(n, 2))
        X[:, 0] += 1.5 * y
        return X, y, None, lambda X: X[:, 0] + 0.5 * X[:, 1]

    # The first feature is all that tells the classes apart: without it AUC is 1/2. With it: a million rows, ranked.
    rng = np.random.default_rng(1)
    y = rng.random(10**6) < 0.05
    noise = rng.normal(size=10**6) * math.sqrt(1.25)
    ranks = stats.rankdata(1.5 * y + noise)
    base = (ranks[y].mean() - (y.sum() + 1) / 2) / (10**6 - y.sum())
    inside, rejected = shares(draw, np.array([base - 0.5, 0.0]), 500, loss="auc")
    assert np.all(inside > 0.93), inside
    assert rejected[1] < 0.05 + 0.03, rejected


@pytest.mark.slow
@pytest.mark.parametrize(("n", "share"), [(50, 0.02), (50, 0.1), (200, 0.02)])
def test_rare_binary_features_cover(n: int, share: float) -> None:
    """Where the sample has the rare value at all: with none of it, the feature is not identified."""

    def draw(rng: np.random.Generator) -> Any:
        rare = np.zeros((n, 2))
        while not rare.any(axis=0).all():
            rare = (rng.random((n, 2)) < share).astype(np.float64)
        return rare, rare[:, 0] + rng.normal(size=n), None, lambda X: X[:, 0] + 0.5 * X[:, 1]

    inside, rejected = shares(draw, np.array([2 * share * (1 - share), 0.0]), 400)
    assert np.all(inside > 0.93), inside
    assert rejected[1] < 0.05 + 0.03, rejected


WEIGHTINGS = {
    "lognormal(1)": lambda rng, n: rng.lognormal(size=n),
    "lognormal(2)": lambda rng, n: rng.lognormal(sigma=2.0, size=n),
    "five rows": lambda rng, n: np.where(np.arange(n) < 5, 1.0, 1e-6),
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_heavy_weights_cover(weighting: str, n: int) -> None:
    """Down to 78% were covered when all n rows were counted. Five rows of squared errors are skewed, too."""

    def draw(rng: np.random.Generator) -> Any:
        X = rng.normal(size=(n, 2))
        weights = WEIGHTINGS[weighting](rng, n)
        while weights.sum() ** 2 / (weights**2).sum() < 1.6:
            weights = WEIGHTINGS[weighting](rng, n)
        return X, X[:, 0] + rng.normal(size=n), weights, lambda X: X[:, 0] + 0.4 * X[:, 1]

    inside, rejected = shares(draw, np.array([2.0, 0.0]), 400)
    assert np.all(inside > 0.90), inside
    assert rejected[1] < 0.10 + 0.03, rejected


def test_interactions_rest_on_as_many_rows_as_importances():
    """Counted by hand: the rarer class of an AUC, effective rows of weights, rows with a feature's rare value."""
    rng = np.random.default_rng(0)
    n = 60
    X = np.column_stack([rng.normal(size=(n, 2)), np.arange(n) < 7])
    w = rng.lognormal(size=n)

    def model(Z):
        return Z[:, 0] * Z[:, 1] + Z[:, 2]

    y = model(X) + rng.normal(size=n)
    plain = rl.interaction_importance(model, X, y, rng=0)
    assert plain.degrees_of_freedom.tolist() == [n - 1, 7, 7]
    weighed = rl.interaction_importance(model, X, y, weights=w, features=[0, 1], rng=0)
    np.testing.assert_allclose(weighed.degrees_of_freedom, [w.sum() ** 2 / np.sum(w**2) - 1], rtol=1e-12)
    label = np.arange(n) % 12 == 0
    by_class = rl.interaction_importance(model, X, label, loss="auc", features=[0, 1], rng=0)
    assert by_class.degrees_of_freedom.tolist() == [4]
    low, high = by_class.interval()[0]
    assert high - low >= 2 * 2.776 * by_class.std_error[0]  # the t quantile of four degrees of freedom, and the hull
