"""Models whose score is a sum over columns: sums over points and by sorting, against literal tables of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsRestClassifier

import reliance as rl
from reliance.exact import additive_pieces, additive_several, additive_sums
from reliance.exact.additive_points import Sides, affine_ends
from reliance.losses.functions import hinge, huber, pinball, resolve

FIELDS = ("values", "replaced_risk", "row_values", "std_error", "skewness", "random_variable_error")


def assert_same(found, plain, tolerance=1e-10):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), tolerance, tolerance, err_msg=name)


def data(n=1100, seed=0):
    """A number, a level with ties, a rounded number and a constant; a score."""
    rng = np.random.default_rng(seed)
    columns = (rng.normal(size=n), rng.integers(0, 3, n), rng.normal(size=n).round(1), np.full(n, 2.0))
    X = np.stack(columns, axis=1).astype(float)
    return X, X @ [0.8, -0.5, 0.3, 0.1] + 0.5 * rng.logistic(size=n), rng.uniform(0.5, 2.0, n)


def both(model, X, y, **options):
    """By the route that is taken, and by calling the model for every pair."""
    return (rl.model_reliance(model, X, y, route=route, **options) for route in ("auto", "plain"))


def literal(loss, scores, lent, labels, weights):
    """Row sums, weighted donor sums and sums of squares of D, from the whole table."""
    L = np.stack([loss(labels, scores - lent + one) for one in lent], axis=1)
    D = L - loss(labels, scores)[:, None]
    return D.sum(axis=1), weights @ D, (D**2).sum(axis=1)


def assert_moments(found, truth, tolerance):
    for own, true in zip((found.row_sum, found.donor_sum, found.row_squares), truth, strict=True):
        np.testing.assert_allclose(own, true, rtol=0, atol=tolerance * np.sqrt(np.mean(true**2)))


# ---------------------------------------------------------------------------------------------------------------------
# Sums


def softplus(labels, scores):
    return np.logaddexp(0.0, np.where(labels == 1, -scores, scores))


def poisson(labels, scores):
    return 2.0 * (np.exp(scores) - labels * scores)


def brier_like(labels, scores):
    return (labels - np.tanh(scores)) ** 2


def quartic(labels, scores):
    """Smooth in the score, but not affine in the label."""
    return np.sqrt(1.0 + (labels - scores) ** 2)


@pytest.mark.parametrize("loss", [softplus, poisson, brier_like, quartic])
@pytest.mark.parametrize("levels", [False, True])
def test_sums_over_points_are_those_of_the_table(loss, levels):
    rng = np.random.default_rng(0)
    lent = rng.integers(0, 4, 1500) * 0.4 if levels else rng.normal(size=1500)
    scores = lent + rng.normal(size=1500)
    labels = rng.integers(0, 2, 1500) if loss is softplus else np.abs(rng.normal(size=1500))
    sides = Sides.of(scores, lent, labels, rng.uniform(size=1500))
    assert (affine_ends(loss, sides) is None) == (loss is quartic)
    width = additive_sums.chosen_width(loss, sides)
    assert width is not None
    found, missed = additive_sums.moments(loss, sides, width)
    assert missed <= additive_sums.TOLERANCE
    assert_moments(found, literal(loss, scores, lent, labels, sides.weights), 1e-12)


@pytest.mark.parametrize("kink", [np.abs, np.sign, lambda e: np.minimum(e, 1.0) ** 2])
def test_losses_that_bend_are_not_taken_for_smooth(kink):
    rng = np.random.default_rng(1)
    lent = rng.normal(size=2000)
    sides = Sides.of(lent + rng.normal(size=2000), lent, rng.normal(size=2000), None)
    assert additive_sums.chosen_width(lambda labels, scores: kink(labels - scores), sides) is None


NUMBERS = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.5]))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 25), which=st.sampled_from(["absolute_error", pinball(0.2), huber(0.7), hinge]), data=st.data())
def test_sums_by_sorting_are_those_of_the_table(n, which, data):
    loss = resolve(which)
    lent, kept, labels = (data.draw(hnp.arrays(np.float64, n, elements=NUMBERS)) for _ in range(3))
    labels = np.where(labels > 0, 1.0, -1.0) if which is hinge else labels
    weights = data.draw(hnp.arrays(np.float64, n, elements=st.floats(0, 2)))
    sides = Sides.of(kept + lent, lent, labels, weights)
    found = additive_pieces.moments(additive_pieces.of_formula(loss.rows, labels), sides)
    for own, true in zip(
        (found.row_sum, found.donor_sum, found.row_squares),
        literal(loss.rows, kept + lent, lent, labels, weights),
        strict=True,
    ):
        np.testing.assert_allclose(own, true, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Routes


CASES = {
    "logistic": (LogisticRegression(), "class", ["log_loss", "cross_entropy", "zero_one"]),
    "logistic labels": (LogisticRegression(), "text", ["accuracy"]),
    "discriminant": (LinearDiscriminantAnalysis(), "text", ["log_loss"]),
    "gradient descent": (SGDClassifier(loss="log_loss", random_state=0), "class", ["log_loss"]),
    "hinge": (RidgeClassifier(), "sign", ["hinge"]),
    "poisson": (PoissonRegressor(), "count", ["poisson_deviance", "squared_error"]),
    "gamma": (GammaRegressor(), "positive", ["squared_error", "r2"]),
    "tweedie": (TweedieRegressor(power=0), "real", ["squared_error", "absolute_error"]),
    "ridge": (Ridge(), "real", ["absolute_error", "huber", "pinball", "rmse"]),
    "no labels": (PoissonRegressor(), "count", ["prediction_shift"]),
}


def labels_of(kind, score):
    rng = np.random.default_rng(3)
    return {
        "class": (score > 0).astype(int),
        "text": np.where(score > 0, "yes", "no"),
        "sign": np.where(score > 0, 1, -1),
        "count": rng.poisson(np.exp(0.5 * score)),
        "positive": np.exp(0.3 * score) + 0.1,
        "real": score,
    }[kind]


@pytest.mark.parametrize("case", CASES)
def test_generalised_linear_models_equal_the_plain_route(case):
    model, kind, losses = CASES[case]
    X, score, w = data()
    y = labels_of(kind, score)
    model.fit(X, y)
    options = {"loss": losses, "weights": w, "features": [0, (1, 2), 3], "keep": ["rows"], "compare": "difference"}
    found, plain = both(model, X, y, **options)
    for loss in losses:
        assert found[loss].routes == ("additive", "additive", "unused")
        assert found[loss].evaluations.tolist() == [0, 0, 0]
        assert_same(found[loss], plain[loss])


SEVERAL = {
    "softmax": (LogisticRegression(), ["log_loss", "cross_entropy"]),
    "discriminant": (LinearDiscriminantAnalysis(), ["log_loss"]),
    "one against the rest": (OneVsRestClassifier(LogisticRegression()), ["log_loss"]),
    "gradient descent": (SGDClassifier(loss="log_loss", random_state=0), ["log_loss"]),
    "several outputs": (Ridge(), ["squared_error"]),
}


@pytest.mark.parametrize(
    ("case", "n"), [*((case, 150) for case in SEVERAL), ("softmax", 1100), ("several outputs", 1100)]
)
def test_several_scores_equal_the_plain_route(case, n):
    model, losses = SEVERAL[case]
    X, score, w = data(n)
    y = np.stack([score, score**2], axis=1) if case == "several outputs" else np.digitize(score, [-0.5, 0.5])
    model.fit(X, y)
    for loss in losses:
        features = [0, 1, (0, 2), 3] if n < 1000 else [0]
        found, plain = both(model, X, y, loss=loss, weights=w, features=features, keep=["rows"])
        assert found.routes == ("additive", "additive", "plain", "unused")[: len(features)]
        assert_same(found, plain)


AVERAGED = {
    "votes": (VotingRegressor([("a", Ridge()), ("b", Ridge(100.0))], weights=[1, 3]), "squared_error"),
    "soft votes": (
        VotingClassifier([("a", LogisticRegression()), ("b", LogisticRegression(C=0.01))], voting="soft"),
        "log_loss",
    ),
    "calibrated": (CalibratedClassifierCV(RidgeClassifier(), cv=2), "log_loss"),
}


@pytest.mark.parametrize("case", AVERAGED)
def test_averages_of_linear_models_equal_the_plain_route(case):
    model, loss = AVERAGED[case]
    X, score, w = data(1100)
    y = score if case == "votes" else score > 0
    found, plain = both(model.fit(X, y), X, y, loss=loss, weights=w, features=[0, 3], keep=["rows"])
    assert found.routes == ("additive", "unused")
    assert_same(found, plain)


def test_steps_of_a_calibration_are_not_taken_for_smooth():
    X, score, _ = data(1100)
    model = CalibratedClassifierCV(RidgeClassifier(), method="isotonic", cv=2).fit(X, score > 0)
    assert rl.model_reliance(model, X, score > 0, loss="log_loss", features=[1]).routes == ("distinct",)


def test_log_loss_of_2000_rows_is_that_of_a_double_loop():
    X, score, _ = data(2000)
    y = (score > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    found = rl.model_reliance(model, X, y, loss="log_loss", features=[0, 1, 2], compare="difference")
    eta = X @ model.coef_[0] + model.intercept_[0]
    for j in range(3):
        scores = eta[:, None] + model.coef_[0, j] * (X[:, j] - X[:, [j]])
        table = np.logaddexp(0.0, np.where(y, -1, 1)[:, None] * scores)
        truth = (table - np.diag(table)[:, None]).sum() / (2000 * 1999)
        np.testing.assert_allclose(found.values[j], truth, rtol=1e-12)
    assert found.routes == ("additive",) * 3


def test_curves_come_along():
    X, score, _ = data(1100)
    model = PoissonRegressor().fit(X, labels_of("count", score))
    options = {"loss": "poisson_deviance", "keep": "curves", "features": [0, 1]}
    y = labels_of("count", score)
    found, plain = both(model, X, y, **options)
    for name in ("x0", "x1"):
        np.testing.assert_allclose(found.curves[name].mean, plain.curves[name].mean, rtol=1e-11)


def test_clipped_log_loss_is_the_model_s():
    X, score, _ = data(200)
    y = (score > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    model.coef_ *= 40.0  # scores beyond 36, where the loss is clipped
    found, plain = both(model, X, y, loss="log_loss", features=[0, 1, 2])
    assert found.routes == ("additive",) * 3
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-3)  # 1 - p of a p near 1 has few digits


def test_scores_of_zero_are_left_to_the_model():
    """Whether a score that is 0 but for rounding is above 0 only the model knows."""
    X = np.array([[a, b] for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)] * 4)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    model.coef_, model.intercept_ = np.array([[0.1, 0.1]]), np.array([0.0])
    found, plain = (
        rl.model_reliance(model, X, y, loss="zero_one", compare="difference", route=r) for r in ("auto", "plain")
    )
    assert found.routes == ("distinct", "distinct")
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-12)


def test_a_loss_of_your_own_is_taken_if_it_is_smooth():
    X, score, _ = data()
    model = Ridge().fit(X, score)

    def log_cosh(y, prediction):
        return np.logaddexp(y - prediction, prediction - y)

    def stepwise(y, prediction):
        return (y > prediction) * 1.0

    for loss, route in ((log_cosh, "additive"), (stepwise, "plain")):
        found, plain = (
            rl.model_reliance(model, X, score, loss=loss, features=[0], route=r, keep="rows") for r in ("auto", "plain")
        )
        assert found.routes == (route,)
        assert ("not smooth" in found.why_routes[0]) == (route == "plain")
        assert_same(found, plain)


def test_a_jump_at_a_level_is_seen():
    """Of a model that fits, the losses of all rows jump at their own values."""
    X = np.random.default_rng(0).normal(size=(1200, 2))
    X[:, 1] = X[:, 1] > 0
    model = Ridge(alpha=1e-9).fit(X, X.sum(axis=1))
    found = rl.model_reliance(
        model, X, X.sum(axis=1), loss=lambda y, p: (y > p) * 1.0, compare="difference", features=[1]
    )
    assert found.routes == ("distinct",)


@pytest.mark.once_per_device
def test_additive_models_of_any_array(backend):
    X, score, w = data(120)
    xp = backend.xp
    edges, heights = (backend.asarray(np.array(a)) for a in ([0.5, 1.5], [0.3, -0.2, 0.6]))
    model = rl.models.Additive([lambda x: xp.sin(x), (edges, heights), None, None], 0.1, link="logit")
    X, y, w = (backend.asarray(a) for a in (X, (score > 0).astype(float), w))
    options = {"loss": ["log_loss", "squared_error"], "weights": w, "keep": "rows"}
    found, plain = both(model, X, y, **options)
    for loss in options["loss"]:
        assert found[loss].routes == ("additive", "additive", "unused", "unused")
        assert_same(found[loss], plain[loss], 1e-10 if backend.dtype == "float64" else 1e-4)


def test_a_link_that_jumps_is_left_to_the_model():
    """Where a score that is rounded otherwise would fall on another step."""
    X, score, _ = data(60)
    X[:, 2] = X[:, 2].round()
    model = rl.models.Additive([None, None, lambda x: 0.1 * x], link=lambda u: np.floor(10 * u))
    found = rl.model_reliance(model, X, score, features=[2])
    assert found.routes == ("distinct",)
    assert "not smooth" in found.why_routes[0]


def test_a_sum_that_is_none_is_called_instead():
    """An effect that looks at its batch is no function of the column."""
    X, score, _ = data(60)
    model = rl.models.Additive([lambda x: x - x.mean()], link=np.exp)
    with pytest.warns(UserWarning, match="does not predict what the sum"):
        found = rl.model_reliance(model, X, np.exp(score), features=[0])
    assert found.routes == ("plain",)
    with pytest.raises(ValueError, match=r"route='additive'.*route='auto'"):
        rl.model_reliance(model, X, np.exp(score), features=[0], route="additive")


def test_a_link_that_was_changed_after_the_fit_is_noticed():
    X, score, _ = data(60)
    model = TweedieRegressor(power=1.5, link="log").fit(X, np.exp(score))
    model.link = "identity"  # predict() has its own memory
    with pytest.warns(UserWarning, match="TweedieRegressor does not predict what the sum"):
        assert rl.model_reliance(model, X, np.exp(score), features=[0]).routes == ("plain",)


def test_what_predicts_in_its_own_way_is_called():
    class Bounded(LogisticRegression):
        def predict_proba(self, X):
            return np.clip(super().predict_proba(X), 0.1, 0.9)

    X, score, _ = data(60)
    y = (score > 0).astype(int)
    assert "additive" not in rl.model_reliance(Bounded().fit(X, y), X, y, loss="log_loss").routes


@pytest.mark.parametrize("slope", [1.0, 40.0, 300.0])
def test_a_table_of_softmax_losses_is_that_of_a_loop(slope):
    """Small, large and too large for products of exponentials; some losses are clipped."""
    rng = np.random.default_rng(0)
    kept, at, lent = rng.normal(size=(6, 3)) * 5.0, rng.normal(size=6), rng.normal(size=4)
    own, slopes = rng.integers(3, size=6), slope * np.array([0.3, -1.0, 0.5])
    loss = additive_several.SoftmaxLogLoss(slopes)
    found = loss.table(np.concatenate([own[:, None], kept], axis=1), at, lent)
    eps = np.finfo(float).eps
    for i in range(6):
        for k in range(4):
            scores = kept[i] + (at[i] + lent[k]) * slopes
            probability = np.exp(scores - scores.max())
            probability = np.clip(probability[own[i]] / probability.sum(), eps, 1.0 - eps)
            np.testing.assert_allclose(found[i, k], -np.log(probability), rtol=1e-9, atol=1e-13)
