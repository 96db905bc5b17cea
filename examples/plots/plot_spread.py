"""
Boxes and violins of draws
==========================

The spread over draws: what another random replacement of the feature would have given on these rows. It is not an
interval, which also counts that the rows are a sample; take ``kind="bar"`` for that.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
result = rl.permutation_importance(model, X, y, draws=30, rng=0)
result.plot("box")

# %%
# The same as violins, for the five most important features.
result.plot("violin", most=5)
