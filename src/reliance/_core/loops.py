"""Loops over parts, draws and blocks, each as its backend has it: traced loops on JAX, plain ones elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from reliance._core import kinds
from reliance._core.arrays import first, is_traced, namespace

# What a block begins with: an integer, or a traced scalar of JAX.
Start = TypeVar("Start", bound=int | kinds.Array)
# A tuple of arrays.
Item = TypeVar("Item", bound=tuple[kinds.Array, ...])


def map_parts(function: Callable[[kinds.Operand], kinds.Array], x: kinds.Operand, size: int) -> kinds.Array:
    """``function`` on parts of at most ``size`` rows, of nearly equal length, the answers one below the other.

    Equal, because a matrix kernel for one or two rows that are left over rounds differently. A tuple is cut as one.
    """
    xp, rows = namespace(first(x)), first(x).shape[0]
    size = -(-rows // -(-rows // size))

    def cut(start: int, stop: int, split: tuple[int, ...] = ()) -> kinds.Operand:
        if isinstance(x, tuple):
            return tuple(xp.reshape(a[start:stop, ...], (*(split or (-1,)), *a.shape[1:])) for a in x)
        part = x[start:stop, ...]
        return xp.reshape(part, (*split, *part.shape[1:])) if split else part

    if is_traced(first(x)):  # a loop in the compiled function, not one copy of the model for each part
        import jax

        whole = rows // size
        answers: kinds.Array = jax.lax.map(function, cut(0, whole * size, (whole, size)))
        answers = xp.reshape(answers, (whole * size, *answers.shape[2:]))
        return answers if whole * size == rows else xp.concat([answers, function(cut(whole * size, rows))])
    # A function may return a view of memory that it uses again in the next call: copies.
    below = (function(cut(start, min(start + size, rows))) for start in range(0, rows, size))
    return xp.concat([xp.asarray(part, copy=True) for part in below])


def map_draws(function: Callable[[kinds.Array], kinds.Array], predictions: kinds.Array) -> kinds.Array:
    """Apply ``function`` to each draw ``predictions[:, k]`` and stack the answers along the last axis."""
    xp = namespace(predictions)
    if compat.is_jax_namespace(xp):
        import jax

        mapped: kinds.Array = jax.vmap(function, in_axes=1, out_axes=-1)(predictions)
        return mapped
    return xp.stack([function(predictions[:, k, ...]) for k in range(predictions.shape[1])], axis=-1)


def rematerialised_sum(
    function: Callable[[Start], kinds.Array], starts: NDArray[np.int64], like: kinds.Array
) -> kinds.Array:
    """The sum of ``function(start)`` over blocks, whose intermediates are computed again for gradients, not kept.

    ``starts`` are indices on the host; the function gets each as an integer, or as a traced scalar on JAX.
    """
    xp = namespace(like)
    if compat.is_jax_namespace(xp):
        import jax

        body = jax.checkpoint(function)
        first = jax.eval_shape(body, starts[0])
        zero = jax.tree.map(lambda leaf: xp.zeros(leaf.shape, dtype=leaf.dtype), first)
        total: kinds.Array = jax.lax.scan(lambda carry, start: (carry + body(start), None), zero, starts)[0]
        return total
    parts: list[kinds.Array] = []
    for start in starts.tolist():
        if compat.is_torch_namespace(xp):
            from torch.utils.checkpoint import checkpoint

            parts.append(checkpoint(function, start, use_reentrant=False))
        else:
            parts.append(function(start))
    return sum(parts[1:], start=parts[0])


def stacked(items: list[Item]) -> list[Item]:
    """Tuples of arrays as `fold` takes them: on JAX one tuple of arrays with the items along the first axis."""
    if not items or not compat.is_jax_array(items[0][0]):
        return items
    import jax

    one: list[Item] = jax.tree.map(lambda *leaves: namespace(*leaves).stack(leaves), *items)
    return one


def fold(step: Callable[[kinds.Array, Item], kinds.Array], carry: kinds.Array, items: list[Item]) -> kinds.Array:
    """``carry = step(carry, item)`` for each of the `stacked` items; on JAX a loop in the compiled function."""
    if compat.is_jax_array(carry) and items:
        import jax

        carry, _ = jax.lax.scan(lambda c, item: (step(c, item), None), carry, items)
        return carry
    for item in items:
        carry = step(carry, item)
    return carry
