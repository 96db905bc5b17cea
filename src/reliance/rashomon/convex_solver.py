"""Convex programs in few unknowns, by a primal-dual interior point method."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reliance.samplers.draws import Host

_STEPS = 40  # of Newton for one stage; two are usual
_ROOM = 1e-12  # that a start on the boundary gets
_LOOSE = 0.1  # of the weight: how well a stage is solved
_TIGHT = 1e-14  # and the last one
_FAILED = 10.0  # of the weight: what is not solved at all


@dataclass(frozen=True)
class Stage:
    """How near to the end: the products of multipliers and rooms, and the width over which corners are rounded."""

    weight: float
    width: float


STAGES = tuple(Stage(10.0**-k, 10.0 ** (-0.4 * k)) for k in range(11))

Values: TypeAlias = tuple[float, Host, Host]
# b (d,) -> value, gradient (d,), Hessian (d, d) of a function that may be rounded.
Convex: TypeAlias = Callable[[Host, Stage], Values]


def remembered(function: Convex, rounded: bool) -> Convex:
    """The function, with its last values kept: an objective and a limit, or two stages, often ask for the same."""
    known: dict[tuple[bytes, Stage | None], Values] = {}
    lock = threading.Lock()  # features of one class may be searched on several threads

    def call(b: Host, stage: Stage) -> Values:
        key = (b.tobytes(), stage if rounded else None)
        with lock:
            found = known.pop(key, None)
        found = function(b, stage) if found is None else found
        with lock:
            known[key] = found
            if len(known) > 16:
                del known[next(iter(known))]  # the one that was asked for longest ago
        return found

    return call


def minimise(objective: Convex, limits: Sequence[tuple[Convex, float]], start: Host) -> tuple[Host, Stage]:
    r"""Minimise a convex function f where others q_k are below their limits.

    Newton's method for :math:`\nabla f + \sum_k x_k \nabla q_k = 0` and :math:`x_k (limit_k - q_k) = \tau`, with tau
    going to 0 (Boyd and Vandenberghe, Convex optimization, section 11.7).

    Parameters
    ----------
    objective : callable
    limits : sequence of (callable, float)
        A limit that leaves the start no room is raised to the value there and a little more.
    start : (d,)
        Inside.

    Returns
    -------
    point : (d,)
    stage : Stage
        The last one that was solved. Corners can be too sharp for float64.
    """
    solved: tuple[Host, Stage] | None = None
    b, x = start, np.full(len(limits), np.nan)
    for stage in STAGES:
        # Rounded corners can put the start outside.
        at_start = [q(start, stage)[0] for q, _ in limits]
        tops = np.array([max(limit, v + _ROOM * (1 + abs(v))) for v, (_, limit) in zip(at_start, limits, strict=True)])
        program = _Program(objective, [q for q, _ in limits], tops, stage)
        here = program(b)
        while here is None:
            b = start + (b - start) / 2 if np.linalg.norm(b - start) > 1e-12 else start
            here = program(b)
        x = stage.weight / here.rooms if np.isnan(x).any() else x
        b, x, size = _newton(program, b, x, here, _TIGHT if stage is STAGES[-1] else _LOOSE * stage.weight)
        if size <= _FAILED * stage.weight or solved is None:
            solved = b, stage
    return solved or (start, STAGES[-1])


@dataclass(frozen=True, eq=False)
class _Point:
    """What Newton's method needs of a point: gradient and Hessian of the objective and the limits, and the rooms."""

    slope: Host
    bend: Host
    slopes: Host  # (number of limits, d)
    bends: Host
    rooms: Host

    def residual(self, x: Host, weight: float) -> tuple[Host, Host]:
        return self.slope + x @ self.slopes, weight - x * self.rooms

    def step(self, x: Host, weight: float) -> tuple[Host, Host]:
        left, short = self.residual(x, weight)
        bend = (
            self.bend + (x[:, None, None] * self.bends).sum(axis=0) + (self.slopes.T * (x / self.rooms)) @ self.slopes
        )
        b = _solve(bend, -left - (short / self.rooms) @ self.slopes)
        return b, (short + x * (self.slopes @ b)) / self.rooms


@dataclass(frozen=True, eq=False)
class _Program:
    objective: Convex
    limits: list[Convex]
    tops: Host
    stage: Stage

    def __call__(self, b: Host) -> _Point | None:
        """None outside of the limits."""
        found = [q(b, self.stage) for q in self.limits]
        rooms = self.tops - np.array([value for value, _, _ in found])
        if not np.all(rooms > 0):
            return None
        _, slope, bend = self.objective(b, self.stage)
        d = len(b)
        slopes = np.array([first for _, first, _ in found]).reshape(-1, d)
        return _Point(slope, bend, slopes, np.array([second for _, _, second in found]).reshape(-1, d, d), rooms)


def _newton(program: _Program, b: Host, x: Host, here: _Point, enough: float) -> tuple[Host, Host, float]:
    """Point and multipliers at which the residual is small, or cannot be made smaller, and its size."""
    weight = program.stage.weight
    size = _size(*here.residual(x, weight))
    for _ in range(_STEPS):
        if size <= enough:
            break
        step, turn = here.step(x, weight)
        falling = turn < 0
        share = min(1.0, 0.99 * float(np.min(-x[falling] / turn[falling], initial=np.inf)))
        while share > 1e-4:
            there = program(b + share * step)
            new = np.inf if there is None else _size(*there.residual(x + share * turn, weight))
            if there is not None and new <= (1 - 0.01 * share) * size:
                break
            share /= 2
        else:
            break
        b, x, here, size = b + share * step, x + share * turn, there, new
    return b, x, size


def _size(left: Host, short: Host) -> float:
    return float(np.sqrt(left @ left + short @ short))


def _solve(bend: Host, right: Host) -> Host:
    """Newton's step. A rounded function is flat between its corners: a little of the identity keeps it finite."""
    diagonal = np.diagonal(bend)
    scale = 1 / np.sqrt(np.maximum(diagonal, 1e-12 * float(diagonal.max()) + 1e-200))
    scaled = bend * scale * scale[:, None] + 1e-14 * np.eye(len(right))
    return np.asarray(scale * np.linalg.solve(scaled, scale * right))
