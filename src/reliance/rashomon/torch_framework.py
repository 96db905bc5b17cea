"""Searches in torch: modules called with other parameters, and functions of a dict of tensors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array, describe, epsilon
from reliance._core.words import shown
from reliance.models import modules
from reliance.rashomon.ascent import tangential
from reliance.rashomon.frameworks import Merit, Operands, Pressure, as_column, not_differentiable


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

    call: Callable[[dict[str, Any], Any], Any]
    module: Any
    shapes: dict[str, tuple[int, ...]]
    first: Any

    @staticmethod
    def of(apply: Any, params: Any) -> TorchFramework:
        is_module = modules.is_torch_module(apply)
        own = params
        if is_module:
            own = {name: p for name, p in apply.named_parameters() if p.requires_grad}
            if not own:
                raise not_differentiable("the module has no parameters that require gradients")
        everything = [*apply.parameters(), *apply.buffers()] if is_module else list(own.values())
        homes = sorted({str(tensor.device) for tensor in everything})
        if len(homes) > 1:
            raise ValueError(f"the model's parameters are on several devices, {', '.join(homes)}: move them to one")
        for name, value in own.items():
            if not value.is_floating_point():
                raise not_differentiable(f"parameter {shown(name)} has dtype {value.dtype}")
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        empty = TorchFramework(_module_call(apply) if is_module else apply, apply if is_module else None, shapes, None)
        return replace(empty, first=empty.vector(own if params is None else params))

    def vector(self, params: Any) -> Any:
        import torch

        values = dict(params.named_parameters()) if modules.is_torch_module(params) else params
        found = isinstance(values, dict) and all(
            name in values and tuple(values[name].shape) == shape for name, shape in self.shapes.items()
        )
        if not found:
            raise ValueError(f"the parameters must be a dict or module with tensors of shapes {self.shapes}")
        return torch.cat([values[name].detach().reshape(-1) for name in self.shapes])

    def tree(self, theta: Any) -> dict[str, Any]:
        parts = theta.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def predict(self, theta: Any, X: Any) -> Any:
        return as_column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[Any, Any], Any]:
        def function(params: Any, X: Any) -> Any:
            rows = self._uploaded(X) if isinstance(X, np.ndarray) else X
            with self.precise():
                found = as_column(self.call({name: value.to(rows.dtype) for name, value in params.items()}, rows))
            return arrays.to_host(found) if isinstance(X, np.ndarray) else found

        return function

    def at_home(self, X: Any, y: Any) -> tuple[Any, Any]:
        import torch

        if isinstance(X, np.ndarray):
            return self._uploaded(X), self._uploaded(y)
        if not isinstance(X, torch.Tensor):
            raise TypeError(f"X is a {describe(X)} but the parameters are torch tensors: pass X as a torch tensor")
        if X.device != self.first.device:
            raise ValueError(
                f"X is on {X.device} but the model's parameters are on {self.first.device}: move one of them, for "
                f"instance X.to({shown(str(self.first.device))})"
            )
        return X, y

    def _uploaded(self, x: Any) -> Any:
        return arrays.from_host(x, arrays.namespace(self.first), self.first.device)

    def widened(self, x: Any) -> Any:
        return x.detach().double() if x.is_floating_point() else x

    def narrowed(self, x: Any) -> Any:
        return x.to(self.first.dtype) if x.is_floating_point() else x

    def session(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.module is None else modules.evaluation_mode(self.module)

    @contextlib.contextmanager
    def precise(self) -> Iterator[None]:
        import torch

        with torch.no_grad(), self.session():
            yield

    def compiled(self, function: Callable[..., Array]) -> Callable[..., Array]:
        return function

    def slope(self, merit: Merit, theta: Any, operands: Operands, shifts: Any, pressure: Pressure) -> Any:
        import torch

        leaf = theta.clone().requires_grad_(True)
        try:
            return torch.autograd.grad(merit(leaf, operands, shifts, pressure)[0], leaf)[0]
        except (RuntimeError, TypeError) as error:
            raise not_differentiable(str(error).splitlines()[0]) from error

    def optimiser(self, merit: Merit, radius: float) -> _Adam:
        return _Adam(merit, radius * (1.0 - 4.0 * epsilon(self.first)))


def _module_call(module: Any) -> Callable[[dict[str, Any], Any], Any]:
    """The module as a function of the parameters that are searched; the others, and buffers, in the dtype of X."""
    import torch

    def call(values: dict[str, Any], X: Any) -> Any:
        fixed = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        fixed = {k: v.detach().to(X.dtype) if v.is_floating_point() else v for k, v in fixed.items()}
        return torch.func.functional_call(module, {**fixed, **values}, (X,))

    return call


@dataclass(frozen=True, eq=False)
class _Adam:
    merit: Merit
    radius: float

    def start(self, theta: Any) -> Any:
        import torch

        leaf = theta.detach().clone().requires_grad_(True)
        # On a GPU its count of steps is kept there, too: nothing is read between steps.
        return leaf, torch.optim.Adam([leaf], capturable=leaf.device.type == "cuda")

    def run(
        self, state: Any, operands: Operands, rates: list[float], shifts: Any, pressure: Pressure
    ) -> tuple[Any, Any, Any]:
        import torch

        leaf, optimiser = state
        for rate, donors in zip(rates, shifts, strict=True):
            optimiser.param_groups[0]["lr"] = rate
            merit, risk = self.merit(leaf, operands, donors, pressure)
            (slope,) = torch.autograd.grad(merit, leaf)
            with torch.no_grad():
                leaf.grad = tangential(slope, leaf, self.radius)
                optimiser.step()
                leaf.mul_(torch.clamp(self.radius / torch.linalg.vector_norm(leaf), max=1.0))
        return state, leaf.detach().clone(), risk.detach()
