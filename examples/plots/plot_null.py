"""
Permuted labels
===============

Importances beside those of models that were fitted to permuted labels: how large is an importance that means nothing?
"""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import reliance as rl

X, y = load_diabetes(return_X_y=True, as_frame=True)
result = rl.null_importance(Ridge(0.1), X, y, rounds=30, rng=0)
result.plot()

# %%
# All rounds, as boxes; ``kind="violin"`` is the third form.
result.plot("box")
