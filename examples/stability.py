"""
Fifty seeds of permutation importance
=====================================

Permutation importance changes with its seed. Here fifty seeds of scikit-learn's function, of shifts and of ranks
measure the same model on the same rows, and each replaces every value 16 times. :doc:`/stability` says what to make
of it.
"""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

import reliance as rl
from reliance import functional

# %%
# Who lends to whom
# -----------------
# The losses of a feature form a table: the loss of each row with the value of each donor. Permutation importance is
# the mean over the cells that are evaluated (red). Random permutations evaluate cells wherever they fall. By ranks,
# donors are sorted by the feature, and every row borrows once from each stretch of that order.
n, draws = 24, 4
rng = np.random.default_rng(1)
own = np.sort(rng.normal(size=n))
losses = (rng.normal(size=n)[:, None] + own[None, :]) ** 2
designs = {
    "random permutations": np.stack([rng.permutation(n) for _ in range(draws)], axis=1),
    "by ranks": functional.ranked_donors(own, draws, key=3),
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
for axis, (name, donors) in zip(axes, designs.items(), strict=True):
    axis.imshow(losses, cmap="Greys", vmax=9, alpha=0.6)
    axis.scatter(donors, np.repeat(np.arange(n)[:, None], draws, axis=1), s=14, color="tab:red")
    axis.set(title=name, xlabel="donors, smallest value first")
    for bound in np.arange(1, draws) * n / draws - 0.5:
        axis.axvline(bound, color="tab:blue", lw=1, ls="-" if name == "by ranks" else ":")
axes[0].set_ylabel("rows")

# %%
# Fifty seeds, the same cost
# --------------------------
SEEDS, DRAWS = 50, 16  # 16 is the default of reliance
data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = GradientBoostingRegressor(n_estimators=60, random_state=0).fit(X_train.to_numpy(), y_train)
rows, names = X.to_numpy(), list(X.columns)


def scikit_learn(seed: int) -> np.ndarray:
    options = {"n_repeats": DRAWS, "scoring": "neg_mean_squared_error", "random_state": seed}
    return permutation_importance(model, rows, y, **options).importances_mean


def of_design(design: str) -> Callable[[int], np.ndarray]:
    def measured(seed: int) -> np.ndarray:
        how = rl.Draws(DRAWS, design=design)
        return rl.permutation_importance(model, rows, y.to_numpy(), draws=how, loss="squared_error", rng=seed).values

    return measured


ways = {"scikit-learn": scikit_learn, "shifts": of_design("shifts"), "ranks": of_design("ranks")}
found = {name: np.stack([way(seed) for seed in range(SEEDS)]) for name, way in ways.items()}
exact = rl.model_reliance(model, rows, y.to_numpy(), compare="difference", loss="squared_error").values

# %%
# One deterministic permutation (`arXiv:2512.13892 <https://arxiv.org/abs/2512.13892>`_) also stands still: sort the
# rows by the feature, and let each borrow from the row that is half of the rows further on. But then no row meets a
# donor like itself, so the value is not that of a random donor, and more rows do not change this.


def one_permutation(column: int) -> float:
    order = np.argsort(rows[:, column], kind="stable")
    moved = rows.copy()
    moved[order, column] = rows[np.roll(order, len(order) // 2), column]
    labels = y.to_numpy()
    return float(np.mean((labels - model.predict(moved)) ** 2 - (labels - model.predict(rows)) ** 2))


single = np.array([one_permutation(column) for column in range(rows.shape[1])])

# %%
# The figure: a dot for each seed, a black line at the value of all pairs, a diamond for the one permutation.
top = np.argsort(-exact)[:5]
figure, axis = plt.subplots(figsize=(9, 4.6), layout="constrained")
for offset, (name, values) in enumerate(found.items()):
    heights = np.arange(len(top)) + 0.25 * (offset - 1)
    spread = np.broadcast_to(heights, (SEEDS, len(top)))
    axis.scatter(values[:, top], spread, s=9, alpha=0.5, lw=0, color=f"C{offset}", label=f"{name}, {DRAWS} draws")
axis.vlines(exact[top], np.arange(len(top)) - 0.4, np.arange(len(top)) + 0.4, color="black", lw=1, label="all pairs")
axis.scatter(single[top], np.arange(len(top)), marker="D", s=26, color="black", label="one permutation")
axis.set_yticks(np.arange(len(top)), [names[j] for j in top])
axis.invert_yaxis()
axis.set_xlabel("increase in squared error")
axis.legend(loc="lower right")

# %%
# In numbers: the variance over seeds against that of scikit-learn (median over features), how often the five features
# come in another order than by all pairs, how often those after the two nearly equal ones do, and the largest error of
# a value, as a share of it.


def in_other_order(values: np.ndarray, first: int) -> bool:
    return tuple(np.argsort(-values)[first : len(top)]) != tuple(top[first:])


def line(name: str, values: np.ndarray, variance: float) -> str:
    all_five, after_two = (np.mean([in_other_order(one, first) for one in values]) for first in (0, 2))
    off = np.max(np.abs(values[:, top] / exact[top] - 1))
    return f"{name:16} {variance:9.2f} {all_five:12.0%} {after_two:12.0%} {off:16.0%}"


noise = {name: np.var(values[:, top], axis=0) for name, values in found.items()}
print(f"{'':16} {'variance':>9} {'other order':>12} {'places 3-5':>12} {'off by at most':>16}")
for name, values in found.items():
    print(line(name, values, float(np.median(noise[name] / noise["scikit-learn"]))))
print(line("one permutation", single[None, :], 0.0))
