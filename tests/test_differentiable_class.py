"""Searches by gradients: a linear model's exact range is found and never exceeded; what is returned is in the set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.rashomon import ascent
from reliance.rashomon.frameworks import Operands

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

N, P = 30, 3
SETTINGS: dict[str, Any] = {"radius": 20.0, "starts": 2, "steps": 300, "learning_rate": 0.05}
MEASURES = {False: rl.model_class_reliance, True: rl.conditional_model_class_reliance}


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    X[:, 1] += 0.5 * X[:, 0]
    return X, X @ [1.0, 0.5, 0.2] + 0.3 + rng.normal(size=N)


def torch_linear(bias: bool = True, **settings: Any) -> rl.DifferentiableClass:
    torch.manual_seed(0)
    return rl.DifferentiableClass(torch.nn.Linear(P, 1, bias=bias), **(SETTINGS | settings))


def jax_linear(bias: bool = True, **settings: Any) -> rl.DifferentiableClass:
    params = {"w": jax.numpy.full(P, 0.1)} | ({"b": jax.numpy.zeros(())} if bias else {})
    return rl.DifferentiableClass(lambda p, X: X @ p["w"] + p.get("b", 0.0), params, **(SETTINGS | settings))


def literal_reliance(model: Any, X: np.ndarray, y: np.ndarray, columns: list[int], conditional: bool) -> float:
    """Both risks by a loop over rows, the other row's values, or residuals, written into each."""
    own, lent = np.zeros((len(X), len(columns))), X[:, columns]
    if conditional:
        design = np.column_stack([np.ones(len(X)), np.delete(X, columns, axis=1)])
        own = design @ np.linalg.lstsq(design, lent, rcond=None)[0]
        lent = lent - own
    switched = []
    for i in range(len(X)):
        rows = np.repeat(X[i : i + 1], len(X), axis=0)
        rows[:, columns] = own[i] + lent
        switched.append(np.delete((y[i] - model(rows)) ** 2, i))
    return float(np.mean(switched) / np.mean((y - model(X)) ** 2))


@pytest.mark.parametrize(
    ("make", "compare", "conditional"),
    [
        (torch_linear, "ratio", False),
        pytest.param(torch_linear, "difference", False, marks=pytest.mark.slow),
        pytest.param(torch_linear, "ratio", True, marks=pytest.mark.slow),
        (jax_linear, "difference", True),
    ],
)
def test_the_exact_linear_range(make: Any, compare: str, conditional: bool) -> None:
    X, y = problem()
    settings: dict[str, Any] = {"compare": compare, "features": {"pair": (0, 2)}, "rng": 0}
    found = MEASURES[conditional](make(), X, y, epsilon=0.1, **settings)
    exact = MEASURES[conditional](rl.LinearClass(), X, y, epsilon=0.1, reference=found.reference_risk, **settings)
    least = np.linalg.lstsq(np.column_stack([X, np.ones(N)]), y, rcond=None)[1][0] / N
    assert least * (1 - 1e-12) <= found.reference_risk <= least * (1 + 1e-3)
    assert np.isnan([found.lower, found.upper]).all()
    assert found.spread is not None
    assert found.spread.shape == (1, 2)
    assert exact.lower[0] - 1e-9 <= found.achieved_lower[0] <= found.achieved_upper[0] <= exact.upper[0] + 1e-9
    np.testing.assert_allclose(found.achieved_lower, exact.lower, rtol=1e-3)
    np.testing.assert_allclose(found.achieved_upper, exact.upper, rtol=1e-3)
    for model, risk, value in (
        (found.lower_models[0], found.lower_risks[0], found.achieved_lower[0]),
        (found.upper_models[0], found.upper_risks[0], found.achieved_upper[0]),
    ):
        assert risk <= found.bound
        digits = 1e-10 if make is torch_linear else 1e-5  # JAX computes NumPy's rows in float32 unless told otherwise
        np.testing.assert_allclose(np.mean((y - model(X)) ** 2), risk, rtol=digits)
        if compare == "ratio":
            np.testing.assert_allclose(literal_reliance(model, X, y, [0, 2], conditional), value, rtol=digits)


