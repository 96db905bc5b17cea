"""What figures say: true labels, captions, names that are told apart, and no text that is cut off or covered."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import reliance as rl
from plot_cases import (
    caption,
    class_reliance,
    impact,
    importance,
    judged,
    local,
    nulls,
    refits,
    relative,
    splits,
    with_curves,
    words,
)
from reliance.methods.splits import SplitComparison
from reliance.plots import wording
from test_results import make


@pytest.fixture(autouse=True)
def plt():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


# ---------------------------------------------------------------------------------------------------------------------
# Words


def test_axes_say_what_is_measured():
    assert wording.amount("difference", "auc") == "increase in 1 - AUC"
    assert wording.amount("ratio", "r2") == "1 - R², replaced / original"
    assert wording.amount("difference", "rmse") == "increase in RMSE"
    assert wording.amount("difference", "my own loss") == "increase in my own loss"
    assert refits().plot().get_xlabel() == "increase in squared error without the feature"
    alone = dataclasses.replace(refits(), leave="in", compare="ratio").plot()
    assert alone.get_xlabel() == "squared error, without / with the feature alone"
    assert caption(importance().plot()) == "n = 30, base loss 2; whiskers: 95% interval"
    unknown = importance(k=None, n=2, std_error=math.nan).plot()
    assert caption(unknown) == "n = 2, base loss 2; no interval is known"
    assert "1 not known or not finite" in caption(make(values=[math.nan, 1.0]).plot())


def test_names_are_told_apart_in_tables_as_in_figures():
    """Also where the table has room for fewer features than the figure: labels do not depend on how many are shown."""
    long = "the same long beginning of these names, "
    names = [f"{long}{'abcdefghij'[k % 10]}{k} in the year {2000 + k}" for k in range(28)]
    found = make(values=np.linspace(3.0, 1.0, 28), names=names)
    drawn = words(found.plot().get_yticklabels())
    assert len(set(drawn)) == 28
    printed = [line.split("  ")[0] for line in repr(found).splitlines()[2:22]]
    assert printed == drawn[:20]
    sets = rl.Results({f"{long * 2}{k}": make() for k in range(3)}, by="model")
    above = [line for line in repr(sets).splitlines() if line.startswith("model ")]
    assert len(set(above)) == 3


def drawn_labels(axis):
    """matplotlib keeps labels beyond the limits of the axis, which it does not draw."""
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [tick.label1 for tick in ticks if tick.label1.get_visible()]


def overlapping(labels, renderer):
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_text()]
    return [(a, b) for k, a in enumerate(boxes) for b in boxes[k + 1 :] if a.overlaps(b)]


LONG = [f"a name of eighty letters of a feature that someone measured in the year {1900 + k}" for k in range(200)]
ODD = {
    "one": lambda: make(values=[0.5], names=["x"]).plot(),
    "two hundred": lambda: make(values=np.linspace(-1, 1, 200)).plot(most=200),
    "long names": lambda: make(values=np.linspace(-1, 1, 200), names=LONG).plot("box"),
    "swarm": lambda: make(values=np.linspace(-1, 1, 200), names=LONG).plot("beeswarm"),
    "infinite": lambda: dataclasses.replace(make(), std_error=np.full(4, math.inf)).plot(),
    "ranges": lambda: class_reliance().plot(),
    "sets": lambda: relative().plot(),
    "by set": lambda: relative().plot(by="set"),
    "losses": lambda: rl.Results({"a": importance(), "b": importance()}).plot()[0],
    "waterfall": lambda: local().plot("waterfall", row=7),
    "heat": lambda: local().plot(),
    "splits": lambda: splits().plot(),
    "impact": lambda: impact().plot("quantiles"),
    "nulls": lambda: nulls().plot(),
    "tests": lambda: judged().plot(),
    "image": lambda: make(values=np.arange(6.0)).plot("image", shape=(2, 3)),
    "narrow image": lambda: make(values=np.arange(9.0)).plot("image", shape=(9, 1)),
    "categories": lambda: with_curves(np.arange(200.0), np.arange(200.0)).plot(
        "curve", feature="a", values=[f"category number {k}" for k in range(200)]
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_no_text_is_cut_off_or_covers_another(name, recwarn):
    ax = ODD[name]()
    figure = ax.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    assert not [warning for warning in recwarn if "layout" in str(warning.message)]
    whole = figure.bbox
    for one in figure.axes:
        shown = [label for axis in (one.xaxis, one.yaxis) for label in drawn_labels(axis)]
        captions = [text for text in one.texts if text.get_gid() == "caption"]
        for labels in (drawn_labels(one.xaxis), drawn_labels(one.yaxis), [one.title, one.xaxis.label, *captions]):
            assert not overlapping([label for label in labels if not label.get_rotation()], renderer)
        legend = one.get_legend()
        said = [
            one.title,
            one.xaxis.label,
            one.yaxis.label,
            *one.texts,
            *shown,
            *(legend.get_texts() if legend else []),
        ]
        for text in said:
            if text.get_text() and text.get_visible():
                box = text.get_window_extent(renderer)
                assert whole.x0 - 1 <= box.x0 <= box.x1 <= whole.x1 + 1, text.get_text()
                assert whole.y0 - 1 <= box.y0 <= box.y1 <= whole.y1 + 1, text.get_text()


def test_many_categories_say_how_many_have_no_label():
    ax = ODD["categories"]()
    hidden = 200 - len(ax.get_xticks())
    assert hidden > 100
    apart = np.diff([ax.transData.transform((x, 0.0))[0] for x in ax.get_xticks()]).min()
    label = ax.get_xticklabels()[0]
    assert label.get_rotation() == 30  # lines of turned text are half as far apart as their ticks
    assert apart / 2.0 >= label.get_fontsize() * ax.figure.dpi / 72.0
    assert f"{hidden} of 200 values have no label" in caption(ax)


def test_whiskers_are_seen_on_bars(plt):
    """Dark pixels where the whisker of a bar runs, inside and outside of the bar."""
    ax = make(values=[1.0]).plot()
    figure = ax.figure
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[:, :, :3].mean(axis=2)
    for x in np.linspace(*make(values=[1.0]).interval()[0], 9)[1:-1]:
        column, row = ax.transData.transform((x, 0.0))
        around = pixels[pixels.shape[0] - int(row) - 4 : pixels.shape[0] - int(row) + 4, int(column)]
        assert around.min() < 80
        assert around.max() > 200  # the white rim


def test_outliers_are_drawn_once():
    values = np.array([0.0, 0.1, 0.2, 0.3, 0.2, 9.0])
    one = make(values=values)
    zeros = np.zeros(6)
    ax = SplitComparison(one, one, one.names, zeros, zeros, zeros + 9).plot()
    points = np.concatenate([np.atleast_1d(line.get_ydata()) for line in ax.lines if line.get_marker() == "."])
    assert (points == 9.0).sum() == 2  # one in each of the two splits
