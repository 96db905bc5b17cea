"""Whether a shortcut says what the model says: on rows as they are, and on a sample of replaced rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.checks import warn
from reliance._core.kinds import Array, HostArray
from reliance.engine.executors import Base, predict_rows
from reliance.engine.problems import Problem
from reliance.engine.shapes import call_rows
from reliance.exact.protocol import Route
from reliance.models import calling, ensembles, pipelines
from reliance.models.calling import FirstLayer, Model
from reliance.models.ensembles import Ensemble
from reliance.models.kernel_machines import KernelMachine, Sums
from reliance.models.pipelines import Unfolded
from reliance.models.probes import COARSE, UNITS, Probe, probe, same

Floats = NDArray[np.float64]
# Units in the last place of the largest score, from which on its sign is trusted.
_DOUBT = 1e3
# Rows that are transformed once more, and by how much transformed numbers may differ.
_FEW, _ALIKE = 64, 1e-12
_STRIP = 2**17  # numbers of X that are multiplied with coefficients together


class Disagreement(Exception):
    """A shortcut, as it was read from a model, does not predict what the model predicts."""


def warn_of_call(problem: Problem, route: Route) -> None:
    """Said where the model is called instead."""
    warn(f"{words(problem, route)}: it is called instead")


def words(problem: Problem, route: Route) -> str:
    name = calling.name_of(problem.model.source)[:80]
    return f"route={route.name!r}: model {name} does not predict what {route.says}"


def _reproduces(
    problem: Problem,
    base: Base,
    form: tuple[Floats, float],
    claimed: Floats | None,
    lenders: Array | None,
) -> bool:
    coef, intercept = form
    precision = arrays.epsilon(base.predictions)
    predictions = _host(base.predictions).reshape(-1)
    if precision > COARSE or len(predictions) != problem.n:
        return False
    claimed = _products(problem.flat, coef) + intercept if claimed is None else claimed
    scale = float(np.max(np.abs(predictions))) + float(np.max(np.abs(coef))) + abs(intercept)
    if not same(claimed, predictions, scale, precision):
        return False
    block = _probe(problem, base, lenders).block
    replaced = _host(block) @ coef + intercept
    found = _host(_called(problem, block)).reshape(-1)
    return len(found) == len(replaced) and same(replaced, found, scale + float(np.max(np.abs(replaced))), precision)


def check_linear(
    problem: Problem,
    base: Base,
    form: tuple[Floats, float],
    claimed: Floats | None = None,
    lenders: Array | None = None,
) -> None:
    """Raise `Disagreement` unless coefficients and intercept give the model's predictions up to rounding.

    ``claimed (n,)``: what they say of the rows, if that is known already. ``lenders (N, P)``: who lends, if not the
    rows themselves. To be asked inside the model's session.
    """
    if not _reproduces(problem, base, form, claimed, lenders):
        raise Disagreement


class Scored(Protocol):
    """A model that is known to be a function of scores, which are sums over columns."""

    @property
    def labels(self) -> str: ...
    @property
    def answer(self) -> Callable[[Floats], HostArray]: ...

    def score(self, flat: Array) -> Floats:
        """``(m, ...)`` of rows ``(m, P)``."""
        ...


def check_scores(problem: Problem, base: Base, form: Scored, scores: Floats) -> None:
    """Raise `Disagreement` unless the effects of single columns give the model's predictions up to rounding.

    ``scores (n, ...)``: their sums in the rows. Labels are not compared where the score is 0 up to rounding.
    """
    groups = [feature.columns for feature in problem.features]
    precision = arrays.epsilon(base.predictions)
    block = probe(problem.flat, groups, scores, memory=problem.memory).block
    half, doubt = int(block.shape[0]) // 2, doubtful(problem, scores)
    # In two parts: an effect that looks at its batch is none of single rows.
    replaced = np.concatenate([form.score(part) for part in (block[:half, :], block[half:, :])])
    if precision > COARSE:
        raise Disagreement
    for own, model in ((scores, base.predictions), (replaced, _called(problem, block))):
        claimed, library = np.asarray(form.answer(own)), arrays.to_host(model)
        library = library.reshape(claimed.shape) if claimed.size == library.size else library
        clear = np.ones(len(own), dtype=bool) if form.labels == "none" else np.abs(own) > doubt
        if claimed.shape != library.shape or not _agree(claimed[clear], library[clear], own, precision):
            raise Disagreement


def doubtful(problem: Problem, scores: Floats) -> float:
    """Up to which size the sign of a score may be rounding."""
    precision = max(arrays.epsilon(problem.flat), float(np.finfo(np.float64).eps))
    return _DOUBT * precision * (1.0 + float(np.max(np.abs(scores))))


def _agree(claimed: HostArray, library: HostArray, scores: Floats, precision: float) -> bool:
    """Whether answers to scores are the model's; a relative error of a score is one of the answer times its size."""
    if not len(claimed) or claimed.dtype.kind not in "biuf" or library.dtype.kind not in "biuf":
        return bool(np.array_equal(claimed, library))
    scale = (1.0 + float(np.max(np.abs(scores)))) * float(np.max(np.abs(library)))
    return same(claimed.astype(np.float64), library.astype(np.float64), scale, precision)