@pytest.mark.parametrize("make", [torch_linear, jax_linear])
@pytest.mark.slow
def test_the_ball_of_a_linear_class(make: Any) -> None:
    """Where the ball binds: within the certified bounds, and as good as the search of the linear class."""
    X, y = problem()
    radius = 0.9
    settings: dict[str, Any] = {"epsilon": 0.2, "features": [0], "rng": 0}
    found = rl.model_class_reliance(make(bias=False, radius=radius), X, y, **settings)
    ridge = rl.LinearClass(ridge=radius, intercept=False)
    exact = rl.model_class_reliance(ridge, X, y, reference=found.reference_risk, **settings)
    best = rl.model_class_reliance(ridge, X, y, **settings).reference_risk
    assert best * (1 - 1e-12) <= found.reference_risk <= best * (1 + 1e-3)
    assert exact.lower[0] - 1e-9 <= found.achieved_lower[0] <= found.achieved_upper[0] <= exact.upper[0] + 1e-9
    np.testing.assert_allclose(found.achieved_lower, exact.achieved_lower, rtol=1e-3)
    np.testing.assert_allclose(found.achieved_upper, exact.achieved_upper, rtol=1e-3)
    for model in (found.lower_models[0], found.upper_models[0]):
        leaves = [np.asarray(leaf, dtype=np.float64) for leaf in model.params.values()]
        assert np.sqrt(sum(float(np.sum(leaf**2)) for leaf in leaves)) <= radius


def network(**settings: Any) -> tuple[Any, rl.DifferentiableClass]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    defaults: dict[str, Any] = {"radius": 6.0, "starts": 2, "steps": 40, "shifts": 5}
    return net, rl.DifferentiableClass(net, **(defaults | settings))


@pytest.mark.slow
def test_a_network_with_sampled_donors() -> None:
    X, y = problem()
    net, given = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    seen: list[tuple[int, int]] = []
    found = rl.model_class_reliance(
        given, X, y, epsilon=0.3, features=[0, 1], rng=3, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 2), (2, 2)]
    assert np.all(found.achieved_lower < found.achieved_upper)
    assert max(found.lower_risks.max(), found.upper_risks.max()) <= found.bound
    assert net.training  # left as it was
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    for column in range(2):
        model = found.upper_models[column]
        value = literal_reliance(model, X, y, [column], False)
        np.testing.assert_allclose(found.achieved_upper[column], value, rtol=1e-10)
        assert value == pytest.approx(rl.model_reliance(model, X, y, features=[column]).values[0], rel=1e-10)
    again = rl.model_class_reliance(given, X, y, epsilon=0.3, features=[0, 1], rng=3)
    np.testing.assert_array_equal(again.achieved_upper, found.achieved_upper)
    np.testing.assert_array_equal(again.spread, found.spread)
    other = rl.model_class_reliance(given, X, y, epsilon=0.3, features=[0, 1], rng=4)
    assert np.any(other.achieved_upper != found.achieved_upper)


def test_a_found_model_is_a_reference() -> None:
    X, y = problem()
    _, given = network(steps=10)
    found = rl.model_class_reliance(given, X, y, epsilon=0.3, features=[0], rng=0)
    again = rl.model_class_reliance(given, X, y, epsilon=0.0, reference=found.upper_models[0], features=[0], rng=0)
    assert again.bound == pytest.approx(found.upper_risks[0], rel=1e-12)
    _, small = network(radius=0.1)
    with pytest.raises(ValueError, match="raise radius"):
        rl.model_class_reliance(small, X, y, epsilon=0.3, reference=found.upper_models[0])
    with pytest.raises(ValueError, match="tensors of shapes"):
        rl.model_class_reliance(given, X, y, epsilon=0.3, reference=torch.nn.Linear(P, 1))
    _, untrained = network(steps=1, starts=1)  # finds nothing as good as the reference
    only = rl.model_class_reliance(untrained, X, y, epsilon=0.0, reference=found.upper_models[0], features=[0], rng=0)
    assert only.achieved_upper[0] >= found.achieved_upper[0] * (1 - 1e-12)


