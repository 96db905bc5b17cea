"""A layer inside of a torch module: its activations, and the rest of the module as a function of them.

What runs before the layer is found by watching the module once. Parts of it whose answers the rest does not need are
left out; parts that it does need, beside the layer (the other way round a residual block, say), are remembered for
every row. Which are needed is tried on rows whose activations were exchanged: a part that is left out answers with
NaN, which must not reach the predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from reliance._core.arrays import is_floating, is_torch_array, itemsize, namespace, to_host
from reliance._core.kinds import Array, DType, TorchArray
from reliance._core.words import listed, shown
from reliance.losses.places import Place
from reliance.models import interception
from reliance.models.interception import Forward, Instead
from reliance.models.libraries import TorchModule
from reliance.models.modules import evaluation_mode
from reliance.models.networks import Network
from reliance.models.probes import same
from reliance.models.several_outputs import beside_each_other

# Relative to the largest prediction, in units in the last place: two ways to compute the same.
_PRECISION = {8: 2.0**-52, 4: 2.0**-23}
_COARSE = 2.0**-8


@dataclass(frozen=True, eq=False)
class Layer:
    """A network and one of its parts.

    Attributes
    ----------
    network : Network
        With the output that is measured.
    root : torch.nn.Module
    part : torch.nn.Module
    name : str
        Of the part, as ``named_modules`` has it.
    """

    network: Network
    root: TorchModule
    part: TorchModule
    name: str

    def run(self, inputs: Mapping[str | int, Array], instead: Mapping[int, Instead]) -> Array:
        """The predictions for these inputs, with other forward passes of some parts."""
        with interception.replacing(instead):
            named = {key: value for key, value in inputs.items() if isinstance(key, str)}
            return self.network(*(value for key, value in inputs.items() if not isinstance(key, str)), **named)

    @contextmanager
    def session(self) -> Iterator[None]:
        parts = [self.part, *(part for part in self.root.modules() if part is not self.part)]
        with evaluation_mode(self.root), interception.open_to(parts):
            yield


def find(network: Network, root: TorchModule, layer: object) -> Layer:
    """The layer of a module, given as itself or by its name."""
    import torch

    root = getattr(root, "_orig_mod", root)  # of torch.compile: its parts run one by one here
    parts = dict(root.named_modules(remove_duplicate=True))
    if isinstance(layer, str):
        if layer not in parts or not layer:
            raise ValueError(
                f"layer={shown(layer)} is not a part of {type(root).__name__:.60}: it has {listed(list(parts)[1:])}"
            )
        found, name = parts[layer], layer
    else:
        names = [name for name, part in parts.items() if part is layer]
        if not names or layer is root:
            raise ValueError(
                f"layer={type(layer).__name__:.60} is not a part of {type(root).__name__:.60}: pass one of its "
                "modules, as in net.blocks[3], or its name, as in 'blocks.3'"
            )
        (name,) = names
        found = parts[name]
    if any(isinstance(part, torch.jit.ScriptModule) for part in (root, found)):
        raise TypeError(f"layer={shown(name)}: parts of a scripted module cannot be reached; pass the module itself")
    call = root if network.call is network.module else network.call
    return Layer(Network(call, root, network.output), root, found, name)


# ---------------------------------------------------------------------------------------------------------------------
# What runs before the layer


@dataclass(eq=False)
class _Watch:
    """What was seen of one pass: the answers of parts that ended before the layer began, and how often each ran."""

    part: int
    began: bool = False
    hidden: object = None
    inside: list[int] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    before: dict[int, tuple[object, tuple[int, ...]]] = field(default_factory=dict)

    def instead(self, module: int, forward: Forward, given: tuple[object, ...], named: dict[str, object]) -> object:
        self.counts[module] = self.counts.get(module, 0) + 1
        self.began = self.began or module == self.part
        self.inside.append(module)
        answer = forward(*given, **named)
        self.inside.pop()
        if module == self.part:
            self.hidden = _copied(answer)
        elif not self.began:
            self.before[module] = (_copied(answer), tuple(self.inside))
        return answer


def _copied(answer: object) -> object:
    """What comes behind may write into it."""
    if isinstance(answer, tuple):
        return tuple(map(_copied, answer))
    return answer.clone() if is_torch_array(answer) else answer


class _Seen(NamedTuple):
    """The activations of some rows, how a layer's answer continues, and the answers of what comes before."""

    hidden: TorchArray
    tail: tuple[None, ...] | None
    before: dict[int, TorchArray]


