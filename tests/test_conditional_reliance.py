"""Conditional model reliance against literal double loops: least squares, other regressors, columns of two values."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
import reliance as rl
from methods import KEY, SHIFTS, donor_table
from oracles import CASES
from relative_cases import Counted, base_rows, correlated, regression, scrambled_table
from reliance import plans
from reliance._core import streams
from reliance._core.arrays import to_host
from reliance.samplers import Scrambler
from reliance.samplers import residual as samplers

PLANS = {
    "all": ("all", plans.Pairs),
    "halves": ("halves", lambda n: plans.halves(n, KEY)),
    "shifts": (SHIFTS(5), lambda n: plans.Shifts(n, 5, KEY)),
}
WEIGHTS = np.asarray([0.5, 2.0, 1.0, 0.0, 3.0, 1.0, 0.25, 1.5, 1.0, 0.75, 1.0, 2.0])
GROUPS = [(0,), (1, 3), (2,)]


def formula(x):
    return 1.2 * x[..., 0] - x[..., 1] * x[..., 2] + 0.3 * x[..., 3]


def others(X, columns):
    return np.delete(X, list(columns), axis=1)


def fitted(X, columns):
    """What all other columns say of some, by least squares."""
    rest = others(X, columns)
    return regression(rest, X[:, list(columns)], rest)


def literal(X, y, groups, plan, compare, weights=None, loss="squared_error", predict=formula, mean=fitted):
    donors, mask = donor_table(plan)
    tables = [scrambled_table(predict, X, y, g, mean(X, g), donors, mask, weights, loss) for g in groups]
    return tables, [oracles.answer(table, compare) for table in tables]


# ---------------------------------------------------------------------------------------------------------------------
# Least squares


@pytest.mark.paired("pairs", "weighted", "compare", one_in=2)
@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("pairs", PLANS)
def test_least_squares(backend, pairs, weighted, compare):
    """x_ik = xhat_i + (x_k - xhat_k), xhat by least squares on all other columns."""
    X, y = correlated()
    weights = WEIGHTS if weighted else None
    option, plan = PLANS[pairs]
    result = rl.conditional_model_reliance(
        formula,
        backend.asarray(X),
        backend.asarray(y),
        features=GROUPS,
        pairs=option,
        compare=compare,
        weights=backend.asarray(weights),
        rng=KEY,
        keep="rows",
    )
    exact = None if weights is None else backend.rounded(weights)
    tables, answers = literal(backend.rounded(X), backend.rounded(y), GROUPS, plan(len(X)), compare, exact)
    # A donor's residual is large where the others explain little: what is added is rounded to the size of the losses.
    scale = max(np.abs(table.L).max() for table in tables)
    unit = scale / answers[0].base_risk if compare == "ratio" else scale
    assert result.names == ("x0", "x1+x3", "x2")
    assert result.method == "conditional_model_reliance"
    backend.assert_close(result.values, [a.value for a in answers], 10 * unit)
    backend.assert_close(result.base_risk, answers[0].base_risk, scale)
    backend.assert_close(result.replaced_risk, [a.replaced_risk for a in answers], 10 * scale)
    backend.assert_close(result.row_values, [a.row_values for a in answers], 10 * unit)
    if pairs == "all":
        assert result.draws is None
    else:
        backend.assert_close(result.draws, [a.draws for a in answers], 10 * unit)


def test_several_losses_share_the_evaluations():
    X, y = correlated(seed=1)
    names = ["squared_error", "absolute_error", "huber"]
    model = Counted(formula)
    found = rl.conditional_model_reliance(model, X, y, loss=names, rng=KEY)
    assert list(found) == names
    for name in names:
        _, answers = literal(X, y, [(j,) for j in range(4)], plans.Pairs(len(X)), "ratio", loss=name)
        np.testing.assert_allclose(found[name].values, [a.value for a in answers], rtol=1e-12)
        assert model.rows == base_rows(len(X)) + found[name].evaluations.sum()


def test_a_metric_of_all_pairs():
    """The metric of each of the n - 1 shifts of the data, averaged."""
    X, y = correlated(n=9, seed=2)
    found = rl.conditional_model_reliance(formula, X, y, loss="rmse", compare="difference", features=[0])
    donors, _ = donor_table(plans.every_shift(9))
    table = scrambled_table(formula, X, y, (0,), fitted(X, (0,)), donors)
    expected = np.sqrt(table.L.mean(axis=0)).mean() - np.sqrt(table.l.mean())
    np.testing.assert_allclose(found.values, [expected], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:pairs='halves' leaves out:UserWarning")
def test_halves_of_an_odd_number_of_rows_leave_out_the_last_also_from_the_fit():
    X, y = correlated(n=11, seed=3)
    odd, even = (rl.conditional_model_reliance(formula, X[:n], y[:n], pairs="halves", rng=KEY) for n in (11, 10))
    np.testing.assert_array_equal(odd.values, even.values)
    np.testing.assert_array_equal(odd.std_error, even.std_error)


def test_integer_columns_are_replaced_by_numbers_between_them():
    """A mean plus a residual is no integer: nothing may be cut off."""
    X, y = correlated(seed=4)
    X = np.round(3 * X).astype(np.int64)
    found = rl.conditional_model_reliance(formula, X, y, rng=KEY)
    floating = rl.conditional_model_reliance(formula, X.astype(np.float64), y, rng=KEY)
    np.testing.assert_array_equal(found.values, floating.values)
    np.testing.assert_array_equal(found.std_error, floating.std_error)


def test_one_column_is_model_reliance():
    X, y = correlated(seed=5)
    found = rl.conditional_model_reliance(lambda x: x[:, 0], X[:, :1], y)
    plain = rl.model_reliance(lambda x: x[:, 0], X[:, :1], y, route="plain")
    np.testing.assert_array_equal(found.values, plain.values)
    np.testing.assert_array_equal(found.std_error, plain.std_error)


@pytest.mark.parametrize("compare", ["ratio", "difference"])
def test_the_error_is_that_of_leaving_out_rows_and_fitting_again(compare):
    """The influence of rows on the least squares fit, against the jackknife itself with n fits."""
    X, y = correlated(n=80, seed=6)
    n = len(X)

    def value(rows):
        Z, t = X[rows], y[rows]
        mean = fitted(Z, (0,))[:, 0]
        replaced = mean[:, None] + (Z[:, 0] - mean)[None, :]
        rows = np.broadcast_to(Z[:, None, :], (*replaced.shape, 4)).copy()
        rows[:, :, 0] = replaced
        losses = (t[:, None] - formula(rows)) ** 2
        switched = (losses.sum() - np.trace(losses)) / (len(Z) * (len(Z) - 1))
        base = np.mean((t - formula(Z)) ** 2)
        return switched / base if compare == "ratio" else switched - base

    found = rl.conditional_model_reliance(formula, X, y, features=[0], compare=compare)
    assert found.values[0] == pytest.approx(value(np.arange(n)), rel=1e-12)
    left = np.asarray([value(np.delete(np.arange(n), i)) for i in range(n)])
    jackknife = np.sqrt((n - 1) / n * np.sum((left - left.mean()) ** 2))
    assert found.std_error[0] == pytest.approx(jackknife, rel=0.15)


# ---------------------------------------------------------------------------------------------------------------------
# Other regressors


class Mean:
    """An estimator that is not scikit-learn's: the mean of the rows whose first column is on the same side of 0."""

    def fit(self, Z, t):
        self.sides = [t[(Z[:, 0] > 0) == side].mean() for side in (False, True)]
        return self

    def predict(self, Z):
        return np.where(Z[:, 0] > 0, self.sides[1], self.sides[0])


