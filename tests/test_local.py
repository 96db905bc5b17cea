"""Local importance: literal loops, the global methods as its mean, exact contributions, intervals, figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
import reliance as rl
from methods import KEY, SHIFTS
from reliance import plans

GROUPS = {"a": [0], "b": [1], "bc": [1, 2], "nothing": [3]}


def formula(x):
    return x[..., 0] * x[..., 1] + x[..., 2] ** 2


def data(n=13, seed=0):
    rng = np.random.default_rng(seed)
    X = np.stack([rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n), rng.normal(size=n)], axis=1)
    return X, formula(X) + 0.3 * rng.normal(size=n)


def donors(draws, n):
    if draws == "all":
        return np.array([[k for k in range(n) if k != i] for i in range(n)])
    plan = plans.Shifts(n, draws, KEY)
    return np.concatenate([plan.donors(range(n), range(k, k + 1)) for k in range(draws)], axis=1)


def literal(X, y, draws, rows):
    """Values (m, p) and the spread over the draws: changes of loss, or with y=None of the prediction."""
    table, values, spread = donors(draws, len(X)), [], []
    for columns in GROUPS.values():
        f = oracles.replaced_predictions(formula, X, table, columns)
        own = formula(X)[:, None]
        changes = own - f if y is None else (f - y[:, None]) ** 2 - (own - y[:, None]) ** 2
        values.append(changes.mean(axis=1) if y is not None or draws != "all" else changes.sum(axis=1) / len(X))
        spread.append(changes.std(axis=1, ddof=1))
    return np.stack(values, axis=1)[rows], np.stack(spread, axis=1)[rows]


@pytest.mark.parametrize(
    ("draws", "labelled", "rows"),
    [("all", True, [7, 2, 11]), (5, False, [7, 2, 11]), (5, True, None), ("all", False, None), (5, True, [7, 2, 11])],
)
@pytest.mark.once_per_device
def test_values_are_the_literal_means(backend, draws, labelled, rows):
    X, y = data()
    given = (formula, backend.asarray(X), backend.asarray(y) if labelled else None)
    how = draws if draws == "all" else SHIFTS(draws)
    result = rl.local_importance(*given, rows=rows, draws=how, features=GROUPS, rng=KEY)
    X, y = backend.rounded(X), backend.rounded(y) if labelled else None
    rows = list(range(13)) if rows is None else rows
    values, spread = literal(X, y, draws, rows)
    backend.assert_close(result.values, values, 10.0)
    assert result.rows.tolist() == rows
    error = np.zeros_like(spread) if draws == "all" else spread * math.sqrt((1.0 - 5.0 / 12.0) / 5.0)
    backend.assert_close(result.std_error, error, 100.0)
    own = formula(X) if y is None else (formula(X) - y) ** 2
    backend.assert_close(result.base, own[rows], 10.0)
    assert not result.values[:, 3].any()


@pytest.mark.once_per_device
def test_rows_average_to_the_global_importance(backend):
    X, y = (backend.asarray(a) for a in data(30))
    pairs = rl.local_importance(formula, X, y, loss="absolute_error")
    whole = rl.model_reliance(formula, X, y, loss="absolute_error", compare="difference")
    np.testing.assert_allclose(pairs.values.mean(axis=0), whole.values, rtol=1e-12, atol=1e-14)
    shifts = rl.local_importance(formula, X, y, draws=4, rng=KEY)
    drawn = rl.permutation_importance(formula, X, y, draws=4, rng=KEY)
    np.testing.assert_allclose(shifts.values.mean(axis=0), drawn.values, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("model", [GradientBoostingRegressor(n_estimators=8), RandomForestRegressor(3, random_state=0)])
def test_trees_and_some_of_the_rows_agree(model):
    X, y = data(90)
    model.fit(X, y)
    for labels in (y, None):
        whole = rl.local_importance(model, X, labels)
        some = rl.local_importance(model, X, labels, rows=[3, 80, 41])
        np.testing.assert_allclose(some.values, whole.values[[3, 80, 41]], rtol=1e-10, atol=1e-10)


def test_few_rows_of_many_are_evaluated():
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    calls = []

    def model(Z):
        calls.append(len(Z))
        return formula(Z)

    result = rl.local_importance(model, X, rows=[5, 17], features=[0, 1])
    assert sum(calls) == 2 + 15 + 2 * 2 * 20_000  # the base pass, its rows in a batch of 15, the evaluations
    assert len(calls) < 200
    np.testing.assert_array_equal(result.evaluations, 2 * 20_000)
    own = formula(X)[[5, 17]]
    for i, row in enumerate((5, 17)):
        Z = np.repeat(X[row][None, :], len(X), axis=0)
        Z[:, 0] = X[:, 0]
        np.testing.assert_allclose(result.values[i, 0], own[i] - formula(Z).mean(), rtol=1e-10)
    calls.clear()
    rl.local_importance(model, X, rows=[5, 17], features=[0, 1], draws=10, rng=0)
    assert sum(calls) == 2 + 15 + 2 * 2 * 10


@pytest.mark.parametrize("estimator", [LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())])
def test_linear_models_in_closed_form(estimator):
    X, y = data(40)
    estimator.fit(X, y)
    plain = LinearRegression().fit(X, y)
    for rows in (None, [4, 0]):
        at = slice(None) if rows is None else rows
        centred = rl.local_importance(estimator, X, rows=rows, features=[0, 2, (1, 3)])
        parts = plain.coef_ * (X - X.mean(axis=0))
        expected = np.stack([parts[:, 0], parts[:, 2], parts[:, 1] + parts[:, 3]], axis=1)
        np.testing.assert_allclose(centred.values, expected[at], rtol=1e-10, atol=1e-10)
        assert not centred.evaluations.any()
        notes = rl.local_importance(estimator, X, rows=rows, center=False)
        np.testing.assert_allclose(notes.values, (plain.coef_ * X)[at], rtol=1e-10, atol=1e-10)
    evaluated = rl.local_importance(lambda Z: estimator.predict(Z), X)
    np.testing.assert_allclose(evaluated.values, rl.local_importance(estimator, X).values, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        rl.local_importance(estimator, X, y).values.mean(axis=0),
        rl.model_reliance(estimator, X, y, compare="difference").values,
        rtol=1e-9,
    )


@pytest.mark.once_per_device
def test_linear_objects_on_every_backend(backend):
    X, _ = data(10)
    coef = np.array([1.5, -2.0, 0.0, 0.25])
    model = rl.models.Linear(backend.asarray(coef), 0.5)
    result = rl.local_importance(model, backend.asarray(X), rows=[1, 4])
    Z, b = backend.rounded(X), backend.rounded(coef)
    backend.assert_close(result.values, (b * (Z - Z.mean(axis=0)))[[1, 4]], 10.0)


def test_additive_models_are_the_sum_of_their_contributions():
    X, _ = data(50)
    result = rl.local_importance(lambda X: np.exp(X[:, 0]) + X[:, 1] ** 2 - X[:, 2], X)
    own = np.exp(X[:, 0]) + X[:, 1] ** 2 - X[:, 2]
    np.testing.assert_allclose(result.values.sum(axis=1), own - own.mean(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("design", ["shifts", "ranks"])
def test_intervals_over_draws_cover_the_mean_over_all_of_them(design):
    """Light tails: t intervals of 30 very skewed changes cover less."""
    X = np.random.default_rng(4).uniform(size=(60, 3))
    truth = rl.local_importance(lambda X: X[:, 0] * X[:, 1], X, np.zeros(60), loss="absolute_error", features=[0, 1])
    covered = []
    for seed in range(100):
        found = rl.local_importance(
            lambda X: X[:, 0] * X[:, 1],
            X,
            np.zeros(60),
            loss="absolute_error",
            draws=rl.Draws(30, design=design),
            features=[0, 1],
            rng=seed,
        )
        ends = found.interval(0.9)
        covered.append(np.mean((ends[:, :, 0] <= truth.values) & (truth.values <= ends[:, :, 1])))
    # The rows of a run share their shifts: the error of the mean is that of the runs.
    # Draws by ranks are spread over the feature's values, and a row's interval takes them for independent.
    assert np.mean(covered) > 0.98 if design == "ranks" else abs(np.mean(covered) - 0.9) < 4.0 * np.std(covered) / 10.0


def test_all_shifts_are_all_pairs():
    X, y = data(9)
    with pytest.warns(UserWarning, match="already"):
        twice = rl.local_importance(formula, X, y, draws=SHIFTS(16), rng=0)
    np.testing.assert_allclose(twice.values, rl.local_importance(formula, X, y).values, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(twice.std_error, 0.0)


def test_tables_and_intervals():
    X, y = data(20)
    result = rl.local_importance(formula, X, y, draws=5, rows=[2, 3], rng=0)
    ends = result.interval(0.8)
    half = stats.t.ppf(0.9, 4) * result.std_error
    np.testing.assert_allclose(ends, np.stack([result.values - half, result.values + half], axis=2))
    frame = result.to_frame(0.8)
    assert frame.loc[(3, "x1"), "value"] == result.values[1, 1]
    assert frame.loc[(2, "x0"), "upper"] == ends[0, 0, 1]
    assert "change of squared_error" in repr(result)
    assert "<table>" in result._repr_html_()
    assert result.to_dict()["rows"] == [2, 3]
    assert result.draws_per_row == 5
    assert not hasattr(result, "draws")  # of other results an array, the value of each draw
    shift = rl.local_importance(formula, X, loss="prediction_shift")
    assert (shift.values >= 0.0).all()
    with pytest.raises(ValueError, match="read-only"):
        result.values[0, 0] = 1.0
    with pytest.warns(UserWarning, match="fewer than 3"):
        once = rl.local_importance(formula, X, y, draws=1, rng=0)
    assert np.isnan(once.to_frame()["lower"]).all()
    with pytest.raises(ValueError, match="draws=2 or more"):
        once.interval()


def test_figures():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    X, _ = data(20)
    names = ["price in $ of a very long name that does not fit on any axis", "b", "c", "d"]
    result = rl.local_importance(formula, X, names=names)
    ax = result.plot()
    image = ax.collections[0]
    drawn = np.asarray(image.get_array()).reshape(4, 20)
    order = np.argsort(-np.abs(result.values).mean(axis=0), kind="stable")
    np.testing.assert_array_equal(drawn, result.values[:, order].T)
    assert abs(image.norm.vmin) == image.norm.vmax == np.abs(result.values).max()
    assert all(len(label.get_text()) <= 41 for label in ax.get_yticklabels())  # and a backslash
    ax.figure.canvas.draw()
    ax = result.plot(kind="waterfall", row=7)
    widths = np.array([bar.get_width() for bar in ax.patches])
    np.testing.assert_allclose(np.abs(widths[:4]), np.sort(np.abs(result.values[7]))[::-1])
    np.testing.assert_allclose(ax.patches[0].get_x(), result.base.mean())
    np.testing.assert_allclose(ax.patches[-1].get_x() + widths[-1], result.base[7], atol=1e-12)
    assert "row 7" in ax.get_title()
    ax.figure.canvas.draw()
    short = result.plot(kind="waterfall", row=7, most=2)
    assert [label.get_text() for label in short.get_yticklabels()][2] == "2 others"
    plt.close("all")
    for options, message in (
        ({"kind": "pie"}, "kind='pie' is not known"),
        ({"kind": "waterfall"}, "pass row="),
        ({"kind": "waterfall", "row": 99}, "row=99 was not measured"),
        ({"kind": "waterfall", "row": 1, "most": 0}, "most=0"),
        ({"most": 0}, "most=0"),
    ):
        with pytest.raises(ValueError, match=message):
            result.plot(**options)


def test_errors():
    X, y = data()
    for options, kind, message in (
        ({"draws": "some"}, ValueError, "draws='some' is unknown: pass 'all'"),
        ({"draws": 2.5}, TypeError, "draws=2.5 is not an integer"),
        ({"rows": [0, 13]}, ValueError, "rows holds 13, but X has 13 rows: give numbers from 0 to 12"),
        ({"rows": [-1]}, ValueError, "rows holds -1"),
        ({"rows": [1, 1]}, ValueError, "rows holds a row twice"),
        ({"rows": []}, ValueError, "pass a list of row numbers"),
        ({"rows": [0.5]}, ValueError, "pass a list of row numbers"),
        ({"rows": [True, False]}, ValueError, "pass a list of row numbers"),
        ({"loss": "auc"}, ValueError, "loss='auc' is a metric of all rows together"),
        ({"loss": ["squared_error", "absolute_error"]}, ValueError, "loss is a list"),
        ({"center": False}, ValueError, "leave out y and loss"),
        ({"center": "no"}, TypeError, "center='no': pass True or False"),
    ):
        with pytest.raises(kind, match=message):
            rl.local_importance(formula, X, (y > 0) if options.get("loss") == "auc" else y, **options)
    with pytest.raises(ValueError, match="center=False needs a linear model"):
        rl.local_importance(formula, X, center=False)
    with pytest.raises(ValueError, match=r"shape \(13, 2\).*predict_proba\(X\)\[:, 1\]"):
        rl.local_importance(lambda X: X[:, :2], X)
    with pytest.raises(ValueError, match="y is None but loss='squared_error' needs labels"):
        rl.local_importance(formula, X, loss="squared_error")

    class Wrong(LinearRegression):
        def predict(self, X):
            return super().predict(X) ** 2

    wrong = Wrong().fit(X, y)
    with pytest.raises(ValueError, match="center=False needs a linear model"):
        rl.local_importance(wrong, X, center=False)
    np.testing.assert_allclose(
        rl.local_importance(wrong, X).values, rl.local_importance(lambda Z: wrong.predict(Z), X).values, atol=1e-12
    )
