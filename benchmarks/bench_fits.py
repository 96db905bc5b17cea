"""Methods that fit models or know their kind: refits, forests, classes of models, and the scikit-learn façade."""

from __future__ import annotations

from typing import Any

from .common import SEED, Benchmark, need, regression, safe_import, sum_of_columns

with safe_import():
    import numpy as np

    import reliance as rl

N, P = 300, 4


def least_squares(X: Any, y: Any) -> Any:
    """The cheapest fit, so that what is measured is the running of many of them."""
    coefficients = np.linalg.lstsq(X, y)[0]
    return lambda Z: Z @ coefficients


class AlgorithmReliance(Benchmark):
    """Without each feature, in five folds."""

    def setup(self) -> None:
        self.X, self.y = regression(N, P)

    def time_run(self) -> None:
        rl.algorithm_reliance(least_squares, self.X, self.y, cv=5, rng=SEED)

    def time_cross_validated(self) -> None:
        rl.cross_validated_importance(least_squares, self.X, self.y, cv=5, rng=SEED)


class NullImportance(Benchmark):
    """Twenty refits to permuted labels."""

    def setup(self) -> None:
        self.X, self.y = regression(N, P)

    def time_run(self) -> None:
        rl.null_importance(least_squares, self.X, self.y, rounds=20, draws=5, rng=SEED)


class OutOfBag(Benchmark):
    """Of a forest of 50 trees."""

    def setup(self) -> None:
        self.X, self.y = regression(N, P)
        self.forest = need("sklearn.ensemble").RandomForestRegressor(50, random_state=0).fit(self.X, self.y)

    def time_run(self) -> None:
        rl.out_of_bag_importance(self.forest, self.X, self.y, rng=SEED)

    def peakmem_run(self) -> None:
        self.time_run()


class ClassReliance(Benchmark):
    """The range of reliance on one feature over the good models of a class."""

    params = [["linear", "ridge", "logistic", "hinge", "kernel", "finite", "differentiable"]]
    param_names = ["model_class"]

    def setup(self, model_class: str) -> None:
        X, y = regression(100 if model_class in ("hinge", "differentiable") else N, P)  # these two search
        self.X, self.y = X.astype(np.float64), y.astype(np.float64)
        if model_class == "logistic":
            self.y = (self.y > 0).astype(np.float64)
        elif model_class == "hinge":
            self.y = np.where(self.y > 0, 1.0, -1.0)
        self.members = self.made(model_class)

    def made(self, model_class: str) -> Any:
        if model_class == "linear":
            return rl.LinearClass()
        if model_class == "ridge":
            return rl.LinearClass(ridge=1.0)
        if model_class in ("logistic", "hinge"):
            return rl.LinearClass(loss=model_class, ridge=5.0)
        if model_class == "kernel":
            return rl.KernelClass("rbf", landmarks=10, radius=50.0)
        if model_class == "finite":
            return rl.FiniteClass([rl.models.Linear(np.full(P, c)) for c in (0.4, 0.5, 0.6)])
        torch = need("torch")
        torch.manual_seed(0)
        return rl.DifferentiableClass(torch.nn.Linear(P, 1).double(), radius=5.0, starts=1, steps=10)

    def time_run(self, model_class: str) -> None:
        rl.model_class_reliance(self.members, self.X, self.y, epsilon=0.1, features=[0], rng=SEED)


class ConditionalClassReliance(Benchmark):
    """The conditional range of the linear class, all features."""

    def setup(self) -> None:
        self.X, self.y = regression(10 * N, P)

    def time_run(self) -> None:
        rl.conditional_model_class_reliance(rl.LinearClass(), self.X, self.y, epsilon=0.1)


class Facade(Benchmark):
    """scikit-learn's function and ours in its place: a scorer that is a loss, and one that has to be called."""

    params = [["ours", "scikit-learn"], ["neg_mean_squared_error", "neg_median_absolute_error"]]
    param_names = ["whose", "scoring"]

    def setup(self, whose: str, scoring: str) -> None:
        self.X, self.y = regression(N, P)
        self.model = need("sklearn.linear_model").LinearRegression().fit(self.X, self.y)
        module = need("reliance.sklearn" if whose == "ours" else "sklearn.inspection")
        self.function = module.permutation_importance

    def time_run(self, whose: str, scoring: str) -> None:
        self.function(self.model, self.X, self.y, scoring=scoring, n_repeats=10, random_state=0)


class Companions(Benchmark):
    """What goes with a number: interactions and the check of extrapolation."""

    def setup(self) -> None:
        self.X, self.y = regression(N, P)

    def time_interactions(self) -> None:
        rl.interaction_importance(sum_of_columns, self.X, self.y, rng=SEED)

    def time_extrapolation(self) -> None:
        rl.extrapolation_check(self.X, rng=SEED)
