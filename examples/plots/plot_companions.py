"""
Coefficients, interactions, extrapolation
=========================================

Bars of three companions of importance. Coefficients of a linear model, on features scaled to [0, 1]:
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
rl.linear_importance(RidgeCV().fit(X_train, y_train), X).plot()

# %%
# What two features do together, beyond the sum of their importances:
rl.interaction_importance(model, X, y, features=["bmi", "s5", "bp"], rng=0).plot()

# %%
# How far rows with a replaced feature lie from the data, with a line where the method warns:
rl.extrapolation_check(X).plot()
