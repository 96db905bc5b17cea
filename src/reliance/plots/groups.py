"""Several results of the same features in one figure: sets of given variables, models, training and test, losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reliance import inference
from reliance._core import words
from reliance._core.words import shown
from reliance.plots import kinds, style, wording
from reliance.plots.by_feature import Compared
from reliance.plots.style import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.importance import Importance

Marks = Mapping[str, ArrayLike]


def set_bars(
    result: Mapping[str, Importance],
    ax: Axes | None = None,
    level: float = 0.95,
    most: int = 30,
    by: str = "feature",
    marks: Marks | None = None,
) -> Axes:
    """A group of bars for each feature, a colour for each set of variables, with intervals as whiskers.

    Features are in the order of their largest value in any set; ``ax``, ``level`` and ``most`` are as in `bars`.

    Parameters
    ----------
    by : {"feature", "set"}
        A group for each feature, or for each set, whose bars are then the features in the order they have.
    marks : mapping from a word to an array (sets, features), optional
        Other values of the same, drawn as diamonds: analytic ones, those of another method.
    """
    if by not in ("feature", "set"):
        raise ValueError(f"by={shown(by)} is not known: use 'feature' or 'set', for what bars stand together")
    if by == "feature":
        return grouped(result, ax, level, most, "given", marks)
    return _by_set(result, ax, level, most, marks)


def grouped(
    results: Mapping[str, Compared],
    ax: Axes | None,
    level: float,
    most: int,
    heading: str | None,
    marks: Marks | None = None,
) -> Axes:
    """Bars of several results of the same features, side by side; ``heading`` is the legend's."""
    ones = list(results.values())
    table, ends = _tables(results, level)
    order = style.largest(np.where(np.isnan(table), -np.inf, table).max(axis=0), most)
    sets = [name or "(nothing)" for name in results]
    labels = wording.labels(ones[0].names)
    others = {name: values[:, order] for name, values in _marks(marks, table.shape).items()}
    title = wording.title(wording.heading(ones[0].method), len(order), len(labels))
    names = [labels[k] for k in order]
    return _groups(ax, names, sets, table[:, order], ends[:, order], others, ones, level, heading, title, "features")


def _by_set(result: Mapping[str, Importance], ax: Axes | None, level: float, most: int, marks: Marks | None) -> Axes:
    ones = list(result.values())
    table, ends = _tables(result, level)
    largest = style.largest(np.where(np.isnan(table), -np.inf, table).max(axis=0), most)
    order = np.sort(largest)  # as they are: each group has the same order
    labels = [f"given {name}" if name else "given (nothing)" for name in result]
    others = {name: values[:, order].T for name, values in _marks(marks, table.shape).items()}
    title = wording.title(wording.heading(ones[0].method), len(order), len(ones[0].names))
    features = [ones[0].names[k] for k in order]
    values, bounds = table[:, order].T, ends[:, order].transpose(1, 0, 2)
    names = wording.labels(labels)
    return _groups(ax, names, features, values, bounds, others, ones, level, "feature", title, "sets")


def _groups(
    ax: Axes | None,
    names: Sequence[str],
    series: Sequence[str],
    table: Floats,
    ends: Floats,
    marks: Mapping[str, Floats],
    ones: Sequence[Compared],
    level: float,
    heading: str | None,
    title: str,
    things: str,
) -> Axes:
    """Groups at the places of names, in each a bar for each of the series: values (series, places)."""
    null = inference.null_value(ones[0].compare)
    ax = style.feature_axes(ax, names, len(series), [*series, *marks])
    height, drawn = 0.84 / len(series), []
    places = [np.arange(len(names)) - 0.42 + (k + 0.5) * height for k in range(len(series))]
    for k, values in enumerate(table):
        lengths = style.stretch(values, null)
        drawn.append(ax.barh(places[k], lengths, left=null, height=0.9 * height, **style.fill(k)))
    style.whiskers(ax, np.concatenate(places), np.concatenate(list(ends)))
    for k, values in enumerate(marks.values()):
        looks = {"markersize": 4, "markeredgecolor": style.INK, "color": ("white", style.LIGHT, style.GREY)[k % 3]}
        drawn += ax.plot(values.reshape(-1), np.concatenate(places), "Dos^"[k % 4], zorder=3, **looks)
    style.legend(ax, drawn, [*series, *marks], heading)
    caption = wording.caption(
        _risks(ones),
        wording.whisker_words(level, not np.isnan(ends).all()),
        style.hidden_labels(ax, len(names), things),
    )
    what = wording.amount(ones[0].compare, ones[0].loss, getattr(ones[0], "leave", None))
    return style.finish(ax, xlabel=what, title=title, null=null, caption=caption)


def _tables(results: Mapping[str, Compared], level: float) -> tuple[Floats, Floats]:
    """Values (sets, p) and intervals (sets, p, 2)."""
    ones = list(results.values())
    return np.stack([one.values for one in ones]), np.stack([inference.known_interval(one, level) for one in ones])


