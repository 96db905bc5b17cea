"""A first affine layer: one column changes X W by a rank-one term, so the wide first product is never recomputed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reliance._core.arrays import Array, Device, Namespace, device, itemsize, namespace
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.executors import Base
from reliance.engine.inputs import Problem
from reliance.exact import trust
from reliance.models import calling
from reliance.models.calling import Model

# Below so many columns recomputing the product costs no more than adding the pre-activations.
FEWEST_COLUMNS = 64


@dataclass(frozen=True)
class PreactivationStore:
    """Rows as pre-activations H = X W + bias, of which a donor changes the part x_g W_g.

    A block row is (H_i - x_ig W_g) + x_kg W_g. The two terms are made once a feature, (n, h) each.
    """

    X: Array
    weight: Array
    preactivations: Array

    @cached_property
    def xp(self) -> Namespace:
        return namespace(self.X)

    @cached_property
    def device(self) -> Device:
        return device(self.X)

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.weight.shape[1]),)

    @property
    def row_bytes(self) -> int:
        return self.shape[0] * itemsize(self.preactivations)

    @property
    def held_bytes(self) -> int:
        """Of the pre-activations and a feature's two terms."""
        return 3 * self.n * self.row_bytes

    def allocate(self, rows: int) -> Array:
        return self.xp.empty((rows, *self.shape), dtype=self.preactivations.dtype, device=self.device)

    @property
    def flat(self) -> Array:
        return self.X

    def head(self, n: int) -> PreactivationStore:
        return PreactivationStore(self.X[:n, :], self.weight, self.preactivations[:n, :])

    def replacements(self, rows: range, numbers: range | Array) -> range | Array:
        return numbers

    def repeat(self, block: Array, rows: range, d: int) -> None:
        """Nothing to prepare: `swap` writes the whole block."""

    def restore(self, block: Array, rows: range, d: int, feature: Feature) -> None:
        """Nothing to restore."""

    def holds(self, block: Array, rows: range, d: int, feature: Feature | None) -> None:
        """Nothing is read again: the rest of the model may write, as activations in place do."""

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        own, lent = self.operands(feature)
        cube = self.xp.reshape(block[: len(rows) * d, :], (len(rows), d, *self.shape))
        cube[...] = own[rows.start : rows.stop, None, :]
        if isinstance(donors, range):
            cube[...] += lent[None, donors.start : donors.stop, :]
        else:
            cube[...] += self.xp.reshape(
                self.xp.take(lent, self.xp.reshape(donors, (-1,)), axis=0), (-1, d, *self.shape)
            )

    def model_input(self, block: Array, rows: int) -> Array:
        return block[:rows, :]

    def operands(self, feature: Feature) -> tuple[Array, Array]:
        """What a row keeps and what a donor gives, (n, h) each; those of the last feature are remembered."""
        last: tuple[Feature, tuple[Array, Array]] | None = self.__dict__.get("_last")
        if last is None or last[0] is not feature:
            lent = sum(
                (self.X[:, run] @ self.weight[run, :] for run in feature.runs[1:]),
                start=self.X[:, feature.runs[0]] @ self.weight[feature.runs[0], :],
            )
            last = (feature, (self.preactivations - lent, lent))
            self.__dict__["_last"] = last
        return last[1]

    @property
    def switched(self) -> Callable[[Any, Array, Array], Array]:
        return kernels.summed_rows


def first_layer_problem(problem: Problem, base: Base, fewest: int = FEWEST_COLUMNS) -> Problem | None:
    """The same problem behind its first layer: rows are pre-activations, the model is the rest; None if it has none.

    Raises `trust.Disagreement` if the rest does not predict from pre-activations what the model predicts.
    """
    found = calling.first_layer(problem.model.source)
    if found is None or len(problem.store.shape) != 1 or not fewest <= problem.flat.shape[1] == found.weight.shape[0]:
        return None
    trust.check_first_layer(problem, base, found)
    preactivations = problem.flat @ found.weight + found.bias
    store = PreactivationStore(problem.flat, found.weight, preactivations)
    # The session is the whole model's: the rest's modules are its own.
    model = Model(found.rest, found.rest, session=problem.model.session)
    return dataclasses.replace(problem, store=store, model=model)
