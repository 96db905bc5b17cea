"""A curve and other rows' residuals: least squares on splines of the given columns, whose own error is known.

A flexible regressor costs 20 refits before its error is known. Splines are a linear regression on more columns: how
each row moves the coefficients is a formula, as for a line, and so is the mean that a row would have without itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance.samplers.draws import Host, check_columns, take_columns, wide
from reliance.samplers.regressors import LinearFit, least_squares
from reliance.samplers.residual import FittedGaussian, Gaussian, refuse_categorical

# Functions of a column, from rich to poor: interior knots, powers, and whether columns are multiplied.
_PLANS = ((3, 3, True), (1, 3, True), (3, 3, False), (1, 3, False), (0, 3, False), (0, 2, False))
_ROWS_EACH = 10  # of a coefficient; 5 for the poorest functions
_FEW_VALUES = 5  # up to which a column has powers of itself only
_TAIL = 0.05  # products are of columns without their tails: a row that is far out in two would decide alone
_DEPENDENT = 1e-6  # of its standard deviation: what is left of a column that others say


@dataclass(frozen=True)
class Splines:
    """Least squares of the target on splines and products of the given columns, plus the residual of a donor row.

    Each column enters as itself and as a cubic spline of asinh((z - median) / interquartile range), straight beyond the
    rows of the fit; pairs of columns enter as products. So lines are included, and tails do not decide. On the rows of
    the fit a row's mean is that of the other rows, in closed form: the row itself would pull it towards its own value.

    Right if the target is a smooth function of the given columns, nearly a sum over columns and pairs of them, plus
    errors that do not depend on them.

    Parameters
    ----------
    coefficients : int or None
        At most, for all columns together; None: a tenth of the rows. With few rows or many columns the splines have
        fewer knots, or there are no products; at last each column has a line and a square alone.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=500)
    >>> X, y = np.stack([z**2 + rng.normal(size=500), z], axis=1), z**2 + rng.normal(size=500)
    >>> given = rl.Given([1], sampler=rl.samplers.Splines())  # x0 says nothing beyond x1
    >>> low, high = rl.relative_importance(lambda X: X[:, 0], X, y, given=given, features=[0], rng=0).interval()[0]
    >>> bool(low < 0.0 < high)
    True
    """

    coefficients: int | None = None

    def __post_init__(self) -> None:
        if self.coefficients is not None and not self.coefficients >= 1:
            raise ValueError(f"coefficients={self.coefficients} is not a number of coefficients: give at least 1")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedGaussian:
        """Least squares on all rows of X."""
        check_columns(X, target, given)
        T = wide(X, target)
        if not given:
            return FittedGaussian(Gaussian(), X, target, given, least_squares(wide(X, given), T))
        refuse_categorical(T, target)
        Z = np.asarray(arrays.to_host(take_columns(X, given)), dtype=np.float64)
        functions = _independent(self._functions(Z), Z)
        columns = functions(wide(X, given))
        return FittedGaussian(Gaussian(), X, target, given, SplineFit(functions, least_squares(columns, T)), True)

    def _functions(self, Z: Host) -> Functions:
        m, q = Z.shape
        for knots, powers, products in _PLANS:
            made = Functions(tuple(_curve(z, knots, powers) for z in Z.T), products)
            poorest = (knots, powers, products) == _PLANS[-1]
            most = m // (_ROWS_EACH // 2 if poorest else _ROWS_EACH) if self.coefficients is None else self.coefficients
            if made.count <= most:
                return made
        raise ValueError(
            f"given has {q} columns, of which splines need {made.count} coefficients: {m} rows are too few, or "
            f"coefficients={self.coefficients} is. Drop columns of given, or take another sampler"
        )


@dataclass(frozen=True, eq=False)
class Curve:
    """The functions of one column: z, and powers of s = asinh((z - centre) / width) that change at the knots.

    ``low`` and ``high`` are the ends of the rows of the fit, beyond which all functions are straight.
    """

    centre: float
    width: float
    low: float
    high: float
    bent: bool
    powers: int
    knots: tuple[float, ...]
    inner: tuple[float, float]

    @property
    def count(self) -> int:
        return 1 + (self.powers - 1) + (1 if self.bent and self.powers > 2 else 0) + len(self.knots)

    def __call__(self, z: Array) -> list[Array]:
        xp = arrays.namespace(z)
        within = self._kept(z, self.low, self.high)
        beyond = (z - within) / self.width
        t = (within - self.centre) / self.width
        s, slope = (xp.asinh(t), 1 / xp.sqrt(1 + t * t)) if self.bent else (t, xp.ones_like(t))
        found = [t + beyond]
        if self.bent and self.powers > 2:
            found.append(s + slope * beyond)
        found += [s**k + k * s ** (k - 1) * slope * beyond for k in range(2, self.powers + 1)]
        for knot in self.knots:
            above = xp.maximum(s - knot, xp.zeros_like(s))
            found.append(above**3 + 3 * above**2 * slope * beyond)
        return found

    def core(self, z: Array) -> Array:
        """The column without its tails, for products."""
        return (self._kept(z, *self.inner) - self.centre) / self.width

    @staticmethod
    def _kept(z: Array, low: float, high: float) -> Array:
        xp = arrays.namespace(z)
        return xp.minimum(xp.maximum(z, xp.full_like(z, low)), xp.full_like(z, high))


@dataclass(frozen=True, eq=False)
class Functions:
    """All functions of the given columns; ``chosen`` are those that are not said by others."""

    curves: tuple[Curve, ...]
    products: bool
    chosen: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        q = len(self.curves)
        return sum(curve.count for curve in self.curves) + (q * (q - 1) // 2 if self.products else 0)

    def __call__(self, Z: Array) -> Array:
        """``(n, functions)`` of the rows Z (n, q)."""
        columns = [Z[:, j] for j in range(len(self.curves))]
        made = [one for curve, z in zip(self.curves, columns, strict=True) for one in curve(z)]
        if self.products:
            cores = [curve.core(z) for curve, z in zip(self.curves, columns, strict=True)]
            made += [a * b for a, b in combinations(cores, 2)]
        kept = range(len(made)) if self.chosen is None else self.chosen
        return arrays.namespace(Z).stack([made[k] for k in kept], axis=1)


@dataclass(frozen=True, eq=False)
class SplineFit:
    """A linear fit on functions of the columns; the same as a `LinearFit` for what samplers and errors need."""

    functions: Functions
    fit: LinearFit

    @property
    def bread(self) -> Host:
        return self.fit.bread

    @property
    def freedom(self) -> float:
        return self.fit.freedom

    def design(self, Z: Array) -> Array:
        return self.fit.design(self.functions(wide(Z)))

    def means(self, design: Array) -> Array:
        return self.fit.means(design)


def _curve(z: Host, knots: int, powers: int) -> Curve:
    low, quarter, centre, three, high = (float(v) for v in np.quantile(z, [0.0, 0.25, 0.5, 0.75, 1.0]))
    values = len(np.unique(z))
    width = three - quarter or float(z.std()) or 1.0
    inner = (float(np.quantile(z, _TAIL)), float(np.quantile(z, 1.0 - _TAIL)))
    if not inner[0] < inner[1]:  # nearly all rows are equal in it
        inner = (low, high)
    bent = values > _FEW_VALUES
    if not bent:
        return Curve(centre, width, low, high, False, max(1, min(powers, values - 1)), (), inner)
    count = min(knots, values - _FEW_VALUES - 1)
    places = np.quantile(z, np.arange(1, count + 1) / (count + 1)) if count > 0 else np.zeros(0)
    inside = np.unique(places[(low < places) & (places < high)])
    return Curve(centre, width, low, high, True, powers, _bent(inside, centre, width), inner)


def _bent(places: Host, centre: float, width: float) -> tuple[float, ...]:
    return tuple(float(s) for s in np.arcsinh((places - centre) / width))


def _independent(functions: Functions, Z: Host) -> Functions:
    """Without functions that are constant or said by those before them: a product of columns of one category is 0."""
    made = np.asarray(functions(Z), dtype=np.float64)
    spread = made.std(axis=0)
    varies = np.flatnonzero(spread > 1e-12 * np.maximum(np.abs(made.mean(axis=0)), 1.0))
    standard = (made[:, varies] - made[:, varies].mean(axis=0)) / spread[varies]
    left = np.abs(np.diagonal(np.linalg.qr(standard, mode="r"))) / np.sqrt(len(Z))
    kept: Sequence[int] = varies[: len(left)][left > _DEPENDENT].tolist()
    if not kept:
        raise ValueError("given holds constant columns only, from which nothing is predicted: drop them from given")
    return Functions(functions.curves, functions.products, tuple(kept))
