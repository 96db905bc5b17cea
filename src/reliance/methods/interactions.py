"""How far two features' joint importance is from the sum of their own: importances do not add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plans
from reliance._core import arrays
from reliance._core.checks import check_choice, check_draws
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import listed, shown
from reliance.data.clusters import ClustersLike
from reliance.data.features import Feature
from reliance.data.passed import ColumnLike, DataLike, FeaturesLike, LossLike, ModelLike
from reliance.engine.evaluation import evaluating
from reliance.engine.problems import Problem, prepare
from reliance.engine.reductions import Moments
from reliance.engine.rounding import ROUNDING
from reliance.exact import routes
from reliance.inference import freedom, identified, variance
from reliance.inference.clusters import clustered
from reliance.inference.freedom import Support
from reliance.losses.functions import has_rows
from reliance.methods.lending import check_anywhere
from reliance.methods.measuring import base_risks, reliance_plan, whole_draws
from reliance.plans import Plan, variances
from reliance.results.interactions import Interactions

Floats = NDArray[np.float64]


@public
def interaction_importance(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    between: Sequence[tuple[ColumnLike, ColumnLike]] | None = None,
    draws: int | str = 20,
    loss: LossLike | None = None,
    route: str = "auto",
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> Interactions:
    r"""Importance of two features together, less that of each: whether they need or can replace each other.

    .. math:: I(jk) - I(j) - I(k), \qquad I(g) = \text{risk with the features } g \text{ of other rows} - \text{risk}

    Below 0 the two need each other: what they do together is lost, and counted, with each of them alone. Above 0 each
    can replace the other. Where the model adds up their effects and the features are independent it is 0. One run
    of the engine, with the same donors, measures all features and pairs, so the interval is that of the paired
    difference.

    Parameters
    ----------
    features : optional
        Of which features pairs are made: None for each column; a list of indices, names or tuples of them as groups; a
        mapping from names to columns.
    between : list of pairs of features, optional
        Pairs of names, or of column indices. None: every pair of the features.
    draws : int or "all"
        How many donors each row borrows from, at least 3, by shifts of one random ordering; or all n(n-1) pairs.
    loss : str, callable or Metric, optional
        One loss, by default the one that fits the model: log loss for a classifier with probabilities, zero-one for one
        without, squared error for a regressor or a function of numbers. Names and functions are those of
        `permutation_importance`.

    Returns
    -------
    Interactions

    References
    ----------
    Molnar, C. Interpretable machine learning, section 7.5.4: importances do not add up to the total drop in
    performance.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2]
    >>> result = rl.interaction_importance(lambda X: X[:, 0] * X[:, 1] + X[:, 2], X, y, rng=0)
    >>> result.names, [bool(p < 0.01) for p in result.test().p_adjusted]
    (('x0 × x1', 'x0 × x2', 'x1 × x2'), [True, False, False])
    """
    if isinstance(loss, list | tuple):
        raise ValueError(f"loss is a list of {len(loss)}: measure interactions under one loss at a time")
    check_choice(route, routes.names(), "route")
    problem = prepare(model, X, y, features, loss, weights, rng, run, names, clusters=clusters)
    check_anywhere(problem.rows, "interaction_importance, whose shifts are shared by all features,")
    chosen = _chosen_pairs(between, problem)
    plan = _plan(problem, draws)
    singles = tuple({feature.columns: feature for pair in chosen for feature in pair}.values())
    joint = _joint(chosen, singles)
    problem, alone = problem.of_features((*singles, *joint)), problem.of_features(singles)
    with evaluating(problem, progress) as evaluation:
        risk = base_risks(evaluation, "difference")[0]
        done = routes.measure(evaluation, plan, route)
    moments = {f.name: done.answer(f).moments(f)[0] for f in problem.features}
    known, unit = has_rows(problem.losses[0]), arrays.epsilon(evaluation.base.predictions)
    found = [
        _interaction(problem, plan, [moments[f.name] for f in (both, *pair)], known).rounded(risk, unit)
        for both, pair in zip(joint, chosen, strict=True)
    ]
    unknown = identified.constant_unless_unused(alone)
    identified.warn(unknown, singles)
    supports = freedom.supports(alone, plan)[0]
    found = [
        one.unknown() if {f.name for f in pair} & unknown else one.resting_on([supports[f.name] for f in pair])
        for one, pair in zip(found, chosen, strict=True)
    ]
    values, together, first, second, errors, skewness, df = (np.asarray(column) for column in zip(*found, strict=True))
    return Interactions(
        pairs=tuple((one.name, other.name) for one, other in chosen),
        values=values,
        joint=together,
        first=first,
        second=second,
        std_error=errors,
        skewness=skewness,
        degrees_of_freedom=df,
        base_risk=risk,
        n=problem.n,
        draws_per_row=plan.draws,
        loss=problem.losses[0].name,
        evaluations=sum(done.evaluations(problem.features)),
        key=problem.key,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _plan(problem: Problem, draws: int | str) -> Plan:
    if isinstance(draws, str) and draws == "all":
        return whole_draws(problem, reliance_plan(problem, "all")[1])
    if isinstance(draws, str):
        raise ValueError(f"draws={shown(draws)} is unknown: pass 'all' or a number of shifts")
    count = check_draws(draws)
    if count < 3:
        raise ValueError(f"draws={count} is too few to tell rows from draws: pass 3 or more, or 'all'")
    if count > problem.n - 1:
        raise ValueError(f"draws={count} is more than the {problem.n - 1} shifts of {problem.n} rows: pass 'all'")
    return plans.Shifts(problem.n, count, problem.key)


def _chosen_pairs(between: object, problem: Problem) -> list[tuple[Feature, Feature]]:
    if len(problem.features) < 2:
        raise ValueError("an interaction takes two features, and there is one: name more in features=")
    if between is None:
        every = list(combinations(problem.features, 2))
        for one, other in every:
            if set(one.columns) & set(other.columns):
                raise ValueError(
                    f"features: {shown(one.name)} and {shown(other.name)} share columns, so they have no interaction: "
                    "make them disjoint, or name pairs in between="
                )
        return every
    if isinstance(between, str) or not isinstance(between, Iterable):
        raise TypeError(f"between={shown(between)}: pass a list of pairs of features, such as [(0, 1), (0, 2)]")
    listed = list(between)
    if not listed:
        raise ValueError("between is empty: pass at least one pair, or None for all")
    found: dict[frozenset[tuple[int, ...]], tuple[Feature, Feature]] = {}
    for pair in listed:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"between holds {shown(pair)}: give pairs of two features, such as (0, 1)")
        one, other = (_feature(entry, problem) for entry in pair)
        shared = set(one.columns) & set(other.columns)
        if shared:
            raise ValueError(
                f"between holds {shown(pair)}, whose features share column {min(shared)}: make them disjoint"
            )
        key = frozenset((one.columns, other.columns))
        if key in found:
            raise ValueError(f"between holds {shown(one.name)} with {shown(other.name)} twice: name each pair once")
        found[key] = (one, other)
    return list(found.values())


def _feature(entry: object, problem: Problem) -> Feature:
    """A feature of the call by its name, or a single column by its index."""
    width = int(problem.flat.shape[1])
    for feature in problem.features:
        if isinstance(entry, str) and feature.name == entry:
            return feature
        if isinstance(entry, int | np.integer) and not isinstance(entry, bool) and feature.columns == (entry % width,):
            if not -width <= entry < width:
                break
            return feature
    known = listed([feature.name for feature in problem.features])
    raise ValueError(
        f"between holds {shown(entry)}, which is none of the features {known}: give names or column indices"
    )


def _joint(chosen: list[tuple[Feature, Feature]], singles: tuple[Feature, ...]) -> tuple[Feature, ...]:
    """Both features of each pair together. The engine knows features by name: "a × b" may be a column's already."""
    taken, found = {feature.name for feature in singles}, []
    for one, other in chosen:
        name = f"{one.name} × {other.name}"
        while name in taken:
            name += " (both)"
        taken.add(name)
        found.append(Feature(name, tuple(sorted((*one.columns, *other.columns)))))
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------------
# One pair


