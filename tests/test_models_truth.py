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
    from reliance.modules import evaluation_mode

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
