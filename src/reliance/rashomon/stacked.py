"""Several models on the same blocks: one model whose output holds theirs side by side, and a loss for each of them.

A block of replaced rows is filled once and every model of the stack is called on it. What can be stacked shares the
rows (array type, device, dtype), the dtype of its predictions and, on JAX, whether it can be traced. Models with a
route of their own (closed forms, trees, a first layer) are measured by it, alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plans
from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.progress import Reporter
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation, evaluating
from reliance.engine.executors import Base, Caller, predict_rows
from reliance.engine.kernels import Block
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact import routes
from reliance.exact.protocol import Exchange
from reliance.losses import functions as losses
from reliance.losses.functions import Loss
from reliance.methods import studies
from reliance.models.calling import Model
from reliance.samplers import variables
from reliance.samplers.scrambling import Scrambler

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of the list on the rows as they are."""

    name: str
    evaluation: Evaluation

    @classmethod
    def of(cls, name: str, problem: Problem) -> Fitted:
        with named(name), evaluating(problem) as evaluation:
            return cls(name, evaluation)

    @property
    def problem(self) -> Problem:
        return self.evaluation.problem

    @property
    def base(self) -> Base:
        return self.evaluation.base

    @property
    def call(self) -> Caller:
        return self.evaluation.call

    @property
    def losses(self) -> Floats:
        """(n,), on the host."""
        return self.base.host_losses[0]

    @property
    def kind(self) -> tuple[str, ...]:
        """What models must have in common to be stacked."""
        rows, predictions = self.problem.flat, self.base.predictions
        return (arrays.describe(rows), str(rows.dtype), str(predictions.dtype), str(self.call.traceable))


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Errors say which model of the list they are about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This is about {name!r} of the list of models.")
        raise


# ---------------------------------------------------------------------------------------------------------------------
# The stack


@dataclass(frozen=True, eq=False)
class _SideBySide:
    """``(m, *features) -> (m, W)``: the outputs of all models, flattened."""

    parts: tuple[tuple[Model, int | None], ...]

    def __call__(self, block: Block) -> Array:
        xp = arrays.namespace(arrays.first(block))
        # Copies: two models may answer in the same memory.
        outputs = (predict_rows(model, block, limit) for model, limit in self.parts)
        return xp.concat([xp.asarray(xp.reshape(one, (one.shape[0], -1)), copy=True) for one in outputs], axis=1)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for model, _ in self.parts:
                stack.enter_context(model.session())
            yield


@dataclass(frozen=True)
class _Own:
    """``function`` of one model's outputs, columns start to stop of the stack, in the shape that it returns them in."""

    function: Callable[..., Array]
    start: int
    stop: int
    shape: tuple[int, ...]

    def __call__(self, *given: Array) -> Array:
        *target, stack = given
        xp = arrays.namespace(stack)
        rows = stack.shape[0]
        own = xp.reshape(stack, (rows, -1))[:, self.start : self.stop]
        return self.function(*target, xp.reshape(own, (rows, *self.shape)))


@dataclass(frozen=True)
class _RowLosses:
    loss: Loss

    def __call__(self, target: Array, prediction: Array) -> Array:
        return losses.row_losses(self.loss, target, prediction)


def _moved(target: Array, prediction: Array) -> Array:
    """1 where a prediction moved by more than rounding; ``target``: the row's own outputs, then the slack of each.

    The engine looks at the whole stack; whether one model uses a feature must not depend on the others.
    """
    xp = arrays.namespace(prediction)
    own = target[:, : prediction.shape[1]]
    if arrays.is_floating(xp, prediction.dtype):
        moved = xp.abs(prediction - own) > target[:, prediction.shape[1] :]
    else:
        moved = prediction != own
    return xp.astype(xp.any(moved, axis=1), xp.float32)


