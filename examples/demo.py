"""
Which measurements does a model of diabetes progression rely on?
================================================================

A small network is fitted to a data set that ships with scikit-learn. On the test rows the script asks, with 95%
intervals:

1. permutation importance: how much worse is the network with another patient's measurement?
2. model reliance: the same over all pairs of patients, exactly, as a ratio;
3. relative importance: how much of that is left when body mass and blood pressure are accounted for?
4. model class reliance: between which bounds is the reliance of *every* good linear model?
5. feature impact: how far do predictions move, whatever is true?

It prints the answers, draws them in one figure, and writes a report, one page with all of this to read::

    python examples/demo.py [demo.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl

TITLES = (
    "1. Permutation importance",
    "2. Model reliance, all pairs",
    "3. Relative importance",
    "4. Every good linear model",
    "5. Feature impact",
)


def main(picture: Path = Path("demo.png")) -> None:
    """Fit, measure, print, draw."""
    matplotlib.use("Agg")  # write the figure, open no window
    import matplotlib.pyplot as plt

    data = load_diabetes()
    X_train, X_test, y_train, y_test = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    # The target is left in its units, whose squares are large: hence the large penalty.
    network = MLPRegressor(hidden_layer_sizes=(16,), alpha=1000.0, solver="lbfgs", max_iter=5000, random_state=0)
    model = make_pipeline(StandardScaler(), network).fit(X_train, y_train)
    names = data.feature_names
    print(f"R2 on {len(y_test)} test rows: {model.score(X_test, y_test):.2f}\n")

    permuted = rl.permutation_importance(model, X_test, y_test, draws=50, names=names, rng=0)
    exact = rl.model_reliance(model, X_test, y_test, names=names)
    given = {"nothing": [], "bmi and bp": ["bmi", "bp"], "all others": "rest"}
    relative = rl.relative_importance(
        model, X_test, y_test, features=["bmi", "bp", "s5", "s3"], given=given, names=names, rng=0
    )
    good = rl.model_class_reliance(rl.LinearClass(), X_test, y_test, epsilon=0.05, names=names)
    impact = rl.feature_impact(model, X_test, names=names)

    answers = (permuted.ranked(), exact.ranked(), relative, good, impact.ranked())
    for title, answer in zip(TITLES, answers, strict=True):
        print(f"{title}\n{answer}\n")
    significant = [name for name, p in zip(exact.names, exact.test().p_adjusted, strict=True) if p < 0.05]
    print("Relied on, at a family-wise 5% (Holm):", ", ".join(significant) or "none")
    left = relative.delta("nothing", "bmi and bp")
    print("Importance that body mass and blood pressure account for:")
    print(left)

    figure, axes = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    for ax, title, answer in zip(axes.flat, TITLES, answers, strict=False):
        answer.plot(ax=ax)
        ax.set_title(title)
    axes.flat[-1].set_visible(False)
    figure.savefig(picture, dpi=120, facecolor="white")
    print(f"\nWrote {picture}")
    page = picture.with_suffix(".html")
    rl.report(model, X_test, y_test, path=page, train=(X_train, y_train), names=names, rng=0)
    print(f"Wrote {page}: open it in a browser")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
