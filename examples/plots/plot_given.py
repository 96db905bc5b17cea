"""
Given other variables
=====================

How much of a feature's importance is left once other variables are known? A colour for each set of given variables.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
result = rl.relative_importance(
    model,
    X.to_numpy(),
    y.to_numpy(),
    features=["bmi", "bp", "s5", "s3"],
    given={"": [], "bmi and bp": ["bmi", "bp"], "all others": "rest"},
    names=list(X.columns),
    rng=0,
)
result.plot()

# %%
# ``by="set"`` puts the features of one set side by side, and ``marks=`` adds other values of the same, such as analytic
# ones: see :ref:`sphx_glr_auto_examples_indirect_influence.py`.
result.plot(by="set")

# %%
# What a set accounts for is a paired difference, with an interval of its own.
result.delta("", "bmi and bp").plot()
