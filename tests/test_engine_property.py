"""The engine against the literal double loop, for whatever Hypothesis thinks of.

Losses are computed in float64 by NumPy, one cell at a time, from the model's own predictions in the dtype of its rows:
what is left between the two is the rounding of the engine, and of a prediction that another batch rounds otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import oracles
import reliance as rl
from conftest import MAKERS
from hostile import loops
from methods import KEY, METHODS, SHIFTS, donor_table
from reliance import plans

# Namespace, variant of it, dtype: how many units in the last place of the largest loss may differ.
UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
BACKENDS = [
    ("numpy", "", "float64"),
    ("numpy", "readonly", "float32"),
    ("numpy", "", "float16"),
    ("strict", "device2", "float64"),
    ("strict", "no_float64", "float32"),
    ("torch", "cpu", "float64"),
    ("torch", "cpu", "float32"),
    ("torch", "cpu", "float16"),
    ("torch", "cpu", "bfloat16"),
    ("jax", "x64", "float64"),
    ("jax", "", "float32"),
    ("jax", "", "float16"),
    ("jax", "", "bfloat16"),
]
IDS = ["-".join(part for part in backend if part) for backend in BACKENDS]
# JAX compiles for each example: one dtype of it is quick enough.
QUICK = [
    pytest.param(*one, id=name, marks=pytest.mark.slow if one[0] == "jax" and one[2] != "float32" else ())
    for one, name in zip(BACKENDS, IDS, strict=True)
]
COLUMNS = 4
GROUPS: list[list[tuple[int, ...]]] = [
    [(0,), (1,), (2,), (3,)],
    [(2,), (0, 1)],
    [(3, 0), (1, 2)],
    [(0, 1, 2, 3), (1,)],
]


def _bounded(y: Any, prediction: Any) -> Any:
    """A loss of the user's own."""
    square = (y - prediction) ** 2
    return square / (1.0 + square)


# Name: (formula and labels of `oracles.CASES`, what is passed as loss, the loss of one row).
LOSSES: dict[str, tuple[str, Any, Callable[[Any, Any], float]]] = {
    name: (name, oracles.CASES[name].loss, oracles.CASES[name].oracle)
    for name in (
        "squared_error",
        "squared_error-outputs",
        "absolute_error",
        "huber",
        "hinge",
        "zero_one-classes",
        "cross_entropy",
        "cross_entropy-classes",
        "log_loss",
        "poisson_deviance",
    )
} | {"own": ("squared_error", _bounded, lambda y, p: float(_bounded(y, p)))}
# In 16 bits a probability may round to 1, and a rate is too coarse for a difference of logarithms.
FINE = {"log_loss", "poisson_deviance"}


