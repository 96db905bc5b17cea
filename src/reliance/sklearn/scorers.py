"""What a scorer of scikit-learn asks of a model, and its score as a loss of the engine.

A scorer is read in one of three ways. Scores that are the mean of per-row losses, or have an influence function, become
those: population intervals follow. Others that scikit-learn made of a score function get one prediction per draw.
A function ``(estimator, X, y)`` of the user's own gets the permuted rows themselves.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.losses.functions import Loss, Metric, resolve
from reliance.models.responses import label_positions
from reliance.sklearn.rows import Rows

SINGLE = "the score"  # the name of a scorer that is the only one
ROWS = "rows"  # in place of a response method: the rows themselves


# What a scorer answers: a number, or several by name.
Score: TypeAlias = float | dict[str, float]


class Scorer(Protocol):
    """A scorer of scikit-learn, or a function of the user's own."""

    def __call__(self, estimator: object, X: object, y: object, /, **options: object) -> Score: ...


@dataclass(frozen=True, eq=False)
class Reading:
    """How one scorer is measured.

    Attributes
    ----------
    response : str
        The method of the estimator that it reads, or `ROWS`.
    form : {"number", "label", "positive", "raw"}
        What is made of the response: the numbers, positions of the labels among the classes, the score of the second
        of two classes, or the response as it is.
    function : Loss or Metric
        The score as a loss, up to a constant.
    target : array (n,)
        What predictions are compared with; the numbers of the rows where the scorer knows the labels by itself.
    """

    response: str
    form: str
    function: Loss | Metric
    target: HostArray


def named_scorers(scorer: object) -> dict[str, Scorer] | None:
    """The scorers of a multimetric scorer by name; None if it is a single one."""
    held = getattr(scorer, "_scorers", None)
    return dict(held) if isinstance(held, Mapping) else None


def read_all(scorer: Scorer, estimator: object, rows: Rows, y: Sized | None, weights: object) -> dict[str, Reading]:
    """How each scorer is measured on these rows, by name; `SINGLE` is the name of a single one."""
    several = named_scorers(scorer)
    if several is not None:
        return {name: _read(name, one, estimator, rows, y, weights) for name, one in several.items()}
    if _parts(scorer, estimator)[1]:
        return {SINGLE: _read(SINGLE, scorer, estimator, rows, y, weights)}
    # A function of the user's own may give several scores, which is known when it was asked once.
    first = ask(scorer, estimator, rows.given, y, weights)
    names = first if isinstance(first, dict) else [SINGLE]
    remembered = _Remembered(lambda X: ask(scorer, estimator, rows.decode(X), y, weights))
    return {name: Reading(ROWS, "raw", Metric(remembered.score(name), name=name), _places(rows)) for name in names}


def _read(name: str, scorer: Scorer, estimator: object, rows: Rows, y: Sized | None, weights: object) -> Reading:
    function, response, options = _parts(scorer, estimator)
    if not response:
        remembered = _Remembered(lambda X: ask(scorer, estimator, rows.decode(X), y, weights))
        return Reading(ROWS, "raw", Metric(remembered.score(SINGLE), name=name), _places(rows))
    known = None if options else _per_row(name, function, response, estimator, y)
    return known or Reading(response, "raw", _scored(name, scorer, estimator, response, y, weights), _places(rows))


def ask(scorer: Scorer, estimator: object, X: object, y: object, weights: object) -> Score:
    """What a scorer answers: a number, or several by name."""
    return scorer(estimator, X, y) if weights is None else scorer(estimator, X, y, sample_weight=weights)


class _Remembered:
    """A function of rows that gives several scores, asked once for rows that each of the scores is wanted of."""

    def __init__(self, function: Callable[[HostArray], Score]) -> None:
        self.function = function
        self.answers: dict[bytes, Score] = {}

    def score(self, name: str) -> Callable[[HostArray, HostArray], HostArray]:
        def value(places: HostArray, rows: HostArray) -> HostArray:
            key = hashlib.blake2b(np.ascontiguousarray(rows).tobytes()).digest()
            if key not in self.answers:
                self.answers[key] = self.function(rows)
            answer = self.answers[key]
            return np.asarray(-float(answer[name] if isinstance(answer, dict) else answer))

        return value


def _places(rows: Rows) -> NDArray[np.int64]:
    """Numbers of the rows in the place of labels, which a scorer has itself, if there are any."""
    return np.arange(len(rows.array))


