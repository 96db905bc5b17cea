"""Which figure a result is drawn as: names of kinds and options are checked, several results share a figure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reliance._core import words
from reliance._core.words import shown
from reliance.plots import style, wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kinds = Mapping[str, Callable[..., "Axes"]]


def draw(kinds: Kinds, kind: str | None, result: object, ax: Axes | None, options: Mapping[str, object]) -> Axes:
    """Draw a result as one of the kinds that it has; the names of options are checked."""
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind={shown(kind)} is not known: use one of {', '.join(map(repr, kinds))}")
    known = list(inspect.signature(kinds[kind]).parameters)[2:]  # after the result and ax
    for name in options:
        if name not in known:
            raise TypeError(f"kind={shown(kind)} has no option {shown(name)}: it takes {', '.join(known) or 'none'}")
    return kinds[kind](result, ax, **options)


def side_by_side(
    results: Mapping[str, Any], chosen: Mapping[str, str], ax: object, options: Mapping[str, object]
) -> NDArray[np.object_]:
    """Each result in Axes of its own, below its name; their array."""
    if ax is None:
        first = next(iter(results.values()))
        lines = len(getattr(first, "names", ())) or 10
        places = style.subplots(7.0 * len(results), max(3.0, min(1.6 + 0.28 * min(lines, 30), 60.0)), len(results))
    else:
        places = one_for_each(ax, len(results))
    called = words.told_apart([name or "(nothing)" for name in results])
    for place, name, result in zip(places, called, results.values(), strict=True):
        drawn = result.plot(ax=place, **chosen, **options)
        drawn.set_title(f"{wording.text(name)}: {drawn.get_title()}".removesuffix(": "), fontsize="medium")
    return places


def one_for_each(ax: object, many: int) -> NDArray[np.object_]:
    """The given Axes as an array, one for each result."""
    places = np.atleast_1d(np.asarray(ax, dtype=object))
    if places.shape != (many,):
        raise ValueError(f"ax has shape {places.shape}: give a sequence of {many} Axes, one for each result")
    return places
