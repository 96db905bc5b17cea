"""In scikit-learn's place: its own tests, its own numbers, and intervals."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn import inspection, linear_model, metrics  # noqa: E402
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

import reliance as rl  # noqa: E402
from reliance.sklearn import permutation_importance  # noqa: E402

HERE = Path(__file__).parent
N = 60


def data(classes: int = 0, text: bool = False) -> tuple[np.ndarray, Any]:
    rng = np.random.default_rng(classes)
    X = rng.normal(size=(N, 4))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=N)
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
        y = np.array(["ant", "bee", "cat"])[y] if text else y
    return X, y


def assert_same(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    """Our numbers and scikit-learn's, for the same seed."""
    options = {"n_repeats": 4, "random_state": 3, **options}
    theirs = inspection.permutation_importance(estimator, X, y, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours = permutation_importance(estimator, X, y, **options)
    if not isinstance(theirs, sklearn.utils.Bunch):
        assert ours.keys() == theirs.keys()
    for mine, other in (
        [(ours, theirs)] if isinstance(theirs, sklearn.utils.Bunch) else [(ours[k], theirs[k]) for k in theirs]
    ):
        for name in ("importances", "importances_mean", "importances_std"):
            np.testing.assert_allclose(mine[name], other[name], rtol=1e-12, atol=1e-12)
        assert dict(mine)["intervals"].shape == (mine.importances.shape[0], 2)
        assert len(mine.names) == mine.importances.shape[0]
    return ours


@pytest.mark.slow
def test_its_own_tests_pass_with_ours_in_its_place() -> None:
    module = "sklearn.inspection.tests.test_permutation_importance"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sklearn_in_place", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", "-c", os.devnull, "--rootdir", str(HERE), "--pyargs", module]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "failed" not in done.stdout.splitlines()[-1]


def test_the_signature_is_theirs() -> None:
    ours, theirs = (
        inspect.signature(f).parameters for f in (permutation_importance, inspection.permutation_importance)
    )
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]
    assert [p.kind for p in ours.values()] == [p.kind for p in theirs.values()]


REGRESSION = (
    None,
    "r2",
    "neg_mean_squared_error",
    "neg_mean_absolute_error",
    "neg_root_mean_squared_error",
    "neg_median_absolute_error",
    "neg_max_error",
    "explained_variance",
    "d2_absolute_error_score",
)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scoring", REGRESSION)
def test_regression_scorers(scoring: Any, weighted: bool) -> None:
    X, y = data()
    if weighted and scoring == "neg_max_error":
        pytest.skip("max_error takes no weights, in scikit-learn either")
    weights = np.linspace(0.1, 2.0, N) if weighted else None
    model = linear_model.LinearRegression().fit(X, y)
    assert_same(model, X, y, scoring=scoring, sample_weight=weights)


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
@pytest.mark.parametrize(
    ("classes", "scoring"),
    [
        (2, None),
        (2, "accuracy"),
        (2, "roc_auc"),
        (2, "neg_log_loss"),
        (2, "neg_brier_score"),
        (2, "average_precision"),
        (3, "accuracy"),
        (3, "balanced_accuracy"),
        (3, "f1_macro"),
        (3, "neg_log_loss"),
        (3, "roc_auc_ovr"),
    ],
)
def test_classification_scorers(classes: int, scoring: Any, text: bool) -> None:
    X, y = data(classes, text)
    if scoring in ("average_precision", "neg_brier_score") and text:
        pytest.skip("needs a positive label, in scikit-learn too")
    model = make_pipeline(StandardScaler(), linear_model.LogisticRegression()).fit(X, y)
    assert_same(model, X, y, scoring=scoring)
    assert_same(model, X, y, scoring=scoring, sample_weight=np.linspace(0.1, 2.0, N))


@pytest.mark.parametrize("max_samples", [0.4, 17])
def test_fewer_rows(max_samples: Any) -> None:
    X, y = data()
    assert_same(linear_model.Ridge().fit(X, y), X, y, max_samples=max_samples, sample_weight=np.linspace(0.1, 2.0, N))
    assert_same(linear_model.Ridge().fit(X, y), X, y, max_samples=max_samples, scoring="neg_max_error")