def sklearn_ridge():
    return pytest.importorskip("sklearn.linear_model").Ridge(alpha=2.0)


REGRESSORS = {"own": Mean, "sklearn": sklearn_ridge, "kernel_ridge": lambda: "kernel_ridge"}


def predictions(regressor, Z, t, at):
    if regressor == "kernel_ridge":
        return samplers.KernelRidge().fit(Z, t[:, None]).predict(at)[:, 0]
    return regressor.fit(Z, t).predict(at)


@pytest.mark.parametrize("crossfit", [None, 3])
@pytest.mark.parametrize("name", [*REGRESSORS, "least squares"])
def test_other_regressors(name, crossfit):
    """In-sample, or each row predicted from the rows of other folds."""
    X, y = correlated(n=30, seed=7)
    made = None if name == "least squares" else REGRESSORS[name]()

    def mean(X, columns):
        (column,) = columns
        Z, t = others(X, columns), X[:, column]

        def predict(rows, at):
            if name == "least squares":
                return regression(Z[rows], t[rows], Z[at])
            return predictions(REGRESSORS[name](), Z[rows], t[rows], Z[at])

        if crossfit is None:
            return predict(slice(None), slice(None))[:, None]
        rest = tuple(j for j in range(X.shape[1]) if j != column)
        fold, found = samplers.row_folds(X, (column, *rest), crossfit), np.empty((len(X), 1))
        for k in range(crossfit):
            found[fold == k, 0] = predict(fold != k, fold == k)
        return found

    sampler = Scrambler(regressor=made, crossfit=crossfit)
    options = {"sampler": sampler, "features": [0, 2], "pairs": SHIFTS(4), "rng": KEY}
    result = rl.conditional_model_reliance(formula, X, y, **options)
    _, answers = literal(X, y, [(0,), (2,)], plans.Shifts(30, 4, KEY), "ratio", mean=mean)
    np.testing.assert_allclose(result.values, [a.value for a in answers], rtol=1e-10)
    assert (result.std_error > 0).all()


