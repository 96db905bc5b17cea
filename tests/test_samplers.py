"""Conditional samplers against least squares, neighbours and strata computed independently, and against known laws."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from scipy import special

from reliance._core import arrays
from reliance.samplers import draws, neighbours, regressors
from reliance.samplers import residual as samplers
from reliance.samplers.residual import KNN, OLS, Gaussian, KernelRidge, Leaves, Residual

host = arrays.to_host


def table(n: int = 60, p: int = 5, seed: int = 0) -> np.ndarray:
    """Correlated columns with unequal means and spreads."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + np.arange(p)


def uniforms(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


def regression(Z: np.ndarray, T: np.ndarray, at: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(Z)), Z])
    return np.column_stack([np.ones(len(at)), at]) @ np.linalg.lstsq(design, T)[0]


def is_like(array: Any, X: Any) -> bool:
    return type(array) is type(X) and array.dtype == X.dtype and compat.device(array) == compat.device(X)


# ---------------------------------------------------------------------------------------------------------------------
# Gaussian


@pytest.mark.parametrize("target, given", [((0,), (1, 2, 4)), ((3, 1), (0,)), ((2,), ())])
def test_gaussian_means_are_least_squares(backend, target, given):
    rows = table()
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = Gaussian().fit(X, target, given).on(X)
    mean = regression(rows[:, given], rows[:, target], rows[:, given])
    scale = np.abs(rows).max()
    backend.assert_close(host(drawn.mean), mean, scale)
    backend.assert_close(host(drawn.residual), rows[:, target] - mean, scale)
    assert drawn.training is None
    assert all(is_like(part, X) for part in (drawn.mean, drawn.residual, drawn.design))


def test_design_and_bread_are_those_of_the_fit(backend):
    rows = table()
    X = backend.asarray(rows)
    drawn = Gaussian().fit(X, (0, 2), (1, 4)).on(X)
    z = host(drawn.design).astype(np.float64)
    assert isinstance(drawn.bread, np.ndarray)
    assert drawn.bread.dtype == np.float64
    backend.assert_close(z[:, 0], np.ones(len(rows)))
    np.testing.assert_allclose(drawn.bread @ (z.T @ z / len(z)), np.eye(3), atol=100 * backend.rtol)
    # mean = z'B for one B, and the residuals are orthogonal to z.
    B = np.linalg.lstsq(z, host(drawn.mean))[0]
    np.testing.assert_allclose(z @ B, host(drawn.mean), atol=100 * backend.rtol)
    np.testing.assert_allclose(z.T @ host(drawn.residual) / len(z), 0, atol=100 * backend.rtol)


@pytest.mark.once_per_device
def test_influence_does_not_depend_on_how_z_is_scaled(backend):
    """Res_i z_i' Szz^-1 g, g a mean of z: as with the plain columns [1, given]."""
    rows = table()
    X = backend.asarray(rows)
    drawn = Gaussian().fit(X, (0,), (1, 4)).on(X)
    slope = np.random.default_rng(3).normal(size=len(rows))

    def influence(z: np.ndarray, bread: np.ndarray) -> np.ndarray:
        return z @ bread @ (z * slope[:, None]).mean(axis=0)

    plain = np.column_stack([np.ones(len(rows)), backend.rounded(rows)[:, [1, 4]]])
    expected = influence(plain, np.linalg.inv(plain.T @ plain / len(plain)))
    found = influence(host(drawn.design).astype(np.float64), drawn.bread)
    np.testing.assert_allclose(found, expected, atol=1e3 * backend.rtol)


def test_gaussian_fitted_on_other_rows(backend):
    fit_rows, rows = table(80, seed=1), table(50, seed=2)
    fit_X, X = backend.asarray(fit_rows), backend.asarray(rows)
    fit_rows, rows = backend.rounded(fit_rows), backend.rounded(rows)
    drawn = Gaussian().fit(fit_X, (0,), (1, 2)).on(X)
    scale = np.abs(rows).max()
    mean = regression(fit_rows[:, 1:3], fit_rows[:, :1], rows[:, 1:3])
    backend.assert_close(host(drawn.mean), mean, scale)
    backend.assert_close(host(drawn.residual), rows[:, :1] - mean, scale)
    Z, left = drawn.training
    assert Z.shape == (80, 3)
    assert is_like(Z, X)
    inside = regression(fit_rows[:, 1:3], fit_rows[:, :1], fit_rows[:, 1:3])
    backend.assert_close(host(left), fit_rows[:, :1] - inside, scale)


