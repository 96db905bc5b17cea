"""Searches by gradients: a linear model's exact range is found and never exceeded; what is returned is in the set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reliance.classes.differentiable import DifferentiableClass, FoundModel
from reliance.classes.linear import LeastSquaresClass
from reliance.classes.protocol import ClassData
from reliance.features import Feature

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

N, P = 30, 3
SETTINGS: dict[str, Any] = {"starts": 2, "steps": 300, "learning_rate": 0.03}
FEATURES = (Feature("a", (0,)), Feature("bc", (1, 2)))


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)).astype(np.float32).astype(np.float64)
    X[:, 1] += 0.5 * X[:, 0]
    X = X.astype(np.float32).astype(np.float64)
    y = X @ [1.0, 0.5, 0.2] + 0.3 + rng.normal(size=N)
    return X, y.astype(np.float32).astype(np.float64)


def torch_linear(**settings: Any) -> tuple[DifferentiableClass, ClassData]:
    X, y = problem()
    torch.manual_seed(0)
    given = DifferentiableClass(torch.nn.Linear(P, 1), None, 20.0, **{**SETTINGS, **settings})
    return given, ClassData(torch.from_numpy(X).float(), torch.from_numpy(y).float(), 0, 10**8)


def jax_linear(**settings: Any) -> tuple[DifferentiableClass, ClassData]:
    X, y = problem()
    params = {"w": jax.numpy.full(P, 0.1), "b": jax.numpy.zeros(())}
    given = DifferentiableClass(lambda p, X: X @ p["w"] + p["b"], params, 20.0, **{**SETTINGS, **settings})
    return given, ClassData(jax.numpy.asarray(X, "float32"), jax.numpy.asarray(y, "float32"), 0, 10**8)


@pytest.mark.parametrize("make", [torch_linear, jax_linear])
@pytest.mark.parametrize(("compare", "conditional"), [("ratio", False), ("difference", False), ("ratio", True)])
def test_exact_linear_answer(make: Any, compare: str, conditional: bool) -> None:
    X, y = problem()
    exact, host = LeastSquaresClass(), ClassData(X, y, 0, 10**8)
    least = exact.best(host).risk
    bound = 1.1 * least
    given, data = make()
    best = given.best(data)
    assert least * (1 - 1e-12) <= best.risk <= least * (1 + 1e-4)
    found = given.ranges(data, bound, FEATURES, compare, conditional, lambda _: None)
    wanted = exact.ranges(host, bound, FEATURES, compare, conditional, lambda _: None)
    for here, there in zip(found, wanted, strict=True):
        assert np.isnan(here.lower)
        assert np.isnan(here.upper)
        assert here.spread is not None
        # Never outside, but for rounding.
        assert there.lower - 1e-9 <= here.achieved_lower <= here.achieved_upper <= there.upper + 1e-9
        assert here.achieved_lower == pytest.approx(there.lower, rel=1e-3)
        assert here.achieved_upper == pytest.approx(there.upper, rel=1e-3)
        for member in (here.least, here.most):
            assert member.risk <= bound
            predictions = np.asarray(member.model(data.X), dtype=np.float64)
            assert predictions.shape == (N,)
            assert np.mean((y - predictions) ** 2) == pytest.approx(member.risk, rel=1e-5)


def test_the_radius_binds() -> None:
    given, data = torch_linear(steps=50, starts=1)
    small = DifferentiableClass(given.apply, None, 0.5, starts=1, steps=50)
    best = small.best(data)
    norm = sum(float((p**2).sum()) for p in best.model.params.values()) ** 0.5  # type: ignore[attr-defined]
    assert norm <= 0.5 * (1 + 1e-6)
    with pytest.raises(ValueError, match="radius"):
        small.contains(data, given.best(data).model)


def test_a_network_and_sampled_donors() -> None:
    X, y = problem()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(P, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    given = DifferentiableClass(net, None, 6.0, starts=2, steps=60, shifts=5)
    data = ClassData(X, y, 0, 10**8)  # NumPy rows go where the module is
    best = given.best(data)
    assert given.best(data).risk == best.risk
    bound = 1.2 * best.risk
    (range_,) = given.ranges(data, bound, FEATURES[:1], "ratio", False, lambda _: None)
    assert range_.achieved_lower < range_.achieved_upper
    assert max(range_.least.risk, range_.most.risk) <= bound
    assert isinstance(range_.most.model(X), np.ndarray)
    assert net.training  # left as it was
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert given.contains(data, range_.most.model).risk == pytest.approx(range_.most.risk, rel=1e-9)
    with pytest.raises(ValueError, match="no model with a risk"):
        given.ranges(data, 0.1 * best.risk, FEATURES[:1], "ratio", False, lambda _: None)


def test_a_function_of_tensors() -> None:
    X, y = problem()
    params = {"w": torch.zeros(P) + 0.1}
    given = DifferentiableClass(lambda p, X: X @ p["w"], params, 5.0, starts=1, steps=50)
    best = given.best(ClassData(torch.from_numpy(X).float(), torch.from_numpy(y).float(), 0, 10**8))
    assert isinstance(best.model, FoundModel)


def test_without_a_radius() -> None:
    with pytest.raises(ValueError, match="no meaningful upper end"):
        DifferentiableClass(torch.nn.Linear(P, 1))


def test_what_cannot_be_differentiated() -> None:
    X, y = problem()
    frozen = torch.nn.Linear(P, 1).requires_grad_(False)
    with pytest.raises(TypeError, match="cannot be differentiated"):
        DifferentiableClass(frozen, None, 1.0)
    with pytest.raises(TypeError, match="cannot be differentiated"):
        DifferentiableClass(lambda p, X: X @ p, np.arange(3), 1.0)
    data = ClassData(torch.from_numpy(X).float(), torch.from_numpy(y).float(), 0, 10**8)
    steps = DifferentiableClass(lambda p, X: torch.round(X @ p["w"]), {"w": torch.ones(P)}, 5.0, starts=1, steps=2)
    with pytest.raises(TypeError, match="gradient is 0"):
        steps.best(data)
    detached = DifferentiableClass(lambda p, X: X @ p["w"].detach(), {"w": torch.ones(P)}, 5.0, starts=1, steps=2)
    with pytest.raises(TypeError, match="cannot be differentiated"):
        detached.best(data)
    on_host = DifferentiableClass(lambda p, X: np.asarray(X) @ np.asarray(p), jax.numpy.ones(P), 5.0, starts=1, steps=2)
    with pytest.raises(TypeError, match="cannot be differentiated"):
        on_host.best(ClassData(jax.numpy.asarray(X), jax.numpy.asarray(y), 0, 10**8))


def test_other_devices_and_libraries() -> None:
    X, y = problem()
    module = torch.nn.Linear(P, 1, device="meta")
    given = DifferentiableClass(torch.nn.Linear(P, 1), None, 5.0)
    with pytest.raises(ValueError, match="move one of them"):
        given.best(ClassData(torch.empty(N, P, device="meta"), torch.empty(N, device="meta"), 0, 10**8))
    with pytest.raises(TypeError, match="torch tensor"):
        given.best(ClassData(jax.numpy.asarray(X), jax.numpy.asarray(y), 0, 10**8))
    with pytest.raises(TypeError, match="JAX array"):
        jax_linear()[0].best(ClassData(torch.from_numpy(X), torch.from_numpy(y), 0, 10**8))
    both = torch.nn.Sequential(torch.nn.Linear(P, P), module)
    with pytest.raises(ValueError, match="several devices"):
        DifferentiableClass(both, None, 5.0)


def test_bad_settings() -> None:
    for settings in ({"starts": 0}, {"steps": 1.5}, {"learning_rate": 0.0}, {"shifts": 0}, {"loss": "auc"}):
        with pytest.raises(ValueError):
            torch_linear(**settings)
    with pytest.raises(TypeError, match="params=None"):
        DifferentiableClass(lambda p, X: X, None, 1.0)
