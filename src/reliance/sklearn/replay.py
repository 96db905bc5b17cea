"""The very permutations and samples that scikit-learn makes of a ``random_state``."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import shown

Indices = NDArray[np.int64]


class Replay:
    """``replay(k)``: from which row each row takes its value in repeat k.

    scikit-learn shuffles one list of indices again in each repeat and permutes a column that is permuted already, with
    the same seed for every column. Repeats follow from one another, so the last one is kept and asked for in order.
    Workers may be threads that share it.
    """

    def __init__(self, seed: int, population: int, samples: int) -> None:
        self.seed, self.population, self.samples = seed, population, samples
        self.rows: Indices | None = None
        self._turn = threading.Lock()
        self._restart()

    def __reduce__(self) -> tuple[type[Replay], tuple[int, int, int]]:
        return type(self), (self.seed, self.population, self.samples)

    def _restart(self) -> None:
        from sklearn.utils.random import sample_without_replacement

        # The legacy generator is what is replayed.
        self._state = np.random.RandomState(self.seed)
        if self.samples < self.population:
            self.rows = sample_without_replacement(self.population, self.samples, random_state=self._state)
        self._list = np.arange(self.samples)
        self._donors, self._repeat = np.arange(self.samples), -1

    def __call__(self, repeat: int) -> Indices:
        with self._turn:
            if repeat < self._repeat:
                self._restart()
            while self._repeat < repeat:
                self._state.shuffle(self._list)
                self._donors = self._donors[self._list]
                self._repeat += 1
            return self._donors


def seed_of(random_state: object) -> int:
    """The seed that scikit-learn draws for all columns."""
    from sklearn.utils import check_random_state

    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state={shown(random_state)}: pass an integer, a RandomState or None") from error
    return int(generator.randint(np.iinfo(np.int32).max + 1))
