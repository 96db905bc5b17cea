"""The evaluation contract: the model sees each (row, draw) once, plus one base pass and one batch of its rows again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import reliance as rl
from methods import KEY, METHODS, donor_table
from reliance import plans
from reliance._core.arrays import to_host

pytestmark = pytest.mark.once_per_device
N = 10
BLOCKS = [None, 1, 7, (3, 2), (1000, 1000)]


class Recorder:
    """Both columns hold the number of the row, so an input names the row and the donor of a cell."""

    def __init__(self, backend):
        self.backend = backend
        self.cells = Counter()

    def __call__(self, x):
        seen = to_host(x)  # JAX cannot trace this: the model runs eagerly there
        self.cells.update((int(a), int(b)) for a, b in seen)
        return x[:, 0] + 2.0 * x[:, 1]


def numbered(backend, n=N):
    ids = np.arange(n, dtype=np.float64)
    return backend.asarray(np.stack([ids, ids], axis=1)), backend.asarray(ids)


def expected_cells(plan):
    """The base pass, then column 0 and column 1 replaced."""
    cells = Counter((i, i) for i in range(plan.n))
    donors, _ = donor_table(plan)  # the diagonal of all pairs is evaluated with the rest, and masked
    for i in range(plan.n):
        for donor in donors[i].tolist():
            cells.update([(donor, i), (i, donor)])
    return cells


def probe_rows(n, block):
    """How long the one more batch of unchanged rows is: up to 64 of them, as many copies, -1 modulo 16."""
    most = 16384 if block is None else int(np.prod(block))
    rows = min(n, 64, (most + 1) // 2)
    return min(most, 16 * -(-2 * rows // 16) - 1)


def assert_cells(model, result, plan, block=None):
    expected = expected_cells(plan)
    assert sum(expected.values()) == plan.n + result.evaluations.sum()
    if model.backend.kind == "jax":  # padding: more of the same cells, none that is strange
        assert set(model.cells) == set(expected)
        assert all(model.cells[cell] >= times for cell, times in expected.items())
    else:
        again = model.cells - expected
        assert all(i == k for i, k in again)
        assert again.total() == probe_rows(plan.n, block)
        assert not expected - model.cells


@pytest.mark.paired("method", "block", one_in=2)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:pairs=:UserWarning", "ignore:model Recorder cannot be traced:UserWarning")
def test_each_cell_exactly_once(backend, method, block):
    model = Recorder(backend)
    result = METHODS[method](model, *numbered(backend), run=rl.Run(block=block), compare="difference")
    assert_cells(model, result, METHODS[method].plan(N), block)


@pytest.mark.parametrize("block", [None, 4, (3, 5)], ids=str)
@pytest.mark.filterwarnings("ignore:model Recorder cannot be traced:UserWarning")
def test_other_metrics_of_all_pairs_take_every_shift(backend, block):
    model = Recorder(backend)
    metric = rl.Metric(rl.losses.rmse.value, name="own")  # known by its value alone
    result = METHODS["all"](model, *numbered(backend), loss=metric, run=rl.Run(block=block), compare="difference")
    assert result.evaluations.tolist() == [N * (N - 1)] * 2
    assert_cells(model, result, plans.every_shift(N), block)


@pytest.mark.filterwarnings("ignore:model Recorder cannot be traced:UserWarning", "ignore:draws=25:UserWarning")
@pytest.mark.parametrize("block", [None, 6, (4, 7)], ids=str)
def test_draws_beyond_one_ordering(backend, block):
    model = Recorder(backend)
    shifts = rl.Draws(25, design="shifts")
    result = rl.permutation_importance(model, *numbered(backend), draws=shifts, rng=KEY, run=rl.Run(block=block))
    assert_cells(model, result, plans.Shifts(N, 25, KEY), block)


@pytest.mark.filterwarnings("ignore:model Recorder cannot be traced:UserWarning")
def test_an_odd_last_row_is_left_out_of_halves(backend):
    model = Recorder(backend)
    with pytest.warns(UserWarning, match="pairs='halves' leaves out the last of 11 rows"):
        result = rl.model_reliance(model, *numbered(backend, 11), pairs="halves", compare="difference", rng=KEY)
    assert result.n == 10
    assert_cells(model, result, plans.halves(10, KEY))


@pytest.mark.parametrize("block", [None, 3, 8], ids=str)
def test_memory_that_runs_out_repeats_only_failed_calls(backend, block):
    """A call that failed is not an evaluation."""
    if backend.kind == "jax":
        pytest.skip("padded calls: test_out_of_memory.py has JAX")
    model = Recorder(backend)

    def small(x):
        if x.shape[0] > 4:
            raise MemoryError
        return model(x)

    result = METHODS["ablation"](small, *numbered(backend), run=rl.Run(block=block))
    assert_cells(model, result, METHODS["ablation"].plan(N), block)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_blocks_are_filled_to_the_size_asked_for(batch):
    sizes = []

    def model(x):
        sizes.append(len(x))
        return x[:, 0]

    X = np.random.default_rng(0).normal(size=(12, 2))
    result = METHODS["all"](model, X, X[:, 1], run=rl.Run(block=(4, batch)))
    assert result.block == (4, batch)
    assert set(sizes[2:]) == {4 * batch}


@pytest.mark.parametrize("plan", ["draws", "all"])
def test_features_share_calls_while_their_tables_are_small(plan, backend):
    """Five features in two calls, of three tables and of two, and in one call each: the same to rounding."""
    rng, sizes = np.random.default_rng(0), []
    X, y, weights, names = rng.normal(size=(8, 5)), rng.normal(size=8), rng.uniform(1, 2, 8), ["squared_error", "rmse"]
    slopes = backend.asarray(np.asarray([1.0, -2.0, 0.0, 0.5, 3.0]))

    def model(x):
        sizes.append(x.shape[0])
        return (x * slopes) @ slopes

    def measured(run):
        sizes.clear()
        arrays = [backend.asarray(a) for a in (X, y)]
        options = {"loss": names, "weights": backend.asarray(weights), "run": run, "compare": "difference"}
        if plan == "draws":
            return rl.permutation_importance(model, *arrays, draws=rl.Draws(4, design="shifts"), rng=0, **options)
        return rl.model_reliance(model, *arrays, route="plain", **options)

    cells = 8 * (8 if plan == "all" else 4)
    shared = measured(rl.Run(block=3 * cells))
    if backend.kind != "jax":  # which counts the traces
        assert sizes[-2:] == [3 * cells, 2 * cells]
    alone = measured(rl.Run(block=(8, cells // 8)))
    if backend.kind != "jax":
        assert sizes[-5:] == 5 * [cells]
    for name in names:
        for field in ("values", "std_error", "replaced_risk"):
            one, other = getattr(shared[name], field), getattr(alone[name], field)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert shared[name].values[2] == 0.0
