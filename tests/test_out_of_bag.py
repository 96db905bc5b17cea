"""Out-of-bag importance against literal loops over trees, rows and features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import reliance as rl
from conftest import Backend
from reliance.refit.bag_pairs import shifted

sklearn_ensemble = pytest.importorskip("sklearn.ensemble")


def make_data(n: int = 120, p: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] = rng.integers(0, 3, size=n)
    return X, 2.0 * X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def squared(y: Any, prediction: Any) -> Any:
    return (y - prediction) ** 2


def literal(
    forest: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    key: int = 0,
    draws: int = 1,
    groups: Any = None,
    loss: Any = squared,
    answer: Any = lambda t, tree, rows: tree.predict(rows),
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """(p, trees): permute within each tree's own rows, predict, compare."""
    groups = [[j] for j in range(X.shape[1])] if groups is None else groups
    weights = np.ones(len(X)) if weights is None else weights
    found = []
    for t, (tree, samples) in enumerate(zip(forest.estimators_, forest.estimators_samples_, strict=True)):
        rows = np.array([i for i in range(len(X)) if i not in set(np.asarray(samples).tolist())])
        donors = rows[shifted(key, len(rows), t, draws)]
        base = loss(y[rows], answer(t, tree, X[rows]))
        line = []
        for columns in groups:
            change = 0.0
            for k in range(draws):
                replaced = X[rows].copy()
                replaced[:, columns] = X[donors[:, k]][:, columns]
                D = loss(y[rows], answer(t, tree, replaced)) - base
                change += np.sum(weights[rows] * D) / np.sum(weights[rows]) / draws
            line.append(change)
        found.append(line)
    return np.array(found).T