def test_normal_draws_are_mean_plus_factor_times_quantile(backend):
    rows = table()
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = Gaussian("normal").fit(X, (0, 3), (1, 2)).on(X)
    mean = regression(rows[:, 1:3], rows[:, [0, 3]], rows[:, 1:3])
    left = rows[:, [0, 3]] - mean
    factor = np.linalg.cholesky(left.T @ left / (len(rows) - 3))
    u = uniforms(len(rows), 4, 2)
    expected = mean[:, None, :] + special.ndtri(backend.rounded(u)) @ factor.T
    scale = 10 * np.abs(rows).max()
    device_u = backend.asarray(u)
    found = drawn.values(slice(0, len(rows)), device_u)
    assert is_like(found, X)
    backend.assert_close(host(found), expected, scale)
    backend.assert_close(host(drawn.values(range(7, 20), device_u[7:20, ...])), expected[7:20], scale)
    backend.assert_close(host(drawn.normal.scale), factor, scale)
    assert drawn.uniforms == 2


@pytest.mark.once_per_device
def test_values_can_be_traced(backend):
    if backend.kind != "jax":
        pytest.skip("tracing is JAX's")
    import jax

    X = backend.asarray(table())
    drawn = Gaussian("normal").fit(X, (0, 3), (1, 2)).on(X)
    u = backend.asarray(uniforms(10, 4, 2))
    traced = jax.jit(lambda u: drawn.values(slice(5, 15), u))(u)
    np.testing.assert_allclose(host(traced), host(drawn.values(slice(5, 15), u)), rtol=1e-5, atol=1e-5)


def test_normal_quantile(backend):
    u = np.concatenate([np.linspace(0.001, 0.999, 999), 10.0 ** -np.arange(3, 7), 1 - 10.0 ** -np.arange(3, 6)])
    expected = special.ndtri(backend.rounded(u))
    backend.assert_close(host(draws.normal_quantile(backend.asarray(u))), expected, 3)
    ends = host(draws.normal_quantile(backend.asarray(np.asarray([0.0, 1.0]))))
    assert np.isfinite(ends).all()
    assert ends[0] < -5 < 5 < ends[1]


@pytest.mark.parametrize("kind", ["donors", "normal"])
def test_moments_of_gaussian_draws(kind):
    """Mean, variance and covariance with the given columns, for a law that is known."""
    rng = np.random.default_rng(5)
    n, d = 4000, 50
    G = rng.normal(size=(n, 2)) @ np.asarray([[1.0, 0.6], [0.0, 0.8]])
    x = 1 + G @ [0.5, -1.0] + 0.7 * rng.normal(size=n)
    X = np.column_stack([x, G])
    drawn = Gaussian(kind).fit(X, (0,), (1, 2)).on(X)
    if kind == "normal":
        values = drawn.values(slice(0, n), rng.random((n, d, 1)))[:, :, 0]
    else:
        values = drawn.mean + drawn.residual[:, 0][rng.integers(n, size=(n, d))]
    left = values - (1 + G @ [0.5, -1.0])[:, None]
    tolerance = 5 * 0.7 / np.sqrt(n)  # of the fit, whose error all draws share
    assert abs(left.mean()) < tolerance
    assert abs(left.std() - 0.7) < tolerance
    assert np.abs(left.mean(axis=1) @ G / n).max() < tolerance
    # Given the columns, the draws do not depend on the row's own value.
    own = x - (1 + G @ [0.5, -1.0])
    assert abs(left.mean(axis=1) @ own / n) < tolerance


@pytest.mark.once_per_device
@pytest.mark.parametrize("kind", ["constant", "collinear", "duplicate", "few rows"])
def test_singular_given(backend, kind):
    rows = table(40)
    if kind == "constant":
        rows[:, 2] = 7.1
    elif kind == "collinear":
        rows[:, 4] = rows[:, 1] - 2 * rows[:, 2] + 100
    elif kind == "duplicate":
        rows[:, 2] = rows[:, 1]
    else:
        rows = rows[:5]
    X = backend.asarray(rows)
    with pytest.raises(ValueError, match=r"given.*[Dd]rop.*ridge="):
        Gaussian().fit(X, (0,), (1, 2, 3, 4))
    drawn = Gaussian(ridge=1e-2).fit(X, (0,), (1, 2, 3, 4)).on(X)
    assert np.isfinite(host(drawn.mean)).all()
    assert np.isfinite(drawn.bread).all()


