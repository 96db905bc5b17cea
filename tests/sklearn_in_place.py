"""A pytest plugin: our `permutation_importance` in the place of scikit-learn's, for scikit-learn's own tests."""

import sklearn.inspection

from reliance.sklearn import permutation_importance

sklearn.inspection.permutation_importance = permutation_importance
