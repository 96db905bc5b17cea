"""The one loop: budget -> tile shape; fill a block, call the model, sum the tile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from reliance import plans
from reliance._core import arrays
from reliance._core.arrays import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.engine import rounding
from reliance.engine.executors import Base, Caller, Context, InPlace, Opened, Traced
from reliance.engine.inputs import Problem
from reliance.engine.kernels import Part, Predict
from reliance.engine.reductions import Accumulator, Moments
from reliance.engine.rounding import Slack
from reliance.engine.shapes import batches, block_rows, even, fixed_bytes, tile_shape
from reliance.engine.stores import equal
from reliance.losses import checks as loss_checks
from reliance.losses import functions as _losses
from reliance.losses.functions import Loss, Metric
from reliance.losses.outputs import is_whole
from reliance.models.calling import changes_input, check_device, name_of, never_writes, unchecked
from reliance.plans import Plan, Tile

# Sums that wait on the device before they are fetched.
_MOST_PENDING = 4096


@dataclass(frozen=True)
class Run:
    """What an evaluation gives: moments per feature and loss, and how it was done."""

    moments: dict[str, tuple[Moments, ...]]
    block: tuple[int, int]


@contextmanager
def session(problem: Problem) -> Iterator[None]:
    """The context in which the model is called: its own (evaluation mode, say), no gradients, no floating errors."""
    with ExitStack() as stack:
        stack.enter_context(problem.model.session())
        stack.enter_context(arrays.inference_only(problem.xp))
        stack.enter_context(arrays.quiet())
        yield


def call_rows(problem: Problem) -> int | None:
    """With how many rows the model is called at most; None: with whole blocks, as the user's ``block`` asks for."""
    if problem.block is not None or arrays.is_accelerator(problem.xp, problem.device):
        return None
    return problem.model.block_rows or arrays.cpu_call_rows(problem.xp)


# ---------------------------------------------------------------------------------------------------------------------
# The base pass


def base_pass(problem: Problem, call: Caller, probed: bool = True) -> Base:
    """The model on the rows as they are: base losses, and every check that needs a prediction.

    ``probed``: some rows are predicted a second time, in another batch, to see what rounding does to them.
    """
    xp = problem.xp
    predictions, untouched = _base_predictions(problem, call)
    targets = tuple(predictions if t is None else t for t in problem.targets)
    slack, apart, random = _probe(problem, call, predictions) if probed else rounding.measured(predictions)
    with arrays.quiet():
        flags = [xp.astype(a, xp.float32) for a in (untouched, xp.all(xp.isfinite(slack)), random, apart)]
    same, finite, noisy, distance = arrays.to_host(xp.stack(flags)).tolist()
    name = name_of(problem.model.source)
    if not same:
        raise changes_input(problem.model)
    if not finite:
        raise ValueError(
            f"model {name} returned NaN or infinite predictions for the rows of X: a loss cannot be computed from them"
        )
    if noisy:
        rounding.warn_random(name, distance)
    losses = []
    for function, target in zip(problem.losses, targets, strict=True):
        loss_checks.check(function, target, predictions)
        if isinstance(function, Metric):
            losses.append(_losses.draw_losses(function, target, predictions[:, None, ...], problem.weights)[:, 0])
        else:
            losses.append(_losses.row_losses(function, target, predictions))
    host = tuple(np.asarray(a, dtype=np.float64) for a in arrays.fetch(losses))
    for function, values in zip(problem.losses, host, strict=True):
        if not np.isfinite(values).all():
            raise ValueError(
                f"loss={shown(function.name)} is NaN or infinite for row {int(np.argmin(np.isfinite(values)))} of X: "
                "check y and the predictions there, or choose another loss"
            )
    width = int(np.prod(predictions.shape[1:], dtype=np.int64)) * arrays.itemsize(predictions)
    return Base(predictions, slack, targets, tuple(losses), host, problem.weights, width)


def _probe(problem: Problem, call: Caller, predictions: Array) -> Slack:
    """What another batch does to predictions."""
    xp, store = problem.xp, problem.store
    most = block_rows(problem, 8)
    if isinstance(problem.block, tuple):
        most = min(most, problem.block[0] * problem.block[1])
    chosen = rounding.probe(problem.n, most)
    rows, at = (arrays.from_host(i, xp, problem.device, arrays.index_dtype(xp)) for i in chosen)
    if not arrays.is_mutable(xp):
        data = (problem.flat, at, rows, predictions)
        found: Slack = call.run(_traced_probe, Context((), store.shape), len(chosen[1]), data)
        return found
    with unchecked(problem.model.source) if _is_lent(problem) else nullcontext():
        again = call(store.model_input(xp.take(problem.flat, at, axis=0), len(chosen[1])))
    return rounding.measured(predictions, rows, again[len(chosen[1]) - len(chosen[0]) :, ...])


def _traced_probe(context: Context, predict: Predict, X: Array, at: Array, rows: Array, predictions: Array) -> Slack:
    again = _traced_base(context, predict, X, at)
    return rounding.measured(predictions, rows, again[at.shape[0] - rows.shape[0] :, ...])


