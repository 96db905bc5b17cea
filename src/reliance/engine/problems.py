"""What a call measures: rows, the model that is asked about them, and the losses it is judged by, all checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.kinds import Array, Device, Namespace
from reliance._core.run import Block, Run, resolved
from reliance._core.streams import Indices, RandomState, resolve_key
from reliance._core.words import listed, shown
from reliance.data import rows as data
from reliance.data.features import Feature
from reliance.data.passed import FeaturesLike
from reliance.data.rows import Rows
from reliance.engine.input_stores import store_of
from reliance.engine.stores import Store
from reliance.losses import tasks
from reliance.losses.checks import check_takes_weights
from reliance.losses.functions import Loss, LossesLike, LossLike, Metric, compares_labels, resolve_all
from reliance.losses.tasks import Task
from reliance.models import adapting, calling, several_inputs, several_outputs
from reliance.models.calling import Model
from reliance.models.default_losses import default_loss
from reliance.models.responses import assigned, label_positions

CURVES = ("curves", "ice")
NEED_PAIRS = "curves come from all pairs of rows: pass them to model_reliance(pairs='all')"


@dataclass(frozen=True)
class Problem:
    """Rows, a model and losses.

    Attributes
    ----------
    rows : Rows
        Where the model takes them.
    model : Model
    losses : tuple of Loss or Metric
    targets : tuple
        For each loss what predictions are compared with, ``(n, ...)``; None for the model's own predictions.
    store : Store
        How features of the rows are replaced.
    weights : array (n,) or None
        Those of the rows, beside them.
    several : bool
        Whether the user asks for a mapping of losses to results.
    key : int
        Of the random numbers.
    memory : int
        Bytes that the engine may allocate.
    block : int, (rows, draws), "tune" or None
    keep : set of str
        What the result shall hold besides the usual.
    run : Run
        Who does the work.
    """

    rows: Rows
    model: Model
    losses: tuple[Loss | Metric, ...]
    targets: tuple[Array | None, ...]
    store: Store
    weights: Array | None
    several: bool
    key: int
    memory: int
    block: Block
    keep: frozenset[str]
    run: Run = field(default_factory=Run)

    @property
    def n(self) -> int:
        return self.store.n

    @property
    def flat(self) -> Array:
        """``(n, P)``: the rows as they were given."""
        rows: Array = self.store.flat
        return rows

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.rows.features

    @property
    def host_weights(self) -> NDArray[np.float64] | None:
        return self.rows.weights

    @property
    def xp(self) -> Namespace:
        return self.store.xp

    @property
    def device(self) -> Device:
        return self.store.device

    def of_features(self, features: tuple[Feature, ...]) -> Problem:
        """The same about other features."""
        return dataclasses.replace(self, rows=dataclasses.replace(self.rows, features=features))

    def weighing(self, weights: NDArray[np.float64]) -> Problem:
        """The same with other weights of the rows."""
        rows = dataclasses.replace(self.rows, weights=weights)
        return dataclasses.replace(self, rows=rows, weights=_beside(weights, self.flat))

    def head(self, n: int) -> Problem:
        """The same on the first n rows."""
        return dataclasses.replace(
            self,
            rows=self.rows.head(n),
            store=self.store.head(n),
            targets=tuple(None if t is None else t[:n, ...] for t in self.targets),
            weights=None if self.weights is None else self.weights[:n],
        )

    def some_rows(self, ids: Indices) -> Problem:
        """The same on some of the rows, which lend each other their values."""
        rows = self.rows.take(ids)
        index = arrays.from_host(ids, self.xp, self.device, arrays.index_dtype(self.xp))
        return dataclasses.replace(
            self,
            rows=rows,
            store=store_of(rows),
            targets=tuple(None if t is None else self.xp.take(t, index, axis=0) for t in self.targets),
            weights=None if self.weights is None else self.xp.take(self.weights, index, axis=0),
        )


def prepare(
    model: object,
    X: object,
    y: object,
    features: FeaturesLike = None,
    loss: LossLike | LossesLike | None = None,
    weights: object = None,
    rng: RandomState = None,
    run: Run | None = None,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    keeps: Sequence[str] = ("rows",),
    clusters: object = None,
    fewest: int = 2,
) -> Problem:
    """Check the arguments that all methods share; ``keeps`` is what the method can keep, ``fewest`` rows it needs."""
    if isinstance(loss, Mapping):
        kept, asked = _checked_keep(keep, keeps), tasks.read(loss, y)
        return _of_tasks(model, X, asked, features, weights, clusters, rng, run, names, kept)
    named, settings = None if loss is None else resolve_all(loss), resolved(run)
    # Checks first, transfer second: what is wrong is wrong where the user's arrays are.
    behind, rows = _read(model, X, y, features, weights, clusters, names, run, fewest)
    losses = (default_loss(model, rows.y),) if named is None else named
    memory, block, device = settings.bytes, settings.block, settings.device
    found = assembled(behind, rows, losses, key=resolve_key(rng), memory=memory, block=block, device=device)
    several = isinstance(loss, list | tuple)
    return dataclasses.replace(found, several=several, keep=_checked_keep(keep, keeps), run=settings)


def _read(
    model: object,
    X: object,
    y: object,
    features: FeaturesLike,
    weights: object,
    clusters: object,
    names: Sequence[str] | None,
    run: Run | None,
    fewest: int = 2,
) -> tuple[object, Rows]:
    """Rows as they are given, or, if features are inside the model, rows of what is there and the model behind it."""
    from reliance.engine import inside  # it evaluates problems, which are made here

    if inside.is_inside(model):
        return inside.opened(model, X, y, features, weights, clusters, names, run)
    return model, data.read(X, y, features=features, weights=weights, names=names, clusters=clusters, fewest=fewest)


def behind(model: object, X: object, run: Run | None, memory: int) -> Problem:
    """A model on further rows, which nobody judges; of a model whose features are inside it, what is there."""
    found, rows = _read(model, X, None, None, None, None, None, run)
    return assembled(found, rows, (), key=0, memory=memory)


def _of_tasks(
    model: object,
    X: object,
    asked: tuple[Task, ...],
    features: FeaturesLike,
    weights: object,
    clusters: object,
    rng: RandomState,
    run: Run | None,
    names: Sequence[str] | None,
    keep: frozenset[str],
) -> Problem:
    """Several outputs of a network, each with labels and a loss of its own: side by side in one array."""
    settings = resolved(run)
    whole = several_outputs.side_by_side(model, asked)
    network, rows = _read(whole, X, None, features, weights, clusters, names, run)
    moved = network is not whole  # inside the network rows are where it is, wherever they came from
    labels = tuple(data.labels(rows, one.y, f"y of {one.loss.name!r}", moved) for one in asked)
    key, losses = resolve_key(rng), tuple(one.loss for one in asked)
    memory, block, device = settings.bytes, settings.block, settings.device
    found = assembled(network, rows, losses, labels, key=key, memory=memory, block=block, device=device)
    return dataclasses.replace(found, several=True, keep=keep, run=settings)


def assembled(
    model: object,
    rows: Rows,
    losses: tuple[Loss | Metric, ...],
    labels: tuple[Array | None, ...] | None = None,
    *,
    key: int,
    memory: int,
    block: Block = None,
    device: Device = None,
) -> Problem:
    """A model on rows that are checked: rows go where it takes them, and it is asked for what the losses need.

    ``labels``: those of each loss, if they are not all y. ``device``: where rows go in blocks, if that is asked for.
    """
    if rows.weights is not None:
        for function in losses:
            check_takes_weights(function, "weights= is given")
    if rows.inputs is None:
        flat, y, _ = calling.at_home(model, rows.flat, rows.y, None, device)
        rows = dataclasses.replace(rows, flat=flat, y=y)
        adapted = calling.on_rows_of(adapting.adapt(model, losses), rows)
    elif device is not None:
        raise ValueError("run has device=, but several inputs go to the model's device at once: leave device out")
    else:
        inputs = several_inputs.at_home(rows.inputs, model)
        numbers = inputs.array
        y = None if rows.y is None else arrays.beside(rows.y, numbers)
        rows = dataclasses.replace(rows, flat=numbers, y=y, inputs=inputs)
        adapted = several_inputs.of_tuples(adapting.adapt(model, losses), inputs)
    if rows.table is not None:
        adapted = calling.on_table(adapted, rows.table)
    if adapted.parts is not None:
        losses = assigned(losses, adapted.parts)
    own = (rows.y,) * len(losses) if labels is None else tuple(_at_home(one, rows) for one in labels)
    return Problem(
        rows=rows,
        model=adapted,
        losses=losses,
        targets=tuple(_target(function, y, adapted) for function, y in zip(losses, own, strict=True)),
        store=store_of(rows),
        weights=None if rows.weights is None else _beside(rows.weights, rows.flat),
        several=False,
        key=key,
        memory=memory,
        block=block,
        keep=frozenset(),
    )


def _at_home(labels: Array | None, rows: Rows) -> Array | None:
    if labels is None or rows.streamed is None:
        return None if labels is None else arrays.beside(labels, rows.flat)
    return arrays.from_host(arrays.to_host(labels), rows.xp, rows.device)


def _beside(values: NDArray[np.float64], flat: Array) -> Array:
    xp, dev = arrays.namespace(flat), arrays.device(flat)
    return arrays.from_host(values, xp, dev, arrays.sum_dtype(xp, dev))


def check_labels(functions: Sequence[Loss | Metric], y: Array | None) -> None:
    """Losses of labels need labels."""
    for function in functions:
        if y is None and function.target != "prediction":
            raise ValueError(
                f"y is None but loss={shown(function.name)} needs labels: pass y, or loss='prediction_shift', which "
                "needs none"
            )


def _target(function: Loss | Metric, y: Array | None, model: Model) -> Array | None:
    """What predictions are compared with; labels as positions among the model's classes where it has them."""
    check_labels([function], y)
    if function.target == "prediction" or y is None:
        return None
    if model.classes is None or not compares_labels(function):
        return y
    labels = arrays.to_host(y)
    position = label_positions(labels, model.classes)
    if np.any(position < 0):
        stranger = labels[position < 0].reshape(-1)[0]
        raise ValueError(
            f"y holds the label {shown(stranger)}, which is not among the model's classes "
            f"[{listed(model.classes.tolist())}]: drop those rows or fit the model on all labels"
        )
    return arrays.from_host(position, arrays.namespace(y), arrays.device(y))


def _checked_keep(keep: str | Sequence[str], known: Sequence[str]) -> frozenset[str]:
    if not isinstance(keep, Iterable):
        raise TypeError(f"keep={shown(keep)}: pass a name, a list of names, or () to keep nothing")
    wanted = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in wanted:
        if name in CURVES and name not in known:
            raise ValueError(f"keep={shown(name)}: {NEED_PAIRS}")
        if not isinstance(name, str) or name not in known:
            can = f"what can be kept is {', '.join(map(repr, known))}" if known else "this method keeps nothing"
            raise ValueError(f"keep={shown(name)} is unknown: {can}")
    return frozenset(wanted)