def test_a_large_mean_is_not_singular():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 3)) + np.asarray([0, 1e6, -1e6])
    rows[:, 0] += rows[:, 1] - 1e6
    drawn = Gaussian().fit(rows, (0,), (1, 2)).on(rows)
    centred = rows[:, 1:] - rows[:, 1:].mean(axis=0)
    np.testing.assert_allclose(drawn.mean, regression(centred, rows[:, :1], centred), atol=1e-8)


def test_ridge_is_the_penalised_problem(backend):
    rows = table()
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = Gaussian(ridge=0.3).fit(X, (0,), (1, 2, 3)).on(X)
    Z = (rows[:, 1:4] - rows[:, 1:4].mean(axis=0)) / rows[:, 1:4].std(axis=0)
    t = rows[:, 0] - rows[:, 0].mean()
    slopes = np.linalg.solve(Z.T @ Z / len(Z) + 0.3 * np.eye(3), Z.T @ t / len(Z))
    backend.assert_close(host(drawn.mean)[:, 0], rows[:, 0].mean() + Z @ slopes, np.abs(rows).max())
    np.testing.assert_allclose(drawn.bread[1:, 1:], np.linalg.inv(Z.T @ Z / len(Z) + 0.3 * np.eye(3)), rtol=1e-6)


@pytest.mark.once_per_device
@pytest.mark.parametrize("sampler", [Gaussian(), Gaussian("normal"), Residual()])
def test_a_binary_target_is_refused(backend, sampler):
    rows = table(50)
    rows[:, 1] = rows[:, 1] > 1
    X = backend.asarray(rows)
    with pytest.raises(ValueError, match=r"column 1 .*categorical.*sampler='leaves' or 'knn'"):
        sampler.fit(X, (0, 1), (2,))
    sampler.fit(X, (0,), (1,)).on(X)  # but it may be given
    sampler.fit(X, (1,), ()).on(X)


@pytest.mark.once_per_device
def test_integer_columns(backend):
    rows = np.random.default_rng(0).integers(0, 50, size=(80, 3))
    X = backend.asarray(rows.astype(np.int32))
    drawn = Gaussian().fit(X, (0,), (1, 2)).on(X)
    np.testing.assert_allclose(host(drawn.mean), regression(rows[:, 1:], rows[:, :1], rows[:, 1:]), rtol=1e-5)
    for sampler in (KNN(), Leaves()):
        assert sampler.fit(X, (0,), (1, 2)).on(X).donors(range(80), uniforms(80, 3)).shape == (80, 3)


