"""The functions that additive models of other libraries are linear in, read from documented attributes.

Explainable boosting machines (``interpret``) are tables over bins of one or several columns, generalised additive
models (``pygam``) sums of spline bases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, TypeGuard

import numpy as np

from reliance._core.arrays import device, from_host, index_dtype, namespace, to_host
from reliance._core.checks import check_choice
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.samplers.draws import Host

Columns = list[tuple[int, ...]]
Step = tuple[int, float]  # a column, and the point from which on the step is 1


class BoostingMachine(Protocol):
    """What is read of a fitted explainable boosting machine."""

    bins_: Sequence[Sequence[object]]
    term_features_: Sequence[Sequence[int]]
    term_scores_: Sequence[HostArray]


class GamTerm(Protocol):
    """What is read of a term of a generalised additive model."""

    feature: int | Sequence[int] | None
    isintercept: bool
    n_coefs: int

    def build_columns(self, X: HostArray) -> object: ...


class AdditiveModel(Protocol):
    """What is read of a fitted generalised additive model."""

    terms: Iterable[GamTerm]
    coef_: HostArray


# ---------------------------------------------------------------------------------------------------------------------
# Explainable boosting machines


@dataclass(frozen=True, eq=False)
class StepProducts:
    """Products of steps ``x[column] >= point``, as 0 and 1."""

    products: tuple[tuple[Step, ...], ...]

    def __call__(self, X: Array) -> Array:
        xp = namespace(X)
        return xp.stack([self._one(X, steps) for steps in self.products], axis=1)

    def _one(self, X: Array, steps: tuple[Step, ...]) -> Array:
        xp = namespace(X)
        inside = X[:, steps[0][0]] >= steps[0][1]
        for column, point in steps[1:]:
            inside = inside & (X[:, column] >= point)
        return xp.astype(inside, X.dtype)


@dataclass(frozen=True, eq=False)
class ScoreTables:
    """The terms as they were fitted: a table over the bins of a term's columns, looked up for each row."""

    terms: tuple[tuple[tuple[int, ...], tuple[Host, ...], Host], ...]

    def __call__(self, X: Array) -> Array:
        return namespace(X).stack([self._one(X, *term) for term in self.terms], axis=1)

    def _one(self, X: Array, columns: tuple[int, ...], cuts: tuple[Host, ...], table: Host) -> Array:
        xp = namespace(X)
        place = xp.zeros(X.shape[0], dtype=index_dtype(xp), device=device(X))
        for axis, (column, points) in enumerate(zip(columns, cuts, strict=True)):
            above = X[:, column, None] >= from_host(points, xp, device(X), X.dtype)[None, :]
            # The first bin is for missing values.
            place = place * table.shape[axis] + 1 + xp.sum(xp.astype(above, index_dtype(xp)), axis=1)
        return xp.take(from_host(table.reshape(-1), xp, device(X), X.dtype), place, axis=0)


def boosting_machine(ebm: object, functions: str) -> tuple[Callable[[Array], Array], Columns]:
    """The functions of a machine, and the columns that each reads."""
    check_choice(functions, ("bins", "terms"), "functions")
    if not _is_machine(ebm):
        raise TypeError(
            f"ebm={shown(ebm)}: pass a fitted ExplainableBoostingRegressor or Classifier of interpret, which has "
            "bins_, term_features_ and term_scores_"
        )
    terms = []
    for own, scores in zip(ebm.term_features_, ebm.term_scores_, strict=True):
        columns, table = tuple(int(j) for j in own), np.asarray(scores, dtype=np.float64)
        if table.ndim != len(columns):
            raise ValueError(
                f"ebm has scores of shape {table.shape} for columns {columns}, one for each class: a BasisClass has "
                "one output; fit it to two classes or to numbers"
            )
        terms.append((columns, tuple(_cuts(ebm, j, len(columns)) for j in columns), table))
    if functions == "terms":
        return ScoreTables(tuple(terms)), [columns for columns, _, _ in terms]
    steps = {one: None for columns, cuts, _ in terms for one in _products(columns, cuts)}  # each once, in order
    if not steps:
        raise ValueError("ebm has no cut points: all its terms are constant")
    return StepProducts(tuple(steps)), [tuple(column for column, _ in one) for one in steps]


def _is_machine(ebm: object) -> TypeGuard[BoostingMachine]:
    return all(hasattr(ebm, name) for name in ("bins_", "term_features_", "term_scores_"))


def _cuts(ebm: BoostingMachine, column: int, order: int) -> Host:
    """The points between bins of a column; terms of several columns may have coarser ones."""
    levels = ebm.bins_[column]
    found = levels[min(len(levels), order) - 1]
    if isinstance(found, dict):
        raise ValueError(
            f"ebm has categories in column {column}: steps are for numbers; encode the column before the fit"
        )
    return np.asarray(found, dtype=np.float64)


def _products(columns: tuple[int, ...], cuts: tuple[Host, ...]) -> list[tuple[Step, ...]]:
    """Of one step or none in each column, so that every table over the bins is a sum of them."""
    choices = [
        [None, *((column, float(point)) for point in points)] for column, points in zip(columns, cuts, strict=True)
    ]
    chosen = (tuple(step for step in one if step is not None) for one in product(*choices))
    return [steps for steps in chosen if steps]


# ---------------------------------------------------------------------------------------------------------------------
# Generalised additive models


@dataclass(frozen=True, eq=False)
class GamColumns:
    """The columns of a model's design, made by its own terms on the host."""

    terms: tuple[GamTerm, ...]

    def __call__(self, X: Array) -> Array:
        rows = to_host(X).astype(np.float64)
        return from_host(np.hstack([_dense(term, rows) for term in self.terms]), namespace(X), device(X), X.dtype)


def additive_model(gam: object) -> tuple[GamColumns, Columns]:
    """The functions of a model, and the columns that each reads."""
    if not _is_additive(gam):
        raise TypeError(f"gam={shown(gam)}: pass a fitted model of pygam, which has terms and coef_")
    terms = tuple(term for term in gam.terms if not term.isintercept)
    columns: Columns = []
    for term in terms:
        by = getattr(term, "by", None)
        own = [int(j) for j in np.ravel(np.asarray(term.feature))] + ([] if by is None else [int(by)])
        columns += [tuple(own)] * int(term.n_coefs)
    return GamColumns(terms), columns


def _is_additive(gam: object) -> TypeGuard[AdditiveModel]:
    return hasattr(gam, "terms") and hasattr(gam, "coef_")


def _dense(term: GamTerm, rows: HostArray) -> Host:
    made = term.build_columns(rows)
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
