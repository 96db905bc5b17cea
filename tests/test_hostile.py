"""Hostile calls: every public function with odd input gives the number of a literal loop, or a short plain refusal."""

from __future__ import annotations

import inspect
import zlib

import pytest

import reliance as rl
import reliance.sklearn
from hostile import backends, classes, degenerate, labels, losses, models, options, record, results, routes, rows

CASES = [
    case
    for family in (rows, degenerate, labels, options, models, routes, losses, results, classes, backends)
    for case in family.cases()
]


def test_there_are_enough_cases_and_each_has_its_own_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 400
    assert len(set(names)) == len(names), sorted({name for name in names if names.count(name) > 1})


def test_every_public_name_is_called() -> None:
    public = {name for name in rl.__all__ if not inspect.ismodule(getattr(rl, name))}
    public |= {name for name in rl.__all__ if inspect.ismodule(getattr(rl, name)) and name != "functional"}
    public |= {
        f"functional.{name}"
        for name in ("base_risk", "pairwise_moments", "pairwise_risk", "shifted_risk", "switched_losses")
    }
    public |= {f"sklearn.{name}" for name in reliance.sklearn.__all__}
    assert public <= {case.function for case in CASES}


# Every second one by turns; `make slow` has the others.
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if zlib.crc32(case.name.encode()) % 2 else ())
        for case in CASES
    ],
)
def test_hostile(case: record.Case) -> None:
    record.check(case)
