"""Whether labels and base predictions are such as a loss is defined for: read once, before the engine runs."""

from __future__ import annotations

import numpy as np

from reliance._core.arrays import is_floating, namespace, to_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.losses.formulas import Host, float_dtype, is_numeric
from reliance.losses.functions import Loss, Metric, check_shapes, conform, own_columns, takes_weights


def check(loss: Loss | Metric, y: Array, prediction: Array) -> None:
    """Raise if the loss is not defined for these labels and base predictions. May wait for the device."""
    y = own_columns(loss, y) if loss.target == "prediction" else y
    xp, prediction = namespace(y, prediction), conform(loss, y, prediction)
    if loss.why and loss.target == "real" and prediction.ndim == y.ndim + 1 and not is_floating(xp, y.dtype):
        raise ValueError(
            f"loss is None, y holds labels of dtype {y.dtype} and the model returns {tuple(prediction.shape)}: pass "
            "loss='cross_entropy' if these are logits (raw scores), loss='log_loss' if they are probabilities"
        )
    check_shapes(loss, y, prediction)
    labels = _host(y)
    if loss.labels:
        _check_labels(loss, labels, prediction)
    for what, x in (("y", y), ("the predictions", prediction)):
        if loss.target == "prediction" and not is_numeric(x):
            raise ValueError(
                f"{loss.name}: the model predicts labels of dtype {x.dtype}, whose shift is not a number; pass a "
                "function that returns numbers, for instance lambda X: model.predict_proba(X)[:, 1]."
            )
        if loss.target != "any" and not is_numeric(x):
            raise ValueError(f"{loss.name}: {what} must be numbers, got dtype {x.dtype}; {_encoded(loss, what)}.")
    if loss.target == "class":
        _check_classes(loss, labels, prediction)
    if loss.target == "sign" and np.any(np.abs(labels.astype(float)) != 1):
        raise ValueError(f"{loss.name}: y must be -1 or 1, got {_few(labels)}; for labels 0 and 1 pass 2*y - 1.")
    if loss.target == "count" and np.any(labels < 0):
        raise ValueError(f"{loss.name}: y must be >= 0, got {_few(labels[labels < 0])}; correct or drop those rows.")
    if loss.valid is not None and not bool(to_host(loss.valid(prediction))):
        low, high = float(to_host(xp.min(prediction))), float(to_host(xp.max(prediction)))
        raise ValueError(f"{loss.requirement or loss.name}; the predictions range from {low:.6g} to {high:.6g}.")
    why = "" if loss.undefined is None else loss.undefined(labels, prediction)
    if why:
        raise ValueError(f"{loss.name}: {why}.")


def _encoded(loss: Loss | Metric, what: str) -> str:
    """What to do about text."""
    if what != "y":
        return "return numbers from the model"
    if loss.target == "class":
        return "encode labels as 0..C-1, as np.unique(y, return_inverse=True)[1] does"
    return "pass numbers, or for labels loss='zero_one' or 'log_loss'"


def _check_classes(loss: Loss | Metric, labels: Host, prediction: Array) -> None:
    _check_integers(loss, "y", labels, "encode them as 0..C-1")
    if prediction.ndim == 1 and loss.output == "value":
        return  # predicted labels: how many classes there are is not known
    classes = prediction.shape[1] if prediction.ndim == 2 else 2
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        given = f"y has labels {_few(outside)} that are not among the predicted classes 0..{classes - 1}"
        raise ValueError(f"{loss.name}: {given}; encode y as 0..C-1 (labels -1 and 1: pass (y + 1) // 2).")


def _check_labels(loss: Loss | Metric, labels: Host, prediction: Array) -> None:
    numeric = labels.dtype.kind in "biuf"
    if numeric != is_numeric(prediction) or (prediction.ndim == 2 and not numeric):
        given = f"y has dtype {labels.dtype} but the predictions {tuple(prediction.shape)} have {prediction.dtype}"
        raise ValueError(f"{loss.name}: {given}; return from the model the same kind of labels as y holds.")
    _check_classes(loss, labels, prediction)
    remedy = "threshold them (as in p > 0.5), return (n, classes), or pass loss='log_loss'"
    if prediction.ndim == 1:
        _check_integers(loss, "the predictions", _host(prediction), remedy)


def _check_integers(loss: Loss | Metric, what: str, values: Host, remedy: str) -> None:
    broken = values[values != np.floor(values)] if values.dtype.kind == "f" else values[:0]
    if broken.size:
        raise ValueError(f"{loss.name}: {what} must be integer labels, got {_few(broken)}; {remedy}.")


def _host(x: Array) -> Host:
    """Downloaded, and at least float32: NumPy does not know bfloat16 as floating."""
    xp = namespace(x)
    return to_host(xp.astype(x, float_dtype(xp, x), copy=False) if is_floating(xp, x.dtype) else x)


def _few(values: Host) -> str:
    found = np.unique(values)
    return ", ".join(str(v) for v in found[:5]) + (", ..." if found.size > 5 else "")


def check_takes_weights(function: Loss | Metric, why: str) -> None:
    """A metric that will be called with weights must take them: said before the work."""
    if isinstance(function, Metric) and not takes_weights(function):
        raise TypeError(
            f"{why}, so metric {shown(function.name)} is called as (y, prediction, weights), but its functions take "
            "no weights: give value and influence a third argument, weights=None"
        )