def _watched(layer: Layer, inputs: Mapping[str | int, Array], rows: int) -> _Seen:
    """What one pass shows; of what comes before the layer, the outermost parts that ran once."""
    watch = _Watch(id(layer.part))
    layer.run(inputs, {id(part): partial(watch.instead, id(part)) for part in layer.root.modules()})
    times = watch.counts.get(id(layer.part), 0)
    if times != 1:
        words = "is never called" if not times else f"is called {times} times in a pass, so its activations are several"
        raise ValueError(
            f"layer={shown(layer.name)} {words}: choose a part of {type(layer.root).__name__:.60} that is called once "
            "for each row"
        )
    hidden = _tensor(watch.hidden, layer, rows)
    usable = {
        module: (answer, outer)
        for module, (answer, outer) in watch.before.items()
        if watch.counts[module] == 1
        and is_torch_array(answer)
        and answer.is_floating_point()
        and tuple(answer.shape[:1]) == (rows,)
    }
    outermost = {m: answer for m, (answer, outer) in usable.items() if not usable.keys() & set(outer)}
    tail = (None,) * (len(watch.hidden) - 1) if isinstance(watch.hidden, tuple) else None
    return _Seen(hidden, tail, outermost)


def _tensor(answer: object, layer: Layer, rows: int) -> TorchArray:
    """What is exchanged of a layer's answer: a tensor, also as the only one of a tuple."""
    found = answer
    if isinstance(answer, tuple) and answer and all(one is None for one in answer[1:]):
        found = answer[0]
    if not is_torch_array(found) or not found.is_floating_point():
        what = f"a {found.dtype} tensor" if is_torch_array(found) else f"a {type(answer).__name__:.40}"
        raise TypeError(
            f"layer={shown(layer.name)} returns {what}: choose a part that returns one tensor of floating numbers"
        )
    if found.ndim < 2 or found.shape[0] != rows:
        raise ValueError(
            f"layer={shown(layer.name)} returned shape {tuple(found.shape)} for {rows} rows: choose a part whose first "
            "axis are the rows, and that has further ones"
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The rest


@dataclass(frozen=True, eq=False)
class Rest:
    """The network behind a layer: ``(hidden) -> predictions``, or ``(hidden, row)`` if it needs more of a row.

    Attributes
    ----------
    layer : Layer
    inputs : mapping
        Of all rows, or of one if the rest does not read them.
    left_out : dict
        Parts before the layer that do not run, and the shape of a row of their answers.
    kept : dict
        Parts before the layer whose answers are known, for all rows.
    reads_rows : bool
    copies : bool
        Whether the rest writes into its input.
    tail : tuple of None, or None
        How the layer's answer continues if it is a tuple.
    """

    layer: Layer
    inputs: Mapping[str | int, Array]
    left_out: Mapping[int, tuple[int, ...]]
    kept: Mapping[int, Array]
    reads_rows: bool
    copies: bool
    tail: tuple[None, ...] | None

    def __call__(self, hidden: TorchArray, row: Array | None = None) -> Array:
        import torch

        m = int(hidden.shape[0])
        if row is None:
            inputs = {key: torch.broadcast_to(one[:1, ...], (m, *one.shape[1:])) for key, one in self.inputs.items()}
        else:
            inputs = {key: one[row] for key, one in self.inputs.items()}
        answer = hidden.clone() if self.copies else hidden
        instead = {id(self.layer.part): _answering(answer if self.tail is None else (answer, *self.tail))}
        for module, shape in self.left_out.items():
            nothing = torch.full((m, *shape), float("nan"), dtype=hidden.dtype, device=hidden.device)
            instead[module] = _answering(nothing)
        for module, values in self.kept.items():
            instead[module] = _answering(values if row is None else values[row])
        return self.layer.run(inputs, instead)


def _answering(value: object) -> Instead:
    def instead(forward: Forward, given: tuple[object, ...], named: dict[str, object]) -> object:
        return value

    return instead


def agree(one: Array | None, other: Array) -> bool:
    """Whether two ways to compute predictions do it up to rounding; what failed is None."""
    if one is None or tuple(one.shape) != tuple(other.shape):
        return False
    first, second = (to_host(a).astype(np.float64) for a in (one, other))
    floating = is_floating(namespace(other), other.dtype)
    precision = _PRECISION.get(itemsize(other), _COARSE) if floating else 0.0
    return bool(np.isfinite(first).all()) and same(first, second, float(np.max(np.abs(second))) or 1.0, precision)


def cut(layer: Layer, inputs: Mapping[str | int, Array], alone: bool = True) -> Rest:
    """What the rest needs, found on some rows whose activations are exchanged; ``alone``: perhaps nothing of a row.

    What it keeps of rows is that of the given ones: see `First` for all of them.
    """
    rows = int(next(iter(inputs.values())).shape[0])
    seen = _watched(layer, inputs, rows)
    other, written = seen.hidden.roll(1, 0), seen.hidden.roll(1, 0)
    whole = Rest(layer, inputs, {}, {}, True, False, seen.tail)
    row = _numbers(other)
    truth = whole(written, row)
    whole = replace(whole, copies=not np.array_equal(to_host(written), to_host(other)))
    shapes = {module: tuple(answer.shape[1:]) for module, answer in seen.before.items()}
    first = {key: one[:1] for key, one in inputs.items()}
    behind = replace(whole, inputs=first, left_out=shapes, reads_rows=False)
    if alone and agree(_tried(partial(behind, other)), truth):
        return behind
    return _needing(replace(whole, kept=seen.before), shapes, other, truth)


def _numbers(rows: TorchArray) -> Array:
    import torch

    numbers: Array = torch.arange(rows.shape[0], device=rows.device)
    return numbers


def _needing(rest: Rest, shapes: Mapping[int, tuple[int, ...]], other: TorchArray, truth: Array) -> Rest:
    """As few parts before the layer as the rest needs to know: each is left out if that changes nothing."""
    row, whole = _numbers(other), rest
    for module, shape in shapes.items():
        kept = {key: value for key, value in rest.kept.items() if key != module}
        without = replace(rest, left_out={**rest.left_out, module: shape}, kept=kept)
        if agree(_tried(partial(without, other, row)), truth):
            rest = without
    if agree(_tried(partial(rest, other, row)), truth):
        return rest
    return replace(whole, kept={})  # a pass that does more than to call its parts: run all of it


def _tried(run: Callable[[], Array]) -> Array | None:
    try:
        return run()
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):  # the network looks at what it is given
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Activations


