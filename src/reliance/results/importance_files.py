"""An importance, with the curves of its features, in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from reliance.results import files
from reliance.results.curves import Curve

_OTHER_ERRORS = ("monte_carlo_share", "fixed_data_error", "random_variable_error", "row_error")
ERRORS = ("std_error", "skewness", "degrees_of_freedom", *_OTHER_ERRORS)
_CURVE = ("values", "mean", "ice")
_KEPT = {
    "names": files.names("p"),
    "values": files.floats("p"),
    "compare": files.text("difference", "ratio", "share"),
    "base_risk": files.Kept("number"),
    "replaced_risk": files.floats("p"),
    "draws": files.floats("p", "K", optional=True),
    "row_values": files.floats("p", "n", optional=True),
    "n": files.Kept("count"),
    "evaluations": files.counts("p"),
    "routes": files.names("p"),
    "block": files.Kept("sizes", optional=True),
    "key": files.Kept("key"),
    **{name: files.text() for name in ("method", "loss", "plan_kind")},
    "draws_per_row": files.Kept("count"),
    **{name: files.floats("p") for name in ERRORS if name != "degrees_of_freedom"},
}
# With numbered arrays, one a feature: names may hold any sign.
_SOMETIMES = {
    "curves": files.Kept("flag"),
    "stopped": files.text(),
    "degrees_of_freedom": files.floats("p"),
    "tree_values": files.floats("p", "B", optional=True),
    **{f"curve_*_{part}": files.floats(optional=part == "ice") for part in _CURVE},
    "curve_*_labels": files.names(),
}
DTYPES = files.dtypes({**_KEPT, **_SOMETIMES})


def write(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of an `Importance`."""
    curves: Mapping[str, Curve] = fields["curves"] or {}
    arrays = {f"curve_{k}_{part}": getattr(c, part) for k, c in enumerate(curves.values()) for part in _CURVE}
    arrays |= {f"curve_{k}_labels": c.labels for k, c in enumerate(curves.values()) if c.labels is not None}
    # Readers of JSON in other languages keep integers to 53 bits only: the key is written as text.
    files.write(path, "Importance", {**fields, "curves": bool(curves), "key": str(fields["key"]), **arrays})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of an `Importance`, checked."""
    found = files.read(path, "Importance", _KEPT, _SOMETIMES)
    names = found["names"] if found.pop("curves", False) else ()
    numbered = {name: found.pop(name) for name in list(found) if name.startswith("curve_")}
    try:
        parts = [{part: numbered.pop(f"curve_{k}_{part}") for part in _CURVE} for k in range(len(names))]
    except KeyError as error:
        files.refuse(path, f"it lacks {error}", error)
    for k, part in enumerate(parts):
        part["labels"] = numbered.pop(f"curve_{k}_labels", None)
    if numbered or not all(_whole(found["n"], **part) for part in parts):
        files.refuse(path, "its curves do not fit its features")
    curves = {name: Curve(**part) for name, part in zip(names, parts, strict=True)}
    return {**found, "curves": curves or None}


def _whole(n: int, values: Any, mean: Any, ice: Any, labels: Any) -> bool:
    fits = values.ndim in (1, 2) and mean.shape[:1] == values.shape[:1]
    fits = fits and (labels is None or len(labels) == len(values))
    return fits and (ice is None or ice.shape == (n, *mean.shape))
