"""Kernel classes: quadratic forms against literal pairs, certified ranges against models of the class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reliance.classes.kernel import RBF, KernelClass, KernelModel, ProductKernel, _Space
from reliance.classes.protocol import ClassData
from reliance.classes.quadratic_ranges import Quadratic, least_quadratic, least_ratio, region
from reliance.features import Feature

N, P = 24, 3
GROUPS = ProductKernel([((0,), RBF(np.ones(1))), ((1, 2), RBF(np.full(2, 1.5)))])
KERNELS = {
    "rbf": "rbf",
    "polynomial": "polynomial",
    "product": GROUPS,
    "callable": lambda X, C: (1 + X @ C.T) ** 2,
}


def problem(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, P))
    X[:, 1] += 0.7 * X[:, 0]
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def data_of(X: Any, y: Any) -> ClassData:
    return ClassData(X, y, 0, 10**8)


def literal_risk(f: Any, X: np.ndarray, y: np.ndarray, columns: tuple[int, ...], conditional: bool) -> float:
    n = len(X)
    kept, lent = np.zeros((n, len(columns))), X[:, columns]
    if conditional:
        others = [j for j in range(X.shape[1]) if j not in columns]
        Z = np.column_stack([np.ones(n), X[:, others]])
        kept = Z @ np.linalg.lstsq(Z, lent)[0]
        lent = lent - kept
    total = 0.0
    for i in range(n):
        for k in range(n):
            if i != k:
                row = X[i].copy()
                row[list(columns)] = kept[i] + lent[k]
                total += (y[i] - f(row[None, :])[0]) ** 2
    return total / (n * (n - 1))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("columns", [(0,), (1,), (1, 2)])
def test_forms_are_the_literal_pairs(kernel: str, conditional: bool, columns: tuple[int, ...]) -> None:
    X, y = problem()
    space = _Space.of(KernelClass(KERNELS[kernel], landmarks=8, radius=5.0), data_of(X, y))
    switched = space.switched(space.switch(columns, conditional), memory=10_000)
    z = np.random.default_rng(1).normal(size=len(space.risk.b))
    member = space.member(z)
    assert space.risk(z) == pytest.approx(member.risk, rel=1e-12)
    assert member.risk == pytest.approx(np.mean((y - member.model(X)) ** 2), rel=1e-10)
    assert switched(z) == pytest.approx(literal_risk(member.model, X, y, columns, conditional), rel=1e-10)


def test_forms_of_near_dependent_landmarks() -> None:
    X, y = problem(n=60)
    space = _Space.of(KernelClass("rbf", landmarks=60, radius=5.0, bandwidth=8.0), data_of(X, y))
    assert space.axes.shape[1] < 60  # directions that are rounding have been left out
    z = np.random.default_rng(1).normal(size=len(space.risk.b))
    model = space.member(z).model
    blocks = space._by_blocks(space.switch((0,), False), 10**8)
    factors = space._by_factors(space.kernel.factors(space.switch((0,), False), space.landmarks))  # type: ignore[attr-defined]
    np.testing.assert_allclose(factors, blocks, atol=1e-7 * np.abs(blocks).max())
    switched = space.switched(space.switch((0,), False), 10**8)
    assert switched(z) == pytest.approx(literal_risk(model, X, y, (0,), False), rel=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize("conditional", [False, True])
def test_ranges(kernel: str, compare: str, conditional: bool) -> None:
    X, y = problem()
    data, given = data_of(X, y), KernelClass(KERNELS[kernel], landmarks=8, radius=3.0)
    best = given.best(data)
    bound = 1.2 * best.risk
    features = (Feature("a", (0,)), Feature("bc", (1, 2)))
    done: list[int] = []
    found = given.ranges(data, bound, features, compare, conditional, done.append)
    assert done == [1, 1]
    space = _Space.of(given, data)
    inside, _ = space.rashomon(bound)
    rng = np.random.default_rng(2)
    for feature, range_ in zip(features, found, strict=True):
        assert range_.lower <= range_.achieved_lower <= range_.achieved_upper <= range_.upper
        scale = max(abs(range_.lower), abs(range_.upper))
        # No gap but in special positions, and these are none.
        assert range_.achieved_lower - range_.lower <= 1e-7 * scale
        assert range_.upper - range_.achieved_upper <= 1e-7 * scale
        for member, value in ((range_.least, range_.achieved_lower), (range_.most, range_.achieved_upper)):
            assert member.risk <= bound
            assert member.risk == pytest.approx(np.mean((y - member.model(X)) ** 2), rel=1e-9)
            assert _norm(space, member.model) <= 3.0 * (1 + 1e-9)
            switched = literal_risk(member.model, X, y, feature.columns, conditional)
            exact = switched / member.risk if compare == "ratio" else switched - member.risk
            assert exact == pytest.approx(value, rel=1e-8)
        form = space.switched(space.switch(feature.columns, conditional), 10**8)
        for _ in range(200):
            z = inside.pulled(inside.inside + inside.axes @ (3 * rng.normal(size=len(inside.inside))))
            value = form(z) / space.risk(z) if compare == "ratio" else form(z) - space.risk(z)
            assert range_.lower <= value <= range_.upper


def _norm(space: _Space, model: Any) -> float:
    return float(np.sqrt(model.coefficients @ space.kernel(space.landmarks, space.landmarks) @ model.coefficients))


def test_best_is_the_least_risk_of_the_ball() -> None:
    X, y = problem()
    rng = np.random.default_rng(3)
    for radius in (0.1, 1.0, 100.0):
        given = KernelClass("rbf", landmarks=6, radius=radius)
        best, space = given.best(data_of(X, y)), _Space.of(given, data_of(X, y))
        assert _norm(space, best.model) <= radius * (1 + 1e-9)
        for _ in range(100):
            v = rng.normal(size=space.axes.shape[1])
            v *= radius * rng.uniform() / np.linalg.norm(v)
            left = y - space.inner @ v
            assert best.risk <= np.mean((left - left.mean()) ** 2) + 1e-12


def test_bound_at_the_best_risk_is_one_model() -> None:
    X, y = problem()
    given, data = KernelClass("rbf", landmarks=6, radius=2.0), data_of(X, y)
    best = given.best(data)
    (range_,) = given.ranges(data, best.risk, (Feature("a", (0,)),), "ratio", False, lambda _: None)
    reliance = literal_risk(best.model, X, y, (0,), False) / best.risk
    assert range_.lower == pytest.approx(reliance, rel=1e-3)
    assert range_.upper == pytest.approx(reliance, rel=1e-3)
    assert range_.lower <= reliance <= range_.upper
    with pytest.raises(ValueError, match="no model of the class"):
        given.ranges(data, 0.5 * best.risk, (Feature("a", (0,)),), "ratio", False, lambda _: None)


def test_contains() -> None:
    X, y = problem()
    data, given = data_of(X, y), KernelClass("rbf", landmarks=6, radius=2.0)
    best = given.best(data)
    assert given.contains(data, best.model).risk == pytest.approx(best.risk, rel=1e-9)
    model = best.model
    assert isinstance(model, KernelModel)
    large = KernelModel(model.kernel, model.landmarks, 10 * model.coefficients, 0.0)
    with pytest.raises(ValueError, match="norm"):
        given.contains(data, large)
    with pytest.raises(ValueError, match="landmarks"):
        given.contains(data, KernelModel(model.kernel, model.landmarks + 1, model.coefficients, 0.0))
    with pytest.raises(TypeError, match="KernelModel"):
        given.contains(data, lambda X: X[:, 0])


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="radius"):
        KernelClass("rbf", landmarks=3)
    with pytest.raises(ValueError, match="unknown"):
        KernelClass("gauss", landmarks=3, radius=1.0)
    with pytest.raises(TypeError, match="landmarks"):
        KernelClass("rbf", landmarks=2.5, radius=1.0)
    with pytest.raises(ValueError, match="name each column once"):
        ProductKernel([((0,), RBF(np.ones(1))), ((0, 1), RBF(np.ones(2)))])
    X, y = problem()
    with pytest.raises(ValueError, match="semidefinite"):
        KernelClass(lambda X, C: -(X @ C.T), landmarks=5, radius=1.0).best(data_of(X, y))
    with pytest.raises(ValueError, match="bandwidth"):
        KernelClass("rbf", landmarks=5, radius=1.0, bandwidth=0.0).best(data_of(X, y))


def test_on_every_backend(backend: Any) -> None:
    X, y = problem()
    X, y = backend.rounded(X), backend.rounded(y)
    given, feature = KernelClass("rbf", landmarks=6, radius=3.0), (Feature("a", (0,)),)
    data = data_of(backend.asarray(X), backend.asarray(y))
    best, expected = given.best(data), given.best(data_of(X, y))
    assert best.risk == pytest.approx(expected.risk, rel=1e-9)
    (here,) = given.ranges(data, 1.1 * best.risk, feature, "ratio", False, lambda _: None)
    (host,) = given.ranges(data_of(X, y), 1.1 * best.risk, feature, "ratio", False, lambda _: None)
    assert (here.lower, here.upper) == pytest.approx((host.lower, host.upper), rel=1e-7)
    assert type(here.most.model(data.X)) is type(data.X)


def test_two_constraints_against_local_search() -> None:
    from scipy import optimize

    rng = np.random.default_rng(0)

    def form(d: int, least: float) -> Quadratic:
        root = rng.normal(size=(d, d + 3))
        A, b = root @ root.T / d, rng.normal(size=d)
        return Quadratic(A, -b, float(b @ np.linalg.solve(A, b)) + least)

    for _ in range(12):
        d = int(rng.integers(1, 6))
        risk, switched = form(d, 1.0), form(d, 1.2)
        inside = np.linalg.solve(risk.A, -risk.b)
        slack, square = 10 ** rng.uniform(-2, 0.5), float(inside @ inside) * rng.uniform(1.0, 1.5)
        limits = (Quadratic(risk.A, risk.b, risk.c - 1 - slack), Quadratic(np.eye(d), np.zeros(d), -square))
        where = region(limits, (slack, square), inside)
        for sign in (1.0, -1.0):
            top = Quadratic(sign * switched.A, sign * switched.b, sign * switched.c)
            ratio = least_ratio(top, risk, where, (1.0, 1 + slack))
            plain = least_quadratic(top.plus(-sign, risk), where)
            for least, f in (
                (ratio, lambda z, top=top, risk=risk: top(z) / risk(z)),
                (plain, lambda z, top=top, sign=sign, risk=risk: top(z) - sign * risk(z)),
            ):
                assert least.bound <= least.value
                assert all(q(least.point) <= 1e-9 * (abs(q.c) + 1) for q in limits)
                search = [{"type": "ineq", "fun": lambda z, q=q: -q(z)} for q in limits]
                for _ in range(3):
                    start = where.pulled(inside + where.axes @ rng.normal(size=d))
                    local = optimize.minimize(f, start, method="SLSQP", constraints=search, options={"ftol": 1e-12})
                    z = where.pulled(local.x)
                    assert f(z) >= least.bound
                    assert f(z) >= least.value - 1e-6 * abs(least.value)
