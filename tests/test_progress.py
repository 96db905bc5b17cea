"""Long work: a bar with rows a second and the time left, a function of one's own, and Ctrl-C within one block."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.engine import outlook, units

N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
Y = X[:, 0] * X[:, 1]


def model(X: Any) -> Any:
    return np.sin(X).sum(axis=1)


METHODS = {
    "ablation": (rl.ablation_importance, {"draws": 3}),
    "permutation": (rl.permutation_importance, {"draws": 4}),
    "auto": (rl.permutation_importance, {"draws": rl.Until(precision=0.3)}),
    "all": (rl.model_reliance, {"pairs": "all"}),
    "halves": (rl.model_reliance, {"pairs": "halves"}),
    "relative": (rl.relative_importance, {"given": "rest", "draws": 3}),
    "conditional": (rl.conditional_model_reliance, {}),
    "local": (rl.local_importance, {}),
    "sobol": (rl.sobol_total, {}),
    "impact": (rl.feature_impact, {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_function_hears_of_every_block_and_of_the_end(name: str) -> None:
    method, options = METHODS[name]
    seen: list[tuple[int, int]] = []
    labels = () if name in ("sobol", "impact") else (Y,)
    method(model, X, *labels, progress=lambda done, total: seen.append((done, total)), run=rl.Run(block=64), **options)
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == totals[-1]
    assert all(a <= b for a, b in seen)


def test_the_bar_shows_speed_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    rl.model_reliance(model, X, Y, progress=True, run=rl.Run(block=64))
    shown = capsys.readouterr().err
    assert "rows/s" in shown
    assert "100%" in shown
    assert "<" in shown  # elapsed<left
    rl.model_reliance(model, X, Y)
    assert capsys.readouterr().err == ""


INTERRUPTED = """
import signal, sys
import numpy as np, reliance as rl
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a parent process ignores it
calls = 0
def model(X):
    global calls
    calls += 1
    if calls == 5:
        signal.raise_signal(signal.SIGINT)
    return np.sin(X).sum(axis=1)
X = np.random.default_rng(0).normal(size=(2000, 3))
try:
    rl.model_reliance(model, X, X[:, 0], run=rl.Run(block=1000))
except KeyboardInterrupt:
    print("interrupted after", calls)
"""


def test_ctrl_c_stops_within_one_block() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() in ("interrupted after 5", "interrupted after 6")


@pytest.mark.parametrize("name", ["permutation", "auto", "all", "relative", "conditional"])
def test_a_very_large_run_is_announced_with_its_duration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, options = METHODS[name]
    monkeypatch.setattr(outlook, "LARGE", 100)
    monkeypatch.setattr(outlook, "_LEAST", 0.0)
    words = r"called with \S+ rows, about \d+ \w+ at the speed of the first unit: (16 draws of each row|fewer features)"
    with pytest.warns(UserWarning, match=words) as caught:
        method(model, X, Y, **options)
    assert all(len(str(one.message)) <= 300 for one in caught)


def test_the_duration_is_that_of_the_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that adds a second for each call of the model: the base pass has two, each of the 12 units one."""
    monkeypatch.setattr(outlook, "LARGE", 100)
    monkeypatch.setattr(units, "_UNIT_ROWS", len(X))
    monkeypatch.setattr(units, "_LARGER", 1)
    monkeypatch.setattr(units, "_LEAST_FEATURES", 1)
    now = [0.0]
    monkeypatch.setattr(outlook.time, "perf_counter", lambda: now[0])

    def slow(rows: Any) -> Any:
        now[0] += 3600.0
        return model(rows)

    options: Any = {"draws": 4, "features": [0, 1, 2], "rng": 0}
    with pytest.warns(UserWarning, match="about 12 hours at the speed"):
        rl.permutation_importance(slow, X, Y, **options, run=rl.Run(block=(len(X), 1)))
    with pytest.warns(UserWarning, match="about 12 hours at the speed"):
        rl.permutation_importance(slow, X, Y, **options, run=rl.Run(block=(len(X), 1), workers=1))


def test_a_route_that_misses_a_condition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    monkeypatch.setattr(outlook, "LARGE", 100)
    monkeypatch.setattr(outlook, "_LEAST", 0.0)
    mixed = make_pipeline(PolynomialFeatures(2), LinearRegression()).fit(X, Y)
    with pytest.warns(UserWarning, match="take .*; no shortcut: route='pipeline' does not apply: .* mixes columns"):
        rl.model_reliance(mixed, X, Y + X[:, 2] ** 3)


def test_tables_that_need_no_model_are_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    monkeypatch.setattr(outlook, "LARGE", 100)
    trees = GradientBoostingRegressor(n_estimators=3).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert set(rl.model_reliance(trees, X, Y).routes) <= {"trees", "unused"}


@pytest.mark.parametrize(
    "seconds, words", [(0.4, "0 seconds"), (90, "90 seconds"), (600, "10 minutes"), (9000, "2 hours"), (3e6, "35 days")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert outlook.spoken(seconds) == words