def stacked(parts: Sequence[Fitted]) -> Fitted:
    """The models as one. It has two losses for each model: first all of theirs, then whether a prediction moved."""
    first = parts[0].problem
    xp, dev, n = first.xp, first.device, first.n
    outputs = [xp.reshape(part.base.predictions, (n, -1)) for part in parts]
    edges = np.cumsum([0, *(int(one.shape[1]) for one in outputs)]).tolist()
    own, moves, watched = [], [], []
    for part, output, (start, stop) in zip(parts, outputs, pairwise(edges), strict=True):
        (loss,) = part.problem.losses
        assert isinstance(loss, Loss)
        shape = tuple(part.base.predictions.shape[1:])
        valid = None if loss.valid is None else _Own(loss.valid, start, stop, shape)
        rows = _Own(_RowLosses(loss), start, stop, shape)
        own.append(Loss(loss.name, rows, output=loss.output, valid=valid, requirement=loss.requirement))
        moves.append(Loss("moved", _Own(_moved, start, stop, (stop - start,))))
        floating = arrays.is_floating(xp, output.dtype)
        slack = xp.reshape(part.base.slack, (n, -1))
        watched.append(xp.concat([output, slack], axis=1) if floating else output)
    predictions = xp.concat(outputs, axis=1)
    still = xp.zeros((n,), dtype=xp.float32, device=dev)
    targets = (*(part.base.targets[0] for part in parts), *watched)
    dtype = predictions.dtype if arrays.is_floating(xp, predictions.dtype) else xp.float32
    side_by_side = _SideBySide(tuple((part.problem.model, part.call.limit) for part in parts))
    model = Model(side_by_side, side_by_side, session=side_by_side.session)
    problem = replace(first, model=model, losses=(*own, *moves), targets=targets)
    base = Base(
        predictions=predictions,
        slack=xp.zeros((n, 1), dtype=dtype, device=dev),
        targets=targets,
        losses=(*(part.base.losses[0] for part in parts), *(still for _ in parts)),
        host_losses=(*(part.losses for part in parts), *(np.zeros(n) for _ in parts)),
        weights=None,
        # Thrice: rows' own predictions and their slack are targets, too.
        output_bytes=3 * edges[-1] * arrays.itemsize(predictions),
    )
    call = Caller(model)
    call.traceable = parts[0].call.traceable
    return Fitted("", Evaluation(problem, base, call, Reporter()))


# ---------------------------------------------------------------------------------------------------------------------
# Reliance


@dataclass(frozen=True, eq=False)
class Reliances:
    """Of some models on some features: values (m, p), and how each row moves them (m, p, n) if that was asked for."""

    members: tuple[int, ...]
    features: slice
    values: Floats
    influence: Floats | None


@dataclass(frozen=True)
class Question:
    """What is measured: all pairs, rows' own values or residuals exchanged."""

    features: tuple[Feature, ...]
    compare: str
    conditional: bool
    influence: bool


class _Share:
    """Progress of one run as a part of the whole: ``size`` rows, however many the run counts."""

    def __init__(self, advance: Callable[[int], None], size: int) -> None:
        self.advance, self.size, self.given = advance, size, 0

    def __call__(self, done: int, total: int) -> None:
        reached = self.size * min(done, total) // max(total, 1)
        if reached > self.given:
            self.advance(reached - self.given)
            self.given = reached


