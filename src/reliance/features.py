"""Features of images, texts, series and other tensors: every channel, position, patch or window, with names.

Each function returns a mapping from names to parts of a row, to be passed as ``features=``. Mappings can be joined,
``channels(X) | patches(X, 4)``: features of one call may overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from reliance._core.arrays import is_array
from reliance._core.words import listed, shown

__all__ = ["channels", "patches", "positions", "windows"]

# A part of a row, as NumPy would index it, or (input, part) of one of several inputs.
Part: TypeAlias = tuple[slice, ...]
Parts: TypeAlias = dict[str, Part | tuple[object, Part]]


def channels(X: object, *, axis: int = 0, names: Sequence[str] | None = None, of: object = None) -> Parts:
    """Every channel of an image or a series, and every other thing that one axis of a row counts.

    Parameters
    ----------
    X : array (n, ...), tuple of int, or tuple or dict of arrays
        The rows, or the shape of one row. Several inputs need ``of``.
    axis : int
        Of a row, 0 for (channels, height, width), -1 for (height, width, channels) or (time, variables).
    names : sequence of str, optional
        One for each channel; by default "channel 0", "channel 1", ...
    of : optional
        Which of several inputs: its key, or its place in a tuple.

    Returns
    -------
    dict
        From names to slices.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> images = np.random.default_rng(0).normal(size=(50, 3, 8, 8))
    >>> colours = rl.features.channels(images, names=["red", "green", "blue"])
    >>> model = lambda images: images[:, 0].mean(axis=(1, 2))
    >>> result = rl.permutation_importance(model, images, model(images), features=colours, rng=0)
    >>> result.names, (result.values > 0).tolist()
    (('red', 'green', 'blue'), [True, False, False])
    """
    shape = _row_shape(X, of)
    place = _axis(axis, shape)
    labels = [f"channel {k}" for k in range(shape[place])] if names is None else _checked_names(names, shape[place])
    return {name: _joined(of, {place: slice(k, k + 1)}, shape) for k, name in enumerate(labels)}


def positions(X: object, *, axes: int | Sequence[int] | None = None, of: object = None) -> Parts:
    """Every position: a token of a text, a time step of a series, a pixel of an image with all of its channels.

    Parameters
    ----------
    X : array (n, ...), tuple of int, or tuple or dict of arrays
        The rows, or the shape of one row. Several inputs need ``of``.
    axes : int or sequence of int, optional
        Of a row. By default the first of (tokens,), (tokens, width) or (time, variables), the last two of
        (channels, height, width).
    of : optional
        Which of several inputs: its key, or its place in a tuple.

    Returns
    -------
    dict
        From names to slices.

    Examples
    --------
    >>> import reliance as rl
    >>> rl.features.positions((5, 2))["position 3"]  # of 5 time steps with 2 variables each
    (slice(3, 4, None), slice(None, None, None))
    >>> list(rl.features.positions((3, 2, 2)))  # the pixels of an image with 3 channels
    ['position 0,0', 'position 0,1', 'position 1,0', 'position 1,1']
    """
    shape = _row_shape(X, of)
    chosen: tuple[int, ...] = (-2, -1) if len(shape) > 2 else (0,)
    if axes is not None:
        chosen = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    places = _axes(chosen, shape)
    found: Parts = {}
    for at in product(*(range(shape[place]) for place in places)):
        cut = {place: slice(k, k + 1) for place, k in zip(places, at, strict=True)}
        found["position " + ",".join(map(str, at))] = _joined(of, cut, shape)
    return found


def patches(
    X: object,
    size: int | Sequence[int],
    *,
    stride: int | Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    of: object = None,
) -> Parts:
    """Every patch of an image, all channels together, named by its upper left corner.

    Parameters
    ----------
    X : array (n, ...), tuple of int, or tuple or dict of arrays
        The rows, or the shape of one row. Several inputs need ``of``.
    size : int or sequence of int
        Of a patch, along each of the axes.
    stride : int or sequence of int, optional
        From one patch to the next. By default the size, so that patches tile the image, smaller ones at the lower and
        right edges if the size does not fit. With a smaller stride they overlap, and all are whole.
    axes : sequence of int
        Of a row: height and width, the last two by default.
    of : optional
        Which of several inputs: its key, or its place in a tuple.

    Returns
    -------
    dict
        From names to slices.

    Examples
    --------
    >>> import reliance as rl
    >>> list(rl.features.patches((3, 8, 8), 4))
    ['patch 0,0', 'patch 0,4', 'patch 4,0', 'patch 4,4']
    >>> len(rl.features.patches((3, 8, 8), 4, stride=2))
    9
    """
    shape = _row_shape(X, of)
    places = _axes(axes, shape)
    sizes = _lengths(size, len(places), "size")
    steps = sizes if stride is None else _lengths(stride, len(places), "stride")
    cuts = [
        _stretches(shape[place], length, step, f"size={shown(size)}", whole=stride is not None)
        for place, length, step in zip(places, sizes, steps, strict=True)
    ]
    found: Parts = {}
    for corner in product(*cuts):
        name = "patch " + ",".join(str(cut.start) for cut in corner)
        found[name] = _joined(of, dict(zip(places, corner, strict=True)), shape)
    return found


def windows(X: object, size: int, *, stride: int = 1, axis: int = 0, of: object = None) -> Parts:
    """Every window of a series or a text, sliding along one axis, named by where it starts and ends.

    Parameters
    ----------
    X : array (n, ...), tuple of int, or tuple or dict of arrays
        The rows, or the shape of one row. Several inputs need ``of``.
    size : int
        Of a window.
    stride : int
        From one window to the next: with less than ``size`` they overlap.
    axis : int
        Of a row: the first by default, as in (time, variables).
    of : optional
        Which of several inputs: its key, or its place in a tuple.

    Returns
    -------
    dict
        From names to slices.

    Examples
    --------
    >>> import reliance as rl
    >>> list(rl.features.windows((6,), 3))
    ['0:3', '1:4', '2:5', '3:6']
    """
    shape = _row_shape(X, of)
    place = _axis(axis, shape)
    (length,), (step,) = _lengths(size, 1, "size"), _lengths(stride, 1, "stride")
    cuts = _stretches(shape[place], length, step, f"size={shown(size)}", whole=True)
    return {f"{cut.start}:{cut.stop}": _joined(of, {place: cut}, shape) for cut in cuts}


# ---------------------------------------------------------------------------------------------------------------------
# Shapes and cuts


def _row_shape(X: object, of: object) -> tuple[int, ...]:
    """Of one row: of an array, of one of several inputs, or as it is given."""
    if isinstance(X, tuple) and of is None and all(isinstance(k, int | np.integer) for k in X):
        shape = tuple(int(k) for k in X)
    else:
        if isinstance(X, Mapping) or (isinstance(X, tuple) and not is_array(X)):
            inputs: Mapping[object, object] = X if isinstance(X, Mapping) else dict(enumerate(X))
            if of not in inputs:
                raise ValueError(f"of={shown(of)}: X has the inputs {listed(inputs)}; name one of them")
            X = inputs[of]
        if not is_array(X):
            raise TypeError(
                f"X is a {type(X).__name__}: pass an array (n, ...) or the shape of a row, such as (3, 8, 8)"
            )
        shape = tuple(int(k) for k in X.shape[1:])
    if not shape or math.prod(shape) < 1:
        raise ValueError(f"X has rows of the shape {shape}: there are no parts to choose from")
    return shape


def _axis(axis: object, shape: tuple[int, ...]) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {shown(axis)} is none of a row of the shape {shape}: pass 0 to {len(shape) - 1}")
    return int(axis) % len(shape)


def _axes(axes: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    places = tuple(_axis(axis, shape) for axis in axes)
    if not places or len(set(places)) < len(places):
        raise ValueError(f"axes={shown(axes)}: name at least one axis of a row, and each once")
    return places


def _lengths(given: object, count: int, name: str) -> tuple[int, ...]:
    """One length for each of the axes."""
    several = (given,) * count if isinstance(given, int | np.integer) else given
    whole = isinstance(several, Sequence) and all(
        isinstance(k, int | np.integer) and not isinstance(k, bool) and k > 0 for k in several
    )
    if not whole or len(several) != count:  # type: ignore[arg-type]  # it is a sequence, then
        raise ValueError(f"{name}={shown(given)}: pass a positive integer, or {count} of them")
    return tuple(int(k) for k in several)  # type: ignore[attr-defined]  # it is a sequence, then


def _stretches(total: int, size: int, step: int, what: str, whole: bool) -> list[slice]:
    """Stretches of an axis; those that are not ``whole`` end where the axis ends."""
    if size > total:
        raise ValueError(f"{what} is more than the {total} entries of the axis: pass a smaller size")
    last = total - size if whole else total - 1
    return [slice(start, min(start + size, total)) for start in range(0, last + 1, step)]


def _checked_names(names: Sequence[str], count: int) -> list[str]:
    found = list(names)
    if isinstance(names, str) or len(found) != count or len(set(found)) < count:
        raise ValueError(f"names={shown(names)}: pass {count} different names, one for each channel")
    return found


def _joined(of: object, cuts: Mapping[int, slice], shape: tuple[int, ...]) -> Part | tuple[object, Part]:
    """A part of a row, of the input that it belongs to if there are several."""
    part = tuple(cuts.get(axis, slice(None)) for axis in range(len(shape)))
    return part if of is None else (of, part)
