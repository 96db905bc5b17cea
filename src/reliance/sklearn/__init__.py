"""In place of scikit-learn's functions: the same signatures and answers, from the engine, with intervals."""

from reliance.sklearn.permutation import permutation_importance

__all__ = ["permutation_importance"]
