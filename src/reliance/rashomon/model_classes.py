"""The classes of models that model class reliance ranges over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.checks import check_choice
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.rashomon.basis_class import BasisClass
from reliance.rashomon.convex import ConvexLinearClass
from reliance.rashomon.differentiable import DifferentiableClass
from reliance.rashomon.finite import FiniteClass
from reliance.rashomon.kernel import KernelClass
from reliance.rashomon.linear import LeastSquaresClass
from reliance.rashomon.members import Members
from reliance.rashomon.moments import check_intercept
from reliance.rashomon.protocol import ClassData, Member, ModelClass, Range, ResampledClass
from reliance.rashomon.tree_class import TreeClass

Floats = NDArray[np.float64]

__all__ = [
    "BasisClass",
    "DifferentiableClass",
    "FiniteClass",
    "KernelClass",
    "LinearClass",
    "Members",
    "ModelClass",
    "TreeClass",
]

_LOSSES = ("squared_error", "logistic", "hinge")


@dataclass(frozen=True)
class LinearClass:
    r"""Linear models ``X @ coef + intercept``.

    Under squared error the models of at most some risk form an ellipsoid, and the smallest and the largest reliance
    over it are exact for features and groups, ratios and differences, plain and conditional: a ratio of two quadratics,
    by Dinkelbach's method with trust-region steps. All P features together cost one pass over the rows, O(n P^2), and
    O(P^3).

    With ``ridge`` the coefficients lie in a ball, too. Two quadratic constraints can leave a gap: ``lower`` and
    ``upper`` are then the bounds of a semidefinite relaxation, ``achieved_lower`` and ``achieved_upper`` those of the
    best models that a local search found.

    Parameters
    ----------
    loss : {"squared_error", "logistic", "hinge"}
        Labels are numbers, {0, 1}, or {-1, 1}. The last two are convex but not quadratic, O(n log n) a risk: the
        lower end is certified and nearly attained, the upper end achieved by a search, with a wide certified bound.
    ridge : float, optional
        The radius of the ball of coefficients, in the units of the columns as they are: scale them before. None: no
        ball. Collinear columns need one, and classes that a linear score separates.
    intercept : bool or float
        Whether models have a free intercept, or the one that all of them have (False: 0). It is never in the ball.

    Notes
    -----
    Sums over rows are float64: on the device of X where it has float64, otherwise on the host, chunk by chunk. What
    follows is P x P and always on the host in float64. The extremal models are `reliance.models.Linear` in the dtype of
    X; their risks are those before the coefficients were rounded to it.

    The intercept is part of the class: a good model may predict too much on average. That alone changes no difference,
    but the risk that a ratio divides by.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 6.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    >>> y = X[:, 0] + X[:, 2] + rng.normal(size=500)
    >>> result = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
    >>> [round(float(v), 1) for v in result.lower]  # each of two copies can be replaced by the other, the third cannot
    [1.0, 1.0, 2.7]
    """

    loss: str = "squared_error"
    ridge: float | None = None
    intercept: bool | float = True

    def __post_init__(self) -> None:
        check_choice(self.loss, _LOSSES, "loss")
        check_intercept(self.intercept)
        if self.loss != "squared_error" and self.intercept is not True:
            raise ValueError(f"loss={shown(self.loss)} has a free intercept always: pass intercept=True")
        radius = self.ridge
        if radius is not None and (isinstance(radius, bool) or not isinstance(radius, int | float) or not radius > 0):
            raise ValueError(
                f"ridge={shown(radius)}: pass the radius of the ball of coefficients, a positive number, or None"
            )

    @property
    def _solver(self) -> ModelClass:
        radius = None if self.ridge is None else float(self.ridge)
        if self.loss != "squared_error":
            return ConvexLinearClass(self.loss, radius)
        return LeastSquaresClass(radius, self.intercept)

    def best(self, data: ClassData) -> Member:
        return self._solver.best(data)

    def contains(self, data: ClassData, model: object) -> Member:
        return self._solver.contains(data, model)

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        return self._solver.ranges(data, bound, features, compare, conditional, advance)

    def sample_ends(
        self,
        data: ClassData,
        counts: Floats,
        bounds: Callable[[Floats], Floats],
        features: tuple[Feature, ...],
        compare: str,
    ) -> Floats | None:
        solver = self._solver
        if not isinstance(solver, ResampledClass):
            return None
        return solver.sample_ends(data, counts, bounds, features, compare)
