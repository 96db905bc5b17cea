"""Losses as the engine uses them are the user's own numbers: whatever their dtype, name, weights or sign."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import reliance as rl
from reliance._core.arrays import namespace
from reliance.data.checked_arrays import checked_weights
from reliance.losses import functions as ls

N = 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = RNG.integers(0, 3, size=N)


def predict(X):
    return 2.0 * X[:, 0] - X[:, 1]


def all_pairs(loss, X, y, weights=None):
    """The literal double loop: mean loss over all pairs less the base risk, for each column, and the base risk."""
    n, p = X.shape
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    base = [float(loss(y[i], 2.0 * X[i, 0] - X[i, 1])) for i in range(n)]
    risk = math.fsum(a * b for a, b in zip(w, base, strict=True)) / math.fsum(w)
    values = []
    for j in range(p):
        total = 0.0
        for i in range(n):
            for k in range(n):
                if i != k:
                    row = X[i].copy()
                    row[j] = X[k, j]
                    total += w[i] * float(loss(y[i], 2.0 * row[0] - row[1])) / (n - 1)
        values.append(total / math.fsum(w) - risk)
    return np.array(values), risk


# ---------------------------------------------------------------------------------------------------------------------
# Dtypes of what a function of the user's own returns


def bins(a):
    """A small number, 0 to 5, of any prediction: larger for some rows before, for others after the replacement."""
    return min(int(abs(a)), 5)


DTYPES = ("uint8", "uint16", "int8", "int32", "bool", "float16", "bfloat16")


def narrow_loss(dtype):
    def loss(y, prediction):
        xp = namespace(prediction)
        size = xp.abs(prediction)
        counted = xp.where(size > 5.0, xp.full_like(size, 5.0), xp.floor(size))
        if dtype == "bool":
            return counted > 1.0
        # int8 and uint8 wrap beyond 127 and 255.
        return xp.astype(40.0 * counted if dtype == "uint8" else counted, getattr(xp, dtype))

    return loss


@pytest.mark.paired("dtype", "pairs", one_in=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", ["all", 12], ids=["all", "as many draws as rows"])
def test_losses_of_any_dtype_are_subtracted_as_real_numbers(backend, dtype, pairs):
    if dtype in ("float16", "bfloat16") and not hasattr(backend.xp, dtype):
        pytest.skip("no such dtype")
    if backend.kind == "strict" and dtype == "float16":
        pytest.skip("no such dtype")
    x, scale = backend.rounded(X), 40.0 if dtype == "uint8" else 1.0
    oracle = {"bool": lambda y, p: bins(p) > 1}.get(dtype, lambda y, p: scale * bins(p))
    values, risk = all_pairs(oracle, x, Y)
    found = rl.model_reliance(
        predict, backend.asarray(X), backend.asarray(Y), loss=narrow_loss(dtype), pairs=pairs, compare="difference"
    )
    backend.assert_close(found.values, values, 5.0 * scale)
    backend.assert_close(found.base_risk, risk, 5.0 * scale)


def test_half_precision_losses_keep_what_they_differ_by(backend):
    """1000 and 1001 are half-precision numbers, and so is their difference; sums of them are not."""
    if not hasattr(backend.xp, "float16") or backend.kind == "strict":
        pytest.skip("no half precision")

    def loss(y, prediction):
        xp = namespace(prediction)
        return xp.astype(xp.where(prediction > 0.0, 1001.0, 1000.0), xp.float16)

    values, risk = all_pairs(lambda y, p: 1001.0 if p > 0 else 1000.0, backend.rounded(X), Y)
    found = rl.model_reliance(predict, backend.asarray(X), backend.asarray(Y), loss=loss, compare="difference")
    backend.assert_close(found.values, values, 1000.0)
    backend.assert_close(found.base_risk, risk)


@pytest.mark.paired("dtype", "with_influence", one_in=2)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16"])
@pytest.mark.parametrize("with_influence", [True, False])
def test_metrics_of_any_dtype_are_subtracted_as_real_numbers(backend, dtype, with_influence):
    rows = narrow_loss(dtype)

    def value(y, prediction):
        xp = namespace(prediction)
        return xp.astype(xp.max(xp.astype(rows(y, prediction), xp.uint8)), getattr(xp, dtype))

    metric = rl.Metric(value, rows if with_influence else None, name="worst")
    found = rl.model_reliance(predict, backend.asarray(X), backend.asarray(Y), loss=metric, compare="difference")
    scale, x = 40.0 if dtype == "uint8" else 1.0, backend.rounded(X)
    oracle = (lambda y, p: bins(p) > 1) if dtype == "bool" else (lambda y, p: scale * bins(p))
    if with_influence:
        values, risk = all_pairs(oracle, x, Y)
    else:
        own = [oracle(0, 2.0 * a - b) for a, b in x]
        risk, values = float(max(own)), []
        for j in range(2):
            draws = []
            for shift in range(1, N):  # all shifts of the rows are all pairs
                moved = x.copy()
                moved[:, j] = np.roll(x[:, j], -shift)
                draws.append(float(max(oracle(0, 2.0 * a - b) for a, b in moved)))
            values.append(np.mean(draws) - risk)
    backend.assert_close(found.values, values, 5.0 * scale)
    backend.assert_close(found.base_risk, risk, 5.0 * scale)


def test_losses_that_are_no_real_numbers_are_refused():
    with pytest.raises(TypeError, match="returned dtype complex128"):
        rl.permutation_importance(predict, X, Y, loss=lambda y, p: (y - p) * 1j)


# ---------------------------------------------------------------------------------------------------------------------
# Names


@pytest.mark.parametrize("name", sorted(ls._KNOWN))
def test_a_renamed_loss_is_the_same_loss(name):
    """Also its route, its checks, and which columns of probabilities it reads."""
    known = ls.resolve(name)
    x, rng = np.random.default_rng(1).normal(size=(30, 2)), np.random.default_rng(2)
    labels = np.arange(30) % 2

    def probabilities(X):
        p = 1.0 / (1.0 + np.exp(-X[:, 0]))
        return np.stack([1.0 - p, p], axis=1)

    def model(X):
        if known.output == "probability":
            return probabilities(X)
        return (X[:, 0] > 0).astype(int) if known.labels else np.exp(X[:, 0] - X[:, 1])

    y = {"sign": 2 * labels - 1, "real": rng.normal(size=30), "prediction": None}.get(known.target, labels)
    renamed = dataclasses.replace(known, name="mine")
    one, other = (rl.model_reliance(model, x, y, loss=loss, compare="difference") for loss in (known, renamed))
    np.testing.assert_array_equal(one.values, other.values)
    assert one.base_risk == other.base_risk
    assert other.loss == "mine"


ROWS_OF_FOUR = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("name", "y", "prediction", "words"),
    [
        ("auc", np.zeros(4), np.arange(4.0), "both classes"),
        ("r2", np.ones(4), np.arange(4.0), "constant"),
        ("log_loss", np.array([0, 1, 0, 1]), np.full((4, 2), 0.25), "sum to 1"),
        ("accuracy", np.array([0, 1, 0, 1]), np.full(4, 0.3), "integer labels"),
        ("zero_one", np.array([0, 1, 0, 1]), np.full(4, 0.3), "integer labels"),
    ],
)
def test_a_renamed_loss_is_checked_as_before(name, y, prediction, words):
    renamed = dataclasses.replace(ls.resolve(name), name="mine")
    with pytest.raises(ValueError, match=rf"^mine: .*{words}"):
        # A row's prediction is found by its number: the model may be called with any rows.
        rl.permutation_importance(lambda X: prediction[X[:, 0].astype(int) // 2], ROWS_OF_FOUR, y, loss=renamed)


def test_a_renamed_squared_error_keeps_the_closed_form():
    model = rl.models.Linear(np.array([2.0, -1.0]))
    mine = dataclasses.replace(ls.squared_error, name="mine")
    assert set(rl.model_reliance(model, X, predict(X) + Y, loss=mine).routes) == {"linear"}


# ---------------------------------------------------------------------------------------------------------------------
# Weights


@pytest.mark.parametrize("scale", [1e308, 1e-200, 5e-324, 2.0**60])
@pytest.mark.parametrize(
    "measure",
    [rl.permutation_importance, rl.model_reliance, rl.ablation_importance, rl.conditional_model_reliance],
)
def test_weights_of_any_size_are_proportions(measure, scale):
    # Multiples of the scale that it can hold: subnormal numbers have no fractions.
    few = np.array([0.0, 1.0] * (N // 2)) if scale > 1e300 or scale < 1e-300 else np.arange(N) % 4 / 4.0
    one, other = (measure(predict, X, Y, weights=w, rng=0, compare="difference") for w in (few, few * scale))
    np.testing.assert_allclose(other.values, one.values, rtol=1e-13)
    np.testing.assert_allclose(other.std_error, one.std_error, rtol=1e-12)
    assert other.base_risk == pytest.approx(one.base_risk, rel=1e-13)


@pytest.mark.parametrize("scale", [1e308, 1e-200])
def test_extreme_weights_on_every_backend(backend, scale):
    if backend.dtype == "float32":
        scale = 1e38 if scale > 1 else 1e-38
    weights = np.array([0.25, 1.0, 0.5] * (N // 3)) * scale
    squared = lambda y, p: (float(y) - p) ** 2  # noqa: E731
    values, risk = all_pairs(squared, backend.rounded(X), Y, backend.rounded(weights) / scale)
    found = rl.model_reliance(
        predict,
        backend.asarray(X),
        backend.asarray(Y.astype(float)),
        weights=backend.asarray(weights),
        compare="difference",
        route="plain",
    )
    backend.assert_close(found.values, values, 10.0)
    backend.assert_close(found.base_risk, risk, 10.0)
    assert np.all(np.isfinite(found.std_error))


def test_scaling_leaves_every_digit():
    w = np.random.default_rng(0).random(20)
    scaled = checked_weights(w)
    assert 0.5 <= scaled.max() <= 1.0
    assert np.array_equal(scaled / scaled[0], w / w[0])


@pytest.mark.parametrize("loss", ["auc", "r2", "rmse", "accuracy"])
def test_extreme_weights_of_metrics(loss):
    y = (np.arange(N) % 2).astype(float)
    model = (lambda X: (X[:, 0] > 0).astype(float)) if loss == "accuracy" else predict
    w = np.arange(1.0, N + 1.0)
    found = [
        rl.permutation_importance(model, X, y, weights=v, loss=loss, rng=0, draws=3) for v in (w, w * 1e-220, w * 1e306)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other.values, found[0].values, rtol=1e-12, atol=1e-14)


def test_a_metric_without_weights_is_told_before_the_work():
    calls = []

    def model(X):
        calls.append(len(X))
        return X[:, 0]

    blind = rl.Metric(lambda y, p: np.mean(np.abs(y - p)), lambda y, p: np.abs(y - p), name="blind")
    half_blind = rl.Metric(lambda y, p, w=None: np.mean(np.abs(y - p)), lambda y, p: np.abs(y - p), name="half")
    for metric in (blind, half_blind):
        with pytest.raises(TypeError, match=r"weights= is given.*weights=None"):
            rl.permutation_importance(model, X, Y, loss=metric, weights=np.ones(N), draws=3)
    assert not calls
    sampler = rl.samplers.Residual(rl.samplers.KernelRidge()) if hasattr(rl.samplers, "KernelRidge") else "residual"
    rows = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(TypeError, match="weight 0"):
        rl.relative_importance(model, rows, rows[:, 0], given=rl.Given([1], sampler=sampler), features=[0], loss=blind)
    assert sum(calls) <= 3 * len(rows)  # the base pass and its checks, none of the 20 draws
    rl.relative_importance(model, rows, rows[:, 0], given=[1], features=[0], loss=blind)  # its error needs no weights


# ---------------------------------------------------------------------------------------------------------------------
# Ratios


def gain(y, prediction):
    return -np.abs(y - prediction)


@pytest.mark.parametrize("loss", [gain, rl.Metric(lambda y, p: np.mean(gain(y, p)), gain, name="gain")])
@pytest.mark.parametrize(
    "call",
    [
        lambda loss: rl.permutation_importance(predict, X, Y, loss=loss, compare="ratio", draws=3),
        lambda loss: rl.permutation_importance(predict, X, Y, loss=loss, compare="ratio", draws=rl.Until()),
        lambda loss: rl.ablation_importance(predict, X, Y, loss=loss, compare="ratio", draws=3),
        lambda loss: rl.model_reliance(predict, X, Y, loss=loss),
        lambda loss: rl.conditional_model_reliance(predict, X, Y, loss=loss),
        lambda loss: rl.relative_importance(predict, X, Y, given=[], loss=loss, compare="ratio", draws=3),
        lambda loss: rl.algorithm_reliance(lambda X, y: lambda X: X[:, 0], X, Y, loss=loss, cv=2),
    ],
)
def test_a_ratio_over_a_negative_risk_is_refused(call, loss):
    with pytest.raises(ValueError, match=r"compare='ratio' divides by .* is -.*compare='difference'"):
        call(loss)


def test_a_class_whose_risks_are_negative_has_no_ratios():
    models = rl.FiniteClass([predict, lambda X: X[:, 0]], loss=gain)
    with pytest.raises(ValueError, match=r"compare='ratio' divides by the risk.*compare='difference'"):
        rl.model_class_reliance(models, X, Y, epsilon=0.5, relative=False)
    rl.model_class_reliance(models, X, Y, epsilon=0.5, relative=False, compare="difference")


# ---------------------------------------------------------------------------------------------------------------------
# Predictions


def test_masked_predictions_are_refused():
    def model(X):
        return np.ma.masked_array(X[:, 0], mask=X[:, 0] > 0)

    with pytest.raises(TypeError, match="masked"):
        rl.permutation_importance(model, X, Y, draws=3)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="masked"):
        rl.permutation_importance(lambda X: model(X.to_numpy()), pandas.DataFrame(X, columns=["a", "b"]), Y, draws=3)


# ---------------------------------------------------------------------------------------------------------------------
# Several methods of a classifier


pytestmark = pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated")
EPS = float(np.finfo(float).eps)


def classifiers():
    """Classifiers whose labels are not, or not always, their most probable classes; and some whose are."""
    linear = pytest.importorskip("sklearn.linear_model")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import FixedThresholdClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC

    return {
        "threshold": FixedThresholdClassifier(linear.LogisticRegression(), threshold=0.8),
        "svc": SVC(probability=True, random_state=0),
        "bayes": GaussianNB(),
        "forest": RandomForestClassifier(5, max_depth=3, random_state=0),
    }


ROWS = np.random.default_rng(3).normal(size=(40, 3))
TWO = (ROWS[:, 0] + np.random.default_rng(4).normal(size=40) > 0).astype(int)
THREE = np.digitize(ROWS[:, 0] + 0.5 * ROWS[:, 1], [-0.5, 0.5])
LABELS = {
    "numbers": (TWO, np.array([0, 1])),
    "text": (np.array(["no", "yes"])[TWO], np.array(["no", "yes"])),
    "shifted": (TWO + 7, np.array([7, 8])),
    "three": (THREE, np.arange(3)),
}


def shifted_values(row_loss, rows, y):
    """Mean loss over all pairs less that of the rows themselves, by the model's own methods, row by row."""
    n = len(rows)
    base = row_loss(rows, y)
    values = []
    for j in range(rows.shape[1]):
        total = 0.0
        for shift in range(1, n):
            moved = rows.copy()
            moved[:, j] = np.roll(rows[:, j], -shift)
            total += row_loss(moved, y).mean() / (n - 1)
        values.append(total - base.mean())
    return np.array(values), base.mean()


