"""Which trees a class has on given rows: what a search finds, a list of fitted ones, or what ArborEnum has found."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.words import shown
from reliance.data.passed import ModelLike
from reliance.losses.functions import Loss
from reliance.models import calling
from reliance.rashomon import tree_arborenum, tree_sources
from reliance.rashomon.protocol import ClassData
from reliance.rashomon.tree_cuts import Cuts, Tests, tests_of
from reliance.rashomon.tree_leaves import LeafRule, rule_of
from reliance.rashomon.tree_search import TreeSearch
from reliance.rashomon.tree_sources import Trees

Floats: TypeAlias = NDArray[np.float64]


class Source(Protocol):
    """Trees by name; with a bound those with at most that objective, without one the best or all."""

    @property
    def loss(self) -> Loss: ...

    @property
    def bounded(self) -> bool:
        """Whether the bound says which trees there are."""
        ...

    def trees(self, data: ClassData, bound: float | None, penalty: float) -> tuple[tuple[str, ...], Trees]: ...

    def position(self, model: object) -> int: ...


@dataclass(frozen=True, eq=False)
class Search:
    """All trees up to a depth."""

    loss: Loss
    depth: int
    cuts: Cuts
    most: int
    _open: weakref.WeakKeyDictionary[ClassData, tuple[Floats, Tests, TreeSearch, LeafRule]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    bounded: bool = True

    def __reduce__(self) -> tuple[type[Search], tuple[Loss, int, Cuts, int]]:
        return type(self), (self.loss, self.depth, self.cuts, self.most)  # what was found stays here

    def trees(self, data: ClassData, bound: float | None, penalty: float) -> tuple[tuple[str, ...], Trees]:
        if data not in self._open:
            X, y = _numbers(data), arrays.to_host(data.y)
            assert data.rows is not None
            tests, rule = tests_of(self.cuts, X, data.rows.names), rule_of(self.loss.name, y)
            self._open[data] = X, tests, TreeSearch(tests.left(X), rule, self.depth, penalty, self.most), rule
        X, tests, search, rule = self._open[data]
        _, nodes = search.within(search.least() if bound is None else bound)
        if not nodes:
            raise ValueError(
                f"no tree has loss plus penalty of at most {bound:g}, the least is {search.least():g}: the Rashomon "
                "set is empty; pass a larger epsilon"
            )
        found = tree_sources.of_nodes(tests, X, nodes, rule.finish, self.loss, arrays.to_host(data.y))
        return _numbered(len(nodes)), found

    def position(self, model: object) -> int:
        raise ValueError(
            f"reference={calling.name_of(model)}: trees are searched, not listed; pass None for the best tree, or a "
            "risk: the mean loss plus penalty times the number of leaves"
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A list of fitted trees."""

    models: dict[str, ModelLike]
    loss: Loss
    bounded: bool = False

    def trees(self, data: ClassData, bound: float | None, penalty: float) -> tuple[tuple[str, ...], Trees]:
        assert data.rows is not None
        found = tree_sources.of_fitted(self.models, data.rows, self.loss, data.key, data.memory)
        return tuple(self.models), found

    def position(self, model: object) -> int:
        for k, (name, own) in enumerate(self.models.items()):
            if own is model or (isinstance(model, str) and model == name):
                return k
        raise ValueError(f"reference={calling.name_of(model)} is not in the list of trees: add it, or pass one of them")


@dataclass(frozen=True, eq=False)
class Enumerated:
    """What ArborEnum has found."""

    found: tree_arborenum.ArborEnum
    loss: Loss
    bounded: bool = False

    def trees(self, data: ClassData, bound: float | None, penalty: float) -> tuple[tuple[str, ...], Trees]:
        X, y = _numbers(data), arrays.to_host(data.y)
        tests, nodes, finish = tree_arborenum.read(self.found, X)
        if self.loss.name != "zero_one":
            raise ValueError(f"loss={shown(self.loss.name)}: the leaves of an ArborEnum are labels; use 'zero_one'")
        return _numbered(len(nodes)), tree_sources.of_nodes(tests, X, nodes, finish, self.loss, y)

    def position(self, model: object) -> int:
        names = _numbered(self.found.count_trees())
        if isinstance(model, str) and model in names:
            return names.index(model)
        raise ValueError(
            f"reference={calling.name_of(model)} is not in the list: pass a name such as 'tree 0', or None"
        )


def _numbers(data: ClassData) -> Floats:
    """The rows as numbers on the host."""
    assert data.rows is not None
    X = arrays.to_host(data.rows.numbers("TreeClass")).astype(np.float64)
    if not np.isfinite(X).all():
        raise ValueError("X holds NaN or infinite values, which a test sends to no side: drop or impute those rows")
    return X


def _numbered(many: int) -> tuple[str, ...]:
    return tuple(f"tree {k}" for k in range(many))
