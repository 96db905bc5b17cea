"""Figures: what the Axes hold, compared with the results; test_plot_images.py compares pictures."""

from __future__ import annotations

import dataclasses
import math
import sys

import numpy as np
import pytest

import reliance as rl
from plot_cases import (
    KINDS,
    NAMES,
    OPTIONS,
    VALUES,
    caption,
    class_reliance,
    delta,
    extrapolation,
    impact,
    importance,
    interactions,
    judged,
    linear,
    listed_reliance,
    local,
    nulls,
    refits,
    relative,
    segments,
    splits,
    with_curves,
    words,
)
from reliance.plots import style, wording
from test_results import make


@pytest.fixture(autouse=True)
def plt():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.parametrize(("result", "kinds"), KINDS, ids=[result.__name__ for result, _ in KINDS])
def test_every_kind_draws_where_told_and_errors_say_what_there_is(plt, monkeypatch, result, kinds):
    for kind in kinds:
        if kind == "curve":
            continue
        _, ax = plt.subplots()
        opened = plt.get_fignums()
        options = OPTIONS.get((result.__name__, kind), {})
        assert result().plot(kind, ax=ax, **options) is ax
        ax.figure.canvas.draw()
        assert plt.get_fignums() == opened  # no other figure was opened
        plt.close("all")
        with pytest.raises(TypeError, match=f"kind='{kind}' has no option 'colour': it takes"):
            result().plot(kind, colour="red")
        with pytest.raises(TypeError, match="ax must be a matplotlib Axes, got Figure"):
            result().plot(kind, ax=plt.figure(), **options)
        plt.close("all")
    with pytest.raises(ValueError, match="kind='pie' is not known: use one of " + ", ".join(map(repr, kinds))):
        result().plot("pie")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        result().plot()


@pytest.mark.parametrize("result", [importance, delta, refits])
def test_bars_and_whiskers(result):
    found = result()
    # Differences of either sign are in the order of their sizes.
    ax, order = found.plot(level=0.9), [3, 0, 1, 2] if result is delta else [3, 0, 2, 1]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], VALUES[order])
    np.testing.assert_allclose(segments(ax), found.interval(0.9)[order])
    shown = words(ax.get_yticklabels())
    assert shown[:2] == ["d", r"price in \$"]
    long = shown[order.index(2)]
    assert long.endswith("...")
    assert len(long) == 40
    assert "90% interval" in caption(ax)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_unknown_and_infinite_ends():
    found = make(values=[1.5, 2.0, 3.0], compare="ratio")
    found = dataclasses.replace(found, std_error=np.array([math.nan, 0.1, math.inf]))
    ax = found.plot()
    ax.figure.canvas.draw()
    np.testing.assert_allclose(segments(ax)[1], found.interval()[1])
    assert len(segments(ax)) == 2  # no whisker for what is not known
    arrows = [line for line in ax.lines if line.get_marker() == ">"]
    assert arrows[0].get_xdata().tolist() == [ax.get_xlim()[1]]
    make(values=[math.nan, math.inf, 1.0]).plot().figure.canvas.draw()


def test_many_features_in_little_room(plt):
    _, ax = plt.subplots(figsize=(4, 3))
    make(values=np.linspace(-1, 1, 200)).plot(ax=ax, most=200)
    assert len(ax.patches) == 200
    hidden = 200 - len(ax.get_yticks())
    assert 150 < hidden < 190
    assert f"{hidden} of 200 features have no label" in caption(ax)
    ax = make(values=np.linspace(-1, 1, 200)).plot()
    assert ax.get_title().endswith("30 largest of 200 features")
    assert "no label" not in caption(ax)


def test_names_that_differ_at_their_ends_stay_different():
    long = "the same beginning of every one of these names, " * 2
    shown = wording.labels([long + "one", long + "two", "short", "short"])
    assert len(set(shown)) == 3
    assert all(len(name) <= 40 for name in shown)
    assert shown[0].endswith("one")


def test_groups_of_bars():
    found = relative()
    ax = found.plot()
    order = np.argsort(-np.maximum(VALUES, VALUES[::-1]), kind="stable")
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(2, 4)
    np.testing.assert_allclose(widths, [VALUES[order], VALUES[::-1][order]])
    ends = np.concatenate([one.interval()[order] for one in found.values()])
    np.testing.assert_allclose(segments(ax), ends)
    middles = np.array([bar.get_y() + bar.get_height() / 2 for bar in ax.patches]).reshape(2, 4)
    np.testing.assert_allclose(middles.mean(axis=0), range(4), atol=1e-12)
    assert words(ax.get_legend().get_texts()) == ["(nothing)", "\u200b_a"]
    colours = {bar.get_facecolor() for bar in ax.patches}
    assert len(colours) == 2
    looks = [tuple(style.fill(k)[name] for name in ("facecolor", "hatch")) for k in range(28)]
    assert len(set(looks)) == 28


