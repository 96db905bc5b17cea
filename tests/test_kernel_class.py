"""Kernel classes: quadratic forms against literal pairs, certified ranges against models of the class."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.data.features import Feature
from reliance.rashomon import kernel_sums
from reliance.rashomon.kernel import RBF, KernelClass, KernelModel, ProductKernel, _Space
from reliance.rashomon.kernel_pairs import Switch
from reliance.rashomon.protocol import ClassData

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


def some_model(space: _Space, seed: int) -> KernelModel:
    v = np.random.default_rng(seed).normal(size=space.axes.shape[1] + 1)
    return KernelModel(space.kernel, space.landmarks, space.axes @ v[1:], float(v[0]))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("columns", [(0,), (1,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("landmarks", [8, np.random.default_rng(5).normal(size=(5, P))], ids=["rows", "given"])
@pytest.mark.slow
def test_forms_are_the_literal_pairs(kernel: str, conditional: bool, columns: tuple[int, ...], landmarks: Any) -> None:
    X, y = problem()
    space = _Space.of(KernelClass(KERNELS[kernel], landmarks=landmarks, radius=50.0), data_of(X, y))
    model = some_model(space, 1)
    point = space.point(model)
    assert space.ball.shape.risk(point) == pytest.approx(np.mean((y - model(X)) ** 2), rel=1e-10)
    switched = space.switched(Switch.of(space.X, columns, conditional), memory=10_000)
    assert switched(space.full(point)) == pytest.approx(literal_risk(model, X, y, columns, conditional), rel=1e-10)


def test_values_of_the_kernels() -> None:
    """Against the formulas, one pair of row and landmark at a time."""
    X, y = problem()
    C, widths = X[:4] + 0.1, (0.5, 1.0, 2.0)
    for name, formula in (
        ("rbf", lambda x, c: np.exp(-sum((a - b) ** 2 / (2 * w**2) for a, b, w in zip(x, c, widths, strict=True)))),
        ("polynomial", lambda x, c: (1 + sum(a * b / w**2 for a, b, w in zip(x, c, widths, strict=True))) ** 3),
    ):
        best = KernelClass(name, landmarks=C, radius=1.0, bandwidth=widths).best(data_of(X, y)).model
        assert isinstance(best, KernelModel)
        values = [best.intercept + sum(a * formula(x, c) for a, c in zip(best.coefficients, C, strict=True)) for x in X]
        np.testing.assert_allclose(best(X), values, rtol=1e-10)


def test_forms_of_near_dependent_landmarks() -> None:
    X, y = problem(n=60)
    space = _Space.of(KernelClass("rbf", landmarks=60, radius=50.0, bandwidth=8.0), data_of(X, y))
    assert space.axes.shape[1] < 60  # directions that are rounding have been left out
    model, switch = some_model(space, 1), Switch.of(space.X, (0,), False)
    blocks = kernel_sums._by_blocks(space.kernel, switch, space.landmarks, space.axes, space.y, 10**8)
    factors = kernel_sums._by_factors(space.kernel.factors(switch, space.landmarks), space.axes, space.y)  # type: ignore[attr-defined]
    np.testing.assert_allclose(factors, blocks, atol=1e-7 * np.abs(blocks).max())
    switched = space.switched(switch, 10**8)(space.full(space.point(model)))
    assert switched == pytest.approx(literal_risk(model, X, y, (0,), False), rel=1e-7)


@pytest.mark.parametrize("bandwidth", [0.7, 3.0, 20.0])
def test_forms_of_many_landmarks(bandwidth: float) -> None:
    """Parts of low rank, parts that are not, and directions near rounding: against the kernel at every pair."""
    X, y = problem(n=196)
    space = _Space.of(KernelClass("rbf", landmarks=194, radius=50.0, bandwidth=bandwidth), data_of(X, 1e4 * y))
    switch = Switch.of(space.X, (0,), False)
    pairs = kernel_sums._by_blocks(space.kernel, switch, space.landmarks, space.axes, space.y, 10**8)
    (factor,) = space.kernel.factors(switch, space.landmarks)  # type: ignore[attr-defined]
    found = kernel_sums._by_one_factor(factor, space.axes, space.y)
    units = np.append(1e4, np.ones(len(found) - 1))
    away, size = ((np.abs(x) / np.outer(units, units)).max() for x in (found - pairs, pairs))
    assert away < 1e-9 * size


@pytest.mark.parametrize("kernel", ["rbf", "callable"])
def test_no_square_of_the_rows_in_memory(kernel: str) -> None:
    """All pairs, by factors or by blocks, in O(n m) numbers: far less than one n x n matrix."""
    n, m = 1500, 3
    X, y = problem(n=n)
    given = KernelClass(KERNELS[kernel], landmarks=m, radius=5.0)
    tracemalloc.start()
    given.ranges(ClassData(X, y, 0, 10**6), 5.0, (Feature("a", (0,)),), "ratio", False, lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * 8 * n * n


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


@pytest.mark.parametrize(("seed", "landmarks", "compare"), [(0, 20, "difference"), (4, 60, "ratio")])
def test_wide_ranges_have_no_gap(seed: int, landmarks: int, compare: str) -> None:
    """Both constraints bind: multipliers that begin far from their path, and multipliers of another round."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.3 * rng.normal(size=150)
    kind = KernelClass("rbf", landmarks=landmarks, radius=13.0)
    assert rl.model_class_reliance(kind, X, y, epsilon=1.0, compare=compare).gap.max() < 1e-8


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
    assert (range_.lower, range_.upper) == pytest.approx((reliance, reliance), rel=1e-9)
    with pytest.raises(ValueError, match="the Rashomon set is empty"):
        rl.model_class_reliance(given, X, y, epsilon=0.0, reference=0.5 * best.risk)


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
    for bandwidth in (0.0, float("inf"), (1.0, 2.0)):
        with pytest.raises(ValueError, match=r"bandwidth.* each of 3 columns"):
            KernelClass("rbf", landmarks=5, radius=1.0, bandwidth=bandwidth).best(data_of(X, y))
    for landmarks in (np.ones((2, 2)), np.ones((0, 3)), np.ones(3)):
        with pytest.raises(ValueError, match=r"landmarks has shape .* pass \(m, 3\)"):
            KernelClass("rbf", landmarks=landmarks, radius=1.0).best(data_of(X, y))
    with pytest.raises(ValueError, match="kernel returned shape"):
        KernelClass(lambda X, C: X, landmarks=5, radius=1.0).best(data_of(X, y))
    with pytest.raises(ValueError, match="degree=2 has no effect"):
        KernelClass("rbf", radius=1.0, degree=2)
    with pytest.raises(ValueError, match="degree=0"):
        KernelClass("polynomial", radius=1.0, degree=0)
    with pytest.raises(ValueError, match=r"bandwidth=1\.0 has no effect"):
        KernelClass(KERNELS["callable"], radius=1.0, bandwidth=1.0)


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


