"""Linear scores under logistic or hinge loss on given rows: their risk, and bounds of it that hold everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from reliance._core import arrays
from reliance._core.words import shown
from reliance.rashomon.convex_solver import STAGES, Convex, Stage, Values, minimise, remembered
from reliance.rashomon.protocol import ClassData
from reliance.samplers.draws import Host, wide

_EPS = float(np.finfo(np.float64).eps)
_WIDTH = 1e-8  # over which the corner of the hinge is rounded in the end


def rounded_hinge(u: Host, stage: Stage) -> tuple[Host, Host, Host]:
    """``max(0, u)`` with the corner of an interior point method, its slope and its curvature.

    ``min_v v - w log v - w log(v - u)`` with w the weight of the stage, at least 1e-8. It is never flat, which Newton's
    method needs, and for any slope a, in [0, 1], the hinge itself is at least a u.
    """
    w = max(stage.weight, _WIDTH)
    root = np.sqrt(u * u + 4 * w * w)
    ends = 2 * w + root
    return (u + root) / 2 + w - w * np.log(ends), (1 + u / ends) / 2, w / (root * ends)


@dataclass(frozen=True, eq=False)
class Outer:
    """A set that holds every good model, far too large: what rounding errors of slopes are multiplied with.

    Attributes
    ----------
    box : (d,)
        The largest absolute coefficients.
    most : callable (d,) -> float
        The largest ``v'b``, at most.
    """

    box: Host
    most: Callable[[Host], float]


@dataclass(frozen=True, eq=False)
class Rows:
    """The class on given rows, in float64 on the host.

    Attributes
    ----------
    Z : (n, d)
        1, and the columns of X, centred and scaled: ``(x - centre) / scale``. Coefficients b (d,) are those of Z.
    signs : (n,)
        -1 and 1.
    hinge : bool
        ``max(0, 1 - s f)`` instead of ``log(1 + exp(-s f))``.
    centre, scale : (P,)
    radius : float or None
        Of the ball of slopes in the units of X.
    """

    Z: Host
    signs: Host
    hinge: bool
    centre: Host
    scale: Host
    radius: float | None

    @staticmethod
    def of(kind: str, radius: float | None, data: ClassData) -> Rows:
        X, y = arrays.to_host(wide(data.X)), arrays.to_host(data.y).astype(np.float64)
        wanted = (-1.0, 1.0) if kind == "hinge" else (0.0, 1.0)
        if not np.isin(y, wanted).all():
            other = y[~np.isin(y, wanted)][0]
            raise ValueError(
                f"loss={shown(kind)} needs labels {wanted[0]:g} and {wanted[1]:g} in y, but y holds {other:g}: recode y"
            )
        if np.all(y == y[0]):
            raise ValueError("y holds one class only: there is nothing to tell apart")
        centre, spread = X.mean(axis=0), X.std(axis=0)
        if not np.all(np.isfinite(spread)):
            raise ValueError("X holds NaN, infinite or overflowing values: drop those rows or scale the columns")
        constant = spread <= 16 * _EPS * np.abs(centre)
        scale = np.where(constant, 1.0, spread)
        Z = np.column_stack([np.ones(len(X)), np.where(constant, 0.0, (X - centre) / scale)])
        found = Rows(Z, y if kind == "hinge" else 2 * y - 1, kind == "hinge", centre, scale, radius)
        if radius is None:
            found._refuse_collinear(max(arrays.epsilon(data.X), _EPS))
        return found

    def _refuse_collinear(self, eps: float) -> None:
        slack = 4 * np.sqrt(self.Z.shape[1]) * eps * (1 + float(np.max(np.abs(self.centre) / self.scale, initial=0.0)))
        values = linalg.svdvals(self.Z) / np.sqrt(len(self.Z))
        if len(self.Z) < self.Z.shape[1] or values[-1] <= slack:
            raise ValueError(
                "columns of X are constant or linear combinations of others, so good models can have coefficients of "
                "any size: drop such columns, or bound the coefficients with LinearClass(ridge=radius)"
            )

    # -----------------------------------------------------------------------------------------------------------------
    # Coefficients

    def outward(self, b: Host) -> tuple[float, Host]:
        """Intercept and slopes of X."""
        slopes = b[1:] / self.scale
        return float(b[0] - self.centre @ slopes), slopes

    def inward(self, intercept: float, slopes: Host) -> Host:
        """The opposite of `outward`."""
        return np.concatenate([[intercept + self.centre @ slopes], slopes * self.scale])

    def norm(self, b: Host, stage: Stage | None = None) -> Values:
        """|slopes of X|^2 with derivatives."""
        weights = np.concatenate([[0.0], self.scale**-2.0])
        return float(b @ (weights * b)), 2 * weights * b, np.diag(2 * weights)

    # -----------------------------------------------------------------------------------------------------------------
    # Risk

    def exact(self, b: Host) -> float:
        """Mean loss."""
        margins = self.signs * (self.Z @ b)
        if self.hinge:
            return float(np.maximum(1 - margins, 0.0).mean())
        return float(np.mean(np.maximum(-margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))))

    @cached_property
    def risk(self) -> Convex:
        """`_risk`, remembered."""
        return remembered(self._risk, self.hinge)

    def _risk(self, b: Host, stage: Stage) -> Values:
        """Mean loss, gradient and Hessian in b; the hinge is rounded."""
        margins = self.signs * (self.Z @ b)
        if self.hinge:
            value, share, bend = rounded_hinge(1 - margins, stage)
        else:
            away = np.exp(-np.abs(margins))
            value = np.maximum(-margins, 0.0) + np.log1p(away)
            share, bend = np.where(margins < 0, 1.0, away) / (1 + away), away / (1 + away) ** 2
        n = len(margins)
        return float(value.mean()), -self.Z.T @ (self.signs * share) / n, (self.Z.T * (bend / n)) @ self.Z

    def plane(self, b: Host, stage: Stage) -> tuple[float, Host]:
        """``c + slope'b`` that is below the risk everywhere, and near it at b.

        For any shares a_i between 0 and 1 the hinge is at least ``a_i (1 - margin_i)``; the logistic loss is at least
        its tangent.
        """
        value, slope, _ = self.risk(b, stage)
        if not self.hinge:
            return value - float(slope @ b), slope
        return float(rounded_hinge(1 - self.signs * (self.Z @ b), stage)[1].mean()), slope

    # -----------------------------------------------------------------------------------------------------------------
    # Good models

    def limits(self, bound: float | None) -> list[tuple[Convex, float]]:
        """What bounds a member: its risk, if a bound is given, and its slopes."""
        found: list[tuple[Convex, float]] = [] if bound is None else [(self.risk, bound)]
        return found if self.radius is None else [*found, (self.norm, self.radius**2)]

    def good(self, b: Host, bound: float) -> bool:
        return self.exact(b) <= bound and (self.radius is None or self.norm(b)[0] <= self.radius**2)

    @cached_property
    def best(self) -> tuple[Host, float]:
        """A model of least risk, and a certified bound of the risk of all models."""
        if self.radius is None and not self.hinge:
            point, stage = self._logistic[0], STAGES[-1]
        else:
            start = np.zeros(self.Z.shape[1]) if self.radius is not None else self._logistic[0]
            point, stage = minimise(self.risk, self.limits(None), start)
        risk = self.exact(point)
        outer, (height, slope) = self.outer(risk), self.plane(point, stage)
        least = height - outer.most(-slope) - self.rounding(outer)
        return point, min(max(least, 0.0), risk)

    def rounding(self, outer: Outer) -> float:
        """By how much a plane of the risk can be off."""
        size = float(np.abs(self.Z).mean(axis=0) @ outer.box)
        return float((8 + np.sqrt(len(self.Z))) * _EPS * (1 + size))

    def outer(self, bound: float) -> Outer:
        r"""A set that holds all models of at most some risk.

        Without a ball: let a_i in (0, 1) be the slopes of the logistic loss at its best model, so that
        g = mean a s z is 0, H = mean a (1 - a) z z', and M the largest \|z_i\| in the metric of H^-1. Both losses are
        at least ``c_i (- margin_i)`` for any c_i in [0, 1]. With c_i = a_i - a_i (1 - a_i) s_i z_i'b / (M \|b\|_H),
        which is in [0, 1], their mean is at least \|b\|_H / M - g'b. So good models have \|b\|_H <= bound M, and if
        this fails because g is not small, the classes can be separated.

        With a ball: the loss of a class is at least minus its mean margin, which bounds the intercept.
        """
        if self.radius is not None:
            positive, radius = self.signs > 0, self.radius
            reach = 0.0
            for rows in (positive, ~positive):
                middle = self.Z[rows, 1:].mean(axis=0)
                reach = max(reach, bound / rows.mean() + radius * float(np.linalg.norm(middle * self.scale)))
            reach *= 1 + 1e-9
            box = np.concatenate([[reach], radius * self.scale])
            return Outer(box, lambda v: float(reach * abs(v[0]) + radius * np.linalg.norm(v[1:] * self.scale)))
        _, lower, widest, left = self._logistic
        reach = bound / (1 / widest - left) * (1 + 1e-6)
        inverse = linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
        return Outer(reach * np.linalg.norm(inverse, axis=0), lambda v: float(reach * np.linalg.norm(inverse @ v)))

    @cached_property
    def _logistic(self) -> tuple[Host, Host, float, float]:
        """The best logistic model, and what `outer` needs of it: the factor of H, M, and |g| in the metric of H^-1."""
        smooth = Rows(self.Z, self.signs, False, self.centre, self.scale, None)
        point, _ = minimise(smooth.risk, [], np.zeros(self.Z.shape[1]))
        _, slope, bend = smooth.risk(point, STAGES[-1])
        try:
            lower = np.linalg.cholesky(bend)
            widest = float(np.linalg.norm(linalg.solve_triangular(lower, self.Z.T, lower=True), axis=0).max())
            left = float(np.linalg.norm(linalg.solve_triangular(lower, slope, lower=True)))
            bounded = widest * left < 0.5 and widest < 1e7
        except np.linalg.LinAlgError:
            bounded = False
        if not bounded:
            raise ValueError(
                "the classes can be separated by a linear score, or almost: the risk falls for ever as the "
                "coefficients grow, so there is no best model. Bound the coefficients with LinearClass(ridge=radius)"
            )
        return point, np.asarray(lower, dtype=np.float64), widest, left