def test_spread_over_draws():
    found = importance(k=7)
    ax = found.plot("box")
    medians = [line.get_xdata()[0] for line in ax.lines if line.get_color() == style.INK and len(line.get_xdata()) == 2]
    assert set(np.median(found.draws, axis=1)) <= set(medians)
    assert len(ax.patches) == 4
    ax = found.plot("violin", most=2)
    assert words(ax.get_yticklabels()) == ["d", r"price in \$"]
    assert ax.get_title().endswith("2 largest of 4 features")
    assert "7 draws" in caption(ax)
    assert len(refits().plot("box").patches) == 4
    for kind in ("box", "violin"):
        with pytest.raises(ValueError, match=r"all pairs have none: measure with several.*pairs=20"):
            importance(k=None).plot(kind)
        with pytest.raises(ValueError, match="one draw has none"):
            importance(k=1).plot(kind)
        with pytest.raises(ValueError, match="measure with cv=5"):
            refits(folds=1).plot(kind)
        constant = dataclasses.replace(found, draws=np.ones((4, 7)))
        constant.plot(kind).figure.canvas.draw()


def test_ranges_are_dumbbells_in_the_order_of_their_lower_ends():
    found = class_reliance()
    ax = found.plot()
    order = [2, 1, 0]
    assert words(ax.get_yticklabels()) == ["c", "b", "a"]
    bars = segments(ax)
    np.testing.assert_allclose(bars, [(1.2, 1.2), (1.1, 3.0), (1.0, 1.5)])
    dots = next(line for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_array_equal(dots.get_xdata(), [*found.achieved_lower[order], *found.achieved_upper[order]])
    ends = segments(ax, 1)
    assert len(ends) == 2  # nothing is certified for the third
    np.testing.assert_allclose(ends[1], (0.9, 2.0))
    assert ends[0][1] == ax.get_xlim()[1]
    assert ax.lines[-1].get_xdata()[0] == 1.0
    assert "n = 9" in caption(ax)
    one_sided = class_reliance(lower=(0.9, 1.0, 1.1), upper=(math.nan,) * 3).plot()
    np.testing.assert_allclose(segments(one_sided, 1)[2], (0.9, 1.5))
    assert class_reliance((math.nan,) * 3, (math.nan,) * 3).plot().get_legend() is None
    exact = class_reliance(lower=(1.0, 1.1, 1.2), upper=(1.5, 3.0, 1.2)).plot()
    assert len(exact.collections) == 1  # no whiskers below the dots
    assert "ends are exact" in caption(exact)


def test_the_reference_of_a_range_is_a_dot():
    found = class_reliance()
    own = make(values=[1.25, 1.3, 1.2], names=["b", "a", "c"], compare="ratio")  # found by name
    for reference in (own, [1.3, 1.25, 1.2]):
        ax = found.plot(reference=reference)
        dots = next(line for line in ax.lines if line.get_marker() == "D")
        assert dots.get_xdata().tolist() == [1.2, 1.25, 1.3]
        assert words(ax.get_legend().get_texts())[-1] == "reference"
    for reference, message in (
        (make(values=[1.0], names=["a"], compare="ratio"), "reference lacks 'b', 'c'"),
        (make(values=[1.0] * 3, names=["a", "b", "c"]), "reference is a difference of squared_error, the range one of"),
        ([1.0], r"reference has shape \(1,\) and there are 3 features"),
    ):
        with pytest.raises(ValueError, match=message):
            found.plot(reference=reference)
    with pytest.raises(TypeError, match="reference='model': give an Importance"):
        found.plot(reference="model")


@pytest.mark.parametrize("compare", ["ratio", "difference"])
def test_the_reference_of_a_class_is_drawn_where_it_is_known(compare):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 3)) + 4.0
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=12)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, compare=compare, features=[0, (1, 2)])
    coef = np.linalg.lstsq(np.column_stack([X, np.ones(12)]), y)[0]
    risk = np.mean((y - X @ coef[:3] - coef[3]) ** 2)
    for value, columns in zip(found.reference_reliance, ([0], [1, 2]), strict=True):
        total = 0.0
        for i in range(12):
            for k in range(12):
                row = X[i].copy()
                row[columns] = X[k, columns]
                total += (y[i] - row @ coef[:3] - coef[3]) ** 2 * (i != k)
        switched = total / 132
        assert value == pytest.approx(switched / risk if compare == "ratio" else switched - risk, rel=1e-9)
    dots = next(line for line in found.plot().lines if line.get_marker() == "D")
    np.testing.assert_array_equal(np.sort(dots.get_xdata()), np.sort(found.reference_reliance))
    listed = rl.FiniteClass([lambda Z: Z[:, 0], lambda Z: Z @ coef[:3] + coef[3]])
    found = rl.model_class_reliance(listed, X, y, epsilon=99.0, compare=compare)
    np.testing.assert_array_equal(found.reference_reliance, found.members.values[1])
    searched = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, compare=compare, reference=2.0 * risk)
    assert searched.reference_reliance is None  # a risk is no model


