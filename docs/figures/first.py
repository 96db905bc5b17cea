"""The figure of README.md: run ``python docs/figures/first.py`` to write docs/_static/first.png."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import reliance as rl

X, y = load_diabetes(return_X_y=True, as_frame=True)
model = RandomForestRegressor(random_state=0).fit(X[:300], y[:300])
result = rl.permutation_importance(model, X[300:], y[300:], rng=0)

ax = result.plot()
ax.set_title("What a forest relies on to predict diabetes progression", fontsize=10)
ax.figure.savefig(Path(__file__).parents[1] / "_static" / "first.png", dpi=110, facecolor="white", bbox_inches="tight")
