"""A quadratic, and its ratio to another, in one ball or two: against dense search, the hard case, SLSQP and cvxpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from reliance.rashomon.quadratic_ranges import Region, largest_quadratic
from reliance.rashomon.quadratic_ranges import largest_ratio as region_ratio
from reliance.rashomon.trust_region import Quadratic, in_ball, largest, largest_ratio


def random_quadratic(rng, k):
    """Quadratics with zero coefficients, multiple eigenvalues and no linear part among them."""
    r = int(rng.integers(1, 6))
    A = rng.normal(size=(r, r))
    A = np.diag(rng.integers(-2, 3, size=r).astype(float)) if k % 3 == 0 else (A + A.T) / 2
    g = rng.normal(size=r) * (k % 7 > 0)
    if k % 2:
        g[rng.integers(0, r)] = 0.0
    return Quadratic(float(rng.normal()), g, A)


def points(rng, r, radius, count=500):
    t = rng.normal(size=(count, r))
    size = radius * np.where(rng.random((count, 1)) < 0.5, 1.0, rng.random((count, 1)))
    return t / np.linalg.norm(t, axis=1, keepdims=True) * size


@pytest.mark.parametrize("seed", range(5))
def test_maximum_is_attained_and_bounded(seed):
    rng = np.random.default_rng(seed)
    for k in range(100):
        q, radius, base = random_quadratic(rng, k), 10.0 ** rng.uniform(-4, 3), 10.0 ** rng.uniform(-2, 2)
        for found, value in (
            (largest(q, radius), q),
            (largest_ratio(q, base, radius), lambda t, q=q, base=base: q(t) / (base + t @ t)),
        ):
            assert np.linalg.norm(found.point) <= radius * (1 + 1e-14)
            np.testing.assert_allclose(value(found.point), found.value, rtol=1e-11, atol=1e-13)
            # Nothing between what is attained and the bound.
            scale = abs(q.constant) + abs(found.bound) + (radius**2 / base if value is not q else 0.0)
            assert -1e-13 * scale <= found.bound - found.value <= 1e-11 * scale
            tried = max(value(t) for t in points(rng, len(q.linear), radius))
            assert tried <= found.bound + 1e-12 * scale


def test_hard_case():
    """The linear part is 0 on the top eigenspace, which has dimension two: the point is completed along it."""
    t, bound = in_ball(np.array([3.0, 3.0, 1.0]), np.array([0.0, 0.0, 1.0]), 2.0)
    np.testing.assert_allclose(t[2], 0.5)
    np.testing.assert_allclose(t @ t, 4.0)
    np.testing.assert_allclose(bound, 3 * 4 + 1 / 2)
    # Almost hard: the same to rounding.
    t, near = in_ball(np.array([3.0, 3.0, 1.0]), np.array([1e-18, 0.0, 1.0]), 2.0)
    np.testing.assert_allclose(near, bound, rtol=1e-14)
    np.testing.assert_allclose(t @ t, 4.0)


def test_inside_and_empty():
    t, bound = in_ball(np.array([-2.0]), np.array([1.0]), 5.0)
    np.testing.assert_allclose((t[0], bound), (0.5, 0.5))
    t, bound = in_ball(np.array([2.0]), np.array([1.0]), 0.0)
    assert (t[0], bound) == (0.0, 0.0)
    t, bound = in_ball(np.array([0.0, 0.0]), np.zeros(2), 1.0)
    assert bound == 0.0
    assert np.isfinite(t).all()


# ---------------------------------------------------------------------------------------------------------------------
# Two constraints


def lens(rng, d):
    """A risk and a ball around 0, as wide as the unit ball about, and one of them thinner; 0 may be on the ball."""
    axes = rng.uniform(0.1, 1.0, size=d)
    risk = Quadratic(1.0, np.zeros(d), np.diag(10 ** rng.uniform(-2, 1, size=d)))
    shift = rng.normal(size=d)
    size = Quadratic(-float(rng.choice([0.0, 0.5])), axes * shift, np.diag(axes**2))
    if size.constant == 0.0:  # then the risk rises from the edge of the ball inwards
        risk = Quadratic(1.0, -0.3 * size.linear, risk.matrix)
    room = float(10 ** rng.uniform(-1, 0.5))
    return risk, Region((risk.raised(-1.0 - room), size)), (1.0, 1.0 + room)


def points_of(rng, where, d, count=1500):
    steps = rng.normal(size=(count, d)) * 10 ** rng.uniform(-1, 1, size=(count, 1))
    return [where.pulled(step) for step in steps]


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("ratio", [False, True], ids=["difference", "ratio"])
@pytest.mark.parametrize("seed", range(6))
def test_two_constraints_against_a_generic_solver(seed, ratio):
    """The multipliers' bound is Shor's relaxation, which cvxpy solves; no point of the set is beyond it."""
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    risk, where, weights = lens(rng, d)
    q = random_symmetric(rng, d)
    found = region_ratio(q, risk, where, weights) if ratio else largest_quadratic(q, where)

    def full(form):
        return np.block([[np.full((1, 1), form.constant), form.linear[None, :]], [form.linear[:, None], form.matrix]])

    value, mu = cp.Variable(), cp.Variable(2, nonneg=True)
    top = value * (full(risk) if ratio else np.diag(np.append(1.0, np.zeros(d)))) - full(q)
    matrix = top + mu[0] * full(where.constraints[0]) + mu[1] * full(where.constraints[1])
    positive = cp.Variable((d + 1, d + 1), PSD=True)
    precise = {f"tol_{name}": 1e-12 for name in ("gap_abs", "gap_rel", "feas")}
    cp.Problem(cp.Minimize(value), [positive == matrix]).solve(solver="CLARABEL", **precise)
    np.testing.assert_allclose(found.bound, value.value, rtol=1e-7, atol=1e-7)
    for u in points_of(rng, where, d):
        assert q(u) / (risk(u) if ratio else 1.0) <= found.bound


@pytest.mark.parametrize("ratio", [False, True], ids=["difference", "ratio"])
def test_two_constraints_against_local_search(ratio):
    """The best point found is at least as good as what SLSQP finds from random starts."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        d = int(rng.integers(1, 6))
        risk, where, weights = lens(rng, d)
        q = random_symmetric(rng, d)
        found = region_ratio(q, risk, where, weights) if ratio else largest_quadratic(q, where)
        assert found.value <= found.bound
        assert all(limit(found.point) <= 1e-12 for limit in where.constraints)

        def value(u, q=q, risk=risk):
            return q(u) / (risk(u) if ratio else 1.0)

        np.testing.assert_allclose(value(found.point), found.value, rtol=1e-12)
        limits = [{"type": "ineq", "fun": lambda u, limit=limit: -limit(u)} for limit in where.constraints]
        for start in points_of(rng, where, d, count=3):
            local = optimize.minimize(lambda u, value=value: -value(u), start, method="SLSQP", constraints=limits)
            reached = value(where.pulled(local.x))
            assert reached <= found.bound
            assert reached <= found.value + 1e-6 * max(1.0, abs(found.value))


def random_symmetric(rng, d):
    A = rng.normal(size=(d, d))
    return Quadratic(float(rng.normal()), rng.normal(size=d), (A + A.T) / 2)