def test_good_models_one_by_one():
    found = listed_reliance()
    ax = found.plot("cloud", y="b")
    np.testing.assert_allclose(ax.collections[0].get_offsets(), found.members.values[:2, :2])  # a is widest
    best = next(line for line in ax.lines if line.get_marker() == "D")
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (1.0, 1.4)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    ax = found.plot("risk", feature="c")
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[1.0, 2.0], [1.05, 2.2]])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [1.1]
    for options, text in (({"kind": "cloud", "x": "z"}, "x='z'"), ({"kind": "risk", "feature": 3}, "feature=3")):
        with pytest.raises(ValueError, match=text):
            found.plot(**options)
    with pytest.raises(ValueError, match="no list of models"):
        class_reliance().plot("cloud")


def test_intervals_of_ranges():
    """Below each range, one for either end."""
    found = listed_reliance()
    ax = found.plot(level=0.9)
    lines = [segment for some in ax.collections for segment in some.get_segments() if segment[0, 1] % 1 > 0.1]
    expected = {tuple(np.round(end, 9)) for ends in found.interval(0.9) for end in ends}
    assert {tuple(np.round(segment[:, 0], 9)) for segment in lines} == expected
    assert "90% interval of an end" in words(ax.get_legend().get_texts())


def test_splits():
    found = splits()
    ax = found.plot()
    assert words(ax.get_xticklabels()) == ["training data", "test data"]
    points = [line.get_ydata().tolist() for line in ax.lines if line.get_marker() == "." and len(line.get_ydata()) == 4]
    assert points[-2:] == [found.on_train.values.tolist(), found.on_test.values.tolist()]
    assert len(found.plot("violin").collections) == 3  # two bodies and the medians
    assert len(found.plot("bar").patches) == 8


def test_impact_per_quantile():
    found = impact()
    ax = found.plot("quantiles", most=2)
    assert [line.get_ydata().tolist() for line in ax.lines] == found.impact[:, [3, 2]].T.tolist()
    assert words(ax.get_legend().get_texts())[0] == "d"
    points = found.plot().lines[0]
    np.testing.assert_array_equal(np.sort(points.get_xdata()), np.sort(found.impact.reshape(-1)))


def test_curves():
    ice = np.arange(36.0).reshape(3, 12)
    x = np.arange(12.0)
    x[-1] = math.nan
    ax = with_curves(ice.mean(axis=0), x, ice).plot("curve", feature="a", rows=2)
    single, mean = [line for line in ax.lines if line.get_linewidth() == 0.6 and line.get_alpha()], ax.lines[-3]
    np.testing.assert_array_equal([line.get_ydata() for line in single], ice[[0, 2], :11])
    np.testing.assert_array_equal(mean.get_ydata(), ice.mean(axis=0)[:11])
    assert ax.lines[-2].get_ydata().tolist() == [ice.mean(axis=0)[11]]  # missing: a point of its own
    np.testing.assert_array_equal(ax.lines[-1].get_xdata(), x[:11])  # the rug
    assert "2 of 3 rows" in caption(ax)


