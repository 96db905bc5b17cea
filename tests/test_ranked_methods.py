"""Draws by ranks through the public functions: literal loops, what rows meet, and what changes nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import oracles
import reliance as rl
from methods import KEY, donor_table, ranked, scaled
from relative_cases import correlated, regression, scrambled_table
from reliance import plans
from reliance.data.features import Feature
from reliance.methods import adaptive

DRAWS = 4
WEIGHTS = np.linspace(0.0, 2.0, 12)


def formula(x: Any) -> Any:
    return 1.2 * x[..., 0] - x[..., 1] * x[..., 2] + 0.3 * x[..., 3]


# ---------------------------------------------------------------------------------------------------------------------
# Residuals, sorted by their own value


@pytest.mark.paired("weighted", "compare", "method", one_in=2)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("method", ["relative", "conditional reliance"])
def test_residuals_lent_by_ranks(backend: Any, method: str, compare: str, weighted: bool) -> None:
    """x~ = the row's least squares mean + the residual of a donor; donors are sorted by their residuals."""
    X, y = correlated(12)
    groups = [(0,), (2, 3)]
    weights = WEIGHTS if weighted else None
    common = {"features": groups, "compare": compare, "weights": backend.asarray(weights), "rng": KEY, "keep": "rows"}
    rows, labels = backend.asarray(X), backend.asarray(y)
    if method == "relative":
        found = rl.relative_importance(formula, rows, labels, given=[1], draws=DRAWS, **common)
    else:
        found = rl.conditional_model_reliance(formula, rows, labels, pairs=DRAWS, **common)
    assert found.plan == f"ranks, {DRAWS} per row"
    X, y, weights = backend.rounded(X), backend.rounded(y), backend.rounded(weights)
    tables = []
    for group in groups:
        known = X[:, [1]] if method == "relative" else np.delete(X, list(group), axis=1)
        mean = regression(known, X[:, list(group)], known)
        donors, mask = donor_table(ranked(X[:, list(group)] - mean, DRAWS))
        tables.append(scaled(scrambled_table(formula, X, y, group, mean, donors, mask, weights)))
    answers = [oracles.answer(table, compare) for table in tables]
    scale = 10 * max(np.abs(table.L).max() for table in tables)
    unit = scale / answers[0].base_risk if compare == "ratio" else scale
    backend.assert_close(found.values, [a.value for a in answers], unit)
    backend.assert_close(found.draws, [a.draws for a in answers], unit)
    backend.assert_close(found.row_values, [a.row_values for a in answers], unit)
    backend.assert_close(found.replaced_risk, [a.replaced_risk for a in answers], scale)


# ---------------------------------------------------------------------------------------------------------------------
# What a row meets


class Recorder:
    """A model that remembers which value of a feature each row was shown."""

    def __init__(self, row: Any, value: Any) -> None:
        self.row, self.value = row, value
        self.seen: list[tuple[int, Any]] = []

    def __call__(self, batch: Any) -> np.ndarray:
        shown = list(zip(np.asarray(self.row(batch)).tolist(), list(self.value(batch)), strict=True))
        self.seen += [(int(row), value) for row, value in shown]
        return np.asarray([hash(value) % 7 for _, value in shown], dtype=np.float64)

    def met(self, n: int, draws: int) -> list[list[Any]]:
        """The last ``n * draws`` values, by row; what came before was the base pass."""
        by_row: list[list[Any]] = [[] for _ in range(n)]
        for row, value in self.seen[-n * draws :]:
            by_row[row].append(value)
        assert all(len(values) == draws for values in by_row)
        return by_row


