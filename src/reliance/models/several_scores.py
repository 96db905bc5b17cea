"""Linear models with several scores: of more than two classes, of several outputs, or averages of linear models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance.models.averaged_scores import averaged_scores
from reliance.models.untouched import inherits

Floats = NDArray[np.float64]
Estimator: TypeAlias = Any  # fitted, of scikit-learn, whose attributes differ from class to class

_METHODS = ("predict", "predict_proba", "decision_function", "_decision_function", "_predict_proba_lr")


@dataclass(frozen=True, eq=False)
class SeveralScores:
    """A model with C linear scores, in numbers on the host.

    Attributes
    ----------
    slopes : array (P, C)
    intercepts : array (C,)
    answer : callable
        What the model returns, ``(m, ...)``, at scores ``(m, C)``.
    softmax : bool
        Whether probabilities are the softmax of the scores.
    continuous : bool
        Whether answers are known to have no jumps.
    """

    slopes: Floats
    intercepts: Floats
    answer: Callable[[Floats], HostArray]
    softmax: bool = False
    continuous: bool = True
    labels: str = "none"

    def score(self, flat: Array) -> Floats:
        """``(m, C)`` of rows ``(m, P)``."""
        return np.asarray(arrays.to_host(flat), dtype=np.float64) @ self.slopes + self.intercepts


def several_scores(model: Estimator, method: str | None, columns: int) -> SeveralScores | None:
    """What is known of a model whose ``method`` is called; None: it is not known to have several linear scores."""
    if "sklearn" not in sys.modules or not inherits(model, _METHODS, "sklearn"):
        return None
    from sklearn.linear_model._base import LinearClassifierMixin, LinearModel
    from sklearn.multiclass import OneVsRestClassifier

    averaged = averaged_scores(model, method, columns)
    if averaged is not None:
        return SeveralScores(*averaged, continuous=False)
    answer: Callable[[Floats], HostArray] | None = None
    if isinstance(model, OneVsRestClassifier):
        found, answer = _one_against_the_rest(model, columns), _normalised if method == "predict_proba" else None
    elif isinstance(model, LinearModel) and method == "predict":
        found, answer = _coefficients(model, columns), np.asarray
    elif isinstance(model, LinearClassifierMixin) and method in ("decision_function", "predict_proba"):
        found, answer = _coefficients(model, columns), _link(model) if method == "predict_proba" else np.asarray
    else:
        return None
    return None if found is None or answer is None else SeveralScores(*found, answer, answer is _softmax)


def _coefficients(model: Estimator, columns: int) -> tuple[Floats, Floats] | None:
    coef = np.asarray(getattr(model, "coef_", ()), dtype=np.float64)
    if coef.ndim != 2 or coef.shape[0] < 2 or coef.shape[1] != columns:
        return None
    intercepts = np.asarray(model.intercept_, dtype=np.float64).reshape(-1)
    return coef.T, np.broadcast_to(intercepts, coef.shape[0]).copy()


def _one_against_the_rest(model: Estimator, columns: int) -> tuple[Floats, Floats] | None:
    """Of logistic regressions, one for each class."""
    from sklearn.linear_model import LogisticRegression

    parts = getattr(model, "estimators_", [])
    known = all(isinstance(one, LogisticRegression) and inherits(one, _METHODS, "sklearn") for one in parts)
    if len(parts) < 2 or not known or model.multilabel_ or any(one.coef_.shape != (1, columns) for one in parts):
        return None
    return np.stack([one.coef_[0] for one in parts], axis=1), np.array([float(one.intercept_[0]) for one in parts])


def _link(model: Estimator) -> Callable[[Floats], HostArray] | None:
    """From scores to probabilities."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    if isinstance(model, LogisticRegression):
        # Before scikit-learn 1.8, some were fitted one class against the rest.
        rest = getattr(model, "multi_class", "auto") == "ovr" or model.solver == "liblinear"
        return _normalised if rest else _softmax
    if isinstance(model, SGDClassifier):
        return _normalised if model.loss == "log_loss" else None
    return _softmax if isinstance(model, LinearDiscriminantAnalysis) else None


def _softmax(scores: Floats) -> HostArray:
    found: HostArray = special.softmax(scores, axis=1)
    return found


def _normalised(scores: Floats) -> HostArray:
    found = special.expit(scores)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
