"""Conditional importances against analytic values: where what is drawn, and from whom, decides about the number."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import reliance as rl
from relative_cases import packed, relative_importance
from reliance import inference
from reliance.samplers import misfit, verdicts
from reliance.samplers import residual as samplers


def grid(repeats: int = 20) -> np.ndarray:
    """x = z + e, z in {0, 1, 2} and e in {-1, 0, 1}, every pair as often as any other: Var(x | z) = 2/3."""
    z, e = (part.reshape(-1) for part in np.meshgrid(np.arange(3.0), np.arange(-1.0, 2.0)))
    rows = np.tile(np.column_stack([z + e, z]), (repeats, 1))
    return rows[np.random.default_rng(0).permutation(len(rows))]


def first(X):
    return X[:, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Cross-fitting where rows are equal


@pytest.mark.once_per_device
@pytest.mark.parametrize("folds", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_relative_importance_of_tied_values_is_twice_the_conditional_variance(backend, folds):
    """E (x~ - x)^2 = 2 Var(x | z) = 4/3, whichever the regressor: all of them find a line through three points."""
    X, regressor = grid(), samplers.OLS() if folds == 2 else None
    sampler = samplers.Residual(regressor, folds=folds)
    options = {"given": [1], "features": [0], "sampler": sampler, "draws": 4, "rng": 0}
    result = relative_importance(first, backend.asarray(X), backend.asarray(X[:, 0]), **options)
    assert abs(result.values[0] - 4 / 3) < 0.05 * 4 / 3
    low, high = result.interval()[0]
    assert low < 4 / 3 < high


@pytest.mark.parametrize("crossfit", [2, 5])
@pytest.mark.parametrize("regressor", [None, "kernel_ridge"], ids=str)
@pytest.mark.slow
def test_conditional_reliance_of_tied_values(crossfit, regressor):
    X = grid(12)
    options = {"features": [0], "compare": "difference", "rng": 0}
    sampler = rl.samplers.Scrambler(regressor=regressor, crossfit=crossfit)
    result = rl.conditional_model_reliance(first, X, X[:, 0], sampler=sampler, **options)
    assert abs(result.values[0] - 4 / 3) < 0.03 * 4 / 3


@pytest.mark.parametrize("crossfit", [2, 5])
def test_conditional_reliance_of_a_column_of_two_values(crossfit):
    """A classifier that is cross-fitted on equal rows: E (x~ - x)^2 = 2 mean p (1 - p), p = 1/4, 1/2, 3/4."""
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    X = np.asarray([[float(k < 1 + z), float(z)] for z in range(3) for k in range(4)] * 30)
    options = {"features": [0], "compare": "difference", "rng": 0}
    sampler = rl.samplers.Scrambler(classifier=LogisticRegression(C=1e4), crossfit=crossfit)
    result = rl.conditional_model_reliance(first, X, X[:, 0], sampler=sampler, **options)
    truth = 2 * (2 * 3 / 16 + 1 / 4) / 3
    assert abs(result.values[0] - truth) < 0.05 * truth


def test_a_fold_without_the_other_value_is_refused():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 0] = np.arange(40) == 7
    sampler = rl.samplers.Scrambler(crossfit=2, classifier=LogisticRegression())
    with pytest.raises(ValueError, match=r"crossfit=2.*only one value of column 'x0'") as caught:
        rl.conditional_model_reliance(first, X, X[:, 0] + X[:, 1], sampler=sampler, rng=0)
    assert len(str(caught.value)) <= 300


@pytest.mark.once_per_device
def test_equal_rows_are_dealt_out(backend):
    """Their numbers in the folds differ by at most one, in every order of the rows and for every group left out."""
    rows = backend.rounded(grid(13))
    rng = np.random.default_rng(1)
    for some in (np.arange(len(rows)), rng.permutation(len(rows)), rng.permutation(len(rows))[:80]):
        part = rows[some]
        fold = samplers.row_folds(backend.asarray(part), (0, 1), 5)
        counts = [np.bincount(fold[(part == row).all(axis=1)], minlength=5) for row in np.unique(part, axis=0)]
        assert max(np.ptp(count) for count in counts) <= 1


def test_without_one_of_equal_rows_one_fold_has_one_row_less():
    """What a jackknife needs: the rows that every fold's fit sees change by the row that is gone."""
    rows = grid(4)
    whole = samplers.row_folds(rows, (0, 1), 3)
    for gone in range(len(rows)):
        kept = np.delete(rows, gone, axis=0)
        fold = samplers.row_folds(kept, (0, 1), 3)
        same = (rows == rows[gone]).all(axis=1)
        np.testing.assert_array_equal(fold[~np.delete(same, gone)], whole[~same])
        change = np.bincount(whole[same], minlength=3) - np.bincount(fold[np.delete(same, gone)], minlength=3)
        assert sorted(change.tolist()) == [0, 0, 1]