def test_ctrl_c_leaves_the_module_as_it_was() -> None:
    X, y = problem()

    class Interrupted(torch.nn.Linear):  # type: ignore[name-defined, misc]
        calls = 0

        def forward(self, batch: Any) -> Any:
            Interrupted.calls += 1
            if Interrupted.calls == 30:
                raise KeyboardInterrupt
            return super().forward(batch)

    module = Interrupted(P, 1)
    before = module.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt):
        rl.model_class_reliance(rl.DifferentiableClass(module, radius=5.0), X, y, epsilon=0.1)
    assert module.training
    assert torch.equal(module.weight, before)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_blocks_of_the_gradient(library: str) -> None:
    """Blocks of any size give the same sums and slopes, and no call of the model has more cells than a block."""
    X, y = problem()
    shifts, seen = np.arange(1, 8), []

    def sums(theta: Any, operands: Operands, cells: int) -> Any:
        def predict(rows: Any) -> Any:
            seen.append(rows.shape[0])
            return rows @ theta

        return ascent.loss_sums(predict, operands, steps, "squared_error", cells)

    kept = X.copy()
    kept[:, 1] = 0.0
    host = Operands(X, y, kept, X - kept)
    weights = np.array([1.0, -2.0, 0.5])
    expected = np.array([0.0, 0.0])
    for i in range(N):
        expected[0] += (y[i] - X[i] @ weights) ** 2
        for s in shifts:
            row = X[i].copy()
            row[1] = X[(i + s) % N, 1]
            expected[1] += (y[i] - row @ weights) ** 2
    slopes = []
    for cells in (10**6, 64, 1):
        seen.clear()
        if library == "torch":
            operands, steps = Operands(*map(torch.from_numpy, host)), torch.from_numpy(shifts)
            theta = torch.from_numpy(weights).requires_grad_(True)
            found = sums(theta, operands, cells)
            slopes.append(torch.autograd.grad(found[1] - 2 * found[0], theta)[0].numpy())
            found = found.detach().numpy()
        else:
            with jax.enable_x64(True):
                operands, steps = Operands(*map(jax.numpy.asarray, host)), jax.numpy.asarray(shifts)
                slope = jax.jit(jax.jacrev(lambda theta: sums(theta, operands, cells)))(jax.numpy.asarray(weights))  # noqa: B023
                slopes.append(np.asarray(slope[1] - 2 * slope[0]))
                found = np.asarray(jax.jit(sums, static_argnums=2)(jax.numpy.asarray(weights), operands, cells))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert max(seen) <= max(cells, len(shifts) + 1)
    for slope in slopes:
        np.testing.assert_allclose(slope, slopes[0], rtol=1e-11)


