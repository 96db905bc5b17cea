"""The one loop: budget -> tile shape; fill a block, call the model, sum the tile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from reliance import _array, loss_checks
from reliance import losses as _losses
from reliance import plans as _plans
from reliance._array import Array
from reliance.executors import Base, Caller, Context, InPlace, Opened, Traced
from reliance.features import Feature
from reliance.inputs import Problem
from reliance.kernels import Part, Predict
from reliance.losses import Loss, Metric
from reliance.models import check_device, name_of, never_writes, unchecked
from reliance.outputs import is_whole
from reliance.plans import Plan, Tile
from reliance.reductions import Accumulator, Moments

# Rows of a block. On a CPU a block, whose losses are summed at once, may be several calls of the model, so that the
# model's activations stay in the cache; an accelerator wants work.
_CPU_ROWS = 16384
_CPU_BLOCK_BYTES = 2**25
_ACCELERATOR_ROWS = 2**17
# Temporaries of a block's losses: losses, changes, weighted changes, squares, repeated targets, donor indices.
_CELL_BYTES = 6 * 8
# A model computes the same row a little differently in another batch. A prediction that moves by less than so many
# units in its last place, or in that of a typical prediction, has not moved: a feature that moves none is not used.
ROUNDING = 16
# Sums that wait on the device before they are fetched.
_MOST_PENDING = 4096


@dataclass(frozen=True)
class Run:
    """What an evaluation gives: moments per feature and loss, and how it was done."""

    moments: dict[str, tuple[Moments, ...]]
    block: tuple[int, int]


@contextmanager
def session(problem: Problem) -> Iterator[None]:
    """The context in which the model is called: its own (evaluation mode, say), and no gradients."""
    with ExitStack() as stack:
        stack.enter_context(problem.model.session())
        stack.enter_context(_array.inference_only(problem.xp))
        yield


# ---------------------------------------------------------------------------------------------------------------------
# Shape


def call_rows(problem: Problem) -> int | None:
    """With how many rows the model is called at most; None: with whole blocks, as the user's ``block`` asks for."""
    if problem.block is not None or _array.is_accelerator(problem.xp, problem.device):
        return None
    return problem.model.block_rows or _array.cpu_call_rows(problem.xp)


