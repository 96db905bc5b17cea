"""Benchmarks run and compare what they say they compare; nothing is timed."""

from __future__ import annotations

import importlib
import inspect
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
COVERED = ("bench_methods", "bench_fits")

sys.path.insert(0, str(ROOT))


def load(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_imports(name: str) -> None:
    load(name)


# ---------------------------------------------------------------------------------------------------------------------
# asv


def runs() -> Iterator[Any]:
    for name in COVERED:
        for kind in vars(load(name)).values():
            if inspect.isclass(kind) and kind.__module__ == f"benchmarks.{name}":
                for values in itertools.product(*getattr(kind, "params", [])):
                    yield pytest.param(kind, values, id="-".join(map(str, (kind.__name__, *values))))


@pytest.mark.parametrize("kind, values", list(runs()))
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
def test_asv_benchmarks_run(kind: Any, values: tuple[Any, ...]) -> None:
    benchmark = kind()
    benchmark.setup(*values)
    timed = [name for name in dir(benchmark) if name.startswith("time_")]
    assert timed
    for name in timed:
        getattr(benchmark, name)(*values)


# ---------------------------------------------------------------------------------------------------------------------
# Peers


@pytest.mark.parametrize("peer", ["scikit-learn", "featureimpact"])
@pytest.mark.filterwarnings("ignore")
def test_peers_agree(peer: str) -> None:
    peers = load("peers")
    places = ((80, 4, 8),)
    size = replace(peers.plain.QUICK, few_rows=60, columns=4, draws=5, few_draws=5, places=places)
    for make in peers.CASES[peer]:
        if getattr(make, "keywords", {}).get("place"):
            continue  # one size is enough to see that a case runs
        case = make(replace(size, impact_rows=80))
        assert len(peers.check(case)) == len(case.ours)


def test_disagreement_is_an_error() -> None:
    cases = load("peer_cases")
    theirs = cases.Answer(np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    assert cases.agreement(theirs, cases.Answer(np.array([1.2, 2.0])), False, "float64") == "2.0 standard errors"
    with pytest.raises(ValueError, match=r"feature 0 has 1 there and 1\.2 here"):
        cases.agreement(theirs, cases.Answer(np.array([1.2, 2.0])), True, "float64")
    with pytest.raises(ValueError, match=r"feature 1 has 2 there and 2\.6 here"):
        cases.agreement(theirs, cases.Answer(np.array([1.0, 2.6])), False, "float64")


@pytest.mark.parametrize("options, said", [(["alibi"], "unknown peer 'alibi'"), (["captum", "--write"], "one run")])
@pytest.mark.slow
def test_bad_options(options: list[str], said: str) -> None:
    """Run as a file, not as part of a package."""
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert said in done.stderr


def test_slower_rows_stay_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = load("peers")
    monkeypatch.setattr(peers, "version", lambda name: "1.0")  # not all peers are installed for tests
    rows = [
        peers.Row("a `f`", "work", "`g`", "equal to 1e-16", 1.0, 2.0),
        peers.Row("b `f`", "work", "`g`", "1.0 standard errors", 3.0, 0.001),
    ]
    text = peers.page(rows, "python benchmarks/peers.py")
    assert "| **0.5** |" in text
    assert "| **3000** |" in text
    assert "In one row the peer is faster" in text
    assert str(ROOT) not in text


# ---------------------------------------------------------------------------------------------------------------------
# Draws


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_draws_run_small(capsys: pytest.CaptureFixture[str]) -> None:
    draws = load("draws")
    draws.noise(n=70, seeds=3)
    draws.weekly(seeds=2)
    draws.widths(n=60, keys=2, problems=3)
    draws.shares(n=60, seeds=2)
    draws.conditional(n=60, seeds=3)
    draws.time(n=100, draws=3, repeats=1)
    printed = capsys.readouterr().out
    assert all(f"{k} draws" in printed for k in draws.DRAWS)
    assert "time over shifts" in printed


def test_independent_permutations_have_hoeffdings_variance() -> None:
    draws, rng = load("draws"), np.random.default_rng(0)
    changes = rng.normal(size=(5, 5))
    np.fill_diagonal(changes, 0.0)
    means = [changes[np.arange(5), order].mean() * 5 / 4 for order in map(list, itertools.permutations(range(5)))]
    assert draws.independent(changes, 3) == pytest.approx(np.var(means) / 3)


# ---------------------------------------------------------------------------------------------------------------------
# Routes


def test_the_table_of_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = load("routes")
    monkeypatch.setattr(routes.cases, "TRAINED", 60)
    row = routes.measure("Ridge", routes.KINDS["Ridge"], sizes=(30, 60))
    assert row.routes == ("linear",)
    assert max(row.values_apart, row.errors_apart) < 1e-12
    assert list(row.times) == [30, 60]
    page = routes.written(f"above\n{routes.BEGIN}\nold\n{routes.END}\nbelow\n", [*routes.HEAD, routes.line(row)])
    assert "old" not in page
    assert "| Ridge | squared_error | linear |" in page
    assert page.startswith("above\n")
    assert page.endswith("below\n")


@pytest.mark.parametrize("part", ["inputs", "layers", "functional"])
def test_networks_run_small(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    load("deep").PARTS[part](True)
    assert "goal" in capsys.readouterr().out
