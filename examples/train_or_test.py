"""
Importance on training data or on test data?
============================================

The support vector machine of Molnar's section 7.5.2, Figure 7.24: 200 rows of 50 random features, and a target that has
nothing to do with them. A support vector machine learns it anyway: on its training data many features look important,
because the machine depends on them; on test data their importances are about 1, because nothing that it learned helps.
The script prints both and draws the figure::

    python examples/train_or_test.py [train_or_test.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import reliance as rl

FEATURES, ROWS = 50, 200


def study(seed: int = 0) -> rl.SplitComparison:
    """Fit the machine to random rows, and measure its features there and on as many new rows."""
    from sklearn.svm import SVR

    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(2 * ROWS, FEATURES)), rng.normal(size=2 * ROWS)
    train, test = (X[:ROWS], y[:ROWS]), (X[ROWS:], y[ROWS:])
    return rl.compare_splits(
        SVR(C=1.0, gamma="scale").fit(*train),
        train=train,
        test=test,
        pairs=10,
        loss="absolute_error",
        names=[f"X{j + 1}" for j in range(FEATURES)],
        rng=seed,
    )


def table(both: rl.SplitComparison) -> str:
    """Quartiles of the importances, and the feature that the machine depends on most."""
    lines = [f"{'':14}{'error':>8}{'least':>8}{'25%':>8}{'median':>8}{'75%':>8}{'most':>8}"]
    for name, result in (("training data", both.on_train), ("test data", both.on_test)):
        spread = np.quantile(result.values, [0, 0.25, 0.5, 0.75, 1])
        lines.append(f"{name:14}{result.base_risk:8.3f}" + "".join(f"{value:8.3f}" for value in spread))
    top = int(np.argmax(both.on_train.values))
    low, high = both.interval()[top]
    lines += [
        "",
        f"{both.names[top]}: {both.on_train.values[top]:.3f} on training data,"
        f" {both.on_test.values[top]:.3f} on test data, "
        f"difference {both.values[top]:.3f} [{low:.3f}, {high:.3f}]",
    ]
    return "\n".join(lines)


def main(picture: Path = Path("train_or_test.png")) -> None:
    """Measure, print, draw."""
    both = study()
    print("Mean absolute error, and its ratio when a feature is replaced, over 50 features:\n")
    print(table(both))
    ax = both.plot()
    ax.figure.savefig(picture, dpi=150)
    print(f"\nWrote {picture.resolve()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
