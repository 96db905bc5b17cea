"""Public functions: their docstrings are complete, and keywords of other libraries are answered with ours."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import reliance as rl

FUNCTIONS = [getattr(rl, name) for name in rl.__all__ if inspect.isfunction(getattr(rl, name)) and name != "load"]
X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_parameter_is_described_where_it_is_used(function) -> None:
    """In help() itself: an entry for each parameter, in the order of the signature, and none of another."""
    doc = inspect.getdoc(function)
    section = re.search(r"Parameters\n-+\n(.*?)\n\n", doc, re.DOTALL)[1]
    headers = [line.partition(" :")[0] for line in section.split("\n") if not line.startswith(" ")]
    named = [name.strip().lstrip("*") for header in headers for name in header.split(",")]
    assert named == list(inspect.signature(function).parameters)
    for entry in re.split(r"\n(?=\S)", section):
        assert not re.search(r"[Aa]s in `\w+`\.?$", entry), f"sends the reader elsewhere: {entry}"


def test_help_says_what_loss_takes() -> None:
    for word in ("log_loss", "cross_entropy", "auc", "By default the one that fits the model"):
        assert word in rl.permutation_importance.__doc__


@pytest.mark.parametrize(
    "given, ours",
    [
        ({"n_repeats": 5}, "draws"),
        ({"scoring": "r2"}, "loss"),
        ({"random_state": 0}, "rng"),
        ({"n_jobs": 2}, r"rl.Run\(workers"),
        ({"feature_names": ["a", "b"]}, "names"),
        ({"sample_weight": X[:, 0]}, "weights"),
        ({"drows": 3}, "'draws'"),
    ],
)
def test_keywords_of_others_are_answered_with_ours(given, ours) -> None:
    with pytest.raises(TypeError, match=rf"permutation_importance\(\) has no parameter '{next(iter(given))}'.*{ours}"):
        rl.permutation_importance(lambda x: x[:, 0], X, X[:, 0], **given)


def test_options_of_a_method_pass_through_a_refit() -> None:
    def fit(rows, y):
        return lambda x: x[:, 0]

    assert rl.cross_validated_importance(fit, X, X[:, 0], cv=2, draws=3, rng=0).names == ("x0", "x1")
    with pytest.raises(TypeError, match="pass draws"):
        rl.cross_validated_importance(fit, X, X[:, 0], cv=2, n_repeats=3)


def test_a_public_function_keeps_its_name_and_signature() -> None:
    assert rl.model_reliance.__name__ == "model_reliance"
    assert list(inspect.signature(rl.model_reliance).parameters)[:4] == ["model", "X", "y", "pairs"]