def test_normal_draws_of_a_singular_group():
    rows = table()
    rows[:, 1] = 2 * rows[:, 0]
    drawn = Gaussian("normal").fit(rows, (0, 1), (2,)).on(rows)
    values = drawn.values(slice(0, 60), uniforms(60, 5, 2))
    np.testing.assert_allclose(values[..., 1], 2 * values[..., 0], atol=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Residual


@pytest.mark.once_per_device
def test_cross_fitted_ols_is_the_literal_loop(backend):
    rows = table(53)
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = Residual(OLS(), folds=4).fit(X, (0, 2), (1, 3)).on(X)
    fold = samplers.row_folds(rows, (0, 2, 1, 3), 4)
    assert set(fold.tolist()) == set(range(4))
    mean = np.empty((53, 2))
    for i in range(53):
        rest = fold != fold[i]
        mean[i] = regression(rows[rest][:, [1, 3]], rows[rest][:, [0, 2]], rows[i : i + 1, [1, 3]])[0]
    backend.assert_close(host(drawn.mean), mean, np.abs(rows).max())
    backend.assert_close(host(drawn.residual), rows[:, [0, 2]] - mean, np.abs(rows).max())
    assert drawn.design is drawn.bread is drawn.training is None
    assert is_like(drawn.mean, X)


@pytest.mark.once_per_device
def test_a_fold_is_the_rows_own(backend):
    """The same on every backend, for any order of the rows and whichever others there are; equal rows take turns."""
    rows = table(400)
    rows[7] = rows[3]
    rows[9, 1], rows[11] = 0.0, rows[9]
    rows[11, 1] = -0.0
    rows = backend.rounded(rows)
    fold = samplers.row_folds(rows, (0, 1, 2), 5)
    np.testing.assert_array_equal(samplers.row_folds(backend.asarray(rows), (0, 1, 2), 5), fold)
    some = np.setdiff1d(np.random.default_rng(0).permutation(400)[:300], [3, 7, 9, 11])
    np.random.default_rng(1).shuffle(some)
    np.testing.assert_array_equal(samplers.row_folds(rows[some], (0, 1, 2), 5), fold[some])
    assert fold[7] == (fold[3] + 1) % 5
    assert fold[11] == (fold[9] + 1) % 5
    assert np.abs(np.bincount(fold, minlength=5) - 80).max() < 5 * np.sqrt(80)


class Nearest:
    """A regressor without scikit-learn: the target of the nearest row."""

    def fit(self, Z: np.ndarray, t: np.ndarray) -> Nearest:
        assert isinstance(Z, np.ndarray)
        assert t.ndim == 1
        self.Z, self.t = Z, t
        return self

    def predict(self, Z: np.ndarray) -> np.ndarray:
        return self.t[np.argmin(((Z[:, None] - self.Z) ** 2).sum(axis=2), axis=1)]


@pytest.mark.once_per_device
@pytest.mark.parametrize("kind", ["sklearn", "plain"])
def test_any_regressor(backend, kind):
    linear_model = pytest.importorskip("sklearn.linear_model")
    regressor = linear_model.Ridge(2.0) if kind == "sklearn" else Nearest()
    rows, others = table(40), table(30, seed=4)
    X, other = backend.asarray(rows), backend.asarray(others)
    rows, others = backend.rounded(rows), backend.rounded(others)
    fitted = Residual(regressor).fit(X, (0, 1), (2, 3)).on(other)
    model = [type(regressor)() if kind == "plain" else linear_model.Ridge(2.0) for _ in range(2)]
    expected = np.stack([model[k].fit(rows[:, 2:4], rows[:, k]).predict(others[:, 2:4]) for k in range(2)], axis=1)
    np.testing.assert_allclose(host(fitted.mean), expected, rtol=1e-3 if backend.dtype == "float32" else 1e-9)
    assert not hasattr(regressor, "coef_")  # the user's object is left alone
    assert not hasattr(regressor, "t")
    inside = Residual(regressor).fit(X, (0, 1), (2, 3)).on(X)
    assert np.abs(host(inside.residual)).min() > 0  # the nearest row is never the row itself


@pytest.mark.once_per_device
def test_kernel_ridge_is_the_dual_solution(backend):
    """With all rows as landmarks: alpha = (K + lambda)^-1 on centred kernels, and lambda by literal leave-one-out."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 2))
    T = np.stack([np.sin(2 * Z[:, 0]), Z[:, 1]], axis=1) + 0.3 * rng.normal(size=(30, 2))
    at = rng.normal(size=(7, 2))
    grid = (1e-3, 1e-2, 1e-1)
    found = KernelRidge(penalties=grid).fit(backend.asarray(Z), backend.asarray(T)).predict(backend.asarray(at))
    Z, T, at = (backend.rounded(a) for a in (Z, T, at))
    spread = Z.std(axis=0)
    apart = np.sqrt((((Z[:, None] - Z) / spread) ** 2).sum(axis=2))
    width = np.median(apart[np.triu_indices(30, 1)])

    def kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-(((A[:, None] - B) / spread) ** 2).sum(axis=2) / (2 * width**2))

    def predict(Z: np.ndarray, t: np.ndarray, at: np.ndarray, penalty: float) -> np.ndarray:
        # The intercept is not penalised: [K + lambda, 1; 1', 0].
        m = len(Z)
        system = np.block([[kernel(Z, Z) + penalty * np.eye(m), np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(t, 0))
        return kernel(at, Z) @ solution[:-1] + solution[-1]

    for k in range(2):
        errors = [
            sum(
                (T[i, k] - predict(np.delete(Z, i, 0), np.delete(T[:, k], i), Z[i : i + 1], 30 * c)[0]) ** 2
                for i in range(30)
            )
            for c in grid
        ]
        expected = predict(Z, T[:, k], at, 30 * grid[int(np.argmin(errors))])
        np.testing.assert_allclose(host(found)[:, k], expected, atol=1e-4 if backend.dtype == "float32" else 1e-7)


@pytest.mark.once_per_device
def test_kernel_ridge_learns_a_curve_with_few_landmarks(backend):
    rng = np.random.default_rng(1)
    Z = rng.uniform(-2, 2, size=(600, 1))
    T = np.sin(2 * Z) + 0.1 * rng.normal(size=(600, 1))
    at = np.linspace(-1.8, 1.8, 40)[:, None]
    found = KernelRidge(landmarks=40).fit(backend.asarray(Z), backend.asarray(T)).predict(backend.asarray(at))
    assert np.abs(host(found) - np.sin(2 * at)).max() < 0.1


def test_kernel_ridge_works_in_parts(monkeypatch):
    Z, T = table(50, 2), table(50, 2, seed=3)
    whole = KernelRidge().fit(Z, T).predict(Z)
    monkeypatch.setattr(regressors, "_CHUNK", 7)
    np.testing.assert_allclose(KernelRidge().fit(Z, T).predict(Z), whole, rtol=1e-6, atol=1e-6)


@pytest.mark.once_per_device
def test_kernel_ridge_of_equal_rows(backend):
    Z = backend.asarray(np.zeros((10, 2)))
    T = backend.asarray(np.arange(10.0)[:, None])
    np.testing.assert_allclose(host(KernelRidge().fit(Z, T).predict(Z)), 4.5, rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# Donors


def candidates(drawn: samplers.DonorDraws, n: int, count: int = 400) -> list[set[int]]:
    """All donors each row can have, from a fine grid of numbers."""
    grid = np.broadcast_to((np.arange(count) + 0.5) / count, (n, count))
    return [set(line.tolist()) for line in drawn.donors(range(n), grid)]


@pytest.mark.once_per_device
@pytest.mark.parametrize("k", [1, 4, 39])
def test_neighbours_are_scikit_learns(backend, k):
    neighbors = pytest.importorskip("sklearn.neighbors")
    rows = table(40)
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = KNN(k).fit(X, (0,), (1, 3, 4)).on(X)
    Z = rows[:, [1, 3, 4]] / rows[:, [1, 3, 4]].std(axis=0)
    expected = neighbors.NearestNeighbors(n_neighbors=k).fit(Z).kneighbors(return_distance=False)
    assert candidates(drawn, 40) == [set(line.tolist()) for line in expected]
    assert drawn.strata is None
    assert drawn.alone.size == 0


@pytest.mark.once_per_device
def test_categorical_neighbours_are_those_of_one_hot_columns(backend):
    neighbors = pytest.importorskip("sklearn.neighbors")
    rows = table(50)
    rows[:, 2] = np.random.default_rng(0).integers(4, size=50)
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    drawn = KNN(6, categorical=(2,)).fit(X, (0,), (1, 2)).on(X)
    Z = np.column_stack([rows[:, 1] / rows[:, 1].std(), rows[:, [2]] == np.arange(4)])
    expected = neighbors.NearestNeighbors(n_neighbors=6).fit(Z).kneighbors(return_distance=False)
    assert candidates(drawn, 50) == [set(line.tolist()) for line in expected]


@pytest.mark.once_per_device
def test_ties_go_to_the_smaller_index(backend):
    """A grid, on which many rows are equally far."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    rows = np.column_stack([np.arange(75.0), np.tile(grid, (3, 1))])
    X = backend.asarray(rows)
    found = candidates(KNN(7).fit(X, (0,), (1, 2)).on(X), 75)
    for i in range(75):
        apart = ((rows[:, 1:] - rows[i, 1:]) ** 2).sum(axis=1)
        apart[i] = np.inf
        assert found[i] == set(np.argsort(apart, kind="stable")[:7].tolist())


def test_neighbours_do_not_depend_on_the_chunk(monkeypatch):
    from reliance.samplers import neighbours

    X = np.round(table(45), 1)
    u = uniforms(45, 9)
    whole = KNN(5).fit(X, (0,), (1, 2)).on(X).donors(range(45), u)
    monkeypatch.setattr(neighbours, "_CELLS", 45 * 4)
    np.testing.assert_array_equal(KNN(5).fit(X, (0,), (1, 2)).on(X).donors(range(45), u), whole)


def test_scales_come_from_the_rows_of_the_fit():
    X = table(30)
    stretched = X * [1, 1, 1e-9, 1, 1]  # there column 2 hardly varies, so here it decides
    found = candidates(KNN(1).fit(stretched, (0,), (1, 2)).on(X), 30)
    apart = np.abs(X[:, 2][:, None] - X[:, 2]) + np.diag(np.full(30, np.inf))
    assert found == [{int(k)} for k in np.argmin(apart, axis=1)]


@pytest.mark.once_per_device
def test_a_constant_column_changes_nothing(backend):
    """0.1 is not what its mean rounds to."""
    rows = table(60)
    rows[:, 4] = 0.1
    X = backend.asarray(rows)
    u = uniforms(60, 5)
    neighbours = [KNN().fit(X, (0,), given).on(X).donors(range(60), u) for given in ((1, 2), (1, 2, 4))]
    np.testing.assert_array_equal(*neighbours)
    Z, T = (backend.asarray(backend.rounded(part)) for part in (rows[:, [1, 2, 4]], rows[:, :1]))
    without = KernelRidge().fit(Z[:, :2], T).predict(Z[:, :2])
    tolerance = 1e-3 if backend.dtype == "float32" else 1e-6
    np.testing.assert_allclose(host(KernelRidge().fit(Z, T).predict(Z)), host(without), rtol=tolerance, atol=tolerance)


MAKERS = {
    "knn": lambda: KNN(4),
    "knn, nothing given": lambda: KNN(),
    "tree": lambda: Leaves(min_leaf=3),
    "exact": lambda: Leaves("exact"),
    "forest": lambda: Leaves(lambda Z: np.stack([np.floor(Z[:, 0]), np.floor(Z[:, 1] * 2)], axis=1).astype(int)),
}


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=25, deadline=None)
@for_all(n=st.integers(6, 40), width=st.integers(1, 3), seed=st.integers(0, 10**6), d=st.integers(1, 6))
def test_what_every_donor_promises(maker, n, width, seed, d):
    X = np.round(np.random.default_rng(seed).normal(size=(n, width + 2)), 1 if maker != "exact" else 0)
    target = tuple(range(width))
    given = () if "nothing" in maker else (width, width + 1)
    drawn = MAKERS[maker]().fit(X, target, given).on(X)
    u = uniforms(n, d, seed=seed)
    whole = drawn.donors(range(n), u)
    assert whole.dtype == np.int64
    assert whole.shape == (n, d)
    assert ((whole >= 0) & (whole < n)).all()
    # Never the row itself, but for rows without any donor.
    own = (whole == np.arange(n)[:, None]).any(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(own), drawn.alone)
    # A function of the row and the number alone.
    a, b = sorted(np.random.default_rng(seed).integers(n + 1, size=2).tolist())
    np.testing.assert_array_equal(drawn.donors(range(a, b), u[a:b]), whole[a:b])
    np.testing.assert_array_equal(drawn.donors(range(n), u[:, :1]), whole[:, :1])
    # Larger numbers draw larger values.
    if maker != "forest":
        rising = X[drawn.donors(range(n), np.sort(u, axis=1)), 0]
        assert (np.diff(rising, axis=1) >= 0).all()


