"""
Training against test data
==========================

Importances on the rows that a model was fitted to look larger than on new rows. Each point is a feature.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
both = rl.compare_splits(model, train=(X_train, y_train), test=(X, y), rng=0)
both.plot()

# %%
# Feature by feature, with intervals.
both.plot("bar")
