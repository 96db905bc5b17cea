"""Linear scores under logistic or hinge loss: how much the good ones among them rely on a feature.

Both risks, original and switched, are convex in the coefficients. So the least switched risk of a good model is one
convex program, and its bound is certified; the most is found by a local search from several starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import linalg, optimize

from reliance import rng as randomness
from reliance._array import to_host
from reliance.classes.protocol import ClassData, Member, Range
from reliance.draws import Host, narrow, upload, wide
from reliance.features import Feature
from reliance.models import Linear, linear_form
from reliance.regressors import least_squares

# Value, gradient and Hessian.
Convex: TypeAlias = Callable[[Host], tuple[float, Host, Host]]

_LOSSES = {"logistic": "cross_entropy", "hinge": "hinge"}
_HINGE_WIDTH = 1e-3  # over which the corner of the hinge is rounded
_STARTS = 6
_STEPS = 200


@dataclass(frozen=True)
class ConvexLinearClass:
    r"""Linear scores ``b_0 + x'b`` under a convex loss of the score.

    Parameters
    ----------
    loss : {"logistic", "hinge"}
        ``log(1 + exp(-s f))`` with s = 2y - 1 and y in {0, 1}, or ``max(0, 1 - y f)`` with y in {-1, 1}.
    radius : float, optional
        The largest Euclidean norm of the slopes b, in the units of X; the intercept is free. None: no limit, which is
        an error if the classes can be separated, because then there is no best model.

    Notes
    -----
    What is certified, up to rounding:

    * **The lower end.** With S* the least switched risk of a model whose risk R is at most E, every such model has
      S / R >= S* / E and S - R >= S* - E. Where the minimiser has the risk E, as it does unless E is so large that the
      feature may be left out altogether, this is its own reliance, so the bound is attained. S* is taken from the
      multipliers of the convex program, not from the point that a solver stopped at.
    * **The upper end.** Both losses change by at most the change of the score, so S - R <= sum_j B_j D_j, with D_j the
      mean absolute difference of column j between two rows and B_j the most that a good model's \|b_j\| can be, two
      more convex programs a column. It is usually wide. ``inf`` where good models are not bounded.

    The achieved ends are models: the lower one that of the convex program or a better one near it, the upper one the
    best of several local searches, so that the truth lies between it and the bound.

    All pairs of a linear score are pairs of numbers: O(n m) operations for a value, gradient and Hessian, m the number
    of distinct values of the feature, in blocks, on the host. A feature takes some hundred of them. The hinge is
    rounded over a width of 1e-3 for the programs, which costs the certified ends about 7e-4 of loss each time it is
    used; models are measured with the hinge itself.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 5.
    """

    kind: str = "logistic"
    radius: float | None = None

    def __init__(self, loss: str = "logistic", radius: float | None = None) -> None:
        if loss not in _LOSSES:
            raise ValueError(f"loss={loss!r} is unknown: choose 'logistic' or 'hinge'")
        if radius is not None and not 0 < radius < np.inf:
            raise ValueError(f"radius={radius!r}: pass a positive number, or None for no limit")
        object.__setattr__(self, "kind", loss)
        object.__setattr__(self, "radius", None if radius is None else float(radius))

    @property
    def loss(self) -> str:
        return _LOSSES[self.kind]

    def best(self, data: ClassData) -> Member:
        """The model of least risk."""
        scores = _Scores.of(self, data)
        return scores.member(scores.best()[0], data)

    def contains(self, data: ClassData, model: Any) -> Member:
        """A model that is known to be linear, with slopes of at most the radius."""
        form = linear_form(model)
        if form is None:
            raise TypeError(
                f"reference={model!r} is not known to be linear: pass reliance.models.Linear(coef, intercept), or None "
                "for the best model of the class"
            )
        if form[0].shape != (data.X.shape[1],):
            raise ValueError(f"reference has {form[0].size} coefficients, but X has {data.X.shape[1]} columns")
        norm = float(np.linalg.norm(form[0]))
        if self.radius is not None and norm > self.radius * (1 + 1e-12):
            raise ValueError(
                f"reference has slopes of norm {norm:g}, more than radius={self.radius:g}: raise radius, or pass "
                "another reference"
            )
        return _Scores.of(self, data).member(np.concatenate([[form[1]], form[0]]), data)

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
        scores = _Scores.of(self, data)
        inside, least = scores.best()
        best = scores.exact(inside)
        if bound < best * (1 - 1e-9):
            raise ValueError(
                f"no model of the class has a risk of at most {bound:g}: the best has {best:g}. Raise epsilon"
            )
        found = []
        for number, feature in enumerate(features):
            pairs = _Pairs.of(scores, feature.columns, conditional, data.memory)
            generator = randomness.stream(data.key, randomness.SIGNS, number)
            found.append(_range(scores, pairs, inside, least, bound, compare, generator, data))
            advance(1)
        return found


# ---------------------------------------------------------------------------------------------------------------------
# Risks


@dataclass(frozen=True, eq=False)
class _Loss:
    """``width log(1 + exp((corner - s f) / width))``: the logistic loss, or the hinge with a rounded corner.

    Attributes
    ----------
    excess : float
        The most by which it exceeds the loss that it stands for.
    """

    corner: float
    width: float
    excess: float

    def __call__(self, margins: Host) -> tuple[Host, Host, Host]:
        """The loss of margins s f, with its first and second derivative."""
        t = (self.corner - margins) / self.width
        away = np.exp(-np.abs(t))
        share = np.where(t > 0, 1.0, away) / (1 + away)
        value = self.width * (np.maximum(t, 0.0) + np.log1p(away))
        return value, -share, share * (1 - share) / self.width


@dataclass(frozen=True, eq=False)
class _Scores:
    """The class on given rows, in float64 on the host: Z (n, P + 1) with the intercept first, signs s of the labels."""

    Z: Host
    signs: Host
    radius: float | None
    loss: _Loss
    hinge: bool

    @staticmethod
    def of(given: ConvexLinearClass, data: ClassData) -> _Scores:
        X, y = to_host(wide(data.X)), to_host(data.y).astype(np.float64)
        hinge = given.kind == "hinge"
        wanted = (-1.0, 1.0) if hinge else (0.0, 1.0)
        if not np.isin(y, wanted).all():
            raise ValueError(f"loss={given.kind!r} needs labels {wanted[0]:g} and {wanted[1]:g} in y")
        if np.all(y == y[0]):
            raise ValueError("y holds one class only: there is nothing to tell apart")
        signs = y if hinge else 2 * y - 1
        width = _HINGE_WIDTH
        loss = _Loss(1.0, width, width * np.log(2)) if hinge else _Loss(0.0, 1.0, 0.0)
        return _Scores(np.column_stack([np.ones(len(X)), X]), signs, given.radius, loss, hinge)

    def risk(self, b: Host) -> tuple[float, Host, Host]:
        """Mean loss, gradient and Hessian in b (P + 1,)."""
        value, first, second = self.loss(self.signs * (self.Z @ b))
        n = len(value)
        return float(value.mean()), self.Z.T @ (self.signs * first) / n, (self.Z.T * (second / n)) @ self.Z

    def exact(self, b: Host) -> float:
        """Mean loss, without rounding the hinge's corner."""
        margins = self.signs * (self.Z @ b)
        return float(np.mean(np.maximum(1 - margins, 0.0) if self.hinge else self.loss(margins)[0]))

    def norm(self, b: Host) -> tuple[float, Host, Host]:
        """|slopes|^2 with derivatives."""
        slopes = np.concatenate([[0.0], b[1:]])
        return float(slopes @ slopes), 2 * slopes, np.diag(2 * (np.arange(len(b)) > 0).astype(np.float64))

    def limits(self, bound: float | None) -> list[tuple[Convex, float]]:
        """What bounds a member: its risk, if a bound is given, and its slopes."""
        found: list[tuple[Convex, float]] = [] if bound is None else [(self.risk, bound + self.loss.excess)]
        return found if self.radius is None else [*found, (self.norm, self.radius**2)]

    def best(self) -> tuple[Host, float]:
        """A model of least risk, and a certified bound of the risk of all models."""
        point, start = np.zeros(self.Z.shape[1]), np.zeros(self.Z.shape[1])
        # A sharp corner only from nearby.
        for width in np.geomspace(1.0, self.loss.width, 11) if self.hinge else (1.0,):
            wider = dataclasses.replace(self, loss=_Loss(self.loss.corner, width, self.loss.excess))
            program = minimise(wider.risk, self.limits(None), start, float(width))
            point = program.point
            start = point * (1 - 1e-6)  # off the ball's surface
        margins = self.signs * (self.Z @ point)
        if self.radius is None and (np.min(margins) > 0 or (not self.hinge and np.max(margins) > 35)):
            raise ValueError(
                "the classes can be separated, or almost, so that the risk falls for ever as the coefficients grow: "
                "there is no best model. Pass radius="
            )
        return point, max(program.bound - self.loss.excess, 0.0)

    def member(self, b: Host, data: ClassData) -> Member:
        coef = narrow(upload(b[1:], wide(data.X)), data.X)
        return Member(Linear(coef, float(b[0])), self.exact(b))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Scores of all pairs, ``kept_i'b + lent_k'b_feature``, over distinct lent values with their counts.

    Attributes
    ----------
    kept : (n, P + 1)
        The rows, with 0 or, if only residuals are exchanged, the prediction in the feature's columns.
    lent : (m, P + 1)
        Distinct values of what is exchanged, 0 in the other columns.
    counts : (m,)
    block : int
        Rows at a time.
    """

    scores: _Scores
    kept: Host
    lent: Host
    counts: Host
    block: int
    columns: tuple[int, ...]

    @staticmethod
    def of(scores: _Scores, columns: tuple[int, ...], conditional: bool, memory: int) -> _Pairs:
        places = [column + 1 for column in columns]
        kept, own = scores.Z.copy(), scores.Z[:, places]
        kept[:, places] = 0.0
        if conditional:
            others = np.delete(scores.Z, [0, *places], axis=1)
            kept[:, places] = least_squares(others, own).predict(others)
        values, counts = np.unique(own - kept[:, places], axis=0, return_counts=True)
        lent = np.zeros((len(values), scores.Z.shape[1]))
        lent[:, places] = values
        return _Pairs(scores, kept, lent, counts.astype(np.float64), max(memory // (64 * len(values)), 1), columns)

    def _cells(self, b: Host) -> Iterator[tuple[slice, Host]]:
        """Margins (rows, m) in blocks."""
        kept, lent = self.kept @ b, self.lent @ b
        for start in range(0, len(kept), self.block):
            rows = slice(start, start + self.block)
            yield rows, self.scores.signs[rows, None] * (kept[rows, None] + lent)

    def risk(self, b: Host) -> tuple[float, Host, Host]:
        """Mean loss over the n(n-1) pairs, gradient and Hessian in b."""
        n, s = len(self.kept), self.scores.signs
        own_value, own_slope, own_bend = self.scores.risk(b)
        total, slope, bend = -n * own_value, -n * own_slope, -n * own_bend
        for rows, margins in self._cells(b):
            value, first, second = self.scores.loss(margins)
            Z = self.kept[rows]
            first, second = s[rows, None] * first * self.counts, second * self.counts
            total += float(np.sum(value @ self.counts))
            slope = slope + Z.T @ first.sum(axis=1) + self.lent.T @ first.sum(axis=0)
            cross = Z.T @ (second @ self.lent)
            bend = bend + (Z.T * second.sum(axis=1)) @ Z + cross + cross.T
            bend = bend + (self.lent.T * second.sum(axis=0)) @ self.lent
        pairs = n * (n - 1)
        return total / pairs, slope / pairs, bend / pairs

    def exact(self, b: Host) -> float:
        """Mean loss over the pairs, without rounding the hinge's corner."""
        n = len(self.kept)
        total = -n * self.scores.exact(b)
        for _, margins in self._cells(b):
            value = np.maximum(1 - margins, 0.0) if self.scores.hinge else self.scores.loss(margins)[0]
            total += float(np.sum(value @ self.counts))
        return total / (n * (n - 1))

    def differences(self) -> Host:
        """Mean absolute difference between two rows of what each of the feature's columns exchanges."""
        n, found = int(self.counts.sum()), []
        for column in self.columns:
            values = np.sort(np.repeat(self.lent[:, column + 1], self.counts.astype(np.int64)))
            # Each value exceeds those before it and is exceeded by those after it.
            found.append(2 * float(np.sum(values * (2 * np.arange(n) - n + 1))) / (n * (n - 1)))
        return np.array(found)


