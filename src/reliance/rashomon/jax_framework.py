"""Searches in JAX: functions of a tree of arrays, a round of steps in one compiled loop."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array, describe, epsilon, is_array, is_floating, namespace
from reliance.rashomon.ascent import tangential
from reliance.rashomon.frameworks import Merit, Operands, Pressure, as_column, is_tensor, not_differentiable


@dataclass(frozen=True, eq=False)
class JaxFramework:
    """See `reliance.rashomon.frameworks.Framework`.

    Attributes
    ----------
    call : callable
        ``(params, X) -> predictions``.
    structure
        Of the tree of parameters.
    shapes : tuple
        Of its leaves.
    first : array (d,)
    """

    call: Callable[[Any, Any], Any]
    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    first: Any

    @staticmethod
    def of(apply: Callable[[Any, Any], Any], params: Any) -> JaxFramework:
        import jax

        leaves, structure = jax.tree.flatten(params)
        if not leaves:
            raise not_differentiable("params holds no arrays")
        if any(is_tensor(leaf) for leaf in leaves):
            raise TypeError(f"params is a {type(params).__name__} with torch tensors: pass a dict of tensors")
        for leaf in leaves:
            if not isinstance(leaf, float) and not (is_array(leaf) and is_floating(namespace(leaf), leaf.dtype)):
                kind = getattr(leaf, "dtype", type(leaf).__name__)
                raise not_differentiable(f"params holds an entry of dtype {kind}")
        homes = sorted({str(dev) for leaf in leaves if isinstance(leaf, jax.Array) for dev in leaf.devices()})
        if len(homes) > 1:
            raise ValueError(f"the model's parameters are on several devices, {', '.join(homes)}: move them to one")
        empty = JaxFramework(apply, structure, tuple(tuple(np.shape(leaf)) for leaf in leaves), None)
        return replace(empty, first=empty.vector(params))

    def vector(self, params: Any) -> Any:
        import jax
        import jax.numpy as jnp

        leaves, structure = jax.tree.flatten(params)
        if structure != self.structure or tuple(tuple(np.shape(leaf)) for leaf in leaves) != self.shapes:
            raise ValueError(f"the parameters must be a tree {self.structure} of arrays of shapes {self.shapes}")
        theta = jnp.concatenate([jnp.reshape(jnp.asarray(leaf), (-1,)) for leaf in leaves])
        return theta.astype(theta.dtype)  # no weak type, with which JAX would compile once more

    def tree(self, theta: Any) -> Any:
        import jax

        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        parts = zip([0, *ends], ends, self.shapes, strict=False)
        return jax.tree.unflatten(self.structure, [theta[a:b].reshape(shape) for a, b, shape in parts])

    def predict(self, theta: Any, X: Any) -> Any:
        return as_column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[Any, Any], Any]:
        def function(params: Any, X: Any) -> Any:
            found = as_column(self.call(params, X))
            return arrays.to_host(found) if isinstance(X, np.ndarray) else found

        return function

    def at_home(self, X: Any, y: Any) -> tuple[Any, Any]:
        import jax

        if not isinstance(X, np.ndarray | jax.Array):
            raise TypeError(f"X is a {describe(X)} but the parameters are JAX arrays: pass X as a JAX array")
        (home,) = self.first.devices()
        if isinstance(X, jax.Array) and X.devices() != {home}:
            raise ValueError(
                f"X is on {X.devices()} but the model's parameters are on {home}: move one of them, with jax.device_put"
            )
        return jax.device_put(X, home), jax.device_put(y, home)

    def widened(self, x: Any) -> Any:
        return x.astype("float64") if is_floating(namespace(x), x.dtype) else x

    def narrowed(self, x: Any) -> Any:
        return x.astype(self.first.dtype) if is_floating(namespace(x), x.dtype) else x

    def session(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def precise(self) -> Iterator[None]:
        import jax

        place = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
        with place.enable_x64(True):
            yield

    def compiled(self, function: Callable[..., Array]) -> Callable[..., Array]:
        import jax

        found: Callable[..., Array] = jax.jit(function)
        return found

    def slope(self, merit: Merit, theta: Any, operands: Operands, shifts: Any, pressure: Pressure) -> Any:
        import jax

        try:
            return jax.jit(jax.grad(merit, has_aux=True))(theta, operands, shifts, pressure)[0]
        except (TypeError, jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            raise not_differentiable(str(error).splitlines()[0]) from error

    def optimiser(self, merit: Merit, radius: float) -> _Adam:
        return _Adam(_adam_steps(merit, radius * (1.0 - 4.0 * epsilon(self.first))))


@dataclass(frozen=True, eq=False)
class _Adam:
    steps: Callable[..., Any]

    def start(self, theta: Any) -> Any:
        import jax
        import jax.numpy as jnp

        # Bound to the device as what a round returns is: otherwise JAX compiles the first round by itself.
        (home,) = theta.devices()
        return jax.device_put((theta, jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros((), theta.dtype)), home)

    def run(
        self, state: Any, operands: Operands, rates: list[float], shifts: Any, pressure: Pressure
    ) -> tuple[Any, Any, Any]:
        state, risk = self.steps(state, operands, np.asarray(rates, dtype=state[0].dtype), shifts, pressure)
        return state, state[0], risk


def _adam_steps(merit: Merit, radius: float) -> Callable[..., Any]:
    """Kingma and Ba (2015), algorithm 1: JAX itself has no optimiser, and this is all that is needed of one."""
    import jax
    import jax.numpy as jnp

    def ascent_round(state: Any, operands: Operands, rates: Any, shifts: Any, pressure: Pressure) -> Any:
        def step(state: Any, now: Any) -> Any:
            theta, m, v, t = state
            rate, donors = now
            slope, risk = jax.grad(merit, has_aux=True)(theta, operands, donors, pressure)
            slope = tangential(slope, theta, radius)
            m, v, t = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2, t + 1
            theta = theta - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            theta = theta * jnp.minimum(1.0, radius / jnp.linalg.norm(theta))
            return (theta, m, v, t), risk

        state, risks = jax.lax.scan(step, state, (rates, shifts))
        return state, risks[-1]

    compiled: Callable[..., Any] = jax.jit(ascent_round)
    return compiled
