"""Features that do not vary in the sample: what a model would do with other values of them, no donor can show."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reliance._core import arrays, checks
from reliance._core.words import listed
from reliance.data.features import Feature
from reliance.data.rows import Rows
from reliance.engine.known_models import used_columns
from reliance.engine.problems import Problem
from reliance.inference.summary import Summary

# Rows that are looked at first: a column that varies mostly does so among them.
_FEW = 64


def constant_unless_unused(problem: Problem) -> frozenset[str]:
    """The names of features that are constant in X, unless the model is known not to use them."""
    constant = constant_features(problem.rows)
    used = used_columns(problem) if constant else None
    if used is None:
        return constant
    return frozenset(f.name for f in problem.features if f.name in constant and used.intersection(f.columns))


def constant_features(rows: Rows) -> frozenset[str]:
    """The names of features that have one value in all rows."""
    constant = _constant_columns(rows)
    return frozenset(feature.name for feature in rows.features if constant.issuperset(feature.columns))


def warn(names: Collection[str], features: Sequence[Feature]) -> None:
    """Say which features are not identified, if some are."""
    if names:
        few = listed([feature.name for feature in features if feature.name in names], 3)
        checks.warn(
            f"constant in X: {few}. Importance is not identified there, because no row lends another value: it is 0 on "
            "these rows, without interval and p-value"
        )


def without_errors(names: Collection[str], features: Sequence[Feature], found: Sequence[Summary]) -> list[Summary]:
    """The summaries, without errors over new data where a feature is not identified."""
    return [
        summary.without_errors() if feature.name in names and summary.std_error == 0.0 else summary
        for feature, summary in zip(features, found, strict=True)
    ]


def _constant_columns(rows: Rows) -> set[int]:
    columns = sorted({column for feature in rows.features for column in feature.columns})
    left = [j for j, same in zip(columns, _same(rows, columns, min(_FEW, rows.n)), strict=True) if same]
    if not left or rows.n <= _FEW:
        return set(left)
    return {column for column in left if _same(rows, [column], rows.n)[0]}


def _same(rows: Rows, columns: list[int], first_rows: int) -> list[bool]:
    """Whether the first rows of each column are equal; one NaN is like another."""
    xp = rows.xp
    # All columns, whichever are asked for: JAX compiles for a shape, and features come and go.
    part = rows.flat[:first_rows, :] if len(columns) > 1 else rows.flat[:first_rows, columns[0], None]
    first = part[:1, :]
    equal = xp.logical_or(part == first, xp.logical_and(part != part, first != first))
    found = arrays.to_host(xp.all(equal, axis=0))
    return [bool(same) for same in (found[columns] if len(columns) > 1 else found)]
