"""Backends: one network, the same data, NumPy, torch and JAX on the default device."""

from __future__ import annotations

import time

from .common import BACKENDS, SEED, Benchmark, count_compilations, need, on_backend, safe_import

with safe_import():
    import reliance as rl
    from reliance._core.arrays import device as device_of
    from reliance._core.arrays import from_host, inference_only, namespace, to_host

N, P = 400, 32


class Network(Benchmark):
    """A 32-128-128-1 network."""

    params = [BACKENDS]
    param_names = ["backend"]

    def setup(self, backend: str) -> None:
        need(backend)
        self.model, self.X, self.y = on_backend(backend, N, P)
        self.run()  # compiled and warm

    def run(self) -> rl.Importance:
        return rl.model_reliance(self.model, self.X, self.y, pairs="all", features=[0], rng=SEED)

    def time_all_pairs(self, backend: str) -> None:
        self.run()

    def time_permutation(self, backend: str) -> None:
        rl.permutation_importance(self.model, self.X, self.y, draws=10, rng=SEED)

    def peakmem_all_pairs(self, backend: str) -> None:
        self.run()

    def track_rate_over_bare_model(self, backend: str) -> float:
        """Rows a second of the engine over those of the bare model at its best of three batch sizes."""
        engine = N * (N - 1) / best_of(self.run)
        return engine / max(self.bare_rate(backend, rows) for rows in (512, 4096, 32768))

    track_rate_over_bare_model.unit = "ratio"

    def bare_rate(self, backend: str, rows: int) -> float:
        xp, dev = namespace(self.X), device_of(self.X)
        batch = from_host(to_host(self.X)[[i % N for i in range(rows)]], xp, dev)
        model = need("jax").jit(self.model) if backend == "jax" else self.model
        repeats = 65536 // rows

        def run() -> None:
            with inference_only(xp):
                for _ in range(repeats):
                    answer = model(batch)
                to_host(answer)

        run()
        return rows * repeats / best_of(run)


class Compilation(Benchmark):
    """JAX: features and calls share compilations."""

    def setup(self) -> None:
        need("jax")
        self.model, self.X, self.y = on_backend("jax", 200, 20, width=16)

    def track_compilations(self) -> int:
        """Over 20 features and two calls."""
        with count_compilations() as seen:
            for _ in range(2):
                rl.permutation_importance(self.model, self.X, self.y, draws=8, rng=SEED)
        return len(seen)

    track_compilations.unit = "compilations"

    def time_first_call(self) -> None:
        model, X, y = on_backend("jax", 200, 20, width=16)  # a new function: nothing is compiled yet
        rl.permutation_importance(model, X, y, draws=8, rng=SEED)


def best_of(run: object, repeats: int = 3) -> float:
    """The shortest of a few timings, in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()  # type: ignore[operator]
        seconds.append(time.perf_counter() - start)
    return min(seconds)
