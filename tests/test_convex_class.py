"""Linear scores under convex losses: derivatives, certified ends against members of the class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reliance.classes.convex import ConvexLinearClass, _Pairs, _Scores, minimise
from reliance.classes.protocol import ClassData
from reliance.features import Feature
from reliance.models import Linear

N, P = 60, 3


def problem(loss: str, seed: int = 0, n: int = N) -> ClassData:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, P))
    X[:, 1] += 0.7 * X[:, 0]
    y = (X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=n) > 0).astype(float)
    return ClassData(X, y if loss == "logistic" else 2 * y - 1, 0, 10**7)


def losses(loss: str, y: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, -(2 * y - 1) * f) if loss == "logistic" else np.maximum(0, 1 - y * f)


def literal_risk(loss: str, b: np.ndarray, data: ClassData, columns: tuple[int, ...], conditional: bool) -> float:
    X, y, n = data.X, data.y, len(data.X)
    kept, lent = np.zeros((n, len(columns))), X[:, columns]
    if conditional:
        others = [j for j in range(P) if j not in columns]
        Z = np.column_stack([np.ones(n), X[:, others]])
        kept = Z @ np.linalg.lstsq(Z, lent)[0]
        lent = lent - kept
    total = 0.0
    for i in range(n):
        rows = np.repeat(X[i : i + 1], n, axis=0)
        rows[:, columns] = kept[i] + lent
        cells = losses(loss, y[i], b[0] + rows @ b[1:])
        total += cells.sum() - cells[i]
    return total / (n * (n - 1))


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("columns", [(0,), (1, 2)])
def test_switched_risk(loss: str, conditional: bool, columns: tuple[int, ...]) -> None:
    data = problem(loss)
    data.X[:, 2] = np.round(data.X[:, 2])  # equal values are one donor
    scores = _Scores.of(ConvexLinearClass(loss), data)
    b = np.random.default_rng(1).normal(size=P + 1)
    exact = literal_risk(loss, b, data, columns, conditional)
    for memory in (10**7, 1000):
        pairs = _Pairs.of(scores, columns, conditional, memory)
        assert pairs.exact(b) == pytest.approx(exact, rel=1e-12)
        assert exact - 1e-12 <= pairs.risk(b)[0] <= exact + scores.loss.excess + 1e-12
    if loss == "logistic":
        assert pairs.risk(b)[0] == pytest.approx(exact, rel=1e-12)
    for function in (pairs.risk, scores.risk, scores.norm):
        step = 1e-6
        _, slope, bend = function(b)
        moved = [(function(b + step * e), function(b - step * e)) for e in np.eye(P + 1)]
        np.testing.assert_allclose(slope, [(u[0] - d[0]) / (2 * step) for u, d in moved], rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(bend, [(u[1] - d[1]) / (2 * step) for u, d in moved], rtol=1e-2, atol=1e-4)
    values = pairs.lent[:, [c + 1 for c in columns]].repeat(pairs.counts.astype(int), axis=0)
    apart = np.abs(values[:, None] - values[None]).sum(axis=(0, 1)) / (N * (N - 1))
    np.testing.assert_allclose(pairs.differences(), apart, rtol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("radius", [None, 0.7])
@pytest.mark.parametrize(("compare", "conditional"), [("ratio", False), ("difference", False), ("ratio", True)])
def test_ranges(loss: str, radius: float | None, compare: str, conditional: bool) -> None:
    data, given = problem(loss), ConvexLinearClass(loss, radius)
    best = given.best(data)
    bound = 1.1 * best.risk
    features = (Feature("a", (0,)), Feature("bc", (1, 2)))
    found = given.ranges(data, bound, features, compare, conditional, lambda _: None)
    rng = np.random.default_rng(2)
    middle = np.concatenate([[best.model.intercept], best.model.coef])  # type: ignore[attr-defined]
    for feature, range_ in zip(features, found, strict=True):

        def reliance(b: np.ndarray, columns: tuple[int, ...] = feature.columns) -> float:
            risk = losses(loss, data.y, b[0] + data.X @ b[1:]).mean()
            switched = literal_risk(loss, b, data, columns, conditional)
            return float(switched / risk if compare == "ratio" else switched - risk)

        assert range_.lower <= range_.achieved_lower <= range_.achieved_upper <= range_.upper < np.inf
        for member, value in ((range_.least, range_.achieved_lower), (range_.most, range_.achieved_upper)):
            b = np.concatenate([[member.model.intercept], member.model.coef])  # type: ignore[attr-defined]
            assert member.risk <= bound
            assert member.risk == pytest.approx(losses(loss, data.y, b[0] + data.X @ b[1:]).mean(), rel=1e-12)
            assert radius is None or np.linalg.norm(b[1:]) <= radius
            assert reliance(b) == pytest.approx(value, rel=1e-10)
        for _ in range(40):
            b = middle + rng.normal(size=P + 1) * rng.choice([0.03, 0.1, 0.3])
            good = losses(loss, data.y, b[0] + data.X @ b[1:]).mean() <= bound
            if good and (radius is None or np.linalg.norm(b[1:]) <= radius):
                assert range_.lower <= reliance(b) <= range_.upper
                assert range_.achieved_lower - 2e-3 <= reliance(b) <= range_.achieved_upper + 2e-3


def test_lower_end_is_attained() -> None:
    data, given = problem("logistic"), ConvexLinearClass("logistic")
    best = given.best(data)
    (range_,) = given.ranges(data, 1.02 * best.risk, (Feature("a", (0,)),), "ratio", False, lambda _: None)
    assert range_.least.risk == pytest.approx(1.02 * best.risk, rel=1e-8)
    assert range_.lower == pytest.approx(range_.achieved_lower, rel=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_best(loss: str) -> None:
    data = problem(loss)
    rng = np.random.default_rng(3)
    for radius in (None, 0.5):
        best = ConvexLinearClass(loss, radius).best(data)
        coef = best.model.coef  # type: ignore[attr-defined]
        assert radius is None or np.linalg.norm(coef) <= radius
        for _ in range(200):
            near = coef + rng.normal(size=P) * 0.05
            if radius is not None:
                near *= min(1.0, radius / np.linalg.norm(near))
            shift = best.model.intercept + 0.05 * rng.normal()  # type: ignore[attr-defined]
            assert losses(loss, data.y, shift + data.X @ near).mean() >= best.risk - 1e-3 * (loss == "hinge") - 1e-9


def test_certificate_of_a_program() -> None:
    def square(b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float(b @ b), 2 * b, 2 * np.eye(len(b))

    def linear(b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float(b[0]), np.array([1.0, 0.0]), np.zeros((2, 2))

    program = minimise(linear, [(square, 4.0)], np.zeros(2))
    assert -2.0 - 1e-8 <= program.bound <= -2.0 <= program.point[0] <= -2.0 + 1e-8


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="unknown"):
        ConvexLinearClass("squared")
    with pytest.raises(ValueError, match="radius"):
        ConvexLinearClass("logistic", radius=0.0)
    data = problem("logistic")
    with pytest.raises(ValueError, match="labels"):
        ConvexLinearClass("hinge").best(data)
    with pytest.raises(ValueError, match="one class"):
        ConvexLinearClass("logistic").best(ClassData(data.X, np.ones(N), 0, 10**7))
    separable = ClassData(data.X, (data.X[:, 0] > 0).astype(float), 0, 10**7)
    with pytest.raises(ValueError, match="separated"):
        ConvexLinearClass("logistic").best(separable)
    assert ConvexLinearClass("logistic", radius=5.0).best(separable).risk > 0
    given = ConvexLinearClass("logistic")
    with pytest.raises(ValueError, match="no model of the class"):
        given.ranges(data, 0.5 * given.best(data).risk, (Feature("a", (0,)),), "ratio", False, lambda _: None)


def test_contains() -> None:
    data, given = problem("logistic"), ConvexLinearClass("logistic", radius=1.0)
    member = given.contains(data, Linear(np.array([0.1, 0.2, 0.3]), 0.5))
    assert member.risk == pytest.approx(losses("logistic", data.y, 0.5 + data.X @ [0.1, 0.2, 0.3]).mean())
    with pytest.raises(ValueError, match="norm"):
        given.contains(data, Linear(np.ones(P)))
    with pytest.raises(ValueError, match="coefficients"):
        given.contains(data, Linear(np.ones(2)))
    with pytest.raises(TypeError, match="linear"):
        given.contains(data, lambda X: X[:, 0])


@pytest.mark.once_per_device
def test_on_every_backend(backend: Any) -> None:
    data, given = problem("logistic", n=30), ConvexLinearClass("logistic", radius=2.0)
    there = ClassData(backend.asarray(data.X), backend.asarray(data.y), 0, 10**7)
    best = given.best(there)
    assert best.risk == pytest.approx(given.best(data).risk, rel=1e-5)
    assert type(best.model(there.X)) is type(there.X)