class _Interaction(NamedTuple):
    value: float
    joint: float
    first: float
    second: float
    std_error: float = np.nan
    skewness: float = np.nan
    degrees_of_freedom: float = np.nan

    def rounded(self, risk: float, unit: float) -> _Interaction:
        """0 where the difference is what rounding left of its parts: an error as small would make it significant.

        ``unit``: the spacing of predictions at 1.
        """
        size = abs(risk) + abs(self.joint) + abs(self.first) + abs(self.second)
        least = ROUNDING * max(unit, float(np.finfo(np.float64).eps)) * size
        if abs(self.value) > least or self.std_error > least:
            return self
        known = 0.0 * self.std_error  # nan where there is no error
        return self._replace(value=0.0, std_error=known, skewness=known)

    def unknown(self) -> _Interaction:
        """Without an error."""
        return _Interaction(*self[:4])

    def resting_on(self, both: list[Support]) -> _Interaction:
        """The error of two features knows no more than the rows tell it on which the rarer of the two varies."""
        units, wider = min(one.units for one in both), math.sqrt(max(one.inflation for one in both))
        if units < freedom.FEWEST:
            return self.unknown()
        return self._replace(
            std_error=wider * self.std_error, skewness=self.skewness / wider**3, degrees_of_freedom=units - 1.0
        )