def check_pipeline(problem: Problem, base: Base, unfolded: Unfolded, behind: Problem) -> None:
    """Raise `Disagreement` unless each column of the rows makes its own transformed columns, and nothing else.

    ``behind``: the problem of the last estimator and transformed rows. Replaced rows, transformed, must be transformed
    rows with exchanged columns, and the estimator must predict from these what the pipeline predicts.
    """
    found = _probe(problem, base)
    few = min(problem.n, _FEW)
    own, lent, block, first = (
        _transformed(problem, unfolded, rows) for rows in (found.own, found.lent, found.block, problem.flat[:few, :])
    )
    if own.shape[1:] != behind.flat.shape[1:] or not _alike(first, _host(behind.flat[:few, :])):  # in a smaller batch
        raise Disagreement
    replaced = np.zeros(own.shape, dtype=bool)
    for q, source in enumerate(unfolded.sources):
        if source is not None:
            replaced[:, q] = found.mask[:, source]
    exchanged = np.where(replaced, lent, own)
    if not _alike(exchanged, block):
        raise Disagreement
    for rows, library in ((behind.flat, base.predictions), (exchanged, _called(problem, found.block))):
        claimed = predict_rows(behind.model, rows, call_rows(problem))
        one, other = arrays.to_host(claimed), arrays.to_host(library)
        if one.shape != other.shape or not _agree(one, other, np.zeros(1), arrays.epsilon(library)):
            raise Disagreement


def as_given(problem: Problem, rows: Array) -> object:
    """Rows on the host as the model takes them: numbers, or a table of the user's own kind."""
    table = problem.model.table
    return rows if table is None else table.decode(arrays.to_host(rows))


def _transformed(problem: Problem, unfolded: Unfolded, rows: Array) -> Floats:
    found = pipelines.as_numbers(unfolded.transform(as_given(problem, rows)), problem.memory)
    if isinstance(found, str):
        raise Disagreement
    return _host(found)


def _alike(one: Floats, other: Floats) -> bool:
    """Up to rounding, missing numbers in the same places."""
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=_ALIKE, atol=_ALIKE, equal_nan=True))


def check_trees(problem: Problem, base: Base, ensemble: Ensemble) -> None:
    """Raise `Disagreement` unless the trees predict what their library predicts for a few rows."""
    model = problem.model
    if isinstance(model.source, Ensemble):
        return
    block = _probe(problem, base).block
    with arrays.inference_only(problem.xp):
        raw = arrays.to_host(ensemble.raw(block))
    own, settled = arrays.to_host(ensemble.finish(raw)), ensembles.settled(ensemble, raw)
    if model.trees is None:
        library = arrays.to_host(_called(problem, block))
    else:  # the trees are called in the place of their library
        library = np.asarray(getattr(model.source, str(model.method))(arrays.to_host(block)))
    library = library.reshape(own.shape) if own.size == library.size else library
    if own.shape != library.shape or not ensembles.agrees(ensemble, own[settled], library[settled]):
        raise Disagreement


def check_first_layer(problem: Problem, base: Base, layer: FirstLayer) -> None:
    """Raise `Disagreement` unless the rest predicts from exchanged parts of pre-activations what the model predicts."""
    xp, precision = problem.xp, arrays.epsilon(base.predictions)
    if precision > COARSE:  # a difference of 16 bits has no digits left
        raise Disagreement
    found = _probe(problem, base)
    nothing = xp.zeros_like(found.own)
    own, lent = (xp.where(found.mask, rows, nothing) @ layer.weight for rows in (found.own, found.lent))
    exchanged = (found.own @ layer.weight + layer.bias - own) + lent
    rest = Model(layer.rest, layer.rest)
    claimed = _host(predict_rows(rest, exchanged, call_rows(problem)))
    library = _host(_called(problem, found.block))
    scale = float(np.max(np.abs(library)))
    if claimed.shape != library.shape or not same(claimed, library, scale, precision):
        raise Disagreement


def check_kernel(problem: Problem, base: Base, machine: KernelMachine) -> Floats:
    """Raise `Disagreement` unless the sum over the centres is what the machine predicts.

    Returns how large the terms are that each row's raw output is the sum of, (n,): what rounding is relative to.
    """
    block = _host(_probe(problem, base).block)
    called, own = arrays.to_host(_called(problem, arrays.as_floating(block))), arrays.to_host(base.predictions)
    sizes = []
    for rows, library in ((block, called), (_host(problem.flat), own)):
        sums = machine.sums(rows)
        claimed = np.asarray(machine.finish(sums.raw[:, None]))
        sizes.append(sums.size)
        if claimed.shape != library.shape or not _is_the_machines(machine, sums, claimed, library):
            raise Disagreement
    return sizes[-1]


def _is_the_machines(machine: KernelMachine, sums: Sums, claimed: HostArray, library: HostArray) -> bool:
    precision = float(np.finfo(np.float64).eps)
    if not machine.finish.exact:
        return same(claimed, library, float(np.max(sums.size)), precision)
    clear = np.abs(sums.raw - machine.finish.cut) > UNITS * precision * sums.size  # elsewhere rounding decides
    return bool(np.array_equal(claimed[clear], library[clear]))


def _probe(problem: Problem, base: Base, lenders: Array | None = None) -> Probe:
    groups = [feature.columns for feature in problem.features]
    outputs = arrays.to_host(base.predictions)  # labels that are text have no extremes
    return probe(problem.flat, groups, outputs if outputs.dtype.kind in "biuf" else None, lenders, problem.memory)


def _called(problem: Problem, block: Array) -> Array:
    shaped = problem.xp.reshape(block, (block.shape[0], *problem.store.shape))
    predictions: Array = predict_rows(problem.model, shaped, call_rows(problem))
    return predictions


def _products(flat: Array, coef: Floats) -> Floats:
    step, n = max(_STRIP // len(coef), 1), int(flat.shape[0])
    return np.concatenate([_host(flat[start : min(start + step, n), :]) @ coef for start in range(0, n, step)])


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)
