"""What can be passed as a model: callables of all kinds, torch modules, JAX functions, scikit-learn estimators."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref

import numpy as np
import pytest

import reliance as rl
from methods import METHODS, assert_result, tables
from oracles import CASES
from reliance._core.arrays import to_host
from reliance.models import calling

CASE = CASES["squared_error"]
COLUMNS = [(j,) for j in range(4)]


def data(n=10, seed=0):
    return CASE.data(n, seed)


# ---------------------------------------------------------------------------------------------------------------------
# Callables


class Scaled:
    """A model with state, called in several ways."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * CASE.formula(x)

    def forward(self, x):
        return self.factor * CASE.formula(x)

    @staticmethod
    def static(x):
        return 2.0 * CASE.formula(x)

    @classmethod
    def of_class(cls, x):
        return 2.0 * CASE.formula(x)


class Unhashable(Scaled):
    __hash__ = None


class Slotted:
    __slots__ = ()

    def __call__(self, x):
        return 2.0 * CASE.formula(x)


CALLABLES = {
    "object": lambda: Scaled(2.0),
    "bound-method": lambda: Scaled(2.0).forward,
    "static-method": lambda: Scaled.static,
    "class-method": lambda: Scaled.of_class,
    "partial": lambda: functools.partial(lambda factor, x: factor * CASE.formula(x), 2.0),
    "lambda": lambda: lambda x: 2.0 * CASE.formula(x),
    "unhashable": lambda: Unhashable(2.0),
    "not-weakly-referable": Slotted,
}


