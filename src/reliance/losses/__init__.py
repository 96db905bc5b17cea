"""Per-row losses and whole-set metrics."""

from reliance.losses.functions import (
    Loss,
    Metric,
    absolute_error,
    accuracy,
    auc,
    cross_entropy,
    hinge,
    huber,
    log_loss,
    pinball,
    poisson_deviance,
    prediction_shift,
    r2,
    rmse,
    squared_error,
    zero_one,
)

__all__ = [
    "Loss",
    "Metric",
    "absolute_error",
    "accuracy",
    "auc",
    "cross_entropy",
    "hinge",
    "huber",
    "log_loss",
    "pinball",
    "poisson_deviance",
    "prediction_shift",
    "r2",
    "rmse",
    "squared_error",
    "zero_one",
]
