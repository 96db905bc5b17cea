"""Curves that an all-pairs run knows without one more evaluation: the prediction at each value that a feature takes.

With the prediction in the place of a loss, D(i, k) = f(row i with the feature of row k) - f(row i). So a donor's sum
of D over the rows is n times the partial dependence at its value, less the mean prediction, and the table of D is the
individual curves.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.streams import Indices, as_indices
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.executors import Base
from reliance.engine.problems import Problem
from reliance.exact.distinct import distinct_values
from reliance.exact.protocol import Measured
from reliance.exact.routes import Done
from reliance.losses.formulas import is_numeric
from reliance.losses.outputs import output
from reliance.results.curves import Curve

Floats = NDArray[np.float64]


def wants_curves(problem: Problem) -> bool:
    return bool(problem.keep & {"curves", "ice"})


def with_outputs(evaluation: Evaluation, route: str = "auto") -> Evaluation:
    """With each output of the model as one more loss; individual curves take their share of the memory."""
    problem, base = evaluation.problem, evaluation.base
    if not is_numeric(base.predictions):
        raise ValueError(
            f"keep='curves' needs numbers, but the model predicts {base.predictions.dtype}: pass a model that returns "
            "scores or probabilities, such as model.predict_proba"
        )
    for feature in problem.features:
        problem.rows.numbers("keep='curves'", [j for j in feature.columns if j not in problem.rows.texts])
    whole = "ice" in problem.keep
    count = math.prod(_outputs(problem, base))
    start = 0 if problem.model.shown is None else problem.model.shown[0]
    functions = tuple(output(start + index, whole) for index in range(count))
    memory = problem.memory - _individual_bytes(problem, count, route) if whole else problem.memory
    if memory < 1:
        raise ValueError(
            f"keep='ice' keeps a number for each row and value, {problem.memory - memory} bytes in all, which memory="
            f"{problem.memory} does not hold: pass a larger one to rl.Run, fewer features=, or keep='curves'"
        )
    own = [function.rows(base.predictions, base.predictions) for function in functions]
    return evaluation.with_losses(functions, own, memory, behind=True)


def _outputs(problem: Problem, base: Base) -> tuple[int, ...]:
    """The shape of the outputs of a row that curves are drawn of."""
    shown = problem.model.shown
    return tuple(base.predictions.shape[1:]) if shown is None else (shown[1] - shown[0],)


def _individual_bytes(problem: Problem, outputs: int, route: str) -> int:
    """Of the individual curves, and of the tables that they are read from."""
    n = problem.n
    sizes = [len(_speakers(problem, feature)) for feature in problem.features]
    tables = [n if route in ("plain", "first_layer") else size for size in sizes]
    return 8 * n * outputs * (sum(sizes) + sum(tables))


def curves_of(problem: Problem, base: Base, done: Done[Measured]) -> dict[str, Curve]:
    """The curves of all features, from what is known about the outputs, which stand behind the losses."""
    found = {}
    shape = _outputs(problem, base)
    shape = () if shape == (1,) else shape
    for feature in problem.features:
        speakers = _speakers(problem, feature)
        columns = [_host(problem.store.column(column))[speakers] for column in feature.columns]
        values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        means, tables = _parts(done.answer(feature), feature, problem, base, speakers)
        mean = np.stack(means, axis=-1).reshape((len(speakers), *shape))
        ice = np.stack(tables, axis=-1).reshape((problem.n, len(speakers), *shape)) if tables else None
        found[feature.name] = Curve(values, mean, ice, _labels(problem, feature, columns))
    return found


def _labels(problem: Problem, feature: Feature, columns: list[Floats]) -> tuple[str, ...] | None:
    """What codes stand for, columns of a group side by side; None if there are no codes."""
    if not any(column in problem.rows.texts for column in feature.columns):
        return None
    words = []
    for column, values in zip(feature.columns, columns, strict=True):
        texts = problem.rows.texts.get(column)
        words.append([f"{value:.6g}" if texts is None else texts[int(value)] for value in values.tolist()])
    return tuple(", ".join(point) for point in zip(*words, strict=True))


def _parts(
    answer: Measured, feature: Feature, problem: Problem, base: Base, speakers: Indices
) -> tuple[list[Floats], list[Floats]]:
    """For each output the mean and, if they are kept, the individual curves, at the values of the speakers."""
    means, tables = [], []
    for index, own in enumerate(base.host_losses[len(problem.losses) :], len(problem.losses)):
        change, table = answer.curve(feature, index, speakers, "ice" in problem.keep)
        means.append(inference.risk(own, problem.host_weights) + change)
        if table is not None:
            tables.append(own[:, None] + table)
    return means, tables


def _speakers(problem: Problem, feature: Feature) -> Indices:
    """A row for each distinct value of a feature, in the order of the values; missing ones last."""
    classes = distinct_values(problem, feature)
    speakers = np.arange(problem.n) if classes is None else classes.speaker
    values = np.stack([_host(problem.store.column(column))[speakers] for column in feature.columns])
    order = np.lexsort(values[::-1])
    values, speakers = values[:, order], speakers[order]
    equal = (values[:, 1:] == values[:, :-1]) | (np.isnan(values[:, 1:]) & np.isnan(values[:, :-1]))
    # What differs in its bits alone, such as 0 and -0, is one point of a curve.
    return as_indices(speakers[np.concatenate([[True], ~equal.all(axis=0)])])


def _host(x: Array) -> Floats:
    return np.asarray(arrays.to_host(x), dtype=np.float64)
