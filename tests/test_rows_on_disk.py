"""Rows that are read in blocks: every kind of source gives what the array gives, to the last bit."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from reliance.data import on_disk, sparse_rows, stored_arrays
from reliance.data.stored_arrays import Pieces
from reliance.data.streamed import Streamed
from reliance.engine import units

N, P = 300, 4
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, P))
X[:, 3] = RNG.integers(0, 3, N)
Y = X[:, 0] + X[:, 1] * X[:, 3] + RNG.normal(size=N)
WEIGHTS = RNG.uniform(1.0, 2.0, N)
NAMES = [f"x{j}" for j in range(P)]


def score(rows):
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return np.tanh(dense[:, 0]) + dense[:, 1] * dense[:, 3]


def memory_map(folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def zarr_array(folder):
    zarr = pytest.importorskip("zarr")
    found = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(70, 3), dtype=X.dtype)
    found[:] = X
    return found


def hdf5(folder, **options):
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("x", data=X, **options)


def dask_array(folder):
    return pytest.importorskip("dask.array").from_array(X, chunks=(64, 2))


def parquet(folder, **more):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({name: X[:, j] for j, name in enumerate(NAMES)} | more)
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 150), folder / "parts" / "a.parquet", row_group_size=40)
    pq.write_table(table.slice(150), folder / "parts" / "b.parquet")
    return folder / "parts"


def arrow_dataset(folder):
    return pytest.importorskip("pyarrow.dataset").dataset(parquet(folder))


def lazy_frame(folder):
    return pytest.importorskip("polars").scan_parquet(parquet(folder) / "*.parquet")


class Items:
    """A map-style dataset of torch, without the base class, which would need torch to collect the tests."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return N

    def __getitem__(self, i):
        return self.item(i)


def torch_dataset(folder, item=lambda i: (X[i], Y[i])):
    torch = pytest.importorskip("torch")
    return type("Rows", (Items, torch.utils.data.Dataset), {})(item)


def sparse(folder):
    return pytest.importorskip("scipy.sparse").csr_array(X)


SOURCES = {
    "memory map": memory_map,
    "zarr": zarr_array,
    "HDF5": hdf5,
    "HDF5 in chunks": lambda folder: hdf5(folder, chunks=(70, 3), compression="gzip"),
    "dask": dask_array,
    "parquet": lambda folder: str(parquet(folder)),
    "arrow dataset": arrow_dataset,
    "LazyFrame": lazy_frame,
    "torch Dataset": torch_dataset,
    "CSR": sparse,
}
CALLS = {
    "ranks": lambda X: rl.permutation_importance(score, X, Y, weights=WEIGHTS, draws=5, rng=0),
    "groups": lambda X: rl.permutation_importance(score, X, Y, features=[(0, 2), 3], draws=5, rng=0),
    "shifts": lambda X: rl.permutation_importance(
        score, X, Y, draws=rl.Draws(4, design="shifts"), rng=0, run=rl.Run(block=50)
    ),
    "resample": lambda X: rl.ablation_importance(score, X, Y, loss="absolute_error", draws=3, rng=0),
    "all pairs": lambda X: rl.model_reliance(score, X, Y, keep="curves"),
    "halves": lambda X: rl.model_reliance(score, X, Y, pairs="halves", rng=0),
    "impact": lambda X: rl.feature_impact(score, X, quantiles=3),
    "some rows": lambda X: rl.local_importance(score, X, Y, rows=[250, 3, 17]),
}


@pytest.fixture
def small_maps(monkeypatch):
    """Memory maps are read in blocks from the first byte on."""
    monkeypatch.setattr(stored_arrays, "SMALL_MAP", 0)


@pytest.fixture(params=SOURCES)
def source(request, tmp_path, small_maps):
    return SOURCES[request.param](tmp_path)


def test_every_source_gives_what_the_array_gives(source):
    for name, call in CALLS.items():
        found, wanted = call(source), call(X)
        np.testing.assert_array_equal(found.values, wanted.values, err_msg=name)
        if hasattr(wanted, "interval"):
            np.testing.assert_array_equal(found.interval(), wanted.interval(), err_msg=name)
        assert getattr(found, "routes", None) == getattr(wanted, "routes", None)


def test_little_memory_takes_more_passes_and_gives_the_same_values(tmp_path):
    wanted = rl.permutation_importance(score, X, Y, draws=5, rng=0)
    little = rl.Run(memory=fewest_bytes(zarr_array(tmp_path)) + 20_000)
    found = rl.permutation_importance(score, hdf5(tmp_path), Y, draws=5, rng=0, run=little)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-12)


