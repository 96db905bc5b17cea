"""Which rows, and which units of them, an estimate comes from: only results of the same ones can be paired."""

from __future__ import annotations

import hashlib

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array, HostArray
from reliance.engine.input_stores import InputStore
from reliance.engine.problems import Problem
from reliance.engine.stores import Lent
from reliance.plans import Plan


def origin(problem: Problem, plan: Plan, refitted: bool = False) -> tuple[str, ...]:
    """``(X, y, units)``: marks of the rows and of the labels, "" where they mark nothing, and what counts as one.

    Rows are known again by either of the two, as another model may take other columns of the same rows.
    """
    rows = problem.rows
    # Rows of several inputs stand for themselves by their numbers, and labels that are all the same for any rows.
    strips = [rows.flat] if rows.streamed is None else (strip for _, strip in rows.streamed.strips())
    own = "" if rows.inputs is not None else _mark(*map(arrays.to_host, strips))
    labels = None if rows.y is None else arrays.to_host(rows.y)
    known = "" if labels is None or np.all(labels == labels[:1]) else _mark(labels)
    return own, known, _units(problem, plan, refitted)


def _units(problem: Problem, plan: Plan, refitted: bool) -> str:
    clusters = problem.rows.clusters
    of = "rows" if clusters is None else f"clusters {_mark(clusters.codes)}"
    if refitted:  # groups of rows are drawn
        return f"groups of {of}, key {problem.key}"
    if plan.lends and not plan.among_rows:
        return f"{of} and other rows {_mark(*map(arrays.to_host, _lenders(problem)))}"
    return of if plan.units == plan.n else f"pairs of {of}, key {problem.key}"


def _lenders(problem: Problem) -> list[Array]:
    """Rows that lend and are not measured: they are units, too, and others as many are not the same ones."""
    store = problem.store
    stores = store.stores if isinstance(store, InputStore) else (store,)
    return [one.lenders for one in stores if isinstance(one, Lent)]


def _mark(*parts: HostArray) -> str:
    """The same for the same numbers, whichever type holds them, and however many parts they come in."""
    found = hashlib.blake2b(digest_size=8)
    for values in parts:
        numbers = values.astype(np.float64) if values.dtype.kind in "biuf" else values
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()