def test_several_scorers_share_one_evaluation() -> None:
    X, y = data(2)
    model = CountingForest(5, random_state=0).fit(X, y)
    scoring = ["accuracy", "balanced_accuracy", "f1", "roc_auc"]
    found = assert_same(model, X, y, scoring=scoring)
    assert list(found) == scoring
    model.rows = 0
    permutation_importance(model, X, y, scoring=["balanced_accuracy", "f1"], n_repeats=4)
    # The base pass, its rows once more in a batch of 127, and each repeat of each column, once for both.
    assert model.rows == N + 127 + 4 * 4 * N


class CountingForest(RandomForestClassifier):
    rows = 0

    def predict(self, X: Any) -> Any:
        self.rows += len(X)
        return super().predict(X)


def test_scorers_of_ones_own() -> None:
    X, y = data()
    model = linear_model.LinearRegression().fit(X, y)
    assert_same(model, X, y, scoring=lambda estimator, X, y: -float(np.ptp(estimator.predict(X) - y) + X[:, 0].max()))
    assert_same(model, X, y, scoring={"own": metrics.make_scorer(metrics.d2_pinball_score, alpha=0.3), "r2": "r2"})
    assert_same(model, X, y, scoring=lambda e, X, y: {"a": e.score(X, y), "b": -float(np.abs(e.predict(X)).max())})
    with pytest.raises(TypeError):
        permutation_importance(model, X, y, scoring=lambda e, X, y: 1.0, sample_weight=np.ones(N))


def test_estimators_with_a_score_of_their_own() -> None:
    X, y = data(2)
    search = GridSearchCV(linear_model.LogisticRegression(), {"C": [0.1, 1.0]}, scoring="neg_log_loss", cv=2).fit(X, y)
    assert_same(search, X, y)
    assert_same(RandomForestRegressor(4, random_state=0).fit(X, np.c_[y, X[:, 0]]), X, np.c_[y, X[:, 0]])


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.slow
def test_tables_of_mixed_types(n_jobs: int) -> None:
    pd = pytest.importorskip("pandas")
    X, y = data(3, text=True)
    frame = pd.DataFrame(X[:, :2], columns=["age", "size"], index=np.arange(N) + 7)
    frame["city"] = np.random.default_rng(0).choice(["Rome", "Oslo"], size=N)
    frame["kind"] = pd.Categorical(np.random.default_rng(1).choice(["a", "b", "c"], size=N))
    columns = sklearn.compose.make_column_transformer((OneHotEncoder(), ["city", "kind"]), remainder="passthrough")
    model = make_pipeline(columns, linear_model.LogisticRegression(max_iter=1000)).fit(frame, y)
    found = assert_same(model, frame, pd.Series(y, index=frame.index), n_jobs=n_jobs)
    assert found.names.tolist() == ["age", "size", "city", "kind"]


