"""
Every good model of a class
===========================

Between its two dots lies how much any good linear model relies on a feature. The largest lower end is on top: those are
the features that no good model does without. Diamonds are the reference, by default the best model of the class.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
good = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
good.plot()

# %%
# ``reference=`` puts a model of yours in its place.
good.plot(reference=rl.model_reliance(model, X, y))

# %%
# With ``uncertainty=True`` each end has a confidence interval, drawn below its range.
rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=True).plot(most=5)

# %%
# Sparse trees are listed one by one. Each point is a good tree: those that rely on one feature need the other less.
trees = rl.model_class_reliance(rl.TreeClass(depth=2, penalty=50.0, cuts=3, loss="squared_error"), X, y, epsilon=0.15)
trees.plot("cloud")

# %%
# The same trees against their risk: loss plus penalty. The best trees are on the left, the bound is dashed.
trees.plot("risk")