@dataclass(frozen=True, eq=False)
class First:
    """The network, asked for more: ``(*inputs) -> (m, W)``, a layer's activations, what the rest keeps, predictions."""

    layer: Layer
    kept: Sequence[int]
    places: Sequence[Place]
    dtypes: list[DType] = field(default_factory=list)

    @classmethod
    def of(cls, rest: Rest) -> First:
        return cls(rest.layer, tuple(rest.kept), [Place() for _ in range(len(rest.kept) + 2)])

    def __call__(self, *given: Array, **named: Array) -> Array:
        seen: dict[int, Array] = {}
        inputs: dict[str | int, Array] = dict(enumerate(given))
        inputs.update(named)
        rows = int(next(iter(inputs.values())).shape[0])

        def keep(module: int, forward: Forward, given: tuple[object, ...], named: dict[str, object]) -> object:
            answer = forward(*given, **named)
            own = module == id(self.layer.part)
            # Copies: what comes behind may write into them.
            seen[module] = (_tensor(answer, self.layer, rows) if own else _checked(answer)).clone()
            return answer

        chosen = [id(self.layer.part), *self.kept]
        predictions = self.layer.run(inputs, {module: partial(keep, module) for module in chosen})
        return beside_each_other(
            list(zip([*(seen[module] for module in chosen), predictions], self.places, strict=True))
        )

    def parts(self, captured: Array) -> tuple[Array, Mapping[int, Array], Array]:
        """Activations, what is kept, predictions: of all rows, from the answers."""
        hidden, *kept, predictions = (place.of(captured) for place in self.places)
        return hidden, dict(zip(self.kept, kept, strict=True)), predictions


def _checked(answer: object) -> TorchArray:
    assert is_torch_array(answer)  # it was one when the module was watched
    return answer
