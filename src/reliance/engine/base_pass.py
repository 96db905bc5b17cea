"""The base pass: the model on the rows as they are, and every check that needs a prediction."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.engine import kernels, rounding
from reliance.engine.executors import Base, Caller, Context
from reliance.engine.kernels import Block, Predict
from reliance.engine.problems import Problem
from reliance.engine.rounding import Slack
from reliance.engine.shapes import block_rows, even
from reliance.losses import checks as loss_checks
from reliance.losses import functions as _losses
from reliance.losses.functions import Metric
from reliance.models.calling import changes_input, check_device, name_of, never_writes, unchecked


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
    if not store.in_place:
        data = (store.whole, at, rows, predictions)
        found: Slack = call.run(_traced_probe, Context((), store.shape), len(chosen[1]), data)
        return found
    with unchecked(problem.model.source) if _lent(problem) is not None else nullcontext():
        again = call(store.model_input(store.gathered(at), len(chosen[1])))
    return rounding.measured(predictions, rows, again[len(chosen[1]) - len(chosen[0]) :, ...])


def _traced_probe(context: Context, predict: Predict, X: Block, at: Array, rows: Array, predictions: Array) -> Slack:
    again = _traced_base(context, predict, X, at)
    return rounding.measured(predictions, rows, again[at.shape[0] - rows.shape[0] :, ...])


def _base_predictions(problem: Problem, call: Caller) -> tuple[Array, Array]:
    """Predictions (n, ...), and whether the model left its input as it was."""
    xp, store = problem.xp, problem.store
    rows = even(problem.n, block_rows(problem, 8))
    answers, untouched = [], xp.ones((), dtype=xp.bool, device=problem.device)
    buffer = None
    lent = _lent(problem)
    if lent is not None:
        own = lent.view()
        own.flags.writeable = False
        parts = [own[start : start + rows] for start in range(0, problem.n, rows)]
        with unchecked(problem.model.source):
            return xp.concat([call(store.model_input(part, len(part))) for part in parts]), untouched
    while buffer is None and store.in_place:
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
            answers.append(call.run(_traced_base, context, rows, (store.whole, index)))
            continue
        # The model gets a copy, never the user's own array, and the copy is compared afterwards.
        store.repeat(buffer, part, 1)
        answers.append(xp.asarray(call(store.model_input(buffer, len(part))), copy=True))
        same = store.holds(buffer, part, 1, None)
        untouched = untouched if same is None else xp.logical_and(untouched, same)
    check_device(answers[0], problem.flat, problem.model)
    predictions = answers[0] if len(answers) == 1 else xp.concat(answers)
    predictions = predictions[: problem.n, ...]
    return predictions, untouched


def _lent(problem: Problem) -> HostArray | None:
    """The user's own rows, if the model may look at them, which it cannot write to, instead of a copy.

    Only a model that is known not to write: another might copy what it cannot write to, and write into a block.
    """
    flat = problem.flat
    if problem.store.pass_bytes:
        return None  # a memory map: what the model looks at would stay in memory
    if isinstance(flat, np.ndarray) and flat.flags.c_contiguous and never_writes(problem.model.source):
        return flat
    return None


def _traced_base(context: Context, predict: Predict, X: Block, rows: Array) -> Array:
    answer: Array = predict(kernels.shaped(kernels.taken(X, rows), context.shape))
    return answer
