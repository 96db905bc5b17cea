"""
A report on a classifier of pictures
====================================

Rows that are pictures, here handwritten digits of 8 x 8 pixels, get one more figure: where in the picture the model
looks. A function of arrays says nothing about its answers, so the loss is named: log loss, for probabilities.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import reliance as rl

digits = load_digits()
train, pictures, y_train, y = train_test_split(digits.images / 16.0, digits.target, test_size=0.3, random_state=0)
classifier = LogisticRegression(C=0.1, max_iter=1000).fit(train.reshape(-1, 64), y_train)


def probabilities(batch):
    return classifier.predict_proba(batch.reshape(-1, 64))


page = Path(tempfile.mkdtemp()) / "audit.html"
chosen = ["importance", "given", "curves"]
rl.report(probabilities, pictures, y, path=page, loss="log_loss", sections=chosen, draws=10, rng=0)