@dataclass(frozen=True)
class Question:
    """One call of the engine."""

    n: int
    seed: int
    loss: str
    plan: str
    draws: int
    key: int
    groups: int
    compare: str
    weighted: bool
    block: Any

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows with ties, repeated rows and a column of few values."""
        X, y = oracles.CASES[LOSSES[self.loss][0]].data(self.n, self.seed)
        X[:, 3] = np.round(X[:, 3])
        X[-1] = X[0]
        return X, y

    def weights(self) -> np.ndarray | None:
        if not self.weighted:
            return None
        rng = np.random.default_rng(self.seed + 1)
        return np.where(np.arange(self.n) == 1, 0.0, rng.integers(1, 4, size=self.n)).astype(np.float64)

    def donors(self) -> tuple[np.ndarray, np.ndarray]:
        if self.plan == "halves":
            return donor_table(METHODS["halves"].plan(self.n))
        plan = {
            "all": lambda: plans.Pairs(self.n),
            "shifts": lambda: plans.Shifts(self.n, self.draws, self.key),
            "permutation": lambda: plans.Shifts(self.n, self.draws, self.key),
            "ablation": lambda: plans.Resample(self.n, self.draws, self.key),
        }[self.plan]()
        return donor_table(plan)

    def ask(self, model: Any, X: Any, y: Any, weights: Any) -> Any:
        options = {
            "loss": LOSSES[self.loss][1],
            "compare": self.compare,
            "weights": weights,
            "run": rl.Run(block=self.block),
            "features": [group if len(group) > 1 else group[0] for group in GROUPS[self.groups]],
            "keep": "rows",
        }
        if self.plan in ("permutation", "ablation"):
            function = rl.permutation_importance if self.plan == "permutation" else rl.ablation_importance
            draws = self.draws if self.plan == "ablation" else SHIFTS(self.draws)
            return function(model, X, y, draws=draws, rng=self.key, **options)
        if self.plan == "shifts":
            return rl.model_reliance(model, X, y, pairs=SHIFTS(self.draws), rng=self.key, **options)
        return rl.model_reliance(model, X, y, pairs=self.plan, rng=KEY, **options)


def questions(kind: str, dtype: str) -> st.SearchStrategy[Question]:
    """JAX compiles for each shape, so that its rows are always six."""
    losses = [name for name in LOSSES if dtype in ("float64", "float32") or name not in FINE]
    shaped = kind == "jax"
    return st.builds(
        Question,
        n=st.just(6) if shaped else st.sampled_from([4, 6, 10]),
        seed=st.integers(0, 10**6),
        loss=st.sampled_from(losses),
        plan=st.sampled_from(["all", "halves", "shifts", "permutation", "ablation"]),
        draws=st.just(3) if shaped else st.integers(1, 12),
        key=st.integers(0, 2**64 - 1),
        groups=st.integers(0, len(GROUPS) - 1),
        compare=st.sampled_from(["difference", "ratio"]),
        weighted=st.booleans(),
        block=st.none() if shaped else st.sampled_from([None, 1, 5, (2, 3), 1000]),
    )


class Device:
    """A namespace and a dtype: up with host arrays, down to float64."""

    def __init__(self, stack: contextlib.ExitStack, kind: str, variant: str, dtype: str) -> None:
        self.xp, self._upload = MAKERS[kind](stack, variant)
        self.kind, self.dtype = kind, dtype

    def up(self, values: np.ndarray | None) -> Any:
        if values is None:
            return None
        if values.dtype.kind != "f":
            return self._upload(values)
        narrow = values.astype(self.dtype if self.dtype in ("float64", "float32", "float16") else "float32")
        found = self._upload(narrow)
        wanted = getattr(self.xp, self.dtype)
        return found if found.dtype == wanted else found.astype(wanted) if self.kind == "jax" else found.to(wanted)

    def down(self, array: Any) -> np.ndarray:
        if self.kind == "torch":
            array = array.detach().cpu()
            return (array.double() if array.is_floating_point() else array).numpy()
        if self.kind == "strict":
            from array_api_strict import Device as StrictDevice

            array = array.to_device(StrictDevice("CPU_DEVICE"))
        found = np.asarray(array)
        return found.astype(np.float64) if found.dtype.kind not in "biu" else found


def literal_tables(question: Question, device: Device, model: Any) -> tuple[list[oracles.Table], Any]:
    """For each group the table of losses, and the arrays that the engine is to be called with."""
    host_X, host_y = question.data()
    X, y, weights = device.up(host_X), device.up(host_y), device.up(question.weights())
    rows, labels = device.down(X), device.down(y)
    donors, mask = question.donors()
    loss, n = LOSSES[question.loss][2], question.n
    own = device.down(model(X))
    base = np.array([loss(labels[i], own[i]) for i in range(n)])
    tables = []
    for group in GROUPS[question.groups]:
        replaced = [oracles.replaced_row(rows, i, int(k), group) for i in range(n) for k in donors[i]]
        predictions = device.down(model(device.up(np.array(replaced))))
        L = np.array([loss(labels[m // donors.shape[1]], p) for m, p in enumerate(predictions)]).reshape(donors.shape)
        counted = np.ones(n) if weights is None else device.down(weights)
        tables.append(oracles.Table(L, base, donors, mask, counted))
    return tables, (X, y, weights)


def assert_equal(question: Question, result: Any, tables: list[oracles.Table], unit: float) -> None:
    answers = [oracles.answer(table, question.compare) for table in tables]
    scale = max(float(np.max(np.abs(table.L))) for table in tables)
    ratio = scale / answers[0].base_risk if question.compare == "ratio" else scale

    def close(found: Any, expected: Any, size: float) -> None:
        np.testing.assert_allclose(found, np.asarray(expected, dtype=np.float64), rtol=0.0, atol=8.0 * unit * size)

    close(result.base_risk, answers[0].base_risk, scale)
    close(result.replaced_risk, [a.replaced_risk for a in answers], scale)
    close(result.values, [a.value for a in answers], ratio)
    share = 1.0 if question.weights() is None else float(np.max(tables[0].weights) / np.mean(tables[0].weights))
    close(result.row_values, [a.row_values for a in answers], ratio * share)
    if question.plan == "all":
        assert result.draws is None
    else:
        close(result.draws, [a.draws for a in answers], ratio)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "variant", "dtype"), QUICK)
def test_the_engine_is_the_double_loop(kind: str, variant: str, dtype: str) -> None:
    examples = 12 if kind == "jax" else 40

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(question=questions(kind, dtype))
    def check(question: Question) -> None:
        model = oracles.CASES[LOSSES[question.loss][0]].formula
        tables, arrays = literal_tables(question, device, model)
        base = float(np.average(tables[0].l, weights=tables[0].weights))
        assume(question.compare == "difference" or base > 0.05)
        assert_equal(question, question.ask(model, *arrays), tables, UNITS[dtype])

    with contextlib.ExitStack() as stack:
        device = Device(stack, kind, variant, dtype)
        check()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "variant", "dtype"), QUICK)
def test_features_held_at_constants_are_the_double_loop(kind: str, variant: str, dtype: str) -> None:
    """Blume's impact: a spread of predictions over a spread of a column."""

    @settings(
        max_examples=2 if kind == "jax" else 6,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 10**6), quantiles=st.just(3) if kind == "jax" else st.integers(1, 9))
    def check(seed: int, quantiles: int) -> None:
        host_X, _ = oracles.CASES["squared_error"].data(7, seed)
        host_X[:, 3] = np.round(host_X[:, 3])
        X = device.up(host_X)
        model = oracles.CASES["squared_error"].formula
        found = rl.feature_impact(model, X, quantiles=quantiles, features=[0, 1, 2])
        data = loops.Data(lambda rows: device.down(model(device.up(rows))), device.down(X), groups=((0,), (1,), (2,)))
        truth = loops.impacts(data, quantiles)
        # Predictions have a unit of their own, and a spread of the column below 1 makes it larger.
        size = float(np.max(np.abs(device.down(model(X))))) / float(np.min(np.std(data.X[:, :3], axis=0)))
        np.testing.assert_allclose(found.values, truth, rtol=0.0, atol=8.0 * UNITS[dtype] * max(size, 1.0))

    with contextlib.ExitStack() as stack:
        device = Device(stack, kind, variant, dtype)
        check()
