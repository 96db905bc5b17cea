"""
Waterfall of one prediction
===========================

From the mean prediction to that of one row. Each bar is what the row's own value contributes, beside that value if
``X=`` is given; the rest, which features contribute only together, is the last bar.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import reliance as rl

data = load_diabetes(as_frame=True)
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
model = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
contributions = rl.local_importance(model, X, draws=50, rng=0)
contributions.plot("waterfall", row=3, X=X, most=6)

# %%
# ``kind="bar"`` shows the same values side by side, with intervals over the draws.
contributions.plot("bar", row=3)
