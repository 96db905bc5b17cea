"""Knockoffs: second moments, the choice of s against general solvers, and the filter's false discoveries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from scipy import optimize, special

from reliance._core import arrays
from reliance.samplers import residual as samplers
from reliance.samplers.knockoffs import Knockoffs, knockoff_copies, knockoff_filter, knockoff_scales

METHODS = ["equicorrelated", "sdp", "mvr"]
host = arrays.to_host


def correlation(p: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(p, 2 * p)) + np.random.default_rng(seed + 1).normal(size=(1, 2 * p))
    return np.corrcoef(rows)


def gaussian(n: int, C: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, len(C))) @ np.linalg.cholesky(C).T


# ---------------------------------------------------------------------------------------------------------------------
# The choice of s


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=30, deadline=None)
@for_all(p=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_s_is_feasible(method, p, seed):
    C = correlation(p, seed) if p > 1 else np.ones((1, 1))
    s = knockoff_scales(C, method)
    assert (s >= 0).all()
    assert np.linalg.eigvalsh(2 * C - np.diag(s))[0] > -1e-12
    if method != "mvr":
        assert (s <= 1).all()


def test_s_of_independent_columns_is_one():
    for method in METHODS:
        np.testing.assert_allclose(knockoff_scales(np.eye(4), method), 1, atol=1e-6)


def test_equicorrelated_is_the_closed_form():
    C = np.full((5, 5), 0.7) + 0.3 * np.eye(5)
    np.testing.assert_allclose(knockoff_scales(C, "equicorrelated"), 0.6, rtol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_sdp_is_optimal(seed):
    cvxpy = pytest.importorskip("cvxpy")
    C = correlation(6, seed)
    s = cvxpy.Variable(6)
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(s)), [s >= 0, s <= 1, 2 * C - cvxpy.diag(s) >> 0])
    problem.solve(solver="CLARABEL")
    # The sum, not s itself: where the boundary is flat, many are nearly as good.
    assert abs(knockoff_scales(C, "sdp").sum() - problem.value) < 1e-5


@pytest.mark.parametrize("p", [2, 5, 40])
@pytest.mark.parametrize("seed", range(3))
def test_sdp_is_optimal_by_its_dual(p, seed):
    """Without a solver for cones: every U >= 0 bounds the sum, by 2 tr(C U) + sum max(1 - U_jj, 0).

    At the optimum U is a multiple of the inverse of 2 C - D, as far as that has one: take the best multiple.
    """
    C = correlation(p, seed)
    s = knockoff_scales(C, "sdp")
    U = np.linalg.inv(2 * C - np.diag(s))

    def bound(exponent: float) -> float:
        dual = 10.0**exponent * U
        return 2 * np.trace(C @ dual) + np.maximum(1 - np.diagonal(dual), 0).sum()

    first = min(np.linspace(-12, 0, 1201), key=bound)
    best = optimize.minimize_scalar(
        bound, bounds=(first - 0.01, first + 0.01), method="bounded", options={"xatol": 1e-9}
    )
    assert 0 <= best.fun - s.sum() < 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_mvr_is_optimal(seed):
    C = correlation(6, seed)

    def objective(s: np.ndarray) -> float:
        G = np.block([[C, C - np.diag(s)], [C - np.diag(s), C]])
        values = np.linalg.eigvalsh(G)
        return np.sum(1 / values) if values[0] > 0 else np.inf

    found = knockoff_scales(C, "mvr")
    start = np.full(6, np.linalg.eigvalsh(C)[0])
    options = {"maxiter": 20000, "xatol": 1e-9, "fatol": 1e-12, "adaptive": True}
    expected = optimize.minimize(objective, start, method="Nelder-Mead", options=options)
    assert objective(found) <= expected.fun * (1 + 1e-9)
    np.testing.assert_allclose(found, expected.x, rtol=1e-3)


# ---------------------------------------------------------------------------------------------------------------------
# The copies


@pytest.mark.parametrize("method", METHODS)
def test_second_moments(method):
    C = correlation(4, 3)
    deviation = np.asarray([1.0, 10.0, 0.1, 2.0])
    X = gaussian(200_000, C, 0) * deviation + [0, 5, -1, 100]
    copies = knockoff_copies(X, method=method, rng=0)
    s = knockoff_scales(np.corrcoef(X.T), method)
    joint = np.corrcoef(np.column_stack([X, copies]).T)
    np.testing.assert_allclose(copies.mean(axis=0), X.mean(axis=0), atol=0.02 * deviation.max())
    np.testing.assert_allclose(copies.std(axis=0), X.std(axis=0), rtol=0.02)
    np.testing.assert_allclose(joint[4:, 4:], joint[:4, :4], atol=0.02)
    np.testing.assert_allclose(joint[:4, 4:], joint[:4, :4] - np.diag(s), atol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_draws_are_the_conditional_gaussian(backend, method):
    """Mean and covariance of X~ | X by the formula for the joint Gaussian, target and given in any order of columns."""
    X = gaussian(300, correlation(4, 1), 2) + 3
    device_X = backend.asarray(X)
    X = backend.rounded(X)
    target, given = (2, 0), (3,)
    drawn = samplers.resolve(Knockoffs(method)).fit(device_X, target, given).on(device_X)
    assert drawn.uniforms == 2
    assert drawn.normal is None
    W = X[:, [2, 0, 3]]
    S = np.cov(W.T)
    deviation = np.sqrt(np.diagonal(S))
    D = np.diag(knockoff_scales(S / np.outer(deviation, deviation), method) * deviation**2)
    mean = W - (W - W.mean(axis=0)) @ np.linalg.solve(S, D)
    noise = 2 * D - D @ np.linalg.solve(S, D)
    middle = drawn.values(slice(0, 300), backend.asarray(np.full((300, 1, 2), 0.5)))
    backend.assert_close(host(middle)[:, 0], mean[:, :2], 100)
    # The numbers of standard normals (1, 0) and (0, 1) give the columns of the noise's factor.
    units = special.ndtr(np.eye(2))[None]
    factor = (host(drawn.values(range(1), backend.asarray(units)))[0] - mean[0, :2]).T
    backend.assert_close(factor @ factor.T, noise[:2, :2], 100)


@pytest.mark.once_per_device
def test_copies_do_not_depend_on_the_backend(backend):
    X = gaussian(50, correlation(3, 0), 0)
    expected = knockoff_copies(X, rng=7)
    found = knockoff_copies(backend.asarray(X), rng=7)
    tolerance = 1e-3 if backend.dtype == "float32" else 1e-6
    np.testing.assert_allclose(host(found), expected, rtol=tolerance, atol=tolerance)


def test_knockoffs_scale_the_relative_importance():
    """For a linear model and squared loss: s_j / sigma2_{j|G} times the importance as defined, and not that itself."""
    rng = np.random.default_rng(0)
    n = 400_000
    C = correlation(3, 5)
    X = gaussian(n, C, 1)
    y = X @ [1.0, 0.5, -0.3] + 0.4 * X[:, 2] + rng.normal(size=n)
    model = np.asarray([1.2, 0.5, -0.3])
    fitted = Knockoffs("equicorrelated").fit(X, (0,), (1, 2))
    copy = fitted.on(X).values(slice(0, n), rng.random((n, 1, 1)))[:, 0, 0]

    def importance(replaced: np.ndarray) -> float:
        return float(np.mean((y - X @ model - (replaced - X[:, 0]) * model[0]) ** 2 - (y - X @ model) ** 2))

    normal = samplers.Gaussian("normal").fit(X, (0,), (1, 2)).on(X)
    defined = importance(normal.values(slice(0, n), rng.random((n, 1, 1)))[:, 0, 0])
    variance = C[0, 0] - C[0, 1:] @ np.linalg.solve(C[1:, 1:], C[1:, 0])
    factor = fitted.s[0] / variance
    assert abs(factor - 1) > 0.2
    assert abs(importance(copy) / (factor * defined) - 1) < 0.02


# ---------------------------------------------------------------------------------------------------------------------
# The filter


def literal_filter(W, fdr, offset):
    for t in sorted({abs(w) for w in W if w != 0}):
        if (offset + sum(w <= -t for w in W)) / max(sum(w >= t for w in W), 1) <= fdr:
            return [j for j, w in enumerate(W) if w >= t], t
    return [], float("inf")


@for_all(
    W=st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=40),
    fdr=st.sampled_from([0.05, 0.1, 0.2, 0.5]),
    offset=st.sampled_from([0, 1]),
)
def test_filter_is_its_definition(W, fdr, offset):
    selected, threshold = knockoff_filter(W, fdr=fdr, offset=offset)
    expected, bound = literal_filter(W, fdr, offset)
    assert selected.tolist() == expected
    assert threshold == bound


@pytest.mark.slow
def test_filter_keeps_the_false_discovery_rate():
    """Lasso-like statistics |b_j| - |b~_j| of a regression on [X, X~], which are antisymmetric."""
    rng = np.random.default_rng(0)
    n, p, relevant = 400, 40, 15
    C = 0.4 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    beta = np.zeros(p)
    beta[rng.permutation(p)[:relevant]] = 0.35
    rates, powers = [], []
    for run in range(200):
        X = gaussian(n, C, run)
        y = X @ beta + rng.normal(size=n)
        both = np.column_stack([X, knockoff_copies(X, rng=run)])
        b = np.abs(np.linalg.lstsq(both, y)[0])
        selected, _ = knockoff_filter(b[:p] - b[p:], fdr=0.2)
        rates.append(np.mean(beta[selected] == 0) if selected.size else 0.0)
        powers.append(np.mean(np.isin(np.flatnonzero(beta), selected)))
    assert np.mean(rates) < 0.2 + 3 * np.std(rates) / np.sqrt(len(rates))
    assert np.mean(powers) > 0.5


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Knockoffs("asdp"), "method='asdp'"),
        (lambda: knockoff_filter([[1.0]]), r"W has shape \(1, 1\)"),
        (lambda: knockoff_filter([1.0, np.nan]), "finite"),
        (lambda: knockoff_filter([1.0], fdr=1.5), "fdr=1.5"),
        (lambda: knockoff_filter([1.0], offset=2), "offset=2"),
        (lambda: Knockoffs().fit(np.eye(3), (0,), (1, 2)), "3 rows"),
        (lambda: Knockoffs().fit(np.ones((9, 2)) * [[0.1, 1]], (0,), (1,)), "column 0 of X is constant"),
        (lambda: Knockoffs().fit(np.arange(9.0)[:, None] * [1, 2], (0,), (1,)), "collinear.*given"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
