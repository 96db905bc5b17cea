"""Importances under permuted labels: literal refits, fitted nulls, uniform p-values, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from conftest import Backend
from reliance._core import arrays

N, P = 50, 3


def data(seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(N, P))
    return X, X[:, 0] + 0.5 * X[:, 1] + generator.normal(size=N)


X, Y = data()


def fit_linear(X, y):
    coef = np.linalg.lstsq(X, y)[0]

    def model(X):
        return X @ coef

    model.coef = coef
    return model


def sizes(model, X, y):
    return np.abs(model.coef)


def null(fit=fit_linear, X=X, y=Y, **options):
    return rl.null_importance(fit, X, y, **{"rounds": 9, "rng": 0, "importance": sizes, **options})


@pytest.fixture
def result():
    return null(rounds=19)


def test_each_round_is_a_refit_on_permuted_labels():
    labels = []

    def fit(A, b):
        np.testing.assert_array_equal(A, X)
        labels.append(b.copy())
        return fit_linear(A, b)

    result = null(fit)
    np.testing.assert_array_equal(labels[0], Y)
    assert len({tuple(b) for b in labels}) == 10
    for r, b in enumerate(labels[1:]):
        np.testing.assert_array_equal(np.sort(b), np.sort(Y))
        np.testing.assert_allclose(result.null[:, r], np.abs(np.linalg.lstsq(X, b)[0]), rtol=1e-10)
    np.testing.assert_allclose(result.values, np.abs(np.linalg.lstsq(X, Y)[0]), rtol=1e-10)
    assert result.rounds == 9


def test_by_default_permutation_importance_of_the_rows_that_were_fitted():
    labels = []

    def fit(A, b):
        labels.append(b.copy())
        return fit_linear(A, b)

    options = {"draws": 3, "loss": "absolute_error", "compare": "ratio", "features": [(0, 2), 1]}
    result = null(fit, importance="permutation_importance", rounds=2, **options)
    for values, b in zip([result.values, *result.null.T], labels, strict=True):
        expected = rl.permutation_importance(fit_linear(X, b), X, b, rng=0, **options)
        np.testing.assert_array_equal(values, expected.values)
    assert result.names == ("x0+x2", "x1")


def test_empirical_p_values(result):
    p = result.test(adjust="none").p_value
    for j in range(P):
        reached = sum(1 for r in range(19) if result.null[j, r] >= result.values[j])
        assert p[j] == (1 + reached) / 20
    np.testing.assert_allclose(result.test().p_adjusted, stats.false_discovery_control(p), rtol=1e-12)
    assert p[0] == 0.05


def test_ties_count():
    result = null(importance=lambda model, X, y: np.ones(2))
    np.testing.assert_array_equal(result.test(adjust="none").p_value, [1.0, 1.0])
    for method in ("normal", "lognormal", "gamma"):
        np.testing.assert_array_equal(result.test(method, adjust="none").p_value, [1.0, 1.0])


@pytest.mark.parametrize(
    ("method", "family", "options"),
    [("normal", stats.norm, {}), ("lognormal", stats.lognorm, {"floc": 0}), ("gamma", stats.gamma, {"floc": 0})],
)
def test_fitted_nulls_are_maximum_likelihood(result, method, family, options):
    """Against SciPy's own fits."""
    fits = result.goodness_of_fit(method)
    for j in range(P):
        fitted = family(*family.fit(result.null[j], **options))
        np.testing.assert_allclose(fits[j], stats.kstest(result.null[j], fitted.cdf).pvalue, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "draw"),
    [
        ("normal", lambda rng, size: rng.normal(3.0, 2.0, size=size)),
        ("lognormal", lambda rng, size: rng.lognormal(1.0, 0.5, size=size)),
        ("gamma", lambda rng, size: rng.gamma(2.0, 3.0, size=size)),
    ],
)
@pytest.mark.parametrize("rounds", [3, 19])
def test_fitted_nulls_keep_their_size_after_few_rounds(method, draw, rounds):
    """One more draw of the null reaches its upper 5% in 5% of the cases, however few rounds there are."""
    features = 4000
    drawn = draw(np.random.default_rng(rounds), (features, rounds + 1))
    names = tuple(map(str, range(features)))
    result = rl.NullImportance(names, drawn[:, 0], drawn[:, 1:], 100, 0, "own")
    p = result.test(method, adjust="none").p_value
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.012)
    function = {"normal": lambda x: x, "lognormal": np.log, "gamma": np.cbrt}[method]
    x, v = function(drawn[7, 1:]), function(drawn[7, 0])
    statistic = (v - x.mean()) / (np.std(x, ddof=1) * np.sqrt(1 + 1 / rounds))
    assert p[7] == pytest.approx(stats.t.sf(statistic, rounds - 1))