def _parts(scorer: Scorer, estimator: object) -> tuple[object, str, Mapping[str, object]]:
    """Score function, response method and options of a scorer that scikit-learn made; (None, "", {}) of any other."""
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import _check_response_method

    if hasattr(scorer, "_score_func") and hasattr(scorer, "_response_method"):
        method = _check_response_method(estimator, scorer._response_method).__name__
        return scorer._score_func, method, getattr(scorer, "_kwargs", None) or {}
    if type(scorer).__name__ != "_PassthroughScorer":
        return None, "", {}
    # The estimator's own score: known if it is the one that every regressor or classifier inherits.
    last = _last_step(estimator) if type(estimator) is Pipeline else estimator
    score = getattr(type(last), "score", None)
    if score is RegressorMixin.score:
        return r2_score, "predict", {}
    return (accuracy_score, "predict", {}) if score is ClassifierMixin.score else (None, "", {})


def _last_step(pipeline: object) -> object:
    steps: list[tuple[str, object]] = getattr(pipeline, "steps", [])
    return steps[-1][1]


# ---------------------------------------------------------------------------------------------------------------------
# Scores with losses of single rows, or influence functions


def _per_row(name: str, function: object, response: str, estimator: object, y: object) -> Reading | None:
    from sklearn import metrics

    labels = np.asarray(y)
    if labels.ndim != 1:
        return None
    numbers: dict[object, str] = {
        metrics.mean_squared_error: "squared_error",
        metrics.mean_absolute_error: "absolute_error",
        metrics.root_mean_squared_error: "rmse",
        metrics.r2_score: "r2",
    }
    of_numbers = response == "predict" and labels.dtype.kind in "biuf" and not hasattr(estimator, "classes_")
    if function in numbers and of_numbers:
        return Reading(response, "number", _renamed(numbers[function], name), labels.astype(np.float64))
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        return None
    places = label_positions(labels, classes)
    if np.any(places < 0):
        return None
    if function is metrics.accuracy_score and response == "predict":
        return Reading(response, "label", Loss(name, _differs), places)
    if len(classes) != 2 or len(np.unique(places)) != 2:
        return None
    if function is metrics.roc_auc_score and response in ("predict_proba", "decision_function"):
        return Reading(response, "positive", _renamed("auc", name), places)
    if function is metrics.log_loss and response == "predict_proba":
        return Reading(response, "positive", _renamed("log_loss", name), places)
    return None


def _renamed(known: str, name: str) -> Loss | Metric:
    return dataclasses.replace(resolve(known), name=name)


def _differs(y: HostArray, prediction: HostArray) -> NDArray[np.float64]:
    return np.asarray(y != prediction, dtype=np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# Other scorers that scikit-learn made


def _scored(name: str, scorer: Scorer, estimator: object, response: str, y: object, weights: object) -> Metric:
    """The scorer on predictions that are known: it is given the estimator with its answer written in."""

    def value(places: HostArray, prediction: HostArray) -> HostArray:
        def respond(X: object) -> HostArray:
            return _answer(estimator, response, prediction)

        respond.__name__ = response  # scikit-learn looks methods up by their names
        answering = copy.copy(estimator)
        setattr(answering, response, respond)
        found = ask(scorer, answering, places, y, weights)
        assert not isinstance(found, dict)  # scikit-learn makes scorers of one score
        return np.asarray(-float(found))

    return Metric(value, name=name)


def _answer(estimator: object, response: str, prediction: HostArray) -> HostArray:
    classes = getattr(estimator, "classes_", None)
    if response == "predict" and isinstance(classes, np.ndarray) and prediction.ndim == 1:
        return classes[prediction.astype(np.int64)]
    return prediction


def responder(
    estimator: object, response: str, form: str, decode: Callable[[HostArray], object]
) -> Callable[[HostArray], HostArray]:
    """The model of the engine: rows to what the scorers read."""
    if response == ROWS:
        return lambda block: np.array(block, dtype=np.float64)
    method, classes = getattr(estimator, response), getattr(estimator, "classes_", None)
    labels = classes if response == "predict" and isinstance(classes, np.ndarray) else None

    def predict(block: HostArray) -> HostArray:
        answer = np.asarray(method(decode(block)))
        if form == "positive" and answer.ndim == 2:
            return answer[:, 1]
        if labels is not None and answer.ndim == 1:
            return label_positions(answer, labels)
        return answer

    return predict
