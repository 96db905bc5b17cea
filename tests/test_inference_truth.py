"""What is said of an estimate is true: its interval, its test, why it stopped, and where it says nothing."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import reliance as rl

BETA = np.array([1.0, 0.5, 0.0])


def data(n: int, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ BETA + noise * rng.normal(size=n)


def model(X: Any) -> Any:
    return X @ BETA


# ---------------------------------------------------------------------------------------------------------------------
# draws="auto"


def test_independent_draws_never_are_all_pairs() -> None:
    """They go on after n - 1 draws until the goal is settled, and end for a reason that is true of them."""
    X, y = data(6, noise=0.1)
    found = rl.ablation_importance(model, X, y, draws="auto", precision=1e-9, rng=0)
    assert found.stopped == "rows"
    assert found.draws_per_row > 5
    assert np.all(found.monte_carlo_share[:2] <= 0.1)
    wide = rl.ablation_importance(model, X, y, draws="auto", precision=1e9, rng=0)
    assert (wide.stopped, wide.draws_per_row) == ("precision", 8)
    budget = 6 + 3 * 6 * 9
    paid = rl.ablation_importance(model, X, y, draws="auto", precision=1e-9, budget=budget, rng=0)
    assert (paid.stopped, paid.draws_per_row) == ("budget", 9)


def test_independent_draws_have_an_end() -> None:
    """Row and donor effects that cancel exactly leave the draws' own noise alone: no goal would ever end it."""
    X, y = np.array([[-1.0], [1.0]] * 2), np.array([-1.0, 1.0] * 2)
    found = rl.ablation_importance(lambda X: X[:, 0], X, y, draws="auto", precision=1e-9, rng=0)
    assert found.stopped in ("rows", "limit")
    assert found.draws_per_row <= 100 * 4


@pytest.mark.parametrize("method", [rl.ablation_importance, rl.permutation_importance])
@pytest.mark.parametrize("given", [{"precision": 0.1}, {"relative": True}, {"top": 1}, {"budget": 10**6}])
@pytest.mark.parametrize("draws", [{}, {"draws": 5}])
def test_goals_need_auto(method: Any, given: dict[str, Any], draws: dict[str, Any]) -> None:
    X, y = data(20)
    (name,) = given
    with pytest.raises(ValueError, match=f"^{name}=.* says when draws='auto' stops, and draws=") as error:
        method(model, X, y, **given, **draws)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("given", [{"precision": 0.1}, {"relative": False}])
def test_a_ranking_has_no_precision(given: dict[str, Any]) -> None:
    X, y = data(20)
    with pytest.raises(ValueError, match="and top=1: top stops at a settled ranking"):
        rl.permutation_importance(model, X, y, draws="auto", top=1, **given)


# ---------------------------------------------------------------------------------------------------------------------
# Words


ODD_LEVELS = [0, 1, 0.0, 1.0, 95, -0.5, math.nan, math.inf, "0.9", None, True, [0.9, 0.95], np.array([0.5] * 500)]


@pytest.mark.parametrize("level", ODD_LEVELS, ids=range(len(ODD_LEVELS)))
@pytest.mark.parametrize("formulation", ["population", "fixed-data", "random-variable"])
def test_odd_levels(level: Any, formulation: str) -> None:
    X, y = data(30)
    found = rl.permutation_importance(model, X, y, draws=3, rng=0)
    for ask in (lambda: found.interval(level, formulation), lambda: found.to_frame(level)):
        with pytest.raises((ValueError, TypeError), match=r"level=.*between 0 and 1, such as 0.95") as error:
            ask()
        assert len(str(error.value)) <= 300


@pytest.mark.parametrize("odd", ["populaton", None, 3, "x" * 5000, ["t"]])
def test_odd_choices(odd: Any) -> None:
    X, y = data(30)
    found = rl.permutation_importance(model, X, y, draws=3, rng=0)
    for name, ask in {
        "formulation": lambda: found.interval(formulation=odd),
        "method": lambda: found.test(method=odd),
        "alternative": lambda: found.test(alternative=odd),
        "adjust": lambda: found.test(adjust=odd),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}=.* is not known: use one of '") as error:
            ask()
        assert len(str(error.value)) <= 300


def test_a_table_says_where_interval_and_p_may_disagree() -> None:
    """A ratio whose base losses are nearly all 0 and a few huge: interval from below 1, and a tiny p beside it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.01 * rng.normal(size=40)
    y[0] += 9.0
    found = rl.model_reliance(lambda X: X[:, 0], X, y)
    with pytest.warns(UserWarning, match="'x0' are very skewed"):
        found.interval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table and a frame say it, or leave it out, without a warning
        text, page = repr(found), found._repr_html_()
        found.to_frame()
    for said in (text, page):
        assert "very skewed, interval and p may disagree: " in said
    assert text.splitlines()[-1].endswith("'x0'")
    X, y = data(200)
    assert "skewed" not in repr(rl.model_reliance(model, X, y))
