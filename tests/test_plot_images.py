"""Every kind of figure beside a picture of it that a person has looked at.

Pictures are small and have no text, so that neither fonts nor their rendering matter, and may differ by what another
release of matplotlib does at the edges of shapes. After a change that is meant, write them anew, look at each, and
commit them::

    PYTHONPATH=src python tests/test_plot_images.py
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import plot_cases as cases
import reliance as rl
from plot_cases import make

BASELINE = Path(__file__).parent / "baseline"
# Root mean square of 256 levels. Between matplotlib 3.10.0 and 3.11.2 nothing changed but the edges of pixels, one line
# of the picture each: at most 8.9. What the last test changes is at least twice as far off as is allowed.
TOLERANCE, PIXELS = 3.0, 12.0


def by_model():
    return rl.Results({"one": cases.importance(), "other": make(cases.VALUES[::-1], list(cases.NAMES))}, by="model")


def curve():
    x = np.linspace(-1.0, 1.0, 15)
    return cases.with_curves(x**2, x, x[None, :] ** 2 + np.linspace(-0.5, 0.5, 5)[:, None])


def rows():
    return make(values=cases.VALUES, names=list("abcd"), n=80)


def pixels():
    return make(values=np.cos(np.arange(24.0)))


def known_reference():
    return dataclasses.replace(cases.class_reliance(), reference_reliance=np.array([1.2, 2.0, 1.2]))


X = np.random.default_rng(5).normal(size=(80, 4))
MASK = np.array([[0, 0, 1, -1], [2, 2, 1, 3]])
PICTURES = {
    "importance_bar": (cases.importance, {}),
    "importance_box": (cases.importance, {"kind": "box"}),
    "importance_violin": (cases.importance, {"kind": "violin"}),
    "importance_curve": (curve, {"kind": "curve", "feature": "a"}),
    "importance_beeswarm": (rows, {"kind": "beeswarm", "X": X, "names": list("abcd")}),
    "importance_image": (pixels, {"kind": "image", "shape": (4, 6)}),
    "importance_mask": (lambda: make(cases.VALUES, list("0123")), {"kind": "image", "mask": MASK}),
    "models_bar": (by_model, {}),
    "sets_bar": (cases.relative, {}),
    "sets_by_set": (cases.relative, {"by": "set", "marks": {"true": np.ones((2, 4))}}),
    "delta_bar": (cases.delta, {}),
    "ranks_range": (cases.ranks, {}),
    "pooled_bar": (cases.pooled, {}),
    "class_range": (known_reference, {}),
    "class_intervals": (cases.listed_reliance, {}),
    "class_cloud": (cases.listed_reliance, {"kind": "cloud"}),
    "class_risk": (cases.listed_reliance, {"kind": "risk"}),
    "monitored_line": (cases.monitored, {}),
    "splits_box": (cases.splits, {}),
    "splits_violin": (cases.splits, {"kind": "violin"}),
    "splits_bar": (cases.splits, {"kind": "bar"}),
    "impact_bar": (cases.impact, {}),
    "impact_quantiles": (cases.impact, {"kind": "quantiles"}),
    "local_heat": (cases.local, {}),
    "local_waterfall": (lambda: cases.all_rows()[0], {"kind": "waterfall", "row": 2}),
    "local_bar": (cases.local, {"kind": "bar", "row": 7}),
    "local_beeswarm": (cases.local, {"kind": "beeswarm"}),
    "local_image": (cases.local, {"kind": "image", "row": 7, "shape": (2, 2), "names": cases.NAMES}),
    "null_range": (cases.nulls, {}),
    "null_box": (cases.nulls, {"kind": "box"}),
    "null_violin": (cases.nulls, {"kind": "violin"}),
    "refits_bar": (cases.refits, {}),
    "refits_box": (cases.refits, {"kind": "box"}),
    "refits_violin": (cases.refits, {"kind": "violin"}),
    "linear_bar": (cases.linear, {}),
    "interactions_bar": (cases.interactions, {}),
    "extrapolation_bar": (cases.extrapolation, {}),
    "tests_bar": (cases.judged, {}),
}


def picture(result, options):
    """Levels (height, width, 3) of a figure without its text."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure, ax = plt.subplots(figsize=(4.0, 3.0), dpi=50)
        result.plot(ax=ax, **options)
        figure.canvas.draw()  # ticks have labels from now on
        for one in figure.findobj(
            lambda one: isinstance(one, Text | Legend)
        ):  # the room of a legend is that of its text
            one.set_visible(False)
        figure.canvas.draw()
        levels = np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy()
        plt.close(figure)
    return levels


def difference(one, other):
    return float(np.sqrt(np.mean((one.astype(float) - other.astype(float)) ** 2)))


def committed(name):
    from matplotlib import image

    return np.round(image.imread(BASELINE / f"{name}.png")[:, :, :3] * 255.0)


@pytest.mark.parametrize("name", PICTURES)
def test_the_figure_is_the_committed_picture(name, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    make_result, options = PICTURES[name]
    found = picture(make_result(), options)
    apart, most = difference(found, committed(name)), PIXELS if options.get("kind") == "image" else TOLERANCE
    if apart > most:
        matplotlib.image.imsave(tmp_path / f"{name}.png", found)
    assert apart <= most, f"{name} differs by {apart:.1f} levels: compare {tmp_path / name}.png with {BASELINE}"


def test_every_kind_has_a_picture():
    pytest.importorskip("matplotlib")
    drawn = {(type(make_result()).__name__, options.get("kind")) for make_result, options in PICTURES.values()}
    for result, kinds in cases.KINDS:
        name = type(result()).__name__
        assert {kind if kind != kinds[0] else None for kind in kinds} <= {kind for one, kind in drawn if one == name}
    assert {path.stem for path in BASELINE.glob("*.png")} == set(PICTURES)
    assert max(path.stat().st_size for path in BASELINE.glob("*.png")) < 15_000


def test_the_tolerance_sees_a_small_change():
    """One bar a tenth of the axis longer, an interval twice as long, one point moved, another row of pixels."""
    pytest.importorskip("matplotlib")
    longer = make(values=cases.VALUES + np.array([0.2, 0.0, 0.0, 0.0]), names=list(cases.NAMES))
    assert difference(picture(longer, {}), committed("importance_bar")) > 2.0 * TOLERANCE
    wider = make(values=cases.VALUES, names=list(cases.NAMES), std_error=0.2)
    assert difference(picture(wider, {}), committed("importance_bar")) > 2.0 * TOLERANCE
    moved = dataclasses.replace(known_reference(), achieved_lower=np.array([1.0, 1.3, 1.2]))
    assert difference(picture(moved, {}), committed("class_range")) > 2.0 * TOLERANCE
    turned = make(values=np.sin(np.arange(24.0)))
    assert difference(picture(turned, {"kind": "image", "shape": (4, 6)}), committed("importance_image")) > 2.0 * PIXELS


def write():
    from matplotlib import image

    BASELINE.mkdir(exist_ok=True)
    for name, (make_result, options) in PICTURES.items():
        image.imsave(BASELINE / f"{name}.png", picture(make_result(), options))


if __name__ == "__main__":
    write()