@pytest.mark.once_per_device
def test_without_given_columns_all_other_rows_are_donors(backend):
    X = backend.asarray(table(12))
    for sampler in (KNN(), Leaves()):
        drawn = sampler.fit(X, (0,), ()).on(X)
        assert candidates(drawn, 12) == [set(range(12)) - {i} for i in range(12)]
        assert len(set(drawn.strata.tolist())) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Strata


@pytest.mark.once_per_device
@pytest.mark.parametrize("how", ["exact", "array", "callable"])
def test_strata_and_rows_alone(backend, how):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=40), rng.integers(3, size=40), rng.integers(2, size=40)])
    rows[7, 1] = 9.0  # the only one of its kind
    code = (2 * rows[:, 1] + rows[:, 2]).astype(np.int64)
    strata = {"exact": "exact", "array": code, "callable": lambda Z: (2 * Z[:, 0] + Z[:, 1]).astype(int)}[how]
    X = backend.asarray(rows)
    drawn = Leaves(strata).fit(X, (0,), (1, 2)).on(X)
    np.testing.assert_array_equal(drawn.alone, [7])
    same = drawn.strata[:, None] == drawn.strata
    np.testing.assert_array_equal(same, code[:, None] == code)
    expected = [set(np.flatnonzero(same[i]).tolist()) - {i} or {i} for i in range(40)]
    assert candidates(drawn, 40) == expected