def block_rows(problem: Problem, output_bytes: int, fixed: int = 0) -> int:
    """How many rows a block has: a function of sizes, backend and device, never of a clock."""
    if isinstance(problem.block, int):
        return problem.block
    row_bytes = problem.store.row_bytes
    per_row = row_bytes + 2 * output_bytes + _CELL_BYTES * len(problem.losses)
    affordable = (problem.memory - fixed) // per_row
    if affordable < 1:
        raise ValueError(
            f"memory={problem.memory} bytes is too small for one row: at least {fixed + per_row} are needed for "
            f"{problem.n} rows of {row_bytes} bytes; pass a larger memory="
        )
    if _array.is_accelerator(problem.xp, problem.device):
        rows = _ACCELERATOR_ROWS
    else:
        rows = min(_CPU_ROWS, max(_CPU_BLOCK_BYTES // row_bytes, 64))
    return min(rows, affordable)


def tile_shape(problem: Problem, plan: Plan, rows: int) -> tuple[int, int]:
    """Rows and columns of a block of at most that many rows, as even as can be."""
    if isinstance(problem.block, tuple):
        b, d = problem.block
        return min(b, plan.n), min(d, plan.columns)
    if plan.rectangular:
        # Square, unless there are fewer columns (or rows) than that.
        d = min(plan.columns, max(math.isqrt(rows), 1))
        b = min(plan.n, max(rows // d, 1))
        return _even(plan.n, b), _even(plan.columns, max(rows // b, 1))
    if plan.n > rows:
        return _even(plan.n, rows), 1
    longest = max(stop - start for start, stop in _plans.stretches(plan))
    return plan.n, _even(longest, max(rows // plan.n, 1))


def _even(total: int, size: int) -> int:
    """The size, at most ``size``, that cuts ``total`` into equally many pieces of nearly equal length."""
    return math.ceil(total / math.ceil(total / min(size, total)))


def _fixed_bytes(problem: Problem, plan: Plan, features: int, output_bytes: int) -> int:
    """Bytes held throughout a pass over some features: accumulators, base losses, what waits in a whole-rows tile."""
    losses = len(problem.losses)
    held = features * losses * Accumulator.nbytes(plan) + plan.n * (output_bytes + 24 * losses)
    held += problem.store.held_bytes
    if not plan.rectangular:
        metrics = sum(isinstance(function, Metric) for function in problem.losses)
        kept = 8 * (losses - metrics) + output_bytes * metrics
        # ... and the plan's ordering, the donors and their users, and one tile's losses on the way to its sums.
        held += plan.n * (features * kept + 8 * (3 + 2 + 2 * losses))
    return held


def batches(
    problem: Problem, plan: Plan, features: tuple[Feature, ...], output_bytes: int
) -> Iterator[tuple[Feature, ...]]:
    """As many features at a time as half of the memory holds the sums of: they share filled blocks."""
    one = _fixed_bytes(problem, plan, 1, output_bytes)
    each = _fixed_bytes(problem, plan, 2, output_bytes) - one
    size = max(1, 1 + (problem.memory // 2 - one) // each)
    for start in range(0, len(features), size):
        yield features[start : start + size]


# ---------------------------------------------------------------------------------------------------------------------
# The base pass


def base_pass(problem: Problem, call: Caller) -> Base:
    """The model on the rows as they are: base losses, and every check that needs a prediction."""
    predictions, untouched = _base_predictions(problem, call)
    targets = tuple(predictions if t is None else t for t in problem.targets)
    slack = _rounding_slack(predictions)
    finite = problem.xp.all(problem.xp.isfinite(slack))
    same, finite = (bool(flag) for flag in _array.fetch([untouched, finite]))
    if not same:
        raise ValueError(
            f"model {name_of(problem.model.source)} changes its input: work on a copy inside the model, "
            "because the rows it is given are used again"
        )
    if not finite:
        raise ValueError(
            f"model {name_of(problem.model.source)} returned NaN or infinite predictions for the rows of X: "
            "a loss cannot be computed from them"
        )
    losses = []
    for function, target in zip(problem.losses, targets, strict=True):
        loss_checks.check(function, target, predictions)
        if isinstance(function, Metric):
            losses.append(_losses.draw_losses(function, target, predictions[:, None, ...], problem.weights)[:, 0])
        else:
            losses.append(_losses.row_losses(function, target, predictions))
    host = tuple(np.asarray(a, dtype=np.float64) for a in _array.fetch(losses))
    for function, values in zip(problem.losses, host, strict=True):
        if not np.isfinite(values).all():
            raise ValueError(
                f"loss={function.name!r} is NaN or infinite for row {int(np.argmin(np.isfinite(values)))} of X: "
                "check y and the predictions there, or choose another loss"
            )
    width = int(np.prod(predictions.shape[1:], dtype=np.int64)) * _array.itemsize(predictions)
    return Base(predictions, slack, targets, tuple(losses), host, problem.weights, width)


def _rounding_slack(predictions: Array) -> Array:
    """``(n, 1, ...)``: what rounding may do to each row's prediction; NaN or inf if one is not finite."""
    xp = _array.namespace(predictions)
    shape = (predictions.shape[0], *(1 for _ in predictions.shape[1:]))
    if not _array.is_floating(xp, predictions.dtype):
        return xp.zeros(shape, dtype=xp.float32, device=_array.device(predictions))
    sizes = xp.abs(predictions)
    if predictions.ndim > 1:
        sizes = xp.max(xp.reshape(sizes, (predictions.shape[0], -1)), axis=1)
    middle = sizes.shape[0] // 2
    ordered = np.partition(sizes, middle) if isinstance(sizes, np.ndarray) else xp.sort(sizes)
    typical = ordered[middle]  # the median: one huge prediction must not speak for all
    scale = ROUNDING * _array.epsilon(predictions)
    # Sorting puts NaN last, where the median does not see it: the sizes carry it on.
    return xp.reshape(scale * xp.where(sizes < typical, typical, sizes), shape)


def _base_predictions(problem: Problem, call: Caller) -> tuple[Array, Array]:
    """Predictions (n, ...), and whether the model left its input as it was."""
    xp, store = problem.xp, problem.store
    rows = _even(problem.n, block_rows(problem, 8))
    answers, untouched = [], xp.ones((), dtype=xp.bool, device=problem.device)
    buffer = None
    if _is_lent(problem):
        own = problem.flat.view()
        own.flags.writeable = False
        parts = [own[start : start + rows] for start in range(0, problem.n, rows)]
        with unchecked(problem.model.source):
            return np.concatenate([call(store.model_input(part, len(part))) for part in parts]), untouched
    while buffer is None and _array.is_mutable(xp):
        try:
            buffer = store.allocate(rows)
        except Exception as error:
            if not _array.is_out_of_memory(error) or rows == 1:
                raise
            rows = (rows + 1) // 2
    for start in range(0, problem.n, rows):
        part = range(start, min(start + rows, problem.n))
        if buffer is None:
            at = np.minimum(np.arange(start, start + rows), problem.n - 1)
            index = _array.from_host(at, xp, problem.device, _array.index_dtype(xp))
            context = Context((), store.shape)
            answers.append(call.run(_traced_base, context, rows, (problem.flat, index)))
            continue
        # The model gets a copy, never the user's own array, and the copy is compared afterwards.
        store.repeat(buffer, part, 1)
        answers.append(xp.asarray(call(store.model_input(buffer, len(part))), copy=True))
        given, own = buffer[: len(part), :], problem.flat[start : part.stop, :]
        if isinstance(given, np.ndarray) and np.array_equal(given, own):
            continue
        same = xp.logical_or(given == own, xp.logical_and(given != given, own != own))  # NaN stays NaN
        untouched = xp.logical_and(untouched, xp.all(same))
    check_device(answers[0], problem.flat, problem.model)
    predictions = answers[0] if len(answers) == 1 else xp.concat(answers)
    predictions = predictions[: problem.n, ...]
    return predictions, untouched


def _is_lent(problem: Problem) -> bool:
    """Whether the model may look at the user's own rows, which it cannot write to, instead of a copy.

    Only a model that is known not to write: another might copy what it cannot write to, and write into a block.
    """
    flat = problem.flat
    return isinstance(flat, np.ndarray) and flat.flags.c_contiguous and never_writes(problem.model.source)


def _traced_base(context: Context, predict: Predict, X: Array, rows: Array) -> Array:
    xp = _array.namespace(X)
    return predict(xp.reshape(xp.take(X, rows, axis=0), (rows.shape[0], *context.shape)))


# ---------------------------------------------------------------------------------------------------------------------
# The loop


def evaluate(
    problem: Problem,
    plan: Plan,
    base: Base,
    call: Caller,
    features: tuple[Feature, ...],
    advance: Callable[[int], None] = lambda rows: None,
) -> Run:
    """The moments of some features of the problem under a plan."""
    moments: dict[str, tuple[Moments, ...]] = {}
    block = (0, 0)
    for batch in batches(problem, plan, features, base.output_bytes):
        executor = make_executor(problem, plan, base, call, batch)
        tiles = _plans.tiles(plan, executor.capacity)
        sums = accumulate(executor, batch, tiles, advance)
        block = _block_used(executor.capacity, call.limit)
        for feature in batch:
            moments[feature.name] = tuple(a.finalize(plan) for a in sums[feature.name])
    return Run(moments, block)


def make_executor(
    problem: Problem, plan: Plan, base: Base, call: Caller, features: tuple[Feature, ...]
) -> InPlace | Traced:
    """The executor of the backend, with the planned block, halved until it can be allocated."""
    fixed = _fixed_bytes(problem, plan, len(features), base.output_bytes)
    rows = block_rows(problem, base.output_bytes, fixed)
    if problem.block == "tune":
        rows = tuned_rows(problem, call, rows)
    shape = tile_shape(problem, plan, rows)
    if not _array.is_mutable(problem.xp):
        return Traced(problem, plan, base, shape, call)
    while True:
        try:
            return InPlace(problem, plan, base, shape, call)
        except Exception as error:
            if not _array.is_out_of_memory(error) or shape == (1, 1):
                raise
            b, d = shape
            shape = ((b + 1) // 2, d) if b >= d else (b, (d + 1) // 2)


def accumulate(
    executor: InPlace | Traced,
    features: tuple[Feature, ...],
    tiles: Iterable[Tile],
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, tuple[Accumulator, ...]]:
    """Sums over some tiles of a plan; sums over disjoint sets of tiles can be merged in any order."""
    problem, plan, height = executor.problem, executor.plan, executor.capacity[0]
    sums = {f.name: tuple(Accumulator.init(plan, is_whole(function)) for function in problem.losses) for f in features}
    pending: list[tuple[Feature, Opened, Array]] = []
    strip: range | None = None
    for tile in tiles:
        if pending and (tile.rows != strip or not plan.rectangular or len(pending) > _MOST_PENDING):
            _collect(problem, sums, pending)
        strip = tile.rows
        opened = executor.open(tile)
        tops = range(tile.rows.start, tile.rows.stop, height)
        parts: dict[str, list[Part]] = {}
        for top in tops:
            rows = range(top, min(top + height, tile.rows.stop))
            executor.fill(rows, tile)
            for feature in features:
                if len(tops) == 1:
                    pending.append((feature, opened, executor.step(rows, opened, feature)))
                else:
                    parts.setdefault(feature.name, []).append(executor.keep(executor.part(rows, opened, feature)))
                    if top == tops[-1]:
                        pending.append((feature, opened, executor.join(parts.pop(feature.name), opened)))
                advance(len(rows) * len(tile.columns))
    _collect(problem, sums, pending)
    return sums


def _block_used(shape: tuple[int, int], limit: int | None) -> tuple[int, int]:
    """The block shape that the model was called with, after memory ran out or not."""
    if limit is None or limit >= shape[0] * shape[1]:
        return shape
    d = min(shape[1], limit)
    return max(limit // d, 1), d


def _collect(
    problem: Problem, sums: dict[str, tuple[Accumulator, ...]], pending: list[tuple[Feature, Opened, Array]]
) -> None:
    """Fetch the waiting sums, once, and add them."""
    fetched = _array.fetch([packed for _, _, packed in pending])
    for (feature, opened, _), packed in zip(pending, fetched, strict=True):
        add(problem, feature.name, sums[feature.name], opened.tile, packed, opened.shape)
    pending.clear()


def add(
    problem: Problem,
    feature: str,
    sums: tuple[Accumulator, ...],
    tile: Tile,
    packed: np.ndarray[Any, Any],
    shape: tuple[int, int],
) -> None:
    """Add the packed sums of a tile, one loss after the other, to those of a feature."""
    lines = np.split(packed, np.cumsum([accumulator.size(shape) for accumulator in sums])[:-1])
    for accumulator, function, line in zip(sums, problem.losses, lines, strict=True):
        if not accumulator.update(tile, line, shape):
            raise invalid(problem, feature, function)


def invalid(problem: Problem, feature: str, function: Loss | Metric) -> ValueError:
    """What is said of predictions that a loss cannot take."""
    requirement = function.requirement or "finite predictions, and losses that do not overflow"
    return ValueError(
        f"with feature {feature!r} replaced, model {name_of(problem.model.source)} returned predictions that "
        f"loss={function.name!r} cannot take: it needs {requirement}"
    )


def tuned_rows(problem: Problem, call: Caller, most: int) -> int:
    """The block size with the most rows a second, measured on the rows of X: ``block="tune"``.

    The one place that looks at a clock and gives the model rows beyond the evaluation contract.
    """
    store, best, fastest = problem.store, 1, 0.0
    size = min(256, most)
    while size <= most:
        index = np.arange(size) % problem.n
        block = problem.xp.take(problem.flat, _array.from_host(index, problem.xp, problem.device), axis=0)
        block = problem.xp.reshape(block, (size, *store.shape))
        spent = min(_seconds(call, block) for _ in range(3))
        if size / spent > fastest:
            best, fastest = size, size / spent
        size *= 2
    return best


def _seconds(call: Caller, block: Array) -> float:
    start = time.perf_counter()
    _array.to_host(call(block))
    return time.perf_counter() - start


class Reporter:
    """Reports rows done: ``report(done, total)``."""

    def __init__(self, total: int, report: Callable[[int, int], None]) -> None:
        self.done, self.total, self.report = 0, total, report

    def __call__(self, rows: int) -> None:
        self.done += rows
        self.report(self.done, self.total)

    def expect(self, rows: int) -> None:
        """More rows than were announced."""
        self.total += rows


@contextmanager
def progress(problem: Problem, total: int, unit: str = "rows") -> Iterator[Reporter]:
    """How what is done is reported: not at all, to a bar, or to the user's function ``(done, total)``."""
    if problem.progress is False:
        yield Reporter(total, lambda done, total: None)
    elif problem.progress is True:
        from tqdm.auto import tqdm

        with tqdm(total=total, unit=unit, unit_scale=True) as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield Reporter(total, show)
    else:
        report: Any = problem.progress
        yield Reporter(total, report)
