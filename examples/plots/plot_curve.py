"""
Partial dependence
==================

The mean prediction for each value that a feature takes, with the curves of single rows in grey. Both come from the
evaluations of all pairs and cost nothing extra.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
result = rl.model_reliance(model, X, y, features=["bmi", "sex"], keep="ice")
result.plot("curve", feature="bmi")

# %%
# A feature with few values is drawn as points.
result.plot("curve", feature="sex")
