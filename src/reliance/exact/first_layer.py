"""A first affine layer: one column changes X W by a rank-one term, so the wide first product is never recomputed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial

from reliance._core.arrays import device, itemsize, namespace
from reliance._core.kinds import Array, Device, Namespace
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.problems import Problem
from reliance.engine.stores import AtPlaces, Lender, Resident, Store
from reliance.exact import trust
from reliance.exact.called import Called
from reliance.exact.distinct import Distinct, classes_of
from reliance.exact.protocol import Exchange, Measured, Opening, Route
from reliance.models import calling
from reliance.models.calling import Model
from reliance.plans import Plan

# Below so many columns recomputing the product costs no more than adding the pre-activations.
FEWEST_COLUMNS = 64
# What a row of the rest costs of a row of the model: less than one, however much.
_REST = 0.5


@dataclass(frozen=True)
class PreactivationStore(Resident):
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

    def in_order(self, feature: Feature, order: Array) -> Lender:
        return AtPlaces(self, order)

    def model_input(self, block: Array, rows: int) -> Array:
        return block[:rows, :]

    def lending(self, ids: Indices) -> Store:
        raise TypeError("pre-activations are exchanged between all rows")

    def borrowing(self, lenders: kernels.Block) -> Store:
        raise TypeError("pre-activations are exchanged between all rows")

    def gathered(self, index: Array) -> Array:
        return self.xp.take(self.preactivations, index, axis=0)

    @property
    def whole(self) -> Array:
        return self.preactivations

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
    def switched(self) -> kernels.Switched:
        return kernels.summed_rows


class FirstLayer(Route):
    """The rest of a model, behind its first layer; with donors of equal values once."""

    name, says, tables = "first_layer", "its first layer and the rest predict", True

    def pairs(self, question: Exchange) -> Opening[Measured]:
        problem = question.problem
        if problem.store.streams:
            return "needs the pre-activations of all rows, and X is read in blocks"
        found, columns = calling.first_layer(problem.model.source), int(problem.flat.shape[1])
        if found is None or len(problem.store.shape) != 1 or columns != found.weight.shape[0]:
            return (
                "needs a torch.nn.Sequential that begins with Linear, or rl.models.FirstLayer, on rows of one dimension"
            )
        if columns < FEWEST_COLUMNS and not question.forced:
            return f"pays from {FEWEST_COLUMNS} columns on"
        return partial(_opened, question, found)


def _opened(question: Exchange, layer: calling.FirstLayer) -> _Behind:
    """Raises `trust.Disagreement` if the rest does not predict from pre-activations what the model predicts."""
    problem = question.problem
    trust.check_first_layer(problem, question.base, layer)
    store = PreactivationStore(problem.flat, layer.weight, problem.flat @ layer.weight + layer.bias)
    # The session is the whole model's: the rest's modules are its own.
    model = Model(layer.rest, layer.rest, session=problem.model.session)
    return _Behind(question, dataclasses.replace(problem, store=store, model=model))


@dataclass(frozen=True, eq=False)
class _Behind:
    """``problem``: the same behind the first layer, rows are pre-activations, the model is the rest."""

    question: Exchange
    problem: Problem

    def _plan(self, feature: Feature) -> tuple[str, Plan]:
        classes = classes_of(self.question, feature)
        if classes is None:
            return FirstLayer.name, self.question.plan
        if not self.question.forced:
            return Distinct.name, classes
        # A constant column is one class, of which nothing is left to compare: rounding would be left of it otherwise.
        return FirstLayer.name, classes if classes.columns == 1 else self.question.plan

    def cost(self, feature: Feature) -> float | str:
        return _REST * self.problem.n * self._plan(feature)[1].columns

    def jobs(self, features: tuple[Feature, ...]) -> list[Called]:
        # One at a time: each feature has its own two terms of the pre-activations.
        ways = ((feature, *self._plan(feature)) for feature in features)
        return [Called(route, self.problem, self.question.base, plan, (feature,)) for feature, route, plan in ways]