def check(result: Any, trees: np.ndarray) -> None:
    np.testing.assert_allclose(result.tree_values, trees, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.values, trees.mean(axis=1), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# The estimate


@pytest.mark.parametrize("kind", ["RandomForestRegressor", "ExtraTreesRegressor"])
@pytest.mark.parametrize("draws", [1, 3])
def test_forest_equals_the_literal_loop(kind: str, draws: int) -> None:
    X, y = make_data()
    forest = getattr(sklearn_ensemble, kind)(12, bootstrap=True, random_state=0).fit(X, y)
    groups = [[0], [1], [2], [0, 3], [4]]
    result = rl.out_of_bag_importance(forest, X, y, draws=draws, features=[0, 1, 2, (0, 3), 4], rng=0)
    check(result, literal(forest, X, y, draws=draws, groups=groups))


def test_shifts_move_every_row_within_its_tree() -> None:
    donors = shifted(3, 7, 2, 6)
    assert all(sorted(column) == list(range(7)) for column in donors.T)
    assert sorted(donors[0]) == [1, 2, 3, 4, 5, 6]  # all draws are all the others
    assert all(i not in donors[i] for i in range(7))


def test_several_outputs_missing_values_and_many_columns() -> None:
    X, y = make_data(n=150, p=70)
    X[::7, 0] = np.nan
    X[::5, 65] = np.nan
    Y = np.stack([y, X[:, 66] + y**2], axis=1)
    forest = sklearn_ensemble.RandomForestRegressor(10, random_state=1).fit(X, Y)
    with pytest.warns(UserWarning, match="NaN"):
        result = rl.out_of_bag_importance(forest, X, Y, rng=5)
    check(result, literal(forest, X, Y, key=5, loss=lambda y, f: np.mean((y - f) ** 2, axis=1)))


def test_classes() -> None:
    X, y = make_data()
    labels = np.array(["ant", "bee", "cat"])[np.digitize(y, [-0.5, 1.5])]
    forest = sklearn_ensemble.RandomForestClassifier(12, min_samples_leaf=4, random_state=0).fit(X, labels)
    result = rl.out_of_bag_importance(forest, X, labels, loss=["zero_one", "log_loss"], rng=0)
    codes = np.searchsorted(forest.classes_, labels)

    def shares(t: int, tree: Any, rows: np.ndarray) -> np.ndarray:
        return tree.predict_proba(rows)

    def log_loss(y: np.ndarray, f: np.ndarray) -> np.ndarray:
        eps = np.finfo(float).eps
        return -np.log(np.clip(f[np.arange(len(y)), y], eps, 1 - eps))

    check(result["log_loss"], literal(forest, X, codes, loss=log_loss, answer=shares))
    wrong = literal(forest, X, codes, loss=lambda y, f: (y != f.argmax(1)) * 1.0, answer=shares)
    check(result["zero_one"], wrong)
    check(rl.out_of_bag_importance(forest, X, labels, loss="zero_one", rng=0), wrong)


def test_bagging_of_any_estimator_on_some_features() -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.tree import DecisionTreeRegressor

    X, y = make_data()
    for base in (LinearRegression(), DecisionTreeRegressor(max_depth=4)):
        bag = sklearn_ensemble.BaggingRegressor(
            base, 8, max_features=3, max_samples=0.6, bootstrap=False, random_state=0
        ).fit(X, y)

        def answer(t: int, member: Any, rows: np.ndarray, bag: Any = bag) -> np.ndarray:
            return member.predict(rows[:, bag.estimators_features_[t]])

        result = rl.out_of_bag_importance(bag, X, y, loss="absolute_error", rng=2)
        check(result, literal(bag, X, y, key=2, loss=lambda y, f: np.abs(y - f), answer=answer))
        assert result.evaluations[4] < 8 * 48  # members without a feature are not asked


def test_bagging_of_classifiers_that_saw_some_classes_only() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    X, y = make_data()
    labels = np.where(y > np.sort(y)[-4], 30, np.where(y > 0, 20, 10))
    bag = sklearn_ensemble.BaggingClassifier(KNeighborsClassifier(5), 6, max_samples=0.3, random_state=3)
    bag.fit(X, labels)
    assert any(len(member.classes_) < 3 for member in bag.estimators_)

    def labelled(t: int, member: Any, rows: np.ndarray) -> np.ndarray:
        return bag.classes_[member.predict(rows)]

    result = rl.out_of_bag_importance(bag, X, labels, loss="zero_one", rng=0)
    check(result, literal(bag, X, labels, loss=lambda y, f: (y != f) * 1.0, answer=labelled))
    shares = rl.out_of_bag_importance(bag, X, labels, loss="log_loss", rng=0)

    def spread(t: int, member: Any, rows: np.ndarray) -> np.ndarray:
        full = np.zeros((len(rows), 3))
        for place, code in enumerate(member.classes_):
            full[:, code] = member.predict_proba(rows)[:, place]
        return full

    def log_loss(y: np.ndarray, f: np.ndarray) -> np.ndarray:
        eps, at = np.finfo(float).eps, np.searchsorted([10, 20, 30], y)
        return -np.log(np.clip(f[np.arange(len(y)), at], eps, 1 - eps))

    check(shares, literal(bag, X, labels, loss=log_loss, answer=spread))


class HandMade:
    """Bagged nearest means, without scikit-learn: integers in, labels out."""

    def __init__(self, X: np.ndarray, y: np.ndarray, members: int) -> None:
        rng = np.random.default_rng(0)
        self.classes_ = np.unique(y)
        self.estimators_samples_ = [rng.integers(0, len(X), size=len(X)) for _ in range(members)]
        self.estimators_ = [NearestMean(X[rows], y[rows]) for rows in self.estimators_samples_]

    def predict(self, X: np.ndarray) -> np.ndarray:
        raise AssertionError("the members are asked, one by one")


class NearestMean:
    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.classes_ = np.unique(y)
        self.means = np.array([X[y == label].mean(axis=0) for label in self.classes_])

    def predict(self, X: np.ndarray) -> np.ndarray:
        assert X.dtype == np.int64
        return self.classes_[np.argmin(((X[:, None, :] - self.means) ** 2).sum(axis=2), axis=1)]


def test_hand_made_bag_of_integers() -> None:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 9, size=(80, 3))
    y = np.where(X[:, 0] > 4, "high", "low")
    bag = HandMade(X, y, 7)
    result = rl.out_of_bag_importance(bag, X, y, loss="zero_one", draws=2, rng=0)
    check(result, literal(bag, X, y, draws=2, loss=lambda y, f: (y != f) * 1.0))


