"""All pairs of kernel machines: sums over their centres against the machines called for every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import reliance as rl
from reliance.exact import kernel_tables
from reliance.models import kernel_machines

N, TRAINED = 80, 50


def data(seed=0, n=N):
    """A column of numbers, one far from 0 and with a heavy tail, one with ties, one that is constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 1] = 3.0 + rng.standard_t(3, size=n)
    X[:, 2] = np.round(2 * X[:, 2]) / 2
    X[:, 3] = 1.5
    return X, X[:, 0] + np.sin(X[:, 1]) * X[:, 2] + 0.2 * rng.normal(size=n)


def process(kernel):
    return GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None, normalize_y=True)


REGRESSORS = {
    "svr": SVR(C=3.0),
    "narrow svr": SVR(gamma=2.0),
    "linear svr": SVR(kernel="linear"),
    "nu svr of degree 3": NuSVR(kernel="poly", coef0=1.0),
    "ridge": KernelRidge(kernel="rbf", gamma=0.2),
    "ridge of degree 2": KernelRidge(kernel="polynomial", degree=2),
    "process": process(2.0 * kernels.RBF([1.0, 2.0, 3.0, 1.0]) + kernels.WhiteKernel(0.1)),
    "process of several": process(kernels.RBF(2.0) * kernels.RBF(1.0) + 0.5 * kernels.DotProduct() ** 2 + 3.0),
}


