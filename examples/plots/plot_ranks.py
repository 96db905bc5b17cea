"""
Ranks
=====

Which ranks each feature may have, so that all of it is true with 95% probability. Features whose lines overlap may
change places on new data.
"""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

import reliance as rl

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
result = rl.permutation_importance(Ridge(0.1).fit(X_train, y_train), X_test, y_test, keep="influence", rng=0)
result.ranks().plot()
