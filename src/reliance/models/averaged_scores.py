"""Averages of linear models of scikit-learn: votes, and calibrated classifiers. Each part has one linear score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reliance._core.kinds import HostArray
from reliance.models.untouched import inherits

Floats = NDArray[np.float64]
Estimator: TypeAlias = Any  # fitted, of scikit-learn, whose attributes differ from class to class
# Slopes (P, C), intercepts (C,), and what the model answers to scores (m, C).
Averaged: TypeAlias = tuple[Floats, Floats, Callable[[Floats], HostArray]]

_METHODS = ("predict", "predict_proba", "decision_function", "_decision_function", "_predict_proba_lr")


def averaged_scores(model: Estimator, method: str | None, columns: int) -> Averaged | None:
    """The scores of the parts of a vote or of a calibrated classifier of two classes; None if they are not linear."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import VotingClassifier, VotingRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.linear_model._base import LinearClassifierMixin, LinearModel

    if isinstance(model, VotingRegressor) and method == "predict":
        linear = _linear(model.estimators_, LinearModel, columns)
        return None if linear is None else (*linear, partial(_mean, weights=model._weights_not_none))
    if method != "predict_proba" or len(getattr(model, "classes_", ())) != 2:
        return None
    if isinstance(model, VotingClassifier) and model.voting == "soft":
        linear = _linear(model.estimators_, LogisticRegression, columns)
        return None if linear is None else (*linear, partial(_mean_of_logistic, weights=model._weights_not_none))
    if isinstance(model, CalibratedClassifierCV):
        parts = model.calibrated_classifiers_
        linear = _linear([part.estimator for part in parts], LinearClassifierMixin, columns)
        calibrators = [part.calibrators[0] for part in parts]
        return None if linear is None else (*linear, partial(_mean_of_calibrated, calibrators=calibrators))
    return None


def _linear(parts: Sequence[Estimator], kind: type, columns: int) -> tuple[Floats, Floats] | None:
    """The coefficients of models of a kind, of which each has one score."""
    if not all(isinstance(part, kind) and inherits(part, _METHODS, "sklearn") for part in parts):
        return None
    slopes = [np.asarray(part.coef_, dtype=np.float64).reshape(-1) for part in parts]
    intercepts = [np.asarray(part.intercept_, dtype=np.float64).reshape(-1) for part in parts]
    if any(len(own) != columns for own in slopes) or any(len(own) != 1 for own in intercepts):
        return None
    return np.stack(slopes, axis=1), np.concatenate(intercepts)


def _mean(scores: Floats, weights: Sequence[float] | None) -> HostArray:
    return np.asarray(np.average(scores, axis=1, weights=weights))


def _both(second: Floats) -> HostArray:
    return np.stack([1.0 - second, second], axis=1)


def _mean_of_logistic(scores: Floats, weights: Sequence[float] | None) -> HostArray:
    return _both(np.asarray(np.average(special.expit(scores), axis=1, weights=weights)))


def _mean_of_calibrated(scores: Floats, calibrators: Sequence[Estimator]) -> HostArray:
    each = [one.predict(np.ascontiguousarray(own)) for one, own in zip(calibrators, scores.T, strict=True)]
    return _both(np.mean(each, axis=0))