def reliances(question: Question, parts: dict[int, Fitted], advance: Callable[[int], None]) -> Iterator[Reliances]:
    """Each model's reliance on each feature, as many models and features at a time as the memory holds the sums of."""
    together: dict[tuple[str, ...], list[int]] = {}
    for k, part in parts.items():
        alone = not question.conditional and _has_route(part)
        together.setdefault((str(k),) if alone else part.kind, []).append(k)
    p = len(question.features)
    for members in together.values():
        for some in _affordable(parts, members):
            rows = parts[some[0]].problem.n
            step = max(1, parts[some[0]].problem.memory // (4 * len(some) * 48 * rows))
            for start in range(0, p, step):
                chosen = slice(start, min(start + step, p))
                asked = replace(question, features=question.features[chosen])
                share = _Share(advance, len(some) * len(asked.features) * rows**2)
                values, influence = _measured(asked, [parts[k] for k in some], share)
                share(1, 1)
                yield Reliances(tuple(some), chosen, values, influence)


def _has_route(part: Fitted) -> bool:
    """Whether there is a faster way to all pairs of a model than to call it on all of its inputs."""
    plan = plans.Pairs(part.problem.n)
    return routes.has_shortcut(Exchange(problem=part.problem, base=part.base, plan=plan))


def _affordable(parts: dict[int, Fitted], members: list[int]) -> Iterator[list[int]]:
    """As many models at a time as half of the memory holds one feature's sums, the base losses and predictions of."""
    first = parts[members[0]].problem
    some: list[int] = []
    room = first.memory // 2
    for k in members:
        cost = first.n * (2 * (24 + 24) + 4 * parts[k].base.output_bytes)
        if some and cost > room:
            yield some
            some, room = [], first.memory // 2
        some.append(k)
        room -= cost
    yield some


def _measured(question: Question, parts: list[Fitted], share: _Share) -> tuple[Floats, Floats | None]:
    """Values (m, p), influences (m, p, n): of one model by itself, of several as a stack."""
    if len(parts) == 1:
        with named(parts[0].name):
            return _evaluated(question, parts[0], 1, share)
    try:
        return _evaluated(question, stacked(parts), len(parts), share)
    except (ValueError, TypeError):
        # Found in the stack; an error has to name its model, which one by one will show.
        for part in parts:
            _measured(question, [part], _Share(lambda rows: None, 0))
        raise


def _evaluated(question: Question, one: Fitted, count: int, share: _Share) -> tuple[Floats, Floats | None]:
    problem = one.problem.of_features(question.features)
    run = _scrambled if question.conditional else _switched
    values, influence = np.empty((count, len(problem.features))), []
    with one.evaluation.again(share) as evaluation:
        found = run(evaluation.on(problem), question.compare)
    for j, (moments, effects) in enumerate(found):
        for m in range(count):
            if len(moments) > count and not np.any(moments[count + m].row_sum):  # the model does not use the feature
                values[m, j] = inference.null_value(question.compare)
                influence.append(np.zeros(problem.n))
                continue
            summary = inference.summarize(
                moments[m],
                one.base.host_losses[m],
                None,
                plans.Pairs(problem.n),
                question.compare,
                keep_rows=False,
                effect=effects[m] if question.influence else None,
            )
            values[m, j] = summary.value
            influence.append(summary.influence if summary.influence is not None else np.zeros(0))
    if not question.influence:
        return values, None
    return values, np.stack(influence).reshape(len(found), count, problem.n).transpose(1, 0, 2)


_Found = list[tuple[tuple[Moments, ...], Sequence[Floats]]]


def _switched(evaluation: Evaluation, compare: str) -> _Found:
    """For each feature the moments of each loss, and what rows add through a fitted sampler: there is none."""
    problem = evaluation.problem
    done = routes.measure(evaluation, plans.Pairs(problem.n))
    nothing = [np.zeros(problem.n)] * len(problem.losses)
    return [(done.answer(feature).moments(feature), nothing) for feature in problem.features]


def _scrambled(evaluation: Evaluation, compare: str) -> _Found:
    """The same with residuals exchanged."""
    problem = evaluation.problem
    known, plan = variables.gather(problem.rows, None, None), plans.Pairs(problem.n)
    evaluation.advance.expect(len(problem.features) * plan.n * plan.columns)
    study = studies.Study(evaluation, known, None, Scrambler(), plan, compare)
    found: _Found = []
    for feature in problem.features:
        case = studies.measured(study, feature, known.given(variables.REST, feature.columns), False)
        assert case.effect is not None  # that of least squares is known
        found.append((case.moments, case.effect.rows))
    return found