def test_stratum_donors_are_uniform():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=20), np.arange(20) % 4])
    drawn = Leaves("exact").fit(X, (0,), (1,)).on(X)
    found = drawn.donors(range(20), rng.random((20, 20000)))
    for i in range(20):
        counts = np.bincount(found[i], minlength=20)
        expected = np.where((np.arange(20) % 4 == i % 4) & (np.arange(20) != i), 20000 / 4, 0)
        assert np.abs(counts - expected).max() < 5 * np.sqrt(20000 / 4)


@pytest.mark.once_per_device
@pytest.mark.parametrize("kind", ["regressor", "classifier", "group", "own"])
def test_leaves_are_those_of_the_tree(backend, kind):
    tree = pytest.importorskip("sklearn.tree")
    rows = table(120)
    if kind == "classifier":
        rows[:, 0] = np.digitize(rows[:, 1] + rows[:, 0], [-1, 1])
    X = backend.asarray(rows)
    rows = backend.rounded(rows)
    target = (0, 3) if kind == "group" else (0,)
    own = tree.DecisionTreeRegressor(max_leaf_nodes=5, random_state=0) if kind == "own" else None
    drawn = Leaves(tree=own, min_leaf=15).fit(X, target, (1, 2)).on(X)
    model = {
        "regressor": tree.DecisionTreeRegressor(min_samples_leaf=15, random_state=0),
        "classifier": tree.DecisionTreeClassifier(min_samples_leaf=15, random_state=0),
        "group": tree.DecisionTreeRegressor(min_samples_leaf=15, random_state=0),
        "own": own,
    }[kind]
    T = rows[:, target] / (rows[:, target].std(axis=0) if kind == "group" else 1)
    leaves = model.fit(rows[:, 1:3], T).apply(rows[:, 1:3])
    np.testing.assert_array_equal(drawn.strata[:, None] == drawn.strata, leaves[:, None] == leaves)
    assert len(set(leaves)) > 1
    assert drawn.alone.size == 0