@pytest.mark.once_per_device
def test_kernel_ridge_on_every_device(backend):
    X, y = correlated(n=24, seed=8)
    options = {"sampler": Scrambler(regressor="kernel_ridge"), "features": [0], "pairs": 3, "rng": KEY}
    found = rl.conditional_model_reliance(formula, backend.asarray(X), backend.asarray(y), **options)
    plain = rl.conditional_model_reliance(formula, backend.rounded(X), backend.rounded(y), **options)
    np.testing.assert_allclose(found.values, plain.values, rtol=max(1e-8, 30 * backend.rtol))
    np.testing.assert_allclose(found.std_error, plain.std_error, rtol=max(1e-6, 1000 * backend.rtol))


def test_a_curved_feature_needs_more_than_a_line():
    """x0 is a square of x1: nothing is left of it, which least squares cannot know."""
    rng = np.random.default_rng(9)
    x = rng.uniform(-2, 2, size=150)
    X = np.stack([x**2 + 0.05 * rng.normal(size=150), x], axis=1)
    y = X[:, 0] + 0.5 * rng.normal(size=150)
    options = {"features": [0], "pairs": 5, "rng": 0}
    line = rl.conditional_model_reliance(lambda x: x[:, 0], X, y, **options).values[0]
    sampler = Scrambler(regressor="kernel_ridge")
    curve = rl.conditional_model_reliance(lambda x: x[:, 0], X, y, sampler=sampler, **options).values[0]
    assert line > 5
    assert 0.9 < curve < 1.2


# ---------------------------------------------------------------------------------------------------------------------
# Columns of two values


LEVELS = (2.0, 5.0)


def binary(n=40, seed=10):
    """Column 0 takes two values, the high one the likelier the larger column 1 is."""
    X, y = correlated(n, seed=seed)
    draw = np.random.default_rng(seed).random(n)
    X[:, 0] = np.where(draw < 1 / (1 + np.exp(-(X[:, 1] - 1.0))), LEVELS[1], LEVELS[0])
    return X, y


class Shares:
    """A classifier: the share of ones among rows on the same side of 1, never 0 or 1."""

    def fit(self, Z, t):
        side = Z[:, 0] > 1
        self.share = [(t[side == s].sum() + 1) / ((side == s).sum() + 2) for s in (False, True)]
        return self

    def predict_proba(self, Z):
        high = np.where(Z[:, 0] > 1, self.share[1], self.share[0])
        return np.stack([1 - high, high], axis=1)


def literal_levels(X, key):
    """(n, n): the value that row i takes from row k, by the rule: a uniform number, read under another probability."""
    n = len(X)
    high = X[:, 0] == LEVELS[1]
    share = Shares().fit(X[:, 1:], high).predict_proba(X[:, 1:])[:, 1]
    u = streams.uniforms(key, 0, n, 0, 1)[:, 0]
    values = np.empty((n, n))
    for k in range(n):
        # Row k's own value has the part (1 - p, 1] or [0, 1 - p] of the unit interval: a number from there.
        number = 1 - u[k] * share[k] if high[k] else u[k] * (1 - share[k])
        for i in range(n):
            values[i, k] = LEVELS[1] if number > 1 - share[i] else LEVELS[0]
    return values, share


@pytest.mark.parametrize("pairs", PLANS)
def test_two_values_by_the_rule(pairs):
    X, y = binary()
    option, plan = PLANS[pairs]
    result = rl.conditional_model_reliance(
        formula, X, y, sampler=Scrambler(classifier=Shares()), features=[0], pairs=option, compare="difference", rng=KEY
    )
    values, _ = literal_levels(X, KEY)
    donors, mask = donor_table(plan(len(X)))
    changed = np.repeat(X[:, None, :], donors.shape[1], axis=1)
    changed[:, :, 0] = np.take_along_axis(values, donors, axis=1)
    losses = (y[:, None] - formula(changed)) ** 2
    expected = losses[mask].mean() - np.mean((y - formula(X)) ** 2)
    np.testing.assert_allclose(result.values, [expected], rtol=1e-12)