def test_curves_of_categories_and_outputs():
    mean = np.arange(6.0).reshape(3, 2)
    found = with_curves(mean, [0.0, 1.0, 2.0], np.zeros((5, 3, 2)))
    ax = found.plot("curve", feature="a", values=["red", "green", "blue"])
    assert words(ax.get_xticklabels()) == ["red", "green", "blue"]
    assert [line.get_linestyle() for line in ax.lines] == ["None", "None"]
    assert [line.get_ydata().tolist() for line in ax.lines] == mean.T.tolist()
    assert words(ax.get_legend().get_texts()) == ["0", "1"]
    one = found.plot("curve", feature="a", output=1, points=False)
    assert len(one.lines) == 5 + 1 + 1
    for options, message in (
        ({}, "the result has 2: pass feature="),
        ({"feature": "z"}, "feature='z' was not measured"),
        ({"feature": "b"}, "is a group of 2 columns"),
        ({"feature": "a", "output": 2}, "output=2 is not one of the model's 2"),
        ({"feature": "a", "values": ["red"]}, "names 1 points, but 3"),
        ({"feature": "a", "output": 0, "rows": 0}, "rows=0 leaves nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            found.plot("curve", **options)
    with pytest.raises(ValueError, match=r"pairs='all', keep='curves'"):
        importance().plot("curve")


def test_a_measured_curve():
    X = np.random.default_rng(0).normal(size=(15, 1))
    found = rl.model_reliance(lambda X: 2.0 * X[:, 0], X, X[:, 0], keep="curves")
    line = found.plot("curve").lines[0]
    np.testing.assert_allclose(line.get_ydata(), 2.0 * np.sort(X[:, 0]), rtol=1e-12)


def test_the_heat_map_is_centred():
    found = local()
    image = found.plot(most=2).collections[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()).reshape(2, 2), found.values[:, [1, 0]].T)
    assert (image.norm.vmin, image.norm.vmax) == (-3.0, 3.0)


@pytest.mark.parametrize("kind", ["range", "box", "violin"])
def test_null_distributions(kind):
    found = nulls()
    ax = found.plot(kind)
    order = [3, 0, 2, 1]
    points = next(line for line in ax.lines if line.get_marker() == "D")
    np.testing.assert_array_equal(points.get_xdata(), VALUES[order])
    assert ax.get_xlabel() == r"measure of \$"
    if kind == "range":
        low, high = np.quantile(found.null[order], [0.05, 0.95], axis=1)
        ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
        np.testing.assert_allclose(ends, np.stack([low, high], axis=1))


@pytest.mark.parametrize(
    ("result", "lengths"),
    [(linear, 2.0 * VALUES), (interactions, VALUES), (extrapolation, VALUES), (judged, None)],
    ids=["linear", "interactions", "extrapolation", "judged"],
)
def test_bars_of_the_companions(plt, result, lengths):
    found = result()
    lengths = found.p_adjusted if lengths is None else lengths
    sizes = {"extrapolation": lengths, "judged": -lengths}.get(result.__name__, np.abs(lengths))
    order = np.argsort(-sizes, kind="stable")
    ax = found.plot()
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], lengths[order])
    assert words(ax.get_yticklabels())[0].startswith(found.names[order[0]][:5].replace("$", r"\$"))
    if result is interactions:
        np.testing.assert_allclose(segments(ax), found.interval()[order])
    if result is extrapolation:
        assert {line.get_xdata()[0] for line in ax.lines} == {1.0, 1.25}
    if result is judged:
        null, limit, points = found.plot(alpha=0.01).lines
        assert (null.get_xdata()[0], limit.get_xdata()[0]) == (0.0, 0.01)
        np.testing.assert_array_equal(points.get_xdata(), np.sort(found.p_adjusted))
        with pytest.raises(ValueError, match="alpha=3"):
            found.plot(alpha=3)


def test_several_results_stand_side_by_side(plt):
    other = make(values=VALUES[::-1], names=list(NAMES))
    found = rl.Results({"log_loss": importance(), "$": other})
    drawn = found.plot(most=2)
    assert [len(ax.patches) for ax in drawn] == [2, 2]
    assert [ax.get_title().split(",")[0] for ax in drawn] == ["log_loss", r"\$"]
    np.testing.assert_allclose(drawn[1].patches[0].get_width(), np.max(VALUES))
    _, given = plt.subplots(2)
    assert list(found.plot("box", ax=given)) == list(given)
    assert len(rl.Results({"a": relative(), "b": relative()}).plot()) == 2
    with pytest.raises(ValueError, match="sequence of 2 Axes"):
        found.plot(ax=given[0])
    with pytest.raises(ValueError, match="kind='pie' is not known"):
        found.plot("pie")
