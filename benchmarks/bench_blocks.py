"""Blocks: how time and memory follow the tile shape and the budget."""

from __future__ import annotations

import tracemalloc

from .common import SEED, Benchmark, on_backend, regression, safe_import

with safe_import():
    import reliance as rl


class Shape(Benchmark):
    """All pairs of a NumPy network at several tile shapes; None is the default."""

    params = [[None, (16, 16), (64, 64), (256, 256)]]
    param_names = ["block"]

    def setup(self, block: tuple[int, int] | None) -> None:
        self.model, self.X, self.y = on_backend("numpy", 400, 16, width=64)

    def time_all_pairs(self, block: tuple[int, int] | None) -> None:
        rl.model_reliance(self.model, self.X, self.y, pairs="all", features=[0], run=rl.Run(block=block), rng=SEED)


def first_column(X: object) -> object:
    """A view of the input: the model allocates nothing, so all memory is the engine's."""
    return X[:, 0]  # type: ignore[index]


class Budget(Benchmark):
    """Peak memory of an all-pairs run against its ``memory=``."""

    params = [["8MB", "64MB"]]
    param_names = ["memory"]
    n = 3_000

    def setup(self, memory: str) -> None:
        self.X, self.y = regression(self.n, 20)

    def run(self, memory: str) -> None:
        rl.model_reliance(first_column, self.X, self.y, pairs="all", features=[0], run=rl.Run(memory=memory), rng=SEED)

    def time_all_pairs(self, memory: str) -> None:
        self.run(memory)

    def peakmem_all_pairs(self, memory: str) -> None:
        self.run(memory)

    def track_peak_over_budget(self, memory: str) -> float:
        """What the engine allocated at most, over what it was allowed."""
        tracemalloc.start()
        try:
            self.run(memory)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return peak / (int(memory.removesuffix("MB")) * 1_000_000)

    track_peak_over_budget.unit = "ratio"


class Features(Benchmark):
    """Many features share one base pass and one set of donors."""

    params = [[1, 8, 32]]
    param_names = ["features"]

    def setup(self, features: int) -> None:
        self.model, self.X, self.y = on_backend("numpy", 500, 32, width=32)

    def time_permutation(self, features: int) -> None:
        rl.permutation_importance(self.model, self.X, self.y, draws=20, features=list(range(features)), rng=SEED)