def test_forests_draw_a_tree_then_a_leaf_mate():
    ensemble = pytest.importorskip("sklearn.ensemble")
    X = table(50)
    forest = ensemble.RandomForestRegressor(3, min_samples_leaf=6, random_state=0)
    drawn = Leaves(tree=forest).fit(X, (0,), (1, 2)).on(X)
    assert drawn.strata is None
    leaves = forest.fit(X[:, 1:3], X[:, 0]).apply(X[:, 1:3])
    found = drawn.donors(range(50), np.random.default_rng(0).random((50, 30000)))
    for i in range(50):
        expected = np.zeros(50)
        company = 0
        for t in range(3):
            mates = np.flatnonzero(leaves[:, t] == leaves[i, t])
            mates = mates[mates != i]
            if mates.size:
                expected[mates] += 1 / mates.size
                company += 1
        counts = np.bincount(found[i], minlength=50) / 30000
        assert np.abs(counts - expected / company).max() < 0.02


# ---------------------------------------------------------------------------------------------------------------------
# Names and mistakes


def test_resolve():
    for name, kind in {"gaussian": Gaussian, "residual": Residual, "knn": KNN, "leaves": Leaves}.items():
        assert isinstance(samplers.resolve(name), kind)
    own = KNN(3)
    assert samplers.resolve(own) is own
    with pytest.raises(ValueError, match=r"sampler='normal' is unknown.*'gaussian'"):
        samplers.resolve("normal")
    for wrong in (3, Gaussian, None):
        with pytest.raises(TypeError, match="sampler="):
            samplers.resolve(wrong)


