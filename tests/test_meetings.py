"""Options that were each tested alone, together."""

import dataclasses

import numpy as np
import pytest

import reliance as rl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X[:, 0] * X[:, 1] + RNG.normal(size=60)
PARTS = RNG.integers(0, 3, size=60)


def model(rows):
    return rows[:, 0] * rows[:, 1] + 0.1 * rows[:, 2]


def test_an_interaction_that_is_rounding_is_none():
    for draws in ("all", 20):
        for dtype in (np.float64, np.float32):
            found = rl.interaction_importance(model, X.astype(dtype), Y.astype(dtype), draws=draws, rng=0)
            unused = ["x3" in name for name in found.names]
            assert np.all(found.values[unused] == 0.0)
            assert np.all(found.std_error[unused] == 0.0)
            assert np.all(found.test().p_adjusted[unused] == 1.0)


@pytest.mark.parametrize("ending", [{"deadline": "1h"}, {"on_interrupt": "partial"}])
def test_what_measures_several_times_has_no_early_end(ending, tmp_path):
    run, name = rl.Run(**ending), next(iter(ending))
    with pytest.raises(ValueError, match=name):
        rl.compare_splits(model, train=(X, Y), test=(X, Y), rng=0, run=run)
    with pytest.raises(ValueError, match=name), run:
        rl.permutation_importance({"a": model, "b": model}, X, Y, rng=0)
    with pytest.raises(ValueError, match=name):
        rl.report(model, X, Y, path=tmp_path / "page.html", rng=0, run=run)


@pytest.mark.parametrize("donors", [rl.Donors(X[:30] + 1.0), rl.Donors(within=PARTS)])
def test_donors_of_ones_own_until_a_deadline(donors, monkeypatch):
    times = iter(range(10**6))
    monkeypatch.setattr("reliance.methods.growth.clock", lambda: float(next(times)))
    ended = rl.permutation_importance(model, X, Y, draws=29, replace=donors, rng=0, run=rl.Run(deadline=5.0))
    assert ended.stopped == "deadline"
    assert 8 <= ended.draws_per_row < 29
    whole = rl.permutation_importance(model, X, Y, draws=ended.draws_per_row, replace=donors, rng=0)
    np.testing.assert_allclose(ended.values, whole.values, rtol=1e-12)
    np.testing.assert_allclose(ended.interval(), whole.interval(), rtol=1e-10)


def test_no_page_about_what_was_not_measured(tmp_path):
    page = tmp_path / "page.html"
    with pytest.raises(ValueError, match="part"):
        rl.report(model, X, Y, path=page, rng=0, run=rl.Run(checkpoint=tmp_path / "kept", part=(1, 2)))
    with pytest.raises(ValueError, match=r"rl\.estimate"):
        rl.estimate(rl.report, model, X, Y, path=page, rng=0)
    assert not page.exists()


def test_a_report_whose_units_are_kept_has_all_sections(tmp_path):
    options = {"path": tmp_path / "page.html", "sections": ["importance", "class"], "rng": 0}
    kept = rl.report(model, X, Y, **options, run=rl.Run(checkpoint=tmp_path / "kept", workers=2, block=64))
    assert not kept.failed
    alone = rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.05)
    assert np.array_equal(alone.upper, kept["class"].upper)


def test_what_replaces_a_feature_stands_beside_a_memory_map(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    monkeypatch.setattr("reliance.data.stored_arrays.SMALL_MAP", 0)
    for by in ("mean", np.zeros(4), lambda rows: 2.0 * rows, rl.Donors(X[:20]), rl.Donors(mapped), "noise"):
        there = rl.permutation_importance(model, mapped, Y, replace=by, rng=0)
        here = rl.permutation_importance(model, X, Y, replace=by, rng=0)
        assert np.array_equal(there.values, here.values)
        assert np.array_equal(there.std_error, here.std_error)


def test_what_replaces_a_feature_is_named_where_rows_are_read_in_blocks():
    zarr = pytest.importorskip("zarr")
    stored = zarr.array(X, chunks=(20, 4))
    with pytest.raises(TypeError, match=r"^replace= needs all of X"):
        rl.permutation_importance(model, stored, Y, replace="mean")
    with pytest.raises(TypeError, match=r"^rl\.Donors\(X\) needs all of X"):
        rl.permutation_importance(model, X, Y, replace=rl.Donors(stored))


def test_settings_that_would_be_ignored_are_refused(tmp_path):
    from sklearn.linear_model import LinearRegression

    from reliance.sklearn import permutation_importance

    fitted = LinearRegression().fit(X, Y)
    with rl.Run(checkpoint=tmp_path / "kept"), pytest.raises(ValueError, match="checkpoint="):
        permutation_importance(fitted, X, Y)
    run = rl.Run(checkpoint=tmp_path / "kept", part=(1, 2), deadline=60.0)
    with pytest.raises(ValueError, match="part="):
        rl.permutation_importance(model, X, Y, rng=0, run=run)


def test_other_rows_that_lend_are_known_again():
    def by(donors, draws=16):
        return rl.permutation_importance(
            model, X, Y, draws=draws, replace=rl.Donors(donors), keep="influence", rng=0, features=["x0", "x1"]
        )

    first, more, other = by(X[:30] + 1.0), by(X[:30] + 1.0, draws=30), by(X[30:] + 1.0)
    assert np.all((first - more).std_error < first.std_error)
    with pytest.raises(ValueError, match="a - b: one rests on rows and other rows"):
        first - other
    with pytest.raises(ValueError, match="replaced_by"):
        rl.merge([first, replaced_names(other)])


def replaced_names(result):
    return dataclasses.replace(result, names=("x2", "x3"))


def test_routes_that_need_all_rows_say_so_where_rows_are_read_in_blocks():
    zarr = pytest.importorskip("zarr")
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer
    from sklearn.svm import SVR

    stored = zarr.array(X, chunks=(20, 4))
    for fitted in (SVR().fit(X, Y), make_pipeline(SplineTransformer(), Ridge()).fit(X, Y)):
        there, here = (rl.model_reliance(fitted, rows, Y) for rows in (stored, X))
        np.testing.assert_allclose(there.values, here.values, rtol=1e-8)
        assert set(there.routes) == {"plain"} != set(here.routes)
        assert all("X is read in blocks" in why for why in there.why_routes)