def test_weights_losses_and_kept_rows() -> None:
    X, y = make_data()
    v = np.random.default_rng(0).uniform(0.0, 2.0, size=len(X))
    forest = sklearn_ensemble.RandomForestRegressor(9, random_state=0).fit(X, y)

    def cubic(y: Any, f: Any) -> Any:
        return abs(y - f) ** 3

    result = rl.out_of_bag_importance(forest, X, y, loss=[cubic, "huber"], weights=v, rng=0, keep="rows")
    assert list(result) == ["cubic", "huber"]
    check(result["cubic"], literal(forest, X, y, loss=cubic, weights=v))
    np.testing.assert_allclose(result["cubic"].row_values.mean(axis=1), result["cubic"].values, rtol=1e-12, atol=1e-12)
    base = [
        np.average(cubic(y, tree.predict(X))[rows], weights=v[rows])
        for tree, samples in zip(forest.estimators_, forest.estimators_samples_, strict=True)
        for rows in [np.setdiff1d(np.arange(len(X)), samples)]
    ]
    np.testing.assert_allclose(result["cubic"].base_risk, np.mean(base), rtol=1e-12)


def test_only_what_can_change_is_evaluated() -> None:
    X, y = make_data()
    forest = sklearn_ensemble.RandomForestRegressor(10, max_depth=3, random_state=0).fit(X[:, :3], y)
    wide = np.concatenate([X[:, :3], X[:, 3:]], axis=1)
    result = rl.out_of_bag_importance(forest, X[:, :3], y, rng=0)
    rows = sum(len(set(range(120)) - set(samples.tolist())) for samples in forest.estimators_samples_)
    assert result.evaluations.max() < rows
    idle = sklearn_ensemble.RandomForestRegressor(10, max_depth=1, random_state=0).fit(wide, y)
    unused = rl.out_of_bag_importance(idle, wide, y, rng=0)
    assert unused.routes[4] == "unused"
    assert unused.interval()[4].tolist() == [0.0, 0.0]
    assert unused.test().p_value[4] == 1.0


# ---------------------------------------------------------------------------------------------------------------------
# The errors


def literal_error(forest: Any, X: np.ndarray, y: np.ndarray, j: int, draws: int) -> tuple[float, float, float]:
    """As it is written in `bag_inference`, pair by pair: the variance, that over the draws, and N."""
    n, trees = len(X), len(forest.estimators_)
    psi, noise, over_draws, sizes = np.zeros(n), 0.0, 0.0, []
    for t, (tree, samples) in enumerate(zip(forest.estimators_, forest.estimators_samples_, strict=True)):
        rows = np.setdiff1d(np.arange(n), samples)
        donors = rows[shifted(0, len(rows), t, draws)]
        w = 1.0 / (trees * len(rows))
        D = np.empty(donors.shape)
        for k in range(draws):
            replaced = X[rows].copy()
            replaced[:, j] = X[donors[:, k], j]
            D[:, k] = squared(y[rows], tree.predict(replaced)) - squared(y[rows], tree.predict(X[rows]))
        theta = D.mean()
        for a, i in enumerate(rows):
            for k in range(draws):
                psi[i] += w * (D[a, k] - theta) / draws
                psi[donors[a, k]] += w * (D[a, k] - theta) / draws
                noise += (w / draws * (D[a, k] - theta)) ** 2
        if draws > 1:
            spread = D.mean(axis=0).var(ddof=1) / draws
            over_draws += spread * (1 - draws / (len(rows) - 1)) / trees**2
        sizes.append(len(rows))
    m = np.mean(sizes)
    return m * (m - 1) / (m - 2) ** 2 * np.sum(psi**2), over_draws, noise


@pytest.mark.parametrize("draws", [1, 2])
def test_errors_equal_the_literal_sums(draws: int) -> None:
    X, y = make_data(n=40, p=3)
    forest = sklearn_ensemble.RandomForestRegressor(6, random_state=0).fit(X, y)
    result = rl.out_of_bag_importance(forest, X, y, draws=draws, rng=0)
    for j in (0, 2):
        variance, over_draws, noise = literal_error(forest, X, y, j, draws)
        np.testing.assert_allclose(result.std_error[j], np.sqrt(variance), rtol=1e-9)
        np.testing.assert_allclose(result.random_variable_error[j], np.sqrt(noise), rtol=1e-9)
        if draws > 1:
            np.testing.assert_allclose(result.fixed_data_error[j], np.sqrt(over_draws), rtol=1e-9)
            assert result.interval(formulation="fixed-data").shape == (3, 2)


