"""Results: their contract, tables, files and figures."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import sys
import warnings

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from reliance import inference, plots
from reliance.inference.summary import Summary
from reliance.results import export
from reliance.results import gathered as results


def summary(value, k, n, rng, std_error=0.1, **given):
    draws = None if k is None else value + 0.05 * rng.normal(size=k)
    row_values = value + 0.3 * rng.normal(size=n)
    return Summary(
        **{
            "value": value,
            "replaced_risk": 2.0 + value,
            "std_error": std_error,
            "skewness": 0.02,
            "monte_carlo_share": 0.2,
            "fixed_data_error": 0.0 if k is None else (math.nan if k == 1 else 0.03),
            "random_variable_error": 0.05,
            "row_error": 0.08,
            "draws": draws,
            "row_values": row_values,
            **given,
        }
    )


def make(values=(0.5, -0.1, 0.0, 1.5), names=None, k=6, n=30, keep=True, compare="difference", kind="shifts", **given):
    rng = np.random.default_rng(0)
    names = names or [f"x{i}" for i in range(len(values))]
    settings = {"std_error": 0.1, **given}
    return results.from_summaries(
        names,
        [summary(v, k, n, rng, **settings) for v in values],
        base_risk=2.0,
        compare=compare,
        method="permutation_importance",
        loss="squared_error",
        plan="all pairs" if k is None else f"{kind}, {k} per row",
        units=n // 2 if kind == "halves" else n,
        n=n,
        draws_per_row=n - 1 if k is None else k,
        evaluations=[10 * i for i in range(len(values))],
        routes=["plain"] * len(values),
        block=(64, 32),
        key=2**100 + 7,
        keep_rows=keep,
    )


def same(a, b):
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            assert isinstance(y, np.ndarray)
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            assert x.tobytes() == y.tobytes() or np.array_equal(x, y, equal_nan=True)
        else:
            assert type(x) is type(y)
            assert x == y or (math.isnan(x) and math.isnan(y))


def test_contract():
    found = make()
    assert found.names == ("x0", "x1", "x2", "x3")
    assert found.values.tolist() == [0.5, -0.1, 0.0, 1.5]
    assert (found.compare, found.base_risk, found.n, found.block, found.key) == (
        "difference",
        2.0,
        30,
        (64, 32),
        2**100 + 7,
    )
    assert found.replaced_risk.shape == found.std_error.shape == found.evaluations.shape == (4,)
    assert found.draws.shape == found.importances.shape == (4, 6)
    assert found.row_values.shape == (4, 30)
    assert found.evaluations.dtype == np.int64
    np.testing.assert_array_equal(found.importances_mean, found.values)
    np.testing.assert_allclose(found.importances_std, found.draws.std(axis=1))
    assert make(keep=False).row_values is None


def test_all_pairs_have_no_draws():
    found = make(k=None)
    assert found.draws is None
    assert found.importances.shape == (4, 1)
    assert found.importances_std.tolist() == [0, 0, 0, 0]
    assert found.interval(0.9, "fixed-data").tolist() == [[v, v] for v in found.values]


def test_results_are_frozen():
    found = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.values = np.zeros(4)
    for name in ("values", "draws", "row_values", "std_error", "evaluations"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[0] = 1
    mine = np.zeros(1)
    kept = dataclasses.replace(make(values=[1.0]), std_error=mine)
    mine[0] = 5  # the result has its own copy
    assert kept.std_error[0] == 0


def test_three_intervals():
    found, n, k = make(), 30, 6
    for formulation, error, df in [("fixed-data", 0.03, k - 1), ("random-variable", 0.05, n * k - 1)]:
        q = stats.t.ppf(0.95, df)
        bounds = found.interval(0.9, formulation)
        np.testing.assert_allclose(bounds, np.stack([found.values - q * error, found.values + q * error], axis=1))
    expected = inference.interval(found.values, found.std_error, n - 1, 0.9, gamma=found.skewness)
    np.testing.assert_array_equal(found.interval(0.9), expected)
    halves = make(k=1, kind="halves")
    expected = inference.interval(halves.values, halves.std_error, n // 2 - 1, gamma=halves.skewness)
    np.testing.assert_array_equal(halves.interval(), expected)
    ratio = make(values=(1.0, 2.0), compare="ratio")
    expected = inference.interval(ratio.values, ratio.std_error, n - 1, gamma=ratio.skewness, ratio=True)
    np.testing.assert_array_equal(ratio.interval(), expected)


def test_intervals_that_cannot_be_had():
    with pytest.raises(ValueError, match="one draw per row"):
        make(k=1).interval(formulation="fixed-data")
    with pytest.raises(ValueError, match=r"n=2: give at least 4"):
        make(k=None, n=2, std_error=math.nan).interval()
    unknown = {"std_error": math.nan, "random_variable_error": math.nan, "row_error": math.nan, "skewness": math.nan}
    metric = make(**unknown)
    for call in (
        metric.interval,
        lambda: metric.interval(0.9, "random-variable"),
        metric.test,
        lambda: metric.test(method="paired"),
    ):
        with pytest.raises(ValueError, match="influence"):
            call()
    assert metric.interval(formulation="fixed-data").shape == (4, 2)
    with pytest.raises(ValueError, match="formulation='frequentist'"):
        make().interval(0.9, "frequentist")
    with pytest.raises(ValueError, match="level=95"):
        make().interval(95)


def test_a_skewed_loss_warns():
    with pytest.warns(UserWarning, match="'x0', 'x1', 'x2', 'x3' are very skewed for 30 rows"):
        make(skewness=0.5).interval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().interval()
        repr(make(skewness=0.5))


def test_tests():
    found = make()
    answer = found.test()
    assert (answer.names, answer.method, answer.alternative, answer.adjust) == (found.names, "t", "greater", "holm")
    np.testing.assert_allclose(answer.statistic, found.values / 0.1)
    np.testing.assert_allclose(answer.p_value, stats.t.sf(found.values / 0.1, 29))
    np.testing.assert_allclose(answer.p_adjusted, inference.adjust(answer.p_value, "holm"))
    np.testing.assert_allclose(found.test(adjust="none").p_adjusted, answer.p_value)
    np.testing.assert_allclose(found.test("two-sided").p_value, 2 * stats.t.sf(abs(found.values) / 0.1, 29))
    np.testing.assert_allclose(found.test(method="paired").statistic, found.values / 0.08)
    with pytest.warns(UserWarning, match="at least 79 draws"):
        found.test(method="rank")
    with pytest.warns(UserWarning, match="at least 19 draws"):
        found.test(method="rank", adjust="none")
    with pytest.warns(UserWarning, match="which means of"):
        found.test(method="sign-flip")
    with pytest.raises(ValueError, match="valid only for one draw"):
        found.test(method="wilcoxon")
    with pytest.raises(ValueError, match="keep="):
        make(k=1, keep=False).test(method="wilcoxon")
    with pytest.raises(ValueError, match="adjust='bonferroni'"):
        found.test(adjust="bonferroni")
    single = make(k=1)
    expected = [stats.wilcoxon(row, alternative="greater").pvalue for row in single.row_values]
    np.testing.assert_allclose(single.test(method="wilcoxon").p_value, expected)


def test_ranked_moves_everything_together():
    found = make()
    moved = found.ranked()
    assert moved.names == ("x3", "x0", "x2", "x1")
    for name in ("values", "draws", "row_values", "evaluations", "std_error"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(found, name)[[3, 0, 2, 1]])
    assert make(k=None, keep=False).ranked().draws is None
    assert make(values=(math.nan, 1.0)).ranked().names == ("x1", "x0")


def test_repr_is_an_aligned_table():
    text = repr(make(names=["age", "a name that is so long that nobody wants to read all of it", "two\nlines", "d"]))
    title, header, *lines = text.splitlines()
    assert "permutation_importance" in title
    assert "n = 30" in title
    assert len({len(line) for line in (header, *lines)}) == 1
    assert len(lines) == 4
    assert "..." in lines[1]
    assert "0.5000" in lines[0]


def test_repr_of_many_features_shows_the_largest():
    values = np.linspace(0, 1, 200)
    text = repr(make(values=values))
    assert len(text.splitlines()) == 23
    assert "x199" in text
    assert "x0 " not in text
    assert "20 largest of 200" in text


def test_repr_without_interval_shows_dashes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = repr(make(values=[0.25], k=None, n=2, std_error=math.nan)).splitlines()[-1]
    assert line.split() == ["x0", "0.2500", "-", "-", "-"]


def test_html_is_escaped():
    found = make(names=["<script>alert(1)</script>", "a & b", '"', "d"])
    text = dataclasses.replace(found, loss="<i>")._repr_html_()
    assert "<script>" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text
    assert "a &amp; b" in text
    assert text.count("<tr>") == 5


def test_frame():
    found = make()
    frame = found.to_frame(0.9)
    assert list(frame.index) == list(found.names)
    np.testing.assert_array_equal(frame["value"], found.values)
    np.testing.assert_array_equal(frame[["lower", "upper"]], found.interval(0.9))
    np.testing.assert_array_equal(frame["p"], found.test().p_adjusted)
    assert make(k=None, n=2, std_error=math.nan).to_frame()["lower"].isna().all()
    with pytest.raises(ValueError, match="level=2"):
        make(k=None, n=2, std_error=math.nan).to_frame(level=2)


def test_frame_without_pandas_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        make().to_frame()


def test_dict_is_json():
    found = make()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["values"] == found.values.tolist()
    assert plain["key"] == 2**100 + 7
    assert plain["names"] == list(found.names)
    assert make(k=None, keep=False).to_dict()["draws"] is None


ODD = ["", "naïve 名前", 'quote"\\', "nul\0", "\ud800", "x\n", "nan"]


@pytest.mark.parametrize("suffix", [".json", ".npz", ".JSON"])
@pytest.mark.parametrize("k", [None, 1, 6])
@pytest.mark.parametrize("keep", [True, False])
def test_files_round_trip_exactly(tmp_path, suffix, k, keep):
    values = (math.nan, math.inf, -math.inf, -0.0, 1 / 3, 5e-324, 1.7976931348623157e308)
    with np.errstate(all="ignore"):
        found = make(values=values, names=ODD, k=k, keep=keep, monte_carlo_share=math.nan)
    found = dataclasses.replace(found, base_risk=math.inf if k else 0.1, block=None if keep else (3, 4))
    path = tmp_path / f"result{suffix}"
    found.save(path)
    again = rl.load(str(path))
    same(found, again)
    assert again.values.tobytes() == found.values.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        again.values[0] = 1


def test_saved_json_is_strict_and_keeps_the_key_as_text(tmp_path):
    make(values=[math.nan]).save(tmp_path / "a.json")

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert found["key"] == str(2**100 + 7)


def test_files_that_are_no_results(tmp_path):
    for name in ("a.pkl", "a", "a.csv"):
        with pytest.raises(ValueError, match=r"\.json or \.npz"):
            make().save(tmp_path / name)
        with pytest.raises(ValueError, match=r"\.json or \.npz"):
            rl.load(tmp_path / name)
    (tmp_path / "b.json").write_text("[1, 2]")
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    for name in ("b.json", "b.npz"):
        with pytest.raises(ValueError, match="no saved Importance"):
            rl.load(tmp_path / name)
    np.savez(tmp_path / "c.npz", header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="never unpickled"):
        rl.load(tmp_path / "c.npz")
    make().save(tmp_path / "d.json")
    later = json.loads((tmp_path / "d.json").read_text()) | {"version": 99}
    (tmp_path / "d.json").write_text(json.dumps(later))
    with pytest.raises(ValueError, match="another version"):
        rl.load(tmp_path / "d.json")


def test_results_can_be_sent_between_processes():
    same(make(), pickle.loads(pickle.dumps(make())))


def test_helpers_of_tables():
    assert [export.number(x) for x in (0.0, math.nan, 2000.0, 0.25, math.inf)] == ["0", "-", "2000", "0.2500", "inf"]
    assert export.listed(list("abcdefg")) == "'a', 'b', 'c', 'd', 'e' and 2 more"


# ---------------------------------------------------------------------------------------------------------------------
# Figures


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_bars(pyplot, compare):
    found = make(
        values=np.linspace(-0.2, 1.5, 50), names=[f"cost in $ of item {i} and " * 3 for i in range(50)], compare=compare
    )
    axes = found.plot(most=12)
    axes.figure.canvas.draw()
    assert len(axes.patches) == 12
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0].startswith(r"cost in \$ of item 49")
    assert all(len(label) <= 42 for label in labels)
    assert axes.lines[-1].get_xdata()[0] == float(compare == "ratio")
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the largest on top
    ends = axes.collections[0].get_segments()
    np.testing.assert_allclose(ends[0][:, 0], found.ranked().interval()[0])


def test_bars_draw_where_told_and_without_interval(pyplot):
    _, axes = pyplot.subplots()
    assert plots.bars(make(k=None, n=2, std_error=math.nan), ax=axes) is axes
    assert not axes.collections
    assert make(values=[0.0], std_error=0.0).plot().patches[0].get_width() == 0
    with pytest.raises(ValueError, match="level=7"):
        plots.bars(make(k=None, n=2, std_error=math.nan), level=7)
    with pytest.raises(ValueError, match="most=0"):
        make().plot(most=0)
    with pytest.raises(ValueError, match="kind='pie'"):
        make().plot(kind="pie")


def test_plot_without_matplotlib_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        make().plot()


# ---------------------------------------------------------------------------------------------------------------------
# Several results under names


def test_several_losses_are_one_mapping(tmp_path):
    pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, losses = rng.normal(size=(30, 3)), ["squared_error", "absolute_error"]
    y = X[:, 0] + rng.normal(size=30)

    def fit(X, y):
        return lambda X: X[:, 0]

    calls = {
        "permutation": lambda loss: rl.permutation_importance(fit(X, y), X, y, draws=4, loss=loss, rng=0),
        "reliance": lambda loss: rl.model_reliance(fit(X, y), X, y, loss=loss, rng=0),
        "ablation": lambda loss: rl.ablation_importance(fit(X, y), X, y, draws=3, loss=loss, rng=0),
        "until": lambda loss: rl.permutation_importance(fit(X, y), X, y, draws=rl.Until(), loss=loss, rng=0),
        "conditional": lambda loss: rl.conditional_model_reliance(fit(X, y), X, y, loss=loss, rng=0),
        "relative": lambda loss: rl.relative_importance(fit(X, y), X, y, given=[1], draws=4, loss=loss, rng=0),
        "sets": lambda loss: rl.relative_importance(
            fit(X, y), X, y, given={"a": [1], "b": []}, draws=4, loss=loss, rng=0
        ),
        "algorithm": lambda loss: rl.algorithm_reliance(fit, X, y, cv=3, loss=loss, rng=0),
        "folds": lambda loss: rl.cross_validated_importance(fit, X, y, cv=3, draws=3, loss=loss, rng=0),
    }
    for name, call in calls.items():
        found = call(losses)
        assert type(found) is rl.Results, name
        assert list(found) == losses
        assert found.by == "loss"
        for loss in losses:
            alone = call(loss)
            assert type(found[loss]) is type(alone)
            frame = alone.to_frame()
            if name != "until":  # which goes on until all losses are settled
                np.testing.assert_allclose(found.to_frame().loc[loss]["value"], frame["value"], rtol=1e-12)
            assert f"loss {loss}:\n{found[loss]!r}" in repr(found)
            assert found[loss]._repr_html_() in found._repr_html_()
        assert found.to_frame().index.names == ["loss", *call(losses[0]).to_frame().index.names]
        assert found.to_frame(level=0.5)["lower"].gt(found.to_frame(level=0.9)["lower"]).any()
        found.save(tmp_path / "a.npz")
        assert rl.load(tmp_path / "a.npz").to_dict() == found.to_dict()


def test_a_mapping_of_results_cannot_be_changed_and_names_what_it_has():
    found = rl.Results({"a": make(), "b": make()})
    with pytest.raises(TypeError):
        found["c"] = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.entries = {}
    for odd in ("c", 0, None, ["a"]):
        with pytest.raises(KeyError, match="is not one of the losses 'a', 'b'"):
            found[odd]
    assert {**found} == found.entries
    assert len({found, found}) == 1
    escaped = rl.Results({"<b>": make()}, by="model")
    assert "model &lt;b&gt;:" in escaped._repr_html_()
    many = rl.Results({f"loss {k}": make() for k in range(200)})
    assert "and 190 more losses, by name" in repr(many)
    assert "and 190 more losses, by name" in many._repr_html_()
    assert len(repr(many)) < 6000


def test_sets_are_ranked_together_and_losses_each_by_itself():
    one, other = make(values=(0.5, 0.1, 1.0)), make(values=(2.0, 0.1, 0.0))
    apart = rl.Results({"one": one, "other": other}).ranked()
    assert (apart["one"].names, apart["other"].names) == (("x2", "x0", "x1"), ("x0", "x1", "x2"))
    together = rl.RelativeImportance({"one": one, "other": other}).ranked()
    assert together["one"].names == together["other"].names == ("x0", "x2", "x1")


def test_differences_between_sets_are_the_same_after_ranking_and_in_a_file(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    X[:, 1] += X[:, 0]
    y, sets = X.sum(axis=1) + rng.normal(size=40), {"none": [], "rest": "rest"}
    found = rl.relative_importance(lambda X: X @ np.array([0.1, 2.0, 1.0]), X, y, given=sets, draws=4, rng=0)
    found.save(tmp_path / "a.json")
    before = found.delta("none", "rest").to_frame()
    assert found.ranked()["none"].names != found["none"].names
    for other in (found.ranked(), rl.load(tmp_path / "a.json")):
        assert other.delta("none", "rest").to_frame().loc[before.index].equals(before)


def test_tests_of_halves_are_of_pairs_of_rows_also_ranked_and_loaded(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = lambda X: X[:, 0] + 0.5 * X[:, 1] * X[:, 2]  # noqa: E731
    found = rl.model_reliance(model, X, X[:, 0], pairs="halves", compare="difference", rng=3, keep="rows")
    order = np.random.Generator(np.random.Philox(key=3, counter=[0, 0, 1, 0])).permutation(40)
    pairs = (found.row_values[:, order[:20]] + found.row_values[:, order[20:]]) / 2
    np.testing.assert_array_equal(found.unit_values, pairs)
    assert (found.units, found.degrees_of_freedom.tolist()) == (20, [19, 19, 19])
    expected = [stats.wilcoxon(values[values != 0], alternative="greater").pvalue for values in pairs]
    np.testing.assert_allclose(found.test(method="wilcoxon", adjust="none").p_value, expected)
    found.save(tmp_path / "halves.npz")
    same(rl.load(tmp_path / "halves.npz"), found)
    place = [found.ranked().names.index(name) for name in found.names]
    np.testing.assert_array_equal(found.ranked().unit_values[place], pairs)
