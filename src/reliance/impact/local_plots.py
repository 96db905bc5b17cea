"""Figures of local importance, with matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from reliance import export, plots
from reliance.impact.local_results import LocalImportance


def heat(result: LocalImportance, ax: Any = None, most: int = 30, rows: int = 200) -> Any:
    """Rows down, features across, most important first; blue to red through white at 0, safe for all colour vision.

    Parameters
    ----------
    most, rows : int
        How many features and rows at most; the title says how many there are.
    """
    if most < 1 or rows < 1:
        raise ValueError(f"most={most}, rows={rows} leave nothing to draw: give 1 or more")
    order = np.argsort(-np.mean(np.abs(result.values), axis=0), kind="stable")[:most]
    values = result.values[:rows][:, order]
    m, p = values.shape
    ax = plots._axes(ax, 2.5 + 0.35 * p, 2.0 + min(0.22 * m, 9.0))
    limit = float(np.max(np.abs(values))) or 1.0
    image = ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    names = [_label(export.short(result.names[j], 30)) for j in order]
    ax.set_xticks(range(p), names, rotation=45, ha="right", rotation_mode="anchor")
    step = max(1, m // 25)
    ax.set_yticks(range(0, m, step), [str(row) for row in result.rows[:m:step]])
    ax.set_ylabel("row")
    ax.figure.colorbar(image, ax=ax, label=_label(_quantity(result)))
    ax.set_title(_title(result, m, p), fontsize="medium")
    return ax


def waterfall(result: LocalImportance, ax: Any = None, row: int | None = None, most: int = 12) -> Any:
    """The values of one row, the largest on top, each beginning where the one above ends.

    Parameters
    ----------
    row : int
        A row of X; may be left out if there is one only.
    most : int
        How many features at most; the smallest others are one bar.
    """
    if row is None:
        if len(result.rows) > 1:
            raise ValueError(f"a waterfall is of one row and the result has {len(result.rows)}: pass row=")
        row = int(result.rows[0])
    if most < 1:
        raise ValueError(f"most={most} leaves nothing to draw: give 1 or more")
    values = result.values[result.position(row)]
    order = np.argsort(-np.abs(values), kind="stable")
    names = [export.short(result.names[j]) for j in order[:most]]
    bars = values[order[:most]]
    if len(order) > most:
        names.append(f"{len(order) - most} others")
        bars = np.append(bars, values[order[most:]].sum())
    starts = np.concatenate([[0.0], np.cumsum(bars)[:-1]])
    ax = plots._axes(ax, 7.0, 1.4 + 0.32 * len(bars))
    places = np.arange(len(bars))
    colours = [plots.BLUE if bar >= 0.0 else plots.VERMILLION for bar in bars]
    ax.barh(places, bars, left=starts, height=0.7, color=colours)
    for place, start, bar in zip(places[:-1], starts[:-1], bars[:-1], strict=True):
        ax.plot([start + bar, start + bar], [place - 0.35, place + 1.35], color=plots.GREY, linewidth=0.8)
    for place, start, bar in zip(places, starts, bars, strict=True):
        end = (max(start, start + bar), place)
        ax.annotate(f"{bar:+.3g}", end, xytext=(3, 0), textcoords="offset points", va="center")
    ax.margins(x=0.15)
    ax.axvline(0.0, color=plots.GREY, linewidth=1.0)
    ax.set_yticks(places, [_label(name) for name in names])
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.set_xlabel(_label(_quantity(result)))
    ax.set_title(f"row {row}: {result.quantity} {result.base[result.position(row)]:.4g}", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _label(text: str) -> str:
    return text.replace("$", r"\$")  # dollar signs in names are not mathematics


def _quantity(result: LocalImportance) -> str:
    return "contribution to the prediction" if result.quantity == "prediction" else f"change of {result.quantity}"


def _title(result: LocalImportance, m: int, p: int) -> str:
    all_m, all_p = result.values.shape
    return "local_importance" if (m, p) == (all_m, all_p) else f"{m} of {all_m} rows, {p} of {all_p} features"
