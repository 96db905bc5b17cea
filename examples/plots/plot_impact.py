"""
Feature impact
==============

How far predictions spread when a feature is held at its quantiles, without labels: the mean as a bar, each quantile as
a point.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
impact = rl.feature_impact(model, X)
impact.plot()

# %%
# Where along the feature it matters: a line over the quantiles for each feature.
impact.plot("quantiles", most=5)
