"""Torch modules and JAX functions with bounded parameters as a class of models."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.losses.functions import Metric, resolve
from reliance.rashomon.frameworks import framework_of
from reliance.rashomon.parameter_search import FoundModel, Search
from reliance.rashomon.protocol import ClassData, Member, Range

# The best parameters found for given rows, which are asked for twice: for the bound, and for the ranges.
_BEST: weakref.WeakKeyDictionary[ClassData, weakref.WeakKeyDictionary[object, Array]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class DifferentiableClass:
    r"""All settings, of at most a given norm, of the parameters of a differentiable model.

    Parameters
    ----------
    apply : torch.nn.Module or callable
        A module, or a function ``apply(params, X (m, P)) -> (m,)`` or ``(m, 1)`` that JAX can trace and differentiate,
        or that computes with torch tensors if the parameters are such. It is called in the parameters' dtype and in
        float64.
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
    pairs : "all" or int
        Over which pairs the reliance of the models that are returned is measured: all n(n-1), or so many shifts of the
        rows, for n too large for all.

    Notes
    -----
    Each end is an augmented Lagrangian search for the least or largest log ratio (or difference) of the switched risk
    over the risk, under the risk's bound; parameters that become too large are scaled back. What a search ends with is
    checked in float64 on all rows: if its risk exceeds the bound, it is moved towards the best model until it does not,
    and if its risk or norm is still too large, it is dropped. Which of the starts was best is decided on the pairs of
    one step, also in float64; the reliance of the models returned is that over ``pairs``.

    ``lower`` and ``upper`` are nan: the achieved ends lie inside the true range, how far is not known. ``spread`` is by
    how much the searches of an end differ.

    A gradient keeps what the model computes for 2^16 pairs at a time, whatever n. On JAX one compilation serves all
    features, ends and starts.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Nocedal, J., Wright, S. (2006). Numerical optimization, section 17.4 (augmented Lagrangian).

    Examples
    --------
    >>> import numpy as np, torch, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> flexible = rl.DifferentiableClass(torch.nn.Linear(2, 1), radius=5.0, starts=1, steps=200)
    >>> found = rl.model_class_reliance(flexible, X, y, epsilon=0.05, features=[0], rng=0)
    >>> risk = found.reference_risk  # of the best model found, so that both classes have the same bound
    >>> exact = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, reference=risk, features=[0])
    >>> bool(exact.lower[0] <= found.achieved_lower[0] < found.achieved_upper[0] <= exact.upper[0])
    True
    """

    apply: object
    params: object = None
    radius: float | None = None
    loss: str = "squared_error"
    starts: int = 4
    steps: int = 600
    learning_rate: float = 0.02
    shifts: int | None = None
    pairs: str | int = "all"

    def __post_init__(self) -> None:
        if self.radius is None:
            raise ValueError(
                "radius=None: give the largest norm that the parameters may have, for instance twice that of the "
                "fitted model. An unbounded flexible class has no meaningful upper end: among its good models there "
                "are always some that rely on a feature as much as one likes, wherever the rows say nothing"
            )
        if isinstance(self.radius, bool) or not isinstance(self.radius, int | float) or not 0 < self.radius < math.inf:
            raise ValueError(f"radius={shown(self.radius)}: pass a positive number")
        for name, none in (("starts", ()), ("steps", ()), ("shifts", (None,)), ("pairs", ("all",))):
            value = getattr(self, name)
            if value not in none and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                also = "".join(f", or {other!r}" for other in none)
                raise ValueError(f"{name}={shown(value)}: pass an integer of at least 1{also}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate={shown(self.learning_rate)}: pass a positive number")
        if isinstance(resolve(self.loss), Metric):
            raise ValueError(f"loss={shown(self.loss)} is a whole-set metric: pass a per-row loss")
        framework_of(self.apply, self.params)  # what cannot be differentiated is an error at once

    def best(self, data: ClassData) -> Member:
        """The model of least risk that was found."""
        search = Search.of(self, data)
        return search.member(self._best(search))

    def contains(self, data: ClassData, model: object) -> Member:
        """A ``FoundModel``, a module of the same shape, or parameters of the same shape, with at most the radius."""
        search = Search.of(self, data)
        theta = search.framework.vector(model.params if isinstance(model, FoundModel) else model)
        norm = search.norm(theta)
        if not norm <= search.radius:
            raise ValueError(
                f"reference has parameters of norm {norm:g}, more than radius={self.radius:g}: raise radius"
            )
        self._best(search, theta)  # it may be better than what a search finds
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
        search = Search.of(self, data)
        best = self._best(search)
        least = search.risk(best)
        if least == 0.0:
            raise ValueError(
                "the best model found predicts these rows exactly, and reliance is relative to its risk: pass more "
                "rows, or a smaller radius="
            )
        optimiser = search.optimiser(compare)
        found = []
        for feature in features:
            found.append(search.range(optimiser, feature, best, least, bound, compare, conditional))
            advance(1)
        return found

    def _best(self, search: Search, *others: Array) -> Array:
        known = _BEST.setdefault(search.data, weakref.WeakKeyDictionary())
        if self not in known:
            known[self] = search.best(*others)
        return known[self]