def fewest_bytes(rows):
    """As the error says."""
    with pytest.raises(ValueError, match="too small") as caught:
        rl.permutation_importance(score, rows, Y, draws=5, rng=0, run=rl.Run(memory=30_000))
    return int(str(caught.value).rsplit(", ", 1)[1].split(" ")[0])


def test_trees_and_linear_models_keep_their_routes(tmp_path):
    linear, ensemble = (pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "ensemble"))
    rows = zarr_array(tmp_path)
    for model in (linear.LinearRegression().fit(X, Y), ensemble.RandomForestRegressor(3, max_depth=3).fit(X, Y)):
        found, wanted = rl.model_reliance(model, rows, Y), rl.model_reliance(model, X, Y)
        np.testing.assert_array_equal(found.values, wanted.values)
        assert found.routes == wanted.routes


def test_a_torch_module_gets_tensors_of_its_dtype(tmp_path):
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Linear(P, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    wanted = rl.model_reliance(network, X, Y.astype(np.float32), route="plain")
    found = rl.model_reliance(network, zarr_array(tmp_path), Y.astype(np.float32), route="plain")
    np.testing.assert_array_equal(found.values, wanted.values)


def test_items_that_are_tensors_are_tensors_for_the_model(tmp_path):
    torch = pytest.importorskip("torch")
    rows, y = torch.from_numpy(X), torch.from_numpy(Y)

    def model(x):
        assert isinstance(x, torch.Tensor)
        return torch.tanh(x[:, 0]) * x[:, 3]

    found = rl.model_reliance(model, torch_dataset(tmp_path, lambda i: (rows[i], Y[i])))
    np.testing.assert_array_equal(found.values, rl.model_reliance(model, rows, y).values)


def test_rows_of_several_dimensions(tmp_path):
    images = RNG.normal(size=(40, 3, 5))
    file = pytest.importorskip("h5py").File(tmp_path / "x.h5", "w")
    parts = {"first": np.s_[0], "last step": np.s_[:, -1:]}

    def call(x):
        return rl.permutation_importance(lambda x: x[:, 0].sum(axis=1), x, images[:, 0, 0], features=parts, rng=0)

    np.testing.assert_array_equal(call(file.create_dataset("x", data=images)).values, call(images).values)


def test_labels_and_weights_are_columns_of_the_file(tmp_path):
    folder = parquet(tmp_path, label=Y, weight=WEIGHTS)
    found = rl.permutation_importance(score, folder, "label", weights="weight", features=["x1", "x3"], rng=0)
    wanted = rl.permutation_importance(score, X, Y, weights=WEIGHTS, features=[1, 3], rng=0)
    np.testing.assert_array_equal(found.values, wanted.values)
    assert found.names == ("x1", "x3")
    with pytest.raises(ValueError, match=r"y='lable' is no column of X, which has .*x0"):
        rl.permutation_importance(score, folder, "lable")
    with pytest.raises(TypeError, match=r"y='label', but a zarr array has no named columns"):
        rl.permutation_importance(score, zarr_array(tmp_path), "label")


def test_an_estimator_that_knows_names_gets_them(tmp_path):
    linear, pd = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("pandas")
    table, folder = pd.DataFrame(X, columns=NAMES), parquet(tmp_path)
    model = linear.LinearRegression().fit(table, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn's, of rows without names
        found = rl.permutation_importance(model, folder, Y, rng=0).values
    np.testing.assert_array_equal(found, rl.permutation_importance(model, table, Y, rng=0).values)
    with pytest.raises(ValueError, match=r"was fitted on the columns 'x3', .* but X has 'x0'"):
        rl.permutation_importance(linear.LinearRegression().fit(table[NAMES[::-1]], Y), folder, Y)


@pytest.mark.parametrize("dtype", [">f8", "f4", "f2", "i8", "i1", "bool"])
def test_other_numbers(dtype, tmp_path, small_maps):
    rows = np.round(3 * X).astype(dtype)
    np.save(tmp_path / "x.npy", rows)

    def model(x):
        assert x.dtype.isnative
        return 2.0 * x[:, 0] + x[:, 1]

    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found, wanted = (rl.permutation_importance(model, x, Y, rng=0).values for x in (mapped, rows))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((N,), "f8", r"X has shape \(300,\)"),
        ((1, P), "f8", "X has 1 rows"),
        ((N, 0), "f8", "there is no feature"),
        ((N, P), "c16", "X has dtype complex128"),
        ((N, P), "S3", "X has dtype"),
    ],
)
def test_stored_arrays_are_checked_as_arrays_are(shape, dtype, words, tmp_path):
    file = pytest.importorskip("h5py").File(tmp_path / "x.h5", "w")
    with pytest.raises((ValueError, TypeError), match=words):
        rl.permutation_importance(score, file.create_dataset("x", shape, dtype=dtype), np.zeros(shape[0]))


