"""Filling blocks, calling the model on them and summing a tile: in place, where arrays can be written.

This executor and that of JAX, `traced`, have `step` for a tile of one block, `part` and `join` for one of several, by
the functions of `kernels`. Several features share a block, and the calls of the model, if each needs but a part of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, loops, tracing
from reliance._core.arrays import Array
from reliance._core.checks import warn
from reliance._core.kinds import HostArray
from reliance.data.features import Feature
from reliance.engine import kernels
from reliance.engine.kernels import Block, Lending, Part, Predict, RowShape
from reliance.engine.places import Lenders
from reliance.engine.problems import Problem
from reliance.engine.store_protocol import StoreBlock
from reliance.losses.functions import Loss, Metric
from reliance.models.calling import Model, check_prediction, name_of
from reliance.plans import Plan, Tile

Answer = TypeVar("Answer")
# What sums depend on besides losses.
Summed: TypeAlias = tuple[Array | None, Array | None, Lending | None, Array | None]


class Context(NamedTuple):
    """What a traced function depends on besides the model and its operands."""

    losses: tuple[Loss | Metric, ...]
    shape: RowShape
    limit: int | None = None
    switched: kernels.Switched | None = None


def predict_rows(model: Model, block: Block, limit: int | None) -> Array:
    """The predictions of a block, in calls of at most ``limit`` rows."""

    def checked(part: Block) -> Array:
        answer = model.predict(part)
        check_prediction(answer, arrays.first(part), model)
        return answer

    rows = arrays.first(block).shape[0]
    return checked(block) if limit is None or limit >= rows else loops.map_parts(checked, block, limit)


class Caller:
    """Calls the model with at most ``limit`` rows; when memory runs out, halves them and goes on."""

    def __init__(self, model: Model, limit: int | None = None, errors: Any = None) -> None:
        self.model = model
        self.limit = limit
        self.traceable = True
        self._errors = np.geterr() if errors is None else errors
        self._compiled: dict[tuple[object, Context], Callable[..., Any]] = {}
        self._baked: tracing.Baked = {}
        self._halving = threading.Lock()

    def __reduce__(self) -> tuple[type[Caller], tuple[Model, int | None, Any]]:
        return type(self), (self.model, self.limit, self._errors)  # what was compiled stays here

    def __call__(self, block: Block) -> Array:
        while True:
            tried = self.limit
            try:
                with np.errstate(**self._errors):  # as the user has set it: the engine's own operations are quiet
                    return predict_rows(self.model, block, tried)
            except Exception as error:
                self._recover(arrays.first(block).shape[0], tried, error)

    def run(self, function: Callable[..., Answer], context: Context, rows: int, data: tuple[object, ...]) -> Answer:
        """``function(context, predict, *data)``, compiled by JAX unless the model cannot be traced."""
        while True:
            here = context._replace(limit=self.limit)
            try:
                if not self.traceable:
                    return _bind(function, here, self.model.predict)(*data)
                if (function, here) not in self._compiled:
                    bound = _bind(function, here, self.model.predict)
                    self._compiled[function, here] = tracing.traced(bound, function.__name__.lstrip("_"), self._baked)
                found: Answer = self._compiled[function, here](*data)
                return found
            except tracing.StaleError:
                raise
            except Exception as error:
                if self.traceable and not arrays.is_out_of_memory(error):
                    # A mistake of the model surfaces here first, too: run eagerly, it shows again if it is one.
                    answer = _bind(function, here, self.model.predict)(*data)
                    self._warn_untraceable(error)
                    return answer
                self._recover(rows, here.limit, error)

    def _recover(self, rows: int, tried: int | None, error: Exception) -> None:
        """Halve the rows of a call if the error says that memory ran out; raise it otherwise."""
        if not arrays.is_out_of_memory(error):
            raise error
        size = min(tried or rows, rows)
        if size == 1:
            raise MemoryError(f"model {name_of(self.model.source)} ran out of memory on a single row") from error
        with self._halving:  # another thread may have found out before, with the same rows or fewer
            self.limit = min(self.limit or rows, (size + 1) // 2)

    def _warn_untraceable(self, error: Exception) -> None:
        self.traceable = False
        reason = str(error).strip().split("\n")[0]
        warn(f"model {name_of(self.model.source)} cannot be traced by JAX and runs eagerly, which is slower: {reason}")


def _bind(function: Callable[..., Answer], context: Context, predict: Predict) -> Callable[..., Answer]:
    """``function`` with its context and model."""
    model = Model(predict, predict)
    return partial(function, context, lambda block: predict_rows(model, block, context.limit))


@dataclass(frozen=True)
class Base:
    """The model on the rows as they are.

    Attributes
    ----------
    predictions : array (n, ...)
    slack : array (n, ...)
        By how much an output may differ between calls though its row is the same: see `reliance.engine.rounding`.
    targets : tuple of array (n, ...)
        What each loss compares predictions with.
    losses : tuple of array (n,)
        l(i) on the device, per loss; ``host_losses`` the same on the host in float64.
    weights : array (n,) or None
        In the widest dtype of the device.
    output_bytes : int
        Bytes of one row's prediction.
    """

    predictions: Array
    slack: Array
    targets: tuple[Array, ...]
    losses: tuple[Array, ...]
    host_losses: tuple[NDArray[np.float64], ...]
    weights: Array | None
    output_bytes: int


class Opened(NamedTuple):
    """A tile with its indices on the device. ``shape`` is the shape its sums are computed in."""

    tile: Tile
    shape: tuple[int, int]
    mask: Array | None
    counts: Array | None
    lending: Lending | None
    contrasts: Array | None = None

    @property
    def summed(self) -> Summed:
        """What the sums of the tile depend on besides its losses."""
        return self.mask, self.counts, self.lending, self.contrasts


class InPlace:
    """NumPy, torch, CuPy: one buffer, of which only the replaced columns are rewritten.

    It has a slot for each of the ``together`` features that share it: the same rows, in which that one is replaced.
    """

    def __init__(
        self, problem: Problem, plan: Plan, base: Base, shape: tuple[int, int], call: Caller, together: int = 1
    ) -> None:
        self.problem, self.plan, self.base, self.call = problem, plan, base, call
        self.capacity, self.together = shape, together
        self.buffer = problem.store.allocate(together * shape[0] * shape[1])
        self.filled: tuple[range, int] | None = None
        self.replaced: list[Feature | None] = []  # of each slot that is filled
        self.kept: Array | None = None
        self.lenders = Lenders(problem.store, plan, self._upload)

    def open(self, tile: Tile) -> Opened:
        shape = (len(tile.rows), len(tile.columns))
        if self.plan.rectangular:
            given = (self.plan.mask(tile), self.plan.counts(tile.columns))
            mask, counts = (None if a is None else self._upload(a) for a in given)
            return Opened(tile, shape, mask, counts, None)
        if not self.plan.lends:
            return Opened(tile, shape, None, None, None)
        users = self.plan.users(tile.columns)
        bounds = None if users.bounds is None else self._upload(users.bounds)
        signs = self.plan.contrasts(tile)
        contrasts = None if signs is None else self._upload(signs.astype(np.float64))
        return Opened(tile, shape, None, None, Lending(self._upload(users.flat), bounds), contrasts)

    def fill(self, rows: range, tile: Tile) -> None:
        """Make room for the rows in the buffer, unless they are there already, and get their donors."""
        d = len(tile.columns)
        if self.filled != (rows, d):
            self._check_all()
            self.slots = self.problem.store.slots(self.buffer, self.together, len(rows) * d)
            self.filled, self.replaced = (rows, d), []
            self.own, self.slack = (
                kernels.repeat_rows(a[rows.start : rows.stop, ...], d) for a in (self.base.predictions, self.base.slack)
            )
            self.targets = tuple(
                kernels.repeat_rows(t[rows.start : rows.stop, ...], d, self.together) for t in self.base.targets
            )
        donors = self.plan.donors(rows, tile.columns)
        numbers = donors if isinstance(donors, range) else self._upload(donors)
        self.donors = self.problem.store.replacements(rows, numbers)

    def part(self, rows: range, opened: Opened, features: tuple[Feature, ...]) -> Part:
        """What is kept of one block's predictions: of several features along a first axis."""
        stack, shape = features[1:] and (len(features),), (len(rows), opened.shape[1])
        predictions = self._predict(rows, shape[1], features)
        targets = tuple(t[: predictions.shape[0], ...] for t in self.targets)
        kept = kernels.answers(self.problem.losses, targets, predictions, (*stack, *shape))
        predictions = self.problem.xp.reshape(predictions, (*stack, -1, *predictions.shape[1:]))
        moved = kernels.movement(predictions, self.own, self.slack, stacked=bool(stack))
        return Part(kept, moved, kernels.is_valid(self.problem.losses, predictions, stacked=bool(stack)))

    def keep(self, part: Part) -> Part:
        """A copy that survives the next block: a model may return a view of its input."""
        return part._replace(kept=tuple(self.problem.xp.asarray(k, copy=True) for k in part.kept))

    def join(self, parts: list[Part], opened: Opened) -> Array:
        """The packed sums of a tile from all of its blocks, one loss after the other."""
        start, stop = opened.tile.rows.start, opened.tile.rows.stop
        targets = tuple(t[start:stop, ...] for t in self.base.targets)
        base = tuple(b[start:stop] for b in self.base.losses)
        weights = None if self.base.weights is None else self.base.weights[start:stop]
        return kernels.join(self.problem.losses, targets, base, weights, parts, *opened.summed)

    def step(self, rows: range, opened: Opened, features: tuple[Feature, ...]) -> Array:
        """The sums of a tile that is one block, of several features one line below the other."""
        return self.join([self.part(rows, opened, features)], opened)

    def intact(self, done: bool) -> Array | None:
        """0-d bool on the device: the model has not changed its input, as far as was looked; None: nobody looked.

        A model is free to write into the rows it is given only if nothing reads them again. So a feature's columns are
        compared before they are replaced, and all others when the block is filled anew, or all is done.
        """
        if done:
            self._check_all()
        kept, self.kept = self.kept, None
        return kept

    def _check_all(self) -> None:
        if self.filled is None:
            return
        for slot, replaced in zip(self.slots, self.replaced, strict=False):
            if replaced is not None:
                self.problem.store.restore(slot, *self.filled, replaced)
            self._check(slot, *self.filled, None)

    def _check(self, slot: StoreBlock, rows: range, d: int, feature: Feature | None) -> None:
        same = self.problem.store.holds(slot, rows, d, feature)
        if same is not None:
            self.kept = same if self.kept is None else self.problem.xp.logical_and(self.kept, same)

    def _predict(self, rows: range, d: int, features: tuple[Feature, ...]) -> Array:
        store = self.problem.store
        for number, (slot, feature) in enumerate(zip(self.slots, features, strict=False)):
            if number == len(self.replaced):
                store.repeat(slot, rows, d)
                self.replaced.append(None)
            before = self.replaced[number]
            if before is not None and before is not feature:
                store.restore(slot, rows, d, before)
                self._check(slot, rows, d, feature)
            self.lenders(feature).swap(slot, rows, d, feature, self.donors)
            self.replaced[number] = feature
        return self.call(store.model_input(self.buffer, len(features) * len(rows) * d))

    def _upload(self, values: HostArray) -> Array:
        xp, dev = self.problem.xp, self.problem.device
        return arrays.from_host(values, xp, dev, arrays.sum_dtype(xp, dev) if values.dtype.kind == "f" else None)
