"""Filling a block, calling the model on it and summing a tile on JAX: one compiled function of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np

from reliance._core import arrays
from reliance._core.arrays import Array
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.executors import Base, Caller, Context, Opened, Summed
from reliance.engine.kernels import Lending, Operands, Part, Predict
from reliance.engine.places import RowsAtPlaces, padded, padded_users
from reliance.engine.problems import Problem
from reliance.plans import Plan, Tile

Answer = TypeVar("Answer")
# Of traced functions: arrays of all losses; own predictions and slack; donors and their order.
Several: TypeAlias = tuple[Array, ...]
Own: TypeAlias = tuple[Array, Array]
Borrowed: TypeAlias = tuple[Array, Array | None]


class Traced:
    """JAX: a tile is one pure function of the data, compiled once for a tile shape and shared by features and calls.

    Which columns are replaced is an operand. Tiles at the edges are padded to the common shape and masked.
    """

    def __init__(self, problem: Problem, plan: Plan, base: Base, shape: tuple[int, int], call: Caller) -> None:
        self.problem, self.plan, self.base, self.call = problem, plan, base, call
        self.capacity = shape
        self.together = 1
        self.last: tuple[Feature, Operands] | None = None
        self.orders = RowsAtPlaces(plan, self._upload)

    def open(self, tile: Tile) -> Opened:
        b, d = self.capacity
        if self.plan.rectangular:
            mask, counts = np.zeros((b, d), dtype=bool), self.plan.counts(tile.columns)
            inside = self.plan.mask(tile)
            mask[: len(tile.rows), : len(tile.columns)] = True if inside is None else inside
            if counts is not None:
                counts = self._upload(np.pad(counts, (0, d - len(counts))))
            return Opened(tile, (b, d), self._upload(mask), counts, None)
        mask = self._upload((np.arange(d) < len(tile.columns))[None, :])
        if not self.plan.lends:
            return Opened(tile, (self.plan.n, d), mask, None, None)
        users = self.plan.users(tile.columns)
        index = self._upload(padded_users(users, self.plan.n, len(tile.columns), d))
        bounds = None if users.bounds is None else self._upload(users.bounds)
        signs = self.plan.contrasts(tile)
        sides = ((0, 0), (0, d - len(tile.columns)))
        contrasts = None if signs is None else self._upload(np.pad(signs.astype(np.float64), sides))
        return Opened(tile, (self.plan.n, d), mask, None, Lending(index, bounds), contrasts)

    def fill(self, rows: range, tile: Tile) -> None:
        b, d = self.capacity
        inside = np.asarray(self.plan.donors(rows, tile.columns))
        short = (b - len(rows), d - len(tile.columns), 0)
        sides = short[1:2] if inside.ndim == 1 else short[: inside.ndim]
        donors = self._upload(np.pad(inside, [(0, side) for side in sides], mode="edge"))
        self.rows, self.donors = self._upload(padded(rows, b)), self.problem.store.replacements(rows, donors)

    def part(self, rows: range, opened: Opened, features: tuple[Feature, ...]) -> Part:
        return self._run(_traced_part, self._data(features))

    def intact(self, done: bool) -> None:
        """Arrays of JAX cannot be changed."""

    def keep(self, part: Part) -> Part:
        if self.call.traceable:
            return part
        return part._replace(kept=tuple(self.problem.xp.asarray(k, copy=True) for k in part.kept))

    def join(self, parts: list[Part], opened: Opened) -> Array:
        base = self.base
        return self._run(_traced_join, (base.targets, base.losses, base.weights, parts, opened.summed))

    def step(self, rows: range, opened: Opened, features: tuple[Feature, ...]) -> Array:
        base = self.base
        return self._run(_traced_step, (*self._data(features), base.losses, base.weights, opened.summed))

    def _data(self, features: tuple[Feature, ...]) -> tuple[object, ...]:
        (feature,) = features
        if self.last is None or self.last[0] is not feature:
            self.last = (feature, self.problem.store.operands(feature))
        own = (self.base.predictions, self.base.slack)
        return self.last[1], own, self.base.targets, self.rows, (self.donors, self.orders(feature))

    def _run(self, function: Callable[..., Answer], data: tuple[object, ...]) -> Answer:
        store = self.problem.store
        context = Context(self.problem.losses, store.shape, switched=store.switched)
        return self.call.run(function, context, self.capacity[0] * self.capacity[1], data)

    def _upload(self, values: HostArray) -> Array:
        xp = self.problem.xp
        kinds = {"i": arrays.index_dtype(xp), "f": arrays.sum_dtype(xp, self.problem.device)}
        dtype = kinds.get(values.dtype.kind)
        return arrays.from_host(values, xp, self.problem.device, dtype)


def _traced_part(
    context: Context, predict: Predict, operands: Operands, own: Own, targets: Several, rows: Array, borrowed: Borrowed
) -> Part:
    assert context.switched is not None
    xp = arrays.namespace(rows)
    donors, order = borrowed
    donors = donors if order is None else kernels.at_places(order, donors)
    b, d = rows.shape[0], donors.shape[min(1, donors.ndim - 1)]  # donors (d,) or (b, d), values (b, d, g)
    predictions = predict(kernels.shaped(context.switched(operands, rows, donors), context.shape))
    repeated = tuple(kernels.repeat_rows(xp.take(t, rows, axis=0), d) for t in targets)
    kept = kernels.answers(context.losses, repeated, predictions, (b, d))
    own, slack = (kernels.repeat_rows(xp.take(a, rows, axis=0), d) for a in own)
    return Part(kept, kernels.movement(predictions, own, slack), kernels.is_valid(context.losses, predictions))


def _traced_join(
    context: Context,
    predict: Predict,
    targets: Several,
    base: Several,
    weights: Array | None,
    parts: list[Part],
    summed: Summed,
) -> Array:
    return kernels.join(context.losses, targets, base, weights, parts, *summed)


def _traced_step(
    context: Context,
    predict: Predict,
    operands: Operands,
    own: Own,
    targets: Several,
    rows: Array,
    borrowed: Borrowed,
    base: Several,
    weights: Array | None,
    summed: Summed,
) -> Array:
    xp = arrays.namespace(rows)
    part = _traced_part(context, predict, operands, own, targets, rows, borrowed)
    targets, base = (tuple(xp.take(a, rows, axis=0) for a in arrays) for arrays in (targets, base))
    weights = None if weights is None else xp.take(weights, rows)
    return kernels.join(context.losses, targets, base, weights, [part], *summed)
