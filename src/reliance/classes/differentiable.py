"""Torch modules and JAX functions with bounded parameters: models that rely little or much on a feature, by gradients.

Nothing here is certified. What is returned are models: each lies in the class and, in float64 on all rows, in the set
of good models, and its reliance is measured over all pairs by the exact engine.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from reliance import conditional as conditional_reliance
from reliance import functional, models
from reliance import rng as randomness
from reliance._array import Array, describe, device, from_host, is_array, is_floating, namespace, to_host
from reliance.classes.protocol import ClassData, Member, Range
from reliance.draws import narrow, take_columns
from reliance.features import Feature
from reliance.importance import model_reliance
from reliance.losses import Metric, resolve
from reliance.regressors import least_squares

# (theta (d,), shifts (K,), sign, multiplier, weight) -> merit, (value, risk)
Merit: TypeAlias = Callable[..., tuple[Array, tuple[Array, Array]]]

_CELLS = 2**16  # pairs of rows evaluated in a step of the search, unless shifts are given
_ROUNDS = 20  # of the multiplier
_NOISE = 0.3  # of the parameters' size, for the starts after the first
_HALVINGS = 40
_FOUND: weakref.WeakKeyDictionary[ClassData, dict[int, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class DifferentiableClass:
    r"""All settings, of at most a given norm, of the parameters of a differentiable model.

    Parameters
    ----------
    apply : torch.nn.Module or callable
        A module, or a function ``apply(params, X (m, P)) -> (m,)`` or ``(m, 1)`` that JAX can differentiate, or that
        computes with torch tensors if the parameters are such.
    params : optional
        The parameters that a search starts from: a tree of JAX arrays, or a dict of torch tensors. None for a module:
        its own, those that require gradients.
    radius : float
        The largest Euclidean norm of all parameters together. It is required: without it the good models of a flexible
        class include such as are good on these rows only and arbitrary between them, so that the upper end would say
        how long the search ran, and nothing about the data.
    loss : str
        A per-row loss.
    starts : int
        Searches for each end: the first from the best model, the others from places near it.
    steps : int
        Of each search.
    learning_rate : float
        Of Adam at the beginning; it falls to 0.
    shifts : int, optional
        How many donors a row gets in a step: as many as make 2^16 pairs unless given, all of them if there are so few.

    Notes
    -----
    Each end is an augmented Lagrangian search for the least or largest log ratio (or difference) of
    `reliance.functional.shifted_risk` over the risk, under the risk's bound; parameters that become too large are
    scaled back. The model that is returned has been checked in float64: if its risk exceeds the bound, it is moved
    towards the best model until it does not. Reliance is that of all pairs, from the engine.

    ``lower`` and ``upper`` are nan: the achieved ends lie inside the true range, how far is not known. ``spread`` is by
    how much the searches of an end differ.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Nocedal, J., Wright, S. (2006). Numerical optimization, section 17.3 (augmented Lagrangian).
    """

    apply: Any
    params: Any = None
    radius: float | None = None
    loss: str = "squared_error"
    starts: int = 4
    steps: int = 600
    learning_rate: float = 0.02
    shifts: int | None = None

    def __post_init__(self) -> None:
        if self.radius is None:
            raise ValueError(
                "radius=None: give the largest norm that the parameters may have, for instance twice that of the "
                "fitted model. An unbounded flexible class has no meaningful upper end: among its good models there "
                "are always some that rely on a feature as much as one likes, wherever the rows say nothing"
            )
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius={self.radius!r}: pass a positive number")
        for name, value in (("starts", self.starts), ("steps", self.steps), ("shifts", self.shifts)):
            if value is None and name == "shifts":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: pass an integer of at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate!r}: pass a positive number")
        if isinstance(resolve(self.loss), Metric):
            raise ValueError(f"loss={self.loss!r} is a whole-set metric: pass a per-row loss")
        _framework(self)  # what cannot be differentiated is an error at once

    def best(self, data: ClassData) -> Member:
        """The model of least risk that was found."""
        return self._search(data).member(self._best(data))

    def contains(self, data: ClassData, model: Any) -> Member:
        """A `FoundModel`, a module of the same shape, or parameters of the same shape, with at most the radius."""
        search = self._search(data)
        theta = search.framework.vector(model.params if isinstance(model, FoundModel) else model)
        norm = float(np.linalg.norm(to_host(theta)))
        if norm > float(self.radius or 0) * (1 + 1e-6):
            raise ValueError(
                f"reference has parameters of norm {norm:g}, more than radius={self.radius:g}: raise radius"
            )
        return search.member(theta)

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        """The achieved range of each feature, with the spread over the starts."""
        search, best = self._search(data), self._best(data)
        least = search.risk(best)
        if least > bound:
            raise ValueError(
                f"no model with a risk of at most {bound:g} was found: the best has {least:g}. Pass fitted parameters, "
                "more steps, or a larger epsilon"
            )
        found = []
        for feature in features:
            found.append(search.range(feature, best, bound, compare, conditional))
            advance(1)
        return found

    def _search(self, data: ClassData) -> _Search:
        return _Search.of(self, data)

    def _best(self, data: ClassData) -> Array:
        """Searched once for given rows."""
        known = _FOUND.setdefault(data, {})
        if id(self) not in known:
            known[id(self)] = (self, self._search(data).best())  # the class itself, so that its id stays its own
        return known[id(self)][1]


@dataclass(frozen=True, eq=False)
class FoundModel:
    """A model of a `DifferentiableClass`.

    Attributes
    ----------
    function : callable
        ``(params, X) -> (m,)``.
    params : dict of tensors or tree of arrays
    """

    function: Callable[[Any, Array], Array]
    params: Any

    def __call__(self, X: Array) -> Array:
        return self.function(self.params, X)


# ---------------------------------------------------------------------------------------------------------------------
# The search


@dataclass(frozen=True, eq=False)
class _Search:
    """The class on given rows, in random order, on the framework's device."""

    given: DifferentiableClass
    framework: _Framework
    X: Array
    y: Array
    data: ClassData

    @staticmethod
    def of(given: DifferentiableClass, data: ClassData) -> _Search:
        framework = _framework(given)
        X, y = framework.at_home(data.X, data.y)
        xp = namespace(X)
        order = from_host(randomness.ordering(data.key, X.shape[0], 0), xp, device(X))
        return _Search(given, framework, xp.take(X, order, axis=0), xp.take(y, order, axis=0), data)

    def best(self) -> Array:
        """The parameters of least risk, from the given ones and from places near them."""
        X, y, loss = self.X, self.y, self.given.loss
        xp = namespace(X)

        def merit(theta: Array, *_: Any) -> tuple[Array, tuple[Array, Array]]:
            risk = functional.base_risk(lambda rows: self.framework.predict(theta, rows), X, y, loss=loss)
            return xp.log(risk), (risk, risk)

        first = self._scaled(self.framework.first)
        self.framework.check(merit, self._near(first, 1, randomness.SIGNS))
        with self.framework.session():
            ends = [first]
            for number in range(self.given.starts):
                start = first if number == 0 else self._near(first, number, randomness.SIGNS)
                ends.append(self._descend(merit, start, 1.0, math.inf, math.inf))
        return min(ends, key=self.risk)

    def range(self, feature: Feature, best: Array, bound: float, compare: str, conditional: bool) -> Range:
        merit = self._merit(feature.columns, best, bound, compare, conditional)
        least = self.risk(best)
        ends = []
        for sign in (1.0, -1.0):
            with self.framework.session():
                starts = [best, *(self._near(best, k, feature.columns[0] + 1) for k in range(1, self.given.starts))]
                found = [self._within(self._descend(merit, start, sign, bound, least), best, bound) for start in starts]
            values = [self.reliance(theta, feature, compare, conditional) for theta in found]
            place = int(np.argmin(sign * np.array(values)))
            ends.append((self.member(found[place]), values[place], max(values) - min(values)))
        own = self.reliance(best, feature, compare, conditional)  # a search may end worse than it began
        (low, lowest, low_spread), (high, highest, high_spread) = ends
        if own < lowest:
            low, lowest = self.member(best), own
        if own > highest:
            high, highest = self.member(best), own
        return Range(math.nan, math.nan, low, high, lowest, highest, (low_spread, high_spread))

    def _merit(self, columns: tuple[int, ...], best: Array, bound: float, compare: str, conditional: bool) -> Merit:
        """The signed reliance plus the augmented Lagrangian of log(risk / bound) <= 0."""
        X, y, loss, framework = self.X, self.y, self.given.loss, self.framework
        xp = namespace(X)
        scale = self.risk(best)
        parts = _residuals(X, columns) if conditional else None

        def merit(
            theta: Array, shifts: Array, sign: Any, multiplier: Any, weight: Any
        ) -> tuple[Array, tuple[Array, Array]]:
            def predict(rows: Array) -> Array:
                return framework.predict(theta, rows)

            risk = functional.base_risk(predict, X, y, loss=loss)
            if parts is None:
                switched = functional.shifted_risk(predict, X, y, columns, shifts, loss=loss)
            else:
                values = _lent_values(*parts, shifts)
                switched = xp.mean(functional.switched_losses(predict, X, y, columns, values, loss=loss))
            value = xp.log(switched) - xp.log(risk) if compare == "ratio" else (switched - risk) / scale
            pressed = multiplier + weight * (xp.log(risk) - math.log(bound))
            pressed = xp.where(pressed > 0, pressed, xp.zeros_like(pressed))
            return sign * value + pressed**2 / (2 * weight), (value, risk)

        return merit

    def _descend(self, merit: Merit, start: Array, sign: float, bound: float, least: float) -> Array:
        """Adam with a falling rate; the best admissible parameters on the way, or the last ones."""
        given, n = self.given, self.X.shape[0]
        bounded = math.isfinite(bound)
        # Violations count against the width of the set of good models.
        weight = 10.0 / max(math.log(bound / least), 1e-3) if bounded else 1.0
        multiplier, period = 0.0, max(given.steps // _ROUNDS, 1)
        count = given.shifts or max(_CELLS // n, 1)
        donors = randomness.shifts(self.data.key, n, 0)
        exact = count >= n - 1
        stepper = self.framework.stepper(merit, start, float(given.radius or 0))
        kept, reached = None, math.inf
        for step in range(given.steps):
            # New donors in every step, unless all are taken.
            chosen = donors if exact else np.take(donors, np.arange(step * count, (step + 1) * count), mode="wrap")
            rate = given.learning_rate * 0.5 * (1 + math.cos(math.pi * step / given.steps))
            theta = stepper.theta
            value, risk = stepper.step(rate, chosen, sign, multiplier, weight)
            if not math.isfinite(value) or not math.isfinite(risk):
                break
            if (exact or not bounded) and risk <= bound and sign * value < reached:
                kept, reached = theta, sign * value
            if bounded and (step + 1) % period == 0:
                multiplier = max(0.0, multiplier + weight * math.log(risk / bound))
        return stepper.theta if kept is None else kept

    def _within(self, theta: Array, best: Array, bound: float) -> Array:
        """theta, moved towards the best model until its risk in float64 is at most the bound; all within the ball."""
        low, high = 0.0, 1.0
        if self.risk(theta) <= bound:
            return theta
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.risk(best + middle * (theta - best)) <= bound else (low, middle)
        return best + low * (theta - best)

    def _scaled(self, theta: Array) -> Array:
        norm = float(np.linalg.norm(to_host(theta)))
        return theta * min(1.0, float(self.given.radius or 0) / norm) if norm > 0 else theta

    def _near(self, theta: Array, number: int, purpose: int) -> Array:
        """Parameters near given ones, the same for the same key."""
        host = to_host(theta)
        size = _NOISE * max(float(np.sqrt(np.mean(host**2))), 1e-3)
        noise = randomness.stream(self.data.key, purpose + 16, number).normal(size=host.shape) * size
        return self._scaled(from_host((host + noise).astype(host.dtype), namespace(theta), device(theta)))

    # What is returned is measured in float64 on all rows.

    def risk(self, theta: Array) -> float:
        with self.framework.wide(theta, self.X, self.y) as (model, X, y):
            return float(to_host(functional.base_risk(model, X, y, loss=self.given.loss)))

    def reliance(self, theta: Array, feature: Feature, compare: str, conditional: bool) -> float:
        measure = conditional_reliance.conditional_model_reliance if conditional else model_reliance
        with self.framework.wide(theta, self.X, self.y) as (model, X, y):
            result: Any = measure(
                model,
                X,
                y,
                loss=self.given.loss,
                compare=compare,
                features={feature.name: feature.columns},
                memory=self.data.memory,
            )
        return float(result.values[0])

    def member(self, theta: Array) -> Member:
        return Member(FoundModel(self.framework.function(), self.framework.tree(theta)), self.risk(theta))


def _residuals(X: Array, columns: tuple[int, ...]) -> tuple[Array, Array]:
    """What the other columns predict of some, by least squares, and the rest of them; (n, g) each."""
    rest = tuple(j for j in range(X.shape[1]) if j not in columns)
    others = take_columns(X, rest) if rest else X[:, :0]
    own = take_columns(X, columns)
    mean = narrow(least_squares(others, own).predict(others), X)
    return mean, own - mean


def _lent_values(mean: Array, residual: Array, shifts: Array) -> Array:
    """``mean_i + residual_(i + s)``, (n, K, g)."""
    xp, n = namespace(mean), mean.shape[0]
    rows = (xp.arange(n, dtype=shifts.dtype, device=device(mean))[:, None] + shifts) % n
    lent = xp.take(residual, xp.reshape(rows, (-1,)), axis=0)
    return mean[:, None, :] + xp.reshape(lent, (n, -1, residual.shape[1]))


# ---------------------------------------------------------------------------------------------------------------------
# Frameworks


class _Stepper(Protocol):
    """A descent."""

    @property
    def theta(self) -> Array:
        """The parameters now."""
        ...

    def step(self, rate: float, shifts: Any, sign: float, multiplier: float, weight: float) -> tuple[float, float]:
        """One step; value and risk before it."""
        ...


class _Framework(Protocol):
    """What torch and JAX do differently. Parameters are one vector."""

    @property
    def first(self) -> Array:
        """The given parameters."""
        ...

    def at_home(self, X: Array, y: Array) -> tuple[Array, Array]:
        """The rows where the parameters are, in their dtype."""
        ...

    def predict(self, theta: Array, X: Array) -> Array: ...

    def vector(self, params: Any) -> Array: ...

    def tree(self, theta: Array) -> Any: ...

    def function(self) -> Callable[[Any, Array], Array]: ...

    def session(self) -> contextlib.AbstractContextManager[None]: ...

    def check(self, merit: Merit, theta: Array) -> None:
        """An error if the gradient is missing or 0 everywhere."""
        ...

    def stepper(self, merit: Merit, theta: Array, radius: float) -> _Stepper: ...

    def wide(
        self, theta: Array, X: Array, y: Array
    ) -> contextlib.AbstractContextManager[tuple[Callable[[Array], Array], Array, Array]]:
        """Model and rows in float64."""
        ...


def _framework(given: DifferentiableClass) -> _Framework:
    torch = sys.modules.get("torch")
    if models.is_torch_module(given.apply):
        return _Torch.of_module(given.apply, given.params)
    if not callable(given.apply):
        raise TypeError(f"apply={given.apply!r} is neither a torch module nor a function apply(params, X)")
    if given.params is None:
        raise TypeError("params=None: pass the parameters of apply(params, X), as JAX arrays or torch tensors")
    tensors = () if torch is None else (torch.Tensor,)
    if isinstance(given.params, dict) and given.params and all(isinstance(p, tensors) for p in given.params.values()):
        return _Torch.of_tensors(given.apply, given.params)
    return _Jax.of(given.apply, given.params)


_NOT_DIFFERENTIABLE = (
    "the model cannot be differentiated with respect to its parameters ({why}): its class cannot be searched by "
    "gradients. Pass a FiniteClass of fitted models instead"
)


def _column(prediction: Array) -> Array:
    """Predictions (m, 1) as (m,)."""
    return prediction[:, 0] if prediction.ndim == 2 and prediction.shape[1] == 1 else prediction


@dataclass(frozen=True, eq=False)
class _Torch:
    """A module, called with other parameters, or a function of a dict of tensors."""

    call: Callable[[dict[str, Any], Any], Any]
    module: Any
    shapes: dict[str, tuple[int, ...]]
    first: Any

    @staticmethod
    def of_module(module: Any, params: Any) -> _Torch:
        import torch

        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not named:
            raise TypeError(_NOT_DIFFERENTIABLE.format(why="the module has no parameters that require gradients"))
        homes = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
        if len(homes) > 1:
            names = ", ".join(sorted(map(str, homes)))
            raise ValueError(f"the module's parameters are on several devices, {names}: move them to one")

        def call(values: dict[str, Any], X: Any) -> Any:
            fixed = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            fixed = {k: v.detach().to(X.dtype) if v.is_floating_point() else v for k, v in fixed.items()}
            return torch.func.functional_call(module, {**fixed, **values}, (X,))

        return _Torch._of(call, module, named if params is None else params, named)

    @staticmethod
    def of_tensors(function: Callable[[Any, Any], Any], params: dict[str, Any]) -> _Torch:
        return _Torch._of(function, None, params, params)

    @staticmethod
    def _of(call: Any, module: Any, params: Any, like: dict[str, Any]) -> _Torch:
        for name, value in like.items():
            if not value.is_floating_point():
                raise TypeError(_NOT_DIFFERENTIABLE.format(why=f"parameter {name!r} has dtype {value.dtype}"))
        if len({value.device for value in like.values()}) > 1:
            raise ValueError("the parameters are on several devices: move them to one")
        own = _Torch(call, module, {name: tuple(value.shape) for name, value in like.items()}, None)
        return _Torch(call, module, own.shapes, own.vector(params))

    def vector(self, params: Any) -> Any:
        import torch

        values = dict(params.named_parameters()) if models.is_torch_module(params) else params
        found = isinstance(values, dict) and all(
            name in values and tuple(values[name].shape) == shape for name, shape in self.shapes.items()
        )
        if not found:
            raise ValueError(f"the parameters must be a dict or module with tensors of shapes {self.shapes}")
        return torch.cat([values[name].detach().reshape(-1) for name in self.shapes])

    def tree(self, theta: Any) -> dict[str, Any]:
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), theta.split(sizes), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def at_home(self, X: Any, y: Any) -> tuple[Any, Any]:
        import torch

        if isinstance(X, np.ndarray):
            X, y = (from_host(a, namespace(self.first), self.first.device) for a in (X, y))
        elif not isinstance(X, torch.Tensor):
            raise TypeError(f"X is a {describe(X)} but the parameters are torch tensors: pass X as a torch tensor")
        elif X.device != self.first.device:
            raise ValueError(
                f"X is on {X.device} but the model's parameters are on {self.first.device}: move one of them, for "
                f"instance X.to({str(self.first.device)!r})"
            )
        return X.to(self.first.dtype), y.to(self.first.dtype) if y.is_floating_point() else y

    def predict(self, theta: Any, X: Any) -> Any:
        return _column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[Any, Any], Any]:
        import torch

        def function(params: Any, X: Any) -> Any:
            rows = from_host(X, namespace(self.first), self.first.device) if isinstance(X, np.ndarray) else X
            with torch.no_grad(), self.session():
                found = _column(self.call({k: v.to(rows.dtype) for k, v in params.items()}, rows))
            return to_host(found) if isinstance(X, np.ndarray) else found

        return function

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        if self.module is None:
            yield
        else:
            with models._evaluation_mode(self.module):
                yield

    def check(self, merit: Merit, theta: Any) -> None:
        import torch

        leaf = theta.clone().requires_grad_(True)
        try:
            with self.session():
                (slope,) = torch.autograd.grad(merit(leaf)[0], leaf)
        except (RuntimeError, TypeError) as error:
            raise TypeError(_NOT_DIFFERENTIABLE.format(why=str(error).splitlines()[0])) from error
        if not bool((slope != 0).any()):
            raise TypeError(_NOT_DIFFERENTIABLE.format(why="its gradient is 0"))

    def stepper(self, merit: Merit, theta: Any, radius: float) -> _Stepper:
        return _TorchStepper(merit, theta, radius)

    @contextlib.contextmanager
    def wide(self, theta: Any, X: Any, y: Any) -> Iterator[tuple[Callable[[Any], Any], Any, Any]]:
        import torch

        theta = theta.detach().double()
        with torch.no_grad(), self.session():
            rows, labels = X.double(), y.double() if y.is_floating_point() else y
            yield lambda batch: self.predict(theta, batch), rows, labels


