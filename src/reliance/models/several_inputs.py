"""Models of several inputs, which the engine calls with all of them in a tuple."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from reliance._core.arrays import device, from_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.several_inputs import Inputs
from reliance.models import calling, modules, networks
from reliance.models.calling import Model


def at_home(inputs: Inputs, model: object) -> Inputs:
    """Inputs of NumPy go to the device of a torch module, floating ones in its dtype; others stay."""
    module = networks.module_of(model)
    if module is None:
        return inputs
    import array_api_compat.torch as xp

    home = modules.home(module)
    dev, dtype = (device(xp.empty(0)), None) if home is None else home
    moved = {}
    for name, part in inputs.parts.items():
        if isinstance(part, np.ndarray):
            part = from_host(part, xp, dev)
        elif device(part) != dev:
            raise ValueError(
                f"X[{shown(name)}] is on {device(part)} but the model's parameters are on {dev}: move one of them"
            )
        moved[name] = modules.in_dtype(part, dtype)
    return dataclasses.replace(inputs, parts=moved)


def of_tuples(model: Model, inputs: Inputs) -> Model:
    """The model as a function of one thing, a tuple of its inputs."""
    # What the user passed takes several inputs; names that are no text are its own error.
    predict: Callable[..., Array] = model.predict
    names: tuple[str, ...] = tuple(inputs.parts)  # type: ignore[arg-type]

    def of_parts(parts: tuple[Array, ...]) -> Array:
        return predict(**dict(zip(names, parts, strict=True))) if inputs.named else predict(*parts)

    of_parts.__qualname__ = calling.name_of(model.source)
    # Another source: what a library knows of its own model is not true of a tuple of inputs.
    return Model(of_parts, of_parts, model.classes, model.block_rows, model.session, parts=model.parts)
