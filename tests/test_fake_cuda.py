"""Device discipline on CUDA, proven without a GPU.

The engine runs whole on fake CUDA tensors (shapes, dtypes and devices, no values) under a dispatch mode that refuses
any tensor elsewhere. Reading a value is an error of the fake tensors themselves, so a hidden synchronisation cannot
pass; the two explicit transfers, `_array.from_host` and `_array.to_host`, are replaced and counted.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from methods import population_variance
from reliance import functional, plans
from reliance._core import arrays
from reliance.data.features import Feature
from reliance.engine import blocks, prepare, runners, units
from reliance.exact import tree_blocks
from reliance.exact.cells import column_cells
from reliance.exact.leaf_masks import fold_trees, mask_tables, skeleton
from reliance.inference import variance
from reliance.losses import checks as loss_checks
from reliance.losses import of_means
from reliance.methods import measuring
from reliance.rashomon import ascent, moments
from reliance.rashomon.kernel_pairs import RBF, Polynomial, Switch
from reliance.rashomon.kernel_sums import own_products, pair_products
from reliance.rashomon.protocol import ClassData
from test_trees import LEVELS, made

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

CUDA = torch.device("cuda", 0)
N, P, K = 14, 3, 5


class OneDevice(TorchDispatchMode):
    """Refuses every operation that touches a tensor on another device."""

    def __init__(self, device=CUDA):
        super().__init__()
        self.device, self.operations = device, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations[func.overloadpacket.__name__] += 1
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        # Empty tensors hold no data: array-api-compat makes them to ask torch for the result type of half dtypes.
        elsewhere = {str(t.device) for t in tensors if t.device != self.device and t.numel()}
        if elsewhere:
            raise RuntimeError(f"{func}: tensor on {elsewhere} inside a {self.device} kernel")
        return out


@pytest.fixture(scope="module", autouse=True)
def _guard():
    """CPU builds have no CUDA device guard, and indexing asks for one: lend it the no-op guard of meta tensors."""
    if torch.cuda.is_available():
        yield
        return
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not library.exists():
        pytest.skip(f"no {library.name} to find the device guards in")
    registry = (ctypes.c_void_p * 22).in_dll(ctypes.CDLL(str(library)), "_ZN3c104impl26device_guard_impl_registryE")
    before = registry[1]
    registry[1] = before or registry[14]
    yield
    registry[1] = before


class Traffic(Counter):
    """How often data crossed between host and device: ``upload``, ``download``, and ``loop`` downloads of the loop."""

    looping = False

    def upload(self, values, xp, dev, dtype=None):
        assert torch.device(dev) == CUDA
        self["upload"] += 1
        values = np.asarray(values)
        return torch.empty(values.shape, dtype=dtype or getattr(torch, values.dtype.name), device=CUDA)

    def download(self, x):
        """Ones: flags are true, weights positive, sums finite."""
        assert x.device == CUDA
        self["loop" if self.looping else "download"] += 1
        return np.ones(tuple(x.shape))

    def labels(self, x):
        """What `loss_checks.check` reads: both classes must be there."""
        assert x.device == CUDA
        assert not self.looping, "a loss read values inside the loop"
        return (np.arange(x.numel()) % 2).reshape(tuple(x.shape)) if x.ndim else np.ones(())


@pytest.fixture
def traffic(monkeypatch):
    counted, accumulate = Traffic(), blocks.accumulate

    def looped(*args):
        counted.looping = True
        try:
            return accumulate(*args)
        finally:
            counted.looping = False

    monkeypatch.setattr(arrays, "from_host", counted.upload)
    monkeypatch.setattr(arrays, "to_host", counted.download)
    monkeypatch.setattr(loss_checks, "to_host", counted.labels)
    monkeypatch.setattr(blocks, "accumulate", looped)
    return counted


@pytest.fixture
def cuda(traffic):
    with FakeTensorMode(), OneDevice() as mode:
        yield mode


def tensor(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device=CUDA)


def mlp(width=P, outputs=1, dtype=torch.float32):
    inner, outer = (torch.nn.Linear(*sizes, device=CUDA, dtype=dtype) for sizes in ((width, 8), (8, outputs)))
    return torch.nn.Sequential(inner, torch.nn.ReLU(), outer, torch.nn.Sigmoid())


METHODS = {
    "pairs": (rl.model_reliance, {"compare": "difference", "route": "plain"}),
    "halves": (rl.model_reliance, {"pairs": "halves"}),
    "shifts": (rl.permutation_importance, {"draws": rl.Draws(K, design="shifts")}),
    "resample": (rl.ablation_importance, {"draws": K}),
}
OPTIONS = {
    "plain": {},
    "ratio": {"compare": "ratio"},
    "weights": {"weights": True},
    "groups": {"features": [0, (1, 2)]},
    "one_block": {"run": rl.Run(block=(N, K))},
    "chunks": {"run": rl.Run(block=(4, 2)), "weights": True},
    "rows": {"run": rl.Run(block=10)},
    "losses": {"loss": ["squared_error", "absolute_error", "huber", "pinball", "poisson_deviance", "zero_one"]},
    "hinge": {"loss": "hinge"},
    "prediction_shift": {"loss": "prediction_shift"},
    "log_loss": {"loss": "log_loss"},
    "auc": {"loss": "auc"},
    "metrics": {"loss": ["auc", "r2", "rmse"], "weights": True},
    "mixed_chunks": {"loss": ["rmse", "squared_error"], "run": rl.Run(block=(4, 2))},
    "user_metric": {"loss": rl.Metric(lambda y, p, *w: torch.mean(torch.abs(y - p)), name="mean_distance")},
}


def strips(block, method, option=""):
    """How many fetches the loop may make: one for a strip of tiles, or for a tile that holds all rows."""
    rows, draws = block
    if method == "pairs" and option != "user_metric":
        # Ranks need a feature's whole table, and one table is held at a time.
        return math.ceil(N / rows) * (P if option in ("auc", "metrics") else 1)
    return math.ceil({"halves": 1, "pairs": N - 1}.get(method, K) / draws)


def first(found):
    return next(iter(found.values())) if isinstance(found, rl.Results) else found


# Every option with two of the methods, every method with half of the options; the other half is slow.
MEETINGS = [
    pytest.param(method, option, marks=() if (a + b) % 2 == 0 else pytest.mark.slow)
    for a, method in enumerate(METHODS)
    for b, option in enumerate(OPTIONS)
]


@pytest.mark.parametrize("method, option", MEETINGS)
def test_engine_stays_on_the_device(cuda, traffic, monkeypatch, method, option):
    function, settings = METHODS[method]
    chosen = settings | OPTIONS[option]
    if option == "hinge":  # labels -1 and 1
        monkeypatch.setattr(loss_checks, "to_host", lambda x: 2 * traffic.labels(x) - 1)
    if option == "metrics":  # the spread of the labels is read, which ones do not have
        share = of_means._share
        monkeypatch.setattr(of_means, "_share", lambda y, w: share(np.arange(len(y)), w))
        known = [(one, (loss, of_means._share if find is share else find)) for one, (loss, find) in of_means._KNOWN]
        monkeypatch.setattr(of_means, "_KNOWN", known)
    if "weights" in chosen:
        chosen["weights"] = tensor(N)
    result = first(function(mlp(), tensor(N, P), tensor(N), **chosen))
    assert traffic["loop"] == strips(result.block, method, option)
    # The checks and the base pass: X, y, weights, two flags, base losses; some rows of X and counts of common values,
    # whether columns vary, the classes of a metric. Of metrics over all pairs, their labels and what rows add to them.
    # Nothing grows with features or draws.
    metrics = {"auc": 1, "metrics": 3, "mixed_chunks": 1}.get(option, 0) if method == "pairs" else 0
    assert traffic["download"] <= 9 + 3 * metrics
    assert cuda.operations["copy_"] > 0
    assert result.values.shape == result.evaluations.shape


CASES = ("image", "embedding", "classes", "bfloat16", "float64", "integer", "several_outputs", "view")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_kinds_of_data(cuda, traffic, monkeypatch, method, case):
    function, settings = METHODS[method]
    X, y, model, extra = tensor(N, P), tensor(N), mlp(), {}
    if case == "image":
        X, model = tensor(N, 2, 3, 3), torch.nn.Sequential(torch.nn.Flatten(), mlp(18))
        extra = {"features": np.arange(18).reshape(2, 3, 3) // 6}
        monkeypatch.setattr("reliance.data.features.to_host", np.asarray)  # the mask is on the host
    elif case == "embedding":
        X = tensor(N, P, dtype=torch.int64)
        model = torch.nn.Sequential(torch.nn.Embedding(5, 2, device=CUDA), torch.nn.Flatten(), mlp(2 * P))
    elif case == "classes":
        y, model, extra = tensor(N, dtype=torch.int64), mlp(outputs=3), {"loss": ["cross_entropy", "zero_one"]}
    elif case in ("bfloat16", "float64"):
        dtype = getattr(torch, case)
        X, y, model = tensor(N, P, dtype=dtype), tensor(N, dtype=dtype), mlp(dtype=dtype)
    elif case == "integer":
        X, model = tensor(N, P, dtype=torch.int32), lambda X: X[:, 0] * 2
    elif case == "several_outputs":
        y, model = tensor(N, 3), mlp(outputs=3)
    else:
        model = lambda X: X[:, 0]  # noqa: E731
    result = first(function(model, X, y, **settings, **extra))
    assert traffic["loop"] == strips(result.block, method)


def test_gradients_are_not_recorded(cuda):
    seen = []
    module = mlp()

    def model(X):
        out = module(X)
        seen.append(out.requires_grad)
        return out

    rl.model_reliance(model, tensor(N, P), tensor(N), route="plain")
    assert seen
    assert not any(seen)


def test_data_off_the_device_is_refused(cuda):
    with pytest.raises(RuntimeError, match="tensor on"):
        torch.ones(3)


@pytest.mark.parametrize(
    "model",
    [
        lambda X: X[:, 0] + torch.arange(X.shape[0]),
        lambda X: X[:, 0].cpu().to(CUDA),
        lambda X: X[:, 0] * torch.tensor(3.0),
        lambda X: X[:, 0] if X.sum() > 0 else X[:, 1],
        lambda X: X[:, 0] * float(X[0, 0]),
    ],
    ids=["arange", "cpu", "scalar", "branch", "float"],
)
def test_the_check_has_teeth(cuda, model):
    """The same mistakes in a kernel would be caught: they are in a model."""
    with pytest.raises((RuntimeError, DataDependentOutputException), match=r"tensor on|_local_scalar_dense|device"):
        rl.model_reliance(model, tensor(N, P), tensor(N), route="plain")


@pytest.mark.parametrize("block", [None, 5])
def test_functional_stays_on_the_device(cuda, traffic, block):
    model, X, y = mlp(), tensor(N, P), tensor(N)
    found = [
        functional.base_risk(model, X, y),
        functional.switched_losses(model, X, y, [0, 2], tensor(N, 3, 2)),
        functional.shifted_risk(model, X, y, 1, [1, 2, 5]),
        functional.pairwise_risk(model, X, y, (1, 2), block=block, loss="huber"),
    ]
    rows, donors, spread = functional.pairwise_moments(model, X, y, 0)
    population = functional.pairs_variance(rows, donors).population
    gamma = functional.skewness(rows + donors, population)
    found += functional.hull(torch.mean(rows), torch.sqrt(population), gamma, 1.96, True)
    assert all(x.device == CUDA for x in (*found, rows, donors, spread))
    assert traffic["download"] == traffic["loop"] == 0


@pytest.mark.parametrize("outputs", [1, 3])
def test_leaf_masks_stay_on_the_device(cuda, traffic, outputs):
    """The tables are made on the host and uploaded; from there on a block of rows needs nothing of it."""
    model = made(0, (5, 40), outputs=outputs)
    columns = [column_cells(model, j, LEVELS[np.arange(N) % 5]) for j in range(3)]
    xp = arrays.namespace(tensor(1))
    tables = mask_tables(model, skeleton(model), columns, [0, 2], xp, CUDA, torch.float64)
    traffic.clear()
    table = fold_trees(tensor(tables.lines, N, dtype=torch.float64), tensor(3, N, dtype=torch.int64), tables.trees)
    y = tensor(N, dtype=torch.float64) if outputs == 1 else tensor(N, outputs, dtype=torch.float64)
    rows = tree_blocks.Rows(tensor(N, outputs, dtype=torch.float64), (y,), tensor(N, dtype=torch.float64))
    context = tree_blocks.Context((rl.losses.squared_error,), model.finish, 1e-12, None)
    changes = torch.stack([table[:5]] * outputs)
    sums = tree_blocks.table_sums(context, changes, rows, tensor(5, dtype=torch.float64))
    assert sums.device == CUDA
    assert sums.shape == (N + 5 + N + 2,)
    assert not traffic


@pytest.mark.parametrize("loss", ["squared_error", "auc"])
def test_draws_by_ranks_stay_on_the_device(cuda, traffic, loss):
    """Places, signs and orders go up, once for a tile or a feature; only sums come down."""
    host = np.random.default_rng(0).normal(size=(N, P))
    problem = prepare(mlp(), tensor(N, P), tensor(N), loss=loss, rng=0)
    plan = plans.Ranked(N, K, 0, plans.Orders(N, 0, lambda feature: host[:, list(feature.columns)]))
    before = traffic["upload"]
    result = measuring.measure(problem, plan, "difference", "permutation_importance")
    assert traffic["loop"] == strips(result.block, "permutation")
    assert traffic["upload"] - before <= P + 8 * traffic["loop"] * math.ceil(N / result.block[0])


@pytest.mark.parametrize("method", ["shifts", "resample"])
def test_rows_on_the_host_go_to_the_device_in_blocks(traffic, monkeypatch, method):
    """Rows, one block after the other, and columns go up; never all of X."""
    n = 3000
    X, y = np.random.default_rng(0).normal(size=(n, P)).astype(np.float32), np.zeros(n, dtype=np.float32)
    sizes = []

    def upload(values, *rest):
        sizes.append(np.size(values))
        return traffic.upload(values, *rest)

    monkeypatch.setattr(arrays, "from_host", upload)
    monkeypatch.setattr(
        arrays, "to_host", lambda x: np.asarray(x) if isinstance(x, np.ndarray) else traffic.download(x)
    )
    monkeypatch.setattr("reliance.models.calling.from_host", upload)
    function, settings = METHODS[method]
    with FakeTensorMode(allow_non_fake_inputs=True):
        run = rl.Run(device="cuda:0", block=1000)
        result = first(function(mlp(), X, y, **settings, features=[0], run=run))
    assert result.values.shape == (1,)
    assert n <= max(sizes) < n * P, "X went to the device as a whole, or not at all"


@pytest.mark.parametrize("kind", ["pairs", "shifts", "resample", "permutations", "halves"])
def test_variances_stay_on_the_device(cuda, traffic, kind):
    r, c, total, other = tensor(N), tensor(N), tensor(), tensor(N)
    h = variance.kernel(r, c, total, other, other, other, 5)
    found = population_variance(kind, h.rows, h.donors, h.total, 5, indicator=other, lent=other)
    assert all(x.device == CUDA and x.shape == () for x in found)
    assert not traffic


# ---------------------------------------------------------------------------------------------------------------------
# Classes of models


@pytest.fixture
def class_traffic(traffic, monkeypatch):
    """Made-up numbers come down instead of ones, which solvers need, in all modules that have the transfers by name."""
    numbers = np.random.default_rng(0)

    def download(x):
        if isinstance(x, np.ndarray):
            return x
        traffic.download(x)
        return np.ones(tuple(x.shape)) if x.dtype == torch.bool else numbers.uniform(0.5, 1.5, size=tuple(x.shape))

    for name, module in list(sys.modules.items()):
        if name.startswith("reliance"):
            for attribute, replacement in (("from_host", traffic.upload), ("to_host", download)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, replacement)
    return traffic


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_moments_stay_on_the_device(cuda, class_traffic, dtype):
    """What linear classes need of the rows: a sample of them and three products come down."""
    data = ClassData(tensor(N, P, dtype=dtype), tensor(N, dtype=dtype), 0, 10**8)
    mean, products = moments._products(data, np.full(P + 1, 0.5))
    assert mean.shape == (P + 1,)
    assert products.shape == (P + 1, P + 1)
    assert class_traffic["download"] == 3
    assert moments._triangle(data, np.full(P + 1, 0.5)).shape == (P + 1, P + 1)
    assert class_traffic["download"] == 4


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.slow
def test_searches_stay_on_the_device(cuda, class_traffic, monkeypatch, conditional):
    """A whole search of a module's parameters: values come down between rounds of steps, not between steps.

    All but the gradient itself, which torch does not compute for a device that is not there.
    """
    monkeypatch.setattr(torch.autograd, "grad", lambda merit, theta: (torch.ones_like(theta) * merit,))
    monkeypatch.setattr(ascent, "_ROUNDS", 2)
    counts = []
    for steps in (2, 6):
        class_traffic.clear()
        given = rl.DifferentiableClass(mlp(), radius=100.0, starts=1, steps=steps)
        data = ClassData(tensor(N, P), tensor(N), 0, 10**8)
        found = given.ranges(data, 10.0, (Feature("pair", (1, 2)),), "ratio", conditional, lambda _: None)
        assert found[0].most.model(tensor(4, P)).device == CUDA
        counts.append(class_traffic["download"])
    assert counts[0] == counts[1]
    assert cuda.operations["addmm"] > 0


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kernel", [RBF(np.ones(P)), Polynomial(np.ones(P), 2), lambda A, B: A @ B.T])
def test_pair_products_stay_on_the_device(cuda, class_traffic, kernel, conditional):
    """The quadratic of a kernel class: only matrices of the landmarks come down."""
    X, y, landmarks = (tensor(*shape, dtype=torch.float64) for shape in ((N, P), (N,), (4, P)))
    switch = Switch.of(X, (0, 2), conditional)
    class_traffic.clear()
    own = own_products(tensor(N, 3, dtype=torch.float64), y)
    found = pair_products(kernel, switch, landmarks, np.ones((4, 3)), y, memory=10**6, own=own)
    assert found.shape == (5, 5)
    assert class_traffic["download"] <= 12


def test_lists_of_models_stay_on_the_device(cuda, traffic, monkeypatch):
    def download(x):  # labels must not be constant
        return traffic.download(x) + (np.arange(N) if x.shape == (N,) else 0.0)

    monkeypatch.setattr(arrays, "to_host", download)
    given = rl.FiniteClass([mlp(), mlp()])
    found = rl.model_class_reliance(given, tensor(N, P), tensor(N), epsilon=10.0, rng=0)
    assert found.achieved_lower.shape == (P,)


# ---------------------------------------------------------------------------------------------------------------------
# Several devices


class _Inline:
    """A pool of the one thread that the modes belong to."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def submit(self, function, *arguments):
        done = Future()
        try:
            done.set_result(function(*arguments))
        except BaseException as error:
            done.set_exception(error)
        return done