def test_z_scores_are_those_of_the_trees_and_warn() -> None:
    X, y = make_data()
    forest = sklearn_ensemble.RandomForestRegressor(30, random_state=0).fit(X, y)
    result = rl.out_of_bag_importance(forest, X, y, rng=0).ranked()
    with pytest.warns(UserWarning, match="grow with the number of trees"):
        scores = result.z_scores()
    trees = result.tree_values
    np.testing.assert_allclose(scores, trees.mean(axis=1) / (trees.std(axis=1, ddof=1) / np.sqrt(30)))
    other = rl.permutation_importance(forest, X, y, draws=3, rng=0)
    with pytest.raises(ValueError, match="use out_of_bag_importance"):
        other.z_scores()


def test_result_is_saved_and_tests_for_one_draw_are_refused(tmp_path: Any) -> None:
    X, y = make_data()
    forest = sklearn_ensemble.RandomForestRegressor(10, random_state=0).fit(X, y)
    result = rl.out_of_bag_importance(forest, X, y, rng=0, keep="rows")
    for name in ("a.json", "a.npz"):
        result.save(tmp_path / name)
        np.testing.assert_array_equal(rl.load(tmp_path / name).tree_values, result.tree_values)
    with pytest.raises(ValueError, match="one draw per row"):
        result.test(method="wilcoxon")
    assert "out_of_bag_importance" in repr(result)


