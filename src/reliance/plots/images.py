"""Importances of pixels, patches and masks as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reliance import inference
from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance._core.words import listed, shown
from reliance.data.features import column_names
from reliance.plots import style, wording
from reliance.plots.style import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reliance.results.importance import Importance
    from reliance.results.local import LocalImportance


def image(
    result: Importance,
    ax: Axes | None = None,
    shape: Sequence[int] | None = None,
    mask: object = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """The value of each pixel where it is in the picture; blue above no importance, red below, grey if not measured.

    Parameters
    ----------
    result : Importance
        Of pixels, or of the groups of pixels of a mask.
    ax : matplotlib Axes, optional
        Where; a new figure if not given.
    shape : (height, width), optional
        Of the picture, whose pixels are the features.
    mask : integer array (height, width), optional
        Instead of ``shape``: the mask that was passed as ``features``, for patches and other groups of pixels.
    names : sequence of str, optional
        Of the pixels, in the order of rows and columns, if they were measured with ``names=``.
    """
    values = _picture(result.names, result.values, shape, mask, names)
    null = inference.null_value(result.compare)
    what = wording.amount(result.compare, result.loss)
    return _draw(values, ax, null, what, wording.heading(result.method), wording.measured(result), len(result.names))


def local_image(
    result: LocalImportance,
    ax: Axes | None = None,
    row: int | None = None,
    shape: Sequence[int] | None = None,
    mask: object = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """The values of one row as a picture; ``row`` may be left out if there is one only. Else as in `image`."""
    place = result.position(row)
    values = _picture(result.names, result.values[place], shape, mask, names)
    what = wording.of_rows(result.contributes, result.quantity)
    own = wording.own(result.rows[place], result.contributes, result.base[place])
    caption = f"{own}, {result.draws_per_row} draws"
    return _draw(values, ax, 0.0, what, "Local importance", caption, len(result.names))


def _draw(values: Floats, ax: Axes | None, null: float, what: str, title: str, caption: str, features: int) -> Axes:
    height, width = values.shape
    scale = 4.0 / max(height, width)
    ax = style.axes(ax, max(width * scale, 1.6) + 1.6, max(height * scale, 1.6) + 1.0)
    import matplotlib

    limit = style.colour_limit(values, null)
    colours = matplotlib.colormaps[style.DIVERGING].with_extremes(bad=style.LIGHT)
    drawn = ax.imshow(values, cmap=colours, vmin=null - limit, vmax=null + limit, interpolation="nearest")
    bar = ax.figure.colorbar(drawn, ax=ax, fraction=0.05, pad=0.03)
    bar.set_label(wording.text(what))
    bar.outline.set_visible(False)
    unknown = int(np.isnan(values).sum())
    grey = f"grey: {unknown} of {values.size} pixels have no value" if unknown else ""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(wording.text(title), fontsize="medium")
    for spine in ax.spines.values():
        spine.set_color(style.LIGHT)
    several = f"{features} features" if features < values.size else ""
    style.put_caption(ax, wording.caption(caption, several, grey))
    return ax


# ---------------------------------------------------------------------------------------------------------------------
# Where features are


def _picture(
    names: tuple[str, ...], values: Floats, shape: object, mask: object, pixels: Sequence[str] | None
) -> Floats:
    """The values where they are, (height, width); by name, because a result may be ranked or of some pixels only."""
    if (shape is None) == (mask is None):
        raise ValueError(
            "kind='image' needs to know where features are: pass shape=(height, width) for pixels, or mask=, the "
            "integer mask that was measured as features=; one of the two"
        )
    if mask is not None:
        return _of_mask(names, values, mask, pixels)
    size = _checked_shape(shape)
    found = dict(zip(names, values, strict=True))
    if pixels is None:
        flat, grid = column_names(None, (size[0] * size[1],)), column_names(None, size)
        known = next((known for known in (grid, flat) if set(known) & set(names)), flat)
    else:
        known = column_names(pixels, size)
    strange = [name for name in names if name not in set(known)]
    if strange:
        remedy = "pass names=, those of all pixels" if pixels is None else "pass the names that were measured"
        raise ValueError(
            f"shape={shown(tuple(size))} has no pixels {listed(strange, 3)}: give the shape of the whole picture; for "
            f"pixels with names {remedy}; for groups pass mask="
        )
    return np.asarray([found.get(name, np.nan) for name in known], dtype=np.float64).reshape(size)


def _checked_shape(shape: Any) -> tuple[int, int]:
    """Height and width; a single channel, first or last, is left out."""
    whole = isinstance(shape, tuple | list) and all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0 for size in shape
    )
    sizes = [int(size) for size in shape] if whole else []
    if len(sizes) == 3 and 1 in (sizes[0], sizes[2]):
        del sizes[0 if sizes[0] == 1 else 2]
    if len(sizes) != 2:
        raise ValueError(
            f"shape={shown(shape)} is no picture: give two positive integers, (height, width); for several channels "
            "measure groups of pixels with an integer mask, and pass mask="
        )
    return sizes[0], sizes[1]


def _of_mask(names: tuple[str, ...], values: Floats, mask: object, pixels: Sequence[str] | None) -> Floats:
    if pixels is not None:
        raise ValueError("names= are of pixels, and mask= has groups of them: leave one out")
    if not arrays.is_array(mask) and not isinstance(mask, list | tuple):
        raise TypeError(f"mask={shown(mask)} is not an array: pass the integer mask that was measured as features=")
    host: HostArray = arrays.to_host(mask) if arrays.is_array(mask) else np.asarray(mask)
    if host.ndim == 3 and 1 in (host.shape[0], host.shape[2]):
        host = host[0] if host.shape[0] == 1 else host[:, :, 0]
    elif host.ndim == 3:
        # Channels that share their groups are one picture.
        channel = 0 if (host == host[:1]).all() else 2 if (host == host[:, :, :1]).all() else None
        host = host if channel is None else np.take(host, 0, axis=channel)
    if host.ndim != 2 or host.dtype.kind not in "iu":
        raise ValueError(
            f"mask has shape {host.shape} and dtype {host.dtype}: give integers (height, width), one for each group"
        )
    found = dict(zip(names, values, strict=True))
    groups = {str(k) for k in np.unique(host) if k >= 0}
    if not set(names) <= groups:
        strange = [name for name in names if name not in groups]
        raise ValueError(
            f"mask has no group {listed(strange, 3)}, which the result has: pass the mask that was measured"
        )
    return np.asarray([found.get(str(k), np.nan) for k in host.reshape(-1)], dtype=np.float64).reshape(host.shape)
