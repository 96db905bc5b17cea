"""Cases for ``peers.py`` where features are drawn given others, left out, or shared out: fippy, hidimstat, sage."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import SEED, need
from peer_cases import Answer, Case, Ours, Sizes, drawn, fitted, of, regression

COLUMNS = 8


def quiet(run: Callable[[], Any]) -> Any:
    """Without the progress bars and remarks of others."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        return run()


# ---------------------------------------------------------------------------------------------------------------------
# fippy


def fippy(size: Sizes, method: str, path: str, ours: Callable[..., tuple[Ours, ...]], **options: Any) -> Case:
    """One method of its Explainer. ``ours(model, X, y, draws)`` makes our calls."""
    package, samplers, losses, pandas = map(need, ("fippy.explainer", "fippy.samplers", "fippy.losses", "pandas"))
    X, y = regression(size.few_rows, COLUMNS)
    table = pandas.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)])
    model = fitted(path, X, y)
    draws = size.few_draws

    def theirs() -> Answer:
        np.random.seed(0)  # noqa: NPY002  # it draws from the global state
        sampler = None if method == "pfi" else samplers.GaussianSampler(table)
        explainer = package.Explainer(
            lambda Z: model.predict(Z.to_numpy()), table, losses.squared_error, sampler=sampler
        )
        found = quiet(lambda: getattr(explainer, method)(table, y, n_repeats=draws, **options))
        return drawn(found.scores[0].mean(axis=1).T)

    work = f"{type(model).__name__}, n={len(X)} p={COLUMNS} K={draws}"
    given = f", given {len(options['G'])} columns" if "G" in options else ""
    return Case("fippy", f"Explainer.{method}", work + given, theirs, ours(model, X, y, draws))


def fippy_pfi(size: Sizes) -> Case:
    """It draws donors with replacement, which is ablation."""

    def ours(model: Any, X: np.ndarray, y: np.ndarray, draws: int) -> tuple[Ours, ...]:
        return (Ours("rl.ablation_importance", lambda: of(rl.ablation_importance(model, X, y, draws=draws, rng=0))),)

    return fippy(size, "pfi", "linear_model.LinearRegression", ours)


def relative(given: Any, residuals: tuple[str, ...]) -> Callable[..., tuple[Ours, ...]]:
    """Our calls with normal residuals, as theirs, or with those of other rows."""

    def ours(model: Any, X: np.ndarray, y: np.ndarray, draws: int) -> tuple[Ours, ...]:
        def call(kind: Any) -> Callable[[], Answer]:
            sampler = rl.samplers.Gaussian(draws=kind)
            return lambda: of(
                rl.relative_importance(model, X, y, given=rl.Given(given, sampler=sampler), draws=draws, rng=0)
            )

        return tuple(Ours(f"rl.relative_importance, {kind}", call(kind)) for kind in residuals)

    return ours


def fippy_cfi(size: Sizes) -> Case:
    """Of a linear model under squared error only two moments count: both kinds of residuals have the same answer."""
    return fippy(size, "cfi", "linear_model.LinearRegression", relative("rest", ("normal", "donors")))


def fippy_rfi(size: Sizes) -> Case:
    return fippy(size, "rfi", "linear_model.LinearRegression", relative([0, 1], ("normal", "donors")), G=["x0", "x1"])


def fippy_cfi_boosted(size: Sizes) -> Case:
    return fippy(size, "cfi", "ensemble.HistGradientBoostingRegressor", relative("rest", ("normal",)))


# ---------------------------------------------------------------------------------------------------------------------
# hidimstat


def hidimstat_pfi(size: Sizes, path: str = "linear_model.LinearRegression", **options: Any) -> Case:
    X, y = regression(size.medium_rows, COLUMNS)
    model, draws, share = fitted(path, X, y, **options), size.few_draws, (size.medium_rows - 1) / size.medium_rows

    def theirs() -> Answer:
        found = need("hidimstat").PFI(model, n_permutations=draws, random_state=0)
        return losses(found, X, y)

    work = f"{type(model).__name__}, n={len(X)} p={COLUMNS} K={draws}"
    ours = Ours(
        "rl.permutation_importance", lambda: of(rl.permutation_importance(model, X, y, draws=draws, rng=0), share)
    )
    return Case("hidimstat", "PFI", work, theirs, (ours,))