# ---------------------------------------------------------------------------------------------------------------------
# Convex programs


@dataclass(frozen=True, eq=False)
class Program:
    """A point that satisfies the constraints, and a lower bound of the objective over all that do."""

    point: Host
    bound: float


def minimise(objective: Convex, limits: list[tuple[Convex, float]], start: Host, weight: float = 1.0) -> Program:
    r"""Minimise a smooth convex function where others are below their limits, by Newton's method on a barrier.

    .. math:: f(b) - \tau \sum_k \log(limit_k - q_k(b))

    At its minimum b is the minimiser of f + sum x_k q_k with x_k = tau / (limit_k - q_k(b)), so the multipliers certify
    that every admissible point has an objective of at least f(b) + sum x_k (q_k(b) - limit_k).

    Parameters
    ----------
    objective : callable
        ``b (d,) -> value, gradient (d,), Hessian (d, d)``.
    limits : list of (callable, float)
    start : (d,)
        Strictly inside.
    weight : float
        The first tau.
    """
    b, bound = start, -np.inf
    weight = weight if limits else 0.0
    while True:
        b = _centre(objective, limits, b, weight)
        bound = max(bound, _certified(objective, limits, b))
        if weight <= 1e-10:
            return Program(b, bound)
        weight = max(weight / 10, 1e-10)