class _TorchStepper:
    """`torch.optim.Adam` on the vector of the parameters, scaled back into the ball."""

    def __init__(self, merit: Merit, theta: Any, radius: float) -> None:
        import torch

        self._merit, self._radius = merit, radius
        self._leaf = theta.detach().clone().requires_grad_(True)
        self._optimizer = torch.optim.Adam([self._leaf])

    @property
    def theta(self) -> Any:
        return self._leaf.detach().clone()

    def step(self, rate: float, shifts: Any, sign: float, multiplier: float, weight: float) -> tuple[float, float]:
        import torch

        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        donors = torch.as_tensor(shifts, device=self._leaf.device)
        merit, (value, risk) = self._merit(self._leaf, donors, sign, multiplier, weight)
        merit.backward()
        self._optimizer.step()
        with torch.no_grad():
            norm = torch.linalg.vector_norm(self._leaf)
            self._leaf.mul_(torch.clamp(self._radius / norm, max=1.0))
        return float(value.detach()), float(risk.detach())


@dataclass(frozen=True, eq=False)
class _Jax:
    """A function of a tree of arrays."""

    call: Callable[[Any, Any], Any]
    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    first: Any

    @staticmethod
    def of(function: Callable[[Any, Any], Any], params: Any) -> _Jax:
        import jax

        leaves, structure = jax.tree.flatten(params)
        if not leaves:
            raise TypeError(_NOT_DIFFERENTIABLE.format(why="params holds no arrays"))
        for leaf in leaves:
            if isinstance(leaf, float):
                continue
            if not is_array(leaf) or not is_floating(namespace(leaf), leaf.dtype):
                kind = getattr(leaf, "dtype", type(leaf).__name__)
                raise TypeError(_NOT_DIFFERENTIABLE.format(why=f"params holds an entry of dtype {kind}"))
        shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
        own = _Jax(function, structure, shapes, None)
        return _Jax(function, structure, shapes, own.vector(params))

    def vector(self, params: Any) -> Any:
        import jax
        import jax.numpy as jnp

        leaves, structure = jax.tree.flatten(params)
        if structure != self.structure or tuple(tuple(np.shape(leaf)) for leaf in leaves) != self.shapes:
            raise ValueError(f"the parameters must be a tree {self.structure} of arrays of shapes {self.shapes}")
        return jnp.concatenate([jnp.reshape(jnp.asarray(leaf), (-1,)) for leaf in leaves])

    def tree(self, theta: Any) -> Any:
        import jax

        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        starts = [0, *ends[:-1].tolist()]
        parts = [theta[a:b].reshape(shape) for a, b, shape in zip(starts, ends.tolist(), self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, parts)

    def at_home(self, X: Any, y: Any) -> tuple[Any, Any]:
        import jax
        import jax.numpy as jnp

        if not isinstance(X, np.ndarray | jax.Array):
            raise TypeError(f"X is a {describe(X)} but the parameters are JAX arrays: pass X as a JAX array")
        if isinstance(X, jax.Array) and X.devices() != self.first.devices():
            raise ValueError(
                f"X is on {X.devices()} but the model's parameters are on {self.first.devices()}: move one of them, "
                "with jax.device_put"
            )
        y = jnp.asarray(y)
        y = y.astype(self.first.dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y
        return jnp.asarray(X, self.first.dtype), y

    def predict(self, theta: Any, X: Any) -> Any:
        return _column(self.call(self.tree(theta), X))

    def function(self) -> Callable[[Any, Any], Any]:
        return lambda params, X: _column(self.call(params, X))

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        yield

    def check(self, merit: Merit, theta: Any) -> None:
        import jax

        try:
            slope = jax.grad(lambda theta: merit(theta)[0])(theta)
        except (TypeError, jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            raise TypeError(_NOT_DIFFERENTIABLE.format(why=str(error).splitlines()[0])) from error
        if not bool((slope != 0).any()):
            raise TypeError(_NOT_DIFFERENTIABLE.format(why="its gradient is 0"))

    def stepper(self, merit: Merit, theta: Any, radius: float) -> _Stepper:
        return _JaxStepper(merit, theta, radius)

    @contextlib.contextmanager
    def wide(self, theta: Any, X: Any, y: Any) -> Iterator[tuple[Callable[[Any], Any], Any, Any]]:
        import jax
        import jax.numpy as jnp

        enable = (
            jax.enable_x64 if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental").enable_x64
        )
        with enable(True):
            theta, rows = (jnp.asarray(to_host(a), jnp.float64) for a in (theta, X))
            labels = to_host(y)
            labels = jnp.asarray(labels.astype(np.float64) if labels.dtype.kind == "f" else labels)
            yield lambda batch: self.predict(theta, batch), rows, labels


_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class _JaxStepper:
    """Adam (Kingma and Ba 2015) on the vector of the parameters, scaled back into the ball; one compilation a merit."""

    def __init__(self, merit: Merit, theta: Any, radius: float) -> None:
        import jax.numpy as jnp

        self._theta, self._radius = theta, radius
        self._state = (jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros((), theta.dtype))
        if merit not in _compiled:
            _compiled[merit] = _adam_step(weakref.ref(merit))
        self._step = _compiled[merit]

    @property
    def theta(self) -> Any:
        return self._theta

    def step(self, rate: float, shifts: Any, sign: float, multiplier: float, weight: float) -> tuple[float, float]:
        import jax.numpy as jnp

        dtype = self._theta.dtype
        numbers = [jnp.asarray(x, dtype) for x in (rate, self._radius, sign, multiplier, weight)]
        self._theta, self._state, value, risk = self._step(self._theta, self._state, jnp.asarray(shifts), *numbers)
        return float(value), float(risk)


def _adam_step(merit: Callable[[], Any]) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def step(theta: Any, state: Any, shifts: Any, rate: Any, radius: Any, *rest: Any) -> Any:
        slope, (value, risk) = jax.grad(merit(), has_aux=True)(theta, shifts, *rest)
        m, v, t = state
        m, v, t = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2, t + 1
        theta = theta - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        theta = theta * jnp.minimum(1.0, radius / jnp.linalg.norm(theta))
        return theta, (m, v, t), value, risk

    compiled: Callable[..., Any] = jax.jit(step)
    return compiled