def hidimstat_pfi_boosted(size: Sizes) -> Case:
    return hidimstat_pfi(size, "ensemble.HistGradientBoostingRegressor", random_state=0)


def hidimstat_cfi(size: Sizes, path: str = "linear_model.LinearRegression", **options: Any) -> Case:
    """With least squares for the means of a feature, as ours; both exchange residuals between rows."""
    X, y = regression(size.medium_rows, COLUMNS)
    model, draws = fitted(path, X, y, **options), size.few_draws
    share = (size.medium_rows - 1) / size.medium_rows
    means = need("sklearn.linear_model").LinearRegression()

    def theirs() -> Answer:
        found = need("hidimstat").CFI(
            model, n_permutations=draws, imputation_model_continuous=means, feature_types="continuous", random_state=0
        )
        return losses(found, X, y)

    def ours() -> Answer:
        return of(rl.relative_importance(model, X, y, given="rest", draws=draws, rng=0), share)

    work = f"{type(model).__name__}, n={len(X)} p={COLUMNS} K={draws}"
    return Case("hidimstat", "CFI", work, theirs, (Ours('rl.relative_importance(given="rest")', ours),))


def hidimstat_cfi_boosted(size: Sizes) -> Case:
    return hidimstat_cfi(size, "ensemble.HistGradientBoostingRegressor", random_state=0)


def losses(found: Any, X: np.ndarray, y: np.ndarray) -> Answer:
    """Its importances, one for each draw."""
    quiet(lambda: found.fit_importance(X, y))
    return drawn(np.stack([found.loss_[j] - found.loss_reference_ for j in range(X.shape[1])]))


def hidimstat_loco(size: Sizes, path: str = "linear_model.LinearRegression", **options: Any) -> Case:
    """Both fit on half of the rows, once with all features and once without each, and compare on the other half."""
    X, y = regression(size.medium_rows, COLUMNS)
    half = len(X) // 2
    module, name = path.rsplit(".", 1)
    make = getattr(need(f"sklearn.{module}"), name)

    def theirs() -> Answer:
        model = make(**options).fit(X[:half], y[:half])
        found = need("hidimstat").LOCO(model)
        return Answer(quiet(lambda: found.fit(X[:half], y[:half]).importance(X[half:], y[half:])))

    def ours() -> Answer:
        test = X[half:], y[half:]
        return Answer(rl.algorithm_reliance(make(**options), X[:half], y[:half], cv=test, compare="difference").values)

    work = f"{name}, {half} rows to fit, {len(X) - half} to compare, p={COLUMNS}"
    return Case("hidimstat", "LOCO", work, theirs, (Ours("rl.algorithm_reliance", ours, exact=True),))


def hidimstat_loco_boosted(size: Sizes) -> Case:
    return hidimstat_loco(size, "ensemble.HistGradientBoostingRegressor", random_state=0)


# ---------------------------------------------------------------------------------------------------------------------
# sage-importance


def sage_additive(size: Sizes) -> Case:
    """SAGE's value is half the permutation importance where the model is additive and the features uncorrelated.

    Features that are left out are averaged over. With centred terms c_j and residuals r that are orthogonal to them the
    risk without a set of features is then mean r^2 + sum of mean c_j^2: feature j is worth mean c_j^2 in every order,
    and half of what an exchange of its values costs. Least squares on orthogonal columns makes this exact on the rows.
    """
    package = need("sage")
    rng = np.random.default_rng(SEED)
    n, p = size.additive_rows, 10
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, p))]))[0]
    X = np.sqrt(n) * basis[:, 1:]
    y = X @ np.linspace(0.5, 2.0, p) + rng.normal(size=n)
    model = fitted("linear_model.LinearRegression", X, y)

    def theirs() -> Answer:
        estimator = package.PermutationEstimator(package.MarginalImputer(model, X), "mse", random_state=0)
        found = estimator(X, y, batch_size=128, bar=False)  # until its own default of precision
        return Answer(found.values, found.std)

    def ours() -> Answer:
        return of(rl.model_reliance(model, X, y, pairs="all", compare="difference"), 0.5 * (n - 1) / n)

    work = f"LinearRegression, orthogonal columns, n={n} p={p}"
    mine = (Ours('rl.model_reliance(pairs="all") / 2', ours),)
    return Case("sage-importance", "PermutationEstimator", work, theirs, mine)
