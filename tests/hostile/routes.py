"""Models that a shortcut could read wrongly: low precision, patched methods, subclasses, text, several inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

import reliance as rl
from hostile import loops
from hostile.functions import FUNCTIONS, KEY, N, X, Y, score
from hostile.loops import Data
from hostile.models import KNOWN
from hostile.record import Case, Number, Refused

# ---------------------------------------------------------------------------------------------------------------------
# Low precision, torch, other libraries: analytic values


def _torch_case(odd: str, dtype: Any, rtol: float) -> Case:
    rows = torch.from_numpy(X).to(dtype)
    labels = torch.from_numpy(Y).to(dtype)

    def predict(plain: np.ndarray) -> np.ndarray:
        return score(torch.from_numpy(plain).to(dtype)).double().numpy()

    def truth() -> np.ndarray:
        return loops.differences(Data(predict, rows.double().numpy(), labels.double().numpy()))

    return Case(
        "permutation_importance",
        f"torch {odd}",
        lambda: rl.permutation_importance(score, rows, labels, draws=N, rng=KEY).values,
        Number(truth, rtol),
    )


class _Net(torch.nn.Module):
    """slope * x0 + 100 in the dtype given: next to 100 it moves little, but it is used."""

    def __init__(self, slope: float, dtype: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1, dtype=dtype)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[slope, 0.0, 0.0]]))
            self.linear.bias.fill_(100.0)

    def forward(self, x: Any) -> Any:
        return self.linear(x)[:, 0]


def _coarse(odd: str, dtype: Any, slope: float) -> Case:
    """Multiples of the slope around 100 are numbers of the dtype, so that predictions are exact."""
    whole = np.round(X)
    rows = torch.from_numpy(whole).to(dtype)

    def truth() -> np.ndarray:
        return loops.differences(Data(lambda x: slope * x[:, 0] + 100.0, whole, slope * whole[:, 0] + 100.0))

    def call() -> Any:
        return rl.permutation_importance(_Net(slope, dtype), rows, slope * rows[:, 0] + 100.0, draws=N, rng=KEY).values

    return Case("permutation_importance", f"coarse outputs {odd}", call, Number(truth, 1e-2))


def _two_outputs(x: Any) -> Any:
    return np.stack([1e6 + 1e3 * x[:, 0], 1.0 / (1.0 + np.exp(-x[:, 1]))], axis=1)


def _second_only(y: Any, prediction: Any) -> Any:
    return (y - prediction[..., 1]) ** 2


def _mixed_truth() -> np.ndarray:
    return loops.differences(Data(lambda rows: _two_outputs(rows)[:, 1], X, Y))


# On the rows of X these predict what their parts say; on replaced rows they do not.


def _clip(predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known = predict(X)
    return lambda rows: np.clip(predict(rows), known.min(), known.max())


def _clipping() -> Any:
    from sklearn.linear_model import Ridge

    plain = Ridge().fit(X, Y)

    class Clipped(Ridge):
        def predict(self, rows: Any) -> Any:
            return np.clip(super().predict(rows), plain.predict(X).min(), plain.predict(X).max())

    return Clipped().fit(X, Y)


def _patched() -> Any:
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(X, Y)
    model.predict = _clip(model.predict)
    return model


def _patched_tree() -> Any:
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(random_state=0).fit(X, Y)
    plain = tree.predict
    tree.predict = lambda rows: np.where(_known(rows), plain(rows), 0.0)
    return tree


def _known(rows: Any) -> np.ndarray:
    return np.array([tuple(row) in KNOWN for row in np.asarray(rows).tolist()])


def _linear_subclass() -> Any:
    class Clipped(rl.models.Linear):
        def __call__(self, rows: Any) -> Any:
            return _clip(lambda x: x @ self.coef + self.intercept)(rows)

        predict = __call__

    return Clipped(np.array([1.5, 1.0, 0.5]), 0.25)


def _by_estimator(odd: str, make: Callable[[], Any], name: str) -> Case:
    def truth() -> np.ndarray:
        model = make()
        return FUNCTIONS[name].oracle(Data(lambda rows: model.predict(rows), X, Y + 1.0))

    # Labels that a tree has not learned by heart: a ratio needs a risk.
    return Case(name, f"model {odd}", lambda: FUNCTIONS[name].run(X, Y + 1.0, model=make()), Number(truth))


def _tree_fitted_again() -> Case:
    """Read where X is a tensor, fitted again on more rows; both trees predict Y on the rows of X."""
    from sklearn.tree import DecisionTreeRegressor

    more = np.random.default_rng(2).normal(size=(40, 3))

    def call() -> Any:
        tree = DecisionTreeRegressor(random_state=0).fit(X, Y)
        rows, labels = torch.from_numpy(X), torch.from_numpy(Y + 1.0)
        rl.permutation_importance(tree, rows, labels, draws=N, rng=KEY)
        tree.fit(np.concatenate([X, more]), np.concatenate([Y, more[:, 2]]))
        return rl.permutation_importance(tree, rows, labels, draws=N, rng=KEY).values

    def truth() -> np.ndarray:
        tree = DecisionTreeRegressor(random_state=0).fit(np.concatenate([X, more]), np.concatenate([Y, more[:, 2]]))
        return loops.differences(Data(tree.predict, X, Y + 1.0))

    return Case("permutation_importance", "model tree fitted again", call, Number(truth))


def _tables() -> Iterator[Case]:
    """A text column beside numbers."""
    frame = pd.DataFrame({"a": X[:, 0], "city": np.where(X[:, 1] > 0, "Rome", "Oslo"), "c": X[:, 2]})
    plain = np.column_stack([X[:, 0], X[:, 1] > 0, X[:, 2]]).astype(np.float64)

    def model(rows: Any) -> Any:
        return 1.5 * rows["a"] + 2.0 * (rows["city"] == "Rome")

    def predict(rows: np.ndarray) -> np.ndarray:
        return 1.5 * rows[:, 0] + 2.0 * rows[:, 1]

    for name in ("permutation_importance", "model_reliance", "ablation_importance", "interaction_importance"):
        function = FUNCTIONS[name]
        yield Case(
            name,
            "X with text",
            lambda function=function: function.run(frame, Y, model=model),
            Number(lambda function=function: function.oracle(Data(predict, plain, Y))),
        )
    for name in ("linear_importance", "feature_impact", "extrapolation_check"):
        given = {} if name == "linear_importance" else {"model": model}
        yield Case(
            name,
            "X with text",
            lambda function=FUNCTIONS[name], given=given: function.run(frame, Y, **given),
            Refused(("city", "text")),
        )


def _several_inputs() -> Iterator[Case]:
    """A tuple of arrays: linear coefficients and classes cannot read them, replacement can."""
    pair = (X[:, 0], X[:, 1])

    def model(a: Any, b: Any) -> Any:
        return 1.5 * a - b

    yield Case(
        "permutation_importance",
        "several inputs",
        lambda: rl.permutation_importance(model, pair, Y, draws=N, rng=KEY).values,
        Number(lambda: loops.differences(Data(lambda rows: 1.5 * rows[:, 0] - rows[:, 1], X[:, :2], Y))),
    )
    linear = rl.models.Linear(np.array([1.0, 2.0]))
    refused = Refused(("several inputs",))
    yield Case("linear_importance", "several inputs", lambda: rl.linear_importance(linear, pair).values, refused)
    for name in ("extrapolation_check", "feature_impact"):
        yield Case(name, "several inputs", lambda name=name: FUNCTIONS[name].run(pair, Y, model=model), refused)


def cases() -> Iterator[Case]:
    yield _torch_case("float32", torch.float32, 1e-5)
    yield _torch_case("float16", torch.float16, 5e-3)
    yield _torch_case("bfloat16", torch.bfloat16, 3e-2)
    yield _coarse("float16", torch.float16, 0.25)
    yield _coarse("bfloat16", torch.bfloat16, 1.0)
    yield Case(
        "permutation_importance",
        "outputs of other sizes",
        lambda: rl.permutation_importance(_two_outputs, X, Y, loss=_second_only, draws=N, rng=KEY).values,
        Number(_mixed_truth, 1e-6),
    )
    for name in ("model_reliance", "permutation_importance", "feature_impact", "sobol_total", "local_importance"):
        yield _by_estimator("Ridge that clips", _clipping, name)
        yield _by_estimator("patched predict", _patched, name)
        yield _by_estimator("patched tree", _patched_tree, name)
        yield _by_estimator("Linear that clips", _linear_subclass, name)
    yield _tree_fitted_again()
    yield from _tables()
    yield from _several_inputs()
