"""What replaces a feature: ``replace="mean"``, values, a function of the rows, or ``replace=rl.Donors(...)``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from reliance import plans
from reliance._core import arrays
from reliance._core.checks import check_draws, warn
from reliance._core.kinds import HostArray
from reliance._core.progress import Progress
from reliance._core.run import Run
from reliance._core.streams import Indices
from reliance._core.words import listed, shown
from reliance.data.checked_arrays import as_array
from reliance.data.passed import DataLike
from reliance.engine import lenders
from reliance.engine.kernels import Block
from reliance.engine.problems import Problem
from reliance.methods.adaptive import Until, measure_in_time, measure_until
from reliance.methods.drawing import Draws
from reliance.plans import Groups, Plan
from reliance.results.importance import Importance
from reliance.results.mapping import Results


@dataclass(frozen=True, eq=False)
class Donors:
    """Which rows a feature may be borrowed from: ``replace=rl.Donors(X_background, within=labels)``.

    Parameters
    ----------
    X : array (m, ...), table, or tuple or dict of arrays, optional
        Other rows to borrow from, of the same kind as the measured ones: a reference population, training images for
        the explanation of new ones. None: the measured rows borrow from each other.
    within : array (n,), optional
        A label of each measured row (its class, domain or length): it borrows only from rows of the same label.
    labels : array (m,), optional
        With ``X`` and ``within``: the labels of the rows of ``X``.

    Notes
    -----
    Intervals are over new data. Donors that are other rows are a second sample, and intervals include that it might
    have been another one: take enough of them. Within labels the target is the mean, over rows, of the change when a
    row borrows from any row of its label.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> season = rng.integers(0, 2, size=400)
    >>> X = np.column_stack([season + 0.1 * rng.normal(size=400), rng.normal(size=400)])
    >>> model = lambda X: X[:, 0]
    >>> anywhere = rl.permutation_importance(model, X, X[:, 0], rng=0)
    >>> in_season = rl.permutation_importance(model, X, X[:, 0], replace=rl.Donors(within=season), rng=0)
    >>> bool(in_season.values[0] < 0.1 * anywhere.values[0])
    True
    """

    X: DataLike | None = None
    within: DataLike | None = None
    labels: DataLike | None = None

    def __post_init__(self) -> None:
        if self.X is None and self.within is None:
            raise ValueError("rl.Donors() names no donors: pass X, other rows to borrow from, or within=, their labels")
        if (self.labels is None) == (self.X is not None and self.within is not None):
            raise ValueError(
                "labels= are those of the rows of X in rl.Donors(X, within=..., labels=...): pass all three, or leave "
                "labels out"
            )


ReplaceLike: TypeAlias = str | float | DataLike | Callable[..., object] | Donors | None


@dataclass(frozen=True, eq=False)
class Replacement:
    """A problem whose features are replaced in another way than by exchange between all rows.

    Attributes
    ----------
    problem : Problem
        With a store that knows the lenders.
    plan : callable
        ``(draws, independent) -> Plan``.
    most : int or None
        How many draws are all there is: 1 if nothing is drawn, m if each of m lenders lends to every row.
    words : str
        What it is, so that results of two replacements can be told apart.
    """

    problem: Problem
    plan: Callable[[int, bool], Plan]
    most: int | None
    words: str

    @property
    def drawn(self) -> bool:
        return self.most != 1


def replacement(problem: Problem, model: object, X: object, replacing: ReplaceLike, run: Run | None) -> Replacement:
    """What the user asks for, checked."""
    if not (isinstance(replacing, Donors) and replacing.X is None):
        problem = lenders.at_hand(problem, "replace=")
    if isinstance(replacing, Donors):
        return _of_donors(problem, model, X, replacing, run)
    if isinstance(replacing, str) and replacing == "noise":
        return _lent(problem, lenders.noise(problem), None, None, "noise")
    if isinstance(replacing, str):
        made = {"mean": lenders.means, "zero": lenders.zeros}.get(replacing)
        if made is None:
            raise ValueError(
                f"replace={shown(replacing)} is not known: use 'mean', 'zero', 'noise', values, a function of the "
                "rows, or rl.Donors(...)"
            )
        return _written(problem, made(problem), replacing)
    if callable(replacing) and not arrays.is_array(replacing):
        return _written(problem, lenders.of_function(problem, replacing))
    return _written(problem, lenders.given(problem, replacing))


def _written(problem: Problem, values: Block, words: str = "") -> Replacement:
    lines, n, words = int(arrays.first(values).shape[0]), problem.n, words or f"values {_digest(values)}"
    found = replace(problem, store=problem.store.borrowing(values))
    return Replacement(found, lambda draws, independent: plans.Written(n, lines), 1, words)


# ---------------------------------------------------------------------------------------------------------------------
# Donors


def _of_donors(problem: Problem, model: object, X: object, donors: Donors, run: Run | None) -> Replacement:
    within = None if donors.within is None else _labels(donors.within, problem.n, "within")
    if donors.X is not None:
        return _lent(problem, lenders.of_rows(problem, model, donors.X, X, run), within, donors.labels)
    assert within is not None  # one of the two is there
    _, of_row = np.unique(within, return_inverse=True)
    groups, n, key = Groups(of_row, of_row), problem.n, problem.key
    alone = np.flatnonzero(groups.sizes[of_row] == 1)
    if alone.size:
        warn(
            f"within: {alone.size} rows are the only ones of their label and keep their own value, which makes the "
            f"importance smaller: rows {listed(alone.tolist())}. Join small groups"
        )
    words = f"rows of the same label {_digest(of_row)}"
    return Replacement(
        problem, lambda draws, independent: plans.Within(n, draws, key, groups, independent), None, words
    )


def _lent(problem: Problem, rows: Block, within: HostArray | None, labels: object, words: str = "") -> Replacement:
    n, key, m = problem.n, problem.key, int(arrays.first(rows).shape[0])
    if problem.rows.clusters is not None:
        raise ValueError(
            "clusters= are those of the measured rows, and other rows lend to them, whose clusters are not known: "
            "leave clusters out, or borrow from the measured rows"
        )
    groups = Groups(np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64))
    if within is not None:
        groups = _matched(within, _labels(labels, m, "labels"))
    found = replace(problem, store=problem.store.borrowing(rows))
    most = m if within is None else None
    words = words or f"other rows {_digest(rows, groups.of_row, groups.of_lender)}"
    return Replacement(found, lambda draws, independent: plans.Lent(n, draws, key, groups, independent), most, words)


def _digest(*blocks: Block) -> str:
    """Of all values, so short that it can be read."""
    found = hashlib.sha256()
    for block in blocks:
        for part in block if isinstance(block, tuple) else (block,):
            host = np.ascontiguousarray(arrays.to_host(part))
            found.update(f"{host.shape} {host.dtype}".encode() + host.tobytes())
    return found.hexdigest()[:12]


def _matched(within: HostArray, labels: HostArray) -> Groups:
    values, numbers = np.unique(np.concatenate([within, labels]), return_inverse=True)
    of_row, of_lender = numbers[: len(within)], numbers[len(within) :]
    missing = np.setdiff1d(of_row, of_lender)
    if missing.size:
        label = shown(values[missing[0]])
        raise ValueError(f"labels: no row of rl.Donors(X) has the label {label} of within: add some")
    return Groups(of_row, of_lender)


def _labels(labels: object, rows: int, name: str) -> HostArray:
    """``(rows,)`` on the host: numbers or text."""
    found = np.asarray(labels) if isinstance(labels, list | tuple) else labels
    host: Indices = np.asarray(found) if isinstance(found, np.ndarray) else arrays.to_host(as_array(labels, name))
    if host.shape != (rows,):
        raise ValueError(f"{name} has shape {host.shape}: pass one label for each of the {rows} rows, ({rows},)")
    if host.dtype.kind == "f" and np.isnan(host).any():
        raise ValueError(f"{name} holds NaN: give every row a label")
    return host


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def measure_replaced(
    found: Replacement,
    draws: object,
    usual: int,
    compare: str,
    method: str,
    progress: Progress,
    independent: bool = False,
) -> Importance | Results[Importance]:
    """The importances of a replacement; ``usual``: the number of draws that nobody asked for."""
    if isinstance(draws, Until) and found.drawn:
        if draws.design is not None:
            raise ValueError(f"design={shown(draws.design)} is for the rows themselves: leave it out with replace=")
        result = measure_until(
            found.problem, lambda count: found.plan(count, independent), draws, compare, method, progress
        )
    else:
        plan = found.plan(number_of_draws(found, draws, usual, independent), independent)
        result = measure_in_time(found.problem, plan, compare, method, progress)
    if isinstance(result, Importance):
        return replace(result, replaced_by=found.words)
    return Results({name: replace(one, replaced_by=found.words) for name, one in result.items()}, result.by)


def number_of_draws(found: Replacement, draws: object, usual: object, independent: bool = False) -> int:
    """How many draws there are, as asked for or as there are at most."""
    if not found.drawn:
        if draws is not usual and draws != usual and draws != 1:
            raise ValueError(f"draws={shown(draws)}: these values of replace= are written once; leave draws out")
        return 1
    if isinstance(draws, str) and draws == "all":
        if found.most is None:
            raise ValueError("draws='all' is not for donors within labels: pass a number of draws, such as draws=16")
        return found.most
    if isinstance(draws, Draws) or plans.protocol.is_plan(draws):
        raise TypeError(f"draws={shown(draws)}: with replace= pass a number of draws, whose donors are chosen by it")
    count = check_draws(draws)
    if found.most is None or independent or count <= found.most:
        return count
    if draws != usual:
        warn(f"draws={shown(draws)} is more than the {found.most} donors there are: each lends once, which is all")
    return found.most
