"""Per-row losses and whole-set metrics."""

from reliance.losses.distributions import gaussian_crps, gaussian_nll
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
from reliance.losses.sequences import binary_cross_entropy, dice, iou, soft_cross_entropy, token_cross_entropy
from reliance.losses.survival import c_index, cox_likelihood, survival_brier
from reliance.losses.trimming import trimmed

__all__ = [
    "Loss",
    "Metric",
    "absolute_error",
    "accuracy",
    "auc",
    "binary_cross_entropy",
    "c_index",
    "cox_likelihood",
    "cross_entropy",
    "dice",
    "gaussian_crps",
    "gaussian_nll",
    "hinge",
    "huber",
    "iou",
    "log_loss",
    "pinball",
    "poisson_deviance",
    "prediction_shift",
    "r2",
    "rmse",
    "soft_cross_entropy",
    "squared_error",
    "survival_brier",
    "token_cross_entropy",
    "trimmed",
    "zero_one",
]
