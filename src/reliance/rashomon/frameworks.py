"""What a search by gradients needs of torch and of JAX, and which of the two a model belongs to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard

from reliance._core.arrays import backend, is_array, namespace
from reliance._core.kinds import Array, Operand, TorchArray
from reliance._core.words import shown
from reliance.models import modules


class Operands(NamedTuple):
    """The rows in random order, and what each keeps and lends: row i with the feature of row k is ``kept_i + lent_k``.

    The feature is in the values alone, so that one compilation serves all features.

    Attributes
    ----------
    X : array (n, P)
    y : array (n,)
    kept, lent : arrays (n, P)
    """

    X: Array
    y: Array
    kept: Array
    lent: Array


class Pressure(NamedTuple):
    """The numbers of the augmented Lagrangian: see `reliance.rashomon.ascent.lagrangian`."""

    sign: float
    multiplier: float
    weight: float
    log_bound: float
    scale: float


# (theta (d,), operands, shifts (K,), pressure) -> what is minimised, and the risk
Merit: TypeAlias = Callable[[Array, Operands, Array, Pressure], tuple[Array, Array]]


class Optimiser(Protocol):
    """Adam on one vector, scaled back into the ball after each step."""

    def start(self, theta: Array) -> object:
        """The state at these parameters."""
        ...

    def run(
        self, state: object, operands: Operands, rates: list[float], shifts: Array, pressure: Pressure
    ) -> tuple[object, Array, Array]:
        """One step for each rate and each of the rows of ``shifts (T, K)``.

        Returns the state, the parameters after the last step, and the risk () before it.
        """
        ...


class Framework(Protocol):
    """A model whose parameters are one vector theta."""

    @property
    def first(self) -> Array:
        """The given parameters."""
        ...

    def vector(self, params: object) -> Array:
        """Parameters as a vector; an error if they are not the model's."""
        ...

    def tree(self, theta: Array) -> object:
        """A vector as parameters."""
        ...

    def predict(self, theta: Array, X: Array) -> Array:
        """(m, P) -> (m,)."""
        ...

    def function(self) -> Callable[[Operand, Operand], Array]:
        """``(params, X) -> (m,)`` without gradients, for the user."""
        ...

    def at_home(self, X: Array, y: Array) -> tuple[Array, Array]:
        """The rows where the parameters are: NumPy arrays are uploaded, arrays elsewhere are an error."""
        ...

    def widened(self, x: Array) -> Array:
        """Floating numbers in float64."""
        ...

    def narrowed(self, x: Array) -> Array:
        """Floating numbers in the dtype of the parameters."""
        ...

    def session(self) -> AbstractContextManager[None]:
        """In which the model is evaluated: dropout is off."""
        ...

    def precise(self) -> AbstractContextManager[None]:
        """In which float64 exists, and gradients are not recorded."""
        ...

    def compiled(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """The function, compiled where that is the custom."""
        ...

    def slope(self, merit: Merit, theta: Array, operands: Operands, shifts: Array, pressure: Pressure) -> Array:
        """The gradient; an error if there is none."""
        ...

    def optimiser(self, merit: Merit, radius: float) -> Optimiser: ...


def framework_of(apply: object, params: object) -> Framework:
    """Torch for modules and dicts of tensors, otherwise JAX."""
    if not modules.is_torch_module(apply):
        if not callable(apply):
            raise TypeError(f"apply={shown(apply)} is neither a torch module nor a function apply(params, X)")
        if params is None:
            raise TypeError("params=None: pass the parameters of apply(params, X), as JAX arrays or torch tensors")
    if modules.is_torch_module(apply) or is_tensor_dict(params):
        from reliance.rashomon.torch_framework import TorchFramework

        return TorchFramework.of(apply, params)
    from reliance.rashomon.jax_framework import JaxFramework

    return JaxFramework.of(apply, params)


def is_tensor(x: object) -> TypeGuard[TorchArray]:
    return is_array(x) and backend(namespace(x)) == "torch"


def is_tensor_dict(params: object) -> TypeGuard[dict[str, TorchArray]]:
    return isinstance(params, dict) and bool(params) and all(is_tensor(value) for value in params.values())


def not_differentiable(why: str) -> TypeError:
    return TypeError(
        f"the model cannot be differentiated with respect to its parameters ({why}): its class cannot be searched by "
        "gradients. Pass a FiniteClass of fitted models instead"
    )


def as_column(prediction: Array) -> Array:
    """Predictions (m, 1) as (m,)."""
    return prediction[:, 0] if prediction.ndim == 2 and prediction.shape[1] == 1 else prediction