def _interaction(problem: Problem, plan: Plan, three: list[Moments], known: bool) -> _Interaction:
    """Of the moments of both features together and of each: every sum of D_jk - D_j - D_k is that of the sums."""
    n, k = plan.n, plan.draws
    w = np.ones(n) if problem.host_weights is None else problem.host_weights
    joint, first, second = (inference.risk(moments.row_sum, problem.host_weights) / k for moments in three)
    value = joint - first - second
    if not known or n < 3:
        return _Interaction(value, joint, first, second)
    rows, donors = (_less(*(getattr(moments, name) for moments in three)) for name in ("row_sum", "donor_sum"))
    h = variance.kernel(rows, donors, np.zeros(()), w, w, plan.spread(w), k)
    if k == plan.exhausted_at:
        found = float(variances.pairs_variance(h.rows, h.donors).population)
    else:
        drawn = [moments.draw_sum for moments in three if moments.draw_sum is not None]
        found = _shifts_variance(h.rows, h.donors, _less(*drawn) / (n * float(h.scale)), k)
    psi, groups = h.rows + h.donors, problem.rows.clusters
    gamma = float(variance.skewness(psi, np.asarray(found)))
    if groups is not None:
        _, found, gamma = clustered(psi, found, groups)
    return _Interaction(value, joint, first, second, float(np.sqrt(found)), gamma)


def _less(joint: Floats, first: Floats, second: Floats) -> Floats:
    return joint - first - second


def _shifts_variance(r: Floats, c: Floats, draws: Floats, k: int) -> float:
    """Variance of a mean over K shifts, h = a_i + b_k + e_ik, without the squares of h, which do not add up.

    With q = 1/K: s2(r) + s2(c) = (1 + q)(Va + Vb) + 2 q Ve, s2(r + c) = Var(a + b) + q (Va + Vb + 2 Ve), and
    n Var = Var(a + b) + q Ve. A draw uses each row once on either side, so its mean varies by Ve/n alone. The floor is
    what is left where rows and donors do nothing, a = b = 0.
    """
    n, q = len(r), 1.0 / k
    noise = n * float(np.var(draws, ddof=1))
    effects = max((float(np.var(r, ddof=1) + np.var(c, ddof=1)) - 2.0 * q * noise) / (1.0 + q), 0.0)
    spread = float(np.var(r + c, ddof=1))
    return max(spread - q * (effects + noise), 0.5 * spread) / n
