"""Models are called as they are: the dtype of modules, their modes and statistics, several threads, odd inputs."""

from __future__ import annotations

import copy
import functools
import threading
import warnings

import numpy as np
import pytest

import reliance as rl

torch = pytest.importorskip("torch")

N, P = 12, 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, P)).astype(np.float32)
Y = (X[:, 0] + 0.1 * RNG.normal(size=N)).astype(np.float32)


def double_loop(predict, rows, y):
    """Base risk and all-pairs risks of the squared error, one row after the other."""
    base = np.mean((y - predict(rows)) ** 2)
    risks = []
    for j in range(rows.shape[1]):
        losses = []
        for i in range(len(rows)):
            for k in range(len(rows)):
                if i != k:
                    row = rows[i : i + 1].copy()
                    row[0, j] = rows[k, j]
                    losses.append(float((y[i] - predict(row)[0]) ** 2))
        risks.append(np.mean(losses))
    return base, np.asarray(risks)


def check(model, rows=X, oracle=None, convert=torch.from_numpy, rtol=1e-5):
    def by_hand(block):
        with torch.no_grad():
            return model(torch.from_numpy(block)).double().numpy()

    found = rl.model_reliance(model, convert(rows), convert(Y), compare="difference", route="plain")
    base, risks = double_loop(oracle or by_hand, rows, Y)
    np.testing.assert_allclose(found.base_risk, base, rtol=rtol, atol=1e-7)
    np.testing.assert_allclose(found.replaced_risk, risks, rtol=rtol, atol=1e-7)


# ---------------------------------------------------------------------------------------------------------------------
# The dtype of a module


class Mixed(torch.nn.Module):
    """A parameter of another dtype first, which the rows never meet as they are."""

    def __init__(self, scale, buffer=False):
        super().__init__()
        if buffer:
            self.register_buffer("scale", scale)
        else:
            self.scale = torch.nn.Parameter(scale)
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -0.37, 0.003]))

    def forward(self, x):
        return (x @ self.weight.to(x.dtype)) * self.scale.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_one_parameter_of_another_dtype(dtype, buffer, convert):
    check(Mixed(torch.ones((), dtype=dtype), buffer), convert=convert)