@pytest.mark.parametrize("labels", list(LABELS))
@pytest.mark.parametrize("kind", ["threshold", "svc", "bayes", "forest"])
def test_each_loss_reads_the_method_it_asks_for(kind, labels):
    y, classes = LABELS[labels]
    if kind == "threshold" and labels in ("three", "text"):
        pytest.skip("has two classes, 0 and 1")
    model = classifiers()[kind].fit(ROWS, y)
    places = {label: k for k, label in enumerate(classes.tolist())}
    codes = np.array([places[label] for label in y.tolist()])
    oracles = {
        "accuracy": lambda X, y: (model.predict(X) != y).astype(float),
        "zero_one": lambda X, y: (model.predict(X) != y).astype(float),
        "log_loss": lambda X, y: -np.log(np.clip(model.predict_proba(X), EPS, 1)[np.arange(len(X)), codes]),
    }
    found = rl.model_reliance(model, ROWS, y, loss=list(oracles), compare="difference")
    for name, oracle in oracles.items():
        values, risk = shifted_values(oracle, ROWS, y)
        np.testing.assert_allclose(found[name].values, values, rtol=1e-9, atol=1e-12)
        assert found[name].base_risk == pytest.approx(risk, rel=1e-9)
        alone = rl.model_reliance(model, ROWS, y, loss=name, compare="difference")
        np.testing.assert_allclose(found[name].values, alone.values, rtol=1e-9, atol=1e-12)


