"""More kinds for `routes.py`: pipelines and models of models, kernel machines, and models that have no route."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
from route_cases import Case, fitted, kind, mixed_table, on_first, on_labels, on_numbers

# ---------------------------------------------------------------------------------------------------------------------
# Pipelines and models of models


@kind("StandardScaler + Ridge")
def scaled_ridge(n: int) -> Case:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return on_numbers(make_pipeline(StandardScaler(), Ridge()), n)


def prepared(last: Any) -> Any:
    """Numbers imputed and scaled, texts and categories one-hot, then a model."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    of_numbers, others = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
    return make_pipeline(make_column_transformer((numeric, of_numbers), (texts, others)), last)


@kind("ColumnTransformer + Ridge")
def columns_ridge(n: int) -> Case:
    from sklearn.linear_model import Ridge

    return fitted(prepared(Ridge()), *mixed_table(n), n)


@kind("ColumnTransformer + HistGradientBoostingRegressor")
def columns_hist(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return fitted(prepared(HistGradientBoostingRegressor(random_state=0)), *mixed_table(n), n)


@kind("ColumnTransformer + LogisticRegression, log loss", "log_loss")
def columns_logistic(n: int) -> Case:
    from sklearn.linear_model import LogisticRegression

    table, y = mixed_table(n)
    return fitted(prepared(LogisticRegression()), table, (y > 0).astype(int), n)


@kind("SplineTransformer + Ridge")
def splines(n: int) -> Case:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    return on_numbers(make_pipeline(SplineTransformer(), Ridge()), n)


@kind("StandardScaler + HistGradientBoostingRegressor")
def scaled_hist(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return on_numbers(make_pipeline(StandardScaler(), HistGradientBoostingRegressor(random_state=0)), n)


@kind("StandardScaler + SVR", goal=3.0)
def scaled_svr(n: int) -> Case:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    return on_numbers(make_pipeline(StandardScaler(), SVR()), n)


@kind("TransformedTargetRegressor of Ridge")
def transformed_target(n: int) -> Case:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    return on_numbers(TransformedTargetRegressor(Ridge(), transformer=StandardScaler()), n)


@kind("GridSearchCV of HistGradientBoostingRegressor")
def searched(n: int) -> Case:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import GridSearchCV

    return on_numbers(GridSearchCV(HistGradientBoostingRegressor(random_state=0), {"max_depth": [3]}, cv=2), n)


@kind("PCA + Ridge, which mixes columns", goal=np.inf)
def components(n: int) -> Case:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    return on_numbers(make_pipeline(PCA(5), Ridge()), n)


# ---------------------------------------------------------------------------------------------------------------------
# Kernel machines, metrics


@kind("SVR, RBF", goal=3.0)
def svr(n: int) -> Case:
    from sklearn.svm import SVR

    return on_numbers(SVR(), n)


@kind("SVR, RBF, absolute error", "absolute_error", goal=np.inf)
def svr_absolute(n: int) -> Case:
    return svr(n)


@kind("NuSVR, degree 3", goal=3.0)
def nu_svr(n: int) -> Case:
    from sklearn.svm import NuSVR

    return on_numbers(NuSVR(kernel="poly", coef0=1.0), n)


@kind("SVC, RBF, zero-one", "zero_one", goal=np.inf)
def svc(n: int) -> Case:
    from sklearn.svm import SVC

    return on_labels(SVC(), n)


@kind("KernelRidge, RBF", goal=3.0)
def kernel_ridge(n: int) -> Case:
    from sklearn.kernel_ridge import KernelRidge

    return on_first(KernelRidge(kernel="rbf", gamma=0.05), n)


@kind("GaussianProcessRegressor", goal=3.0)
def gaussian_process(n: int) -> Case:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    kernel = kernels.RBF(3.0) + kernels.WhiteKernel(0.5)
    return on_first(GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True), n)


# ---------------------------------------------------------------------------------------------------------------------
# Models that have no route: what all pairs cost then


@kind("MLPRegressor", goal=np.inf)
def network(n: int) -> Case:
    from sklearn.neural_network import MLPRegressor

    return on_numbers(MLPRegressor(hidden_layer_sizes=(32,), max_iter=50, early_stopping=True, random_state=0), n)


@kind("KNeighborsRegressor", goal=np.inf)
def neighbours(n: int) -> Case:
    from sklearn.neighbors import KNeighborsRegressor

    return on_numbers(KNeighborsRegressor(), n)
