"""Methods on a fitted model, one class each: importance, reliance by route, conditional, without labels, local."""

from __future__ import annotations

from typing import Any

from .common import SEED, Benchmark, need, numpy_network, regression, safe_import, sum_of_columns
from .common import network as weights_of

with safe_import():
    import numpy as np

    import reliance as rl

N, P, DRAWS = 500, 6, 10


def small_network(p: int) -> Any:
    """Weights p-16-16-1 on float32."""
    return numpy_network(weights_of(p, width=16))


class Ablation(Benchmark):
    """Donors drawn with replacement, on a small network."""

    def setup(self) -> None:
        self.X, self.y = regression(N, P)
        self.model = small_network(P)

    def time_run(self) -> None:
        rl.ablation_importance(self.model, self.X, self.y, draws=DRAWS, rng=SEED)


class Permutation(Benchmark):
    """Shifts, on a small network, for a loss of rows and for a metric of all rows."""

    params = [["squared_error", "r2"]]
    param_names = ["loss"]

    def setup(self, loss: str) -> None:
        self.X, self.y = regression(N, P)
        self.model = small_network(P)

    def time_run(self, loss: str) -> None:
        rl.permutation_importance(self.model, self.X, self.y, draws=DRAWS, loss=loss, rng=SEED)


class ModelReliance(Benchmark):
    """All pairs by every route, each on a model that it is made for."""

    params = [["plain", "distinct", "linear", "trees", "first_layer"]]
    param_names = ["route"]

    def setup(self, route: str) -> None:
        X, y = regression(N, P)
        self.X, self.y = X.astype(np.float64), y.astype(np.float64)
        self.model: Any = sum_of_columns
        if route == "distinct":
            self.X = np.round(self.X)
        elif route == "linear":
            self.model = rl.models.Linear(np.ones(P))
        elif route == "trees":
            boosted = need("sklearn.ensemble").HistGradientBoostingRegressor(max_iter=20, random_state=0)
            self.model = boosted.fit(self.X, self.y)
        elif route == "first_layer":
            weight = np.random.default_rng(SEED).normal(size=(P, 16))
            self.model = rl.models.FirstLayer(weight, 0.0, lambda hidden: np.maximum(hidden, 0.0).sum(axis=1))

    def time_run(self, route: str) -> None:
        rl.model_reliance(self.model, self.X, self.y, pairs="all", route=route, features=[0, 1], rng=SEED)

    def peakmem_run(self, route: str) -> None:
        self.time_run(route)


class ConditionalReliance(Benchmark):
    """Residuals exchanged between all pairs of rows, with in-sample and with cross-fitted means."""

    params = [[None, 5]]
    param_names = ["crossfit"]

    def setup(self, crossfit: int | None) -> None:
        self.X, self.y = regression(N, P)

    def time_run(self, crossfit: int | None) -> None:
        rl.conditional_model_reliance(
            sum_of_columns, self.X, self.y, sampler=rl.samplers.Scrambler(crossfit=crossfit), features=[0, 1], rng=SEED
        ).interval()

    def peakmem_run(self, crossfit: int | None) -> None:
        self.time_run(crossfit)


class Relative(Benchmark):
    """Relative importance by sampler: the fit, the draws and what the interval needs."""

    params = [["gaussian", "residual", "knn", "leaves", "knockoffs"]]
    param_names = ["sampler"]

    def setup(self, sampler: str) -> None:
        # A cross-fitted kernel regression, fitted again without each of 20 groups of rows: cubic in their number.
        self.X, self.y = regression(100 if sampler == "residual" else N, P)

    def time_run(self, sampler: str) -> None:
        rl.relative_importance(
            sum_of_columns,
            self.X,
            self.y,
            given=rl.Given([2, 3], sampler=sampler),
            draws=DRAWS,
            features=[0, 1],
            rng=SEED,
        ).interval()

    def peakmem_run(self, sampler: str) -> None:
        self.time_run(sampler)


class FeatureImpact(Benchmark):
    """Nine quantiles, on a linear model and on boosted trees."""

    params = [["linear", "boosted"]]
    param_names = ["model"]

    def setup(self, model: str) -> None:
        linear, ensemble = need("sklearn.linear_model"), need("sklearn.ensemble")
        self.X, y = regression(4 * N, P)
        boosted = ensemble.HistGradientBoostingRegressor(max_iter=20, random_state=0)
        self.model = (linear.LinearRegression() if model == "linear" else boosted).fit(self.X, y)

    def time_run(self, model: str) -> None:
        rl.feature_impact(self.model, self.X)


class Sobol(Benchmark):
    """Both indices of two features of a small network, over all pairs."""

    params = [["total", "first"]]
    param_names = ["index"]

    def setup(self, index: str) -> None:
        self.X, _ = regression(N, P)
        self.model = small_network(P)

    def time_run(self, index: str) -> None:
        measure = rl.sobol_total if index == "total" else rl.sobol_first
        measure(self.model, self.X, features=[0, 1])


class Local(Benchmark):
    """Of ten rows: effects without labels, and losses with them."""

    params = [["effects", "losses"]]
    param_names = ["of"]

    def setup(self, of: str) -> None:
        self.X, self.y = regression(N, P)
        self.model = small_network(P)

    def time_run(self, of: str) -> None:
        labels, loss = (None, None) if of == "effects" else (self.y, "squared_error")
        rl.local_importance(self.model, self.X, labels, rows=list(range(10)), loss=loss, rng=SEED)
