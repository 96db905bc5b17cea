"""How many threads are started: pools inside of pools share the cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import reliance as rl
from reliance._core import threads


def test_pools_inside_of_pools_share_the_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 12)
    assert threads.available() == 12
    with threads.shared(3):
        assert threads.available() == 4
        with threads.shared(2):
            assert threads.available() == 2
        with threads.shared(100):
            assert threads.available() == 1
        assert threads.available() == 4
    assert threads.available() == 12


def test_the_share_is_given_back_after_an_error(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    with pytest.raises(RuntimeError), threads.shared(4):
        raise RuntimeError
    assert threads.available() == 8


@pytest.mark.parametrize("own", [True, False])
def test_a_refit_on_threads_has_its_share(monkeypatch, own):
    """Measured inside of the user's own fit, which may start threads of ours: trees, say."""
    monkeypatch.setattr(threads, "cores", lambda: 8)
    X = np.random.default_rng(0).normal(size=(30, 2))
    seen = []

    def fit(X, y):
        seen.append(threads.available())
        return lambda Z: Z[:, 0]

    with ThreadPoolExecutor(4) as pool:
        options = {"run": rl.Run(workers=4 if own else pool)}
        rl.algorithm_reliance(fit, X, X[:, 0] + 0.1 * X[:, 1], cv=2, rng=0, **options)
    assert set(seen) == {2}
