"""The two studies of König et al. (2020), as examples/ has them: every feature and set beside its analytic value."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
STUDIES = ["indirect_influence", "outside_variables"]


@pytest.fixture(params=STUDIES)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(request.param)


def test_every_feature_and_set_has_its_analytic_value(example: ModuleType) -> None:
    result, expected = example.study(100_000, 0)
    assert set(expected) == {(label, name) for label in example.SETS for name in example.FEATURES}
    for (label, name), true in expected.items():
        one = result[label]
        place = one.names.index(name)
        value, error = one.values[place], one.std_error[place]
        where = f"{name} given {label}: {value} +- {error}, analytic {true}"
        if name in example.SETS[label]:
            assert (value, error, true) == (0, 0, 0), where  # it keeps its own value
            continue
        assert abs(value - true) < 3 * error, where
        if abs(true) < 1e-4:  # 0 but for the sampling error of the fitted slope
            assert abs(value) < 3 * error, where
            assert abs(value) < 0.01, where
        else:
            assert value == pytest.approx(true, rel=0.05), where


def test_the_fitted_models_are_the_papers(example: ModuleType) -> None:
    slopes = {"indirect_influence": [0, 0, 1, 1], "outside_variables": [1, 7 / 6, 2 / 3]}[example.__name__]
    risk = {"indirect_influence": 0.25, "outside_variables": 0.25 + 1 / 6}[example.__name__]
    data = example.draw(example.PARENTS, example.SIGMA, 100_000, 0)
    X = np.column_stack([data[name] for name in example.FEATURES])
    np.testing.assert_allclose(example.least_squares(X, data["Y"])[1], slopes, atol=0.02)
    result, _ = example.study(100_000, 0)
    assert next(iter(result.values())).base_risk == pytest.approx(risk, rel=0.05)


def test_analytic_values_of_the_population_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 2 b^2 Var(X_j | X_G) where the residual is independent of the features; 0 for X3 given C."""
    monkeypatch.syspath_prepend(EXAMPLES)
    chain, outside = (importlib.import_module(name) for name in STUDIES)
    values = chain.analytic(chain.PARENTS, chain.SIGMA, chain.FEATURES, np.asarray([0.0, 0, 1, 1]), chain.SETS)
    assert [values[label, "X3"] for label in chain.SETS] == pytest.approx([4.18, 2.18, 0.18, 0.18])
    assert [values[label, "X4"] for label in chain.SETS] == pytest.approx([4.0, 2.0, 3.0, 2.0])
    assert {values[label, name] for label in chain.SETS for name in ("X1", "X2")} == {0.0}
    slopes = np.asarray([1, 7 / 6, 2 / 3])
    values = chain.analytic(outside.PARENTS, outside.SIGMA, outside.FEATURES, slopes, outside.SETS)
    found = [values[label, name] for label in outside.SETS for name in outside.FEATURES]
    assert found == pytest.approx([2, 49 / 9, 10 / 9, 2, 7 / 3, 0], abs=1e-12)


def test_what_the_studies_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem 2: X2 resolves the influence of X1 on X3 and not that on X4; C changes X2 and X3 and not X1."""
    monkeypatch.syspath_prepend(EXAMPLES)
    chain, outside = (importlib.import_module(name).study(20_000, 1)[0] for name in STUDIES)
    p = chain.delta("X2", "X1 and X2").test(adjust="none").p_value
    assert p[2] > 0.01
    assert p[3] < 1e-6
    p = outside.delta("nothing", "C").test(adjust="none").p_value
    assert p[0] > 0.01
    assert max(p[1:]) < 1e-6


def test_tables_and_figures(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "study.png"
    example.main(picture, samples=10_000)
    printed = capsys.readouterr().out
    assert all(f"{label} " in printed for label in example.SETS)
    assert "-0.000" not in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