# ---------------------------------------------------------------------------------------------------------------------
# Estimators that have no truth value


@pytest.mark.parametrize("crossfit", [None, 3], ids=str)
def test_an_ensemble_is_a_regressor(crossfit):
    """A forest has a length, and none before it is fitted."""
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestRegressor

    X = grid(10)
    forest = RandomForestRegressor(10, random_state=0)
    options = {"features": [0], "compare": "difference", "pairs": 4, "rng": 0}
    sampler = rl.samplers.Scrambler(regressor=forest, crossfit=crossfit)
    result = rl.conditional_model_reliance(first, X, X[:, 0], sampler=sampler, **options)
    assert abs(result.values[0] - 4 / 3) < 0.1 * 4 / 3


# ---------------------------------------------------------------------------------------------------------------------
# A line where there is none


def given_columns(seed: int, n: int, q: int = 3) -> tuple[np.random.Generator, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, q))


CURVES = {
    "square": lambda z, e: z[:, 0] ** 2 + e,
    "bend": lambda z, e: z[:, 0] + 0.5 * z[:, 0] ** 2 + e,
    "waves": lambda z, e: np.sin(3 * z[:, 0]) + 0.5 * e,
    "step": lambda z, e: 2.0 * (z[:, 0] > 0) + 0.7 * e,
    "product": lambda z, e: 1.5 * z[:, 0] * z[:, 1] + e,
}
SPREADS = {
    "grows": lambda z, e: z[:, 0] + np.exp(0.5 * z[:, 0]) * e,
    "both sides": lambda z, e: z[:, 0] + (0.3 + np.abs(z[:, 1])) * e,
}
# Any errors that do not depend on what is given are right for donors' residuals.
ERRORS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: np.exp(rng.normal(size=n)),
    "heavy": lambda rng, n: rng.standard_t(3, size=n),
    "two values": lambda rng, n: rng.choice([0.0, 1.0], size=n, p=[0.9, 0.1]) + 0.01 * rng.normal(size=n),
}
GIVEN = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)) @ (np.eye(3) + 0.5),
    "skewed": lambda rng, n: np.exp(rng.normal(size=(n, 3))),
    "rare": lambda rng, n: (rng.random((n, 3)) < 0.1).astype(float),
}


def misfit_of(sampler, X, target, given) -> misfit.Misfit | None:
    fitted = sampler.fit(X, target, given)
    return misfit.Check(X)(fitted, fitted.on(X), target, given)


def warned_about(kind: str) -> str:
    return f"does not fit 'x0': the given columns explain [0-9]+% of the {kind} of what it leaves"


