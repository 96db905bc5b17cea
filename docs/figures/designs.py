"""How much an importance varies from seed to seed, by the design of its draws."""

import matplotlib.pyplot as plt
import numpy as np

import reliance as rl

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = X[:, 0] + 0.5 * rng.normal(size=200)
found = {
    design: [
        rl.permutation_importance(
            lambda rows: rows[:, 0], X, y, draws=rl.Draws(8, design=design), features=[0], rng=seed
        ).values[0]
        for seed in range(200)
    ]
    for design in ("permutations", "ranks")
}
exact = rl.model_reliance(lambda rows: rows[:, 0], X, y, compare="difference", features=[0]).values[0]

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
bins = np.histogram_bin_edges(np.concatenate(list(found.values())), bins=40)
for (design, values), colour in zip(found.items(), ("#E69F00", "#0072B2"), strict=True):
    ax.hist(values, bins=bins, color=colour, alpha=0.75, label=f"8 {design}" if design != "ranks" else "8 by ranks")
ax.axvline(exact, color="black", linewidth=1, linestyle="--", label="all pairs")
ax.set_xlabel("importance (increase in squared error)")
ax.set_ylabel("seeds")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