@pytest.mark.parametrize("kind", ["strings", "ordered", "numbers"])
def test_a_row_of_a_table_meets_every_level_evenly(kind: str) -> None:
    """40 rows, half of them of each level: of four draws, two are of either level, whatever the levels are."""
    pd = pytest.importorskip("pandas")
    n = 40
    level = np.random.default_rng(0).permutation(n) % 2
    columns = {
        "strings": np.where(level, "Rome", "Oslo"),
        "ordered": pd.Categorical(np.where(level, "S", "L"), categories=["S", "M", "L"], ordered=True),
        "numbers": np.where(level, 5.0, -1.0),
    }
    table = pd.DataFrame({"id": np.arange(n), "city": columns[kind]})
    model = Recorder(lambda batch: batch["id"], lambda batch: batch["city"])
    rl.permutation_importance(model, table, np.zeros(n), features=["city"], draws=DRAWS, rng=KEY)
    for values in model.met(n, DRAWS):
        assert sorted(map(values.count, set(values))) == [2, 2]


def test_an_input_of_several_is_sorted_by_itself() -> None:
    """Every row borrows once from each quarter of the ages, though another input is sorted the other way."""
    n = 24
    age = np.random.default_rng(1).permutation(n).astype(np.float64)
    inputs = {"id": np.arange(float(n)), "age": age, "other": -age[::-1]}
    seen = Recorder(lambda batch: batch["id"], lambda batch: batch["age"].tolist())
    rl.permutation_importance(
        lambda id, age, other: seen({"id": id, "age": age}),
        inputs,
        np.zeros(n),
        features={"age": "age"},
        draws=DRAWS,
        rng=KEY,
    )
    for values in seen.met(n, DRAWS):
        assert sorted(int(value) // 6 for value in values) == [0, 1, 2, 3]


def test_missing_values_are_a_stretch_of_their_own() -> None:
    """A quarter of 40 values is missing, so one of four draws is, and the others are of the three other quarters."""
    n = 40
    column = np.random.default_rng(2).permutation(n).astype(np.float64)
    X = np.column_stack([np.arange(n), np.where(column >= 30, np.nan, column)])
    model = Recorder(lambda batch: batch[:, 0], lambda batch: batch[:, 1].tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rl.permutation_importance(model, X, np.zeros(n), features=[1], draws=DRAWS, rng=KEY)
    for values in model.met(n, DRAWS):
        assert sorted(3 if np.isnan(value) else int(value) // 10 for value in values) == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------------------------------
# Few rows, few draws


def small(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4))
    return X, rng.normal(size=n)


def literal_change(X: np.ndarray, y: np.ndarray, column: int, donors: np.ndarray) -> float:
    n, total = len(X), 0.0
    for i, k in np.ndindex(*donors.shape):
        row = X[i].copy()
        row[column] = X[donors[i, k], column]
        total += (y[i] - formula(row)) ** 2 - (y[i] - formula(X[i])) ** 2
    return total / donors.size * n / (n - 1)


@pytest.mark.parametrize("n, draws", [(7, 5), (9, 8), (6, 6), (5, 3), (30, 1), (30, 2)])
def test_few_rows_against_loops(n: int, draws: int) -> None:
    """Also more draws than half of the rows; n draws are all pairs."""
    X, y = small(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rl.permutation_importance(formula, X, y, draws=draws, rng=KEY)
    for j in range(4):
        donors = donor_table(ranked(X[:, j], draws))[0]
        assert found.values[j] == pytest.approx(literal_change(X, y, j, donors), rel=1e-10)
    if draws == n:
        pairs = rl.model_reliance(formula, X, y, pairs="all", compare="difference")
        np.testing.assert_allclose(found.values, pairs.values, rtol=1e-10)


@pytest.mark.parametrize("draws", [1, 2])
def test_one_or_two_draws_are_announced(draws: int) -> None:
    X, y = small(30)
    with pytest.warns(UserWarning, match=f"draws={draws}: with fewer than 3 draws the population interval"):
        found = rl.permutation_importance(formula, X, y, draws=draws, rng=0)
    assert np.all(found.std_error > 0.0)
    assert np.isnan(found.monte_carlo_share).all()
    if draws == 1:
        with pytest.raises(ValueError, match="fixed-data"):
            found.interval(formulation="fixed-data")


def test_more_draws_than_rows_are_announced() -> None:
    X, y = small(10)
    with pytest.warns(UserWarning, match="draws=12 is more than the 10 ranks of 10 rows that are all pairs"):
        rl.permutation_importance(formula, X, y, draws=12, rng=0)


def test_a_constant_column_lends_nothing() -> None:
    X, y = small(30)
    X[:, 3] = 2.0
    with pytest.warns(UserWarning, match="constant"):
        found = rl.permutation_importance(formula, X, y, draws=8, rng=0)
    assert found.values[3] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 30 rows are few
        ends = found.interval()
    assert np.isnan(ends[3]).all()
    assert np.isfinite(ends[:3]).all()


# ---------------------------------------------------------------------------------------------------------------------
# What changes nothing


def test_other_features_change_nothing() -> None:
    X, y = small(50)
    every = rl.permutation_importance(formula, X, y, features=[0, 1, 2, 3, (0, 2)], draws=8, rng=1)
    for place, feature in enumerate([0, 1, 2, 3, (0, 2)]):
        alone = rl.permutation_importance(formula, X, y, features=[feature], draws=8, rng=1)
        assert alone.values[0] == every.values[place]
        assert alone.std_error[0] == every.std_error[place]
        assert alone.fixed_data_error[0] == every.fixed_data_error[place]


@pytest.mark.once_per_device
def test_blocks_and_backends_change_nothing_but_rounding(backend: Any) -> None:
    X, y = small(50)
    whole = rl.permutation_importance(formula, backend.rounded(X), backend.rounded(y), draws=8, rng=1)
    rows, labels = backend.asarray(X), backend.asarray(y)
    for block in (None, 7, 400):
        run = None if block is None else rl.Run(block=block)
        found = rl.permutation_importance(formula, rows, labels, draws=8, rng=1, run=run)
        backend.assert_close(found.values, whole.values, 10)
        backend.assert_close(found.std_error, whole.std_error, 10)


# ---------------------------------------------------------------------------------------------------------------------
# As many draws as it takes


def growing(column: np.ndarray, draws: int, key: int) -> np.ndarray:
    orders = plans.Orders(len(column), key, lambda feature: column[:, None])
    return donor_table(plans.Ranked(len(column), draws, key, orders, cycles=True).part(Feature("x", (0,))))[0]


def test_later_rounds_keep_the_earlier_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """8, 16 and 32 draws, ended by budgets: each begins with the draws of the one before, and is what loops say."""
    monkeypatch.setattr(adaptive, "_NEGLIGIBLE", -1.0)  # no draw is one too many
    X, y = small(60)
    found = {}
    for draws in (8, 16, 32):
        goal = rl.Until(precision=1e-9, budget=60 + 60 * draws)
        found[draws] = rl.permutation_importance(formula, X, y, features=[0], draws=goal, rng=3)
        assert (found[draws].draws_per_row, found[draws].stopped) == (draws, "budget")
        donors = growing(X[:, 0], draws, found[draws].key)
        assert found[draws].values[0] == pytest.approx(literal_change(X, y, 0, donors), rel=1e-10)
    for few, many in ((8, 16), (16, 32)):
        np.testing.assert_allclose(found[many].draws[:, :few], found[few].draws, rtol=1e-12)


@pytest.mark.parametrize("design", ["ranks", "shifts", "permutations"])
def test_until_stops_with_every_design(design: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = formula(X) + rng.normal(size=400)
    found = rl.permutation_importance(formula, X, y, draws=rl.Until(top=1, design=design), rng=0)
    assert found.stopped == "ranking"
    assert found.plan.startswith(design)
    loose = rl.permutation_importance(formula, X, y, draws=rl.Until(precision=2.0, design=design), rng=0)
    assert (loose.stopped, loose.draws_per_row) == ("precision", 8)


def test_ranks_need_fewer_draws_than_shifts() -> None:
    """Until the draws are a small part of the error: twice as many by shifts at least."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 4))
    y = formula(X) + rng.normal(size=300)
    counts = {
        design: rl.permutation_importance(
            formula, X, y, draws=rl.Until(precision=1e-6, design=design), rng=0
        ).draws_per_row
        for design in ("ranks", "shifts")
    }
    assert 2 * counts["ranks"] <= counts["shifts"], counts
