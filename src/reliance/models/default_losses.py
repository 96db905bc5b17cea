"""The loss of a call that names none: the one that fits the model, with the reason."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance.losses.functions import Loss, log_loss, squared_error, zero_one

NO_LABELS = "y is None, so there is no loss to take: pass y, or loss='prediction_shift', which needs no labels"


def is_classifier(model: object) -> bool:
    """Whether an estimator, fitted or not, predicts classes."""
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) > 0:  # CatBoost's regressors have none of them
        return True
    if "sklearn" not in sys.modules or not callable(getattr(model, "get_params", None)):
        return False
    from sklearn.base import is_classifier as is_one

    try:
        return bool(is_one(model))
    except (AttributeError, TypeError):  # looks like an estimator, and is none of scikit-learn's
        return False


def default_loss(model: object, y: Array | None) -> Loss:
    """Log loss of a classifier with probabilities, zero-one of one without; squared error of numbers."""
    if y is None:
        raise ValueError(NO_LABELS)
    if is_classifier(model):
        return _of_classifier(model)
    if hasattr(model, "predict") and not callable(model):
        return dataclasses.replace(squared_error, why="the default for a regressor")
    if isinstance(y, np.ndarray) and y.dtype.kind in "US":
        return dataclasses.replace(zero_one, why="the default for labels that are text")
    return dataclasses.replace(squared_error, why="the default for numbers")


def _of_classifier(model: object) -> Loss:
    if getattr(model, "predict_proba", None) is None:
        return dataclasses.replace(zero_one, why="the default for a classifier without probabilities")
    return dataclasses.replace(log_loss, why="the default for a classifier with probabilities")


def default_of_fits(fit: object, y: Array | None) -> Loss:
    """The same before there is a model: an estimator says what it will be, a function does not."""
    if y is None:
        raise ValueError(NO_LABELS)
    if callable(fit) and not arrays.is_floating(arrays.namespace(y), y.dtype):
        raise ValueError(
            f"loss is None, and fit is a function that may fit classifiers to labels of dtype {y.dtype}: name the "
            "loss, for instance 'log_loss' (probabilities), 'zero_one' (labels) or 'squared_error' (numbers)"
        )
    return default_loss(fit, y)


def default_of_trees(forest: object, y: Array | None) -> Loss:
    """Breiman's: the labels of a classifier's trees, whose own probabilities are mostly 0 and 1."""
    if y is not None and is_classifier(forest):
        return dataclasses.replace(zero_one, why="the default for the trees of a classifier")
    return default_loss(forest, y)


def default_of_list(models: Iterable[object]) -> Loss:
    """One for all models of a list, before there are labels."""
    kinds = {_of_classifier(model) if is_classifier(model) else squared_error for model in models}
    if len(kinds) > 1:
        names = " and ".join(sorted(f"{kind.name!r}" for kind in kinds))
        raise ValueError(f"loss is None, and the models differ in kind: {names} would fit some of them; name one loss")
    return kinds.pop()