@pytest.mark.parametrize("name", ["gaussian", "residual", "knn", "leaves", "knockoffs"])
def test_columns_are_checked(name):
    X, sampler = table(), samplers.resolve(name)
    with pytest.raises(ValueError, match=r"given=\(1, 9\) names column 9"):
        sampler.fit(X, (0,), (1, 9))
    with pytest.raises(ValueError, match=r"target=\(-1,\)"):
        sampler.fit(X, (-1,), (1,))
    with pytest.raises(ValueError, match=r"given=\(0, 1\) holds column 0 of the target"):
        sampler.fit(X, (0,), (0, 1))
    with pytest.raises(ValueError, match="nothing to draw"):
        sampler.fit(X, (), (1,))
    with pytest.raises(ValueError, match="shape"):
        sampler.fit(X[:, 0], (0,), (1,))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Gaussian("gauss"), "draws='gauss'"),
        (lambda: Gaussian(ridge=-1.0), "ridge=-1.0"),
        (lambda: Residual(folds=1), "folds=1"),
        (lambda: Residual(object()), "regressor="),
        (lambda: Residual().fit(table(8), (0,), (1,)), "folds=5"),
        (lambda: KernelRidge(landmarks=1), "landmarks=1"),
        (lambda: KNN(0), "k=0"),
        (lambda: KNN(60).fit(table(60), (0,), (1,)).on(table(60)), "k=60"),
        (lambda: KNN().fit(table(60), (0,), (1,)).on(table(60)[:, :4]), "5 columns"),
        (lambda: KNN().fit(table(60), (0,), (1,)).on(table(60)[:1]), "1 rows"),
        (lambda: Leaves("some"), "strata='some'"),
        (lambda: Leaves("exact", tree=3), "strata and tree"),
        (lambda: Leaves(tree=3), "tree=3"),
        (lambda: Leaves(min_leaf=1), "min_leaf=1"),
        (lambda: Leaves(np.zeros(7, dtype=int)).fit(table(), (0,), (1,)).on(table()), r"strata has shape \(7,\)"),
        (lambda: Leaves(np.zeros(60)).fit(table(), (0,), (1,)).on(table()), "strata .* dtype float64"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.once_per_device
def test_neighbours_by_tree_and_by_distances(backend, monkeypatch):
    """The tree on the host and all distances on the device name the same rows, ties included."""
    rng = np.random.default_rng(3)
    rows = np.stack(
        [rng.normal(size=120), rng.integers(0, 3, 120), rng.integers(0, 4, 120), rng.normal(size=120)], axis=1
    )
    sampler = KNN(k=4, categorical=(2,))
    for given in ((3,), (1, 2), (1, 3), (1, 2, 3)):
        X = backend.asarray(rows)
        u = rng.random((120, 6))
        by_tree = sampler.fit(X, (0,), given).on(X).donors(range(120), u)
        with monkeypatch.context() as patch:
            patch.setattr(neighbours, "is_accelerator", lambda xp, dev: True)
            by_distances = sampler.fit(X, (0,), given).on(X).donors(range(120), u)
        if backend.dtype == "float64":
            assert np.array_equal(by_tree, by_distances)
        else:  # distances rounded to float32 may tie or swap
            assert np.mean(by_tree == by_distances) > 0.98


def test_several_partitions_of_an_array_or_a_callable():
    rows, u = table(), uniforms(60, 4, 1)[..., 0]
    several = np.stack([np.arange(60) % 2, np.arange(60) % 3], axis=1)
    drawn = [Leaves(strata=strata).fit(rows, (0,), (1,)).on(rows) for strata in (several, lambda Z: several)]
    assert drawn[0].strata is drawn[1].strata is None
    donors = drawn[0].donors(range(60), u)
    np.testing.assert_array_equal(donors, drawn[1].donors(range(60), u))
    mates = several[donors] == several[np.arange(60)][:, None, :]
    assert mates.any(axis=2).all()  # of one partition or the other
    assert (donors != np.arange(60)[:, None]).all()
    kept = np.arange(5, 60)
    part = Leaves(strata=several).for_rows(kept).fit(rows[kept], (0,), (1,)).on(rows[kept]).donors(range(55), u[kept])
    assert (several[kept][part] == several[kept][:, None, :]).any(axis=2).all()