@pytest.mark.once_per_device
@pytest.mark.parametrize("kind", CALLABLES)
def test_every_kind_of_callable(backend, kind):
    X, y = data(n=8)
    arrays = backend.asarray(X), backend.asarray(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = METHODS["permutation"](CALLABLES[kind](), *arrays, keep="rows")
    exact = backend.rounded(X), backend.rounded(y)
    expected = tables(METHODS["permutation"], lambda x: 2.0 * CASE.formula(x), CASE.oracle, *exact, COLUMNS)
    assert_result(backend, result, expected, "difference")


@pytest.mark.once_per_device
def test_two_bound_methods_of_one_object_are_two_models(backend):
    class Two:
        def first(self, x):
            return x[:, 0]

        def second(self, x):
            return x[:, 1]

    both = Two()
    X, y = data()
    arrays = backend.asarray(X), backend.asarray(y)
    first = METHODS["permutation"](both.first, *arrays).values
    second = METHODS["permutation"](both.second, *arrays).values
    assert first[0] != 0 == first[1]
    assert second[1] != 0 == second[0]


def viewed(x):
    return x[:, 1]


def copied(x):
    return x[:, 1] + 0.0


def prediction_itself(y, prediction):
    return prediction


@pytest.mark.once_per_device
@pytest.mark.parametrize("block", [4, (3, 2)], ids=str)
@pytest.mark.parametrize("loss", ["squared_error", "rmse", prediction_itself])
@pytest.mark.parametrize("method", ["permutation", "all"])
def test_a_model_that_returns_a_view_of_its_input(backend, method, loss, block):
    """The buffer is filled again while the first answers wait."""
    X, y = data(n=9)
    arrays = backend.asarray(X), backend.asarray(y)
    view = METHODS[method](viewed, *arrays, loss=loss, run=rl.Run(block=block), compare="difference", keep="rows")
    copy = METHODS[method](copied, *arrays, loss=loss, compare="difference", keep="rows")
    backend.assert_close(view.row_values, copy.row_values)
    assert (view.row_values[1] != 0.0).all()


def test_a_model_class_is_refused():
    with pytest.raises(TypeError, match="model=Scaled is a class: pass a fitted instance"):
        rl.permutation_importance(Scaled, *data())


@pytest.mark.parametrize("bad", [None, 3, "model"], ids=repr)
def test_what_cannot_be_called(bad):
    with pytest.raises(TypeError, match=rf"model={bad!r} cannot be called: pass a function"):
        rl.permutation_importance(bad, *data())


# ---------------------------------------------------------------------------------------------------------------------
# JAX


def test_an_untraceable_callable_warns_once_and_is_right():
    jnp = pytest.importorskip("jax.numpy")
    X, y = data()

    def untraceable(x):
        return jnp.asarray(CASE.formula(np.asarray(x)))

    with pytest.warns(UserWarning, match="untraceable cannot be traced by JAX") as caught:
        result = METHODS["all"](untraceable, jnp.asarray(X), jnp.asarray(y), run=rl.Run(block=7))
    assert len([w for w in caught if "traced" in str(w.message)]) == 1
    plain = METHODS["all"](CASE.formula, np.float32(X), np.float32(y))
    np.testing.assert_allclose(result.values, plain.values, rtol=1e-5)


@pytest.mark.parametrize("kind", ["object", "bound-method", "lambda", "partial"])
def test_compiled_functions_do_not_keep_a_model_alive(kind):
    jnp = pytest.importorskip("jax.numpy")
    X, y = data()
    model = CALLABLES[kind]()
    owner = weakref.ref(getattr(model, "__self__", model))
    METHODS["permutation"](model, jnp.asarray(X), jnp.asarray(y))
    del model
    gc.collect()
    assert owner() is None


def test_a_jitted_function_is_a_model():
    jax = pytest.importorskip("jax")
    X, y = (np.float32(a) for a in data())
    result = METHODS["all"](jax.jit(CASE.formula), jax.numpy.asarray(X), jax.numpy.asarray(y))
    np.testing.assert_allclose(result.values, METHODS["all"](CASE.formula, X, y).values, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# scikit-learn


@pytest.fixture(scope="module")
def classified():
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    codes = np.digitize(X[:, 0] + 0.5 * rng.normal(size=60), [-0.5, 0.5])
    return linear, X, codes


LABELS = {
    "integers": np.array([0, 1, 2]),
    "other-integers": np.array([-3, 4, 10]),
    "strings": np.array(["a", "bb", "c"]),
    "floats": np.array([0.0, 1.0, 2.0]),
}
ANSWERS = {
    "log_loss": lambda f: lambda x: f.predict_proba(x),
    "zero_one": lambda f: lambda x: f.predict_proba(x),
    "accuracy": lambda f: lambda x: f.predict_proba(x),
    "cross_entropy": lambda f: lambda x: f.decision_function(x),
}


@pytest.mark.parametrize("loss", ANSWERS)
@pytest.mark.parametrize("labels", LABELS)
def test_classifiers_with_any_labels(classified, labels, loss):
    linear, X, codes = classified
    y = LABELS[labels][codes]
    fitted = linear.LogisticRegression().fit(X, y)
    result = METHODS["permutation"](fitted, X, y, loss=loss)
    by_hand = METHODS["permutation"](ANSWERS[loss](fitted), X, codes, loss=loss)
    np.testing.assert_allclose(result.values, by_hand.values, rtol=1e-12)


@pytest.mark.parametrize("labels", LABELS)
def test_probabilities_and_labels_share_one_evaluation(classified, labels):
    linear, X, codes = classified
    y = LABELS[labels][codes]
    fitted = linear.LogisticRegression().fit(X, y)
    together = METHODS["permutation"](fitted, X, y, loss=["log_loss", "accuracy"])
    for name, result in together.items():
        np.testing.assert_allclose(result.values, METHODS["permutation"](fitted, X, y, loss=name).values, rtol=1e-12)


@pytest.mark.parametrize("labels", ["integers", "other-integers", "strings"])
def test_auc_of_a_classifier_takes_the_second_class(classified, labels):
    linear, X, codes = classified
    y = LABELS[labels][np.minimum(codes, 1)]
    fitted = linear.LogisticRegression().fit(X, y)
    result = METHODS["permutation"](fitted, X, y, loss="auc")
    by_hand = METHODS["permutation"](lambda x: fitted.predict_proba(x)[:, 1], X, np.minimum(codes, 1), loss="auc")
    np.testing.assert_allclose(result.values, by_hand.values, rtol=1e-12)


def test_hinge_takes_the_decision_function(classified):
    linear, X, codes = classified
    y = np.where(codes > 0, 1, -1)
    fitted = linear.RidgeClassifier().fit(X, y)
    result = METHODS["permutation"](fitted, X, y, loss="hinge")
    np.testing.assert_allclose(
        result.values, METHODS["permutation"](fitted.decision_function, X, y, loss="hinge").values
    )


@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors(classified, outputs):
    linear, X, _ = classified
    y = np.stack([X @ [1.0, 2.0, 0.0], X @ [0.0, -1.0, 1.0]], axis=1)[:, :outputs] + 0.1
    y = y[:, 0] if outputs == 1 else y
    fitted = linear.LinearRegression().fit(X, y)
    result = METHODS["all"](fitted, X, y, compare="difference")
    np.testing.assert_allclose(result.values, METHODS["all"](fitted.predict, X, y, compare="difference").values)


def test_a_method_that_the_estimator_does_not_have(classified):
    linear, X, codes = classified
    fitted = linear.RidgeClassifier().fit(X, codes)
    with pytest.raises(TypeError, match=r"model=RidgeClassifier has no predict_proba, which loss='log_loss' needs"):
        rl.permutation_importance(fitted, X, codes, loss="log_loss")


def test_a_label_that_the_classifier_never_saw(classified):
    linear, X, codes = classified
    fitted = linear.LogisticRegression().fit(X[codes < 2], codes[codes < 2])
    with pytest.raises(ValueError, match=r"y holds the label .*2.*, which is not among the model's classes \[0, 1\]"):
        rl.permutation_importance(fitted, X, codes, loss="log_loss")


def test_several_outputs_with_classes_of_their_own(classified):
    tree = pytest.importorskip("sklearn.tree")
    _, X, codes = classified
    fitted = tree.DecisionTreeClassifier(max_depth=2).fit(X, np.stack([codes, codes > 0], axis=1))
    with pytest.raises(ValueError, match="several outputs with classes of their own: pass a function"):
        rl.permutation_importance(fitted, X, codes, loss="log_loss")


# ---------------------------------------------------------------------------------------------------------------------
# Answers that are no predictions


WRONG = {
    "short": (lambda x: x[1:, 0], ValueError, r"returned shape \(\d+,\) for \d+ rows"),
    "scalar": (lambda x: x[0, 0], ValueError, r"returned (shape \(\)|\w+, not an array)|one prediction per row"),
    "number": (lambda x: 1.0, TypeError, "returned float, not an array"),
    "list": (lambda x: [0.0] * x.shape[0], TypeError, "returned list, not an array"),
    "none": (lambda x: None, TypeError, "returned None: return predictions, one per row"),
    "tuple": (lambda x: (x[:, 0], x[:, 1]), TypeError, "returned a tuple of 2: choose one"),
}


@pytest.mark.once_per_device
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_answers(backend, wrong):
    model, error, message = WRONG[wrong]
    X, y = data()
    with pytest.raises((error, TypeError) if wrong == "scalar" else error, match=message):
        rl.permutation_importance(model, backend.asarray(X), backend.asarray(y), draws=3)


@pytest.mark.once_per_device
def test_another_namespace(backend):
    X, y = data()
    other = pytest.importorskip("torch").from_numpy if backend.kind != "torch" else np.asarray

    def model(x):
        return other(np.array(to_host(x))[:, 0])

    with pytest.raises(TypeError, match=r"returned a \w+ array on .* for a .*: convert"):
        rl.permutation_importance(model, backend.asarray(X), backend.asarray(y), draws=3)


def test_an_adapted_model_is_taken_as_it_is():
    X, y = data()
    adapted = calling.Model(CASE.formula, CASE.formula)
    np.testing.assert_array_equal(METHODS["all"](adapted, X, y).values, METHODS["all"](CASE.formula, X, y).values)
