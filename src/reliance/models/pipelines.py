"""Pipelines of scikit-learn taken apart: what transforms the rows, column by column, and the estimator behind it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reliance._core.kinds import HostArray
from reliance.models.calling import name_of
from reliance.models.column_maps import MixesColumns, Sources, Transformer, mapped
from reliance.models.untouched import inherits

_METHODS = ("predict", "predict_proba", "decision_function")


@dataclass(frozen=True, eq=False)
class Unfolded:
    """A model as transformations of rows and an estimator of transformed rows.

    Attributes
    ----------
    steps : sequence of transformers
        One after the other.
    last : object
        The estimator.
    sources : tuple of int or None
        Of each transformed column the column of the rows that it comes from.
    """

    steps: Sequence[Transformer]
    last: object
    sources: Sources

    def transform(self, rows: object) -> object:
        """Rows as the model takes them, transformed: an array, a sparse one or a table."""
        for step in self.steps:
            rows = step.transform(rows)
        return rows

    def columns_from(self, columns: Sequence[int]) -> tuple[int, ...]:
        """The transformed columns that come from some columns of the rows."""
        wanted = set(columns)
        return tuple(q for q, source in enumerate(self.sources) if source in wanted)


def unfold(model: object, columns: int) -> Unfolded | str:
    """A pipeline, or a search over some, of rows with so many columns; or why it is none. "": it is something else."""
    if "sklearn" not in sys.modules:
        return ""
    steps, last = _parts(model)
    if last is model:
        return ""
    try:
        sources: Sources = tuple(range(columns))
        for step in steps:
            sources = mapped(step, sources)
    except MixesColumns as reason:
        return str(reason)
    except (AttributeError, TypeError, ValueError, IndexError):  # not fitted, or another version's
        return f"the transformers of {name_of(model)[:60]} do not say which columns they make"
    return Unfolded(steps, last, sources)


def last_estimator(model: object) -> object:
    """What predicts behind all transformations; the model itself if there are none."""
    return model if "sklearn" not in sys.modules else _parts(model)[1]


def _parts(model: Transformer) -> tuple[list[Transformer], Transformer]:
    """What transforms rows, and what predicts; no step and the model itself if it cannot be taken apart."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    if not inherits(model, _METHODS, "sklearn"):
        return [], model
    if isinstance(model, Pipeline) and model.steps and hasattr(model.steps[-1][1], "predict"):
        inner, last = _parts(model.steps[-1][1])
        own = [step for _, step in model.steps[:-1] if step is not None and step != "passthrough"]
        return [*own, *inner], last
    search = GridSearchCV.__mro__[1]  # all searches derive from it, and its name is private
    if isinstance(model, search) and hasattr(model, "best_estimator_"):
        return _parts(model.best_estimator_)
    if isinstance(model, TransformedTargetRegressor) and hasattr(model, "regressor_"):
        return _inside(model, "regressor_")
    return _inside(model, "estimator_") if _is_threshold(model) else ([], model)


def _is_threshold(model: object) -> bool:
    from sklearn import model_selection

    kinds = [getattr(model_selection, n, None) for n in ("FixedThresholdClassifier", "TunedThresholdClassifierCV")]
    return isinstance(model, tuple(kind for kind in kinds if kind is not None)) and hasattr(model, "estimator_")


def _inside(model: Transformer, attribute: str) -> tuple[list[Transformer], Transformer]:
    """A model around another: the same around what is behind the other's transformations."""
    steps, last = _parts(getattr(model, attribute))
    if last is getattr(model, attribute):
        return [], model
    around = copy.copy(model)
    setattr(around, attribute, last)
    return steps, around


def as_numbers(transformed: Transformer, most_bytes: int) -> HostArray | str:
    """Transformed rows as an array of numbers; or why they are none."""
    if hasattr(transformed, "toarray"):
        if 8 * transformed.shape[0] * transformed.shape[1] > most_bytes:
            return "the memory of rl.Run does not hold the transformed rows, which are sparse, as numbers"
        transformed = transformed.toarray()
    if hasattr(transformed, "to_numpy"):
        transformed = transformed.to_numpy()
    found = np.asarray(transformed)
    if found.dtype == np.object_:
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError):
            return "the transformed rows hold text or categories"
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        return f"the transformed rows are of dtype {found.dtype} and shape {found.shape}, not numbers in columns"
    return np.ascontiguousarray(found, dtype=np.result_type(found.dtype, np.float32))


def as_given(transformed: Transformer) -> Callable[[HostArray], object]:
    """What makes of numbers the kind of rows that the last estimator was given: a table of pandas, or an array."""
    if not hasattr(type(transformed), "iloc"):
        return lambda block: block
    kind, columns = type(transformed), transformed.columns
    return lambda block: kind(block, columns=columns)
