"""How each public function is called on good input, and the literal loop that its numbers must equal."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

import reliance as rl
import reliance.sklearn
from hostile import loops
from hostile.loops import Data, Floats
from reliance import plans

KEY, N, P = 7, 12, 3
IN_RUN = {"memory", "block", "workers"}
IN_GIVEN = {"context", "sampler", "fit_on"}
IN_SCRAMBLER = {"regressor", "classifier", "crossfit"}
IN_UNTIL = {"precision", "relative", "top", "budget"}
_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(N, P))
Y = 1.5 * X[:, 0] + X[:, 1] + 0.4 * _RNG.normal(size=N)
WEIGHTS = _RNG.uniform(0.5, 2.0, size=N)
FOLDS = [(np.array([i for i in range(N) if i % 3 != f]), np.arange(f, N, 3)) for f in range(3)]


def numbers(rows: Any) -> Any:
    """Rows of a table as a NumPy array; arrays of any kind as they are."""
    if hasattr(rows, "to_pandas"):
        rows = rows.to_pandas()
    return rows.to_numpy(dtype=np.float64) if hasattr(rows, "iloc") else rows


def score(rows: Any) -> Any:
    x = numbers(rows)
    return 1.5 * x[:, 0] - 0.5 * x[:, 1] * (1.0 * x[:, 2]) + 0.25


def weaker(rows: Any) -> Any:
    x = numbers(rows)
    return 1.2 * x[:, 0] + 0.25 * x[:, 1]


def plane(rows: Any) -> Any:
    x = numbers(rows)
    return 1.4 * x[:, 0] + 0.75 * x[:, 1] + 0.125 * x[:, 2]


def host(x: Any) -> Floats:
    x = numbers(x)
    x = x.detach() if hasattr(x, "detach") else x
    return np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x, dtype=np.float64)


def fit(rows: Any, y: Any) -> Callable[[Any], Any]:
    """Least squares with intercept, on any kind of rows."""
    slopes = loops.least_squares(host(rows), host(y))

    def model(new: Any) -> Any:
        found = slopes(host(new))
        if hasattr(new, "detach"):
            import torch

            return torch.from_numpy(found).to(new.dtype)
        return found

    return model


class Bag:
    """An ensemble of four models, each of which left out four rows."""

    left_out = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [0, 4, 8, 11]]
    members = [score, weaker, plane, score]

    def __init__(self, n: int = N) -> None:
        self.estimators_ = [_Member(member) for member in self.members]
        self.estimators_samples_ = [np.array([i for i in range(n) if i not in rows]) for rows in self.left_out]

    def predict(self, rows: Any) -> Any:
        return np.mean([member.predict(rows) for member in self.estimators_], axis=0)


@dataclass(frozen=True)
class _Member:
    predict: Callable[[Any], Any]


@dataclass(frozen=True)
class Function:
    """A public function; ``run(X, y, **options) -> numbers``, ``oracle(data)``: what they must be."""

    name: str
    public: Callable[..., Any]
    run: Callable[..., Any]
    oracle: Callable[[Data], Floats]
    predict: Callable[[Floats], Floats] = score

    @property
    def parameters(self) -> set[str]:
        """Of the function, and the settings in its `Run` and its `Until`."""
        found = inspect.signature(self.public).parameters
        names = set(found) | ({"loss", "compare", "draws"} if "options" in found else set())
        if "run" in found:  # a class of models has no blocks of rows
            names |= IN_RUN - ({"block"} if "model_class" in found else set())
        if "Scrambler" in str(getattr(found.get("sampler"), "annotation", "")):
            names |= IN_SCRAMBLER
        if "given" in found:
            names |= IN_GIVEN
        return names | (IN_UNTIL if "draws" in found and "Until" in str(found["draws"].annotation) else set())

    @property
    def labelled(self) -> bool:
        return "y" in self.parameters or "train" in self.parameters

    def takes(self, option: str) -> bool:
        return option in self.parameters

    def truth(self, X: Floats, y: Any = None, **changes: Any) -> Floats:
        return self.oracle(replace(Data(self.predict, np.asarray(X, dtype=np.float64), y), **changes))


def _resampled(data: Data) -> Floats:
    donors = plans.Resample(data.n, 2, KEY).donors(range(data.n), range(2))
    return loops.drawn_differences(data, donors)


def _nearest(data: Data) -> Floats:
    return loops.nearest_ratios(data, plans.Shifts(data.n, 1, KEY).donors(range(data.n), range(1))[:, 0])


def _plain(public: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Of a function (model, X, y, ...)."""

    def run(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
        return public(model, X, y, **{**fixed, **options}).values

    return run


def _unlabelled(public: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    def run(X: Any, y: Any = None, model: Any = score, **options: Any) -> Any:
        return public(model, X, **{**fixed, **options}).values

    return run


def _splits(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
    options = {"pairs": "all", **options}
    weights = options.pop("weights", None)
    train = (X, y) if weights is None else (X, y, weights)
    return rl.compare_splits(model, train=train, test=(X, y), **options).on_train.values


def _compared(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
    return rl.compare_models({"a": model, "b": model}, X, y, **{"draws": "all", **options})["b"].values


def _class(public: Callable[..., Any]) -> Callable[..., Any]:
    def run(X: Any, y: Any, model: Any = None, **options: Any) -> Any:
        models = rl.FiniteClass([score, weaker, plane]) if model is None else model
        found = public(models, X, y, **{"epsilon": 3.0, **options})
        return np.stack([found.lower, found.upper])

    return run


def _class_truth(measure: Callable[[Data], Floats]) -> Callable[[Data], Floats]:
    def oracle(data: Data) -> Floats:
        return loops.class_range([replace(data, predict=f) for f in (score, weaker, plane)], 3.0, measure)

    return oracle


def _sizes(model: Any, X: Any, y: Any) -> Floats:
    """An importance of one's own: how far the predictions of the first row move with each column."""
    rows = host(X)
    own = host(model(X))
    return np.abs(rows.T @ own)


def _null(X: Any, y: Any, model: Any = fit, **options: Any) -> Any:
    return rl.null_importance(model, X, y, **{"rounds": 2, "importance": _sizes, "rng": KEY, **options}).values


def _null_truth(data: Data) -> Floats:
    model = loops.least_squares(data.X, data.y)
    return np.abs(data.X.T @ model(data.X))


def _local(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
    return rl.local_importance(model, X, y, **options).values


def _reported(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        options = {"draws": rl.Draws(N - 1, design="shifts"), "rng": KEY, "sections": ["importance"], **options}
        return rl.report(model, X, y, path=Path(folder) / "audit.html", **options)["importance"].values


def _bagged(X: Any, y: Any, model: Any = None, **options: Any) -> Any:
    forest = Bag() if model is None else model
    return rl.out_of_bag_importance(forest, X, y, **{"draws": 3, "rng": KEY, **options}).values


def _bagged_truth(data: Data) -> Floats:
    return loops.bagged_differences(data, Bag.left_out, Bag.members)


def _facade(X: Any, y: Any, model: Any = None, **options: Any) -> Any:
    model = _Plane() if model is None else model
    options = {"scoring": "neg_mean_squared_error", "n_repeats": 3, "random_state": KEY, **options}
    if "weights" in options:
        options["sample_weight"] = options.pop("weights")
    return reliance.sklearn.permutation_importance(model, X, y, **options).importances_mean


def _facade_truth(data: Data) -> Floats:
    """scikit-learn's own."""
    from sklearn.inspection import permutation_importance

    options = {} if data.weights is None else {"sample_weight": data.weights}
    found = permutation_importance(
        _Plane(), data.X, data.y, scoring="neg_mean_squared_error", n_repeats=3, random_state=KEY, **options
    )
    return found.importances_mean


class _Plane(RegressorMixin, BaseEstimator):
    """A fitted estimator, to scikit-learn."""

    def fit(self, X: Any, y: Any) -> _Plane:
        return self

    def predict(self, rows: Any) -> Any:
        return plane(rows)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _row_losses(X: Any, y: Any, model: Any = score, loss: Any = "squared_error", columns: Any = (0,)) -> Any:
    order = [*range(1, len(X)), 0]
    return host(rl.functional.switched_losses(model, X, y, columns, X[order, :1][:, None, :], loss=loss))


def _switched_truth(data: Data) -> Floats:
    """Every row with the first value of the next row, (n, 1)."""
    found = []
    for i in range(data.n):
        row = data.X[i].copy()
        row[0] = data.X[(i + 1) % data.n, 0]
        found.append([data.loss(data.y[i], data.one(row))])
    return np.array(found)


def _risk(public: Callable[..., Any], *more: Any) -> Callable[..., Any]:
    def run(X: Any, y: Any, model: Any = score, **options: Any) -> Any:
        return float(host(public(model, X, y, *more, **options)))

    return run


def _fit_method(public: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    def run(X: Any, y: Any, model: Any = fit, **options: Any) -> Any:
        return public(model, X, y, **{"cv": FOLDS, **fixed, **options}).values

    return run


_LIST = [
    Function(
        "ablation_importance",
        rl.ablation_importance,
        _plain(rl.ablation_importance, draws=2, rng=KEY),
        _resampled,
    ),
    Function(
        "permutation_importance",
        rl.permutation_importance,
        _plain(rl.permutation_importance, draws=N, rng=KEY),
        loops.differences,
    ),
    Function("report", rl.report, _reported, loops.differences),
    Function("model_reliance", rl.model_reliance, _plain(rl.model_reliance), loops.ratios),
    Function(
        "conditional_model_reliance",
        rl.conditional_model_reliance,
        _plain(rl.conditional_model_reliance),
        loops.conditional_ratios,
    ),
    Function(
        "relative_importance",
        rl.relative_importance,
        _plain(rl.relative_importance, given="rest", draws=N, rng=KEY),
        loops.conditional_differences,
    ),
    Function(
        "interaction_importance",
        rl.interaction_importance,
        _plain(rl.interaction_importance, draws="all"),
        loops.interactions,
    ),
    Function("compare_splits", rl.compare_splits, _splits, loops.ratios),
    Function("compare_models", rl.compare_models, _compared, loops.differences),
    Function(
        "extrapolation_check",
        rl.extrapolation_check,
        lambda X, y=None, model=None, **options: rl.extrapolation_check(X, **{"rng": KEY, **options}).values,
        _nearest,
    ),
    Function("feature_impact", rl.feature_impact, _unlabelled(rl.feature_impact), loops.impacts),
    Function("sobol_total", rl.sobol_total, _unlabelled(rl.sobol_total), loops.sobol_totals),
    Function("sobol_first", rl.sobol_first, _unlabelled(rl.sobol_first), loops.sobol_firsts),
    Function("local_importance", rl.local_importance, _local, loops.local_changes),
    Function(
        "linear_importance",
        rl.linear_importance,
        lambda X, y, model=None, **options: rl.linear_importance(model, X, y, **options).values,
        loops.scaled_coefficients,
    ),
    Function(
        "algorithm_reliance",
        rl.algorithm_reliance,
        _fit_method(rl.algorithm_reliance, loss="squared_error"),
        lambda data: loops.left_out_ratios(data, FOLDS),
    ),
    Function(
        "cross_validated_importance",
        rl.cross_validated_importance,
        _fit_method(rl.cross_validated_importance, method="model_reliance", compare="difference"),
        lambda data: loops.cross_fitted(data, FOLDS, loops.differences),
    ),
    Function("null_importance", rl.null_importance, _null, _null_truth),
    Function("out_of_bag_importance", rl.out_of_bag_importance, _bagged, _bagged_truth),
    Function(
        "model_class_reliance",
        rl.model_class_reliance,
        _class(rl.model_class_reliance),
        _class_truth(loops.ratios),
    ),
    Function(
        "conditional_model_class_reliance",
        rl.conditional_model_class_reliance,
        _class(rl.conditional_model_class_reliance),
        _class_truth(loops.conditional_ratios),
    ),
    Function("sklearn.permutation_importance", reliance.sklearn.permutation_importance, _facade, _facade_truth),
    Function("functional.base_risk", rl.functional.base_risk, _risk(rl.functional.base_risk), loops.base_risk),
    Function(
        "functional.pairwise_risk",
        rl.functional.pairwise_risk,
        _risk(rl.functional.pairwise_risk, (0,)),
        lambda data: loops.switched_risk(data, (0,)),
    ),
    Function(
        "functional.shifted_risk",
        rl.functional.shifted_risk,
        _risk(rl.functional.shifted_risk, (0,), list(range(1, N))),
        lambda data: loops.switched_risk(data, (0,)),
    ),
    Function("functional.switched_losses", rl.functional.switched_losses, _row_losses, _switched_truth),
]
FUNCTIONS = {function.name: function for function in _LIST}
# The functions that check what they are given; `functional` is for tracing, and computes with what it gets.
CHECKED = [function for function in _LIST if not function.name.startswith("functional")]
