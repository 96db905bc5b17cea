"""Work that is shared out, kept and read from a file, against the same work in one thread: ratios, each in one run.

    python benchmarks/scale.py             everything, about two minutes
    python benchmarks/scale.py threads     one part: threads, dask, checkpoint, stream, small

Times are the best of several alternating repeats, so that both sides of a ratio see the same machine. BLAS has one
thread, unless OMP_NUM_THREADS says otherwise: it would use all cores by itself. Work that is shared out has an even
number of equal units, which is printed: two workers cannot share three. Nothing else should run.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import alternate, network, numpy_network, regression, report


def forest(X: np.ndarray, y: np.ndarray) -> Any:
    """A forest, whose draws call it with whole blocks; behind a function of the user it would get 512 rows a call.

    For each tree scikit-learn resets the filters of warnings, which all threads share, and warns where another thread
    has just done so: tens of thousands of lines, which are not printed here.
    """
    from sklearn.ensemble import RandomForestRegressor

    warnings.showwarning = lambda *about: None

    fitted = RandomForestRegressor(50, random_state=0, n_jobs=1).fit(X[:2000], y[:2000])
    return fitted


def shared(model: Any, n: int, draws: int) -> tuple[Callable[[Any], object], int]:
    """A call on n rows that takes workers, and how many units it has: as many draws in each, of n rows x 4 features."""
    X, y = regression(n, 32)
    options: dict[str, Any] = {"draws": draws, "features": list(range(4)), "rng": 0}
    units = rl.estimate(rl.permutation_importance, model, X, y, **options).units

    def run(workers: Any) -> object:
        return rl.permutation_importance(model, X, y, **options, run=rl.Run(workers=workers))

    return run, units


def threads() -> None:
    """Two threads over one."""
    X, y = regression(4000, 32)
    for name, model, draws in (("NumPy network", numpy_network(network(32)), 32), ("forest", forest(X, y), 8)):
        run, units = shared(model, 16_384, draws)
        one, two = alternate(lambda run=run: run(1), lambda run=run: run(2), repeats=4)
        report(f"{name}: time of one thread over two", one / two, ">= 1.7", f"{one:.2f} s, {two:.2f} s, {units} units")


def dask() -> None:
    """Two workers of a dask cluster over one, for units of about a second. Both clusters are up; one of them waits."""
    from distributed import Client, LocalCluster

    X, y = regression(4000, 32)
    run, units = shared(forest(X, y), 32_768, 16)
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with ExitStack() as stack:
        clusters = [stack.enter_context(LocalCluster(n_workers=workers, **options)) for workers in (1, 2)]
        clients = [stack.enter_context(Client(cluster, set_as_default=False)) for cluster in clusters]
        one, two = alternate(lambda: run(clients[0]), lambda: run(clients[1]), repeats=3)
    report("forest: time of one dask worker over two", one / two, ">= 1.6", f"{one:.2f} s, {two:.2f} s, {units} units")


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

        plain, kept = alternate(lambda: run(False), lambda: run(True), repeats=8)
    report("keeping units: time over that without", kept / plain, "<= 1.03", f"{kept:.2f} s")


def stream() -> None:
    """Rows of a memory map over the same rows in memory. Smaller maps than this are arrays as any other."""
    X, y = regression(200_000, 128)
    model = numpy_network(network(128))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        mapped = np.load(path, mmap_mode="r")

        def run(rows: np.ndarray) -> object:
            return rl.permutation_importance(model, rows, y, draws=3, features=list(range(4)), rng=0)

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