def _certified(objective: Convex, limits: list[tuple[Convex, float]], b: Host) -> float:
    """The multipliers' bound of the objective, those taken with which b is closest to a minimiser of the sum."""
    value, slope, _ = objective(b)
    found = [(q(b), limit) for q, limit in limits]
    x, left = np.zeros(0), float(np.linalg.norm(slope))
    if limits:
        x, left = optimize.nnls(np.column_stack([first for (_, first, _), _ in found]), -slope)
    value += sum(float(xk) * (q - limit) for xk, ((q, _, _), limit) in zip(x, found, strict=True))
    # What is left of the gradient, over a distance by which the point may still be off.
    return value - float(left) * (1 + float(np.linalg.norm(b)))


def _centre(objective: Convex, limits: list[tuple[Convex, float]], b: Host, weight: float) -> Host:
    """Minimise the barrier function."""

    def merit(b: Host) -> float:
        rooms = [limit - q(b)[0] for q, limit in limits]
        if any(not room > 0 for room in rooms):
            return np.inf
        return objective(b)[0] - weight * sum(float(np.log(room)) for room in rooms)

    here = merit(b)
    for _ in range(_STEPS):
        _, slope, bend = objective(b)
        for q, limit in limits:
            value, first, second = q(b)
            x = weight / (limit - value)
            slope, bend = slope + x * first, bend + x * second + x**2 / weight * np.outer(first, first)
        # The hinge is flat far from its corner: a little of the identity keeps the step finite.
        ridge = 1e-14 * max(float(np.trace(bend)), 1e-8)
        step = linalg.solve(bend + ridge * np.eye(len(b)), -slope, assume_a="sym")
        gain = float(-slope @ step)
        if gain <= 1e-18 * (1 + abs(here)):
            break
        share, tried = 1.0, merit(b + step)
        while not tried <= here - 1e-4 * share * gain and share > 1e-10:
            share /= 2
            tried = merit(b + share * step)
        if not tried < here:
            break
        b, here = b + share * step, tried
    return b


