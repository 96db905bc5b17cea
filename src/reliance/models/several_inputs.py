"""Models of several inputs, which the engine calls with the numbers of the rows that pieces are taken from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from reliance._core.arrays import device, from_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.several_inputs import Inputs
from reliance.models import calling, modules
from reliance.models.calling import Model

# Bytes of inputs that are put together for one call on a CPU.
_CALL_BYTES = 2**25


def at_home(inputs: Inputs, model: object) -> Inputs:
    """Inputs of NumPy go to the device of a torch module, floating ones in its dtype; others stay."""
    if not modules.is_torch_module(model):
        return inputs
    import array_api_compat.torch as xp

    home = modules.home(model)
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


def of_row_numbers(model: Model, inputs: Inputs) -> Model:
    """The model as a function of row numbers."""
    # What the user passed takes several inputs; names that are no text are its own error.
    predict: Callable[..., Array] = model.predict
    put_together = inputs.assembler()

    def of_rows(block: Array) -> Array:
        parts: dict[str, Array] = put_together(block)  # type: ignore[assignment]
        return predict(**parts) if inputs.named else predict(*parts.values())

    of_rows.__qualname__ = calling.name_of(model.source)
    rows = max(1, min(model.block_rows or 2048, _CALL_BYTES // max(inputs.row_bytes, 1)))
    # Another source: what a library knows of its own model is not true of row numbers.
    return Model(of_rows, of_rows, model.classes, rows, model.session, parts=model.parts)