@pytest.mark.parametrize("kind", ["mean", "spread"])
def test_a_line_that_is_wrong_is_warned_about(kind):
    curve = CURVES["bend"] if kind == "mean" else SPREADS["grows"]
    rng, z = given_columns(0, 400)
    X = np.column_stack([curve(z, rng.normal(size=400)), z])
    options = {"features": [0], "rng": 0}
    for draws in ("donors", "normal"):
        sampler = samplers.Gaussian(draws)
        with pytest.warns(UserWarning, match=warned_about(kind)) as caught:
            relative_importance(first, X, X[:, 0], given=rl.Given("rest", sampler=sampler), draws=3, **options)
        message = str(caught[0].message)
        assert "in rl.Given passes this check" in message
        assert len(message) <= 300
    options |= {"pairs": 3, "compare": "difference"}
    for crossfit in (None, 4):
        with pytest.warns(UserWarning, match=warned_about(kind)):
            rl.conditional_model_reliance(
                first, X, X[:, 0], sampler=rl.samplers.Scrambler(crossfit=crossfit), **options
            )


@pytest.mark.once_per_device
@pytest.mark.parametrize("name", [*CURVES, *SPREADS])
def test_what_is_found(backend, name):
    for seed in range(5 if backend.kind == "numpy" else 1):
        rng, z = given_columns(seed, 400)
        X = backend.asarray(np.column_stack([{**CURVES, **SPREADS}[name](z, rng.normal(size=400)), z]))
        for sampler in (samplers.Gaussian(), samplers.Residual(samplers.OLS())):
            found = misfit_of(sampler, X, (0,), (1, 2, 3))
            assert (found.mean if name in CURVES else found.spread) < verdicts.LEVEL / 10


def test_what_it_is_for():
    """A feature that is a curve of another, which makes y: given that, it says nothing. A line makes it important."""
    rng, z = given_columns(0, 400, 1)
    X = np.column_stack([np.cos(2 * z[:, 0]) + 0.3 * rng.normal(size=400), z[:, 0]])
    y = np.cos(2 * z[:, 0]) + 0.1 * rng.normal(size=400)
    options = {"given": [1], "features": [0], "rng": 0}
    with pytest.warns(UserWarning, match="useless features may look important"):
        believed = relative_importance(first, X, y, sampler="gaussian", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = relative_importance(first, X, y, **options)
    assert found.routes == ("splines",)
    assert abs(found.values[0]) < 0.05 < 0.2 * believed.values[0]


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("errors", ERRORS)
def test_a_line_that_is_right_is_not(given, errors):
    """p-values are valid: at most 5% below 0.05, and hardly any where a call would warn."""
    p = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = GIVEN[given](rng, 250)
        X = np.column_stack([z.sum(axis=1) + ERRORS[errors](rng, 250), z])
        p.append(misfit_of(samplers.Gaussian(), X, (0,), (1, 2, 3))[:2])
    found = np.asarray(p)
    assert (np.mean(found < 0.05, axis=0) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)).all()
    assert (np.sum(found < verdicts.LEVEL, axis=0) <= 1).all()


def test_rounding_is_no_misfit():
    """A column that is the sum of others leaves rounding errors, which depend on what was rounded."""
    _, z = given_columns(0, 300)
    X = np.column_stack([z[:, 0] + 1e3 * z[:, 1], z]).astype(np.float32)
    assert misfit_of(samplers.Gaussian(), X, (0,), (1, 2)) is None


