"""Inside a model: the activations of a layer in the place of its inputs, and the rest of the model behind them.

The activations are the answers of a model, "the first part", on the rows as they are: a base pass. From then on the
engine sees rows of activations, and another model. If that needs more of a row than its activations, the number of the
row is a second input, which nobody exchanges.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance._core.run import Run, resolved
from reliance.data import rows as data
from reliance.data.checked_arrays import as_array
from reliance.data.features import column_names, resolve_features
from reliance.data.passed import FeaturesLike
from reliance.data.rows import Rows
from reliance.engine.evaluation import evaluating
from reliance.engine.problems import Problem, assembled
from reliance.models import adapting, layers
from reliance.models.calling import Model
from reliance.models.networks import Network, Split, module_of

# Rows on which the rest of a network is tried, spread over all.
_TRIED = 64
_HIDDEN, _ROW = "hidden", "row"


class _Behind(NamedTuple):
    """Activations ``(n, ...)``, and the model behind them: of them, or of them and the numbers of rows."""

    hidden: Array
    model: Model
    reads_rows: bool
    name: str


def is_inside(model: object) -> bool:
    """Whether features are inside the model, not its inputs."""
    return isinstance(model, Split) or (isinstance(model, Network) and model.layer is not None)


def opened(
    model: object,
    X: object,
    y: object,
    features: FeaturesLike,
    weights: object,
    clusters: object,
    names: Sequence[str] | None,
    run: Run | None,
) -> tuple[Model, Rows]:
    """The model behind a layer, and the rows as it takes them."""
    if resolved(run).device is not None:
        raise ValueError("run has device=, but what is inside of a model is held for all rows: leave device out")
    given = data.read(X, y, weights=weights, clusters=clusters)
    found = _of_split(model, given, run) if isinstance(model, Split) else _of_layer(model, given, run)
    directions = getattr(model, "directions", None)
    if directions is not None:
        found = _along(found, directions)
        names = [f"direction {k}" for k in range(found.hidden.shape[1])] if names is None else names
    hidden = found.hidden
    shape = tuple(int(size) for size in hidden.shape[1:])
    if hidden.ndim < 2:
        raise ValueError(
            f"model {found.name:.60}: its first part returned shape {tuple(hidden.shape)}: return (rows, units)"
        )
    labels = None if given.y is None else arrays.beside(given.y, hidden)
    xp, dev = arrays.namespace(hidden), arrays.device(hidden)
    weighing = None if given.weights is None else arrays.from_host(given.weights, xp, dev)
    units = tuple(f"h{name[1:]}" for name in column_names(None, shape)) if names is None else names
    if not found.reads_rows:
        rows = data.read(hidden, labels, features=features, weights=weighing, names=units)
        return found.model, dataclasses.replace(rows, clusters=given.clusters)
    row = arrays.from_host(np.arange(given.n), xp, dev, arrays.index_dtype(xp))
    chosen = {one.name: (_HIDDEN, _mask(one.columns, shape)) for one in resolve_features(features, units, shape)}
    rows = data.read({_HIDDEN: hidden, _ROW: row}, labels, features=chosen, weights=weighing)
    return found.model, dataclasses.replace(rows, clusters=given.clusters)


def _mask(columns: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask.reshape(-1)[list(columns)] = True
    return mask


def _answers(problem: Problem) -> Array:
    """What a model answers for all rows, as they are."""
    with evaluating(problem, probed=False) as evaluation:
        answers: Array = evaluation.base.predictions
    return answers


def _of_split(model: Split, rows: Rows, run: Run | None) -> _Behind:
    memory = resolved(run).bytes
    hidden = _answers(assembled(model.first, rows, (), key=0, memory=memory))
    return _Behind(hidden, adapting.adapt(model.rest, ()), False, type(model).__name__)


# ---------------------------------------------------------------------------------------------------------------------
# A layer of a torch module


def _of_layer(model: object, rows: Rows, run: Run | None) -> _Behind:
    assert isinstance(model, Network)
    root = module_of(model)
    if root is None:
        raise TypeError("layer= is for modules of torch: for JAX and others pass rl.models.split(first, rest)")
    if resolved(run).devices is not None:
        raise ValueError("run has devices=, but a layer is measured where its module is: leave devices out")
    memory = resolved(run).bytes
    layer = layers.find(dataclasses.replace(model, layer=None, directions=None), root, model.layer)
    # Where the module takes them; what is asked of it there is another function of the same inputs.
    home = assembled(layer.network, dataclasses.replace(rows, weights=None), (), key=0, memory=memory)
    inputs: dict[str | int, Array] = _inputs(home.rows)
    some = np.unique(np.linspace(0, rows.n - 1, min(rows.n, _TRIED)).astype(np.int64))
    index = arrays.from_host(some, home.xp, home.device, arrays.index_dtype(home.xp))
    tried = {key: home.xp.take(one, index, axis=0) for key, one in inputs.items()}
    with layer.session(), arrays.inference_only(home.xp):
        rest = layers.cut(layer, tried)
    found = _captured(rest, home, inputs)
    if found is None:  # rows that were not tried showed that the rest reads its inputs after all
        with layer.session(), arrays.inference_only(home.xp):
            rest = layers.cut(layer, tried, alone=False)
        found = _captured(rest, home, inputs)
        assert found is not None
    return found


def _inputs(rows: Rows) -> dict[str | int, Array]:
    if rows.inputs is None:
        return {0: rows.X}
    return {name if isinstance(name, str) else int(str(name)): part for name, part in rows.inputs.parts.items()}


def _captured(rest: layers.Rest, home: Problem, inputs: dict[str | int, Array]) -> _Behind | None:
    """The activations of all rows; None if the rest does not predict from them what the network predicts."""
    layer, first = rest.layer, layers.First.of(rest)
    captured = _answers(
        assembled(Model(first, layer.network, session=layer.session), home.rows, (), key=0, memory=home.memory)
    )
    hidden, kept, predictions = first.parts(captured)
    rest = dataclasses.replace(rest, kept=kept, inputs=inputs if rest.reads_rows else rest.inputs)
    model = Model(rest, layer.network, session=layer.session)
    if not rest.reads_rows:
        rows = data.read(hidden)
        again = _answers(assembled(model, rows, (), key=0, memory=home.memory))
        if not layers.agree(home.xp.reshape(again, predictions.shape), predictions):
            return None
    return _Behind(hidden, model, rest.reads_rows, type(layer.root).__name__)


# ---------------------------------------------------------------------------------------------------------------------
# Directions


def _along(found: _Behind, directions: object) -> _Behind:
    """The activations along directions in the place of single ones: the rest is the row's own, found by its number."""
    hidden = found.hidden
    xp, dev = arrays.namespace(hidden), arrays.device(hidden)
    given = np.asarray(arrays.to_host(as_array(directions, "directions")), dtype=np.float64)
    if given.ndim != hidden.ndim or given.shape[1:] != tuple(hidden.shape[1:]):
        raise ValueError(
            f"directions has shape {given.shape}, but a row of the layer has shape {tuple(hidden.shape[1:])}: pass "
            f"(k, {', '.join(map(str, hidden.shape[1:]))})"
        )
    flat = given.reshape(len(given), -1)
    norms = np.sum(flat**2, axis=1, keepdims=True)
    if not np.isfinite(flat).all() or not norms.all():
        raise ValueError("directions holds a direction of length 0, or values that are not finite: drop it")
    weight = arrays.from_host(flat, xp, dev, hidden.dtype)
    scores = xp.reshape(hidden, (hidden.shape[0], -1)) @ arrays.from_host((flat / norms).T, xp, dev, hidden.dtype)
    rest: Callable[..., Array] = found.model.predict

    def moved(hidden_scores: Array, row: Array) -> Array:
        own = xp.take(hidden, row, axis=0)
        change = (hidden_scores - xp.take(scores, row, axis=0)) @ weight
        changed = own + xp.reshape(change, own.shape)
        return rest(changed, row) if found.reads_rows else rest(changed)

    model = dataclasses.replace(found.model, predict=lambda **parts: moved(parts[_HIDDEN], parts[_ROW]))
    return _Behind(scores, model, True, found.name)
