"""Units of work on threads, processes and clusters: the same result to the last bit, and nothing lost in between."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance._core import threads
from reliance._core.run import only
from reliance.data.features import Feature
from reliance.engine import prepare, sending, units
from reliance.engine.units import Batch

N = 48
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 4))
X[:, 3] = RNG.integers(0, 3, size=N)
Y = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.3 * RNG.normal(size=N)
LABELS = (Y > 0).astype(float)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)


def model(rows: Any) -> Any:
    return rows[:, 0] * rows[:, 1] + rows[:, 2] ** 2 + 0.25 * rows[:, 3]


def probability(rows: Any) -> Any:
    return 1.0 / (1.0 + math.e ** -model(rows))  # on any backend


def fit(rows: Any, y: Any) -> Callable[[Any], Any]:
    slopes = np.linalg.lstsq(rows, y, rcond=None)[0]
    return lambda new: new @ slopes


METHODS: dict[str, Callable[..., Any]] = {
    "ranks": lambda **k: rl.permutation_importance(model, X, Y, draws=9, rng=1, keep="rows", **k),
    "shifts": lambda **k: rl.permutation_importance(model, X, Y, draws=rl.Draws(60, design="shifts"), rng=1, **k),
    "permutations": lambda **k: rl.permutation_importance(model, X, Y, draws=rl.Draws(7, "permutations"), rng=1, **k),
    "resampled": lambda **k: rl.ablation_importance(model, X, Y, draws=6, weights=WEIGHTS, rng=1, **k),
    "until": lambda **k: rl.permutation_importance(model, X, Y, draws=rl.Until(budget=20000), rng=1, **k),
    "all pairs": lambda **k: rl.model_reliance(model, X, Y, route="plain", weights=WEIGHTS, rng=1, **k),
    "distinct": lambda **k: rl.model_reliance(model, X, Y, features=[3, (2, 3)], rng=1, **k),
    "curves": lambda **k: rl.model_reliance(model, X, Y, route="plain", keep=("curves", "ice"), rng=1, **k),
    "metrics": lambda **k: rl.model_reliance(probability, X, LABELS, loss=["log_loss", "auc", "r2"], rng=1, **k),
    "pairs by rows": lambda **k: rl.model_reliance(model, X, Y, pairs=8, features={"a": [0, 1], "b": [2]}, rng=1, **k),
    "halves": lambda **k: rl.model_reliance(model, X, Y, pairs="halves", rng=1, **k),
    "conditional": lambda **k: rl.conditional_model_reliance(model, X, Y, rng=1, **k),
    "given": lambda **k: rl.relative_importance(model, X, Y, given=[1], draws=4, rng=1, features=[0, 2], **k),
    "neighbours": lambda **k: rl.relative_importance(
        model, X, Y, given=rl.Given([1], sampler=rl.samplers.KNN()), draws=4, rng=1, features=[0], **k
    ),
    "impact": lambda **k: rl.feature_impact(model, X, **k),
    "sobol": lambda **k: rl.sobol_total(model, X, rng=1, **k),
    "local": lambda **k: rl.local_importance(model, X, Y, rows=[1, 5, 9], rng=1, **k),
    "interactions": lambda **k: rl.interaction_importance(model, X, Y, between=[(0, 1)], draws=6, rng=1, **k),
}
PAIRS: dict[str, Callable[[Any], Any]] = {"a": lambda rows: rows[:, 0], "b": model, "c": lambda rows: rows[:, 2]}


def interacting(rows: Any) -> Any:
    return np.concatenate([rows, rows[:, :1] * rows[:, 1:2]], axis=1)


def differentiable(**k: Any) -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    given = rl.DifferentiableClass(torch.nn.Linear(4, 1, dtype=torch.float64), radius=5.0, starts=1, steps=5)
    return rl.model_class_reliance(given, torch.from_numpy(X), torch.from_numpy(Y), epsilon=0.5, rng=0, **k)


# Features, samples of the rows, and rows of listed models are shared out.
CLASSES: dict[str, Callable[..., Any]] = {
    "linear": lambda **k: rl.model_class_reliance(
        rl.LinearClass(), X, Y, epsilon=0.1, uncertainty=20, features=[0, 2, (1, 3)], rng=0, **k
    ),
    "envelope": lambda **k: rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, uncertainty=True, **k),
    "kernel": lambda **k: rl.conditional_model_class_reliance(
        rl.KernelClass(landmarks=6, radius=3.0), X, Y, epsilon=0.1, **k
    ),
    "basis": lambda **k: rl.model_class_reliance(rl.BasisClass(interacting), X, Y, epsilon=0.1, **k),
    "listed": lambda **k: rl.model_class_reliance(
        rl.FiniteClass(PAIRS, bootstrap=5), X, Y, epsilon=9.0, features=[0, 2], rng=0, **k
    ),
    "trees": lambda **k: rl.model_class_reliance(
        rl.TreeClass(depth=1, penalty=0.1), X, LABELS, epsilon=0.1, uncertainty=20, features=[0, 1], rng=0, **k
    ),
    "logistic": lambda **k: rl.model_class_reliance(
        rl.LinearClass(loss="logistic", ridge=1.0), X, LABELS, epsilon=0.1, features=[3, 0], rng=0, **k
    ),
    "differentiable": differentiable,
}
LONG = ("logistic", "differentiable")
FEW = ("ranks", "all pairs", "given")
# Threads do all of them; the others are done by `make slow` where each costs more.
MOSTLY_SLOW = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that small problems have many."""
    monkeypatch.setattr(units, "_UNIT_ROWS", 150)
    monkeypatch.setattr(units, "_LARGER", 1)
    monkeypatch.setattr(units, "_LEAST_FEATURES", 2)
    with rl.Run(block=(12, 2)):
        yield


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def assert_same(one: Any, other: Any, where: str = "result", rtol: float = 0.0) -> None:
    """All numbers of two results, to the last bit, or to rounding of numbers of about 1."""
    assert type(one) is type(other), where
    if isinstance(one, np.ndarray) and one.dtype.kind == "f" and rtol:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol, err_msg=where)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=where)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}", rtol)
    elif isinstance(one, Mapping):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]", rtol)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{place}]", rtol)
    elif isinstance(one, float):
        assert one == other or (one != one and other != other) or abs(one - other) <= rtol * (1.0 + abs(other)), where
    else:
        assert one == other, where


