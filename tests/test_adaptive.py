"""Draws until it is settled: what it stops at, why, and that the intervals still cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reliance as rl

BETA = np.array([1.0, 0.5, 0.45, 0.0])


def data(n: int, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X @ BETA + noise * rng.normal(size=n)


def model(X: Any) -> Any:
    return X @ BETA


METHODS = {"permutation": rl.permutation_importance, "ablation": rl.ablation_importance}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_precision_is_reached_and_nothing_else_changes(method: Any, compare: str) -> None:
    X, y = data(300)
    found = method(model, X, y, draws=rl.Until(precision=0.6), compare=compare, rng=0)
    assert found.stopped == "precision"
    unit = found.base_risk if compare == "difference" else 1.0
    assert np.all(np.diff(found.interval())[:, 0] / 2 <= 0.6 * unit)
    fixed = method(model, X, y, draws=found.draws_per_row, compare=compare, rng=0)
    np.testing.assert_allclose(found.values, fixed.values, rtol=1e-12)
    np.testing.assert_allclose(found.std_error, fixed.std_error, rtol=1e-9)
    np.testing.assert_allclose(found.draws, fixed.draws, rtol=1e-12, atol=1e-14)


@pytest.mark.once_per_device
def test_on_every_backend(backend: Any) -> None:
    X, y = data(60)
    beta = backend.asarray(BETA)
    found = rl.permutation_importance(
        lambda X: X @ beta, backend.asarray(X), backend.asarray(y), draws=rl.Until(precision=0.9), rng=0
    )
    fixed = rl.permutation_importance(model, X, y, draws=found.draws_per_row, rng=0)
    np.testing.assert_allclose(found.values, fixed.values, rtol=1e-4, atol=1e-5)


def test_rows_are_the_limit() -> None:
    """A goal that the rows' own variation does not allow: it stops when draws are a small part of the variance."""
    X, y = data(300)
    found = rl.permutation_importance(model, X, y, draws=rl.Until(precision=1e-4), rng=0)
    assert found.stopped == "rows"
    assert np.all(found.monte_carlo_share[:3] <= 0.1)
    assert found.draws_per_row < 299


def test_a_ranking_is_settled_or_cannot_be() -> None:
    X, y = data(2000)
    assert rl.permutation_importance(model, X, y, draws=rl.Until(top=1), rng=0).stopped == "ranking"
    twins = rl.permutation_importance(lambda X: X[:, 0] + X[:, 1], X, X[:, 0] + X[:, 1], draws=rl.Until(top=1), rng=0)
    assert twins.stopped in ("rows", "all pairs")


@pytest.mark.parametrize("design", ["ranks", "shifts", "permutations"])
def test_a_budget_ends_it_and_counts_every_row(design: str) -> None:
    """A model so rough, and useless, that much is left to the draws also by ranks."""
    X, y = data(300)
    calls: list[int] = []

    def counting(X: Any) -> Any:
        calls.append(len(X))
        return np.sin(200.0 * X).sum(axis=1)

    budget = 300 + 8 * 4 * 300
    goal = rl.Until(precision=1e-4, budget=budget, design=design)
    found = rl.permutation_importance(counting, X, y, draws=goal, rng=0)
    assert (found.stopped, found.draws_per_row) == ("budget", 8)
    assert sum(calls) == budget + 127  # and one batch of unchanged rows once more, which is no evaluation


def test_few_rows_end_at_all_pairs() -> None:
    X, y = data(6, noise=0.1)
    found = rl.permutation_importance(model, X, y, draws=rl.Until(precision=1e-9, design="shifts"), rng=0)
    assert found.stopped == "all pairs"
    exact = rl.model_reliance(model, X, y, compare="difference", route="plain")
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-10, atol=1e-12)


def test_several_losses_are_all_settled() -> None:
    X, y = data(300)
    losses = ["squared_error", "absolute_error", "r2"]
    found = rl.permutation_importance(model, X, y, draws=rl.Until(precision=0.7), loss=losses, rng=0)
    assert {one.stopped for one in found.values()} == {"precision"}
    for one in found.values():
        assert np.all(np.diff(one.interval())[:, 0] / 2 <= 0.7 * one.base_risk)


def test_progress_and_saving_know_of_it(tmp_path: Any) -> None:
    X, y = data(300)
    seen: list[tuple[int, int]] = []
    found = rl.permutation_importance(
        model, X, y, draws=rl.Until(precision=1e-4), rng=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] == 4 * 300 * found.draws_per_row
    found.save(tmp_path / "found.json")
    assert rl.load(tmp_path / "found.json").stopped == "rows"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 0.0}, "precision=0.0: pass a positive half-width"),
        ({"precision": "small"}, "precision='small': pass a positive half-width"),
        ({"top": 4}, "top=4: 4 features are ranked; pass a smaller number"),
        ({"top": 0}, "top=0: pass a positive integer or None"),
        ({"budget": 100}, "budget=100 is too small: the base pass and the first draws take"),
        ({"loss": rl.Metric(lambda y, f: abs(y - f).max())}, r"draws=rl.Until\(...\) watches population intervals"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    X, y = data(20)
    goal = {name: value for name, value in options.items() if name != "loss"}
    options = {name: value for name, value in options.items() if name == "loss"}
    with pytest.raises(ValueError, match=message):
        rl.permutation_importance(model, X, y, draws=rl.Until(**goal), **options)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("draws", ["auto", "many", rl.Until], ids=str)
def test_other_draws_are_numbers(method: Any, draws: Any) -> None:
    X, y = data(20)
    with pytest.raises(TypeError, match=r"draws=.* is not an integer"):
        method(model, X, y, draws=draws)


@pytest.mark.slow
@pytest.mark.parametrize(
    "goal", [{"precision": 0.45}, {"precision": 0.01}, {"top": 1}], ids=["precision", "rows", "top"]
)
def test_intervals_cover_where_it_stopped(goal: dict[str, Any]) -> None:
    """Stopping when the interval happens to be short might cover too little: measured, not assumed."""
    truth, replicates, inside = 2 * BETA**2, 500, np.zeros(4)
    for seed in range(replicates):
        X, y = data(150, seed)
        found = rl.permutation_importance(model, X, y, draws=rl.Until(**goal), rng=seed)
        low, high = found.interval().T
        inside += (low <= truth) & (truth <= high)
    assert np.all(np.abs(inside[:3] / replicates - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / replicates) + 0.005)
    assert inside[3] == replicates


def test_independent_draws_have_no_design() -> None:
    X, y = data(40)
    with pytest.raises(ValueError, match="design='shifts' is for permutations"):
        rl.ablation_importance(model, X, y, draws=rl.Until(top=1, design="shifts"), rng=0)