def test_same_seed_same_numbers_whatever_the_block_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_data()
    forest = sklearn_ensemble.RandomForestRegressor(10, random_state=0).fit(X, y)
    once = rl.out_of_bag_importance(forest, X, y, rng=7)
    monkeypatch.setattr("reliance.refit.out_of_bag._MOST_USES", {True: 300, False: 300})
    calls: list[tuple[int, int]] = []
    again = rl.out_of_bag_importance(
        forest, X, y, rng=7, run=rl.Run(block=50, memory=100_000), progress=lambda *done: calls.append(done)
    )
    np.testing.assert_allclose(again.tree_values, once.tree_values, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(again.std_error, once.std_error, rtol=1e-10)
    assert calls[-1][0] == calls[-1][1]


def coverage(n: int, trees: int, replicates: int, stream: int) -> np.ndarray:
    """How often the 95% interval holds its target, the mean change over the given trees on new rows: of two effects,
    a feature without effect, and one that is only correlated with the first. Squared error, fully grown trees.
    """
    covered = []
    for seed in range(replicates):
        rng = np.random.default_rng([seed, stream])
        X, new = rng.normal(size=(n, 4)), rng.normal(size=(3000, 4))
        X[:, 3], new[:, 3] = (0.6 * Z[:, 0] + 0.8 * Z[:, 3] for Z in (X, new))
        y, label = (2 * Z[:, 0] + Z[:, 1] + rng.normal(size=len(Z)) for Z in (X, new))
        forest = sklearn_ensemble.RandomForestRegressor(trees, random_state=seed).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ends = rl.out_of_bag_importance(forest, X, y, rng=seed).interval()
        target = np.zeros(4)
        for tree in forest.estimators_:
            base = np.mean(squared(label, tree.predict(new)))
            for j in range(4):
                replaced = new.copy()
                replaced[:, j] = np.roll(new[:, j], 1)
                target[j] += np.mean(squared(label, tree.predict(replaced))) - base
        target /= len(forest.estimators_)
        covered.append((ends[:, 0] <= target) & (target <= ends[:, 1]))
    return np.asarray(np.mean(covered, axis=0))


@pytest.mark.slow
def test_coverage_of_these_trees_on_new_rows() -> None:
    replicates = 120
    share = coverage(150, 50, replicates, 5)
    assert np.all(share > 0.95 - 3 * np.sqrt(0.05 * 0.95 / replicates)), share


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = make_data()
    return sklearn_ensemble.RandomForestRegressor(5, random_state=0).fit(X, y), X, y


def test_forests_that_cannot_be_measured(fitted: Any) -> None:
    _, X, y = fitted
    with pytest.raises(ValueError, match="is not fitted: call its fit"):
        rl.out_of_bag_importance(sklearn_ensemble.RandomForestRegressor(), X, y)
    whole = sklearn_ensemble.ExtraTreesRegressor(3).fit(X, y)
    with pytest.raises(ValueError, match=r"left no rows out of its bags.*bootstrap=True"):
        rl.out_of_bag_importance(whole, X, y)
    boosted = sklearn_ensemble.GradientBoostingRegressor(n_estimators=3).fit(X, y)
    for other in (boosted, lambda X: X[:, 0]):
        with pytest.raises(TypeError, match="does not say which rows"):
            rl.out_of_bag_importance(other, X, y)


def test_data_that_the_forest_was_not_fitted_on(fitted: Any) -> None:
    forest, X, y = fitted
    with pytest.raises(ValueError, match=r"X has 119 rows but .* was fitted on 120"):
        rl.out_of_bag_importance(forest, X[:-1], y[:-1])
    with pytest.raises(ValueError, match="fitted on 5 features"):
        rl.out_of_bag_importance(forest, X[:, :4], y)
    with pytest.raises(ValueError, match=r"X is not what .* do not fall into the leaves"):
        rl.out_of_bag_importance(forest, X[::-1].copy(), y)
    with pytest.raises(ValueError, match=r"y is not what .* at its root"):
        rl.out_of_bag_importance(forest, X, y[::-1].copy())
    labels = (y > 0.5).astype(int)
    classifier = sklearn_ensemble.RandomForestClassifier(5, random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match="y is not what"):
        rl.out_of_bag_importance(classifier, X, labels[::-1].copy(), loss="zero_one")


def test_weights_of_the_fit_are_no_sign_of_other_labels(fitted: Any) -> None:
    _, X, y = fitted
    v = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    labels = (y > 0.5).astype(int)
    forest = sklearn_ensemble.RandomForestRegressor(5, random_state=0).fit(X, y, sample_weight=v)
    rl.out_of_bag_importance(forest, X, y, rng=0)
    for weight in ("balanced", "balanced_subsample", {0: 2.0, 1: 0.5}):
        forest = sklearn_ensemble.RandomForestClassifier(5, class_weight=weight, random_state=0).fit(X, labels)
        rl.out_of_bag_importance(forest, X, labels, loss="zero_one", rng=0)


def test_losses_that_need_something_else(fitted: Any) -> None:
    forest, X, y = fitted
    with pytest.raises(ValueError, match="'r2' is a metric of all rows together"):
        rl.out_of_bag_importance(forest, X, y, loss="r2")
    with pytest.raises(ValueError, match="draws=0"):
        rl.out_of_bag_importance(forest, X, y, draws=0)
    with pytest.raises(TypeError, match="has no predict_proba"):
        rl.out_of_bag_importance(forest, X, y > 0, loss="log_loss")
    from sklearn.svm import LinearSVC

    bag = sklearn_ensemble.BaggingClassifier(LinearSVC(), 3, random_state=0).fit(X, y > 0)
    with pytest.raises(TypeError, match=r"members of .* have no predict_proba"):
        rl.out_of_bag_importance(bag, X, y > 0, loss="log_loss")
    rl.out_of_bag_importance(bag, X, y > 0, loss="zero_one", rng=0)


def test_members_with_too_few_rows_left_out_are_named() -> None:
    X, y = make_data(n=40)
    from sklearn.tree import DecisionTreeRegressor

    bag = sklearn_ensemble.BaggingRegressor(n_estimators=3, random_state=0).fit(X, y)

    class Ensemble:
        estimators_ = [*bag.estimators_, DecisionTreeRegressor().fit(X, y)]
        estimators_samples_ = [*bag.estimators_samples_, np.arange(40)]

        def predict(self, X: np.ndarray) -> np.ndarray:
            return bag.predict(X)

    with pytest.warns(UserWarning, match="1 of 4 members left fewer than 2 rows"):
        result = rl.out_of_bag_importance(Ensemble(), X, y, rng=0)
    assert result.tree_values.shape == (5, 3)


@pytest.mark.once_per_device
def test_rows_on_a_device_are_refused(backend: Backend, fitted: Any) -> None:
    forest, X, y = fitted
    if backend.kind == "numpy":
        rl.out_of_bag_importance(forest, backend.asarray(X), backend.asarray(y), rng=0)
        return
    with pytest.raises(TypeError, match="called on the host: pass X, y and weights as NumPy arrays"):
        rl.out_of_bag_importance(forest, backend.asarray(X), backend.asarray(y))


if __name__ == "__main__":  # python tests/test_out_of_bag.py: the table of docs/more_methods.md
    for n, trees, replicates in ((150, 50, 300), (150, 100, 300), (400, 100, 200)):
        print(
            f"n = {n}, {trees} trees, {replicates} replicates: {coverage(n, trees, replicates, 77).round(3)}",
            flush=True,
        )
