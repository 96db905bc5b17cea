"""What a call would take, and results of several jobs put together."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.data.stored_arrays import Stored
from reliance.engine import units
from test_scale import METHODS, WEIGHTS, X, Y, assert_same, model, small_units

__all__ = ["small_units"]  # a fixture that is used by being there

RUNS = ("ranks", "all pairs", "distinct", "conditional", "given", "impact", "local", "interactions")


class Counting:
    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, rows: Any) -> Any:
        self.rows += len(rows)
        return model(rows)


@pytest.mark.parametrize("name", RUNS)
def test_units_are_those_of_the_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the folder of the call itself; rows by the model, less those of the base pass."""
    counting = Counting()
    monkeypatch.setattr("test_scale.model", counting)

    METHODS[name](run=rl.Run(checkpoint=tmp_path))
    with_units = counting.rows
    counting.rows = 0
    METHODS[name](run=rl.Run(checkpoint=tmp_path))
    without = counting.rows
    counting.rows = 0
    found = rl.estimate(_public(name))
    assert found.units == len(list(tmp_path.rglob("[0-9]*.npz")))
    assert found.model_rows == with_units - without
    assert counting.rows == without
    assert found.memory > 0
    assert "units" in str(found)


def _public(name: str) -> Any:
    """A method of the table as a function of the package, which `estimate` asks for."""

    def method() -> Any:
        return METHODS[name]()

    method.__module__ = "reliance.methods"
    return method


SHIFTS = {"draws": rl.Draws(5, design="shifts")}
PASSES: dict[str, tuple[Any, ...]] = {
    "draws, in several blocks": (rl.permutation_importance, SHIFTS, 20, 1),
    "draws, in one block": (rl.permutation_importance, SHIFTS, 100, 1),
    "all pairs": (rl.model_reliance, {"features": [0, 1]}, (20, 20), 1),
    "all pairs, uneven": (rl.model_reliance, {"features": [0, 1]}, (20, 7), 1),
    "features in rounds": (rl.permutation_importance, SHIFTS, 20, 4),
}


@pytest.mark.parametrize("case", PASSES)
def test_passes_over_the_data_are_those_that_are_made(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where rows are read, less those that are read before the first unit."""
    h5py = pytest.importorskip("h5py")
    method, options, block, rounds = PASSES[case]
    rows = h5py.File(tmp_path / "x.h5", "w").create_dataset("x", data=X)
    read: list[int] = []
    whole = Stored.rows

    def counted(self: Stored, start: int, stop: int) -> Any:
        read.append(stop - start)
        return whole(self, start, stop)

    monkeypatch.setattr(Stored, "rows", counted)
    if rounds > 1:
        monkeypatch.setattr(units, "batches", lambda problem, plan, features, size: [(f,) for f in features])
    options = options | {"rng": 0, "run": rl.Run(block=block)}
    found = rl.estimate(method, model, rows, Y, **options)
    before, read[:] = sum(read), []
    with pytest.warns(UserWarning, match="X is read") if rounds > 1 else warnings.catch_warnings():
        method(model, rows, Y, **options)
    # An estimate reads the columns that lend, too.
    assert (found.passes - rounds) * len(X) == sum(read) - before
    assert found.bytes_read == found.passes * X.nbytes
    assert f"X is read {found.passes:,.0f} times" in str(found)
    assert rl.estimate(method, model, X, Y, **options).passes == 0


def test_nothing_of_a_count_stays_behind() -> None:
    expected = METHODS["ranks"]()
    rl.estimate(rl.permutation_importance, model, X, Y, draws=9, rng=1)
    with pytest.raises(ValueError, match="draws=0"):
        rl.estimate(rl.permutation_importance, model, X, Y, draws=0)
    assert_same(METHODS["ranks"](), expected)


def job(features: Any, **options: Any) -> Any:
    return rl.permutation_importance(model, X, Y, **{"features": features, "draws": 5, "rng": 1, **options})


def test_merged_features_are_those_of_one_call(tmp_path: Path) -> None:
    with rl.Run(block=(48, 5)):  # one unit each: other cuts round differently
        options = {"keep": "rows", "weights": WEIGHTS}
        job([2, 3], **options).save(tmp_path / "later.npz")
        found = rl.merge([job([0, 1], **options), rl.load(tmp_path / "later.npz")])
        whole = job(None, **options)
    np.testing.assert_allclose(found.row_values, whole.row_values, rtol=1e-12)
    for name in ("values", "std_error", "draws", "evaluations"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(found.interval(), whole.interval(), rtol=1e-12)
    assert (found.names, found.plan, found.key) == (whole.names, whole.plan, whole.key)
    assert rl.merge(iter([found])).names == found.names


def test_several_losses_and_curves_are_merged() -> None:
    losses = {"loss": ["squared_error", "absolute_error"]}
    found, whole = rl.merge([job([0], **losses), job([1, 2, 3], **losses)]), job(None, **losses)
    assert list(found) == list(whole)
    np.testing.assert_allclose(found["absolute_error"].values, whole["absolute_error"].values, rtol=1e-12)
    parts = [rl.model_reliance(model, X, Y, features=some, keep="curves") for some in ([0], [3])]
    assert set(rl.merge(parts).curves) == {"x0", "x3"}  # all pairs: the keys differ, and nothing was drawn
    with pytest.raises(ValueError, match="the same losses"):
        rl.merge([job([0], **losses), job([1], loss=["squared_error"])])
    with pytest.raises(ValueError, match="differ in curves"):
        rl.merge([parts[0], rl.model_reliance(model, X, Y, features=[1])])


def test_results_of_other_replacements_or_draws_are_not_merged(tmp_path: Path) -> None:
    def replaced(feature: int, by: Any) -> Any:
        return job([feature], draws=1, replace=by)

    lent = [rl.Donors(X[:20]), rl.Donors(X[20:40]), rl.Donors(within=(Y > 0).astype(int))]
    kinds = ["mean", "zero", np.ones(4), np.zeros(4), lambda rows: rows[:1] + 1.0]
    for one in kinds:
        replaced(0, one).save(tmp_path / "one.npz")
        for other in kinds:
            if one is other:
                assert rl.merge([rl.load(tmp_path / "one.npz"), replaced(1, other)]).names == ("x0", "x1")
                continue
            with pytest.raises(ValueError, match="differ in replaced_by"):
                rl.merge([rl.load(tmp_path / "one.npz"), replaced(1, other)])
    with pytest.raises(ValueError, match="differ in replaced_by"):
        rl.merge([job([0], replace=lent[0]), job([1], replace=lent[1])])
    assert len(rl.merge([job([0], replace=lent[2]), job([1], replace=lent[2])]).names) == 2
    with pytest.raises(ValueError, match="differ in"):
        rl.merge([job([0], replace=lent[2]), job([1])])
    given = [rl.relative_importance(model, X, Y, given=[g], features=[f], draws=3, rng=1) for g, f in ((1, 0), (3, 2))]
    with pytest.raises(ValueError, match=r"differ in replaced_by, 'given x1' and 'given x3'"):
        rl.merge(given)
    with pytest.raises(ValueError, match=r"Draws are not added, because errors need sums .*part=\.\.\."):
        rl.merge([job([0]), job([0], rng=2)])
