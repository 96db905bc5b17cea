"""Searches in JAX: functions of a tree of arrays, a round of steps in one compiled loop."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import describe, epsilon, is_array, is_floating, namespace
from reliance._core.kinds import Array, HostArray, JaxArray, Operand
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

    call: Callable[[Operand, Operand], Array]
    structure: object
    shapes: tuple[tuple[int, ...], ...]
    first: JaxArray

    @staticmethod
    def of(apply: Callable[[Operand, Operand], Array], params: object) -> JaxFramework:
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
        shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
        return JaxFramework(apply, structure, shapes, _vector(leaves))

    def vector(self, params: object) -> JaxArray:
        import jax

        leaves, structure = jax.tree.flatten(params)
        if structure != self.structure or tuple(tuple(np.shape(leaf)) for leaf in leaves) != self.shapes:
            raise ValueError(f"the parameters must be a tree {self.structure} of arrays of shapes {self.shapes}")
        return _vector(leaves)

    def tree(self, theta: Array) -> object:
        import jax
        import jax.numpy as jnp

        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        parts = zip([0, *ends], ends, self.shapes, strict=False)
        params: object = jax.tree.unflatten(self.structure, [jnp.reshape(theta[a:b], shape) for a, b, shape in parts])
        return params

    def predict(self, theta: Array, X: Array) -> Array:
        return as_column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[object, Array], Array]:
        def function(params: object, X: Array) -> Array:
            found = as_column(self.call(params, X))
            return arrays.to_host(found) if isinstance(X, np.ndarray) else found

        return function

    def at_home(self, X: Array, y: Array) -> tuple[Array, Array]:
        import jax

        if not isinstance(X, np.ndarray | jax.Array):
            raise TypeError(f"X is a {describe(X)} but the parameters are JAX arrays: pass X as a JAX array")
        (home,) = self.first.devices()
        if isinstance(X, jax.Array) and X.devices() != {home}:
            raise ValueError(
                f"X is on {X.devices()} but the model's parameters are on {home}: move one of them, with jax.device_put"
            )
        return jax.device_put(X, home), jax.device_put(y, home)

    def widened(self, x: Array) -> Array:
        xp = namespace(x)
        return xp.astype(x, xp.float64) if is_floating(xp, x.dtype) else x

    def narrowed(self, x: Array) -> Array:
        xp = namespace(x)
        return xp.astype(x, self.first.dtype) if is_floating(xp, x.dtype) else x

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

    def slope(self, merit: Merit, theta: Array, operands: Operands, shifts: Array, pressure: Pressure) -> Array:
        import jax

        try:
            found: Array = jax.jit(jax.grad(merit, has_aux=True))(theta, operands, shifts, pressure)[0]
            return found
        except (TypeError, jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            raise not_differentiable(str(error).splitlines()[0]) from error

    def optimiser(self, merit: Merit, radius: float) -> _Adam:
        return _Adam(_adam_steps(merit, radius * (1.0 - 4.0 * epsilon(self.first))))


def _vector(leaves: list[Array | float]) -> JaxArray:
    import jax.numpy as jnp

    theta = jnp.concatenate([jnp.reshape(jnp.asarray(leaf), (-1,)) for leaf in leaves])
    plain: JaxArray = theta.astype(theta.dtype)  # no weak type, with which JAX would compile once more
    return plain


class _State(NamedTuple):
    """Parameters, the two means of slopes, and how many steps were taken."""

    theta: Array
    m: Array
    v: Array
    t: Array


# (state, operands, rates (T,), shifts (T, K), pressure) -> the state, and the risk before the last step
_Steps: TypeAlias = Callable[[_State, Operands, HostArray, Array, Pressure], tuple[_State, Array]]


@dataclass(frozen=True, eq=False)
class _Adam:
    steps: _Steps

    def start(self, theta: Array) -> _State:
        import jax
        import jax.numpy as jnp

        # Bound to the device as what a round returns is: otherwise JAX compiles the first round by itself.
        (home,) = jnp.asarray(theta).devices()
        first = _State(theta, jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros((), theta.dtype))
        placed: _State = jax.device_put(first, home)
        return placed

    def run(
        self, state: object, operands: Operands, rates: list[float], shifts: Array, pressure: Pressure
    ) -> tuple[_State, Array, Array]:
        assert isinstance(state, _State)
        state, risk = self.steps(state, operands, np.asarray(rates, dtype=str(state.theta.dtype)), shifts, pressure)
        return state, state.theta, risk


def _adam_steps(merit: Merit, radius: float) -> _Steps:
    """Kingma and Ba (2015), algorithm 1: JAX itself has no optimiser, and this is all that is needed of one."""
    import jax
    import jax.numpy as jnp

    def ascent_round(
        state: _State, operands: Operands, rates: Array, shifts: Array, pressure: Pressure
    ) -> tuple[_State, Array]:
        def step(state: _State, now: tuple[Array, Array]) -> tuple[_State, Array]:
            theta, m, v, t = state
            rate, donors = now
            slope, risk = jax.grad(merit, has_aux=True)(theta, operands, donors, pressure)
            slope = tangential(slope, theta, radius)
            m, v, t = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2, t + 1
            theta = theta - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            theta = theta * jnp.minimum(1.0, radius / jnp.linalg.norm(theta))
            return _State(theta, m, v, t), risk

        state, risks = jax.lax.scan(step, state, (rates, shifts))
        return state, risks[-1]

    compiled: _Steps = jax.jit(ascent_round)
    return compiled