def _risks(ones: Sequence[Compared]) -> str:
    """Rows and base loss, once if they are the same for all."""
    rows, risks = sorted({one.n for one in ones}), [one.base_risk for one in ones]
    n = f"n = {rows[0]}" if len(rows) == 1 else f"n = {' and '.join(map(str, rows)) if len(rows) == 2 else 'several'}"
    low, high = f"{min(risks):.4g}", f"{max(risks):.4g}"
    return f"{n}, base loss {low if low == high else f'{low} to {high}'}"


def _marks(marks: Marks | None, shape: tuple[int, ...]) -> dict[str, Floats]:
    if marks is None:
        return {}
    if not isinstance(marks, Mapping) or not all(isinstance(name, str) for name in marks):
        raise TypeError(
            f"marks={shown(marks)} is no mapping: pass a word for the legend and an array, {{'true': array}}"
        )
    found = {}
    for name, values in marks.items():
        try:
            table = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"marks[{shown(name)}]={shown(values)} holds no numbers: give an array {shape}") from error
        if table.shape != shape:
            raise ValueError(f"marks[{shown(name)}] has shape {table.shape}: give (sets, features), {shape}")
        found[name] = table
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Results by name


def together(
    results: Mapping[str, Any],
    by: str,
    kind: str | None,
    ax: Axes | Sequence[Axes] | None,
    options: Mapping[str, object],
) -> Axes | NDArray[np.object_]:
    """One figure of several results: bars side by side on one scale, or with a scale each; else Axes for each."""
    ones = list(results.values())
    if kind not in (None, "bar") or not _comparable(ones):
        return kinds.side_by_side(results, {} if kind is None else {"kind": kind}, ax, options)
    if by != "loss" and len({(one.compare, one.loss) for one in ones}) == 1:
        return kinds.draw({"bar": _SETS[by]}, "bar", results, ax, options)
    return _check_then_panels(results, ax, options)


def model_bars(
    result: Mapping[str, Compared],
    ax: Axes | None = None,
    level: float = 0.95,
    most: int = 30,
    marks: Marks | None = None,
) -> Axes:
    """A group of bars for each feature, a colour for each model."""
    return grouped(result, ax, level, most, "model", marks)


_SETS: kinds.Kinds = {"given": set_bars, "model": model_bars}


def _comparable(ones: Sequence[Any]) -> bool:
    """Whether all have bars with intervals, of the same features."""
    fields = ("names", "values", "compare", "loss", "base_risk", "n", "method", "interval")
    return all(all(hasattr(one, name) for name in fields) for one in ones) and len({one.names for one in ones}) == 1


def _check_then_panels(results: Mapping[str, Compared], ax: object, options: Mapping[str, Any]) -> NDArray[np.object_]:
    for name in options:
        if name not in ("level", "most"):
            raise TypeError(f"kind='bar' has no option {shown(name)}: it takes level, most")
    return panels(results, ax, **options)


def panels(
    results: Mapping[str, Compared], ax: object = None, level: float = 0.95, most: int = 30
) -> NDArray[np.object_]:
    """Axes for each result, each with a scale of its own; the features are in the same places in all of them."""
    ones = list(results.values())
    nulls = np.asarray([inference.null_value(one.compare) for one in ones])
    table, ends = _tables(results, level)
    # Scales differ, so a feature's size is its share of the largest under the same loss.
    sizes = table - nulls[:, None]
    tops = np.where(np.isfinite(sizes), np.abs(sizes), 0.0).max(axis=1)
    shares = sizes / np.where(tops > 0.0, tops, 1.0)[:, None]
    order = style.largest(np.where(np.isnan(shares), -np.inf, shares).max(axis=0), most)
    labels = [wording.labels(ones[0].names)[k] for k in order]
    if ax is None:
        width = 0.08 * max(map(len, labels)) + 3.4 * len(ones) + 0.6
        places = style.subplots(width, style.height(len(order)), len(ones), share=True)
    else:
        places = kinds.one_for_each(ax, len(ones))
    called = words.told_apart([name or "(nothing)" for name in results])
    rows = np.arange(len(order))
    for k, (place, one) in enumerate(zip(places, ones, strict=True)):
        place = style.feature_axes(place, labels)
        colours = [style.PALE_BLUE if v >= nulls[k] else style.PALE_VERMILLION for v in table[k, order]]
        place.barh(rows, style.stretch(table[k, order], nulls[k]), left=nulls[k], height=0.7, color=colours)
        style.whiskers(place, rows, ends[k, order])
        if ax is None and k:
            place.tick_params(axis="y", labelleft=False)
        caption = wording.caption(
            wording.measured(one),
            wording.whisker_words(level, not np.isnan(ends[k, order]).all()),
            style.hidden_labels(place, len(order)) if k == 0 else "",
        )
        title = wording.title(called[k], len(order), len(one.names))
        what = wording.amount(one.compare, one.loss, getattr(one, "leave", None))
        style.finish(place, xlabel=what, title=title, null=float(nulls[k]), caption=caption)
    return places
