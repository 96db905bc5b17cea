"""
Pixels, patches and masks
=========================

Where in a picture does the model look? ``shape=`` says where pixels are; a mask that was measured as ``features=`` says
it for groups of pixels.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl

digits = load_digits()
X_train, X, y_train, y = train_test_split(digits.data, digits.target, test_size=0.3, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X_train, y_train)
rl.permutation_importance(model, X, y, loss="log_loss", draws=5, rng=0).plot("image", shape=(8, 8))

# %%
# Patches of 2 x 2 pixels that are replaced together. Neighbours say much the same, so patches are more important than
# the sum of their pixels.
mask = np.kron(np.arange(16).reshape(4, 4), np.ones((2, 2), dtype=int))


def on_pictures(batch):
    return model.predict_proba(batch.reshape(len(batch), -1))


pictures = X.reshape(-1, 8, 8)
patches = rl.permutation_importance(on_pictures, pictures, y, features=mask, loss="log_loss", draws=5, rng=0)
patches.plot("image", mask=mask)

# %%
# What made the model predict the class of one picture: contributions to the probability of that class.
row = 0
contributions = rl.local_importance(
    lambda batch: on_pictures(batch)[:, y[row]], pictures, features=mask, rows=[row], draws=50, rng=0
)
contributions.plot("image", mask=mask)
