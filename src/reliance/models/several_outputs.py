"""Several outputs of a network as the columns of one array, so that one pass serves all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reliance._core.arrays import describe, is_array, is_floating, namespace
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.losses.places import Place
from reliance.losses.tasks import Task
from reliance.models.calling import name_of
from reliance.models.chosen_output import OutputLike, check_output, choose
from reliance.models.networks import Network, with_output


@dataclass(frozen=True, eq=False)
class _SideBySide:
    """A function of what a network answers: ``(m, W)``. Fills the places of the outputs."""

    outputs: tuple[tuple[str, OutputLike, Place], ...]
    name: str

    def __call__(self, answer: object) -> Array:
        found = [(task, self._one(answer, task, output), place) for task, output, place in self.outputs]
        return beside_each_other([(one, place) for _, one, place in found])

    def _one(self, answer: object, task: str, output: OutputLike) -> Array:
        array = choose(answer, output, self.name)
        if not is_array(array) or array.ndim == 0:
            given = describe(array) if is_array(array) else type(array).__name__
            raise TypeError(f"model {self.name:.60}: the output of {shown(task)} is a {given}: give one entry per row")
        return array


def beside_each_other(parts: Sequence[tuple[Array, Place]]) -> Array:
    """Arrays ``(m, ...)`` as columns of one, each where its place says, in a dtype that holds all of them."""
    xp, start = namespace(*(array for array, _ in parts)), 0
    floating = [array.dtype for array, _ in parts if is_floating(xp, array.dtype)]
    dtype = xp.result_type(*(floating or [array.dtype for array, _ in parts]))
    columns = []
    for array, place in parts:
        start = place.fill(start, tuple(array.shape[1:]))
        columns.append(xp.astype(xp.reshape(array, (array.shape[0], -1)), dtype, copy=False))
    return xp.concat(columns, axis=1)


def side_by_side(model: object, tasks: Sequence[Task]) -> Network:
    """A network that answers with the outputs of all tasks."""
    for task in tasks:
        check_output(task.output)
    name = name_of(model)
    outputs = tuple((task.loss.name, _output(task.output), task.place) for task in tasks)
    found = with_output(model, _SideBySide(outputs, name))
    if found is None:
        raise TypeError(
            f"loss is a mapping of tasks, but model={name:.60} is not a network that answers with several outputs: "
            "pass a module or a function, and a loss for each task"
        )
    return found


def _output(given: object) -> OutputLike:
    # `check_output` has looked at it.
    output: OutputLike = given  # type: ignore[assignment]
    return output
