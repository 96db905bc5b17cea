"""The values of features in the rows that were measured: results do not hold X, so figures are given it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import HostArray
from reliance._core.words import listed, short, shown
from reliance.data import checked_arrays, tables
from reliance.data.features import column_names
from reliance.plots.style import Floats


@dataclass(frozen=True, eq=False)
class Columns:
    """X as figures need it: columns by name.

    Attributes
    ----------
    array : array (n, P)
        Numbers; of a table, codes where a column has no numbers.
    places : dict from names to columns
    coded : dict from columns to the texts of their codes
    """

    array: HostArray
    places: dict[str, int]
    coded: dict[int, tuple[str, ...]]

    def numbers(self, name: str) -> Floats | None:
        """The column of a feature; None for groups of columns and for text, which have no order."""
        place = self.places.get(name)
        return None if place is None or place in self.coded else self.array[:, place].astype(np.float64)

    def word(self, name: str, row: int) -> str | None:
        """What a feature's value in a row is; None for groups of columns."""
        place = self.places.get(name)
        if place is None:
            return None
        value = float(self.array[row, place])
        if place in self.coded:
            return short(self.coded[place][int(value)], 20)
        return "missing" if np.isnan(value) else f"{value:.4g}"


def read(X: object, names: Sequence[str] | None, features: Sequence[str], n: int) -> Columns:
    """Find the columns of features by name, in the X that they were measured on.

    By name and not by place, because a result may be ranked, or be of a few columns only.

    Parameters
    ----------
    X : array (n, ...) or table
    names : sequence of str, optional
        Of the columns, as they were given to the method; not for tables, which have names, nor where none were given.
    features : sequence of str
        The features of the result.
    n : int
        Its rows.
    """
    coded: dict[int, tuple[str, ...]] = {}
    if tables.is_table(X):
        if names is not None:
            raise ValueError("names= is for arrays: the columns of a table have names")
        table = tables.read(X, "X")
        array, known = np.asarray(table.array), table.names
        coded = {j: table.texts(j) for j in table.coded}
    else:
        whole = arrays.to_host(checked_arrays.as_array(X, "X"))
        if whole.ndim < 2:
            raise ValueError(f"X has shape {whole.shape}: pass the rows that were measured, (n, features)")
        array, known = whole.reshape(len(whole), -1), column_names(names, whole.shape[1:])
    if len(array) != n:
        raise ValueError(f"X has {len(array)} rows and the result {n}: pass the rows that were measured")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"X has dtype {array.dtype}: pass an array of numbers, or a table")
    places = {name: place for place, name in enumerate(known)}
    if not any(name in places for name in features):
        remedy = "pass names=, those that X's columns were measured with" if names is None else "pass the same names"
        raise ValueError(f"X has columns {listed(known, 3)} and the result {listed(features, 3)}: {remedy}")
    return Columns(array, places, coded)


def check_no_names(X: object, names: object) -> None:
    """Names of no columns are a mistake."""
    if X is None and names is not None:
        raise ValueError(f"names={shown(names)} are those of X's columns: pass X= too, or leave them out")
