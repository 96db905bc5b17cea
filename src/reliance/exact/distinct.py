"""Donors with equal values are one donor: n m evaluations for a feature with m distinct values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reliance._core import arrays
from reliance._core.streams import as_indices
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine.problems import Problem
from reliance.exact.called import Called, called
from reliance.exact.protocol import ChosenRows, Exchange, Measured, Offer, Opening, Route
from reliance.plans import Classes


def distinct_values(problem: Problem, feature: Feature) -> Classes | None:
    """The classes of rows whose feature is equal, bit for bit; None if no two rows are.

    Bits, not values: 0.0 and -0.0 differ to a model that divides, and one NaN is like another.
    """
    columns = [arrays.to_host(problem.store.column(column)) for column in feature.columns]
    values = np.ascontiguousarray(np.stack(columns, axis=1))
    rows = values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).reshape(-1)
    if len(feature.columns) == 1 and values.dtype.itemsize in (1, 2, 4, 8):
        rows = rows.view(f"u{values.dtype.itemsize}")  # integers sort several times faster than bytes
    _, speaker, label = np.unique(rows, return_index=True, return_inverse=True)
    if len(speaker) == problem.n:
        return None
    return Classes(as_indices(label).reshape(-1), as_indices(speaker))


def classes_of(question: Exchange, feature: Feature) -> Classes | None:
    """The same, looked for once a question."""
    if feature.name not in question.classes:
        question.classes[feature.name] = distinct_values(question.problem, feature)
    return question.classes[feature.name]


@dataclass(frozen=True, eq=False)
class _EachValue:
    question: Exchange

    def cost(self, feature: Feature) -> float | str:
        classes, n = classes_of(self.question, feature), self.question.problem.n
        return f"all {n} values of feature {shown(feature.name)} differ" if classes is None else n * classes.columns

    def jobs(self, features: tuple[Feature, ...]) -> list[Called]:
        plans = ((feature, classes_of(self.question, feature)) for feature in features)
        return [called(self.question, "distinct", plan, (feature,)) for feature, plan in plans if plan is not None]


class Distinct(Route):
    """The model is called once for each row and value."""

    name, calls, tables = "distinct", True, True

    def pairs(self, question: Exchange) -> Opening[Measured]:
        def opened() -> Offer[Measured]:
            return _EachValue(question)

        return opened

    def chosen(self, question: ChosenRows) -> Opening[Measured]:
        return self.pairs(question)