def test_labels_numbers_probabilities_and_scores_in_one_pass():
    linear = pytest.importorskip("sklearn.linear_model")
    signs = 2 * TWO - 1
    model = linear.LogisticRegression().fit(ROWS, signs)
    losses = ["accuracy", "squared_error", "log_loss", "auc", "hinge", "cross_entropy", "prediction_shift"]
    together = rl.permutation_importance(model, ROWS, signs, loss=losses, draws=4, rng=0)
    for loss in losses:
        alone = rl.permutation_importance(model, ROWS, signs, loss=loss, draws=4, rng=0)
        np.testing.assert_allclose(together[loss].values, alone.values, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(together[loss].std_error, alone.std_error, rtol=1e-10, atol=1e-14)


def test_losses_side_by_side_in_a_table_with_weights_and_curves():
    pandas = pytest.importorskip("pandas")
    model = classifiers()["svc"].fit(ROWS, TWO)
    frame, weights = pandas.DataFrame(ROWS, columns=list("abc")), np.arange(1.0, 41.0)
    losses = ["accuracy", "log_loss"]
    options = {"weights": weights, "compare": "difference", "keep": "curves"}
    found = rl.model_reliance(model, frame, TWO, loss=losses, **options)
    alone = rl.model_reliance(model, ROWS, TWO, loss="log_loss", names=list("abc"), **options)
    np.testing.assert_allclose(found["log_loss"].values, alone.values, rtol=1e-12)
    for name in "abc":
        np.testing.assert_allclose(found["accuracy"].curves[name].mean, alone.curves[name].mean, rtol=1e-12)


def test_text_labels_beside_numbers_are_refused():
    y, _ = LABELS["text"]
    model = classifiers()["bayes"].fit(ROWS, y)
    with pytest.raises(ValueError, match=r"separate calls"):
        rl.permutation_importance(model, ROWS, y, loss=[lambda y, p: y != p, "log_loss"])


class Unsorted:
    """A classifier whose classes are in no order."""

    classes_ = np.array(["b", "c", "a"])

    def predict_proba(self, X):
        scores = np.exp(np.stack([X[:, 0], -X[:, 0], X[:, 1]], axis=1))
        return scores / scores.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


@pytest.mark.parametrize("dtype", [str, object])
def test_unsorted_classes(dtype):
    model = Unsorted()
    y = np.array(["a", "b", "c"])[THREE]
    codes = np.array([2, 0, 1])[THREE]
    model.classes_ = model.classes_.astype(dtype)

    def oracle(X, y):
        return -np.log(model.predict_proba(X)[np.arange(len(X)), codes])

    values, risk = shifted_values(oracle, ROWS, y)
    found = rl.model_reliance(model, ROWS, y, loss=["log_loss", "accuracy"], compare="difference")
    np.testing.assert_allclose(found["log_loss"].values, values, rtol=1e-9, atol=1e-12)
    assert found["log_loss"].base_risk == pytest.approx(risk)
    values, risk = shifted_values(lambda X, y: (model.predict(X) != y).astype(float), ROWS, y)
    np.testing.assert_allclose(found["accuracy"].values, values, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="'z'"):
        rl.permutation_importance(model, ROWS, np.where(y == "a", "z", y), loss="log_loss")
