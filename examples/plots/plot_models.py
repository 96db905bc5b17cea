"""
Several models
==============

Models under the same loss share an axis, a colour for each.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
ridge = RidgeCV().fit(X_train, y_train)
each = {
    name: rl.permutation_importance(one, X, y, draws=20, rng=0)
    for name, one in {"forest": model, "ridge": ridge}.items()
}
rl.Results(each, by="model").plot()