def test_several_inputs_of_a_mixed_module():
    class Two(Mixed):
        def forward(self, a, b):
            return super().forward(torch.cat([a, b], dim=1))

    module = Two(torch.ones((), dtype=torch.bfloat16))
    parts = (torch.from_numpy(X[:, :1]), torch.from_numpy(X[:, 1:]))
    found = rl.model_reliance(module, parts, torch.from_numpy(Y), compare="difference")
    base, risks = double_loop(lambda rows: rows @ np.float32([1.0, -0.37, 0.003]), X, Y)
    np.testing.assert_allclose([found.base_risk, found.replaced_risk[0]], [base, risks[0]], rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agreeing_parameters_set_the_dtype(dtype):
    seen = set()
    module = torch.nn.Sequential(torch.nn.Linear(P, 2), torch.nn.Linear(2, 1)).to(dtype)
    module.register_forward_pre_hook(lambda part, given: seen.add(given[0].dtype))
    rl.permutation_importance(module, X.astype(np.float64), Y, draws=3)
    assert seen == {dtype}


# ---------------------------------------------------------------------------------------------------------------------
# Integers


class ByFunction(torch.nn.Module):
    """Looks codes up without a layer that says so."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1.0, 2.0, 12).reshape(6, 2))

    def forward(self, x):
        return torch.nn.functional.embedding(x, self.table).sum(dim=(1, 2))


class OneHot(ByFunction):
    def forward(self, x):
        return (torch.nn.functional.one_hot(x, 6).to(self.table.dtype) @ self.table).sum(dim=(1, 2))


class Scripted(ByFunction):
    def forward(self, x):
        return self.table[x].sum(dim=2).sum(dim=1)


class Pixels(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x):
        return (x / 255.0) @ self.weight


CODES = np.random.default_rng(2).integers(0, 6, size=(N, P))


@pytest.mark.parametrize("make", [ByFunction, OneHot, lambda: torch.jit.script(Scripted())])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_modules_that_take_integers(make, convert):
    check(make(), CODES, convert=convert)


def test_images_of_bytes():
    check(Pixels(), (40 * CODES).astype(np.uint8))


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Linear(P, 1),
        torch.nn.Sequential(torch.nn.Unflatten(1, (1, P)), torch.nn.Conv1d(1, 1, 2), torch.nn.Flatten()),
        torch.nn.Sequential(torch.nn.LayerNorm(P)),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_modules_that_take_none(module, dtype):
    with pytest.raises(TypeError, match=r"X has dtype .* but the model computes in torch.float32: pass X.to") as caught:
        rl.permutation_importance(module, CODES.astype(dtype), Y, draws=3)
    assert len(str(caught.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# Modes and statistics behind a function


def dropped():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1), torch.nn.Flatten(0))


def normed():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


class Holder:
    def __init__(self, module):
        self.module = module

    def __call__(self, rows):
        return self.module(rows)

    def predict(self, rows):
        return self.module(rows)


GLOBAL = dropped()


def apply(module, rows):
    return module(rows)


def decorated(module):
    @functools.wraps(module.forward)
    def call(*rows):
        return module(*rows)

    return call


BEHIND = {
    "closure": lambda module: lambda rows: module(rows),
    "default": lambda module: lambda rows, module=module: module(rows),
    "partial": lambda module: functools.partial(apply, module),
    "keyword": lambda module: functools.partial(lambda rows, net: net(rows), net=module),
    "method": lambda module: Holder(module).predict,
    "forward": lambda module: module.forward,
    "object": Holder,
    "nested": lambda module: functools.partial(lambda f, rows: f(rows), lambda rows: module(rows)),
    "list": lambda module: lambda rows, all=[module]: all[0](rows),
    "decorated": decorated,
}


def measure(model, **settings):
    return rl.permutation_importance(model, torch.from_numpy(X), torch.from_numpy(Y), draws=3, rng=0, **settings)


@pytest.mark.parametrize("kind", BEHIND)
def test_training_mode_behind_a_function_is_warned_about(kind):
    module = dropped().train()
    with pytest.warns(UserWarning, match=r"in training mode .*Dropout.*eval\(\)"):
        measure(BEHIND[kind](module))
    assert all(part.training for part in module.modules())


def test_a_global_module_in_training_mode():
    with pytest.warns(UserWarning, match="training mode"):
        measure(lambda rows: GLOBAL(rows))


@pytest.mark.parametrize("kind", BEHIND)
def test_evaluation_mode_behind_a_function_is_silent(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(BEHIND[kind](dropped().eval()))
        measure(BEHIND[kind](normed().eval()))


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)),
        torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.Dropout(0.0), torch.nn.LayerNorm(4), torch.nn.Linear(4, 1)),
        Mixed(torch.ones(())),
    ],
)
def test_modules_without_a_mode_are_not_warned_about(module):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(lambda rows: module.train()(rows))


def test_a_function_that_sets_the_mode_is_not_warned_about():
    module = dropped().train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(lambda rows: module.eval()(rows))


def test_the_mode_is_read_where_the_module_reads_it():
    class Own(torch.nn.Module):
        def forward(self, rows):
            return torch.nn.functional.dropout(rows, 0.5, self.training)[:, 0]

    with pytest.warns(UserWarning, match="Own"):
        measure(functools.partial(apply, Own()))


@pytest.mark.parametrize("kind", BEHIND)
def test_running_statistics_stay(kind):
    module = normed().train()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=r"changed the buffer '1.running_mean'.*eval\(\)") as caught:
        measure(BEHIND[kind](module))
    assert len(str(caught.value)) <= 300
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_running_statistics_stay_after_an_error():
    module = normed().train()
    before = copy.deepcopy(module.state_dict())

    def model(rows):
        module(rows)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(model)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def nnx_network(batch):
    nnx = pytest.importorskip("flax.nnx")

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(P, 4, rngs=rngs)
            self.middle = nnx.BatchNorm(4, rngs=rngs) if batch else nnx.Dropout(0.5, rngs=rngs)
            self.last = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, rows):
            return self.last(self.middle(self.first(rows)))[:, 0]

    return Network(nnx.Rngs(0))


NNX = {"itself": lambda m: m, **{k: BEHIND[k] for k in ("closure", "partial", "method", "object")}}


@pytest.mark.parametrize("kind", NNX)
@pytest.mark.filterwarnings("ignore:.*cannot be traced:UserWarning")
@pytest.mark.slow
def test_nnx_modules(kind):
    jax = pytest.importorskip("jax")
    rows, y = jax.numpy.asarray(X), jax.numpy.asarray(Y)

    def run(model):
        return rl.permutation_importance(NNX[kind](model), rows, y, draws=3, rng=0)

    with pytest.warns(UserWarning, match=r"training mode \(middle: Dropout\)"):
        run(nnx_network(batch=False))
    module = nnx_network(batch=True)
    before = np.asarray(module.middle.mean[...])
    with pytest.raises(ValueError, match=r"changed the statistic 'middle.mean'"):
        run(module)
    np.testing.assert_array_equal(np.asarray(module.middle.mean[...]), before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (False, True):
            module = nnx_network(batch)
            module.eval()
            run(module)


# ---------------------------------------------------------------------------------------------------------------------
# Threads


def together(*tasks):
    """All at the same time; the first error is raised."""
    errors = []
    barrier = threading.Barrier(len(tasks))

    def run(task):
        barrier.wait()
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_calls_on_one_module():
    """The first call ends while the second is inside the module: that one must stay in evaluation mode."""
    module = dropped().train()
    module[2].eval()
    modes = [part.training for part in module.modules()]
    expected = measure(module).values
    inside, ended, found = threading.Event(), threading.Event(), {}

    def hold(part, given):
        if threading.current_thread().name == "second":
            inside.set()
            assert ended.wait(20)

    module.register_forward_pre_hook(hold)
    second = threading.Thread(name="second", target=lambda: found.update(second=measure(module).values))
    second.start()
    assert inside.wait(20)
    np.testing.assert_array_equal(measure(module).values, expected)
    assert not any(part.training for part in module.modules())
    ended.set()
    second.join()
    np.testing.assert_array_equal(found["second"], expected)
    assert [part.training for part in module.modules()] == modes


def test_a_module_and_a_part_of_it():
    module = dropped().train()
    from reliance.models.modules import evaluation_mode

    with evaluation_mode(module):
        with evaluation_mode(module[1]):
            assert not module[1].training
        assert not module[1].training
        assert not module.training
    assert all(part.training for part in module.modules())


def test_many_calls_at_the_same_time():
    module = dropped().train()
    expected, found = measure(module).values, []
    together(*[lambda: found.append(measure(module).values) for _ in range(8)])
    for values in found:
        np.testing.assert_array_equal(values, expected)
    assert all(part.training for part in module.modules())


@pytest.mark.parametrize("show", [repr, lambda result: result._repr_html_(), lambda result: result.to_frame()])
def test_showing_a_result_changes_no_filter_of_warnings(show):
    heavy = np.float64([1e6, *np.zeros(N - 1)])  # skewed, so that interval() warns
    result = rl.permutation_importance(lambda rows: rows[:, 0], X.astype(np.float64), heavy, draws=3, rng=0)
    before = list(warnings.filters)
    together(*[lambda: [show(result) for _ in range(20)] for _ in range(8)])
    assert warnings.filters == before


def test_the_library_sets_no_filter_of_warnings():
    from pathlib import Path

    root = Path(rl.__file__).parent
    # The command line is a program of its own: nobody else's threads run in it.
    for path in set(root.rglob("*.py")) - set((root / "cli").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        code = [line for line in lines if not line.strip().startswith((">>>", "..."))]
        assert not any("catch_warnings" in line or "simplefilter" in line for line in code), path


# ---------------------------------------------------------------------------------------------------------------------
# Data that are no arrays


def on_disk(tmp_path):
    file = pytest.importorskip("h5py").File(tmp_path / "rows.h5", "w")
    return file.create_dataset("rows", data=X)


def of_dask(tmp_path):
    return type("Array", (), {"__module__": "dask.array.core"})()


ODD = {
    "DataLoader": lambda path: torch.utils.data.DataLoader(rows_of_torch(), batch_size=4),
    "TensorDataset": lambda path: rows_of_torch(),
    "h5py Dataset": on_disk,
    "dask Array": of_dask,
    "sparse csr_matrix": lambda path: pytest.importorskip("scipy.sparse").csr_matrix(X),
    "sparse coo_array": lambda path: pytest.importorskip("scipy.sparse").coo_array(X),
    "meta device": lambda path: torch.from_numpy(X).to("meta"),
    "sparse torch": lambda path: torch.from_numpy(X).to_sparse(),
    "sparse torch tensor": lambda path: torch.from_numpy(X).to_sparse_csr(),
    "nested torch": lambda path: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "quantized": lambda path: torch.quantize_per_tensor(torch.from_numpy(X), 0.1, 0, torch.qint8),
}
# Rows are read in blocks where they are: tests/test_rows_on_disk.py.
READ = ("TensorDataset", "h5py Dataset", "sparse csr_matrix")
WHAT_TO_DO = (
    r"torch\.cat|torch\.stack|X\.dataset|tocsr\(\)|\[:\]|compute\(\)|toarray\(\)|to_dense|to_padded|values|dequantize"
)


def rows_of_torch():
    return torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("place", ["X", "y", "weights"])
@pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning", "ignore:Sparse", "ignore:.*quantize:UserWarning")
def test_data_that_are_no_arrays(kind, place, tmp_path):
    if place == "X" and kind in READ:
        return
    odd = ODD[kind](tmp_path)
    given = {"X": torch.from_numpy(X), "y": torch.from_numpy(Y), "weights": torch.ones(N)} | {place: odd}
    with pytest.raises(TypeError, match=f"{place} is a .*{kind}.*({WHAT_TO_DO})") as caught:
        rl.permutation_importance(lambda rows: rows[:, 0], given["X"], given["y"], weights=given["weights"], draws=3)
    assert len(str(caught.value)) <= 300


def test_several_inputs_that_are_no_arrays():
    parts = (torch.from_numpy(X), torch.from_numpy(X).to("meta"))
    with pytest.raises(TypeError, match=r"X\[1\] is a torch tensor on the meta device"):
        rl.permutation_importance(lambda a, b: a[:, 0], parts, torch.from_numpy(Y), draws=3)


@pytest.mark.slow
def test_calls_inside_of_jax():
    """Whatever is traced: the rows, the labels, or what the model or the loss closes over."""
    jax = pytest.importorskip("jax")
    rows, y, w = jax.numpy.asarray(X), jax.numpy.asarray(Y), jax.numpy.ones(P)

    def value(rows, y, w, scale):
        def loss(y, p):
            return scale * (y - p) ** 2

        result = rl.permutation_importance(lambda Z: Z @ w, rows, y, draws=3, rng=0, loss=loss)
        return result.values[0]

    for place in range(4):
        given = [rows, y, w, 1.0]
        odd = jax.numpy.asarray(given[place])

        def one(x, given=given, place=place):
            return value(*[x if k == place else v for k, v in enumerate(given)])

        for call in (jax.jit(one), jax.grad(one), lambda x, one=one: jax.vmap(one)(jax.numpy.stack([x, x]))):
            with pytest.raises(TypeError, match=r"rl\.functional") as caught:
                call(odd)
            assert len(str(caught.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# Losses of other libraries, and models of other libraries


def test_a_symmetric_loss_of_torch_is_a_loss():
    module = torch.nn.Sequential(torch.nn.Linear(P, 1), torch.nn.Flatten(0))
    ours = rl.permutation_importance(module, X, Y, draws=3, rng=0)
    theirs = rl.permutation_importance(module, X, Y, draws=3, rng=0, loss=torch.nn.MSELoss(reduction="none"))
    np.testing.assert_allclose(theirs.values, ours.values, rtol=1e-5)


def test_labels_without_y():
    forest = pytest.importorskip("sklearn.ensemble").RandomForestClassifier(3).fit(X, np.where(Y > 0, "yes", "no"))
    for call in (rl.sobol_total, rl.feature_impact, rl.local_importance):
        with pytest.raises(ValueError, match=r"the model predicts labels.*predict_proba"):
            call(forest, X)
    with pytest.raises(TypeError, match=r"no decision_function.*loss='log_loss'"):
        rl.permutation_importance(forest, X, np.where(Y > 0, "yes", "no"), loss="cross_entropy")


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.slow
def test_catboost_with_other_arrays(kind):
    """Its estimators have no hash; its trees predict where the rows are."""
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(iterations=3, depth=2, verbose=0, allow_writing_files=False).fit(X, Y)
    convert = torch.from_numpy if kind == "torch" else pytest.importorskip("jax.numpy").asarray
    rows, labels = convert(X), convert(Y)
    found = rl.permutation_importance(model, rows, labels, draws=3, rng=0)
    # The rows as that array holds them (JAX rounds to float32): the model itself, called on the host.
    expected = rl.permutation_importance(model.predict, np.asarray(rows), np.asarray(labels), draws=3, rng=0)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    np.testing.assert_allclose(found.std_error, expected.std_error, rtol=1e-4)


def test_onnx_files_and_providers(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx' is not a file"):
        rl.models.onnx(tmp_path / "absent.onnx")
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    for providers in (["NoSuchProvider"], "NoSuchProvider", [("NoSuchProvider", {})]):
        with pytest.raises(ValueError, match=r"providers: 'NoSuchProvider' is not known.*CPUExecutionProvider"):
            rl.models.onnx(path, providers=providers)
