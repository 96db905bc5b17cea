"""Conditional model reliance's own samplers: what the other columns predict stays, the rest is another row's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.samplers.draws import FittedSampler, Residuals, check_finite, take_columns, wide
from reliance.samplers.draws import Thresholds as Thresholds
from reliance.samplers.regressors import OLS, KernelRidge, LinearFit, Regressor, least_squares
from reliance.samplers.residual import FittedGaussian, FittedResidual, Gaussian, Residual, copied, row_folds


class Probabilities(Protocol):
    """What fitting a classifier returns."""

    def predict_proba(self, Z: HostArray, /) -> NDArray[np.float64]: ...


class Classifier(Protocol):
    """What predicts the probabilities of two values: scikit-learn's classifiers."""

    def fit(self, Z: HostArray, T: NDArray[np.bool_], /) -> Probabilities: ...


@dataclass(frozen=True, eq=False)
class Scrambler:
    """Predictions of a regressor, in-sample or cross-fitted, plus the residuals of other rows.

    Parameters
    ----------
    regressor : estimator, "kernel_ridge" or None
        None: ordinary least squares with intercept. ``"kernel_ridge"``: the built-in kernel ridge regression. An
        estimator with ``fit`` and ``predict``: it is cloned.
    classifier : estimator or None
        An estimator with ``predict_proba``, for columns of two values. Row k's residual is then a number drawn
        uniformly from the part of [0, 1] that its own value has under its own predicted probability, and row i takes
        the value that this number has under *its* probability: so replaced values are such as the column has.
    crossfit : int or None
        Number of folds in which the regressor predicts rows that it was not fitted on. None: in-sample, the course
        notes' definition.
    latent : int or None
        The column of X that holds a number in [0, 1) for each row, which a classifier needs;
        `reliance.conditional_model_reliance` makes one.
    """

    regressor: Regressor | Literal["kernel_ridge"] | None = None
    classifier: Classifier | None = None
    crossfit: int | None = None
    latent: int | None = None

    def __post_init__(self) -> None:
        wanted = (("regressor", self.regressor, "predict"), ("classifier", self.classifier, "predict_proba"))
        for name, given, method in wanted:
            able = hasattr(given, "fit") and hasattr(given, method)
            by_name = name == "regressor" and _is_kernel_ridge(given)
            if given is not None and not able and not by_name:
                raise TypeError(f"{name}={shown(given)} has no fit() and {method}(): pass an estimator that has")
        folds = self.crossfit
        if folds is not None and (isinstance(folds, bool) or not isinstance(folds, int) or folds < 2):
            raise ValueError(f"crossfit={shown(self.crossfit)}: pass a number of folds of at least 2, or None")

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedSampler:
        check_finite(X, (*target, *given))
        if self.crossfit is not None and self.crossfit > X.shape[0]:
            raise ValueError(f"crossfit={self.crossfit} is more folds than the {X.shape[0]} rows: pass fewer, or None")
        if self.classifier is not None and len(target) == 1 and _levels(X, target[0]) is not None:
            return _FittedClassifier(self, X, target[0], given)
        if self.regressor is None and self.crossfit is None:
            return FittedGaussian(Gaussian(), X, target, given, self._least_squares(X, target, given))
        regressor = self.regressor  # an estimator may have a length, and so no truth value before it is fitted
        if regressor is None or isinstance(regressor, str):
            regressor = OLS() if regressor is None else KernelRidge()
        folds = 2 if self.crossfit is None else self.crossfit
        fitted = FittedResidual(Residual(regressor, folds), X, target, given)
        return _InSample(fitted) if self.crossfit is None else fitted

    def _least_squares(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> LinearFit:
        try:
            return least_squares(wide(X, given), wide(X, target), labels=given, eps=arrays.epsilon(X))
        except ValueError as error:
            raise ValueError(
                f"column {target[0]} of X cannot be predicted from the others by least squares: they are collinear or "
                "as many as the rows. Leave columns out, or pass a regressor, for instance regressor='kernel_ridge'"
            ) from error


@dataclass(frozen=True, eq=False)
class _InSample:
    """The course notes' definition: each row is predicted by a fit that it took part in."""

    fitted: FittedResidual

    def on(self, X: Array) -> Residuals:
        return self.fitted.in_sample(X)


@dataclass(frozen=True, eq=False)
class _FittedClassifier:
    scrambler: Scrambler
    X: Array
    column: int
    given: tuple[int, ...]

    def on(self, X: Array) -> Thresholds:
        assert self.scrambler.latent is not None
        low, high = _levels(X, self.column) or (0.0, 1.0)
        Z = arrays.to_host(take_columns(X, self.given))
        is_high = arrays.to_host(X[:, self.column]) == high
        share = np.clip(self._probabilities(Z, is_high), 0.0, 1.0)
        # The row's own value is the high one where its number is above the cut: a number from that part.
        cut = 1.0 - share
        u = np.asarray(arrays.to_host(X[:, self.scrambler.latent]), dtype=np.float64)
        latent = np.where(is_high, cut + (1.0 - u) * share, u * cut)
        xp, dev = arrays.namespace(X), arrays.device(X)
        kept, lent = (arrays.from_host(a[:, None], xp, dev, X.dtype) for a in (cut, latent))
        return Thresholds(kept, lent, low, high)

    def _probabilities(self, Z: HostArray, is_high: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Of the high value, for each row; from rows of other folds if cross-fitted."""
        folds, classifier = self.scrambler.crossfit, self.scrambler.classifier
        assert classifier is not None
        if folds is None:
            return np.asarray(copied(classifier).fit(Z, is_high).predict_proba(Z)[:, 1])
        found, fold = np.empty(len(Z)), row_folds(self.X, (self.column, *self.given), folds)
        for k in np.unique(fold):
            if len(np.unique(is_high[fold != k])) < 2:
                raise ValueError(
                    f"crossfit={folds}: the rows outside one of the folds hold only one value of column {self.column} "
                    "of X, so a classifier learns nothing from them: give more rows of its rarer value, or no crossfit"
                )
            model = copied(classifier).fit(Z[fold != k], is_high[fold != k])
            found[fold == k] = model.predict_proba(Z[fold == k])[:, 1]
        return found


def _is_kernel_ridge(regressor: object) -> bool:
    return isinstance(regressor, str) and regressor == "kernel_ridge"


def _levels(X: Array, column: int) -> tuple[float, float] | None:
    """The two values of a column; None if it has another number of them."""
    values = np.unique(arrays.to_host(X[:, column]))
    return (float(values[0]), float(values[1])) if len(values) == 2 else None
