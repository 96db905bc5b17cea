"""Linear scores under logistic or hinge loss: how much the good ones among them rely on a feature.

Both risks, original and switched, are convex in the coefficients. So the least switched risk of a good model is one
convex program, and its bound is certified; the most is found by a local search from several starts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from reliance._core import streams
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.models.calling import Linear, linear_form
from reliance.rashomon.convex_pairs import Pairs
from reliance.rashomon.convex_rows import Outer, Rows
from reliance.rashomon.convex_solver import STAGES, Convex, Stage, Values, minimise
from reliance.rashomon.protocol import ClassData, Member, Range
from reliance.samplers.draws import Host, narrow, upload, wide

_LOSSES = {"logistic": "cross_entropy", "hinge": "hinge"}
_STARTS = 5
_ROUNDS = 50  # of a search; below ten are usual
_TIGHT = 1e-5  # a gap at the lower end, relative, below which nothing is searched


@dataclass(frozen=True)
class ConvexLinearClass:
    r"""Linear scores ``b_0 + x'b`` under a convex loss of the score.

    Parameters
    ----------
    loss : {"logistic", "hinge"}
        ``log(1 + exp(-s f))`` with s = 2y - 1 and y in {0, 1}, or ``max(0, 1 - y f)`` with y in {-1, 1}.
    radius : float, optional
        The largest Euclidean norm of the slopes b, in the units of X; the intercept is free. None: no limit, which is
        an error if the classes can be separated or columns are collinear, because then good models are not bounded.

    Notes
    -----
    R is the risk of a model, S its switched risk, E the bound of R.

    **The lower end** is one convex program also for the ratio. With S* the least S where R <= E, every good model has
    S / R >= S* / E and S - R >= S* - E. Where the minimiser has the risk E, as it does unless E is so large that the
    feature may be left out altogether, this is its own reliance, so the bound is attained. S* is bounded by weak
    duality: planes below S and R, by convexity, and a multiplier. What the planes and the multiplier miss, by rounding
    or because a solver stopped early, is multiplied by the size of a set that provably holds all good models, and
    subtracted. So the bound holds whatever the solver did. Where the feature may be left out, the bound of the upper
    end, turned round, can be the better one.

    **The upper end.** Both losses change by at most the change of the score, and rise only if the margin falls. So
    S - R <= sum_j max(h_j D_j, -l_j D'_j), with [l_j, h_j] the coefficients that good models can have, two more convex
    programs per column, and D_j, D'_j the mean fall of the margin over pairs at a coefficient of 1 and of -1. It is
    certified but usually wide.

    The achieved ends are models. S - t R, with t the reliance of the model at hand, is a difference of convex
    functions: its concave part is replaced by the tangent, a convex program, and so on (Dinkelbach's method with the
    concave-convex procedure); no step can make things worse. The upper end starts from several models, and the truth
    lies between it and the bound.

    All pairs of a linear score are pairs of numbers: a value with gradient and Hessian takes O(n log n) operations, in
    float64 on the host, see `reliance.rashomon.convex_pairs`. The hinge's corner is rounded over a width of 1e-4 (1e-6
    for rows) while programs are solved; bounds and the reliance of models are those of the hinge itself.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 5.
    Yuille, A. L., Rangarajan, A. (2003). The concave-convex procedure. Neural Computation 15(4).

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = 1.0 * (2 * X[:, 0] + rng.logistic(size=400) > 0)
    >>> result = rl.model_class_reliance(rl.LinearClass(loss="logistic"), X, y, epsilon=0.02)
    >>> bool(1.2 < result.lower[0] <= result.achieved_lower[0] < result.achieved_upper[0] <= result.upper[0])
    True
    """

    kind: str = "logistic"
    radius: float | None = None

    def __init__(self, loss: str = "logistic", radius: float | None = None) -> None:
        if loss not in _LOSSES:
            raise ValueError(f"loss={shown(loss)} is unknown: choose 'logistic' or 'hinge'")
        if radius is not None and not 0 < radius < np.inf:
            raise ValueError(f"radius={shown(radius)}: pass a positive number, or None for no limit")
        object.__setattr__(self, "kind", loss)
        object.__setattr__(self, "radius", None if radius is None else float(radius))

    @property
    def loss(self) -> str:
        return _LOSSES[self.kind]

    def best(self, data: ClassData) -> Member:
        """The model of least risk."""
        rows = self._rows(data)
        return _member(rows, rows.best[0], data)

    def contains(self, data: ClassData, model: object) -> Member:
        """A model that is known to be linear, with slopes of at most the radius."""
        form = linear_form(model)
        if form is None:
            raise TypeError(
                f"reference={shown(model)} is not known to be linear: pass reliance.models.Linear(coef, intercept), or "
                "None for the best model of the class"
            )
        if form[0].shape != (data.X.shape[1],):
            raise ValueError(f"reference has {form[0].size} coefficients, but X has {data.X.shape[1]} columns")
        norm = float(np.linalg.norm(form[0]))
        if self.radius is not None and norm > self.radius * (1 + 1e-12):
            raise ValueError(
                f"reference has coefficients of norm {norm:g} but the class has ridge={self.radius:g}: raise ridge, or "
                "pass another reference"
            )
        rows = self._rows(data)
        return _member(rows, rows.inward(form[1], form[0]), data)

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        """The range of each feature: the lower end certified, the upper one achieved, with a wide certified bound."""
        rows = self._rows(data)
        best = rows.exact(rows.best[0])
        if bound < best * (1 - 1e-9):
            raise ValueError(
                f"no model of the class has a risk of at most {bound:g}: the best has {best:g}. Raise epsilon"
            )
        if compare == "ratio" and rows.best[1] == 0.0:
            raise ValueError(
                f"compare='ratio' divides by the risk, and the best model has none that is sure to be above 0 "
                f"({best:g}): use compare='difference', more rows, or a smaller ridge="
            )
        good, found = _Good.of(rows, max(bound, best)), []
        for feature in features:
            pairs = Pairs.of(rows, feature.columns, conditional, data.memory)
            generator = streams.stream(data.key, streams.SIGNS, feature.columns[0])  # whatever others are asked
            found.append(_range(good, pairs, compare, generator, data))
            advance(1)
        return found

    def _rows(self, data: ClassData) -> Rows:
        known = _known.setdefault(data, {})
        if self not in known:
            known[self] = Rows.of(self.kind, self.radius, data)
        return known[self]


_known: weakref.WeakKeyDictionary[ClassData, dict[ConvexLinearClass, Rows]] = weakref.WeakKeyDictionary()


def _member(rows: Rows, b: Host, data: ClassData) -> Member:
    intercept, slopes = rows.outward(b)
    return Member(Linear(narrow(upload(slopes, wide(data.X)), data.X), intercept), rows.exact(b))


# ---------------------------------------------------------------------------------------------------------------------
# Programs over the good models


@dataclass(frozen=True, eq=False)
class _Good:
    """The models whose risk is at most the bound.

    Attributes
    ----------
    inside : (d,)
        A model of about the least risk, off the surface of the ball.
    outer : Outer
        A set that holds them.
    """

    rows: Rows
    bound: float
    inside: Host
    outer: Outer

    @staticmethod
    def of(rows: Rows, bound: float) -> _Good:
        inside = rows.best[0]
        # Off the surface of the ball, and not far out where smaller coefficients do.
        for share in (1e-4, 1e-3, 1e-2, 0.1, 0.5, *(1 - 4.0**-k for k in range(1, 20))):
            tried = share * inside
            if rows.radius is not None and 2 * rows.exact(tried) <= bound + rows.exact(inside):
                inside = tried
                break
        return _Good(rows, bound, inside, rows.outer(bound))

    @property
    def tight(self) -> bool:
        """Whether only the best models are good, to rounding."""
        best = self.rows.exact(self.rows.best[0])
        return self.bound - best <= 1e-9 * (1 + best)

    @property
    def large(self) -> float:
        """A multiplier of the risk where only the best models are good; the hinge has corners and needs less."""
        return 1e3 if self.rows.hinge else 1e6

    def minimise(self, objective: Convex) -> tuple[Host, Stage]:
        """About the minimiser of a convex function among the good models; it can be outside by rounding."""
        if self.tight:  # no room to solve in: a large multiplier instead
            return minimise(_sum(objective, self.rows.risk, self.large), self.rows.limits(None), self.inside)
        return minimise(objective, self.rows.limits(self.bound), self.inside)

    def nearest(self, b: Host) -> Host:
        """The last good model on the way from an inner one to b, by bisection: good models form a convex set."""
        inside = self.inside if self.rows.good(self.inside, self.bound) else self.rows.best[0]
        if self.rows.good(b, self.bound):
            return b
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.rows.good(inside + middle * (b - inside), self.bound) else (low, middle)
        return inside + low * (b - inside)

    def certified(self, height: float, slope: Host, b: Host, stage: Stage) -> float:
        """A bound of ``height + slope'b`` over all good models, with the multiplier that fits best at b.

        Good models have ``plane of R <= R <= bound``. So for any x >= 0 the plane is at least
        ``height + slope'b + x (plane of R - bound)``, whose least value in the outer set is known.
        """
        below, tilt = self.rows.plane(b, stage)
        directions = [tilt] if self.rows.radius is None else [tilt, self.rows.norm(b)[1]]
        box, rounding = self.outer.box, self.rows.rounding(self.outer)
        fitted = float(optimize.nnls(np.column_stack(directions) * box[:, None], -slope * box)[0][0])
        return max(
            height + x * (below - self.bound - rounding) - self.outer.most(-slope - x * tilt)
            for x in (fitted, self.large if self.tight else 0.0)
        )

    def least_switched(self, pairs: Pairs) -> tuple[float, Host]:
        """A certified bound of the switched risk, and the model that about attains it."""
        b, stage = self.minimise(pairs.risk)
        height, slope, unit = pairs.plane(b, stage)
        rounding = unit * (1 + 2 * float(pairs.size() @ self.outer.box))
        return max(self.certified(height, slope, b, stage) - rounding, 0.0), self.nearest(b)

    def coefficient(self, place: int) -> tuple[tuple[float, float], list[Host]]:
        """The least and the largest coefficient of a column, certified, and the models that have them."""
        ends, models, size = [], [], float(self.outer.box[place])
        for sign in (1.0, -1.0):
            direction = np.zeros(len(self.inside))
            direction[place] = sign / size
            b, stage = self.minimise(_linear(direction))
            ends.append(sign * size * self.certified(0.0, direction, b, stage))
            models.append(self.nearest(b))
        return (ends[0], ends[1]), models


def _linear(slope: Host) -> Convex:
    return lambda b, stage: (float(slope @ b), slope, np.zeros((len(b), len(b))))


def _sum(function: Convex, other: Convex, factor: float) -> Convex:
    """``function + factor other``."""

    def both(b: Host, stage: Stage) -> Values:
        (value, slope, bend), (more, tilt, curve) = function(b, stage), other(b, stage)
        return value + factor * more, slope + factor * tilt, bend + factor * curve

    return both


# ---------------------------------------------------------------------------------------------------------------------
# Ranges


def _range(good: _Good, pairs: Pairs, compare: str, generator: np.random.Generator, data: ClassData) -> Range:
    rows, bound = good.rows, good.bound
    switched, lowest = good.least_switched(pairs)
    rise, turned, corners = _changes(good, pairs)
    least = rows.best[1]
    if compare == "ratio":
        lower, upper = max(switched / bound, 1 - turned / least), 1 + rise / least
    else:
        lower, upper = max(switched - bound, -turned), rise

    def reliance(b: Host) -> float:
        top, bottom = pairs.exact(b), rows.exact(b)
        return top / bottom if compare == "ratio" else top - bottom

    low, achieved_lower, low_spread = lowest, reliance(lowest), 0.0
    if achieved_lower - lower > _TIGHT * (1 + abs(lower)):
        low, achieved_lower, low_spread = _search(good, pairs, compare, -1.0, [lowest, rows.best[0]], reliance)
    mixed = [
        good.inside + (corner - good.inside) * generator.uniform(-2, 2, size=len(good.inside)) for corner in corners
    ]
    starts = [rows.best[0], *corners, *(good.nearest(b) for b in mixed)][: max(_STARTS, 1 + len(corners))]
    high, achieved_upper, high_spread = _search(good, pairs, compare, 1.0, starts, reliance)
    return Range(
        lower,
        upper,
        _member(rows, low, data),
        _member(rows, high, data),
        achieved_lower,
        achieved_upper,
        (low_spread, high_spread),
    )


def _changes(good: _Good, pairs: Pairs) -> tuple[float, float, list[Host]]:
    """By how much the switched risk can be above the risk, and below it, certified; models of extreme coefficients."""
    rise, turned, corners = 0.0, 0.0, []
    for place, (fall, climb) in zip(pairs.places.tolist(), pairs.falls(), strict=True):
        (least, most), models = good.coefficient(place)
        rise += max(most * fall, -least * climb, 0.0)
        turned += max(most * climb, -least * fall, 0.0)
        corners += models
    rounding = good.rows.rounding(good.outer)
    return rise * (1 + 1e-12) + rounding, turned * (1 + 1e-12) + rounding, corners


def _search(
    good: _Good, pairs: Pairs, compare: str, sign: float, starts: list[Host], reliance: Callable[[Host], float]
) -> tuple[Host, float, float]:
    """The model of most (sign 1) or least (-1) reliance, its reliance, and how much that of all starts differed."""
    rows, found = good.rows, []
    for b in starts:
        value = reliance(b)
        for _ in range(_ROUNDS):
            weight = value if compare == "ratio" else 1.0
            if sign > 0:  # S - t R at least S's tangent - t R
                objective = _sum(_linear(-pairs.risk(b, STAGES[-1])[1]), rows.risk, weight)
            else:
                objective = _sum(pairs.risk, _linear(rows.risk(b, STAGES[-1])[1]), -weight)
            tried = good.nearest(good.minimise(objective)[0])
            new = reliance(tried)
            gain = sign * (new - value)
            if gain > 0:
                b, value = tried, new
            if not gain > 1e-7 * (1 + abs(value)):
                break
        found.append((b, value))
    values = np.array([value for _, value in found])
    b, value = found[int(np.argmax(sign * values))]
    return b, value, float(np.ptp(values))
