"""
Heat map of all rows
====================

Rows across, features down, the most important on top: blue where a value raises the prediction, red where it lowers it.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
rl.local_importance(model, X, draws=30, rng=0).plot(rows=60)