def test_impurity_importance_of_a_forest():
    """The paper's example: without effect, a column of many values looks better than one of two, until corrected."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    generator = np.random.default_rng(0)
    many, two = generator.normal(size=200), generator.integers(0, 2, size=200)
    forest = ensemble.RandomForestClassifier(5, max_depth=3, random_state=0)
    result = rl.null_importance(
        forest,
        np.column_stack([many, two]),
        generator.integers(0, 2, size=200),
        rounds=19,
        importance=lambda model, X, y: model.feature_importances_,
        rng=0,
        names=["many", "two"],
    )
    assert result.values[0] > 2 * result.values[1]
    assert np.all(result.test().p_value > 0.05)
    assert result.names == ("many", "two")


@pytest.mark.once_per_device
def test_any_namespace(backend: Backend):
    def fit(A, b):
        xp = arrays.namespace(A)
        slope = xp.sum(A * b[:, None], axis=0)
        return lambda A: A @ slope

    def importance(model, A, b):
        xp = arrays.namespace(A)
        return xp.abs(xp.sum(A * b[:, None], axis=0))

    result = null(fit, X=backend.asarray(X), y=backend.asarray(Y), importance=importance, rounds=3)
    host = backend.rounded(X)
    np.testing.assert_allclose(result.values, np.abs(host.T @ backend.rounded(Y)), rtol=100 * backend.rtol)
    plain = null(fit, X=host, y=backend.rounded(Y), importance=importance, rounds=3)
    np.testing.assert_allclose(result.null, plain.null, rtol=1e3 * backend.rtol)


def test_workers_change_nothing(result):
    np.testing.assert_array_equal(null(rounds=19, run=rl.Run(workers=3)).null, result.null)
    np.testing.assert_array_equal(null(rounds=9).null, result.null[:, :9])  # the first rounds are the same


def test_a_failing_round_loses_no_other(result):
    fits = iter(range(20))

    def fit(A, b):
        if next(fits) == 5:
            raise ZeroDivisionError("no such model")
        return fit_linear(A, b)

    with pytest.raises(rl.RefitError, match="refit round 4 failed: ZeroDivisionError: no such model") as caught:
        null(fit, rounds=19)
    np.testing.assert_array_equal(caught.value.result.null, np.delete(result.null, 4, axis=1))


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files(result, tmp_path, suffix):
    path = tmp_path / f"result.{suffix}"
    result.save(path)
    read = rl.load(path)
    assert read.to_dict() == result.to_dict()
    assert repr(read) == repr(result)


def test_tables_and_figures(result):
    ranked = result.ranked()
    assert ranked.names[0] == "x0"
    np.testing.assert_array_equal(ranked.null[0], result.null[0])
    assert "19 rounds" in repr(result)
    assert "<table>" in result._repr_html_()
    frame = result.to_frame()
    np.testing.assert_array_equal(frame["p"], result.test().p_value)
    pytest.importorskip("matplotlib").use("Agg")
    assert any("19 rounds" in text.get_text() for text in result.plot().texts)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fit": 3}, TypeError, "fit=3 can fit nothing"),
        ({"fit": lambda A, b: None}, TypeError, "returned None, which is not a model"),
        ({"y": None}, ValueError, "y is None"),
        ({"y": Y[:9]}, ValueError, "y has shape"),
        ({"rounds": 0}, ValueError, "rounds=0 is too small"),
        ({"rounds": 2.5}, TypeError, "rounds=2.5 is not an integer"),
        ({"importance": "gini"}, ValueError, "importance='gini' is unknown"),
        ({"draws": 5}, ValueError, "draws is given, but importance is a function of your own"),
        ({"features": [0]}, ValueError, "features is given, but importance is a function of your own"),
        ({"importance": lambda m, X, y: np.ones((2, 2))}, ValueError, r"returned shape \(2, 2\)"),
        ({"importance": lambda m, X, y: [np.nan]}, ValueError, "returned NaN or infinite values"),
        ({"names": ["a", "b"]}, ValueError, "names has 2 entries, but importance=sizes returned 3"),
        ({"importance": lambda m, X, y: np.ones(2 + (y[0] == Y[0]))}, ValueError, "numbers in different rounds"),
        ({"run": -3}, TypeError, "run=-3: pass how the work is done as rl.Run"),
    ],
)
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        null(**options)


def test_bad_questions(result):
    with pytest.raises(ValueError, match="method='weibull' is not known"):
        result.test("weibull")
    with pytest.raises(ValueError, match="method='empirical' is fitted to nothing"):
        result.goodness_of_fit("empirical")
    signed = null(importance=lambda model, X, y: model.coef)
    with pytest.raises(ValueError, match=r"method='gamma' is for positive importances, and the null of 'x0'"):
        signed.test("gamma")
    assert np.all(signed.test("normal").p_value <= 1.0)
    with pytest.raises(ValueError, match="fits a distribution to 1 round"):
        null(rounds=1).test("normal")
    with pytest.raises(TypeError, match="loss is a list"):
        null(importance="permutation_importance", loss=["squared_error", "absolute_error"], draws=3)


@pytest.mark.slow
@pytest.mark.parametrize("importance", [sizes, "permutation_importance"])
def test_p_values_are_uniform_under_the_null(importance):
    """Labels independent of X: p times 20 is uniform on 1..20, made continuous by a uniform number."""
    replicates = 300 if importance is sizes else 100
    options = {} if importance is sizes else {"draws": 3, "features": [0]}
    found = []
    for r in range(replicates):
        generator = np.random.default_rng([7, r])
        A, b = generator.normal(size=(N, P)), generator.exponential(size=N)
        result = rl.null_importance(fit_linear, A, b, rounds=19, importance=importance, rng=generator, **options)
        p = result.test(adjust="none").p_value[0]
        found.append(p - generator.uniform() / 20)
    assert stats.kstest(found, "uniform").pvalue > 0.001
