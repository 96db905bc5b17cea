"""The methods as test parameters: how each is called, and the donors it must use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import oracles
import reliance as rl
from reliance import plans
from reliance.data.features import Feature
from reliance.plans import variances

KEY = 20240


def SHIFTS(count: int) -> rl.Draws:
    return rl.Draws(count, design="shifts")


@dataclass(frozen=True)
class Method:
    """A method with its draws fixed, and the plan that it stands for."""

    function: Callable[..., Any]
    plan: Callable[[int], Any]
    options: dict[str, Any] = field(default_factory=dict)
    by_ranks: int = 0  # draws whose donors are sorted by the feature itself

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **{"rng": KEY, **self.options, **options})


METHODS = {
    "ablation": Method(rl.ablation_importance, lambda n: plans.Resample(n, 3, KEY), {"draws": 3}),
    "permutation": Method(rl.permutation_importance, lambda n: plans.Shifts(n, 4, KEY), {"draws": SHIFTS(4)}),
    "ranks": Method(rl.permutation_importance, lambda n: ranked(np.arange(n), 4), {"draws": 4}, by_ranks=4),
    "all": Method(rl.model_reliance, plans.Pairs, {"pairs": "all"}),
    "halves": Method(rl.model_reliance, lambda n: plans.halves(n, KEY), {"pairs": "halves"}),
    "shifts": Method(rl.model_reliance, lambda n: plans.Shifts(n, 3, KEY), {"pairs": SHIFTS(3)}),
}


def ranked(values: Any, draws: int, key: int = KEY) -> Any:
    """The plan of a feature that has these values, (n,) or (n, g)."""
    host = np.asarray(values).reshape(len(values), -1)
    orders = plans.Orders(len(host), key, lambda feature: host)
    return plans.Ranked(len(host), draws, key, orders).part(Feature("any", (0,)))


def scaled(table: oracles.Table) -> oracles.Table:
    """A row that meets itself changes nothing: the other n - 1 donors count for it."""
    n = len(table.l)
    return replace(table, L=table.l[:, None] + n / (n - 1) * (table.L - table.l[:, None]))


def donor_table(plan: Any) -> tuple[np.ndarray, np.ndarray]:
    """Donors (n, columns) and the mask of the cells that count, asked for column by column."""
    if plan.rectangular:
        return oracles.all_pairs(plan.n)
    rows = range(plan.n)
    donors = np.concatenate([plan.donors(rows, range(k, k + 1)) for k in range(plan.draws)], axis=1)
    return donors, np.ones(donors.shape, dtype=bool)


def tables(
    method: Method,
    predict: Callable[..., Any],
    loss: Callable[..., Any],
    X: np.ndarray,
    y: np.ndarray,
    groups: Sequence[Sequence[int]],
    weights: np.ndarray | None = None,
) -> list[oracles.Table]:
    """The literal table of losses of each group of columns."""
    if method.by_ranks:
        plans_of = [ranked(X.reshape(len(X), -1)[:, list(columns)], method.by_ranks) for columns in groups]
        return [
            scaled(oracles.loss_table(predict, loss, X, y, columns, *donor_table(plan), weights))
            for columns, plan in zip(groups, plans_of, strict=True)
        ]
    donors, mask = donor_table(method.plan(len(X)))
    return [oracles.loss_table(predict, loss, X, y, columns, donors, mask, weights) for columns in groups]


def assert_result(backend: Any, result: Any, expected: Sequence[oracles.Table], compare: str) -> None:
    """Everything that the result says about its features, against the literal tables."""
    answers = [oracles.answer(table, compare) for table in expected]
    scale = max(float(np.max(np.abs(table.L))) for table in expected)
    unit = scale if compare == "difference" else scale / answers[0].base_risk
    backend.assert_close(result.values, [a.value for a in answers], unit)
    backend.assert_close(result.base_risk, answers[0].base_risk, scale)
    backend.assert_close(result.replaced_risk, [a.replaced_risk for a in answers], scale)
    if result.plan == "all pairs":
        assert result.draws is None
    else:
        backend.assert_close(result.draws, [a.draws for a in answers], unit)
    backend.assert_close(result.row_values, [a.row_values for a in answers], unit)
    errors = {"all pairs": oracles.pairs_error, "halves, 1 per row": oracles.halves_error}
    if (error := errors.get(result.plan)) is not None:
        backend.assert_close(result.std_error, [error(table, compare) for table in expected], unit)


def population_variance(
    kind: str, r: Any, c: Any, total: Any, draws: int, *, indicator: Any = None, lent: Any = None
) -> plans.Variance:
    """The array function that a plan's variance is, by the plan; for shifts and halves in circulant order."""
    if kind == "halves":
        return variances.halves_variance(r)
    if kind == "pairs":
        return variances.pairs_variance(r, c)
    if kind == "resample":
        return variances.resample_variance(r, c, total, draws)
    if draws < 3:
        return variances.few_draws_variance(r, c, total, draws)
    if kind == "shifts":
        return variances.shifts_variance(r, c, total, indicator, draws)
    return variances.permutations_variance(r, c, total, lent, draws)
