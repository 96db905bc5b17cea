"""The figure of the page on reading a result."""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import reliance as rl

X, y = load_diabetes(return_X_y=True, as_frame=True)
model = RandomForestRegressor(random_state=0).fit(X[:300], y[:300])
rl.permutation_importance(model, X[300:], y[300:], rng=0).plot()
