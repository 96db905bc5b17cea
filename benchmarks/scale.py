"""Work that is shared out, kept and read from a file, against the same work in one thread: ratios, each in one run.

    python benchmarks/scale.py             everything
    python benchmarks/scale.py threads     one part: threads, dask, checkpoint, stream, small

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine. Set
OMP_NUM_THREADS=1 for a fair ratio of threads: BLAS uses all cores by itself otherwise. Nothing else should run.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, network, numpy_network, regression, report


def forest(X: np.ndarray, y: np.ndarray) -> Callable[[Any], Any]:
    """A forest that is called, not read: a function hides it from the routes."""
    from sklearn.ensemble import RandomForestRegressor

    fitted = RandomForestRegressor(50, random_state=0, n_jobs=1).fit(X[:2000], y[:2000])
    return lambda rows: fitted.predict(rows)


def threads() -> None:
    """Two threads over one."""
    X, y = regression(10_000, 32)
    cases = {
        "NumPy network": (numpy_network(network(32)), X, y, 16),
        "forest": (forest(X, y), X[:4000], y[:4000], 16),
    }
    for name, (model, rows, labels, draws) in cases.items():

        def run(workers: int, model=model, rows=rows, labels=labels, draws=draws) -> object:
            options = {"draws": draws, "features": list(range(4)), "rng": 0}
            return rl.permutation_importance(model, rows, labels, **options, run=rl.Run(workers=workers))

        one, two = alternate(lambda run=run: run(1), lambda run=run: run(2), repeats=3)
        report(f"{name}: time of one thread over two", one / two, ">= 1.7", f"{one:.2f} s, {two:.2f} s")


def dask() -> None:
    """Two workers of a dask cluster over one, for units of about a second."""
    from distributed import Client, LocalCluster

    X, y = regression(10_000, 32)
    model = forest(X, y)
    found = []
    for workers in (1, 2):
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:

            def run(client=client) -> object:
                return rl.permutation_importance(
                    model, X, y, draws=8, features=list(range(4)), rng=0, run=rl.Run(workers=client)
                )

            found += alternate(run, repeats=2)
    report("forest: time of one dask worker over two", found[0] / found[1], ">= 1.6", f"{found[0]:.2f} s")


def checkpoint() -> None:
    """A call that keeps its units over one that does not."""
    X, y = regression(10_000, 32)
    model = numpy_network(network(32))
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def run(kept: bool) -> object:
            place = f"{folder}/{next(numbers)}" if kept else None
            return rl.permutation_importance(
                model, X, y, draws=8, features=list(range(8)), rng=0, run=rl.Run(checkpoint=place)
            )

        plain, kept = alternate(lambda: run(False), lambda: run(True), repeats=4)
    report("keeping units: time over that without", kept / plain, "<= 1.03", f"{kept:.2f} s")


def stream() -> None:
    """Rows of a memory map over the same rows in memory."""
    X, y = regression(50_000, 32)
    model = numpy_network(network(32))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        mapped = np.load(path, mmap_mode="r")

        def run(rows: np.ndarray) -> object:
            return rl.permutation_importance(model, rows, y, draws=4, features=list(range(4)), rng=0)

        inside, outside = alternate(lambda: run(X), lambda: run(mapped), repeats=3)
    report("rows of a memory map: time over that in memory", outside / inside, "<= 1.3", f"{outside:.2f} s")


def small() -> None:
    """A small call over scikit-learn's own function."""
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import LinearRegression

    X, y = (a.astype(np.float64) for a in regression(50, 5))
    model = LinearRegression().fit(X, y)
    options = {"n_repeats": 20, "scoring": "neg_mean_squared_error", "random_state": 0}
    ours, theirs = alternate(
        lambda: rl.permutation_importance(model, X, y, draws=20, rng=0),
        lambda: permutation_importance(model, X, y, **options),
        repeats=20,
    )
    report("n=50, p=5: time over scikit-learn's function", ours / theirs, "<= 1", f"{1e3 * ours:.1f} ms")


PARTS = {"threads": threads, "dask": dask, "checkpoint": checkpoint, "stream": stream, "small": small}


def main(wanted: list[str]) -> None:
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"unknown part {unknown[0]!r}: choose of {', '.join(PARTS)}")
    for name in wanted or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
