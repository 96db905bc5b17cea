"""Samplers of a conditional mean plus a residual, linear or smooth; and what a sampler's name stands for."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np

from reliance._core.arrays import device, epsilon, from_host, index_dtype, namespace, to_host
from reliance._core.kinds import Array, HostArray
from reliance._core.streams import Indices
from reliance._core.words import listed, shown
from reliance.samplers.draws import (
    Host,
    Normal,
    Residuals,
    Sampler,
    ValueDraws,
    check_columns,
    lower_factor,
    narrow,
    normal_values,
    take_columns,
    wide,
)
from reliance.samplers.knockoffs import Knockoffs
from reliance.samplers.neighbours import KNN, Leaves
from reliance.samplers.regressors import OLS, KernelRidge, Regressor, least_squares

Estimator = TypeVar("Estimator")


class Linear(Protocol):
    """A least squares fit: of the columns, or of functions of them."""

    @property
    def bread(self) -> Host: ...

    @property
    def freedom(self) -> float: ...

    def design(self, Z: Array) -> Array: ...

    def means(self, design: Array) -> Array: ...


def resolve(sampler: str | Sampler) -> Sampler:
    """The sampler of a name, or the object itself if it can be fitted."""
    from reliance.samplers.by_kind import ByKind  # which is made of these
    from reliance.samplers.splines import Splines

    named = {
        "auto": ByKind,
        "gaussian": Gaussian,
        "splines": Splines,
        "residual": Residual,
        "knn": KNN,
        "leaves": Leaves,
        "knockoffs": Knockoffs,
    }
    if isinstance(sampler, str):
        if sampler not in named:
            raise ValueError(f"sampler={shown(sampler)} is unknown: pass one of {listed(named)}, or a sampler")
        made: Sampler = named[sampler]()
        return made
    if isinstance(sampler, type) or not callable(getattr(sampler, "fit", None)):
        raise TypeError(
            f"sampler={shown(sampler)} is not a sampler: pass a name ({listed(named)}) or an object with "
            "fit(X, target, given)"
        )
    return sampler


def refuse_categorical(T: Array, target: tuple[int, ...]) -> None:
    """A mean plus a residual is no value that a column of two values can have."""
    xp = namespace(T)
    low, high = xp.min(T, axis=0), xp.max(T, axis=0)
    binary = xp.logical_and(xp.all(xp.logical_or(low == T, high == T), axis=0), low < high)
    found = np.flatnonzero(to_host(binary))
    if found.size and T.shape[0] > 2:
        raise ValueError(
            f"column {target[found[0]]} of X is categorical: it has only 2 values, and a mean plus a residual is "
            "neither of them. Use sampler='leaves' or 'knn'"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Linear means


@dataclass(frozen=True)
class Gaussian:
    """The linear regression of the target on the given columns, plus a residual.

    ``x~ = z'B + r`` with z = [1, given] and B by least squares, in float64. The right draws for jointly Gaussian
    columns; with donors' residuals also for any linear regression with independent errors.

    Parameters
    ----------
    draws : {"donors", "normal"}
        r is the residual (vector, of a group) of a donor row, or N(0, S) with S the residual covariance, divided
        by m - q.
    ridge : float or None
        Penalises the squared slopes of the standardised columns, ``mean (t - z'b)^2 + ridge |b|^2``, for singular or
        many given columns. ``design`` and ``bread`` then describe the fit approximately only: intervals corrected
        with them leave out the ridge's bias.
    """

    draws: Literal["donors", "normal"] = "donors"
    ridge: float | None = None

    def __post_init__(self) -> None:
        if self.draws not in ("donors", "normal"):
            raise ValueError(f"draws={shown(self.draws)} is unknown: pass 'donors' or 'normal'")
        if self.ridge is not None and not self.ridge > 0:
            raise ValueError(f"ridge={self.ridge} is not a penalty: pass a positive number or None")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedGaussian:
        """Least squares on all rows of X."""
        check_columns(X, target, given)
        T = wide(X, target)
        if given:  # without, donors' residuals are deviations from one mean: observed values
            refuse_categorical(T, target)
        fit = least_squares(wide(X, given), T, ridge=self.ridge, labels=given, eps=epsilon(X))
        return FittedGaussian(self, X, target, given, fit)


@dataclass(frozen=True, eq=False)
class FittedGaussian:
    """A fitted `Gaussian`."""

    sampler: Gaussian
    X: Array
    target: tuple[int, ...]
    given: tuple[int, ...]
    fitted: Linear
    # Whether a row's mean is that of the other rows, where these are the rows of the fit.
    without_itself: bool = False

    def on(self, X: Array) -> Residuals | ValueDraws:
        design, mean, residual = self._parts(X)
        training = None
        if self.without_itself and X is self.X:
            mean = mean - self._pull(design) * residual
        if X is not self.X:
            Z, _, left = self._parts(self.X)
            training = (narrow(Z, X), narrow(left, X))
        design, mean = narrow(design, X), narrow(mean, X)
        bread = self.fitted.bread
        if self.sampler.draws == "donors":
            return Residuals(mean, narrow(residual, X), design, bread, training)
        scale = from_host(self._scale, namespace(mean), device(mean), mean.dtype)
        normal = Normal(mean, scale, design, bread, training)
        return ValueDraws(len(self.target), normal_values(mean, scale), normal)

    def _pull(self, design: Array) -> Array:
        """``(n, 1)``: h / (1 - h), by how much of its residual a row moved its own mean, h its leverage.

        With the other rows' mean and residuals as they are, E (x~ - x)^2 is right to the second order in h. A row that
        is alone (h above 1/2) says little about its own mean, and the others nothing: it counts as if h were 1/2.
        """
        xp = namespace(design)
        bread = from_host(self.fitted.bread, xp, device(design), design.dtype)
        hat = xp.sum((design @ bread) * design, axis=1) / design.shape[0]
        hat = xp.minimum(hat, xp.full_like(hat, 0.5))
        return (hat / (1 - hat))[:, None]

    def _parts(self, X: Array) -> tuple[Array, Array, Array]:
        """Design (n, q), means (n, g) and residuals (n, g), in float64."""
        design = self.fitted.design(wide(X, self.given))
        mean = self.fitted.means(design)
        return design, mean, wide(X, self.target) - mean

    @cached_property
    def _scale(self) -> Host:
        """The lower factor of the residual covariance of the rows of the fit."""
        if self.fitted.freedom <= 0:
            raise ValueError(f"given leaves no row to estimate the residuals' variance: X has {self.X.shape[0]} rows")
        residual = self._parts(self.X)[2]
        squares = namespace(residual).matrix_transpose(residual) @ residual
        return lower_factor(to_host(squares) / self.fitted.freedom)


# ---------------------------------------------------------------------------------------------------------------------
# Means of any form


@dataclass(frozen=True, eq=False)
class Residual:
    """The prediction of a regressor from the given columns, plus the residual of a donor row.

    Right if the target is any function of the given columns that the regressor finds, plus errors that do not depend on
    them. Fitted on the evaluated rows, the means are cross-fitted: a row is predicted from the rows of other folds,
    because residuals of the rows a flexible regressor was fitted on are too small. A row's fold is a hash of its own
    values: it does not depend on the order of the rows, nor on which other rows there are. Equal rows are dealt out
    over the folds in turn: if they left together, the others' mean would be pushed away from them.

    Parameters
    ----------
    regressor : estimator or None
        `KernelRidge` (None) or `OLS`, which work on the backend; or any object with fit and predict, such as
        scikit-learn's, which is copied for each column and fold and called with NumPy arrays.
    folds : int
    """

    regressor: Regressor | None = None
    folds: int = 5

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise ValueError(f"folds={self.folds} leaves no rows to fit on: give at least 2")
        if self.regressor is not None and not (hasattr(self.regressor, "fit") and _predicts(self.regressor)):
            raise TypeError(f"regressor={shown(self.regressor)} has no fit() and predict(): pass an estimator that has")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedResidual:
        """The regressions are fitted when the evaluated rows are known."""
        check_columns(X, target, given)
        if given:
            refuse_categorical(wide(X, target), target)
        if given and X.shape[0] < 2 * self.folds:
            raise ValueError(f"X has {X.shape[0]} rows, too few for folds={self.folds}: give at least {2 * self.folds}")
        return FittedResidual(self, X, target, given)


@dataclass(frozen=True, eq=False)
class FittedResidual:
    """A fitted `Residual`."""

    sampler: Residual
    X: Array
    target: tuple[int, ...]
    given: tuple[int, ...]

    def on(self, X: Array) -> Residuals:
        mean = self._crossfitted if X is self.X else self._predict(self.X, X)
        return Residuals(narrow(mean, X), narrow(wide(X, self.target) - mean, X))

    def in_sample(self, X: Array) -> Residuals:
        """Without cross-fitting, also on the rows of the fit."""
        mean = self._predict(self.X, X)
        return Residuals(narrow(mean, X), narrow(wide(X, self.target) - mean, X))

    @cached_property
    def _crossfitted(self) -> Array:
        """``(n, g)``: each row's mean from the rows of the other folds."""
        X = self.X
        if not self.given:  # one mean: there is nothing that a row could have fitted to itself
            return self._predict(X, X)
        fold = row_folds(X, (*self.target, *self.given), self.sampler.folds)
        parts = [
            self._predict(_rows(X, np.flatnonzero(fold != k)), _rows(X, np.flatnonzero(fold == k)))
            for k in np.unique(fold)
        ]
        means = namespace(*parts).concat(parts, axis=0)
        back = np.argsort(np.argsort(fold, kind="stable"))
        return namespace(means).take(means, from_host(back, namespace(means), device(means)), axis=0)

    def _predict(self, X: Array, at: Array) -> Array:
        """``(n, g)``, float64: the means of the rows ``at`` from a fit on X."""
        T = wide(X, self.target)
        if not self.given:
            return least_squares(wide(X, ()), T).predict(wide(at, ()))
        regressor = self.sampler.regressor
        if regressor is None or isinstance(regressor, OLS | KernelRidge):
            built_in = KernelRidge() if regressor is None else regressor
            return built_in.fit(wide(X, self.given), T).predict(wide(at, self.given))
        Z, rows = (to_host(take_columns(x, self.given)) for x in (X, at))
        columns = [copied(regressor).fit(Z, column).predict(rows) for column in to_host(T).T]
        means = np.stack([np.reshape(np.asarray(column, dtype=np.float64), (-1,)) for column in columns], axis=1)
        return from_host(means, namespace(T), device(T), T.dtype)


def row_folds(X: Array, columns: tuple[int, ...], folds: int) -> HostArray:
    """The fold (n,) of each row, on the host: a hash of its values, equal rows one after the other.

    A row without equals has the same fold whichever other rows there are, and deleting one of several equal rows takes
    one row from one fold: estimates without a group of rows differ by that group only. With few rows some folds are
    empty.
    """
    values = np.ascontiguousarray(to_host(take_columns(X, columns)), dtype=np.float64)
    words = (values + 0.0).view(np.uint64)  # -0.0 is 0.0
    mixed = np.full(len(values), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for word in words.T:  # the finaliser of splitmix64, column after column
        mixed = (mixed ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(32)
    order = np.argsort(mixed, kind="stable")
    first = np.flatnonzero(np.diff(mixed[order], prepend=~mixed[order[:1]]))
    turn = np.empty(len(mixed), dtype=np.int64)  # how many equal rows come before
    turn[order] = np.arange(len(mixed)) - np.repeat(first, np.diff(first, append=len(mixed)))
    fold = ((mixed % np.uint64(folds)).astype(np.int64) + turn) % folds
    return fold if len(np.unique(fold)) > 1 else np.arange(len(fold)) % folds  # few rows


def _rows(X: Array, rows: Indices) -> Array:
    xp = namespace(X)
    return xp.take(X, from_host(rows, xp, device(X), index_dtype(xp)), axis=0)


def _predicts(regressor: object) -> bool:
    return isinstance(regressor, OLS | KernelRidge) or hasattr(regressor, "predict")


def copied(regressor: Estimator) -> Estimator:
    if hasattr(regressor, "get_params"):
        from sklearn.base import clone

        new: Estimator = clone(regressor)
        return new
    return copy.deepcopy(regressor)
