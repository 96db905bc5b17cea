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
from reliance.engine import evaluation

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
    monkeypatch.setattr(evaluation, "LARGE", 100)
    with pytest.warns(UserWarning, match=r"called with \S+ rows, about \d+ \w+ at the speed.*draws=16 or pairs=16"):
        method(model, X, Y, **options)


def test_tables_that_need_no_model_are_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    monkeypatch.setattr(evaluation, "LARGE", 100)
    trees = GradientBoostingRegressor(n_estimators=3).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert set(rl.model_reliance(trees, X, Y).routes) <= {"trees", "unused"}


@pytest.mark.parametrize(
    "seconds, words", [(0.4, "0 seconds"), (90, "90 seconds"), (600, "10 minutes"), (9000, "2 hours"), (3e6, "35 days")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert evaluation.spoken(seconds) == words
