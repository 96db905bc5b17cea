"""Intervals of three formulations from forty data sets, around the true value: red ones miss it."""

import matplotlib.pyplot as plt
import numpy as np

import reliance as rl

DATA_SETS, TRUTH = 40, 2.0  # E (x - x')^2 for standard normal x, x'
found = []
for seed in range(DATA_SETS):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 1))
    y = X[:, 0] + rng.normal(size=200)
    found.append(rl.permutation_importance(lambda rows: rows[:, 0], X, y, rng=seed))

formulations = ("population", "fixed-data", "random-variable")
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained", sharey=True)
for ax, formulation in zip(axes, formulations, strict=True):
    ends = np.stack([result.interval(formulation=formulation)[0] for result in found])
    holds = (ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)
    for place, ((low, high), good) in enumerate(zip(ends, holds, strict=True)):
        ax.plot([place, place], [low, high], color="#0072B2" if good else "#D55E00", linewidth=2)
    ax.axhline(TRUTH, color="black", linewidth=1, linestyle="--")
    ax.set_title(f"{formulation}: {holds.sum()} of {DATA_SETS} contain it", fontsize=9)
    ax.set_xlabel("data set")
    ax.set_xticks([])
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("importance; dashed: true value")
