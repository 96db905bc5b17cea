"""Fitted tree ensembles of scikit-learn, LightGBM, XGBoost and CatBoost, read into flat arrays.

What a model holds is read, never guessed: anything that is not understood, such as an unknown objective, linear leaves
or the layout of a later release, gives None, and the model is then evaluated as any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from reliance.data.tables import Table
from reliance.models.catboost_trees import catboost_levels, read_catboost
from reliance.models.combined_trees import read_combined
from reliance.models.ensembles import Ensemble, Floats
from reliance.models.lightgbm_trees import lightgbm_levels, read_lightgbm
from reliance.models.sklearn_trees import read_sklearn, sklearn_levels
from reliance.models.tree_parts import METHODS, NotRead, recoded
from reliance.models.untouched import inherits
from reliance.models.xgboost_trees import read_xgboost, xgboost_levels

_ASKED = ("predict", "predict_proba", "decision_function")
# The values of a column that a library replaces by numbers 0, 1, ..., in that order.
Levels: TypeAlias = Sequence[object]


class Reader(NamedTuple):
    """What is known of a library.

    Attributes
    ----------
    ensemble : callable
        ``(model, method, encoded)``: its trees; ``encoded`` if splits are to be on the library's codes of categories.
    levels : callable
        ``(model, columns)``: the levels of columns that it encodes, if those of type category are ``columns``.
    """

    ensemble: Callable[[object, str, bool], Ensemble | None]
    levels: Callable[[object, tuple[int, ...]], Mapping[int, Levels]]


def read(model: object, method: str, table: Table | None = None) -> Ensemble | None:
    """The trees behind ``model.method``; None if the model is not a fitted ensemble that is fully understood.

    A model is an estimator of exactly one of the known classes, because a subclass may predict otherwise, or a booster
    of LightGBM (read as its ``predict``) or of XGBoost (as its ``inplace_predict``). What was read is to be compared
    with the model's own predictions before it is relied on (`ensembles.agrees`). ``table``: whose codes the trees are
    to be asked about, if the model is called with tables.
    """
    found = attempt(model, method, table)
    return None if isinstance(found, str) else found


def attempt(model: object, method: str, table: Table | None = None) -> Ensemble | str:
    """The same, or why not: in a few words, if there are any."""
    reader = _reader(model, method)
    if reader is None:
        return ""
    coded = table is not None and bool(table.coded)
    try:
        found = reader.ensemble(model, method, coded)
        if found is None or table is None or not coded:
            return "" if found is None else found
        return _of_codes(reader, model, found, table)
    except NotRead as reason:
        return str(reason)
    except Exception:  # not fitted, or another layout: it may fail anywhere, and the model itself still works
        return ""


def is_understood(model: object, method: str) -> bool:
    """Whether the trees behind ``model.method`` can be read, be it for arrays or for tables."""
    reader = _reader(model, method)
    try:
        return reader is not None and reader.ensemble(model, method, True) is not None
    except Exception:
        return False


def _reader(model: object, method: str) -> Reader | None:
    library = type(model).__module__.partition(".")[0]
    if library not in READERS or library not in sys.modules or method not in _ASKED:
        return None
    return READERS[library] if inherits(model, METHODS, library) else None


def _of_codes(reader: Reader, model: object, found: Ensemble, table: Table) -> Ensemble:
    """Splits on the codes that the engine has for a table's values, in the place of those that the library has."""
    levels = reader.levels(model, tuple(j for j in table.coded if table.is_categorical(j)))
    for column in sorted({*levels, *table.coded}):
        places = {level: float(place) for place, level in enumerate(levels.get(column, ())) if level == level}
        if column not in table.coded:  # a column of numbers that the library encodes
            own = np.asarray(list(places), dtype=np.float64)
            seen = np.array(list(places.values()))
        else:
            values = table.values(column)
            own = np.arange(len(values), dtype=np.float64)
            seen = _numbers(values) if column not in levels else np.array([places.get(v, np.nan) for v in values])
        found = recoded(found, column, own, seen)
    return found


def _numbers(values: Sequence[object]) -> Floats:
    """What a library makes of numbers of which some are missing; fails for anything else."""
    found = [np.nan if value is None else value for value in values]
    if not all(isinstance(value, int | float | np.number) for value in found):
        raise NotRead("a column of X holds neither numbers nor levels that the trees know")
    return np.asarray(found, dtype=np.float64)


def _read_sklearn(model: object, method: str, encoded: bool) -> Ensemble | None:
    """An ensemble of trees, or of such ensembles."""
    found = read_sklearn(model, method, encoded)
    if found is not None:
        return found
    added = read_combined(model, method, attempt)
    if added is not None and encoded:
        raise NotRead("it is a sum of models that take categories apart")
    return added


READERS = {
    "sklearn": Reader(_read_sklearn, sklearn_levels),
    "lightgbm": Reader(read_lightgbm, lightgbm_levels),
    "xgboost": Reader(read_xgboost, xgboost_levels),
    "catboost": Reader(read_catboost, catboost_levels),
}