def test_a_polars_table_keeps_its_names() -> None:
    pl = pytest.importorskip("polars")
    X, y = data()
    table = pl.DataFrame(X, schema=["a", "b", "c", "d"])
    model = linear_model.LinearRegression().fit(table, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns of missing names
        found = permutation_importance(model, table, y, random_state=0)
    assert found.names.tolist() == ["a", "b", "c", "d"]
    plain = inspection.permutation_importance(linear_model.LinearRegression().fit(X, y), X, y, random_state=0)
    np.testing.assert_allclose(found.importances, plain.importances, rtol=1e-12, atol=1e-12)


def test_arrays_of_text_and_objects() -> None:
    rng = np.random.default_rng(0)
    X = rng.choice(["red", "green", "blue"], size=(N, 3))
    y = (X[:, 0] == "red") + 0.1 * rng.normal(size=N)
    model = make_pipeline(OneHotEncoder(), linear_model.Ridge()).fit(X, y)
    assert_same(model, X, y)
    mixed = X.astype(object)
    mixed[:, 1] = rng.integers(0, 3, size=N)
    assert_same(make_pipeline(OneHotEncoder(), linear_model.Ridge()).fit(mixed, y), mixed, y)


def test_intervals_are_those_of_the_engine() -> None:
    """Independent permutations: near the interval of as many shifts, and around the mean."""
    X, y = data()
    model = linear_model.LinearRegression().fit(X, y)
    found = permutation_importance(model, X, y, scoring="neg_mean_squared_error", n_repeats=40, random_state=0)
    shifts = rl.permutation_importance(model, X, y, draws=40, rng=0).interval()
    assert np.all(found.intervals[:, 0] <= found.importances_mean)
    assert np.all(found.importances_mean <= found.intervals[:, 1])
    np.testing.assert_allclose(np.diff(found.intervals)[:2], np.diff(shifts)[:2], rtol=0.3)
    no_rows = permutation_importance(model, X, y, scoring="neg_max_error", random_state=0)
    assert np.isnan(no_rows.intervals).all()


@pytest.mark.slow
@pytest.mark.parametrize(("scoring", "truth"), [("neg_mean_squared_error", 2.0), ("neg_mean_absolute_error", None)])
def test_intervals_cover(scoring: str, truth: float | None) -> None:
    """A given linear model, new rows: 2 b^2 Var x for squared error; by a large sample for absolute error."""
    model = linear_model.LinearRegression().fit(np.eye(2), [1.0, 0.0])
    model.coef_, model.intercept_ = np.array([1.0, 0.0]), 0.0
    if truth is None:
        noise = 0.5
        truth = np.sqrt(2 / np.pi) * (np.sqrt(2 + noise**2) - noise)
    replicates, inside = 600, 0
    for k in range(replicates):
        rng = np.random.default_rng(k)
        X = rng.normal(size=(100, 2))
        y = X[:, 0] + 0.5 * rng.normal(size=100)
        low, high = permutation_importance(model, X, y, scoring=scoring, n_repeats=5, random_state=k).intervals[0]
        inside += low <= truth <= high
    assert abs(inside / replicates - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / replicates)


def test_bad_input() -> None:
    X, y = data()
    model = linear_model.LinearRegression().fit(X, y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        permutation_importance(model, __import__("scipy.sparse").sparse.csr_matrix(X), y)
    with pytest.raises(ValueError, match=r"max_samples=1.5: pass a number of rows, or a share in \(0, 1\]"):
        permutation_importance(model, X, y, max_samples=1.5)
    with pytest.raises(ValueError, match="n_repeats=0: pass how many times"):
        permutation_importance(model, X, y, n_repeats=0)
    with pytest.raises(ValueError, match="nonsense"):
        permutation_importance(model, X, y, scoring="nonsense")


def test_threads_have_a_replay_of_their_own() -> None:
    """Many threads and many repeats: the permutations of one must not move on while another reads them."""
    from joblib import parallel_backend

    X, y = data()
    model = linear_model.LinearRegression().fit(X, y)
    alone = inspection.permutation_importance(model, X, y, n_repeats=60, random_state=0)
    for _ in range(5):
        with parallel_backend("threading"):
            shared = permutation_importance(model, X, y, n_repeats=60, random_state=0, n_jobs=4)
        np.testing.assert_allclose(shared.importances, alone.importances, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("max_samples", [1.0, 0.5])
def test_estimators_without_labels(max_samples) -> None:
    """A density scores rows alone; scikit-learn's own function takes it for all rows only."""
    from sklearn.mixture import GaussianMixture

    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:30, 0] += 4.0
    model = GaussianMixture(2, random_state=0).fit(rows)
    found = permutation_importance(model, rows, None, random_state=0, max_samples=max_samples)
    assert found.importances.shape == (3, 5)
    if max_samples == 1.0:
        expected = inspection.permutation_importance(model, rows, None, random_state=0).importances
        np.testing.assert_allclose(found.importances, expected, rtol=1e-10)