@pytest.mark.parametrize("rows", [300, 5000])
def test_groups_many_columns_and_other_rows(rows):
    """The curve is found in a group, among 30 given columns, and in the rows of the fit."""
    rng, z = given_columns(1, rows, 30)
    e = rng.normal(size=(rows, 2))
    X = np.column_stack([z[:, 3] + e[:, 0], z[:, 7] ** 2 + e[:, 1], z])
    options = {"features": {"x0": [0, 1]}, "draws": 3, "rng": 0, "given": list(range(2, 32))}
    with pytest.warns(UserWarning, match=warned_about("mean")):
        relative_importance(first, X[:60], X[:60, 0], fit_on=(X, None), sampler="gaussian", **options)
    X[:, 1] = z[:, 7] + e[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relative_importance(first, X[:60], X[:60, 0], fit_on=(X, None), **options)


# ---------------------------------------------------------------------------------------------------------------------
# Few rows to fit on


def few(n: int, m: int, seed: int) -> rl.Importance:
    """x = z1 + z2/2 + e with the model x for y = x + 2 z1: given z, E (x~ - y)^2 - E (x - y)^2 = 2 Var e = 2."""
    rng = np.random.default_rng(seed)
    z, train = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    X, rows = (np.column_stack([part @ [1.0, 0.5] + rng.normal(size=len(part)), part]) for part in (z, train))
    y = X[:, 0] + 2 * z[:, 0] + 0.5 * rng.normal(size=n)
    options = {"given": [1, 2], "features": [0], "fit_on": (rows, None), "draws": 10, "rng": seed}
    return relative_importance(first, X, y, **options)


def test_degrees_of_freedom_follow_the_rows_that_matter():
    """Satterthwaite's: those of the m - 3 residuals if the fit is uncertain, those of the rows if it is known."""
    assert 4.5 < few(2000, 8, 0).degrees_of_freedom[0] < 6
    assert 14 < few(15, 3000, 0).degrees_of_freedom[0] < 15.5
    assert few(100, 100, 0).degrees_of_freedom[0] > 97


def test_satterthwaite_is_the_formula():
    a, b = np.asarray([2.0, 0.0, 1e-200]), np.asarray([1.0, 0.0, 1e-200])
    expected = [9 / (4 / 10 + 1 / 5), 5.0, 4 / (1 / 10 + 1 / 5)]
    np.testing.assert_allclose(inference.satterthwaite([a, b], [10, np.asarray([5.0, 5.0, 5.0])]), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(100, 8), (100, 12), (400, 20), (20, 20)])
def test_intervals_of_few_rows_to_fit_on_cover(n, m):
    """Also of 8 rows and 3 coefficients; with 99 degrees of freedom and raw residuals it was 83%, 90% and 89%."""
    ends = np.asarray([few(n, m, seed).interval()[0] for seed in range(500)])
    covered = np.mean((ends[:, 0] < 2) & (ends[:, 1] > 2))
    assert 0.905 < covered < 0.99


@pytest.mark.filterwarnings("ignore:draws=")
@pytest.mark.parametrize("sampler", ["gaussian", "residual"])
def test_differences_of_sets_count_the_rows_of_the_fit(sampler):
    rng = np.random.default_rng(0)
    X, rows = (part @ (np.eye(3) + 0.5) for part in (rng.normal(size=(60, 3)), rng.normal(size=(14, 3))))
    sets = {"none": [], "one": [1], "both": [1, 2]}
    options = {"given": sets, "features": [0, 1], "fit_on": (rows, None), "sampler": sampler, "draws": 3, "rng": 0}
    result = relative_importance(first, X, X[:, 0] + 3 * X[:, 1], **options)
    for pair in (("none", "one"), ("one", "both")):
        delta = result.delta(*pair)
        known = 13 if sampler == "residual" else {"one": 12, "both": 11}[pair[1]]
        assert known - 1e-9 <= delta.degrees_of_freedom[0] <= known + 60
        assert np.isfinite(delta.interval()[0]).all()
        assert 0 <= delta.test().p_value[0] <= 1


# ---------------------------------------------------------------------------------------------------------------------
# Strata of the evaluated rows, and words


def test_several_partitions_may_be_an_array():
    """Each draw takes one of them: E (x~ - x)^2 is the mean over partitions of twice the variance within strata."""
    rng = np.random.default_rng(0)
    strata = rng.integers(0, 3, size=(300, 2))
    X = np.column_stack([strata[:, 0] + 2.0 * strata[:, 1] + 0.1 * rng.normal(size=300), rng.normal(size=300)])
    options = {"given": [1], "features": [0], "draws": 10, "rng": 0}
    result = relative_importance(first, X, X[:, 0], sampler=samplers.Leaves(strata), **options)
    within = [
        2 * np.mean([np.var(X[part == label, 0], ddof=1) for label in part])  # one for each row
        for part in strata.T
    ]
    assert result.values[0] == pytest.approx(np.mean(within), rel=0.1)
    place, order = np.argsort(X[:, 1]), np.sort(X[:, 1])
    same = samplers.Leaves(lambda Z: strata[place[np.searchsorted(order, Z[:, 0])]])
    expected = relative_importance(first, X, X[:, 0], sampler=same, **options)
    assert (result.values, result.std_error) == (expected.values, expected.std_error)