# ---------------------------------------------------------------------------------------------------------------------
# The cut


@pytest.mark.parametrize("shape", [(5, 4), (48, 1), (48, 60)])
@pytest.mark.parametrize("rows", [1, 150, 1000, 10**6])
@pytest.mark.parametrize("count", [1, 5])
def test_units_cover_every_cell_of_every_feature_once(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], rows: int, count: int
) -> None:
    monkeypatch.setattr(units, "_UNIT_ROWS", rows)
    features = tuple(Feature(f"x{j}", (j,)) for j in range(count))
    for plan in (plans.Pairs(48), plans.Shifts(48, 100, 0), plans.Resample(48, 9, 0)):
        own = (min(shape[0], plan.n), min(shape[1], plan.columns))
        seen = np.zeros((count, plan.n, plan.columns), dtype=int)
        whole = {(tile.rows, tile.columns) for tile in plans.tiles(plan, own)}
        for unit in units._cut(plan, 0, Batch(features, own, 1)):
            for tile in plans.tiles(plan, own, unit.part):
                assert (tile.rows, tile.columns) in whole  # the tiles are those of one unit, whatever the cut
                down, across = (slice(one.start, one.stop) for one in tile)
                seen[unit.first : unit.last, down, across] += 1
        assert np.all(seen == 1)


def test_a_small_problem_is_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    problem = prepare(model, np.zeros((500, 20)), np.zeros(500), rng=0)
    for plan in (plans.Shifts(500, 20, 0), plans.Resample(500, 10, 0)):
        assert len(list(units._cut(plan, 0, Batch(problem.features, (500, 20), 1)))) == 1


