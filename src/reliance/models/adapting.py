"""The list of adapters: what a user passes, as a model of the engine. One adapter for each kind of model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.losses.functions import Loss, Metric
from reliance.models import adapters, responses
from reliance.models.calling import Linear, Model, name_of
from reliance.models.chosen_output import choose
from reliance.models.modules import evaluation_mode, is_torch_module, watched
from reliance.models.networks import Network, module_of

Functions: TypeAlias = Sequence[Loss | Metric]
# The model behind what the user passed, predicting what the losses need; None if it is of another kind.
Adapter: TypeAlias = Callable[[object, Functions], Model | None]

# Libraries that check their input and schedule threads at each call want fewer, larger calls than an array function.
_ESTIMATOR_BLOCK_ROWS = 16384


def _adapted(model: object, functions: Functions) -> Model | None:
    # A copy: what it knows of its source holds for one call.
    return dataclasses.replace(model) if isinstance(model, Model) else None


def _keras(model: object, functions: Functions) -> Model | None:
    if is_torch_module(model) or not adapters.is_keras(model):  # on its torch backend it is a torch module
        return None
    return Model(adapters.keras_predict(model, partial(choose, output=None, name=name_of(model))), model)


def _network(model: object, functions: Functions) -> Model | None:
    if not isinstance(model, Network):
        return None
    module = module_of(model)
    session = partial(watched, model.call, name_of(model)) if module is None else partial(evaluation_mode, module)
    return Model(model, model, session=session)


def _torch_module(model: object, functions: Functions) -> Model | None:
    return Model(_single(model), model, session=partial(evaluation_mode, model)) if is_torch_module(model) else None


def _booster(model: object, functions: Functions) -> Model | None:
    """A raw booster of XGBoost: its predict takes another kind of matrix."""
    if type(model).__module__.partition(".")[0] != "xgboost" or not hasattr(model, "inplace_predict"):
        return None
    return Model(model.inplace_predict, model, None, _ESTIMATOR_BLOCK_ROWS, method="predict")


def _estimator(model: object, functions: Functions) -> Model | None:
    if not hasattr(model, "predict") or callable(model):
        return None
    found = responses.respond(model, functions, name_of(model))
    return Model(found.predict, model, found.classes, _ESTIMATOR_BLOCK_ROWS, method=found.method, parts=found.parts)


def _linear(model: object, functions: Functions) -> Model | None:
    """One product: nothing that would have to stay in the cache."""
    return Model(model, model, block_rows=_ESTIMATOR_BLOCK_ROWS) if type(model) is Linear else None


def _function(model: object, functions: Functions) -> Model | None:
    return Model(_single(model), model, session=lambda: watched(model, name_of(model))) if callable(model) else None


def _single(model: Callable[..., object]) -> Callable[..., Array]:
    """A function whose answer may hold its predictions as the only array, or as its logits."""
    name = name_of(model)

    def predict(*inputs: Array, **named: Array) -> Array:
        return choose(model(*inputs, **named), None, name)

    return predict


# In the order in which they are asked: the first that takes a model adapts it.
ADAPTERS: list[Adapter] = [_adapted, _network, _keras, _torch_module, _booster, _estimator, _linear, _function]


def adapt(model: object, functions: Functions) -> Model:
    """The model behind what the user passed, predicting what the losses need."""
    if isinstance(model, type):
        raise TypeError(f"model={name_of(model)} is a class: pass a fitted instance of it")
    for adapter in ADAPTERS:
        found = adapter(model, functions)
        if found is not None:
            return found
    raise TypeError(
        f"model={shown(model)} cannot be called: pass a function batch -> predictions, a fitted scikit-learn estimator "
        "or a torch.nn.Module"
    )
