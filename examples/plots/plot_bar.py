"""
Bars with intervals
===================

How much does the error grow when a feature's values come from other rows? The most important feature is on top, the
whiskers are confidence intervals (``level=``), and the line below the axis says on how many rows and how good the model
is there.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
result = rl.permutation_importance(model, X, y, draws=20, rng=0)
result.plot()

# %%
# A feature whose interval crosses 0 may as well not be used. ``result.test()`` gives p-values, adjusted for testing
# several features, and draws them with a line at ``alpha=``.
result.test().plot(alpha=0.05)
