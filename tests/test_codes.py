"""Codes of text and row numbers of several inputs are for the model alone: nothing computes with them as numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

import reliance as rl

RNG = np.random.default_rng(0)
N = 24
X1, X2 = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 3))
Y = X1[:, 0] - 2.0 * X2[:, 1] + 0.1 * RNG.normal(size=N)
TEXT = pd.DataFrame({"a": X1[:, 0], "city": np.where(X1[:, 1] > 0, "Rome", "Oslo"), "b": X2[:, 0]})


def two(a, b):
    return a[:, 0] - b[:, 1]


def of_text(table):
    return table["a"].to_numpy() + (table["city"] == "Rome").to_numpy()


SEVERAL = {"tuple": ((X1, X2), two), "dict": ({"a": X1, "b": X2}, two), "text": (TEXT, of_text)}
CALLS = {
    "linear_importance": lambda X, f: rl.linear_importance(rl.models.Linear(np.ones(len(columns(X)))), X),
    "least squares": lambda X, f: rl.linear_importance(None, X, Y),
    "extrapolation": lambda X, f: rl.extrapolation_check(X),
    "extrapolation, classifier": lambda X, f: rl.extrapolation_check(X, method="classifier"),
    "impact": lambda X, f: rl.feature_impact(f, X),
    "curves": lambda X, f: rl.model_reliance(f, X, Y, keep="curves"),
    "individual curves": lambda X, f: rl.model_reliance(f, X, Y, keep="ice"),
    "conditional": lambda X, f: rl.conditional_model_reliance(f, X, Y),
    "relative": lambda X, f: rl.relative_importance(f, X, Y, given="rest"),
    "knockoffs": lambda X, f: rl.relative_importance(f, X, Y, given=rl.Given("rest", sampler="knockoffs")),
    "linear class": lambda X, f: rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1),
    "kernel class": lambda X, f: rl.model_class_reliance(rl.KernelClass(radius=1.0), X, Y, epsilon=0.1),
    "conditional listed": lambda X, f: rl.conditional_model_class_reliance(rl.FiniteClass([f]), X, Y, epsilon=0.1),
    "out of bag": lambda X, f: rl.out_of_bag_importance(RandomForestRegressor(3).fit(X1, Y), X, Y),
}


def columns(X):
    return X.columns if isinstance(X, pd.DataFrame) else X


@pytest.mark.parametrize("kind", SEVERAL)
@pytest.mark.parametrize("call", CALLS)
def test_what_computes_with_numbers_refuses_codes(call, kind):
    X, f = SEVERAL[kind]
    if kind == "text" and call in ("conditional", "relative"):  # categories are drawn from rows like theirs
        assert np.isfinite(CALLS[call](X, f).values).all()
        return
    if kind == "text" and call.endswith("curves"):  # which name the values that codes stand for
        assert set(CALLS[call](X, f).curves["city"].labels) == set(TEXT["city"])
        return
    with pytest.raises((TypeError, ValueError)) as found:
        CALLS[call](X, f)
    words = str(found.value)
    assert len(words) <= 300
    assert any(word in words for word in ("holds text", "several inputs", "one of several", "numbers")), words


@pytest.mark.parametrize("features", [None, {"first": 0, "half": (1, slice(0, 2))}])
@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_listed_models_of_several_inputs(kind, features):
    X, f = SEVERAL[kind]
    if kind == "dict" and features is not None:
        features = {"first": "a", "half": ("b", slice(0, 2))}

    def g(a, b):
        return a[:, 1] + b.sum(axis=1)

    found = rl.model_class_reliance(rl.FiniteClass([f, g]), X, Y, epsilon=50.0, features=features, compare="difference")
    for k, model in enumerate((f, g)):
        base = np.mean((model(X1, X2) - Y) ** 2)
        np.testing.assert_allclose(found.members.risks[k], base, rtol=1e-12)
        for j, part in enumerate((0, 1)):
            total = 0.0
            for i in range(N):
                for donor in range(N):
                    a, b = X1[i : i + 1].copy(), X2[i : i + 1].copy()
                    if part == 0:
                        a[:] = X1[donor]
                    else:
                        stop = 3 if features is None else 2
                        b[:, :stop] = X2[donor, :stop]
                    total += (model(a, b)[0] - Y[i]) ** 2 if i != donor else 0.0
            np.testing.assert_allclose(found.members.values[k, j], total / (N * (N - 1)) - base, rtol=1e-9, atol=1e-12)


def test_listed_models_of_text():
    found = rl.model_class_reliance(rl.FiniteClass([of_text]), TEXT, Y, epsilon=0.1, compare="difference")
    base, total = np.mean((of_text(TEXT) - Y) ** 2), 0.0
    for i in range(N):
        for donor in range(N):
            city = float(TEXT["city"][donor] == "Rome")
            total += (TEXT["a"][i] + city - Y[i]) ** 2 if i != donor else 0.0
    np.testing.assert_allclose(found.members.values[0, 1], total / (N * (N - 1)) - base, rtol=1e-9)


def test_numbers_beside_codes_are_still_measured():
    assert rl.feature_impact(of_text, TEXT, features=["a"]).values.tolist() == pytest.approx([1.0])
    assert "a" in rl.model_reliance(of_text, TEXT, Y, features=["a"], keep="curves").curves