@pytest.mark.parametrize("strata", [1, 2])
def test_strata_are_split_with_the_rows(strata):
    rng = np.random.default_rng(0)
    given = rng.integers(0, 3, size=(90, strata))
    X = np.column_stack([given[:, 0] + 0.1 * rng.normal(size=90), rng.normal(size=90)])
    sampler = samplers.Leaves(given[:, 0] if strata == 1 else given)
    options = {"given": [1], "features": [0], "draws": 3, "rng": 0, "cv": 3, "target": "fitted models"}
    found = rl.cross_validated_importance(
        lambda X, y: first, X, X[:, 0], method="relative_importance", **packed({**options, "sampler": sampler})
    )
    assert found.values[0] == pytest.approx(0.02, rel=0.5) if strata == 1 else found.values[0] > 0.1


def test_context_is_split_with_the_rows():
    """Given what makes it, a feature is left with the variance of its noise, in each fold."""
    rng = np.random.default_rng(0)
    cause = rng.normal(size=200)
    X = np.column_stack([cause + 0.5 * rng.normal(size=200), rng.normal(size=200)])
    options = {"given": ["cause"], "context": {"cause": cause}, "features": [0], "rng": 0, "cv": 4}
    found = rl.cross_validated_importance(
        lambda X, y: first, X, X[:, 0], method="relative_importance", **packed(options)
    )
    assert found.values[0] == pytest.approx(0.5, rel=0.2)


IMAGE = np.random.default_rng(0).normal(size=(8, 60, 60))
LONG = {"z" * 400: np.arange(8.0)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": ["x[0, 1]"]}, r"of 3600 names the closest are 'x\[0,1\]'"),
        ({"given": ["cause"]}, r"the names are 'x\[0,0\]', .* and 3595 more"),
        ({"given": ["z" * 400]}, "neither a feature nor a variable"),
        ({"given": "z" * 400}, "is a text"),
        ({"given": IMAGE}, "is a ndarray"),
        ({"given": [IMAGE]}, "given holds array"),
        ({"given": [1], "sampler": IMAGE}, "is not a sampler"),
        ({"given": [1], "fit_on": (IMAGE[:0], None)}, r"fit_on: X_train has shape \(0, 60, 60\): pass at least 2 rows"),
        ({"given": [1], "fit_on": (IMAGE[:1], None), "sampler": "knn"}, "pass at least 2 rows"),
        ({"given": [1], "fit_on": ([], None)}, r"fit_on: X_train has shape \(0,\)"),
        ({"given": [1], "context": LONG, "fit_on": (IMAGE, None)}, "context_train lacks"),
        ({"given": [1], "context": {"z" * 400: np.arange(7.0)}}, "one entry or line for each of the 8 rows"),
    ],
)
def test_words_are_short(options, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        relative_importance(lambda X: X[:, 0, 0], IMAGE, IMAGE[:, 0, 0], features=[0], rng=0, **options)
    assert len(str(caught.value)) <= 300


def test_words_about_columns_of_tables_are_short():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 300)), columns=[f"c{j}" for j in range(300)])
    options = {"given": ["c1"], "features": ["c0"], "rng": 0, "fit_on": (X.rename(columns={"c0": "q"}), None)}
    with pytest.raises(ValueError, match="it lacks 'c0' and has 'q' besides") as caught:
        relative_importance(lambda X: np.asarray(X)[:, 0], X, X["c0"].to_numpy(), **options)
    assert len(str(caught.value)) <= 300
