"""Intervals of forty data sets with 50 clusters of 10 rows, without and with the clusters: red ones miss the truth."""

import matplotlib.pyplot as plt
import numpy as np

import reliance as rl

DATA_SETS, TRUTH = 40, 2.0  # E (x - x')^2 for standard normal x, x'
of = np.repeat(np.arange(50), 10)
found: dict[str, list[rl.Importance]] = {"rows as if independent": [], "clusters=of": []}
for seed in range(DATA_SETS):
    rng = np.random.default_rng(seed)
    x, noise = np.sqrt(0.5) * (rng.normal(size=(2, 50))[:, of] + rng.normal(size=(2, 500)))
    X, y = x[:, None], x + noise
    for words, clusters in zip(found, (None, of), strict=True):
        found[words].append(rl.permutation_importance(lambda rows: rows[:, 0], X, y, clusters=clusters, rng=seed))

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained", sharey=True)
for ax, (words, results) in zip(axes, found.items(), strict=True):
    ends = np.stack([result.interval()[0] for result in results])
    holds = (ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)
    for place, ((low, high), good) in enumerate(zip(ends, holds, strict=True)):
        ax.plot([place, place], [low, high], color="#0072B2" if good else "#D55E00", linewidth=2)
    ax.axhline(TRUTH, color="black", linewidth=1, linestyle="--")
    ax.set_title(f"{words}: {holds.sum()} of {DATA_SETS} contain it", fontsize=9)
    ax.set_xlabel("data set")
    ax.set_xticks([])
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("importance; dashed: true value")
