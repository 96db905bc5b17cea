"""What a type checker knows of a call: mypy reads the signatures as a user's program meets them."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

import reliance as rl

ROOT = Path(__file__).parents[1]

# `assert_type` is an error if mypy finds another type; an ignored line is one if mypy finds nothing wrong with it.
PROGRAM = """
from typing import Any, assert_type

import numpy as np

import reliance as rl
from reliance.results.algorithm import AlgorithmReliance
from reliance.results.comparisons import RelativeImportance
from reliance.results.importance import Importance
from reliance.results.mapping import Results
from reliance.sklearn import permutation_importance
from reliance.sklearn.permutation import Bunch

X, y = np.zeros((9, 3)), np.zeros(9)
names = ["auc", "r2"]


def model(X: Any) -> Any:
    return X[:, 0]


def fit(X: Any, y: Any) -> Any:
    return model


def square(y: Any, prediction: Any) -> Any:
    return (y - prediction) ** 2


# One loss, or a list of them.
assert_type(rl.ablation_importance(model, X, y), Importance)
assert_type(rl.permutation_importance(model, X, y, loss="auc", draws=3), Importance)
assert_type(rl.permutation_importance(model, X, y, loss=square), Importance)
assert_type(rl.permutation_importance(model, X, y, loss=names), Results[Importance])
assert_type(rl.model_reliance(model, X, y, loss=("auc", square)), Results[Importance])
assert_type(rl.model_reliance(model, X, y, loss=["auc", square]), Results[Importance])
assert_type(rl.conditional_model_reliance(model, X, y, loss=["r2"]), Results[Importance])
assert_type(rl.algorithm_reliance(fit, X, y, cv=3), AlgorithmReliance)
assert_type(rl.algorithm_reliance(fit, X, y, loss=["r2"]), Results[AlgorithmReliance])
assert_type(rl.out_of_bag_importance(model, X, y, loss=["zero_one"]), Results[Importance])


def either(loss: str | list[str]) -> None:
    assert_type(rl.permutation_importance(model, X, y, loss=loss), Importance | Results[Importance])


# One set of given variables, or several by name.
assert_type(rl.relative_importance(model, X, y, given=[]), Importance)
assert_type(rl.relative_importance(model, X, y, given="rest", loss=names), Results[Importance])
assert_type(rl.relative_importance(model, X, y, given={"none": [], "all": "rest"}), RelativeImportance)
assert_type(rl.relative_importance(model, X, y, given={"none": []}, loss=names), Results[RelativeImportance])

# One scorer, or several.
assert_type(permutation_importance(model, X, y, scoring="r2"), Bunch)
assert_type(permutation_importance(model, X, y, scoring=["r2", "max_error"]), dict[str, Bunch])

# Lists, several inputs, and features in each of their forms.
rl.model_reliance(model, [[1.0, 2.0], [2.0, 3.0]], [1.0, 2.0], features=[0, (0, 1)], weights=[1.0, 2.0])
rl.model_reliance(model, (X, X), y, features=[0, (1, slice(0, 2)), (1, np.array([0, 1]))])
rl.model_reliance(model, {"a": X, "b": X}, y, features={"u": ("a", slice(0, 2)), "v": "b"})
rl.model_reliance(model, X, y, features={"group": [0, 1]}, names=("a", "b", "c"))
rl.model_reliance(model, X, y, features=np.array([0, 1]))
rl.compare_models({"one": model, "two": model}, X, y, draws=3)
assert_type(rl.permutation_importance({"one": model}, X, y), Results[Importance | Results[Importance]])
rl.compare_splits(model, train=(X, y), test=(X, y, y))
rl.model_class_reliance(rl.FiniteClass({"one": model}), X, y, epsilon=0.1, reference="one")

rl.model_reliance(3, X, y)  # type: ignore[call-overload]
rl.model_reliance(model, None, y)  # type: ignore[call-overload]
rl.model_reliance(model, X, y, loss=3)  # type: ignore[call-overload]
rl.model_reliance(model, X, y, lost="auc")  # type: ignore[call-overload]
"""


def test_types_of_calls(monkeypatch, tmp_path):
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)  # with the settings of the project, and what mypy remembers of it
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    report, errors, status = api.run([str(program)])
    assert status == 0, report + errors


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (rl.ablation_importance, 2),
        (rl.permutation_importance, 3),
        (rl.model_reliance, 2),
        (rl.conditional_model_reliance, 2),
        (rl.relative_importance, 6),
        (rl.algorithm_reliance, 2),
        (rl.out_of_bag_importance, 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_overloads_take_the_keywords_of_the_method(method, count):
    """A keyword that a method gets later must be one of its overloads' too, or mypy refuses it in users' calls."""
    own = set(typing.get_type_hints(method)) - {"return"}
    overloads = typing.get_overloads(method)
    assert len(overloads) == count
    for overload in overloads:
        hints = typing.get_type_hints(overload)
        (options,) = typing.get_args(hints.pop("options"))
        hints.pop("return")
        assert set(hints) | set(typing.get_type_hints(options)) == own
