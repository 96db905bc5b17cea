"""Bad input: every message names the argument and the value given, and says what to do instead."""

from __future__ import annotations

import re

import numpy as np
import pytest

import reliance as rl
from bad_calls import X, Y, ablation, measure, reliance, replaced

ONES = np.ones(10)
LABELS = (Y > 0).astype(int)
IMAGES = np.arange(48.0).reshape(8, 3, 2)


def spoiled(x):
    x[:, 0] += 1.0
    return x[:, 0]


def doubled(x):
    x *= 2.0
    return x.sum(axis=1)


# Each line: what is called, the error, and what its message must hold: the argument, the value, the remedy.
BAD = {
    # rows
    "y-short": (lambda: measure(y=Y[:9]), ValueError, ["y has shape (9,)", "X has 10 rows", "must be equal"]),
    "y-scalar": (lambda: measure(y=np.float64(1.0)), (ValueError, TypeError), ["y", "X has 10 rows"]),
    "weights-short": (lambda: measure(weights=ONES[:3]), ValueError, ["weights has shape (3,)", "X has 10 rows"]),
    "weights-2d": (lambda: measure(weights=X), ValueError, ["weights has shape (10, 4)", "one number per row"]),
    "one-row": (lambda: measure(X=X[:1], y=Y[:1]), ValueError, ["X has 1 rows", "at least 2"]),
    "no-row": (lambda: measure(X=X[:0], y=Y[:0]), ValueError, ["X has 0 rows", "at least 2"]),
    "flat-X": (lambda: measure(X=Y, y=Y), ValueError, ["X has shape (10,)", "X[:, None]"]),
    "no-feature": (lambda: measure(X=X[:, :0]), ValueError, ["X has shape (10, 0)", "no feature"]),
    "y-none": (lambda: measure(y=None), ValueError, ["y is None", "prediction_shift"]),
    # draws
    "draws-0": (lambda: measure(draws=0), ValueError, ["draws=0", "at least once"]),
    "draws-negative": (lambda: ablation(draws=-2), ValueError, ["draws=-2", "at least once"]),
    "draws-float": (lambda: ablation(draws=2.5), TypeError, ["draws=2.5", "not an integer"]),
    "draws-bool": (lambda: measure(draws=True), TypeError, ["draws=True", "not an integer"]),
    "pairs-0": (lambda: reliance(pairs=0), ValueError, ["pairs=0", "at least once"]),
    "pairs-unknown": (lambda: reliance(pairs="some"), ValueError, ["pairs='some'", "'all', 'halves' or a number"]),
    "route-unknown": (lambda: reliance(route="fast"), ValueError, ["route='fast'", "'auto', 'plain'"]),
    "compare-unknown": (lambda: measure(compare="minus"), ValueError, ["compare='minus'", "'difference', 'ratio'"]),
    # losses
    "loss-unknown": (lambda: measure(loss="squared"), ValueError, ["loss='squared' is unknown", "squared_error"]),
    "metric-unknown": (lambda: measure(loss="f1"), ValueError, ["loss='f1' is unknown", "auc, r2, rmse, accuracy"]),
    "loss-number": (lambda: measure(loss=3), TypeError, ["loss", "3", "Metric"]),
    "loss-empty": (lambda: measure(loss=[]), ValueError, ["loss=[]", "at least one"]),
    "loss-twice": (lambda: measure(loss=["huber", "huber"]), ValueError, ["loss", "huber", "more than once"]),
    "loss-of-all-rows": (lambda: measure(loss=lambda y, p: ((y - p) ** 2).mean()), ValueError, ["shape ()", "Metric"]),
    # features
    "feature-name": (lambda: measure(features=["age"]), ValueError, ["features", "'age'", "'x0', 'x1', 'x2', 'x3'"]),
    "feature-index": (lambda: measure(features=[4]), ValueError, ["features", "index 4", "4 features"]),
    "feature-negative": (lambda: measure(features=[-5]), ValueError, ["features", "index -5", "4 features"]),
    "feature-in-group": (lambda: measure(features=[(0, "age")]), ValueError, ["features", "'age'", "'x0', 'x1'"]),
    "feature-in-dict": (lambda: measure(features={"g": [7]}), ValueError, ["features", "index 7", "4 features"]),
    "feature-float": (lambda: measure(features=[1.0]), TypeError, ["features holds 1.0", "an index, a name"]),
    "feature-bool": (lambda: measure(features=[True, False]), TypeError, ["features holds True", "an index, a name"]),
    "feature-bare-name": (lambda: measure(features="x0"), TypeError, ["features='x0'", "pass ['x0']"]),
    "feature-bare-index": (lambda: measure(features=0), TypeError, ["features=0", "pass [0]"]),
    "features-empty": (lambda: measure(features=[]), ValueError, ["features is empty", "None for all"]),
    "features-empty-dict": (lambda: measure(features={}), ValueError, ["features is empty", "None for all"]),
    "feature-twice": (lambda: measure(features=[1, "x1"]), ValueError, ["features", "'x1' twice", "once"]),
    "group-twice": (lambda: measure(features=[(0, 1), (1, 0)]), ValueError, ["features", "'x0+x1' twice", "once"]),
    "column-twice": (lambda: measure(features=[(0, 0)]), ValueError, ["features", "'x0' twice", "once"]),
    "group-empty": (lambda: measure(features=[()]), ValueError, ["features", "group () is empty", "at least one"]),
    "dict-group-empty": (
        lambda: measure(features={"g": []}),
        ValueError,
        ["features", "group g is empty", "at least one"],
    ),
    "mask-shape": (
        lambda: measure(X=IMAGES, y=ONES[:8], features=np.zeros((2, 3), dtype=int)),
        ValueError,
        ["features", "mask of shape (2, 3)", "shape (3, 2)"],
    ),
    "mask-dtype": (
        lambda: measure(X=IMAGES, y=ONES[:8], features=np.zeros((3, 2))),
        TypeError,
        ["features", "mask of dtype float64", "integers"],
    ),
    "mask-bool": (
        lambda: measure(X=IMAGES, y=ONES[:8], features=np.zeros((3, 2), dtype=bool)),
        TypeError,
        ["features", "mask of dtype bool", "integers"],
    ),
    "names-short": (lambda: measure(names=["a"]), ValueError, ["names has 1 entries", "4 features", "one name"]),
    "names-twice": (lambda: measure(names=list("aabc")), ValueError, ["names", "'a' twice", "distinct"]),
    "names-string": (lambda: measure(names="abcd"), TypeError, ["names='abcd'", "sequence of 4"]),
    "names-numbers": (lambda: measure(names=[1, 2, 3, 4]), TypeError, ["names holds 1", "strings"]),
    # values
    "y-nan": (lambda: measure(y=replaced(Y, 2, np.nan)), ValueError, ["y holds NaN", "drop those rows"]),
    "y-inf": (lambda: measure(y=replaced(Y, 2, np.inf)), ValueError, ["y holds NaN or infinite", "drop those rows"]),
    "weights-negative": (lambda: measure(weights=-ONES), ValueError, ["weights", "-1", "non-negative"]),
    "weights-zero": (lambda: measure(weights=0 * ONES), ValueError, ["weights are all zero", "at least one"]),
    "weights-nan": (lambda: measure(weights=np.nan * ONES), ValueError, ["weights holds NaN", "finite"]),
    "ratio-perfect": (lambda: reliance(y=X[:, 0]), ValueError, ["compare='ratio'", "is 0", "compare='difference'"]),
    "ratio-shift": (
        lambda: reliance(y=None, loss="prediction_shift"),
        ValueError,
        ["compare='ratio'", "prediction_shift", "compare='difference'"],
    ),
    "probability": (
        lambda: measure(y=LABELS, loss="log_loss"),
        ValueError,
        ["log_loss needs probabilities in [0, 1]", "range from", "cross_entropy"],
    ),
    "probability-sum": (
        lambda: measure(lambda x: np.full((len(x), 2), 0.4), y=LABELS, loss="log_loss"),
        ValueError,
        ["log_loss", "sum to 1", "0.8", "normalise"],
    ),
    "probability-replaced": (
        lambda: measure(lambda x: (x[:, 0] == x[:, 1]) * 2.0 - 1.0, np.stack([Y, Y], axis=1), LABELS, loss="log_loss"),
        ValueError,
        ["'x0'", "'log_loss'", "probabilities in [0, 1]"],
    ),
    "labels-out-of-classes": (
        lambda: measure(lambda x: np.full((len(x), 2), 0.5), y=LABELS + 1, loss="log_loss"),
        ValueError,
        ["y has labels 2", "predicted classes 0..1", "encode y"],
    ),
    "labels-sign": (
        lambda: measure(y=2 * LABELS - 1, loss="cross_entropy"),
        ValueError,
        ["y has labels -1", "classes 0..1", "(y + 1) // 2"],
    ),
    "labels-for-hinge": (lambda: measure(y=LABELS, loss="hinge"), ValueError, ["hinge: y must be -1 or 1", "2*y - 1"]),
    "labels-text": (
        lambda: measure(y=np.array(["a", "b"] * 5)),
        ValueError,
        ["zero_one: y has dtype <U1", "the same kind of labels"],
    ),
    "counts-negative": (
        lambda: measure(lambda x: np.exp(x[:, 0]), y=LABELS - 1, loss="poisson_deviance"),
        ValueError,
        ["poisson_deviance: y must be >= 0", "-1"],
    ),
    "rates-negative": (lambda: measure(y=LABELS, loss="poisson_deviance"), ValueError, ["predictions > 0", "exp"]),
    "auc-one-class": (lambda: measure(y=np.ones(10, int), loss="auc"), ValueError, ["auc: y holds only the class 1"]),
    "r2-constant": (lambda: measure(y=ONES, loss="r2"), ValueError, ["r2: y is constant", "squared_error"]),
    "y-column": (lambda: measure(y=Y[:, None]), ValueError, ["y has shape (10, 1)", "(10,)", "pass y[:, 0]"]),
    "y-column-metric": (
        lambda: measure(y=Y[:, None], loss="rmse"),
        ValueError,
        ["y has shape (10, 1)", "pass y[:, 0]"],
    ),
    "y-column-own-loss": (
        lambda: measure(y=Y[:, None], loss=lambda y, p: np.abs(y - p)),
        ValueError,
        ["y has shape (10, 1)", "pass y[:, 0]"],
    ),
    "y-outputs": (lambda: measure(y=X), ValueError, ["y has shape (10, 4)", "predictions have shape (10,)"]),
    # settings
    "memory-row": (lambda: measure(run=rl.Run(memory=10)), ValueError, ["memory=10 bytes is too small", "rl.Run"]),
    "memory-0": (lambda: measure(run=rl.Run(memory=0)), ValueError, ["memory=0 is too small", "positive"]),
    "memory-text": (lambda: measure(run=rl.Run(memory="much")), ValueError, ["memory='much'", "'512MB'"]),
    "memory-float": (lambda: measure(run=rl.Run(memory=1e9)), ValueError, ["memory=1000000000.0", "integer"]),
    "block-0": (lambda: measure(run=rl.Run(block=0)), ValueError, ["block=0", "(rows, draws)"]),
    "block-3": (lambda: measure(run=rl.Run(block=(1, 2, 3))), ValueError, ["block=(1, 2, 3)", "(rows, draws)"]),
    "block-empty": (lambda: measure(run=rl.Run(block=())), ValueError, ["block=()", "(rows, draws)"]),
    "block-text": (lambda: measure(run=rl.Run(block="big")), ValueError, ["block='big'", "'tune'"]),
    "keep-unknown": (lambda: measure(keep="all"), ValueError, ["keep='all'", "'rows'"]),
    "progress-number": (lambda: measure(progress=3), TypeError, ["progress=3", "(done, total)"]),
    "rng-float": (lambda: measure(rng=0.5), TypeError, ["rng=0.5", "Generator"]),
    # kinds of data
    "generator-X": (lambda: measure(X=(row for row in X)), TypeError, ["X is a generator", "list(X)"]),
    "map-y": (lambda: measure(y=map(float, Y)), TypeError, ["y is a map", "list(y)"]),
    "iterator-weights": (lambda: measure(weights=iter(ONES)), TypeError, ["weights is a ", "list(weights)"]),
    "ragged-X": (lambda: measure(X=[[1.0], [1.0, 2.0]], y=[1.0, 2.0]), ValueError, ["X is a list", "differ in length"]),
    "dict-X": (lambda: measure(X={"a": [1.0]}), TypeError, ["X is a dict", "pass a NumPy"]),
    "none-X": (lambda: measure(X=None), TypeError, ["X is a NoneType", "pass a NumPy"]),
    "object-X": (lambda: measure(X=X.astype(object)), TypeError, ["X has dtype object", "astype(float)"]),
    "complex-X": (lambda: measure(X=X + 1j), TypeError, ["X has dtype complex128", "X.real"]),
    "text-X": (lambda: measure(X=X.astype(str)), TypeError, ["X has dtype <U", "or a table"]),
    "masked-X": (lambda: measure(X=np.ma.masked_invalid(X)), TypeError, ["X is a masked array", "fill or drop"]),
    # models
    "model-changes-X": (lambda: measure(spoiled), ValueError, ["model spoiled changes its input", "on a copy"]),
    "model-doubles-X": (lambda: reliance(doubled), ValueError, ["model doubled changes its input", "on a copy"]),
    "model-nan": (lambda: measure(lambda x: x[:, 0] / 0.0), ValueError, ["NaN or infinite predictions", "rows of X"]),
    "model-nan-replaced": (
        lambda: measure(lambda x: np.where(x[:, 0] == x[:, 1], 1.0, np.inf), np.stack([Y, Y], axis=1)),
        ValueError,
        ["'x0'", "'squared_error'", "finite predictions"],
    ),
    # tests and intervals
    "wilcoxon-many": (
        lambda: measure(keep="rows").test(method="wilcoxon"),
        ValueError,
        ["method='wilcoxon'", "one draw per row", "has 3", "draws=1"],
    ),
    "sign-many": (
        lambda: measure(keep="rows").test(method="sign"),
        ValueError,
        ["method='sign'", "has 3", "method='t'"],
    ),
    "test-method": (lambda: measure().test(method="z"), ValueError, ["method='z'", "'t', 'paired'"]),
    "adjust-unknown": (lambda: measure().test(adjust="tukey"), ValueError, ["adjust='tukey'", "'holm', 'bh'"]),
    "level": (lambda: measure().interval(95), ValueError, ["level=95", "between 0 and 1"]),
    "formulation": (lambda: measure().interval(0.9, "bayes"), ValueError, ["formulation='bayes'", "population"]),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_message_names_argument_value_and_remedy(case):
    call, error, parts = BAD[case]
    with pytest.raises(error, match=re.escape(parts[0])) as caught:
        call()
    for part in parts[1:]:
        assert part in str(caught.value)


@pytest.mark.parametrize("argument", ["y", "weights"])
def test_data_of_different_kinds(argument):
    torch = pytest.importorskip("torch")
    arrays = {"y": torch.from_numpy(Y), "weights": torch.ones(10)}
    arrays[argument] = np.ones(10)
    with pytest.raises(TypeError, match=rf"{argument} is a numpy array on cpu but X is a torch array on cpu: convert"):
        measure(X=torch.from_numpy(X), **arrays)


@pytest.mark.parametrize("argument", ["y", "weights"])
def test_data_on_different_devices(argument):
    strict = pytest.importorskip("array_api_strict")
    one, other = strict.Device("device1"), strict.Device("device2")
    arrays = {"y": strict.asarray(Y, device=one), "weights": strict.asarray(ONES, device=one)}
    arrays[argument] = strict.asarray(ONES, device=other)
    with pytest.raises(TypeError, match=rf"{argument} is a .*device2.* but X is a .*device1.*: convert one of them"):
        measure(X=strict.asarray(X, device=one), **arrays)


def test_a_model_on_another_device():
    strict = pytest.importorskip("array_api_strict")
    one, other = strict.Device("device1"), strict.Device("device2")
    with pytest.raises(ValueError, match=r"returned a .*device2.* for a .*device1.*: move the model or X"):
        measure(lambda x: x[:, 0].to_device(other), strict.asarray(X, device=one), strict.asarray(Y, device=one))


@pytest.mark.once_per_device
def test_a_model_that_changes_its_input_is_found_on_every_backend(backend):
    def changing(x):
        x[:, 1] = 0.0 * x[:, 1]
        return x[:, 0]

    if backend.kind == "jax":
        with pytest.raises(TypeError, match=r"immutable|does not support item assignment"):
            measure(changing, backend.asarray(X), backend.asarray(Y))
        return
    given = backend.asarray(X)
    with pytest.raises(ValueError, match=r"changing changes its input: work on a copy"):
        measure(changing, given, backend.asarray(Y))


def test_the_users_data_survive_a_model_that_changes_its_input():
    own = X.copy()
    with pytest.raises(ValueError, match="changes its input"):
        measure(spoiled, own)
    np.testing.assert_array_equal(own, X)