@pytest.mark.parametrize("name", METHODS)
def test_one_unit_and_many_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to rounding: the order of the additions is another."""
    counts: list[int] = []
    evaluate = units.evaluate

    def counted(work: units.Work, *arguments: Any) -> Any:
        counts.append(len(list(work.items())))
        return evaluate(work, *arguments)

    monkeypatch.setattr(units, "evaluate", counted)
    many = METHODS[name]()
    assert max(counts) > 1
    monkeypatch.undo()
    one = METHODS[name]()
    pairs = zip(many.values(), one.values(), strict=True) if isinstance(many, Mapping) else [(many, one)]
    for a, b in pairs:
        np.testing.assert_allclose(a.values, b.values, rtol=1e-11, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Who does them


@pytest.mark.parametrize("name", METHODS)
def test_threads_change_no_bit(name: str) -> None:
    assert_same(METHODS[name](run=rl.Run(workers=4)), METHODS[name]())


@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_processes_change_no_bit(name: str, processes: ProcessPoolExecutor) -> None:
    assert_same(METHODS[name](run=rl.Run(workers=processes)), METHODS[name]())


class Backwards:
    """Whoever is asked last is done first."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        backwards, done = self, threading.Event()

        class Later(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while not done.is_set():
                    backwards.waiting.pop()()
                return super().result(timeout)

        future = Later()

        def work() -> None:
            done.set()
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        self.waiting.append(work)
        return future


@pytest.mark.parametrize("name", FEW)
def test_the_order_of_completion_changes_no_bit(name: str) -> None:
    assert_same(METHODS[name](run=rl.Run(workers=Backwards())), METHODS[name]())


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_cluster_changes_no_bit(name: str, cluster: Any) -> None:
    assert_same(METHODS[name](run=rl.Run(workers=cluster)), METHODS[name]())


def numbers(result: rl.ClassReliance) -> dict[str, Any]:
    names = ("lower", "upper", "achieved_lower", "achieved_upper", "reference_risk", "bound", "end_errors", "members")
    return {name: getattr(result, name) for name in names}


def without_block(call: Callable[..., Any], **k: Any) -> dict[str, Any]:
    """A class of models has no blocks."""
    with only(rl.Run()):
        return numbers(call(**k))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in CLASSES])
def test_classes_of_models_on_threads(name: str) -> None:
    assert_same(without_block(CLASSES[name], run=rl.Run(workers=3)), without_block(CLASSES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "cluster"])
def test_classes_of_models_elsewhere(kind: str, request: pytest.FixtureRequest) -> None:
    workers = request.getfixturevalue(kind)
    for call in CLASSES.values():
        assert_same(without_block(call, run=rl.Run(workers=workers)), without_block(call))


def test_trees_are_listed_by_one() -> None:
    with pytest.raises(ValueError, match=r"run has workers=2: trees are listed in one thread; leave workers out, or"):
        rl.model_class_reliance(rl.TreeClass(), X, LABELS, epsilon=0.1, run=rl.Run(workers=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "cluster"])
def test_refits_run_on_workers(kind: str, request: pytest.FixtureRequest) -> None:
    workers = 3 if kind == "threads" else request.getfixturevalue(kind)
    for call in (
        lambda **k: rl.algorithm_reliance(fit, X, Y, cv=3, rng=0, **k),
        lambda **k: rl.cross_validated_importance(fit, X, Y, cv=3, draws=2, rng=0, **k),
        lambda **k: rl.null_importance(fit, X, Y, rounds=10, rng=0, **k),
    ):
        assert_same(call(run=rl.Run(workers=workers)), call())


def test_a_forest_by_its_own_samples(processes: ProcessPoolExecutor) -> None:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(5, random_state=0).fit(X, Y)
    expected = rl.out_of_bag_importance(forest, X, Y, rng=0, run=rl.Run(workers=1))
    for workers in (None, 3, processes):
        assert_same(rl.out_of_bag_importance(forest, X, Y, rng=0, run=rl.Run(workers=workers)), expected)


