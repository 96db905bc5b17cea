"""A quadratic, and its ratio to a squared distance, in a ball: against dense search, the hard case, and cvxpy."""

from __future__ import annotations

import numpy as np
import pytest

from reliance.classes.trust_region import Quadratic, TwoBalls, in_ball, largest, largest_ratio


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


def two_balls(rng, p):
    """A risk and a ball that its least point lies outside of, or not."""
    root = rng.normal(size=(2 * p, p + 1))
    moments = root.T @ root / (2 * p)
    risk = np.zeros((p + 1, p + 1))
    risk[1:, 1:], risk[0, 0] = moments[:-1, :-1], moments[-1, -1]
    risk[0, 1:] = risk[1:, 0] = -moments[:-1, -1]
    free = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
    size = float(free @ free) * rng.choice([0.3, 2.0])
    values, turn = np.linalg.eigh(moments[:-1, :-1])
    t, _ = in_ball(-values, turn.T @ moments[:-1, -1], np.sqrt(size))
    b = turn @ t
    at = np.append(1.0, b)
    kappa = max(0.0, float((moments[:-1, -1] - moments[:-1, :-1] @ b) @ b / size))
    best = float(at @ risk @ at)
    return TwoBalls(risk, np.diag(np.append(0.0, np.ones(p))), best * 1.3, size, best, kappa)


def in_both(rng, balls, count=4000):
    p = len(balls.risk) - 1
    t = rng.normal(size=(count, p))
    t *= np.sqrt(balls.size) * rng.random((count, 1)) / np.linalg.norm(t, axis=1, keepdims=True)
    at = np.column_stack([np.ones(count), t])
    return at[np.einsum("ij,jk,ik->i", at, balls.risk, at) <= balls.bound]


@pytest.mark.parametrize("seed", range(6))
def test_two_balls_against_a_generic_solver(seed):
    """The barrier's bound is Shor's relaxation, which cvxpy solves, and no point of the set is beyond it."""
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 5))
    balls = two_balls(rng, p)
    A = rng.normal(size=(p + 1, p + 1))
    q = (A + A.T) / 2
    one = balls.constant
    for ratio in (False, True):
        value, mu = cp.Variable(), cp.Variable(2, nonneg=True)
        top = value * (balls.risk if ratio else one)
        matrix = top - q + mu[0] * (balls.risk - balls.bound * one) + mu[1] * (balls.norm - balls.size * one)
        symmetric = cp.Variable((p + 1, p + 1), PSD=True)
        program = cp.Problem(cp.Minimize(value), [symmetric == matrix])
        program.solve(solver="CLARABEL")
        mine = balls.largest_ratio(q) if ratio else balls.largest_difference(q)
        np.testing.assert_allclose(mine, value.value, rtol=1e-6, atol=1e-6)
        for at in in_both(rng, balls):
            assert at @ q @ at / (at @ balls.risk @ at if ratio else 1.0) <= mine + 1e-10