def test_a_linear_kernel_is_the_linear_class_with_a_ball() -> None:
    """k(x, c) = x'c at the unit vectors: f(x) = mu + alpha'x with |alpha| at most the radius."""
    X, y = problem()
    given = KernelClass(lambda X, C: X @ C.T, landmarks=np.eye(P), radius=1.1)
    for compare in ("ratio", "difference"):
        for method in (rl.model_class_reliance, rl.conditional_model_class_reliance):
            mine = method(given, X, y, epsilon=0.3, compare=compare)
            linear = method(rl.LinearClass(ridge=1.1), X, y, epsilon=0.3, compare=compare)
            np.testing.assert_allclose(mine.reference_risk, linear.reference_risk, rtol=1e-10)
            np.testing.assert_allclose(mine.lower, linear.lower, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(mine.upper, linear.upper, rtol=1e-7, atol=1e-7)


def test_exact_fit() -> None:
    X, _ = problem()
    given = KernelClass(lambda X, C: X @ C.T, landmarks=np.eye(P), radius=10.0)
    with pytest.raises(ValueError, match="compare='difference'"):
        rl.model_class_reliance(given, X, X[:, 0], epsilon=0.1)
    with pytest.raises(ValueError, match="relative=False"):
        rl.model_class_reliance(given, X, X[:, 0], epsilon=0.1, compare="difference")
    found = rl.model_class_reliance(given, X, X[:, 0], epsilon=0.1, compare="difference", relative=False)
    assert np.all(found.lower < found.upper)


@pytest.mark.parametrize("fixed", [False, 0.7])
@pytest.mark.parametrize("kind", ["linear", "ball", "kernel"])
def test_fixed_intercept(kind: str, fixed: float) -> None:
    """All models have the intercept, and the range is that of labels less it without one; members are in the set."""
    X, y = problem()
    made: dict[str, Any] = {
        "linear": lambda intercept: rl.LinearClass(intercept=intercept),
        "ball": lambda intercept: rl.LinearClass(ridge=0.5, intercept=intercept),
        "kernel": lambda intercept: KernelClass("rbf", landmarks=8, radius=3.0, intercept=intercept),
    }
    options: dict[str, Any] = {"epsilon": 0.3, "features": [0, (1, 2)]}
    found = rl.model_class_reliance(made[kind](fixed), X, y, **options)
    moved = rl.model_class_reliance(made[kind](False), X, y - fixed, **options)
    np.testing.assert_allclose([found.lower, found.upper], [moved.lower, moved.upper], rtol=1e-7)
    for models, values in ((found.lower_models, found.achieved_lower), (found.upper_models, found.achieved_upper)):
        for model, columns, value in zip(models, [(0,), (1, 2)], values, strict=True):
            assert model.intercept == float(fixed)  # type: ignore[attr-defined]
            risk = np.mean((y - model(X)) ** 2)
            assert risk <= found.bound * (1 + 1e-9)
            assert literal_risk(model, X, y, columns, False) / risk == pytest.approx(value, rel=1e-7)
    with pytest.raises(ValueError, match="intercept"):
        rl.model_class_reliance(made[kind](0.1), X, y, reference=found.lower_models[0], **options)
