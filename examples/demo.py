"""Which measurements does a model of diabetes progression rely on?

Trains a small network on a data set that ships with scikit-learn, switches every pair of test rows in every feature
(the exact estimator, no sampling), prints the table with 95% intervals and writes ``demo.png``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl


def main(picture: Path = Path("demo.png")) -> None:
    """Fit, measure, print, draw."""
    matplotlib.use("Agg")  # write the figure, open no window
    data = load_diabetes()
    X_train, X_test, y_train, y_test = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    # The target is left in its units, whose squares are large: hence the large penalty.
    network = MLPRegressor(hidden_layer_sizes=(16,), alpha=1000.0, solver="lbfgs", max_iter=5000, random_state=0)
    model = make_pipeline(StandardScaler(), network).fit(X_train, y_train)

    result = rl.model_reliance(model, X_test, y_test, pairs="all", names=data.feature_names)
    print(f"R2 on {len(y_test)} test rows: {model.score(X_test, y_test):.2f}\n")
    print(result.ranked())

    significant = [name for name, p in zip(result.names, result.test().p_adjusted, strict=True) if p < 0.05]
    print("\nRelied on, at a family-wise 5% (Holm):", ", ".join(significant) or "none")

    axes = result.plot()
    axes.set_title("Model reliance, exact over all pairs, 95% intervals")
    axes.figure.savefig(picture, dpi=150, bbox_inches="tight")
    print(f"\nWrote {picture.resolve()}")


if __name__ == "__main__":
    main()