def test_a_donor_of_equal_probability_lends_its_own_value():
    """The number was drawn from the part of its own value."""
    X, _ = binary()
    values, share = literal_levels(X, KEY)
    alike = share[:, None] == share[None, :]
    np.testing.assert_array_equal(values[alike], np.broadcast_to(X[None, :, 0], values.shape)[alike])


@pytest.mark.once_per_device
@pytest.mark.filterwarnings("ignore:model .* cannot be traced:UserWarning")
def test_the_model_sees_values_of_the_column_only(backend):
    X, y = binary()
    seen = []

    def model(x):
        seen.append(to_host(x)[:, 0])
        return x[:, 0] + x[:, 1]

    options = {"sampler": Scrambler(classifier=Shares()), "features": [0], "pairs": SHIFTS(4), "rng": KEY}
    result = rl.conditional_model_reliance(model, backend.asarray(X), backend.asarray(y), **options)
    assert set(np.concatenate(seen).tolist()) == set(LEVELS)
    plain = rl.conditional_model_reliance(lambda x: x[:, 0] + x[:, 1], X, y, **options)
    # A number next to its cut may fall on the other side in float32; none of these does.
    np.testing.assert_allclose(result.values, plain.values, rtol=max(1e-12, 10 * backend.rtol))


def test_values_are_drawn_with_the_probability_of_the_row():
    """Over its donors, in this run and in those without some rows, a row takes the high value as often as it says."""
    X, y = binary(n=600, seed=11)
    seen = np.zeros((600, 2))

    def model(x):
        np.add.at(seen, (x[:, 3].astype(int), (x[:, 0] == LEVELS[1]).astype(int)), 1)
        return x[:, 0] + x[:, 1]

    X[:, 3] = np.arange(600)
    rl.conditional_model_reliance(model, X, y, sampler=Scrambler(classifier=Shares()), features=[0], pairs=20, rng=KEY)
    _, share = literal_levels(X, KEY)
    observed = seen[:, 1] / seen.sum(axis=1)
    for p in np.unique(share):
        assert observed[share == p].mean() == pytest.approx(p, abs=0.06)


def test_columns_of_more_values_are_predicted_by_the_regressor():
    X, y = binary()
    options = {"features": [1, (0, 2)], "pairs": SHIFTS(4), "rng": KEY}
    found = rl.conditional_model_reliance(formula, X, y, sampler=Scrambler(classifier=Shares()), **options)
    plain = rl.conditional_model_reliance(formula, X, y, **options)
    np.testing.assert_array_equal(found.values, plain.values)


def test_a_crossfitted_classifier():
    X, y = binary(n=60)
    logistic = pytest.importorskip("sklearn.linear_model").LogisticRegression()
    options = {"features": [0], "pairs": SHIFTS(4), "rng": KEY}
    inside, outside = (
        rl.conditional_model_reliance(formula, X, y, sampler=Scrambler(classifier=logistic, crossfit=folds), **options)
        for folds in (None, 3)
    )
    assert inside.values[0] != outside.values[0]
    assert inside.values[0] == pytest.approx(outside.values[0], rel=0.5)
    assert not hasattr(logistic, "coef_")  # it is cloned


# ---------------------------------------------------------------------------------------------------------------------
# What the numbers are


@pytest.mark.once_per_device
@pytest.mark.parametrize(
    "options", [{}, {"pairs": "halves"}, {"pairs": 3}, {"sampler": Scrambler(regressor="kernel_ridge")}], ids=str
)
def test_an_unused_feature_is_exactly_one(backend, options):
    X, y = correlated(n=24, seed=12)
    result = rl.conditional_model_reliance(
        lambda x: 2.0 * x[:, 0] - x[:, 1], backend.asarray(X), backend.asarray(y), features=[3], rng=KEY, **options
    )
    assert result.values.tolist() == [1.0]
    assert result.std_error.tolist() == [0.0]
    assert result.interval().tolist() == [[1.0, 1.0]]
    assert result.test().p_value.tolist() == [1.0]


def test_what_the_others_know_does_not_count():
    """A copy with little noise: permuted it matters, but its own information is next to nothing."""
    rng = np.random.default_rng(13)
    x = rng.normal(size=200)
    X = np.stack([x, x + 0.1 * rng.normal(size=200)], axis=1)
    y = x + 0.3 * rng.normal(size=200)
    plain = rl.model_reliance(lambda x: x[:, 0], X, y).values[0]
    own = rl.conditional_model_reliance(lambda x: x[:, 0], X, y).values[0]
    assert plain > 15
    assert 1 < own < 1.5


