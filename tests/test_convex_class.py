"""Linear scores under convex losses: sums over pairs, convex programs, certified ends, bad input."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.data.features import Feature
from reliance.models.calling import Linear
from reliance.rashomon import convex
from reliance.rashomon.convex import ConvexLinearClass
from reliance.rashomon.convex_pairs import Pairs
from reliance.rashomon.convex_rows import Rows, rounded_hinge
from reliance.rashomon.convex_solver import STAGES, Stage, minimise
from reliance.rashomon.protocol import ClassData, Range

N, P = 60, 3
LOSSES = ("logistic", "hinge")


def problem(loss: str, seed: int = 0, n: int = N, p: int = P) -> ClassData:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1:] += 0.7 * X[:, :1]
    y = (X[:, 0] + 0.5 * X[:, -1] + 1.3 * rng.logistic(size=n) > 0).astype(float)
    return ClassData(X, y if loss == "logistic" else 2 * y - 1, 0, 10**7)


def losses(loss: str, y: Any, f: Any) -> Any:
    return np.logaddexp(0, -(2 * y - 1) * f) if loss == "logistic" else np.maximum(0, 1 - y * f)


def exchanged(X: np.ndarray, columns: tuple[int, ...], conditional: bool) -> tuple[np.ndarray, np.ndarray]:
    """What rows keep of the feature, and what they lend."""
    lent = X[:, columns]
    if not conditional:
        return np.zeros_like(lent), lent
    others = np.column_stack([np.ones(len(X)), np.delete(X, columns, axis=1)])
    kept = others @ np.linalg.lstsq(others, lent)[0]
    return kept, lent - kept


def literal_pairs(X: np.ndarray, columns: tuple[int, ...], conditional: bool = False) -> np.ndarray:
    """(n, n - 1, P): row i with the feature of each other row k."""
    kept, lent = exchanged(X, columns, conditional)
    rows = []
    for i in range(len(X)):
        for k in range(len(X)):
            if k != i:
                row = X[i].copy()
                row[list(columns)] = kept[i] + lent[k]
                rows.append(row)
    return np.array(rows).reshape(len(X), len(X) - 1, -1)


@functools.cache
def known_pairs(data: ClassData, columns: tuple[int, ...], conditional: bool) -> np.ndarray:
    return literal_pairs(data.X, columns, conditional)


def literal_risk(loss: str, b: np.ndarray, data: ClassData, columns: tuple[int, ...], conditional: bool) -> float:
    scores = b[0] + known_pairs(data, columns, conditional) @ b[1:]
    return float(losses(loss, data.y[:, None], scores).mean())


def literal_reliance(
    loss: str, b: np.ndarray, data: ClassData, columns: tuple[int, ...], compare: str, conditional: bool
) -> float:
    risk = losses(loss, data.y, b[0] + data.X @ b[1:]).mean()
    switched = literal_risk(loss, b, data, columns, conditional)
    return float(switched / risk if compare == "ratio" else switched - risk)


def coefficients(member: Any) -> np.ndarray:
    return np.concatenate([[member.model.intercept], member.model.coef])


def quiet(_: int) -> None:
    pass


# ---------------------------------------------------------------------------------------------------------------------
# Sums over pairs


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("columns", [(0,), (1, 2)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_switched_risk(loss: str, conditional: bool, columns: tuple[int, ...], scale: float) -> None:
    """Against a literal double loop; 300 rows make the logistic loss interpolate, equal values are one donor."""
    data = problem(loss, n=300)
    data.X[:, 2] = np.round(data.X[:, 2])
    rows = Rows.of(loss, None, data)
    outward = scale * np.random.default_rng(1).normal(size=P + 1)
    b = rows.inward(outward[0], outward[1:])
    np.testing.assert_allclose(np.concatenate([[rows.outward(b)[0]], rows.outward(b)[1]]), outward, atol=1e-12)
    literal = literal_risk(loss, outward, data, columns, conditional)
    for memory in (10**8, 10**4):
        pairs = Pairs.of(rows, columns, conditional, memory)
        assert pairs.exact(b) == pytest.approx(literal, rel=1e-12)
        # The rounded hinge is above by a quarter of the width at most.
        assert literal - 1e-10 <= pairs.at_width(b, 1e-3)[0] <= literal + (2.5e-4 if loss == "hinge" else 1e-12)
    kept, lent = exchanged(rows.Z[:, 1:], columns, conditional)
    r = rows.Z[:, 1:][:, columns] - kept
    fall = np.maximum(rows.signs[:, None, None] * (r[:, None] - r[None]), 0).sum(axis=(0, 1)) / (300 * 299)
    np.testing.assert_allclose(pairs.falls()[:, 0], fall, rtol=1e-10)
    both = np.abs(r[:, None] - r[None]).sum(axis=(0, 1)) / (300 * 299)
    np.testing.assert_allclose(pairs.falls().sum(axis=1), both, rtol=1e-10)
    assert np.all(pairs.size()[[c + 1 for c in columns]] >= np.abs(lent).mean(axis=0) - 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("columns", [(0,), (1, 2)])
@pytest.mark.parametrize("n", [20, 500])
def test_derivatives(loss: str, columns: tuple[int, ...], n: int) -> None:
    """Against finite differences. 20 rows: every pair of a hinge is visited; 500: running sums."""
    rows = Rows.of(loss, None, problem(loss, n=n))
    pairs = Pairs.of(rows, columns, False, 10**8)
    assert pairs.few == (loss == "hinge" and n == 20)
    b = np.random.default_rng(1).normal(size=P + 1)
    step, stage = 1e-5, Stage(0.1, 0.3)
    for function in (pairs.risk, rows.risk, rows.norm):
        _, slope, bend = function(b, stage)
        moved = [(function(b + step * e, stage), function(b - step * e, stage)) for e in np.eye(P + 1)]
        np.testing.assert_allclose(slope, [(u[0] - d[0]) / (2 * step) for u, d in moved], rtol=1e-6, atol=1e-9)
        # The curvature of a parabola begins and ends at once, in few of the pairs.
        np.testing.assert_allclose(bend, [(u[1] - d[1]) / (2 * step) for u, d in moved], rtol=1e-4, atol=1e-4)


def test_rounded_hinge() -> None:
    u = np.linspace(-3, 3, 1001)
    for w in (1.0, 1e-3, 1e-8):
        value, share, bend = rounded_hinge(u, Stage(w, 1.0))
        assert np.all((share >= 0) & (share <= 1) & (bend > 0))
        assert np.all(share * u <= np.maximum(u, 0) + 1e-15)  # what certificates rest on
        assert np.all(np.maximum(u, 0) - share * u <= 2 * w)
        v = np.maximum(u, 0) + w * np.array([0.1, 0.5, 1.0, 2.0, 8.0])[:, None]
        assert np.all(value - 1e-12 <= v - w * np.log(v) - w * np.log(v - u) + 1e-12 + w * np.log(w))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [30, 500])
def test_planes_are_below_the_risks(loss: str, n: int) -> None:
    data = problem(loss, n=n)
    rows, rng = Rows.of(loss, None, data), np.random.default_rng(4)
    pairs = Pairs.of(rows, (0,), False, 10**8)
    for _ in range(5):
        b = rng.normal(size=P + 1)
        (below, tilt), (under, slope, unit) = rows.plane(b, STAGES[-1]), pairs.plane(b, STAGES[-1])
        assert rows.exact(b) - 1e-7 <= below + tilt @ b <= rows.exact(b) + 1e-13
        assert pairs.exact(b) - 1e-7 <= under + slope @ b <= pairs.exact(b) + unit < pairs.exact(b) + 1e-8
        for other in b + rng.normal(size=(20, P + 1)) * rng.choice([0.01, 1, 30], size=(20, 1)):
            assert below + tilt @ other <= rows.exact(other) + 1e-12
            assert under + slope @ other <= pairs.exact(other) + unit * (1 + np.abs(other).sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [None, 2.0])
def test_outer_set_holds_good_models(loss: str, radius: float | None) -> None:
    rows, rng = Rows.of(loss, radius, problem(loss)), np.random.default_rng(5)
    for b in rng.normal(size=(300, P + 1)) * rng.choice([0.1, 1, 10, 100], size=(300, 1)):
        if radius is not None:
            b[1:] *= min(1.0, radius / np.sqrt(rows.norm(b)[0]))
        outer, v = rows.outer(rows.exact(b)), rng.normal(size=P + 1)
        assert np.all(np.abs(b) <= outer.box)
        assert v @ b <= outer.most(v)


# ---------------------------------------------------------------------------------------------------------------------
# Programs


def test_minimise() -> None:
    def square(b: np.ndarray, _: Stage) -> Any:
        return float(b @ b), 2 * b, 2 * np.eye(len(b))

    def linear(b: np.ndarray, _: Stage) -> Any:
        return float(b[0]), np.array([1.0, 0.0]), np.zeros((2, 2))

    np.testing.assert_allclose(minimise(linear, [(square, 4.0)], np.zeros(2))[0], [-2.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(minimise(square, [(linear, -1.0)], np.array([-3.0, 1.0]))[0], [-1.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(minimise(square, [], np.ones(2))[0], 0.0, atol=1e-12)
    assert STAGES[-1].weight <= 1e-10


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [None, 0.7])
@pytest.mark.parametrize(("columns", "conditional"), [((0,), False), ((0, 2), False), ((1,), True)])
def test_programs_against_cvxpy(loss: str, radius: float | None, columns: tuple[int, ...], conditional: bool) -> None:
    """All pairs written out.

    A hinge whose corner is rounded over w costs the bound about (1 + x) w, with x the multiplier of the risk, 14 at
    most here and w = 1e-8, or 1e-7 where that is too sharp; the model, pulled back into the set, some times as much.
    """
    cp = pytest.importorskip("cvxpy")
    data = problem(loss, n=16, seed=7)
    signs = data.y if loss == "hinge" else 2 * data.y - 1
    slopes, shift = cp.Variable(P), cp.Variable()

    def mean_loss(X: np.ndarray, s: np.ndarray) -> Any:
        margins = cp.multiply(s, X @ slopes + shift)
        return cp.sum(cp.pos(1 - margins) if loss == "hinge" else cp.logistic(-margins)) / len(X)

    def solve(objective: Any, limits: list[Any]) -> float:
        return float(cp.Problem(objective, limits).solve(solver=cp.CLARABEL))

    ball = [] if radius is None else [cp.norm(slopes) <= radius]
    risk = mean_loss(data.X, signs)
    given = ConvexLinearClass(loss, radius)
    best = given.best(data).risk
    assert best == pytest.approx(solve(cp.Minimize(risk), ball), abs=1e-6)
    rows = Rows.of(loss, radius, data)
    assert best - 1e-6 <= rows.best[1] <= best
    for epsilon in (0.01, 0.2):
        bound = (1 + epsilon) * best
        good = convex._Good.of(rows, bound)
        pairs = literal_pairs(data.X, columns, conditional).reshape(-1, P)
        limits = [*ball, risk <= bound]
        least = solve(cp.Minimize(mean_loss(pairs, np.repeat(signs, 15))), limits)
        certified, model = good.least_switched(Pairs.of(rows, columns, conditional, 10**7))
        outward = np.concatenate([[rows.outward(model)[0]], rows.outward(model)[1]])
        assert certified == pytest.approx(least, abs=2e-6)
        assert certified <= literal_risk(loss, outward, data, columns, conditional) <= certified + 1e-5
        ends, _ = good.coefficient(columns[0] + 1)
        unit = rows.scale[columns[0]]
        assert ends[0] / unit == pytest.approx(solve(cp.Minimize(slopes[columns[0]]), limits), abs=1e-5)
        assert ends[1] / unit == pytest.approx(solve(cp.Maximize(slopes[columns[0]]), limits), abs=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Ranges


def check_range(range_: Range, loss: str, data: ClassData, bound: float, columns: tuple[int, ...], how: Any) -> None:
    """Ends in order, models good, their reliance as a literal loop has it."""
    compare, conditional, radius = how
    assert range_.lower <= range_.achieved_lower <= range_.achieved_upper <= range_.upper < np.inf
    for member, value in ((range_.least, range_.achieved_lower), (range_.most, range_.achieved_upper)):
        b = coefficients(member)
        assert member.risk <= bound
        assert member.risk == pytest.approx(losses(loss, data.y, b[0] + data.X @ b[1:]).mean(), rel=1e-11)
        assert radius is None or np.linalg.norm(b[1:]) <= radius * (1 + 1e-12)
        literal = literal_reliance(loss, b, data, columns, compare, conditional)
        assert literal == pytest.approx(value, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("radius", "compare", "conditional", "columns"),
    [
        (None, "ratio", False, (0,)),
        pytest.param(0.7, "difference", False, (1, 2), marks=pytest.mark.slow),
        pytest.param(None, "difference", True, (1, 2), marks=pytest.mark.slow),
        (0.7, "ratio", True, (0,)),
    ],
)
def test_ranges(loss: str, radius: float | None, compare: str, conditional: bool, columns: tuple[int, ...]) -> None:
    data, given = problem(loss), ConvexLinearClass(loss, radius)
    best = given.best(data)
    bound = 1.1 * best.risk
    features = (Feature("a", columns),)
    found = given.ranges(data, bound, features, compare, conditional, quiet)
    rng, middle = np.random.default_rng(2), coefficients(best)
    for feature, range_ in zip(features, found, strict=True):
        check_range(range_, loss, data, bound, feature.columns, (compare, conditional, radius))
        for _ in range(40):
            # From the best model to the surface of the set, where reliance is most extreme.
            step = rng.normal(size=P + 1)
            for size in np.geomspace(3, 1e-3, 30):
                b = middle + size * step
                good = losses(loss, data.y, b[0] + data.X @ b[1:]).mean() <= bound
                if good and (radius is None or np.linalg.norm(b[1:]) <= radius):
                    reliance = literal_reliance(loss, b, data, feature.columns, compare, conditional)
                    assert range_.achieved_lower - 1e-6 <= reliance <= range_.achieved_upper + 1e-6
                    break


@pytest.mark.parametrize("loss", LOSSES)
def test_lower_end_is_attained(loss: str) -> None:
    """Where the minimiser of the switched risk has the risk E, which is the rule, its reliance is the bound."""
    data, given = problem(loss), ConvexLinearClass(loss)
    noise = np.random.default_rng(8).logistic(size=N)
    data = dataclasses.replace(data, y=np.where(2 * data.X[:, 0] + noise > 0, 1.0, data.y.min()))
    bound = 1.02 * given.best(data).risk
    for compare in ("ratio", "difference"):
        (range_,) = given.ranges(data, bound, (Feature("a", (0,)),), compare, False, quiet)
        assert range_.least.risk == pytest.approx(bound, rel=1e-6)
        assert 0 <= range_.achieved_lower - range_.lower < (1e-8 if loss == "logistic" else 2e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_feature_that_may_be_left_out(loss: str) -> None:
    """Far above the best risk a good model has a coefficient of zero: reliance 1, or less by luck."""
    data, given = problem(loss), ConvexLinearClass(loss)
    bound = 3 * given.best(data).risk
    (range_,) = given.ranges(data, bound, (Feature("a", (0,)),), "ratio", False, quiet)
    check_range(range_, loss, data, bound, (0,), ("ratio", False, None))
    assert range_.achieved_lower <= 1.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [None, 0.5])
def test_only_the_best_model(loss: str, radius: float | None) -> None:
    """epsilon = 0. A minimum that is known to 1e-10 leaves the logistic model free by about 1e-5."""
    data, given = problem(loss), ConvexLinearClass(loss, radius)
    best = given.best(data)
    (range_,) = given.ranges(data, best.risk, (Feature("a", (0,)),), "ratio", False, quiet)
    check_range(range_, loss, data, best.risk, (0,), ("ratio", False, radius))
    own = literal_reliance(loss, coefficients(best), data, (0,), "ratio", False)
    assert range_.lower == pytest.approx(own, abs=1e-3)
    assert range_.achieved_upper == pytest.approx(own, abs=1e-3)


def test_units_do_not_matter() -> None:
    data, given = problem("logistic", n=30), ConvexLinearClass("logistic")
    other = dataclasses.replace(data, X=data.X * [1e-4, 1.0, 1e5] + [0.0, 1e3, -1e7])
    bound, feature = 1.05 * given.best(data).risk, (Feature("a", (0,)),)
    (here,), (there,) = (given.ranges(each, bound, feature, "ratio", False, quiet) for each in (data, other))
    for name in ("lower", "upper", "achieved_lower", "achieved_upper"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), abs=2e-6)


def test_one_column_and_a_feature_without_effect() -> None:
    for loss in LOSSES:
        data, given = problem(loss, n=40, p=1), ConvexLinearClass(loss)
        bound = 1.1 * given.best(data).risk
        for conditional in (False, True):
            (range_,) = given.ranges(data, bound, (Feature("a", (0,)),), "difference", conditional, quiet)
            check_range(range_, loss, data, bound, (0,), ("difference", conditional, None))
        # A constant column has a coefficient of no effect: with a ball there is an answer, zero.
        flat = dataclasses.replace(data, X=np.column_stack([data.X, np.full(40, 3.0)]))
        (range_,) = ConvexLinearClass(loss, 1.0).ranges(flat, 2 * bound, (Feature("b", (1,)),), "ratio", False, quiet)
        np.testing.assert_allclose([range_.achieved_lower, range_.achieved_upper, range_.upper], 1.0, atol=1e-9)


@pytest.mark.slow
def test_nothing_is_outside_its_bounds() -> None:
    """500 random problems: no model that a search achieves, and none that is drawn at random, beats a certificate."""
    tried = 0
    for seed in range(900):
        rng = np.random.default_rng(seed)
        n, p, loss = int(rng.integers(9, 17)), int(rng.integers(1, 3)), LOSSES[seed % 2]
        X = rng.normal(size=(n, p)) * rng.choice([0.01, 1, 100], size=p) + rng.choice([0, 10])
        X[:, -1] = np.round(X[:, -1] / X[:, -1].std()) if rng.random() < 0.2 else X[:, -1]
        y = (rng.random(n) < 0.5).astype(float)
        data = ClassData(X, y if loss == "logistic" else 2 * y - 1, seed, 10**7)
        radius = None if rng.random() < 0.6 else float(rng.choice([0.1, 1, 10]) / X.std())
        try:
            rows = Rows.of(loss, radius, data)
            best = rows.exact(rows.best[0])
        except ValueError as error:
            if not any(word in str(error) for word in ("separated", "one class", "constant")):
                raise
            continue
        tried += 1
        columns = (0,) if rng.random() < 0.8 else tuple(range(p))
        conditional, bound = bool(rng.random() < 0.3), best * (1 + rng.choice([0, 1e-3, 0.05, 0.5]))
        good, pairs = convex._Good.of(rows, bound), Pairs.of(rows, columns, conditional, 10**7)
        switched, lowest = good.least_switched(pairs)
        rise, turned, corners = convex._changes(good, pairs)
        models = [lowest, *corners, rows.best[0]]
        for step in rng.normal(size=(5, p + 1)) * rng.choice([0.1, 1, 10], size=(5, 1)):
            models += [good.nearest(model + step) for model in (lowest, rows.best[0])]
        literal = literal_pairs(X, columns, conditional)
        for b in models:
            shift, slopes = rows.outward(b)
            risk = losses(loss, data.y, shift + X @ slopes).mean()
            top = losses(loss, data.y[:, None], shift + literal @ slopes).mean()
            assert risk <= bound + 1e-12
            assert rows.best[1] <= risk + 1e-13
            assert switched <= top + 1e-12
            assert -turned - 1e-12 <= top - risk <= rise + 1e-12
        if tried == 500:
            break
    assert tried == 500


# ---------------------------------------------------------------------------------------------------------------------
# What users see


def test_public_functions() -> None:
    """The reliance of the extremal models is that of the engine."""
    data = problem("logistic", n=80)
    for conditional in (False, True):
        ask = rl.conditional_model_class_reliance if conditional else rl.model_class_reliance
        found = ask(rl.LinearClass(loss="logistic"), data.X, data.y, epsilon=0.05, features=[0], rng=0)
        measure = rl.conditional_model_reliance if conditional else rl.model_reliance
        for model, value in (
            (found.lower_models[0], found.achieved_lower),
            (found.upper_models[0], found.achieved_upper),
        ):
            engine = measure(model, data.X, data.y, loss="cross_entropy", features=[0])
            assert engine.values[0] == pytest.approx(value[0], rel=1e-9)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="unknown"):
        ConvexLinearClass("squared")
    with pytest.raises(ValueError, match="radius"):
        ConvexLinearClass("logistic", radius=0.0)
    data = problem("logistic")
    with pytest.raises(ValueError, match="needs labels -1 and 1 in y, but y holds 0"):
        ConvexLinearClass("hinge").best(data)
    with pytest.raises(ValueError, match="needs labels 0 and 1 in y, but y holds 2"):
        ConvexLinearClass("logistic").best(ClassData(data.X, data.y + (data.y > 0), 0, 10**7))
    with pytest.raises(ValueError, match="one class"):
        ConvexLinearClass("logistic").best(ClassData(data.X, np.ones(N), 0, 10**7))
    with pytest.raises(ValueError, match="y is constant"):
        rl.model_class_reliance(rl.LinearClass(loss="logistic"), data.X, np.ones(N), epsilon=0.1)
    given = ConvexLinearClass("logistic")
    with pytest.raises(ValueError, match="no model of the class"):
        given.ranges(data, 0.5 * given.best(data).risk, (Feature("a", (0,)),), "ratio", False, quiet)


@pytest.mark.parametrize("loss", LOSSES)
def test_separated_classes(loss: str) -> None:
    data = problem(loss)
    low = data.y.min()
    whole = np.where(data.X[:, 0] > 0, 1.0, low)
    touching = whole.copy()  # one row of the other class exactly on the surface: almost separated
    X = data.X.copy()
    X[0, 0], touching[0], X[1, 0], touching[1] = 0.0, 1.0, 0.0, low
    X[1] = X[0]
    for rows, y in ((data.X, whole), (X, touching)):
        with pytest.raises(ValueError, match=r"separated.*ridge=radius"):
            rl.model_class_reliance(rl.LinearClass(loss=loss), rows, y, epsilon=0.1)
        found = rl.model_class_reliance(rl.LinearClass(loss=loss, ridge=2.0), rows, y, epsilon=0.1, features=[0])
        assert 1 < found.lower[0] <= found.achieved_lower[0] < found.achieved_upper[0] <= found.upper[0]


def test_no_loss_at_all() -> None:
    """A hinge can be zero for every row: there is no ratio, but a difference."""
    data = problem("hinge", n=30)
    y, kind = np.where(data.X[:, 0] > 0, 1.0, -1.0), rl.LinearClass(loss="hinge", ridge=1e4)
    with pytest.raises(ValueError, match=r"divides by the risk.*compare='difference'"):
        rl.model_class_reliance(kind, data.X, y, epsilon=0.1)
    found = rl.model_class_reliance(
        kind, data.X, y, epsilon=0.01, relative=False, compare="difference", features=[0], rng=0
    )
    assert 0 < found.lower[0] <= found.achieved_lower[0] < found.achieved_upper[0] <= found.upper[0]


@pytest.mark.parametrize("loss", LOSSES)
def test_collinear_columns(loss: str) -> None:
    data = problem(loss, n=30)
    for extra in (data.X[:, :1] + data.X[:, 1:2], np.ones((30, 1))):
        X = np.column_stack([data.X, extra])
        with pytest.raises(ValueError, match=r"linear combinations.*ridge=radius"):
            rl.model_class_reliance(rl.LinearClass(loss=loss), X, data.y, epsilon=0.1)
    kind = rl.LinearClass(loss=loss, ridge=2.0)
    for ask in (rl.model_class_reliance, rl.conditional_model_class_reliance)[loss == "hinge" :]:
        found = ask(kind, X, data.y, epsilon=0.1, features=[0])
        assert found.lower[0] <= found.achieved_lower[0] <= found.achieved_upper[0] <= found.upper[0]


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


@functools.cache
def host_range() -> Range:
    data, given = problem("logistic", n=20), ConvexLinearClass("logistic", radius=2.0)
    (found,) = given.ranges(data, 1.1 * given.best(data).risk, (Feature("a", (0,)),), "ratio", False, quiet)
    return found


@pytest.mark.once_per_device
@pytest.mark.parametrize("loss", LOSSES)
def test_on_every_backend(backend: Any, loss: str) -> None:
    data, given = problem(loss, n=20), ConvexLinearClass(loss, radius=2.0)
    there = ClassData(backend.asarray(data.X), backend.asarray(data.y), 0, 10**7)
    best = given.best(there)
    assert best.risk == pytest.approx(given.best(data).risk, rel=1e-5)
    assert type(best.model(there.X)) is type(there.X)
    if loss == "hinge":
        return  # the rest is the same host code
    feature = (Feature("a", (0,)),)
    (found,) = given.ranges(there, 1.1 * best.risk, feature, "ratio", False, quiet)
    here = host_range()
    assert found.lower == pytest.approx(here.lower, rel=1e-4)
    assert found.achieved_upper == pytest.approx(here.achieved_upper, rel=1e-4)
    assert type(found.most.model(there.X)) is type(there.X)