def test_workers_change_no_bit(tmp_path, small_maps, monkeypatch):
    monkeypatch.setattr(units, "_UNIT_ROWS", 600)
    monkeypatch.setattr(units, "_LARGER", 1)
    wanted = rl.permutation_importance(score, X, Y, rng=0, run=rl.Run(block=60)).values
    for rows in (memory_map(tmp_path), zarr_array(tmp_path), parquet(tmp_path), sparse(tmp_path)):
        found = rl.permutation_importance(score, rows, Y, rng=0, run=rl.Run(block=60, workers=2)).values
        np.testing.assert_array_equal(found, wanted)


def test_threads_keep_a_piece_each_and_one_reads_a_dataset(tmp_path, monkeypatch):
    """Pieces are not read again because another thread stands elsewhere."""
    pieces = Pieces.of_lengths([10, 10], lambda k: (made.append(k), np.full((10, 1), k))[1])
    made: list[int] = []
    pieces.rows(0, 5)
    other = threading.Thread(target=lambda: pieces.rows(12, 15))
    other.start()
    other.join()
    pieces.rows(5, 10)
    assert made == [0, 1]
    assert pickle.loads(pickle.dumps(Pieces(pieces.edges, len))).n == 20
    assert not on_disk.opened(torch_dataset(tmp_path)).concurrent
    assert on_disk.opened(parquet(tmp_path)).concurrent