@pytest.mark.parametrize("method", ["shifts", "resample"])
def test_units_stay_on_the_device_that_does_them(monkeypatch, method):
    """The module, rows, labels and weights of a unit are all on one of two devices, and both have units."""
    seen = Counter()
    monkeypatch.setattr(runners, "ThreadPoolExecutor", _Inline)
    monkeypatch.setattr(units, "_UNIT_ROWS", 30)
    monkeypatch.setattr(units, "_LEAST_FEATURES", 1)
    monkeypatch.setattr(
        arrays,
        "from_host",
        lambda values, xp, dev, dtype=None: torch.empty(
            np.shape(values), dtype=dtype or getattr(torch, np.asarray(values).dtype.name), device=dev
        ),
    )
    monkeypatch.setattr(arrays, "to_host", lambda x: np.ones(tuple(x.shape)))
    monkeypatch.setattr(loss_checks, "to_host", lambda x: np.ones(tuple(x.shape)))
    do = units.Work.do

    def watched(self, *arguments):
        device = self.problem.device
        seen[str(device)] += 1
        with OneDevice(device):
            return do(self, *arguments)

    monkeypatch.setattr(units.Work, "do", watched)
    function, settings = METHODS[method]
    with FakeTensorMode():
        run = rl.Run(devices=["cuda:0", "cuda:1"], block=(5, 2))
        found = function(mlp(), tensor(N, P), tensor(N), weights=tensor(N), run=run, **settings)
    assert first(found).values.shape == (P,)
    assert set(seen) == {"cuda:0", "cuda:1"}
