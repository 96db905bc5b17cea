"""Networks of torch, JAX, Flax and Keras, with what a bare module does not say: which output, which parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.models import adapters
from reliance.models.chosen_output import OutputLike, check_output, choose
from reliance.models.libraries import TorchModule
from reliance.models.modules import is_nnx_module, is_torch_module


@dataclass(frozen=True, eq=False)
class Network:
    """A network, and which of its outputs are the predictions: see `reliance.models.torch` and `reliance.models.jax`.

    Attributes
    ----------
    call : callable
        ``(*inputs) -> answer``, of which the predictions are a part.
    module : object
        What the user passed.
    output : str, int, callable or None
    layer : object
        A part of the module whose activations are measured instead of its inputs; None: the inputs.
    directions : array (k, ...) or None
        Directions in the space of these activations, measured instead of single ones.
    """

    call: Callable[..., object]
    module: object
    output: OutputLike = None
    layer: object = None
    directions: object = None

    def __post_init__(self) -> None:
        check_output(self.output)
        name = getattr(self.module, "__qualname__", None) or type(self.module).__name__
        object.__setattr__(self, "__qualname__", name)  # what messages call it

    def __call__(self, *inputs: Array, **named: Array) -> Array:
        return choose(self.call(*inputs, **named), self.output, getattr(self, "__qualname__", ""))


@dataclass(frozen=True, eq=False)
class Applied:
    """``apply`` with its parameters, which stay a value of their own: other values share what was compiled."""

    apply: Callable[..., object]
    params: object

    def __call__(self, *inputs: Array, **named: Array) -> object:
        return self.apply(self.params, *inputs, **named)


def module_of(model: object) -> TorchModule | None:
    """The torch module that is called, itself or with a chosen output."""
    found = model.module if isinstance(model, Network) else model
    return found if is_torch_module(found) else None


def with_output(model: object, output: OutputLike) -> Network | None:
    """The same network with another output; None if a model cannot answer with several."""
    module = model.module if isinstance(model, Network) else model
    if adapters.is_keras(module) and not is_torch_module(module):
        return keras(module, output=output)
    if isinstance(model, Network):
        return dataclasses.replace(model, output=output)
    return Network(model, model, output) if _is_network(model) else None


def _is_network(model: object) -> TypeGuard[Callable[..., object]]:
    return callable(model) and not hasattr(model, "predict_proba")


def torch(net: object, *, output: OutputLike = None, layer: object = None, directions: object = None) -> Network:
    """A module of torch, which of its outputs are the predictions, and whether a layer is measured, not the inputs.

    The module stays a module: it runs in evaluation mode without gradients, rows go to its device and dtype, and it is
    given back as it was. A module needs no `torch` if it returns a tensor, an object with ``logits``, or a tuple or
    dict of one tensor.

    Parameters
    ----------
    net : torch.nn.Module
    output : str, int or callable, optional
        Which part of what it returns: a name such as ``"logits"`` (an attribute or a key), a place in a tuple, or a
        function of the whole answer.
    layer : torch.nn.Module or str, optional
        A part of ``net`` (``net.blocks[3]``, or its name ``"blocks.3"``) that is called once in a pass. Features are
        then its activations: they are computed once, exchanged between rows, and only what comes behind them runs
        again. ``features`` groups them into channels, heads or positions.
    directions : array (k, ...), optional
        Directions of the shape of a row of that layer, one below the other: features are the activations along each.
        A row takes a donor's component along the direction, a + (<b - a, v> / <v, v>) v, and keeps the rest.

    Returns
    -------
    callable
        What is passed as ``model``.

    Examples
    --------
    >>> import torch, reliance as rl
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         return {"price": x[:, 0], "sold": x[:, 1:]}
    >>> X = torch.arange(12.0).reshape(4, 3)
    >>> result = rl.permutation_importance(rl.models.torch(Net(), output="price"), X, X[:, 0], rng=0)
    >>> (result.values > 0).tolist()
    [True, False, False]

    Inside the network:

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> rl.permutation_importance(rl.models.torch(net, layer=net[1]), X, X[:, 0], draws=3, rng=0).names
    ('h0', 'h1', 'h2', 'h3')
    """
    if not is_torch_module(net):
        raise TypeError(f"net={shown(net)} is no torch.nn.Module: pass the module itself, not a function of it")
    if directions is not None and layer is None:
        raise ValueError("directions= are those of a layer: pass layer=, too")
    return Network(net, net, output, layer, directions)


@dataclass(frozen=True, eq=False)
class Split:
    """A model in two: see `reliance.models.split`."""

    first: Callable[..., object]
    rest: Callable[..., object]
    directions: object = None

    def __call__(self, *inputs: Array, **named: Array) -> object:
        return self.rest(self.first(*inputs, **named))


def split(first: Callable[..., object], rest: Callable[..., object], *, directions: object = None) -> Split:
    """A model in two, ``rest(first(X))``, whose features are what ``first`` returns: hidden units, channels, codes.

    ``first`` is called once on all rows; its answers are exchanged between rows, and only ``rest`` runs again. For
    modules of torch, ``rl.models.torch(net, layer=...)`` does this without taking the module apart.

    Parameters
    ----------
    first : callable
        ``(*inputs) -> array (m, ...)``.
    rest : callable
        ``array (m, ...) -> predictions``.
    directions : array (k, ...), optional
        Directions of the shape of a row of that array, one below the other: features are the activations along each.
        A row takes a donor's component along the direction, a + (<b - a, v> / <v, v>) v, and keeps the rest.

    Returns
    -------
    callable
        What is passed as ``model``.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = rl.models.split(lambda X: np.tanh(X[:, :2]), lambda H: H[:, 0])
    >>> result = rl.permutation_importance(model, X, np.tanh(X[:, 0]), rng=0)
    >>> result.names, (result.values > 0).tolist()
    (('h0', 'h1'), [True, False])
    """
    for name, part in (("first", first), ("rest", rest)):
        if not callable(part):
            raise TypeError(f"{name}={shown(part)} cannot be called: pass a function or a module")
    return Split(first, rest, directions)


def jax(apply: Callable[..., object], params: object = None, *, output: OutputLike = None) -> Network:
    """A function of JAX with its parameters, and which of its outputs are the predictions.

    The parameters are an operand of what is compiled, so that checkpoints of one network share one compilation.

    Parameters
    ----------
    apply : callable
        ``(params, *inputs) -> answer``, or ``(*inputs) -> answer`` without ``params``.
    params : pytree, optional
        The parameters. For Equinox: ``params, static = eqx.partition(net, eqx.is_array)`` and
        ``apply = lambda params, x: jax.vmap(eqx.combine(params, static))(x)``.
    output : str, int or callable, optional
        Which part of what it returns: a name (an attribute or a key), a place in a tuple, or a function of the whole
        answer.

    Returns
    -------
    callable
        What is passed as ``model``.

    Examples
    --------
    >>> import jax.numpy as jnp, reliance as rl
    >>> def apply(params, x):
    ...     return x @ params["w"], None
    >>> model = rl.models.jax(apply, {"w": jnp.asarray([1.0, 0.0])}, output=0)
    >>> X = jnp.asarray([[0.0, 1.0], [1.0, 5.0], [3.0, 2.0]])
    >>> rl.model_reliance(model, X, X[:, 0], compare="difference").values.tolist()[1]
    0.0
    """
    if not callable(apply):
        raise TypeError(f"apply={shown(apply)} cannot be called: pass a function (params, *inputs) -> predictions")
    return Network(apply if params is None else Applied(apply, params), apply, output)


def flax(module: object, variables: object = None, *, output: OutputLike = None) -> Network:
    """A module of Flax, and which of its outputs are the predictions.

    Parameters
    ----------
    module : flax.nnx.Module or flax.linen.Module
        One of nnx runs in evaluation mode, on a copy of its values: it is left as it is. One of linen runs as
        ``module.apply(variables, *inputs)``, and says itself what that does.
    variables : mapping, optional
        Of a linen module, as ``module.init`` returns them.
    output : str, int or callable, optional
        Which part of what it returns: a name (an attribute or a key), a place in a tuple, or a function of the whole
        answer.

    Returns
    -------
    callable
        What is passed as ``model``.

    Examples
    --------
    >>> from flax import nnx
    >>> import jax.numpy as jnp, reliance as rl
    >>> class Net(nnx.Module):
    ...     def __init__(self, rngs):
    ...         self.linear = nnx.Linear(2, 1, rngs=rngs)
    ...         self.dropout = nnx.Dropout(0.5, rngs=rngs)
    ...     def __call__(self, x):
    ...         return {"mean": self.dropout(self.linear(x)), "scale": x[:, 0]}
    >>> X = jnp.asarray([[0.0, 1.0], [1.0, 5.0], [3.0, 2.0]])
    >>> model = rl.models.flax(Net(nnx.Rngs(0)), output="mean")
    >>> rl.model_reliance(model, X, X[:, 0]).names
    ('x0', 'x1')
    """
    if is_nnx_module(module):
        if variables is not None:
            raise TypeError("variables= is for modules of linen: those of nnx hold their own values, so leave it out")
        return Network(_evaluated(module), module, output)
    apply = getattr(module, "apply", None)
    if apply is None or variables is None:
        raise TypeError(
            f"module={shown(module)}: pass a module of nnx, or one of linen with its variables, "
            "rl.models.flax(module, variables)"
        )
    return Network(Applied(apply, variables), module, output)


def _evaluated(module: object) -> Applied:
    """A module of nnx in evaluation mode, as a function of its values: a copy, so that nothing of it is changed."""
    from flax import nnx

    graph, state = nnx.split(module)

    def apply(values: object, *inputs: Array, **named: Array) -> object:
        copy = nnx.merge(graph, values)
        copy.eval()
        return copy(*inputs, **named)

    return Applied(apply, state)


def keras(model: object, *, output: OutputLike = None) -> Network:
    """A model of Keras, and which of its outputs are the predictions.

    Parameters
    ----------
    model : keras.Model
        It runs with ``training=False``.
    output : str, int or callable, optional
        Which part of what it returns: a name, a place in a list, or a function of the whole answer.

    Returns
    -------
    callable
        What is passed as ``model``.

    Examples
    --------
    >>> rl.permutation_importance(rl.models.keras(model, output="price"), X, y)  # doctest: +SKIP
    """
    if not adapters.is_keras(model):
        raise TypeError(f"model={shown(model)} is no keras.Model: pass the model itself, not a function of it")
    if is_torch_module(model):
        return Network(model, model, output)
    check_output(output)
    name = type(model).__name__
    # Chosen before anything is moved to the host.
    return Network(adapters.keras_predict(model, lambda answer: choose(answer, output, name)), model, _as_it_is)


def _as_it_is(answer: object) -> object:
    return answer


__all__ = ["Network", "Split", "flax", "jax", "keras", "split", "torch"]