ODD = {
    "as usual": lambda x, sp: sp.csr_array(x),
    "a matrix": lambda x, sp: sp.csr_matrix(x),
    "zeros that are stored": lambda x, sp: sp.csr_array((np.r_[x.ravel()], np.tile(np.arange(9), 7), np.arange(8) * 9)),
    "not in order": lambda x, sp: sp.csr_array((x[:, ::-1].ravel(), np.tile(np.arange(9)[::-1], 7), np.arange(8) * 9)),
    "entries that are added": lambda x, sp: sp.csr_array(
        (np.repeat(x.ravel() / 2, 2), np.repeat(np.tile(np.arange(9), 7), 2), np.arange(8) * 18)
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_replaced_columns_of_sparse_rows(kind):
    for columns, dtype in itertools.product([(4,), (0, 8), (7, 2, 3), tuple(range(9))], ["f8", "f4", "i4"]):
        check_replaced(kind, columns, dtype)


def check_replaced(kind, columns, dtype):
    """Against the same numbers, written into an array."""
    sp, rng = pytest.importorskip("scipy.sparse"), np.random.default_rng(1)
    dense = (4 * rng.integers(-3, 4, (7, 9)) * (rng.random((7, 9)) < 0.4)).astype(dtype)
    own = ODD[kind](dense, sp).astype(dtype)
    values = (rng.integers(-2, 3, (7, len(columns)))).astype(dtype)
    before = own.copy()
    found = sparse_rows.replaced(own, columns, values)
    dense[:, list(columns)] = values
    np.testing.assert_array_equal(found.toarray(), dense)
    assert (type(found), found.dtype, found.format) == (type(own), own.dtype, "csr")
    assert np.count_nonzero(found.data) == len(found.data)
    assert all(np.array_equal(getattr(own, part), getattr(before, part)) for part in ("data", "indices", "indptr"))


def test_sparse_rows_are_never_dense(monkeypatch):
    """A NumPy function to the last bit, an estimator to rounding; and what a model writes to is its own."""
    sp, linear = pytest.importorskip("scipy.sparse"), pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(2)
    rows = sp.random_array((200, 3000), density=0.01, format="csr", rng=rng)
    dense, coef = rows.toarray(), rng.normal(size=3000)
    y = dense[:, :5].sum(axis=1) + 0.1 * rng.normal(size=200)
    monkeypatch.setattr(sparse_rows.Sparse, "rows", None)
    monkeypatch.setattr(Streamed, "at", lambda self, ids: dense[ids])  # some of the rows, to look at them
    monkeypatch.setattr(Streamed, "read", lambda self, start, stop: dense[start : min(stop, start + 64)])
    options = {"features": [0, 7, (1, 2)], "rng": 0, "draws": 4, "run": rl.Run(block=60)}

    def function(x):
        if not isinstance(x, np.ndarray):
            numbers = x.toarray()
            x.data[:] = np.nan
            return np.tanh(numbers @ coef)
        return np.tanh(x @ coef)

    found, wanted = (rl.permutation_importance(function, x, y, **options) for x in (rows, dense))
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_array_equal(found.interval(), wanted.interval())
    ridge = linear.Ridge().fit(dense, y)
    found, wanted = (rl.permutation_importance(ridge, x, y, **options) for x in (rows, dense))
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-10)


def test_a_stored_array_among_several_inputs_is_named(tmp_path):
    def model(a, b):
        return a[:, 0]

    for rows, words in ((hdf5(tmp_path), r"X\['b'\]\[:\] in"), (sparse(tmp_path), r"X\['b'\]\.toarray\(\)")):
        with pytest.raises(TypeError, match=rf"X\['b'\] is a .*several inputs must be in memory: pass {words}"):
            rl.permutation_importance(model, {"a": X, "b": rows}, Y)
        with pytest.raises(TypeError, match=r"X\[1\] is a "):
            rl.permutation_importance(model, (X, rows), Y)
    assert rl.permutation_importance(model, {"a": X, "b": memory_map(tmp_path)}, Y, rng=0).values[1] == 0


def test_stored_labels_are_read(tmp_path):
    file = pytest.importorskip("h5py").File(tmp_path / "x.h5", "w")
    rows, y = file.create_dataset("x", data=X), file.create_dataset("y", data=Y)
    wanted = rl.permutation_importance(score, X, Y, rng=0).values
    np.testing.assert_array_equal(rl.permutation_importance(score, rows, y, rng=0).values, wanted)


def test_what_needs_all_rows_at_once_says_so(tmp_path):
    rows = zarr_array(tmp_path)
    words = r"needs all of X at once, and X is a zarr array of 300 rows.*pass X\[:\]"
    for call in (
        lambda: rl.conditional_model_reliance(score, rows, Y),
        lambda: rl.relative_importance(score, rows, Y, given=[1], features=[0], rng=0),
        lambda: rl.extrapolation_check(rows),
        lambda: rl.model_class_reliance(rl.LinearClass(), rows, Y, epsilon=0.1),
    ):
        with pytest.raises(TypeError, match=words) as caught:
            call()
        assert len(str(caught.value)) <= 300


def test_a_large_memory_map_is_an_array_to_who_needs_all_of_it(tmp_path, small_maps):
    found = rl.conditional_model_reliance(score, memory_map(tmp_path), Y, rng=0)
    np.testing.assert_array_equal(found.values, rl.conditional_model_reliance(score, X, Y, rng=0).values)


def test_missing_values_are_seen_on_the_way(tmp_path):
    rows = zarr_array(tmp_path)
    rows[200, 2] = np.nan
    with pytest.warns(UserWarning, match="X holds NaN or infinite values"):
        rl.permutation_importance(score, rows, Y, draws=3, rng=0)


@pytest.mark.parametrize("call", [1, 4, 12])
def test_rows_that_change_while_they_are_read(call, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_arrays, "PIECE", 1)  # a chunk is let go before the next one is read
    rows = zarr_array(tmp_path)
    calls = []

    def model(x):
        calls.append(len(x))
        if len(calls) == call:
            rows[:] = X[::-1]
        return score(x)

    with pytest.raises(ValueError, match=r"gives other values in .*: it was changed, or its rows are random"):
        rl.permutation_importance(model, rows, Y, draws=5, rng=0, run=rl.Run(block=(100, 1)))


def test_a_random_dataset_is_refused(tmp_path):
    noisy = torch_dataset(tmp_path, lambda i: X[i] + np.random.default_rng().normal(size=P))
    with pytest.raises(ValueError, match="its rows are random"):
        rl.permutation_importance(score, noisy, Y, draws=3, rng=0)


def test_odd_sources_are_errors_in_words(tmp_path):
    torch = pytest.importorskip("torch")
    ragged = torch_dataset(tmp_path, lambda i: X[i, : P - (i == 7)])
    text = parquet(tmp_path, city=["a"] * N)
    h5py, dask = pytest.importorskip("h5py"), pytest.importorskip("dask.array")
    with h5py.File(tmp_path / "closed.h5", "w") as file:
        closed = file.create_dataset("x", data=X)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    unknown = dask.from_array(X, chunks=(64, 4))
    stream = type("Stream", (torch.utils.data.IterableDataset,), {"__iter__": iter})
    cases = [
        (ragged, ValueError, r"item 7 of the Rows has shape \(3,\) .* all rows must be alike"),
        (torch.utils.data.DataLoader(torch_dataset(tmp_path)), TypeError, r"pass its dataset, X\.dataset"),
        (stream(), TypeError, "pass a map-style dataset"),
        (text, TypeError, "X: column 'city' holds text"),
        (tmp_path / "nothing.parquet", ValueError, "there is no such file or folder"),
        (str(tmp_path / "x.csv"), ValueError, "cannot be read as parquet"),
        (closed, ValueError, "keep the file open"),
        (unknown[unknown[:, 0] > 0], ValueError, r"compute_chunk_sizes\(\)"),
        (pytest.importorskip("scipy.sparse").coo_array(X), TypeError, r"X\.tocsr\(\)"),
    ]
    for rows, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            rl.permutation_importance(score, rows, Y, draws=3)
        assert len(str(caught.value)) <= 300


MEASURED = """
import numpy as np
import reliance as rl

def peak():
    status = open("/proc/self/status").read()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

{setting}
before = peak()
rl.permutation_importance(model, rows, y, draws=1, features=[0, 1], rng=0, run=rl.Run(memory={memory}))
print(peak() - before)
"""


def measured(setting, memory):
    """By how many bytes a process of its own grows at most."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process is read from /proc")
    code = MEASURED.format(setting=setting, memory=memory)
    environment = os.environ | {"PYTHONPATH": str(Path(rl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def large_map(path, n, p):
    """A file of n rows of which one in ten is written: the others are read as zeros, and take no room on the disk."""
    rows = np.memmap(path, dtype=np.float64, mode="w+", shape=(n, p))
    rows[64 : n // 10] = np.random.default_rng(0).random((n // 10 - 64, p))
    rows.flush()


@pytest.mark.slow
def test_a_memory_map_of_6_gb(tmp_path):
    n, p = 100_000, 7600
    large_map(tmp_path / "rows.dat", n, p)
    setting = f"""
n, p = {n}, {p}
rows = np.memmap({str(tmp_path / "rows.dat")!r}, dtype=np.float64, mode="r", shape=(n, p))
y = np.zeros(n)
def model(x): return x[:, 0] + x[:, 1]
"""
    try:
        assert (tmp_path / "rows.dat").stat().st_size > 6e9
        used = measured(setting, 200_000_000)
    finally:
        (tmp_path / "rows.dat").unlink()
    # The columns that lend have 8 bytes a row.
    assert used < 200e6 + 2 * 8 * n + 300e6, f"{used / 1e6:.0f} MB"


@pytest.mark.slow
def test_a_torch_module_gets_a_memory_map_in_blocks(tmp_path):
    pytest.importorskip("torch")
    n, p = 200_000, 150
    large_map(tmp_path / "rows.dat", n, p)
    setting = f"""
import torch
n, p = {n}, {p}
rows = np.memmap({str(tmp_path / "rows.dat")!r}, dtype=np.float64, mode="r", shape=(n, p))
y = np.zeros(n, dtype=np.float32)
model = torch.nn.Linear(p, 1)
"""
    used = measured(setting, 200_000_000)  # the map itself has 240 MB
    assert used < 200e6, f"{used / 1e6:.0f} MB"


@pytest.mark.slow
def test_a_folder_of_parquet_larger_than_memory(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n, p, files = 50_000, 300, 5
    numbers = np.random.default_rng(0).random((n, 4)).astype(np.float64)
    for number in range(files):
        table = pa.table({f"x{j}": numbers[:, j % 4] * (number + j) for j in range(p)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10_000, use_dictionary=False)
    setting = f"""
rows, y = {str(tmp_path)!r}, np.zeros({n * files})
def model(x): return x[:, 0] + x[:, 1]
"""
    used = measured(setting, 150_000_000)  # all rows have 600 MB
    assert used < 150e6 + 2 * 8 * n * files + 300e6, f"{used / 1e6:.0f} MB"


@pytest.mark.slow
def test_wide_sparse_rows_keep_to_the_memory(tmp_path):
    pytest.importorskip("scipy.sparse")
    setting = """
import scipy.sparse
n = 20_000
rows = scipy.sparse.random_array((n, n), density=1e-3, format="csr", rng=np.random.default_rng(0))
coef = np.random.default_rng(1).normal(size=n)
y = rows @ coef
def model(x): return x @ coef
"""
    used = measured(setting, 50_000_000)  # all rows have 3.2 GB as numbers
    assert used < 50e6 + 2 * 8 * 20_000 + 100e6, f"{used / 1e6:.0f} MB"
