"""The same work by another package and by this one, for ``peers.py``: one function a case.

Both sides of a case answer with a value for each feature and with how far chance has moved it, so that `agreement` can
say whether they measured the same thing. Packages are imported where they are used: a case asks for its own only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import SEED, need, network, torch_network

STANDARD_ERRORS = 5.0  # with 10 draws chance goes beyond it 1 (drawn here, too) to 7 times (all pairs) in 10,000
ROUNDING = {"float64": 1e-12, "float32": 1e-5}  # of the largest value: the same sums in another order


@dataclass(frozen=True)
class Answer:
    """One value a feature, and its standard error over the draws on these rows: 0 for what is not drawn."""

    values: np.ndarray
    error: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Ours:
    """One of our calls. ``exact``: the numbers must be the peer's own, not only their expectation."""

    call: str
    run: Callable[[], Answer]
    exact: bool = False


@dataclass(frozen=True)
class Case:
    """What is done, by a peer and by one or more of our calls."""

    peer: str  # as it is installed
    call: str
    work: str
    theirs: Callable[[], Answer]
    ours: tuple[Ours, ...]
    dtype: str = "float64"


def drawn(values: np.ndarray) -> Answer:
    """The means of draws (p, K)."""
    return Answer(values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def of(result: Any, share: float = 1.0) -> Answer:
    """Our answer. ``share``: what others find of it where a row may get its own value back, (n - 1)/n."""
    if result.draws is None:
        return Answer(share * result.values)
    return drawn(share * result.draws)


def agreement(theirs: Answer, ours: Answer, exact: bool, dtype: str) -> str:
    """In words, how well two answers agree; an error if they do not."""
    gap = np.abs(theirs.values - ours.values)
    rounding = ROUNDING[dtype] * float(np.abs(theirs.values).max())
    error = np.sqrt(np.square(theirs.error) + np.square(ours.error)) + np.zeros_like(gap)
    allowed = rounding + (0.0 if exact else STANDARD_ERRORS * error)
    if theirs.values.shape != ours.values.shape or not np.all(gap <= allowed):
        worst = int(np.argmax(gap - allowed))
        raise ValueError(
            f"values disagree: feature {worst} has {theirs.values[worst]:.8g} there and {ours.values[worst]:.8g} here, "
            f"allowed is a difference of {np.broadcast_to(allowed, gap.shape)[worst]:.2g}"
        )
    if exact or not error.any():
        return f"equal to {gap.max() / np.abs(theirs.values).max():.0e}"
    random = error > 0
    return f"{(gap[random] / error[random]).max():.1f} standard errors"


# ---------------------------------------------------------------------------------------------------------------------
# Data


@dataclass(frozen=True)
class Sizes:
    """Rows, columns and draws; fewer where the model or the peer is slow."""

    rows: int = 5_000
    medium_rows: int = 2_000
    few_rows: int = 500
    columns: int = 20
    draws: int = 30
    few_draws: int = 10
    impact_rows: int = 10_000
    additive_rows: int = 200
    # Rows, columns and draws of the cases that come in several sizes.
    places: tuple[tuple[int, int, int], ...] = ((500, 20, 30), (10_000, 20, 10), (1_000_000, 4, 10))


QUICK = Sizes(300, 200, 100, 5, 10, 8, 300, 100, ((100, 5, 10), (150, 4, 10), (200, 4, 10)))
# From here on models are fitted on the first rows alone, and slow ones are smaller.
LARGE = 10_000


def regression(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated features, and a signal in four of them that is not linear."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, p)) + 0.5 * rng.normal(size=(n, 1))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + np.sin(3.0 * X[:, 3]) + 0.5 * rng.normal(size=n)


def sized(size: Sizes, place: int) -> tuple[np.ndarray, np.ndarray, slice, int]:
    """Rows, labels, the rows that a model is fitted on, and draws."""
    n, p, draws = size.places[place]
    return *regression(n, p), slice(0, LARGE), draws


def fitted(path: str, X: Any, y: np.ndarray, **options: Any) -> Any:
    """``fitted("linear_model.Ridge", X, y, alpha=1.0)``."""
    module, name = path.rsplit(".", 1)
    return getattr(need(f"sklearn.{module}"), name)(**options).fit(X, y)


# ---------------------------------------------------------------------------------------------------------------------
# scikit-learn


def permuted(
    model: Any, name: str, X: Any, y: np.ndarray, draws: int, scoring: str, loss: str, all_pairs: bool = False
) -> Case:
    """Its function, against our façade, our own function and, where a shortcut makes them cheap, all pairs."""
    inspection, facade = need("sklearn.inspection"), need("reliance.sklearn")
    options = {"n_repeats": draws, "scoring": scoring, "random_state": 0}
    n, p = X.shape
    share = (n - 1) / n

    def replayed() -> Answer:
        return drawn(facade.permutation_importance(model, X, y, **options).importances)

    def shifted() -> Answer:
        return of(rl.permutation_importance(model, X, y, draws=draws, loss=loss, rng=0), share)

    def exact() -> Answer:
        return of(rl.model_reliance(model, X, y, pairs="all", loss=loss, compare="difference"), share)

    ours = [
        Ours("reliance.sklearn.permutation_importance", replayed, exact=True),
        Ours("rl.permutation_importance", shifted),
    ]
    if all_pairs:
        ours.append(Ours('rl.model_reliance(pairs="all")', exact))
    return Case(
        "scikit-learn",
        "permutation_importance",
        f"{name}, {scoring}, n={n} p={p} K={draws}",
        lambda: drawn(inspection.permutation_importance(model, X, y, **options).importances),
        tuple(ours),
    )


def sklearn_linear(size: Sizes, place: int = 0) -> Case:
    X, y, known, draws = sized(size, place)
    model = fitted("linear_model.LinearRegression", X[known], y[known])
    return permuted(model, "LinearRegression", X, y, draws, "neg_mean_squared_error", "squared_error", all_pairs=True)


def sklearn_forest(size: Sizes, place: int = 0) -> Case:
    """Fewer trees where there are a million rows: a hundred take a quarter of an hour there, on either side."""
    X, y, known, draws = sized(size, place)
    trees = 20 if len(X) > LARGE else 100
    model = fitted("ensemble.RandomForestRegressor", X[known], y[known], n_estimators=trees, random_state=0)
    name = f"RandomForestRegressor of {trees} trees"
    return permuted(model, name, X, y, draws, "neg_mean_squared_error", "squared_error", all_pairs=len(X) <= LARGE)


def sklearn_boosted(size: Sizes, place: int = 0) -> Case:
    X, y, known, draws = sized(size, place)
    model = fitted("ensemble.HistGradientBoostingRegressor", X[known], y[known], random_state=0)
    name = "HistGradientBoostingRegressor"
    return permuted(model, name, X, y, draws, "neg_mean_squared_error", "squared_error", all_pairs=True)


def sklearn_network(size: Sizes, place: int = 0) -> Case:
    X, y, known, draws = sized(size, place)
    model = fitted("neural_network.MLPRegressor", X[known], y[known], max_iter=20, random_state=0)
    return permuted(model, "MLPRegressor", X, y, draws, "neg_mean_squared_error", "squared_error")


def sklearn_pipeline(size: Sizes, place: int = 0) -> Case:
    X, y, known, draws = sized(size, place)
    steps = need("sklearn.preprocessing").SplineTransformer(), need("sklearn.linear_model").Ridge()
    model = need("sklearn.pipeline").make_pipeline(*steps).fit(X[known], y[known])
    name = "SplineTransformer, Ridge"
    return permuted(model, name, X, y, draws, "neg_mean_squared_error", "squared_error", all_pairs=True)


def sklearn_auc(size: Sizes, place: int = 0) -> Case:
    X, y, known, draws = sized(size, place)
    labels = (y > np.median(y)).astype(int)
    model = fitted("linear_model.LogisticRegression", X[known], labels[known])
    return permuted(model, "LogisticRegression", X, labels, draws, "roc_auc", "auc")


def sklearn_table(size: Sizes) -> Case:
    """A table with text columns, and a pipeline that encodes them."""
    pandas, compose, pipeline = need("pandas"), need("sklearn.compose"), need("sklearn.pipeline")
    X, y = regression(size.few_rows, 6)
    table = pandas.DataFrame(X, columns=[f"x{j}" for j in range(6)])
    table["town"] = np.array(["Ulm", "Jena", "Trier", "Celle"])[np.digitize(X[:, 0], [-1.0, 0.0, 1.0])]
    table["kind"] = np.where(X[:, 3] > 0, "warm", "cold")
    encode = need("sklearn.preprocessing").OneHotEncoder()
    columns = compose.make_column_transformer((encode, ["town", "kind"]), remainder="passthrough")
    model = pipeline.make_pipeline(columns, need("sklearn.linear_model").Ridge()).fit(table, y)
    name = "DataFrame with text, OneHotEncoder, Ridge"
    return permuted(model, name, table, y, size.few_draws, "neg_mean_squared_error", "squared_error")


# ---------------------------------------------------------------------------------------------------------------------
# captum and featureimpact


def captum_network(size: Sizes, width: int) -> Case:
    """captum permutes once a call: it is called K times, without gradients."""
    torch, attr = need("torch"), need("captum.attr")
    draws, p = size.few_draws, 32
    data = regression(size.medium_rows, p)
    X, y = (torch.from_numpy(array.astype(np.float32)) for array in data)
    module = torch_network(network(p, width)).eval()
    permutation = attr.FeaturePermutation(lambda Z: torch.mean((module(Z) - y) ** 2))

    def theirs() -> Answer:
        torch.manual_seed(0)
        with torch.no_grad():
            found = [permutation.attribute(X).reshape(-1)[:p] for _ in range(draws)]
        return drawn(-torch.stack(found, dim=1).numpy().astype(np.float64))  # theirs is original minus permuted

    def ours() -> Answer:
        return of(rl.permutation_importance(module, X, y, draws=draws, rng=0), (len(X) - 1) / len(X))

    work = f"torch {p}-{width}-{width}-1, n={len(X)} p={p} K={draws}"
    mine = (Ours("rl.permutation_importance", ours),)
    return Case("captum", "FeaturePermutation", work, theirs, mine, "float32")


def captum_small(size: Sizes) -> Case:
    return captum_network(size, 16)


def captum_large(size: Sizes) -> Case:
    return captum_network(size, 128)


def impact(size: Sizes, path: str, **options: Any) -> Case:
    package = need("featureimpact")
    X, y = regression(size.impact_rows, size.columns)
    model = fitted(path, X, y, **options)

    def theirs() -> Answer:
        found = package.FeatureImpact()
        found.make_quantiles(X)
        return Answer(package.averaged_impact(found.compute_impact(model, X), normalize=False).to_numpy())

    work = f"{type(model).__name__}, 9 quantiles, n={len(X)} p={size.columns}"
    ours = Ours("rl.feature_impact", lambda: Answer(rl.feature_impact(model, X).values), exact=True)
    return Case("featureimpact", "FeatureImpact", work, theirs, (ours,))


def impact_linear(size: Sizes) -> Case:
    return impact(size, "linear_model.LinearRegression")


def impact_boosted(size: Sizes) -> Case:
    return impact(size, "ensemble.HistGradientBoostingRegressor", random_state=0)
