"""Features that do not vary in the sample: what a model would do with other values of them, no donor can show."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Collection, Sequence

from reliance._core import arrays
from reliance._core.words import listed
from reliance.data.features import Feature
from reliance.engine.inputs import Problem
from reliance.engine.known_models import used_columns
from reliance.inference.summary import Summary

# Rows that are looked at first: a column that varies mostly does so among them.
_FEW = 64


def constant_unless_unused(problem: Problem) -> frozenset[str]:
    """The names of features that are constant in X, unless the model is known not to use them."""
    constant = _constant_columns(problem)
    if not constant:
        return frozenset()
    used = used_columns(problem)
    return frozenset(
        feature.name
        for feature in problem.features
        if constant.issuperset(feature.columns) and (used is None or used.intersection(feature.columns))
    )


def warn(names: Collection[str], features: Sequence[Feature], stacklevel: int = 3) -> None:
    """Say which features are not identified, if some are."""
    if names:
        few = listed([feature.name for feature in features if feature.name in names], 3)
        warnings.warn(
            f"constant in X: {few}. Importance is not identified there, because no row lends another value: it is 0 on "
            "these rows, without interval and p value",
            UserWarning,
            stacklevel=stacklevel,
        )


def without_errors(names: Collection[str], features: Sequence[Feature], found: Sequence[Summary]) -> list[Summary]:
    """The summaries, without errors over new data where a feature is not identified."""
    return [
        dataclasses.replace(
            summary,
            std_error=math.nan,
            skewness=math.nan,
            monte_carlo_share=math.nan,
            random_variable_error=math.nan,
            row_error=math.nan,
        )
        if feature.name in names and summary.std_error == 0.0
        else summary
        for feature, summary in zip(features, found, strict=True)
    ]


def _constant_columns(problem: Problem) -> set[int]:
    columns = sorted({column for feature in problem.features for column in feature.columns})
    left = [j for j, same in zip(columns, _same(problem, columns, min(_FEW, problem.n)), strict=True) if same]
    if not left or problem.n <= _FEW:
        return set(left)
    return {column for column in left if _same(problem, [column], problem.n)[0]}


def _same(problem: Problem, columns: list[int], rows: int) -> list[bool]:
    """Whether the first rows of each column are equal; one NaN is like another."""
    xp = problem.xp
    # All columns, whichever are asked for: JAX compiles for a shape, and features come and go.
    part = problem.flat[:rows, :] if len(columns) > 1 else problem.flat[:rows, columns[0], None]
    first = part[:1, :]
    equal = xp.logical_or(part == first, xp.logical_and(part != part, first != first))
    found = arrays.to_host(xp.all(equal, axis=0))
    return [bool(same) for same in (found[columns] if len(columns) > 1 else found)]
