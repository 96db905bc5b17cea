"""A group of columns against a single one, in a pipeline."""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reliance as rl

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:400], y[:400])
size = {"size": ["mean radius", "mean perimeter", "mean area", "worst radius", "worst perimeter", "worst area"]}
rl.permutation_importance(model, X[400:], y[400:], features={**size, "texture": "worst texture"}, rng=0).plot()
