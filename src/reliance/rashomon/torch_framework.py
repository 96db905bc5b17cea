"""Searches in torch: modules called with other parameters, and functions of a dict of tensors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import describe, epsilon
from reliance._core.kinds import Array, HostArray, TorchArray
from reliance._core.words import shown
from reliance.models import modules
from reliance.models.libraries import TorchModule
from reliance.rashomon.ascent import tangential
from reliance.rashomon.frameworks import Merit, Operands, Pressure, as_column, is_tensor_dict, not_differentiable

# (params, X) -> predictions
Call: TypeAlias = Callable[[dict[str, TorchArray], Array], Array]


@dataclass(frozen=True, eq=False)
class TorchFramework:
    """See `reliance.rashomon.frameworks.Framework`.

    Attributes
    ----------
    call : callable
        ``(params, X) -> predictions``.
    module : torch.nn.Module or None
    shapes : dict
        Of the parameters, by name.
    first : tensor (d,)
    """

    call: Call
    module: TorchModule | None
    shapes: dict[str, tuple[int, ...]]
    first: TorchArray

    @staticmethod
    def of(apply: object, params: object) -> TorchFramework:
        module = apply if modules.is_torch_module(apply) else None
        if module is not None:
            own = {name: p for name, p in module.named_parameters() if p.requires_grad}
            if not own:
                raise not_differentiable("the module has no parameters that require gradients")
            call, everything = _module_call(module), [*module.parameters(), *module.buffers()]
        else:
            assert callable(apply)
            assert is_tensor_dict(params)
            own, call, everything = params, apply, list(params.values())
        homes = sorted({str(tensor.device) for tensor in everything})
        if len(homes) > 1:
            raise ValueError(f"the model's parameters are on several devices, {', '.join(homes)}: move them to one")
        for name, value in own.items():
            if not value.is_floating_point():
                raise not_differentiable(f"parameter {shown(name)} has dtype {value.dtype}")
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        return TorchFramework(call, module, shapes, _vector(own if params is None else params, shapes))

    def vector(self, params: object) -> TorchArray:
        return _vector(params, self.shapes)

    def tree(self, theta: Array) -> dict[str, TorchArray]:
        parts = _tensor(theta).split([math.prod(shape) for shape in self.shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def predict(self, theta: Array, X: Array) -> Array:
        return as_column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[dict[str, TorchArray], Array], Array]:
        def function(params: dict[str, TorchArray], X: Array) -> Array:
            rows = self._uploaded(X) if isinstance(X, np.ndarray) else X
            with self.precise():
                found = as_column(self.call({name: value.to(rows.dtype) for name, value in params.items()}, rows))
            return arrays.to_host(found) if isinstance(X, np.ndarray) else found

        return function

    def at_home(self, X: Array, y: Array) -> tuple[Array, Array]:
        if isinstance(X, np.ndarray):
            return self._uploaded(X), self._uploaded(arrays.to_host(y))
        if not arrays.is_torch_array(X):
            raise TypeError(f"X is a {describe(X)} but the parameters are torch tensors: pass X as a torch tensor")
        if X.device != self.first.device:
            raise ValueError(
                f"X is on {X.device} but the model's parameters are on {self.first.device}: move one of them, for "
                f"instance X.to({shown(str(self.first.device))})"
            )
        return X, y

    def _uploaded(self, x: HostArray) -> Array:
        return arrays.from_host(x, arrays.namespace(self.first), self.first.device)

    def widened(self, x: Array) -> Array:
        return _tensor(x).detach().double() if _tensor(x).is_floating_point() else x

    def narrowed(self, x: Array) -> Array:
        return _tensor(x).to(self.first.dtype) if _tensor(x).is_floating_point() else x

    def session(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.module is None else modules.evaluation_mode(self.module)

    @contextlib.contextmanager
    def precise(self) -> Iterator[None]:
        import torch

        with torch.no_grad(), self.session():
            yield

    def compiled(self, function: Callable[..., Array]) -> Callable[..., Array]:
        return function

    def slope(self, merit: Merit, theta: Array, operands: Operands, shifts: Array, pressure: Pressure) -> Array:
        import torch

        leaf = _tensor(theta).clone().requires_grad_(True)
        try:
            found: Array = torch.autograd.grad(merit(leaf, operands, shifts, pressure)[0], leaf)[0]
            return found
        except (RuntimeError, TypeError) as error:
            raise not_differentiable(str(error).splitlines()[0]) from error

    def optimiser(self, merit: Merit, radius: float) -> _Adam:
        return _Adam(merit, radius * (1.0 - 4.0 * epsilon(self.first)))


def _tensor(x: Array) -> TorchArray:
    assert arrays.is_torch_array(x)
    return x


def _vector(params: object, shapes: dict[str, tuple[int, ...]]) -> TorchArray:
    import torch

    values = dict(params.named_parameters()) if modules.is_torch_module(params) else params
    found = isinstance(values, dict) and all(
        name in values and tuple(values[name].shape) == shape for name, shape in shapes.items()
    )
    if not found or not isinstance(values, dict):
        raise ValueError(f"the parameters must be a dict or module with tensors of shapes {shapes}")
    theta: TorchArray = torch.cat([values[name].detach().reshape(-1) for name in shapes])
    return theta


def _module_call(module: TorchModule) -> Call:
    """The module as a function of the parameters that are searched; the others, and buffers, in the dtype of X."""
    import torch

    def call(values: dict[str, TorchArray], X: Array) -> Array:
        fixed = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        fixed = {k: v.detach().to(X.dtype) if v.is_floating_point() else v for k, v in fixed.items()}
        found: Array = torch.func.functional_call(module, {**fixed, **values}, (X,))
        return found

    return call


class _TorchAdam(Protocol):
    """The optimiser of torch."""

    param_groups: list[dict[str, object]]

    def step(self) -> object: ...


class _State(NamedTuple):
    leaf: TorchArray
    optimiser: _TorchAdam


@dataclass(frozen=True, eq=False)
class _Adam:
    merit: Merit
    radius: float

    def start(self, theta: Array) -> _State:
        import torch

        leaf = _tensor(theta).detach().clone().requires_grad_(True)
        # On a GPU its count of steps is kept there, too: nothing is read between steps.
        return _State(leaf, torch.optim.Adam([leaf], capturable=str(leaf.device).startswith("cuda")))

    def run(
        self, state: object, operands: Operands, rates: list[float], shifts: Array, pressure: Pressure
    ) -> tuple[_State, Array, Array]:
        import torch

        assert isinstance(state, _State)
        leaf, optimiser = state
        for rate, donors in zip(rates, shifts, strict=True):
            optimiser.param_groups[0]["lr"] = rate
            merit, risk = self.merit(leaf, operands, donors, pressure)
            (slope,) = torch.autograd.grad(merit, leaf)
            with torch.no_grad():
                leaf.grad = tangential(slope, leaf, self.radius)
                optimiser.step()
                leaf.mul_(torch.clamp(self.radius / torch.linalg.vector_norm(leaf), max=1.0))
        return state, leaf.detach().clone(), _tensor(risk).detach()


def seen_by(module: TorchModule, layer: TorchModule, X: Array) -> tuple[TorchArray, TorchArray, TorchArray]:
    """What enters and what leaves a layer, and the module's answer, for some rows; no gradients are kept."""
    import torch

    seen: list[tuple[TorchArray, TorchArray]] = []

    def note(_: object, given: tuple[TorchArray, ...], found: TorchArray) -> None:
        seen.append((given[0], found))

    handle = layer.register_forward_hook(note)
    try:
        with torch.no_grad(), modules.evaluation_mode(module):
            answer = module(modules.in_dtype(X, (modules.home(module) or (None, None))[1]))
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ValueError(f"the last linear layer is called {len(seen)} times in a pass: pass a basis of your own")
    entered, left = seen[0]
    return entered.to(X.dtype), left, answer
