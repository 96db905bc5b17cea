"""The pure tile functions: switched inputs, predictions to losses, losses to sums.

Nothing here depends on values, writes in place or knows the backend, so the same functions run eagerly, under
``jax.jit``, under autodiff and on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from reliance._core.arrays import Array, device, is_floating, namespace, sum_dtype
from reliance.losses import functions as _losses
from reliance.losses.functions import Loss, Metric
from reliance.losses.outputs import is_whole

# Of a row as the model takes it; of several inputs the shape of each.
RowShape: TypeAlias = tuple[int, ...] | tuple[tuple[int, ...], ...]
# What a traced block is made of: arrays, or for several inputs a tuple of them each.
Operands: TypeAlias = tuple[Array, ...]
# What a model is called with: an array of rows, or a tuple of them for several inputs.
Block: TypeAlias = Array | tuple[Array, ...]

# The pure function ``(operands, rows, donors) -> (b * d, ...)`` that makes a block.
Switched: TypeAlias = Callable[[Operands, Array, Array], Block]


def shaped(block: Block, shape: RowShape) -> Block:
    """Flat rows ``(m, P)`` as the model takes them."""
    if not isinstance(block, tuple):
        return namespace(block).reshape(block, (block.shape[0], *shape))
    several = [own for own in shape if isinstance(own, tuple)]
    return tuple(shaped(part, own) for part, own in zip(block, several, strict=True))


def taken(rows: Block, index: Array) -> Block:
    """Some rows, of each input if there are several."""
    if isinstance(rows, tuple):
        return tuple(taken(part, index) for part in rows)
    return namespace(rows).take(rows, index, axis=0)


def repeat_rows(x: Array, d: int, times: int = 1) -> Array:
    """``(b, ...) -> (times * b * d, ...)``: each row d times, its copies side by side; all of it several times."""
    xp = namespace(x)
    b = x.shape[0]
    return xp.reshape(xp.broadcast_to(x[None, :, None, ...], (times, b, d, *x.shape[1:])), (-1, *x.shape[1:]))


def switched_rows(X: Array, rows: Array, donors: Array, columns: Array, lenders: Array | None = None) -> Array:
    """Rows with some columns taken from donor rows.

    Parameters
    ----------
    X : array (n, P)
    rows : integer array (b,)
    donors : integer array (b, d), or (d,) if all rows borrow from the same donors
    columns : boolean array (P,)
        True where the value is the donor's. An operand, not a constant: features share one compilation.
    lenders : array (N, P), optional
        The rows that the donors are among, if not X.

    Returns
    -------
    array (b * d, P)
    """
    xp = namespace(X)
    b, d, width = rows.shape[0], donors.shape[-1], X.shape[1]
    lent = xp.take(X if lenders is None else lenders, xp.reshape(donors, (-1,)), axis=0)
    lent = xp.reshape(lent, (1, d, width) if donors.ndim == 1 else (b, d, width))
    own = xp.take(X, rows, axis=0)[:, None, :]
    return xp.reshape(xp.where(columns, lent, own), (b * d, width))


def at_places(order: Array, places: Array) -> Array:
    """``order[places]``, (b, d) or (d,): the rows at some places of an order of them, (n,)."""
    xp = namespace(order)
    return xp.reshape(xp.take(order, xp.reshape(places, (-1,))), places.shape)


def switched_operands(operands: tuple[Array, ...], rows: Array, donors: Array) -> Array:
    """`switched_rows` of the operands X and columns, and of the lenders if they are others."""
    return switched_rows(operands[0], rows, donors, *operands[1:])


def switched_inputs(operands: tuple[tuple[Array, ...], ...], rows: Array, donors: Array) -> tuple[Array, ...]:
    """`switched_operands` of each of several inputs."""
    return tuple(switched_operands(own, rows, donors) for own in operands)


def summed_rows(operands: tuple[Array, Array], rows: Array, donors: Array) -> Array:
    """``(b * d, h)``: what each row keeps plus what its donor gives, from the operands (n, h) and (n, h)."""
    own, lent = operands
    xp = namespace(own)
    b, d, width = rows.shape[0], donors.shape[-1], own.shape[1]
    given = xp.take(lent, xp.reshape(donors, (-1,)), axis=0)
    given = xp.reshape(given, (1, d, width) if donors.ndim == 1 else (b, d, width))
    return xp.reshape(xp.take(own, rows, axis=0)[:, None, :] + given, (b * d, width))


def scrambled_rows(operands: tuple[Array, ...], rows: Array, donors: Array) -> Array:
    """Rows with some columns replaced by what the row keeps of them plus what a donor gives.

    ``operands``: X (n, P), kept and given (n, g), columns and places as in `written_rows`.
    """
    X, kept, given, columns, places = operands
    return written_rows(X, rows, scrambled(kept, given, rows, donors), columns, places)


def thresholded_rows(operands: tuple[Array, ...], rows: Array, donors: Array) -> Array:
    """As `scrambled_rows`, a column of two values: the high one where what the donor gives is above what is kept."""
    X, kept, given, columns, places, low, high = operands
    above = scrambled(-kept, given, rows, donors) > 0.0
    return written_rows(X, rows, namespace(X).where(above, high, low), columns, places)


def scrambled(kept: Array, given: Array, rows: Array, donors: Array) -> Array:
    """``(b, d, g)``: what rows keep plus what donors, (b, d) or (d,), give."""
    xp = namespace(kept)
    d = donors.shape[-1]
    lent = xp.reshape(xp.take(given, xp.reshape(donors, (-1,)), axis=0), (-1, d, given.shape[1]))
    return xp.take(kept, rows, axis=0)[:, None, :] + lent


def written_operands(operands: tuple[Array, ...], rows: Array, values: Array) -> Array:
    """`written_rows` of the operands X, columns and places."""
    X, columns, places = operands
    return written_rows(X, rows, values, columns, places)


def written_rows(X: Array, rows: Array, values: Array, columns: Array, places: Array) -> Array:
    """Rows with given values written into some columns.

    Parameters
    ----------
    values : array (b, d, g)
    columns : boolean array (P,)
    places : integer array (P,)
        For each column that is written, which of the g values it takes.
    """
    xp = namespace(X)
    b, d, _ = values.shape
    own = xp.take(X, rows, axis=0)[:, None, :]
    return xp.reshape(xp.where(columns, xp.take(values, places, axis=2), own), (b * d, X.shape[1]))


def answers(
    functions: Sequence[Loss | Metric], targets: Sequence[Array], predictions: Array, shape: tuple[int, ...]
) -> tuple[Array, ...]:
    """For each loss what is kept of a block: per-row losses (b, d), or a metric's predictions (b, d, ...).

    ``targets`` are already repeated to the b * d rows of ``predictions``.
    """
    xp = namespace(predictions)
    kept = []
    for function, target in zip(functions, targets, strict=True):
        if isinstance(function, Metric):
            kept.append(xp.reshape(predictions, (*shape, *predictions.shape[1:])))
        else:
            kept.append(xp.reshape(_losses.row_losses(function, target, predictions), shape))
    return tuple(kept)


def movement(predictions: Array, own: Array, slack: Array, stacked: bool = False) -> Array:
    """0-d, on the device: by how much a prediction moved beyond its slack, at most; NaN or inf if one is not finite.

    ``own`` are the rows' own predictions, ``slack (m, 1, ...)`` what rounding may do to them. Of labels: 1 if any
    changed, 0 if none did. ``stacked``: predictions are of several features along a first axis, and so is the answer.
    """
    xp = namespace(predictions)
    over = tuple(range(1, predictions.ndim)) if stacked else None
    if is_floating(xp, predictions.dtype):
        return xp.max(xp.abs(predictions - own) - slack, axis=over)
    return xp.astype(xp.any(predictions != own, axis=over), xp.float32)


def is_valid(functions: Sequence[Loss | Metric], predictions: Array, stacked: bool = False) -> Array | None:
    """0-d bool on the device: the predictions are such as the losses require; None if they require nothing.

    ``stacked``: predictions are of several features along a first axis, and so is the answer.
    """
    xp = namespace(predictions)
    if all(function.valid is None for function in functions):
        return None
    if stacked:
        each = (is_valid(functions, predictions[k, ...]) for k in range(predictions.shape[0]))
        return xp.stack([one for one in each if one is not None])
    valid = None
    for function in functions:
        if function.valid is not None:
            found = function.valid(_losses.own_columns(function, predictions))
            valid = found if valid is None else xp.logical_and(valid, found)
    return valid


class Part(NamedTuple):
    """What is kept of a block: an array for each loss (see `answers`), how far predictions moved, are they valid."""

    kept: tuple[Array, ...]
    moved: Array
    valid: Array | None


Predict: TypeAlias = Callable[[Array], Array]


class Lending(NamedTuple):
    """How the donor sums of a whole-rows tile are gathered: see `reliance.plans.Users`."""

    flat: Array
    bounds: Array | None


def donor_sums(changes: Array, lending: Lending) -> Array:
    """``(..., n, d) -> (..., n)``: for each donor the sum over its uses.

    A gather, never a scatter-add, so that the sums do not depend on the order in which a device adds.
    """
    xp = namespace(changes)
    *stack, n, d = changes.shape
    flat = xp.reshape(changes, (*stack, n * d))
    if lending.bounds is None:
        return xp.sum(xp.reshape(xp.take(flat, lending.flat, axis=-1), (*stack, -1, d)), axis=-1)
    # Differences of cumulative sums lose digits to the running total: centre first, so that it stays small.
    centre = xp.mean(flat, axis=-1, keepdims=True)
    running = xp.cumulative_sum(xp.take(flat, lending.flat, axis=-1) - centre, axis=-1, include_initial=True)
    edges = xp.take(running, lending.bounds, axis=-1)
    uses = xp.astype(lending.bounds[1:] - lending.bounds[:-1], flat.dtype)
    return edges[..., 1:] - edges[..., :-1] + centre * uses


def tile_sums(
    losses: Array,
    base: Array,
    weights: Array | None,
    mask: Array | None,
    counts: Array | None,
    lending: Lending | None,
    flags: Array,
    whole: bool = False,
    contrasts: Array | None = None,
) -> Array:
    """The sums of one tile and one loss, packed into one vector so that they travel to the host together.

    Parameters
    ----------
    losses : array (b, d)
        L(i, k). Of several features along a first axis: then so are flags and sums.
    base : array (b,)
        l(i).
    weights : array (b,) or None
    mask : boolean array (b, d) or None
        False where a cell does not count (a row that is its own donor, padding).
    counts : array (d,) or None
        How many donors each column of a rectangular tile stands for.
    lending : Lending or None
        Of whole-rows tiles; in rectangular tiles the columns are the donors.
    flags : array (2,)
        How far predictions moved, and whether they are valid.
    whole : bool
        Whether every cell is kept, too.
    contrasts : array (b, d) or None
        What D is multiplied by in one more row sum, in the widest dtype of the device.

    Returns
    -------
    array (b + d [+ n] + b [+ b] + 2 [+ b d],)
        Row sums of D = L - l, column sums of w D, donor sums of w D, row sums of D^2, those of D times the contrasts,
        the flags, and the cells D.
    """
    xp = namespace(losses)
    # Subtracted and summed in the widest dtype of the device: squares of float32 losses overflow at losses of 1e19.
    wide = sum_dtype(xp, device(losses))
    changes = xp.astype(losses, wide, copy=False) - xp.astype(base, wide, copy=False)[:, None]
    if mask is not None:
        changes = xp.where(mask, changes, xp.zeros_like(changes))
    parts = _weighted_sums(changes, weights, counts)
    if lending is not None:
        weighted = changes if weights is None else changes * weights[:, None]
        parts.insert(2, donor_sums(weighted, lending))
    if contrasts is not None:
        parts.append(_row_sums(changes * contrasts))
    parts.append(xp.astype(flags, changes.dtype, copy=False))
    return xp.concat([*parts, xp.reshape(changes, (*parts[0].shape[:-1], -1))] if whole else parts, axis=-1)


def _weighted_sums(changes: Array, weights: Array | None, counts: Array | None) -> list[Array]:
    """Row sums of D, column sums of w D and row sums of D^2, (..., b), (..., d) and (..., b), columns counted."""
    xp = namespace(changes)
    if changes.shape[-1] == 1 and counts is None:  # one draw: nothing to add up in a row
        one = changes[..., 0]
        weighted = one if weights is None else one * xp.astype(weights, one.dtype, copy=False)
        return [one, xp.sum(weighted, axis=-1, keepdims=True), one * one]
    squares = changes * changes
    if changes.dtype == xp.float64:  # products: faster than sums, in float64 as exact, and never rounded to TF32
        b, d = changes.shape[-2:]
        down = xp.ones((b,), dtype=changes.dtype, device=device(changes)) if weights is None else weights
        across = xp.ones((d,), dtype=changes.dtype, device=device(changes)) if counts is None else counts
        down, across = xp.astype(down, changes.dtype, copy=False), xp.astype(across, changes.dtype, copy=False)
        return [changes @ across, down @ changes, squares @ across]
    weighted = changes if weights is None else changes * weights[:, None]
    if counts is not None:
        changes, squares = changes * counts, squares * counts
    return [xp.sum(changes, axis=-1), xp.sum(weighted, axis=-2), xp.sum(squares, axis=-1)]


def _row_sums(x: Array) -> Array:
    """``(..., b, d) -> (..., b)``, as `_weighted_sums` does it."""
    xp, d = namespace(x), x.shape[-1]
    if d == 1:
        return x[..., 0]
    return x @ xp.ones((d,), dtype=x.dtype, device=device(x)) if x.dtype == xp.float64 else xp.sum(x, axis=-1)


def join(
    functions: Sequence[Loss | Metric],
    targets: Sequence[Array],
    base: Sequence[Array],
    weights: Array | None,
    parts: Sequence[Part],
    mask: Array | None,
    counts: Array | None,
    lending: Lending | None,
    contrasts: Array | None = None,
) -> Array:
    """The packed sums of a tile, one loss after the other, from what was kept of its blocks.

    Targets, base losses and weights are those of the tile's rows; the blocks may be padded beyond them. A block of
    several features is the whole tile, and its sums are a line for each of them.
    """
    xp = namespace(*base)
    flags = _flags(parts)
    lines = []
    for index, function in enumerate(functions):
        pieces = [part.kept[index] for part in parts]
        losses = pieces[0] if len(pieces) == 1 else xp.concat(pieces)[: base[index].shape[0], ...]
        if isinstance(function, Metric):
            losses = _metric_losses(function, targets[index], losses, weights, stacked=flags.ndim > 1)
        whole = is_whole(function)
        lines.append(tile_sums(losses, base[index], weights, mask, counts, lending, flags, whole, contrasts))
    return lines[0] if len(lines) == 1 else xp.concat(lines, axis=-1)


def _metric_losses(function: Metric, target: Array, predictions: Array, weights: Array | None, stacked: bool) -> Array:
    """A metric's pseudo-losses (b, d) of predictions (b, d, ...); several features are draws side by side."""
    if not stacked:
        return _losses.draw_losses(function, target, predictions, weights)
    xp = namespace(predictions)
    count, b, d, *output = predictions.shape
    beside = xp.permute_dims(predictions, (1, 0, *range(2, predictions.ndim)))
    found = _losses.draw_losses(function, target, xp.reshape(beside, (b, count * d, *output)), weights)
    return xp.permute_dims(xp.reshape(found, (b, count, d)), (1, 0, 2))


def _flags(parts: Sequence[Part]) -> Array:
    """``(2,)``, or ``(features, 2)``: the largest movement of a tile's blocks, and 1 if all of them are valid."""
    xp = namespace(parts[0].moved)
    moved = xp.max(xp.stack([part.moved for part in parts]), axis=0)
    found = [part.valid for part in parts if part.valid is not None]
    valid = xp.astype(xp.all(xp.stack(found), axis=0), moved.dtype) if found else xp.ones_like(moved)
    return xp.stack([moved, valid], axis=-1)
