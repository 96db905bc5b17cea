"""The good models of a list, one by one: reliance on one feature against another, and against the risk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reliance import inference
from reliance._core.words import listed, shown
from reliance.plots import style, wording
from reliance.plots.style import BLUE, GREY, INK, ORANGE, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.rashomon.members import Members
    from reliance.rashomon.results import ClassReliance

_SIZE = 4.6  # inches
_MANY = 2000  # points that would be a blot: they are drawn small and pale


def cloud(result: ClassReliance, ax: Axes | None = None, x: str | None = None, y: str | None = None) -> Axes:
    """Reliance of each good model on one feature against that on another.

    A cloud that falls to the right is a choice: models that rely on one feature need the other less.

    Parameters
    ----------
    result : ClassReliance
        Of a class whose models are listed.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    x, y : str, optional
        Names of two features; by default those whose ranges are widest.
    """
    members, (one, other) = _members(result), _two(result, x, y)
    ax = style.axes(ax, _SIZE, _SIZE)
    inside = members.inside
    _points(ax, members.values[inside, one], members.values[inside, other])
    best = int(np.argmin(np.where(inside, members.risks, np.inf)))
    ax.plot(members.values[best, one], members.values[best, other], "D", color=ORANGE, markeredgecolor=INK, zorder=4)
    null = inference.null_value(result.compare)
    ax.axvline(null, color=GREY, linewidth=1.0)
    names, what = wording.labels(result.names), wording.amount(result.compare, result.loss)
    return style.finish(
        ax,
        xlabel=names[one],
        ylabel=names[other],
        title=f"{what}: {int(inside.sum())} good models",
        grid="both",
        null=null,
        caption="the diamond is the best of them",
    )


def risks(result: ClassReliance, ax: Axes | None = None, feature: str | None = None) -> Axes:
    """Reliance of each model on a feature against its risk; good models lie left of the line.

    Parameters
    ----------
    result : ClassReliance
        Of a class whose models are listed.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    feature : str, optional
        Its name; by default the one whose range is widest.
    """
    members = _members(result)
    one = _widest(result)[0] if feature is None else _place(result, "feature", feature)
    known = ~np.isnan(members.values[:, one])
    ax = style.axes(ax, _SIZE + 0.8, _SIZE)
    _points(ax, members.risks[known], members.values[known, one])
    ax.axvline(result.bound, color=INK, linewidth=1.0, linestyle="--")
    return style.finish(
        ax,
        xlabel="risk",
        ylabel=wording.amount(result.compare, result.loss),
        title=wording.labels(result.names)[one],
        grid="y",
        null=inference.null_value(result.compare),
        caption=wording.caption(f"{int(known.sum())} models", f"good: a risk of at most {result.bound:.4g}, dashed"),
    )


def _points(ax: Axes, x: Floats, y: Floats) -> None:
    many = len(x) > _MANY
    ax.scatter(x, y, s=4 if many else 16, alpha=0.3 if many else 0.7, color=BLUE, linewidths=0, zorder=2)


def _members(result: ClassReliance) -> Members:
    if result.members is None:
        raise ValueError(
            f"{result.model_class} has no list of models to draw: use FiniteClass or TreeClass, or kind='range'"
        )
    return result.members


def _widest(result: ClassReliance) -> list[int]:
    """Features, the widest range first."""
    with np.errstate(invalid="ignore"):
        width = np.nan_to_num(result.achieved_upper - result.achieved_lower, nan=-1.0)
    return [int(k) for k in np.argsort(-width, kind="stable")]


def _two(result: ClassReliance, x: str | None, y: str | None) -> tuple[int, int]:
    if len(result.names) < 2:
        raise ValueError("a cloud needs two features and the result has one: use kind='risk'")
    given = [None if name is None else _place(result, key, name) for key, name in (("x", x), ("y", y))]
    free = [k for k in _widest(result) if k not in given]
    one = given[0] if given[0] is not None else free.pop(0)
    return one, given[1] if given[1] is not None else free.pop(0)


def _place(result: ClassReliance, key: str, name: object) -> int:
    if name not in result.names:
        raise ValueError(f"{key}={shown(name)} was not measured: it must be one of {listed(result.names)}")
    return result.names.index(str(name))
