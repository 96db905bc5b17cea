"""Calls that end early, with what is there: at a deadline, or at Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance.methods import adaptive, growth
from reliance.plans.growth import growing

N = 60
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] * X[:, 1] + 0.5 * RNG.normal(size=N)


class Clocked:
    """A model that takes a second for each draw of a feature, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        monkeypatch.setattr(growth, "clock", lambda: self.rows / N)

    def __call__(self, rows: Any) -> Any:
        self.rows += len(rows)
        return rows[:, 0] * rows[:, 1]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    return Clocked(monkeypatch)


def draws_made(result: rl.Importance) -> int:
    return int(result.evaluations[0]) // N


def of_plan(plan: Any, compare: str = "difference") -> Any:
    """The same draws, asked for by their number."""
    return rl.permutation_importance(lambda rows: rows[:, 0] * rows[:, 1], X, Y, draws=plan, rng=1, compare=compare)


def assert_equal(found: Any, expected: Any) -> None:
    for name in ("values", "std_error", "fixed_data_error", "degrees_of_freedom", "replaced_risk"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(found.interval(), expected.interval(), rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "options", "same"),
    [
        (rl.permutation_importance, {"draws": rl.Draws(50, "shifts")}, lambda k: plans.Shifts(N, k, 1)),
        (rl.ablation_importance, {"draws": 50}, lambda k: plans.Resample(N, k, 1)),
        (rl.model_reliance, {"pairs": "all", "compare": "difference"}, lambda k: plans.Shifts(N, k, 1)),
        (
            rl.permutation_importance,
            {"draws": 50},
            lambda k: plans.Ranked(N, k, 1, plans.Orders.of(X, 1), cycles=True),
        ),
    ],
    ids=["shifts", "resampled", "all pairs", "ranks"],
)
def test_a_deadline_leaves_fewer_draws_with_their_own_errors(
    method: Any, options: Any, same: Any, model: Clocked
) -> None:
    # Three features: a draw of all of them takes three seconds, and rounds have 8 draws.
    found = method(model, X, Y, rng=1, run=rl.Run(deadline="80s"), **options)
    assert found.stopped == "deadline"
    assert draws_made(found) == found.draws_per_row == 24
    assert model.rows <= 82 * N
    assert_equal(found, of_plan(same(24)))


def test_with_time_enough_all_is_done(model: Clocked) -> None:
    found = rl.model_reliance(model, X, Y, rng=1, run=rl.Run(deadline="1h"), compare="difference")
    assert (found.stopped, found.draws_per_row) == ("all pairs", N - 1)
    expected = rl.model_reliance(lambda rows: rows[:, 0] * rows[:, 1], X, Y, route="plain", compare="difference")
    assert_equal(found, expected)
    drawn = rl.permutation_importance(model, X, Y, draws=rl.Draws(20, "shifts"), rng=1, run=rl.Run(deadline=10**6))
    assert (drawn.stopped, drawn.draws_per_row) == ("", 20)
    assert_equal(drawn, of_plan(plans.Shifts(N, 20, 1)))


def test_the_first_draws_are_always_made(model: Clocked) -> None:
    found = rl.permutation_importance(model, X, Y, rng=1, run=rl.Run(deadline=0.001))
    assert (found.stopped, found.draws_per_row) == ("deadline", growth.FIRST)
    assert np.isfinite(found.interval()).all()


def test_until_has_a_deadline_too(model: Clocked) -> None:
    found = rl.permutation_importance(
        model, X, Y, rng=1, draws=rl.Until(precision=1e-9, design="shifts"), run=rl.Run(deadline=40)
    )
    assert (found.stopped, found.draws_per_row) == ("deadline", 8)
    assert_equal(found, of_plan(plans.Shifts(N, 8, 1)))


class Interrupted(Clocked):
    def __call__(self, rows: Any) -> Any:
        if self.rows > 40 * N:
            raise KeyboardInterrupt
        return super().__call__(rows)


@pytest.mark.parametrize("workers", [None, 2])
def test_ctrl_c_gives_what_is_there(monkeypatch: pytest.MonkeyPatch, workers: int | None) -> None:
    options = {"draws": rl.Draws(50, "shifts"), "rng": 1}
    run = rl.Run(on_interrupt="partial", workers=workers)
    found = rl.permutation_importance(Interrupted(monkeypatch), X, Y, run=run, **options)
    assert (found.stopped, found.draws_per_row) == ("interrupted", 8)
    assert_equal(found, of_plan(plans.Shifts(N, 8, 1)))
    for other in (rl.Run(workers=workers), rl.Run(on_interrupt="raise", deadline="1h", workers=workers)):
        with pytest.raises(KeyboardInterrupt):
            rl.permutation_importance(Interrupted(monkeypatch), X, Y, run=other, **options)


