"""What the influences of units tell about several estimates: together, in their order, and one against another."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core.words import listed, shown
from reliance.inference import together
from reliance.results import judging
from reliance.results.influence import Influence

if TYPE_CHECKING:
    from reliance.results.importance import Importance

Floats = NDArray[np.float64]
_MOST_NAMED = 50
_KEEP = "needs how far each row moves each estimate: measure with keep='influence'"


def single_level(result: Importance, level: float) -> float:
    """The level at which each of a result's intervals has to be taken so that all hold together."""
    _, z = known_columns(result, "interval(simultaneous=True)")
    return together.single_level(z, level, result.key)


def known_columns(result: Importance, what: str) -> tuple[NDArray[np.bool_], Floats]:
    """Which features have an error, ``(p,)``, and how units move these: see `inference.together`."""
    judging.check_error(result, what, result.std_error)
    if result.influence is None:
        raise ValueError(f"{what} {_KEEP}")
    known = np.isfinite(result.std_error) & np.isfinite(result.values)
    return known, result.influence.columns()[known]


def rank_sets(result: Importance, level: float) -> together.Ranked:
    """Of all features; one without an error may have any rank, and leaves the others one place more."""
    inference.check_level(level)
    known, z = known_columns(result, "ranks()")
    p, places = len(result.names), np.flatnonzero(known)
    some = together.rank_sets(result.values[known], z, result.degrees_of_freedom[known], level, result.key)
    first, last, above = np.ones(p, dtype=np.int64), np.full(p, p), np.zeros((p, p), dtype=np.bool_)
    first[places], last[places] = some.first, some.last + (p - len(places))
    above[np.ix_(places, places)] = some.above
    return together.Ranked(first, last, above)


def alike(result: Importance, level: float = 0.95) -> list[str]:
    """Neighbours in the order of the values that cannot be told apart, in words: "age and bmi".

    For tables: none if the influences were not kept, if there is no error, or if there are too many features to say.
    """
    if result.influence is None or not 1 < len(result.names) <= _MOST_NAMED or np.isnan(result.std_error).all():
        return []
    above = rank_sets(result, level).above
    order = np.argsort(-result.values, kind="stable")
    names = result.names
    return [f"{names[j]} and {names[k]}" for j, k in itertools.pairwise(order) if not above[j, k]]


# ---------------------------------------------------------------------------------------------------------------------
# Differences


class Paired(NamedTuple):
    """Standard errors, skewness and degrees of freedom of p differences."""

    std_error: Floats
    skewness: Floats
    degrees_of_freedom: Floats


def paired(one: Influence, other: Influence, least: Floats) -> Paired | None:
    """Of differences, row by row; None if the two errors are of different kinds. ``least``: degrees of freedom at most.

    Where a sampler was fitted on rows of its own, these have a variance and degrees of freedom of their own.
    """
    if one.replicates is not None and other.replicates is not None:
        units = (1.0 - one.units) * (one.replicates - other.replicates)
        trained = [part.training_replicates for part in (one, other)]
        freedoms: list[Floats | None] = []
    elif one.rows is not None and other.rows is not None:
        units = one.rows - other.rows
        trained, freedoms = [part.training for part in (one, other)], [one.training_freedom, other.training_freedom]
    else:
        return None
    fits = [part for part in trained if part is not None]  # where nothing was given, nothing was fitted
    if not fits:
        error, gamma = together.errors(together.columns([units]))
        # The skewness of few groups is too uncertain to be of use.
        gamma = gamma if one.rows is not None else np.zeros(len(error))
        return Paired(error, gamma, np.minimum(units.shape[1] - 1.0, least))
    training = fits[0] if len(fits) == 1 else fits[0] - fits[1]
    left = np.fmin.reduce([np.full(len(units), training.shape[1] - 1.0), *(f for f in freedoms if f is not None)])
    if one.replicates is not None:
        training = (1.0 - training.shape[1]) * training
    variances = [together.errors(together.columns([part]))[0] ** 2 for part in (units, training)]
    error, gamma = together.errors(together.columns([units, training]))
    df = inference.satterthwaite(variances, [units.shape[1] - 1.0, left])
    return Paired(error, gamma if one.rows is not None else np.zeros(len(error)), df)


def check_comparable(a: Importance, b: Importance) -> None:
    """Two results whose difference means something: of the same features, scale and rows."""
    if a.influence is None or b.influence is None:
        raise ValueError(f"a - b of two results {_KEEP}")
    if set(a.names) != set(b.names):
        differ = sorted(set(a.names) ^ set(b.names))
        raise ValueError(f"a - b: only one of the two has {listed(differ, 3)}. Measure both with the same features")
    if a.compare != b.compare:
        raise ValueError(f"a - b: one is a {a.compare}, the other a {b.compare}. Measure both with the same compare=")
    if a.loss != b.loss and a.compare != "ratio":
        raise ValueError(
            f"a - b: losses {shown(a.loss)} and {shown(b.loss)} have different units. Measure both with "
            "compare='ratio', which has none"
        )
    own, other = a.influence.origin, b.influence.origin
    if a.n != b.n or not any(mark and mark == same for mark, same in zip(own[:2], other[:2], strict=True)):
        raise ValueError(
            "a - b pairs the rows of two results, and these come from different rows. Measure both on the same X and "
            "y. Estimates of different rows are independent: rl.compare_splits has the differences of those"
        )
    if own[2] != other[2]:
        raise ValueError(
            f"a - b: one rests on {own[2][:60]}, the other on {other[2][:60]}. Measure both with the same clusters=, "
            "replace=, pairs= and rng="
        )


def difference(a: Importance, b: Importance) -> tuple[Floats, Paired]:
    """The values of a less those of b, in the order of a, and their errors."""
    check_comparable(a, b)
    place = {name: k for k, name in enumerate(b.names)}
    b = b._taken(np.asarray([place[name] for name in a.names], dtype=np.intp))
    assert a.influence is not None
    assert b.influence is not None
    found = paired(a.influence, b.influence, np.minimum(a.degrees_of_freedom, b.degrees_of_freedom))
    if found is None:
        raise ValueError(
            "a - b: the error of one comes from refitting a sampler, that of the other does not, and the two cannot be "
            "paired. Use the same sampler for both"
        )
    unknown = np.isnan(a.std_error) | np.isnan(b.std_error)
    return a.values - b.values, found._replace(std_error=np.where(unknown, math.nan, found.std_error))
