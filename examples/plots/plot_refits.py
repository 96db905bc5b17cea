"""
Left out and fitted again
=========================

What an algorithm loses without a feature: the bars compare models fitted with and without it, and the intervals are for
new training data (``target="algorithm"``) or for these fitted models.
"""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import reliance as rl

X, y = load_diabetes(return_X_y=True, as_frame=True)
result = rl.algorithm_reliance(Ridge(0.1), X, y, cv=5, compare="difference", rng=0)
result.plot()

# %%
# The spread over the splits.
result.plot("box")
