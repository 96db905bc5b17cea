"""
Beeswarm of single rows
=======================

A point for each row: at the right are rows that the model predicts worse with another row's value. Results do not hold
the data, so pass ``X=``, the rows that were measured, to colour points by the feature's value.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
result = rl.permutation_importance(model, X, y, draws=20, keep="rows", rng=0)
result.plot("beeswarm", X=X, most=6)

# %%
# Contributions to predictions, without labels: high values of ``s5`` and ``bmi`` raise the prediction.
contributions = rl.local_importance(model, X, draws=30, rng=0)
contributions.plot("beeswarm", X=X, most=6)
