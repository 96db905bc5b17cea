"""Relative importance on each backend: ratios, each measured in one run.

    python benchmarks/conditional.py                 everything, 100000 rows
    python benchmarks/conditional.py knn             one part: gaussian, bare, knn
    python benchmarks/conditional.py --rows 5000     with fewer rows

Five columns, one feature given two others, five draws. Times are the best of several alternating repeats, so that both
sides of a ratio see the same machine. The neighbours of all rows take n^2 distances, by far the longest part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reliance as rl

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from common import BACKENDS, Model, alternate, need, network, on_backend, regression, report

FEATURE, GIVEN = 0, (1, 2)
COLUMNS, DRAWS = 5, 5
BATCHES = (512, 2048, 16384, 65536)


def cupy_problem(n: int) -> tuple[Model, Any, Any]:
    cupy = need("cupy")
    if not has_device(cupy):
        raise NotImplementedError("cupy has no device")
    first, second, last = (cupy.asarray(weight) for weight in network(COLUMNS))

    def model(X: Any) -> Any:
        return (cupy.maximum(cupy.maximum(X @ first, 0) @ second, 0) @ last)[:, 0]

    X, y = regression(n, COLUMNS)
    return model, cupy.asarray(X), cupy.asarray(y)


def has_device(cupy: Any) -> bool:
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def problems(n: int) -> dict[str, tuple[Model, Any, Any]]:
    """A model, X and y on each backend that is here, NumPy first."""
    found = {}
    for name in [*BACKENDS, "cupy"]:
        try:
            found[name] = cupy_problem(n) if name == "cupy" else on_backend(name, n, COLUMNS)
        except NotImplementedError as missing:
            print(f"{name} is left out: {missing}")
    return found


def over_numpy(what: str, cases: dict[str, Callable[[], object]], repeats: int) -> None:
    seconds = dict(zip(cases, alternate(*cases.values(), repeats=repeats), strict=True))
    for name, taken in seconds.items():
        detail = f"{taken:.3f} s / {seconds['numpy']:.3f} s"
        report(f"{what}, {name} over numpy", taken / seconds["numpy"], "-", detail)


def relative(model: Model, X: Any, y: Any) -> rl.Importance:
    found = rl.relative_importance(model, X, y, given=list(GIVEN), features=[FEATURE], draws=DRAWS, rng=0)
    assert isinstance(found, rl.Importance)
    return found


def gaussian(n: int) -> None:
    """Relative importance with its interval, sampler "gaussian", on each backend over NumPy."""
    here = problems(n)
    cases = {name: lambda problem=problem: relative(*problem) for name, problem in here.items()}
    values = {name: relative(*problem).values[0] for name, problem in here.items()}
    over_numpy(f"gaussian, n={n} p={COLUMNS} K={DRAWS}", cases, 5)
    far = max(abs(value / values["numpy"] - 1) for value in values.values())
    print(f"largest relative difference of values from NumPy's: {far:.2g}")


def bare(n: int) -> None:
    """The same over the model's own time for as many rows, at its best batch size."""
    for name, (model, X, y) in problems(n).items():
        evaluations = n + int(relative(model, X, y).evaluations[0])  # with the base pass
        batches = [size for size in BATCHES if size <= n] or [n]
        runs = [bare_run(name, model, X[:size], evaluations) for size in batches]
        own, *raw = alternate(lambda problem=(model, X, y): relative(*problem), *runs, repeats=3)
        best = int(np.argmin(raw))
        detail = f"{own:.3f} s / {raw[best]:.3f} s for {evaluations} rows at batch {batches[best]}"
        report(f"gaussian, n={n} p={COLUMNS} K={DRAWS}, {name} over the bare model", own / raw[best], "-", detail)


def bare_run(name: str, model: Model, batch: Any, evaluations: int) -> Callable[[], None]:
    """Calls of the model on one batch, as many as make ``evaluations`` rows."""
    calls = max(1, round(evaluations / len(batch)))
    if name == "jax":
        compiled = need("jax").jit(model)

        def run() -> None:
            for _ in range(calls):
                compiled(batch).block_until_ready()

    elif name == "torch":
        torch = need("torch")

        def run() -> None:
            with torch.no_grad():
                for _ in range(calls):
                    model(batch)

    else:

        def run() -> None:
            for _ in range(calls):
                model(batch)
            if name == "cupy":
                need("cupy").cuda.get_current_stream().synchronize()

    return run


def knn(n: int) -> None:
    """The table of neighbours alone, fit(...).on(X) without the jackknife, on each backend over NumPy."""

    def search(X: Any) -> object:
        return rl.samplers.KNN().fit(X, (FEATURE,), GIVEN).on(X)

    cases = {name: lambda X=X: search(X) for name, (_, X, _) in problems(n).items()}
    over_numpy(f"nearest neighbours, n={n}, {len(GIVEN)} given", cases, 1 if n > 20_000 else 3)


PARTS = {"gaussian": gaussian, "bare": bare, "knn": knn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}: choose from {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        PARTS[name](options.rows)


if __name__ == "__main__":
    main()
