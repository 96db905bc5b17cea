"""Everything the user passes is checked once, here, and becomes one frozen `Problem`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.arrays import Array, Device, Namespace
from reliance._core.run import Block, Run, resolved
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import listed, shown
from reliance.data import tables
from reliance.data.checked_arrays import as_array, check_companion, check_finite, check_rows, checked_weights
from reliance.data.features import Feature, column_names, resolve_features
from reliance.data.tables import Table
from reliance.engine.stores import ArrayStore, Store
from reliance.losses.functions import Loss, Metric, compares_labels, resolve_all
from reliance.models import calling, several_inputs
from reliance.models.calling import Model
from reliance.models.responses import assigned, label_positions
from reliance.models.several_inputs import Inputs

CURVES = ("curves", "ice")
NEED_PAIRS = "curves come from all pairs of rows: pass them to model_reliance(pairs='all')"

Progress: TypeAlias = bool | Callable[[int, int], None]


@dataclass(frozen=True)
class Problem:
    """A model and the rows to measure it on, checked.

    Attributes
    ----------
    store : Store
        The rows, on the device where the work happens.
    targets : tuple
        For each loss what predictions are compared with, ``(n, ...)``; None for the model's own predictions.
    weights : array (n,) or None
        Weights of the rows' losses, the largest about 1; ``host_weights`` the same on the host in float64.
    features : tuple of Feature
    losses : tuple of Loss or Metric
    key : int
        Of the random numbers.
    memory : int
        Bytes that the engine may allocate.
    block : int, (rows, draws), "tune" or None
    names : tuple of str
        Of the P columns.
    coded : tuple of int
        Columns that hold codes of text, categories or dates (see `reliance.data.tables`), which only the model knows.
    texts : mapping
        The value behind each code of these columns in words, if curves are kept.
    """

    model: Model
    store: Store
    targets: tuple[Array | None, ...]
    weights: Array | None
    host_weights: NDArray[np.float64] | None
    features: tuple[Feature, ...]
    losses: tuple[Loss | Metric, ...]
    several: bool
    key: int
    memory: int
    block: Block
    progress: Progress
    keep: frozenset[str]
    names: tuple[str, ...] = ()
    coded: tuple[int, ...] = ()
    texts: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def n(self) -> int:
        return self.store.n

    @property
    def flat(self) -> Array:
        """``(n, P)``: the rows as they were given."""
        return self.store.flat

    def numbers(self, asks: str, columns: Sequence[int] | None = None) -> Array:
        """``(n, P)``: the rows as numbers to compute with; an error in words if they, or some columns, are none.

        Codes of text and the row numbers of several inputs are only for the model. ``asks`` is who needs numbers.
        """
        bad = [j for j in self.coded if columns is None or j in columns]
        if bad:
            raise TypeError(
                f"{asks} needs numbers, but {self.names[bad[0]][:80]!r} of X holds text, categories, dates, missing "
                "entries or one of several inputs: encode it as numbers, pass one array, or leave it out"
            )
        return self.flat

    @property
    def xp(self) -> Namespace:
        return self.store.xp

    @property
    def device(self) -> Device:
        return self.store.device

    def head(self, n: int) -> Problem:
        """The same problem on its first n rows."""
        return dataclasses.replace(
            self,
            store=self.store.head(n),
            targets=tuple(None if t is None else t[:n, ...] for t in self.targets),
            weights=None if self.weights is None else self.weights[:n],
            host_weights=None if self.host_weights is None else self.host_weights[:n],
        )


def prepare(
    model: Any,
    X: Any,
    y: Any,
    features: Any = None,
    loss: Any = "squared_error",
    weights: Any = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    keeps: Sequence[str] = ("rows",),
    seen: bool = False,
    fits: bool = False,
) -> Problem:
    """Check the arguments that all methods share; ``keeps`` is what the method can keep.

    ``seen``: whether the values of X and y were looked at already, so that nothing is said twice about them.
    ``fits``: whether the method fits models again, which is what workers are for.
    """
    losses, settings = resolve_all(loss), resolved(run)
    if run is not None and run.workers is not None and not fits:
        raise ValueError(
            f"run has workers={shown(run.workers)}, but this method fits no model again, so there is nothing to share "
            "out: leave workers out"
        )
    tables.check_aligned(X=X, y=y, weights=weights)
    table = tables.read(X, "X") if tables.is_table(X) else None
    if table is not None:
        X, names = table.array, table.names if names is None else names
    inputs = several_inputs.read(X, features, names) if several_inputs.is_several(X) else None
    X = as_array(X, "X") if inputs is None else inputs.array
    y = None if y is None else as_array(y, "y")
    weights = None if weights is None else as_array(weights, "weights")
    check_rows(X)
    check_companion(X, y, "y")
    check_companion(X, weights, "weights")
    # Checks first, transfer second: what is wrong is wrong where the user's arrays are.
    if not seen:
        check_finite(X, y)
    host_weights = None if weights is None else checked_weights(weights, losses)
    if inputs is None:
        X, y, _ = calling.at_home(model, X, y, None)
        adapted = calling.on_arrays_of(calling.adapt(model, losses), X)
    else:
        inputs = inputs.at_home(model)
        X, y = (None if a is None else arrays.beside(a, inputs.array) for a in (X, y))
        adapted, names = inputs.model(calling.adapt(model, losses)), inputs.names
    if table is not None:
        adapted = calling.on_table(adapted, table)
    if adapted.parts is not None:
        losses = assigned(losses, adapted.parts)
    kept = _checked_keep(keep, keeps)
    return Problem(
        model=adapted,
        store=ArrayStore.of(X),
        targets=tuple(_target(function, y, adapted) for function in losses),
        weights=None if host_weights is None else _upload(host_weights, X),
        host_weights=host_weights,
        features=resolve_features(features, names, tuple(X.shape[1:])) if inputs is None else inputs.features,
        losses=losses,
        several=isinstance(loss, list | tuple),
        key=resolve_key(rng),
        memory=settings.bytes,
        block=settings.block,
        progress=_checked_progress(progress),
        keep=kept,
        names=column_names(names, tuple(X.shape[1:])),
        coded=_coded(table, inputs),
        texts={} if table is None or not kept & set(CURVES) else {j: table.texts(j) for j in table.coded},
    )


def _coded(table: Table | None, inputs: Inputs | None) -> tuple[int, ...]:
    if inputs is not None:
        return tuple(range(len(inputs.pieces)))
    return () if table is None else table.coded


def check_draws(draws: Any, name: str = "draws") -> int:
    """A number of draws: an integer of at least 1."""
    if isinstance(draws, bool | np.bool_) or not isinstance(draws, int | np.integer):
        raise TypeError(f"{name}={shown(draws)} is not an integer: pass how many times each row is replaced")
    if draws < 1:
        raise ValueError(f"{name}={draws} is too small: each row must be replaced at least once")
    return int(draws)


def check_choice(value: Any, choices: Sequence[str], name: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={shown(value)} is unknown: choose one of {', '.join(map(repr, choices))}")
    return value


def _upload(values: NDArray[np.float64], X: Array) -> Array:
    xp, dev = arrays.namespace(X), arrays.device(X)
    return arrays.from_host(values, xp, dev, arrays.sum_dtype(xp, dev))


def _target(function: Loss | Metric, y: Array | None, model: Model) -> Array | None:
    """What predictions are compared with; labels as positions among the model's classes where it has them."""
    if function.target == "prediction":
        return None
    if y is None:
        raise ValueError(
            f"y is None but loss={shown(function.name)} needs labels: pass y, or loss='prediction_shift', which needs "
            "none"
        )
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


def _checked_progress(progress: Progress) -> Progress:
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress={shown(progress)}: pass True, False or a function (done, total) -> None")
    return progress


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
