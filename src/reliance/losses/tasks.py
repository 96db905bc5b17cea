"""Several tasks of one network: a mapping from names to the output, the labels and the loss of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from reliance._core.words import listed, shown
from reliance.losses.functions import Loss, LossLike, Metric, resolve
from reliance.losses.places import Place


class Task(NamedTuple):
    """What is judged: an output, by what, against which labels. ``loss`` carries the task's name and its place."""

    output: object
    y: object
    loss: Loss | Metric
    place: Place


def read(loss: Mapping[str, object], y: object) -> tuple[Task, ...]:
    """The tasks of ``{name: loss}``, ``{name: (output, loss)}`` or ``{name: (output, y, loss)}``.

    An output that is not named has the name of its task, and so have its labels if y is a mapping.
    """
    if not loss:
        raise ValueError("loss={} is empty: give a loss for each task, as in {'price': 'squared_error'}")
    return tuple(_task(name, entry, y) for name, entry in loss.items())


def _task(name: object, entry: object, y: object) -> Task:
    if not isinstance(name, str):
        raise TypeError(f"loss: the task {shown(name)} is no text: name each task")
    parts = entry if isinstance(entry, tuple) else (name, entry)
    if len(parts) not in (2, 3):
        raise ValueError(
            f"loss[{shown(name)}] has {len(parts)} parts: pass a loss, (output, loss) or (output, y, loss)"
        )
    labels = parts[1] if len(parts) == 3 else _labels(name, y)
    # Whatever it is, `resolve` says in words what it should be.
    given: LossLike = parts[-1]
    place = Place()
    return Task(parts[0], labels, dataclasses.replace(resolve(given), name=name, columns=place), place)


def _labels(name: str, y: object) -> object:
    if not isinstance(y, Mapping):
        return y
    if name not in y:
        raise ValueError(f"y has no labels for the task {shown(name)}: it has {listed(y)}")
    return y[name]
