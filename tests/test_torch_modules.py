"""Torch modules: evaluation mode and its restoration, no gradients, data moved once and explicitly."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import reliance as rl
from methods import METHODS

torch = pytest.importorskip("torch")


def data(n=16, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + rng.normal(size=n)


def network(dtype=torch.float64):
    torch.manual_seed(0)
    layers = (
        torch.nn.Linear(3, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 1),
    )
    return torch.nn.Sequential(*layers).to(dtype)


def modes(module):
    return [part.training for part in module.modules()]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:pairs=:UserWarning")
def test_evaluation_mode_during_the_call_and_the_own_mode_after(method, training):
    module = network().train(training)
    module[1].eval()  # a frozen part stays frozen
    before, state = modes(module), copy.deepcopy(module.state_dict())
    seen = []
    module.register_forward_hook(lambda part, given, out: seen.append((modes(part), out.requires_grad)))
    X, y = data()
    result = METHODS[method](module, torch.from_numpy(X), torch.from_numpy(y), compare="difference")
    assert all(not any(mode) for mode, _ in seen)
    assert not any(grad for _, grad in seen)
    assert modes(module) == before
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), f"{name} was changed"
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    by_hand = copy.deepcopy(module).eval()

    def predict(x):
        with torch.no_grad():
            return by_hand(torch.from_numpy(np.asarray(x))).numpy()

    expected = METHODS[method](predict, X, y, compare="difference")
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("when", [1, 3])
def test_modes_come_back_after_an_error(when):
    module = network().train()
    module[3].eval()
    before, calls = modes(module), []

    def fail(part, given):
        calls.append(1)
        if len(calls) == when:
            raise ZeroDivisionError

    module.register_forward_pre_hook(fail)
    X, y = data()
    with pytest.raises(ZeroDivisionError):
        rl.permutation_importance(module, torch.from_numpy(X), torch.from_numpy(y), draws=3, run=rl.Run(block=4))
    assert modes(module) == before
    assert torch.is_grad_enabled()


def test_plain_callables_record_no_gradient():
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    grads = []

    def model(x):
        out = x @ weight
        grads.append(out.requires_grad)
        return out

    X, y = data()
    rl.model_reliance(model, torch.from_numpy(X), torch.from_numpy(y))
    assert grads
    assert not any(grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_data_go_to_the_module(dtype):
    X, y = data()
    module = network(dtype)
    weights = np.linspace(1.0, 2.0, len(X))
    by_numpy = METHODS["all"](module, X, y, weights=weights)
    arrays = torch.from_numpy(X).to(dtype), torch.from_numpy(y)
    by_torch = METHODS["all"](module, *arrays, weights=torch.from_numpy(weights))
    np.testing.assert_allclose(by_numpy.values, by_torch.values, rtol=1e-12)


def test_lists_go_to_the_module():
    X, y = data()
    module = network()
    np.testing.assert_array_equal(
        METHODS["all"](module, X.tolist(), y.tolist()).values, METHODS["all"](module, X, y).values
    )


def test_floating_tensors_take_the_dtype_of_the_module():
    X, y = data()
    seen = set()
    module = network(torch.float32)
    module.register_forward_pre_hook(lambda part, given: seen.add(given[0].dtype))
    rl.permutation_importance(module, torch.from_numpy(X), torch.from_numpy(y), draws=3)
    assert seen == {torch.float32}


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_integers_for_a_floating_module(convert):
    X, y = data()
    with pytest.raises(
        TypeError, match=r"X has dtype torch.int64 but the model computes in torch.float64: pass X.to\("
    ):
        rl.permutation_importance(network(), convert((10 * X).astype(np.int64)), convert(y), draws=3)


def test_embeddings_take_integers():
    class Looked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.table = torch.nn.Embedding(5, 2)

        def forward(self, x):
            return self.table(x).sum(dim=(1, 2))

    X = np.random.default_rng(0).integers(0, 5, size=(12, 3))
    y = np.random.default_rng(1).normal(size=12).astype(np.float32)
    module = Looked()
    table = module.table.weight.detach().numpy().astype(np.float64)
    result = METHODS["all"](module, torch.from_numpy(X), torch.from_numpy(y), compare="difference")
    expected = METHODS["all"](lambda x: table[x].sum(axis=(1, 2)), X, y.astype(np.float64), compare="difference")
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-4)


def test_module_and_tensor_on_different_devices():
    X, y = data()
    with pytest.raises(ValueError, match=r"X is on cpu but the model's parameters are on meta: move one of them"):
        rl.permutation_importance(network().to("meta"), torch.from_numpy(X), torch.from_numpy(y))


def test_a_function_that_answers_on_another_device():
    X, y = data()
    with pytest.raises(ValueError, match=r"returned a torch array on meta for a torch array on cpu: move"):
        rl.permutation_importance(lambda x: x[:, 0].to("meta"), torch.from_numpy(X), torch.from_numpy(y), draws=3)


@pytest.mark.parametrize("backend_name", ["jax", "array_api_strict"])
def test_other_arrays_for_a_torch_module(backend_name):
    xp = pytest.importorskip("jax.numpy" if backend_name == "jax" else backend_name)
    X, y = (xp.asarray(np.float32(a)) for a in data())
    with pytest.raises(TypeError, match=r"X is a .* but the model is a torch module: pass X as a torch tensor"):
        rl.permutation_importance(network(), X, y)


def test_a_module_without_parameters():
    class First(torch.nn.Module):
        def forward(self, x):
            return x[:, 0]

    X, y = data()
    by_module = METHODS["all"](First(), X, y)
    np.testing.assert_allclose(by_module.values, METHODS["all"](lambda x: x[:, 0], X, y).values, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    X, y = data()
    x = torch.from_numpy(X).to(dtype)
    result = METHODS["all"](lambda x: 2 * x[:, 0], x, torch.from_numpy(y), compare="difference")
    rounded = x.to(torch.float64).numpy()
    expected = METHODS["all"](lambda x: 2 * x[:, 0], rounded, y, compare="difference")
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-5, atol=1e-6)  # doubling is exact, sums are wide


def test_tensors_that_want_gradients_or_have_strides():
    X, y = data()
    plain = METHODS["all"](network(), torch.from_numpy(X), torch.from_numpy(y))
    wanting = torch.from_numpy(X).requires_grad_()
    strided = torch.from_numpy(np.repeat(X, 2, axis=1))[:, ::2]
    transposed = torch.from_numpy(np.asfortranarray(X))
    for x in (wanting, strided, transposed):
        np.testing.assert_array_equal(METHODS["all"](network(), x, torch.from_numpy(y)).values, plain.values)
    assert wanting.grad is None


def test_inference_mode_outside():
    X, y = data()
    with torch.inference_mode():
        inside = METHODS["all"](network(), torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(inside.values, METHODS["all"](network(), X, y).values)


def test_a_module_of_images():
    torch.manual_seed(2)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(18, 3)).double()
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(8, 1, 5, 5)), rng.integers(0, 3, size=8)
    mask = np.kron([[0, 1], [2, 3]], np.ones((3, 3), dtype=int))[:5, :5][None]
    result = METHODS["all"](module, X, y, loss="cross_entropy", features=mask)

    def predict(x):
        with torch.no_grad():
            return module(torch.from_numpy(x.copy())).numpy()

    expected = METHODS["all"](predict, X, y, loss="cross_entropy", features=mask)
    assert result.names == ("0", "1", "2", "3")
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-10)