@pytest.mark.once_per_device
def test_blocks_change_nothing_but_rounding(backend):
    X, y = correlated(n=20, seed=14)
    arrays = backend.asarray(X), backend.asarray(y)
    first = rl.conditional_model_reliance(formula, *arrays, run=rl.Run(block=(3, 4)))
    second = rl.conditional_model_reliance(formula, *arrays, run=rl.Run(block=1000))
    np.testing.assert_allclose(first.values, second.values, rtol=10 * backend.rtol)


def test_every_evaluation_is_counted():
    X, y = correlated(n=20, seed=15)
    for options in (
        {},
        {"pairs": "halves"},
        {"pairs": 4},
        {"pairs": 3, "sampler": Scrambler(regressor="kernel_ridge")},
    ):
        model = Counted(formula)
        result = rl.conditional_model_reliance(model, X, y, features=[0, (1, 2)], rng=0, **options)
        assert model.rows == base_rows(len(X)) + result.evaluations.sum(), options


@pytest.mark.parametrize("case", ["log_loss", "zero_one", "squared_error-outputs"])
def test_losses_of_classes_and_of_several_outputs(case):
    chosen = CASES[case]
    X, y = chosen.data(n=12)
    result = rl.conditional_model_reliance(chosen.formula, X, y, loss=chosen.loss, compare="difference")
    singles = [(j,) for j in range(4)]
    arguments = {"loss": chosen.loss, "predict": chosen.formula}
    _, answers = literal(X, y, singles, plans.Pairs(12), "difference", **arguments)
    np.testing.assert_allclose(result.values, [a.value for a in answers], rtol=1e-11, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def refused(error, match, X=None, **options):
    good, y = correlated(n=20, seed=16)
    with pytest.raises(error, match=match):
        rl.conditional_model_reliance(formula, good if X is None else X, y, **options)


def test_collinear_columns():
    X, _ = correlated(n=20, seed=16)
    X[:, 3] = X[:, 1] + X[:, 2]
    refused(ValueError, "collinear.*regressor='kernel_ridge'", X, features=[0])


def test_more_columns_than_rows():
    X = np.random.default_rng(0).normal(size=(20, 25))
    refused(ValueError, "as many as the rows. Leave columns out, or pass a regressor", X, features=[0])


def test_columns_that_are_not_finite():
    """Also if the model does not mind."""
    X, y = correlated(n=20, seed=16)
    X[3, 2] = np.nan
    with pytest.warns(UserWarning, match="X holds NaN"), pytest.raises(ValueError, match="column 'x2' of X"):
        rl.conditional_model_reliance(lambda x: x[:, 0], X, y, features=[0])


def test_a_value_that_a_single_row_has():
    """Without that row there is nothing to classify."""
    X, _ = correlated(n=20, seed=16)
    X[:, 0] = np.arange(20) == 4
    refused(
        ValueError,
        "more rows of each of its two values",
        X,
        features=[0],
        sampler=Scrambler(classifier=Shares()),
        rng=0,
    )


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"sampler": "gaussian"}, TypeError, "sampler='gaussian': pass rl.samplers.Scrambler"),
        ({"sampler": None}, TypeError, "sampler=None: pass rl.samplers.Scrambler"),
        ({"pairs": "some"}, ValueError, "pairs='some' is unknown: choose 'all', 'halves'"),
        ({"pairs": 0}, ValueError, "pairs=0 is too small"),
        ({"compare": "quotient"}, ValueError, "compare='quotient' is unknown"),
    ],
)
def test_bad_arguments(options, error, match):
    refused(error, match, **options)


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"classifier": Mean()}, TypeError, "has no fit\\(\\) and predict_proba\\(\\)"),
        ({"regressor": Shares()}, TypeError, "has no fit\\(\\) and predict\\(\\)"),
        ({"regressor": "ols"}, TypeError, "regressor='ols'"),
        ({"crossfit": 1}, ValueError, "crossfit=1: pass a number of folds of at least 2"),
        ({"crossfit": True}, ValueError, "crossfit=True"),
        ({"crossfit": 2.0}, ValueError, "crossfit=2.0"),
    ],
)
def test_bad_scramblers(options, error, match):
    with pytest.raises(error, match=match):
        Scrambler(**options)


def test_a_ratio_to_nothing():
    X, _ = correlated(n=20, seed=16)
    with pytest.raises(ValueError, match="divides by the base risk, which is 0"):
        rl.conditional_model_reliance(formula, X, formula(X))