def test_torch_on_threads_shares_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(threads, "cores", lambda: 4)
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(3)

    def looking(rows: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            seen.add(torch.get_num_threads())
        return rows[:, 0]

    try:
        rl.permutation_importance(
            looking, torch.from_numpy(X), torch.from_numpy(Y), draws=9, rng=1, run=rl.Run(workers=4)
        )
        assert (seen, torch.get_num_threads()) == ({1}, 3)
    finally:
        torch.set_num_threads(before)


def test_torch_on_threads_keeps_its_mode() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    tensors = torch.from_numpy(X).float(), torch.from_numpy(Y).float()[:, None]
    one, other = (rl.permutation_importance(net, *tensors, draws=9, rng=1, run=rl.Run(workers=w)) for w in (1, 4))
    np.testing.assert_allclose(one.values, other.values, rtol=1e-6)
    assert net.training
    assert net[1].training


@pytest.mark.slow
def test_jax_takes_workers() -> None:
    jnp = pytest.importorskip("jax.numpy")
    arrays = jnp.asarray(X), jnp.asarray(Y)
    one, other = (rl.permutation_importance(model, *arrays, draws=9, rng=1, run=rl.Run(workers=w)) for w in (1, 3))
    assert_same(other, one)


# ---------------------------------------------------------------------------------------------------------------------
# What is sent


class Counted:
    """A model that knows how often it was pickled."""

    times = 0

    def __call__(self, rows: Any) -> Any:
        return model(rows)

    def __reduce__(self) -> Any:
        Counted.times += 1
        return Counted, ()


def test_the_model_is_sent_once(processes: ProcessPoolExecutor) -> None:
    Counted.times = 0
    rl.permutation_importance(Counted(), X, Y, draws=30, rng=1, run=rl.Run(workers=processes))
    assert Counted.times == 1


def test_large_arrays_are_sent_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each feature of a conditional importance has work of its own; the rows are written once for all of them."""
    monkeypatch.setattr(sending, "_LARGE", X.nbytes)
    written: list[Any] = []
    save = np.save
    monkeypatch.setattr(np, "save", lambda path, array, **k: (written.append(array), save(path, array, **k)))
    found = METHODS["conditional"](run=rl.Run(workers=Backwards()))
    assert sum(array.shape == X.shape for array in written) == 1
    assert_same(found, METHODS["conditional"]())


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, rows: Any) -> Any:
        return model(rows)


def test_what_cannot_be_sent_is_named(processes: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"draws": 9, "run": rl.Run(workers=processes)}
    with pytest.raises(TypeError, match=r"model \(Locked\) cannot be sent .*lock.*rl.Run\(workers=2\)"):
        rl.permutation_importance(Locked(), X, Y, **options)
    scale = 2.0
    rl.permutation_importance(lambda rows: scale * rows[:, 0], X, Y, **options)  # by cloudpickle
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install cloudpickle, or use threads"):
        rl.permutation_importance(model, X, Y, **options)


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong


def failing(rows: Any) -> Any:
    if not np.isin(rows[:, 0] + 1e3 * rows[:, 1], X[:, 0] + 1e3 * X[:, 1]).all():
        raise KeyError("no such row")
    return rows[:, 0]


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_models_own_error_comes_through(kind: str, processes: ProcessPoolExecutor) -> None:
    workers = 4 if kind == "threads" else processes
    with pytest.raises(KeyError, match="no such row"):
        rl.permutation_importance(failing, X, Y, draws=30, rng=1, run=rl.Run(workers=workers))
    assert_same(METHODS["ranks"](run=rl.Run(workers=workers)), METHODS["ranks"]())


def killing(rows: Any) -> Any:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows[:, 0]


@pytest.mark.slow
def test_a_pool_whose_process_is_killed_says_so() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        pytest.raises(RuntimeError, match=r"workers of run=rl.Run\(workers=...\) are lost"),
    ):
        rl.permutation_importance(killing, X, Y, draws=9, rng=1, run=rl.Run(workers=pool))


def slowly(rows: Any) -> Any:
    time.sleep(0.02)
    return model(rows)


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_changes_nothing(cluster: Any) -> None:
    def call(**k: Any) -> Any:
        return rl.permutation_importance(slowly, X, Y, draws=16, rng=1, **k)

    victim = next(iter(cluster.run(os.getpid).values()))
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    assert_same(call(run=rl.Run(workers=cluster)), call())
    killer.join()


@pytest.mark.slow
def test_a_closed_client_is_refused() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        client = distributed.Client(cluster)
        client.close()
    with pytest.raises(RuntimeError, match="are lost"):
        METHODS["ranks"](run=rl.Run(workers=client))


@pytest.mark.slow
def test_a_cluster_that_dies_loses_no_finished_unit(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")

    def call(model: Any, **k: Any) -> Any:
        return rl.permutation_importance(model, X, Y, draws=64, rng=1, **k)

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):

        def close_at_the_first_unit() -> None:
            while not list(tmp_path.rglob("0*.npz")):
                time.sleep(0.01)
            cluster.close()

        end = threading.Thread(target=close_at_the_first_unit, daemon=True)
        end.start()
        with pytest.raises(RuntimeError, match=r"workers of run=rl.Run\(workers=...\) are lost"):
            call(slowly, run=rl.Run(workers=client, checkpoint=tmp_path))
        end.join()
    assert list(tmp_path.rglob("0*.npz"))
    assert_same(call(model, run=rl.Run(checkpoint=tmp_path)), call(model))


def test_threads_halve_their_rows_together() -> None:
    """Memory runs out above 20 rows: all threads find out, and none halves what another one has halved."""

    def hungry(rows: Any) -> Any:
        if len(rows) > 20:
            raise MemoryError
        return model(rows)

    found = rl.permutation_importance(hungry, X, Y, draws=30, rng=1, run=rl.Run(workers=4))
    b, d = found.block
    assert 10 < b * d <= 20
    np.testing.assert_allclose(found.values, rl.permutation_importance(model, X, Y, draws=30, rng=1).values)


def test_progress_counts_all_workers() -> None:
    seen: list[tuple[int, int]] = []
    METHODS["ranks"](run=rl.Run(workers=3), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4 * 9 * N, 4 * 9 * N)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_libraries_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.setattr(threads, "cores", lambda: 4)
    allowed: list[tuple[int, ...]] = []

    def looking(rows: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            pools = threadpoolctl.threadpool_info()
            allowed.append((threads.available(), *(p["num_threads"] for p in pools if p["user_api"] == "blas")))
        return model(rows)

    with ThreadPoolExecutor(4) as pool:
        rl.permutation_importance(looking, X, Y, draws=9, rng=1, run=rl.Run(workers=pool))
    assert {count for counts in allowed for count in counts} == {1}


# ---------------------------------------------------------------------------------------------------------------------
# Devices

ON_EIGHT_DEVICES = """
    import sys

    sys.path.insert(0, sys.argv[1])
    import jax
    import numpy as np
    import reliance as rl
    import test_scale as calls
    from jax.sharding import Mesh
    from reliance.engine import units

    jax.config.update("jax_enable_x64", True)
    units._UNIT_ROWS, units._LARGER, units._LEAST_FEATURES = 150, 1, 2
    devices = jax.devices()
    assert len(devices) == 8
    for name in ("X", "Y", "LABELS", "WEIGHTS"):
        setattr(calls, name, jax.device_put(getattr(calls, name), devices[0]))
    mesh = rl.Run(devices=Mesh(np.array(devices), ("rows",)))
    with rl.Run(block=(12, 2)):
        for name, call in calls.METHODS.items():
            calls.assert_same(call(run=mesh), call(), name, rtol=1e-9)
            print(name)
"""


@pytest.mark.slow
def test_every_method_on_eight_devices_of_jax() -> None:
    pytest.importorskip("jax")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(Path(rl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    quick = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = os.environ | quick | {"XLA_FLAGS": flags, "PYTHONPATH": paths}
    code = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(ON_EIGHT_DEVICES), str(Path(__file__).parent)]
    done = subprocess.run(code, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:-1] == list(METHODS)