def _base_predictions(problem: Problem, call: Caller) -> tuple[Array, Array]:
    """Predictions (n, ...), and whether the model left its input as it was."""
    xp, store = problem.xp, problem.store
    rows = even(problem.n, block_rows(problem, 8))
    answers, untouched = [], xp.ones((), dtype=xp.bool, device=problem.device)
    buffer = None
    if _is_lent(problem):
        own = problem.flat.view()
        own.flags.writeable = False
        parts = [own[start : start + rows] for start in range(0, problem.n, rows)]
        with unchecked(problem.model.source):
            return np.concatenate([call(store.model_input(part, len(part))) for part in parts]), untouched
    while buffer is None and arrays.is_mutable(xp):
        try:
            buffer = store.allocate(rows)
        except Exception as error:
            if not arrays.is_out_of_memory(error) or rows == 1:
                raise
            rows = (rows + 1) // 2
    for start in range(0, problem.n, rows):
        part = range(start, min(start + rows, problem.n))
        if buffer is None:
            at = np.minimum(np.arange(start, start + rows), problem.n - 1)
            index = arrays.from_host(at, xp, problem.device, arrays.index_dtype(xp))
            context = Context((), store.shape)
            answers.append(call.run(_traced_base, context, rows, (problem.flat, index)))
            continue
        # The model gets a copy, never the user's own array, and the copy is compared afterwards.
        store.repeat(buffer, part, 1)
        answers.append(xp.asarray(call(store.model_input(buffer, len(part))), copy=True))
        same = equal(buffer[: len(part), :], problem.flat[start : part.stop, :])
        untouched = xp.logical_and(untouched, same)
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
    xp = arrays.namespace(X)
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
        tiles = plans.tiles(plan, executor.capacity)
        sums = accumulate(executor, batch, tiles, advance)
        block = _block_used(executor.capacity, call.limit)
        for feature in batch:
            own = plan.part(feature)
            moments[feature.name] = tuple(a.finalize(own) for a in sums[feature.name])
    return Run(moments, block)


def make_executor(
    problem: Problem, plan: Plan, base: Base, call: Caller, features: tuple[Feature, ...]
) -> InPlace | Traced:
    """The executor of the backend, with the planned block, halved until it can be allocated."""
    fixed = fixed_bytes(problem, plan, len(features), base.output_bytes)
    rows = block_rows(problem, base.output_bytes, fixed)
    if problem.block == "tune":
        rows = _tuned_rows(problem, plan, base, call, features[0], rows)
    return _executor(problem, plan, base, call, tile_shape(problem, plan, rows))


def _executor(problem: Problem, plan: Plan, base: Base, call: Caller, shape: tuple[int, int]) -> InPlace | Traced:
    if not arrays.is_mutable(problem.xp):
        return Traced(problem, plan, base, shape, call)
    while True:
        try:
            return InPlace(problem, plan, base, shape, call)
        except Exception as error:
            if not arrays.is_out_of_memory(error) or shape == (1, 1):
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
            _collect(executor, sums, pending)
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
    _collect(executor, sums, pending, done=True)
    return sums


def _block_used(shape: tuple[int, int], limit: int | None) -> tuple[int, int]:
    """The block shape that the model was called with, after memory ran out or not."""
    if limit is None or limit >= shape[0] * shape[1]:
        return shape
    d = min(shape[1], limit)
    return max(limit // d, 1), d


def _collect(
    executor: InPlace | Traced,
    sums: dict[str, tuple[Accumulator, ...]],
    pending: list[tuple[Feature, Opened, Array]],
    done: bool = False,
) -> None:
    """Fetch the waiting sums, once, and with them whether the model left its rows as they were; add them."""
    intact = executor.intact(done)
    packed = [line for _, _, line in pending]
    flag = [] if intact is None else [executor.problem.xp.astype(intact, packed[0].dtype)]
    fetched = arrays.fetch([*packed, *flag])
    if flag and not fetched.pop():
        raise changes_input(executor.problem.model)
    for (feature, opened, _), line in zip(pending, fetched, strict=True):
        add(executor.problem, feature.name, sums[feature.name], opened.tile, line, opened.shape)
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


def _tuned_rows(problem: Problem, plan: Plan, base: Base, call: Caller, feature: Feature, most: int) -> int:
    """The block size with the most rows a second, measured on tiles of the plan: ``block="tune"``.

    The one place that looks at a clock. On JAX what is timed is compiled, once for each size.
    """
    best, fastest = 1, 0.0
    size = min(256, most)
    while size <= most:
        executor = _executor(problem, plan, base, call, tile_shape(problem, plan, size))
        b, d = executor.capacity
        tile = next(iter(plans.tiles(plan, executor.capacity)))
        rows, opened = tile.rows[:b], executor.open(tile)
        executor.fill(rows, tile)
        whole = len(rows) == len(tile.rows)
        speed = b * d / min(_seconds(executor, rows, opened, feature, whole) for _ in range(3))
        if speed > fastest:
            best, fastest = size, speed
        if b >= plan.n and d >= plan.columns:  # the whole table: larger blocks are the same
            break
        size *= 2
    return best


def _seconds(executor: InPlace | Traced, rows: range, opened: Opened, feature: Feature, whole: bool) -> float:
    """Of one block, until its result is on the host."""
    start = time.perf_counter()
    done = executor.step(rows, opened, feature) if whole else executor.part(rows, opened, feature).moved
    arrays.to_host(done)
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
