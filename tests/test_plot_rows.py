"""Figures of single rows, of pixels, and of several results: what the Axes hold."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import reliance as rl
from plot_cases import NAMES, VALUES, all_rows, caption, importance, local, relative, segments, words
from reliance.plots import swarm
from test_results import make


@pytest.fixture(autouse=True)
def plt():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_a_waterfall_goes_from_the_mean_prediction_to_the_prediction():
    found, X = all_rows()
    products = X[:, 0] * X[:, 1]
    row = 2
    parts = [products[row] - np.mean(X[:, 0] * X[row, 1]), products[row] - np.mean(X[row, 0] * X[:, 1]), 0.0]
    ax = found.plot("waterfall", row=row, X=X, names=["a", "b", "c"])
    starts = [bar.get_x() for bar in ax.patches]
    widths = [bar.get_width() for bar in ax.patches]
    order = np.argsort(-np.abs(parts), kind="stable")
    rest = products[row] - products.mean() - sum(parts)
    np.testing.assert_allclose(widths, [*np.array(parts)[order], rest])
    np.testing.assert_allclose(starts, products.mean() + np.concatenate([[0.0], np.cumsum(widths)[:-1]]))
    assert starts[-1] + widths[-1] == pytest.approx(products[row])
    values = dict(zip("abc", ("a = 0.5", "b = 4", "c = 8"), strict=True))
    assert words(ax.get_yticklabels()) == [*(values["abc"[k]] for k in order), "features together"]
    said = words(ax.texts)
    assert f"mean prediction {products.mean():.4g}" in said
    assert f"prediction {products[row]:.4g}" in said
    few = found.plot("waterfall", row=row, most=1)
    assert words(few.get_yticklabels())[1:] == ["2 others", "features together"]


def test_a_waterfall_of_some_rows_does_not_know_the_mean():
    found = local()
    ax = found.plot("waterfall", row=7)
    first, last = ax.patches[0], ax.patches[-1]
    assert first.get_x() == pytest.approx(-found.values[1].sum())
    assert last.get_x() + last.get_width() == pytest.approx(found.base[1])
    assert "2 of 9 rows do not tell the mean prediction: pass start=" in caption(ax)
    ax = found.plot("waterfall", row=7, start=-1.0)
    assert (ax.patches[0].get_x(), len(ax.patches)) == (-1.0, 5)
    for start in ("mean", math.nan, True):
        with pytest.raises(ValueError, match="is no prediction: give a finite number"):
            found.plot("waterfall", row=7, start=start)
    losses = dataclasses.replace(found, quantity="squared_error")
    with pytest.raises(ValueError, match="changes of 'squared_error' do not add up: use kind='bar'"):
        losses.plot("waterfall", row=7)


def test_bars_of_one_row():
    found, _ = all_rows()
    ax = dataclasses.replace(found, std_error=found.values * 0 + 0.1, draws_per_row=5).plot("bar", row=1)
    order = np.argsort(-np.abs(found.values[1]), kind="stable")
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], found.values[1][order])
    middle = segments(ax).mean(axis=1)
    np.testing.assert_allclose(middle, found.values[1][order], atol=1e-12)
    assert "row 1, prediction -3" in caption(ax)
    with pytest.raises(ValueError, match="pass row="):
        found.plot("bar")


# ---------------------------------------------------------------------------------------------------------------------
# Rows and pictures


def dots(ax):
    """The points of each place of a beeswarm, those of several colours together."""
    found = {}
    for drawn in ax.collections:
        for x, y in np.asarray(drawn.get_offsets()):
            found.setdefault(round(y), []).append(x)
    return {place: np.sort(values) for place, values in found.items()}


def test_a_beeswarm_has_a_point_for_each_row():
    found = importance(n=40)
    ax = found.plot("beeswarm", most=3)
    for place, feature in enumerate([3, 0, 2]):
        np.testing.assert_allclose(dots(ax)[place], np.sort(found.row_values[feature]))
    assert ax.get_xlabel() == "increase in squared error, by row"
    explained, _ = all_rows()
    order = np.argsort(-np.abs(explained.values).mean(axis=0), kind="stable")
    drawn = dots(explained.plot("beeswarm"))
    np.testing.assert_allclose([drawn[k] for k in range(3)], np.sort(explained.values[:, order], axis=0).T)
    with pytest.raises(ValueError, match="kept none: measure with keep='rows'"):
        make(keep=False).plot("beeswarm")


def test_points_of_a_beeswarm_do_not_hide_each_other_and_stay_on_their_line():
    aside = swarm.offsets(np.zeros(200), 0.0, 1.0)
    assert len(np.unique(aside)) == 200
    assert np.abs(aside).max() < 0.5
    assert swarm.offsets(np.linspace(0.0, 1.0, 30), 0.0, 1.0).tolist() == [0.0] * 30
    assert swarm.offsets(np.full(3, 2.0), 2.0, 2.0).tolist() != [0.0] * 3


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("as_table", [False, True])
def test_a_beeswarm_is_coloured_by_the_values_of_features(ranked, as_table):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    X[3, 1] = math.nan
    found = make(values=[0.1, 2.0], names=["a", "b"], n=50)
    found = found.ranked() if ranked else found
    if as_table:
        pd = pytest.importorskip("pandas")
        ax = found.plot("beeswarm", X=pd.DataFrame({"b": X[:, 1], "other": 1.0, "a": X[:, 0]}))
    else:
        ax = found.plot("beeswarm", X=X, names=["a", "b"])
    shades = [np.asarray(one.get_array()) for one in ax.collections if one.get_array() is not None]
    rows = dict(zip(found.names, found.row_values, strict=True))
    for name, column, shade in zip("ba", (1, 0), shades, strict=True):  # b is on top
        known = np.flatnonzero(~np.isnan(X[:, column]))
        low, high = np.quantile(X[known, column], [0.05, 0.95])
        expected = np.clip((X[known, column] - low) / (high - low), 0.0, 1.0)
        np.testing.assert_allclose(shade, expected)
        drawn = next(
            one for one in ax.collections if one.get_array() is not None and len(one.get_array()) == len(known)
        )
        np.testing.assert_allclose(np.asarray(drawn.get_offsets())[:, 0], rows[name][known])
    assert len(ax.figure.axes) == 2  # the scale of colours
    missing = [one for one in ax.collections if one.get_array() is None and len(one.get_offsets())]
    assert [len(one.get_offsets()) for one in missing] == [1]


def test_text_and_groups_have_no_colour():
    pd = pytest.importorskip("pandas")
    found = make(values=[0.1, 2.0, 1.0], names=["a", "b", "a+b"], n=4)
    ax = found.plot("beeswarm", X=pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", "z", "x"]}))
    assert "grey: 2 features without an order" in caption(ax)
    explained = dataclasses.replace(local(), names=("a", "b", "c", "d"), n=8)
    table = pd.DataFrame({"a": range(8), "b": ["u", "v"] * 4, "c": [math.nan] * 8})
    labels = words(explained.plot("waterfall", row=7, X=table).get_yticklabels())
    assert labels == ["b = v", "c = missing", "d", "a = 7"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"X": np.ones((5, 4))}, ValueError, "X has 5 rows and the result 30"),
        (
            {"X": np.ones((30, 4))},
            ValueError,
            r"X has columns 'x0', 'x1', .* and the result .*pass names=",
        ),
        ({"X": np.ones(30)}, ValueError, r"X has shape \(30,\): pass the rows that were measured"),
        ({"X": "data.csv"}, TypeError, "X is a str"),
        ({"X": np.ones((30, 4)), "names": ["a"]}, ValueError, "names has 1 entries but X has 4"),
        ({"names": ["a"]}, ValueError, r"names=\['a'\] are those of X's columns: pass X= too"),
        ({"most": 0}, ValueError, "most=0"),
    ],
)
def test_bad_rows_of_a_beeswarm(options, error, message):
    with pytest.raises(error, match=message) as caught:
        importance().plot("beeswarm", **options)
    assert len(str(caught.value)) <= 300


def test_pixels_are_where_they_are_in_the_picture():
    values = np.arange(6.0) - 2.0
    flat = make(values=values)  # x0, x1, ... of rows (n, 6)
    square = make(values=values, names=[f"x[{i},{j}]" for i in range(2) for j in range(3)])
    named = make(values=values, names=list("abcdef"))
    for found, options in ((flat, {}), (square, {}), (named, {"names": list("abcdef")}), (flat.ranked(), {})):
        ax = found.plot("image", shape=(2, 3), **options)
        np.testing.assert_array_equal(ax.images[0].get_array(), values.reshape(2, 3))
        assert (ax.images[0].norm.vmin, ax.images[0].norm.vmax) == (-3.0, 3.0)
    np.testing.assert_array_equal(flat.plot("image", shape=(1, 2, 3)).images[0].get_array(), values.reshape(2, 3))
    some = make(values=[1.0, 5.0], names=["x4", "x0"]).plot("image", shape=(2, 3))
    assert np.ma.filled(some.images[0].get_array(), -9.0).tolist() == [[5.0, -9.0, -9.0], [-9.0, 1.0, -9.0]]
    assert "4 of 6 pixels have no value" in caption(some)


def test_groups_of_a_mask_are_where_they_are_in_the_picture():
    mask = np.array([[0, 0, 2], [5, -1, 2]])
    found = make(values=[1.5, 2.0, 0.5], names=["0", "2", "5"], compare="ratio").ranked()
    expected = [[1.5, 1.5, 2.0], [0.5, -9.0, 2.0]]
    for given in (mask, mask.tolist(), np.stack([mask] * 3), np.stack([mask] * 3, axis=2), mask[None]):
        ax = found.plot("image", mask=given)
        assert np.ma.filled(ax.images[0].get_array(), -9.0).tolist() == expected
    assert (ax.images[0].norm.vmin, ax.images[0].norm.vmax) == (0.0, 2.0)  # white is a ratio of 1
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 2, 3))
    explained = rl.local_importance(lambda Z: Z[:, 0, 0] + 2.0 * Z[:, 1, 2], X, features=mask, rows=[3])
    picture = np.ma.filled(explained.plot("image", mask=mask).images[0].get_array(), 0.0)
    np.testing.assert_allclose(picture[0, 0], X[3, 0, 0] - X[:, 0, 0].mean())
    np.testing.assert_allclose(picture[:, 2], 2.0 * (X[3, 1, 2] - X[:, 1, 2].mean()))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, r"pass shape=\(height, width\) for pixels, or mask="),
        ({"shape": (2, 2), "mask": np.zeros((2, 2), int)}, ValueError, "one of the two"),
        ({"shape": (2, 2.0)}, ValueError, r"shape=\(2, 2.0\) is no picture"),
        ({"shape": 4}, ValueError, "shape=4 is no picture"),
        ({"shape": (3, 2, 2)}, ValueError, "for several channels"),
        ({"shape": (1, 2)}, ValueError, r"shape=\(1, 2\) has no pixels 'x2', 'x3'"),
        ({"shape": (2, 2), "names": list("abcd")}, ValueError, "pass the names that were measured"),
        ({"mask": np.zeros((2, 2))}, ValueError, "give integers"),
        ({"mask": "mask.png"}, TypeError, "mask='mask.png' is not an array"),
        ({"mask": np.zeros((2, 2), int)}, ValueError, "mask has no group 'x0', 'x1', 'x2' and 1 more"),
        ({"mask": np.zeros((2, 2), int), "names": list("abcd")}, ValueError, "leave one out"),
    ],
)
def test_bad_pictures(options, error, message):
    with pytest.raises(error, match=message) as caught:
        make().plot("image", **options)
    assert len(str(caught.value)) <= 300


# ---------------------------------------------------------------------------------------------------------------------
# Several results


def test_losses_have_scales_of_their_own_and_features_in_the_same_places():
    squared, area = make(values=[1.0, 3.0, 2.0]), dataclasses.replace(make(values=[0.4, 0.1, 0.0]), loss="auc")
    found = rl.Results({"squared_error": squared, "auc": area})
    drawn = found.plot()
    assert [ax.get_xlabel() for ax in drawn] == ["increase in squared error", "increase in 1 - AUC"]
    order = [0, 1, 2]  # shares of the largest: (1/3, 1, 2/3) and (1, 1/4, 0)
    for ax, one in zip(drawn, (squared, area), strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], one.values[order])
        np.testing.assert_allclose(segments(ax), one.interval()[order])
        assert f"n = 30, base loss {one.base_risk:.4g}" in caption(ax)
    with pytest.raises(TypeError, match="kind='bar' has no option 'colour': it takes level, most"):
        found.plot(colour="red")


def test_models_under_one_loss_share_an_axes(plt):
    found = rl.Results({"forest": importance(), "ridge": make(values=VALUES[::-1], names=list(NAMES))}, by="model")
    ax = found.plot(level=0.5)
    assert len(ax.patches) == 8
    assert ax.get_legend().get_title().get_text() == "model"
    assert "50% interval" in caption(ax)
    _, given = plt.subplots()
    assert found.plot("bar", ax=given) is given
    assert len(found.plot("box")) == 2  # other kinds are side by side
    other = dataclasses.replace(importance(), loss="auc")
    assert len(rl.Results({"a": importance(), "b": other}, by="model").plot()) == 2  # no common scale
    assert len(rl.Results({"a": importance(), "b": make()}, by="model").plot()) == 2  # other features


def test_sets_as_groups_and_marks():
    found = relative()
    truth = np.arange(8.0).reshape(2, 4)
    ax = found.plot(by="set", marks={"analytic value": truth}, most=3)
    assert words(ax.get_yticklabels()) == ["given (nothing)", "given _a"]
    largest = np.sort(np.argsort(-np.maximum(VALUES, VALUES[::-1]), kind="stable")[:3])
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 2)
    np.testing.assert_allclose(widths, np.stack([VALUES, VALUES[::-1]], axis=1)[largest])
    diamonds = next(line for line in ax.lines if line.get_marker() == "D")
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    np.testing.assert_allclose(diamonds.get_ydata(), middles)
    np.testing.assert_array_equal(diamonds.get_xdata(), truth[:, largest].T.reshape(-1))
    assert words(ax.get_legend().get_texts())[-1] == "analytic value"
    by_feature = found.plot(marks={"analytic value": truth})
    diamonds = next(line for line in by_feature.lines if line.get_marker() == "D")
    order = np.argsort(-np.maximum(VALUES, VALUES[::-1]), kind="stable")
    np.testing.assert_array_equal(diamonds.get_xdata(), truth[:, order].reshape(-1))
    for options, error, message in (
        ({"by": "loss"}, ValueError, "by='loss' is not known: use 'feature' or 'set'"),
        ({"marks": [1]}, TypeError, "is no mapping"),
        ({"marks": {"a": [1.0]}}, ValueError, r"marks\['a'\] has shape \(1,\): give \(sets, features\), \(2, 4\)"),
        ({"marks": {"a": "b"}}, TypeError, "holds no numbers"),
    ):
        with pytest.raises(error, match=message):
            found.plot(**options)
