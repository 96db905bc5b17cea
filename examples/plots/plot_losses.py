"""
Several losses
==============

Losses have scales of their own, features the same places: does the order of features depend on the loss? The axes say
what is measured; a metric of which more is better appears as the loss that it is, ``1 - R²``.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
results = rl.permutation_importance(model, X, y, draws=20, loss=["squared_error", "absolute_error", "r2"], rng=0)
results.plot()
