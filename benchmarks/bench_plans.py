"""Plans: making the donors, and whole runs with a model that costs nothing."""

from __future__ import annotations

from .common import SEED, Benchmark, regression, safe_import, sum_of_columns

with safe_import():
    import numpy as np

    import reliance as rl
    from reliance.plans import Pairs, Plan, Resample, Shifts, tiles


def make_plan(kind: str, n: int, draws: int) -> Plan:
    if kind == "pairs":
        return Pairs(n)
    return Shifts(n, draws, key=SEED) if kind == "shifts" else Resample(n, draws, SEED)


class Donors(Benchmark):
    """Host work of a plan: it must stay far below the model's."""

    params = [["pairs", "shifts", "resample"], [2_000, 50_000]]
    param_names = ["plan", "n"]

    def setup(self, kind: str, n: int) -> None:
        self.plan = make_plan(kind, n, draws=16)
        self.values = np.random.default_rng(SEED).normal(size=n)

    def time_donors(self, kind: str, n: int) -> None:
        columns = range(min(16, self.plan.columns))
        for top in range(0, n, 4096):
            self.plan.donors(range(top, min(top + 4096, n)), columns)

    def time_spread(self, kind: str, n: int) -> None:
        self.plan.spread(self.values)

    def peakmem_donors(self, kind: str, n: int) -> None:
        for tile in tiles(self.plan, (1024, 1024)):
            self.plan.donors(tile.rows, tile.columns)


class Methods(Benchmark):
    """One feature of each method on the cheapest model: the engine's own time."""

    params = [["ablation", "permutation", "pairs", "halves"]]
    param_names = ["plan"]
    n = 1_000

    def setup(self, plan: str) -> None:
        self.X, self.y = regression(self.n, 4)

    def run(self, plan: str) -> rl.Importance:
        shared = {"features": [0], "rng": SEED}
        if plan == "ablation":
            return rl.ablation_importance(sum_of_columns, self.X, self.y, draws=50, **shared)
        if plan == "permutation":
            return rl.permutation_importance(sum_of_columns, self.X, self.y, draws=50, **shared)
        pairs = "all" if plan == "pairs" else "halves"
        return rl.model_reliance(sum_of_columns, self.X, self.y, pairs=pairs, **shared)

    def time_run(self, plan: str) -> None:
        self.run(plan)

    def time_interval(self, plan: str) -> None:
        self.run(plan).interval()

    def peakmem_run(self, plan: str) -> None:
        self.run(plan)

    def track_evaluations(self, plan: str) -> float:
        """Rows the model sees for one feature; a change here is a change of the estimator or of a shortcut."""
        return float(self.run(plan).evaluations[0])

    track_evaluations.unit = "rows"