@pytest.mark.slow
def test_all_pairs_of_many_rows_in_small_blocks() -> None:
    """Cells of a call stay at 2^16, and fewer if there is little memory, whatever the number of pairs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] + rng.normal(size=600)
    largest = [0]

    def apply(params: Any, rows: Any) -> Any:
        largest[0] = max(largest[0], rows.shape[0])
        return rows @ params["w"]

    params = {"w": torch.ones(2)}
    given = rl.DifferentiableClass(apply, params, radius=5.0, starts=1, steps=2, shifts=599)
    settings: dict[str, Any] = {"epsilon": 0.2, "features": [0], "rng": 0}
    whole = rl.model_class_reliance(given, X, y, **settings)
    assert 2**15 < largest[0] <= 2**16
    largest[0] = 0
    little = rl.model_class_reliance(given, X, y, run=rl.Run(memory="200kB"), **settings)
    assert largest[0] <= 200_000 // 64
    np.testing.assert_allclose(little.achieved_upper, whole.achieved_upper, rtol=1e-5)
    model = whole.upper_models[0]
    np.testing.assert_allclose(whole.achieved_upper, rl.model_reliance(model, X, y, features=[0]).values, rtol=1e-10)
    some = rl.DifferentiableClass(apply, params, radius=5.0, starts=1, steps=2, shifts=599, pairs=20)
    sampled = rl.model_class_reliance(some, X, y, **settings)
    assert sampled.achieved_upper[0] == pytest.approx(whole.achieved_upper[0], rel=0.1)


def test_without_a_radius() -> None:
    with pytest.raises(ValueError, match="no meaningful upper end"):
        rl.DifferentiableClass(torch.nn.Linear(P, 1))


@pytest.mark.parametrize(
    ("apply", "params", "match"),
    [
        (torch.nn.Linear(P, 1).requires_grad_(False), None, "require gradients"),
        (lambda p, X: X @ p, np.arange(3), "dtype int64"),
        (lambda p, X: X @ p["w"], {"w": torch.arange(3)}, "dtype torch.int64"),
        (lambda p, X: X @ p["w"], {"w": "heavy"}, "dtype str"),
        (lambda p, X: X, {}, "no arrays"),
    ],
)
def test_parameters_without_gradients(apply: Any, params: Any, match: str) -> None:
    with pytest.raises(TypeError, match=rf"cannot be differentiated.*{match}"):
        rl.DifferentiableClass(apply, params, radius=1.0)


@pytest.mark.parametrize(
    ("apply", "params", "match"),
    [
        (lambda p, X: torch.round(X @ p["w"]), {"w": torch.ones(P)}, "gradient is 0"),
        (lambda p, X: X @ p["w"].detach(), {"w": torch.ones(P)}, "does not require grad"),
        (lambda p, X: np.asarray(X) @ np.asarray(p), jax.numpy.ones(P), "TracerArrayConversionError|traced|Tracer"),
        (lambda p, X: X @ p if p[0] > 0 else X[:, 0], jax.numpy.ones(P), "boolean"),
        (lambda p, X: jax.numpy.round(X @ p), jax.numpy.ones(P), "gradient is 0"),
    ],
)
def test_models_without_gradients(apply: Any, params: Any, match: str) -> None:
    X, y = problem()
    with pytest.raises(TypeError, match=rf"cannot be differentiated.*({match})"):
        rl.model_class_reliance(rl.DifferentiableClass(apply, params, radius=5.0), X, y, epsilon=0.1)


def test_other_devices_and_libraries() -> None:
    X, y = problem()
    with pytest.raises(TypeError, match="torch tensor"):
        rl.model_class_reliance(torch_linear(), jax.numpy.asarray(X), jax.numpy.asarray(y), epsilon=0.1)
    with pytest.raises(TypeError, match="JAX array"):
        rl.model_class_reliance(jax_linear(), torch.from_numpy(X), torch.from_numpy(y), epsilon=0.1)
    on_meta = rl.DifferentiableClass(torch.nn.Linear(P, 1, device="meta"), radius=5.0)
    with pytest.raises(ValueError, match="on cpu but the model's parameters are on meta: move one of them"):
        rl.model_class_reliance(on_meta, torch.from_numpy(X), torch.from_numpy(y), epsilon=0.1)
    both = torch.nn.Sequential(torch.nn.Linear(P, P), torch.nn.Linear(P, 1, device="meta"))
    with pytest.raises(ValueError, match="several devices, cpu, meta"):
        rl.DifferentiableClass(both, radius=5.0)
    with pytest.raises(TypeError, match="pass a dict of tensors"):
        rl.DifferentiableClass(lambda p, X: X @ p[0], [torch.ones(P)], radius=5.0)


def test_bad_settings() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"starts": 0}, "starts=0"),
        ({"steps": 1.5}, "steps=1.5"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"shifts": 0}, "shifts=0"),
        ({"pairs": "halves"}, "pairs='halves'.*'all'"),
        ({"loss": "auc"}, "whole-set metric"),
        ({"radius": -1.0}, "radius=-1.0"),
        ({"radius": True}, "radius=True"),
    ]
    for settings, match in cases:
        with pytest.raises(ValueError, match=match):
            torch_linear(**settings)
    with pytest.raises(TypeError, match="params=None"):
        rl.DifferentiableClass(lambda p, X: X, None, 1.0)
    with pytest.raises(TypeError, match="neither a torch module nor a function"):
        rl.DifferentiableClass(3, None, 1.0)
    X, y = problem()
    broken = rl.DifferentiableClass(lambda p, X: X @ p["w"], {"w": torch.full((P,), torch.nan)}, 1.0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        rl.model_class_reliance(broken, X, y, epsilon=0.1)
    right = rl.DifferentiableClass(lambda p, X: X @ p["w"], {"w": torch.eye(P)[0]}, 5.0, starts=1, steps=1)
    with pytest.raises(ValueError, match="predicts these rows exactly"):
        rl.model_class_reliance(right, X, X[:, 0], epsilon=0.1, relative=False)
