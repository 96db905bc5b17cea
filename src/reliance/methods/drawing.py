"""How often, and in which way, a feature is drawn from other rows: ``draws=20`` or ``draws=rl.Draws(...)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from reliance import plans
from reliance._core import streams
from reliance._core.checks import check_choice, check_draws, warn
from reliance._core.streams import Indices
from reliance._core.words import shown
from reliance.data.rows import Rows
from reliance.methods.lending import check_anywhere, lending, lent
from reliance.plans import Plan

# Multiples of 8 are best. 16 leave 0.2% of the variance of an estimate to the draws, and 1.7% in the worst column that
# was measured; 8 leave 1 and 6%. See docs/stability.md, and `benchmarks/draws.py shares`.
DEFAULT = 16


@dataclass(frozen=True)
class Draws:
    """How many donors each row borrows from, and how they are chosen: ``draws=rl.Draws(20, design="shifts")``.

    Parameters
    ----------
    count : int
        K, how many times each row is replaced.
    design : {"ranks", "shifts", "permutations"}
        "ranks", the default everywhere: donors are sorted by the feature, and every row borrows once from each of K
        stretches of that order, which removes most of the noise of random draws at the same cost. "shifts": one random
        ordering of the rows, each draw moved on by another distance; raising ``count`` keeps the earlier draws, and
        n - 1 of them are all pairs. "permutations": independent random permutations, in which a row may keep its own
        value, as in the literature; for tests that need exchangeable draws.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = X[:, 0] + X[:, 1]
    >>> def noise(design):
    ...     draws = rl.Draws(8, design=design)
    ...     found = [rl.permutation_importance(lambda X: X.sum(axis=1), X, y, draws=draws, rng=k) for k in range(30)]
    ...     return np.var([result.values[0] for result in found])
    >>> bool(noise("ranks") < noise("permutations") / 3)
    True
    """

    count: int
    design: str = "ranks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check_draws(self.count, "count"))
        check_choice(self.design, tuple(_DESIGNS), "design")


def _ranks(rows: Rows, key: int, count: int, grows: bool) -> Plan:
    return plans.Ranked(rows.n, count, key, plans.Orders(rows.n, key, rows.values), cycles=grows)


def _shifts(rows: Rows, key: int, count: int, grows: bool) -> Plan:
    return plans.Shifts(rows.n, count, key)


def _permutations(rows: Rows, key: int, count: int, grows: bool) -> Plan:
    return plans.Permutations(rows.n, count, partial(_permutation, key, rows.n))


def _permutation(key: int, n: int, k: int) -> Indices:
    return streams.ordering(key, n, k)


# A plan of so many draws; if it ``grows``, its first draws are those of a smaller one.
_DESIGNS: dict[str, Callable[[Rows, int, int, bool], Plan]] = {
    "ranks": _ranks,
    "shifts": _shifts,
    "permutations": _permutations,
}


def check_design(design: object) -> str:
    return check_choice(design, tuple(_DESIGNS), "design")


def drawn(rows: Rows, key: int, draws: object, name: str = "draws") -> Plan:
    """The plan of a number of draws, or of `Draws`."""
    if not isinstance(draws, Draws):
        draws = Draws(check_draws(draws, name))
        plan = lent(rows, key, draws.count, name, DEFAULT)
        if plan is not None:
            _warn_of_few(draws.count, rows.n, name)
            return plan
    check_anywhere(rows, f"{name}=rl.Draws({draws.count}, design={draws.design!r})")
    plan, count, n = _DESIGNS[draws.design](rows, key, draws.count, False), draws.count, rows.n
    _warn_of_few(count, n, name)
    if count > plan.exhausted_at:
        warn(
            f"{name}={shown(count)} is more than the {plan.exhausted_at:.0f} {draws.design} of {n} rows that are all "
            "pairs already: further draws only add cost; model_reliance(pairs='all') gives the exact value"
        )
    return plan


def _warn_of_few(count: int, n: int, name: str) -> None:
    if count < 3 and n > 3:
        warn(f"{name}={count}: with fewer than 3 draws the population interval rests on a rough bound; use 3 or more")


def growing(rows: Rows, key: int, design: str | None) -> Callable[[int], Plan]:
    """Plans of any number of draws, of which the first are those of a smaller plan; None: ranks, or as clusters say."""
    made = lending(rows, key)
    if made is not None and design is None:
        return lambda count: made(count, False)
    design = design or "ranks"
    check_anywhere(rows, f"design={design!r}")

    def of(count: int) -> Plan:
        return _DESIGNS[design](rows, key, count, True)

    return of