def same(found, plain, rtol=1e-9):
    scale = np.max(np.abs(plain.values))
    np.testing.assert_allclose(found.values, plain.values, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(found.std_error, plain.std_error, rtol=rtol, atol=rtol * scale)


def both(model, X, y, **options):
    """By the route, and by calling the model."""
    options = {"compare": "difference", **options}
    return (rl.model_reliance(model, X, y, route=way, **options) for way in ("kernel", "plain"))


@pytest.mark.filterwarnings("ignore")  # of the constant column
@pytest.mark.parametrize("name", REGRESSORS)
def test_all_pairs_are_those_of_the_machine(name):
    X, y = data()
    model = REGRESSORS[name].fit(X[:TRAINED], y[:TRAINED])
    weights = np.random.default_rng(1).uniform(size=N)
    losses = ["squared_error", "prediction_shift", "absolute_error"]
    for features in (None, [0, (1, 2), 1]):
        found, plain = both(model, X, y, features=features, weights=weights)
        assert set(found.routes) <= {"kernel", "unused"}
        same(found, plain)
        found, plain = both(model, X, y, features=features, loss=losses)
        for loss in losses:
            same(found[loss], plain[loss])
    assert rl.model_reliance(model, X, y).routes == ("kernel", "kernel", "kernel", "unused")


@pytest.mark.parametrize("name", ["svr", "process of several"])
def test_sums_are_those_of_tables(name, monkeypatch):
    """Of a column of many values, without n x n numbers; values, errors, and the curve over donors."""
    X, y = data(n=300)
    model = REGRESSORS[name].fit(X[:TRAINED], y[:TRAINED])
    weights = np.random.default_rng(1).uniform(size=300)
    options = {"features": [0, 1], "weights": weights, "keep": "curves", "compare": "ratio"}
    found = rl.model_reliance(model, X, y, **options)
    assert np.all(found.evaluations < 300 * 150)
    plain = rl.model_reliance(model, X, y, route="plain", **options)
    same(found, plain)
    for own, other in zip(found.curves.values(), plain.curves.values(), strict=True):
        np.testing.assert_allclose(own.mean, other.mean, atol=1e-9)
    monkeypatch.setattr(kernel_tables, "MOST_ORDER", 1)
    tables = rl.model_reliance(model, X, y, **options)
    assert tables.routes == found.routes
    assert tables.evaluations.tolist() == [300**2] * 2
    same(tables, plain)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 40),
    kernel=st.sampled_from(["rbf", "poly", "linear"]),
    gamma=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    loss=st.sampled_from(["squared_error", "absolute_error", "prediction_shift"]),
    compare=st.sampled_from(["difference", "ratio"]),
    weighted=st.booleans(),
    block=st.sampled_from([None, (9, 11)]),
)
def test_any_machine(seed, n, kernel, gamma, loss, compare, weighted, block):
    """Ties, constant columns, columns of any scale, groups, weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * 10.0 ** rng.uniform(-2, 1, size=4) + rng.normal(size=4)
    X[:, 1], X[:, 3] = rng.choice([0.0, 1.0, -0.5], size=n), 2.0
    y = 5.0 + rng.normal(size=n)
    # Powers of large numbers cancel in the machine itself, whose own predictions then have few digits.
    gamma = gamma if kernel == "rbf" else min(gamma, 0.1)
    model = SVR(kernel=kernel, gamma=gamma, coef0=0.5, degree=2).fit(X, y)
    compare = "difference" if loss == "prediction_shift" else compare
    options = {"loss": loss, "compare": compare, "features": [0, 1, 2, 3, (0, 1), (0, 1, 2, 3)], "keep": "rows"}
    options |= {"run": rl.Run(block=block), "weights": rng.uniform(0.5, 2.0, n) if weighted else None}
    found, plain = both(model, X, y, **options)
    for name in ("values", "replaced_risk", "row_values", "std_error", "random_variable_error"):
        known = getattr(plain, name)
        # Squares of predictions are rounded at the size of their terms, which may be far larger than their changes.
        rounding = 1e-9 * (np.nanmax(np.abs(known)) + 1e-3)
        np.testing.assert_allclose(getattr(found, name), known, rtol=1e-8, atol=rounding, err_msg=name)


def test_contributions_and_curves_of_rows():
    X, y = data()
    model = SVR().fit(X, y)
    local, called = (
        rl.local_importance(model, X, features=[0, 2]),
        rl.local_importance(model.predict, X, features=[0, 2]),
    )
    np.testing.assert_allclose(local.values, called.values, atol=1e-10)
    found, plain = both(model, X, y, features=[0, 2], keep="ice")
    for own, other in zip(found.curves.values(), plain.curves.values(), strict=True):
        np.testing.assert_allclose(own.ice, other.ice, atol=1e-10)


@pytest.mark.parametrize("model", [SVC(), NuSVC(kernel="poly", nu=0.3), SVC(kernel="linear")])
@pytest.mark.parametrize("loss", ["zero_one", "hinge", "accuracy"])
def test_classes_of_two(model, loss):
    X, y = data()
    X, labels = X[:, :3], (y > 0).astype(int)
    model.fit(X[:TRAINED], labels[:TRAINED])
    if loss == "hinge":
        labels = 2 * labels - 1
        model.fit(X[:TRAINED], labels[:TRAINED])
    found, plain = both(model, X, labels, loss=loss)
    assert set(found.routes) == {"kernel"}
    same(found, plain)


def test_one_class():
    X, _ = data()
    model = OneClassSVM(gamma=0.3).fit(X[:TRAINED, :3])
    inside = model.predict(X[:, :3])
    found, plain = both(model, X[:, :3], inside, loss="zero_one")
    assert set(found.routes) == {"kernel"}
    same(found, plain)


# ---------------------------------------------------------------------------------------------------------------------
# What is not read


class Clipped(SVR):
    def predict(self, X):
        return np.clip(super().predict(X), -0.5, 0.5)


def test_what_predicts_otherwise_is_called():
    X, y = data()
    X = X[:, :3]
    found = rl.model_reliance(Clipped().fit(X, y), X, y, compare="difference")
    assert "kernel" not in found.routes
    altered = SVR().fit(X, y)
    altered.dual_coef_ = 2.0 * altered.dual_coef_  # libsvm has its own copy, by which it predicts
    with pytest.warns(UserWarning, match="does not predict what the sum over its centres predicts"):
        found = rl.model_reliance(altered, X, y, compare="difference")
    same(found, rl.model_reliance(altered, X, y, compare="difference", route="plain"))


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (SVR(kernel="sigmoid"), "sigmoid"),
        (KernelRidge(kernel="laplacian"), "laplacian"),
        (process(kernels.Matern()), "Matern"),
        (process(kernels.RBF() * kernels.DotProduct()), "product of DotProduct"),
        (SVC(), "several classes"),
    ],
)
def test_words_say_why_a_machine_is_not_read(model, word):
    X, y = data()
    labels = np.digitize(y, [-1.0, 1.0])
    target, loss = (labels, "zero_one") if isinstance(model, SVC) else (y, "squared_error")
    model.fit(X, target)
    with pytest.raises(ValueError, match=word):
        rl.model_reliance(model, X, target, loss=loss, route="kernel")


def test_small_memory_calls_the_machine():
    X, y = data()
    model = SVR().fit(X[:TRAINED], y[:TRAINED])
    with pytest.raises(ValueError, match="pass a larger memory"):
        rl.model_reliance(model, X, y, features=[(0, 1)], route="kernel", run=rl.Run(memory=100_000))
    assert rl.model_reliance(model, X, y, features=[(0, 1)], run=rl.Run(memory=100_000)).routes == ("plain",)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_memory_for_a_block_is_enough(loss, monkeypatch):
    monkeypatch.setattr(kernel_tables, "_BLOCK", 20)
    monkeypatch.setattr(kernel_tables.KernelStore, "operands", None)  # of all rows: not asked for
    X, y = data()
    model = NuSVR(kernel="poly", coef0=1.0).fit(X[:TRAINED], y[:TRAINED])
    options = {"loss": loss, "features": [(0, 1), (1, 2)], "compare": "difference", "run": rl.Run(memory=300_000)}
    found = rl.model_reliance(model, X, y, **options)
    assert found.routes == ("kernel", "kernel")
    same(found, rl.model_reliance(model, X, y, route="plain", **options))


# ---------------------------------------------------------------------------------------------------------------------
# Parts


def test_a_column_s_factor_is_never_divided_out():
    """Where a value is so far away that its factor is 0, another value brings the prediction back."""
    X, y = data()
    model = SVR(gamma=1.0).fit(X[:TRAINED], y[:TRAINED])
    far = X.copy()
    far[:5, 0] = 1e3
    found, plain = both(model, far, y, features=[0, (0, 1)])
    same(found, plain)


@pytest.mark.parametrize("rate", [0.01, 1.0, 30.0])
def test_polynomials_are_the_machine_to_the_last_digits(rate):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, 2))
    kernel = kernel_machines.Gaussian(np.array([rate, rate]))
    terms = (kernel_machines.Term(kernel, rng.normal(size=200)),)
    machine = kernel_machines.KernelMachine(centres, terms, 0.5, kernel_machines.Finish())
    X = rng.normal(size=(50, 2))
    span = kernel_tables.interval(machine, 0, X[:, 0])
    ((_, found),) = kernel_tables.coefficients(machine, X, 0, span)
    table = found @ span.polynomials(X[:, 0], span.order).T + 0.5
    literal = np.empty((50, 50))
    for i in range(50):
        for k in range(50):
            apart = (X[k, 0] - centres[:, 0]) ** 2 + (X[i, 1] - centres[:, 1]) ** 2
            literal[i, k] = np.exp(-rate * apart) @ terms[0].coef + 0.5
    np.testing.assert_allclose(table, literal, atol=1e-13)
    np.testing.assert_allclose(machine.sums(X).raw, np.diag(literal), atol=1e-13)
