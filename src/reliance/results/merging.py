"""One result of all features, from results of some of them each: of several jobs, or of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from reliance._core.words import listed, shown
from reliance.results.curves import Curve
from reliance.results.importance import Importance
from reliance.results.influence import Influence
from reliance.results.mapping import Results

# What may differ between results of the same measurement: the block was chosen for each by itself.
_OWN = ("block", "curves", "influence")


@overload
def merge(results: Iterable[Importance]) -> Importance: ...
@overload
def merge(results: Iterable[Results[Importance]]) -> Results[Importance]: ...
def merge(results: Iterable[Importance] | Iterable[Results[Importance]]) -> Importance | Results[Importance]:
    """One result of all features, from results of some features each.

    The results must be of the same rows, model, loss and draws: make the calls alike but for ``features=``, and pass
    ``rng=`` with the same seed. A feature that is in two of them, and anything that differs, is an error. Results of
    the same features with other draws are not merged: ask for more draws, or use ``rl.Run(checkpoint=..., part=...)``.

    Parameters
    ----------
    results : iterable of Importance, or of Results
        Their order is that of the features in the answer.

    Returns
    -------
    Importance
        Or `Results`, if the results are those of several losses.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> model = lambda X: X @ np.arange(4.0)
    >>> def job(features):
    ...     return rl.permutation_importance(model, X, model(X), features=features, rng=0)
    >>> both = rl.merge([job([0, 1]), job([2, 3])])
    >>> both.names, bool(np.all(both.values == job(None).values))
    (('x0', 'x1', 'x2', 'x3'), True)
    """
    every: list[Importance | Results[Importance]] = []
    if isinstance(results, Iterable) and not isinstance(results, str | Mapping):
        every.extend(results)
    kinds = {type(one) for one in every}
    if not every or len(kinds) != 1 or not kinds <= {Importance, Results}:
        what = listed(sorted(kind.__name__ for kind in kinds)) if every else shown(results)
        raise TypeError(f"results={what}: pass a list of Importance, or a list of Results of several losses")
    alone = [one for one in every if isinstance(one, Importance)]
    if alone:  # then all of them are
        return _merged(alone)
    several = [one for one in every if isinstance(one, Results)]
    first = several[0]
    for place, one in enumerate(several):
        if list(one) != list(first) or one.by != first.by:
            raise ValueError(
                f"results[{place}] has {listed(one)}, results[0] has {listed(first)}: merge results of the same losses"
            )
    entries = {name: _merged([one[name] for one in several]) for name in first}
    return Results(entries, first.by)


def _merged(every: Sequence[Importance]) -> Importance:
    _check_apart(every)
    columns = {name: [getattr(one, name) for one in every] for name in Importance._kept}
    shared = [name for name, kept in Importance._kept.items() if "p" not in kept.shape and name not in _OWN]
    for name in shared:
        _check_equal(name, columns[name], every[0].plan)
    fields: dict[str, Any] = {name: columns[name][0] for name in shared}
    for name, kept in Importance._kept.items():
        if "p" in kept.shape:
            fields[name] = _beside(name, columns[name], kept.shape.index("p"))
    fields["block"] = max(columns["block"], key=lambda block: block or ())
    influence = _influence(columns["influence"])
    return Importance(**fields, curves=_curves(columns["curves"]), influence=influence)


def _check_apart(every: Sequence[Importance]) -> None:
    seen: dict[str, int] = {}
    for place, one in enumerate(every):
        for name in one.names:
            if name in seen:
                raise ValueError(
                    f"feature {shown(name)} is in results[{seen[name]}] and in results[{place}]: each must be in one "
                    "of them. Draws are not added, because errors need sums that no result holds: ask for more draws, "
                    "or use rl.Run(checkpoint=..., part=...)"
                )
            seen[name] = place


def _check_equal(name: str, values: Sequence[object], plan: str) -> None:
    """Of a field that is not the features': all the same. The key of all pairs draws nothing."""
    if name == "key" and plan.startswith("all pairs"):
        return
    for place, value in enumerate(values):
        if value != values[0] and not (value != value and values[0] != values[0]):
            remedy = "pass the same rng= to all calls" if name == "key" else "merge results of the same rows and draws"
            raise ValueError(
                f"results[0] and results[{place}] differ in {name}, {shown(values[0])} and {shown(value)}: {remedy}"
            )


def _beside(name: str, values: Sequence[Any], axis: int) -> Any:
    """The features of all results, one after the other."""
    if all(value is None for value in values):
        return None
    if isinstance(values[0], tuple):
        return tuple(item for value in values for item in value)
    shapes = {None if value is None else value.shape[:axis] + value.shape[axis + 1 :] for value in values}
    if len(shapes) > 1:
        raise ValueError(f"results differ in {name}: one has what another lacks, or has it for other rows or draws")
    return np.concatenate(values, axis=axis)


def _influence(values: Sequence[Influence | None]) -> Influence | None:
    known = [one for one in values if one is not None]
    if not known:
        return None
    if len(known) < len(values):
        raise ValueError("results differ in influence: one has it, another has none; pass the same keep= to all calls")
    if len({one.origin for one in known}) > 1:
        raise ValueError("results differ in influence: it is of other rows, labels or clusters; make the calls alike")
    fields = {
        name: _beside("influence", [getattr(one, name) for one in known], 0)
        for name, kept in Influence._kept.items()
        if "p" in kept.shape
    }
    return Influence(**fields, origin=known[0].origin)


def _curves(values: Sequence[Mapping[str, Curve] | None]) -> dict[str, Curve] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) < len(values):
        raise ValueError("results differ in curves: one has them, another has none; pass the same keep= to all calls")
    return {name: curve for value in known for name, curve in value.items()}