@pytest.mark.parametrize("draws", [rl.Draws(50, "shifts"), rl.Until(precision=1e-9, design="shifts")])
@pytest.mark.parametrize("place", ["_next", "collect"])
def test_ctrl_c_between_rounds(monkeypatch: pytest.MonkeyPatch, draws: Any, place: str) -> None:
    """Not only while the model is called: between two rounds, and when the last one is done."""
    calls: list[int] = []
    owner = growth.Ending if place == "_next" else adaptive
    original = getattr(owner, place)

    def pressed(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == (2 if place == "_next" else 1):
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(owner, place, pressed)
    options = {"draws": draws, "rng": 1}
    found = rl.permutation_importance(Clocked(monkeypatch), X, Y, run=rl.Run(on_interrupt="partial"), **options)
    if place == "_next":
        assert (found.stopped, found.draws_per_row) == ("interrupted", 8)
    assert_equal(found, of_plan(plans.Shifts(N, found.draws_per_row, 1)))
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        rl.permutation_importance(Clocked(monkeypatch), X, Y, run=rl.Run(deadline="1h"), **options)


def test_ctrl_c_before_anything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Interrupted(monkeypatch)
    model.rows = 35 * N
    with pytest.raises(KeyboardInterrupt):
        rl.permutation_importance(model, X, Y, rng=1, run=rl.Run(on_interrupt="partial"))


def test_a_deadline_goes_on_from_its_checkpoint(model: Clocked, tmp_path: Path) -> None:
    options = {"draws": rl.Draws(40, "shifts"), "rng": 1}
    one = rl.permutation_importance(model, X, Y, run=rl.Run(checkpoint=tmp_path, deadline=80), **options)
    before = model.rows
    two = rl.permutation_importance(model, X, Y, run=rl.Run(checkpoint=tmp_path, deadline=10**6), **options)
    assert (one.stopped, one.draws_per_row, two.stopped, two.draws_per_row) == ("deadline", 24, "", 40)
    assert 16 * 3 * N < model.rows - before < (24 * 3 + 1) * N  # not those that were there
    assert_equal(two, of_plan(plans.Shifts(N, 40, 1)))


def test_a_route_needs_no_deadline() -> None:
    from sklearn.linear_model import LinearRegression

    linear = LinearRegression().fit(X, Y)
    found = rl.model_reliance(linear, X, Y, run=rl.Run(deadline="1min"))
    np.testing.assert_allclose(found.values, rl.model_reliance(linear, X, Y).values)
    assert (found.stopped, set(found.routes)) == ("", {"linear"})


def test_plans_that_do_not_grow() -> None:
    for plan in (plans.halves(N, 0), plans.every_shift(N), plans.Pairs(N, np.ones(N))):
        assert growing(plan, 0) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: rl.feature_impact(lambda rows: rows[:, 0], X, run=run), "this method cannot end early"),
        (lambda run: rl.conditional_model_reliance(lambda rows: rows[:, 0], X, Y, run=run), "cannot end early"),
        (lambda run: rl.model_reliance(lambda rows: rows[:, 0], X, Y, pairs="halves", run=run), "cannot end early"),
        (lambda run: rl.model_reliance(lambda rows: rows[:, 0], X, Y, keep="curves", run=run), "curves cannot end"),
        (
            lambda run: rl.null_importance(lambda X, y: lambda rows: rows[:, 0], X, Y, rounds=2, run=run),
            "refits cannot",
        ),
        (lambda run: rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, run=run), "searches in a class"),
    ],
)
def test_what_cannot_end_early_says_so(call: Any, words: str) -> None:
    for run in (rl.Run(deadline=5), rl.Run(on_interrupt="partial")):
        with pytest.raises(ValueError, match=words) as error:
            call(run)
        assert len(str(error.value)) <= 300


@pytest.mark.parametrize("deadline", [0, -1, "soon", "5 fortnights", True, float("nan"), float("inf"), [3]])
def test_times_that_are_none(deadline: Any) -> None:
    with pytest.raises(ValueError, match="deadline="):
        rl.Run(deadline=deadline)
    with pytest.raises(ValueError, match="on_interrupt='stop' is unknown"):
        rl.Run(on_interrupt="stop")


def test_times_in_words() -> None:
    assert [rl.Run(deadline=one).seconds for one in (3, "90s", "20min", "1.5 h", "2d")] == [3, 90, 1200, 5400, 172800]
