"""Figures of results, with matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from reliance import export, inference
from reliance.results import Importance

# Blue and vermillion of Okabe and Ito's palette, which readers with any colour vision can tell apart.
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#595959"


def _axes(ax: Any, width: float, height: float) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed: pip install matplotlib") from error
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def bars(result: Importance, ax: Any = None, level: float = 0.95, most: int = 30) -> Any:
    """Horizontal bars, most important on top, with population intervals as whiskers.

    Parameters
    ----------
    result : Importance
        What to draw.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    level : float
        Confidence level of the whiskers. Where a result has no population interval there are none.
    most : int
        How many features at most; the largest are drawn and the axis says how many there are.

    Returns
    -------
    matplotlib Axes
    """
    if most < 1:
        raise ValueError(f"most={most} leaves nothing to draw: give 1 or more")
    ranked = result.ranked()
    shown = min(most, len(ranked.names))
    values, null = ranked.values[:shown], inference.null_value(result.compare)
    ax = _axes(ax, 7.0, 1.2 + 0.28 * shown)
    places = np.arange(shown)
    # A bar below the reference line is a feature the model does better without.
    colours = [BLUE if value >= null else VERMILLION for value in values]
    ax.barh(places, values - null, left=null, height=0.7, color=colours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # interval() says it when asked; a figure repeats nothing
        try:
            lower, upper = ranked.interval(level)[:shown].T
        except ValueError:
            inference.t_quantile(level, 1)  # a wrong level is still an error
        else:
            ends = np.nan_to_num(np.maximum(np.stack([values - lower, upper - values]), 0.0), posinf=0.0)
            ax.errorbar(values, places, xerr=ends, fmt="none", ecolor="black", elinewidth=1.2, capsize=2.5)
    ax.axvline(null, color=GREY, linewidth=1.0)
    # Dollar signs in names are not mathematics.
    ax.set_yticks(places, [export.short(name).replace("$", r"\$") for name in ranked.names[:shown]])
    ax.set_ylim(shown - 0.4, -0.6)
    what = {"difference": "increase", "ratio": "ratio", "share": "share"}[result.compare]
    ax.set_xlabel(f"{what} of {result.loss}".replace("$", r"\$"))
    rest = f", {shown} largest of {len(ranked.names)}" if shown < len(ranked.names) else ""
    ax.set_title(f"{result.method}{rest}", fontsize="medium")
    ax.grid(axis="x", linewidth=0.5, alpha=0.4)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
