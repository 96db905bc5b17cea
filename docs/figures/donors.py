"""The table of losses, and which of its cells each design fills in. Rows and donors are sorted by the feature."""

import matplotlib.pyplot as plt
import numpy as np

from reliance import plans

N, DRAWS = 12, 3
COLOURS = ("#0072B2", "#E69F00", "#009E73")  # one for each draw

x = np.linspace(-1.5, 1.5, N)
y = x + np.random.default_rng(4).normal(scale=0.3, size=N)
losses = (y[:, None] - x[None, :]) ** 2  # row i with the value of donor k, under the model f(x) = x

orders = plans.Orders.of(x[:, None], key=2)
columns = range(DRAWS)
shuffled = plans.Permutations(N, DRAWS, lambda k: np.random.default_rng(k + 1).permutation(N))
designs = {
    "All pairs\nn(n-1) model calls": None,
    "Permutations\none cell per row and draw": shuffled.donors(range(N), columns),
    "Ranks\none cell per row in each stretch": plans.Ranked(N, DRAWS, 2, orders).donors(range(N), columns),
    "Halves\nn calls, in pairs of rows": plans.halves(N, 5).donors(range(N), range(1)),
}

figure, axes = plt.subplots(1, 4, figsize=(9.5, 3.3), layout="constrained", sharey=True)
for ax, (title, donors) in zip(axes, designs.items(), strict=True):
    ax.imshow(losses, cmap="Greys", vmax=2.2 * losses.max(), origin="upper")
    if donors is None:
        off = ~np.eye(N, dtype=bool)
        ax.scatter(*np.nonzero(off)[::-1], s=16, color=COLOURS[0], linewidths=0)
    else:
        for k in range(donors.shape[1]):
            ax.scatter(donors[:, k], np.arange(N), s=26, color=COLOURS[k], linewidths=0, label=f"draw {k + 1}")
    if title.startswith("Ranks"):
        for edge in range(N // DRAWS, N, N // DRAWS):
            ax.axvline(edge - 0.5, color="black", linewidth=1.2)
    ax.plot([-0.5, N - 0.5], [-0.5, N - 0.5], color="black", linewidth=0.6, linestyle=":")
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("donor, sorted by the feature")
    ax.set_xticks([])
    ax.set_yticks([])
axes[0].set_ylabel("row, sorted by the feature")
axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False, fontsize=9, handletextpad=0.1)
