"""
A report on a regression
========================

One call writes a page: what a small network relies on when it predicts the progression of diabetes, how sure that is,
and what to be careful about. The page is below, in a frame; the file needs no network.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl

data = load_diabetes()
X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
network = MLPRegressor(hidden_layer_sizes=(16,), alpha=1000.0, solver="lbfgs", max_iter=5000, random_state=0)
model = make_pipeline(StandardScaler(), network).fit(X_train, y_train)

page = Path(tempfile.mkdtemp()) / "audit.html"
rl.report(model, X, y, path=page, train=(X_train, y_train), names=data.feature_names, rng=0)
