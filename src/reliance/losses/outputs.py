"""Predictions in the place of losses: then the sums of the engine are sums of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reliance._core.arrays import namespace
from reliance._core.kinds import Array
from reliance.losses.formulas import float_dtype
from reliance.losses.functions import Loss, Metric


@dataclass(frozen=True)
class Output:
    """One output of each row, the outputs of a row flattened; ``whole``: the table of all cells is wanted, too."""

    index: int
    whole: bool = False

    def __call__(self, y: Array, prediction: Array) -> Array:
        xp = namespace(prediction)
        flat = xp.reshape(prediction, (prediction.shape[0], -1))
        return xp.astype(flat[:, self.index], float_dtype(xp, prediction), copy=False)


@dataclass(frozen=True)
class Score:
    """One output of each row, of which the whole table is wanted as it is, not as a change: for ranks of all of it."""

    index: int

    def __call__(self, y: Array, prediction: Array) -> Array:
        return Output(self.index)(y, prediction)


@dataclass(frozen=True)
class Whole:
    """The losses of rows as they are, of which the whole table is wanted, too."""

    rows: Callable[[Array, Array], Array]

    def __call__(self, y: Array, prediction: Array) -> Array:
        return self.rows(y, prediction)


def whole(loss: Loss) -> Loss:
    """The same loss, of which every cell D(i, k) is kept."""
    return loss if is_whole(loss) else replace(loss, rows=Whole(loss.rows))


def output(index: int, whole: bool = False) -> Loss:
    """The pseudo-loss of an output: D(i, k) is the change of the prediction. What it is compared with is not used."""
    return Loss(f"output {index}", Output(index, whole))


def score(index: int) -> Loss:
    """The pseudo-loss of a score, whose base losses have to be 0: then D(i, k) is the score itself, to the last bit."""
    return Loss(f"score {index}", Score(index))


def is_score(function: Loss | Metric) -> bool:
    return isinstance(function, Loss) and isinstance(function.rows, Score)


def is_output(function: Loss | Metric) -> bool:
    return isinstance(function, Loss) and isinstance(function.rows, Output)


def is_whole(function: Loss | Metric) -> bool:
    """Whether every cell D(i, k) is kept, not only sums."""
    if not isinstance(function, Loss):
        return False
    return isinstance(function.rows, Score | Whole) or (isinstance(function.rows, Output) and function.rows.whole)


def real_losses(functions: Sequence[Loss | Metric]) -> tuple[Loss | Metric, ...]:
    """Those that are not outputs."""
    return tuple(function for function in functions if not is_output(function))
