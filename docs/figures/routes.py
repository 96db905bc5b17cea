"""Cells of the table of losses that all pairs and 16 draws compute, by route, as the library counts them."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import reliance as rl

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
X[:, 2] = rng.integers(5, size=400)
y = X[:, 0] + X[:, 1] + X[:, 2] + rng.normal(size=400)
boosted = HistGradientBoostingRegressor(max_iter=50, random_state=0).fit(X, y)
linear = LinearRegression().fit(X, y)
cases = {
    "linear model": (linear, 0),
    "boosted trees\n(read, not called)": (boosted, 0),
    "any function,\ncolumn of 5 values": (boosted.predict, 2),
    "any function": (boosted.predict, 0),
}

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
places = np.arange(len(cases))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pairs = [rl.model_reliance(model, X, y, features=[j]).evaluations[0] for model, j in cases.values()]
    drawn = [rl.permutation_importance(model, X, y, features=[j], rng=0).evaluations[0] for model, j in cases.values()]
for shift, counts, colour, label in ((-0.2, pairs, "#0072B2", "all pairs"), (0.2, drawn, "#E69F00", "16 draws")):
    bars = ax.barh(places + shift, np.maximum(counts, 1), height=0.38, color=colour, label=label)
    ax.bar_label(bars, [f"{count:,}" for count in counts], padding=3, fontsize=8)
ax.set_xscale("log")
ax.set_xlim(1, 2e6)
ax.set_yticks(places, list(cases))
ax.invert_yaxis()
ax.set_xlabel("cells of the table of losses that are computed, 400 rows")
ax.legend(frameon=False, loc="upper right")
ax.spines[["top", "right"]].set_visible(False)