# ---------------------------------------------------------------------------------------------------------------------
# Ranges


def _range(
    scores: _Scores,
    pairs: _Pairs,
    inside: Host,
    least_risk: float,
    bound: float,
    compare: str,
    generator: np.random.Generator,
    data: ClassData,
) -> Range:
    start, limit = _strictly_inside(scores, inside, bound)
    limits = scores.limits(limit)
    lowest = minimise(pairs.risk, limits, start)
    largest, corners = _largest_slopes(limits, start, pairs.columns)
    rise = float(largest @ pairs.differences()) if np.isfinite(largest).all() else np.inf
    fallen = lowest.bound - pairs.scores.loss.excess
    if compare == "ratio":
        lower, upper = fallen / bound, 1 + rise / least_risk if least_risk > 0 else np.inf
    else:
        lower, upper = fallen - bound, rise

    def reliance(b: Host) -> float:
        switched, risk = pairs.exact(b), scores.exact(b)
        return switched / risk if compare == "ratio" else switched - risk

    seeds = [lowest.point, inside, *corners]
    seeds += [inside + (c - inside) * generator.uniform(size=len(inside)) for c in corners][
        : max(_STARTS - len(seeds), 0)
    ]
    ends = []
    for sign in (1.0, -1.0):
        reached = [_within(scores, inside, seed, bound) for seed in (lowest.point, inside, *corners)]
        reached += [
            _within(scores, inside, _search(scores, pairs, seed, bound, sign, compare), bound)
            for seed in reached + seeds[-2:]
        ]
        values = np.array([sign * reliance(b) for b in reached])
        best = int(np.argmin(values))
        searched = values[len(values) // 2 :]
        ends.append((reached[best], sign * float(values[best]), float(np.ptp(searched))))
    (low, achieved_low, low_spread), (high, achieved_high, high_spread) = ends
    return Range(
        min(lower, achieved_low),
        max(upper, achieved_high),
        scores.member(low, data),
        scores.member(high, data),
        achieved_low,
        achieved_high,
        (low_spread, high_spread),
    )


def _strictly_inside(scores: _Scores, inside: Host, bound: float) -> tuple[Host, float]:
    """A point with room to all constraints, and the bound, widened by rounding if it leaves the best model no room."""
    risk = scores.risk(inside)[0] - scores.loss.excess
    limit = max(bound, risk + 1e-9 * (1 + risk))
    share = 1.0
    while scores.radius is not None and share > 1e-12:
        tried = inside * np.concatenate([[1.0], np.full(len(inside) - 1, 1 - share)])
        if scores.norm(tried)[0] < scores.radius**2 and scores.risk(tried)[0] - scores.loss.excess < limit:
            return tried, limit
        share /= 4
    return inside, limit


def _largest_slopes(
    limits: list[tuple[Convex, float]], start: Host, columns: tuple[int, ...]
) -> tuple[Host, list[Host]]:
    """The most that each |b_j| of the feature can be, certified, and the models that reach it."""
    found, points = [], []
    for column in columns:
        ends = []
        for sign in (1.0, -1.0):
            direction = np.zeros(len(start))
            direction[column + 1] = -sign

            def objective(b: Host, direction: Host = direction) -> tuple[float, Host, Host]:
                return float(direction @ b), direction, np.zeros((len(b), len(b)))

            program = minimise(objective, limits, start)
            ends.append(-program.bound)
            points.append(program.point)
        found.append(max(ends))
    return np.array(found), points


def _search(scores: _Scores, pairs: _Pairs, seed: Host, bound: float, sign: float, compare: str) -> Host:
    """A local minimum of sign times the reliance among the good models."""

    def objective(b: Host) -> tuple[float, Host]:
        (top, top_slope, _), (bottom, bottom_slope, _) = pairs.risk(b), scores.risk(b)
        if compare == "ratio":
            return sign * float(np.log(top / bottom)), sign * (top_slope / top - bottom_slope / bottom)
        return sign * (top - bottom), sign * (top_slope - bottom_slope)

    rooms = [
        {"type": "ineq", "fun": lambda b, q=q, limit=limit: limit - q(b)[0], "jac": lambda b, q=q: -q(b)[1]}
        for q, limit in scores.limits(bound)
    ]
    options = {"maxiter": 100, "ftol": 1e-12}
    found = optimize.minimize(objective, seed, jac=True, method="SLSQP", constraints=rooms, options=options).x
    return found if np.isfinite(found).all() else seed


def _within(scores: _Scores, inside: Host, b: Host, bound: float) -> Host:
    """The last good model on the way from an inner one to b, by bisection: good models form a convex set."""

    def good(b: Host) -> bool:
        return scores.exact(b) <= bound and (scores.radius is None or scores.norm(b)[0] <= scores.radius**2)

    if good(b):
        return b
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if good(inside + middle * (b - inside)) else (low, middle)
    return inside + low * (b - inside)
